//! Captured bytes, what is left out, and any bytes.

use proptest::prelude::*;

use super::*;

/// TLVs of a switch (Juniper QFX3500; Wireshark's sample capture `dcbx_sample_capture_1`).
const SWITCH: &[u8] = &[
    0xfe, 0x3d, 0x00, 0x1b, 0x21, 0x02, 0x02, 0x0a, 0, 0, 0, 0, 0, 2, 0, 0, 0, 3, 0x04, 0x11, 0, 0, 0x80, 0,
    0x77, 0x77, 0x77, 0x77, 0, 0, 0, 0, 0, 0, 0, 100, 3, 0x06, 0x06, 0, 0, 0x80, 0, 0x00, 8, 0x08, 0x10, 0,
    0, 0x80, 0, 0xc3, 0x51, 0x01, 0x1b, 0x21, 0x02, 0xc3, 0x50, 0x01, 0x1b, 0x21, 0x04,
];

/// TLVs of a host (Chelsio; Wireshark's sample capture `dcbx_sample_capture_2`).
const HOST: &[u8] = &[
    0xfe, 0x43, 0x00, 0x1b, 0x21, 0x02, 0x02, 0x0a, 0, 0, 0, 0, 0, 3, 0, 0, 0, 2, 0x04, 0x11, 0, 0, 0xc0, 0,
    0x00, 0x00, 0x11, 0x1f, 25, 75, 0, 0, 0, 0, 0, 0, 8, 0x06, 0x06, 0, 0, 0xc0, 0, 0x08, 8, 0x08, 0x16, 0,
    0, 0xe0, 0, 0x89, 0x06, 0x00, 0x1b, 0x21, 0x08, 0x0c, 0xbc, 0x01, 0x1b, 0x21, 0x08, 0x89, 0x14, 0x00,
    0x1b, 0x21, 0x08,
];

fn parsed(bytes: &[u8]) -> (Option<Cee>, u32) {
    let mut unread = 0;
    (Cee::parse(bytes, &mut unread), unread)
}

#[test]
fn captured_bytes() {
    for bytes in [SWITCH, HOST] {
        let (said, unread) = parsed(bytes);
        let mut again = Vec::new();
        said.expect("it is CEE").emit(&mut again);
        assert_eq!((again, unread), (bytes.to_vec(), 0));
    }
    let switch = parsed(SWITCH).0.expect("it is CEE");
    let c = switch.control;
    assert_eq!((c.operating, c.sequence, c.acknowledged), (0, 2, 3));
    let said = switch.exchange();
    let ets = said.ets.expect("groups");
    assert_eq!(ets.classes.of_priority, [7; 8]);
    assert_eq!(
        (ets.classes.share[7], ets.classes.algorithm[7]),
        (100, Algorithm::Ets)
    );
    assert_eq!((ets.willing, ets.classes_max), (false, 3));
    assert_eq!(
        said.pfc.map(|pfc| (pfc.willing, pfc.capability, pfc.priorities)),
        Some((false, 8, 0))
    );
    let of = |a: &Application| (a.selector, a.protocol, a.priority);
    assert_eq!(
        said.applications.iter().map(of).collect::<Vec<_>>(),
        [(4, 50001, 1), (4, 50000, 2)]
    );

    let host = parsed(HOST).0.expect("it is CEE");
    let groups = host.groups.expect("groups");
    assert_eq!(groups.value.of_priority, [0, 0, 0, 0, 1, 1, 1, STRICT]);
    assert_eq!(
        (groups.enabled, groups.willing, groups.error),
        (true, true, false)
    );
    let rows = host.applications.as_ref().expect("applications");
    assert_eq!((rows.enabled, rows.willing, rows.error), (true, true, true));
    let said = host.exchange();
    let classes = said.ets.expect("groups").classes;
    assert_eq!(classes.of_priority, [0, 0, 0, 0, 1, 1, 1, 7]);
    assert_eq!(
        classes.algorithm[..3],
        [Algorithm::Ets, Algorithm::Ets, Algorithm::Strict]
    );
    assert_eq!(said.pfc.map(|pfc| pfc.priorities), Some(1 << 3));
    let applications: Vec<_> = said.applications.iter().map(of).collect();
    assert_eq!(applications, [(1, 0x8906, 3), (4, 3260, 3), (1, 0x8914, 3)]);
}

