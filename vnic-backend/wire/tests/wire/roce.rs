//! Whole RoCE frames: written and read back, the invariant CRC, ECN marks, hostile bytes.

use crate::common::{Rng, Sample};
use proptest::prelude::*;
use vnic_wire::icrc::{self, Icrc, Kind};
use vnic_wire::opcode::{Opcode, Operation, Transport};
use vnic_wire::roce::{self, Ecn, Frame, Network, Path};
use vnic_wire::{Error, EtherType, ethernet, vlan};

const KINDS: [Kind; 3] = [Kind::V1, Kind::V4, Kind::V6];

/// Frames of all opcodes, kinds and tags.
fn samples(seed: u64) -> Vec<Sample> {
    let mut rng = Rng(seed);
    let mut samples = Vec::new();
    for kind in KINDS {
        for tagged in [false, true] {
            for opcode in crate::common::opcodes() {
                samples.push(crate::common::sample(&mut rng, opcode, kind, tagged));
            }
        }
    }
    samples
}

fn one(kind: Kind) -> Sample {
    let opcode = Opcode::new(Transport::Rc, Operation::WriteOnlyImm);
    let mut rng = Rng(9);
    let mut s = crate::common::sample(&mut rng, opcode, kind, false);
    s.payload = rng.vec(33);
    roce::build(&s.path, &s.headers, &s.payload, &mut s.frame).unwrap();
    s
}

#[test]
fn frames_are_read_back() {
    for s in samples(1) {
        assert!(roce::is_roce(&s.frame));
        let f = Frame::parse(&s.frame).unwrap();
        assert_eq!(f.headers, s.headers);
        assert_eq!(f.payload, s.payload);
        assert!(f.icrc_ok() && f.header_checksum_ok());
        assert_eq!(f.icrc, crate::common::icrc_bit_by_bit(&s.frame).unwrap());
        assert_eq!((f.source_port, f.udp_checksum), (s.path.source_port, 0));
        assert_eq!(f.packet(), &s.frame[s.path.network_offset()..]);
        assert_eq!(f.network.kind(), s.path.kind());
        assert_eq!(f.network.source(), s.path.network.source());
        assert_eq!(f.network.destination(), s.path.network.destination());
        assert_eq!(f.network.traffic_class(), s.path.network.traffic_class());
        assert_eq!(f.network.hop_limit(), s.path.network.hop_limit());
        assert_eq!(f.network.flow_label(), s.path.network.flow_label());
        assert_eq!(f.vlan.map(|t| t.tci), s.path.vlan.map(|t| t.tci));
        assert_eq!(s.frame.len(), s.path.frame_len(&s.headers, s.payload.len()));
        let mut again = vec![1, 2, 3];
        roce::build(&Path::from(&f), &f.headers, f.payload, &mut again).unwrap();
        assert_eq!(again, s.frame);
    }
}

#[test]
fn the_order_of_the_headers() {
    for (kind, ethertype, bth) in [
        (Kind::V1, 0x8915u16, 40),
        (Kind::V4, 0x0800, 28),
        (Kind::V6, 0x86dd, 48),
    ] {
        let mut s = one(kind);
        assert_eq!(s.frame[12..14], ethertype.to_be_bytes());
        assert_eq!(s.frame[14 + bth], s.headers.bth.opcode.0);
        s.path.vlan = Some(vlan::Header {
            tci: vlan::Tci::new(3, false, 7),
            ethertype: EtherType(0),
        });
        roce::build(&s.path, &s.headers, &s.payload, &mut s.frame).unwrap();
        assert_eq!(s.frame[12..16], [0x81, 0x00, 0x60, 0x07]);
        assert_eq!(s.frame[16..18], ethertype.to_be_bytes());
        // A service tag stays one.
        s.path.eth.ethertype = EtherType::SERVICE_VLAN;
        roce::build(&s.path, &s.headers, &s.payload, &mut s.frame).unwrap();
        assert_eq!(s.frame[12..14], [0x88, 0xa8]);
        assert_eq!(
            Frame::parse(&s.frame).unwrap().eth.ethertype,
            EtherType::SERVICE_VLAN
        );
    }
}

