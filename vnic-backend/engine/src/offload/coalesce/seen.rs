//! What a frame is for coalescing.

use core::ops::Range;

use vnic_wire::{EtherType, checksum, ethernet, ipv4, ipv6, tcp};

use crate::offload::{Request, check};
use crate::virtio_net::NetHdr;

/// Offset of the timestamps in a TCP header that has them alone, behind two bytes of padding (RFC 7323 appendix A).
pub(super) const STAMPS: usize = tcp::HEADER_LEN + 4;
/// Bytes of the option with its padding, and what it begins with: two NOPs, kind, length.
const STAMPS_LEN: usize = 12;
const STAMPS_KIND: [u8; 4] = [1, 1, 8, 10];
/// Flags that a segment of a unit may have.
const ALLOWED: u16 = tcp::ACK | tcp::PSH | tcp::ECE;

/// A segment with data that may join others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) v6: bool,
    /// Offsets of IP and TCP header, and of the payload.
    pub(super) network: usize,
    pub(super) transport: usize,
    pub(super) head_len: usize,
    pub(super) payload: usize,
    pub(super) sequence: u32,
    pub(super) acknowledgment: u32,
    pub(super) window: u16,
    pub(super) flags: u16,
    /// Timestamp and its echo.
    pub(super) stamps: Option<[u32; 2]>,
    /// IPv4 identification, if it has a meaning (RFC 6864 section 4): "do not fragment" is not set.
    pub(super) id: Option<u16>,
    /// What of the IP header is the same in all segments: class and ECN, lifetime, flow label, "do not fragment".
    pub(super) same: [u32; 2],
}

/// A frame of TCP, or one that may be.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'h> {
    pub(super) head: &'h [u8],
    v6: bool,
    network: usize,
    /// `None`: fragments, options and extension headers hide which ports it is for.
    transport: Option<usize>,
    pub(super) segment: Option<Segment>,
    /// Whether the sender left the checksum to others, so that there is nothing to verify.
    pub is_partial: bool,
}

/// Source and destination address of an IP header, together.
pub(super) const fn addresses(v6: bool, network: usize) -> Range<usize> {
    match v6 {
        false => network + 12..network + 20,
        true => network + 8..network + 40,
    }
}

