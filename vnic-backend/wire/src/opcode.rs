//! Opcode of the BTH: three bits of transport, five of operation (IBTA vol 1 section 9.2.1, table "OpCode field
//! definition"; annex A14 for XRC; annex A17 for the CNP).

use core::fmt;

/// The opcode byte of a base transport header, whatever it holds.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Opcode(pub u8);

/// Which transport service an opcode belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transport {
    /// Reliable connection, 000.
    Rc,
    /// Unreliable connection, 001.
    Uc,
    /// Reliable datagram, 010. Nobody carries it over Ethernet: its operations are not named here.
    Rd,
    /// Unreliable datagram, 011.
    Ud,
    /// Congestion notification packet: the single opcode 0x81.
    Cnp,
    /// Extended reliable connection, 101.
    Xrc,
    /// Dynamically connected, 110: a manufacturer's. The operations are those of RC, and two that are ours ([`dceth`](crate::dceth)).
    Dc,
    /// Reserved (100 without the CNP) or of a manufacturer (111).
    Other,
}

crate::named! {
    /// The operation in the low five bits.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    #[repr(u8)]
    pub enum Operation {
        /// First packet of a SEND of several.
        SendFirst = 0x00 => "SEND_FIRST",
        /// Packet in the middle of a SEND.
        SendMiddle = 0x01 => "SEND_MIDDLE",
        /// Last packet of a SEND.
        SendLast = 0x02 => "SEND_LAST",
        /// Last packet of a SEND with immediate data.
        SendLastImm = 0x03 => "SEND_LAST_WITH_IMMEDIATE",
        /// A SEND of one packet.
        SendOnly = 0x04 => "SEND_ONLY",
        /// A SEND of one packet with immediate data.
        SendOnlyImm = 0x05 => "SEND_ONLY_WITH_IMMEDIATE",
        /// First packet of an RDMA WRITE of several.
        WriteFirst = 0x06 => "RDMA_WRITE_FIRST",
        /// Packet in the middle of an RDMA WRITE.
        WriteMiddle = 0x07 => "RDMA_WRITE_MIDDLE",
        /// Last packet of an RDMA WRITE.
        WriteLast = 0x08 => "RDMA_WRITE_LAST",
        /// Last packet of an RDMA WRITE with immediate data.
        WriteLastImm = 0x09 => "RDMA_WRITE_LAST_WITH_IMMEDIATE",
        /// An RDMA WRITE of one packet.
        WriteOnly = 0x0a => "RDMA_WRITE_ONLY",
        /// An RDMA WRITE of one packet with immediate data.
        WriteOnlyImm = 0x0b => "RDMA_WRITE_ONLY_WITH_IMMEDIATE",
        /// RDMA READ request.
        ReadRequest = 0x0c => "RDMA_READ_REQUEST",
        /// First packet of an RDMA READ response of several.
        ReadResponseFirst = 0x0d => "RDMA_READ_RESPONSE_FIRST",
        /// Packet in the middle of an RDMA READ response.
        ReadResponseMiddle = 0x0e => "RDMA_READ_RESPONSE_MIDDLE",
        /// Last packet of an RDMA READ response.
        ReadResponseLast = 0x0f => "RDMA_READ_RESPONSE_LAST",
        /// An RDMA READ response of one packet.
        ReadResponseOnly = 0x10 => "RDMA_READ_RESPONSE_ONLY",
        /// ACK or NAK.
        Acknowledge = 0x11 => "ACKNOWLEDGE",
        /// Answer to an atomic operation.
        AtomicAcknowledge = 0x12 => "ATOMIC_ACKNOWLEDGE",
        /// Atomic compare and swap.
        CompareSwap = 0x13 => "COMPARE_SWAP",
        /// Atomic fetch and add.
        FetchAdd = 0x14 => "FETCH_ADD",
        /// Last packet of a SEND with invalidate.
        SendLastInvalidate = 0x16 => "SEND_LAST_WITH_INVALIDATE",
        /// A SEND of one packet with invalidate.
        SendOnlyInvalidate = 0x17 => "SEND_ONLY_WITH_INVALIDATE",
        /// DC: opens a connection.
        Connect = 0x18 => "CONNECT",
        /// DC: closes a connection.
        Disconnect = 0x19 => "DISCONNECT",
    }
}

