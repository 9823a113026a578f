//! GID table, limits and the table of counters.

use std::collections::BTreeMap;

use vnic_engine::counters::RDMA_COUNTERS;
use vnic_engine::rdma::limits::{QP_LIMIT, handle_bits};
use vnic_engine::rdma::{
    Access, AttributeMask, Counters, CqHandle, Device, DeviceConfig, GidEntry, GidKind, GidTable, Limits,
    Mtu, Object, PdHandle, Place, QpAttributes, QpInit, QpState, QpType, Resources, Span, Status, VerbsError,
};
use vnic_wire::MacAddr;
use vnic_wire::gid::Gid;
use vnic_wire::time::Instant;

fn entry(last: u8, kind: GidKind, vlan: Option<u16>) -> GidEntry {
    GidEntry {
        gid: Gid::from_ipv4([10, 0, 0, last]),
        kind,
        vlan,
        mac: MacAddr([2, 0, 0, 0, 0, 1]),
    }
}

#[test]
fn a_gid_is_found_by_address_kind_and_vlan() {
    let mut gids = GidTable::new(256);
    let rows = [
        (0, entry(1, GidKind::RoceV1, None)),
        (1, entry(1, GidKind::RoceV2, None)),
        (255, entry(1, GidKind::RoceV2, Some(5))),
        (7, entry(2, GidKind::RoceV2, None)),
    ];
    for (index, entry) in rows {
        gids.set(index, Some(entry)).unwrap();
    }
    for (index, entry) in rows {
        assert_eq!(gids.find(entry.gid, entry.kind, entry.vlan), Some(index));
        assert_eq!(gids.by_index(index), Some(&entry));
    }
    let gid = rows[0].1.gid;
    // A priority tag is no VLAN.
    assert_eq!(gids.find(gid, GidKind::RoceV2, Some(0)), Some(1));
    assert_eq!(gids.find(gid, GidKind::RoceV2, Some(6)), None);
    assert_eq!(gids.find(gid, GidKind::RoceV1, Some(5)), None);
    assert_eq!(gids.usage().used, 4);
    assert_eq!(
        gids.iter().map(|(index, _)| index).collect::<Vec<_>>(),
        [0, 1, 7, 255]
    );
}

#[test]
fn a_gid_is_there_once() {
    let mut gids = GidTable::new(4);
    let one = entry(1, GidKind::RoceV2, None);
    gids.set(2, Some(one)).unwrap();
    assert!(matches!(gids.set(3, Some(one)), Err(VerbsError::Invalid(_))));
    // In its own place it may be set again, with another Ethernet address.
    let moved = GidEntry {
        mac: MacAddr([2, 0, 0, 0, 0, 9]),
        ..one
    };
    gids.set(2, Some(moved)).unwrap();
    assert_eq!(gids.get(2), Ok(&moved));
    // Replaced, it is free for another place.
    gids.set(2, Some(entry(2, GidKind::RoceV2, None))).unwrap();
    assert_eq!(gids.find(one.gid, one.kind, None), None);
    gids.set(3, Some(one)).unwrap();
    gids.set(3, None).unwrap();
    gids.set(1, None).unwrap();
    assert_eq!(gids.usage().used, 1);
    assert_eq!(gids.get(3), Err(VerbsError::NoSuch(Object::Gid)));
}

#[test]
fn what_is_no_address_of_a_port_is_refused() {
    let mut gids = GidTable::new(2);
    let good = entry(1, GidKind::RoceV2, None);
    let broadcast = MacAddr([0xff; 6]);
    for bad in [
        GidEntry {
            gid: Gid::UNSPECIFIED,
            ..good
        },
        GidEntry {
            gid: Gid::from_ipv4([224, 0, 0, 1]),
            ..good
        },
        GidEntry {
            mac: broadcast,
            ..good
        },
        GidEntry {
            vlan: Some(0),
            ..good
        },
        GidEntry {
            vlan: Some(4095),
            ..good
        },
    ] {
        assert!(gids.set(0, Some(bad)).is_err(), "{bad:?}");
    }
    assert!(matches!(
        gids.set(2, Some(good)),
        Err(VerbsError::OutOfRange { max: 1, .. })
    ));
    assert!(GidTable::new(0).set(0, Some(good)).is_err());
    assert!(GidTable::new(0).get(0).is_err());
}