#[test]
fn networks_follow_from_identifiers() {
    let v4 = "::ffff:10.0.0.1".parse().unwrap();
    let v6 = "fe80::1".parse().unwrap();
    assert_eq!(Network::v2(v4, v4).kind(), Kind::V4);
    assert_eq!(Network::v2(v4, v6).kind(), Kind::V6);
    assert_eq!(Network::v2(v6, v4).kind(), Kind::V6);
    assert_eq!(Network::v1(v6, v4).kind(), Kind::V1);
    for n in [Network::v2(v4, v4), Network::v2(v6, v6), Network::v1(v6, v6)] {
        assert_eq!((n.hop_limit(), n.traffic_class(), n.flow_label()), (64, 0, 0));
    }
}

#[test]
fn what_ethernet_adds_is_cut_off() {
    for mut s in samples(2) {
        let len = s.frame.len();
        s.frame.resize(len + 46, 0xee);
        let f = Frame::parse(&s.frame).unwrap();
        assert!(f.icrc_ok());
        assert_eq!(f.payload, s.payload);
        assert_eq!(f.packet().len() + s.path.network_offset(), len);
    }
}

#[test]
fn cut_frames_are_refused() {
    for s in samples(3) {
        for len in (0..s.frame.len()).filter(|l| *l < 200 || l % 61 == 0) {
            let error = Frame::parse(&s.frame[..len]).unwrap_err();
            assert_eq!(error, Error::Truncated, "{len} of {}", s.frame.len());
        }
    }
}

#[test]
fn a_payload_in_pieces_gives_the_same_frame() {
    for s in samples(4) {
        let mut frame = vec![0xaa; s.frame.len()];
        let at = s.path.emit(&s.headers, s.payload.len(), &mut frame).unwrap();
        assert_eq!(at, s.path.headers_len() + s.headers.len());
        frame[at..at + s.payload.len()].copy_from_slice(&s.payload);
        let mut crc = s.path.icrc(&frame[..at]).unwrap();
        for piece in s.payload.chunks(100) {
            crc.update(piece);
        }
        crc.update(&[0; 3][..usize::from(s.headers.bth.pad)]);
        assert_eq!(crc.finish(), s.frame[s.frame.len() - 4..]);
        s.path.finish(&mut frame).unwrap();
        assert_eq!(frame, s.frame);
    }
}

#[test]
fn frames_that_do_not_fit_are_not_written() {
    for kind in KINDS {
        let s = one(kind);
        let headers = s.path.headers_len() + s.headers.len();
        for len in 0..headers {
            let mut out = vec![0; len];
            assert_eq!(s.path.emit(&s.headers, 0, &mut out), Err(Error::Truncated));
        }
        for len in 0..s.path.headers_len() + 12 + 4 {
            let mut out = s.frame[..len].to_vec();
            assert_eq!(s.path.finish(&mut out), Err(Error::Truncated));
        }
        let mut out = vec![0; 200_000];
        let fixed = s.headers.len() + 4;
        let (before, counted) = match kind {
            Kind::V1 => (0, 65_535),
            Kind::V4 => (28, 65_535),
            Kind::V6 => (8, 65_535),
        };
        let most = (counted - before - fixed) / 4 * 4;
        assert!(s.path.emit(&s.headers, most, &mut out).is_ok());
        assert_eq!(s.path.emit(&s.headers, most + 1, &mut out), Err(Error::Length));
        assert_eq!(s.path.emit(&s.headers, usize::MAX, &mut out), Err(Error::Length));
        let mut out = vec![1];
        let long = vec![0; most + 1];
        assert_eq!(
            roce::build(&s.path, &s.headers, &long, &mut out),
            Err(Error::Length)
        );
        assert!(out.is_empty());
        let mut wrong = s.headers;
        wrong.bth.opcode = Opcode::new(Transport::Ud, Operation::SendOnly);
        assert_eq!(roce::build(&s.path, &wrong, &[], &mut out), Err(Error::Kind));
    }
}

