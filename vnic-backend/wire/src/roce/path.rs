//! Writing RoCE frames.

use alloc::vec::Vec;

use super::{Frame, Network, UDP_PORT};
use crate::icrc::{self, Icrc, Kind};
use crate::int::Telemetry;
use crate::ipv4::PROTOCOL_UDP;
use crate::transport::{Headers, put};
use crate::{Error, EtherType, bth, ethernet, grh, ipv4, ipv6, udp, vlan};

/// Everything in front of the transport headers, which all frames from one queue pair to another share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Path {
    /// Ethernet addresses. The EtherType counts only as the TPID of a tag: 0x88a8, or else 0x8100.
    pub eth: ethernet::Header,
    /// VLAN tag, if frames have one; its EtherType does not count.
    pub vlan: Option<vlan::Header>,
    /// Network header. Lengths and next header of a GRH do not count.
    pub network: Network,
    /// UDP source port; RoCEv1 has none.
    pub source_port: u16,
}

impl From<&Frame<'_>> for Path {
    /// The path that makes frames like this one.
    fn from(frame: &Frame<'_>) -> Path {
        Path {
            eth: frame.eth,
            vlan: frame.vlan,
            network: frame.network,
            source_port: frame.source_port,
        }
    }
}

/// Bytes that fill a payload of `len` bytes up to a multiple of four.
#[inline]
const fn pad(len: usize) -> usize {
    len.wrapping_neg() & 3
}

impl Path {
    /// Kind of the network header.
    #[inline]
    pub const fn kind(&self) -> Kind {
        self.network.kind()
    }

    /// VLAN that frames are tagged with; 0: none, a tag may still name a priority (IEEE 802.1Q table 9-2).
    #[inline]
    pub const fn vid(&self) -> u16 {
        match self.vlan {
            Some(tag) => tag.tci.vid(),
            None => 0,
        }
    }

    /// Whether frames with `other` come back from where frames with this path go. A switch vouches for Ethernet address
    /// and VLAN; network addresses are what the sender says.
    #[inline(always)]
    pub fn leads_to_sender_of(&self, other: &Path) -> bool {
        other.eth.source == self.eth.destination
            && (self.vlan.is_none() && other.vlan.is_none() || other.vid() == self.vid())
            && self.network.leads_to_sender_of(&other.network)
    }

    /// The same path with this IPv4 identification, if it is over IPv4.
    #[inline]
    pub const fn numbered(mut self, number: u16) -> Path {
        if let Network::V4 { id, .. } = &mut self.network {
            *id = number;
        }
        self
    }

    /// Offset of the network header in the frame.
    #[inline]
    pub const fn network_offset(&self) -> usize {
        match self.vlan {
            Some(_) => ethernet::HEADER_LEN + vlan::HEADER_LEN,
            None => ethernet::HEADER_LEN,
        }
    }

    /// Offset of the BTH in the frame.
    #[inline]
    pub const fn headers_len(&self) -> usize {
        self.network_offset()
            + match self.network {
                Network::V1 { .. } => grh::HEADER_LEN,
                Network::V4 { .. } => ipv4::HEADER_LEN + udp::HEADER_LEN,
                Network::V6 { .. } => ipv6::HEADER_LEN + udp::HEADER_LEN,
            }
    }

    /// Bytes of a frame with these transport headers and this payload, trailer, pad and ICRC included, and a trailer behind it if the
    /// BTH speaks of one. Ethernet may add bytes to a short frame ([`ethernet::FRAME_MIN`]).
    #[inline]
    pub const fn frame_len(&self, headers: &Headers, payload_len: usize) -> usize {
        let trailer = headers.bth.telemetry.trailer_len() + headers.bth.telemetry.behind_len();
        self.headers_len() + headers.len() + payload_len + trailer + pad(payload_len) + icrc::LEN
    }

    /// Writes everything in front of the payload to the front of `out` and returns the offset of the payload. The pad
    /// count of the BTH follows from `payload_len`, whatever `headers` says. Behind the payload there is the trailer that the BTH
    /// speaks of, then the pad.
    ///
    /// The UDP checksum is 0 over IPv4 and over IPv6, as adapters and Linux' Soft-RoCE do it. RFC 6935 and RFC
    /// 6936 allow it over IPv6 for a protocol that protects its headers itself, which the ICRC does.
    ///
    /// `Truncated`: `out` has no room for the headers. `Length`: too long for an IP packet. `Kind`: the headers
    /// are not those that the opcode asks for.
    #[inline]
    pub fn emit(&self, headers: &Headers, payload_len: usize, out: &mut [u8]) -> Result<usize, Error> {
        let pad = pad(payload_len);
        let transport_len = headers
            .len()
            .checked_add(payload_len)
            .and_then(|n| n.checked_add(headers.bth.telemetry.trailer_len() + pad + icrc::LEN))
            .ok_or(Error::Length)?;
        let at = self.headers_len();
        let (front, back) = out.split_at_mut_checked(at).ok_or(Error::Truncated)?;
        self.emit_front(transport_len, front)?;
        let mut headers = *headers;
        headers.bth.pad = pad as u8;
        Ok(at + headers.emit(back)?)
    }

