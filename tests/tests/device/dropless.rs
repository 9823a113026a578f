//! Dropless mode on the data path: a frame without a receive buffer waits, and its sender with it.
//!
//! A frame may wait 10 ms at most, which a busy machine can take for anything. So no test says that something happens in
//! time: it tries ([`in_time`]) until a try went through without a time-out, and then nothing may be lost. What must hold
//! whether or not the time was over (order, other receivers, the books) is asserted in every try.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use vnic_backend::settings::{AdapterSettings, Burst};
use vnic_backend::{AttachState, DropReason, MacAddr, NicEventKind};
use vnic_tests::driver::packets::{BROADCAST, Flow, Number, number_of, numbered, parse, tso, udp};
use vnic_tests::driver::rdma::{self, Driver, World};
use vnic_tests::driver::rig::{Copies, Dice, Rig, deadline, wait_for};
use vnic_tests::driver::{Guest, NetHdr, OFFLOADS, Options, feature};

/// Buffers of a receiver that is held up.
const BUFFERS: u16 = 64;
/// Frames sent to it.
const FRAMES: u64 = 300;

fn sender() -> Options {
    Options {
        queue_size: 1024,
        ..Options::default()
    }
}

fn receiver() -> Options {
    Options {
        queue_size: BUFFERS,
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

/// Queues frames and tells the device of all at once.
fn burst(g: &mut Guest, to: MacAddr, from: MacAddr, stream: u32, seqs: std::ops::Range<u64>) {
    for seq in seqs {
        let len = 60 + (seq % 7) as usize * 200;
        let f = numbered(to, from, number(stream, seq), len);
        assert!(g.stage(0, &f, NetHdr::default()), "room for all frames");
    }
    g.ring(1).publish();
}

/// The sequence numbers of what has come, in order.
fn take(g: &mut Guest, seqs: &mut Vec<u64>) {
    while let Some((_, _, f)) = g.try_recv(0) {
        if let Some(n) = number_of(&f) {
            assert!(
                seqs.last().is_none_or(|last| n.seq > *last),
                "{n:?} after {seqs:?}"
            );
            seqs.push(n.seq);
        }
    }
}

/// Tries until no frame for `name` waited too long in a try.
fn in_time(rig: &mut Rig, name: &str, mut attempt: impl FnMut(&mut Rig) -> Result<()>) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(120);
    let mut tries = 0;
    loop {
        let before = rig.nic.dropless(name)?.timeouts;
        attempt(rig)?;
        tries += 1;
        if rig.nic.dropless(name)?.timeouts == before {
            println!("tries: {tries}");
            return Ok(());
        }
        ensure!(
            Instant::now() < end,
            "no frame was waited for in time in {tries} tries"
        );
    }
}

/// Waits until all `frames` are with the guest or lost since `lost`; answers how many are lost.
fn all_of(rig: &Rig, name: &str, g: &mut Guest, seqs: &mut Vec<u64>, lost: u64, frames: u64) -> u64 {
    let now = || rig.drops(name, DropReason::NoRxBuffer) - lost;
    assert!(
        wait_for(|| {
            take(g, seqs);
            seqs.len() as u64 + now() == frames
        }),
        "{} came and {} are lost",
        seqs.len(),
        now()
    );
    now()
}

/// Waits until a frame for `name` waits, or has waited too long.
fn held_up(rig: &Rig, name: &str, timeouts: u64) -> bool {
    assert!(wait_for(|| {
        let now = rig.nic.dropless(name).expect("the adapter is there");
        now.waiting > 0 || now.timeouts > timeouts
    }));
    let now = rig.nic.dropless(name).expect("the adapter is there");
    now.waiting > 0 && now.timeouts == timeouts
}

/// Without the mode, what finds no buffer is dropped, exactly.
#[test]
fn with_the_mode_off_frames_are_lost() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let (a, b) = (rig.add("a")?, rig.add("b")?);
    let mut ga = rig.attach("a", sender())?;
    let mut gb = rig.attach("b", receiver())?;
    burst(&mut ga, b, a, 0, 0..FRAMES);
    ga.drain();
    let mut seqs = vec![];
    let lost = all_of(&rig, "b", &mut gb, &mut seqs, 0, FRAMES);
    assert_eq!(seqs, (0..u64::from(BUFFERS)).collect::<Vec<_>>());
    assert_eq!(lost, FRAMES - u64::from(BUFFERS));
    assert_eq!(rig.counter("b", "rx_waited"), 0);
    rig.finish(Copies::Extra(0))
}

