//! Runs: WRITE packets of one queue pair, one behind the other, that a neighbour takes at once.
//!
//! A run is an offer. What is the same for all of its packets (the path, the queue pairs and their states) is looked at
//! once, at both ends; what differs is looked at packet by packet, as ever. The neighbour takes packets from its front
//! as long as there is nothing special about them, and says how many; the next one is sent by itself, so that whatever is
//! special has one place where it is dealt with. Counters, PSNs and acknowledges are those of single packets.

use vnic_wire::bth;
use vnic_wire::icrc;
use vnic_wire::opcode::{Opcode, Operation, Transport};
use vnic_wire::psn::Psn;
use vnic_wire::reth;
use vnic_wire::roce::Path;
use vnic_wire::transport::{Extended, Headers};

use super::memory::Memory;
use super::packet::{Outgoing, Payload};
use super::types::{QpNumber, Span};

/// Packets of a run at most.
pub(super) const RUN_MAX: usize = 16;

/// What a packet carries.
#[derive(Debug, Clone, Copy)]
pub(super) enum Carried<'a> {
    /// Private bytes.
    Bytes(&'a [u8]),
    /// One piece of the sender's memory.
    Span(Span),
}

/// A packet of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct WritePacket<'a> {
    /// Is it the first of its message, and the last?
    pub begins: bool,
    pub ends: bool,
    /// The responder shall acknowledge.
    pub asks: bool,
    /// Where the message goes, and how long it is; on the wire if it `begins`.
    pub reth: reth::Header,
    /// Bytes that it carries.
    pub len: u32,
    pub carried: Carried<'a>,
}

impl WritePacket<'_> {
    /// Nothing.
    pub const NONE: WritePacket<'static> = WritePacket {
        begins: false,
        ends: false,
        asks: false,
        reth: reth::Header {
            va: 0,
            rkey: 0,
            len: 0,
        },
        len: 0,
        carried: Carried::Bytes(&[]),
    };
}

/// Packets of RDMA WRITEs without immediate data, of one reliable connection, with successive PSNs. There is at least
/// one.
#[derive(Debug, Clone, Copy)]
pub struct Run<'a> {
    pub(super) from: QpNumber,
    pub(super) priority: u8,
    pub(super) path: &'a Path,
    pub(super) to: QpNumber,
    /// PSN of the first packet.
    pub(super) psn: Psn,
    /// Memory of the sender's.
    pub(super) memory: &'a dyn Memory,
    pub(super) packets: &'a [WritePacket<'a>],
}

impl<'a> Run<'a> {
    /// Packets.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "there is at least one")]
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Everything below the BTH, of all of them.
    #[inline]
    pub fn path(&self) -> &'a Path {
        self.path
    }

    /// Priority of all of them.
    #[inline]
    pub fn priority(&self) -> u8 {
        self.priority
    }

    /// Only the first `most` of them.
    #[inline]
    #[must_use]
    pub fn first(self, most: usize) -> Run<'a> {
        let most = most.min(self.packets.len());
        Run {
            packets: &self.packets[..most],
            ..self
        }
    }

    /// Bytes of the frames that the first `count` packets are.
    #[inline]
    pub fn frame_bytes(&self, count: usize) -> u64 {
        let fixed = (self.path.headers_len() + bth::HEADER_LEN + icrc::LEN) as u64;
        let mut bytes = 0;
        for packet in &self.packets[..count.min(self.packets.len())] {
            let padded = (u64::from(packet.len) + 3) & !3;
            bytes += fixed + padded + u64::from(packet.begins) * reth::HEADER_LEN as u64;
        }
        bytes
    }

    /// Gives each packet as it is sent by itself.
    pub fn for_each(&self, mut send: impl FnMut(&Outgoing<'_>)) {
        for (i, packet) in self.packets.iter().enumerate() {
            let payload = match &packet.carried {
                Carried::Bytes(bytes) => Payload::Bytes(bytes),
                Carried::Span(span) => Payload::Spans {
                    memory: self.memory,
                    spans: core::slice::from_ref(span),
                },
            };
            let operation = match (packet.begins, packet.ends) {
                (true, true) => Operation::WriteOnly,
                (true, false) => Operation::WriteFirst,
                (false, false) => Operation::WriteMiddle,
                (false, true) => Operation::WriteLast,
            };
            let opcode = Opcode::new(Transport::Rc, operation);
            send(&Outgoing {
                from: self.from,
                priority: self.priority,
                path: self.path,
                headers: Headers {
                    bth: bth::Header {
                        pad: (packet.len.wrapping_neg() & 3) as u8,
                        ack_request: packet.asks,
                        ..bth::Header::new(opcode, self.to.0, self.psn.add(i as u32))
                    },
                    xrceth: None,
                    extended: if packet.begins {
                        Extended::Reth(packet.reth)
                    } else {
                        Extended::None
                    },
                },
                payload,
                telemetry: None,
            });
        }
    }
}
