//! Queues at receivers together with everything else that can happen to a frame: captures, fault rules, the reserve, RDMA
//! functions, requests that are cut, sources that go, and configurations that change at random. The books must be right.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::Result;
use vnic_backend::fault::Action;
use vnic_backend::settings::{AdapterSettings, Burst, FlowControl, HintAction, Trust};
use vnic_backend::{CaptureSpec, Direction, DropReason, FaultSpec, Guard, MacAddr, QosSpec, Tsa};
use vnic_tests::driver::packets::{Flow, Number, number_of, numbered, parse, pattern, tagged, tcp, tso, udp};
use vnic_tests::driver::rdma::{self, Driver, World};
use vnic_tests::driver::rig::{Copies, Dice, Rig, deadline, wait_for};
use vnic_tests::driver::{Guest, NetHdr, OFFLOADS, Options, feature};

fn wide() -> Options {
    Options {
        queue_size: 1024,
        ..Options::default()
    }
}

fn number(stream: u32, seq: u64) -> Number {
    Number {
        sender: 0,
        stream,
        seq,
    }
}

/// A numbered frame with a tag of this priority (VLAN 0).
fn frame(to: MacAddr, from: MacAddr, n: Number, priority: u8, len: usize) -> Vec<u8> {
    tagged(&numbered(to, from, n, len), u16::from(priority) << 13)
}

fn seen(frame: &[u8]) -> Option<Number> {
    if frame.get(12..14) == Some(&[0x81, 0x00]) {
        return number_of(&[&frame[..12], &frame[16..]].concat());
    }
    number_of(frame)
}

fn pfc(priorities: u8) -> QosSpec {
    QosSpec {
        pfc: priorities,
        ..QosSpec::default()
    }
}

fn rate(rate: u64) -> QosSpec {
    QosSpec {
        rate,
        ..QosSpec::default()
    }
}

fn waiting(rig: &Rig, name: &str) -> u64 {
    rig.nic.qos(name).expect("it is there").queues.frames
}

fn collect(g: &mut Guest, n: usize) -> Vec<Number> {
    let mut all = vec![];
    assert!(
        wait_for(|| {
            while let Some((_, _, f)) = g.try_recv(0) {
                all.extend(seen(&f));
            }
            all.len() >= n
        }),
        "{} of {n} came",
        all.len()
    );
    all
}

/// Nobody spins for a guest that takes its time: its kick wakes the core.
#[test]
fn the_core_sleeps_while_frames_wait_for_buffers() -> Result<()> {
    for (cores, features, burst) in [
        (1, 0, Burst::Off),
        (2, feature::RING_EVENT_IDX, Burst::Off),
        (1, feature::RING_EVENT_IDX, Burst::Thread),
    ] {
        let mut rig = Rig::new(cores)?;
        let (a, b) = (rig.add("a")?, rig.add("b")?);
        let settings = AdapterSettings {
            burst,
            ..AdapterSettings::default()
        };
        rig.nic.configure_adapter("b", &settings)?;
        rig.nic.set_qos("b", pfc(0b1000))?;
        let mut ga = rig.attach("a", wide())?;
        let closed = Options {
            post: 0,
            repost: false,
            ..wide()
        };
        let mut gb = rig.attach("b", closed.with(features))?;
        for seq in 0..50 {
            ga.send_wait(0, &frame(b, a, number(0, seq), 3, 200), NetHdr::default());
        }
        ga.drain();
        assert!(wait_for(|| waiting(&rig, "b") == 50));
        for round in 1..=5 {
            let sleeps = rig.core_counter("sleeps");
            assert!(wait_for(|| rig.core_counter("sleeps") > sleeps + cores as u64));
            gb.post(0, 10);
            assert_eq!(collect(&mut gb, 10).len(), 10);
            assert!(wait_for(|| waiting(&rig, "b") == 50 - 10 * round));
        }
        ga.drain();
        rig.finish(Copies::Extra(0))?;
    }
    Ok(())
}

