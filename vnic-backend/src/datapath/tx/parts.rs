//! Requests of very many segments. Cut in one piece, 60 KB in segments of 8 bytes keep a core for 170 µs. So a request of more than
//! [`SEGMENTS`] is copied, its buffer is completed, and it goes as requests of that many, one each time its queue has its turn:
//! everything behind here, from policies to other cores, has frames of a bounded cost. (Cutting where the receiver is and going
//! on there later would need a state in each kind of receiver. Refusing small segments below TCP's least MSS leaves 1,365 of
//! them. Completing the buffer with the last part would show the first ones before: a frame would be sent twice when the daemon
//! is killed between.)

use std::ops::Range;

use vnic_engine::offload::{self, HEAD_MAX, Parts, Request, Tso};
use vnic_engine::virtio_net::NetHdr;
use vnic_fabric::Instant;
use vnic_fabric::switch::Verdict;

use super::super::core::Core;
use super::super::frame::{FRAME_MAX, RawFrame};
use super::{Step, Sums, TxQueue};
use crate::mem::Seg;
use crate::types::Direction;

/// Segments of a part: the most that comes of 64 KiB with TCP's default MSS of 536 (RFC 9293 section 3.7.1) is 123.
const SEGMENTS: u16 = 128;

/// A request that is being sent.
pub(super) struct Rest {
    bytes: Box<[u8]>,
    hdr: NetHdr,
    parts: Parts,
    /// Where the next part is. Its headers have been written before its payload, over what has gone.
    next: Range<usize>,
}

impl Rest {
    fn new(f: &RawFrame<'_>, tso: &Tso) -> Option<Box<Rest>> {
        let mut rest = Box::new(Rest {
            bytes: f.to_owned_bytes(),
            hdr: f.hdr,
            parts: Parts::new(tso, &f.head[..f.head.len().min(HEAD_MAX)], f.len, SEGMENTS),
            next: 0..0,
        });
        rest.advance().then_some(rest)
    }

    /// The next part has gone; false: it was the last one.
    fn advance(&mut self) -> bool {
        let mut head = [0; HEAD_MAX];
        let Some(part) = self.parts.next(&mut head) else {
            return false;
        };
        let begin = part.payload_off.saturating_sub(part.head_len);
        let place = self.bytes.get_mut(begin..begin + part.head_len);
        let (Some(place), Some(head)) = (place, head.get(..part.head_len)) else {
            return false;
        };
        place.copy_from_slice(head);
        self.next = begin..part.payload_off + part.payload_len;
        true
    }
}

impl TxQueue {
    /// Takes a request of very many segments as a whole. Nothing: it is none, or is not sound, and goes the usual way.
    #[inline(never)]
    pub(super) fn take_whole(&mut self, f: &RawFrame<'_>, len: u64, sums: &mut Sums) -> Option<Step> {
        let least = usize::from(f.hdr.gso_size) * usize::from(SEGMENTS);
        if f.len <= least || len > FRAME_MAX as u64 {
            return None;
        }
        let Ok(Request::Tso(tso)) = offload::check(&f.hdr, f.head, f.len) else {
            return None;
        };
        if tso.segments(f.len) <= usize::from(SEGMENTS) || f.admissible(self.mtu).is_err() {
            return None;
        }
        if !self.slots.is_empty() {
            // Used entries are in order.
            return Some(Step::Wait);
        }
        self.holds.begin(Rest::new(f, &tso)?);
        sums.whole += 1;
        Some(Step::Last { pending: false })
    }

    /// Sends the next part of a request. Answers how much was done.
    pub(super) fn send_part(&mut self, index: usize, core: &mut Core, now: Instant) -> usize {
        let Some(mut rest) = self.holds.take_rest() else {
            return 0;
        };
        let segs = [Seg {
            ptr: rest.bytes.as_mut_ptr(),
            len: rest.bytes.len() as u32,
        }];
        let bytes = &rest.bytes[rest.next.clone()];
        let f = RawFrame {
            head: &bytes[..bytes.len().min(HEAD_MAX)],
            len: bytes.len(),
            hdr: rest.hdr,
            segs: &segs,
            skip: rest.next.start,
        };
        let mut sums = Sums::default();
        self.own = true;
        let step = self.pass(index, 0, &f, f.len as u64, core, &mut sums, now);
        self.own = false;
        let gone = !matches!(step, Step::Wait);
        if gone {
            self.holds.owe_segments(f.len as u64, &f.hdr);
        }
        if !gone || rest.advance() {
            self.holds.begin(rest);
        }
        if gone {
            if self.policed.is_some() {
                self.leave(core);
            }
            core.flush();
            self.book(1, &mut sums);
        }
        usize::from(gone)
    }

    /// Sends a frame whose bytes are ours to where another core is a receiver.
    #[cold]
    pub(super) fn send_own(&mut self, f: &RawFrame<'_>, verdict: Verdict, core: &mut Core) -> Step {
        if core.send_remote(self.port, &verdict, f, None).is_none() {
            return Step::Wait;
        }
        core.captured(self.port, Direction::Ingress, f, None);
        let counters = &self.counters.queues[self.pair];
        core.deliver(self.port, &verdict, f, None, Some(counters));
        Step::Done
    }
}
