//! Cuts a segmentation request of many segments into requests of fewer, which make the same segments.

use vnic_wire::checksum;

use super::segment::put;
use super::{HEAD_MAX, Segmenter, Tso};

/// One of the smaller requests: its headers have been written, its payload is a piece of the frame's. It has the virtio header
/// of the whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Bytes of headers.
    pub head_len: usize,
    /// Offset of its payload in the frame.
    pub payload_off: usize,
    /// Bytes of payload.
    pub payload_len: usize,
}

/// Goes over the parts of one request, in order.
#[derive(Debug, Clone)]
pub struct Parts {
    /// Cuts the parts: a part is a long segment.
    cut: Segmenter,
    each: u16,
}

impl Parts {
    /// The parts of the frame that `tso` was checked with: same `head`, same `frame_len`. Each part has `each` segments, the
    /// last one the rest.
    pub fn new(tso: &Tso, head: &[u8], frame_len: usize, each: u16) -> Parts {
        let each = each.max(1);
        let cut = Segmenter::new(
            &Tso {
                gso_size: tso.gso_size * usize::from(each),
                ..*tso
            },
            head,
            frame_len,
        );
        Parts { cut, each }
    }

    /// Writes the next part's headers to the front of `out`, with the sum of the pseudo header in the checksum's place, as a
    /// driver leaves it there.
    pub fn next(&mut self, out: &mut [u8; HEAD_MAX]) -> Option<Part> {
        let s = self.cut.next(out)?;
        // The identifications of the other segments.
        self.cut.id = self.cut.id.wrapping_add(self.each - 1);
        self.cut.outer_id = self.cut.outer_id.wrapping_add(self.each - 1);
        let len = (s.head_len - self.cut.tso.transport + s.payload_len) as u32;
        let pseudo = checksum::fold(self.cut.pseudo + (len >> 16) + (len & 0xffff));
        put(out, s.field, &pseudo.to_be_bytes());
        Some(Part {
            head_len: s.head_len,
            payload_off: s.payload_off,
            payload_len: s.payload_len,
        })
    }
}
