//! Runs: successive WRITE packets of one queue pair that a neighbour takes at once.
//!
//! A run is an offer. What all of its packets share (the path, the queue pairs and their states) is checked once, at both
//! ends; the rest is checked packet by packet, as always. The neighbour takes packets from the front as long as nothing
//! about them is special, and returns their number; the next one is sent by itself, so that special cases are handled in
//! one place. Counters, PSNs and acknowledges are those of single packets.

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

/// Most packets of a run.
pub(super) const RUN_MAX: usize = 16;

/// Payload of a packet.
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
    /// Whether it is the first packet of its message.
    pub begins: bool,
    pub ends: bool,
    /// Whether the responder shall acknowledge.
    pub asks: bool,
    /// Destination and length of the message; on the wire if the packet `begins` it.
    pub reth: reth::Header,
    /// Bytes of payload.
    pub len: u32,
    pub carried: Carried<'a>,
}

impl WritePacket<'_> {
    /// An empty packet.
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
    /// P_Key of all packets.
    pub(super) pkey: u16,
    /// PSN of the first packet.
    pub(super) psn: Psn,
    /// Whether the sender knows selective repeat.
    pub(super) selective: bool,
    /// Memory of the sender.
    pub(super) memory: &'a dyn Memory,
    pub(super) packets: &'a [WritePacket<'a>],
}

impl<'a> Run<'a> {
    /// Number of packets.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "there is at least one")]
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Everything below the BTH, which all packets share.
    #[inline]
    pub fn path(&self) -> &'a Path {
        self.path
    }

    /// Priority of all packets.
    #[inline]
    pub fn priority(&self) -> u8 {
        self.priority
    }

    /// The first `most` packets.
    #[inline]
    #[must_use]
    pub fn first(self, most: usize) -> Run<'a> {
        let most = most.min(self.packets.len());
        Run {
            packets: &self.packets[..most],
            ..self
        }
    }

    /// Bytes of the frames of the first `count` packets.
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

    /// Shows each packet as it is sent by itself.
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
                        pkey: self.pkey,
                        pad: (packet.len.wrapping_neg() & 3) as u8,
                        ack_request: packet.asks,
                        selective: self.selective,
                        ..bth::Header::new(opcode, self.to.0, self.psn.add(i as u32))
                    },
                    xrceth: None,
                    dceth: None,
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
