mod wake;

use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use std::collections::BTreeSet;

use super::*;

const A: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xa]);
const B: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xb]);
const C: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xc]);
const D: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xd]);
const GROUP_ADDR: MacAddr = MacAddr([1, 0, 0x5e, 0, 0, 1]);

fn frame(to: MacAddr, from: MacAddr, tci: Option<u16>) -> Vec<u8> {
    let mut f = Vec::new();
    f.extend(to.0);
    f.extend(from.0);
    if let Some(t) = tci {
        f.extend([0x81, 0x00]);
        f.extend(t.to_be_bytes());
    }
    f.extend([0x08, 0x00]);
    f.resize(60, 0);
    f
}

fn at(seconds: f64) -> Instant {
    Instant((seconds * 1e9) as u64)
}

fn trunk(native: u16, allowed: Option<&[u16]>) -> PortConfig {
    PortConfig {
        vlan: VlanMode::Trunk {
            native,
            allowed: allowed.map(|a| a.iter().copied().collect::<BTreeSet<u16>>()),
        },
        learning: true,
        ..PortConfig::default()
    }
}

fn access(vlan: u16) -> PortConfig {
    PortConfig {
        vlan: VlanMode::Access(vlan),
        learning: true,
        ..PortConfig::default()
    }
}

fn owner(mac: MacAddr) -> PortConfig {
    PortConfig {
        macs: vec![mac],
        learning: true,
        ..PortConfig::default()
    }
}

fn switch(ports: Vec<PortConfig>) -> Switch {
    let mut s = Switch::new(SwitchConfig::default());
    for (i, p) in ports.into_iter().enumerate() {
        s.add_port(PortId(i as u16), p);
        s.set_link(PortId(i as u16), true);
    }
    s
}

fn send(s: &mut Switch, now: f64, port: u16, to: MacAddr, from: MacAddr) -> Verdict {
    let f = frame(to, from, None);
    s.forward(at(now), PortId(port), &f, f.len())
}

fn unicast(port: u16, tag: TagEdit) -> Verdict {
    Verdict::Unicast(Egress {
        port: PortId(port),
        tag,
    })
}

const FLOOD: Verdict = flood(1, None);

const fn flood(vlan: u16, tci: Option<u16>) -> Verdict {
    Verdict::Flood(Flood {
        vlan,
        tci,
        assigned: None,
    })
}

fn targets(s: &Switch, from: u16, vlan: u16, tci: Option<u16>) -> Vec<(u16, TagEdit)> {
    s.flood_targets(
        PortId(from),
        Flood {
            vlan,
            tci,
            assigned: None,
        },
    )
    .map(|e| (e.port.0, e.tag))
    .collect()
}

#[test]
fn own_addresses_are_known_before_anyone_speaks() {
    let mut s = switch(vec![owner(A), owner(B)]);
    assert_eq!(send(&mut s, 0.0, 0, B, A), unicast(1, TagEdit::Keep));
    assert_eq!(send(&mut s, 0.0, 0, A, A), Verdict::Drop(DropReason::OwnAddress));
    s.set_link(PortId(1), false);
    assert_eq!(
        send(&mut s, 0.0, 0, B, A),
        Verdict::Drop(DropReason::ReceiverDown)
    );
    s.set_link(PortId(1), true);
    assert_eq!(send(&mut s, 0.0, 0, B, A), unicast(1, TagEdit::Keep));
    s.remove_port(PortId(1));
    assert_eq!(
        send(&mut s, 0.0, 0, B, A),
        Verdict::Drop(DropReason::NoDestination)
    );
}

#[test]
fn a_ports_priority_is_in_the_tags_of_its_frames() {
    let from = |vlan, default_priority, priority_tags| PortConfig {
        vlan,
        macs: vec![A],
        default_priority,
        priority_tags,
        ..PortConfig::default()
    };
    let edits = |config: PortConfig, tci| {
        let mut s = switch(vec![config, trunk(1, None), trunk(5, None), access(1), access(5)]);
        let f = frame(GROUP_ADDR, A, tci);
        let Verdict::Flood(flood) = s.forward(at(0.0), PortId(0), &f, 60) else {
            panic!("not flooded");
        };
        s.flood_targets(PortId(0), flood)
            .map(|e| (e.port.0, e.tag))
            .collect::<Vec<_>>()
    };
    use PriorityTags::{Add, Keep, Strip};
    let tagged = |p: u16, v: u16| TagEdit::Push(p << 13 | v);
    // In an access VLAN: the tag with its priority, and none where the VLAN leaves untagged.
    let five = VlanMode::Access(5);
    assert_eq!(
        edits(from(five.clone(), 3, Keep), None),
        [(1, tagged(3, 5)), (2, TagEdit::Keep), (4, TagEdit::Keep)]
    );
    // The frame's own priority comes first.
    assert_eq!(
        edits(from(five, 3, Keep), Some(6 << 13)),
        [
            (1, TagEdit::Replace(6 << 13 | 5)),
            (2, TagEdit::Keep),
            (4, TagEdit::Pop)
        ]
    );
    // Without a VLAN: a priority tag where tags are taken.
    let none = VlanMode::default;
    let expected = [(1, tagged(3, 0)), (2, tagged(3, 1)), (3, TagEdit::Keep)];
    assert_eq!(edits(from(none(), 3, Add), None), expected);
    assert_eq!(
        edits(from(none(), 3, Strip), Some(2 << 13)),
        [
            (1, TagEdit::Pop),
            (2, TagEdit::Replace(2 << 13 | 1)),
            (3, TagEdit::Pop)
        ]
    );
    assert_eq!(
        edits(from(none(), 3, Strip), None),
        [(1, TagEdit::Keep), (2, tagged(3, 1)), (3, TagEdit::Keep)]
    );
}