/// A capture shows a frame when it leaves the queue, and one that has no room.
#[test]
fn captures_see_what_leaves_and_what_has_no_room() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let (a, b) = (rig.add("a")?, rig.add("b")?);
    let mut spec = rate(5_000_000);
    spec.pfc = 1;
    (spec.buffer.size, spec.buffer.xoff, spec.buffer.xon) = (64 << 10, 8 << 10, 4 << 10);
    rig.nic.set_qos("b", spec)?;
    let mut ga = rig.attach("a", wide())?;
    let mut gb = rig.attach("b", wide())?;
    let capture = rig.nic.capture(CaptureSpec {
        owners: vec!["b".into()],
        snaplen: 65535,
        drops_only: false,
    })?;
    rig.settle()?;
    for seq in 0..200 {
        assert!(ga.stage(0, &frame(b, a, number(0, seq), 3, 200), NetHdr::default()));
    }
    ga.ring(1).publish();
    ga.drain();
    let mut got = vec![];
    assert!(wait_for(|| {
        while let Some((_, _, f)) = gb.try_recv(0) {
            got.push(f);
        }
        got.len() as u64 + rig.drops("b", DropReason::EgressFull) == 200
    }));
    let lost = rig.drops("b", DropReason::EgressFull);
    assert!(lost > 0 && rig.priority_counter("b", 3, "rx_discards") == lost);
    rig.settle()?;
    let (dropped, shown): (Vec<_>, Vec<_>) = capture.frames.try_iter().partition(|c| c.drop.is_some());
    assert!(dropped.iter().all(|c| c.drop == Some(DropReason::EgressFull)));
    assert_eq!(dropped.len() as u64, lost);
    assert!(shown.iter().all(|c| c.direction == Direction::Egress));
    assert_eq!(shown.into_iter().map(|c| c.data).collect::<Vec<_>>(), got);
    rig.finish(Copies::Extra(0))
}

/// Fault rules judge a frame when its turn has come.
#[test]
fn fault_rules_judge_what_leaves() -> Result<()> {
    for cores in [1, 2] {
        let mut rig = Rig::new(cores)?;
        let (a, b) = (rig.add("a")?, rig.add("b")?);
        rig.nic.set_qos("b", rate(5_000_000))?;
        rig.nic.add_fault(FaultSpec {
            to: Some("b".into()),
            skip: 10,
            count: Some(5),
            ..FaultSpec::new("lossy", Action::Drop)
        })?;
        rig.nic.add_fault(FaultSpec {
            to: Some("b".into()),
            ..FaultSpec::new(
                "slow",
                Action::Delay {
                    by: Duration::from_millis(1),
                    jitter: Duration::ZERO,
                },
            )
        })?;
        let mut ga = rig.attach("a", wide())?;
        let mut gb = rig.attach("b", wide())?;
        for seq in 0..50 {
            ga.send_wait(0, &frame(b, a, number(0, seq), 3, 300), NetHdr::default());
        }
        let all: Vec<u64> = collect(&mut gb, 45).iter().map(|n| n.seq).collect();
        assert_eq!(all, (0..10).chain(15..50).collect::<Vec<_>>());
        assert_eq!(rig.drops("b", DropReason::FaultInjected), 5);
        ga.drain();
        rig.finish(Copies::Extra(0))?;
    }
    Ok(())
}

