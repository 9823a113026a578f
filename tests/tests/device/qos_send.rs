//! Quality of service at the sending end of an adapter's link: pause obeyed, limits, send queues, and policies.
//!
//! Nothing here is judged by the clock: a receiver without buffers holds its senders up for as long as a test wants, and what
//! gets past it is counted. That limits hold their rates is shown in virtual time, by the unit tests of the data path.

use std::collections::HashMap;

use anyhow::Result;
use vnic_backend::settings::{AdapterSettings, QosKeys};
use vnic_backend::{AttachState, DropReason, MacAddr, QosSpec, ScheduleQueue, Tsa};
use vnic_tests::driver::packets::{BROADCAST, Number, number_of, numbered, tagged};
use vnic_tests::driver::rig::{Copies, Dice, Rig, wait_for};
use vnic_tests::driver::{Guest, NetHdr, Options};

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

fn number(stream: u32, seq: u64) -> Number {
    Number {
        sender: 0,
        stream,
        seq,
    }
}

/// A numbered frame with a priority tag; its stream is its priority.
fn frame(to: MacAddr, from: MacAddr, priority: u8, seq: u64, len: usize) -> Vec<u8> {
    let plain = numbered(to, from, number(priority.into(), seq), len);
    tagged(&plain, u16::from(priority) << 13)
}

fn number_in(frame: &[u8]) -> Option<Number> {
    if frame.get(12..14) == Some(&[0x81, 0x00]) {
        let plain = [&frame[..12], &frame[16..]].concat();
        return number_of(&plain);
    }
    number_of(frame)
}

fn stage(g: &mut Guest, f: &[u8]) {
    assert!(g.stage(0, f, NetHdr::default()), "room for all frames");
}

/// What has come, by stream; each in its order.
#[derive(Default)]
struct Seen {
    last: HashMap<u32, u64>,
    count: HashMap<u32, u64>,
}

impl Seen {
    fn take(&mut self, g: &mut Guest) {
        while let Some((_, _, f)) = g.try_recv(0) {
            let Some(n) = number_in(&f) else { continue };
            if let Some(last) = self.last.insert(n.stream, n.seq) {
                assert!(n.seq > last, "{n:?} after {last}");
            }
            *self.count.entry(n.stream).or_default() += 1;
        }
    }

    fn of(&self, stream: u32) -> u64 {
        self.count.get(&stream).copied().unwrap_or(0)
    }

    /// Waits for so many of a stream.
    #[track_caller]
    fn wait(&mut self, g: &mut Guest, stream: u32, n: u64) {
        let came = wait_for(|| {
            self.take(g);
            self.of(stream) >= n
        });
        assert!(came, "{} of {n} came of stream {stream}", self.of(stream));
        assert_eq!(self.of(stream), n);
    }
}

fn spec(change: impl FnOnce(&mut QosSpec)) -> QosSpec {
    let mut spec = QosSpec::default();
    change(&mut spec);
    spec
}

/// Priority flow control on these priorities, with little room.
fn pfc(priorities: u8) -> QosSpec {
    spec(|s| {
        s.pfc = priorities;
        s.buffer.xoff = 16 << 10;
        s.buffer.xon = 8 << 10;
    })
}

/// The keys of an adapter, at once.
fn keys(rig: &Rig, name: &str, change: impl FnOnce(&mut QosKeys)) -> Result<()> {
    let mut settings = AdapterSettings::default();
    change(&mut settings.qos);
    Ok(rig.nic.apply_qos_keys(name, &settings)?)
}

fn paused(rig: &Rig, name: &str) -> u8 {
    rig.nic.qos(name).expect("it is there").queues.paused
}

fn send_queues(rig: &Rig, name: &str) -> [u64; 8] {
    rig.nic.qos(name).expect("it is there").queues.send_queues
}

/// Three adapters: a sends to b, which has given no buffers, and to c, which has.
struct Three {
    rig: Rig,
    a: MacAddr,
    b: MacAddr,
    c: MacAddr,
    ga: Guest,
    gb: Guest,
    gc: Guest,
}

