//! Quality of service at the receiving end of an adapter's link: queues by class, lossless priorities, lifetimes, the hint.
//!
//! Nothing here is judged by the clock: a guest without receive buffers holds frames back for as long as a test wants, and
//! what comes out, and in which order, is counted.

use anyhow::Result;
use vnic_backend::settings::{AdapterSettings, FlowControl, HintMode, QosKeys, Trust};
use vnic_backend::{AttachState, DropReason, MacAddr, NicEventKind, QosSpec, Tsa, VlArbitration};
use vnic_tests::driver::packets::{
    BROADCAST, Flow, Number, number_of, numbered, parse, pattern, tagged, tcp, tso, udp,
};
use vnic_tests::driver::rig::{Copies, Rig, deadline, wait_for};
use vnic_tests::driver::{Guest, NetHdr, OFFLOADS, Options};

/// A guest with much room.
fn wide() -> Options {
    Options {
        queue_size: 1024,
        ..Options::default()
    }
}

/// A guest that has given no buffers yet.
fn closed() -> Options {
    Options { post: 0, ..wide() }
}

fn number(sender: u32, stream: u32, seq: u64) -> Number {
    Number { sender, stream, seq }
}

/// A numbered frame with a tag of this priority (VLAN 0); without one for `None`.
fn frame(to: MacAddr, from: MacAddr, n: Number, priority: Option<u8>, len: usize) -> Vec<u8> {
    let plain = numbered(to, from, n, len);
    match priority {
        Some(p) => tagged(&plain, u16::from(p) << 13),
        None => plain,
    }
}

/// The number of a frame, and the priority of its tag.
fn seen(frame: &[u8]) -> Option<(Option<u8>, Number)> {
    if frame.get(12..14) == Some(&[0x81, 0x00]) {
        let plain = [&frame[..12], &frame[16..]].concat();
        return Some((Some(frame[14] >> 5), number_of(&plain)?));
    }
    Some((None, number_of(frame)?))
}

fn stage(g: &mut Guest, f: &[u8]) {
    assert!(g.stage(0, f, NetHdr::default()), "room for all frames");
}

/// What has come, in its order.
fn take(g: &mut Guest, into: &mut Vec<(Option<u8>, Number)>) {
    while let Some((_, _, f)) = g.try_recv(0) {
        into.extend(seen(&f));
    }
}

/// Waits for so many numbered frames.
fn collect(g: &mut Guest, n: usize) -> Vec<(Option<u8>, Number)> {
    let mut all = vec![];
    assert!(
        wait_for(|| {
            take(g, &mut all);
            all.len() >= n
        }),
        "{} of {n} came",
        all.len()
    );
    all
}

fn waiting(rig: &Rig, name: &str) -> u64 {
    rig.nic.qos(name).expect("it is there").queues.frames
}

/// A specification with changes.
fn spec(change: impl FnOnce(&mut QosSpec)) -> QosSpec {
    let mut spec = QosSpec::default();
    change(&mut spec);
    spec
}

/// Lossless by priority flow control on these priorities.
fn pfc(priorities: u8) -> QosSpec {
    spec(|s| s.pfc = priorities)
}

/// The keys of an adapter, with changes.
fn keys(rig: &Rig, name: &str, change: impl FnOnce(&mut QosKeys)) -> Result<()> {
    let mut settings = AdapterSettings::default();
    change(&mut settings.qos);
    Ok(rig.nic.apply_qos_keys(name, &settings)?)
}

fn in_order(all: &[(Option<u8>, Number)]) -> bool {
    let mut last = std::collections::HashMap::new();
    all.iter().all(|(_, n)| {
        last.insert((n.sender, n.stream), n.seq)
            .is_none_or(|before| before < n.seq)
    })
}

