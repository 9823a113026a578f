//! Receive segment coalescing: TCP segments of a flow that arrive together reach the guest as one frame, a [`Unit`].
//!
//! The rules are those of Microsoft's RSC ("Rules for Coalescing TCP/IP Segments", "Exception Conditions that Terminate
//! Coalescing") and of Linux' GRO. Where they differ, a segment joins a unit if
//!
//! | of the segment | RSC | GRO | here |
//! |---|---|---|---|
//! | acknowledgment, window | may go on; the unit has the latest | the same acknowledgment | as RSC: it does not go back |
//! | options | none, or timestamps that do not go back | the same bytes | as RSC, in the layout of RFC 7323 appendix A |
//! | FIN | never | as the last | as RSC |
//! | CWR | as in the unit | not behind the first | never: a unit needs no `GSO_ECN` |
//! | payload | any | no longer than the first; a shorter one is the last | as GRO: virtio has one size |
//! | PSH | any; the unit has it | the last | as GRO |
//! | IPv4 identification | any | counts up or stays | counts up, or any with "do not fragment" (RFC 6864) |
//! | pure acknowledgment | window updates may join | never | never |
//!
//! A segment that joins none ends the unit of its flow, so that the flow stays in order, and may begin another. Nothing here
//! holds a unit: its owner ends all units with the burst that brought them.

mod seen;

use smallvec::SmallVec;
use vnic_wire::{checksum, ipv4, tcp};

use crate::virtio_net::NetHdr;

pub use seen::Seen;
use seen::{STAMPS, Segment};

/// Bytes of a frame that the caller copies for [`Seen::of`]. (Two tags, IPv6 and TCP with timestamps are 94.)
pub const LOOK: usize = 128;
/// Shortest frame that begins a unit: behind a shorter one there is seldom more.
pub const BEGINS: usize = 256;
/// Units at a time; as many as Linux has in a list of GRO.
pub const UNITS: usize = 8;
/// Longest IP packet of a unit (RFC 791).
const IP_MAX: usize = 65_535;

/// One or more segments of a flow.
#[derive(Debug, Clone)]
pub struct Unit<T> {
    /// Where the segments go.
    pub to: T,
    head: [u8; LOOK],
    known: usize,
    hdr: NetHdr,
    first: Segment,
    /// The segment that joined last; a unit's acknowledgment, window and timestamps are its.
    last: Segment,
    payload: usize,
    segments: u16,
    /// Which unit began first.
    born: u32,
}

impl<T> Unit<T> {
    /// Segments of the unit. One: the unit is the frame as it came.
    pub fn segments(&self) -> u16 {
        self.segments
    }

    /// The first bytes of the frame: all headers of a unit of several segments, at least 64 bytes (or all) of one segment.
    pub fn head(&self) -> &[u8] {
        self.head.get(..self.known).unwrap_or(&[])
    }

    /// The virtio header, with the mark [`NetHdr::RSC_INFO`] for several segments.
    pub fn hdr(&self) -> NetHdr {
        self.hdr
    }

    /// Bytes of the frame.
    pub fn len(&self) -> usize {
        self.first.head_len + self.payload
    }

    /// Never: a unit has a segment.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Writes the headers of several segments: lengths, and what the last segment says. The TCP checksum is left partial.
    fn finish(&mut self) {
        if self.segments == 1 {
            return;
        }
        let Segment {
            v6,
            network,
            transport,
            head_len,
            ..
        } = self.first;
        self.known = head_len;
        self.hdr = NetHdr {
            flags: NetHdr::NEEDS_CSUM | NetHdr::RSC_INFO,
            gso_type: if v6 { NetHdr::GSO_TCPV6 } else { NetHdr::GSO_TCPV4 },
            hdr_len: head_len as u16,
            gso_size: self.first.payload as u16,
            csum_start: transport as u16,
            csum_offset: tcp::CHECKSUM_OFFSET as u16,
        };
        let upper = head_len - transport + self.payload;
        let last = self.last;
        if v6 {
            self.put(network + 4, &(upper as u16).to_be_bytes());
        } else {
            self.put(network + 2, &((transport - network + upper) as u16).to_be_bytes());
            self.put(network + 10, &[0; 2]);
            let sum = self.head.get(network..transport).map_or(0, checksum::sum);
            self.put(network + 10, &(!checksum::fold(sum)).to_be_bytes());
        }
        self.put(transport + 8, &last.acknowledgment.to_be_bytes());
        self.put(transport + 13, &[(self.first.flags | last.flags) as u8]);
        self.put(transport + 14, &last.window.to_be_bytes());
        if let Some([value, echo]) = last.stamps {
            self.put(transport + STAMPS, &value.to_be_bytes());
            self.put(transport + STAMPS + 4, &echo.to_be_bytes());
        }
        let addresses = self
            .head
            .get(seen::addresses(v6, network))
            .map_or(0, checksum::sum);
        let pseudo = addresses + u32::from(ipv4::PROTOCOL_TCP) + upper as u32;
        self.put(
            transport + tcp::CHECKSUM_OFFSET,
            &checksum::fold(pseudo).to_be_bytes(),
        );
    }

    fn put(&mut self, at: usize, value: &[u8]) {
        if let Some(place) = self.head.get_mut(at..at + value.len()) {
            place.copy_from_slice(value);
        }
    }

