//! Types that pass between a data core and the halves of an uplink device.

use vnic_engine::virtio_net::NetHdr;

/// Largest number of frames that a device gets at once.
pub const SEND_BURST: usize = 64;

/// A frame from the wire, until the next one is taken.
pub struct Arrived<'a> {
    /// Bytes of the frame, which the core may change.
    pub bytes: &'a mut [u8],
    /// Offload request of its sender.
    pub hdr: NetHdr,
}

/// Result of frames that a device got.
pub enum Sent {
    /// The device has taken this many of them, one or more.
    Some(usize),
    /// The device refuses the first one.
    Refused,
    /// The device takes none now.
    Full,
}
