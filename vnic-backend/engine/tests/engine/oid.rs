//! OIDs: what each answers, byte by byte, and what setting one asks for.

use proptest::prelude::*;
use vnic_engine::oid::{
    self, Act, Facts, Failure, Link, OIDS, Statistics, Status, describe, oid as row, query, set,
};
use vnic_wire::MacAddr;

const ROOM: usize = 4096;

fn facts() -> Facts<'static> {
    Facts {
        address: MacAddr([2, 0, 0, 0, 0, 7]),
        mtu: 9000,
        link: Link {
            up: true,
            speed: 100_000_000_000,
        },
        failed: false,
        description: "a NIC",
        version: (3, 9),
        dropless: false,
        statistics: Statistics {
            in_ucast_pkts: Some(10),
            in_multicast_pkts: Some(20),
            in_broadcast_pkts: Some(30),
            in_errors: Some(4),
            out_ucast_pkts: Some(0x1_0000_0001),
            out_broadcast_octets: Some(77),
            no_buffer: 5,
            ..Statistics::default()
        },
    }
}

fn data(code: u32) -> Vec<u8> {
    let answer = query(code, &facts(), ROOM);
    assert_eq!(answer.status, Status::SUCCESS);
    assert_eq!(answer.needed, answer.data.len());
    answer.data
}

fn number(code: u32) -> u32 {
    u32::from_le_bytes(data(code).try_into().expect("four bytes"))
}

#[test]
fn rows_are_whole_and_in_order() {
    assert!(OIDS.is_sorted_by(|a, b| a.code < b.code));
    for def in OIDS {
        assert!(def.help.ends_with('.') && !def.source.is_empty(), "{}", def.name);
        assert_eq!(row(def.code), Some(def));
        let said = describe(def, &data(def.code));
        assert!(!said.is_empty(), "{} says nothing", def.name);
        assert_eq!(def.settable, def.code == oid::DROPLESS_MODE, "{}", def.name);
    }
}

#[test]
fn numbers() {
    assert_eq!(number(oid::MAXIMUM_FRAME_SIZE), 9000);
    assert_eq!(number(oid::MAXIMUM_TOTAL_SIZE), 9014);
    assert_eq!(number(oid::LINK_SPEED), 1_000_000_000);
    assert_eq!(number(oid::MEDIA_CONNECT_STATUS), 0);
    assert_eq!(number(oid::HARDWARE_STATUS), 0);
    assert_eq!(number(oid::VENDOR_DRIVER_VERSION), 0x0003_0009);
    assert_eq!(number(oid::MAXIMUM_LIST_SIZE), 0);
    assert_eq!(data(oid::CURRENT_ADDRESS), [2, 0, 0, 0, 0, 7]);
    assert_eq!(data(oid::PERMANENT_ADDRESS), [2, 0, 0, 0, 0, 7]);
    assert_eq!(data(oid::MULTICAST_LIST), []);
    assert_eq!(data(oid::VENDOR_DESCRIPTION), b"a NIC\0");
    let down = Facts {
        link: Link {
            up: false,
            speed: u64::MAX,
        },
        failed: true,
        ..facts()
    };
    assert_eq!(query(oid::MEDIA_CONNECT_STATUS, &down, ROOM).data, [1, 0, 0, 0]);
    assert_eq!(query(oid::HARDWARE_STATUS, &down, ROOM).data, [4, 0, 0, 0]);
    assert_eq!(query(oid::LINK_SPEED, &down, ROOM).data, [0xff; 4]);
}

#[test]
fn the_supported_list_is_the_table() {
    let list: Vec<u32> = data(oid::SUPPORTED_LIST)
        .chunks(4)
        .map(|c| u32::from_le_bytes(c.try_into().expect("four bytes")))
        .collect();
    assert_eq!(list, OIDS.iter().map(|d| d.code).collect::<Vec<_>>());
}

#[test]
fn counters_have_four_or_eight_bytes() {
    assert_eq!(data(oid::XMIT_OK), 0x1_0000_0001u64.to_le_bytes());
    assert_eq!(data(oid::RCV_OK), 60u64.to_le_bytes());
    assert_eq!(data(oid::RCV_NO_BUFFER), 5u64.to_le_bytes());
    for room in 4..8 {
        let short = query(oid::XMIT_OK, &facts(), room);
        assert_eq!((short.status, short.needed), (Status::SUCCESS, 8));
        assert_eq!(short.data, [1, 0, 0, 0]);
    }
    let none = query(oid::XMIT_OK, &facts(), 3);
    assert_eq!(
        (none.status, none.needed, none.data.len()),
        (Status::BUFFER_TOO_SHORT, 8, 0)
    );
}

#[test]
fn statistics_have_the_layout_of_c() {
    let bytes = data(oid::STATISTICS);
    assert_eq!(bytes.len(), 152);
    assert_eq!(bytes[..4], [0x80, 1, 152, 0]);
    // Unicast, multicast and broadcast frames and errors received, unicast frames and broadcast bytes sent.
    assert_eq!(
        bytes[4..8],
        (0x1u32 | 0x2 | 0x4 | 0x20 | 0x40 | 0x20_0000).to_le_bytes()
    );
    let member = |i: usize| u64::from_le_bytes(bytes[8 + 8 * i..16 + 8 * i].try_into().expect("eight bytes"));
    let members: Vec<u64> = (0..18).map(member).collect();
    let mut wanted = [0; 18];
    (wanted[1], wanted[3], wanted[4], wanted[5], wanted[7], wanted[17]) = (4, 10, 20, 30, 0x1_0000_0001, 77);
    assert_eq!(members, wanted);
    let said = describe(row(oid::STATISTICS).expect("a row"), &bytes);
    assert!(
        said.contains("ifHCInUcastPkts: 10\n") && said.contains("ifOutDiscards: not counted"),
        "{said}"
    );
}

