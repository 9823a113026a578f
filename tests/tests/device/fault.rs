//! Faults that rules put into the live NIC's traffic: between two adapters on one data core, and on two.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use anyhow::{Result, ensure};
use vnic_backend::fault::{Action, Opcodes, PsnRange};
use vnic_backend::{
    Capture, CaptureSpec, CapturedFrame, ClockAdjustment, Direction, DropReason, FaultSpec, Injected,
    MacAddr, NicError, NicEventKind,
};
use vnic_tests::driver::packets::{
    BROADCAST, Flow, Number, number_of, numbered, parse, pattern, tso, udp_partial,
};
use vnic_tests::driver::rig::{Copies, Rig, deadline, wait_for};
use vnic_tests::driver::{Guest, NetHdr, OFFLOADS, Options};
use vnic_wire::bth;
use vnic_wire::ethernet::{self, EtherType};
use vnic_wire::opcode::Opcode;
use vnic_wire::psn::Psn;
use vnic_wire::roce::{self, Frame, Network, Path};
use vnic_wire::transport::{Extended, Headers};

/// Longer than any test: who is held back this long leaves for another reason.
const FOR_EVER: Duration = Duration::from_secs(60);
/// RC SEND Only (IBTA volume 1, table 35).
const SEND_ONLY: u8 = 0x04;

/// Two guests, on one core or on two.
struct Two {
    rig: Rig,
    a: MacAddr,
    b: MacAddr,
    from: Guest,
    to: Guest,
}

impl Two {
    fn new(cores: usize) -> Result<Two> {
        Two::with(cores, Options::default())
    }

    fn with(cores: usize, options: Options) -> Result<Two> {
        let mut rig = Rig::new(cores)?;
        let (a, b) = (rig.add("a")?, rig.add("b")?);
        let from = rig.attach("a", options.clone())?;
        let to = rig.attach("b", options)?;
        Ok(Two { rig, a, b, from, to })
    }

    fn fault(&self, spec: FaultSpec) -> Result<()> {
        self.rig.nic.add_fault(spec)?;
        Ok(())
    }

    /// From a to b, RoCEv2 over IPv4, with a right ICRC and a sender that reacts to marks.
    fn packet(&self, psn: u32) -> Vec<u8> {
        packet(self.b, self.a, psn)
    }

    /// Sends packets with these PSNs, and waits until the device has taken them.
    fn send(&mut self, psns: impl IntoIterator<Item = u32>) -> Result<()> {
        for psn in psns {
            let frame = self.packet(psn);
            self.from.send_wait(0, &frame, NetHdr::default());
        }
        self.from.drain();
        self.rig.settle()
    }

    /// The next `n` frames of b.
    fn take(&mut self, n: usize) -> Vec<Vec<u8>> {
        let next = |_| self.to.recv(0, deadline()).expect("a frame").2;
        (0..n).map(next).collect()
    }

    /// The PSNs of the next `n` frames of b.
    fn psns(&mut self, n: usize) -> Vec<u32> {
        self.take(n).iter().map(|f| psn(f)).collect()
    }

    /// Nothing more is there for b.
    fn quiet(&mut self) -> Result<()> {
        self.rig.settle()?;
        let more = self.to.try_recv(0);
        ensure!(more.is_none(), "{more:?}");
        Ok(())
    }

    /// A capture of all that "b" gets and sends.
    fn capture(&self) -> Result<Capture> {
        let capture = self.rig.nic.capture(CaptureSpec {
            owners: vec!["b".into()],
            snaplen: 65_535,
            drops_only: false,
        })?;
        self.rig.settle()?;
        Ok(capture)
    }

    /// The books are right, and everything has arrived that should.
    fn finish(mut self) -> Result<()> {
        self.quiet()?;
        self.rig.finish(Copies::Extra(0))
    }
}

pub fn packet(to: MacAddr, from: MacAddr, psn: u32) -> Vec<u8> {
    let mut network = Network::v2(
        vnic_wire::gid::Gid::from_ipv4([10, 0, 0, 1]),
        vnic_wire::gid::Gid::from_ipv4([10, 0, 0, 2]),
    );
    network.set_traffic_class(0b10);
    let eth = ethernet::Header {
        destination: to,
        source: from,
        ethertype: EtherType::IPV4,
    };
    let path = Path {
        eth,
        vlan: None,
        network,
        source_port: 0xc000,
    };
    let mut frame = Vec::new();
    let headers = Headers {
        bth: bth::Header::new(Opcode(SEND_ONLY), 0x11, Psn::new(psn)),
        xrceth: None,
        dceth: None,
        extended: Extended::None,
    };
    roce::build(&path, &headers, &pattern(200), &mut frame).expect("a sound packet");
    frame
}