#[test]
fn order_of_checks() {
    let mut s = switch(vec![
        PortConfig {
            anti_spoofing: true,
            ..owner(A)
        },
        access(1),
    ]);
    let drop = |s: &mut Switch, f: &[u8], len| match s.forward(at(0.0), PortId(0), f, len) {
        Verdict::Drop(r) => Some(r),
        _ => None,
    };
    let f = frame(B, A, None);
    assert_eq!(drop(&mut s, &f, 13), Some(DropReason::Runt));
    assert_eq!(drop(&mut s, &f[..14], 14), None);
    let f = frame(B, A, Some(1));
    assert_eq!(drop(&mut s, &f[..17], 17), Some(DropReason::Runt));
    assert_eq!(drop(&mut s, &f[..18], 18), None);
    let f = frame(B, GROUP_ADDR, Some(4095));
    assert_eq!(drop(&mut s, &f, 60), Some(DropReason::InvalidSource));
    let f = frame(B, C, Some(4095));
    assert_eq!(drop(&mut s, &f, 60), Some(DropReason::SpoofedSource));
    let f = frame(B, A, Some(4095));
    assert_eq!(drop(&mut s, &f, 60), Some(DropReason::VlanNotAllowed));
    // A port that does not exist.
    let f = frame(B, A, None);
    assert_eq!(
        s.forward(at(0.0), PortId(900), &f, 60),
        Verdict::Drop(DropReason::NoDestination)
    );
}

#[test]
fn learns_moves_and_ages() {
    let mut s = switch(vec![access(1), access(1), access(1)]);
    assert_eq!(send(&mut s, 0.0, 0, B, A), FLOOD);
    assert_eq!(targets(&s, 0, 1, None), [(1, TagEdit::Keep), (2, TagEdit::Keep)]);
    assert_eq!(send(&mut s, 0.0, 1, A, B), unicast(0, TagEdit::Keep));
    assert_eq!(send(&mut s, 0.0, 0, B, A), unicast(1, TagEdit::Keep));
    // B moves from port 1 to port 2.
    assert_eq!(send(&mut s, 1.0, 2, A, B), unicast(0, TagEdit::Keep));
    assert_eq!(send(&mut s, 1.0, 0, B, A), unicast(2, TagEdit::Keep));
    assert_eq!(s.stats().learned, 3);
    // A keeps talking, B does not.
    for t in 2..=302 {
        s.tick(at(f64::from(t)));
        send(&mut s, f64::from(t), 0, GROUP_ADDR, A);
    }
    assert_eq!(s.entries(at(302.0)).count(), 1);
    assert_eq!(send(&mut s, 302.0, 0, B, A), FLOOD);
    assert_eq!(send(&mut s, 302.0, 1, A, C), unicast(0, TagEdit::Keep));
    s.flush_port(PortId(0));
    assert_eq!(send(&mut s, 302.0, 1, A, C), FLOOD);
}

#[test]
fn a_steady_flow_survives_ageing_and_notices_every_change() {
    let mut s = switch(vec![access(1), access(1)]);
    send(&mut s, 0.0, 1, A, B);
    for t in 0..1000 {
        let t = f64::from(t);
        s.tick(at(t));
        send(&mut s, t, 1, A, B);
        assert_eq!(send(&mut s, t, 0, B, A), unicast(1, TagEdit::Keep));
    }
    s.set_link(PortId(1), false);
    assert_eq!(
        send(&mut s, 999.0, 0, B, A),
        Verdict::Drop(DropReason::ReceiverDown)
    );
    s.set_link(PortId(1), true);
    s.set_port(PortId(1), access(2));
    assert_eq!(
        send(&mut s, 999.0, 0, B, A),
        Verdict::Drop(DropReason::NoDestination)
    );
    s.set_port(PortId(0), access(2));
    assert_eq!(send(&mut s, 999.0, 0, B, A), flood(2, None));
    s.set_port(
        PortId(0),
        PortConfig {
            anti_spoofing: true,
            ..access(2)
        },
    );
    assert_eq!(
        send(&mut s, 999.0, 0, B, A),
        Verdict::Drop(DropReason::SpoofedSource)
    );
}