impl Three {
    fn new(cores: usize) -> Result<Three> {
        let mut rig = Rig::new(cores)?;
        let (a, b, c) = (rig.add("a")?, rig.add("b")?, rig.add("c")?);
        let ga = rig.attach("a", wide())?;
        let gb = rig.attach("b", closed())?;
        let gc = rig.attach("c", wide())?;
        // However long a test takes, b tells its senders to wait.
        keys(&rig, "b", |k| (k.guard.minor_ms, k.guard.critical_ms) = (0, 0))?;
        Ok(Three {
            rig,
            a,
            b,
            c,
            ga,
            gb,
            gc,
        })
    }

    /// Sends frames to b until a is told to wait for priority 3. Answers how many.
    fn congest(&mut self, told: u8) -> u64 {
        let mut n = 0;
        let paused = wait_for(|| {
            if self
                .ga
                .stage(0, &frame(self.b, self.a, 3, n, 1000), NetHdr::default())
            {
                n += 1;
                self.ga.ring(1).publish();
            }
            self.ga.reclaim(0);
            paused(&self.rig, "a") == told
        });
        assert!(paused, "a is not told to wait after {n} frames");
        n
    }
}

/// A priority that is told to wait holds the ring up, and all goes on afterwards.
#[test]
fn a_paused_priority_holds_the_ring() -> Result<()> {
    for cores in [1, 2] {
        let mut t = Three::new(cores)?;
        for name in ["a", "b"] {
            t.rig.nic.set_qos(name, pfc(0b1000))?;
        }
        let n = t.congest(0b1000);
        // One of the paused priority, and one behind it.
        stage(&mut t.ga, &frame(t.b, t.a, 3, n, 1000));
        stage(&mut t.ga, &frame(t.c, t.a, 0, 0, 200));
        t.ga.ring(1).publish();
        for _ in 0..20 {
            t.rig.settle()?;
        }
        let mut seen = Seen::default();
        seen.take(&mut t.gc);
        assert_eq!(seen.of(0), 0, "it is behind one that waits");
        assert_eq!(paused(&t.rig, "a"), 0b1000);
        // The receiver goes on.
        t.gb.post(0, 1024);
        let mut at_b = Seen::default();
        at_b.wait(&mut t.gb, 3, n + 1);
        seen.wait(&mut t.gc, 0, 1);
        t.ga.drain();
        assert!(wait_for(|| paused(&t.rig, "a") == 0));
        assert_eq!(t.rig.priority_counter("a", 3, "tx_frames"), n + 1);
        assert!(t.rig.priority_counter("a", 3, "rx_pause") >= 1);
        assert!(wait_for(|| {
            t.rig.priority_counter("a", 3, "rx_pause_transitions") >= 1
        }));
        assert!(t.rig.priority_counter("a", 3, "rx_pause_us") > 0);
        t.rig.finish(Copies::Extra(0))?;
    }
    Ok(())
}

