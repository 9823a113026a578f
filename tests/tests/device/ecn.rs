//! Marking by what waits in a traffic class, at an adapter and at an uplink: who is marked, who is dropped, and that checksums
//! stay right. Ports of 1 kbit/s hold frames back for as long as a test wants; thresholds without a slope leave nothing to
//! chance.

use anyhow::Result;
use vnic_backend::settings::{AdapterSettings, QosKeys, Trust};
use vnic_backend::{Capable, Colour, Curve, DropReason, MacAddr, MarkAt, NotCapable, QosSpec, Red, VlanMode};
use vnic_tests::driver::packets::{Flow, eth, parse, pattern, tagged, tcp, udp};
use vnic_tests::driver::rig::{Copies, Rig, deadline, wait_for};
use vnic_tests::driver::{NetHdr, Options, Wire};
use vnic_wire::gid::Gid;
use vnic_wire::roce::{self, Ecn, Frame, Network, Path};
use vnic_wire::transport::Headers;
use vnic_wire::{EtherType, ethernet, vlan};

/// A host behind the uplink.
const HOST: MacAddr = MacAddr([2, 0xaa, 0, 0, 0, 1]);
/// Bytes that wait from which on everything is marked.
const THRESHOLD: u32 = 4000;
/// ECN fields, as the last bits of a traffic class.
const FIELDS: [u8; 4] = [0, 1, 2, 3];

/// A port of 1 kbit/s, whose traffic class 1, that of priority 0, is marked beyond the threshold.
fn slow(red: Red) -> QosSpec {
    let mut spec = QosSpec {
        rate: 1000,
        ..QosSpec::default()
    };
    spec.ecn[1] = red;
    spec
}

fn step(at: MarkAt) -> Red {
    Red {
        enable: true,
        green: Curve {
            kmin: THRESHOLD,
            kmax: THRESHOLD,
            pmax: 0,
        },
        at,
        ..Red::default()
    }
}

/// Frames of all kinds, each with this ECN field: TCP, UDP and RoCE v1 and v2, over IPv4 and IPv6, with a tag and without.
fn frames(to: MacAddr, from: MacAddr, ecn: u8) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for (v6, vlan) in [(false, None), (false, Some(0)), (true, None), (true, Some(0))] {
        let flow = Flow {
            to,
            from,
            v6,
            vlan,
            port: 9,
        };
        for mut f in [tcp(&flow, &pattern(300)), udp(&flow, &pattern(300))] {
            let at = if vlan.is_some() { 18 } else { 14 };
            if v6 {
                f[at + 1] |= ecn << 4;
            } else {
                f[at + 1] |= ecn;
                // One more in the sum is one less in its complement; no carry with these packets.
                let sum = u16::from_be_bytes([f[at + 10], f[at + 11]]) - u16::from(ecn);
                f[at + 10..at + 12].copy_from_slice(&sum.to_be_bytes());
            }
            all.push(f);
        }
        let (a, b) = match v6 {
            false => (Gid::from_ipv4([10, 0, 0, 1]), Gid::from_ipv4([10, 0, 0, 2])),
            true => (Gid([0xfd; 16]), Gid([0xfe; 16])),
        };
        for mut network in [Network::v1(a, b), Network::v2(a, b)] {
            match &mut network {
                Network::V1 { grh } => grh.traffic_class = ecn,
                Network::V4 { tos, .. } => *tos = ecn,
                Network::V6 { traffic_class, .. } => *traffic_class = ecn,
            }
            let path = Path {
                eth: ethernet::Header {
                    destination: to,
                    source: from,
                    ethertype: EtherType(0x8100),
                },
                vlan: vlan.map(|_| vlan::Header {
                    tci: vlan::Tci(0),
                    ethertype: EtherType(0),
                }),
                network,
                source_port: 0xc000,
            };
            let mut f = Vec::new();
            roce::build(&path, &Headers::cnp(7), &[], &mut f).expect("a frame");
            all.push(f);
        }
    }
    all
}

/// Nothing of it is wrong, whatever it is.
fn check(f: &[u8]) {
    match Frame::parse(f) {
        Ok(roce) => assert!(roce.icrc_ok() && roce.header_checksum_ok()),
        Err(_) => drop(parse(f)),
    }
}

