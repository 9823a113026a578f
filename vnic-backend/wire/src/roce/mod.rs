//! Whole RoCE frames: RoCEv1 is Ethernet, GRH, BTH (IBTA vol 1 annex A16), RoCEv2 is Ethernet, IP, UDP, BTH
//! (annex A17).
//!
//! [`Frame`] reads a frame; [`Path`] writes the bytes in front of the payload, and the ICRC behind it.

mod ecn;
mod path;
mod stamp;

pub use ecn::{Ecn, ecn, set_ce, set_ect};
pub use path::{Path, build};
pub use stamp::{FRONT, gathers, stamp};

use crate::gid::Gid;
use crate::icrc::{self, Kind};
use crate::int::{self, Sign, TRAILER_LEN};
use crate::ipv4::PROTOCOL_UDP;
use crate::transport::Headers;
use crate::{Error, EtherType, checksum, ethernet, grh, ipv4, ipv6, udp, vlan};

/// UDP destination port of RoCEv2 (IANA; annex A17).
pub const UDP_PORT: u16 = 4791;

/// Default hop limit of packets (IANA, IP parameters: the default TTL).
pub const HOP_LIMIT: u8 = 64;

/// The network header of a packet, without fields that follow from the rest of the packet (lengths, checksums,
/// next header).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    /// RoCEv1.
    V1 {
        /// Global route header.
        grh: grh::Header,
    },
    /// RoCEv2 over IPv4.
    V4 {
        /// Source address.
        source: [u8; 4],
        /// Destination address.
        destination: [u8; 4],
        /// DSCP (upper six bits) and ECN (lower two).
        tos: u8,
        /// Time to live.
        ttl: u8,
        /// Identification.
        id: u16,
        /// Do not fragment.
        dont_fragment: bool,
    },
    /// RoCEv2 over IPv6.
    V6 {
        /// Source address.
        source: [u8; 16],
        /// Destination address.
        destination: [u8; 16],
        /// DSCP (upper six bits) and ECN (lower two).
        traffic_class: u8,
        /// Flow label, 20 bits.
        flow_label: u32,
        /// Hop limit.
        hop_limit: u8,
    },
}

impl Network {
    /// RoCEv1 between two GIDs; hop limit [`HOP_LIMIT`], all other fields 0.
    pub const fn v1(source: Gid, destination: Gid) -> Network {
        Network::V1 {
            grh: grh::Header {
                traffic_class: 0,
                flow_label: 0,
                payload_len: 0,
                next_header: grh::NEXT_HEADER_IBA,
                hop_limit: HOP_LIMIT,
                source: source.0,
                destination: destination.0,
            },
        }
    }

    /// RoCEv2 between two GIDs: over IPv4 if both are mapped IPv4 addresses, else over IPv6. Do not fragment, hop
    /// limit [`HOP_LIMIT`], all other fields 0.
    pub fn v2(source: Gid, destination: Gid) -> Network {
        match (source.to_ipv4(), destination.to_ipv4()) {
            (Some(source), Some(destination)) => Network::V4 {
                source,
                destination,
                tos: 0,
                ttl: HOP_LIMIT,
                id: 0,
                dont_fragment: true,
            },
            _ => Network::V6 {
                source: source.0,
                destination: destination.0,
                traffic_class: 0,
                flow_label: 0,
                hop_limit: HOP_LIMIT,
            },
        }
    }

    /// Kind of the network header.
    #[inline]
    pub const fn kind(&self) -> Kind {
        match self {
            Network::V1 { .. } => Kind::V1,
            Network::V4 { .. } => Kind::V4,
            Network::V6 { .. } => Kind::V6,
        }
    }

    /// GID of the source.
    #[inline]
    pub const fn source(&self) -> Gid {
        match self {
            Network::V1 { grh } => Gid(grh.source),
            Network::V4 { source, .. } => Gid::from_ipv4(*source),
            Network::V6 { source, .. } => Gid(*source),
        }
    }