#[test]
fn what_is_there_twice_or_has_another_length_is_not_taken() {
    assert_eq!(parsed(&[SWITCH, SWITCH].concat()), (None, 1));
    // Without a control TLV, with two, and with a part that ends beyond the whole.
    let inner = |parts: &[&[u8]]| {
        let mut out = Vec::new();
        lldp::put(
            &mut out,
            kind::ORGANIZATION,
            &[&[&OUI[..], &[SUBTYPE]], parts].concat(),
        );
        parsed(&out)
    };
    let (control, pause) = (&SWITCH[6..18], &SWITCH[37..45]);
    assert_eq!(inner(&[pause]), (None, 1));
    assert_eq!(inner(&[control, control]), (None, 1));
    assert_eq!(inner(&[control, &pause[..7]]), (None, 1));
    let (said, unread) = inner(&[control, pause, pause]);
    assert_eq!((said.map(|said| said.pause), unread), (Some(None), 1));
    // A feature of another length, of another subtype, and one that is not known.
    let (said, unread) = inner(&[control, &[0x06, 0x05, 0, 0, 0x80, 0, 8]]);
    assert_eq!((said.map(|said| said.pause), unread), (Some(None), 1));
    let (said, unread) = inner(&[
        control,
        &[0x06, 0x06, 0, 0, 0x80, 1, 8, 8],
        &[0x0c, 0x04, 0, 0, 0x80, 0],
        pause,
    ]);
    assert_eq!(
        (
            said.and_then(|said| said.pause).map(|p| p.value.priorities),
            unread
        ),
        (Some(0), 0)
    );
}

#[test]
fn groups_are_classes() {
    let (ets, strict) = (Algorithm::Ets, Algorithm::Strict);
    let groups = |of_priority, share| Groups {
        of_priority,
        share,
        classes_max: 8,
    };
    let none = [0; 8];
    // Strict priorities have the greatest class that no group has.
    let classes = groups([0, 1, 7, 7, 15, 15, 1, 0], [10, 20, 0, 0, 0, 0, 0, 70]).classes(8);
    assert_eq!(classes.of_priority, [0, 1, 7, 7, 6, 6, 1, 0]);
    let few = groups([0, 0, 0, 1, 1, 1, 1, 15], [30, 70, 0, 0, 0, 0, 0, 0]).classes(4);
    assert_eq!(few.of_priority, [0, 0, 0, 1, 1, 1, 1, 3]);
    assert_eq!(
        classes.algorithm,
        [ets, ets, strict, strict, strict, strict, strict, ets]
    );
    assert_eq!(
        Groups::of(&classes),
        groups([0, 1, 7, 7, 15, 15, 1, 0], [10, 20, 0, 0, 0, 0, 0, 70])
    );
    // A group that there is not, and no class that is left.
    assert_eq!(groups([9; 8], none).classes(8).algorithm[0], Algorithm::Other(9));
    assert_eq!(
        groups([15; 8], [13; 8]).classes(8).algorithm[0],
        Algorithm::Other(15)
    );
    // A group without a share is one.
    assert_eq!(
        groups([3; 8], [100, 0, 0, 0, 0, 0, 0, 0]).classes(8).algorithm[3],
        ets
    );
}

#[test]
fn ports_of_both_protocols_are_one_row() {
    let row = |selector, protocol, priority| Application {
        selector,
        protocol,
        priority,
    };
    let told = rows(&[
        row(1, 0x8915, 3),
        row(5, 26, 3),
        row(2, 445, 5),
        row(3, 445, 2),
        row(4, 4791, 3),
    ]);
    let row = |selector, protocol, priorities| Row {
        selector,
        protocol,
        priorities,
    };
    assert_eq!(told, [row(0, 0x8915, 8), row(1, 445, 0b10_0100), row(1, 4791, 8)]);
    let of = |a: Application| (a.selector, a.protocol, a.priority);
    assert_eq!(
        applications(&told).map(of).collect::<Vec<_>>(),
        [(1, 0x8915, 3), (4, 445, 2), (4, 4791, 3)]
    );
    assert_eq!(applications(&[row_of(2, 8), row_of(0, 0)]).count(), 0);
}

fn row_of(selector: u8, priorities: u8) -> Row {
    Row {
        selector,
        protocol: 1,
        priorities,
    }
}

#[test]
fn rows_without_room_are_left_out() {
    let mut said = parsed(HOST).0.expect("it is CEE");
    let many: Vec<Row> = (0..200)
        .map(|n| Row {
            protocol: n,
            ..row_of(1, 2)
        })
        .collect();
    if let Some(rows) = &mut said.applications {
        rows.value = many;
    }
    let mut out = Vec::new();
    said.emit(&mut out);
    let (read, unread) = parsed(&out);
    let rows = read.expect("it is CEE").applications.expect("applications");
    assert_eq!((rows.value.len(), unread), (77, 0));
}

proptest! {
    #[test]
    fn any_bytes_are_read(value: Vec<u8>, parts: Vec<(u8, Vec<u8>)>) {
        let mut inner = Vec::new();
        lldp::put(&mut inner, sub::CONTROL, &[&[0; 10]]);
        for (kind, value) in &parts {
            lldp::put(&mut inner, kind % 5, &[&[0, 0, 0xc0, 0], value]);
        }
        for value in [value, inner] {
            let mut tlv = Vec::new();
            lldp::put(&mut tlv, kind::ORGANIZATION, &[&OUI, &[SUBTYPE], &value]);
            let (Some(said), _) = parsed(&tlv) else { continue };
            said.exchange();
            let mut again = Vec::new();
            said.emit(&mut again);
            prop_assert_eq!(parsed(&again).0, Some(said));
        }
    }
}
