//! Finishes in software what a guest left to its device: partial checksums, TCP and UDP segmentation (virtio
//! 1.3 section 5.1.6.2), for receivers that do not take the frame as it is.
//!
//! The request is in the frame's virtio header and speaks about bytes of the frame: both come from the guest.
//! [`check`] looks at private copies of both and makes a [`Request`] that cannot lead outside the frame, nor
//! into the headers that the switch has judged.

pub mod coalesce;
mod parts;
pub mod program;
mod segment;

use vnic_wire::{EtherType, ethernet, ipv4, ipv6, tcp, tunnel, udp};

use crate::virtio_net::{NetHdr, feature};

pub use parts::{Part, Parts};
pub use segment::{Segment, Segmenter};

/// Bytes of a frame that the caller copies for [`check`]; a request must not need headers beyond them.
pub const HEAD_MAX: usize = 256;

/// Smallest payload of a segment: the smallest segment that TCP stacks send is 48 bytes with at most 40 bytes
/// of options in it. Below, one guest's frame would be thousands of frames for the others.
pub const SEGMENT_MIN: usize = 8;

/// Largest IPv4 packet, and largest IPv6 payload, in bytes (RFC 791, RFC 8200).
const IP_MAX: usize = 65_535;

/// Unfinished frames that a receiver takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Accepts {
    /// Frames with a partial checksum.
    pub csum: bool,
    /// TCP over IPv4, uncut.
    pub tso4: bool,
    /// TCP over IPv6, uncut.
    pub tso6: bool,
    /// Uncut TCP with CWR set.
    pub ecn: bool,
    /// UDP over IPv4, uncut.
    pub uso4: bool,
    /// UDP over IPv6, uncut.
    pub uso6: bool,
    /// Coalesced frames with the number of their segments.
    pub rsc_ext: bool,
}

impl Accepts {
    /// Finished frames only: for an uplink, or a guest without a driver that says otherwise.
    pub const NONE: Accepts = Accepts {
        csum: false,
        tso4: false,
        tso6: false,
        ecn: false,
        uso4: false,
        uso6: false,
        rsc_ext: false,
    };

    /// Frames that follow from the feature bits of the receiver's driver (virtio 1.3 section 5.1.3.1: TSO and
    /// USO need GUEST_CSUM, ECN needs one of the TSO bits).
    pub const fn from_features(features: u64) -> Accepts {
        let csum = features & feature::GUEST_CSUM != 0;
        let tso4 = csum && features & feature::GUEST_TSO4 != 0;
        let tso6 = csum && features & feature::GUEST_TSO6 != 0;
        Accepts {
            csum,
            tso4,
            tso6,
            ecn: (tso4 || tso6) && features & feature::GUEST_ECN != 0,
            uso4: csum && features & feature::GUEST_USO4 != 0,
            uso6: csum && features & feature::GUEST_USO6 != 0,
            rsc_ext: (tso4 || tso6) && features & feature::RSC_EXT != 0,
        }
    }
}

/// Why a request makes no sense: the frame is dropped (virtio 1.3 section 5.1.6.2 says what a driver must do).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Malformed {
    /// The start or the place of the checksum is outside the frame.
    #[error("the checksum would be outside the frame")]
    ChecksumOutside,
    /// The checksum would be written over the Ethernet header or a VLAN tag.
    #[error("the checksum would be written over the Ethernet header or a VLAN tag")]
    ChecksumInLinkHeader,
    /// The place of the checksum, or the end of the headers, is too far into the frame.
    #[error("the headers are longer than {HEAD_MAX} bytes")]
    HeadersTooLong,
    /// A type of segmentation that was not offered.
    #[error("segmentation type {0:#04x} is not offered")]
    UnknownGso(u8),
    /// UDP fragmentation is not offered.
    #[error("UDP fragmentation is not offered")]
    UdpFragmentation,
    /// The request is segmentation without a checksum to finish.
    #[error("segmentation is asked for without a partial checksum")]
    GsoWithoutChecksum,
    /// The segments have no payload, or hardly any.
    #[error("segments of {0} bytes are too small")]
    SegmentTooSmall(u16),
    /// A segment would not fit an IP packet.
    #[error("a segment would be longer than an IP packet can be")]
    SegmentTooLong,
    /// The frame carries another protocol than the segmentation type says.
    #[error("the frame does not carry the protocol of its segmentation type")]
    WrongProtocol,
    /// IP fragments cannot be segmented.
    #[error("an IP fragment cannot be segmented")]
    Fragment,
    /// A header of the frame cannot be read.
    #[error("a header of the frame is unreadable: {0}")]
    Header(#[from] vnic_wire::Error),
    /// The checksum to finish is not that of the TCP header.
    #[error("the checksum to finish is not that of the TCP header")]
    ChecksumNotTcp,
    /// The checksum to finish is not that of the UDP header.
    #[error("the checksum to finish is not that of the UDP header")]
    ChecksumNotUdp,
}

