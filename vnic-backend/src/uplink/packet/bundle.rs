//! Packets of RoCEv2 that pass the kernel as one.
//!
//! A system call, a buffer of the kernel and a pass through its device cost more than a packet of a path MTU. TCP pays for
//! them once in 64 KiB (TSO). The packets of a message have one length except the last, and up to UDP their headers differ
//! only in lengths, and in IPv4's identification: so they are segments of one long UDP datagram, which the kernel takes and
//! cuts where its device needs it (virtio 1.3 section 5.1.6: `VIRTIO_NET_HDR_GSO_UDP_L4`; Linux 6.2). BTH, payload and ICRC
//! of each are the datagram's payload, which is not changed on the way. Over IPv4 the ICRC covers the identification, too
//! (IBTA annex A17); segmentation numbers the packets one after the other from that of the datagram on, as for TCP. So an
//! RDMA function numbers its packets in that way, and packets with other numbers go by themselves.

use std::ops::Range;

use vnic_engine::virtio_net::NetHdr;
use vnic_wire::checksum::{fold, pseudo_v4, pseudo_v6, sum};

use super::ring::VNET;

/// Type of segmentation: UDP (virtio 1.3 section 5.1.6).
const GSO_UDP_L4: u8 = 5;
/// UDP port of RoCEv2 (IBTA annex A17).
const ROCE: [u8; 2] = 4791u16.to_be_bytes();
/// Lengths of headers.
const ETHERNET: usize = 14;
const TAG: usize = 4;
const IPV4: usize = 20;
const IPV6: usize = 40;
const UDP: usize = 8;
/// Places in headers. IPv4: length, which counts its header, identification and checksum. IPv6: length, which does not count
/// its header. UDP: length and checksum.
const IPV4_LEN: Range<usize> = 2..4;
const IPV4_ID: Range<usize> = 4..6;
const IPV4_CHECK: Range<usize> = 10..12;
const IPV6_LEN: Range<usize> = 4..6;
const UDP_LEN: Range<usize> = 4..6;
const UDP_CHECK: Range<usize> = 6..8;
/// Bytes of the longest headers, with one tag.
const HEAD_MAX: usize = ETHERNET + TAG + IPV6 + UDP;
/// Bytes of the longest frame that the kernel passes uncut.
const FRAME_MAX: usize = 65_535;

/// Offset and version of the network header of a packet of RoCEv2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Network {
    at: usize,
    v4: bool,
}

impl Network {
    /// The network header of a complete packet without options, extension headers and fragmentation.
    fn of(frame: &[u8]) -> Option<Network> {
        let tagged = frame.get(12..14)? == [0x81, 0];
        let at = if tagged { ETHERNET + TAG } else { ETHERNET };
        let v4 = frame.get(at - 2..at)? == [8, 0];
        let network = Network { at, v4 };
        let ip = frame.get(at..network.head())?;
        let fits = if v4 {
            ip[0] == 0x45 && ip[9] == 17 && ip[6] & 0x3f == 0 && ip[7] == 0
        } else {
            frame[at - 2..at] == [0x86, 0xdd] && ip[0] >> 4 == 6 && ip[6] == 17
        };
        let udp = &ip[network.udp() - at..];
        let same =
            usize::from(number(ip, network.len())) == usize::from(number(udp, UDP_LEN)) + network.counted();
        (fits && udp[2..4] == ROCE && same).then_some(network)
    }

    /// Offset of the UDP header.
    fn udp(self) -> usize {
        self.at + if self.v4 { IPV4 } else { IPV6 }
    }

    /// Bytes of headers up to UDP.
    fn head(self) -> usize {
        self.udp() + UDP
    }

    fn len(self) -> Range<usize> {
        if self.v4 { IPV4_LEN } else { IPV6_LEN }
    }

    /// Bytes of the IP header that its length counts.
    fn counted(self) -> usize {
        if self.v4 { IPV4 } else { 0 }
    }

    /// Bytes from the UDP header on, by its length.
    fn udp_len(self, frame: &[u8]) -> usize {
        number(&frame[self.udp()..], UDP_LEN).into()
    }