    /// GID of the destination.
    #[inline]
    pub const fn destination(&self) -> Gid {
        match self {
            Network::V1 { grh } => Gid(grh.destination),
            Network::V4 { destination, .. } => Gid::from_ipv4(*destination),
            Network::V6 { destination, .. } => Gid(*destination),
        }
    }

    /// Whether `other` comes from where this one goes, and goes to where it comes from.
    #[inline(always)]
    fn leads_to_sender_of(&self, other: &Network) -> bool {
        match (self, other) {
            (
                Network::V4 {
                    source, destination, ..
                },
                Network::V4 {
                    source: s,
                    destination: d,
                    ..
                },
            ) => s == destination && d == source,
            (
                Network::V6 {
                    source, destination, ..
                },
                Network::V6 {
                    source: s,
                    destination: d,
                    ..
                },
            ) => s == destination && d == source,
            _ => other.source() == self.destination() && other.destination() == self.source(),
        }
    }

    /// DSCP (upper six bits) and ECN (lower two).
    #[inline]
    pub const fn traffic_class(&self) -> u8 {
        match self {
            Network::V1 { grh } => grh.traffic_class,
            Network::V4 { tos, .. } => *tos,
            Network::V6 { traffic_class, .. } => *traffic_class,
        }
    }

    /// Sets DSCP (upper six bits) and ECN (lower two).
    #[inline]
    pub const fn set_traffic_class(&mut self, value: u8) {
        match self {
            Network::V1 { grh } => grh.traffic_class = value,
            Network::V4 { tos, .. } => *tos = value,
            Network::V6 { traffic_class, .. } => *traffic_class = value,
        }
    }

    /// Hop limit or time to live.
    #[inline]
    pub const fn hop_limit(&self) -> u8 {
        match self {
            Network::V1 { grh } => grh.hop_limit,
            Network::V4 { ttl, .. } => *ttl,
            Network::V6 { hop_limit, .. } => *hop_limit,
        }
    }

    /// Sets hop limit or time to live.
    #[inline]
    pub const fn set_hop_limit(&mut self, value: u8) {
        match self {
            Network::V1 { grh } => grh.hop_limit = value,
            Network::V4 { ttl, .. } => *ttl = value,
            Network::V6 { hop_limit, .. } => *hop_limit = value,
        }
    }

    /// Flow label, 20 bits; 0 for IPv4.
    #[inline]
    pub const fn flow_label(&self) -> u32 {
        match self {
            Network::V1 { grh } => grh.flow_label,
            Network::V4 { .. } => 0,
            Network::V6 { flow_label, .. } => *flow_label,
        }
    }

    /// Sets the flow label, 20 bits; IPv4 has none.
    #[inline]
    pub const fn set_flow_label(&mut self, value: u32) {
        match self {
            Network::V1 { grh } => grh.flow_label = value,
            Network::V4 { .. } => {}
            Network::V6 { flow_label, .. } => *flow_label = value,
        }
    }
}

/// A RoCE frame that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Ethernet header as it is; its EtherType is the TPID if there is a tag.
    pub eth: ethernet::Header,
    /// The tag, if there is one.
    pub vlan: Option<vlan::Header>,
    /// Network header.
    pub network: Network,
    /// UDP source port; 0 for RoCEv1.
    pub source_port: u16,
    /// UDP checksum as found; 0 for RoCEv1. The ICRC protects the same bytes.
    pub udp_checksum: u16,
    /// Transport headers.
    pub headers: Headers,
    /// Payload, without trailer and pad.
    pub payload: &'a [u8],
    /// The trailer of telemetry, if there is one: at the end of the payload, or behind the packet ([`Sign::Behind`]).
    pub trailer: Option<&'a [u8; TRAILER_LEN]>,
    /// The ICRC as found.
    pub icrc: [u8; icrc::LEN],
    /// The frame from its network header to the ICRC, without bytes that Ethernet may have added behind it.
    packet: &'a [u8],
}