/// Queues come, change and go under traffic: every frame arrives, in order.
#[test]
fn reconfiguring_loses_nothing() -> Result<()> {
    const FRAMES: u64 = 150;
    for cores in [1, 2] {
        let mut rig = Rig::new(cores)?;
        let (a, b) = (rig.add("a")?, rig.add("b")?);
        let mut ga = rig.attach("a", wide())?;
        let mut gb = rig.attach("b", wide())?;
        let slow = |rate| spec(|s| s.rate = rate);
        let ets = spec(|s| {
            s.rate = 300_000_000;
            s.classes.tsa[1] = Tsa::Ets;
            s.classes.share[1] = 100;
        });
        let swapped = spec(|s| {
            s.rate = 300_000_000;
            s.classes.of_priority = [0, 1, 2, 3, 3, 2, 1, 0];
        });
        let limited = spec(|s| s.classes.limit = [20_000_000; 8]);
        let all = [
            QosSpec::default(),
            slow(50_000_000),
            ets,
            pfc(0b1000),
            swapped,
            limited,
            slow(1_000_000_000),
        ];
        let mut seq = 0;
        let mut got = vec![];
        for round in 0..28 {
            for _ in 0..FRAMES {
                let priority = [None, Some(3), Some(0)][(seq % 3) as usize];
                stage(
                    &mut ga,
                    &frame(
                        b,
                        a,
                        number(0, (seq % 3) as u32, seq),
                        priority,
                        60 + (seq % 9) as usize * 150,
                    ),
                );
                seq += 1;
            }
            ga.ring(1).publish();
            rig.nic.set_qos("b", all[round % all.len()].clone())?;
            take(&mut gb, &mut got);
            if round % 3 == 0 {
                rig.nic.set_qos("b", QosSpec::default())?;
            }
            ga.drain();
        }
        assert!(
            wait_for(|| {
                take(&mut gb, &mut got);
                got.len() as u64 == seq
            }),
            "{} of {seq}",
            got.len()
        );
        assert!(in_order(&got));
        rig.nic.set_qos("b", QosSpec::default())?;
        assert_eq!(waiting(&rig, "b"), 0);
        assert_eq!(rig.priority_counter("b", 3, "rx_frames"), seq / 3);
        assert_eq!(rig.priority_counter("b", 0, "rx_frames"), seq - seq / 3);
        rig.finish(Copies::Extra(0))?;
    }
    Ok(())
}

/// A guest without buffers: lossless frames wait for them, lossy ones are dropped as ever.
#[test]
fn lossless_frames_wait_for_buffers() -> Result<()> {
    for cores in [1, 2] {
        let mut rig = Rig::new(cores)?;
        let (a, b) = (rig.add("a")?, rig.add("b")?);
        rig.nic.set_qos("b", pfc(0b1000))?;
        let mut ga = rig.attach("a", wide())?;
        let mut gb = rig.attach("b", closed())?;
        for seq in 0..100 {
            stage(&mut ga, &frame(b, a, number(0, 3, seq), Some(3), 500));
            stage(&mut ga, &frame(b, a, number(0, 0, seq), None, 500));
        }
        ga.ring(1).publish();
        ga.drain();
        assert!(wait_for(|| rig.drops("b", DropReason::NoRxBuffer) == 100));
        assert!(wait_for(|| waiting(&rig, "b") == 100));
        gb.post(0, 1024);
        let all = collect(&mut gb, 100);
        assert!(in_order(&all) && all.iter().all(|(p, _)| *p == Some(3)));
        assert_eq!(rig.drops("b", DropReason::NoRxBuffer), 100);
        assert_eq!(waiting(&rig, "b"), 0);
        rig.finish(Copies::Extra(0))?;
    }
    Ok(())
}

