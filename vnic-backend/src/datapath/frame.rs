//! Frames on their way through a data core: headers are private, payload is by reference.

mod pool;

use vnic_engine::offload::{self, Accepts, HEAD_MAX, Request, Segmenter};
use vnic_engine::virtio_net::NetHdr;
use vnic_engine::virtio_net::steering::{Flow, Tunnels};
use vnic_fabric::qos::WIRE_OVERHEAD;
use vnic_fabric::switch::PortId;
use vnic_fabric::{DropReason, Instant, TagEdit};
use vnic_wire::checksum;
use vnic_wire::ethernet::FRAME_MIN;

use super::counters::BY_TAG;
use super::gate::Gate;
use super::ticket::Ticket;
use crate::mem::{self, Lasting, Seg};

pub use pool::Pool;

/// Bytes of each frame that are read once into private memory before any decision: all that the switch looks at. So the
/// checked bytes are the delivered ones.
pub const SNAP: usize = 64;
/// The longest frame or segmentation request, virtio header excluded: 64 KiB of IP and an Ethernet header with
/// two tags.
pub const FRAME_MAX: usize = 65535 + 22;

/// Metadata of a frame in flight.
#[derive(Clone)]
pub struct Metadata {
    /// The adapter or uplink that it comes from.
    pub source: PortId,
    /// The port where the frame entered the switch: its source, or the bond to which the uplink belongs.
    pub ingress: PortId,
    /// The guest's transmit queue that the frame comes from, if its counters still have to count the frame's request.
    pub queue: Option<u8>,
    /// Priority by the receiving port's classification; [`BY_TAG`]: not classified.
    pub priority: u8,
    /// Gate of a frame from another core: the frame may be shown once that core has committed it.
    pub gate: Option<Gate>,
    /// The queue pair that sends the frame, if its RDMA function says so.
    pub local_qp: Option<u32>,
    /// Ticket of a frame that a bond has given to a member.
    pub ticket: Option<Ticket>,
    /// Whether the frame stays where it is until its burst ends.
    pub lasts: Option<Lasting>,
    /// When the frame arrived.
    pub arrived: Arrival,
}

/// When a frame arrived.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// In this round, or before.
    #[default]
    Unknown,
    /// At this time of the system, by the kernel or by hardware: ns since 1970.
    Stamped(u64),
    /// At this instant; it may be a PTP message to be timed.
    At(Instant),
    /// It is a PTP message that was timed, then.
    Timed(Instant),
}

impl Metadata {
    /// Metadata of a frame that came through a port.
    #[inline(always)]
    pub fn of(source: PortId) -> Metadata {
        Metadata {
            source,
            ingress: source,
            queue: None,
            priority: BY_TAG,
            gate: None,
            local_qp: None,
            ticket: None,
            lasts: None,
            arrived: Arrival::Unknown,
        }
    }

    /// Metadata of a frame of a guest's transmit queue, whose counters count the frame's request.
    #[inline(always)]
    pub fn of_queue(source: PortId, pair: usize) -> Metadata {
        Metadata {
            queue: u8::try_from(pair).ok(),
            ..Metadata::of(source)
        }
    }

    /// The metadata of a copy, whose memory is another.
    pub fn of_copy(self) -> Metadata {
        Metadata { lasts: None, ..self }
    }

    /// The metadata of a copy whose request has been counted.
    pub fn counted(&self) -> Metadata {
        Metadata {
            queue: None,
            lasts: None,
            ..self.clone()
        }
    }
}

/// A frame that waits, and its metadata: a copy, so that its sender's buffer is completed.
pub struct OwnedFrame {
    /// All bytes of the frame.
    pub bytes: Vec<u8>,
    /// Offload request of the sender.
    pub hdr: NetHdr,
    /// Metadata of the frame.
    pub meta: Metadata,
}

impl OwnedFrame {
    /// Bytes that a frame costs beside its own, as buffers and limits count it.
    pub const COST: usize = 128;

    /// A copy of a frame; `None` without memory for it.
    pub fn copy(f: &OutFrame<'_>, meta: Metadata) -> Option<OwnedFrame> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(f.len()).ok()?;
        f.append_to(&mut bytes);
        Some(OwnedFrame {
            bytes,
            hdr: f.hdr,
            meta: meta.of_copy(),
        })
    }

    /// Bytes of memory that the frame takes.
    pub fn cost(&self) -> usize {
        self.bytes.len() + OwnedFrame::COST
    }

