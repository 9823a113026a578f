//! Packets of RoCEv2 that cross the kernel as one.
//!
//! A system call, a buffer of the kernel and a way through its device cost more than a packet of a path MTU. TCP pays
//! that once for 64 KiB (TSO). The packets of a message are of one length but for the last, and all that their headers up
//! to UDP differ in are lengths: so they are the segments of one long UDP datagram, which the kernel takes and cuts where its device
//! wants them cut (virtio 1.3 section 5.1.6: `VIRTIO_NET_HDR_GSO_UDP_L4`; Linux 6.2). BTH, payload and ICRC of each are that
//! datagram's payload: nobody between touches them. Over IPv6 only: cutting gives packets of IPv4 new identifications, which the
//! ICRC covers (annex A17).

use std::io::IoSlice;
use std::ops::Range;

use arrayvec::ArrayVec;
use vnic_engine::virtio_net::NetHdr;
use vnic_wire::checksum::{fold, pseudo_v6};

use super::VNET;
use crate::uplink::device::SEND_BURST;

/// Type of segmentation: UDP (virtio 1.3 section 5.1.6).
const GSO_UDP_L4: u8 = 5;
/// UDP port of RoCEv2 (annex A17).
const ROCE: [u8; 2] = 4791u16.to_be_bytes();
/// Lengths of headers.
const ETHERNET: usize = 14;
const TAG: usize = 4;
const IPV6: usize = 40;
const UDP: usize = 8;
/// Where the length of the payload is in the header of IPv6; lengths and checksum in that of UDP.
const IPV6_LEN: Range<usize> = 4..6;
const UDP_LEN: Range<usize> = 4..6;
const UDP_CHECK: Range<usize> = 6..8;
/// The longest headers, with one tag.
const HEAD_MAX: usize = ETHERNET + TAG + IPV6 + UDP;
/// Bytes of a frame that the kernel passes uncut.
const FRAME_MAX: usize = 65_535;

/// Where the header of IPv6 is in a whole packet of RoCEv2 over IPv6 that nobody has to finish.
fn network_of(frame: &[u8]) -> Option<usize> {
    let tagged = frame.get(12..14)? == [0x81, 0];
    let network = if tagged { ETHERNET + TAG } else { ETHERNET };
    let ip = frame.get(network..network + IPV6 + UDP)?;
    let udp = &ip[IPV6..];
    (frame[network - 2..network] == [0x86, 0xdd]
        && ip[0] >> 4 == 6
        && ip[6] == 17
        && udp[2..4] == ROCE
        && ip[IPV6_LEN] == udp[UDP_LEN])
        .then_some(network)
}

/// The frames of a burst that become one, or one by itself.
struct Group {
    frames: Range<usize>,
    /// Of headers up to UDP, when there are several.
    head: usize,
}

/// A burst as messages for the kernel.
pub struct Messages {
    groups: ArrayVec<Group, SEND_BURST>,
    heads: ArrayVec<[u8; VNET + HEAD_MAX], { SEND_BURST / 2 }>,
}

impl Messages {
    /// Finds what can go together, in the frames' order; each has its virtio header before it.
    pub fn of(frames: &[&[u8]], together: bool) -> Messages {
        let mut m = Messages {
            groups: ArrayVec::new(),
            heads: ArrayVec::new(),
        };
        let frames = &frames[..frames.len().min(SEND_BURST)];
        let mut at = 0;
        while at < frames.len() {
            let (count, network) = if together { run(&frames[at..]) } else { (1, 0) };
            let mut head = 0;
            if count > 1 {
                head = network + IPV6 + UDP;
                let long = frames[at..at + count].iter().map(|f| f.len() - VNET - head).sum();
                m.heads.push(join(frames[at], network, long));
            }
            m.groups.push(Group {
                frames: at..at + count,
                head,
            });
            at += count;
        }
        m
    }

    /// The pieces of all messages, and how many each has.
    pub fn pieces<'a>(
        &'a self,
        frames: &[&'a [u8]],
    ) -> (
        ArrayVec<IoSlice<'a>, { SEND_BURST + SEND_BURST / 2 }>,
        ArrayVec<usize, SEND_BURST>,
    ) {
        let (mut pieces, mut counts) = (ArrayVec::new(), ArrayVec::new());
        let mut heads = self.heads.iter();
        for group in &self.groups {
            let before = pieces.len();
            if group.head > 0
                && let Some(head) = heads.next()
            {
                pieces.push(IoSlice::new(&head[..VNET + group.head]));
                for frame in &frames[group.frames.clone()] {
                    pieces.push(IoSlice::new(&frame[VNET + group.head..]));
                }
            } else {
                pieces.push(IoSlice::new(frames[group.frames.start]));
            }
            counts.push(pieces.len() - before);
        }
        (pieces, counts)
    }

    /// Frames in the first `n` messages.
    pub fn frames(&self, n: usize) -> usize {
        n.checked_sub(1)
            .and_then(|last| self.groups.get(last))
            .map_or(0, |group| group.frames.end)
    }