/// The victim: with priority flow control and send queues what goes elsewhere is not held up; with global pause it is.
#[test]
fn the_victim_of_another_flow() -> Result<()> {
    const FRAMES: u64 = 300;
    for cores in [1, 2] {
        for by_priority in [true, false] {
            let mut t = Three::new(cores)?;
            let (b, a) = if by_priority {
                keys(&t.rig, "a", |k| k.sending.queue_per_priority = true)?;
                (pfc(0b1000), pfc(0b1000))
            } else {
                // Global pause is sent by a port whose link is slow.
                let queues = spec(|s| {
                    s.rate = 10_000;
                    s.buffer.xoff = 16 << 10;
                    s.buffer.xon = 8 << 10;
                });
                (queues, QosSpec::default())
            };
            t.rig.nic.set_qos("a", a)?;
            t.rig.nic.set_qos("b", b)?;
            let n = if by_priority {
                // A guest without buffers: lossless is what keeps the frames.
                t.congest(0b1000)
            } else {
                t.gb.post(0, 1024);
                t.congest(0xff)
            };
            for seq in 0..FRAMES {
                stage(&mut t.ga, &frame(t.c, t.a, 0, seq, 300));
            }
            t.ga.ring(1).publish();
            let mut seen = Seen::default();
            if by_priority {
                seen.wait(&mut t.gc, 0, FRAMES);
                assert_eq!(paused(&t.rig, "a"), 0b1000);
            } else {
                for _ in 0..50 {
                    t.rig.settle()?;
                }
                seen.take(&mut t.gc);
                assert_eq!(seen.of(0), 0, "global pause stops everything");
                assert_eq!(paused(&t.rig, "a"), 0xff);
            }
            if by_priority {
                t.gb.post(0, 1024);
            } else {
                t.rig.nic.set_qos("b", QosSpec::default())?;
            }
            let mut at_b = Seen::default();
            at_b.wait(&mut t.gb, 3, n);
            seen.wait(&mut t.gc, 0, FRAMES);
            t.ga.drain();
            assert!(wait_for(|| send_queues(&t.rig, "a") == [0; 8]));
            t.rig.finish(Copies::Extra(0))?;
        }
    }
    Ok(())
}

/// A send queue that is full drops what is lossy and makes wait what is lossless.
#[test]
fn a_full_send_queue() -> Result<()> {
    for cores in [1, 2] {
        let mut t = Three::new(cores)?;
        keys(&t.rig, "a", |k| k.sending.queue_per_priority = true)?;
        t.rig.nic.set_qos("b", pfc(0b1000))?;
        t.rig.nic.set_qos("a", pfc(0b1000))?;
        let mut n = t.congest(0b1000);
        let bytes = |rig: &Rig| send_queues(rig, "a")[3];
        // Lossless: until the queue and the ring are full.
        let full = wait_for(|| {
            while t.ga.stage(0, &frame(t.b, t.a, 3, n, 1000), NetHdr::default()) {
                n += 1;
            }
            t.ga.ring(1).publish();
            t.ga.reclaim(0);
            bytes(&t.rig) > 255 << 10 && t.ga.tx(0).free() == 0
        });
        assert!(full, "{} bytes wait", bytes(&t.rig));
        assert!(bytes(&t.rig) <= 256 << 10);
        assert_eq!(t.rig.drops("a", DropReason::SendQueueFull), 0);
        t.gb.post(0, 1024);
        let mut at_b = Seen::default();
        assert!(wait_for(|| {
            at_b.take(&mut t.gb);
            at_b.of(3) == n
        }));
        t.ga.drain();
        assert_eq!(send_queues(&t.rig, "a"), [0; 8]);
        assert_eq!(t.rig.priority_counter("a", 3, "tx_frames"), n);

        // Lossy: held up by a limit that nothing can wait for.
        t.rig
            .nic
            .set_qos("a", spec(|s| s.classes.limit = [0, 0, 0, 0, 0, 1000, 0, 0]))?;
        for seq in 0..500 {
            stage(&mut t.ga, &frame(t.c, t.a, 5, seq, 1000));
        }
        t.ga.ring(1).publish();
        t.ga.drain();
        let sent = 500 - t.rig.drops("a", DropReason::SendQueueFull);
        assert!((200..300).contains(&sent), "{sent} fit");
        assert!(send_queues(&t.rig, "a")[5] > 200_000);
        // Others go on, and what waits is sent when it may be.
        stage(&mut t.ga, &frame(t.c, t.a, 2, 0, 100));
        t.ga.ring(1).publish();
        let mut at_c = Seen::default();
        at_c.wait(&mut t.gc, 2, 1);
        t.rig.nic.set_qos("a", QosSpec::default())?;
        at_c.wait(&mut t.gc, 5, sent);
        t.rig.finish(Copies::Extra(0))?;
    }
    Ok(())
}