#[test]
fn limits_fit_into_handles() {
    assert_eq!(Limits::default().check(), Ok(()));
    let most = Limits {
        max_qp: QP_LIMIT,
        ..Limits::default()
    };
    assert_eq!(most.check(), Ok(()));
    let more = Limits {
        max_qp: QP_LIMIT + 1,
        ..Limits::default()
    };
    assert!(matches!(
        more.check(),
        Err(VerbsError::OutOfRange { what: "max_qp", .. })
    ));
    let both = Limits {
        max_mr: 1 << 19,
        max_mw: 1 << 19,
        ..Limits::default()
    };
    assert!(matches!(
        both.check(),
        Err(VerbsError::OutOfRange { what: "max_mw", .. })
    ));
    // The last QP number of a full table is not the multicast QP, in no generation.
    let (index_bits, total_bits) = handle_bits(Object::Qp);
    let last = (1 + QP_LIMIT) | ((1 << (total_bits - index_bits)) - 1) << index_bits;
    assert!(last < 0xff_ffff);
}

fn device() -> Device {
    let config = DeviceConfig {
        mac: MacAddr([2, 0, 0, 0, 0, 1]),
        limits: Limits::default(),
        mtu: Mtu::Mtu1024,
        trailers: false,
        pin_source_port: false,
        seed: 0,
        place: None,
    };
    Device::new(config).expect("limits that fit")
}

#[test]
fn numbers_of_queues_fit_into_a_doorbell_and_come_back_late() {
    let mut device = device();
    // 4 bits of generation, and 64 slots that rest.
    let mut seen = std::collections::HashSet::new();
    for _ in 0..1024 {
        let cq = device.create_cq(1).unwrap();
        assert!(cq.0 < 1 << 24);
        assert!(seen.insert(cq), "{cq:?} came back");
        device.destroy_cq(cq).unwrap();
        assert!(device.poll_cq(cq, &mut Vec::new(), 1).is_err());
    }
    assert!(seen.contains(&device.create_cq(1).unwrap()));
    assert_eq!(device.resources().cq.used, 1);
}

#[test]
fn every_row_of_the_table_shows_its_own_counter() {
    let names: std::collections::HashSet<_> = RDMA_COUNTERS.iter().map(|row| row.name).collect();
    assert_eq!(names.len(), Counters::COUNT);
    for (row, name) in RDMA_COUNTERS.iter().zip(Counters::NAMES) {
        assert_eq!(row.name, name);
        assert!(!row.help.is_empty() && row.help.ends_with('.'), "{}", row.name);
    }
    let counters = Counters {
        out_of_sequence: 3,
        drop_no_qp: 5,
        rx_icrc_encapsulated: 7,
        ..Counters::default()
    };
    let shown: Vec<_> = counters
        .iter()
        .filter(|(_, value, _)| *value > 0)
        .map(|(n, v, _)| (n, v))
        .collect();
    assert_eq!(
        shown,
        [
            ("out_of_sequence", 3),
            ("rx_icrc_encapsulated", 7),
            ("drop_no_qp", 5)
        ]
    );
    assert_eq!(counters.dropped(), 12);
}

#[test]
fn an_error_counts_under_its_cause_and_in_the_sum() {
    let all = [
        Status::LocalLengthError,
        Status::LocalQpOperationError,
        Status::LocalProtectionError,
        Status::FlushError,
        Status::MwBindError,
        Status::BadResponseError,
        Status::LocalAccessError,
        Status::RemoteInvalidRequestError,
        Status::RemoteAccessError,
        Status::RemoteOperationError,
        Status::RetryExceeded,
        Status::RnrRetryExceeded,
        Status::RemoteAborted,
    ];
    for status in all {
        let mut counters = Counters::default();
        counters.requester_error(status);
        assert_eq!(counters.req_cqe_error, 1);
        assert_eq!(counters.values().iter().sum::<u64>(), 2, "{status:?}");
    }
    let mut counters = Counters::default();
    counters.requester_error(Status::Success);
    assert_eq!(counters, Counters::default());
}

#[test]
fn resources_have_names() {
    let names: std::collections::HashSet<_> = Resources::default().iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), 12);
}

