//! Tables: which frame has which priority, and what policies write.

use alloc::string::ToString;
use alloc::vec;

use proptest::prelude::*;
use vnic_wire::udp;

use super::*;

const SRC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const DST: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// An Ethernet frame: outer tag, EtherType and what follows.
fn frame(tci: Option<u16>, ethertype: u16, rest: &[u8]) -> Vec<u8> {
    let mut f = [DST, SRC].concat();
    if let Some(tci) = tci {
        f.extend([0x81, 0]);
        f.extend(tci.to_be_bytes());
    }
    f.extend(ethertype.to_be_bytes());
    f.extend(rest);
    f
}

/// An IPv4 packet with these ToS bits, so many bytes of options, and ports.
fn v4(tos: u8, protocol: u8, options: usize, ports: [u16; 2]) -> Vec<u8> {
    let mut p = vec![0; 20 + options];
    p[0] = 0x40 | ((20 + options) / 4) as u8;
    p[1] = tos;
    p[2..4].copy_from_slice(&((40 + options) as u16).to_be_bytes());
    p[8..10].copy_from_slice(&[64, protocol]);
    p[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    p[20..].fill(1);
    let sum = !checksum::fold(checksum::sum(&p));
    p[10..12].copy_from_slice(&sum.to_be_bytes());
    p.extend(ports.map(u16::to_be_bytes).concat());
    p.extend([0; 16]);
    p
}

/// An IPv6 packet with this traffic class.
fn v6(tclass: u8, next: u8, ports: [u16; 2]) -> Vec<u8> {
    let header = ipv6::Header {
        traffic_class: tclass,
        flow_label: 0xabcde,
        payload_len: 20,
        next_header: next,
        hop_limit: 64,
        source: [1; 16],
        destination: [2; 16],
    };
    let mut p = header.emit().to_vec();
    p.extend(ports.map(u16::to_be_bytes).concat());
    p.extend([0; 16]);
    p
}

fn trusting(trust: Trust) -> Classification {
    Classification {
        priorities: PriorityRules {
            trust,
            default_priority: 2,
            ..PriorityRules::default()
        },
        ..Classification::default()
    }
}

const STATES: [Trust; 4] = [Trust::Port, Trust::Pcp, Trust::Dscp, Trust::Both];

/// PCP and DEI are one number for both maps; what a policy writes is the code point of its priority.
#[test]
fn tags_go_by_the_maps() {
    let mut c = Classification {
        priorities: Trust::Pcp.into(),
        ..Classification::default()
    };
    let frame = |tci: u8| {
        let mut frame = [0; 64];
        frame[12..18].copy_from_slice(&[0x81, 0x00, tci, 7, 0x08, 0x00]);
        frame[18..20].copy_from_slice(&[0x45, 10 << 2]);
        frame
    };
    let of = |c: &Classification, pcp: u8, dei: u8| {
        let frame = frame(pcp << 5 | dei << 4 | 0xf);
        (c.priority(&frame), c.colour(&frame))
    };
    for pcp in 0..8 {
        assert_eq!(of(&c, pcp, 0), (pcp, Colour::Green));
        assert_eq!(of(&c, pcp, 1), (pcp, Colour::Yellow), "drop eligible");
    }
    c.tags.priority[2 * 5 + 1] = 4;
    c.tags.colour[2 * 5 + 1] = Colour::Red;
    assert!(!c.is_plain());
    assert_eq!(of(&c, 5, 1), (4, Colour::Red));
    assert_eq!(of(&c, 5, 0), (5, Colour::Green));
    assert_eq!(c.colour(&[0; 64]), Colour::Green, "no tag");
    // Who is asked for the priority is asked for the colour.
    c.dscp_to_colour[10] = Colour::Yellow;
    c.priorities.trust = Trust::Both;
    assert_eq!(of(&c, 5, 1), (1, Colour::Yellow));
    c.priorities.trust = Trust::Port;
    assert_eq!(of(&c, 5, 1), (0, Colour::Green));
    c.policies = vec![Policy {
        name: "all".into(),
        matches: Match::Default,
        priority: Some(3),
        dscp: None,
    }];
    c.tags.pcp[3] = 6;
    let decision = c.decide(&frame(0), false);
    assert_eq!((decision.priority, decision.pcp), (3, Some(6)));
}

#[test]
fn every_trust_state_with_every_kind_of_frame() {
    // DSCP 46 has priority 5 by the static map; the tag says 6.
    let (tag, mere) = (Some(6 << 13 | 7), Some(6 << 13));
    let (p4, p6) = (v4(46 << 2 | 1, 17, 0, [1, 2]), v6(46 << 2 | 3, 6, [1, 2]));
    #[rustfmt::skip]
    let table: &[(&str, Vec<u8>, [u8; 4])] = &[
        ("ARP",                       frame(None, 0x0806, &[0; 46]), [2, 2, 2, 2]),
        ("ARP, tagged",               frame(tag, 0x0806, &[0; 46]),  [2, 6, 2, 6]),
        ("ARP, priority tag",         frame(mere, 0x0806, &[0; 46]), [2, 6, 2, 6]),
        ("IPv4",                      frame(None, 0x0800, &p4),      [2, 2, 5, 5]),
        ("IPv4, tagged",              frame(tag, 0x0800, &p4),       [2, 6, 5, 5]),
        ("IPv4, priority tag",        frame(mere, 0x0800, &p4),      [2, 6, 5, 5]),
        ("IPv6",                      frame(None, 0x86dd, &p6),      [2, 2, 5, 5]),
        ("IPv6, tagged",              frame(tag, 0x86dd, &p6),       [2, 6, 5, 5]),
        ("IPv6, priority tag",        frame(mere, 0x86dd, &p6),      [2, 6, 5, 5]),
        // The switch takes a service tag for payload: so it says nothing.
        ("service tag",               frame(None, 0x88a8, &[0xc0, 7, 8, 0, 0x45, 0xb8]), [2, 2, 2, 2]),
        ("two tags",                  frame(tag, 0x8100, &[&[0x20, 7, 8, 0][..], &p4].concat()), [2, 6, 2, 6]),
        // What is cut off says nothing.
        ("nothing",                   vec![],                        [2, 2, 2, 2]),
        ("no EtherType",              frame(None, 0x0800, &p4)[..13].to_vec(), [2, 2, 2, 2]),
        ("no ToS",                    frame(None, 0x0800, &p4)[..15].to_vec(), [2, 2, 2, 2]),
        ("half a tag",                frame(tag, 0x0800, &p4)[..15].to_vec(),  [2, 2, 2, 2]),
        ("tag and nothing",           frame(tag, 0x0800, &p4)[..16].to_vec(),  [2, 6, 2, 6]),
        ("tag and no ToS",            frame(tag, 0x0800, &p4)[..19].to_vec(),  [2, 6, 2, 6]),
    ];
    for (what, frame, wanted) in table {
        for (trust, wanted) in STATES.into_iter().zip(wanted) {
            assert_eq!(
                trusting(trust).priority(frame),
                *wanted,
                "{what}, trust {trust:?}"
            );
            let decision = trusting(trust).decide(frame, false);
            assert_eq!(decision.priority, *wanted, "{what}, trust {trust:?}");
            assert!(!decision.rewrites());
        }
    }
}

#[test]
fn all_code_points() {
    let reversed = Classification {
        dscp_to_priority: core::array::from_fn(|d| 7 - (d / 8) as u8),
        ..trusting(Trust::Dscp)
    };
    for dscp in 0..64u8 {
        for ecn in 0..4 {
            let tos = dscp << 2 | ecn;
            for f in [
                frame(None, 0x0800, &v4(tos, 6, 0, [0; 2])),
                frame(Some(5), 0x86dd, &v6(tos, 6, [0; 2])),
            ] {
                assert_eq!(trusting(Trust::Dscp).priority(&f), dscp / 8, "{dscp}");
                assert_eq!(reversed.priority(&f), 7 - dscp / 8, "{dscp}");
            }
        }
    }
    for (pcp, f) in (0..8u16).map(|p| (p as u8, frame(Some(p << 13 | 9), 0x0806, &[0; 46]))) {
        assert_eq!(trusting(Trust::Pcp).priority(&f), pcp);
    }
}

fn policy(matches: Match, priority: Option<u8>, dscp: Option<u8>) -> Policy {
    Policy {
        name: "p".to_string(),
        matches,
        priority,
        dscp,
    }
}

#[test]
fn conditions_of_policies() {
    let ports = |protocol, first, last| Match::DestinationPorts {
        protocol,
        first,
        last,
    };
    let tcp = |port| frame(None, 0x0800, &v4(0, 6, 0, [9, port]));
    let udp = |port| frame(Some(3 << 13 | 4), 0x86dd, &v6(0, 17, [9, port]));
    let options = frame(Some(1), 0x0800, &v4(0, 6, 40, [9, 445]));
    let mut later = v4(0, 17, 0, [9, 80]);
    later[6] = 0x20;
    let fragment = frame(None, 0x0800, &later);
    let extended = {
        let mut p = v6(0, 0, [6 << 8, 0]);
        p.truncate(48);
        p.extend([0, 9, 1, 0xbd, 0, 0, 0, 0]);
        frame(None, 0x86dd, &p)
    };
    #[rustfmt::skip]
    let table: &[(Match, &[u8], bool, bool)] = &[
        (Match::Tcp,              &tcp(80),      false, true),
        (Match::Tcp,              &udp(80),      false, false),
        (Match::Udp,              &udp(80),      false, true),
        (Match::Udp,              &tcp(80),      false, false),
        (Match::Udp,              &fragment,     false, true),
        (ports(0, 80, 90),        &tcp(80),      false, true),
        (ports(0, 80, 90),        &udp(90),      false, true),
        (ports(0, 80, 90),        &udp(91),      false, false),
        (ports(0, 80, 90),        &udp(79),      false, false),
        (ports(6, 80, 90),        &udp(85),      false, false),
        (ports(17, 80, 90),       &udp(85),      false, true),
        (ports(17, 80, 80),       &fragment,     false, false),
        (ports(0, 0, 65535),      &frame(None, 0x0806, &[0; 46]), false, false),
        (ports(0, 0, 65535),      &frame(None, 0x0800, &v4(0, 1, 0, [8, 0])), false, false),
        (Match::Smb,              &tcp(445),     false, true),
        (Match::Smb,              &udp(445),     false, false),
        (Match::Smb,              &options,      false, true),
        (Match::Smb,              &extended,     false, true),
        (Match::Smb,              &tcp(446),     false, false),
        (Match::NetDirect,        &udp(4791),    true,  true),
        (Match::NetDirect,        &udp(4791),    false, false),
        (Match::NetDirectPort(445), &udp(4791),  true,  false),
        (Match::NetDirectPort(445), &tcp(445),   false, false),
        (Match::Udp,              &udp(4791),    true,  false),
        (ports(17, 4791, 4791),   &udp(4791),    true,  false),
        (Match::Default,          &tcp(1),       false, true),
        (Match::Default,          &udp(1),       true,  true),
        (Match::Default,          &[],           false, true),
        (Match::Tcp,              &tcp(80)[..20],false, false),
    ];
    for (i, (matches, f, rdma, wanted)) in table.iter().enumerate() {
        let c = Classification {
            policies: vec![policy(*matches, Some(7), None)],
            ..trusting(Trust::Pcp)
        };
        let wanted = if *wanted {
            Decision {
                priority: 7,
                pcp: Some(7),
                dscp: None,
            }
        } else {
            Decision {
                priority: c.priority(f),
                ..Decision::default()
            }
        };
        assert_eq!(c.decide(f, *rdma), wanted, "row {i}: {matches:?}");
    }
}

#[test]
fn the_first_policy_counts_and_the_default_one_last() {
    let c = Classification {
        policies: vec![
            policy(Match::Default, Some(1), Some(8)),
            policy(Match::Smb, None, Some(40)),
            policy(Match::Tcp, Some(6), None),
        ],
        ..trusting(Trust::Dscp)
    };
    let decide = |f: &[u8]| {
        let d = c.decide(f, false);
        (d.priority, d.pcp, d.dscp)
    };
    // What is written is what is trusted.
    let smb = frame(None, 0x0800, &v4(0, 6, 0, [1, 445]));
    assert_eq!(decide(&smb), (5, None, Some(40)));
    let tcp = frame(None, 0x0800, &v4(46 << 2, 6, 0, [1, 80]));
    assert_eq!(decide(&tcp), (6, Some(6), None));
    let udp = frame(None, 0x0800, &v4(46 << 2, 17, 0, [1, 80]));
    assert_eq!(decide(&udp), (1, Some(1), Some(8)));
    // Nothing to write a DSCP into.
    assert_eq!(decide(&frame(None, 0x0806, &[0; 46])), (1, Some(1), None));
}

proptest! {
    #[test]
    fn what_is_written_is_right(
        tos: u8,
        tci in prop::option::of(any::<u16>()),
        pcp in prop::option::of(0..8u8),
        dscp in prop::option::of(0..64u8),
        six: bool,
        options in 0..11usize,
        ports: [u16; 2],
        cut in 0..140usize,
    ) {
        let (ethertype, packet) = match six {
            true => (0x86dd, v6(tos, udp::HEADER_LEN as u8, ports)),
            false => (0x0800, v4(tos, 17, 4 * options, ports)),
        };
        let before = frame(tci, ethertype, &packet);
        let decision = Decision { priority: 0, pcp, dscp };
        let mut after = before.clone();
        decision.apply(&mut after, None);
        let at = if tci.is_some() { 18 } else { 14 };
        let mut wanted = before.clone();
        if let (Some(tci), Some(pcp)) = (tci, pcp) {
            let tci = tci & 0x1fff | u16::from(pcp) << 13;
            wanted[14..16].copy_from_slice(&tci.to_be_bytes());
        }
        if let Some(dscp) = dscp {
            let tos = dscp << 2 | tos & 3;
            let packet = match six {
                true => v6(tos, udp::HEADER_LEN as u8, ports),
                false => v4(tos, 17, 4 * options, ports),
            };
            wanted[at..].copy_from_slice(&packet);
        }
        if !six && dscp.is_some() {
            // A sum of zero can be written in two ways.
            let header = &after[at..at + 20 + 4 * options];
            prop_assert_eq!(checksum::fold(checksum::sum(header)), 0xffff);
            after[at + 10..at + 12].copy_from_slice(&wanted[at + 10..at + 12]);
        }
        prop_assert_eq!(&after, &wanted);
        // Nothing breaks with less of it.
        let mut short = before[..cut.min(before.len())].to_vec();
        decision.apply(&mut short, None);
        let _ = trusting(Trust::Both).decide(&short, false);
    }

    #[test]
    fn a_checksum_that_is_computed_later_is_left_alone(tos: u8, dscp in 0..64u8) {
        let mut f = frame(None, 0x0800, &v4(tos, 17, 0, [1, 2]));
        f[24..26].fill(0);
        Decision { dscp: Some(dscp), ..Decision::default() }.apply(&mut f, Some(24));
        prop_assert_eq!(&f[24..26], &[0, 0]);
        prop_assert_eq!(f[15], dscp << 2 | tos & 3);
    }
}
