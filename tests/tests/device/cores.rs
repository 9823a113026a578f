//! Adapters on different data cores, several queues, guests that come and go under traffic.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use vnic_backend::{AttachState, CaptureSpec, MacAddr, VirtualClock};
use vnic_tests::driver::packets::{BROADCAST, Flow, Number, number_of, numbered, udp};
use vnic_tests::driver::rig::{Copies, Dice, PATIENCE, Rig, deadline, wait_for};
use vnic_tests::driver::{Guest, Layout, NetHdr, Options, feature};
use vnic_tests::lab::own_process;

/// What a receiver has seen: the next sequence number it may see of each sender's stream.
#[derive(Default)]
struct Seen {
    next: HashMap<(u32, u32), u64>,
    frames: u64,
}

impl Seen {
    /// Receives what is there: each frame at most once, in order.
    fn poll(&mut self, g: &mut Guest) -> u64 {
        let mut n = 0;
        while let Some((_, _, f)) = g.try_recv_any() {
            let Some(number) = number_of(&f) else { continue };
            let next = self.next.entry((number.sender, number.stream)).or_default();
            assert!(number.seq >= *next, "{number:?} after {}", *next - 1);
            *next = number.seq + 1;
            n += 1;
        }
        self.frames += n;
        n
    }
}

fn unknown(i: u64) -> MacAddr {
    MacAddr([2, 0xee, 0, 0, 0, i as u8])
}

#[test]
fn commands_do_not_hold_up_frames() -> Result<()> {
    let clock = VirtualClock::new(Duration::from_micros(1));
    let rig = Rig::with_clock(clock.clone())?;
    let held = clock.hold();
    // Nobody waits for the answer of these.
    let spec = CaptureSpec {
        owners: Vec::new(),
        snaplen: 64,
        drops_only: false,
    };
    let captures: Vec<_> = (0..100)
        .map(|_| rig.nic.capture(spec.clone()))
        .collect::<Result<_, _>>()?;
    let before = rig.core_counter("commands");
    let taken = || rig.core_counter("commands") - before;
    for round in 1..=6 {
        held.rounds(1);
        assert_eq!(taken(), 16 * round, "round {round}");
    }
    held.rounds(1);
    assert_eq!(taken(), 100);
    drop(held);
    drop(captures);
    Ok(())
}

/// A random mix of unicast, broadcast and unknown destinations between guests on all cores. Nothing is lost that is
/// not counted.
fn mix(cores: usize, guests: usize, rounds: u64) -> Result<()> {
    let mut dice = Dice::thrown();
    let mut rig = Rig::new(cores)?;
    let mut macs = vec![];
    let mut g = vec![];
    let layouts = [
        Layout::Same,
        Layout::Separate,
        Layout::Split(4),
        Layout::Split(30),
    ];
    for i in 0..guests {
        let name = format!("g{i}");
        macs.push(rig.add(&name)?);
        let mut o = Options {
            tx_layout: layouts[i % 4],
            rx_layout: layouts[(i + 1) % 4],
            ..Options::default()
        };
        if i % 2 == 1 {
            o = o.with(feature::RING_EVENT_IDX | feature::RING_INDIRECT_DESC);
            o.indirect = true;
        }
        if i % 3 == 1 {
            o = o.with(feature::RING_PACKED | if i % 2 == 0 { feature::IN_ORDER } else { 0 });
        }
        (o.start_at, o.queue_size) = (dice.bits() as u16, 512);
        g.push(rig.attach(&name, o)?);
    }
    let mut seen: Vec<Seen> = (0..guests).map(|_| Seen::default()).collect();
    let mut seq = 0u64;
    let mut extra = 0;
    for round in 0..rounds {
        for i in 0..guests {
            for _ in 0..dice.below(60) {
                let other = (i + 1 + dice.below(guests as u64 - 1) as usize) % guests;
                let to = match dice.below(8) {
                    0 => BROADCAST,
                    1 => unknown(dice.below(4)),
                    _ => macs[other],
                };
                if to != macs[other] {
                    extra += guests as u64 - 2;
                }
                let n = Number {
                    sender: i as u32,
                    stream: 0,
                    seq,
                };
                let f = numbered(to, macs[i], n, 60 + dice.below(1400) as usize);
                seq += 1;
                // Sending waits for room: receive meanwhile, or everybody waits for everybody.
                let deadline = deadline();
                while !g[i].send(0, &f, NetHdr::default()) {
                    assert!(Instant::now() < deadline, "stuck");
                    for (guest, seen) in g.iter_mut().zip(&mut seen) {
                        seen.poll(guest);
                    }
                }
            }
        }
        for (guest, seen) in g.iter_mut().zip(&mut seen) {
            seen.poll(guest);
        }
        if round % 50 == 49 {
            for guest in &mut g {
                guest.drain();
            }
        }
    }
    for guest in &mut g {
        guest.drain();
    }
    rig.settle()?;
    let delivered = |rig: &Rig| {
        (0..guests)
            .map(|i| rig.counter(&format!("g{i}"), "rx_frames"))
            .sum::<u64>()
    };
    let dropped = |rig: &Rig| {
        (0..guests)
            .map(|i| rig.counter(&format!("g{i}"), "drops"))
            .sum::<u64>()
    };
    assert!(wait_for(|| delivered(&rig) + dropped(&rig) == seq + extra));
    for (i, (guest, seen)) in g.iter_mut().zip(&mut seen).enumerate() {
        assert!(wait_for(|| {
            seen.poll(guest);
            seen.frames == rig.counter(&format!("g{i}"), "rx_frames")
        }));
        guest.mem().check_canaries()?;
    }
    println!(
        "{seq} frames, {} delivered, {} dropped",
        delivered(&rig),
        dropped(&rig)
    );
    rig.finish(Copies::Extra(extra))
}