/// Work that is left to do for one frame. It is valid for the frame that it was checked with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// No work: the frame is finished.
    None,
    /// One checksum: sum the frame from `start` to its end, with what the guest left in the field, and write
    /// [`Segmenter::finish`] of the sum at `field`. `start <= frame_len`, `field + 2 <= head.len()`, and both
    /// are behind the VLAN tags.
    Checksum {
        /// Offset at which the sum begins.
        start: usize,
        /// Offset of the checksum, high byte first.
        field: usize,
    },
    /// Segmentation, with checksums.
    Tso(Tso),
}

/// A checked segmentation request of TCP or UDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tso {
    /// Whether it is UDP, not TCP.
    pub udp: bool,
    /// Whether it is IPv6, not IPv4.
    pub v6: bool,
    /// Whether the first segment reports a reduced congestion window: the receiver must know about ECN.
    pub ecn: bool,
    /// Bytes of payload per segment.
    pub gso_size: usize,
    /// Offset of the IP header.
    pub network: usize,
    /// Offset of the TCP or UDP header.
    pub transport: usize,
    /// Bytes of all headers, and offset of the payload.
    pub head_len: usize,
    /// Offset of the pseudo header's destination address in the frame.
    destination: usize,
    /// The UDP tunnel around the packet.
    pub outer: Option<Outer>,
}

/// Headers of a UDP tunnel in front of a packet that is to be segmented.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outer {
    /// Whether its IP is IPv6, not IPv4.
    pub v6: bool,
    /// Offset of its IP header.
    pub network: usize,
    /// Offset of its UDP header.
    pub udp: usize,
    /// Whether its UDP header has a checksum.
    pub checksum: bool,
    /// Offset of the pseudo header's destination address in the frame.
    destination: usize,
}

impl Tso {
    /// Segments of a frame of `frame_len` bytes.
    #[inline]
    pub const fn segments(&self, frame_len: usize) -> usize {
        frame_len.saturating_sub(self.head_len).div_ceil(self.gso_size)
    }

    /// Offset of the checksum in the TCP or UDP header.
    const fn checksum_offset(&self) -> usize {
        if self.udp {
            udp::CHECKSUM_OFFSET
        } else {
            tcp::CHECKSUM_OFFSET
        }
    }
}

impl Request {
    /// Whether this receiver takes the frame as it is, with the request in its virtio header.
    #[inline]
    pub const fn accepted_by(&self, accepts: &Accepts) -> bool {
        match self {
            Request::None => true,
            Request::Checksum { .. } => accepts.csum,
            // No driver has the features (virtio 1.4 section 5.1.3, bits 65 and 66): vhost-user has 64.
            Request::Tso(Tso { outer: Some(_), .. }) => false,
            Request::Tso(Tso { udp: true, v6, .. }) => {
                if *v6 {
                    accepts.uso6
                } else {
                    accepts.uso4
                }
            }
            Request::Tso(t) => (if t.v6 { accepts.tso6 } else { accepts.tso4 }) && (accepts.ecn || !t.ecn),
        }
    }