/// Which of the frames that are sent one behind the other are marked: the first does not wait. `at`: as configured.
fn expected(frames: &[Vec<u8>], at: MarkAt) -> Vec<bool> {
    let lengths: Vec<usize> = frames.iter().map(Vec::len).collect();
    let waits = |i: usize| -> usize {
        match at {
            MarkAt::Enqueue => lengths[1..i.max(1)].iter().sum(),
            MarkAt::Dequeue => lengths[i + 1..].iter().sum(),
        }
    };
    (0..frames.len())
        .map(|i| i > 0 && waits(i) > THRESHOLD as usize)
        .collect()
}

#[test]
fn an_adapters_frames_are_marked_by_what_waits() -> Result<()> {
    for (cores, at) in [
        (1, MarkAt::Dequeue),
        (1, MarkAt::Enqueue),
        (2, MarkAt::Dequeue),
        (2, MarkAt::Enqueue),
    ] {
        let mut rig = Rig::new(cores)?;
        let (a, b) = (rig.add("a")?, rig.add("b")?);
        let wide = Options {
            queue_size: 1024,
            ..Options::default()
        };
        let mut ga = rig.attach("a", wide.clone())?;
        let mut gb = rig.attach("b", wide)?;
        let all: Vec<Vec<u8>> = FIELDS.into_iter().flat_map(|ecn| frames(b, a, ecn)).collect();
        rig.nic.set_qos("b", slow(step(at)))?;
        for f in &all {
            ga.send_wait(0, f, NetHdr::default());
        }
        let waiting = all.len() as u64 - 1;
        assert!(wait_for(|| rig
            .nic
            .qos("b")
            .is_ok_and(|q| q.queues.frames == waiting)));
        rig.nic.set_qos(
            "b",
            QosSpec {
                rate: 0,
                ..slow(step(at))
            },
        )?;
        let mut marked = 0;
        for (sent, hit) in all.iter().zip(expected(&all, at)) {
            let mut got = None;
            assert!(wait_for(|| {
                got = gb.try_recv(0);
                got.is_some()
            }));
            let (_, _, got) = got.expect("it has come");
            check(&got);
            let mut should = sent.clone();
            if hit && roce::ecn(sent) != Some(Ecn::Ce) && roce::set_ce(&mut should) {
                marked += 1;
            }
            assert_eq!(got, should, "{at:?}");
        }
        assert!(marked > 10, "{marked}");
        assert!(wait_for(|| rig.priority_counter("b", 0, "ecn_marked") == marked));
        ga.drain();
        rig.finish(Copies::Extra(0))?;
    }
    Ok(())
}

/// WRED: those that cannot be marked are dropped, or all; nothing of a lossless priority.
#[test]
fn early_drops_are_told_apart() -> Result<()> {
    for (capable, not_capable, pfc, dropped) in [
        (Capable::Mark, NotCapable::Drop, 0, &[true, false, false, false]),
        (Capable::Drop, NotCapable::Drop, 0, &[true, true, true, true]),
        (Capable::Mark, NotCapable::Pass, 0, &[false, false, false, false]),
        (Capable::Drop, NotCapable::Drop, 1, &[false, false, false, false]),
    ] {
        for at in [MarkAt::Dequeue, MarkAt::Enqueue] {
            let mut rig = Rig::new(1)?;
            let (a, b) = (rig.add("a")?, rig.add("b")?);
            let mut ga = rig.attach("a", Options::default())?;
            let mut gb = rig.attach("b", Options::default())?;
            let red = Red {
                capable,
                not_capable,
                // What waits at all is too much.
                green: Curve {
                    kmin: 0,
                    kmax: 0,
                    pmax: 0,
                },
                ..step(at)
            };
            let spec = QosSpec { pfc, ..slow(red) };
            rig.nic.set_qos("b", spec.clone())?;
            let flow = Flow {
                to: b,
                from: a,
                v6: true,
                vlan: None,
                port: 9,
            };
            let mut send = |ecn: u8| {
                let mut f = udp(&flow, &pattern(300));
                f[15] |= ecn << 4;
                ga.send_wait(0, &f, NetHdr::default());
            };
            // One goes, one waits; with marks at the other end one more stays behind.
            let fields: Vec<u8> = match at {
                MarkAt::Enqueue => [2, 2].into_iter().chain(FIELDS).collect(),
                MarkAt::Dequeue => [2].into_iter().chain(FIELDS).chain([2]).collect(),
            };
            fields.iter().for_each(|ecn| send(*ecn));
            ga.drain();
            rig.settle()?;
            rig.nic.set_qos("b", QosSpec { rate: 0, ..spec })?;
            let lost = dropped.iter().filter(|d| **d).count();
            let mut got = Vec::new();
            assert!(wait_for(|| {
                while let Some((_, _, f)) = gb.try_recv(0) {
                    got.push(f[15] >> 4 & 3);
                }
                got.len() + rig.drops("b", DropReason::Wred) as usize == fields.len()
            }));
            assert_eq!(rig.drops("b", DropReason::Wred), lost as u64);
            assert!(wait_for(
                || rig.priority_counter("b", 0, "wred_discards") == lost as u64
            ));
            let stays: Vec<u8> = (0..)
                .zip(dropped)
                .filter(|(_, gone)| !**gone)
                .map(|(ecn, _)| {
                    if ecn == 0 || capable == Capable::Drop {
                        ecn
                    } else {
                        3
                    }
                })
                .collect();
            let expected = match at {
                MarkAt::Enqueue => [&[2, 2], &stays[..]].concat(),
                MarkAt::Dequeue => [&[2], &stays[..], &[2]].concat(),
            };
            assert_eq!(got, expected, "{at:?} {capable:?} {not_capable:?} {pfc}");
            rig.finish(Copies::Extra(0))?;
        }
    }
    Ok(())
}