/// With the mode on nothing is lost, whether the frames come from the same core, another one, or are flooded.
fn nothing_is_lost(cores: usize, to: Option<MacAddr>) -> Result<()> {
    let mut rig = Rig::new(cores)?;
    let (a, b) = (rig.add("a")?, rig.add("b")?);
    rig.add("c")?;
    let to = to.unwrap_or(b);
    let mut ga = rig.attach("a", sender())?;
    let mut gb = rig.attach("b", receiver())?;
    let mut gc = rig.attach("c", sender())?;
    let mut tries = 0;
    in_time(&mut rig, "b", |rig| {
        tries += 1;
        rig.nic.set_dropless("b", 100)?;
        let before = (
            rig.nic.dropless("b")?.timeouts,
            rig.drops("b", DropReason::NoRxBuffer),
        );
        burst(&mut ga, to, a, 0, 0..FRAMES);
        if held_up(rig, "b", before.0) {
            // It is the sender that waits: it has most of its frames, and none is lost.
            let lost = rig.drops("b", DropReason::NoRxBuffer) - before.1;
            assert!(
                lost == 0 || rig.nic.dropless("b")?.timeouts > before.0,
                "{lost} lost"
            );
        }
        let mut seqs = vec![];
        let end = deadline();
        while ga.reclaim(0) > 0 || rig.nic.dropless("b")?.waiting > 0 {
            take(&mut gb, &mut seqs);
            assert!(Instant::now() < end, "stuck at {}", seqs.len());
        }
        let lost = all_of(rig, "b", &mut gb, &mut seqs, before.1, FRAMES);
        if rig.nic.dropless("b")?.timeouts == before.0 {
            assert_eq!(lost, 0);
            assert!(rig.nic.dropless("b")?.on);
        }
        // Whoever takes its frames gets all of them, in order, whatever the other one does.
        let mut others = vec![];
        if to == BROADCAST {
            assert!(wait_for(|| {
                take(&mut gc, &mut others);
                others.len() as u64 == FRAMES
            }));
        }
        Ok(())
    })?;
    assert!(rig.counter("b", "rx_waited") > 0);
    assert!(rig.counter("b", "rx_waited_ns") > 0);
    assert_eq!(rig.nic.adapter("b")?.burst.bytes, 0);
    let extra = if to == BROADCAST { tries * FRAMES } else { 0 };
    rig.finish(Copies::Extra(extra))
}

#[test]
fn nothing_is_lost_on_one_core() -> Result<()> {
    nothing_is_lost(1, None)
}

#[test]
fn nothing_is_lost_across_cores() -> Result<()> {
    nothing_is_lost(2, None)
}

#[test]
fn nothing_is_lost_when_flooded_on_one_core() -> Result<()> {
    nothing_is_lost(1, Some(BROADCAST))
}

#[test]
fn nothing_is_lost_when_flooded_across_cores() -> Result<()> {
    nothing_is_lost(2, Some(BROADCAST))
}

fn is_timeout(kind: &NicEventKind) -> bool {
    matches!(kind, NicEventKind::DroplessTimeout { .. })
}

/// Nobody ever gives a buffer: the mode ends, what waited is dropped, and that is told, once. Another adapter's mode stays.
#[test]
fn a_frame_that_waits_too_long_ends_the_mode() -> Result<()> {
    for cores in [1, 2] {
        let mut rig = Rig::new(cores)?;
        let (a, b, c) = (rig.add("a")?, rig.add("b")?, rig.add("c")?);
        let mut ga = rig.attach("a", sender())?;
        let mut gb = rig.attach("b", receiver())?;
        let mut gc = rig.attach("c", sender())?;
        rig.nic.set_dropless("b", 50)?;
        rig.nic.set_dropless("c", 50)?;
        burst(&mut ga, b, a, 0, 0..FRAMES);
        rig.wait_event("b", is_timeout)?;
        // The sender is let go.
        ga.drain();
        let lost = FRAMES - u64::from(BUFFERS);
        assert!(wait_for(|| rig.drops("b", DropReason::NoRxBuffer) == lost));
        let status = rig.nic.dropless("b")?;
        assert!(!status.on && status.waiting == 0);
        assert_eq!((status.entries, status.exits, status.timeouts), (1, 1, 1));
        assert_eq!(status.timeout, 50);
        let mut seqs = vec![];
        assert!(wait_for(|| {
            take(&mut gb, &mut seqs);
            seqs.len() >= usize::from(BUFFERS)
        }));
        assert_eq!(seqs.len(), usize::from(BUFFERS));
        // Off: what comes now is lost, nobody waits.
        burst(&mut ga, b, a, 0, FRAMES..2 * FRAMES);
        ga.drain();
        assert!(wait_for(|| rig.drops("b", DropReason::NoRxBuffer) == 2 * lost));
        assert!(rig.nic.dropless("c")?.on);
        burst(&mut ga, c, a, 0, 0..FRAMES);
        let mut seqs = vec![];
        assert!(wait_for(|| {
            take(&mut gc, &mut seqs);
            seqs.len() as u64 == FRAMES
        }));
        let events = |rig: &mut Rig, like: fn(&NicEventKind) -> bool| rig.count_events("b", like);
        assert_eq!(
            events(&mut rig, |k| matches!(k, NicEventKind::DroplessEntered)),
            1
        );
        assert_eq!(
            events(&mut rig, |k| matches!(
                k,
                NicEventKind::DroplessTimeout { queue: 0 }
            )),
            1
        );
        assert_eq!(events(&mut rig, |k| matches!(k, NicEventKind::DroplessExited)), 0);
        rig.finish(Copies::Extra(0))?;
    }
    Ok(())
}

