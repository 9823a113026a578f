//! Protection domains, XRC domains, address handles.

use std::sync::Arc;

use vnic_device::command::qp::CreateAh;
use vnic_device::command::{Object, Opcode};

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
    fn new(core: &Arc<Core>, make: Opcode, end: Opcode) -> Result<Arc<Plain>, Error> {
        let epoch = core.epoch()?;
        let handle = core.make(epoch, make, &())?;
        Ok(Arc::new(Plain {
            core: Arc::clone(core),
            epoch,
            handle,
            end,
        }))
    }
}

/// A protection domain: objects that may use each other (IBTA 10.2.3). Clones are the same domain; it is
/// deallocated with the last clone and the last object in it.
#[derive(Clone)]
pub struct ProtectionDomain(pub(crate) Arc<Plain>);

impl ProtectionDomain {
    pub(crate) fn new(core: &Arc<Core>) -> Result<ProtectionDomain, Error> {
        Plain::new(core, Opcode::AllocPd, Opcode::DeallocPd).map(ProtectionDomain)
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
        let Plain {
            core, epoch, handle, ..
        } = &*self.0;
        let body = CreateAh {
            pd: *handle,
            reserved: 0,
            address: (*address).into(),
        };
        let handle = core.make(*epoch, Opcode::CreateAh, &body)?;
        Ok(AddressHandle(Arc::new(Ah {
            handle,
            pd: self.clone(),
        })))
    }
}

/// A domain that XRC receive queues share (IBTA annex A14). Clones are the same domain.
#[derive(Clone)]
pub struct XrcDomain(pub(crate) Arc<Plain>);

impl XrcDomain {
    pub(crate) fn new(core: &Arc<Core>) -> Result<XrcDomain, Error> {
        Plain::new(core, Opcode::OpenXrcd, Opcode::CloseXrcd).map(XrcDomain)
    }

    /// Number of the domain.
    pub fn number(&self) -> u32 {
        self.0.handle
    }
}

/// The way to a peer, for datagrams. Clones are the same handle. A datagram whose handle is destroyed before the
/// device has sent it completes with an error.
#[derive(Clone)]
pub struct AddressHandle(Arc<Ah>);

struct Ah {
    handle: u32,
    pd: ProtectionDomain,
}

impl Drop for Ah {
    fn drop(&mut self) {
        let pd = &self.pd.0;
        pd.core
            .end(pd.epoch, Opcode::DestroyAh, self.handle, Box::new(()));
    }
}

impl AddressHandle {
    /// Number of the handle.
    pub fn number(&self) -> u32 {
        self.0.handle
    }

    /// The address as the device has it, with the Ethernet address that the device found out.
    pub fn query(&self) -> Result<AddressVector, Error> {
        let pd = &self.0.pd.0;
        let object = Object {
            handle: self.0.handle,
            reserved: 0,
        };
        let address: vnic_device::command::qp::AddressVector =
            pd.core.call(pd.epoch, Opcode::QueryAh, &object)?;
        Ok(address.into())
    }
}

macro_rules! numbered {
    ($($name:ident)*) => {$(
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{}({})", stringify!($name), self.number())
            }
        }
    )*};
}

numbered! { ProtectionDomain XrcDomain AddressHandle }