#[test]
fn link_state_has_the_layout_of_c() {
    let bytes = data(oid::LINK_STATE);
    let speed = 100_000_000_000u64.to_le_bytes();
    let wanted = [
        &[0x80, 1, 40, 0][..],
        &[1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0],
        &speed,
        &speed,
        &[0; 8],
    ]
    .concat();
    assert_eq!(bytes, wanted);
    assert_eq!(data(oid::MAX_LINK_SPEED), [speed, speed].concat());
}

const OFF: Failure = Failure {
    status: Status::INVALID_DATA,
    needed: 0,
};

#[test]
fn dropless_mode_is_set_as_documented() {
    let on: [u8; 5] = [0xa2, 0x1e, 0x0c, 0x00, 1];
    let off: [u8; 5] = [0xa2, 0x1e, 0x0c, 0x00, 2];
    let padded = |packed: [u8; 5], padding: u8| [&packed[..], &[padding; 3]].concat();
    for (bytes, act) in [
        (on.to_vec(), true),
        (off.to_vec(), false),
        (padded(on, 0), true),
        (padded(off, 0xcc), false),
    ] {
        assert_eq!(
            set(oid::DROPLESS_MODE, &bytes),
            Ok(Act::Dropless(act)),
            "{bytes:x?}"
        );
    }
    for mode in (0..=u8::MAX).filter(|m| ![1, 2].contains(m)) {
        assert_eq!(set(oid::DROPLESS_MODE, &[0xa2, 0x1e, 0x0c, 0, mode]), Err(OFF));
    }
    // Another order of the bytes, another signature.
    for wrong in [[0x00, 0x0c, 0x1e, 0xa2, 1], [0xa2, 0x1e, 0x0c, 0x01, 1], [0; 5]] {
        assert_eq!(set(oid::DROPLESS_MODE, &wrong), Err(OFF));
    }
    for length in (0..64).filter(|l| ![5, 8].contains(l)) {
        let mut bytes = padded(on, 0);
        bytes.resize(length, 0);
        let failure = set(oid::DROPLESS_MODE, &bytes).expect_err("a wrong length");
        assert_eq!((failure.status, failure.needed), (Status::INVALID_LENGTH, 5));
    }
}

#[test]
fn dropless_mode_is_answered_as_documented() {
    for on in [false, true] {
        let facts = Facts {
            dropless: on,
            ..facts()
        };
        let packed = [0xa2, 0x1e, 0x0c, 0x00, u8::from(on)];
        for room in [5, 6, 7] {
            assert_eq!(query(oid::DROPLESS_MODE, &facts, room).data, packed);
        }
        for room in [8, 9, 100] {
            assert_eq!(
                query(oid::DROPLESS_MODE, &facts, room).data,
                [&packed[..], &[0; 3]].concat()
            );
        }
        for room in 0..5 {
            let short = query(oid::DROPLESS_MODE, &facts, room);
            assert_eq!((short.status, short.needed), (Status::BUFFER_TOO_SHORT, 5));
        }
    }
}

#[test]
fn unknown_and_read_only_oids() {
    assert_eq!(query(0x0001_0999, &facts(), ROOM).status, Status::INVALID_OID);
    assert_eq!(
        set(0x0001_0999, &[1]).map_err(|f| f.status),
        Err(Status::INVALID_OID)
    );
    for def in OIDS.iter().filter(|d| !d.settable) {
        assert_eq!(
            set(def.code, &[0; 4]).map_err(|f| f.status),
            Err(Status::NOT_SUPPORTED),
            "{}",
            def.name
        );
    }
    assert_eq!(
        Status::INVALID_LENGTH.to_string(),
        "NDIS_STATUS_INVALID_LENGTH (0xC0010014)"
    );
}

proptest! {
    /// Any code, any room: an answer that fits, or how much room it takes, which is then enough.
    #[test]
    fn answers_fit(at in 0..OIDS.len(), code in any::<u32>(), known in any::<bool>(), room in 0usize..200) {
        let code = if known { OIDS[at].code } else { code };
        let answer = query(code, &facts(), room);
        prop_assert!(answer.data.len() <= room);
        if answer.status == Status::BUFFER_TOO_SHORT {
            prop_assert!(answer.needed > room && answer.data.is_empty());
            prop_assert_eq!(query(code, &facts(), answer.needed).status, Status::SUCCESS);
        }
    }

    /// Any bytes: no panic, and only the documented ones do something.
    #[test]
    fn any_bytes(at in 0..OIDS.len(), bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let def = &OIDS[at];
        let _ = describe(def, &bytes);
        if set(def.code, &bytes).is_ok() {
            prop_assert_eq!(def.code, oid::DROPLESS_MODE);
            prop_assert!(bytes.starts_with(&[0xa2, 0x1e, 0x0c, 0]) && [5, 8].contains(&bytes.len()));
        }
    }
}