fn psn(frame: &[u8]) -> u32 {
    Frame::parse(frame).expect("RoCE").headers.bth.psn.value()
}

/// A rule about frames from a to b.
fn rule(action: Action) -> FaultSpec {
    FaultSpec {
        from: Some("a".into()),
        to: Some("b".into()),
        seed: Some(7),
        ..FaultSpec::new("f", action)
    }
}

fn delay() -> Action {
    Action::Delay {
        by: FOR_EVER,
        jitter: Duration::ZERO,
    }
}

fn only(psn: u32) -> Option<PsnRange> {
    Some(PsnRange {
        first: psn,
        last: psn,
    })
}

/// The same with one data core, and with two.
fn on_one_and_two_cores(test: impl Fn(usize) -> Result<()>) -> Result<()> {
    test(1)?;
    test(2)
}

#[test]
fn lost_are_those_that_match() -> Result<()> {
    on_one_and_two_cores(|cores| {
        let mut t = Two::new(cores)?;
        t.fault(FaultSpec {
            psn: Some(PsnRange {
                first: 0xff_fffe,
                last: 1,
            }),
            opcodes: Some(Opcodes::from_iter([SEND_ONLY])),
            destination_qp: Some(0x11),
            ..rule(Action::Drop)
        })?;
        t.send((0..20).chain([0xff_fffd, 0xff_fffe, 0xff_ffff]))?;
        let expected: Vec<u32> = (2..20).chain([0xff_fffd]).collect();
        assert_eq!(t.psns(19), expected);
        // Another way, and another kind of frame.
        let back = packet(t.a, t.b, 0);
        t.to.send_wait(0, &back, NetHdr::default());
        assert!(t.from.recv(0, deadline()).is_some());
        let n = Number {
            sender: 0,
            stream: 0,
            seq: 0,
        };
        let plain = numbered(t.b, t.a, n, 100);
        t.from.send_wait(0, &plain, NetHdr::default());
        assert_eq!(t.take(1), [plain]);
        let f = t.rig.nic.fault("f")?;
        assert_eq!((f.matched, f.injected), (4, 4));
        assert_eq!(t.rig.drops("b", DropReason::FaultInjected), 4);
        assert_eq!(t.rig.nic.remove_fault("f")?.injected, 4);
        t.send(0..3)?;
        assert_eq!(t.psns(3), [0, 1, 2]);
        t.finish()
    })
}

#[test]
fn the_same_seed_loses_the_same() -> Result<()> {
    on_one_and_two_cores(|cores| {
        let mut t = Two::new(cores)?;
        let mut survivors = vec![];
        for seed in [1, 1, 2] {
            t.fault(FaultSpec {
                probability: 200_000,
                seed: Some(seed),
                ..rule(Action::Drop)
            })?;
            let mut psns = vec![];
            for burst in 0..10 {
                t.send(burst * 50..(burst + 1) * 50)?;
                t.from.drain();
                let lost = t.rig.nic.fault("f")?.injected as usize;
                let n = (burst as usize + 1) * 50 - lost - psns.len();
                psns.extend(t.psns(n));
            }
            // 100 of 500 expected, standard deviation 9.
            assert!((355..=445).contains(&psns.len()), "{}", psns.len());
            survivors.push(psns);
            t.rig.nic.remove_fault("f")?;
        }
        assert_eq!(survivors[0], survivors[1]);
        assert_ne!(survivors[0], survivors[2]);
        t.finish()
    })
}

#[test]
fn a_delayed_frame_comes_by_itself() -> Result<()> {
    on_one_and_two_cores(|cores| {
        let mut t = Two::new(cores)?;
        t.fault(FaultSpec {
            count: Some(5),
            ..rule(Action::Delay {
                by: Duration::from_millis(2),
                jitter: Duration::from_millis(1),
            })
        })?;
        t.send(0..20)?;
        let mut psns = t.psns(20);
        psns.sort_unstable();
        assert_eq!(psns, (0..20).collect::<Vec<_>>());
        assert!(t.rig.nic.fault("f")?.spent());
        t.finish()
    })
}

