//! Counters under known traffic, by the names that users know.

use anyhow::Result;
use vnic_backend::counters::names::{self, Reading};
use vnic_backend::{DropReason, MacAddr};
use vnic_tests::driver::packets::{BROADCAST, Number, numbered};
use vnic_tests::driver::rig::{Copies, Rig, deadline};
use vnic_tests::driver::{Guest, NetHdr, Options};

fn n(seq: u64) -> Number {
    Number {
        sender: 0,
        stream: 0,
        seq,
    }
}

fn expect(g: &mut Guest) {
    assert!(g.recv(0, deadline()).is_some(), "a frame");
}

/// A value by one of its names; `None` when there is none.
fn value(rig: &Rig, adapter: &str, set: &str, name: &str) -> Option<u64> {
    let all = rig.nic.counter_values().adapters;
    let adapter = all.iter().find(|a| a.name == adapter).expect("the adapter");
    let set = names::set(set).expect("a set");
    let values = names::of_adapter(set, adapter);
    let found = values.iter().find(|v| v.name() == name).expect("the name");
    match found.reading {
        Reading::Value(n) | Reading::Grown(n) => Some(n),
        Reading::NotModelled(_) | Reading::NotYet(_) => None,
    }
}

#[test]
fn traffic_has_the_same_numbers_under_all_names() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let (a, b) = (rig.add("a")?, rig.add("b")?);
    let mut ga = rig.attach("a", Options::default())?;
    let mut gb = rig.attach("b", Options::default())?;
    let group = MacAddr([0x01, 0x00, 0x5e, 1, 2, 3]);
    let sent = [(b, 100), (b, 200), (b, 300), (BROADCAST, 64), (group, 500)];
    for (seq, (to, len)) in (0..).zip(sent) {
        ga.send_wait(0, &numbered(to, a, n(seq), len), NetHdr::default());
        expect(&mut gb);
    }
    // To itself: it sends, and nobody gets it.
    ga.send_wait(0, &numbered(a, a, n(9), 80), NetHdr::default());
    ga.drain();
    rig.settle()?;
    let port = "WinOF-2 Port Traffic";
    let vf = "WinOF-2 VF Port Traffic";
    let vport = "Linux ethtool vport (mlx5)";
    let ring = "Linux ethtool ring/netdev (mlx5)";
    for (adapter, set, name, expected) in [
        ("a", port, "PacketsSent", 6),
        ("a", port, "BytesSent", 1244),
        ("a", port, "PacketsTotal", 6),
        ("a", port, "PacketsOutboundDiscarded", 1),
        ("a", port, "PacketsOutboundErrors", 0),
        ("a", vf, "PacketsSentUnicastPerSec", 4),
        ("a", vf, "BytesSentUnicastPerSec", 680),
        ("a", vf, "BytesSentBroadcastPerSec", 64),
        ("a", vport, "tx_vport_unicast_packets", 4),
        ("a", vport, "tx_vport_multicast_packets", 1),
        ("a", vport, "tx_vport_multicast_bytes", 500),
        ("a", vport, "tx_vport_broadcast_packets", 1),
        ("a", ring, "tx_packets", 6),
        ("a", ring, "tx0_bytes", 1244),
        ("b", port, "PacketsReceived", 5),
        ("b", port, "BytesReceived", 1164),
        ("b", port, "PacketsSent", 0),
        ("b", vport, "rx_vport_unicast_packets", 3),
        ("b", vport, "rx_vport_unicast_bytes", 600),
        ("b", vport, "rx_vport_multicast_bytes", 500),
        ("b", vport, "rx_vport_broadcast_bytes", 64),
        ("b", ring, "rx0_packets", 5),
        ("b", ring, "rx_bytes", 1164),
    ] {
        assert_eq!(
            value(&rig, adapter, set, name),
            Some(expected),
            "{adapter}: {set}: {name}"
        );
    }
    // And under the NIC's own.
    for (adapter, name, expected) in [
        ("a", "tx_frames", 6),
        ("a", "tx_multicast", 2),
        ("a", "tx_multicast_bytes", 564),
        ("a", "tx_broadcast", 1),
        ("b", "rx_frames", 5),
        ("b", "rx_multicast", 2),
        ("b", "rx_broadcast_bytes", 64),
    ] {
        assert_eq!(rig.counter(adapter, name), expected, "{adapter}: {name}");
    }
    assert_eq!(rig.drops("a", DropReason::OwnAddress), 1);
    // What is not modelled has no value, not a zero.
    assert_eq!(value(&rig, "a", port, "PacketsReceivedSymbolError"), None);
    assert_eq!(
        value(&rig, "a", "Linux hw_counters (mlx5)", "out_of_buffer"),
        None
    );
    rig.finish(Copies::Extra(0))
}

/// Each drop reason shows in exactly one of WinOF-2's four counters of dropped packets; what a guest's driver does not want in none: cards
/// do not count it.
#[test]
fn every_drop_reason_has_its_winof2_counter() -> Result<()> {
    let mut rig = Rig::new(1)?;
    rig.add("a")?;
    let base = rig.nic.counter_values().adapters.remove(0);
    let set = names::set("WinOF-2 VF Port Traffic").expect("a set");
    let four = [
        "PacketsOutboundDiscarded",
        "PacketsOutboundErrors",
        "PacketsReceivedDiscarded",
        "PacketsReceivedErrors",
    ];
    for reason in DropReason::ALL {
        let mut values = base.clone();
        for (name, n) in &mut values.drops {
            *n = u64::from(*name == reason.name());
        }
        let named = names::of_adapter(set, &values);
        let shown: u64 = four
            .iter()
            .filter_map(|name| named.iter().find(|v| v.name() == *name))
            .map(|v| match v.reading {
                Reading::Value(n) => n,
                _ => 0,
            })
            .sum();
        let expected = u64::from(reason != DropReason::Filtered);
        assert_eq!(shown, expected, "{}", reason.name());
    }
    rig.finish(Copies::Extra(0))
}
