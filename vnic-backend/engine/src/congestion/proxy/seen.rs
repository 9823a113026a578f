//! The parser of RoCEv2 frames for the proxy.

use vnic_wire::aeth::Syndrome;
use vnic_wire::gid::Gid;
use vnic_wire::int::{Sign, TRAILER_LEN, Telemetry};
use vnic_wire::ipv4::PROTOCOL_UDP;
use vnic_wire::opcode::{Operation, Transport};
use vnic_wire::roce::{Ecn, Frame, Network, Path, UDP_PORT};
use vnic_wire::transport::{Extended, Headers};
use vnic_wire::{EtherType, MacAddr, ethernet, icrc, ipv4, ipv6, udp, vlan};

/// Bytes of a frame that show all of a notification, and all headers of any other packet: Ethernet with a tag, IPv6, UDP,
/// BTH, and the longest of what follows it.
pub const SEEN: usize = 128;

/// A RoCEv2 frame, by its first bytes. Lengths in headers are believed; they are only counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    path: Path,
    pub(super) headers: Headers,
    /// Bytes of payload, pad included.
    pub payload: u32,
    /// Whether the ICRC of a notification or an acknowledge is right; of other packets nobody has looked.
    intact: bool,
    /// Offset of the packet's end in the frame.
    end: usize,
    /// Telemetry that the frame carries behind the packet.
    pub telemetry: Option<Telemetry>,
}

impl Seen {
    /// Reads the first [`SEEN`] bytes of a frame, or all of a shorter one. `None`: it is not RoCEv2 with at most one tag, or
    /// a fragment, or of an unknown opcode.
    pub fn parse(head: &[u8]) -> Option<Seen> {
        let eth = ethernet::Header::parse(head).ok()?;
        let (mut at, mut ethertype, mut tag) = (ethernet::HEADER_LEN, eth.ethertype, None);
        if ethertype.is_vlan() {
            let header = vlan::Header::parse(head.get(at..)?).ok()?;
            (at, ethertype, tag) = (at + vlan::HEADER_LEN, header.ethertype, Some(header));
        }
        let packet = head.get(at..)?;
        let (network, len, whole) = match ethertype {
            EtherType::IPV4 => v4(packet)?,
            EtherType::IPV6 => v6(packet)?,
            _ => return None,
        };
        let datagram = packet.get(len..)?;
        let udp = udp::Header::parse(datagram).ok()?;
        if udp.destination_port != UDP_PORT {
            return None;
        }
        let (headers, len) = Headers::parse(datagram.get(udp::HEADER_LEN..)?).ok()?;
        let around = udp::HEADER_LEN + len + icrc::LEN;
        let payload = usize::from(udp.len).checked_sub(around)?;
        let told = headers.bth.opcode.transport() == Transport::Cnp
            || headers.operation() == Some(Operation::Acknowledge);
        let path = Path {
            eth,
            vlan: tag,
            network,
            source_port: udp.source_port,
        };
        Some(Seen {
            path,
            headers,
            payload: payload as u32,
            intact: !told || Frame::parse(head).is_ok_and(|f| f.icrc_ok()),
            end: at + whole,
            telemetry: None,
        })
    }

    /// Bytes that a frame of `len` bytes has behind its packet.
    pub fn behind(&self, len: usize) -> usize {
        len.saturating_sub(self.end)
    }

    /// Telemetry that a request brings, or has room for in the answer: its sender wants some, and waits for an answer with a trailer
    /// before it sends any.
    pub(super) fn gathered(&self) -> Option<Telemetry> {
        let wants = self.headers.bth.telemetry == Sign::Known;
        self.telemetry.or(wants.then_some(Telemetry::EMPTY))
    }

    /// Reads the last bytes of a frame that has as many as a trailer behind its packet. What is no telemetry is left alone.
    pub fn read_behind(&mut self, last: &[u8; TRAILER_LEN]) {
        self.telemetry = Telemetry::read_behind(last);
    }

    /// Address of the sender.
    pub fn source(&self) -> Gid {
        self.path.network.source()
    }

    /// Address of the destination.
    pub fn destination(&self) -> Gid {
        self.path.network.destination()
    }

    /// Destination queue pair.
    pub fn qp(&self) -> u32 {
        self.headers.bth.destination_qp
    }

    /// Sequence number.
    pub(super) fn psn(&self) -> vnic_wire::psn::Psn {
        self.headers.bth.psn
    }