#[test]
fn a_learned_address_never_takes_an_own_one() {
    let mut s = switch(vec![access(1), owner(B), access(1)]);
    // Port 2 claims B.
    send(&mut s, 0.0, 2, A, B);
    assert_eq!(send(&mut s, 0.0, 0, B, A), unicast(1, TagEdit::Keep));
    s.apply_update(FdbUpdate::Learn {
        vlan: 1,
        mac: B,
        port: PortId(2),
    });
    s.apply_update(FdbUpdate::Forget { vlan: 1, mac: B });
    assert_eq!(send(&mut s, 0.0, 0, B, A), unicast(1, TagEdit::Keep));
    // A port that gets an address takes it from whoever had learned it.
    send(&mut s, 0.0, 2, A, C);
    assert_eq!(send(&mut s, 0.0, 0, C, A), unicast(2, TagEdit::Keep));
    s.set_port(
        PortId(1),
        PortConfig {
            macs: vec![C],
            ..access(1)
        },
    );
    assert_eq!(send(&mut s, 0.0, 0, C, A), unicast(1, TagEdit::Keep));
    assert_eq!(send(&mut s, 0.0, 0, B, A), FLOOD);
}

#[test]
fn equal_own_addresses_first_come_first_served() {
    let mut s = switch(vec![access(1), owner(B), owner(B)]);
    assert_eq!(send(&mut s, 0.0, 0, B, A), unicast(1, TagEdit::Keep));
    s.remove_port(PortId(1));
    assert_eq!(send(&mut s, 0.0, 0, B, A), unicast(2, TagEdit::Keep));
}

#[test]
fn no_destination_when_alone() {
    let mut s = switch(vec![trunk(1, None)]);
    let none = Verdict::Drop(DropReason::NoDestination);
    assert_eq!(send(&mut s, 0.0, 0, B, A), none);
    assert_eq!(send(&mut s, 0.0, 0, MacAddr::BROADCAST, A), none);
    s.add_port(PortId(5), access(2));
    s.set_link(PortId(5), true);
    assert_eq!(send(&mut s, 0.0, 0, B, A), none);
    let f = frame(MacAddr::BROADCAST, A, Some(2));
    assert_eq!(s.forward(at(0.0), PortId(0), &f, 60), flood(2, Some(2)));
    assert_eq!(targets(&s, 0, 2, Some(2)), [(5, TagEdit::Pop)]);
    // The sender's own link does not matter.
    s.set_link(PortId(0), false);
    assert_eq!(send(&mut s, 0.0, 0, B, A), none);
}

/// Frame in, VLAN settings of the receiver, edit on the way out. The sender is a trunk with native VLAN 10.
#[test]
fn tag_edits() {
    use TagEdit::*;
    let native10 = || trunk(10, None);
    let native20 = || trunk(20, None);
    let pcp5 = 5 << 13;
    #[rustfmt::skip]
    let table = [
        // TCI of the frame, receiver, edit (None: not a receiver)
        (None,              native10(),             Some(Keep)),
        (None,              access(10),             Some(Keep)),
        (None,              native20(),             Some(Push(10))),
        (None,              trunk(20, Some(&[10])), Some(Push(10))),
        (None,              trunk(20, Some(&[11])), None),
        (None,              access(20),             None),
        (Some(10),          native10(),             Some(Pop)),
        (Some(pcp5 | 10),   access(10),             Some(Pop)),
        (Some(10),          native20(),             Some(Keep)),
        (Some(pcp5 | 20),   native10(),             Some(Keep)),
        (Some(pcp5 | 20),   native20(),             Some(Pop)),
        (Some(pcp5 | 20),   access(20),             Some(Pop)),
        (Some(20),          trunk(10, Some(&[])),   None),
        (Some(20),          access(10),             None),
        (Some(pcp5),        native10(),             Some(Keep)),
        (Some(pcp5),        access(10),             Some(Pop)),
        (Some(pcp5),        native20(),             Some(Replace(pcp5 | 10))),
        (Some(0),           native20(),             Some(Replace(10))),
        (Some(pcp5),        access(20),             None),
        (Some(pcp5 | 4094), native10(),             Some(Keep)),
    ];
    for (tci, receiver, edit) in table {
        let row = std::format!("tci {tci:x?} to {:?}", receiver.vlan);
        let mut s = switch(vec![trunk(10, None), receiver]);
        let f = frame(GROUP_ADDR, A, tci);
        match s.forward(at(0.0), PortId(0), &f, f.len()) {
            Verdict::Flood(Flood { vlan, tci: t, .. }) => {
                assert_eq!(t, tci, "{row}");
                let got: Vec<_> = targets(&s, 0, vlan, t);
                assert_eq!(got, [(1, edit.expect(&row))], "{row}");
                // The same edit when the receiver is known.
                s.apply_update(FdbUpdate::Learn {
                    vlan,
                    mac: B,
                    port: PortId(1),
                });
                let f = frame(B, A, tci);
                let v = s.forward(at(0.0), PortId(0), &f, f.len());
                assert_eq!(v, unicast(1, edit.expect(&row)), "{row}");
            }
            v => {
                assert_eq!(v, Verdict::Drop(DropReason::NoDestination), "{row}");
                assert_eq!(edit, None, "{row}");
            }
        }
    }
}

