//! The table of names: complete, without doubles, and its sums are right.

use std::collections::BTreeSet;

use vnic_engine::counters::names::{self, Family, Instance, Reading, SETS, Source};
use vnic_engine::counters::{
    AdapterValues, LinkCounter, LinkValues, PortCounter, PortValues, PriorityCounter, QueueCounter, Values,
};
use vnic_engine::rdma;

/// Group and name of every counter of the catalog of WinOF-2, Windows and mlx5 counters.
const CATALOG: &str = include_str!("../data/counter_names.csv");

fn catalog() -> impl Iterator<Item = (&'static str, &'static str)> {
    let row = |line: &'static str| line.split_once(',').expect("two columns");
    CATALOG.lines().skip(1).map(row)
}

#[test]
fn every_counter_of_the_catalog_is_in_the_table() {
    let mut count = 0;
    for (group, name) in catalog() {
        let set = names::set(group).unwrap_or_else(|| panic!("no set {group:?}"));
        assert_eq!(set.title, group);
        assert!(
            set.names.iter().any(|n| n.name == name),
            "no {name:?} in {group:?}"
        );
        count += 1;
    }
    assert_eq!(count, 619);
}

#[test]
fn titles_ids_and_names_are_unique_and_every_missing_value_has_a_reason() {
    let (mut titles, mut ids) = (BTreeSet::new(), BTreeSet::new());
    for set in SETS {
        assert!(titles.insert(set.title) && ids.insert(set.id()), "{}", set.title);
        assert_eq!(names::set(&set.id()), Some(*set));
        assert_eq!(names::set(&set.title.to_uppercase()), Some(*set));
        let mut seen = BTreeSet::new();
        for name in set.names {
            assert!(seen.insert(name.name), "{}: {} twice", set.title, name.name);
            if let Source::NotModelled(why) | Source::NotYet(why) = name.source {
                assert!(why.len() > 10 && !why.ends_with('.'), "{}: {why}", name.name);
            } else if name.name.ends_with("PerSec") || name.name.ends_with("Persec") {
                assert!(matches!(name.source, Source::Rate(_)), "{}", name.name);
            }
            if set.family == Family::NodeExporter {
                assert!(name.name.starts_with("node_infiniband_") && name.name.ends_with("_total"));
            }
        }
    }
    assert_eq!(names::set("no such set"), None);
}

/// Of priority p, the counter at place i has 100 (p + 1) + i; of the link, i.
fn link() -> LinkValues {
    let n = |i: usize| u64::try_from(i).expect("a small number");
    LinkValues {
        priorities: std::array::from_fn(|p| std::array::from_fn(|i| 100 * (n(p) + 1) + n(i))),
        all: std::array::from_fn(n),
    }
}

fn adapter(rdma: bool) -> AdapterValues {
    let mut queue = [0; QueueCounter::COUNT];
    for (counter, value) in [
        (QueueCounter::RxFrames, 100),
        (QueueCounter::RxBytes, 9000),
        (QueueCounter::RxMulticast, 10),
        (QueueCounter::RxMulticastBytes, 700),
        (QueueCounter::RxBroadcast, 4),
        (QueueCounter::RxBroadcastBytes, 240),
        (QueueCounter::RxNotifications, 30),
        (QueueCounter::RxNotificationsSuppressed, 3),
    ] {
        queue[counter as usize] = value;
    }
    let values = |name: &str| u64::from(name == "rx_vport_rdma_unicast_bytes") * 4005;
    AdapterValues {
        name: "vf0".into(),
        life: 1,
        core: 3,
        queues: vec![(0, queue), (2, queue)],
        drops: vec![("no_rx_buffer", 5), ("hairpin", 2), ("head_of_queue", 6)],
        link: Box::new(link()),
        rdma: rdma.then(|| Box::new(rdma::Counters::NAMES.map(values))),
    }
}

fn read(set: &str, name: &str, adapter: &AdapterValues) -> Reading {
    let set = names::set(set).expect("a set");
    let all = names::of_adapter(set, adapter);
    let found = all.iter().find(|n| n.name() == name);
    found
        .unwrap_or_else(|| panic!("no {name} in {}", set.title))
        .reading
}