use Operation::{
    Acknowledge, AtomicAcknowledge, CompareSwap, Connect, Disconnect, FetchAdd, ReadRequest,
    ReadResponseFirst, ReadResponseLast, ReadResponseMiddle, ReadResponseOnly, SendFirst, SendLast,
    SendLastImm, SendLastInvalidate, SendMiddle, SendOnly, SendOnlyImm, SendOnlyInvalidate, WriteFirst,
    WriteLast, WriteLastImm, WriteMiddle, WriteOnly, WriteOnlyImm,
};

impl Opcode {
    /// Congestion notification packet (annex A17.9).
    pub const CNP: Opcode = Opcode(0x81);

    /// The opcode of an operation in a transport. If the transport does not have that operation,
    /// [`Opcode::operation`] of the result is `None`; `Cnp` has one opcode, and `Other` gives one of a
    /// manufacturer.
    #[inline]
    pub const fn new(transport: Transport, operation: Operation) -> Opcode {
        let top = match transport {
            Transport::Rc => 0x00,
            Transport::Uc => 0x20,
            Transport::Rd => 0x40,
            Transport::Ud => 0x60,
            Transport::Cnp => return Opcode::CNP,
            Transport::Xrc => 0xa0,
            Transport::Dc => 0xc0,
            Transport::Other => 0xe0,
        };
        Opcode(top | operation as u8)
    }

    /// The transport service.
    #[inline]
    pub const fn transport(self) -> Transport {
        match self.0 >> 5 {
            0 => Transport::Rc,
            1 => Transport::Uc,
            2 => Transport::Rd,
            3 => Transport::Ud,
            5 => Transport::Xrc,
            6 => Transport::Dc,
            _ if self.0 == Opcode::CNP.0 => Transport::Cnp,
            _ => Transport::Other,
        }
    }

    /// The operation, if the transport has it: none for reserved opcodes, for the CNP and for reliable datagrams.
    #[inline]
    pub const fn operation(self) -> Option<Operation> {
        let Some(operation) = Operation::from_bits(self.0 & 0x1f) else {
            return None;
        };
        let known = match self.transport() {
            Transport::Rc | Transport::Xrc => !operation.has_dcceth(),
            Transport::Dc => true,
            Transport::Uc => (operation.is_send() || operation.is_write()) && !operation.has_ieth(),
            Transport::Ud => matches!(operation, SendOnly | SendOnlyImm),
            Transport::Rd | Transport::Cnp | Transport::Other => false,
        };
        if known { Some(operation) } else { None }
    }
}

impl Operation {
    /// The operation with this number; none for reserved ones.
    #[inline]
    pub const fn from_bits(bits: u8) -> Option<Operation> {
        match bits {
            0x00..=0x14 => Some(Operation::ALL[bits as usize]),
            0x16 => Some(SendLastInvalidate),
            0x17 => Some(SendOnlyInvalidate),
            0x18 => Some(Connect),
            0x19 => Some(Disconnect),
            _ => None,
        }
    }

    /// Whether the packet goes from requester to responder.
    #[inline]
    pub const fn is_request(self) -> bool {
        !self.is_response()
    }

    /// Whether the packet goes from responder to requester.
    #[inline]
    pub const fn is_response(self) -> bool {
        self.is_read_response() || matches!(self, Acknowledge | AtomicAcknowledge)
    }

    /// Whether it is a packet of a SEND, with or without immediate data or invalidate.
    #[inline]
    pub const fn is_send(self) -> bool {
        matches!(
            self,
            SendFirst
                | SendMiddle
                | SendLast
                | SendLastImm
                | SendOnly
                | SendOnlyImm
                | SendLastInvalidate
                | SendOnlyInvalidate
        )
    }

    /// Whether it is a packet of an RDMA WRITE, with or without immediate data.
    #[inline]
    pub const fn is_write(self) -> bool {
        matches!(
            self,
            WriteFirst | WriteMiddle | WriteLast | WriteLastImm | WriteOnly | WriteOnlyImm
        )
    }

