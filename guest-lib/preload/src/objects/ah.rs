//! Address handles, and addresses.

#![expect(
    unsafe_code,
    reason = "begins as the structure of the header, and reads GIDs, which are a union there"
)]

pub mod from_wc;

use std::cell::UnsafeCell;

use vnic_verbs::{AddressHandle, AddressVector, Error, Gid};

use super::Pd;
use crate::abi::*;
use crate::errno::Errno;
use crate::handle::{Object, Use, publish};
use crate::work::poll;

/// An address handle.
#[repr(C)]
pub struct Ah {
    base: UnsafeCell<ibv_ah>,
    pub inner: AddressHandle,
    _needs: Use,
}

object!(Ah: ibv_ah);

impl Ah {
    /// Makes an address handle.
    pub fn create(pd: &Pd, attributes: &ibv_ah_attr) -> Result<*mut ibv_ah, Errno> {
        let mut to = address(attributes)?;
        to.service_level = poll::level_of(to.service_level);
        let inner = pd.inner.create_ah(&to).map_err(no_such_gid)?;
        let pointer = pd.c();
        Ok(publish(Ah {
            base: UnsafeCell::new(ibv_ah {
                context: pd.context(),
                pd: pointer,
                handle: inner.number(),
            }),
            inner,
            _needs: pd.uses.one(),
        }))
    }
}

/// Hop limit if the program names none: that of a kernel's route.
const HOPS: u8 = 64;

/// Address vector of the program's attributes. On Ethernet it is always by GID, and the device finds
/// the Ethernet address out.
pub fn address(attributes: &ibv_ah_attr) -> Result<AddressVector, Errno> {
    if attributes.port_num != 1 || attributes.is_global == 0 {
        return Err(Errno::INVALID);
    }
    let route = &attributes.grh;
    Ok(AddressVector {
        dgid: Gid(bytes(&route.dgid)),
        dmac: None,
        sgid_index: route.sgid_index.into(),
        flow_label: route.flow_label & 0xf_ffff,
        traffic_class: route.traffic_class,
        hop_limit: if route.hop_limit == 0 {
            HOPS
        } else {
            route.hop_limit
        },
        service_level: attributes.sl,
    })
}

/// The program's attributes of an address vector.
pub fn attributes(address: &AddressVector) -> ibv_ah_attr {
    ibv_ah_attr {
        grh: ibv_global_route {
            dgid: ibv_gid { raw: address.dgid.0 },
            flow_label: address.flow_label,
            sgid_index: u8::try_from(address.sgid_index).unwrap_or(u8::MAX),
            hop_limit: address.hop_limit,
            traffic_class: address.traffic_class,
        },
        dlid: 0,
        sl: address.service_level,
        src_path_bits: 0,
        static_rate: 0,
        is_global: 1,
        port_num: 1,
    }
}

/// The bytes of a GID.
pub fn bytes(gid: &ibv_gid) -> [u8; 16] {
    // SAFETY: both views are the same 16 bytes, and any bytes are a GID.
    unsafe { gid.raw }
}

/// The kernel's error for an index without a GID: an invalid argument.
pub fn no_such_gid(e: Error) -> Errno {
    match Errno::from(e) {
        Errno::NO_ENTRY => Errno::INVALID,
        e => e,
    }
}
