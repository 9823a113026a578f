//! Tables: which rule decides about which frame, and what hides.

use std::vec;
use std::vec::Vec;

use super::*;

const A: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const B: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
const TCP: u8 = 6;
const UDP: u8 = 17;

/// An Ethernet frame with these bytes behind its addresses.
fn frame(rest: &[&[u8]]) -> Vec<u8> {
    [&B.0[..], &A.0, &rest.concat()].concat()
}

/// An IPv4 packet from 10.0.0.1 to 10.0.0.2 with ports, so many bytes of options, and this fragment field.
fn v4(protocol: u8, options: usize, fragment: u16, ports: [u16; 2]) -> Vec<u8> {
    let mut p = vec![0; 20 + options];
    p[0] = 0x40 | ((20 + options) / 4) as u8;
    p[6..8].copy_from_slice(&fragment.to_be_bytes());
    p[8..10].copy_from_slice(&[64, protocol]);
    p[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    p.extend(ports.map(u16::to_be_bytes).concat());
    p.extend([0; 16]);
    p
}

/// An IPv6 packet from fd00::1 to fd00::2: the first next header, and all behind the header.
fn v6(next: u8, behind: &[u8]) -> Vec<u8> {
    let mut p = vec![0x60, 0, 0, 0, 0, behind.len() as u8, next, 64];
    for last in [1, 2] {
        p.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
    }
    p.extend(behind);
    p
}

fn ports(source: u16, destination: u16) -> Vec<u8> {
    [source, destination].map(u16::to_be_bytes).concat()
}

fn rule(action: Action, matches: Match) -> Rule {
    Rule {
        way: Way::Tx,
        action,
        matches,
    }
}

/// SSH, as most people would write it.
const SSH: Match = Match {
    protocol: Some(TCP),
    destination_ports: Some((22, 22)),
    ..NOTHING
};
const NOTHING: Match = Match {
    source_mac: None,
    destination_mac: None,
    vlan: None,
    ethertype: None,
    source: None,
    destination: None,
    protocol: None,
    source_ports: None,
    destination_ports: None,
};

fn decide(rules: &[Rule], default_tx: Action, vlan: u16, head: &[u8]) -> Decision {
    let rules = Rules {
        rules: rules.to_vec(),
        default_rx: Action::Permit,
        default_tx,
    };
    AccessList::new(rules, None).explain(Way::Tx, vlan, head)
}

#[test]
fn conditions_hold_for_what_they_say() {
    let prefix = |text: &str| Some(text.parse().expect("a prefix"));
    let tcp = frame(&[&[8, 0], &v4(TCP, 0, 0, [1000, 22])]);
    let arp = frame(&[&[8, 6], &[0; 28]]);
    let six = frame(&[&[0x86, 0xdd], &v6(UDP, &ports(1000, 4791))]);
    // RoCEv1: the same addresses, and no protocol.
    let v1 = frame(&[&[0x89, 0x15], &v6(27, &[0; 40])]);
    #[rustfmt::skip]
    let table: &[(Match, [bool; 4])] = &[
        (NOTHING,                                                     [true, true, true, true]),
        (Match { source_mac: Some(A), ..NOTHING },                    [true, true, true, true]),
        (Match { source_mac: Some(B), ..NOTHING },                    [false, false, false, false]),
        (Match { destination_mac: Some(B), ..NOTHING },               [true, true, true, true]),
        (Match { vlan: Some(7), ..NOTHING },                          [true, true, true, true]),
        (Match { vlan: Some(0), ..NOTHING },                          [false, false, false, false]),
        (Match { ethertype: Some(0x806), ..NOTHING },                 [false, true, false, false]),
        (Match { ethertype: Some(0x8915), ..NOTHING },                [false, false, false, true]),
        (Match { source: prefix("10.0.0.0/24"), ..NOTHING },          [true, false, false, false]),
        (Match { destination: prefix("10.0.0.1"), ..NOTHING },        [false, false, false, false]),
        (Match { destination: prefix("fd00::/64"), ..NOTHING },       [false, false, true, true]),
        (Match { source: prefix("::/0"), ..NOTHING },                 [false, false, true, true]),
        (Match { protocol: Some(TCP), ..NOTHING },                    [true, false, false, false]),
        (Match { protocol: Some(UDP), ..NOTHING },                    [false, false, true, false]),
        (Match { destination_ports: Some((20, 30)), ..NOTHING },      [true, false, false, false]),
        (Match { destination_ports: Some((23, 5000)), ..NOTHING },    [false, false, true, false]),
        (Match { source_ports: Some((1000, 1000)), ..NOTHING },       [true, false, true, false]),
        (SSH,                                                         [true, false, false, false]),
        (Match { source: prefix("10.0.0.9"), ..SSH },                 [false, false, false, false]),
    ];
    for (matches, wanted) in table {
        for (f, wanted) in [&tcp, &arp, &six, &v1].into_iter().zip(wanted) {
            for action in Action::ALL {
                let decision = decide(&[rule(action, *matches)], Action::Permit, 7, f);
                assert_eq!(decision.rule.is_some(), *wanted, "{matches:?} {f:x?}");
            }
        }
    }
}

/// What hides the ports of a packet hides nothing from a rule that denies, and gains nothing by one that permits.
#[test]
fn nobody_gets_around_a_list_by_hiding() {
    let ssh = v4(TCP, 0, 0, [1000, 22]);
    let upper = ports(1000, 22);
    let options = |next: u8| [&[next, 0][..], &[0; 6]].concat();
    let chain = |n: usize, last: u8| -> Vec<u8> {
        let mut all: Vec<u8> = (1..n).flat_map(|_| options(60)).collect();
        all.extend(options(last));
        all.extend(&upper);
        all
    };
    let tag = [0x81, 0, 0, 9];
    #[rustfmt::skip]
    let hiding: &[(&str, Vec<u8>)] = &[
        ("one tag",                 frame(&[&tag, &[8, 0], &ssh])),
        ("two tags",                frame(&[&[0x88, 0xa8, 0, 9], &tag, &[8, 0], &ssh])),
        ("three tags",              frame(&[&tag, &tag, &tag, &[8, 0], &ssh])),
        ("an old TPID",             frame(&[&[0x91, 0, 0, 9], &[8, 0], &ssh])),
        ("LLC and SNAP",            frame(&[&[0, 60, 0xaa, 0xaa, 3, 0, 0, 0, 8, 0], &ssh])),
        ("options",                 frame(&[&[8, 0], &v4(TCP, 40, 0, [1000, 22])])),
        ("a first fragment",        frame(&[&[8, 0], &v4(TCP, 0, 0x2000, [1000, 22])])),
        ("a later fragment",        frame(&[&[8, 0], &v4(TCP, 0, 0x2001, [7, 7])])),
        ("the last fragment",       frame(&[&[8, 0], &v4(TCP, 0, 1, [7, 7])])),
        ("cut off",                 frame(&[&[8, 0], &ssh[..21]])),
        ("no whole IP header",      frame(&[&[8, 0], &ssh[..19]])),
        ("another version",         frame(&[&[8, 0], &[0x55; 40]])),
        ("an extension header",     frame(&[&[0x86, 0xdd], &v6(60, &chain(1, TCP))])),
        ("many of them",            frame(&[&[0x86, 0xdd], &v6(0, &chain(7, TCP))])),
        ("too many of them",        frame(&[&[0x86, 0xdd], &v6(0, &chain(20, TCP))])),
        ("one that is cut off",     frame(&[&[0x86, 0xdd], &v6(60, &[TCP, 9, 0, 0])])),
        ("an IPv6 fragment",        frame(&[&[0x86, 0xdd], &v6(44, &[&[TCP, 0, 0, 1, 0, 0, 0, 0][..], &upper].concat())])),
        ("a later IPv6 fragment",   frame(&[&[0x86, 0xdd], &v6(44, &[&[TCP, 0, 0, 9, 0, 0, 0, 0][..], &[7; 20]].concat())])),
    ];
    let http = Match {
        destination_ports: Some((80, 80)),
        ..SSH
    };
    for (what, f) in hiding {
        let denied = decide(&[rule(Action::Deny, SSH)], Action::Permit, 0, f);
        assert_eq!(denied.action, Action::Deny, "{what}");
        let permitted = decide(&[rule(Action::Permit, http)], Action::Deny, 0, f);
        assert_eq!(permitted.action, Action::Deny, "{what}");
    }
    // What is no such packet passes.
    for (what, f) in [
        ("another port", frame(&[&[8, 0], &v4(TCP, 0, 0, [22, 23])])),
        ("another protocol", frame(&[&[8, 0], &v4(UDP, 0, 0, [1000, 22])])),
        (
            "a fragment of it",
            frame(&[&[8, 0], &v4(UDP, 0, 0x2000, [1000, 22])]),
        ),
        (
            "ICMPv6 behind an option",
            frame(&[&[0x86, 0xdd], &v6(0, &chain(1, 58))]),
        ),
        ("ARP", frame(&[&[8, 6], &[0; 28]])),
        ("spanning tree", frame(&[&[0, 38, 0x42, 0x42, 3], &[0; 35]])),
    ] {
        let decision = decide(&[rule(Action::Deny, SSH)], Action::Permit, 0, &f);
        assert_eq!(decision.action, Action::Permit, "{what}");
    }
}

#[test]
fn the_first_rule_decides_and_each_way_has_its_own() {
    let f = frame(&[&[8, 0], &v4(TCP, 0, 0, [1000, 22])]);
    let permit = rule(Action::Permit, SSH);
    let deny = rule(Action::Deny, NOTHING);
    let got = Rule { way: Way::Rx, ..deny };
    let says = |action, rule| Decision { action, rule };
    assert_eq!(
        decide(&[permit, deny], Action::Deny, 0, &f),
        says(Action::Permit, Some(0))
    );
    assert_eq!(
        decide(&[deny, permit], Action::Permit, 0, &f),
        says(Action::Deny, Some(0))
    );
    assert_eq!(decide(&[got], Action::Permit, 0, &f), says(Action::Permit, None));
    assert_eq!(decide(&[got], Action::Deny, 0, &f), says(Action::Deny, None));
    let rules = Rules {
        rules: vec![got],
        ..Rules::default()
    };
    assert!(rules.concern(Way::Rx) && !rules.concern(Way::Tx));
    assert_eq!(
        AccessList::new(rules, None).explain(Way::Rx, 0, &f),
        says(Action::Deny, Some(0))
    );
}

#[test]
fn a_rule_that_stays_keeps_its_count() {
    let f = frame(&[&[8, 0], &v4(TCP, 0, 0, [1000, 22])]);
    let (ssh, all) = (rule(Action::Deny, SSH), rule(Action::Permit, NOTHING));
    let list = |rules: &[Rule], before: Option<&AccessList>| {
        let rules = Rules {
            rules: rules.to_vec(),
            ..Rules::default()
        };
        AccessList::new(rules, before)
    };
    let count = |list: &AccessList| list.count(Way::Tx, list.explain(Way::Tx, 0, &f));
    let before = list(&[ssh], None);
    count(&before);
    count(&before);
    let after = list(&[all, ssh], Some(&before));
    assert_eq!(after.hits().collect::<Vec<_>>(), [0, 2]);
    count(&after);
    assert_eq!(after.hits().collect::<Vec<_>>(), [1, 2]);
    let none = list(&[], Some(&after));
    count(&none);
    assert_eq!((none.unmatched(Way::Tx), none.unmatched(Way::Rx)), (1, 0));
}
