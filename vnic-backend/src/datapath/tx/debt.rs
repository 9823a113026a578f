//! What a queue's frames cost beyond what their bytes explain. A frame of 1,024 descriptors, or cut into 7,500 segments, takes as long
//! as thousands of plain ones, and a burst of 32 of them took 12 ms. So a visit ends when its frames weigh much, and the queue
//! owes what they weigh: others have their turns until that is paid, at a burst of plain frames for each visit. (Deficit round
//! robin, Shreedhar and Varghese 1995. Time is not measured: two readings of a clock for each visit cost more than most visits.)

use vnic_engine::virtio_net::NetHdr;

use super::super::frame::FRAME_MAX;
use super::{BURST, Taken, TxQueue};
use crate::mem::{self, Seg};

/// A visit ends when its frames weigh more, in plain frames.
const HEAVY: u32 = 256;
/// A descriptor costs as much as so many plain frames at most (measured: 1,024 of 2 bytes 100 µs).
const PIECE: u32 = 2;

/// In plain frames.
#[derive(Debug, Default)]
pub(super) struct Debt(u32);

impl Debt {
    /// Owes for a frame of so many bytes in so many pieces; true: the visit ends with it. Bytes take time themselves, so a piece for
    /// each KiB is free, and so are the first two.
    pub(super) fn pieces(&mut self, bytes: u64, pieces: usize) -> bool {
        let many = (pieces as u64).saturating_sub(2 + bytes / 1024);
        self.owe(u64::from(PIECE) * many)
    }

    /// Owes for a frame of so many bytes that is to be cut into segments; true: the visit ends with it. A segment for each 512 bytes
    /// is free.
    pub(super) fn segments(&mut self, bytes: u64, segment: u16) -> bool {
        let bytes = bytes.min(FRAME_MAX as u64);
        self.owe((bytes / u64::from(segment.max(1))).saturating_sub(bytes / 512))
    }

    fn owe(&mut self, frames: u64) -> bool {
        self.0 = self.0.saturating_add(u32::try_from(frames).unwrap_or(u32::MAX));
        self.0 > HEAVY
    }

    /// Is anything owed?
    #[inline(always)]
    pub(super) fn any(&self) -> bool {
        self.0 > 0
    }

    /// A visit's worth is paid; true: others have this turn as well.
    #[cold]
    pub(super) fn pay(&mut self) -> bool {
        self.0 = self.0.saturating_sub(u32::from(BURST));
        self.0 > 0
    }
}

impl TxQueue {
    /// Owes for the segments of these frames. True: what is behind the one that weighs too much was taken off, and waits for
    /// another visit.
    #[inline(never)]
    pub(super) fn weigh(&mut self, frames: &mut Vec<Taken>, segs: &[Seg]) -> bool {
        let heavy = frames.iter().position(|t| {
            if t.snapped {
                return false;
            }
            let mut header = [0; NetHdr::LEN_LEGACY];
            mem::gather(t.chain(segs), 0, &mut header);
            let hdr = NetHdr::parse(&header);
            hdr.gso_type != 0 && self.debt.segments(t.total, hdr.gso_size)
        });
        let all = frames.len();
        frames.truncate(heavy.map_or(all, |i| i + 1));
        frames.len() < all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plain frames that others have had turns for, for each of these.
    fn turns_of_others(bytes: u64, descriptors: usize, segment: Option<u16>) -> u32 {
        let (mut debt, mut frames, mut others) = (Debt::default(), 0, 0);
        for _ in 0..10_000 {
            others += u32::from(BURST);
            if debt.any() && debt.pay() {
                continue;
            }
            for _ in 0..BURST {
                frames += 1;
                let long = debt.pieces(bytes, descriptors);
                if segment.is_some_and(|s| debt.segments(bytes, s)) || long {
                    break;
                }
            }
        }
        others / frames
    }

    #[test]
    fn a_heavy_frame_is_paid_for_in_turns_of_others() {
        // 1,024 descriptors of 2 bytes; a frame in one of 1,024; 64 KiB in segments of 8 bytes.
        assert!((2000..2100).contains(&turns_of_others(1500, 1024, None)));
        assert!((2000..2100).contains(&turns_of_others(60, 1024, None)));
        assert!((7200..7500).contains(&turns_of_others(60_000, 2, Some(8))));
    }

    #[test]
    fn what_guests_send_is_free() {
        assert_eq!(turns_of_others(60, 1, None), 1);
        assert_eq!(turns_of_others(1514, 2, None), 1);
        // The most pages that Linux gives a frame, and its segments by MSS of Ethernet and of IPv6's least MTU.
        assert_eq!(turns_of_others(65_226, 19, Some(1448)), 1);
        assert_eq!(turns_of_others(65_226, 19, Some(1208)), 1);
    }
}