/// Frames that are drop eligible have a curve of their own, and so has what their code point makes red; the priorities by tag are
/// the map's, and the receiver of an access port, who gets no tag, has colours, too.
#[test]
fn drop_eligible_frames_go_first() -> Result<()> {
    for (cores, access) in [(1, false), (2, true)] {
        let mut rig = Rig::new(cores)?;
        let a = rig.add("a")?;
        let b = rig.add_with("b", |s| {
            if access {
                s.vlan = VlanMode::Access(5);
            }
        })?;
        let mut ga = rig.attach("a", Options::default())?;
        let mut gb = rig.attach("b", Options::default())?;
        let all = Curve {
            kmin: 0,
            kmax: 0,
            pmax: 0,
        };
        let mut spec = slow(Red {
            // (Thresholds in per cent of 4 MiB.)
            percent: true,
            green: Curve {
                kmin: 100,
                kmax: 100,
                pmax: 0,
            },
            yellow: Some(all),
            red: Some(all),
            capable: Capable::Drop,
            not_capable: NotCapable::Drop,
            ..step(MarkAt::Enqueue)
        });
        // Code points 1 and 4 count as priority 0, like 0; 4 is red.
        for i in [2, 3, 8, 9] {
            spec.tags.priority[i] = 0;
        }
        (spec.tags.colour[8], spec.tags.colour[9]) = (Colour::Red, Colour::Green);
        rig.nic.set_qos("b", spec.clone())?;
        let plain = eth(b, a, [0x88, 0xb6], &pattern(100));
        let tags = [0, 0, 0x1000, 0x2000, 0x3000, 0x8000, 0x9000].map(|tci| tci | 5);
        for tci in tags {
            ga.send_wait(0, &tagged(&plain, tci), NetHdr::default());
        }
        ga.drain();
        rig.settle()?;
        // The first goes at once, the second waits.
        assert!(wait_for(|| rig.drops("b", DropReason::Wred) == 3));
        assert!(rig.nic.qos("b")?.queues.bytes[1] > 0);
        rig.nic.set_qos("b", QosSpec { rate: 0, ..spec })?;
        let mut got = Vec::new();
        assert!(wait_for(|| {
            got.extend(std::iter::from_fn(|| gb.try_recv(0)).map(|(_, _, f)| f));
            got.len() == 4
        }));
        let expected = [0, 0, 0x2000, 0x9000].map(|tci| match access {
            true => plain.clone(),
            false => tagged(&plain, tci | 5),
        });
        assert_eq!(got, expected);
        rig.finish(Copies::Extra(0))?;
    }
    Ok(())
}

/// A burst that ends before the average has risen loses nothing.
#[test]
fn by_the_average_a_burst_goes_through() -> Result<()> {
    for (average, dropped) in [(0, 6), (15, 0)] {
        let mut rig = Rig::new(1)?;
        let (a, b) = (rig.add("a")?, rig.add("b")?);
        let mut ga = rig.attach("a", Options::default())?;
        let mut gb = rig.attach("b", Options::default())?;
        let spec = slow(Red {
            average,
            capable: Capable::Drop,
            not_capable: NotCapable::Drop,
            ..step(MarkAt::Enqueue)
        });
        rig.nic.set_qos("b", spec.clone())?;
        for _ in 0..12 {
            ga.send_wait(0, &eth(b, a, [0x88, 0xb6], &pattern(986)), NetHdr::default());
        }
        ga.drain();
        rig.settle()?;
        // One goes, five make more than the threshold, and each behind them is too much.
        assert_eq!(rig.drops("b", DropReason::Wred), dropped, "{average}");
        rig.nic.set_qos("b", QosSpec { rate: 0, ..spec })?;
        for _ in dropped..12 {
            assert!(gb.recv(0, deadline()).is_some());
        }
        rig.finish(Copies::Extra(0))?;
    }
    Ok(())
}

