//! Receive segment coalescing of a core: TCP segments for its adapters wait, by reference, until the burst that brought them
//! ends, and those of a flow that follow each other leave as one frame.
//!
//! ```text
//!  Outputs::give ─ TCP, memory that lasts ─▶ a unit ─┬─ its last segment, or one that does not fit ─▶ delivered
//!                    │ anything else                 └─ the burst ends (`Outputs::end_burst`) ──────▶ delivered
//!                    └─ of a flow with a unit: the unit first ─▶ delivered
//! ```
//!
//! No unit waits longer than its burst. While an adapter has a unit, its frames take the slow path, which looks for it.

#![expect(
    unsafe_code,
    reason = "segments stay where their sender put them until their burst ends"
)]

use arrayvec::ArrayVec;
use vnic_engine::offload::coalesce::{BEGINS, Coalescer, LOOK, Seen, UNITS, Unit, Verdict};
use vnic_engine::virtio_net::NetHdr;
use vnic_fabric::switch::{Egress, PortId};
use vnic_wire::{checksum, ipv4};

use super::super::frame::{Metadata, RawFrame};
use crate::mem::{self, Seg};

/// Pieces of memory that a unit may have; a unit has at most one for each frame of a burst, if guests do not scatter theirs.
const PIECES: usize = 96;
/// Largest number of frames of a burst: that of a link between cores.
const FRAMES: usize = 64;

/// Where the segments of a unit come from, and where they go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Path {
    source: PortId,
    egress: Egress,
}

/// Bytes of a unit.
struct Parts {
    segs: ArrayVec<Seg<'static>, PIECES>,
    /// Bytes of `segs` before the first frame.
    skip: usize,
    meta: Metadata,
}

/// The units of a core's burst.
pub struct Coalescing {
    table: Coalescer<Path>,
    parts: ArrayVec<Parts, UNITS>,
    /// Adapters whose frames take the slow path: those with a unit, or one that has left in this burst.
    slowed: ArrayVec<PortId, FRAMES>,
}

/// What becomes of a frame.
pub(super) enum Fate {
    /// The frame goes on by itself.
    Alone,
    /// The frame waits in a unit.
    Waits,
    /// This unit has to leave; whether the frame is in it, or has to be offered again.
    Leaves {
        unit: usize,
        with_it: bool,
        aborted: bool,
    },
}

impl Default for Coalescing {
    fn default() -> Self {
        let parts = || Parts {
            segs: ArrayVec::new(),
            skip: 0,
            meta: Metadata::of(PortId(0)),
        };
        Coalescing {
            table: Coalescer::default(),
            parts: (0..UNITS).map(|_| parts()).collect(),
            slowed: ArrayVec::new(),
        }
    }
}

/// Whether a frame may be a TCP segment; tags included.
#[inline(always)]
pub fn is_tcp(head: &[u8]) -> bool {
    let Some(types) = head.first_chunk::<18>() else {
        return false;
    };
    let tag = 4 * usize::from(types[12..14] == [0x81, 0x00]);
    let protocol = |at: usize| head.get(tag + at) == Some(&ipv4::PROTOCOL_TCP);
    match types[12 + tag..14 + tag] {
        [0x08, 0x00] => protocol(23),
        [0x86, 0xdd] => protocol(20),
        _ => false,
    }
}

impl Coalescing {
    /// Whether a frame waits, or has waited in this burst.
    #[inline]
    pub fn is_busy(&self) -> bool {
        !self.slowed.is_empty()
    }

    /// Decides about a frame for an adapter that coalesces frames of IPv4, of IPv6, or both (`of`). Frames that nobody may
    /// join (`watched`) end the unit of their flow as others do.
    pub(super) fn offer(
        &mut self,
        egress: Egress,
        f: &RawFrame<'_>,
        meta: &Metadata,
        of: [bool; 2],
        watched: bool,
    ) -> Fate {
        if self.table.is_empty() && (f.len < BEGINS || watched || meta.lasts.is_none()) {
            return Fate::Alone;
        }
        let mut head = [0; LOOK];
        let n = f.peek(&mut head);
        let Some(mut seen) = Seen::of(&head[..n], &f.hdr, f.len) else {
            return Fate::Alone;
        };
        let room = !self.slowed.is_full() || self.slowed.contains(&egress.port);
        if watched || !room || !of[usize::from(seen.is_v6())] || meta.lasts.is_none() {
            seen.distrust();
        }
        let path = Path {
            source: meta.source,
            egress,
        };
        loop {
            let verdict = self.table.judge(&path, &seen);
            let joins = match verdict {
                Verdict::Begins | Verdict::Joins { .. } => true,
                Verdict::Alone | Verdict::Ends { .. } => false,
            };
            if joins && !is_sound(&seen, f, meta) {
                seen.distrust();
                continue;
            }
            return match verdict {
                Verdict::Alone => Fate::Alone,
                Verdict::Ends { unit, aborted } => Fate::Leaves {
                    unit,
                    with_it: false,
                    aborted,
                },
                Verdict::Begins => self.begin(path, &seen, f, meta),
                Verdict::Joins { unit, closes } => self.join(unit, closes, &seen, f, meta),
            };
        }
    }