/// Whatever is configured meanwhile: every frame arrives once, each priority in its order.
#[test]
fn nothing_is_lost_by_reconfiguring() -> Result<()> {
    const FRAMES: u64 = 60;
    let ets = |s: &mut QosSpec| {
        for (tc, share) in [(0, 20), (3, 80)] {
            s.classes.tsa[tc] = Tsa::Ets;
            s.classes.share[tc] = share;
        }
    };
    let specs = [
        QosSpec::default(),
        spec(|s| s.rate = 100_000_000),
        spec(|s| {
            s.rate = 200_000_000;
            ets(s);
        }),
        spec(|s| s.classes.limit = [50_000_000; 8]),
        pfc(0b1001),
        spec(|s| {
            s.pfc = 0b1000;
            s.classes.of_priority = [3, 3, 2, 1, 0, 0, 0, 0];
            ets(s);
        }),
        spec(|s| {
            s.queue = Some(ScheduleQueue {
                limit: [100_000_000; 8],
                guarantee: [0; 8],
            });
        }),
    ];
    for cores in [1, 2] {
        let mut dice = Dice::thrown();
        let mut t = Three::new(cores)?;
        t.gb.post(0, 1024);
        let (mut at_b, mut at_c) = (Seen::default(), Seen::default());
        let mut seq = 0;
        for _ in 0..60 {
            for _ in 0..FRAMES {
                let priority = [0, 3, 5][(seq % 3) as usize];
                let to = if seq / 3 % 2 == 0 { t.b } else { t.c };
                let len = 60 + dice.below(1300) as usize;
                stage(&mut t.ga, &frame(to, t.a, priority, seq, len));
                seq += 1;
            }
            t.ga.ring(1).publish();
            // 64 KiB of a lossy priority fit into its queue: the ring is empty before the next frames come.
            let queued = dice.below(2) == 1;
            keys(&t.rig, "a", |k| k.sending.queue_per_priority = queued)?;
            t.rig.nic.set_qos("a", dice.pick(&specs).clone())?;
            if dice.below(4) == 0 {
                t.rig.nic.set_qos("b", dice.pick(&specs).clone())?;
            }
            assert!(wait_for(|| {
                at_b.take(&mut t.gb);
                at_c.take(&mut t.gc);
                t.ga.reclaim(0);
                t.ga.tx(0).outstanding() == 0
            }));
        }
        for name in ["a", "b"] {
            t.rig.nic.set_qos(name, QosSpec::default())?;
        }
        for (priority, stream) in [(0, 0), (3, 3), (5, 5)] {
            let all = wait_for(|| {
                at_b.take(&mut t.gb);
                at_c.take(&mut t.gc);
                at_b.of(stream) + at_c.of(stream) == seq / 3
            });
            let (b, c) = (at_b.of(stream), at_c.of(stream));
            assert!(all, "{b} and {c} of {} of priority {priority}", seq / 3);
            let tx = t.rig.priority_counter("a", priority, "tx_frames");
            assert_eq!(tx, seq / 3);
        }
        assert_eq!(t.rig.drops("a", DropReason::SendQueueFull), 0);
        assert_eq!(send_queues(&t.rig, "a"), [0; 8]);
        t.rig.finish(Copies::Extra(0))?;
    }
    Ok(())
}