/// Eight senders, one slow guest, flow control by priority at all ends: of the lossless priority nothing is lost, of the
/// other one what finds no buffer.
#[test]
fn incast_loses_lossy_frames_only() -> Result<()> {
    const EACH: u64 = 200;
    const SENDERS: u32 = 8;
    for cores in [1, 2] {
        let mut rig = Rig::new(cores)?;
        let b = rig.add("b")?;
        let congested = spec(|s| {
            s.pfc = 0b1000;
            (s.buffer.xoff, s.buffer.xon) = (16 << 10, 8 << 10);
        });
        rig.nic.set_qos("b", congested)?;
        let mut gb = rig.attach(
            "b",
            Options {
                queue_size: 64,
                ..Options::default()
            },
        )?;
        let mut senders = vec![];
        for s in 0..SENDERS {
            let name = format!("s{s}");
            let mac = rig.add(&name)?;
            rig.nic.set_qos(&name, pfc(0b1000))?;
            senders.push((mac, rig.attach(&name, wide())?));
        }
        for (s, (mac, g)) in (0..).zip(&mut senders) {
            for seq in 0..EACH {
                stage(g, &frame(b, *mac, number(s, 3, seq), Some(3), 1000));
                stage(g, &frame(b, *mac, number(s, 0, seq), None, 1000));
            }
        }
        for (_, g) in &mut senders {
            g.ring(1).publish();
        }
        // Nobody takes anything: the guest's buffers are used up, and the senders of the lossless priority are told to wait.
        assert!(wait_for(|| rig
            .nic
            .qos("b")
            .is_ok_and(|q| q.queues.pausing == 0b1000)));
        let mut all = vec![];
        let expected = EACH * u64::from(SENDERS);
        let lossless =
            |all: &[(Option<u8>, Number)]| all.iter().filter(|(p, _)| *p == Some(3)).count() as u64;
        assert!(
            wait_for(|| {
                take(&mut gb, &mut all);
                lossless(&all) == expected
            }),
            "{} of {expected}",
            lossless(&all)
        );
        for (_, g) in &mut senders {
            g.drain();
        }
        assert!(wait_for(|| {
            take(&mut gb, &mut all);
            all.len() as u64 + rig.drops("b", DropReason::NoRxBuffer) == 2 * expected
        }));
        assert!(in_order(&all));
        assert!(rig.drops("b", DropReason::NoRxBuffer) > 0);
        for reason in [DropReason::LosslessOverflow, DropReason::EgressFull] {
            assert_eq!(rig.drops("b", reason), 0, "{reason:?}");
        }
        assert!(rig.priority_counter("b", 3, "tx_pause") >= 2);
        assert_eq!(rig.priority_counter("b", 0, "tx_pause"), 0);
        assert_eq!(rig.priority_counter("b", 3, "rx_frames"), expected);
        assert_eq!(rig.nic.qos("b")?.queues.pausing, 0);
        rig.finish(Copies::Extra(0))?;
    }
    Ok(())
}

/// All priorities wait for a guest without buffers. Then strict classes come first, the higher one before the other, and the
/// rest by their shares.
#[test]
fn classes_take_their_turns() -> Result<()> {
    for (cores, shares) in [(1, [50, 50]), (1, [20, 80]), (2, [80, 20])] {
        const EACH: u64 = 100;
        let mut rig = Rig::new(cores)?;
        let (a, b) = (rig.add("a")?, rig.add("b")?);
        let classes = spec(|s| {
            s.pfc = 0xff;
            s.classes.of_priority = [0, 1, 2, 3, 4, 5, 6, 7];
            s.classes.tsa = [Tsa::Strict; 8];
            (s.classes.tsa[1], s.classes.tsa[2]) = (Tsa::Ets, Tsa::Ets);
            (s.classes.share[1], s.classes.share[2]) = (shares[0], shares[1]);
        });
        rig.nic.set_qos("b", classes)?;
        let mut ga = rig.attach("a", wide())?;
        let mut gb = rig.attach("b", closed())?;
        for seq in 0..EACH {
            for p in [1, 2, 5, 6] {
                stage(&mut ga, &frame(b, a, number(0, p.into(), seq), Some(p), 300));
            }
        }
        ga.ring(1).publish();
        assert!(wait_for(|| waiting(&rig, "b") == 4 * EACH));
        let queues = rig.nic.qos("b")?.queues;
        assert!(queues.bytes[1] == queues.bytes[6] && queues.bytes[1] > 0 && queues.bytes[0] == 0);
        gb.post(0, 1024);
        let all = collect(&mut gb, 4 * EACH as usize);
        assert!(in_order(&all));
        let priorities: Vec<u8> = all.iter().filter_map(|(p, _)| *p).collect();
        assert!(priorities[..100].iter().all(|p| *p == 6), "{priorities:?}");
        assert!(priorities[100..200].iter().all(|p| *p == 5), "{priorities:?}");
        // As long as both have frames.
        let both = &priorities[200..300];
        let first = both.iter().filter(|p| **p == 1).count();
        assert!(first.abs_diff(shares[0].into()) <= 2, "{shares:?}: {first}");
        ga.drain();
        rig.finish(Copies::Extra(0))?;
    }
    Ok(())
}