#[test]
fn access_ports_take_no_tags_but_priority_tags() {
    let mut s = switch(vec![access(10), access(10)]);
    for (tci, ok) in [
        (Some(10), false),
        (Some(20), false),
        (Some(0), true),
        (Some(0xe000), true),
    ] {
        let f = frame(GROUP_ADDR, A, tci);
        let v = s.forward(at(0.0), PortId(0), &f, 60);
        assert_eq!(v != Verdict::Drop(DropReason::VlanNotAllowed), ok, "{tci:x?}");
    }
}

#[test]
fn vlans_learn_apart() {
    let mut s = switch(vec![access(10), access(20), trunk(1, None)]);
    let mut vlan = |port, to, from, tci| {
        let f = frame(to, from, tci);
        s.forward(at(0.0), PortId(port), &f, 60)
    };
    // The same address in two VLANs, at two ports.
    vlan(0, GROUP_ADDR, A, None);
    vlan(1, GROUP_ADDR, A, None);
    assert_eq!(vlan(2, A, B, Some(10)), unicast(0, TagEdit::Pop));
    assert_eq!(vlan(2, A, B, Some(20)), unicast(1, TagEdit::Pop));
    assert_eq!(vlan(0, B, A, None), unicast(2, TagEdit::Push(10)));
}

#[test]
fn learn_limit_and_full_table() {
    let mut s = Switch::new(SwitchConfig {
        learn_limit_per_port: 10,
        ..SwitchConfig::default()
    });
    for i in 0..2 {
        s.add_port(PortId(i), access(1));
        s.set_link(PortId(i), true);
    }
    for i in 0..100 {
        send(&mut s, 0.0, 0, C, MacAddr::from_u64(0x0200_0000_0000 + i));
    }
    assert_eq!((s.stats().learned, s.stats().refused), (10, 90));
    send(&mut s, 0.0, 1, C, B);
    assert_eq!(s.stats().learned, 11);
    // Room is made by ageing.
    s.tick(at(400.0));
    send(&mut s, 400.0, 0, C, A);
    assert_eq!(s.stats().learned, 12);

    let mut s = Switch::new(SwitchConfig {
        learn_limit_per_port: usize::MAX,
        ..SwitchConfig::default()
    });
    s.add_port(PortId(0), access(1));
    for i in 0..2 * FDB_CAPACITY as u64 {
        send(&mut s, 0.0, 0, C, MacAddr::from_u64(0x0200_0000_0000 + i));
    }
    let stats = s.stats();
    assert_eq!(stats.learned + stats.refused, 2 * FDB_CAPACITY as u64);
    assert_eq!(s.entries(at(0.0)).count() as u64, stats.learned);
    assert!(stats.learned > FDB_CAPACITY as u64 * 9 / 10);
    // An own address finds room in a full table.
    s.add_port(PortId(1), owner(B));
    s.set_link(PortId(1), true);
    assert_eq!(send(&mut s, 0.0, 0, B, A), unicast(1, TagEdit::Keep));
}

/// Two copies: port 0 belongs to the first, port 1 to the second.
fn copies() -> [Switch; 2] {
    [0, 1].map(|_| switch(vec![access(1), access(1), access(1)]))
}

fn exchange([a, b]: &mut [Switch; 2]) -> usize {
    let mut n = 0;
    while let Some(u) = a.poll_update() {
        b.apply_update(u);
        n += 1;
    }
    while let Some(u) = b.poll_update() {
        a.apply_update(u);
        n += 1;
    }
    n
}