/// The event names the queue that had no buffers.
#[test]
fn the_time_out_names_its_queue() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let (a, b) = (
        rig.add_with("a", |s| s.queue_pairs = 2)?,
        rig.add_with("b", |s| s.queue_pairs = 2)?,
    );
    let two = |o: Options| Options { pairs: 2, ..o }.with(feature::MQ);
    let mut ga = rig.attach("a", two(sender()))?;
    let _gb = rig.attach("b", two(receiver()))?;
    let frame = |port| {
        let flow = Flow {
            to: b,
            from: a,
            v6: false,
            vlan: None,
            port,
        };
        udp(&flow, &[1; 100])
    };
    // A flow of the second queue, by trial.
    let mut port = 1000;
    loop {
        ga.send_wait(0, &frame(port), NetHdr::default());
        ga.drain();
        rig.settle()?;
        if rig.queue_counter("b", 1, "rx_frames") > 0 {
            break;
        }
        port += 1;
        assert!(port < 1064, "all flows on one queue");
    }
    rig.nic.set_dropless("b", 1)?;
    for _ in 0..FRAMES {
        ga.send_wait(0, &frame(port), NetHdr::default());
    }
    rig.wait_event("b", |k| matches!(k, NicEventKind::DroplessTimeout { queue: 1 }))?;
    assert_eq!(rig.queue_counter("b", 1, "dropless_timeouts"), 1);
    assert_eq!(rig.queue_counter("b", 0, "dropless_timeouts"), 0);
    ga.drain();
    rig.finish(Copies::Extra(0))
}

/// One sender, two receivers, one of which is held up: the other's frames are neither lost nor out of order.
#[test]
fn frames_for_others_are_not_lost_by_waiting() -> Result<()> {
    for cores in [1, 2] {
        let mut rig = Rig::new(cores)?;
        let (a, x, y) = (rig.add("a")?, rig.add("x")?, rig.add("y")?);
        let mut ga = rig.attach("a", sender())?;
        let mut gx = rig.attach("x", receiver())?;
        let mut gy = rig.attach("y", sender())?;
        in_time(&mut rig, "x", |rig| {
            rig.nic.set_dropless("x", 100)?;
            let before = rig.nic.dropless("x")?.timeouts;
            let lost = rig.drops("x", DropReason::NoRxBuffer);
            for seq in 0..FRAMES {
                let f = numbered(x, a, number(0, seq), 100);
                assert!(ga.stage(0, &f, NetHdr::default()));
                let f = numbered(y, a, number(1, seq), 1000);
                assert!(ga.stage(0, &f, NetHdr::default()));
            }
            ga.ring(1).publish();
            held_up(rig, "x", before);
            let (mut at_x, mut at_y) = (vec![], vec![]);
            assert!(wait_for(|| {
                take(&mut gx, &mut at_x);
                take(&mut gy, &mut at_y);
                ga.reclaim(0) == 0 && rig.nic.dropless("x").is_ok_and(|d| d.waiting == 0)
            }));
            assert!(wait_for(|| {
                take(&mut gx, &mut at_x);
                take(&mut gy, &mut at_y);
                at_y.len() as u64 == FRAMES
            }));
            let lost = all_of(rig, "x", &mut gx, &mut at_x, lost, FRAMES);
            if rig.nic.dropless("x")?.timeouts == before {
                assert_eq!(lost, 0);
            }
            Ok(())
        })?;
        rig.finish(Copies::Extra(0))?;
    }
    Ok(())
}

