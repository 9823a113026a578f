//! The table of names: complete, without doubles, and its sums are right.

use std::collections::BTreeSet;

use vnic_engine::counters::names::{self, Family, Instance, Reading, SETS, Source};
use vnic_engine::counters::{AdapterValues, PortCounter, PortValues, QueueCounter};
use vnic_engine::rdma;

/// Group and name of every counter of the catalog of WinOF-2, Windows and mlx5 counters.
const CATALOG: &str = include_str!("data/counter_names.csv");

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
        drops: vec![("no_rx_buffer", 5), ("hairpin", 2)],
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
    assert!(matches!(
        read("WinOF-2 Port QoS", "BytesReceived", &vf0),
        Reading::NotYet(_)
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
            assert!(
                !matches!(named.reading, Reading::Value(_)),
                "{} has a value",
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
        drops: vec![("port_transmit", 3)],
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
    let since = now.clone().since(&base);
    assert_eq!(
        read("WinOF-2 Port Traffic", "PacketsReceived", &since),
        Reading::Value(8)
    );
    assert_eq!(since.drops, [("no_rx_buffer", 2), ("hairpin", 0)]);
    assert_eq!(since.core, 3);
    let none = now.clone().since(&now);
    assert!(none.queues.iter().all(|(_, v)| v.iter().all(|v| *v == 0)));
}