/// Each bit of a frame counts, apart from those that the standard masks, and these do not.
#[test]
fn the_invariant_crc_sees_what_it_should() {
    for kind in KINDS {
        let s = one(kind);
        // (byte of the packet, bits)
        let masked: &[(usize, u8)] = match kind {
            Kind::V1 => &[(0, 0x0f), (1, 0xff), (2, 0xff), (3, 0xff), (7, 0xff), (44, 0xff)],
            Kind::V4 => &[
                (1, 0xff),
                (8, 0xff),
                (10, 0xff),
                (11, 0xff),
                (26, 0xff),
                (27, 0xff),
                (32, 0xff),
            ],
            Kind::V6 => &[
                (0, 0x0f),
                (1, 0xff),
                (2, 0xff),
                (3, 0xff),
                (7, 0xff),
                (46, 0xff),
                (47, 0xff),
                (52, 0xff),
            ],
        };
        let packet = &s.frame[s.path.network_offset()..];
        let (body, crc) = packet.split_last_chunk::<4>().unwrap();
        for at in 0..body.len() {
            for bit in 0..8 {
                let mut changed = body.to_vec();
                changed[at] ^= 1 << bit;
                let same = icrc::compute(kind, &changed).unwrap() == *crc;
                let free = masked
                    .iter()
                    .any(|(byte, bits)| *byte == at && bits >> bit & 1 == 1);
                assert_eq!(same, free, "{kind:?}, byte {at}, bit {bit}");
            }
        }
        for at in body.len()..packet.len() {
            let mut changed = s.frame.clone();
            changed[s.path.network_offset() + at] ^= 1;
            assert!(!Frame::parse(&changed).unwrap().icrc_ok());
        }
        for len in 0..s.path.headers_len() - s.path.network_offset() + 12 {
            assert_eq!(icrc::compute(kind, &body[..len]), Err(Error::Truncated));
        }
    }
}

/// The ones that stand for the LRH, computed here and not looked up.
#[test]
fn the_invariant_crc_of_every_length() {
    let mut rng = Rng(5);
    for len in 52..300 {
        let mut packet = vec![0; 14];
        packet[12..].copy_from_slice(&EtherType::ROCE.0.to_be_bytes());
        packet.extend(rng.vec(len));
        packet.extend([0; 4]);
        let expected = crate::common::icrc_bit_by_bit(&packet).unwrap();
        assert_eq!(icrc::compute(Kind::V1, &packet[14..14 + len]), Ok(expected));
    }
}

proptest! {
    #[test]
    fn a_crc_in_pieces_is_the_whole(
        kind in prop::sample::select(&KINDS[..]), bytes in prop::collection::vec(any::<u8>(), 60..5000),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let whole = icrc::compute(kind, &bytes).unwrap();
        let mut at: Vec<usize> = cuts.iter().map(|c| 60 + c.index(bytes.len() - 59)).collect();
        at.extend([60, bytes.len()]);
        at.sort_unstable();
        let mut crc = Icrc::new(kind, &bytes[..60]).unwrap();
        for w in at.windows(2) {
            crc.update(&bytes[w[0]..w[1]]);
        }
        prop_assert_eq!(crc.finish(), whole);
    }

    #[test]
    fn any_bytes_are_a_frame_or_not(
        bytes in prop::collection::vec(any::<u8>(), 0..200), ethertype in prop::sample::select(vec![0x0800u16, 0x86dd, 0x8915, 0x8100]),
    ) {
        let mut bytes = bytes;
        if let Some(field) = bytes.get_mut(12..14) {
            field.copy_from_slice(&ethertype.to_be_bytes());
        }
        examine(&bytes);
    }
}

#[test]
fn marks() {
    for s in samples(6) {
        for ecn in [Ecn::NotEct, Ecn::Ect1, Ecn::Ect0, Ecn::Ce] {
            let mut path = s.path;
            let class = path.network.traffic_class() & 0xfc;
            path.network.set_traffic_class(class | ecn as u8);
            let mut frame = Vec::new();
            roce::build(&path, &s.headers, &s.payload, &mut frame).unwrap();
            assert_eq!(roce::ecn(&frame), Some(ecn));
            let before = frame.clone();
            assert_eq!(roce::set_ce(&mut frame), ecn != Ecn::NotEct);
            if matches!(ecn, Ecn::NotEct | Ecn::Ce) {
                assert_eq!(frame, before);
                continue;
            }
            let f = Frame::parse(&frame).unwrap();
            assert_eq!(f.network.traffic_class(), class | 3);
            assert_eq!(roce::ecn(&frame), Some(Ecn::Ce));
            assert!(f.header_checksum_ok() && f.icrc_ok());
            let unmarked = Frame::parse(&before).unwrap();
            assert_eq!(unmarked.network.flow_label(), f.network.flow_label());
            assert_eq!((unmarked.headers, unmarked.payload), (f.headers, f.payload));
        }
    }
}