#[test]
fn copies_tell_each_other() {
    let mut s = copies();
    assert!(!s[0].has_updates());
    send(&mut s[0], 0.0, 0, B, A);
    assert!(s[0].has_updates());
    assert_eq!(exchange(&mut s), 1);
    assert_eq!(send(&mut s[1], 0.0, 1, A, B), unicast(0, TagEdit::Keep));
    exchange(&mut s);
    assert_eq!(send(&mut s[0], 0.0, 0, B, A), unicast(1, TagEdit::Keep));
    // Both talk for a long time; little news.
    let mut news = 0;
    for t in 1..1000 {
        let t = f64::from(t);
        for (i, (to, from)) in [(B, A), (A, B)].into_iter().enumerate() {
            s[i].tick(at(t));
            assert!(matches!(
                send(&mut s[i], t, i as u16, to, from),
                Verdict::Unicast(_)
            ));
        }
        news += exchange(&mut s);
    }
    assert!(news < 40, "{news}");
    // A falls silent: its owner forgets it and says so.
    for t in 1000..1310 {
        let t = f64::from(t);
        s[0].tick(at(t));
        s[1].tick(at(t));
        send(&mut s[1], t, 1, GROUP_ADDR, B);
        exchange(&mut s);
    }
    assert_eq!(send(&mut s[1], 1310.0, 1, A, B), FLOOD);
    // Flushed here, gone there.
    s[1].flush_port(PortId(1));
    exchange(&mut s);
    assert_eq!(s[0].entries(at(1310.0)).count(), 0);
}

#[test]
fn crossing_moves_and_lost_news_heal() {
    let mut s = copies();
    // Both cores learn A at once.
    send(&mut s[0], 0.0, 0, B, A);
    send(&mut s[1], 0.0, 1, B, A);
    exchange(&mut s);
    // The one that speaks again is right, everywhere.
    send(&mut s[1], 1.0, 1, B, A);
    exchange(&mut s);
    assert_eq!(send(&mut s[0], 1.0, 0, A, B), unicast(1, TagEdit::Keep));
    assert_eq!(send(&mut s[1], 1.0, 1, A, A), Verdict::Drop(DropReason::Hairpin));
    // News that nobody fetches is bounded, counted, and repeated.
    for i in 0..3000u64 {
        send(
            &mut s[1],
            2.0,
            1 + (i & 1) as u16,
            GROUP_ADDR,
            MacAddr::from_u64(i << 8),
        );
    }
    assert!(s[1].stats().updates_lost > 0);
    while s[1].poll_update().is_some() {}
    send(&mut s[1], 80.0, 1, GROUP_ADDR, MacAddr::from_u64(0));
    assert_eq!(
        s[1].poll_update(),
        Some(FdbUpdate::Learn {
            vlan: 1,
            mac: MacAddr::from_u64(0),
            port: PortId(1)
        })
    );
    // A `Forget` that never comes is made up for.
    assert!(s[0].entries(at(2.0)).any(|e| e.1 == A));
    s[0].tick(at(500.0));
    assert!(!s[0].entries(at(500.0)).any(|e| e.1 == A));
}

#[test]
fn nonsense_settings_do_no_harm() {
    for vlan in [
        VlanMode::Access(0),
        VlanMode::Access(4095),
        VlanMode::Trunk {
            native: 0,
            allowed: Some([0, 4095, 65535].into()),
        },
    ] {
        let config = PortConfig {
            vlan,
            macs: vec![A, MacAddr::default(), GROUP_ADDR],
            learning: true,
            ..PortConfig::default()
        };
        let mut s = switch(vec![config.clone(), config]);
        assert_eq!(
            send(&mut s, 0.0, 0, MacAddr::default(), MacAddr::default()),
            Verdict::Drop(DropReason::VlanNotAllowed)
        );
        assert_eq!(s.entries(at(0.0)).count(), 0);
    }
    let mut s = Switch::new(SwitchConfig {
        ageing: Duration::ZERO,
        learn_limit_per_port: 0,
        ..SwitchConfig::default()
    });
    s.set_port(PortId(7), access(1));
    s.remove_port(PortId(7));
    s.set_link(PortId(7), true);
    s.flush_port(PortId(7));
    s.tick(Instant(u64::MAX));
    s.tick(Instant(0));
    s.add_port(PortId(0), access(1));
    assert_eq!(
        send(&mut s, 0.0, 0, B, A),
        Verdict::Drop(DropReason::NoDestination)
    );
}

