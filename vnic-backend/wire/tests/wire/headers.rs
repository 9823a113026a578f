//! Each header of RoCE by itself: the layout of its bytes, and that `parse` undoes `emit`.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::common::Rng;
use proptest::prelude::*;
use vnic_wire::aeth::{NakCode, Syndrome};
use vnic_wire::gid::{Gid, ParseGidError};
use vnic_wire::int::Sign;
use vnic_wire::opcode::{Opcode, Operation, Transport};
use vnic_wire::psn::Psn;
use vnic_wire::transport::{Extended, HEADERS_MAX, Headers};
use vnic_wire::{
    Error, MacAddr, aeth, atomicacketh, atomiceth, bth, cnp, dcceth, dceth, deth, grh, ieth, immdt, reth,
    xrceth,
};

#[test]
fn layouts() {
    let h = bth::Header {
        opcode: Opcode(0x0a),
        solicited: true,
        migrated: false,
        pad: 2,
        version: 5,
        pkey: 0x1234,
        fecn: false,
        becn: true,
        destination_qp: 0xab_cdef,
        ack_request: true,
        selective: true,
        telemetry: Sign::Carried,
        spread: true,
        scattered: true,
        psn: Psn::new(0x01_0203),
    };
    assert_eq!(
        h.emit(),
        [0x0a, 0xa5, 0x12, 0x34, 0x40, 0xab, 0xcd, 0xef, 0x9f, 1, 2, 3]
    );
    let h = reth::Header {
        va: 0x0102_0304_0506_0708,
        rkey: 0x0a0b_0c0d,
        len: 0x0e0f_1011,
    };
    assert_eq!(h.emit(), [1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 14, 15, 16, 17]);
    let h = deth::Header {
        qkey: 0x8001_0000,
        source_qp: 0xff12_3456,
    };
    assert_eq!(h.emit(), [0x80, 1, 0, 0, 0, 0x12, 0x34, 0x56]);
    let h = aeth::Header {
        syndrome: Syndrome::Nak(NakCode::RemoteAccess),
        msn: 0xff00_0007,
    };
    assert_eq!(h.emit(), [0x62, 0, 0, 7]);
    assert_eq!(xrceth::Header { srq: 0xff01_0203 }.emit(), [0, 1, 2, 3]);
    let dceth = dceth::Header {
        connection: 0xaa,
        initiator: 0xff01_0203,
    };
    assert_eq!(dceth.emit(), [0xaa, 1, 2, 3]);
    assert_eq!(immdt::Header { data: 0x0102_0304 }.emit(), [1, 2, 3, 4]);
    assert_eq!(ieth::Header { rkey: 0x0102_0304 }.emit(), [1, 2, 3, 4]);
    assert_eq!(cnp::Header::default().emit(), [0; 16]);
    let h = atomiceth::Header {
        va: 1,
        rkey: 2,
        swap_or_add: 3,
        compare: 4,
    };
    let mut bytes = [0; 28];
    (bytes[7], bytes[11], bytes[19], bytes[27]) = (1, 2, 3, 4);
    assert_eq!(h.emit(), bytes);
    assert_eq!(atomicacketh::Header { original: 9 }.emit(), 9u64.to_be_bytes());
}

/// Reserved bits are ignored: each set alone gives the same header. (The last five of resv7 are ours; 2 without 1 says
/// nothing.)
#[test]
fn reserved_bits_are_ignored() {
    let zero = bth::Header::parse(&[0; 12]).unwrap();
    for (at, mask) in [(4usize, 0x3fu8), (8, 0x60), (8, 4)] {
        let mut b = [0; 12];
        b[at] = mask;
        assert_eq!(bth::Header::parse(&b), Ok(zero));
    }
    assert_eq!(
        xrceth::Header::parse(&[0xff, 0, 0, 1]),
        Ok(xrceth::Header { srq: 1 })
    );
    let deth = deth::Header::parse(&[0, 0, 0, 1, 0xff, 0, 0, 2]);
    assert_eq!(
        deth,
        Ok(deth::Header {
            qkey: 1,
            source_qp: 2
        })
    );
    assert_eq!(
        cnp::Header::parse(&[0xff; 16]),
        Ok(cnp::Header { period: u32::MAX })
    );
}