    fn begin(&mut self, path: Path, seen: &Seen<'_>, f: &RawFrame<'_>, meta: &Metadata) -> Fate {
        if f.segs.len() > PIECES {
            return Fate::Alone;
        }
        let Some(parts) = self
            .table
            .begin(path, seen, f.hdr)
            .and_then(|unit| self.parts.get_mut(unit))
        else {
            return Fate::Alone;
        };
        parts.segs.clear();
        // SAFETY: the frame's memory lasts (`Metadata::lasts`) until the end of the burst, and all units leave before that.
        parts.segs.extend(f.segs.iter().map(|seg| unsafe { seg.lent() }));
        parts.skip = f.skip;
        parts.meta = meta.counted();
        Fate::Waits
    }

    fn join(
        &mut self,
        unit: usize,
        closes: bool,
        seen: &Seen<'_>,
        f: &RawFrame<'_>,
        meta: &Metadata,
    ) -> Fate {
        let leaves = |with_it| Fate::Leaves {
            unit,
            with_it,
            aborted: !with_it,
        };
        let Some(parts) = self.parts.get_mut(unit) else {
            return Fate::Alone;
        };
        let (before, mut skip) = (parts.segs.len(), f.skip + seen.head_len().unwrap_or(0));
        let mut left = f.len - (skip - f.skip);
        for seg in f.segs {
            let have = seg.len();
            if skip >= have {
                skip -= have;
                continue;
            }
            let take = (have - skip).min(left);
            // SAFETY: as in `begin`.
            let piece = unsafe { seg.part(skip, take).lent() };
            if parts.segs.try_push(piece).is_err() {
                break;
            }
            left -= take;
            skip = 0;
            if left == 0 {
                break;
            }
        }
        if left > 0 {
            parts.segs.truncate(before);
            return leaves(false);
        }
        parts.meta.gate = meta.gate;
        self.table.join(unit, seen);
        if closes { leaves(true) } else { Fate::Waits }
    }

    /// Ends a unit: calls `give` with its frame and the number of its segments.
    pub(super) fn leave(&mut self, unit: usize, give: impl FnOnce(Egress, &RawFrame<'_>, &Metadata, u16)) {
        let (Some(ended), Some(parts)) = (self.table.end(unit), self.parts.get(unit)) else {
            return;
        };
        give(
            ended.to.egress,
            &frame(ended, parts),
            &parts.meta,
            ended.segments(),
        );
    }

    /// The unit that has to leave next at the end of a burst.
    pub(super) fn next(&self) -> Option<usize> {
        self.table.oldest()
    }

    /// Notes that an adapter has units. True: its frames are to take the slow path.
    pub(super) fn slow(&mut self, port: PortId) -> bool {
        !self.slowed.contains(&port) && self.slowed.try_push(port).is_ok()
    }

    /// Adapters without units, now that all have left.
    pub(super) fn slowed(&mut self) -> ArrayVec<PortId, FRAMES> {
        std::mem::take(&mut self.slowed)
    }

    /// Forgets all units: their burst has ended in a panic.
    pub(super) fn forget(&mut self) {
        self.table.clear();
        self.slowed.clear();
    }
}

fn frame<'a>(unit: &'a Unit<Path>, parts: &'a Parts) -> RawFrame<'a> {
    RawFrame {
        head: unit.head(),
        len: unit.len(),
        hdr: unit.hdr(),
        segs: &parts.segs,
        skip: parts.skip,
    }
}

/// Whether the TCP checksum is right: left to others by a sender of this host, verified by the device, or by this.
fn is_sound(seen: &Seen<'_>, f: &RawFrame<'_>, meta: &Metadata) -> bool {
    if seen.is_partial || meta.lasts.is_some_and(|l| l.verified) {
        return true;
    }
    let Some((pseudo, from)) = seen.sum() else {
        return false;
    };
    // Bytes that were read before count.
    let known = f.head.len().max(from);
    let own = f.head.get(from..).unwrap_or(&[]);
    let rest = mem::sum(f.segs, f.skip + known, f.len - known);
    let sum = checksum::combine(pseudo + checksum::sum(own), rest, known - from);
    checksum::fold(sum) == 0xffff
}

/// Segments of which the frame was coalesced; `None`: it was not.
pub(super) fn segments(hdr: &NetHdr, len: usize) -> Option<u16> {
    let of_unit = hdr.flags & NetHdr::RSC_INFO != 0 && hdr.gso_size > 0;
    let payload = len.saturating_sub(usize::from(hdr.hdr_len));
    of_unit.then(|| payload.div_ceil(usize::from(hdr.gso_size)) as u16)
}

/// The header for a driver: the number of segments with RSC_EXT (virtio 1.3 section 5.1.6.4), otherwise a request.
pub(super) fn told(hdr: NetHdr, segments: u16, extended: bool) -> NetHdr {
    if extended {
        NetHdr {
            flags: NetHdr::DATA_VALID | NetHdr::RSC_INFO,
            csum_start: segments,
            csum_offset: 0,
            ..hdr
        }
    } else {
        NetHdr {
            flags: hdr.flags & !NetHdr::RSC_INFO,
            ..hdr
        }
    }
}