#[test]
fn mixed_traffic_on_one_core() -> Result<()> {
    mix(1, 4, 150)
}

#[test]
fn mixed_traffic_across_two_cores() -> Result<()> {
    mix(2, 4, 300)
}

#[test]
fn two_guests_on_two_cores() -> Result<()> {
    mix(2, 2, 300)
}

/// Only bursts, only across: what the sender's core has to give back comes in heaps.
#[test]
fn bursts_across_cores_are_completed() -> Result<()> {
    let mut rig = Rig::new(2)?;
    let (a, b) = (rig.add("a")?, rig.add("b")?);
    let o = Options {
        queue_size: 1024,
        ..Options::default()
    };
    let mut ga = rig.attach("a", o.clone())?;
    let mut gb = rig.attach("b", o)?;
    let mut seen = Seen::default();
    let mut seq = 0;
    for round in 0..200u64 {
        let n = 1 + round * 37 % 700;
        for _ in 0..n {
            assert!(ga.stage(
                0,
                &numbered(
                    b,
                    a,
                    Number {
                        sender: 0,
                        stream: 0,
                        seq
                    },
                    60
                ),
                NetHdr::default()
            ));
            seq += 1;
        }
        ga.ring(1).publish();
        ga.drain();
        assert!(wait_for(|| {
            seen.poll(&mut gb);
            seen.frames == seq
        }));
    }
    rig.finish(Copies::Extra(0))
}

#[test]
fn flows_stay_in_order_on_one_queue() -> Result<()> {
    for cores in [1, 2] {
        let mut rig = Rig::new(cores)?;
        let (a, b) = (
            rig.add_with("a", |s| s.queue_pairs = 4)?,
            rig.add_with("b", |s| s.queue_pairs = 4)?,
        );
        let o = Options {
            pairs: 4,
            queue_size: 512,
            ..Options::default()
        }
        .with(feature::MQ);
        let mut ga = rig.attach("a", o.clone())?;
        let mut gb = rig.attach("b", o)?;
        assert_eq!(rig.nic.adapter("b")?.queue_pairs_enabled, 4);
        let mut queue_of: HashMap<u16, (u16, u64)> = HashMap::new();
        let mut sent = 0u64;
        for i in 0..1600u64 {
            let port = 1000 + (i % 40) as u16;
            let flow = Flow {
                to: b,
                from: a,
                v6: i % 2 == 1,
                vlan: None,
                port,
            };
            ga.send_wait(port % 4, &udp(&flow, &i.to_be_bytes()), NetHdr::default());
            sent += 1;
            if i % 100 == 99 {
                let end = deadline();
                while sent > 0 {
                    assert!(Instant::now() < end);
                    let Some((pair, _, f)) = gb.try_recv_any() else {
                        continue;
                    };
                    let p = vnic_tests::driver::packets::parse(&f);
                    let port = u16::from_be_bytes([
                        f[if f[12] == 8 { 34 } else { 54 }],
                        f[if f[12] == 8 { 35 } else { 55 }],
                    ]);
                    let seq = u64::from_be_bytes(p.payload.try_into().expect("8 bytes"));
                    let (queue, next) = queue_of.entry(port).or_insert((pair, 0));
                    assert_eq!(*queue, pair, "flow {port} changed its queue");
                    assert!(seq >= *next, "flow {port} out of order");
                    *next = seq + 1;
                    sent -= 1;
                }
            }
        }
        let used: std::collections::HashSet<u16> = queue_of.values().map(|(q, _)| *q).collect();
        assert!(used.len() > 1, "40 flows on one queue");
        rig.settle()?;
        let by_queue: u64 = (0..4).map(|q| rig.queue_counter("b", q, "rx_frames")).sum();
        assert_eq!(by_queue, 1600);
        // Fewer queues than offered.
        gb.detach()?;
        let o = Options {
            pairs: 2,
            ..Options::default()
        }
        .with(feature::MQ);
        let mut gb = rig.attach("b", o)?;
        for port in 0..100 {
            let flow = Flow {
                to: b,
                from: a,
                v6: false,
                vlan: None,
                port,
            };
            ga.send_wait(0, &udp(&flow, &[1; 100]), NetHdr::default());
        }
        let mut got = 0;
        assert!(wait_for(|| {
            got += u64::from(gb.try_recv_any().is_some());
            got == 100
        }));
        rig.finish(Copies::Extra(0))?;
    }
    Ok(())
}