/// Virtual lanes of a port take their turns by its arbitration tables: the high one first, up to its limit, and those of a table by
/// weight.
#[test]
fn lanes_take_their_turns() -> Result<()> {
    const EACH: u64 = 100;
    for (cores, high_limit) in [(1, 255), (1, 0), (2, 255)] {
        let mut rig = Rig::new(cores)?;
        let (a, b) = (rig.add("a")?, rig.add("b")?);
        let lanes = spec(|s| {
            s.pfc = 0xff;
            s.classes.of_priority = [1, 1, 2, 6, 6, 6, 6, 6];
            s.classes.arbitration = Some(VlArbitration {
                high: vec![(6, 255)],
                // In units of 64 bytes.
                low: vec![(1, 32), (2, 96)],
                high_limit,
            });
        });
        rig.nic.set_qos("b", lanes)?;
        let mut ga = rig.attach("a", wide())?;
        let mut gb = rig.attach("b", closed())?;
        for seq in 0..EACH {
            for p in [1, 2, 3] {
                stage(&mut ga, &frame(b, a, number(0, p.into(), seq), Some(p), 300));
            }
        }
        ga.ring(1).publish();
        assert!(wait_for(|| waiting(&rig, "b") == 3 * EACH));
        gb.post(0, 1024);
        let all = collect(&mut gb, 3 * EACH as usize);
        assert!(in_order(&all));
        let priorities: Vec<u8> = all.iter().filter_map(|(p, _)| *p).collect();
        let low = match high_limit {
            255 => {
                assert!(priorities[..100].iter().all(|p| *p == 3), "{priorities:?}");
                priorities[100..].to_vec()
            }
            // A packet of low priority after each of high priority.
            _ => {
                let high = priorities[..200].iter().filter(|p| **p == 3).count();
                assert!(high.abs_diff(100) <= 2, "{priorities:?}");
                priorities.into_iter().filter(|p| *p != 3).collect()
            }
        };
        // As long as both have frames: a quarter, but for what begins within a weight and ends beyond it.
        let first = low[..120].iter().filter(|p| **p == 1).count();
        assert!((26..=36).contains(&first), "{first} of 120: {low:?}");
        ga.drain();
        rig.finish(Copies::Extra(0))?;
    }
    Ok(())
}

