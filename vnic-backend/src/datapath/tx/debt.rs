//! Cost of a queue's frames beyond their bytes. A frame of 1,024 descriptors takes as long as thousands of plain ones, one of
//! 128 segments as long as a hundred, and a burst of 32 of them took 12 ms. So a visit ends when its frames weigh much, and
//! the queue owes their weight: other queues have their turns until it is paid, a burst of plain frames for each visit. The
//! queue also owes for interrupts. (Deficit round robin: Shreedhar, Varghese, Efficient Fair Queueing Using Deficit Round
//! Robin, SIGCOMM 1995. Time is not measured: two readings of a clock for each visit cost more than most visits.)

use vnic_engine::virtio_net::NetHdr;

use super::super::weight::{self, HEAVY};
use super::taken::BURST;

/// Weight of an interrupt of the guest, which is a system call.
const CALL: u32 = 24;

/// Debt of a queue, in plain frames.
#[derive(Debug, Default)]
pub(super) struct Debt(u32);

impl Debt {
    /// Owes for a frame of `bytes` bytes in `pieces` descriptors. True: the visit ends with it.
    pub(super) fn pieces(&mut self, bytes: u64, pieces: usize) -> bool {
        self.owe(weight::pieces(bytes, pieces))
    }

    /// Owes for a frame of `bytes` bytes, if it is to be cut into segments. True: the visit ends with it.
    #[inline]
    pub(super) fn segments(&mut self, bytes: u64, hdr: &NetHdr) -> bool {
        self.owe(weight::segments(bytes, hdr))
    }

    /// Owes for an interrupt of the guest.
    pub(super) fn call(&mut self) {
        self.owe(CALL);
    }

    fn owe(&mut self, frames: u32) -> bool {
        self.0 = self.0.saturating_add(frames);
        self.0 > HEAVY
    }

    /// Whether anything is owed.
    #[inline(always)]
    pub(super) fn any(&self) -> bool {
        self.0 > 0
    }

    /// Pays with a visit, if that much is owed. True: the visit is paid, and other queues have this turn.
    pub(super) fn pay(&mut self) -> bool {
        let rest = self.0.checked_sub(u32::from(BURST));
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plain frames that other queues could send for each of these frames.
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
                let cut = segment.is_some_and(|gso_size| {
                    let hdr = NetHdr {
                        gso_type: NetHdr::GSO_TCPV4,
                        gso_size,
                        ..NetHdr::default()
                    };
                    debt.segments(bytes, &hdr)
                });
                if cut || long {
                    break;
                }
            }
        }
        others / frames
    }

    #[test]
    fn a_heavy_frame_is_paid_for_in_turns_of_others() {
        // 1,024 descriptors of 2 bytes; 1,024 descriptors for one short frame; 134 segments of 8 bytes, paid for two at a
        // time.
        assert!((2000..2100).contains(&turns_of_others(1500, 1024, None)));
        assert!((2000..2100).contains(&turns_of_others(60, 1024, None)));
        assert!((132..150).contains(&turns_of_others(1078, 2, Some(8))));
    }

    #[test]
    fn an_interrupt_for_each_burst_costs_most_of_a_turn() {
        let (mut debt, mut sent) = (Debt::default(), 0);
        for _ in 0..700 {
            if debt.pay() {
                continue;
            }
            sent += 1;
            debt.call();
        }
        assert_eq!(sent, 400);
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