    /// Transport service.
    pub fn transport(&self) -> Transport {
        self.headers.bth.opcode.transport()
    }

    /// Operation; a notification has none.
    pub fn operation(&self) -> Option<Operation> {
        self.headers.operation()
    }

    /// Whether it is a request.
    pub(super) fn is_request(&self) -> bool {
        self.operation().is_some_and(|o| o.is_request())
    }

    /// Source queue pair of a datagram; other packets do not name it.
    pub(super) fn source_qp(&self) -> Option<u32> {
        match self.headers.extended {
            Extended::Deth(deth) | Extended::DethImm(deth, _) => Some(deth.source_qp),
            _ => None,
        }
    }

    /// Whether it is a congestion notification.
    pub fn is_cnp(&self) -> bool {
        self.transport() == Transport::Cnp
    }

    /// Whether it asks for an acknowledge.
    pub(super) fn asks(&self) -> bool {
        self.headers.bth.ack_request
    }

    /// Whether it says that all up to its sequence number has arrived.
    pub(super) fn acknowledges(&self) -> bool {
        let acknowledge = self.operation() == Some(Operation::Acknowledge) && self.intact;
        let Extended::Aeth(aeth) = self.headers.extended else {
            return false;
        };
        acknowledge && matches!(aeth.syndrome, Syndrome::Ack { .. })
    }

    /// Whether it is a response to a READ.
    pub(super) fn is_read_response(&self) -> bool {
        self.operation().is_some_and(|o| o.is_read_response())
    }

    /// Whether no packet of the same message follows it.
    pub(super) fn ends_message(&self) -> bool {
        self.operation().is_some_and(|o| o.ends_message())
    }

    /// Bytes that a READ asks for; 0: it is none.
    pub(super) fn reads(&self) -> u32 {
        match self.headers.extended {
            Extended::Reth(reth) if self.operation() == Some(Operation::ReadRequest) => reth.len,
            _ => 0,
        }
    }

    /// Whether it says that a request was marked.
    pub(super) fn tells_mark(&self) -> bool {
        self.headers.bth.fecn || self.headers.bth.becn
    }

    /// Whether the notification is whole.
    pub(super) fn is_intact(&self) -> bool {
        self.intact
    }

    /// Time between notifications that it names, in us; 0: none.
    pub(super) fn period(&self) -> u32 {
        match self.headers.extended {
            Extended::Cnp(cnp) => cnp.period,
            _ => 0,
        }
    }

    /// ECN field.
    pub fn ecn(&self) -> Ecn {
        Ecn::of(self.path.network.traffic_class())
    }

    /// Whether it is addressed to one receiver.
    pub(super) fn is_unicast(&self) -> bool {
        !self.path.eth.destination.is_multicast() && self.path.eth.source != MacAddr([0; 6])
    }

    /// The path back to the sender.
    pub(super) fn back(&self) -> Path {
        let mut path = self.path;
        path.eth.source = self.path.eth.destination;
        path.eth.destination = self.path.eth.source;
        path.network = Network::v2(self.destination(), self.source());
        path
    }
}

/// The network header of a packet, its length, and that of the packet.
fn v4(packet: &[u8]) -> Option<(Network, usize, usize)> {
    let ip = ipv4::Header::parse(packet).ok()?;
    if ip.protocol != PROTOCOL_UDP || ip.header_len != ipv4::HEADER_LEN || ip.is_fragment() {
        return None;
    }
    let network = Network::V4 {
        source: ip.source,
        destination: ip.destination,
        tos: ip.dscp_ecn,
        ttl: ip.ttl,
        id: ip.id,
        dont_fragment: ip.dont_fragment,
    };
    Some((network, ipv4::HEADER_LEN, ip.total_len.into()))
}

fn v6(packet: &[u8]) -> Option<(Network, usize, usize)> {
    let ip = ipv6::Header::parse(packet).ok()?;
    if ip.next_header != PROTOCOL_UDP {
        return None;
    }
    let network = Network::V6 {
        source: ip.source,
        destination: ip.destination,
        traffic_class: ip.traffic_class,
        flow_label: ip.flow_label,
        hop_limit: ip.hop_limit,
    };
    let whole = ipv6::HEADER_LEN + usize::from(ip.payload_len);
    Some((network, ipv6::HEADER_LEN, whole))
}
