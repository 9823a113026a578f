//! Cuts a TCP or UDP segmentation request into segments: headers only, the payload stays where it is.

use vnic_wire::{checksum, ipv4, ipv6, tcp, udp};

use super::{HEAD_MAX, Outer, Tso};

/// One segment: its headers have been written, its payload is a piece of the frame's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Bytes of headers.
    pub head_len: usize,
    /// Offset of its payload in the frame.
    pub payload_off: usize,
    /// Bytes of payload.
    pub payload_len: usize,
    /// Offset of the TCP or UDP checksum (high byte first) in the segment; the bytes there are zero.
    pub field: usize,
    /// Ones-complement sum of pseudo header and TCP or UDP header. Add the payload's sum ([`checksum::sum`] or
    /// pieces with [`checksum::combine`]; the header ends at an even offset) and write [`Segmenter::finish`] of
    /// it at `field`.
    pub partial: u32,
}

/// Goes over the segments of one request, in order.
#[derive(Debug, Clone)]
pub struct Segmenter {
    /// The headers, with zeros in fields that differ between segments.
    template: [u8; HEAD_MAX],
    pub(super) tso: Tso,
    /// Offset in the frame of the next segment's payload.
    next: usize,
    frame_len: usize,
    done: bool,
    sequence: u32,
    /// The TCP header's word with data offset and flags.
    flags: u16,
    /// The next segment's identification.
    pub(super) id: u16,
    /// Sum of the IPv4 header without total length and identification.
    ip_sum: u32,
    /// Sum of pseudo header and TCP header without length, sequence number and flags, or of UDP without lengths.
    upper_sum: u32,
    /// Sum of the pseudo header without length.
    pub(super) pseudo: u32,
    /// The next segment's identification in the tunnel's IPv4 header.
    pub(super) outer_id: u16,
}

/// IPv4: offsets of total length, identification, checksum and addresses.
const V4_LEN: usize = 2;
const V4_ID: usize = 4;
const V4_CHECKSUM: usize = 10;
const V4_SOURCE: usize = 12;
/// IPv6: offsets of payload length and source address.
const V6_LEN: usize = 4;
const V6_SOURCE: usize = 8;
/// UDP: offset of the length.
const UDP_LEN: usize = 4;
/// TCP: offsets of sequence number and flags.
const TCP_SEQUENCE: usize = 4;
const TCP_FLAGS: usize = 12;

#[inline]
fn get16(b: &[u8; HEAD_MAX], at: usize) -> u16 {
    match b.get(at..).and_then(|b| b.first_chunk()) {
        Some(v) => u16::from_be_bytes(*v),
        None => 0,
    }
}

#[inline]
pub(super) fn put(b: &mut [u8; HEAD_MAX], at: usize, value: &[u8]) {
    if let Some(b) = b.get_mut(at..at + value.len()) {
        b.copy_from_slice(value);
    }
}

#[inline]
fn sum(b: &[u8; HEAD_MAX], from: usize, to: usize) -> u32 {
    b.get(from..to).map_or(0, checksum::sum)
}

impl Segmenter {
    /// The segments of the frame that `tso` was checked with: same `head`, same `frame_len`.
    pub fn new(tso: &Tso, head: &[u8], frame_len: usize) -> Segmenter {
        let Tso {
            udp,
            v6,
            network,
            transport,
            head_len,
            destination,
            ..
        } = *tso;
        let mut t = [0; HEAD_MAX];
        for (t, h) in t.iter_mut().zip(head.iter().take(head_len)) {
            *t = *h;
        }
        let id = get16(&t, network + V4_ID);
        let (sequence, flags) = if udp {
            (0, 0)
        } else {
            let high = u32::from(get16(&t, transport + TCP_SEQUENCE)) << 16;
            (
                high | u32::from(get16(&t, transport + TCP_SEQUENCE + 2)),
                get16(&t, transport + TCP_FLAGS),
            )
        };
        let addresses = if v6 {
            put(&mut t, network + V6_LEN, &[0; 2]);
            sum(&t, network + V6_SOURCE, network + V6_SOURCE + 16) + sum(&t, destination, destination + 16)
        } else {
            put(&mut t, network + V4_LEN, &[0; 4]);
            put(&mut t, network + V4_CHECKSUM, &[0; 2]);
            sum(&t, network + V4_SOURCE, network + V4_SOURCE + 4) + sum(&t, destination, destination + 4)
        };
        let protocol = if udp {
            put(&mut t, transport + UDP_LEN, &[0; 2]);
            ipv4::PROTOCOL_UDP
        } else {
            put(&mut t, transport + TCP_SEQUENCE, &[0; 4]);
            put(&mut t, transport + TCP_FLAGS, &[0; 2]);
            ipv4::PROTOCOL_TCP
        };
        put(&mut t, transport + tso.checksum_offset(), &[0; 2]);
        let outer_id = tso.outer.map_or(0, |outer| get16(&t, outer.network + V4_ID));
        let pseudo = addresses + u32::from(protocol);
        Segmenter {
            tso: *tso,
            next: head_len,
            frame_len,
            // A frame that is not the one that was checked has no segments.
            done: frame_len < head_len || head.len() < head_len || head_len > HEAD_MAX,
            sequence,
            flags,
            id,
            ip_sum: if v6 { 0 } else { sum(&t, network, transport) },
            upper_sum: pseudo + sum(&t, transport, head_len),
            pseudo,
            outer_id,
            template: t,
        }
    }

