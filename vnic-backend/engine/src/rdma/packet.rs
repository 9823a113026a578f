//! Packets between engines: headers as values, payload by reference.
//!
//! A packet for a neighbour in the same daemon is never built: its headers travel as values, and its payload is copied
//! once, from the sender's memory to where the receiver's keys say. [`vnic_wire::roce`] emits a packet for the wire, with
//! the payload behind it.

use smallvec::SmallVec;
use vnic_wire::int::Telemetry;
use vnic_wire::roce::{Frame, Path};
use vnic_wire::time::Instant;
use vnic_wire::transport::Headers;

use super::memory::{Memory, Unmapped};
use super::run::Run;
use super::types::{QpNumber, Span};

/// A list of spans; short ones need no allocation.
pub type SpanList = SmallVec<[Span; 4]>;

/// Bytes of a packet behind its headers, without pad.
#[derive(Debug, Clone, Copy)]
pub enum Payload<'a> {
    /// Bytes that are private already.
    Bytes(&'a [u8]),
    /// Pieces of the sender's memory.
    Spans {
        /// The sender's memory.
        memory: &'a dyn Memory,
        /// The pieces, in order.
        spans: &'a [Span],
    },
}

impl Payload<'_> {
    /// No bytes.
    pub const NONE: Payload<'static> = Payload::Bytes(&[]);

    /// Length in bytes.
    pub fn len(&self) -> usize {
        match self {
            Payload::Bytes(bytes) => bytes.len(),
            Payload::Spans { spans, .. } => spans.iter().map(|s| s.len as usize).sum(),
        }
    }

    /// Pieces of memory of the payload.
    #[inline]
    pub fn pieces(&self) -> usize {
        match self {
            Payload::Bytes(_) => 1,
            Payload::Spans { spans, .. } => spans.len(),
        }
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies all into a buffer of exactly that length.
    pub fn read(&self, mut into: &mut [u8]) -> Result<(), Unmapped> {
        match self {
            Payload::Bytes(bytes) => {
                let n = bytes.len().min(into.len());
                into[..n].copy_from_slice(&bytes[..n]);
            }
            Payload::Spans { memory, spans } => {
                for span in *spans {
                    let n = (span.len as usize).min(into.len());
                    let (now, rest) = into.split_at_mut(n);
                    memory.read(span.at, now)?;
                    into = rest;
                }
            }
        }
        Ok(())
    }

    /// Copies all to where `to` says, in order; `to` has at least as many bytes.
    pub(super) fn land(&self, memory: &dyn Memory, to: &[Span]) -> Result<(), Unmapped> {
        let mut targets = to.iter().copied();
        let mut target = Span { at: 0, len: 0 };
        let mut take = |wanted: u64| {
            while target.len == 0 {
                target = targets.next()?;
            }
            let n = wanted.min(target.len);
            let at = target.at;
            target.at += n;
            target.len -= n;
            Some((at, n))
        };
        match self {
            Payload::Bytes(bytes) => {
                let mut rest = *bytes;
                while !rest.is_empty() {
                    let Some((at, n)) = take(rest.len() as u64) else {
                        return Ok(());
                    };
                    let (now, later) = rest.split_at(n as usize);
                    memory.write(at, now)?;
                    rest = later;
                }
            }
            Payload::Spans {
                memory: source,
                spans,
            } => {
                for span in *spans {
                    let mut rest = *span;
                    while rest.len > 0 {
                        let Some((at, n)) = take(rest.len) else {
                            return Ok(());
                        };
                        memory.copy_from(at, *source, rest.at, n)?;
                        rest.at += n;
                        rest.len -= n;
                    }
                }
            }
        }
        Ok(())
    }
}

/// A packet that a QP sends.
#[derive(Debug)]
pub struct Outgoing<'a> {
    /// The QP that sends it.
    pub from: QpNumber,
    /// Priority of the packet.
    pub priority: u8,
    /// Everything below the BTH.
    pub path: &'a Path,
    /// BTH and what follows it.
    pub headers: Headers,
    /// Payload behind the headers.
    pub payload: Payload<'a>,
    /// Telemetry that switches and the receiver shall write on its way, or have written, for an acknowledge that carries
    /// it back.
    pub telemetry: Option<&'a Telemetry>,
}

/// A frame that a raw packet QP sends.
#[derive(Debug)]
pub struct OutgoingFrame<'a> {
    /// The QP that sends it.
    pub from: QpNumber,
    /// The frame, from the destination's address on.
    pub bytes: Payload<'a>,
    /// Whether its checksums are to be filled in.
    pub checksum: bool,
    /// Bytes of payload of the segments into which it is to be cut.
    pub segment: Option<u16>,
}

/// A frame that a flow gives to a raw packet QP.
#[derive(Debug, Clone, Copy)]
pub struct IncomingFrame<'a> {
    /// The frame, from the destination's address on.
    pub bytes: &'a [u8],
    /// Whether its checksums were found right.
    pub checksum_ok: bool,
    /// When it arrived at the machine, or now.
    pub arrived: Instant,
}

/// Takes packets that leave.
pub trait Sink {
    /// Priorities that may send one more packet, a bit each; 0: there is no room. Called before each packet is made, and
    /// sometimes when none is. Packets are only sent of open priorities.
    fn open(&mut self) -> u8;

    /// Takes a packet.
    fn send(&mut self, packet: &Outgoing<'_>);

    /// Takes a frame. The error is the frame's priority, which is closed: the frame comes again when that is open.
    fn send_frame(&mut self, frame: &OutgoingFrame<'_>) -> Result<(), u8> {
        // A sink of packets only has no place for it.
        let _ = frame;
        Ok(())
    }

    /// Packets with this path to this QP that the sink would take at once, as a [`Run`]. 0: it wants them one by one.
    fn run_room(&mut self, path: &Path, to: QpNumber) -> usize {
        let _ = (path, to);
        0
    }

    /// Takes packets from the front of a run, which has no more than [room](Sink::run_room), and returns their number.
    /// The next one will be sent by itself.
    fn send_run(&mut self, run: &Run<'_>) -> usize {
        let _ = run;
        0
    }
}

/// A packet for a QP. The switch brought it to this adapter; if it came by wire, its ICRC was right.
#[derive(Debug)]
pub struct Incoming<'a> {
    /// Everything below the BTH, as the sender wrote it (and switches changed it).
    pub path: Path,
    /// BTH and what follows it.
    pub headers: Headers,
    /// Payload, without pad.
    pub payload: Payload<'a>,
    /// Telemetry that switches wrote, or that an acknowledge carries back.
    pub telemetry: Option<&'a Telemetry>,
}

impl<'a> From<&Frame<'a>> for Incoming<'a> {
    /// The packet in a frame. The caller has checked its ICRC.
    fn from(frame: &Frame<'a>) -> Incoming<'a> {
        Incoming {
            path: Path::from(frame),
            headers: frame.headers,
            payload: Payload::Bytes(frame.payload),
            telemetry: None,
        }
    }
}

impl<'a> From<&Outgoing<'a>> for Incoming<'a> {
    /// A neighbour's packet, as it is.
    fn from(packet: &Outgoing<'a>) -> Incoming<'a> {
        Incoming {
            path: *packet.path,
            headers: packet.headers,
            payload: packet.payload,
            telemetry: packet.telemetry,
        }
    }
}
