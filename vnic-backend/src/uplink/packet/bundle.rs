//! Packets of RoCEv2 that cross the kernel as one.
//!
//! A system call, a buffer of the kernel and a way through its device cost more than a packet of a path MTU. TCP pays
//! that once for 64 KiB (TSO). The packets of a message are of one length but for the last, and all that their headers up
//! to UDP differ in are lengths, and identifications in that of IPv4: so they are the segments of one long UDP datagram, which
//! the kernel takes and cuts where its device wants them cut (virtio 1.3 section 5.1.6: `VIRTIO_NET_HDR_GSO_UDP_L4`; Linux 6.2).
//! BTH, payload and ICRC of each are that datagram's payload: nobody between touches them. Over IPv4 the ICRC covers the
//! identification, too (annex A17); whoever cuts numbers the packets one after the other from that of the datagram on, as for
//! TCP. So an RDMA function numbers its packets in that way, and those that do not follow each other go by themselves.

use std::ops::Range;

use vnic_engine::virtio_net::NetHdr;
use vnic_wire::checksum::{fold, pseudo_v4, pseudo_v6, sum};

use super::ring::VNET;

/// Type of segmentation: UDP (virtio 1.3 section 5.1.6).
const GSO_UDP_L4: u8 = 5;
/// UDP port of RoCEv2 (annex A17).
const ROCE: [u8; 2] = 4791u16.to_be_bytes();
/// Lengths of headers.
const ETHERNET: usize = 14;
const TAG: usize = 4;
const IPV4: usize = 20;
const IPV6: usize = 40;
const UDP: usize = 8;
/// Where the length is in the header of IPv4, which it counts, identification and checksum; in that of IPv6, which it does not
/// count; lengths and checksum in that of UDP.
const IPV4_LEN: Range<usize> = 2..4;
const IPV4_ID: Range<usize> = 4..6;
const IPV4_CHECK: Range<usize> = 10..12;
const IPV6_LEN: Range<usize> = 4..6;
const UDP_LEN: Range<usize> = 4..6;
const UDP_CHECK: Range<usize> = 6..8;
/// The longest headers, with one tag.
const HEAD_MAX: usize = ETHERNET + TAG + IPV6 + UDP;
/// Bytes of a frame that the kernel passes uncut.
const FRAME_MAX: usize = 65_535;

/// Where the network header of a packet of RoCEv2 is, and of which version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Network {
    at: usize,
    v4: bool,
}

impl Network {
    /// Of a whole packet that nobody has to finish: no options, no extension headers, no fragment.
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

    /// Where the UDP header is.
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

    /// Bytes of its header that its length counts.
    fn counted(self) -> usize {
        if self.v4 { IPV4 } else { 0 }
    }

    /// Bytes from the UDP header on, as that says.
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

    /// Are these headers those of the packet that comes `places` behind that of `first`, but for lengths?
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

    /// Gives a packet's headers another length from the UDP header on, and another identification.
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

/// A frame that waits to be sent, and those that go behind it: the headers of the first up to UDP, then what each has behind
/// its own. They are one piece of memory, which the kernel copies in one go.
#[derive(Debug, Clone, Copy)]
pub struct Train {
    network: Network,
    /// Bytes that the first has behind UDP.
    segment: usize,
    frames: u16,
    /// The last one is shorter: nothing goes behind it.
    ended: bool,
}

impl Train {
    /// The longest [`Train::head`].
    pub const HEAD_MAX: usize = VNET + HEAD_MAX;

    /// Bytes of a frame, with its virtio header, that do not go behind the others.
    #[inline]
    pub fn head(&self) -> usize {
        VNET + self.network.head()
    }

    /// Of a frame with its virtio header before it, if others may go behind it.
    pub fn of(first: &[u8]) -> Option<Train> {
        let network = whole(first)?;
        Some(Train {
            network,
            segment: first.len() - VNET - network.head(),
            frames: 1,
            ended: false,
        })
    }

    /// Takes a frame in; `long` is what there is so far. Answers from where on the frame is to be put behind that.
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
        // Only the last may be shorter. (The first packet of an RDMA WRITE is longer than those behind it: it goes with one.)
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

/// Where the network header is of a frame that may be part of a train.
fn whole(frame: &[u8]) -> Option<Network> {
    let (hdr, frame) = frame.split_at_checked(VNET)?;
    let network = Network::of(frame)?;
    let says = network.udp_len(frame);
    let check = &frame[network.udp()..][UDP_CHECK];
    // Bytes behind the packet would become part of the next one.
    (hdr[..2] == [0, 0] && network.udp() + says == frame.len() && *check == [0, 0] && says > UDP)
        .then_some(network)
}

/// A long datagram that has come, and how much of it is packets already.
pub struct Bundle {
    /// The headers of its packets, with the lengths of the next one.
    head: [u8; HEAD_MAX],
    network: Network,
    /// Identification of the next one.
    id: u16,
    /// Of a packet.
    segment: usize,
    /// What is left of the datagram's payload.
    left: Range<usize>,
}

impl Bundle {
    /// If the frame at `at` is one.
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
        // As the sender of the packets had it: ICRC is what protects them.
        head[network.udp()..][UDP_CHECK].fill(0);
        Some(Bundle {
            id: network.id(frame),
            head,
            network,
            segment: hdr.gso_size.into(),
            left: at + head_len..bytes.len(),
        })
    }

    /// The next packet: its headers take the place of the end of the one before, with which everybody is done.
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

/// What was to go as one, packet by packet.
pub struct Singly {
    bytes: Vec<u8>,
    bundle: Bundle,
}

impl Singly {
    /// Of a message, if it is several packets.
    pub fn of(message: &[u8]) -> Option<Singly> {
        let hdr = NetHdr::parse(message.first_chunk::<VNET>()?);
        let bundle = Bundle::of(message, VNET, &hdr)?;
        Some(Singly {
            bytes: message.to_vec(),
            bundle,
        })
    }

    /// The next one, with a virtio header before it.
    pub fn next(&mut self) -> Option<&[u8]> {
        let range = self.bundle.next(&mut self.bytes)?;
        let header = range.start - VNET..range.start;
        self.bytes[header.clone()].fill(0);
        Some(&self.bytes[header.start..range.end])
    }
}

#[cfg(test)]
mod tests;