    /// Whether it is a packet of an RDMA READ response.
    #[inline]
    pub const fn is_read_response(self) -> bool {
        matches!(
            self,
            ReadResponseFirst | ReadResponseMiddle | ReadResponseLast | ReadResponseOnly
        )
    }

    /// Whether it is a request for an atomic operation.
    #[inline]
    pub const fn is_atomic(self) -> bool {
        matches!(self, CompareSwap | FetchAdd)
    }

    /// Whether it is the first of several packets.
    #[inline]
    pub const fn is_first(self) -> bool {
        matches!(self, SendFirst | WriteFirst | ReadResponseFirst)
    }

    /// Whether it is neither the first nor the last of several packets.
    #[inline]
    pub const fn is_middle(self) -> bool {
        matches!(self, SendMiddle | WriteMiddle | ReadResponseMiddle)
    }

    /// Whether it is the last of several packets.
    #[inline]
    pub const fn is_last(self) -> bool {
        matches!(
            self,
            SendLast | SendLastImm | SendLastInvalidate | WriteLast | WriteLastImm | ReadResponseLast
        )
    }

    /// Whether it is a message of one packet, where there could be several ("Only" in its name).
    #[inline]
    pub const fn is_only(self) -> bool {
        matches!(
            self,
            SendOnly | SendOnlyImm | SendOnlyInvalidate | WriteOnly | WriteOnlyImm | ReadResponseOnly
        )
    }

    /// Whether it is the first packet of its message, be it the only one.
    #[inline]
    pub const fn starts_message(self) -> bool {
        !self.is_middle() && !self.is_last()
    }

    /// Whether it is the last packet of its message, be it the only one.
    #[inline]
    pub const fn ends_message(self) -> bool {
        !self.is_first() && !self.is_middle()
    }

    /// Whether an RDMA extended transport header follows.
    #[inline]
    pub const fn has_reth(self) -> bool {
        matches!(self, WriteFirst | WriteOnly | WriteOnlyImm | ReadRequest)
    }

    /// Whether immediate data follow.
    #[inline]
    pub const fn has_imm(self) -> bool {
        matches!(self, SendLastImm | SendOnlyImm | WriteLastImm | WriteOnlyImm)
    }

    /// Whether an invalidate extended transport header follows.
    #[inline]
    pub const fn has_ieth(self) -> bool {
        matches!(self, SendLastInvalidate | SendOnlyInvalidate)
    }

    /// Whether a DC connect extended transport header follows.
    #[inline]
    pub const fn has_dcceth(self) -> bool {
        matches!(self, Connect | Disconnect)
    }

    /// Whether an ACK extended transport header follows.
    #[inline]
    pub const fn has_aeth(self) -> bool {
        matches!(
            self,
            ReadResponseFirst | ReadResponseLast | ReadResponseOnly | Acknowledge | AtomicAcknowledge
        )
    }

    /// Whether an atomic extended transport header follows.
    #[inline]
    pub const fn has_atomiceth(self) -> bool {
        self.is_atomic()
    }

    /// Whether an atomic ACK extended transport header follows (behind the AETH).
    #[inline]
    pub const fn has_atomicacketh(self) -> bool {
        matches!(self, AtomicAcknowledge)
    }

    /// Whether the packet may carry a payload.
    #[inline]
    pub const fn has_payload(self) -> bool {
        self.is_send() || self.is_write() || self.is_read_response()
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Transport::Rc => "RC",
            Transport::Uc => "UC",
            Transport::Rd => "RD",
            Transport::Ud => "UD",
            Transport::Cnp => "CNP",
            Transport::Xrc => "XRC",
            Transport::Dc => "DC",
            Transport::Other => "other",
        })
    }
}

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.transport(), self.operation()) {
            (Transport::Cnp, _) => f.write_str("CNP"),
            (transport, Some(operation)) => write!(f, "{transport} {operation}"),
            (_, None) => write!(f, "opcode {:#04x}", self.0),
        }
    }
}

impl fmt::Debug for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