#[test]
fn others_overtake_a_delayed_frame_and_it_leaves_with_its_rule() -> Result<()> {
    on_one_and_two_cores(|cores| {
        let mut t = Two::new(cores)?;
        t.fault(FaultSpec {
            psn: only(3),
            ..rule(delay())
        })?;
        t.send(0..10)?;
        assert_eq!(t.psns(9), [0, 1, 2, 4, 5, 6, 7, 8, 9]);
        t.quiet()?;
        t.rig.nic.remove_fault("f")?;
        assert_eq!(t.psns(1), [3]);
        t.finish()
    })
}

#[test]
fn reordered_frames_change_places() -> Result<()> {
    on_one_and_two_cores(|cores| {
        let mut t = Two::new(cores)?;
        t.fault(rule(Action::Reorder {
            by: 2,
            at_most: FOR_EVER,
        }))?;
        t.send(0..9)?;
        assert_eq!(t.psns(9), [1, 2, 0, 4, 5, 3, 7, 8, 6]);
        // The last of all waits for frames that do not come.
        t.rig.nic.remove_fault("f")?;
        t.fault(FaultSpec {
            skip: 2,
            count: Some(1),
            ..rule(Action::Reorder {
                by: 5,
                at_most: Duration::from_millis(1),
            })
        })?;
        t.send(0..3)?;
        assert_eq!(t.psns(3), [0, 1, 2]);
        t.finish()
    })
}

#[test]
fn duplicates_are_counted() -> Result<()> {
    on_one_and_two_cores(|cores| {
        let mut t = Two::new(cores)?;
        t.fault(FaultSpec {
            psn: only(1),
            ..rule(Action::Duplicate { copies: 2 })
        })?;
        t.send(0..3)?;
        assert_eq!(t.psns(5), [0, 1, 1, 1, 2]);
        assert_eq!(t.rig.core_counter("fault_copies"), 2);
        t.finish()
    })
}

#[test]
fn corruption_breaks_the_icrc() -> Result<()> {
    on_one_and_two_cores(|cores| {
        let mut t = Two::new(cores)?;
        t.fault(rule(Action::Corrupt {
            bits: 1,
            offset: None,
        }))?;
        t.send(0..50)?;
        for (psn, frame) in (0..50).zip(t.take(50)) {
            let sent = t.packet(psn);
            let differ: u32 = sent.iter().zip(&frame).map(|(a, b)| (a ^ b).count_ones()).sum();
            assert_eq!(differ, 1);
            // Where it still is a packet at all.
            assert!(Frame::parse(&frame).is_ok_and(|f| !f.icrc_ok()) || Frame::parse(&frame).is_err());
            assert_eq!(frame[..42], sent[..42]);
        }
        t.rig.nic.remove_fault("f")?;
        t.fault(rule(Action::Corrupt {
            bits: 8,
            offset: Some(77),
        }))?;
        t.send([9])?;
        let mut expected = t.packet(9);
        expected[77] ^= 0xff;
        assert_eq!(t.take(1), [expected]);
        t.finish()
    })
}

#[test]
fn marks_leave_checksum_and_icrc_right() -> Result<()> {
    on_one_and_two_cores(|cores| {
        let mut t = Two::new(cores)?;
        t.fault(rule(Action::MarkCe))?;
        t.send([5])?;
        let frames = t.take(1);
        let f = Frame::parse(&frames[0]).expect("RoCE");
        assert_eq!(roce::ecn(&frames[0]), Some(roce::Ecn::Ce));
        assert!(f.icrc_ok() && f.header_checksum_ok());
        t.finish()
    })
}

#[test]
fn each_receiver_of_a_flooded_frame_has_its_own_luck() -> Result<()> {
    on_one_and_two_cores(|cores| {
        let mut t = Two::new(cores)?;
        t.rig.add("c")?;
        let mut c = t.rig.attach("c", Options::default())?;
        t.fault(rule(Action::Drop))?;
        t.fault(FaultSpec {
            name: "g".into(),
            to: Some("c".into()),
            ..rule(Action::Duplicate { copies: 1 })
        })?;
        let n = Number {
            sender: 0,
            stream: 0,
            seq: 0,
        };
        let frame = numbered(BROADCAST, t.a, n, 300);
        t.from.send_wait(0, &frame, NetHdr::default());
        for _ in 0..2 {
            assert_eq!(c.recv(0, deadline()).expect("a frame").2, frame);
        }
        t.from.drain();
        assert!(wait_for(|| t.rig.drops("b", DropReason::FaultInjected) == 1));
        t.quiet()?;
        t.rig.finish(Copies::Extra(1))
    })
}

