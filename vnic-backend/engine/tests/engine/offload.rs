//! Requests of guests against etherparse: what the segmenter cuts must be the frames that a TCP stack would
//! have sent one by one, and nothing that a guest writes may be more than a refused request.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use etherparse as ep;
use proptest::prelude::*;
use vnic_engine::offload::{
    Accepts, HEAD_MAX, Malformed, Parts, Request, SEGMENT_MIN, Segmenter, Tso, check,
};
use vnic_engine::virtio_net::{NetHdr, feature};
use vnic_wire::{checksum, ethernet, tcp};

/// What a guest hands over: virtio header and frame.
#[derive(Debug, Clone)]
pub struct Guest {
    pub hdr: NetHdr,
    pub frame: Vec<u8>,
}

#[derive(Debug, Clone)]
pub struct Spec {
    pub v6: bool,
    pub tags: usize,
    /// IPv4 options or IPv6 extension headers, in units of 8 bytes.
    pub extra: usize,
    pub tcp_options: usize,
    pub flags: u16,
    pub id: u16,
    pub sequence: u32,
    pub payload: Vec<u8>,
    pub gso_size: u16,
}

impl Default for Spec {
    fn default() -> Self {
        Spec {
            v6: false,
            tags: 0,
            extra: 0,
            tcp_options: 3,
            flags: tcp::ACK,
            id: 1,
            sequence: 1000,
            payload: vec![7; 3000],
            gso_size: 1000,
        }
    }
}

pub fn spec() -> impl Strategy<Value = Spec> {
    (
        any::<bool>(),
        0usize..3,
        0usize..4,
        0usize..11,
        0u16..0x1000,
        any::<u16>(),
        any::<u32>(),
        prop::collection::vec(any::<u8>(), 0..5000),
        SEGMENT_MIN as u16..3000,
    )
        .prop_map(
            |(v6, tags, extra, tcp_options, flags, id, sequence, payload, gso_size)| Spec {
                v6,
                tags,
                extra,
                tcp_options,
                flags,
                id,
                sequence,
                payload,
                gso_size,
            },
        )
}

pub fn build(s: &Spec) -> Guest {
    let mut f = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    for i in 0..s.tags {
        f.extend([0x81, 0x00, 0, 5 + i as u8]);
    }
    let tcp_len = 20 + 4 * s.tcp_options + s.payload.len();
    let (source, destination) = (1..=16u8, 21..=36u8);
    if s.v6 {
        f.extend([0x86, 0xdd, 0x60, 0x12, 0x34, 0x56]);
        f.extend(((8 * s.extra + tcp_len) as u16).to_be_bytes());
        f.extend([if s.extra > 0 { 60 } else { 6 }, 64]);
        f.extend(source.chain(destination));
        for i in 1..=s.extra {
            f.extend([if i < s.extra { 60 } else { 6 }, 0, 1, 4, 0, 0, 0, 0]);
        }
    } else {
        let ihl = 5 + 2 * s.extra;
        f.extend([0x08, 0x00, 0x40 + ihl as u8, 0x02]);
        f.extend(((4 * ihl + tcp_len) as u16).to_be_bytes());
        f.extend(s.id.to_be_bytes());
        f.extend([0x40, 0, 64, 6, 0xde, 0xad]);
        f.extend(source.take(4).chain(destination.take(4)));
        f.resize(f.len() + 8 * s.extra, 1);
    }
    let transport = f.len();
    f.extend([0x12, 0x34, 0x00, 0x50]);
    f.extend(s.sequence.to_be_bytes());
    f.extend([1, 2, 3, 4]);
    f.extend((((5 + s.tcp_options) << 12) as u16 | s.flags).to_be_bytes());
    // The guest's pseudo header sum stands in the checksum; the segmenter must not count it.
    f.extend([0x20, 0x00, 0xbe, 0xef, 0, 0]);
    f.resize(f.len() + 4 * s.tcp_options, 1);
    f.extend(&s.payload);
    let ecn = if s.flags & tcp::CWR != 0 {
        NetHdr::GSO_ECN
    } else {
        0
    };
    Guest {
        hdr: NetHdr {
            flags: NetHdr::NEEDS_CSUM,
            gso_type: ecn
                | if s.v6 {
                    NetHdr::GSO_TCPV6
                } else {
                    NetHdr::GSO_TCPV4
                },
            hdr_len: 0,
            gso_size: s.gso_size,
            csum_start: transport as u16,
            csum_offset: 16,
        },
        frame: f,
    }
}