    /// Whether the segment is the next of the unit. `Err`: it is not; true if that is an exception, false if the unit is full.
    fn takes(&self, seen: &Seen<'_>, s: &Segment) -> Result<(), bool> {
        let (first, last) = (&self.first, &self.last);
        let [ours, theirs] = [&self.head[..], seen.head].map(|head| head.get(..first.network));
        let [value, echo] = match (s.stamps, last.stamps) {
            (Some(new), Some(old)) => [0, 1].map(|i| new[i].wrapping_sub(old[i]) as i32),
            (None, None) => [0, 0],
            _ => return Err(true),
        };
        let next = last.sequence.wrapping_add(last.payload as u32);
        let follows = ours == theirs
            && s.sequence == next
            && s.same == first.same
            && s.head_len == first.head_len
            && (s.flags ^ first.flags) & tcp::ECE == 0
            && s.acknowledgment.wrapping_sub(last.acknowledgment) as i32 >= 0
            && value >= 0
            && echo >= 0
            && s.payload <= first.payload
            && s.id
                .is_none_or(|id| last.id.is_some_and(|l| id == l.wrapping_add(1)));
        if !follows {
            return Err(true);
        }
        if first.head_len - first.network + self.payload + s.payload > IP_MAX {
            return Err(false);
        }
        Ok(())
    }
}

/// What becomes of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The frame goes by itself.
    Alone,
    /// This unit has to go first; then the frame is judged again.
    Ends {
        /// The unit.
        unit: usize,
        /// Whether it could not go on for another reason than its length: an abort, as Microsoft counts.
        aborted: bool,
    },
    /// The frame begins a unit.
    Begins,
    /// The frame joins this unit.
    Joins {
        /// The unit.
        unit: usize,
        /// Whether the frame is its last.
        closes: bool,
    },
}

/// The units of a burst.
#[derive(Debug)]
pub struct Coalescer<T> {
    units: SmallVec<[Unit<T>; UNITS]>,
    /// The units that are open, a bit each.
    open: u8,
    born: u32,
}

impl<T> Default for Coalescer<T> {
    fn default() -> Self {
        Coalescer {
            units: SmallVec::new(),
            open: 0,
            born: 0,
        }
    }
}

impl<T: PartialEq> Coalescer<T> {
    /// Whether there is no unit.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.open == 0
    }

    /// Forgets all units.
    pub fn clear(&mut self) {
        self.open = 0;
    }

    /// What becomes of a frame for `to`.
    pub fn judge(&self, to: &T, seen: &Seen<'_>) -> Verdict {
        for (unit, u) in self.open() {
            if u.to != *to || !seen.is_of_flow(&u.head, &u.first) {
                continue;
            }
            return match seen.segment.as_ref().map(|s| (s, u.takes(seen, s))) {
                Some((s, Ok(()))) => Verdict::Joins {
                    unit,
                    closes: s.flags & tcp::PSH != 0 || s.payload < u.first.payload,
                },
                Some((_, Err(aborted))) => Verdict::Ends { unit, aborted },
                None => Verdict::Ends { unit, aborted: true },
            };
        }
        match &seen.segment {
            Some(s) if s.flags & tcp::PSH == 0 && s.head_len + s.payload >= BEGINS => {}
            _ => return Verdict::Alone,
        }
        match self.oldest() {
            Some(unit) if self.open == u8::MAX => Verdict::Ends { unit, aborted: true },
            _ => Verdict::Begins,
        }
    }

    /// Begins a unit with a frame that [`Coalescer::judge`] lets begin one. Returns its number, below [`UNITS`].
    pub fn begin(&mut self, to: T, seen: &Seen<'_>, hdr: NetHdr) -> Option<usize> {
        let segment = seen.segment?;
        let place = self.open.trailing_ones() as usize;
        let mut head = [0; LOOK];
        let known = seen.head.len().min(LOOK);
        head.get_mut(..known)?.copy_from_slice(seen.head.get(..known)?);
        let unit = Unit {
            to,
            head,
            known,
            hdr,
            first: segment,
            last: segment,
            payload: segment.payload,
            segments: 1,
            born: self.born,
        };
        match self.units.get_mut(place) {
            Some(old) => *old = unit,
            None if place < UNITS => self.units.push(unit),
            None => return None,
        }
        self.born = self.born.wrapping_add(1);
        self.open |= 1 << place;
        Some(place)
    }

    /// Adds a frame to the unit that [`Coalescer::judge`] lets it join.
    pub fn join(&mut self, unit: usize, seen: &Seen<'_>) {
        if let (Some(u), Some(s)) = (self.units.get_mut(unit), seen.segment) {
            // A mark or PSH of one segment is one of the unit.
            u.last = s;
            u.payload += s.payload;
            u.segments += 1;
        }
    }

    /// The unit that began first.
    pub fn oldest(&self) -> Option<usize> {
        let oldest = self.open().min_by_key(|(_, u)| u.born);
        oldest.map(|(unit, _)| unit)
    }

    /// Ends a unit and returns it, with its headers written.
    pub fn end(&mut self, unit: usize) -> Option<&Unit<T>> {
        let bit = 1u8.checked_shl(unit as u32)?;
        if self.open & bit == 0 {
            return None;
        }
        self.open &= !bit;
        let u = self.units.get_mut(unit)?;
        u.finish();
        Some(u)
    }

    fn open(&self) -> impl Iterator<Item = (usize, &Unit<T>)> {
        let all = self.units.iter().enumerate();
        all.filter(|(unit, _)| self.open >> unit & 1 != 0)
    }
}