#[test]
fn what_the_sender_left_undone_is_done_before_a_frame_is_judged() -> Result<()> {
    on_one_and_two_cores(|cores| {
        let big = Options {
            tx_buffer: 10_000,
            rx_buffer: 10_000,
            ..Options::default()
        };
        let mut t = Two::with(cores, big.with(OFFLOADS))?;
        let flow = Flow {
            to: t.b,
            from: t.a,
            v6: false,
            vlan: None,
            port: 5,
        };
        let (request, hdr) = tso(&flow, &pattern(3000), 1000);
        // Without a rule the receiver gets it uncut.
        t.from.send_wait(0, &request, hdr);
        assert_eq!(t.take(1)[0].len(), request.len());
        // The second of its segments is held back, the first becomes two.
        t.fault(FaultSpec {
            skip: 1,
            count: Some(1),
            ..rule(delay())
        })?;
        t.fault(FaultSpec {
            name: "g".into(),
            count: Some(1),
            ..rule(Action::Duplicate { copies: 1 })
        })?;
        t.from.send_wait(0, &request, hdr);
        let part = |i: usize| pattern(3000)[1000 * i..1000 * (i + 1)].to_vec();
        let payloads = |frames: Vec<Vec<u8>>| -> Vec<Vec<u8>> {
            // Checksums are checked along the way.
            frames.iter().map(|f| parse(f).payload).collect()
        };
        assert_eq!(payloads(t.take(3)), [part(0), part(0), part(2)]);
        t.rig.nic.remove_fault("f")?;
        assert_eq!(payloads(t.take(1)), [part(1)]);
        t.rig.nic.remove_fault("g")?;
        // A partial checksum.
        t.fault(rule(Action::Duplicate { copies: 1 }))?;
        let (partial, hdr) = udp_partial(&flow, &pattern(500));
        t.from.send_wait(0, &partial, hdr);
        assert_eq!(payloads(t.take(2)), [pattern(500), pattern(500)]);
        t.quiet()?;
        // Two segments more than there were requests.
        t.rig.finish(Copies::Extra(2))
    })
}

#[test]
fn a_receiver_that_left_gets_nothing_any_more() -> Result<()> {
    on_one_and_two_cores(|cores| {
        let mut t = Two::new(cores)?;
        t.fault(rule(delay()))?;
        t.send(0..10)?;
        t.to.detach()?;
        t.rig.nic.remove_fault("f")?;
        assert!(wait_for(|| t.rig.drops("b", DropReason::ReceiverDown) == 10));
        t.rig.finish(Copies::Extra(0))
    })
}

#[test]
fn an_adapter_that_goes_takes_its_frames_along_and_its_name_brings_the_rule_back() -> Result<()> {
    on_one_and_two_cores(|cores| {
        let mut t = Two::new(cores)?;
        t.fault(rule(delay()))?;
        t.send(0..10)?;
        t.to.detach()?;
        t.rig.nic.remove_adapter("b")?;
        assert_eq!(t.rig.core_counter("orphans"), 10);
        // Another adapter gets the number of the one that is gone, but not its rule.
        let c = t.rig.add("c")?;
        let mut gc = t.rig.attach("c", Options::default())?;
        let frame = packet(c, t.a, 1);
        t.from.send_wait(0, &frame, NetHdr::default());
        assert_eq!(gc.recv(0, deadline()).expect("a frame").2, frame);
        assert_eq!(t.rig.nic.fault("f")?.matched, 10);

        t.b = t.rig.add("b")?;
        t.to = t.rig.attach("b", Options::default())?;
        t.send(0..2)?;
        assert!(wait_for(|| t.rig.nic.fault("f").is_ok_and(|f| f.matched == 12)));
        t.quiet()?;
        t.rig.nic.remove_fault("f")?;
        assert_eq!(t.psns(2), [0, 1]);
        t.finish()
    })
}

