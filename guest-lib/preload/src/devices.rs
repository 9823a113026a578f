//! The devices of ours that this process can see, and the one seat at each that it may have.

use vnic_verbs::Context;

/// A device, open in this process. A device has one driver: all contexts of the process share it.
pub struct Seat {
    pub device: Context,
}