/// Packets of a WRITE that take several ways have an RETH each, but the one with immediate data; nothing else has.
#[test]
fn packets_that_take_several_ways_say_where_they_go() {
    let reth = reth::Header {
        va: 7,
        rkey: 8,
        len: 9,
    };
    let with = |transport, operation, spread, extended| {
        let mut bth = bth::Header::new(Opcode::new(transport, operation), 5, Psn::new(6));
        bth.spread = spread;
        let headers = Headers {
            bth,
            xrceth: (transport == Transport::Xrc).then_some(xrceth::Header { srq: 3 }),
            dceth: (transport == Transport::Dc).then_some(dceth::Header {
                connection: 1,
                initiator: 2,
            }),
            extended,
        };
        let mut bytes = [0; 64];
        let len = headers.emit(&mut bytes).ok()?;
        assert_eq!(Headers::parse(&bytes), Ok((headers, len)));
        Some(len)
    };
    use Operation::{SendMiddle, WriteLast, WriteLastImm, WriteMiddle};
    let (rc, none, addressed) = (Transport::Rc, Extended::None, Extended::Reth(reth));
    for operation in [WriteMiddle, WriteLast] {
        assert_eq!(with(rc, operation, true, addressed), Some(28));
        assert_eq!(with(rc, operation, true, none), None);
        assert_eq!(with(rc, operation, false, addressed), None);
        assert_eq!(with(rc, operation, false, none), Some(12));
    }
    assert_eq!(with(rc, WriteLastImm, true, Extended::Imm(1)), Some(16));
    assert_eq!(with(rc, SendMiddle, true, none), Some(12));
    assert_eq!(with(Transport::Uc, WriteMiddle, true, addressed), None);
    for transport in [Transport::Xrc, Transport::Dc] {
        let lead = with(transport, WriteMiddle, false, none).expect("as it is") - 12;
        assert_eq!(with(transport, WriteMiddle, true, addressed), Some(28 + lead));
        assert_eq!(with(transport, WriteMiddle, true, none), None);
    }
}

