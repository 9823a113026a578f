//! A request that is sent in parts.

use std::ops::Range;

use vnic_engine::offload::{HEAD_MAX, Parts, Tso};
use vnic_fabric::switch::PortId;

use super::super::frame::{Metadata, OwnedFrame, RawFrame};

/// Segments of a request that is sent at once: 64 KiB with TCP's default MSS of 536 (RFC 9293 section 3.7.1) give 123 at most.
pub(super) const SEGMENTS: u16 = 128;
/// Segments of a part of a request that has more: as many as a burst of a queue has frames, so that a turn takes no longer than one.
const PART: u16 = 32;

/// A request that is sent in parts.
pub(super) struct Rest {
    pub(super) frame: OwnedFrame,
    parts: Parts,
    /// Place of the next part. Its headers were written before its payload, over bytes that have been sent.
    pub(super) next: Range<usize>,
}

impl Rest {
    pub(super) fn new(source: PortId, f: &RawFrame<'_>, tso: &Tso) -> Option<Box<Rest>> {
        let mut rest = Box::new(Rest {
            frame: OwnedFrame::copy(&f.whole(), Metadata::of(source))?,
            parts: Parts::new(tso, &f.head[..f.head.len().min(HEAD_MAX)], f.len, PART),
            next: 0..0,
        });
        rest.advance().then_some(rest)
    }

    /// Goes on to the next part. False: there is none.
    pub(super) fn advance(&mut self) -> bool {
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