    fn id(self, frame: &[u8]) -> u16 {
        if self.v4 {
            number(&frame[self.at..], IPV4_ID)
        } else {
            0
        }
    }

    /// Whether these headers are those of the packet `places` behind that of `first`, except for lengths.
    fn follows(self, first: &[u8], frame: &[u8], places: u16) -> bool {
        let (at, ports) = (self.at, self.udp() + UDP_LEN.start);
        let same = |range: Range<usize>| first[range.clone()] == frame[range];
        if self.v4 {
            same(0..at + IPV4_LEN.start)
                && self.id(frame) == self.id(first).wrapping_add(places)
                && same(at + IPV4_ID.end..at + IPV4_CHECK.start)
                && same(at + IPV4_CHECK.end..ports)
        } else {
            same(0..at + IPV6_LEN.start) && same(at + IPV6_LEN.end..ports)
        }
    }

    /// Sets length, from the UDP header on, and identification in a packet's headers.
    fn renew(self, head: &mut [u8], udp_len: u16, id: u16) {
        let counted = udp_len + self.counted() as u16;
        let (ip, udp) = head[self.at..].split_at_mut(self.udp() - self.at);
        ip[self.len()].copy_from_slice(&counted.to_be_bytes());
        udp[UDP_LEN].copy_from_slice(&udp_len.to_be_bytes());
        if self.v4 {
            ip[IPV4_ID].copy_from_slice(&id.to_be_bytes());
            ip[IPV4_CHECK].fill(0);
            let check = !fold(sum(ip));
            ip[IPV4_CHECK].copy_from_slice(&check.to_be_bytes());
        }
    }

    /// Sum of the pseudo header.
    fn pseudo(self, head: &[u8], udp_len: u16) -> u16 {
        let ip = &head[self.at..self.udp()];
        let len = u32::from(udp_len);
        fold(if self.v4 {
            let at = |from: usize| [ip[from], ip[from + 1], ip[from + 2], ip[from + 3]];
            pseudo_v4(at(12), at(16), 17, len)
        } else {
            let (mut source, mut destination) = ([0; 16], [0; 16]);
            source.copy_from_slice(&ip[8..24]);
            destination.copy_from_slice(&ip[24..40]);
            pseudo_v6(&source, &destination, 17, len)
        })
    }
}

fn number(header: &[u8], at: Range<usize>) -> u16 {
    u16::from_be_bytes([header[at.start], header[at.start + 1]])
}

/// A frame that waits to be sent, and frames joined to it: the headers of the first one up to UDP, then the rest of each
/// frame. They are contiguous, so that the kernel copies them at once.
#[derive(Debug, Clone, Copy)]
pub struct Train {
    network: Network,
    /// Bytes of the first frame behind UDP.
    segment: usize,
    frames: u16,
    /// Whether the last frame is shorter: no other may be joined.
    ended: bool,
}

impl Train {
    /// The longest [`Train::head`].
    pub const HEAD_MAX: usize = VNET + HEAD_MAX;

    /// Bytes of a frame, with its virtio header, that are not joined.
    #[inline]
    pub fn head(&self) -> usize {
        VNET + self.network.head()
    }

    /// A train of one frame with its virtio header, if others may be joined.
    pub fn of(first: &[u8]) -> Option<Train> {
        let network = whole(first)?;
        Some(Train {
            network,
            segment: first.len() - VNET - network.head(),
            frames: 1,
            ended: false,
        })
    }

    /// Joins a frame; `long` is the train so far. Returns the offset of the frame's bytes to be appended.
    pub fn take(&mut self, long: &[u8], frame: &[u8]) -> Option<usize> {
        let head = self.head();
        let len = frame.len().checked_sub(head)?;
        let fits = !self.ended && len <= self.segment && long.len() - VNET + len <= FRAME_MAX;
        if !fits
            || whole(frame) != Some(self.network)
            || !self.network.follows(&long[VNET..], &frame[VNET..], self.frames)
        {
            return None;
        }
        self.frames += 1;
        // Only the last may be shorter. (The first packet of an RDMA WRITE is longer than the next ones: it goes with one of
        // them.)
        self.ended = len < self.segment;
        Some(head)
    }