/// Who does not send to the one that is held up does not wait, on the same core or across.
#[test]
fn others_do_not_wait() -> Result<()> {
    for cores in [1, 2] {
        let mut rig = Rig::new(cores)?;
        let (a, x, d, y) = (rig.add("a")?, rig.add("x")?, rig.add("d")?, rig.add("y")?);
        let mut ga = rig.attach("a", sender())?;
        let mut gx = rig.attach("x", receiver())?;
        let mut gd = rig.attach("d", sender())?;
        let mut gy = rig.attach("y", sender())?;
        in_time(&mut rig, "x", |rig| {
            rig.nic.set_dropless("x", 100)?;
            let before = rig.nic.dropless("x")?.timeouts;
            let lost = rig.drops("x", DropReason::NoRxBuffer);
            burst(&mut ga, x, a, 0, 0..FRAMES);
            held_up(rig, "x", before);
            burst(&mut gd, y, d, 0, 0..20);
            let mut at_y = vec![];
            assert!(wait_for(|| {
                take(&mut gy, &mut at_y);
                at_y.len() == 20
            }));
            // Was it while somebody waited? Then, and only then, no time-out is counted, and this is the proof.
            let now = rig.nic.dropless("x")?;
            assert!(now.waiting > 0 || now.timeouts > before);
            let mut at_x = vec![];
            all_of(rig, "x", &mut gx, &mut at_x, lost, FRAMES);
            ga.drain();
            Ok(())
        })?;
        rig.finish(Copies::Extra(0))?;
    }
    Ok(())
}

/// Each act of the operator is told; switching off lets those go that wait.
#[test]
fn the_operator_switches_it() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let (a, b) = (rig.add("a")?, rig.add("b")?);
    let mut ga = rig.attach("a", sender())?;
    let mut gb = rig.attach("b", receiver())?;
    for (i, timeout) in [50, 100, 0, 0].into_iter().enumerate() {
        rig.nic.set_dropless("b", timeout)?;
        let status = rig.nic.dropless("b")?;
        assert_eq!(status.on, i < 2);
        assert_eq!(status.timeout, if i == 0 { 50 } else { 100 });
    }
    assert!(rig.nic.set_dropless("b", 101).is_err());
    assert!(rig.nic.set_dropless("nobody", 1).is_err());
    assert!(rig.nic.dropless("nobody").is_err());
    let status = rig.nic.dropless("b")?;
    assert_eq!((status.entries, status.exits, status.timeouts), (1, 1, 0));
    let entered = |k: &NicEventKind| matches!(k, NicEventKind::DroplessEntered);
    let exited = |k: &NicEventKind| matches!(k, NicEventKind::DroplessExited);
    assert!(wait_for(
        || rig.count_events("b", entered) == 2 && rig.count_events("b", exited) == 2
    ));
    in_time(&mut rig, "b", |rig| {
        let lost = rig.drops("b", DropReason::NoRxBuffer);
        rig.nic.set_dropless("b", 100)?;
        let before = rig.nic.dropless("b")?.timeouts;
        burst(&mut ga, b, a, 0, 0..FRAMES);
        held_up(rig, "b", before);
        rig.nic.set_dropless("b", 0)?;
        assert!(!rig.nic.dropless("b")?.on && rig.nic.dropless("b")?.waiting == 0);
        ga.drain();
        let mut seqs = vec![];
        let lost = all_of(rig, "b", &mut gb, &mut seqs, lost, FRAMES);
        assert_eq!(seqs, (0..u64::from(BUFFERS)).collect::<Vec<_>>());
        assert_eq!(lost, FRAMES - u64::from(BUFFERS));
        Ok(())
    })?;
    rig.finish(Copies::Extra(0))
}