fn descriptors_and_maps() -> (usize, usize) {
    let fds = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let maps = std::fs::read_to_string("/proc/self/maps").map_or(0, |m| m.matches("memfd:guest").count());
    (fds, maps)
}

/// Guests detach, hang up, reset and are removed in the middle of traffic between the cores: nothing hangs, leaks
/// or is used after it was unmapped.
#[test]
fn come_and_go_under_cross_core_traffic() -> Result<()> {
    // Counts descriptors and maps of the process.
    own_process(come_and_go)
}

fn come_and_go() -> Result<()> {
    let mut dice = Dice::thrown();
    let mut rig = Rig::new(2)?;
    let mut macs = vec![];
    let mut g = vec![];
    let o = Options {
        queue_size: 128,
        ..Options::default()
    };
    for i in 0..4 {
        macs.push(rig.add(&format!("g{i}"))?);
        g.push(rig.attach(&format!("g{i}"), o.clone())?);
    }
    let mut seen: Vec<Seen> = (0..4).map(|_| Seen::default()).collect();
    let mut before = (0, 0);
    let mut seq = 0;
    const ROUNDS: usize = 120;
    for round in 0..ROUNDS {
        let victim = dice.below(4) as usize;
        let name = format!("g{victim}");
        let what = dice.below(5);
        let until = Instant::now() + Duration::from_micros(dice.below(3000));
        let mut traffic = |g: &mut Vec<Guest>, until: Instant, dice: &mut Dice| {
            while Instant::now() < until {
                for i in 0..4 {
                    for _ in 0..20 {
                        let to = if dice.below(4) == 0 {
                            BROADCAST
                        } else {
                            macs[dice.below(4) as usize]
                        };
                        let f = numbered(
                            to,
                            macs[i],
                            Number {
                                sender: i as u32,
                                stream: 0,
                                seq,
                            },
                            60 + dice.below(1000) as usize,
                        );
                        seq += 1;
                        g[i].send(0, &f, NetHdr::default());
                    }
                    seen[i].poll(&mut g[i]);
                }
            }
        };
        traffic(&mut g, until, &mut dice);
        match what {
            0 => {
                g[victim].detach()?;
                rig.state(&name, AttachState::Detached)?;
                g[victim].connect(rig.socket(&name))?;
            }
            1 => {
                g[victim].hang_up();
                rig.state(&name, AttachState::Detached)?;
                g[victim].connect(rig.socket(&name))?;
            }
            2 => g[victim].reset()?,
            3 => g[victim].set_mem_table()?,
            _ => {
                rig.nic.remove_adapter(&name)?;
                let mac = macs[victim];
                let i = victim;
                rig.add_with(&name, |s| {
                    s.macs = vec![mac];
                    s.data_core = Some(
                        s.data_core
                            .map_or(0, |c| if i.is_multiple_of(2) { c } else { 1 - c.min(1) }),
                    )
                    .filter(|c| vnic_tests::driver::rig::cpus().contains(c));
                })?;
                g[victim].connect(rig.socket(&name))?;
            }
        }
        rig.up(&name)?;
        if round == ROUNDS / 4 {
            before = descriptors_and_maps();
        }
    }
    assert!(rig.nic.responsive(PATIENCE));
    for (guest, seen) in g.iter_mut().zip(&mut seen) {
        guest.drain();
        assert!(wait_for(|| seen.poll(guest) == 0));
        guest.mem().check_canaries()?;
    }
    assert_eq!(
        descriptors_and_maps(),
        before,
        "descriptors and maps of guest memory leak"
    );
    // And everybody can still talk to everybody.
    for i in 0..4 {
        for j in (0..4).filter(|j| *j != i) {
            let n = Number {
                sender: i as u32,
                stream: 1,
                seq: j as u64,
            };
            g[i].send_wait(0, &numbered(macs[j], macs[i], n, 60), NetHdr::default());
            // A frame of the last round may have been on its way between the cores still.
            let until = deadline();
            let got = loop {
                let (_, _, f) = g[j].recv(0, until).expect("a frame");
                match number_of(&f) {
                    Some(Number { stream: 0, .. }) => {}
                    other => break other,
                }
            };
            assert_eq!(got, Some(n));
        }
    }
    rig.finish(Copies::Unknown)
}