/// Frames of service levels 8 to 15, whose tags are drop eligible, have lanes of their own, and the priority and its flow control of the
/// level less 8.
#[test]
fn upper_service_levels_have_lanes_of_their_own() -> Result<()> {
    const EACH: u64 = 50;
    for cores in [1, 2] {
        let mut rig = Rig::new(cores)?;
        let (a, b) = (rig.add("a")?, rig.add("b")?);
        let lanes = |upper| {
            spec(|s| {
                s.pfc = 0xff;
                s.classes.of_priority = [1; 8];
                s.classes.of_upper = upper;
                s.classes.arbitration = Some(VlArbitration {
                    high: vec![(6, 255)],
                    low: vec![(1, 255)],
                    high_limit: 255,
                });
            })
        };
        rig.nic.set_qos("b", lanes(Some([1, 1, 1, 6, 1, 1, 1, 1])))?;
        let mut ga = rig.attach("a", wide())?;
        let mut gb = rig.attach("b", closed())?;
        let mut send = || {
            for seq in 0..EACH {
                for (stream, tci) in [(3u32, 3 << 13), (11, 3 << 13 | 0x1000), (12, 4 << 13 | 0x1000)] {
                    stage(
                        &mut ga,
                        &tagged(&numbered(b, a, number(0, stream, seq), 300), tci),
                    );
                }
            }
            ga.ring(1).publish();
        };
        send();
        assert!(wait_for(|| waiting(&rig, "b") == 3 * EACH));
        let bytes = rig.nic.qos("b")?.queues.bytes;
        assert!(bytes[1] == 2 * bytes[6] && bytes[6] > 0, "{bytes:?}");
        gb.post(0, 1024);
        let all = collect(&mut gb, 3 * EACH as usize);
        assert!(in_order(&all));
        assert!(
            all[..EACH as usize]
                .iter()
                .all(|(priority, n)| (*priority, n.stream) == (Some(3), 11))
        );
        assert_eq!(rig.priority_counter("b", 3, "rx_frames"), 2 * EACH);
        // Without classes of their own they have those of their priorities.
        rig.nic.set_qos("b", lanes(None))?;
        send();
        let all = collect(&mut gb, 3 * EACH as usize);
        assert!(in_order(&all));
        ga.drain();
        rig.finish(Copies::Extra(0))?;
    }
    Ok(())
}

/// A rate holds frames back, whatever they are: flooded ones each receiver for itself, and requests that have to be cut.
#[test]
fn a_rate_holds_back_all_kinds_of_frames() -> Result<()> {
    for cores in [1, 2] {
        let mut rig = Rig::new(cores)?;
        let (a, b) = (rig.add("a")?, rig.add("b")?);
        rig.add("c")?;
        rig.nic.set_qos("b", spec(|s| s.rate = 2_000_000))?;
        let big = Options {
            tx_buffer: 10_000,
            ..wide()
        };
        let mut ga = rig.attach("a", big.with(OFFLOADS))?;
        let mut gb = rig.attach("b", wide())?;
        let mut gc = rig.attach("c", wide())?;
        for seq in 0..20 {
            ga.send_wait(
                0,
                &frame(BROADCAST, a, number(0, 0, seq), None, 500),
                NetHdr::default(),
            );
        }
        // The other receiver does not wait for the one with the rate.
        assert_eq!(collect(&mut gc, 20).len(), 20);
        assert!(in_order(&collect(&mut gb, 20)));
        let flow = Flow {
            to: b,
            from: a,
            v6: false,
            vlan: None,
            port: 7,
        };
        let payload = pattern(8000);
        let (request, hdr) = tso(&flow, &payload, 1000);
        for _ in 0..4 {
            ga.send_wait(0, &request, hdr);
        }
        for _ in 0..4 {
            let mut bytes = vec![];
            for _ in 0..8 {
                let f = gb.recv(0, deadline()).expect("a segment").2;
                bytes.extend(parse(&f).payload);
            }
            assert!(bytes == payload);
        }
        if cores == 1 {
            assert_eq!(rig.counter("a", "tx_tso_cut"), 4);
        }
        ga.drain();
        rig.finish(Copies::Extra(20 + 4 * 7))?;
    }
    Ok(())
}