/// Limits, and a core that sleeps while it waits: all arrives.
#[test]
fn what_waits_for_a_limit_arrives() -> Result<()> {
    for cores in [1, 2] {
        for queued in [false, true] {
            // The core sleeps as soon as it has nothing to do.
            let mut rig = Rig::with_spin(cores, std::time::Duration::ZERO)?;
            let (a, b) = (rig.add("a")?, rig.add("b")?);
            keys(&rig, "a", |k| k.sending.queue_per_priority = queued)?;
            rig.nic.set_qos(
                "a",
                spec(|s| {
                    s.rate = 50_000_000;
                    s.classes.limit[3] = 10_000_000;
                }),
            )?;
            let mut ga = rig.attach("a", wide())?;
            let mut gb = rig.attach("b", wide())?;
            let mut seen = Seen::default();
            for seq in 0..100 {
                stage(&mut ga, &frame(b, a, 3, seq, 1000));
                stage(&mut ga, &frame(b, a, 6, seq, 1000));
            }
            ga.ring(1).publish();
            seen.wait(&mut gb, 3, 100);
            seen.wait(&mut gb, 6, 100);
            // Frames for all are charged once.
            stage(&mut ga, &frame(BROADCAST, a, 4, 0, 1000));
            ga.ring(1).publish();
            seen.wait(&mut gb, 4, 1);
            ga.drain();
            assert!(rig.core_counter("sleeps") > 0);
            rig.finish(Copies::Extra(0))?;
        }
    }
    Ok(())
}

/// The sender's guest goes away, and its adapter, while frames wait in its send queues.
#[test]
fn what_waits_when_its_sender_goes() -> Result<()> {
    for cores in [1, 2] {
        for remove in [false, true] {
            let mut t = Three::new(cores)?;
            keys(&t.rig, "a", |k| k.sending.queue_per_priority = true)?;
            let limit = |rate| spec(|s| s.classes.limit = [0, 0, 0, rate, 0, 0, 0, 0]);
            t.rig.nic.set_qos("a", limit(1000))?;
            for seq in 0..50 {
                stage(&mut t.ga, &frame(t.c, t.a, 3, seq, 500));
            }
            t.ga.ring(1).publish();
            t.ga.drain();
            assert!(send_queues(&t.rig, "a")[3] > 0);
            drop(t.ga);
            t.rig.state("a", AttachState::Detached)?;
            let mut seen = Seen::default();
            if remove {
                seen.take(&mut t.gc);
                t.rig.nic.remove_adapter("a")?;
                t.rig.settle()?;
                seen.take(&mut t.gc);
                assert_eq!(seen.of(3) + t.rig.core_counter("orphans"), 50);
                t.rig.finish(Copies::Unknown)?;
            } else {
                // Its guest's frames were taken: they are sent.
                t.rig.nic.set_qos("a", limit(0))?;
                seen.wait(&mut t.gc, 3, 50);
                t.rig.finish(Copies::Extra(0))?;
            }
        }
    }
    Ok(())
}

/// Several rings of an adapter share its limit: none is left behind.
#[test]
fn rings_share_a_limit() -> Result<()> {
    for cores in [1, 2] {
        let mut rig = Rig::new(cores)?;
        let a = rig.add_with("a", |s| s.queue_pairs = 2)?;
        let b = rig.add("b")?;
        // Next to nothing until both rings are full.
        rig.nic.set_qos("a", spec(|s| s.rate = 1000))?;
        let mut ga = rig.attach("a", Options { pairs: 2, ..wide() })?;
        let mut gb = rig.attach("b", wide())?;
        for seq in 0..200 {
            let f = |p| frame(b, a, p, seq, 500);
            assert!(ga.stage(0, &f(1), NetHdr::default()));
            assert!(ga.stage(1, &f(2), NetHdr::default()));
        }
        ga.ring(3).publish();
        ga.ring(1).publish();
        // (A core that was away may send 5 ms of it at once: five frames.)
        rig.nic.set_qos("a", spec(|s| s.rate = 4_000_000))?;
        let mut seen = Seen::default();
        // Whichever is looked at first.
        let half = wait_for(|| {
            let f = gb.try_recv(0).and_then(|(_, _, f)| number_in(&f));
            if let Some(n) = f {
                *seen.count.entry(n.stream).or_default() += 1;
            }
            seen.of(1).max(seen.of(2)) == 100
        });
        assert!(half);
        assert!(seen.of(1).abs_diff(seen.of(2)) <= 10, "{:?}", seen.count);
        seen.wait(&mut gb, 1, 200);
        seen.wait(&mut gb, 2, 200);
        ga.drain();
        rig.finish(Copies::Extra(0))?;
    }
    Ok(())
}