#[test]
fn no_more_is_held_back_than_there_is_room_for() -> Result<()> {
    let big = Options {
        tx_buffer: 10_000,
        rx_buffer: 10_000,
        ..Options::default()
    };
    let mut rig = Rig::new(1)?;
    let a = rig.add_with("a", |s| s.mtu = 9000)?;
    let b = rig.add_with("b", |s| s.mtu = 9000)?;
    let from = rig.attach("a", big.clone())?;
    let to = rig.attach("b", big)?;
    let mut t = Two { rig, a, b, from, to };
    t.fault(rule(delay()))?;
    let frames = 2500u64;
    for seq in 0..frames {
        let n = Number {
            sender: 0,
            stream: 0,
            seq,
        };
        let frame = numbered(b, a, n, 9000);
        t.from.send_wait(0, &frame, NetHdr::default());
    }
    t.from.drain();
    let dropped = t.rig.drops("b", DropReason::FaultInjected);
    let held = frames - dropped;
    assert!(held * 9000 <= 16 << 20 && held * 9400 > 16 << 20, "{held}");
    t.rig.nic.remove_fault("f")?;
    let mut next = 0;
    // All leave at once: more than the guest has buffers for.
    while t.rig.counter("b", "rx_frames") + t.rig.drops("b", DropReason::NoRxBuffer) < held {
        std::thread::yield_now();
    }
    while let Some((_, _, f)) = t.to.try_recv(0) {
        assert_eq!(number_of(&f).expect("numbered").seq, next);
        next += 1;
    }
    assert!(next > 0);
    t.finish()
}

#[test]
fn skip_and_count_hold_for_all_cores_together() -> Result<()> {
    let mut t = Two::new(2)?;
    t.fault(FaultSpec {
        skip: 5,
        count: Some(7),
        ..FaultSpec::new("f", Action::Drop)
    })?;
    for psn in 0..50 {
        let (there, back) = (packet(t.b, t.a, psn), packet(t.a, t.b, psn));
        t.from.send_wait(0, &there, NetHdr::default());
        t.to.send_wait(0, &back, NetHdr::default());
    }
    let mut got = 0;
    while got < 93 {
        got += usize::from(t.from.recv(0, deadline()).is_some());
        while t.to.try_recv(0).is_some() {
            got += 1;
        }
        while t.from.try_recv(0).is_some() {
            got += 1;
        }
        if got < 93 && t.to.recv(0, deadline()).is_some() {
            got += 1;
        }
    }
    let f = t.rig.nic.fault("f")?;
    assert_eq!((f.matched, f.injected, f.spent()), (100, 7, true));
    t.from.drain();
    t.to.drain();
    t.finish()
}

/// How many injections of rule `f` the events tell one by one, and how many in sum.
fn told(rig: &mut Rig) -> (u64, u64) {
    let mut told = (0, 0);
    for e in rig.poll_events() {
        if let NicEventKind::Fault(f) = &e.kind {
            match f.what {
                Injected::One { .. } => told.0 += 1,
                Injected::More(n) => told.1 += n,
            }
        }
    }
    told
}

#[test]
fn every_injection_is_in_the_events_one_by_one_or_in_sum() -> Result<()> {
    let mut t = Two::new(1)?;
    t.fault(rule(Action::Drop))?;
    for burst in 0..4 {
        t.send(burst * 100..(burst + 1) * 100)?;
    }
    // The rest is summed up when the second is over, or when the rule goes.
    t.rig.nic.remove_fault("f")?;
    assert!(wait_for(|| {
        let (one, more) = told(&mut t.rig);
        one + more == 400
    }));
    let (one, more) = told(&mut t.rig);
    assert!(one >= 20 && more > 0, "{one}, {more}");
    let first = t.rig.events.iter().find_map(|e| match &e.kind {
        NicEventKind::Fault(f) => Some((e.owner.clone(), f.clone())),
        _ => None,
    });
    let (owner, first) = first.expect("an event");
    assert_eq!((owner.as_str(), first.name.as_str()), ("b", "f"));
    let len = t.packet(0).len() as u32;
    let expected = Injected::One {
        from: "a".into(),
        to: "b".into(),
        effect: "drop".into(),
        len,
        roce: Some((SEND_ONLY, 0x11, 0)),
    };
    assert_eq!(first.what, expected);
    let added = |k: &NicEventKind| matches!(k, NicEventKind::FaultAdded { action: "drop", .. });
    assert_eq!(t.rig.count_events("", added), 1);
    let removed = |k: &NicEventKind| matches!(k, NicEventKind::FaultRemoved { injected: 400, .. });
    assert!(wait_for(|| t.rig.count_events("", removed) == 1));
    t.finish()
}