/// Whatever becomes of a receiver for which frames wait: they are counted, and their senders are let go.
#[test]
fn the_receiver_goes_away() -> Result<()> {
    for cores in [1, 2] {
        for end in 0..4 {
            let mut rig = Rig::new(cores)?;
            let (a, b) = (rig.add("a")?, rig.add("b")?);
            let mut ga = rig.attach("a", sender())?;
            let mut gb = rig.attach("b", receiver())?;
            rig.nic.set_dropless("b", 100)?;
            burst(&mut ga, b, a, 0, 0..FRAMES);
            held_up(&rig, "b", 0);
            match end {
                0 => drop(gb.detach()?),
                1 => gb.hang_up(),
                2 => {
                    // A hostile guest.
                    let idx = gb.ring(0).avail_idx.wrapping_add(1000);
                    gb.ring(0).set_avail_idx(idx);
                }
                _ => rig.nic.remove_adapter("b")?,
            }
            ga.drain();
            if end < 2 {
                rig.state("b", AttachState::Detached)?;
            }
            if end == 3 {
                // Its number is given to another, for whom nobody waits.
                let b = rig.add("b2")?;
                let mut gb = rig.attach("b2", receiver())?;
                burst(&mut ga, b, a, 0, 0..10);
                let mut seqs = vec![];
                assert!(wait_for(|| {
                    take(&mut gb, &mut seqs);
                    seqs.len() == 10
                }));
                rig.finish(Copies::Unknown)?;
            } else {
                assert!(wait_for(|| rig.nic.dropless("b").is_ok_and(|d| d.waiting == 0)));
                assert_eq!(rig.nic.adapter("b")?.burst.bytes, 0);
                rig.finish(Copies::Extra(0))?;
            }
        }
    }
    Ok(())
}

/// Requests that are cut here, and frames over several buffers: nothing is delivered in part.
#[test]
fn cut_and_merged_frames_wait_as_a_whole() -> Result<()> {
    const SEGMENT: usize = 1000;
    for cores in [1, 2] {
        let mut rig = Rig::new(cores)?;
        let (a, b) = (rig.add("a")?, rig.add("b")?);
        let mut o = sender().with(OFFLOADS);
        o.tx_buffer = 64 << 10;
        o.queue_size = 64;
        let mut ga = rig.attach("a", o)?;
        // Three buffers for each segment; a request never fits the ring.
        let mut o = receiver();
        (o.queue_size, o.rx_buffer) = (64, 400);
        let mut gb = rig.attach("b", o)?;
        let flow = Flow {
            to: b,
            from: a,
            v6: false,
            vlan: None,
            port: 7,
        };
        let payload: Vec<u8> = (0..40 * SEGMENT).map(|i| (i / SEGMENT) as u8).collect();
        let (f, hdr) = tso(&flow, &payload, SEGMENT as u16);
        in_time(&mut rig, "b", |rig| {
            rig.nic.set_dropless("b", 100)?;
            let before = rig.nic.dropless("b")?.timeouts;
            let lost = rig.drops("b", DropReason::NoRxBuffer);
            for _ in 0..3 {
                assert!(ga.send(0, &f, hdr));
            }
            held_up(rig, "b", before);
            let mut segments = 0u64;
            let mut take = |gb: &mut Guest| {
                while let Some((_, _, f)) = gb.try_recv(0) {
                    let p = parse(&f);
                    assert_eq!(p.payload.len(), SEGMENT);
                    assert!(p.payload.iter().all(|b| *b == p.payload[0]));
                    segments += 1;
                }
                segments
            };
            let mut got = 0;
            let lost = || rig.drops("b", DropReason::NoRxBuffer) - lost;
            assert!(wait_for(|| {
                got = take(&mut gb);
                ga.reclaim(0) == 0 && got + lost() == 120
            }));
            if rig.nic.dropless("b")?.timeouts == before {
                assert_eq!(got, 120);
            }
            Ok(())
        })?;
        rig.finish(Copies::Unknown)?;
    }
    Ok(())
}