/// The reserve for bursts is for lossy frames; lossless ones wait in their queue, and nobody overtakes in his own priority.
#[test]
fn the_reserve_is_for_lossy_frames() -> Result<()> {
    for cores in [1, 2] {
        let mut rig = Rig::new(cores)?;
        let (a, b) = (rig.add("a")?, rig.add("b")?);
        let settings = AdapterSettings {
            burst: Burst::Poll,
            reserve: 50,
            ..AdapterSettings::default()
        };
        rig.nic.configure_adapter("b", &settings)?;
        rig.nic.set_qos("b", pfc(0b1000))?;
        let mut ga = rig.attach("a", wide())?;
        let mut gb = rig.attach("b", Options { post: 0, ..wide() })?;
        for seq in 0..100 {
            assert!(ga.stage(0, &frame(b, a, number(3, seq), 3, 200), NetHdr::default()));
            assert!(ga.stage(0, &frame(b, a, number(1, seq), 1, 200), NetHdr::default()));
        }
        ga.ring(1).publish();
        ga.drain();
        assert!(wait_for(
            || waiting(&rig, "b") == 100 && rig.drops("b", DropReason::NoRxBuffer) == 50
        ));
        assert_eq!(rig.nic.adapter("b")?.burst.frames, 50);
        gb.post(0, 1024);
        let all = collect(&mut gb, 150);
        for (stream, n) in [(3, 100), (1, 50)] {
            let seqs: Vec<u64> = all.iter().filter(|f| f.stream == stream).map(|f| f.seq).collect();
            assert_eq!(seqs, (0..n).collect::<Vec<_>>());
        }
        rig.finish(Copies::Extra(0))?;
    }
    Ok(())
}

/// RoCE for an RDMA function waits for its turn like all frames of the adapter.
#[test]
fn roce_waits_its_turn() -> Result<()> {
    const PACKETS: u64 = 50;
    for cores in [1, 2] {
        let World { mut rig } = World::new(cores, &["b", "c"])?;
        let mac = |i| MacAddr([2, 0, 0, 0, 0, i]);
        let (b, c) = (mac(1), mac(2));
        let _driver = Driver::start(rig.dir().join("b-rdma.sock"), rdma::Options::default())?;
        rig.nic.set_qos("b", rate(2_000_000))?;
        let mut gc = rig.attach("c", wide())?;
        let flow = Flow {
            to: b,
            from: c,
            v6: false,
            vlan: None,
            port: 50_000,
        };
        // RoCEv2 by its port; what is in it is nonsense, which the function counts. The adapter's Ethernet driver is not there.
        let mut packet = udp(&flow, &[0; 400]);
        packet[36..38].copy_from_slice(&4791u16.to_be_bytes());
        let heard = |rig: &Rig| rig.counter("b", "rx_icrc_encapsulated") + rig.counter("b", "drop_malformed");
        for _ in 0..PACKETS {
            gc.send_wait(0, &packet, NetHdr::default());
        }
        assert!(wait_for(|| waiting(&rig, "b") > 0 || heard(&rig) == PACKETS));
        assert!(wait_for(|| heard(&rig) == PACKETS));
        assert_eq!(waiting(&rig, "b"), 0);
        gc.drain();
        rig.finish(Copies::Unknown)?;
    }
    Ok(())
}

/// A request for a guest that takes none, with few buffers, in a lossless priority: its segments wait one by one.
#[test]
fn segments_wait_one_by_one() -> Result<()> {
    for cores in [1, 2] {
        let mut rig = Rig::new(cores)?;
        let (a, b) = (rig.add("a")?, rig.add("b")?);
        let mut lossless = pfc(1);
        lossless.classes.of_priority = [0; 8];
        rig.nic.set_qos("b", lossless)?;
        let big = Options {
            tx_buffer: 66_000,
            queue_size: 64,
            ..Options::default()
        };
        let mut ga = rig.attach("a", big.with(OFFLOADS))?;
        let few = Options {
            queue_size: 4,
            ..Options::default()
        };
        let mut gb = rig.attach("b", few)?;
        let flow = Flow {
            to: b,
            from: a,
            v6: false,
            vlan: None,
            port: 7,
        };
        let payload = pattern(60_000);
        let (request, hdr) = tso(&flow, &payload, 1400);
        for _ in 0..3 {
            ga.send_wait(0, &request, hdr);
        }
        for _ in 0..3 {
            let mut bytes = vec![];
            while bytes.len() < payload.len() {
                bytes.extend(parse(&gb.recv(0, deadline()).expect("a segment").2).payload);
            }
            assert!(bytes == payload);
        }
        assert_eq!(rig.counter("b", "drops"), 0);
        ga.drain();
        rig.finish(Copies::Extra(3 * 42))?;
    }
    Ok(())
}

