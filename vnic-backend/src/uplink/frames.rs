//! What passes between a data core and the halves of an uplink device.

use vnic_engine::virtio_net::NetHdr;

/// Frames that are given to a device at once.
pub const SEND_BURST: usize = 64;

/// A frame from the wire, until the next one is asked for.
pub struct Arrived<'a> {
    /// Its bytes, ours to change.
    pub bytes: &'a mut [u8],
    /// What its sender left unfinished.
    pub hdr: NetHdr,
}

/// What became of frames that a device was given.
pub enum Sent {
    /// It has taken so many of them, one or more.
    Some(usize),
    /// It refuses the first.
    Refused,
    /// It takes none now.
    Full,
}