    /// The virtio header that hands this request to a receiver which accepts it: it holds only what was
    /// checked. `shift`: bytes by which the headers moved on the way, 4 with a pushed tag, -4 with a popped
    /// one.
    #[inline]
    pub const fn header(&self, shift: i16) -> NetHdr {
        const fn moved(offset: usize, shift: i16) -> u16 {
            (offset as u16).wrapping_add_signed(shift)
        }
        match self {
            Request::None => NetHdr {
                flags: 0,
                gso_type: NetHdr::GSO_NONE,
                hdr_len: 0,
                gso_size: 0,
                csum_start: 0,
                csum_offset: 0,
            },
            Request::Checksum { start, field } => NetHdr {
                flags: NetHdr::NEEDS_CSUM,
                gso_type: NetHdr::GSO_NONE,
                hdr_len: 0,
                gso_size: 0,
                csum_start: moved(*start, shift),
                csum_offset: (*field - *start) as u16,
            },
            Request::Tso(t) => NetHdr {
                flags: NetHdr::NEEDS_CSUM
                    | match t.outer {
                        None => 0,
                        Some(Outer { checksum: false, .. }) => NetHdr::TUNNEL,
                        Some(Outer { checksum: true, .. }) => NetHdr::TUNNEL | NetHdr::UDP_TUNNEL_CSUM,
                    },
                gso_type: (match (t.udp, t.v6) {
                    (true, _) => NetHdr::GSO_UDP_L4,
                    (false, true) => NetHdr::GSO_TCPV6,
                    (false, false) => NetHdr::GSO_TCPV4,
                }) | (if t.ecn { NetHdr::GSO_ECN } else { 0 }),
                hdr_len: moved(t.head_len, shift),
                gso_size: t.gso_size as u16,
                csum_start: moved(t.transport, shift),
                csum_offset: t.checksum_offset() as u16,
            },
        }
    }

    /// The longest frame that the request makes on a wire, for the check against the MTU.
    #[inline]
    pub const fn largest_frame(&self, frame_len: usize) -> usize {
        match self {
            Request::Tso(t) if t.head_len + t.gso_size < frame_len => t.head_len + t.gso_size,
            _ => frame_len,
        }
    }
}

/// Checks a guest's request. `head` is a private copy of the first `min(frame_len, HEAD_MAX)` bytes of the
/// frame.
///
/// `hdr_len` is only a hint and is not looked at, nor are the lengths in the IP headers, which drivers fill
/// in as they like before segmentation. A checksum request is not tied to a protocol.
#[inline]
pub fn check(hdr: &NetHdr, head: &[u8], frame_len: usize) -> Result<Request, Malformed> {
    if hdr.gso_type == NetHdr::GSO_NONE {
        if hdr.flags & NetHdr::NEEDS_CSUM == 0 {
            return Ok(Request::None);
        }
        let (start, field) = checksum(hdr, head, frame_len)?;
        if start < ethernet::payload(head)?.offset {
            return Err(Malformed::ChecksumInLinkHeader);
        }
        return Ok(Request::Checksum { start, field });
    }
    segmentation(hdr, head, frame_len).map(Request::Tso)
}

/// Start and place of the checksum, both inside the frame, the place inside `head`.
#[inline]
fn checksum(hdr: &NetHdr, head: &[u8], frame_len: usize) -> Result<(usize, usize), Malformed> {
    let start = usize::from(hdr.csum_start);
    let field = start + usize::from(hdr.csum_offset);
    if field + 2 > frame_len {
        return Err(Malformed::ChecksumOutside);
    }
    if field + 2 > head.len().min(HEAD_MAX) {
        return Err(Malformed::HeadersTooLong);
    }
    Ok((start, field))
}