    /// Writes the headers of the long datagram.
    pub fn close(&self, long: &mut [u8]) {
        let network = self.network;
        let hdr = NetHdr {
            flags: NetHdr::NEEDS_CSUM,
            gso_type: GSO_UDP_L4,
            hdr_len: network.head() as u16,
            gso_size: self.segment as u16,
            csum_start: network.udp() as u16,
            csum_offset: UDP_CHECK.start as u16,
        };
        let (header, frame) = long.split_at_mut(VNET);
        header.copy_from_slice(&hdr.emit(0)[..VNET]);
        let udp_len = (frame.len() - network.udp()) as u16;
        network.renew(frame, udp_len, network.id(frame));
        let check = network.pseudo(frame, udp_len);
        frame[network.udp()..][UDP_CHECK].copy_from_slice(&check.to_be_bytes());
    }
}

/// The network header of a frame that may be part of a train.
fn whole(frame: &[u8]) -> Option<Network> {
    let (hdr, frame) = frame.split_at_checked(VNET)?;
    let network = Network::of(frame)?;
    let says = network.udp_len(frame);
    let check = &frame[network.udp()..][UDP_CHECK];
    // Bytes behind the packet would become part of the next one.
    (hdr[..2] == [0, 0] && network.udp() + says == frame.len() && *check == [0, 0] && says > UDP)
        .then_some(network)
}

/// A long datagram that was received, and the packets that are left of it.
pub struct Bundle {
    /// Headers of its packets, with the lengths of the next one.
    head: [u8; HEAD_MAX],
    network: Network,
    /// Identification of the next packet.
    id: u16,
    /// Bytes of a packet's payload.
    segment: usize,
    /// Rest of the datagram's payload.
    left: Range<usize>,
}

impl Bundle {
    /// The bundle at `at`, if the frame there is one.
    pub fn of(bytes: &[u8], at: usize, hdr: &NetHdr) -> Option<Bundle> {
        let frame = bytes.get(at..)?;
        if hdr.gso_type != GSO_UDP_L4 || hdr.gso_size == 0 {
            return None;
        }
        let network = Network::of(frame)?;
        let says = network.udp_len(frame);
        let head_len = network.head();
        if says <= UDP || network.udp() + says != frame.len() {
            return None;
        }
        let mut head = [0; HEAD_MAX];
        head[..head_len].copy_from_slice(&frame[..head_len]);
        // As the packets' sender had it: the ICRC protects them.
        head[network.udp()..][UDP_CHECK].fill(0);
        Some(Bundle {
            id: network.id(frame),
            head,
            network,
            segment: hdr.gso_size.into(),
            left: at + head_len..bytes.len(),
        })
    }

    /// The next packet: its headers overwrite the end of the one before, which is no longer used.
    pub fn next(&mut self, bytes: &mut [u8]) -> Option<Range<usize>> {
        if self.left.is_empty() {
            return None;
        }
        let end = self.left.end.min(self.left.start + self.segment);
        let udp_len = (end - self.left.start + UDP) as u16;
        self.network.renew(&mut self.head, udp_len, self.id);
        self.id = self.id.wrapping_add(1);
        let head_len = self.network.head();
        let from = self.left.start - head_len;
        bytes[from..self.left.start].copy_from_slice(&self.head[..head_len]);
        self.left.start = end;
        Some(from..end)
    }
}

/// Packets of a train, one by one.
pub struct Singly {
    bytes: Vec<u8>,
    bundle: Bundle,
}

impl Singly {
    /// The packets of a message, if it has several.
    pub fn of(message: &[u8]) -> Option<Singly> {
        let hdr = NetHdr::parse(message.first_chunk::<VNET>()?);
        let bundle = Bundle::of(message, VNET, &hdr)?;
        Some(Singly {
            bytes: message.to_vec(),
            bundle,
        })
    }

    /// The next packet, behind a virtio header.
    pub fn next(&mut self) -> Option<&[u8]> {
        let range = self.bundle.next(&mut self.bytes)?;
        let header = range.start - VNET..range.start;
        self.bytes[header.clone()].fill(0);
        Some(&self.bytes[header.start..range.end])
    }
}

#[cfg(test)]
mod tests;
