//! QoS policies: what an adapter's frames are about decides their priority, and what is written into them.

use anyhow::Result;
use vnic_backend::settings::{AdapterSettings, Trust};
use vnic_backend::{DropReason, MacAddr, Match, Policy, QosSpec, VlanMode};
use vnic_tests::driver::packets::{
    BROADCAST, Flow, Number, eth, numbered, parse, pattern, tagged, tcp, tso, udp, udp_partial,
};
use vnic_tests::driver::rig::{Copies, Rig, deadline};
use vnic_tests::driver::{Guest, NetHdr, OFFLOADS, Options};

fn policy(matches: Match, priority: Option<u8>, dscp: Option<u8>) -> Policy {
    Policy {
        name: format!("{matches:?}"),
        matches,
        priority,
        dscp,
    }
}

fn policies(policies: Vec<Policy>) -> QosSpec {
    QosSpec {
        policies,
        ..QosSpec::default()
    }
}

fn ports(protocol: u8, first: u16, last: u16) -> Match {
    Match::DestinationPorts {
        protocol,
        first,
        last,
    }
}

fn with_offloads() -> Options {
    Options {
        features: Options::default().features | OFFLOADS,
        rx_buffer: 70_000,
        tx_buffer: 70_000,
        ..Options::default()
    }
}