/// The same of UDP: datagrams of one length, the last may be shorter.
pub fn build_udp(s: &Spec) -> Guest {
    let mut g = build(s);
    let transport = usize::from(g.hdr.csum_start);
    let network = 14 + 4 * s.tags;
    let protocol = match (s.v6, s.extra) {
        (false, _) => network + 9,
        (true, 0) => network + 6,
        (true, _) => transport - 8,
    };
    g.frame[protocol] = 17;
    g.frame.truncate(transport);
    // The length is that of the whole, as Linux has it; the checksum that of the pseudo header.
    g.frame.extend([0x12, 0x34, 0x00, 0x50, 0x77, 0x77, 0xbe, 0xef]);
    g.frame.extend(&s.payload);
    (g.hdr.gso_type, g.hdr.csum_offset) = (NetHdr::GSO_UDP_L4, 6);
    g
}

impl Guest {
    fn head(&self) -> &[u8] {
        &self.frame[..self.frame.len().min(HEAD_MAX)]
    }

    pub fn check(&self) -> Result<Request, Malformed> {
        check(&self.hdr, self.head(), self.frame.len())
    }

    fn tso(&self) -> Tso {
        match self.check() {
            Ok(Request::Tso(t)) => t,
            other => panic!("{other:?}"),
        }
    }

    /// Finished frames.
    pub fn cut(&self) -> Vec<Vec<u8>> {
        let mut segmenter = Segmenter::new(&self.tso(), self.head(), self.frame.len());
        let mut head = [0xaa; HEAD_MAX];
        let mut frames = vec![];
        while let Some(s) = segmenter.next(&mut head) {
            let payload = &self.frame[s.payload_off..s.payload_off + s.payload_len];
            let mut f = head[..s.head_len].to_vec();
            assert_eq!(f[s.field..s.field + 2], [0, 0]);
            let sum = Segmenter::finish(s.partial + checksum::sum(payload));
            f[s.field..s.field + 2].copy_from_slice(&sum.to_be_bytes());
            f.extend(payload);
            frames.push(f);
        }
        assert!(segmenter.next(&mut head).is_none());
        frames
    }
}

/// Requests of at most so many segments each, with the same virtio header.
fn parts(g: &Guest, each: u16) -> Vec<Guest> {
    let mut parts = Parts::new(&g.tso(), g.head(), g.frame.len(), each);
    let mut head = [0xaa; HEAD_MAX];
    let mut all = vec![];
    while let Some(p) = parts.next(&mut head) {
        let payload = &g.frame[p.payload_off..p.payload_off + p.payload_len];
        let frame = [&head[..p.head_len], payload].concat();
        all.push(Guest { hdr: g.hdr, frame });
    }
    all
}

/// Equal ones-complement numbers: 0 has two forms.
fn same(a: u16, b: u16) -> bool {
    a == b || (a.wrapping_add(1) <= 1 && b.wrapping_add(1) <= 1)
}

