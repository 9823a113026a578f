//! Requests of very many segments. To cut 60 KB into segments of 8 bytes at once keeps a core for 170 µs. So a request of
//! more than [`SEGMENTS`] is copied, its buffer is completed, and it is sent as requests of few segments, one at each turn of
//! its queue: everything behind this module, from policies to other cores, has frames of a bounded cost. (To cut at the
//! receiver and go on there later would need a state in each kind of receiver. To refuse segments below TCP's least MSS
//! leaves 1,365 of them. To complete the buffer with the last part would show the first parts before: frames would be sent
//! twice if the daemon is killed between.)

use vnic_engine::offload::{self, HEAD_MAX, Request};

use super::super::frame::{FRAME_MAX, RawFrame};
use super::rest::{Rest, SEGMENTS};
use super::{Step, Sums, TxPath, Visit};
use crate::mem::Seg;
use crate::ring::Head;

impl TxPath {
    /// Takes a request of very many segments as a whole. `None`: it has fewer, or is invalid, and goes the usual way.
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

    /// Sends the next part of a request. Returns how much was done.
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
        let step = self.pass(Head::one(0), &f, f.len as u64, visit);
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