fn segmentation(hdr: &NetHdr, head: &[u8], frame_len: usize) -> Result<Tso, Malformed> {
    /// UDP fragmentation (virtio 1.3 section 5.1.6).
    const GSO_UDP: u8 = 3;
    // Only the type of TCP names the IP version.
    let of_v6 = match hdr.gso_type & !NetHdr::GSO_ECN {
        NetHdr::GSO_TCPV4 => Some(false),
        NetHdr::GSO_TCPV6 => Some(true),
        NetHdr::GSO_UDP_L4 if hdr.gso_type & NetHdr::GSO_ECN == 0 => None,
        GSO_UDP => return Err(Malformed::UdpFragmentation),
        _ => return Err(Malformed::UnknownGso(hdr.gso_type)),
    };
    let udp = of_v6.is_none();
    if hdr.flags & NetHdr::NEEDS_CSUM == 0 {
        return Err(Malformed::GsoWithoutChecksum);
    }
    let gso_size = usize::from(hdr.gso_size);
    if gso_size < SEGMENT_MIN {
        return Err(Malformed::SegmentTooSmall(hdr.gso_size));
    }
    // Where the frame goes on but the copy ends, a header that does not end is too long rather than cut off.
    let head = head.get(..frame_len.min(HEAD_MAX)).unwrap_or(head);
    let cut = |e: vnic_wire::Error| match e {
        vnic_wire::Error::Truncated if head.len() < frame_len => Malformed::HeadersTooLong,
        e => Malformed::Header(e),
    };

    let link = ethernet::payload(head).map_err(cut)?;
    let (mut network, mut ethertype, mut outer) = (link.offset, link.ethertype, None);
    if hdr.flags & NetHdr::TUNNEL != 0 {
        let around = ip(head, link.ethertype, link.offset)
            .map_err(cut)?
            .ok_or(Malformed::WrongProtocol)?;
        let datagram = head.get(around.upper..).unwrap_or(&[]);
        let (false, ipv4::PROTOCOL_UDP, [_, _, a, b, ..]) = (around.fragment, around.protocol, datagram)
        else {
            return Err(Malformed::WrongProtocol);
        };
        // (A port that is none of another tunnel is VXLAN's.)
        let port = u16::from_be_bytes([*a, *b]);
        let inner = tunnel::inner(around.protocol, datagram, port).ok_or(Malformed::WrongProtocol)?;
        (network, ethertype) = (around.upper + inner.offset, inner.ethertype);
        outer = Some(Outer {
            v6: link.ethertype == EtherType::IPV6,
            network: link.offset,
            udp: around.upper,
            checksum: hdr.flags & NetHdr::UDP_TUNNEL_CSUM != 0,
            destination: around.destination,
        });
    }
    let v6 = of_v6.unwrap_or(ethertype == EtherType::IPV6);
    let (true, Some(packet)) = (
        ethertype == if v6 { EtherType::IPV6 } else { EtherType::IPV4 },
        ip(head, ethertype, network).map_err(cut)?,
    ) else {
        return Err(Malformed::WrongProtocol);
    };
    let Ip {
        protocol,
        upper: transport,
        fragment,
        destination,
    } = packet;
    let counted = network + if v6 { ipv6::HEADER_LEN } else { 0 };
    if fragment {
        return Err(Malformed::Fragment);
    }
    let segments = head.get(transport..).unwrap_or(&[]);
    let header_len = match (udp, protocol) {
        (false, ipv4::PROTOCOL_TCP) => tcp::Header::parse(segments).map_err(cut)?.header_len,
        // The UDP length is not looked at, nor are those of IP.
        (true, ipv4::PROTOCOL_UDP) if segments.len() >= udp::HEADER_LEN => udp::HEADER_LEN,
        (true, ipv4::PROTOCOL_UDP) => return Err(cut(vnic_wire::Error::Truncated)),
        _ => return Err(Malformed::WrongProtocol),
    };
    let (start, field) = checksum(hdr, head, frame_len)?;
    let head_len = transport + header_len;
    let tso = Tso {
        udp,
        v6,
        ecn: hdr.gso_type & NetHdr::GSO_ECN != 0,
        gso_size,
        network,
        transport,
        head_len,
        destination,
        outer,
    };
    if start != transport || field != transport + tso.checksum_offset() {
        return Err(if udp {
            Malformed::ChecksumNotUdp
        } else {
            Malformed::ChecksumNotTcp
        });
    }
    let payload = gso_size.min(frame_len - head_len);
    let counted = outer.map_or(counted, |o| o.network + if o.v6 { ipv6::HEADER_LEN } else { 0 });
    if head_len - counted + payload > IP_MAX {
        return Err(Malformed::SegmentTooLong);
    }
    Ok(tso)
}

/// What an IP header says, offsets in the frame.
struct Ip {
    /// Protocol behind it and its extensions.
    protocol: u8,
    /// Where that begins.
    upper: usize,
    fragment: bool,
    /// The destination of the pseudo header.
    destination: usize,
}

/// Reads the IP header at `network`. `None`: there is none.
fn ip(head: &[u8], ethertype: EtherType, network: usize) -> Result<Option<Ip>, vnic_wire::Error> {
    let packet = head.get(network..).unwrap_or(&[]);
    Ok(match ethertype {
        EtherType::IPV4 => {
            let ip = ipv4::Header::parse(packet)?;
            Some(Ip {
                protocol: ip.protocol,
                upper: network + ip.header_len,
                fragment: ip.is_fragment(),
                destination: network + 16,
            })
        }
        EtherType::IPV6 => {
            let upper = ipv6::Header::parse(packet)?.upper(packet)?;
            Some(Ip {
                protocol: upper.protocol,
                upper: network + upper.offset,
                fragment: upper.fragment,
                destination: network + upper.destination_offset,
            })
        }
        _ => None,
    })
}