#[test]
fn mac_control_is_for_links_only() {
    let mut s = switch(vec![owner(A), owner(B)]);
    let control = Verdict::Drop(DropReason::MacControl);
    let mut forward = |tci, ethertype: u16| {
        let mut f = frame(B, A, tci);
        let place = if tci.is_some() { 16 } else { 12 };
        f[place..place + 2].copy_from_slice(&ethertype.to_be_bytes());
        s.forward(at(0.0), PortId(0), &f, f.len())
    };
    // Whatever was decided about the same addresses before.
    for _ in 0..2 {
        assert_eq!(forward(None, 0x0800), unicast(1, TagEdit::Keep));
        assert_eq!(forward(None, 0x8808), control);
        assert_eq!(forward(Some(0), 0x0800), unicast(1, TagEdit::Keep));
        // Without its tag it would be one.
        assert_eq!(forward(Some(0), 0x8808), control);
        assert_eq!(forward(Some(1), 0x8808), control);
        assert_eq!(forward(Some(1), 0x0800), unicast(1, TagEdit::Pop));
        assert_eq!(forward(Some(0), 0x0800), unicast(1, TagEdit::Keep));
    }
}

#[test]
fn slow_protocols_are_for_links_only() {
    let mut s = switch(vec![owner(A), owner(B)]);
    let to = MacAddr([1, 0x80, 0xc2, 0, 0, 2]);
    for tci in [None, Some(0), Some(1)] {
        let f = frame(to, A, tci);
        let dropped = Verdict::Drop(DropReason::MacControl);
        assert_eq!(s.forward(at(0.0), PortId(0), &f, f.len()), dropped);
        // So is link layer discovery, if the operator does not want it to pass. (Other protocols may have its addresses.)
        let mut f = frame(MacAddr([1, 0x80, 0xc2, 0, 0, 0x0e]), A, tci);
        assert!(matches!(
            s.forward(at(0.0), PortId(0), &f, f.len()),
            Verdict::Flood(_)
        ));
        let at_type = if tci.is_some() { 16 } else { 12 };
        f[at_type..at_type + 2].copy_from_slice(&[0x88, 0xcc]);
        assert_eq!(s.forward(at(0.0), PortId(0), &f, f.len()), dropped);
        let mut passes = Switch::new(SwitchConfig {
            forward_lldp: true,
            ..SwitchConfig::default()
        });
        for (port, config) in (0..).zip([owner(A), owner(B)]) {
            passes.add_port(PortId(port), config);
            passes.set_link(PortId(port), true);
        }
        assert!(matches!(
            passes.forward(at(0.0), PortId(0), &f, f.len()),
            Verdict::Flood(_)
        ));
        // The next address is free.
        let f = frame(MacAddr([1, 0x80, 0xc2, 0, 0, 0x10]), A, tci);
        let verdict = s.forward(at(0.0), PortId(0), &f, f.len());
        assert!(matches!(verdict, Verdict::Flood(_)));
    }
}

#[test]
fn a_frames_priority_goes_before_its_ports() {
    let config = PortConfig {
        default_priority: 3,
        priority_tags: PriorityTags::Add,
        ..access(5)
    };
    let mut s = switch(vec![config, trunk(1, None), trunk(5, None), access(5)]);
    let f = frame(GROUP_ADDR, A, None);
    let verdict = s.forward(at(0.0), PortId(0), &f, 60);
    let edits = |s: &Switch, verdict| {
        let Verdict::Flood(flood) = verdict else {
            panic!("not flooded");
        };
        let edits = s.flood_targets(PortId(0), flood).map(|e| e.tag);
        edits.collect::<Vec<_>>()
    };
    use TagEdit::{Keep, Pop, Push};
    assert_eq!(edits(&s, verdict), [Push(3 << 13 | 5), Push(3 << 13), Keep]);
    let six = s.assign(PortId(0), &f, verdict, 6, true);
    assert_eq!(edits(&s, six), [Push(6 << 13 | 5), Push(6 << 13), Keep]);
    // To a receiver that is known, too.
    for (port, tag) in [(1, Push(6 << 13 | 5)), (2, Push(6 << 13)), (3, Keep)] {
        s.apply_update(FdbUpdate::Learn {
            vlan: 5,
            mac: B,
            port: PortId(port),
        });
        let f = frame(B, A, None);
        let verdict = s.forward(at(0.0), PortId(0), &f, 60);
        assert_eq!(s.assign(PortId(0), &f, verdict, 6, true), unicast(port, tag));
    }
    // A tag that the frame has is its own.
    let f = frame(GROUP_ADDR, A, Some(2 << 13));
    let verdict = s.forward(at(0.0), PortId(0), &f, 60);
    assert_eq!(s.assign(PortId(0), &f, verdict, 6, true), verdict);

    // A port that keeps tags adds one to a frame with a priority of its own only; a port that strips them never does.
    for (tags, tag, own) in [
        (PriorityTags::Keep, Push(6 << 13), Keep),
        (PriorityTags::Strip, Keep, Pop),
    ] {
        let config = PortConfig {
            priority_tags: tags,
            ..trunk(1, None)
        };
        let mut s = switch(vec![config, trunk(1, None), access(1)]);
        let f = frame(GROUP_ADDR, A, None);
        let verdict = s.forward(at(0.0), PortId(0), &f, 60);
        assert_eq!(edits(&s, verdict), [Keep, Keep]);
        let assigned = s.assign(PortId(0), &f, verdict, 6, true);
        assert_eq!(edits(&s, assigned), [tag, Keep], "{tags:?}");
        let in_tags_only = s.assign(PortId(0), &f, verdict, 6, false);
        assert_eq!(edits(&s, in_tags_only), [Keep, Keep]);
        for (port, tag, own) in [(1, tag, own), (2, Keep, Pop)] {
            s.apply_update(FdbUpdate::Learn {
                vlan: 1,
                mac: B,
                port: PortId(port),
            });
            for (tci, tag) in [(None, tag), (Some(2 << 13), own)] {
                let f = frame(B, A, tci);
                let verdict = s.forward(at(0.0), PortId(0), &f, 60);
                let assigned = s.assign(PortId(0), &f, verdict, 6, true);
                assert_eq!(assigned, unicast(port, tag), "{tags:?} to {port}");
            }
        }
    }
}