    /// The first bytes, as many as the switch looks at.
    pub fn head(&self) -> &[u8] {
        let wanted = if self.hdr.is_plain() { SNAP } else { HEAD_MAX };
        &self.bytes[..self.bytes.len().min(wanted)]
    }

    /// The frame as its receiver gets it.
    pub fn whole(&self) -> OutFrame<'_> {
        OutFrame {
            hdr: self.hdr,
            ..OutFrame::of(&self.bytes)
        }
    }

    /// Calls `go` with the frame as a [`RawFrame`].
    pub fn with<R>(&mut self, go: impl FnOnce(&RawFrame<'_>, &Metadata) -> R) -> R {
        let (mut head, n) = ([0; HEAD_MAX], self.head().len());
        head[..n].copy_from_slice(self.head());
        let len = self.bytes.len();
        let f = RawFrame {
            head: &head[..n],
            len,
            hdr: self.hdr,
            segs: &[Seg::of(&mut self.bytes)],
            skip: 0,
        };
        go(&f, &self.meta)
    }
}

/// Bytes that a frame, or the frames that a segmentation request is cut into, take on the wire (IEEE 802.3 clause 4).
#[inline]
pub fn on_wire(f: &RawFrame<'_>) -> u32 {
    if f.hdr.gso_type == 0 {
        return plain_on_wire(f.len);
    }
    u32::try_from(request_on_wire(f)).unwrap_or(u32::MAX)
}

/// Bytes on the wire of a frame of this length that is not to be cut.
#[inline(always)]
pub fn plain_on_wire(len: usize) -> u32 {
    len.max(FRAME_MIN) as u32 + WIRE_OVERHEAD
}

fn request_on_wire(f: &RawFrame<'_>) -> usize {
    let head = &f.head[..f.head.len().min(HEAD_MAX)];
    let Ok(Request::Tso(tso)) = offload::check(&f.hdr, head, f.len) else {
        return f.len + WIRE_OVERHEAD as usize;
    };
    let payload = f.len.saturating_sub(tso.head_len);
    let frames = payload.div_ceil(tso.gso_size.max(1)).max(1);
    payload + frames * (tso.head_len + WIRE_OVERHEAD as usize)
}

/// A frame as the sender gave it.
#[derive(Debug, Clone, Copy)]
pub struct RawFrame<'a> {
    /// The first `min(len, SNAP)` bytes or more, private.
    pub head: &'a [u8],
    /// Bytes of the whole frame.
    pub len: usize,
    /// Offload request of the sender.
    pub hdr: NetHdr,
    /// Place of the frame in the sender's memory, after `skip` bytes.
    pub segs: &'a [Seg<'a>],
    /// Bytes of `segs` before the frame: the virtio header.
    pub skip: usize,
}

impl<'a> RawFrame<'a> {
    /// The unchanged frame.
    pub fn whole(&self) -> OutFrame<'a> {
        OutFrame {
            head: self.head,
            segs: self.segs,
            skip: self.skip + self.head.len(),
            tail: self.len - self.head.len(),
            hdr: self.hdr,
        }
    }

    /// The unchanged frame, without an offload request.
    pub fn plain(&self) -> OutFrame<'a> {
        OutFrame {
            hdr: NetHdr::default(),
            ..self.whole()
        }
    }

    /// Copies the first bytes, as many as fit. Returns their number.
    pub fn peek(&self, out: &mut [u8]) -> usize {
        self.whole().peek(out)
    }

    /// Whether the frame may enter the switch: its offload request is valid, and it respects the MTU.
    #[inline(always)]
    pub fn admissible(&self, mtu: usize) -> Result<(), DropReason> {
        if self.hdr.is_plain() && self.len <= mtu + RawFrame::HEADER {
            return Ok(());
        }
        self.check_request(mtu)
    }

    const HEADER: usize = 14;

    #[inline(never)]
    fn check_request(&self, mtu: usize) -> Result<(), DropReason> {
        let request =
            offload::check(&self.hdr, self.head, self.len).map_err(|_| DropReason::MalformedOffload)?;
        // A tag does not count against the MTU (IEEE 802.3 clause 3.2.7).
        let tagged = matches!(self.head.get(12..14), Some([0x81, 0x00]));
        let limit = mtu + RawFrame::HEADER + if tagged { 4 } else { 0 };
        if request.largest_frame(self.len) > limit {
            Err(DropReason::MtuExceeded)
        } else {
            Ok(())
        }
    }
}