    /// Writes the next segment's headers to the front of `out`. The TCP checksum is left to the caller.
    ///
    /// FIN and PSH of the frame go to the last segment only and CWR to the first only (RFC 3168 section 6.1.2);
    /// IPv4 identifications count up from the frame's.
    #[inline]
    pub fn next(&mut self, out: &mut [u8; HEAD_MAX]) -> Option<Segment> {
        if self.done {
            return None;
        }
        let Tso {
            udp,
            v6,
            gso_size,
            network,
            transport,
            head_len,
            ..
        } = self.tso;
        let first = self.next == head_len;
        let payload_len = gso_size.min(self.frame_len - self.next);
        let last = self.next + payload_len == self.frame_len;
        *out = self.template;

        if v6 {
            let len = (head_len - network - ipv6::HEADER_LEN + payload_len) as u16;
            put(out, network + V6_LEN, &len.to_be_bytes());
        } else {
            let len = (head_len - network + payload_len) as u16;
            let sum = self.ip_sum + u32::from(len) + u32::from(self.id);
            put(out, network + V4_LEN, &len.to_be_bytes());
            put(out, network + V4_ID, &self.id.to_be_bytes());
            let sum = !checksum::fold(sum);
            put(out, network + V4_CHECKSUM, &sum.to_be_bytes());
        }
        let mut flags = self.flags;
        if !first {
            flags &= !tcp::CWR;
        }
        if !last {
            flags &= !(tcp::FIN | tcp::PSH);
        }
        let len = (head_len - transport + payload_len) as u32;
        let partial = self.upper_sum + (len >> 16) + (len & 0xffff);
        let partial = if udp {
            put(out, transport + UDP_LEN, &(len as u16).to_be_bytes());
            partial + (len & 0xffff)
        } else {
            put(out, transport + TCP_SEQUENCE, &self.sequence.to_be_bytes());
            put(out, transport + TCP_FLAGS, &flags.to_be_bytes());
            partial + (self.sequence >> 16) + (self.sequence & 0xffff) + u32::from(flags)
        };
        if let Some(outer) = &self.tso.outer {
            self.put_outer(outer, head_len + payload_len, out);
            self.outer_id = self.outer_id.wrapping_add(1);
        }

        let segment = Segment {
            head_len,
            payload_off: self.next,
            payload_len,
            field: transport + self.tso.checksum_offset(),
            partial,
        };
        self.next += payload_len;
        self.sequence = self.sequence.wrapping_add(payload_len as u32);
        self.id = self.id.wrapping_add(1);
        self.done = last;
        Some(segment)
    }

    /// Writes the headers of the tunnel around a segment that ends at `end`.
    #[inline(never)]
    fn put_outer(&self, outer: &Outer, end: usize, out: &mut [u8; HEAD_MAX]) {
        let Outer { network, udp, .. } = *outer;
        let addresses = if outer.v6 {
            let len = (end - network - ipv6::HEADER_LEN) as u16;
            put(out, network + V6_LEN, &len.to_be_bytes());
            sum(out, network + V6_SOURCE, network + V6_SOURCE + 16)
                + sum(out, outer.destination, outer.destination + 16)
        } else {
            put(out, network + V4_LEN, &((end - network) as u16).to_be_bytes());
            put(out, network + V4_ID, &self.outer_id.to_be_bytes());
            put(out, network + V4_CHECKSUM, &[0; 2]);
            let header = !checksum::fold(sum(out, network, udp));
            put(out, network + V4_CHECKSUM, &header.to_be_bytes());
            sum(out, network + V4_SOURCE, network + V4_SOURCE + 8)
        };
        let len = (end - udp) as u32;
        put(out, udp + UDP_LEN, &(len as u16).to_be_bytes());
        put(out, udp + udp::CHECKSUM_OFFSET, &[0; 2]);
        if outer.checksum {
            // With its checksum the inner segment adds the complement of its pseudo header, whatever its payload is (Linux,
            // Documentation/networking/checksum-offloads.rst, Local Checksum Offload).
            let inner = (end - self.tso.transport) as u32;
            let inner = !checksum::fold(self.pseudo + (inner >> 16) + (inner & 0xffff));
            let sum = addresses
                + u32::from(ipv4::PROTOCOL_UDP)
                + (len >> 16)
                + (len & 0xffff)
                + sum(out, udp, self.tso.transport)
                + u32::from(inner);
            put(
                out,
                udp + udp::CHECKSUM_OFFSET,
                &Segmenter::finish(sum).to_be_bytes(),
            );
        }
    }

    /// The checksum of a sum, for TCP and UDP: the complement, and 0xffff for 0, which in UDP would mean that
    /// there is no checksum (RFC 768) and in TCP is the same number.
    #[inline]
    pub const fn finish(sum: u32) -> u16 {
        match !checksum::fold(sum) {
            0 => 0xffff,
            c => c,
        }
    }
}