proptest! {
    #[test]
    fn what_was_written_is_read(a: u64, b: u64, c: u64, d: u32, e: u32, s: [u8; 16], t: [u8; 16], flags: u8) {
        let bit = |n: u8| flags >> n & 1 == 1;
        let h = bth::Header {
            opcode: Opcode(a as u8), solicited: bit(0), migrated: bit(1), pad: flags & 3, version: flags >> 4,
            pkey: b as u16, fecn: bit(2), becn: bit(3), destination_qp: d >> 8, ack_request: bit(4), selective: bit(5),
            telemetry: Sign::of(flags >> 6), spread: bit(0), scattered: bit(1), psn: Psn::new(e),
        };
        prop_assert_eq!(bth::Header::parse(&h.emit()), Ok(h));
        let h = reth::Header { va: a, rkey: d, len: e };
        prop_assert_eq!(reth::Header::parse(&h.emit()), Ok(h));
        let h = deth::Header { qkey: d, source_qp: e >> 8 };
        prop_assert_eq!(deth::Header::parse(&h.emit()), Ok(h));
        let h = atomiceth::Header { va: a, rkey: d, swap_or_add: b, compare: c };
        prop_assert_eq!(atomiceth::Header::parse(&h.emit()), Ok(h));
        let h = atomicacketh::Header { original: a };
        prop_assert_eq!(atomicacketh::Header::parse(&h.emit()), Ok(h));
        let h = immdt::Header { data: d };
        prop_assert_eq!(immdt::Header::parse(&h.emit()), Ok(h));
        let h = ieth::Header { rkey: d };
        prop_assert_eq!(ieth::Header::parse(&h.emit()), Ok(h));
        let h = xrceth::Header { srq: d >> 8 };
        prop_assert_eq!(xrceth::Header::parse(&h.emit()), Ok(h));
        let h = dceth::Header { connection: flags, initiator: d >> 8 };
        prop_assert_eq!(dceth::Header::parse(&h.emit()), Ok(h));
        let h = dcceth::Header { access_key: a, connection: d };
        prop_assert_eq!(dcceth::Header::parse(&h.emit()), Ok(h));
        let h = aeth::Header { syndrome: Syndrome::from_byte(flags), msn: d >> 8 };
        prop_assert_eq!(aeth::Header::parse(&h.emit()), Ok(h));
        let h = grh::Header {
            traffic_class: flags, flow_label: d >> 12, payload_len: a as u16, next_header: b as u8, hop_limit: c as u8,
            source: s, destination: t,
        };
        prop_assert_eq!(grh::Header::parse(&h.emit()), Ok(h));
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let truncated = |needed: usize| bytes.len() < needed;
        prop_assert_eq!(bth::Header::parse(&bytes).is_err(), truncated(bth::HEADER_LEN));
        prop_assert_eq!(reth::Header::parse(&bytes).is_err(), truncated(reth::HEADER_LEN));
        prop_assert_eq!(deth::Header::parse(&bytes).is_err(), truncated(deth::HEADER_LEN));
        prop_assert_eq!(aeth::Header::parse(&bytes).is_err(), truncated(aeth::HEADER_LEN));
        prop_assert_eq!(atomiceth::Header::parse(&bytes).is_err(), truncated(atomiceth::HEADER_LEN));
        prop_assert_eq!(atomicacketh::Header::parse(&bytes).is_err(), truncated(atomicacketh::HEADER_LEN));
        prop_assert_eq!(immdt::Header::parse(&bytes).is_err(), truncated(immdt::HEADER_LEN));
        prop_assert_eq!(ieth::Header::parse(&bytes).is_err(), truncated(ieth::HEADER_LEN));
        prop_assert_eq!(xrceth::Header::parse(&bytes).is_err(), truncated(xrceth::HEADER_LEN));
        prop_assert_eq!(dceth::Header::parse(&bytes).is_err(), truncated(dceth::HEADER_LEN));
        prop_assert_eq!(dcceth::Header::parse(&bytes).is_err(), truncated(dcceth::HEADER_LEN));
        prop_assert_eq!(cnp::Header::parse(&bytes).is_err(), truncated(cnp::HEADER_LEN));
        if let Ok(h) = grh::Header::parse(&bytes) {
            prop_assert_eq!(&h.emit()[..], &bytes[..grh::HEADER_LEN]);
        }
        if let Ok((headers, len)) = Headers::parse(&bytes) {
            prop_assert_eq!(headers.len(), len);
            let mut out = [0; HEADERS_MAX];
            prop_assert_eq!(headers.emit(&mut out), Ok(len));
            prop_assert_eq!(Headers::parse(&out), Ok((headers, len)));
        }
    }

    #[test]
    fn sequence_numbers_wrap(a: u32, b: u32, n in 0u32..1 << 23) {
        let p = Psn::new(a);
        prop_assert_eq!(p.value(), a & 0xff_ffff);
        prop_assert_eq!(p.add(b).sub(b), p);
        prop_assert_eq!(p.next(), p.add(1));
        prop_assert_eq!(p.add(n).distance(p), n as i32);
        prop_assert_eq!(p.sub(n).distance(p), -(n as i32));
        prop_assert_eq!(p.before(p.add(n)), n != 0);
        prop_assert_eq!(p.sub(n).before(p), n != 0);
        prop_assert!(!p.add(n).before(p));
    }
}