/// Quality of service that is set aside does nothing, and all of it again once it may act.
#[test]
fn what_is_disabled_stays_and_does_nothing() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let (a, b) = (rig.add("a")?, rig.add("b")?);
    let mut ga = rig.attach("a", Options::default())?;
    let mut gb = rig.attach("b", Options::default())?;
    let mut spec = slow(Red {
        capable: Capable::Drop,
        not_capable: NotCapable::Drop,
        green: Curve {
            kmin: 0,
            kmax: 0,
            pmax: 0,
        },
        ..step(MarkAt::Enqueue)
    });
    (spec.pfc, spec.classes.of_priority[0], spec.disabled) = (0b1000, 6, true);
    spec.ecn[6] = spec.ecn[1];
    rig.nic.set_qos("b", spec.clone())?;
    let acting = rig.nic.qos("b")?.acting;
    assert_eq!(
        (acting.pause.pfc, acting.classes.of_priority[0], acting.marks()),
        (0, 1, false)
    );
    assert_eq!(
        (acting.rate, acting.buffer.size),
        (1000, spec.buffer.size),
        "the link is as it was"
    );
    let send = |ga: &mut vnic_tests::driver::Guest| {
        for _ in 0..4 {
            ga.send_wait(0, &eth(b, a, [0x88, 0xb6], &pattern(100)), NetHdr::default());
        }
        ga.drain();
        rig.settle()
    };
    send(&mut ga)?;
    assert_eq!(rig.drops("b", DropReason::Wred), 0);
    spec.disabled = false;
    rig.nic.set_qos("b", spec.clone())?;
    assert_eq!(rig.nic.qos("b")?.acting.classes.of_priority[0], 6);
    send(&mut ga)?;
    assert_eq!(rig.drops("b", DropReason::Wred), 4);
    rig.nic.set_qos("b", QosSpec { rate: 0, ..spec })?;
    for _ in 0..4 {
        assert!(gb.recv(0, deadline()).is_some());
    }
    rig.finish(Copies::Extra(0))?;
    Ok(())
}

/// What is not IP cannot be marked, and is dropped as all that cannot.
#[test]
fn what_is_not_ip_cannot_be_marked() -> Result<()> {
    for not_capable in [NotCapable::Pass, NotCapable::Drop] {
        let mut rig = Rig::new(1)?;
        let (a, b) = (rig.add("a")?, rig.add("b")?);
        let mut ga = rig.attach("a", Options::default())?;
        let mut gb = rig.attach("b", Options::default())?;
        let red = Red {
            not_capable,
            green: Curve {
                kmin: 0,
                kmax: 0,
                pmax: 0,
            },
            ..step(MarkAt::Enqueue)
        };
        rig.nic.set_qos("b", slow(red))?;
        let plain = eth(b, a, [0x88, 0xb6], &pattern(100));
        let sent = [plain.clone(), plain.clone(), tagged(&plain, 0), plain.clone()];
        for f in &sent {
            ga.send_wait(0, f, NetHdr::default());
        }
        ga.drain();
        rig.settle()?;
        rig.nic.set_qos("b", QosSpec::default())?;
        let expected = match not_capable {
            NotCapable::Pass => &sent[..],
            NotCapable::Drop => &sent[..2],
        };
        let mut got = Vec::new();
        assert!(wait_for(|| {
            got.extend(std::iter::from_fn(|| gb.try_recv(0)).map(|(_, _, f)| f));
            got.len() == expected.len()
        }));
        assert_eq!(got, expected);
        assert_eq!(
            rig.drops("b", DropReason::Wred),
            (sent.len() - expected.len()) as u64
        );
        rig.finish(Copies::Extra(0))?;
    }
    Ok(())
}