#[test]
fn a_mode_classifies_as_its_port_does() {
    let modes = [
        trunk(1, None),
        trunk(7, None),
        trunk(7, Some(&[])),
        trunk(7, Some(&[0, 9, 4094, 4095])),
        trunk(0, Some(&[9])),
        trunk(4095, None),
        access(7),
        access(0),
        access(4095),
    ];
    for config in modes {
        let mode = config.vlan.clone();
        let port = Port::new(config);
        assert_eq!(mode.classify(None), port.classify(None), "{mode:?}");
        for tag in [0, 1, 7, 8, 9, 4094, 4095] {
            assert_eq!(
                mode.classify(Some(tag)),
                port.classify(Some(tag)),
                "{mode:?}, {tag}"
            );
        }
    }
}

/// Two ports lead to the same network: what goes out at one comes in at the other.
#[test]
fn a_loop_is_suspected_once_and_then_in_sums() {
    let mut s = switch(vec![owner(A), access(1), access(1)]);
    // A station that moves and stays is no loop.
    for (t, port) in [(0.1, 1), (0.2, 2), (0.3, 2)] {
        send(&mut s, t, port, A, B);
        assert_eq!(s.tick(at(t)), None);
    }
    let mut told = Vec::new();
    let mut t = 10.0;
    while t < 130.0 {
        for port in [1, 2] {
            send(&mut s, t, port, GROUP_ADDR, B);
            send(&mut s, t, port, GROUP_ADDR, C);
        }
        told.extend(s.tick(at(t)));
        t += 0.1;
    }
    let moves: Vec<u64> = told.iter().map(|l| l.moves).collect();
    assert_eq!(told.len(), 2, "{told:?}");
    assert_eq!(told[0].ports.iter().map(|p| p.0).max(), Some(2));
    assert_eq!((told[0].vlan, [B, C].contains(&told[0].mac)), (1, true));
    // Four moves every tenth of a second; the first few of each address do not count yet.
    assert!(moves[0] <= 12 && (2380..2420).contains(&moves[1]), "{moves:?}");
    // When it is over there is one more sum, and then nothing.
    let rest: Vec<_> = (0..200).filter_map(|i| s.tick(at(t + f64::from(i)))).collect();
    assert_eq!(rest.len(), 1, "{rest:?}");
}

#[test]
fn frames_of_an_own_address_that_come_back_are_a_loop() {
    let mut s = switch(vec![owner(A), access(1), access(1)]);
    let mut told = None;
    for i in 0..20 {
        let t = f64::from(i) / 10.0;
        send(&mut s, t, 0, GROUP_ADDR, A);
        send(&mut s, t, 1, GROUP_ADDR, A);
        told = told.or(s.tick(at(t)));
    }
    let suspect = told.expect("a loop");
    assert_eq!((suspect.ports, suspect.mac), ([PortId(0), PortId(1)], A));
    // One frame a second is not enough.
    let mut s = switch(vec![owner(A), access(1)]);
    for i in 0..100 {
        let t = f64::from(i) * 1.5;
        send(&mut s, t, 1, GROUP_ADDR, A);
        assert_eq!(s.tick(at(t)), None);
    }
}

