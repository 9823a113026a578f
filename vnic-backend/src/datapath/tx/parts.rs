//! Requests of very many segments. Cut in one piece, 60 KB in segments of 8 bytes keep a core for 170 µs. So a request of more than
//! [`SEGMENTS`] is copied, its buffer is completed, and it goes as requests of that many, one each time its queue has its turn:
//! everything behind here, from policies to other cores, has frames of a bounded cost. (Cutting where the receiver is and going
//! on there later would need a state in each kind of receiver. Refusing small segments below TCP's least MSS leaves 1,365 of
//! them. Completing the buffer with the last part would show the first ones before: a frame would be sent twice when the daemon
//! is killed between.)

use std::ops::Range;

use vnic_engine::offload::{self, HEAD_MAX, Parts, Request, Tso};
use vnic_fabric::switch::PortId;

use super::super::frame::{FRAME_MAX, Metadata, OwnedFrame, RawFrame};
use super::{Step, Sums, TxPath, Visit};
use crate::mem::Seg;

/// Segments of a part: the most that comes of 64 KiB with TCP's default MSS of 536 (RFC 9293 section 3.7.1) is 123.
const SEGMENTS: u16 = 128;

/// A request that is being sent.
pub(super) struct Rest {
    frame: OwnedFrame,
    parts: Parts,
    /// Where the next part is. Its headers have been written before its payload, over what has gone.
    next: Range<usize>,
}

impl Rest {
    fn new(source: PortId, f: &RawFrame<'_>, tso: &Tso) -> Option<Box<Rest>> {
        let mut rest = Box::new(Rest {
            frame: OwnedFrame::copy(&f.whole(), Metadata::of(source))?,
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
        let place = self.frame.bytes.get_mut(begin..begin + part.head_len);
        let (Some(place), Some(head)) = (place, head.get(..part.head_len)) else {
            return false;
        };
        place.copy_from_slice(head);
        self.next = begin..part.payload_off + part.payload_len;
        true
    }
}

impl TxPath {
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
        self.holds.begin(Rest::new(self.port, f, &tso)?);
        sums.whole += 1;
        Some(Step::Last { pending: false })
    }

    /// Sends the next part of a request. Answers how much was done.
    pub(super) fn send_part(&mut self, visit: &mut Visit<'_>) -> usize {
        let Some(mut rest) = self.holds.take_rest() else {
            return 0;
        };
        let (mut head, next) = ([0; HEAD_MAX], rest.next.clone());
        let part = &rest.frame.bytes[next.clone()];
        let n = part.len().min(HEAD_MAX);
        head[..n].copy_from_slice(&part[..n]);
        let f = RawFrame {
            head: &head[..n],
            len: next.len(),
            hdr: rest.frame.hdr,
            segs: &[Seg::of(&mut rest.frame.bytes)],
            skip: next.start,
        };
        visit.own = true;
        let step = self.pass(0, &f, f.len as u64, visit);
        let gone = !matches!(step, Step::Wait);
        if gone {
            self.holds.owe_segments(f.len as u64, &f.hdr);
        }
        if !gone || rest.advance() {
            self.holds.begin(rest);
        }
        if gone {
            if self.policed.is_some() {
                self.leave(visit.core);
            }
            visit.core.flush();
            self.book(1, &mut visit.sums);
        }
        usize::from(gone)
    }
}