/// Times of captured frames are of the NIC's clock, as an operator moved it before and meanwhile.
#[test]
fn captures_have_the_time_of_the_nics_clock() -> Result<()> {
    on_one_and_two_cores(|cores| {
        let mut t = Two::new(cores)?;
        // 2096: no clock of a machine shows it.
        let (first, hour) = (Duration::from_secs(4_000_000_000), Duration::from_secs(3600));
        t.rig.nic.set_clock(first)?;
        let capture = t.capture()?;
        let clock = |t: &Two| t.rig.nic.clock().time;
        let mut begins = first;
        for psn in 0..2 {
            let before = clock(&t);
            assert!(before >= begins);
            t.send([psn])?;
            let frame = capture.frames.recv_deadline(deadline())?;
            let time = frame.time.duration_since(SystemTime::UNIX_EPOCH)?;
            let after = clock(&t);
            assert!(before <= time && time <= after, "{before:?} {time:?} {after:?}");
            begins = after + hour;
            t.rig.nic.adjust_clock(ClockAdjustment {
                offset: i64::try_from(hour.as_nanos())?,
                frequency: None,
            })?;
        }
        assert_eq!(t.psns(2), [0, 1]);
        t.finish()
    })
}

#[test]
fn captures_say_what_happened() -> Result<()> {
    on_one_and_two_cores(|cores| {
        let mut t = Two::new(cores)?;
        let capture = t.capture()?;
        let number = |t: &Two| t.rig.nic.fault("f").map(|f| f.id);
        t.fault(FaultSpec {
            psn: only(1),
            ..rule(Action::Drop)
        })?;
        let first = number(&t)?;
        t.fault(FaultSpec {
            name: "g".into(),
            psn: only(2),
            ..rule(Action::Duplicate { copies: 1 })
        })?;
        t.send(0..3)?;
        assert_eq!(t.psns(3), [0, 2, 2]);
        let got: Vec<CapturedFrame> = capture.frames.try_iter().collect();
        let got: Vec<_> = got
            .iter()
            .map(|c| (psn(&c.data), c.direction, c.drop, c.comment.clone()))
            .collect();
        let out = Direction::Egress;
        let dropped = Some(DropReason::FaultInjected);
        let twice = Some(format!("fault {} \"g\": duplicate 1", first + 1));
        assert_eq!(
            got,
            [
                (0, out, None, None),
                (1, out, dropped, Some(format!("fault {first} \"f\": drop"))),
                (2, out, None, twice.clone()),
                (2, out, None, twice),
            ]
        );
        t.finish()
    })
}

#[test]
fn impossible_rules_are_refused_and_lists_of_rules_whole() -> Result<()> {
    let t = Two::new(1)?;
    let refused = |spec: FaultSpec| t.rig.nic.add_fault(spec).expect_err("refused");
    let field = |spec: FaultSpec| match refused(spec) {
        NicError::Invalid { field, problem } => {
            assert!(!problem.is_empty());
            field
        }
        other => panic!("{other}"),
    };
    let named = |name: &str| FaultSpec {
        name: name.into(),
        ..rule(Action::Drop)
    };
    assert_eq!(field(named("No Name")), "name");
    assert_eq!(
        field(FaultSpec {
            from: Some("nobody".into()),
            ..named("f")
        }),
        "from"
    );
    assert_eq!(
        field(FaultSpec {
            probability: 1_000_001,
            ..named("f")
        }),
        "probability"
    );
    assert_eq!(
        field(FaultSpec {
            psn: only(1 << 24),
            ..named("f")
        }),
        "psn"
    );
    assert_eq!(field(rule(Action::Duplicate { copies: 0 })), "duplicate.copies");
    t.fault(named("f"))?;
    assert!(matches!(
        refused(named("f")),
        NicError::Exists { kind: "fault", .. }
    ));
    assert!(matches!(
        t.rig.nic.remove_fault("g"),
        Err(NicError::NotFound { kind: "fault", .. })
    ));
    // Twice the same name in one list: none of it is made.
    let list = vec![named("x"), named("y"), named("x")];
    let (at, error) = t.rig.nic.add_faults(list).expect_err("refused");
    assert!(at == 2 && matches!(error, NicError::Exists { .. }));
    let many: Vec<FaultSpec> = (0..64).map(|i| named(&format!("m{i}"))).collect();
    let (at, error) = t.rig.nic.add_faults(many).expect_err("refused");
    assert!(at == 63 && matches!(error, NicError::Limit(_)));
    let names: Vec<String> = t.rig.nic.faults().into_iter().map(|f| f.spec.name).collect();
    assert_eq!(names, ["f"]);
    // Without a seed one is chosen, and told.
    let chosen = t.rig.nic.add_fault(FaultSpec {
        seed: None,
        ..named("h")
    })?;
    assert!(chosen.spec.seed.is_some());
    let ids: BTreeSet<u32> = t.rig.nic.faults().iter().map(|f| f.id).collect();
    assert_eq!(ids.len(), 2);
    t.finish()
}