#[test]
fn marks_need_a_network_header() {
    let s = one(Kind::V4);
    let mut arp = s.frame.clone();
    arp[12..14].copy_from_slice(&EtherType::ARP.0.to_be_bytes());
    let mut version = s.frame.clone();
    version[14] = 0x65;
    for frame in [arp, version, s.frame[..33].to_vec(), vec![]] {
        let mut marked = frame.clone();
        assert_eq!(roce::ecn(&frame), None);
        assert!(!roce::set_ce(&mut marked));
        assert_eq!(marked, frame);
    }
}

/// What makes a frame something else, and the error for it.
#[test]
fn other_frames_are_refused() {
    let edit = |kind: Kind, change: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = one(kind).frame;
        change(&mut frame);
        (Frame::parse(&frame).err(), roce::is_roce(&frame))
    };
    use Kind::{V1, V4, V6};
    let (kind, length) = (Some(Error::Kind), Some(Error::Length));
    assert_eq!(edit(V4, &|f| f[13] = 6), (kind, false)); // ARP
    assert_eq!(edit(V4, &|f| f[23] = 6), (kind, false)); // TCP
    assert_eq!(edit(V4, &|f| f[37] = 0), (kind, false)); // another port
    assert_eq!(edit(V4, &|f| f[20] |= 0x20), (kind, false)); // more fragments
    assert_eq!(edit(V4, &|f| f[21] |= 1), (kind, false)); // fragment offset
    assert_eq!(edit(V4, &|f| f[14] = 0x46), (kind, false)); // options
    assert_eq!(edit(V4, &|f| f[14] = 0x55), (kind, false)); // version
    assert_eq!(edit(V4, &|f| f[17] ^= 4), (length, true)); // IP and UDP differ
    assert_eq!(edit(V4, &|f| f[39] ^= 4), (length, true));
    assert_eq!(edit(V4, &|f| (f[16], f[17]) = (0, 19)), (length, true));
    assert_eq!(edit(V4, &|f| f[16] = 0xff), (Some(Error::Truncated), true));
    assert_eq!(edit(V4, &|f| f[42] = 0x15), (kind, true)); // opcode
    assert_eq!(edit(V6, &|f| f[20] = 0), (kind, false)); // extension header
    assert_eq!(edit(V6, &|f| f[57] = 0), (kind, false)); // another port
    assert_eq!(edit(V6, &|f| f[19] -= 4), (length, true)); // IP and UDP differ
    assert_eq!(edit(V1, &|f| f[20] = 17), (kind, true)); // next header
    assert_eq!(edit(V1, &|f| f[19] -= 1), (length, true)); // payload and pad no multiple of four
    // Two tags.
    let twice = edit(V4, &|f| {
        for _ in 0..2 {
            f.splice(12..12, [0x81, 0x00, 0x00, 0x01]);
        }
    });
    assert_eq!(twice, (kind, true));
    // More pad than payload.
    let mut s = one(V4);
    roce::build(&s.path, &s.headers, &[], &mut s.frame).unwrap();
    s.frame[43] |= 0x10;
    assert_eq!(Frame::parse(&s.frame), Err(Error::Length));
    // No room for the ICRC: a packet that ends with its headers.
    let mut s = one(V1);
    roce::build(&s.path, &s.headers, &[], &mut s.frame).unwrap();
    s.frame[19] -= 4;
    assert_eq!(Frame::parse(&s.frame), Err(Error::Truncated));
}

#[test]
fn a_wrong_header_checksum_is_seen() {
    let mut s = one(Kind::V4);
    s.frame[24] ^= 1;
    let f = Frame::parse(&s.frame).unwrap();
    assert!(f.icrc_ok() && !f.header_checksum_ok());
}