/// A guest that never takes anything: senders are told to wait only up to the critical watermark, then frames are dropped
/// until the guest moves.
#[test]
fn a_stall_does_not_hold_up_senders_for_ever() -> Result<()> {
    const FRAMES: u64 = 100;
    for cores in [1, 2] {
        let mut rig = Rig::new(cores)?;
        let (a, b) = (rig.add("a")?, rig.add("b")?);
        let congested = spec(|s| {
            s.pfc = 0b1000;
            (s.buffer.xoff, s.buffer.xon) = (4 << 10, 2 << 10);
        });
        rig.nic.set_qos("b", congested)?;
        keys(&rig, "b", |k| (k.guard.minor_ms, k.guard.critical_ms) = (80, 160))?;
        rig.nic.set_qos("a", pfc(0b1000))?;
        let mut ga = rig.attach("a", wide())?;
        let mut gb = rig.attach("b", closed())?;
        for seq in 0..FRAMES {
            stage(&mut ga, &frame(b, a, number(0, 3, seq), Some(3), 500));
        }
        ga.ring(1).publish();
        rig.wait_event("b", |e| matches!(e, NicEventKind::PauseStormWarning))?;
        rig.wait_event("b", |e| matches!(e, NicEventKind::PauseStorm))?;
        // Nobody waits any more: all of it is dropped.
        ga.drain();
        assert!(wait_for(|| rig.drops("b", DropReason::NoRxBuffer) == FRAMES));
        let queues = rig.nic.qos("b")?.queues;
        assert!(queues.storm && queues.frames == 0 && queues.pausing == 0);
        assert_eq!(
            rig.count_events("b", |e| matches!(e, NicEventKind::PauseStormOver)),
            0
        );
        assert_eq!(rig.counter("b", "tx_pause_storm_warnings"), 1);
        assert_eq!(rig.counter("b", "tx_pause_storm_errors"), 1);
        gb.post(0, 64);
        stage(&mut ga, &frame(b, a, number(0, 3, FRAMES), Some(3), 500));
        ga.ring(1).publish();
        assert_eq!(collect(&mut gb, 1)[0].1.seq, FRAMES);
        rig.wait_event("b", |e| matches!(e, NicEventKind::PauseStormOver))?;
        assert!(wait_for(|| rig.nic.qos("b").is_ok_and(|q| !q.queues.storm)));
        ga.drain();
        rig.finish(Copies::Extra(0))?;
    }
    Ok(())
}

/// What waits too long at the head of its class is dropped; after some of that all that waits in the class is.
#[test]
fn frames_do_not_wait_longer_than_their_lifetime() -> Result<()> {
    const FRAMES: u64 = 20;
    for cores in [1, 2] {
        let mut rig = Rig::new(cores)?;
        let (a, b) = (rig.add("a")?, rig.add("b")?);
        rig.nic.set_qos("b", pfc(0b1_1000))?;
        // 4.096 us · 2^14 = 67 ms, for class 3 only.
        keys(&rig, "b", |k| {
            (k.lifetimes.limit, k.lifetimes.stall_count, k.lifetimes.enable) = (14, 3, 0b1000)
        })?;
        let mut ga = rig.attach("a", wide())?;
        let mut gb = rig.attach("b", closed())?;
        for seq in 0..FRAMES {
            stage(&mut ga, &frame(b, a, number(0, 3, seq), Some(3), 500));
            stage(&mut ga, &frame(b, a, number(0, 4, seq), Some(4), 500));
        }
        ga.ring(1).publish();
        rig.wait_event("b", |e| matches!(e, NicEventKind::ClassStalled { class: 3 }))?;
        assert!(wait_for(|| rig.drops("b", DropReason::ClassStalled) == FRAMES - 3));
        assert_eq!(rig.drops("b", DropReason::HeadOfQueue), 3);
        assert_eq!(rig.priority_counter("b", 3, "lifetime_discards"), 3);
        assert_eq!(rig.priority_counter("b", 3, "stalled_discards"), FRAMES - 3);
        // The other class has no limit. What is sent ends the stall.
        assert_eq!(waiting(&rig, "b"), FRAMES);
        gb.post(0, 64);
        let all = collect(&mut gb, FRAMES as usize);
        assert!(all.iter().all(|(p, _)| *p == Some(4)));
        assert!(wait_for(|| {
            ga.send_wait(
                0,
                &frame(b, a, number(0, 3, FRAMES), Some(3), 500),
                NetHdr::default(),
            );
            gb.recv(0, deadline()).is_some()
        }));
        assert_eq!(rig.nic.qos("b")?.queues.stalled, 0);
        ga.drain();
        rig.finish(Copies::Extra(0))?;
    }
    Ok(())
}

