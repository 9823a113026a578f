//! Memory regions and windows, memory of the device.

use std::cell::UnsafeCell;
use std::sync::Mutex;

use vnic_verbs::{DeviceMemory, MemoryRegion, MemoryWindow};

use crate::abi::{ibv_dm, ibv_mr, ibv_mw};
use crate::handle::{Object, Use, Uses};

/// A memory region.
#[repr(C)]
pub struct Mr {
    base: UnsafeCell<ibv_mr>,
    /// Changed by `ibv_rereg_mr`.
    pub inner: Mutex<MemoryRegion>,
    pub needs: Mutex<Vec<Use>>,
}

/// A memory window.
#[repr(C)]
pub struct Mw {
    base: UnsafeCell<ibv_mw>,
    pub inner: MemoryWindow,
    pub needs: Use,
}

/// Memory of the device.
#[repr(C)]
pub struct Dm {
    base: UnsafeCell<ibv_dm>,
    pub inner: DeviceMemory,
    pub uses: Uses,
    pub needs: Use,
}

// SAFETY: `repr(C)`, and its first field is that.
unsafe impl Object for Mr {
    type C = ibv_mr;
}

// SAFETY: `repr(C)`, and its first field is that.
unsafe impl Object for Mw {
    type C = ibv_mw;
}

// SAFETY: `repr(C)`, and its first field is that.
unsafe impl Object for Dm {
    type C = ibv_dm;
}