/// A completion queue that fails costs a look at those who complete there, and so many of them at a time.
#[test]
fn who_completes_in_a_queue_that_fails_hears_it_in_turns() {
    let mut device = device();
    let pd = device.alloc_pd().unwrap();
    let cqs = [device.create_cq(1).unwrap(), device.create_cq(1).unwrap()];
    let ready = QpAttributes {
        state: QpState::Init,
        ..QpAttributes::default()
    };
    let mask = AttributeMask::STATE | AttributeMask::PKEY_INDEX | AttributeMask::PORT | AttributeMask::ACCESS;
    let mut qps = Vec::new();
    for i in 0..6000 {
        let qp = device.create_qp(&smallest(pd, cqs[i % 2])).unwrap();
        device.modify_qp(qp, &ready, mask, Instant(0)).unwrap();
        qps.push(qp);
    }
    let failed = |device: &Device| {
        let mut failed = [0, 0];
        for (i, qp) in qps.iter().enumerate() {
            failed[i % 2] += usize::from(device.qp_state(*qp) == Some(QpState::Err));
        }
        failed
    };
    device.fail_cq(cqs[0]);
    assert_eq!(failed(&device), [256, 0]);
    // Whoever goes in between is no trouble.
    device.destroy_qp(qps[5998]).unwrap();
    let mut turns = 0;
    let mut now = Instant(1);
    while device.next_timeout().is_some_and(|at| at <= now) {
        device.handle_timeouts(now, 64);
        (turns, now) = (turns + 1, Instant(now.0 + 1));
    }
    assert_eq!((failed(&device), turns), ([2999, 0], 11));
}

/// The smallest reliable queue pair.
fn smallest(pd: PdHandle, cq: CqHandle) -> QpInit {
    QpInit {
        qp_type: QpType::Rc,
        pd: Some(pd),
        send_cq: Some(cq),
        recv_cq: Some(cq),
        srq: None,
        xrcd: None,
        max_send_wr: 1,
        max_recv_wr: 1,
        max_send_sge: 1,
        max_recv_sge: 1,
        max_inline: 0,
        signal_all: true,
    }
}

/// Numbers of all queue pairs and keys of all regions that a device at a place gives out, as many as there may be, and some more after
/// each has ended once.
fn numbers_at(place: u8, seed: u64) -> (Vec<u32>, Vec<u32>) {
    let config = DeviceConfig {
        mac: MacAddr([2, 0, 0, 0, 0, 1]),
        limits: Limits {
            max_qp: 300,
            max_mr: 300,
            ..Limits::default()
        },
        mtu: Mtu::Mtu1024,
        trailers: false,
        pin_source_port: false,
        seed,
        place: Place::new(place),
    };
    let mut device = Device::new(config).expect("limits that fit");
    let (pd, cq) = (
        device.alloc_pd().expect("room"),
        device.create_cq(10).expect("room"),
    );
    let init = smallest(pd, cq);
    let (mut numbers, mut keys) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let qps: Vec<_> = (0..300).map(|_| device.create_qp(&init).expect("room")).collect();
        let span = Span { at: 0, len: 4096 };
        let mrs: Vec<_> = (0..300)
            .map(|_| device.register(pd, 0, Access::empty(), vec![span]).expect("room"))
            .collect();
        for (qp, mr) in qps.into_iter().zip(mrs) {
            assert!(device.query_qp(qp).is_ok());
            numbers.push(qp.0);
            keys.push(mr.lkey >> 8);
            device.destroy_qp(qp).expect("it is there");
            device.deregister(mr.mr).expect("it is there");
        }
    }
    (numbers, keys)
}

#[test]
fn devices_that_share_a_function_give_out_other_numbers_and_keys() {
    let (mut qps, mut keys) = (BTreeMap::new(), BTreeMap::new());
    for place in 0..Place::COUNT {
        for seed in [0, 1, 77] {
            let (numbers, all) = numbers_at(place, seed);
            for (seen, number) in numbers
                .iter()
                .map(|n| (true, n))
                .chain(all.iter().map(|n| (false, n)))
            {
                assert_eq!(Place::of(*number).number(), place, "{number:#x}");
                assert!((2..0xff_ffff).contains(number) || !seen);
                let known = if seen { &mut qps } else { &mut keys };
                assert_eq!(*known.entry(*number).or_insert(place), place, "{number:#x}");
            }
        }
    }
    assert_eq!(Place::new(Place::COUNT), None);
}

#[test]
fn all_places_together_hold_no_more_requests_than_one_device() {
    for all in [
        Limits::default(),
        Limits {
            max_requests: 1024,
            ..Limits::default()
        },
    ] {
        let places = (0..Place::COUNT).filter_map(Place::new);
        let sum: u32 = places.map(|place| all.at(place).max_requests).sum();
        assert!(sum <= all.max_requests, "{sum}");
        let one = Place::new(63).expect("the last");
        assert_eq!(all.at(one).check(), Ok(()));
        assert!(all.at(one).max_qp >= 4096 && all.at(one).max_mr >= 8192);
    }
}
