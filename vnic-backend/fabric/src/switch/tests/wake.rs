//! Frames that wake machines.

use super::*;
use crate::wake::Wakes;

#[test]
fn who_is_woken_has_the_address_and_cannot_receive() {
    let sleeper = |mac, vlan: PortConfig| PortConfig {
        macs: vec![mac],
        wakes: Wakes {
            magic: true,
            ..Wakes::default()
        },
        ..vlan
    };
    let mut s = Switch::new(SwitchConfig::default());
    assert!(!s.is_any_asleep());
    for (id, config) in [
        (0, trunk(1, None)),
        (1, sleeper(A, trunk(1, None))),
        (2, sleeper(B, access(5))),
        (3, owner(C)),
    ] {
        s.add_port(PortId(id), config);
    }
    s.set_link(PortId(0), true);
    assert!(s.is_any_asleep());
    let f = frame(GROUP_ADDR, D, None);
    let wakes = |s: &Switch, f: &[u8], mac| s.wakes(PortId(0), f, mac).map(|p| p.0);
    assert_eq!(wakes(&s, &f, A), Some(1));
    assert_eq!(wakes(&s, &f, B), None, "another VLAN");
    assert_eq!(wakes(&s, &frame(GROUP_ADDR, D, Some(5)), B), Some(2));
    assert_eq!(wakes(&s, &f, C), None, "not to be woken");
    // Whoever receives is awake.
    s.set_link(PortId(1), true);
    assert_eq!(wakes(&s, &f, A), None);
    assert!(s.is_any_asleep());
    s.remove_port(PortId(2));
    assert!(!s.is_any_asleep());
    s.set_link(PortId(1), false);
    assert!(s.is_any_asleep());
    s.set_port(PortId(1), owner(A));
    assert!(!s.is_any_asleep());
}

#[test]
fn patterns_wake_whom_the_frame_is_for() {
    let sleeper = |mac, vlan: PortConfig, patterns: [&str; 2]| PortConfig {
        macs: vec![mac],
        wakes: Wakes {
            magic: false,
            patterns: patterns.iter().filter_map(|p| p.parse().ok()).collect(),
        },
        ..vlan
    };
    let mut s = Switch::new(SwitchConfig::default());
    for (id, config) in [
        (0, trunk(1, None)),
        (1, sleeper(A, trunk(1, None), ["12+88:b5", "12+08:06"])),
        (2, sleeper(B, access(5), ["12+08:06", ""])),
        (3, sleeper(C, trunk(1, None), ["12+08:06", ""])),
        (4, owner(D)),
    ] {
        s.add_port(PortId(id), config);
    }
    assert!(s.is_any_asleep());
    let arp = |to, tci| {
        let mut f = frame(to, D, tci);
        let at = if tci.is_some() { 16 } else { 12 };
        f[at..at + 2].copy_from_slice(&[0x08, 0x06]);
        f
    };
    let woken = |s: &Switch, f: &[u8]| s.woken(PortId(0), f).map(|(p, n)| (p.0, n)).collect::<Vec<_>>();
    let to_all = arp(GROUP_ADDR, None);
    assert_eq!(woken(&s, &to_all), [(1, 1), (3, 0)]);
    // The tag is left out of the bytes, and says who is meant.
    assert_eq!(woken(&s, &arp(GROUP_ADDR, Some(5))), [(1, 1), (2, 0), (3, 0)]);
    assert_eq!(woken(&s, &arp(C, None)), [(3, 0)], "to one");
    assert_eq!(woken(&s, &arp(D, None)), [], "to somebody else");
    let mut other = to_all.clone();
    other[13] = 0;
    assert_eq!(woken(&s, &other), []);
    assert_eq!(woken(&s, &to_all[..13]), [], "too short");
    // Whoever receives is awake.
    s.set_link(PortId(1), true);
    assert_eq!(woken(&s, &to_all), [(3, 0)]);
    s.set_link(PortId(3), true);
    s.remove_port(PortId(2));
    assert!(!s.is_any_asleep());
}