/// Who has sent what waits is gone: it still arrives; whoever gets its place in the switch is not held up for ever.
#[test]
fn a_source_goes_while_its_frames_wait() -> Result<()> {
    for cores in [1, 2] {
        let mut rig = Rig::new(cores)?;
        let b = rig.add("b")?;
        let mut congested = pfc(0b1000);
        (congested.buffer.xoff, congested.buffer.xon) = (4 << 10, 2 << 10);
        rig.nic.set_qos("b", congested)?;
        let mut gb = rig.attach("b", Options { post: 0, ..wide() })?;
        let mut seq = 0;
        for round in 0..3 {
            let name = format!("s{round}");
            let a = rig.add(&name)?;
            rig.nic.set_qos(&name, pfc(0b1000))?;
            let mut ga = rig.attach(&name, wide())?;
            let before = waiting(&rig, "b");
            for _ in 0..20 {
                assert!(ga.stage(0, &frame(b, a, number(0, seq), 3, 400), NetHdr::default()));
                seq += 1;
            }
            ga.ring(1).publish();
            // It is told to wait at once if the one before it was: then it waits until it goes.
            assert!(wait_for(|| waiting(&rig, "b") > before || round > 0));
            rig.nic.remove_adapter(&name)?;
        }
        let n = waiting(&rig, "b");
        gb.post(0, 1024);
        assert_eq!(collect(&mut gb, n as usize).len() as u64, n);
        assert_eq!(rig.nic.qos("b")?.queues.pausing, 0);
        let a = rig.add("last")?;
        rig.nic.set_qos("last", pfc(0b1000))?;
        let mut ga = rig.attach("last", wide())?;
        for i in 0..20 {
            ga.send_wait(0, &frame(b, a, number(1, i), 3, 400), NetHdr::default());
        }
        assert_eq!(collect(&mut gb, 20).len(), 20);
        ga.drain();
        rig.finish(Copies::Unknown)?;
    }
    Ok(())
}