/// Guests on two cores that send to each other and to all, and take their frames when they like; modes, reserves and guests
/// come and go. Nothing overtakes, nothing comes twice, and in the end nothing waits.
#[test]
fn whatever_everybody_does() -> Result<()> {
    const GUESTS: usize = 4;
    let mut dice = Dice::thrown();
    let mut rig = Rig::new(2)?;
    let (mut macs, mut guests) = (vec![], vec![]);
    for i in 0..GUESTS {
        let name = format!("g{i}");
        macs.push(rig.add(&name)?);
        let mut o = Options {
            queue_size: 64,
            rx_buffer: if i % 2 == 0 { 2048 } else { 300 },
            ..Options::default()
        };
        if i < 2 {
            o = o.with(feature::RING_EVENT_IDX);
        }
        guests.push(rig.attach(&name, o)?);
    }
    let mut next: HashMap<(usize, u32), u64> = HashMap::new();
    let mut take = |i: usize, g: &mut Guest, most: u64| {
        let mut n = 0;
        while n < most
            && let Some((_, _, f)) = g.try_recv(0)
        {
            let number = number_of(&f).expect("only numbered frames are sent");
            let next = next.entry((i, number.sender)).or_default();
            assert!(number.seq >= *next, "{number:?} at {i}, after {}", *next - 1);
            *next = number.seq + 1;
            n += 1;
        }
        n
    };
    let mut seq = 0;
    for _ in 0..400 {
        let i = dice.below(GUESTS as u64) as usize;
        let name = format!("g{i}");
        match dice.below(40) {
            0..4 => rig.nic.set_dropless(&name, dice.below(101) as u8)?,
            4..8 => {
                let settings = AdapterSettings {
                    burst: *dice.pick(&[Burst::Off, Burst::Thread, Burst::Poll]),
                    reserve: dice.below(100) as u32,
                    ..AdapterSettings::default()
                };
                rig.nic.configure_adapter(&name, &settings)?;
            }
            8 => {
                guests[i].hang_up();
                rig.state(&name, AttachState::Detached)?;
                guests[i].connect(rig.socket(&name))?;
                rig.up(&name)?;
            }
            9 => guests[i].set_mem_table()?,
            10..25 => drop(take(i, &mut guests[i], dice.below(100))),
            _ => {
                for _ in 0..dice.below(80) {
                    let to = match dice.below(6) {
                        0 => BROADCAST,
                        _ => macs[(i + 1 + dice.below(GUESTS as u64 - 1) as usize) % GUESTS],
                    };
                    let n = Number {
                        sender: i as u32,
                        stream: 0,
                        seq,
                    };
                    let f = numbered(to, macs[i], n, 60 + dice.below(1400) as usize);
                    seq += 1;
                    // Whoever is held up sends less.
                    if !guests[i].stage(0, &f, NetHdr::default()) {
                        break;
                    }
                }
                guests[i].ring(1).publish();
            }
        }
    }
    // In the end everybody takes everything.
    let nic = rig.nic.clone();
    assert!(wait_for(|| {
        let mut quiet = true;
        for (i, g) in guests.iter_mut().enumerate() {
            quiet &= take(i, g, u64::MAX) == 0;
            quiet &= g.reclaim(0) == 0;
            let held = nic.adapter(&format!("g{i}")).expect("the adapter is there").burst;
            quiet &= held.bytes == 0;
        }
        quiet
    }));
    for g in &guests {
        g.mem().check_canaries()?;
    }
    rig.finish(Copies::Unknown)
}

/// RoCE for an RDMA function does not use receive buffers of the Ethernet function, and so it does not wait for them.
#[test]
fn roce_for_the_rdma_function_does_not_wait() -> Result<()> {
    const PACKETS: u64 = 10;
    for cores in [1, 2] {
        let World { mut rig } = World::new(cores, &["a", "b", "c"])?;
        let mac = |i| MacAddr([2, 0, 0, 0, 0, i]);
        let (a, b, c) = (mac(1), mac(2), mac(3));
        let _driver = Driver::start(rig.dir().join("b-rdma.sock"), rdma::Options::default())?;
        let mut ga = rig.attach("a", sender())?;
        let mut gb = rig.attach("b", receiver())?;
        let mut gc = rig.attach("c", sender())?;
        let flow = Flow {
            to: b,
            from: c,
            v6: false,
            vlan: None,
            port: 50_000,
        };
        // RoCEv2 by its port; what is in it is nonsense, which the function counts.
        let mut packet = udp(&flow, &[0; 40]);
        packet[36..38].copy_from_slice(&4791u16.to_be_bytes());
        let heard = |rig: &Rig| rig.counter("b", "rx_icrc_encapsulated") + rig.counter("b", "drop_malformed");
        in_time(&mut rig, "b", |rig| {
            rig.nic.set_dropless("b", 100)?;
            let before = rig.nic.dropless("b")?.timeouts;
            let lost = rig.drops("b", DropReason::NoRxBuffer);
            burst(&mut ga, b, a, 0, 0..FRAMES);
            held_up(rig, "b", before);
            let was = heard(rig);
            for _ in 0..PACKETS {
                assert!(gc.send(0, &packet, NetHdr::default()));
            }
            // Nobody takes frames meanwhile: in a try without a time-out they were heard while others waited.
            assert!(wait_for(|| heard(rig) == was + PACKETS));
            let mut seqs = vec![];
            all_of(rig, "b", &mut gb, &mut seqs, lost, FRAMES);
            ga.drain();
            Ok(())
        })?;
        gc.drain();
        rig.finish(Copies::Unknown)?;
    }
    Ok(())
}