/// The same frame with these bits in its ToS or traffic class byte, as its sender has made it.
fn marked(mut frame: Vec<u8>, tos: u8) -> Vec<u8> {
    let at = if frame[12..14] == [0x81, 0] { 18 } else { 14 };
    if frame[at] >> 4 == 6 {
        frame[at] = 0x60 | tos >> 4;
        frame[at + 1] = frame[at + 1] & 0xf | tos << 4;
        return frame;
    }
    frame[at + 1] = tos;
    frame[at + 10..at + 12].fill(0);
    let words = frame[at..at + 20].chunks(2);
    let mut sum: u32 = words.map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    frame[at + 10..at + 12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    frame
}

/// Its tag, and ToS or traffic class byte.
fn marks(frame: &[u8]) -> (Option<u16>, u8) {
    let (tci, at) = match frame[12..14] {
        [0x81, 0] => (Some(u16::from_be_bytes([frame[14], frame[15]])), 18),
        _ => (None, 14),
    };
    let tos = if frame[at] >> 4 == 6 {
        frame[at] << 4 | frame[at + 1] >> 4
    } else {
        frame[at + 1]
    };
    (tci, tos)
}

fn recv(g: &mut Guest) -> (NetHdr, Vec<u8>) {
    let (hdr, _, f) = g.recv(0, deadline()).expect("a frame");
    (hdr, f)
}

const ECN: u8 = 2;

/// Every kind of frame, to every kind of receiver: marked, with right checksums, and otherwise as it was.
#[test]
fn packets_are_marked_and_stay_right() -> Result<()> {
    for cores in [1, 2] {
        for queued in [false, true] {
            let mut rig = Rig::new(cores)?;
            let a = rig.add("a")?;
            // One who takes finished frames only, one who takes all, and one for whom the frames are in another VLAN.
            let receivers = [rig.add("plain")?, rig.add("offloads")?, {
                rig.add_with("trunk", |s| {
                    s.vlan = VlanMode::Trunk {
                        native: 7,
                        allowed: None,
                    };
                })?
            }];
            // With a limit, so that frames wait in the send queue.
            let spec = QosSpec {
                rate: if queued { 50_000_000 } else { 0 },
                ..policies(vec![policy(ports(0, 80, 80), Some(5), Some(46))])
            };
            rig.nic.set_qos("a", spec)?;
            let mut settings = AdapterSettings::default();
            settings.qos.sending.queue_per_priority = queued;
            rig.nic.apply_qos_keys("a", &settings)?;
            let mut ga = rig.attach("a", with_offloads())?;
            let mut guests = [
                rig.attach("plain", Options::default())?,
                rig.attach("offloads", with_offloads())?,
                rig.attach("trunk", Options::default())?,
            ];
            // Receivers are known where the frames are.
            let mut extra = 0;
            for (who, vlan) in [(0, 9), (1, 9), (2, 9), (2, 1)] {
                let hello = tagged(&eth(BROADCAST, receivers[who], [8, 6], &[0; 46]), vlan);
                guests[who].send_wait(0, &hello, NetHdr::default());
                recv(&mut ga);
                for (other, g) in guests.iter_mut().enumerate() {
                    if other != who {
                        recv(g);
                    }
                }
                extra += 2;
            }
            rig.settle()?;
            for (who, to) in receivers.into_iter().enumerate() {
                for (v6, vlan) in [(false, None), (true, None), (false, Some(1)), (true, Some(9))] {
                    let flow = Flow {
                        to,
                        from: a,
                        v6,
                        vlan,
                        port: 1000,
                    };
                    // A tag that the guest writes keeps its VLAN and gets the priority; otherwise there is one where the
                    // VLAN leaves tagged, and a priority tag where the frame has none.
                    let tci = match (vlan, who) {
                        (Some(9), _) => Some(5 << 13 | 9),
                        (_, 2) => Some(5 << 13 | 1),
                        (None, _) => Some(5 << 13),
                        _ => None,
                    };
                    let payload = pattern(3000);
                    let small = &payload[..100];
                    let sent = [
                        (udp(&flow, small), NetHdr::default()),
                        (tcp(&flow, small), NetHdr::default()),
                        udp_partial(&flow, small),
                        tso(&flow, &payload, 1000),
                    ];
                    for (i, (f, hdr)) in sent.into_iter().enumerate() {
                        ga.send_wait(0, &marked(f, 3 << 2 | ECN), hdr);
                        let g = &mut guests[who];
                        let mut got = Vec::new();
                        let wanted = if i == 3 { &payload[..] } else { small };
                        let mut n = 0;
                        while got.len() < wanted.len() {
                            let (hdr, mut f) = recv(g);
                            n += 1;
                            assert_eq!(
                                marks(&f),
                                (tci, 46 << 2 | ECN),
                                "receiver {who}, {flow:?}, frame {i}"
                            );
                            if hdr.flags & NetHdr::NEEDS_CSUM != 0 {
                                assert_eq!(who, 1);
                                finish(&mut f, &hdr);
                            }
                            if hdr.gso_type != 0 {
                                got.extend(&f[f.len() - payload.len()..]);
                            } else {
                                got.extend(parse(&f).payload);
                            }
                        }
                        extra += n - 1;
                        assert!(got == wanted, "receiver {who}, {flow:?}, frame {i}");
                    }
                }
            }
            ga.drain();
            assert_eq!(
                rig.priority_counter("a", 5, "tx_frames"),
                rig.counter("a", "tx_frames")
            );
            drop((ga, guests));
            rig.finish(Copies::Extra(extra))?;
        }
    }
    Ok(())
}

/// Finishes a partial checksum, as a receiving stack trusts it.
fn finish(frame: &mut [u8], hdr: &NetHdr) {
    let (start, field) = (
        usize::from(hdr.csum_start),
        usize::from(hdr.csum_start + hdr.csum_offset),
    );
    let mut sum = 0u32;
    for w in frame[start..].chunks(2) {
        sum += u32::from(w[0]) << 8 | w.get(1).map_or(0, |b| u32::from(*b));
    }
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    let sum = match !(sum as u16) {
        0 => 0xffff,
        s => s,
    };
    frame[field..field + 2].copy_from_slice(&sum.to_be_bytes());
}

/// What policies are not about stays as it is; the priority of a flooded frame is in every tag that it gets.
#[test]
fn conditions_and_priorities() -> Result<()> {
    for cores in [1, 2] {
        let mut rig = Rig::new(cores)?;
        let (a, b) = (rig.add("a")?, rig.add("b")?);
        rig.add_with("trunk", |s| {
            s.vlan = VlanMode::Trunk {
                native: 7,
                allowed: None,
            };
        })?;
        let mut ga = rig.attach("a", Options::default())?;
        let mut gb = rig.attach("b", Options::default())?;
        let mut gt = rig.attach("trunk", Options::default())?;
        let flow = |to| Flow {
            to,
            from: a,
            v6: false,
            vlan: None,
            port: 1000,
        };
        let mut send = |rig: &Rig, spec: Vec<Policy>, f: &[u8]| -> Result<(Vec<u8>, Option<Vec<u8>>)> {
            rig.nic.set_qos("a", policies(spec))?;
            ga.send_wait(0, f, NetHdr::default());
            let at_b = recv(&mut gb).1;
            let all = f[..6] == BROADCAST.0;
            Ok((at_b, all.then(|| recv(&mut gt).1)))
        };
        let u = marked(udp(&flow(b), &[1; 40]), 8 << 2);
        let t = marked(tcp(&flow(b), &[1; 40]), 8 << 2);
        let number = Number {
            sender: 0,
            stream: 0,
            seq: 0,
        };
        let other = numbered(b, a, number, 80);
        let all = |f: &[u8]| [&BROADCAST.0, &f[6..]].concat();
        let by = |m| vec![policy(m, Some(6), Some(20))];

        for (spec, f, hit) in [
            (by(Match::Tcp), &t, true),
            (by(Match::Tcp), &u, false),
            (by(Match::Udp), &u, true),
            (by(ports(17, 80, 80)), &u, true),
            (by(ports(6, 80, 80)), &u, false),
            (by(ports(0, 81, 90)), &u, false),
            (by(Match::Smb), &t, false),
            (by(Match::NetDirect), &u, false),
            (by(Match::Default), &u, true),
        ] {
            let what = format!("{:?}", spec[0].matches);
            let (got, _) = send(&rig, spec, f)?;
            let tos = if hit { 20 << 2 } else { 8 << 2 };
            // A priority without a VLAN is in a priority tag.
            assert_eq!(marks(&got), (hit.then_some(6 << 13), tos), "{what}");
            parse(&got);
            if !hit {
                assert!(got == *f);
            }
        }
        // The first counts, the default one last; a DSCP needs a packet.
        let several = vec![
            policy(Match::Default, Some(1), Some(1)),
            policy(Match::Tcp, None, Some(2)),
            policy(ports(0, 80, 80), Some(3), Some(3)),
        ];
        let (got, _) = send(&rig, several.clone(), &t)?;
        assert_eq!(marks(&got), (None, 2 << 2));
        let (at_b, at_trunk) = send(&rig, several.clone(), &all(&u))?;
        assert_eq!(marks(&at_b), (Some(3 << 13), 3 << 2));
        assert_eq!(marks(&at_trunk.expect("flooded")), (Some(3 << 13 | 1), 3 << 2));
        let (at_b, at_trunk) = send(&rig, several.clone(), &all(&other))?;
        assert!(at_b == tagged(&all(&other), 1 << 13));
        assert!(at_trunk.expect("flooded") == tagged(&all(&other), 1 << 13 | 1));
        // Its own priority tag gets the priority.
        let (got, _) = send(&rig, several, &tagged(&u, 7 << 13))?;
        assert!(got == tagged(&marked(u.clone(), 3 << 2), 3 << 13));
        drop((ga, gb, gt));
        assert_eq!(rig.priority_counter("a", 3, "tx_frames"), 2);
        assert_eq!(rig.priority_counter("a", 1, "tx_frames"), 1);
        rig.finish(Copies::Extra(2))?;
    }
    Ok(())
}

/// Which priority a frame has by what its sender trusts.
#[test]
fn classification_by_trust() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let (a, b) = (rig.add("a")?, rig.add("b")?);
    let mut ga = rig.attach("a", Options::default())?;
    let mut gb = rig.attach("b", Options::default())?;
    let flow = Flow {
        to: b,
        from: a,
        v6: true,
        vlan: None,
        port: 1,
    };
    let packet = marked(udp(&flow, &[0; 20]), 46 << 2);
    let number = Number {
        sender: 0,
        stream: 0,
        seq: 0,
    };
    let plain = numbered(b, a, number, 60);
    let frames = [
        plain.clone(),
        tagged(&plain, 6 << 13),
        packet.clone(),
        tagged(&packet, 6 << 13),
    ];
    for (trust, wanted) in [
        (Trust::Port, [4, 4, 4, 4]),
        (Trust::Pcp, [4, 6, 4, 6]),
        (Trust::Dscp, [4, 4, 5, 5]),
        (Trust::Both, [4, 6, 5, 5]),
    ] {
        let mut settings = AdapterSettings::default();
        settings.qos.priorities = trust.into();
        settings.qos.priorities.default_priority = 4;
        rig.nic.apply_qos_keys("a", &settings)?;
        for (f, priority) in frames.iter().zip(wanted) {
            let before = rig.priority_counter("a", priority, "tx_frames");
            ga.send_wait(0, f, NetHdr::default());
            let (_, got) = recv(&mut gb);
            assert!(got == *f);
            ga.drain();
            let after = rig.priority_counter("a", priority, "tx_frames");
            assert_eq!(after, before + 1, "{trust:?} {priority}");
        }
    }
    rig.finish(Copies::Extra(0))
}