pub fn verify(s: &Spec, frames: &[Vec<u8>]) {
    let mut got: Vec<u8> = vec![];
    for (i, f) in frames.iter().enumerate() {
        let (first, last) = (i == 0, i + 1 == frames.len());
        let p = ep::SlicedPacket::from_ethernet(f).unwrap();
        assert_eq!(p.link_exts.len(), s.tags);
        let Some(ep::TransportSlice::Tcp(t)) = &p.transport else {
            panic!("no TCP");
        };
        match &p.net {
            Some(ep::NetSlice::Ipv4(ip)) => {
                assert!(!s.v6);
                let h = ip.header().to_header();
                assert_eq!(h.header_checksum, h.calc_header_checksum());
                assert_eq!(h.identification, s.id.wrapping_add(i as u16));
                assert_eq!(h.options.len(), 8 * s.extra);
                let network = 14 + 4 * s.tags;
                assert_eq!(usize::from(h.total_len), f.len() - network);
                assert!(same(
                    t.checksum(),
                    t.calc_checksum_ipv4(h.source, h.destination).unwrap()
                ));
            }
            Some(ep::NetSlice::Ipv6(ip)) => {
                assert!(s.v6);
                let h = ip.header().to_header();
                let len = usize::from(h.payload_length);
                assert_eq!(len, f.len() - 14 - 4 * s.tags - 40);
                assert!(same(
                    t.checksum(),
                    t.calc_checksum_ipv6(h.source, h.destination).unwrap()
                ));
            }
            other => panic!("{other:?}"),
        }
        let sequence = s.sequence.wrapping_add(got.len() as u32);
        assert_eq!(t.sequence_number(), sequence);
        assert_eq!(t.acknowledgment_number(), 0x0102_0304);
        assert_eq!(t.options().len(), 4 * s.tcp_options);
        let flag = |bit, on: bool| s.flags & bit != 0 && on;
        assert_eq!(t.fin(), flag(tcp::FIN, last));
        assert_eq!(t.psh(), flag(tcp::PSH, last));
        assert_eq!(t.cwr(), flag(tcp::CWR, first));
        assert_eq!(
            (t.syn(), t.rst(), t.ack(), t.urg(), t.ece(), t.ns()),
            (
                flag(tcp::SYN, true),
                flag(tcp::RST, true),
                flag(tcp::ACK, true),
                flag(tcp::URG, true),
                flag(tcp::ECE, true),
                flag(0x100, true)
            )
        );
        let n = t.payload().len();
        assert!(n == usize::from(s.gso_size) || (last && n <= usize::from(s.gso_size)));
        assert!(n > 0 || frames.len() == 1);
        got.extend(t.payload());
    }
    assert_eq!(got, s.payload);
}

