//! Datagrams of subnet administration: each bit is a field or reserved as the standard's tables say, and `parse` undoes `emit`.

use proptest::prelude::*;
use vnic_wire::gid::Gid;
use vnic_wire::sa::{
    Bound, ClassPortInfo, DATA_LEN, McMemberRecord, MultiPathRecord, PathRecord, Rmpp, RmppType, SaMad,
    Selector, attribute, method, status,
};
use vnic_wire::{Error, mad};

/// Turns each bit on alone: it is kept, or is one of the reserved ones, (first byte, last byte, bits).
fn each_bit<const N: usize>(again: impl Fn(&[u8; N]) -> [u8; N], reserved: &[(usize, usize, u8)]) {
    for bit in 0..8 * N {
        let (at, mask) = (bit / 8, 0x80_u8 >> (bit % 8));
        let mut bytes = [0; N];
        bytes[at] = mask;
        let kept = again(&bytes);
        let is_reserved = reserved
            .iter()
            .any(|(from, to, bits)| (*from..=*to).contains(&at) && bits & mask != 0);
        if is_reserved {
            bytes[at] = 0;
        }
        assert_eq!(kept, bytes, "byte {at}, bit {mask:#04x}");
    }
}

#[test]
fn each_bit_is_a_field_or_reserved() {
    let path = |b: &[u8; 64]| PathRecord::parse(b).unwrap().emit();
    each_bit(path, &[(44, 44, 0x70), (58, 63, 0xff)]);
    let multi = |b: &[u8; DATA_LEN]| MultiPathRecord::parse(b).unwrap().emit();
    each_bit(multi, &[(0, 0, 0x70), (14, 14, 0x3f)]);
    let member = |b: &[u8; 52]| McMemberRecord::parse(b).unwrap().emit();
    each_bit(member, &[(49, 49, 0x7f), (50, 51, 0xff)]);
    let info = |b: &[u8; 72]| ClassPortInfo::parse(b).unwrap().emit();
    each_bit(info, &[(8, 71, 0xff)]);
    let whole = |b: &[u8; mad::LEN]| {
        let mut b = *b;
        // Base version and class are what they are.
        (b[0], b[1]) = (1, 3);
        let mut b = SaMad::parse(&b).unwrap().emit();
        (b[0], b[1]) = (0, 0);
        b
    };
    each_bit(
        whole,
        &[(0, 1, 0xff), (6, 7, 0xff), (18, 19, 0xff), (46, 47, 0xff)],
    );
}