/// Everything that looks at a frame, on bytes that may be anything; what must hold whatever they are. True if
/// they are a frame.
fn examine(bytes: &[u8]) -> bool {
    let is_roce = roce::is_roce(bytes);
    let ecn = roce::ecn(bytes);
    let mut marked = bytes.to_vec();
    let can = roce::set_ce(&mut marked);
    assert_eq!(can, ecn.is_some_and(|e| e != Ecn::NotEct));
    assert_eq!(roce::ecn(&marked), if can { Some(Ecn::Ce) } else { ecn });
    let Ok(f) = Frame::parse(bytes) else {
        return false;
    };
    assert!(is_roce);
    // What is not masked is as it was, and what is does not count.
    if let Ok(m) = Frame::parse(&marked) {
        assert_eq!(m.icrc_ok(), f.icrc_ok());
        assert_eq!(m.header_checksum_ok(), f.header_checksum_ok());
    }
    let mut again = Vec::new();
    roce::build(&Path::from(&f), &f.headers, f.payload, &mut again).unwrap();
    let g = Frame::parse(&again).unwrap();
    assert!(g.icrc_ok() && g.header_checksum_ok());
    assert_eq!((g.eth, g.vlan), (f.eth, f.vlan));
    assert_eq!((g.network, g.source_port), (f.network, f.source_port));
    assert_eq!((g.headers, g.payload), (f.headers, f.payload));
    assert_eq!(g.packet().len(), f.packet().len());
    assert_eq!(
        Some(g.icrc),
        crate::common::icrc_bit_by_bit(&again[..])
            .or_else(|| (f.eth.ethertype == EtherType::SERVICE_VLAN).then_some(g.icrc))
    );
    true
}

/// One of the things that happen to bytes.
fn mutate(rng: &mut Rng, bytes: &mut Vec<u8>, others: &[Sample]) {
    // Headers more often than payload.
    let reach = if rng.below(4) == 0 {
        bytes.len()
    } else {
        bytes.len().min(110)
    };
    let at = rng.below(reach.max(1)).min(bytes.len());
    match rng.below(8) {
        0 => bytes.truncate(at),
        1 => bytes.extend_from_slice(&rng.bytes::<7>()[..rng.below(8)]),
        2 => {
            let n = rng.below(9);
            let new = rng.vec(n);
            bytes.splice(at..at, new);
        }
        3 => {
            let end = (at + rng.below(9)).min(bytes.len());
            bytes.drain(at..end);
        }
        4 => {
            // The head of one frame on the tail of another.
            let other = &others[rng.below(others.len())].frame;
            bytes.truncate(at);
            bytes.extend_from_slice(other.get(at..).unwrap_or(&[]));
        }
        5 => {
            // A length or a count at its edge.
            let edges = [0, 1, 3, 4, 7, 8, 0x14, 0x7f, 0x80, 0xfe, 0xff];
            if let Some(b) = bytes.get_mut(at) {
                *b = edges[rng.below(edges.len())];
            }
        }
        6 => {
            if let Some(b) = bytes.get_mut(at) {
                *b = rng.u8();
            }
        }
        _ => {
            if let Some(b) = bytes.get_mut(at) {
                *b ^= 1 << rng.below(8);
            }
        }
    }
}

#[test]
fn mutated_frames_never_panic() {
    let mut seeds = samples(7);
    // Short ones find more in the same time.
    seeds.retain(|s| s.frame.len() <= ethernet::FRAME_MIN + 150);
    assert!(seeds.len() > 200);
    let mut rng = Rng(0x6675_7a7a);
    let mut frames = 0;
    const ROUNDS: usize = 100_000;
    for _ in 0..ROUNDS {
        let mut bytes = seeds[rng.below(seeds.len())].frame.clone();
        for _ in 0..=rng.below(4) {
            mutate(&mut rng, &mut bytes, &seeds);
        }
        frames += usize::from(examine(&bytes));
    }
    // Neither all nor none pass: the mutations reach what is behind the first checks.
    assert!(frames > ROUNDS / 10 && frames < ROUNDS * 9 / 10, "{frames}");
}
