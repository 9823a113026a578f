//! Protection domains, XRC domains, address handles.

use std::sync::Arc;

use vnic_device::command::qp::{self, CreateAh};
use vnic_device::command::{Object, Opcode};
use vnic_device::zerocopy::{Immutable, IntoBytes};

use crate::driver::Core;
use crate::{AddressVector, Error};

/// An object of the device that has a handle and no memory.
pub(crate) struct Plain {
    pub core: Arc<Core>,
    pub epoch: u32,
    pub handle: u32,
    end: Opcode,
}

impl Drop for Plain {
    fn drop(&mut self) {
        self.core.end(self.epoch, self.end, self.handle, Box::new(()));
    }
}

impl Plain {
    /// Makes an object by a command, which another command ends. `epoch`: that of the object that it belongs to.
    pub fn new<B>(core: &Arc<Core>, epoch: u32, make: Opcode, body: &B, end: Opcode) -> Result<Plain, Error>
    where
        B: IntoBytes + Immutable,
    {
        let Object { handle, .. } = core.call(epoch, make, body)?;
        Ok(Plain {
            core: Arc::clone(core),
            epoch,
            handle,
            end,
        })
    }
}

/// A protection domain: objects that may use each other (IBTA 10.2.3). Clones are the same domain; it is
/// deallocated with the last clone and the last object in it.
#[derive(Clone)]
pub struct ProtectionDomain(pub(crate) Arc<Plain>);

impl ProtectionDomain {
    pub(crate) fn new(core: &Arc<Core>) -> Result<ProtectionDomain, Error> {
        let object = Plain::new(core, core.epoch()?, Opcode::AllocPd, &(), Opcode::DeallocPd)?;
        Ok(ProtectionDomain(Arc::new(object)))
    }

    /// Number of the domain.
    pub fn number(&self) -> u32 {
        self.0.handle
    }

    /// Makes an address handle, which datagrams name as their destination.
    ///
    /// ```no_run
    /// # fn example(pd: &vnic_verbs::ProtectionDomain, peer: &vnic_verbs::Endpoint) -> Result<(), vnic_verbs::Error> {
    /// use vnic_verbs::AddressVector;
    ///
    /// let handle = pd.create_ah(&AddressVector {
    ///     dgid: peer.gid,
    ///     dmac: peer.mac,
    ///     sgid_index: 1,
    ///     ..AddressVector::default()
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn create_ah(&self, address: &AddressVector) -> Result<AddressHandle, Error> {
        let body = CreateAh {
            pd: self.number(),
            reserved: 0,
            address: (*address).into(),
        };
        Ok(AddressHandle(Arc::new(Ah {
            object: Plain::new(
                &self.0.core,
                self.0.epoch,
                Opcode::CreateAh,
                &body,
                Opcode::DestroyAh,
            )?,
            _pd: self.clone(),
        })))
    }
}

/// A domain that XRC receive queues share (IBTA annex A14). Clones are the same domain.
#[derive(Clone)]
pub struct XrcDomain(pub(crate) Arc<Plain>);

impl XrcDomain {
    pub(crate) fn new(core: &Arc<Core>) -> Result<XrcDomain, Error> {
        let object = Plain::new(core, core.epoch()?, Opcode::OpenXrcd, &(), Opcode::CloseXrcd)?;
        Ok(XrcDomain(Arc::new(object)))
    }

    /// Number of the domain.
    pub fn number(&self) -> u32 {
        self.0.handle
    }
}

/// The way to a peer, for datagrams. Clones are the same handle. It may be dropped behind datagrams that were posted; one whose handle
/// has been gone for 256 others, or since the GID table changed, completes with an error.
#[derive(Clone)]
pub struct AddressHandle(Arc<Ah>);

struct Ah {
    object: Plain,
    _pd: ProtectionDomain,
}

impl AddressHandle {
    /// Number of the handle.
    pub fn number(&self) -> u32 {
        self.0.object.handle
    }

    /// The address as the device has it, with the Ethernet address that the device found out.
    pub fn query(&self) -> Result<AddressVector, Error> {
        let Plain {
            core, epoch, handle, ..
        } = &self.0.object;
        let address: qp::AddressVector = core.about(*epoch, Opcode::QueryAh, *handle)?;
        Ok(address.into())
    }
}

/// What is shown of objects for debugging: the number.
macro_rules! numbered {
    ($($name:ident)*) => {$(
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{}({})", stringify!($name), self.number())
            }
        }
    )*};
}

pub(crate) use numbered;
numbered! { ProtectionDomain XrcDomain AddressHandle }