#[test]
fn sequence_numbers_at_the_seam() {
    let last = Psn::new(0xff_ffff);
    assert_eq!(last.next(), Psn::new(0));
    assert_eq!(Psn::new(0).sub(1), last);
    assert_eq!(Psn::new(0).distance(last), 1);
    assert!(last.before(Psn::new(0)));
    assert_eq!(Psn::new(1 << 24 | 5), Psn::new(5));
    // Half a circle: the range is -2^23..2^23.
    let half = Psn::new(1 << 23);
    assert_eq!(half.distance(Psn::new(0)), -(1 << 23));
    assert_eq!(Psn::new(0).distance(half), -(1 << 23));
}

/// The table of the standard, number and name.
#[test]
fn opcodes_are_those_of_the_standard() {
    let names: BTreeMap<u8, String> = crate::common::opcodes()
        .iter()
        .map(|o| (o.0, o.to_string()))
        .collect();
    let operations = [
        "SEND_FIRST",
        "SEND_MIDDLE",
        "SEND_LAST",
        "SEND_LAST_WITH_IMMEDIATE",
        "SEND_ONLY",
        "SEND_ONLY_WITH_IMMEDIATE",
        "RDMA_WRITE_FIRST",
        "RDMA_WRITE_MIDDLE",
        "RDMA_WRITE_LAST",
        "RDMA_WRITE_LAST_WITH_IMMEDIATE",
        "RDMA_WRITE_ONLY",
        "RDMA_WRITE_ONLY_WITH_IMMEDIATE",
        "RDMA_READ_REQUEST",
        "RDMA_READ_RESPONSE_FIRST",
        "RDMA_READ_RESPONSE_MIDDLE",
        "RDMA_READ_RESPONSE_LAST",
        "RDMA_READ_RESPONSE_ONLY",
        "ACKNOWLEDGE",
        "ATOMIC_ACKNOWLEDGE",
        "COMPARE_SWAP",
        "FETCH_ADD",
        "",
        "SEND_LAST_WITH_INVALIDATE",
        "SEND_ONLY_WITH_INVALIDATE",
        "CONNECT",
        "DISCONNECT",
    ];
    let mut table = BTreeMap::new();
    for (transport, top, range) in [
        ("RC", 0x00, 0..24u8),
        ("UC", 0x20, 0..12),
        ("UD", 0x60, 4..6),
        ("XRC", 0xa0, 0..24),
        ("DC", 0xc0, 0..26),
    ] {
        for low in range.filter(|low| *low != 21) {
            table.insert(top | low, format!("{transport} {}", operations[usize::from(low)]));
        }
    }
    table.insert(0x81, "CNP".into());
    assert_eq!(names, table);
    assert_eq!(Opcode(0x15).to_string(), "opcode 0x15");
    assert_eq!(Opcode(0x80).to_string(), "opcode 0x80");
}

#[test]
fn opcodes_come_apart_and_together() {
    for byte in 0..=255 {
        let opcode = Opcode(byte);
        if let Some(operation) = opcode.operation() {
            assert_eq!(Opcode::new(opcode.transport(), operation), opcode);
            assert_eq!(Operation::from_bits(byte & 0x1f), Some(operation));
        }
        let transport = match byte {
            0x81 => Transport::Cnp,
            0x00..=0x1f => Transport::Rc,
            0x20..=0x3f => Transport::Uc,
            0x40..=0x5f => Transport::Rd,
            0x60..=0x7f => Transport::Ud,
            0xa0..=0xbf => Transport::Xrc,
            0xc0..=0xdf => Transport::Dc,
            _ => Transport::Other,
        };
        assert_eq!(opcode.transport(), transport);
    }
    let everywhere = [Transport::Rd, Transport::Other, Transport::Cnp];
    for (transport, operation) in everywhere.iter().flat_map(|t| Operation::ALL.map(|o| (*t, o))) {
        let opcode = Opcode::new(transport, operation);
        assert_eq!((opcode.transport(), opcode.operation()), (transport, None));
    }
}