/// The network header of a packet, and the place of the BTH in it.
struct Routed<'a> {
    network: Network,
    source_port: u16,
    udp_checksum: u16,
    /// The packet, without bytes that follow it in the frame.
    packet: &'a [u8],
    /// Bytes that follow it, where telemetry may be.
    behind: &'a [u8],
    /// Offset of the BTH.
    bth: usize,
}

impl<'a> Frame<'a> {
    /// Reads a frame with at most one VLAN tag. Bytes that Ethernet has added to a short frame are cut off, by
    /// the length in the network header. The ICRC is not checked ([`Frame::icrc_ok`] does), nor are pad bytes.
    ///
    /// `Kind`: not RoCE, a fragment, a network header with options or extension headers, or an opcode that
    /// [`Headers::parse`] does not know. `Length`: lengths that contradict each other, or a payload that is no
    /// multiple of four bytes long with its pad.
    #[inline]
    pub fn parse(frame: &'a [u8]) -> Result<Frame<'a>, Error> {
        let eth = ethernet::Header::parse(frame)?;
        let mut ethertype = eth.ethertype;
        let mut at = ethernet::HEADER_LEN;
        let vlan = if ethertype.is_vlan() {
            let tag = vlan::Header::parse(&frame[at..])?;
            ethertype = tag.ethertype;
            at += vlan::HEADER_LEN;
            Some(tag)
        } else {
            None
        };
        let bytes = &frame[at..];
        let routed = match ethertype {
            EtherType::IPV4 => v4(bytes)?,
            EtherType::IPV6 => v6(bytes)?,
            EtherType::ROCE => v1(bytes)?,
            _ => return Err(Error::Kind),
        };
        let transport = &routed.packet[routed.bth..];
        let (mut headers, len) = Headers::parse(transport)?;
        let (payload, icrc) = transport[len..].split_last_chunk().ok_or(Error::Truncated)?;
        let payload_len = payload.len().checked_sub(usize::from(headers.bth.pad));
        let payload_len = payload_len.ok_or(Error::Length)?;
        if !payload.len().is_multiple_of(4) {
            return Err(Error::Length);
        }
        let (payload, mut trailer) = int::split(&mut headers.bth.telemetry, &payload[..payload_len]);
        if routed.behind.len() == TRAILER_LEN
            && let Some(behind) = int::behind(routed.behind)
        {
            (headers.bth.telemetry, trailer) = (Sign::Behind, Some(behind));
        }
        Ok(Frame {
            eth,
            vlan,
            network: routed.network,
            source_port: routed.source_port,
            udp_checksum: routed.udp_checksum,
            headers,
            payload,
            trailer,
            icrc: *icrc,
            packet: routed.packet,
        })
    }

    /// Whether the ICRC is right.
    #[inline]
    pub fn icrc_ok(&self) -> bool {
        let body = &self.packet[..self.packet.len() - icrc::LEN];
        icrc::compute(self.network.kind(), body) == Ok(self.icrc)
    }

    /// Whether the checksum of the IPv4 header is right (RFC 791 section 3.1), or there is none.
    #[inline]
    pub fn header_checksum_ok(&self) -> bool {
        match self.network {
            Network::V4 { .. } => {
                let header = self.packet.get(..ipv4::HEADER_LEN).unwrap_or(&[]);
                checksum::fold(checksum::sum(header)) == 0xffff
            }
            _ => true,
        }
    }

    /// The frame from its network header to the ICRC, without bytes that Ethernet may have added behind it.
    #[inline]
    pub const fn packet(&self) -> &'a [u8] {
        self.packet
    }
}