#[test]
fn an_isolated_port_neither_sends_nor_receives_until_it_is_none() {
    let mut s = switch(vec![owner(A), owner(B), access(1), access(1)]);
    let verdict = |s: &mut Switch, port: u16, to, from| {
        let f = frame(to, from, None);
        let (before, said) = (
            s.explain(PortId(port), &f, f.len()),
            s.forward(at(1.0), PortId(port), &f, f.len()),
        );
        assert_eq!(before.verdict, said);
        said
    };
    let receivers = |s: &mut Switch, port: u16| match verdict(s, port, GROUP_ADDR, C) {
        Verdict::Flood(flood) => s.flood_targets(PortId(port), flood).map(|e| e.port.0).collect(),
        other => panic!("{other:?}"),
    };
    let all: Vec<u16> = receivers(&mut s, 2);
    assert_eq!(all, [0, 1, 3]);
    let isolated = Verdict::Drop(DropReason::MirrorDestination);
    s.isolate(vec![PortId(1), PortId(3), PortId(7)]);
    assert_eq!(verdict(&mut s, 0, B, A), isolated);
    assert_eq!(verdict(&mut s, 1, A, B), isolated);
    assert_eq!(verdict(&mut s, 1, GROUP_ADDR, B), isolated);
    let some: Vec<u16> = receivers(&mut s, 2);
    assert_eq!(some, [0]);
    // Settings, links and a port of the same number made anew change nothing about it.
    s.set_port(PortId(1), owner(B));
    s.set_link(PortId(1), false);
    s.set_link(PortId(1), true);
    s.add_port(PortId(3), access(1));
    s.set_link(PortId(3), true);
    s.add_port(PortId(7), access(1));
    s.set_link(PortId(7), true);
    assert_eq!(verdict(&mut s, 0, B, A), isolated);
    let some: Vec<u16> = receivers(&mut s, 2);
    assert_eq!(some, [0]);
    s.isolate(Vec::new());
    let all: Vec<u16> = receivers(&mut s, 2);
    assert_eq!(all, [0, 1, 3, 7]);
    let back = Verdict::Unicast(Egress {
        port: PortId(1),
        tag: TagEdit::Keep,
    });
    assert_eq!(verdict(&mut s, 0, B, A), back);
    // A port without a link that was isolated has none afterwards.
    s.set_link(PortId(1), false);
    s.isolate(vec![PortId(1)]);
    s.isolate(Vec::new());
    assert_eq!(verdict(&mut s, 0, B, A), Verdict::Drop(DropReason::ReceiverDown));
}

#[test]
fn joined_ports_give_each_other_everything_and_nobody_else_anything() {
    let mut s = switch(vec![owner(A), access(1), access(2), access(1)]);
    let verdict = |s: &mut Switch, port: u16, f: &[u8]| {
        let before = s.explain(PortId(port), f, f.len());
        let said = s.forward(at(1.0), PortId(port), f, f.len());
        assert_eq!(before.verdict, said);
        said
    };
    let to = |port| {
        Verdict::Unicast(Egress {
            port: PortId(port),
            tag: TagEdit::Keep,
        })
    };
    s.bridge(&[(PortId(1), Some(PortId(2))), (PortId(2), Some(PortId(1)))]);
    // Own addresses of others, groups, what links say to each other, any VLAN, a group as a source.
    for f in [
        frame(A, C, None),
        frame(GROUP_ADDR, C, None),
        frame(MacAddr::from_u64(SLOW_PROTOCOLS), C, None),
        frame(C, C, Some(0x6123)),
        frame(C, GROUP_ADDR, Some(4095)),
    ] {
        assert_eq!(verdict(&mut s, 1, &f), to(2));
        assert_eq!(verdict(&mut s, 2, &f), to(1));
    }
    assert_eq!(verdict(&mut s, 1, &[0; 13]), Verdict::Drop(DropReason::Runt));
    assert_eq!(s.up_ports(), [PortId(0), PortId(3)]);
    assert!(
        s.entries(at(1.0)).all(|(_, mac, ..)| mac == A),
        "something was learned"
    );
    // A flow's decision ends with the link, and comes back with it.
    let f = frame(A, C, None);
    s.set_link(PortId(2), false);
    assert_eq!(verdict(&mut s, 1, &f), Verdict::Drop(DropReason::ReceiverDown));
    s.set_link(PortId(2), true);
    assert_eq!(verdict(&mut s, 1, &f), to(2));
    // One that waits for the other sends nothing; parted, both are members.
    s.bridge(&[(PortId(1), None)]);
    assert_eq!(verdict(&mut s, 1, &f), Verdict::Drop(DropReason::ReceiverDown));
    s.bridge(&[]);
    assert_eq!(verdict(&mut s, 1, &f), to(0));
    assert_eq!(s.up_ports().len(), 4);
}