#[test]
fn names_have_the_values_that_the_native_counters_say() {
    let vf0 = adapter(true);
    let port = "WinOF-2 Port Traffic";
    assert_eq!(read(port, "BytesReceived", &vf0), Reading::Value(2 * 9000 + 4005));
    assert_eq!(
        read(port, "KBytesReceivedPerSec", &vf0),
        Reading::Grown((2 * 9000 + 4005) / 1000)
    );
    assert_eq!(read(port, "PacketsReceived", &vf0), Reading::Value(200));
    assert_eq!(
        read(port, "PacketsReceivedDiscardedNoReceiveWQEs", &vf0),
        Reading::Value(5)
    );
    assert_eq!(read(port, "PacketsOutboundDiscarded", &vf0), Reading::Value(2));
    assert!(matches!(
        read(port, "PacketsReceivedSymbolError", &vf0),
        Reading::NotModelled(_)
    ));

    let vport = "Linux ethtool vport (mlx5)";
    for (name, value) in [
        ("rx_vport_unicast_packets", 180),
        ("rx_vport_unicast_bytes", 2 * 8300),
        ("rx_vport_multicast_packets", 12),
        ("rx_vport_multicast_bytes", 2 * 460),
        ("rx_vport_broadcast_packets", 8),
        ("rx_vport_rdma_unicast_bytes", 4005),
    ] {
        assert_eq!(read(vport, name, &vf0), Reading::Value(value), "{name}");
    }
    let ring = "Linux ethtool ring/netdev (mlx5)";
    assert_eq!(read(ring, "rx_packets", &vf0), Reading::Value(200));
    assert_eq!(read(ring, "rx2_packets", &vf0), Reading::Value(100));
    // Words of four bytes.
    assert_eq!(
        read("winof-2-ib-port", "PortReceiveData", &vf0),
        Reading::Value(1001)
    );
    let receive = names::set("WinOF-2 Receive Datapath Counters").expect("a set");
    assert_eq!(receive.instance, Instance::Queue);
    let values = names::of_adapter(receive, &vf0);
    let mean: Vec<_> = values
        .iter()
        .filter(|n| n.def.name == "Averagepacketcountperindicate")
        .map(|n| (n.queue, n.reading))
        .collect();
    assert_eq!(mean, [(Some(0), Reading::Value(3)), (Some(2), Reading::Value(3))]);
}

#[test]
fn an_adapter_without_rdma_has_no_rdma_counters_but_its_traffic() {
    let plain = adapter(false);
    assert_eq!(
        read("WinOF-2 Port Traffic", "BytesReceived", &plain),
        Reading::Value(18_000)
    );
    for set in ["Linux hw_counters (mlx5)", "WinOF-2 IB Port"] {
        let set = names::set(set).expect("a set");
        for named in names::of_adapter(set, &plain) {
            // The guest's own RoCE over Ethernet is notified as well.
            let congestion = named.name().starts_with("rp_cnp_") || named.name().starts_with("np_");
            assert_eq!(
                matches!(named.reading, Reading::Value(_)),
                congestion,
                "{}",
                named.name()
            );
        }
    }
}

#[test]
fn uplinks_have_the_names_of_a_physical_port() {
    let mut io = [0; PortCounter::COUNT];
    io[PortCounter::TxBytes as usize] = 77;
    let port = PortValues {
        name: "p0".into(),
        life: 1,
        io,
        dcbx: [0; _],
        drops: vec![("port_transmit", 3)],
        link: Box::new(link()),
        mesh: None,
    };
    let set = names::set("Linux ethtool physical port (mlx5)").expect("a set");
    let all = names::of_port(set, &port);
    let value = |name: &str| all.iter().find(|n| n.name() == name).map(|n| n.reading);
    assert_eq!(value("tx_bytes_phy"), Some(Reading::Value(77)));
    assert_eq!(value("tx_discards_phy"), Some(Reading::Value(3)));
    assert!(matches!(value("rx_out_of_buffer"), Some(Reading::NotModelled(_))));
}

#[test]
fn the_difference_to_a_baseline_is_what_came_since() {
    let (base, mut now) = (adapter(true), adapter(true));
    now.queues[1].1[QueueCounter::RxFrames as usize] += 7;
    now.queues.push((3, [1; QueueCounter::COUNT]));
    now.drops[0].1 += 2;
    now.link.priorities[3][PriorityCounter::TxPause as usize] += 4;
    now.link.all[LinkCounter::RxPauseUs as usize] += 5;
    let since = now.clone().since(&base);
    assert_eq!(
        read("WinOF-2 Port Traffic", "PacketsReceived", &since),
        Reading::Value(8)
    );
    assert_eq!(
        since.drops,
        [("no_rx_buffer", 2), ("hairpin", 0), ("head_of_queue", 0)]
    );
    let mut link = LinkValues::default();
    link.priorities[3][PriorityCounter::TxPause as usize] = 4;
    link.all[LinkCounter::RxPauseUs as usize] = 5;
    assert_eq!(*since.link, link);
    assert_eq!(since.link.used().map(|(p, _)| p).collect::<Vec<_>>(), [0, 3]);
    assert_eq!(since.core, 3);
    let none = now.clone().since(&now);
    assert!(none.queues.iter().all(|(_, v)| v.iter().all(|v| *v == 0)));
}

/// The value that [`link`] has of a priority.
fn of(priority: u64, counter: PriorityCounter) -> u64 {
    100 * (priority + 1) + counter as u64
}