/// Guests do not speak MAC control, whatever they did before.
#[test]
fn mac_control_is_dropped() -> Result<()> {
    for cores in [1, 2] {
        let mut rig = Rig::new(cores)?;
        let (a, b) = (rig.add("a")?, rig.add("b")?);
        let mut ga = rig.attach("a", Options::default())?;
        let mut gb = rig.attach("b", Options::default())?;
        let pause = MacAddr([1, 0x80, 0xc2, 0, 0, 1]);
        let mut dropped = 0;
        for to in [b, pause, BROADCAST] {
            let control = eth(to, a, [0x88, 0x08], &[0, 1, 0xff, 0xff, 0, 0, 0, 0]);
            let data = eth(to, a, [0x88, 0xb6], &[0; 46]);
            for f in [
                &data,
                &control,
                &tagged(&control, 0),
                &tagged(&data, 0),
                &tagged(&control, 1),
            ] {
                ga.send_wait(0, f, NetHdr::default());
            }
            dropped += 3;
            assert!(recv(&mut gb).1 == data);
            assert!(recv(&mut gb).1 == tagged(&data, 0));
        }
        ga.drain();
        assert_eq!(rig.drops("a", DropReason::MacControl), dropped);
        assert!(gb.try_recv(0).is_none());
        rig.finish(Copies::Extra(0))?;
    }
    Ok(())
}