#[test]
fn fields_stand_where_the_tables_say() {
    let record = PathRecord {
        service_id: 0x0102_0304_0506_0708,
        dgid: Gid([0xd; 16]),
        sgid: Gid([0xe; 16]),
        dlid: 0x1112,
        slid: 0x1314,
        raw_traffic: true,
        flow_label: 0x2_1222,
        hop_limit: 0x31,
        traffic_class: 0x32,
        reversible: true,
        paths: 0x15,
        pkey: 0x4142,
        qos_class: 0x512,
        sl: 3,
        mtu: Bound::exactly(5),
        rate: Bound {
            selector: Selector::Less,
            value: 16,
        },
        packet_life: Bound {
            selector: Selector::Best,
            value: 18,
        },
        preference: 9,
    };
    let b = record.emit();
    assert_eq!(b[..8], [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(
        (b[8..24].to_vec(), b[24..40].to_vec()),
        ([0xd; 16].to_vec(), [0xe; 16].to_vec())
    );
    assert_eq!(b[40..48], [0x11, 0x12, 0x13, 0x14, 0x82, 0x12, 0x22, 0x31]);
    assert_eq!(
        b[48..58],
        [0x32, 0x95, 0x41, 0x42, 0x51, 0x23, 0x85, 0x50, 0xd2, 9]
    );

    let many = MultiPathRecord {
        service_id: 0x0102_0304_0506_0708,
        counts: [1, 2],
        independence: 2,
        gids: std::array::from_fn(|i| Gid([i as u8; 16])),
        ..MultiPathRecord::default()
    };
    let b = many.emit();
    assert_eq!(b[13..24], [1, 0x80, 1, 2, 2, 3, 4, 5, 6, 7, 8]);
    let [sources, destinations] = many.ends().unwrap();
    assert_eq!((sources, destinations), (&many.gids[..1], &many.gids[1..3]));
    for counts in [[11, 1], [0, 12], [255, 255]] {
        assert_eq!(MultiPathRecord { counts, ..many }.ends(), None);
    }
}

/// The components of a MultiPathRecord are those of a PathRecord, elsewhere.
#[test]
fn what_is_asked_of_many_paths_is_asked_of_each() {
    use {MultiPathRecord as M, PathRecord as P};
    for (of_many, of_one) in [
        (M::RAW_TRAFFIC, P::RAW_TRAFFIC),
        (M::FLOW_LABEL, P::FLOW_LABEL),
        (M::HOP_LIMIT, P::HOP_LIMIT),
        (M::TRAFFIC_CLASS, P::TRAFFIC_CLASS),
        (M::REVERSIBLE, P::REVERSIBLE),
        (M::PATHS, P::PATHS),
        (M::PKEY, P::PKEY),
        (M::QOS_CLASS, P::QOS_CLASS),
        (M::SL, P::SL),
        (M::MTU_SELECTOR | M::MTU, P::MTU_SELECTOR | P::MTU),
        (M::RATE_SELECTOR | M::RATE, P::RATE_SELECTOR | P::RATE),
        (
            M::PACKET_LIFE_SELECTOR | M::PACKET_LIFE,
            P::PACKET_LIFE_SELECTOR | P::PACKET_LIFE,
        ),
        (M::SERVICE_ID, P::SERVICE_ID),
        (M::INDEPENDENCE | M::SOURCES | M::DESTINATIONS | M::GIDS, 0),
    ] {
        assert_eq!(M::default().each(of_many).1, of_one, "{of_many:#x}");
    }
    // Half a Service-ID stays a half.
    assert_eq!(M::default().each(1 << 16).1, 1);
}

/// A response with a table of MCMemberRecords.
fn table(records: &[[u8; 52]]) -> Vec<SaMad> {
    let answer = SaMad::new(method::GET_TABLE, attribute::MCMEMBER_RECORD, 7).response(status::OK);
    assert_eq!((answer.method, answer.transaction), (0x92, 7));
    answer.segments(records)
}

#[test]
fn a_short_table_is_one_segment() {
    let records = [[1_u8; 52], [2; 52], [3; 52]];
    let segments = table(&records);
    let [one] = &segments[..] else {
        panic!("{} segments", segments.len())
    };
    assert_eq!(one.attribute_offset, 7);
    let rmpp = one.rmpp;
    assert_eq!((rmpp.version, rmpp.kind, rmpp.flags), (1, RmppType::DATA, 7));
    assert_eq!((rmpp.segment, rmpp.payload_len), (1, 20 + 3 * 56));
    assert!(rmpp.is_alone());
    assert_eq!(one.table::<52>().copied().collect::<Vec<_>>(), records);
    // None is a table, too.
    let none = table(&[]);
    assert_eq!((none.len(), none[0].rmpp.payload_len), (1, 20));
    assert_eq!(none[0].table::<52>().count(), 0);
    // A peer that lies about distance or length gets nothing that is not there.
    for (attribute_offset, payload_len) in [(0, 100), (6, 200), (7, u32::MAX), (u16::MAX, 220), (7, 0)] {
        let mut lies = SaMad {
            attribute_offset,
            ..*one
        };
        lies.rmpp.payload_len = payload_len;
        assert!(
            lies.table::<52>().count() <= 3,
            "{attribute_offset} {payload_len}"
        );
    }
}

/// Datagrams of `rmpp/record`: whether it comes from administration, and the datagram.
fn recorded() -> Vec<(bool, SaMad)> {
    let lines = include_str!("../rmpp/linux.txt").lines();
    let read = lines.map(|line| {
        let (from, hex) = line.split_once(' ').unwrap();
        let mut bytes = [0; mad::LEN];
        for (byte, i) in bytes.iter_mut().zip((0..hex.len()).step_by(2)) {
            *byte = u8::from_str_radix(&hex[i..i + 2], 16).unwrap();
        }
        (from == "SA", SaMad::parse(&bytes).unwrap())
    });
    read.collect()
}

#[test]
fn segments_are_those_of_linux() {
    let all = recorded();
    for (transaction, count) in [(all[0].1.transaction, 40), (all.last().unwrap().1.transaction, 5)] {
        let of = |from| {
            let mads = all
                .iter()
                .filter(move |(sa, mad)| *sa == from && mad.transaction == transaction);
            mads.map(|(_, mad)| *mad)
        };
        let question = of(false).next().unwrap();
        let records: Vec<[u8; 52]> = (1..=count).map(|n| [n; 52]).collect();
        let mut ours = question.response(status::OK).segments(&records);
        for segment in &mut ours {
            // Linux says that it takes no time, we say nothing of it.
            assert_eq!(segment.rmpp.response_time, Rmpp::NO_TIME);
            segment.rmpp.response_time = 0;
        }
        assert_eq!(ours, of(true).collect::<Vec<_>>());
        // Acknowledgements are of the question's method.
        let acks: Vec<_> = of(false).skip(1).collect();
        let rmpp = |mad: &SaMad| Rmpp {
            response_time: 0,
            ..Rmpp::ack(mad.rmpp.segment, 65)
        };
        assert!(acks.len() == 2 && acks.iter().all(|ack| ack.rmpp == rmpp(ack) && ack.method == 0x12));
    }
}

/// 220 bytes of each segment count, of the last one fewer.
#[test]
fn a_long_table_goes_on_in_further_segments() {
    for count in 1..60_u8 {
        let records: Vec<[u8; 52]> = (0..count).map(|n| [n; 52]).collect();
        let segments = table(&records);
        let bytes = usize::from(count) * 56;
        assert_eq!(segments.len(), bytes.div_ceil(200));
        let (mut payload, last) = (Vec::new(), segments.len() as u32);
        for (segment, number) in segments.iter().zip(1..) {
            // Each has all headers.
            let headers = SaMad {
                rmpp: segments[0].rmpp,
                data: segments[0].data,
                ..*segment
            };
            assert_eq!(headers, segments[0]);
            let rmpp = segment.rmpp;
            assert_eq!((rmpp.version, rmpp.kind, rmpp.status), (1, RmppType::DATA, 0));
            assert_eq!((rmpp.segment, rmpp.response_time), (number, 0x1f));
            let ends = u8::from(number == 1) << 1 | u8::from(number == last) << 2;
            assert_eq!(rmpp.flags, 1 | ends);
            assert_eq!(rmpp.is_alone(), last == 1);
            let pad = 200 * segments.len() - bytes;
            let len = match number {
                _ if number == last => 220 - pad,
                1 => 220 * segments.len() - pad,
                _ => 0,
            };
            assert_eq!(rmpp.payload_len as usize, len, "segment {number} of {last}");
            payload.extend(segment.payload());
            let again = SaMad::parse(&segment.emit()).unwrap();
            assert_eq!(again, *segment);
        }
        let again: Vec<_> = segments[0].records::<52>(&payload).copied().collect();
        assert_eq!(again, records);
    }
}

#[test]
fn other_datagrams_are_refused() {
    let good = SaMad::new(method::GET, attribute::CLASS_PORT_INFO, 1).emit();
    for len in 0..mad::LEN {
        assert_eq!(SaMad::parse(&good[..len]), Err(Error::Truncated));
    }
    for (at, byte) in [(0, 0), (0, 2), (1, 7), (1, 1)] {
        let mut bytes = good;
        bytes[at] = byte;
        assert_eq!(SaMad::parse(&bytes), Err(Error::Kind));
    }
    assert_eq!(PathRecord::parse(&[0; 63]), Err(Error::Truncated));
    assert_eq!(McMemberRecord::parse(&[0; 51]), Err(Error::Truncated));
    assert_eq!(MultiPathRecord::parse(&[0; 199]), Err(Error::Truncated));
    assert_eq!(ClassPortInfo::parse(&[0; 71]), Err(Error::Truncated));
}

proptest! {
    #[test]
    fn what_was_written_is_read(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(read) = SaMad::parse(&bytes) {
            prop_assert_eq!(SaMad::parse(&read.emit()), Ok(read));
        }
        if let Ok(read) = PathRecord::parse(&bytes) {
            prop_assert_eq!(PathRecord::parse(&read.emit()), Ok(read));
        }
        if let Ok(read) = MultiPathRecord::parse(&bytes) {
            prop_assert_eq!(MultiPathRecord::parse(&read.emit()), Ok(read));
        }
        if let Ok(read) = McMemberRecord::parse(&bytes) {
            prop_assert_eq!(McMemberRecord::parse(&read.emit()), Ok(read));
        }
        if let Ok(read) = ClassPortInfo::parse(&bytes) {
            prop_assert_eq!(ClassPortInfo::parse(&read.emit()), Ok(read));
        }
    }
}