impl<'h> Seen<'h> {
    /// Looks at a frame of `len` bytes; `head` is a private copy of its first [`LOOK`](super::LOOK) bytes. `None`: it is not of TCP.
    pub fn of(head: &'h [u8], hdr: &NetHdr, len: usize) -> Option<Seen<'h>> {
        /// Extension headers behind which TCP may be (RFC 8200 section 4).
        const HIDING: [u8; 4] = [0, 43, 44, 60];
        let link = ethernet::payload(head).ok()?;
        let network = link.offset;
        let packet = head.get(network..)?;
        let (v6, transport, ip) = match link.ethertype {
            EtherType::IPV4 => {
                let ip = ipv4::Header::parse(packet).ok()?;
                if ip.protocol != ipv4::PROTOCOL_TCP {
                    return None;
                }
                let bare = ip.header_len == ipv4::HEADER_LEN && !ip.is_fragment();
                let sound = packet.get(..ipv4::HEADER_LEN).map(checksum::sum) == Some(0xffff);
                let whole = sound && network + usize::from(ip.total_len) == len;
                let id = (!ip.dont_fragment).then_some(ip.id);
                let same = [
                    u32::from(ip.dscp_ecn) << 1 | u32::from(ip.dont_fragment),
                    ip.ttl.into(),
                ];
                (
                    false,
                    bare.then_some(network + ipv4::HEADER_LEN),
                    whole.then_some((id, same)),
                )
            }
            EtherType::IPV6 => {
                let ip = ipv6::Header::parse(packet).ok()?;
                let bare = ip.next_header == ipv4::PROTOCOL_TCP;
                if !bare && !HIDING.contains(&ip.next_header) {
                    return None;
                }
                let whole = network + ipv6::HEADER_LEN + usize::from(ip.payload_len) == len;
                let same = [
                    u32::from(ip.traffic_class) << 20 | ip.flow_label,
                    ip.hop_limit.into(),
                ];
                (
                    true,
                    bare.then_some(network + ipv6::HEADER_LEN),
                    whole.then_some((None, same)),
                )
            }
            _ => return None,
        };
        let mut seen = Seen {
            head,
            v6,
            network,
            transport,
            segment: None,
            is_partial: hdr.flags & NetHdr::NEEDS_CSUM != 0,
        };
        if let (Some(transport), Some(ip)) = (transport, ip) {
            seen.segment = seen.segment(transport, ip, hdr, len);
        }
        Some(seen)
    }

    fn segment(
        &self,
        transport: usize,
        (id, same): (Option<u16>, [u32; 2]),
        hdr: &NetHdr,
        len: usize,
    ) -> Option<Segment> {
        if self.is_partial {
            // What is left to do must be the TCP checksum.
            let field = transport + tcp::CHECKSUM_OFFSET;
            let start = transport;
            if check(hdr, self.head, len) != Ok(Request::Checksum { start, field }) {
                return None;
            }
        } else if hdr.gso_type != NetHdr::GSO_NONE {
            return None;
        }
        let bytes = self.head.get(transport..)?;
        let tcp = tcp::Header::parse(bytes).ok()?;
        let stamps = match bytes.get(tcp::HEADER_LEN..tcp.header_len)? {
            [] => None,
            option if option.len() == STAMPS_LEN && option.starts_with(&STAMPS_KIND) => {
                let [.., a, b, c, d, e, f, g, h] = *option.first_chunk::<STAMPS_LEN>()?;
                Some([[a, b, c, d], [e, f, g, h]].map(u32::from_be_bytes))
            }
            _ => return None,
        };
        let head_len = transport + tcp.header_len;
        let payload = len.checked_sub(head_len).filter(|n| *n > 0)?;
        (tcp.flags & !ALLOWED == 0 && tcp.flags & tcp::ACK != 0).then_some(Segment {
            v6: self.v6,
            network: self.network,
            transport,
            head_len,
            payload,
            sequence: tcp.sequence,
            acknowledgment: tcp.acknowledgment,
            window: tcp.window,
            flags: tcp.flags,
            stamps,
            id,
            same,
        })
    }

    /// Whether it is of IPv6, not IPv4.
    pub fn is_v6(&self) -> bool {
        self.v6
    }

    /// Bytes of the headers, if the frame may join others.
    pub fn head_len(&self) -> Option<usize> {
        self.segment.map(|s| s.head_len)
    }

    /// Notes that the checksum is wrong, or nobody knows: the frame joins nothing.
    pub fn distrust(&mut self) {
        self.segment = None;
    }

    /// What the TCP checksum of a frame that may join others is over: the sum of its pseudo header, and the offset from which
    /// the frame's own bytes count. The whole sum must be 0xffff.
    pub fn sum(&self) -> Option<(u32, usize)> {
        let s = self.segment?;
        let addresses = self.head.get(addresses(s.v6, s.network)).map_or(0, checksum::sum);
        let len = (s.head_len - s.transport + s.payload) as u32;
        Some((addresses + u32::from(ipv4::PROTOCOL_TCP) + len, s.transport))
    }

    /// Whether the frame is, or may be, of the flow of a unit with this head.
    pub(super) fn is_of_flow(&self, head: &[u8], first: &Segment) -> bool {
        let ports = |head: &[u8], at: usize| head.get(at..at + 4).and_then(|b| b.first_chunk::<4>().copied());
        let same_ports = self
            .transport
            .is_none_or(|at| ports(self.head, at) == ports(head, first.transport));
        same_ports
            && self.v6 == first.v6
            && self.head.get(addresses(self.v6, self.network)) == head.get(addresses(first.v6, first.network))
    }
}