    /// Writes the headers from Ethernet to UDP, before `transport_len` bytes; `out` is as long as they are.
    #[inline]
    fn emit_front(&self, transport_len: usize, out: &mut [u8]) -> Result<(), Error> {
        let ethertype = match self.network {
            Network::V1 { .. } => EtherType::ROCE,
            Network::V4 { .. } => EtherType::IPV4,
            Network::V6 { .. } => EtherType::IPV6,
        };
        let mut eth = self.eth;
        if let Some(mut tag) = self.vlan {
            if !eth.ethertype.is_vlan() {
                eth.ethertype = EtherType::VLAN;
            }
            tag.ethertype = ethertype;
            put(out, ethernet::HEADER_LEN, tag.emit()).ok_or(Error::Truncated)?;
        } else {
            eth.ethertype = ethertype;
        }
        put(out, 0, eth.emit()).ok_or(Error::Truncated)?;
        let at = self.network_offset();
        match self.network {
            Network::V1 { mut grh } => {
                grh.payload_len = len16(transport_len)?;
                grh.next_header = grh::NEXT_HEADER_IBA;
                put(out, at, grh.emit())
            }
            Network::V4 {
                source,
                destination,
                tos,
                ttl,
                id,
                dont_fragment,
            } => {
                let total_len = len16(transport_len.saturating_add(ipv4::HEADER_LEN + udp::HEADER_LEN))?;
                let ip = ipv4::Header {
                    header_len: ipv4::HEADER_LEN,
                    dscp_ecn: tos,
                    total_len,
                    id,
                    dont_fragment,
                    more_fragments: false,
                    fragment_offset: 0,
                    ttl,
                    protocol: PROTOCOL_UDP,
                    checksum: 0,
                    source,
                    destination,
                };
                put(out, at, ip.emit()).ok_or(Error::Truncated)?;
                let udp = self.udp(total_len - ipv4::HEADER_LEN as u16);
                put(out, at + ipv4::HEADER_LEN, udp.emit())
            }
            Network::V6 {
                source,
                destination,
                traffic_class,
                flow_label,
                hop_limit,
            } => {
                let payload_len = len16(transport_len.saturating_add(udp::HEADER_LEN))?;
                let ip = ipv6::Header {
                    traffic_class,
                    flow_label,
                    payload_len,
                    next_header: PROTOCOL_UDP,
                    hop_limit,
                    source,
                    destination,
                };
                put(out, at, ip.emit()).ok_or(Error::Truncated)?;
                put(out, at + ipv6::HEADER_LEN, self.udp(payload_len).emit())
            }
        }
        .ok_or(Error::Truncated)
    }

    #[inline]
    const fn udp(&self, len: u16) -> udp::Header {
        udp::Header {
            source_port: self.source_port,
            destination_port: UDP_PORT,
            len,
            checksum: 0,
        }
    }

    /// Completes a frame by pad bytes and ICRC: `frame` ends with the ICRC, [`Path::emit`] has written its front, and the payload is
    /// in its place.
    ///
    /// `Truncated`: the frame is too short for that.
    #[inline]
    pub fn finish(&self, frame: &mut [u8]) -> Result<(), Error> {
        let (body, crc) = frame.split_last_chunk_mut().ok_or(Error::Truncated)?;
        let flags = *body.get(self.headers_len() + 1).ok_or(Error::Truncated)?;
        let pad = usize::from(flags >> 4 & 3);
        let from = self.headers_len() + bth::HEADER_LEN;
        let len = body.len();
        body.get_mut(from..)
            .and_then(|b| b.get_mut((len - from).checked_sub(pad)?..))
            .ok_or(Error::Truncated)?
            .fill(0);
        *crc = icrc::compute(self.kind(), &body[self.network_offset()..])?;
        Ok(())
    }

    /// The ICRC over what [`Path::emit`] has written (`front`: the frame up to the payload). The caller updates it with
    /// payload and pad bytes, so that it touches the payload once.
    #[inline]
    pub fn icrc(&self, front: &[u8]) -> Result<Icrc, Error> {
        let packet = front.get(self.network_offset()..).ok_or(Error::Truncated)?;
        Icrc::new(self.kind(), packet)
    }
}

/// A length as a field of 16 bits.
#[inline]
fn len16(len: usize) -> Result<u16, Error> {
    u16::try_from(len).map_err(|_| Error::Length)
}

/// Makes a whole frame, with an empty trailer if the BTH speaks of one, which replaces the content of `out`. Errors are those of [`Path::emit`]; `out` is empty then.
pub fn build(path: &Path, headers: &Headers, payload: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
    out.clear();
    if payload.len() > usize::from(u16::MAX) {
        return Err(Error::Length);
    }
    out.resize(path.frame_len(headers, payload.len()), 0);
    let written = path.emit(headers, payload.len(), out).and_then(|at| {
        out.get_mut(at..at + payload.len())
            .ok_or(Error::Truncated)?
            .copy_from_slice(payload);
        let trailer = headers.bth.telemetry.trailer_len();
        let end = at + payload.len();
        if let Some(trailer) = out.get_mut(end..end + trailer).filter(|t| !t.is_empty()) {
            trailer.copy_from_slice(&Telemetry::EMPTY.emit_trailer());
        }
        let packet = out.len() - headers.bth.telemetry.behind_len();
        let (packet, behind) = out.split_at_mut(packet);
        if !behind.is_empty() {
            behind.copy_from_slice(&Telemetry::EMPTY.emit_trailer());
        }
        path.finish(packet)
    });
    if written.is_err() {
        out.clear();
    }
    written
}