/// A frame as a receiver gets it: private bytes, then bytes of the sender.
#[derive(Debug, Clone, Copy)]
pub struct OutFrame<'a> {
    /// The first bytes.
    pub head: &'a [u8],
    /// Place of the bytes behind the head, after `skip` bytes.
    pub segs: &'a [Seg<'a>],
    /// Bytes of `segs` that are not of the frame, or are those of `head`.
    pub skip: usize,
    /// Bytes behind the head.
    pub tail: usize,
    /// Header for the receiver.
    pub hdr: NetHdr,
}

impl<'a> OutFrame<'a> {
    /// A frame of private bytes, without an offload request.
    #[inline]
    pub fn of(bytes: &'a [u8]) -> OutFrame<'a> {
        OutFrame {
            head: bytes,
            segs: &[],
            skip: 0,
            tail: 0,
            hdr: NetHdr::default(),
        }
    }

    /// Appends all bytes of the frame. Bytes that the sender does not have are zeros.
    pub fn append_to(&self, out: &mut Vec<u8>) {
        let at = out.len() + self.head.len();
        out.extend_from_slice(self.head);
        out.resize(at + self.tail, 0);
        mem::gather(self.segs, self.skip, &mut out[at..]);
    }

    /// Copies the first bytes, as many as fit. Returns their number.
    pub fn peek(&self, out: &mut [u8]) -> usize {
        let n = self.len().min(out.len());
        let known = self.head.len().min(n);
        out[..known].copy_from_slice(&self.head[..known]);
        mem::gather(self.segs, self.skip, &mut out[known..n]);
        n
    }

    /// Copies the last bytes. False: the frame has fewer.
    pub fn peek_last(&self, out: &mut [u8]) -> bool {
        let Some(at) = self.len().checked_sub(out.len()) else {
            return false;
        };
        let head = self.head.get(at..).unwrap_or(&[]);
        out[..head.len()].copy_from_slice(head);
        let skip = self.skip + at.saturating_sub(self.head.len());
        let rest = &mut out[head.len()..];
        mem::gather(self.segs, skip, rest) == rest.len()
    }

    /// The frame without its last bytes.
    pub fn without_last(self, n: usize) -> OutFrame<'a> {
        let kept = self.len().saturating_sub(n);
        OutFrame {
            head: &self.head[..self.head.len().min(kept)],
            tail: kept.saturating_sub(self.head.len()),
            ..self
        }
    }

    /// Bytes of the whole frame.
    #[inline]
    pub fn len(&self) -> usize {
        self.head.len() + self.tail
    }

    /// Calls `go` with the flow that decides about the frame: of one of these tunnels that of the inner packet, which the head
    /// is too short for.
    #[inline]
    pub fn with_flow<R>(&self, tunnels: &Tunnels, go: impl FnOnce(Option<&Flow<'_>>) -> R) -> R {
        let mut front;
        let mut flow = Flow::of(self.head);
        if flow.as_ref().is_some_and(|flow| tunnels.may_carry(flow)) {
            front = [0; Tunnels::LOOKED_AT];
            let n = self.peek(&mut front);
            flow = tunnels.flow(&front[..n]);
        }
        go(flow.as_ref())
    }
}

/// Working memory of [`for_receiver`]: the data core keeps it, so that nothing is allocated.
pub struct Bounce {
    edited: [u8; HEAD_MAX + 4],
    segment: Box<[u8]>,
}

impl Default for Bounce {
    fn default() -> Self {
        Bounce {
            edited: [0; HEAD_MAX + 4],
            segment: vec![0; FRAME_MAX + 4].into_boxed_slice(),
        }
    }
}

/// How a frame was finished, for the sender's counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finished {
    /// The receiver got the unchanged frame.
    AsIs,
    /// The receiver got an uncut segmentation request.
    Passed,
    /// The checksum was computed here.
    Checksum,
    /// The frame was cut here.
    Cut,
}

