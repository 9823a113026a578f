//! Cost of a frame beyond its bytes, in plain frames.

use vnic_engine::virtio_net::NetHdr;

use super::frame::FRAME_MAX;

/// Weight of frames after which a turn ends.
pub const HEAVY: u32 = 256;
/// Plain frames that cost as much as a descriptor, at most (measured: 1,024 descriptors of 2 bytes take 100 µs).
const PIECE: u32 = 2;

/// Weight of a frame of `bytes` bytes in `pieces` descriptors. Bytes take time themselves, so a descriptor for each KiB is
/// free, and so are the first two.
pub fn pieces(bytes: u64, pieces: usize) -> u32 {
    let many = (pieces as u64).saturating_sub(2 + bytes / 1024);
    u32::try_from(u64::from(PIECE) * many).unwrap_or(u32::MAX)
}

/// Weight of a frame of `bytes` bytes, if it is to be cut into segments. A segment for each 512 bytes is free.
#[inline]
pub fn segments(bytes: u64, hdr: &NetHdr) -> u32 {
    if hdr.gso_type == NetHdr::GSO_NONE {
        return 0;
    }
    let bytes = bytes.min(FRAME_MAX as u64) as u32;
    (bytes / u32::from(hdr.gso_size.max(1))).saturating_sub(bytes / 512)
}
