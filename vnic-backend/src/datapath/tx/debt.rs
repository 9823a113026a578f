//! What a queue's frames cost beyond what their bytes explain. A frame of 1,024 descriptors, or cut into 7,500 segments, takes as long
//! as thousands of plain ones, and a burst of 32 of them took 12 ms. So a visit ends when its frames weigh much, and the queue
//! owes what they weigh: others have their turns until that is paid, at a burst of plain frames for each visit. (Deficit round
//! robin, Shreedhar and Varghese 1995. Time is not measured: two readings of a clock for each visit cost more than most visits.)

use vnic_engine::virtio_net::NetHdr;

use super::super::frame::FRAME_MAX;
use super::{BURST, Taken, TxQueue};
use crate::mem::{self, Seg};

/// A visit ends when its frames weigh more, in plain frames; or when they have more descriptors.
pub(super) const HEAVY: u32 = 256;
/// A descriptor costs as much as so many plain frames at most (measured: 1,024 of 2 bytes 100 µs).
const PIECE: u32 = 2;

/// In plain frames.
#[derive(Debug, Default)]
pub(super) struct Debt(u32);

impl Debt {
    /// Owes for a frame of so many bytes in so many descriptors, which is to be cut into pieces of `segment` bytes; true: the visit
    /// ends with it. Bytes take time themselves, so a descriptor for each KiB and a segment for each 512 bytes are
    /// free, and so are the first two descriptors.
    pub(super) fn owe(&mut self, bytes: u32, descriptors: u32, segment: Option<u16>) -> bool {
        let pieces = descriptors.saturating_sub(2 + bytes / 1024);
        let segments = segment.map_or(0, |s| (bytes / u32::from(s.max(1))).saturating_sub(bytes / 512));
        self.0 = self
            .0
            .saturating_add(PIECE.saturating_mul(pieces))
            .saturating_add(segments);
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
    /// What these frames owe; answers how many go in this visit.
    #[inline(never)]
    pub(super) fn weigh(&mut self, frames: &[Taken], segs: &[Seg]) -> usize {
        for (t, n) in frames.iter().zip(1..).filter(|(t, _)| !t.snapped) {
            let mut header = [0; NetHdr::LEN_LEGACY];
            if self.asks {
                mem::gather(t.chain(segs), 0, &mut header);
            }
            let hdr = NetHdr::parse(&header);
            let segment = (hdr.gso_type != 0).then_some(hdr.gso_size);
            let bytes = t.total.min(FRAME_MAX as u64) as u32;
            if self.debt.owe(bytes, t.many.len() as u32, segment) {
                return n;
            }
        }
        frames.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plain frames that others have had turns for, for each of these.
    fn turns_of_others(bytes: u32, descriptors: u32, segment: Option<u16>) -> u32 {
        let (mut debt, mut frames, mut others) = (Debt::default(), 0, 0);
        for _ in 0..10_000 {
            others += u32::from(BURST);
            if debt.any() && debt.pay() {
                continue;
            }
            for _ in 0..BURST {
                frames += 1;
                if debt.owe(bytes, descriptors, segment) {
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