/// A guest that takes its time: lossy TCP packets are marked, but for those of senders without ECN, and none is dropped.
#[test]
fn a_guest_that_falls_behind_is_seen_by_its_senders() -> Result<()> {
    const BUFFERS: u64 = 64;
    for cores in [1, 2] {
        let mut rig = Rig::new(cores)?;
        let (a, b) = (rig.add("a")?, rig.add("b")?);
        keys(&rig, "b", |k| {
            (k.flow_control, k.hint.enable, k.hint.mode) = (FlowControl::Receive, true, HintMode::Aggressive);
        })?;
        let mut ga = rig.attach("a", wide())?;
        for (v6, vlan) in [(false, None), (false, Some(0)), (true, None), (true, Some(0))] {
            let mut gb = rig.attach(
                "b",
                Options {
                    queue_size: BUFFERS as u16,
                    repost: false,
                    ..Options::default()
                },
            )?;
            let flow = Flow {
                to: b,
                from: a,
                v6,
                vlan,
                port: 9,
            };
            let ip = if vlan.is_some() { 18 } else { 14 };
            let make = |ect: bool| {
                let mut f = tcp(&flow, &pattern(300));
                match (v6, ect) {
                    (false, true) => {
                        f[ip + 1] |= 2;
                        // One more in the sum is one less in its complement; no carry, whatever the packet's identification.
                        let sum = u16::from_be_bytes([f[ip + 10], f[ip + 11]]);
                        f[ip + 10..ip + 12].copy_from_slice(&(sum - 2).to_be_bytes());
                    }
                    (true, true) => f[ip + 1] |= 0x20,
                    _ => {}
                }
                f
            };
            let version = if v6 { "rx_marked_ipv6" } else { "rx_marked_ipv4" };
            let before = (
                rig.counter("b", version),
                rig.priority_counter("b", 0, "rx_marked"),
            );
            // Up to a quarter of the buffers nothing happens; the guest gives none back.
            for i in 0..BUFFERS - 1 {
                ga.send_wait(0, &make(i % 4 != 3), NetHdr::default());
            }
            ga.drain();
            let (mut plain, mut marked) = (0, 0);
            assert!(wait_for(|| {
                while let Some((_, _, f)) = gb.try_recv(0) {
                    parse(&f);
                    let ecn = if v6 { f[ip + 1] >> 4 & 3 } else { f[ip + 1] & 3 };
                    match ecn {
                        3 => marked += 1,
                        _ => plain += 1,
                    }
                }
                plain + marked == BUFFERS - 1
            }));
            // A quarter has no ECN: 4 of the first 16, and 11 behind them.
            assert_eq!((plain, marked), (16 + 11, 36));
            assert_eq!(rig.priority_counter("b", 0, "rx_marked") - before.1, marked);
            assert_eq!(rig.counter("b", version) - before.0, marked, "by version of IP");
            // What is not TCP is left alone.
            ga.send_wait(0, &udp(&flow, &[1; 100]), NetHdr::default());
            assert!(gb.recv(0, deadline()).is_some());
            ga.drain();
            gb.hang_up();
            rig.state("b", AttachState::Detached)?;
        }
        assert_eq!(rig.priority_counter("b", 0, "rx_congestion_discards"), 0);
        rig.finish(Copies::Extra(0))?;
    }
    Ok(())
}