#[test]
fn priorities_have_their_names_once_each_at_adapters_and_ports() {
    use PriorityCounter as C;
    let port = PortValues {
        name: "p0".into(),
        life: 1,
        io: [0; PortCounter::COUNT],
        dcbx: [0; _],
        drops: Vec::new(),
        link: Box::new(link()),
        mesh: None,
    };
    let set = |id: &str| names::set(id).expect("a set");
    let ethtool = set("Linux ethtool per priority (mlx5)");
    for all in [
        names::of_adapter(ethtool, &adapter(false)),
        names::of_port(ethtool, &port),
    ] {
        let value = |name: &str| {
            let mut found = all.iter().filter(|n| n.name() == name);
            let reading = found.next().expect(name).reading;
            assert!(found.next().is_none(), "{name} twice");
            reading
        };
        for priority in 0..8 {
            for (name, counter) in [
                ("rx_prio[p]_bytes", C::RxBytes),
                ("rx_prio[p]_packets", C::RxFrames),
                ("tx_prio[p]_bytes", C::TxBytes),
                ("tx_prio[p]_packets", C::TxFrames),
                ("rx_prio[p]_pause", C::RxPause),
                ("rx_prio[p]_pause_duration", C::RxPauseUs),
                ("rx_prio[p]_pause_transition", C::RxPauseTransitions),
                ("tx_prio[p]_pause", C::TxPause),
                ("tx_prio[p]_pause_duration", C::TxPauseUs),
                ("rx_prio[p]_discards", C::RxDiscards),
                ("rx_prio[p]_cong_discard", C::RxCongestionDiscards),
                ("rx_prio[p]_marked", C::RxMarked),
            ] {
                let name = name.replace("[p]", &priority.to_string());
                assert_eq!(value(&name), Reading::Value(of(priority, counter)), "{name}");
            }
        }
        // What there is not is there once.
        assert!(matches!(value("rx_prio[p]_buf_discard"), Reading::NotModelled(_)));
    }
    let windows = set("WinOF-2 Port QoS");
    let all = names::of_adapter(windows, &adapter(false));
    assert_eq!(all.len(), 8 * windows.names.len());
    for (priority, name, reading) in [
        (3, "BytesReceived", Reading::Value(of(3, C::RxBytes))),
        (
            3,
            "PacketsTotal",
            Reading::Value(of(3, C::RxFrames) + of(3, C::TxFrames)),
        ),
        (7, "PacketsSentPerSec", Reading::Grown(of(7, C::TxFrames))),
        (0, "KBytesSentPerSec", Reading::Grown(0)),
        (5, "RcvPauseFrames", Reading::Value(of(5, C::RxPause))),
        (5, "RcvPauseDuration", Reading::Value(of(5, C::RxPauseUs))),
        (5, "SentPauseDuration", Reading::Value(of(5, C::TxPauseUs))),
    ] {
        let mut found = all
            .iter()
            .filter(|n| n.name() == name && n.priority == Some(priority));
        assert_eq!(found.next().map(|n| n.reading), Some(reading), "{name}");
        assert!(found.next().is_none());
    }
}

#[test]
fn stalls_marks_and_global_pause_have_their_names() {
    let vf0 = adapter(true);
    let eight = |counter| (0..8).map(|p| of(p, counter)).sum::<u64>();
    for (set, name, value) in [
        (
            "WinOF-2 Diagnostics",
            "CriticalStallWatermarkReached",
            LinkCounter::TxPauseStormErrors as u64,
        ),
        (
            "WinOF-2 Diagnostics",
            "MinorStallWatermarkReached",
            LinkCounter::TxPauseStormWarnings as u64,
        ),
        ("WinOF-2 Diagnostics", "HeadofQueuetimeoutPacketdiscarded", 6),
        (
            "WinOF-2 PCI Device Diagnostics",
            "RXPACKETMARKEDPCIeBUFFERS",
            eight(PriorityCounter::RxMarked),
        ),
        (
            "WinOF-2 PCI Device Diagnostics",
            "RXPACKETDROPSPCIeBUFFERS",
            eight(PriorityCounter::RxCongestionDiscards),
        ),
        (
            "Linux ethtool flow control (mlx5)",
            "rx_global_pause_duration",
            LinkCounter::RxPauseUs as u64,
        ),
        (
            "Linux ethtool flow control (mlx5)",
            "tx_pause_storm_error_events",
            LinkCounter::TxPauseStormErrors as u64,
        ),
    ] {
        assert_eq!(read(set, name, &vf0), Reading::Value(value), "{name}");
    }
}

#[test]
fn samples_have_priorities_that_were_used() {
    let mut vf0 = adapter(false);
    for priority in [1, 2, 4, 5, 6, 7] {
        vf0.link.priorities[priority] = Default::default();
    }
    let values = Values {
        adapters: vec![vf0],
        ..Values::default()
    };
    let samples = values.samples();
    let pause: Vec<_> = samples
        .iter()
        .filter(|s| s.def.name == "tx_pause")
        .map(|s| (s.priority, s.value))
        .collect();
    let link = LinkCounter::TxPause as u64;
    let of = |p| of(p, PriorityCounter::TxPause);
    assert_eq!(pause, [(Some(0), of(0)), (Some(3), of(3)), (None, link)]);
}
