//! Domains and address handles.

use std::cell::UnsafeCell;

use vnic_verbs::{AddressHandle, ProtectionDomain, XrcDomain};

use crate::abi::{ibv_ah, ibv_pd, ibv_td, ibv_xrcd};
use crate::handle::{Object, Use, Uses};

/// A protection domain, or a parent domain, which is one under another name (`of`).
#[repr(C)]
pub struct Pd {
    base: UnsafeCell<ibv_pd>,
    pub inner: ProtectionDomain,
    pub uses: Uses,
    /// The context; of a parent domain also the domain that it is of, and its thread domain.
    pub needs: Vec<Use>,
}

/// A thread domain: a promise of the program's that we make no use of.
#[repr(C)]
pub struct Td {
    base: UnsafeCell<ibv_td>,
    pub uses: Uses,
    pub needs: Use,
}

/// An address handle.
#[repr(C)]
pub struct Ah {
    base: UnsafeCell<ibv_ah>,
    pub inner: AddressHandle,
    pub needs: Use,
}

/// An XRC domain.
#[repr(C)]
pub struct Xrcd {
    base: UnsafeCell<ibv_xrcd>,
    pub inner: XrcDomain,
    pub uses: Uses,
    pub needs: Use,
}

// SAFETY: `repr(C)`, and its first field is that.
unsafe impl Object for Pd {
    type C = ibv_pd;
}

// SAFETY: `repr(C)`, and its first field is that.
unsafe impl Object for Td {
    type C = ibv_td;
}

// SAFETY: `repr(C)`, and its first field is that.
unsafe impl Object for Ah {
    type C = ibv_ah;
}

// SAFETY: `repr(C)`, and its first field is that.
unsafe impl Object for Xrcd {
    type C = ibv_xrcd;
}