/// Applies a tag edit and hands the result to `give`: once, or once for each segment if the receiver does not accept the
/// sender's segmentation request.
#[inline]
pub fn for_receiver(
    f: &RawFrame<'_>,
    tag: TagEdit,
    accepts: &Accepts,
    bounce: &mut Bounce,
    mut give: impl FnMut(&OutFrame<'_>),
) -> Result<Finished, DropReason> {
    if tag == TagEdit::Keep && f.hdr.is_plain() {
        give(&f.plain());
        return Ok(Finished::AsIs);
    }
    edited(f, tag, accepts, bounce, give)
}

#[cold]
fn edited(
    f: &RawFrame<'_>,
    tag: TagEdit,
    accepts: &Accepts,
    bounce: &mut Bounce,
    mut give: impl FnMut(&OutFrame<'_>),
) -> Result<Finished, DropReason> {
    let Bounce { edited, segment } = bounce;
    let taken = f.head.len();
    let (shift, head_len) = apply_tag(f.head, tag, edited).ok_or(DropReason::Runt)?;
    let head = &edited[..head_len];
    let tail = f.len - taken;
    let skip = f.skip + taken;
    let len = head_len + tail;
    if f.hdr.is_plain() {
        give(&OutFrame {
            head,
            segs: f.segs,
            skip,
            tail,
            hdr: NetHdr::default(),
        });
        return Ok(Finished::AsIs);
    }
    let original = offload::check(&f.hdr, &f.head[..taken.min(HEAD_MAX)], f.len)
        .map_err(|_| DropReason::MalformedOffload)?;
    if original.accepted_by(accepts) {
        let mut hdr = original.header(shift);
        // Its receiver is told how many segments there were.
        hdr.flags |= f.hdr.flags & NetHdr::RSC_INFO;
        give(&OutFrame {
            head,
            segs: f.segs,
            skip,
            tail,
            hdr,
        });
        return Ok(if matches!(original, Request::Tso(_)) {
            Finished::Passed
        } else {
            Finished::AsIs
        });
    }
    // The request is finished here, as it applies to the frame with its edited tag.
    let request = offload::check(&original.header(shift), &head[..head_len.min(HEAD_MAX)], len)
        .map_err(|_| DropReason::MalformedOffload)?;
    match request {
        Request::None => {
            give(&OutFrame {
                head,
                segs: f.segs,
                skip,
                tail,
                hdr: NetHdr::default(),
            });
            Ok(Finished::AsIs)
        }
        Request::Checksum { start, field } => {
            let out = &mut segment[..len];
            out[..head_len].copy_from_slice(head);
            mem::gather(f.segs, skip, &mut out[head_len..]);
            let sum = Segmenter::finish(checksum::sum(&out[start..]));
            out[field..field + 2].copy_from_slice(&sum.to_be_bytes());
            give(&OutFrame::of(out));
            Ok(Finished::Checksum)
        }
        Request::Tso(tso) => {
            let mut cutter = Segmenter::new(&tso, &head[..head_len.min(HEAD_MAX)], len);
            let mut headers = [0u8; HEAD_MAX];
            while let Some(s) = cutter.next(&mut headers) {
                let out = &mut segment[..s.head_len + s.payload_len];
                out[..s.head_len].copy_from_slice(&headers[..s.head_len]);
                // The payload may begin inside the private head.
                let private = head_len.saturating_sub(s.payload_off).min(s.payload_len);
                if private > 0 {
                    out[s.head_len..s.head_len + private]
                        .copy_from_slice(&head[s.payload_off..s.payload_off + private]);
                }
                let from = f.skip + taken + (s.payload_off + private).saturating_sub(head_len);
                mem::gather(f.segs, from, &mut out[s.head_len + private..]);
                let sum =
                    Segmenter::finish(checksum::combine(s.partial, checksum::sum(&out[s.head_len..]), 0));
                out[s.field..s.field + 2].copy_from_slice(&sum.to_be_bytes());
                give(&OutFrame::of(out));
            }
            Ok(Finished::Cut)
        }
    }
}

/// Writes `head` with its outer tag edited. Returns by how much the bytes behind the addresses moved, and the new length.
/// `None`: the head is too short to edit.
fn apply_tag(head: &[u8], tag: TagEdit, out: &mut [u8; HEAD_MAX + 4]) -> Option<(i16, usize)> {
    let (insert, drop): (Option<u16>, usize) = match tag {
        TagEdit::Keep => (None, 0),
        TagEdit::Push(tci) => (Some(tci), 0),
        TagEdit::Replace(tci) => (Some(tci), 4),
        TagEdit::Pop => (None, 4),
    };
    let rest = head.get(12 + drop..)?;
    out[..12].copy_from_slice(&head[..12]);
    let mut at = 12;
    if let Some(tci) = insert {
        out[12..14].copy_from_slice(&0x8100u16.to_be_bytes());
        out[14..16].copy_from_slice(&tci.to_be_bytes());
        at = 16;
    }
    out[at..at + rest.len()].copy_from_slice(rest);
    let len = at + rest.len();
    Some((len as i16 - head.len() as i16, len))
}
