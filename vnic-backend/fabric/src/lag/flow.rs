//! The flow of a frame: what hash policies look at, and what people want to see.
//!
//! The parser reads Ethernet with up to two VLAN tags, IPv4, IPv6 with its extension headers, TCP and UDP, and the same
//! again inside of tunnels (VXLAN, GENEVE, NVGRE, GRE, IP in IP). Of a fragment, also of the first one, it reads neither
//! ports nor payload: all fragments of a packet go the same way.

use core::fmt;
use core::net::{IpAddr, SocketAddr};

use vnic_wire::ipv4::{PROTOCOL_TCP, PROTOCOL_UDP};
use vnic_wire::{EtherType, MacAddr, bth, ethernet, grh, ipv4, ipv6, roce, tunnel, udp, vxlan};

/// Nested tunnels that are looked into. A guest decides how many there are: deeper ones are not worth the time.
const TUNNELS_MAX: usize = 2;

/// Ports of TCP or UDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ports {
    /// Source port.
    pub source: u16,
    /// Destination port.
    pub destination: u16,
}

/// The five-tuple of an IP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Packet {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Protocol above IP.
    pub protocol: u8,
    /// Ports, of TCP and UDP without fragmentation.
    pub ports: Option<Ports>,
}

/// The flow of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Flow {
    /// Destination address.
    pub destination: MacAddr,
    /// Source address.
    pub source: MacAddr,
    /// EtherType behind the VLAN tags.
    pub ethertype: EtherType,
    /// The IP packet.
    pub packet: Option<Packet>,
    /// The innermost IP packet, if the frame is a tunnel's.
    pub inner: Option<Packet>,
    /// Destination queue pair, of a RoCE packet.
    pub qp: Option<u32>,
    /// The sender's own queue pair. No packet names it; whoever sends for an RDMA function may write it here.
    pub local_qp: Option<u32>,
}

/// An IP packet, and the bytes behind its headers.
struct Layer<'a> {
    packet: Packet,
    /// Bytes behind the IP header and its extensions; empty for fragments.
    upper: &'a [u8],
}

impl Flow {
    /// Reads the flow from the front of a frame: of all headers, or of those that are there. `None`: there is no Ethernet
    /// header.
    #[inline]
    pub fn parse(head: &[u8]) -> Option<Flow> {
        let link = ethernet::Header::parse(head).ok()?;
        let mut flow = Flow {
            destination: link.destination,
            source: link.source,
            ethertype: link.ethertype,
            packet: None,
            inner: None,
            qp: None,
            local_qp: None,
        };
        let Ok(payload) = ethernet::payload(head) else {
            return Some(flow);
        };
        flow.ethertype = payload.ethertype;
        let bytes = head.get(payload.offset..).unwrap_or(&[]);
        if payload.ethertype == EtherType::ROCE {
            flow.qp = queue_pair(bytes.get(grh::HEADER_LEN..));
        }
        let Some(mut layer) = network(payload.ethertype, bytes) else {
            return Some(flow);
        };
        flow.packet = Some(layer.packet);
        for _ in 0..TUNNELS_MAX {
            let Some(inner) = tunnelled(&layer) else {
                break;
            };
            flow.inner = Some(inner.packet);
            layer = inner;
        }
        let to = layer.packet.ports.map(|p| p.destination);
        if layer.packet.protocol == PROTOCOL_UDP && to == Some(roce::UDP_PORT) {
            flow.qp = queue_pair(layer.upper.get(udp::HEADER_LEN..));
        }
        Some(flow)
    }

    /// The packet that the flow is about: the inner one of a tunnel.
    #[inline]
    pub fn innermost(&self) -> Option<&Packet> {
        self.inner.as_ref().or(self.packet.as_ref())
    }
}

/// Destination queue pair of a transport packet of InfiniBand.
fn queue_pair(bytes: Option<&[u8]>) -> Option<u32> {
    Some(bth::Header::parse(bytes?).ok()?.destination_qp)
}

/// Reads an IP packet.
#[inline]
fn network(ethertype: EtherType, bytes: &[u8]) -> Option<Layer<'_>> {
    let (source, destination, protocol, offset, fragment) = match ethertype {
        EtherType::IPV4 => {
            let ip = ipv4::Header::parse(bytes).ok()?;
            let fragment = ip.is_fragment();
            (
                ip.source.into(),
                ip.destination.into(),
                ip.protocol,
                ip.header_len,
                fragment,
            )
        }
        EtherType::IPV6 => {
            let ip = ipv6::Header::parse(bytes).ok()?;
            let (source, destination) = (ip.source.into(), ip.destination.into());
            match ip.upper(bytes) {
                Ok(upper) => (source, destination, upper.protocol, upper.offset, upper.fragment),
                Err(_) => (source, destination, ip.next_header, bytes.len(), true),
            }
        }
        _ => return None,
    };
    let upper = bytes.get(offset..).filter(|_| !fragment).unwrap_or(&[]);
    let ports = match (protocol, upper) {
        (PROTOCOL_TCP | PROTOCOL_UDP, [a, b, c, d, ..]) => Some(Ports {
            source: u16::from_be_bytes([*a, *b]),
            destination: u16::from_be_bytes([*c, *d]),
        }),
        _ => None,
    };
    Some(Layer {
        packet: Packet {
            source,
            destination,
            protocol,
            ports,
        },
        upper,
    })
}

/// The packet inside, if this one is a tunnel's.
fn tunnelled<'a>(layer: &Layer<'a>) -> Option<Layer<'a>> {
    let inner = tunnel::inner(layer.packet.protocol, layer.upper, vxlan::UDP_PORT)?;
    network(inner.ethertype, layer.upper.get(inner.offset..)?)
}

impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.protocol {
            PROTOCOL_TCP => "tcp",
            PROTOCOL_UDP => "udp",
            other => return write!(f, "{} > {} protocol {other}", self.source, self.destination),
        };
        match self.ports {
            Some(ports) => {
                let source = SocketAddr::new(self.source, ports.source);
                let destination = SocketAddr::new(self.destination, ports.destination);
                write!(f, "{source} > {destination} {name}")
            }
            None => write!(f, "{} > {} {name}", self.source, self.destination),
        }
    }
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.innermost() {
            Some(packet) => packet.fmt(f)?,
            None => write!(f, "{} > {} {:?}", self.source, self.destination, self.ethertype)?,
        }
        if let Some(qp) = self.qp {
            write!(f, " to QP {qp:#x}")?;
        }
        if let Some(qp) = self.local_qp {
            write!(f, " from QP {qp:#x}")?;
        }
        Ok(())
    }
}