/// By class: another one's frames are left alone, whatever waits beside them.
#[test]
fn classes_do_not_count_for_each_other() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let (a, b) = (rig.add("a")?, rig.add("b")?);
    let settings = AdapterSettings {
        qos: QosKeys {
            priorities: Trust::Dscp.into(),
            ..QosKeys::default()
        },
        ..AdapterSettings::default()
    };
    rig.nic.apply_qos_keys("b", &settings)?;
    let wide = Options {
        queue_size: 1024,
        ..Options::default()
    };
    let mut ga = rig.attach("a", wide.clone())?;
    let mut gb = rig.attach("b", wide)?;
    let mut spec = slow(Red::default());
    spec.ecn[3] = step(MarkAt::Enqueue);
    rig.nic.set_qos("b", spec.clone())?;
    let packet = |priority: u8| {
        let mut f = udp(
            &Flow {
                to: b,
                from: a,
                v6: true,
                vlan: None,
                port: 9,
            },
            &pattern(400),
        );
        // The DSCP's upper three bits are the priority; ECT(0).
        f[14] = 0x60 | priority << 1;
        f[15] |= 2 << 4;
        f
    };
    // Much in class 4, a little in class 3, much in class 3.
    let priorities = [vec![4; 30], vec![3; 5], vec![4; 10], vec![3; 20]].concat();
    for p in &priorities {
        ga.send_wait(0, &packet(*p), NetHdr::default());
    }
    let waiting = priorities.len() as u64 - 1;
    assert!(wait_for(|| rig
        .nic
        .qos("b")
        .is_ok_and(|q| q.queues.frames == waiting)));
    let bytes = rig.nic.qos("b")?.queues.bytes;
    let len = packet(3).len() as u64;
    assert_eq!((bytes[3], bytes[4]), (25 * len, 39 * len));
    rig.nic.set_qos("b", QosSpec { rate: 0, ..spec })?;
    let mut marked = [0, 0];
    for _ in 0..priorities.len() {
        let mut got = None;
        assert!(wait_for(|| {
            got = gb.try_recv(0);
            got.is_some()
        }));
        let (_, _, f) = got.expect("it has come");
        if f[15] >> 4 & 3 == 3 {
            marked[usize::from(f[14] >> 1 & 7) - 3] += 1;
        }
    }
    // What waits before the n-th of class 3: n frames.
    let before = (u64::from(THRESHOLD) / len + 1) as usize;
    assert_eq!(marked, [25 - before, 0]);
    ga.drain();
    rig.finish(Copies::Extra(0))
}

#[test]
fn an_uplinks_frames_are_marked_on_their_way_to_the_wire() -> Result<()> {
    for (cores, at) in [(1, MarkAt::Dequeue), (2, MarkAt::Enqueue)] {
        let mut rig = Rig::new(cores)?;
        let a = rig.add("a")?;
        let ifname = format!("vnecn{cores}{}", std::process::id());
        let Some(wire) = Wire::of_port(&rig, &ifname, Some(cores - 1))? else {
            return Ok(());
        };
        let mut ga = rig.attach(
            "a",
            Options {
                queue_size: 1024,
                ..Options::default()
            },
        )?;
        // The kernel hides tags from this end of the wire.
        let untagged = |f: &Vec<u8>| f[12..14] != [0x81, 0];
        let all: Vec<Vec<u8>> = FIELDS
            .into_iter()
            .flat_map(|ecn| frames(HOST, a, ecn))
            .filter(untagged)
            .collect();
        rig.nic.set_qos("p0", slow(step(at)))?;
        for f in &all {
            ga.send_wait(0, f, NetHdr::default());
        }
        let waiting = all.len() as u64 - 1;
        assert!(wait_for(|| rig
            .nic
            .qos("p0")
            .is_ok_and(|q| q.queues.frames == waiting)));
        rig.nic.set_qos(
            "p0",
            QosSpec {
                rate: 0,
                ..slow(step(at))
            },
        )?;
        let mut marked = 0;
        for (sent, hit) in all.iter().zip(expected(&all, at)) {
            let got = wire.recv(|f| f.starts_with(&HOST.0))?;
            check(&got);
            let mut should = sent.clone();
            if hit && roce::ecn(sent) != Some(Ecn::Ce) && roce::set_ce(&mut should) {
                marked += 1;
            }
            assert_eq!(got, should, "{at:?}");
        }
        assert!(marked >= 5, "{marked}");
        assert!(wait_for(|| rig.priority_counter("p0", 0, "ecn_marked") == marked));
        ga.drain();
        rig.finish(Copies::Unknown)?;
    }
    Ok(())
}