    /// Is the first message several frames?
    pub fn starts_joined(&self) -> bool {
        self.groups.first().is_some_and(|group| group.head > 0)
    }
}

/// How many frames from the first on are segments of one datagram, and where their network header is.
fn run(frames: &[&[u8]]) -> (usize, usize) {
    let whole = |frame: &[u8]| -> Option<usize> {
        let (hdr, frame) = frame.split_at_checked(VNET)?;
        let network = network_of(frame)?;
        let ip = &frame[network..];
        let says = usize::from(u16::from_be_bytes([ip[IPV6_LEN.start], ip[IPV6_LEN.start + 1]]));
        let check = &ip[IPV6..][UDP_CHECK];
        // Bytes behind the packet would become part of the next one.
        (hdr[..2] == [0, 0] && says + IPV6 == ip.len() && *check == [0, 0] && ip.len() > IPV6 + UDP)
            .then_some(network)
    };
    let Some((first, network)) = frames.first().and_then(|f| Some((f, whole(f)?))) else {
        return (1, 0);
    };
    let same = |frame: &[u8]| {
        let (a, b) = (&first[VNET..], &frame[VNET..]);
        let (ip_len, udp) = (network + IPV6_LEN.start, network + IPV6);
        a[..ip_len] == b[..ip_len] && a[ip_len + 2..udp + 4] == b[ip_len + 2..udp + 4]
    };
    let mut total = first.len();
    let mut count = 1;
    // The first packet of an RDMA WRITE has one header more than those after it, which go better without it.
    if let [_, second, third, ..] = frames
        && second.len() < first.len()
        && third.len() == second.len()
    {
        return (1, 0);
    }
    for frame in &frames[1..] {
        total += frame.len();
        let fits = frame.len() <= first.len() && total <= FRAME_MAX;
        if !fits || whole(frame) != Some(network) || !same(frame) {
            break;
        }
        count += 1;
        // Only the last may be shorter.
        if frame.len() < first.len() {
            break;
        }
    }
    (count, network)
}

/// The headers of the long datagram: `long` bytes of payload in segments like that of `first`.
fn join(first: &[u8], network: usize, long: usize) -> [u8; VNET + HEAD_MAX] {
    let head = network + IPV6 + UDP;
    let mut out = [0; VNET + HEAD_MAX];
    out[..VNET + head].copy_from_slice(&first[..VNET + head]);
    let hdr = NetHdr {
        flags: NetHdr::NEEDS_CSUM,
        gso_type: GSO_UDP_L4,
        hdr_len: head as u16,
        gso_size: (first.len() - VNET - head) as u16,
        csum_start: (network + IPV6) as u16,
        csum_offset: UDP_CHECK.start as u16,
    };
    out[..VNET].copy_from_slice(&hdr.emit(0)[..VNET]);
    let ip = &mut out[VNET + network..];
    let udp_len = (UDP + long) as u16;
    ip[IPV6_LEN].copy_from_slice(&udp_len.to_be_bytes());
    let (mut source, mut destination) = ([0; 16], [0; 16]);
    source.copy_from_slice(&ip[8..24]);
    destination.copy_from_slice(&ip[24..40]);
    let check = fold(pseudo_v6(&source, &destination, 17, u32::from(udp_len)));
    let udp = &mut ip[IPV6..];
    udp[UDP_LEN].copy_from_slice(&udp_len.to_be_bytes());
    udp[UDP_CHECK].copy_from_slice(&check.to_be_bytes());
    out
}

/// A long datagram that has come, and how much of it is packets already.
pub struct Bundle {
    /// The headers of its packets, with the lengths of the next one.
    head: [u8; HEAD_MAX],
    head_len: usize,
    network: usize,
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
        let network = network_of(frame)?;
        let says = usize::from(u16::from_be_bytes([
            frame[network + IPV6_LEN.start],
            frame[network + IPV6_LEN.start + 1],
        ]));
        let head_len = network + IPV6 + UDP;
        if says <= UDP || network + IPV6 + says != frame.len() {
            return None;
        }
        let mut head = [0; HEAD_MAX];
        head[..head_len].copy_from_slice(&frame[..head_len]);
        // As the sender of the packets had it: ICRC is what protects them.
        head[network + IPV6..][UDP_CHECK].fill(0);
        Some(Bundle {
            head,
            head_len,
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
        let udp_len = ((end - self.left.start + UDP) as u16).to_be_bytes();
        let (ip, udp) = (self.network, self.network + IPV6);
        self.head[ip..][IPV6_LEN].copy_from_slice(&udp_len);
        self.head[udp..][UDP_LEN].copy_from_slice(&udp_len);
        let from = self.left.start - self.head_len;
        bytes[from..self.left.start].copy_from_slice(&self.head[..self.head_len]);
        self.left.start = end;
        Some(from..end)
    }
}

#[cfg(test)]
mod tests;