/// Everybody sends anything to anybody, guests take or do not, and configurations change all the time: each frame is
/// delivered once or counted as dropped, and those of a stream come in order.
#[test]
fn whatever_is_configured_the_books_are_right() -> Result<()> {
    const ADAPTERS: usize = 4;
    let mut dice = Dice::thrown();
    for cores in [1, 2] {
        let mut rig = Rig::new(cores)?;
        let mut guests = vec![];
        for i in 0..ADAPTERS {
            let name = format!("v{i}");
            let mac = rig.add(&name)?;
            let sizes = [16, 64, 256];
            let options = Options {
                queue_size: 256,
                tx_buffer: 10_000,
                ..Options::default()
            };
            let mut options = options.with(if i.is_multiple_of(2) { OFFLOADS } else { 0 });
            options.post = *dice.pick(&sizes);
            let guest = rig.attach(&name, options)?;
            guests.push((name, mac, guest));
        }
        let mut seqs = HashMap::new();
        let mut last: HashMap<(usize, u32, u32), u64> = HashMap::new();
        let mut take = |to: usize, g: &mut Guest, n: u64| {
            for _ in 0..n {
                let Some((_, _, f)) = g.try_recv(0) else { break };
                if let Some(n) = seen(&f) {
                    let before = last.insert((to, n.sender, n.stream), n.seq);
                    assert!(before.is_none_or(|b| b < n.seq), "{n:?} after {before:?}");
                }
            }
        };
        let mut extra = 0;
        for round in 0..1500 {
            let from = dice.below(ADAPTERS as u64) as usize;
            let to = (from + 1 + dice.below(ADAPTERS as u64 - 1) as usize) % ADAPTERS;
            let (target, source) = (guests[to].1, guests[from].1);
            let priority = dice.below(8) as u8;
            for _ in 0..dice.below(40) {
                let seq: &mut u64 = seqs.entry((from, to, priority)).or_default();
                *seq += 1;
                let n = Number {
                    sender: from as u32,
                    stream: (to as u32) << 8 | u32::from(priority),
                    seq: *seq,
                };
                let len = 60 + dice.below(1400) as usize;
                let g = &mut guests[from].2;
                if !g.stage(0, &frame(target, source, n, priority, len), NetHdr::default()) {
                    *seq -= 1;
                    break;
                }
            }
            let flow = Flow {
                to: target,
                from: source,
                v6: dice.below(2) == 0,
                vlan: None,
                port: 9,
            };
            if from.is_multiple_of(2) && dice.below(8) == 0 {
                let (request, hdr) = tso(&flow, &pattern(5000), 1000);
                let sent = guests[from].2.stage(0, &request, hdr);
                // Cut for those that take no requests.
                extra += u64::from(sent && !to.is_multiple_of(2)) * 4;
            } else if dice.below(8) == 0 {
                let mut ect = tcp(&flow, &pattern(500));
                if flow.v6 {
                    ect[15] |= 0x10;
                }
                guests[from].2.stage(0, &ect, NetHdr::default());
            }
            guests[from].2.ring(1).publish();
            for (i, (_, _, g)) in guests.iter_mut().enumerate() {
                take(i, g, dice.below(60));
            }
            if round % 10 == 0 {
                let mut spec = QosSpec {
                    rate: *dice.pick(&[0, 0, 100_000_000, 1_000_000_000]),
                    pfc: *dice.pick(&[0, 0, 0b1000, 0xff, 0b101]),
                    ..QosSpec::default()
                };
                spec.classes.tsa = [*dice.pick(&[Tsa::Vendor, Tsa::Strict, Tsa::Ets]); 8];
                if spec.classes.tsa[0] == Tsa::Ets {
                    spec.classes.share = [30, 20, 10, 10, 10, 10, 10, 0];
                }
                spec.classes.of_priority = std::array::from_fn(|_| dice.below(8) as u8);
                spec.classes.limit[dice.below(8) as usize] = *dice.pick(&[0, 50_000_000]);
                spec.buffer.xoff = *dice.pick(&[4 << 10, 64 << 10]);
                spec.buffer.xon = spec.buffer.xoff / 2;
                spec.buffer.headroom = *dice.pick(&[0, 4 << 10, 256 << 10]);
                let mut settings = AdapterSettings::default();
                // Numbered frames are not IP: their priority stays that of their tag, and so does their order.
                settings.qos.priorities.trust = *dice.pick(&[Trust::Pcp, Trust::Both]);
                settings.qos.flow_control = FlowControl::of(dice.below(2) == 0, dice.below(2) == 0);
                settings.qos.hint.enable = dice.below(2) == 0;
                settings.qos.hint.action = *dice.pick(&[HintAction::Mark, HintAction::Drop, HintAction::Off]);
                settings.qos.lifetimes.limit = dice.below(16) as u8;
                settings.qos.lifetimes.enable = dice.bits() as u8 & dice.bits() as u8;
                settings.qos.guard = Guard {
                    minor_ms: 0,
                    critical_ms: 80,
                };
                let name = &guests[dice.below(ADAPTERS as u64) as usize].0;
                rig.nic.apply_qos_keys(name, &settings)?;
                rig.nic.set_qos(name, spec)?;
            }
        }
        for (name, _, _) in &guests {
            rig.nic.set_qos(name, QosSpec::default())?;
            rig.nic.apply_qos_keys(name, &AdapterSettings::default())?;
        }
        // All that is under way comes to its end.
        assert!(
            wait_for(|| {
                for (i, (_, _, g)) in guests.iter_mut().enumerate() {
                    take(i, g, 1000);
                }
                let left: usize = guests.iter_mut().map(|(_, _, g)| g.reclaim(0)).sum();
                left == 0 && (0..ADAPTERS).all(|i| waiting(&rig, &format!("v{i}")) == 0)
            }),
            "{:?}",
            (0..ADAPTERS)
                .map(|i| rig.nic.qos(&format!("v{i}")))
                .collect::<Vec<_>>()
        );
        rig.finish(Copies::Extra(extra))?;
    }
    Ok(())
}