/// The guest goes while frames wait for it: they are dropped, nobody is told to wait for them, and the next guest gets its
/// own.
#[test]
fn the_guest_goes_while_frames_wait() -> Result<()> {
    for cores in [1, 2] {
        let mut rig = Rig::new(cores)?;
        let (a, b) = (rig.add("a")?, rig.add("b")?);
        let congested = spec(|s| {
            s.pfc = 0b1000;
            (s.buffer.xoff, s.buffer.xon) = (4 << 10, 2 << 10);
        });
        rig.nic.set_qos("b", congested)?;
        let mut ga = rig.attach("a", wide())?;
        for round in 0..3 {
            let mut gb = rig.attach("b", closed())?;
            for seq in 0..50 {
                stage(&mut ga, &frame(b, a, number(0, 3, seq), Some(3), 500));
            }
            ga.ring(1).publish();
            assert!(wait_for(|| waiting(&rig, "b") == 50));
            assert_eq!(rig.nic.qos("b")?.queues.pausing, 0b1000);
            gb.hang_up();
            rig.state("b", AttachState::Detached)?;
            assert!(wait_for(
                || rig.drops("b", DropReason::ReceiverDown) == 50 * (round + 1)
            ));
            let queues = rig.nic.qos("b")?.queues;
            assert_eq!((queues.frames, queues.pausing), (0, 0));
            ga.drain();
        }
        // And the adapter itself, while somebody waits for it.
        let _gb = rig.attach("b", closed())?;
        for seq in 0..50 {
            stage(&mut ga, &frame(b, a, number(0, 3, seq), Some(3), 500));
        }
        ga.ring(1).publish();
        assert!(wait_for(|| waiting(&rig, "b") == 50));
        rig.nic.remove_adapter("b")?;
        ga.drain();
        let c = rig.add("c")?;
        let mut gc = rig.attach("c", wide())?;
        for seq in 0..20 {
            ga.send_wait(
                0,
                &frame(c, a, number(0, 3, seq), Some(3), 500),
                NetHdr::default(),
            );
        }
        assert_eq!(collect(&mut gc, 20).len(), 20);
        ga.drain();
        rig.finish(Copies::Unknown)?;
    }
    Ok(())
}

/// The priority of what is received, by each of the tables, without and with queues.
#[test]
fn the_receiver_classifies() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let (a, b) = (rig.add("a")?, rig.add("b")?);
    let mut ga = rig.attach("a", wide())?;
    let mut gb = rig.attach("b", wide())?;
    let flow = |vlan| Flow {
        to: b,
        from: a,
        v6: false,
        vlan,
        port: 9,
    };
    let packet = |dscp: u8, pcp: Option<u8>| {
        let mut f = udp(&flow(pcp.map(|_| 0)), &[7; 100]);
        let ip = if pcp.is_some() { 18 } else { 14 };
        f[ip + 1] = dscp << 2;
        if let Some(p) = pcp {
            f[14] = p << 5;
        }
        f
    };
    type Keys = fn(&mut QosKeys);
    let table: [(Keys, u8, Option<u8>, u8); 8] = [
        (|_| (), 46, Some(6), 6),
        (|_| (), 46, None, 0),
        (|k| k.priorities.default_priority = 2, 46, None, 2),
        (|k| k.priorities.trust = Trust::Dscp, 46, Some(6), 5),
        (|k| k.priorities.trust = Trust::Port, 46, Some(6), 0),
        (|k| k.priorities.trust = Trust::Both, 26, Some(6), 3),
        (
            |k| {
                k.priorities.trust = Trust::Dscp;
                k.dscp_table = true;
                k.dscp_to_priority[46] = 1;
            },
            46,
            Some(6),
            1,
        ),
        (|k| k.priorities.untagged_to_lossless = true, 46, None, 0),
    ];
    for queues in [QosSpec::default(), pfc(0b1001_0000)] {
        rig.nic.set_qos("b", queues.clone())?;
        for (set, dscp, pcp, expected) in table {
            keys(&rig, "b", set)?;
            let mut probe = QosKeys::default();
            set(&mut probe);
            let expected = if probe.priorities.untagged_to_lossless && queues.pfc != 0 {
                4
            } else {
                expected
            };
            let before: Vec<u64> = (0..8)
                .map(|p| rig.priority_counter("b", p, "rx_frames"))
                .collect();
            ga.send_wait(0, &packet(dscp, pcp), NetHdr::default());
            assert!(gb.recv(0, deadline()).is_some());
            rig.settle()?;
            let now = (0..8).map(|p| rig.priority_counter("b", p, "rx_frames"));
            let grown: Vec<u64> = now.zip(&before).map(|(now, before)| now - before).collect();
            let mut only = vec![0; 8];
            only[usize::from(expected)] = 1;
            assert_eq!(grown, only, "{probe:?}");
        }
    }
    ga.drain();
    rig.finish(Copies::Extra(0))
}