#[inline]
fn v1(bytes: &[u8]) -> Result<Routed<'_>, Error> {
    let grh = grh::Header::parse(bytes)?;
    if grh.next_header != grh::NEXT_HEADER_IBA {
        return Err(Error::Kind);
    }
    let len = grh::HEADER_LEN + usize::from(grh.payload_len);
    Ok(Routed {
        network: Network::V1 { grh },
        source_port: 0,
        udp_checksum: 0,
        packet: bytes.get(..len).ok_or(Error::Truncated)?,
        behind: &[],
        bth: grh::HEADER_LEN,
    })
}

#[inline]
fn v4(bytes: &[u8]) -> Result<Routed<'_>, Error> {
    let ip = ipv4::Header::parse(bytes)?;
    if ip.protocol != PROTOCOL_UDP || ip.header_len != ipv4::HEADER_LEN || ip.is_fragment() {
        return Err(Error::Kind);
    }
    if usize::from(ip.total_len) < ipv4::HEADER_LEN {
        return Err(Error::Length);
    }
    let parts = bytes
        .split_at_checked(ip.total_len.into())
        .ok_or(Error::Truncated)?;
    let network = Network::V4 {
        source: ip.source,
        destination: ip.destination,
        tos: ip.dscp_ecn,
        ttl: ip.ttl,
        id: ip.id,
        dont_fragment: ip.dont_fragment,
    };
    datagram(network, parts, ipv4::HEADER_LEN)
}

#[inline]
fn v6(bytes: &[u8]) -> Result<Routed<'_>, Error> {
    let ip = ipv6::Header::parse(bytes)?;
    if ip.next_header != PROTOCOL_UDP {
        return Err(Error::Kind);
    }
    let len = ipv6::HEADER_LEN + usize::from(ip.payload_len);
    let parts = bytes.split_at_checked(len).ok_or(Error::Truncated)?;
    let network = Network::V6 {
        source: ip.source,
        destination: ip.destination,
        traffic_class: ip.traffic_class,
        flow_label: ip.flow_label,
        hop_limit: ip.hop_limit,
    };
    datagram(network, parts, ipv6::HEADER_LEN)
}

/// Reads the UDP header at `at` of a packet that is there in full, with bytes behind it.
#[inline]
fn datagram<'a>(
    network: Network,
    (packet, behind): (&'a [u8], &'a [u8]),
    at: usize,
) -> Result<Routed<'a>, Error> {
    let udp = udp::Header::parse(&packet[at..])?;
    if udp.destination_port != UDP_PORT {
        return Err(Error::Kind);
    }
    if usize::from(udp.len) != packet.len() - at {
        return Err(Error::Length);
    }
    Ok(Routed {
        network,
        source_port: udp.source_port,
        udp_checksum: udp.checksum,
        packet,
        behind,
        bth: at + udp::HEADER_LEN,
    })
}

/// Whether the frame, with up to two VLAN tags, says that it is RoCE: by its EtherType, or as a UDP datagram (not
/// fragmented, no options, no extension headers) to port 4791. Nothing else is checked.
#[inline]
pub fn is_roce(frame: &[u8]) -> bool {
    let Ok(ethernet::Payload { offset, ethertype }) = ethernet::payload(frame) else {
        return false;
    };
    let packet = frame.get(offset..).unwrap_or(&[]);
    let port = match ethertype {
        EtherType::ROCE => return true,
        EtherType::IPV4 => match packet.first_chunk::<{ ipv4::HEADER_LEN + 4 }>() {
            // Version 4, a header of five words; no more fragments, offset 0.
            Some(b) if b[0] == 0x45 && b[9] == PROTOCOL_UDP && b[6] & 0x3f == 0 && b[7] == 0 => {
                [b[22], b[23]]
            }
            _ => return false,
        },
        EtherType::IPV6 => match packet.first_chunk::<{ ipv6::HEADER_LEN + 4 }>() {
            Some(b) if b[0] >> 4 == 6 && b[6] == PROTOCOL_UDP => [b[42], b[43]],
            _ => return false,
        },
        _ => return false,
    };
    port == UDP_PORT.to_be_bytes()
}