#[test]
fn each_operation_has_one_place() {
    for o in Operation::ALL {
        assert_ne!(o.is_request(), o.is_response(), "{o}");
        let kinds = [o.is_send(), o.is_write(), o.is_read_response(), o.is_atomic()];
        let single = matches!(
            o,
            Operation::ReadRequest
                | Operation::Acknowledge
                | Operation::AtomicAcknowledge
                | Operation::Connect
                | Operation::Disconnect
        );
        assert_eq!(kinds.iter().filter(|k| **k).count(), usize::from(!single), "{o}");
        let places = [o.is_first(), o.is_middle(), o.is_last(), o.is_only()];
        let single = single || o.is_atomic();
        assert_eq!(places.iter().filter(|p| **p).count(), usize::from(!single), "{o}");
        for (is, word) in [
            (o.is_first(), "_FIRST"),
            (o.is_middle(), "_MIDDLE"),
            (o.is_last(), "_LAST"),
            (o.is_only(), "_ONLY"),
            (o.has_imm(), "WITH_IMMEDIATE"),
            (o.has_ieth(), "WITH_INVALIDATE"),
            (o.is_write(), "RDMA_WRITE"),
            (o.is_read_response(), "READ_RESPONSE"),
            (o.has_atomicacketh(), "ATOMIC_ACK"),
        ] {
            assert_eq!(is, o.name().contains(word), "{o} {word}");
        }
        assert_eq!(o.starts_message(), o.is_first() || o.is_only() || single, "{o}");
        assert_eq!(o.ends_message(), o.is_last() || o.is_only() || single, "{o}");
    }
}

#[test]
fn headers_of_every_opcode_are_read_back() {
    let mut rng = Rng(2);
    for opcode in crate::common::opcodes() {
        for _ in 0..50 {
            let headers = crate::common::headers(&mut rng, opcode);
            assert!(headers.is_consistent(), "{opcode}");
            let mut out = [0; HEADERS_MAX];
            let len = headers.emit(&mut out).unwrap();
            assert_eq!(len, headers.len());
            assert_eq!(Headers::parse(&out[..len]), Ok((headers, len)));
            for cut in 0..len {
                assert_eq!(Headers::parse(&out[..cut]), Err(Error::Truncated), "{opcode}");
                let mut short = out;
                assert_eq!(headers.emit(&mut short[..cut]), Err(Error::Truncated), "{opcode}");
            }
        }
    }
}

#[test]
fn unknown_opcodes_are_refused() {
    for byte in 0..=255 {
        let opcode = Opcode(byte);
        if opcode.operation().is_none() && opcode != Opcode::CNP {
            let mut bytes = [0; 64];
            bytes[0] = byte;
            assert_eq!(Headers::parse(&bytes), Err(Error::Kind), "{opcode}");
        }
    }
}

#[test]
fn headers_must_fit_the_opcode() {
    let mut rng = Rng(3);
    let all: Vec<Headers> = crate::common::opcodes()
        .iter()
        .map(|o| crate::common::headers(&mut rng, *o))
        .collect();
    let mut out = [0; HEADERS_MAX];
    let (mut fit, mut unfit) = (0, 0);
    for (a, b) in all.iter().flat_map(|a| all.iter().map(move |b| (a, b))) {
        let mixed = Headers { bth: a.bth, ..*b };
        let alike = std::mem::discriminant(&a.extended) == std::mem::discriminant(&b.extended)
            && a.xrceth.is_some() == b.xrceth.is_some()
            && a.dceth.is_some() == b.dceth.is_some();
        assert_eq!(mixed.emit(&mut out).is_ok(), alike);
        assert_eq!(mixed.is_consistent(), alike);
        *(if alike { &mut fit } else { &mut unfit }) += 1;
    }
    assert!(fit > 60 && unfit > 2000, "{fit} {unfit}");
    assert!(Extended::None.is_empty() && !Extended::Cnp(cnp::Header::default()).is_empty());
}