pub fn verify_udp(s: &Spec, frames: &[Vec<u8>]) {
    let mut got: Vec<u8> = vec![];
    for (i, f) in frames.iter().enumerate() {
        let p = ep::SlicedPacket::from_ethernet(f).unwrap();
        assert_eq!(p.link_exts.len(), s.tags);
        let Some(ep::TransportSlice::Udp(u)) = &p.transport else {
            panic!("no UDP");
        };
        let header = u.to_header();
        let sum = match &p.net {
            Some(ep::NetSlice::Ipv4(ip)) => {
                let h = ip.header().to_header();
                assert_eq!(h.header_checksum, h.calc_header_checksum());
                assert_eq!(h.identification, s.id.wrapping_add(i as u16));
                assert_eq!(usize::from(h.total_len), f.len() - 14 - 4 * s.tags);
                header.calc_checksum_ipv4(&h, u.payload()).unwrap()
            }
            Some(ep::NetSlice::Ipv6(ip)) => {
                let h = ip.header().to_header();
                let len = usize::from(h.payload_length);
                assert_eq!(len, f.len() - 14 - 4 * s.tags - 40);
                header.calc_checksum_ipv6(&h, u.payload()).unwrap()
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(header.checksum, sum);
        assert_eq!((header.source_port, header.destination_port), (0x1234, 0x50));
        let n = u.payload().len();
        assert_eq!(usize::from(header.length), 8 + n);
        let last = i + 1 == frames.len();
        assert!(n == usize::from(s.gso_size) || (last && n <= usize::from(s.gso_size)));
        assert!(n > 0 || frames.len() == 1);
        got.extend(u.payload());
    }
    assert_eq!(got, s.payload);
}

proptest! {
    #[test]
    fn segments_are_what_udp_would_have_sent(s in spec()) {
        let g = build_udp(&s);
        let frames = g.cut();
        verify_udp(&s, &frames);
        let request = g.check().unwrap();
        let longest = frames.iter().map(Vec::len).max().unwrap();
        prop_assert_eq!(request.largest_frame(g.frame.len()), longest);
        let same = Guest { hdr: request.header(0), frame: g.frame.clone() };
        prop_assert_eq!(same.check(), Ok(request));
        prop_assert_eq!(same.hdr.gso_type, NetHdr::GSO_UDP_L4);
    }

    #[test]
    fn segments_are_what_tcp_would_have_sent(s in spec()) {
        let g = build(&s);
        let frames = g.cut();
        verify(&s, &frames);
        let request = g.check().unwrap();
        let longest = frames.iter().map(Vec::len).max().unwrap();
        prop_assert_eq!(request.largest_frame(g.frame.len()), longest);
        prop_assert_eq!(frames.len(), s.payload.len().div_ceil(usize::from(s.gso_size)).max(1));
    }

    /// Whoever cuts the parts gets the segments of the whole, and each part is a request as a driver makes it.
    #[test]
    fn parts_are_requests_of_fewer_segments(s in spec(), each in 1u16..9, datagrams: bool) {
        let g = if datagrams { build_udp(&s) } else { build(&s) };
        let whole = g.cut();
        prop_assert_eq!(g.tso().segments(g.frame.len()).max(1), whole.len());
        let parts = parts(&g, each);
        prop_assert_eq!(parts.len(), whole.len().div_ceil(usize::from(each)));
        let mut cut = vec![];
        for (i, part) in parts.iter().enumerate() {
            let segments = part.cut();
            let full = segments.len() == usize::from(each);
            prop_assert!(full || i + 1 == parts.len() && segments.len() <= usize::from(each));
            // With the payload's sum on top of what stands in its place, the checksum is right: a receiver that takes requests
            // may finish it as that of one packet.
            let t = part.tso();
            let mut packet = part.frame.clone();
            let field = t.transport + if datagrams { 6 } else { 16 };
            let sum = Segmenter::finish(checksum::sum(&packet[t.transport..]));
            packet[field..field + 2].copy_from_slice(&sum.to_be_bytes());
            let one = Spec {
                gso_size: u16::MAX,
                payload: packet[t.head_len..].to_vec(),
                sequence: s.sequence.wrapping_add((i * usize::from(each) * usize::from(s.gso_size)) as u32),
                id: s.id.wrapping_add(i as u16 * each),
                flags: s.flags
                    & if i == 0 { u16::MAX } else { !tcp::CWR }
                    & if i + 1 == parts.len() { u16::MAX } else { !(tcp::FIN | tcp::PSH) },
                ..s.clone()
            };
            if datagrams {
                verify_udp(&one, &[packet]);
            } else {
                verify(&one, &[packet]);
            }
            cut.extend(segments);
        }
        prop_assert_eq!(cut, whole);
    }

    /// The header for a receiver that takes it uncut says the same, also when a tag came or went.
    #[test]
    fn an_accepted_request_is_handed_on(s in spec()) {
        let g = build(&s);
        let request = g.check().unwrap();
        let same = Guest { hdr: request.header(0), frame: g.frame.clone() };
        prop_assert_eq!(same.check(), Ok(request));
        if s.tags < 2 {
            let mut frame = g.frame.clone();
            frame.splice(12..12, [0x81, 0, 0, 9]);
            let tagged = Guest { hdr: request.header(4), frame };
            let t = tagged.tso();
            prop_assert_eq!(t.transport, g.tso().transport + 4);
            prop_assert_eq!(Request::Tso(t).header(-4), request.header(0));
        }
    }

    /// Any change of a good request is refused or leads nowhere outside the frame.
    #[test]
    fn damaged_requests(s in spec(), hits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
                        hdr in any::<Option<[u8; 10]>>(), cut in any::<prop::sample::Index>(), keep: bool, udp: bool) {
        let mut g = if udp { build_udp(&s) } else { build(&s) };
        if let Some(h) = hdr {
            let h = NetHdr::parse(&h);
            g.hdr = NetHdr { gso_type: g.hdr.gso_type, flags: g.hdr.flags | h.flags, ..if h.flags & 2 != 0 { h } else { g.hdr } };
        }
        let n = g.frame.len().min(HEAD_MAX);
        for (at, v) in hits {
            g.frame[at.index(n)] = v;
        }
        if !keep {
            g.frame.truncate(cut.index(g.frame.len() + 1));
        }
        harmless(&g.hdr, &g.frame);
    }

    #[test]
    fn any_bytes(hdr: [u8; 10], frame in prop::collection::vec(any::<u8>(), 0..400), flags in 0u8..2, kind in 0usize..8) {
        let mut hdr = NetHdr::parse(&hdr);
        hdr.flags = flags;
        hdr.gso_type = [0, 1, 4, 0x81, 0x84, 3, 5, hdr.gso_type][kind];
        if kind % 2 == 0 {
            hdr.csum_start %= 128;
            hdr.csum_offset %= 32;
        }
        harmless(&hdr, &frame);
    }

    #[test]
    fn checksum_jobs(data in prop::collection::vec(any::<u8>(), 60..600), udp: bool, start in 14usize..60) {
        let mut f = data;
        f[12..14].copy_from_slice(&[0x08, 0x00]);
        let offset = if udp { 6 } else { 16 };
        prop_assume!(start + offset + 2 <= f.len());
        let hdr = NetHdr { flags: 1, csum_start: start as u16, csum_offset: offset as u16, ..NetHdr::default() };
        let head = &f[..f.len().min(HEAD_MAX)];
        let r = check(&hdr, head, f.len()).unwrap();
        prop_assert_eq!(r, Request::Checksum { start, field: start + offset });
        prop_assert_eq!(r.header(0), hdr);
        prop_assert_eq!(r.largest_frame(f.len()), f.len());
        // The field holds the pseudo header's sum.
        let pseudo = u16::from_be_bytes([f[start + offset], f[start + offset + 1]]);
        let sum = Segmenter::finish(checksum::sum(&f[start..]));
        prop_assert_ne!(sum, 0);
        f[start + offset..start + offset + 2].copy_from_slice(&sum.to_be_bytes());
        let check = checksum::fold(checksum::sum(&f[start..]) + u32::from(pseudo));
        prop_assert_eq!(check, 0xffff);
    }
}

/// Whatever `check` says of hostile bytes, nobody is led astray.
fn harmless(hdr: &NetHdr, frame: &[u8]) {
    let head = &frame[..frame.len().min(HEAD_MAX)];
    // A careless caller with a short or long copy.
    for bad in [&head[..head.len() / 2], frame] {
        if let Ok(Request::Tso(t)) = check(hdr, bad, frame.len()) {
            let mut s = Segmenter::new(&t, &bad[..bad.len() / 2], frame.len());
            while s.next(&mut [0; HEAD_MAX]).is_some() {}
            let mut p = Parts::new(&t, &bad[..bad.len() / 2], frame.len(), 3);
            while p.next(&mut [0; HEAD_MAX]).is_some() {}
        }
    }
    match check(hdr, head, frame.len()) {
        Err(e) => assert!(!e.to_string().is_empty()),
        Ok(Request::None) => {}
        Ok(Request::Checksum { start, field }) => {
            assert!(start <= field && field + 2 <= head.len());
            assert!(start >= ethernet::payload(head).unwrap().offset);
        }
        Ok(Request::Tso(t)) => {
            let mut s = Segmenter::new(&t, head, frame.len());
            let (mut n, mut bytes) = (0, 0);
            let mut out = [0; HEAD_MAX];
            while let Some(seg) = s.next(&mut out) {
                assert_eq!(seg.payload_off, t.head_len + bytes);
                assert!(seg.head_len <= HEAD_MAX && seg.field + 2 <= seg.head_len);
                assert!(seg.payload_off + seg.payload_len <= frame.len());
                assert_eq!(out[..12], frame[..12]);
                n += 1;
                bytes += seg.payload_len;
            }
            assert_eq!(t.head_len + bytes, frame.len());
            assert!(n <= frame.len() / SEGMENT_MIN + 1);
        }
    }
}

#[test]
fn who_accepts_what() {
    let tso = feature::GUEST_TSO4 | feature::GUEST_TSO6 | feature::GUEST_ECN;
    let all = feature::GUEST_CSUM | tso | feature::GUEST_USO4 | feature::GUEST_USO6;
    assert_eq!(Accepts::from_features(0), Accepts::NONE);
    assert_eq!(Accepts::from_features(all & !feature::GUEST_CSUM), Accepts::NONE);
    let yes = Accepts::from_features(all);
    assert_eq!(
        yes,
        Accepts {
            csum: true,
            tso4: true,
            tso6: true,
            ecn: true,
            uso4: true,
            uso6: true,
            rsc_ext: false,
        }
    );
    let v4 = Accepts::from_features(feature::GUEST_CSUM | feature::GUEST_TSO4);
    assert_eq!(
        v4,
        Accepts {
            csum: true,
            tso4: true,
            tso6: false,
            ecn: false,
            uso4: false,
            uso6: false,
            rsc_ext: false,
        }
    );

    let request = |v6, flags| {
        build(&Spec {
            v6,
            flags,
            ..Spec::default()
        })
        .check()
        .unwrap()
    };
    let datagrams = |v6| {
        build_udp(&Spec {
            v6,
            ..Spec::default()
        })
        .check()
        .unwrap()
    };
    let sum = Request::Checksum { start: 34, field: 50 };
    #[rustfmt::skip]
    let table = [
        // request, NONE, GUEST_CSUM | GUEST_TSO4, all
        (Request::None,            true,  true,  true),
        (sum,                      false, true,  true),
        (request(false, tcp::ACK), false, true,  true),
        (request(false, tcp::CWR), false, false, true),
        (request(true, tcp::ACK),  false, false, true),
        (request(true, tcp::CWR),  false, false, true),
        (datagrams(false),         false, false, true),
        (datagrams(true),          false, false, true),
    ];
    for (r, none, only_v4, everything) in table {
        assert_eq!(r.accepted_by(&Accepts::NONE), none, "{r:?}");
        assert_eq!(r.accepted_by(&v4), only_v4, "{r:?}");
        assert_eq!(r.accepted_by(&yes), everything, "{r:?}");
    }
}

type Change = fn(&mut Guest);

#[test]
fn refusals() {
    let good = || build(&Spec::default());
    let with = |change: Change| {
        let mut g = good();
        change(&mut g);
        g.check()
    };
    assert!(good().check().is_ok());
    use Malformed::*;
    #[rustfmt::skip]
    let table: &[(Change, Malformed)] = &[
        (|g| g.hdr.gso_type = 3, UdpFragmentation),
        (|g| g.hdr.gso_type = 2, UnknownGso(2)),
        (|g| g.hdr.gso_type = 5, WrongProtocol),
        (|g| g.hdr.gso_type = 0x85, UnknownGso(0x85)),
        (|g| g.hdr.gso_type = 0x80, UnknownGso(0x80)),
        (|g| g.hdr.gso_type = 4, WrongProtocol),
        (|g| g.hdr.flags = 0, GsoWithoutChecksum),
        (|g| g.hdr.gso_size = 0, SegmentTooSmall(0)),
        (|g| g.hdr.gso_size = 7, SegmentTooSmall(7)),
        (|g| g.hdr.csum_start = 33, ChecksumNotTcp),
        (|g| g.hdr.csum_start = u16::MAX, ChecksumOutside),
        (|g| g.hdr.csum_offset = 6, ChecksumNotTcp),
        (|g| g.frame[23] = 17, WrongProtocol),
        (|g| g.frame[20] = 0x20, Fragment),
        (|g| g.frame[21] = 1, Fragment),
        (|g| g.frame[14] = 0x44, Header(vnic_wire::Error::Length)),
        (|g| g.frame[14] = 0x65, Header(vnic_wire::Error::Kind)),
        (|g| g.frame[46] = 0x40, Header(vnic_wire::Error::Length)),
        (|g| g.frame.truncate(53), Header(vnic_wire::Error::Truncated)),
        (|g| g.frame.truncate(10), Header(vnic_wire::Error::Truncated)),
        (|g| { g.frame.resize(70_000, 0); g.hdr.gso_size = u16::MAX }, SegmentTooLong),
        // Partial checksums without segmentation.
        (|g| { g.hdr.gso_type = 0; g.hdr.csum_start = 6; g.hdr.csum_offset = 0 }, ChecksumInLinkHeader),
        (|g| { g.hdr.gso_type = 0; g.hdr.csum_start = 13; g.hdr.csum_offset = 30 }, ChecksumInLinkHeader),
        (|g| { g.hdr.gso_type = 0; g.hdr.csum_start = 14; g.frame[12] = 0x81; g.frame[13] = 0 }, ChecksumInLinkHeader),
        (|g| { g.hdr.gso_type = 0; g.hdr.csum_start = 255; g.hdr.csum_offset = 0 }, HeadersTooLong),
        (|g| { g.hdr.gso_type = 0; g.hdr.csum_offset = u16::MAX }, ChecksumOutside),
    ];
    for (i, (change, why)) in table.iter().enumerate() {
        assert_eq!(with(*change), Err(*why), "row {i}");
    }
    #[rustfmt::skip]
    let table: &[(Change, Malformed)] = &[
        (|g| g.hdr.gso_type = 1, WrongProtocol),
        (|g| g.hdr.csum_offset = 16, ChecksumNotUdp),
        (|g| g.hdr.csum_start -= 2, ChecksumNotUdp),
        (|g| g.hdr.flags = 0, GsoWithoutChecksum),
        (|g| g.hdr.gso_size = 7, SegmentTooSmall(7)),
        (|g| g.frame[12..14].copy_from_slice(&[0x88, 0xb5]), WrongProtocol),
        (|g| g.frame.truncate(41), Header(vnic_wire::Error::Truncated)),
        (|g| { g.frame.resize(70_000, 0); g.hdr.gso_size = u16::MAX }, SegmentTooLong),
    ];
    for (i, (change, why)) in table.iter().enumerate() {
        let mut g = build_udp(&Spec::default());
        change(&mut g);
        assert_eq!(g.check(), Err(*why), "row {i} of UDP");
    }
    // Extension headers beyond the copy, and a fragment header.
    let mut g = build(&Spec {
        v6: true,
        extra: 3,
        ..Spec::default()
    });
    g.frame[55] = 30;
    assert_eq!(g.check(), Err(HeadersTooLong));
    let mut g = build(&Spec {
        v6: true,
        extra: 1,
        ..Spec::default()
    });
    g.frame[20] = 44;
    assert_eq!(g.check(), Err(Fragment));
}

#[test]
fn tolerated() {
    // Lengths in the IP header are not looked at, nor is hdr_len.
    let s = Spec::default();
    let mut g = build(&s);
    g.frame[16..18].copy_from_slice(&[0, 0]);
    g.hdr.hdr_len = 9999;
    verify(&s, &g.cut());
    // More than 64 KiB in one request, as long as each segment fits.
    let s = Spec {
        payload: vec![3; 200_000],
        gso_size: 60_000,
        ..Spec::default()
    };
    verify(&s, &build(&s).cut());
    let s = Spec { v6: true, ..s };
    verify(&s, &build(&s).cut());
    // DATA_VALID and unknown flags beside NEEDS_CSUM. (Only the NIC says that there is a tunnel.)
    let mut g = build(&Spec::default());
    g.hdr.flags = !NetHdr::TUNNEL;
    assert!(g.check().is_ok());
    assert_eq!(g.check().unwrap().header(0).flags, NetHdr::NEEDS_CSUM);
}

/// Mobile IPv6: the pseudo header has the home address of the routing header.
#[test]
fn routing_header_with_a_segment_left() {
    let mut g = build(&Spec {
        v6: true,
        extra: 3,
        ..Spec::default()
    });
    // The three option headers become one routing header of type 2.
    g.frame[20] = 43;
    g.frame[54..58].copy_from_slice(&[6, 2, 2, 1]);
    g.frame[62..78].fill(0x77);
    for f in g.cut() {
        let t = ep::TcpSlice::from_slice(&f[78..]).unwrap();
        let sum = t.calc_checksum_ipv6(std::array::from_fn(|i| i as u8 + 1), [0x77; 16]);
        assert!(same(t.checksum(), sum.unwrap()));
    }
    g.frame[56] = 0;
    assert_eq!(g.check(), Err(Malformed::Header(vnic_wire::Error::Kind)));
}

#[test]
fn zero_is_written_as_ones() {
    assert_eq!(Segmenter::finish(0xffff), 0xffff);
    assert_eq!(Segmenter::finish(0), 0xffff);
    assert_eq!(Segmenter::finish(0x1_0000), 0xfffe);
}
