//! Quality of service at the receiving end of an adapter's link: queues by class, lossless priorities, lifetimes, the hint.
//!
//! Nothing here is judged by the clock: a guest without receive buffers holds frames back for as long as a test wants, and
//! what comes out, and in which order, is counted.

use std::time::Duration;

use anyhow::Result;
use vnic_backend::settings::{AdapterSettings, HintMode, QosKeys, RxTrust};
use vnic_backend::{AttachState, DropReason, MacAddr, NicEventKind, QosSpec, Tsa};
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