#[test]
fn a_congestion_notification() {
    let mut out = [0xee; 28];
    assert_eq!(Headers::cnp(0x12_3456).emit(&mut out), Ok(28));
    assert_eq!(
        out[..12],
        [0x81, 0x00, 0xff, 0xff, 0x40, 0x12, 0x34, 0x56, 0, 0, 0, 0]
    );
    assert_eq!(out[12..], [0; 16]);
}

#[test]
fn syndromes_of_every_byte() {
    for byte in 0..=255 {
        let s = Syndrome::from_byte(byte);
        assert_eq!(s.byte(), byte);
        let value = byte & 31;
        match byte {
            0..=31 => assert_eq!(s, Syndrome::Ack { credits: value }),
            32..=63 => assert_eq!(s, Syndrome::RnrNak { timer: value }),
            96..=127 => assert_eq!(s, Syndrome::Nak(NakCode::from_code(value))),
            _ => assert_eq!(s, Syndrome::Reserved(byte)),
        }
    }
    assert_eq!(NakCode::from_code(0), NakCode::SequenceError);
    assert_eq!(NakCode::from_code(5), NakCode::Reserved(5));
}

#[test]
fn credit_table() {
    let table: Vec<Option<u32>> = (0..=32).map(aeth::credits).collect();
    assert_eq!(table[..5], [Some(0), Some(1), Some(2), Some(3), Some(4)]);
    assert_eq!((table[30], table[31], table[32]), (Some(32768), None, None));
    // From 2 on, each entry is twice the one two before.
    for w in table[2..31].windows(3) {
        assert_eq!(w[2], w[0].map(|c| c * 2));
    }
    for code in 0..=30 {
        let credits = aeth::credits(code).unwrap();
        assert_eq!(aeth::credit_code(credits), code);
        assert_eq!(
            aeth::credit_code((credits + 1).saturating_sub(2)),
            code.saturating_sub(u8::from(credits > 0))
        );
    }
    assert_eq!(aeth::credit_code(u32::MAX), 30);
    assert_eq!(aeth::credit_code(5), 4);
}

#[test]
fn rnr_timer_table() {
    // In units of 0.01 ms.
    let table = [
        65_536u64, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1_024, 1_536,
        2_048, 3_072, 4_096, 6_144, 8_192, 12_288, 16_384, 24_576, 32_768, 49_152,
    ];
    for (code, units) in (0..).zip(table) {
        assert_eq!(aeth::rnr_timer(code), Duration::from_micros(units * 10));
    }
}

#[test]
fn identifiers() {
    let v4 = Gid::from_ipv4([10, 0, 0, 1]);
    assert_eq!(v4.to_string(), "::ffff:10.0.0.1");
    assert_eq!(v4.to_ipv4(), Some([10, 0, 0, 1]));
    let link = Gid::from_mac(MacAddr([0x52, 0x54, 0, 0x12, 0x34, 0x56]));
    assert_eq!(link.to_string(), "fe80::5054:ff:fe12:3456");
    assert_eq!(link.to_ipv4(), None);
    for gid in [v4, link, Gid::UNSPECIFIED] {
        assert!(!gid.is_multicast());
        assert_eq!(gid.multicast_mac(), None);
        assert_eq!(gid.to_string().parse(), Ok(gid));
    }
    let group = |s: &str| s.parse::<Gid>().unwrap().multicast_mac().map(|m| m.to_string());
    assert_eq!(group("ff0e::1:2345:6789").as_deref(), Some("33:33:23:45:67:89"));
    assert_eq!(
        group("ff0e::ffff:239.1.2.3").as_deref(),
        Some("33:33:ef:01:02:03")
    );
    assert_eq!(group("::ffff:239.129.2.3").as_deref(), Some("01:00:5e:01:02:03"));
    assert_eq!("10.0.0.1".parse::<Gid>(), Err(ParseGidError));
    assert!("x".parse::<Gid>().unwrap_err().to_string().contains("not a GID"));
}
