//! RoCE that guests run in software over their Ethernet queues: seen and, where the operator wants it, notified and slowed down
//! on their behalf. What is about rates runs in virtual time.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use vnic_backend::settings::{AdapterSettings, Trust, parameter};
use vnic_backend::{CongestionAlgorithm, CongestionSpec, DropReason, MacAddr, Preset, QosSpec, VirtualClock};
use vnic_tests::driver::rig::{Copies, Dice, Rig, wait_for};
use vnic_tests::driver::{Guest, NetHdr, Options};
use vnic_wire::gid::Gid;
use vnic_wire::opcode::{Opcode, Operation, Transport};
use vnic_wire::psn::Psn;
use vnic_wire::roce::{Ecn, Frame, Network, Path, build};
use vnic_wire::transport::{Extended, Headers};
use vnic_wire::{EtherType, aeth, bth, ethernet, reth};

/// DSCP 26 and ECT(0): priority 3, where DSCP is trusted.
const TRAFFIC_CLASS: u8 = 26 << 2 | 0b10;
const CE: u8 = TRAFFIC_CLASS | 0b11;
const PRIORITY: u8 = 3;
/// Queue pairs of the guests "a" and "b".
const OF_A: u32 = 0x11;
const OF_B: u32 = 0x22;
/// Payload of a request.
const PAYLOAD: usize = 1024;

/// Two guests that speak RoCE with each other, and with nobody else.
struct Two {
    rig: Rig,
    clock: Option<Arc<VirtualClock>>,
    macs: [MacAddr; 2],
    a: Guest,
    b: Guest,
    v6: bool,
}

#[derive(Clone, Copy)]
struct Packet {
    /// From "a" to "b".
    from_a: bool,
    qp: u32,
    psn: u32,
    operation: Operation,
    traffic_class: u8,
}

fn request(from_a: bool, qp: u32, psn: u32) -> Packet {
    Packet {
        from_a,
        qp,
        psn,
        operation: Operation::SendOnly,
        traffic_class: TRAFFIC_CLASS,
    }
}

fn answer(from_a: bool, qp: u32, psn: u32) -> Packet {
    Packet {
        operation: Operation::Acknowledge,
        ..request(from_a, qp, psn)
    }
}

impl Two {
    fn new(cores: usize, clock: Option<Duration>) -> Result<Two> {
        let clock = clock.map(VirtualClock::new);
        let mut rig = match &clock {
            Some(clock) => Rig::with_clock(clock.clone())?,
            None => Rig::new(cores)?,
        };
        let wide = || Options {
            queue_size: 1024,
            ..Options::default()
        };
        let macs = [rig.add("a")?, rig.add("b")?];
        let (a, b) = (rig.attach("a", wide())?, rig.attach("b", wide())?);
        Ok(Two {
            rig,
            clock,
            macs,
            a,
            b,
            v6: false,
        })
    }

    /// Congestion control of "a": of priority 3, on or off, and on the guest's behalf or not.
    fn configure(&self, on: bool, soft: bool, change: impl FnOnce(&mut AdapterSettings)) -> Result<()> {
        let mut settings = AdapterSettings::default();
        settings.qos.priorities.trust = Trust::Dscp;
        settings.congestion.enable = u8::from(on) << PRIORITY;
        change(&mut settings);
        self.rig.nic.configure_adapter("a", &settings)?;
        self.rig.nic.apply_qos_keys("a", &settings)?;
        let mut spec = CongestionSpec {
            preset: Preset::Paper,
            ..CongestionSpec::default()
        };
        let soft_roce = parameter("soft_roce").expect("it exists");
        spec.own.put(soft_roce, Some(soft.into()));
        Ok(self.rig.nic.set_congestion("a", spec)?)
    }

    /// As [`Two::configure`]; flows get 10 Mbit/s with their first notification and keep it for as long as a test runs.
    fn slow(&self, change: impl FnOnce(&mut AdapterSettings)) -> Result<()> {
        self.configure(true, true, |s| {
            let mut put = |name, value| {
                let key = parameter(name).expect("it exists");
                s.congestion.parameters.put(key, Some(value));
            };
            put("DcqcnRateToSetOnFirstCnp", 10);
            put("DcqcnRpgTimeReset", 131_071);
            put("DcqcnRpgByteReset", 0);
            change(s);
        })
    }

    fn gid(&self, a: bool) -> Gid {
        let last = if a { 1 } else { 2 };
        if self.v6 {
            let mut gid = Gid::default();
            (gid.0[0], gid.0[15]) = (0xfd, last);
            return gid;
        }
        Gid::from_ipv4([10, 0, 0, last])
    }

    fn path(&self, from_a: bool, traffic_class: u8) -> Path {
        let mut network = Network::v2(self.gid(from_a), self.gid(!from_a));
        network.set_traffic_class(traffic_class);
        Path {
            eth: ethernet::Header {
                destination: self.macs[usize::from(from_a)],
                source: self.macs[usize::from(!from_a)],
                ethertype: EtherType::IPV4,
            },
            vlan: None,
            network,
            source_port: 0xc000,
        }
    }

    fn frame(&self, p: Packet) -> Vec<u8> {
        let extended = match p.operation.has_aeth() {
            true => Extended::Aeth(aeth::Header::parse(&[0; 4]).expect("four bytes")),
            false => Extended::None,
        };
        let headers = Headers {
            bth: bth::Header::new(Opcode::new(Transport::Rc, p.operation), p.qp, Psn::new(p.psn)),
            xrceth: None,
            dceth: None,
            extended,
        };
        let data = p.operation.is_send() || p.operation.is_read_response();
        let payload = vec![p.psn as u8; if data { PAYLOAD } else { 0 }];
        self.built(p, &headers, &payload)
    }

    fn built(&self, p: Packet, headers: &Headers, payload: &[u8]) -> Vec<u8> {
        let mut frame = Vec::new();
        build(
            &self.path(p.from_a, p.traffic_class),
            headers,
            payload,
            &mut frame,
        )
        .expect("a frame");
        frame
    }

    /// A request of "a" that asks for an acknowledge.
    fn asking(&self, psn: u32) -> Vec<u8> {
        let p = request(true, OF_B, psn);
        let headers = Headers {
            bth: bth::Header {
                ack_request: true,
                ..bth::Header::new(Opcode::new(Transport::Rc, p.operation), p.qp, Psn::new(psn))
            },
            xrceth: None,
            dceth: None,
            extended: Extended::None,
        };
        self.built(p, &headers, &[psn as u8; PAYLOAD])
    }

    /// A request of "a" for data, by queue pairs that do nothing else.
    fn reading(&self, psn: u32) -> Vec<u8> {
        let p = Packet {
            operation: Operation::ReadRequest,
            ..request(true, OF_B + 1, psn)
        };
        let headers = Headers {
            bth: bth::Header::new(Opcode::new(Transport::Rc, p.operation), p.qp, Psn::new(psn)),
            xrceth: None,
            dceth: None,
            extended: Extended::Reth(reth::Header {
                va: 0,
                rkey: 0,
                len: PAYLOAD as u32,
            }),
        };
        self.built(p, &headers, &[])
    }

    fn stage(&mut self, from_a: bool, frame: &[u8]) {
        let guest = if from_a { &mut self.a } else { &mut self.b };
        assert!(guest.stage(0, frame, NetHdr::default()), "room for all frames");
        guest.ring(1).publish();
    }

    /// Sends a frame and waits until the other one has it. Answers what came.
    fn pass(&mut self, p: Packet) -> Vec<u8> {
        let frame = self.frame(p);
        self.stage(p.from_a, &frame);
        self.next(!p.from_a)
    }

    /// The next frame that a guest gets.
    #[track_caller]
    fn next(&mut self, a: bool) -> Vec<u8> {
        if let Some(clock) = &self.clock {
            clock.pass(Duration::from_micros(20));
        }
        let guest = if a { &mut self.a } else { &mut self.b };
        let mut came = None;
        let there = wait_for(|| {
            came = guest.try_recv(0);
            came.is_some()
        });
        assert!(there, "nothing came");
        came.map(|(_, _, frame)| frame).unwrap_or_default()
    }

    /// All frames that a guest has got.
    fn all(&mut self, a: bool) -> Vec<Vec<u8>> {
        let guest = if a { &mut self.a } else { &mut self.b };
        std::iter::from_fn(|| guest.try_recv(0))
            .map(|(_, _, f)| f)
            .collect()
    }

    /// What a notification to the queue pair of "a" that talks to that of "b" looks like.
    fn cnp(&self) -> Vec<u8> {
        self.built(request(false, OF_A, 0), &Headers::cnp(OF_A), &[])
    }

    fn count(&self, name: &str) -> u64 {
        self.rig.counter("a", name)
    }

    fn finish(mut self, cnps: u64) -> Result<()> {
        self.a.drain();
        self.b.drain();
        self.rig.finish(Copies::Extra(cnps))
    }
}

/// A mark on its way to the guest: a notification goes back in the guest's name.
#[test]
fn a_marked_packet_is_answered() -> Result<()> {
    for (cores, v6) in [(1, false), (2, false), (1, true)] {
        let mut t = Two::new(cores, None)?;
        t.v6 = v6;
        t.configure(true, true, |_| {})?;
        // Nothing is known yet.
        t.pass(Packet {
            traffic_class: CE,
            ..request(false, OF_A, 6)
        });
        t.rig.settle()?;
        assert_eq!((t.count("rx_roce_marked"), t.count("tx_cnp_unknown")), (1, 1));
        t.pass(request(false, OF_A, 7));
        t.pass(answer(true, OF_B, 7));
        let marked = Packet {
            traffic_class: CE,
            ..request(false, OF_A, 8)
        };
        let came = t.pass(marked);
        assert_eq!(came, t.frame(marked), "the guest gets it as it is");
        let cnp = t.next(false);
        let f = Frame::parse(&cnp)?;
        assert!(f.icrc_ok() && f.header_checksum_ok());
        assert_eq!(f.headers, Headers::cnp(OF_B));
        assert!(f.headers.bth.becn && f.headers.bth.opcode == Opcode::CNP);
        assert_eq!((f.eth.source, f.eth.destination), (t.macs[0], t.macs[1]));
        assert_eq!(
            (f.network.source(), f.network.destination()),
            (t.gid(true), t.gid(false))
        );
        // The paper's preset: DSCP 48.
        assert_eq!(f.network.traffic_class() >> 2, 48);
        assert_eq!((t.count("rx_roce_marked"), t.count("tx_cnp_sent")), (2, 1));
        assert_eq!(t.count("tx_cnp_unknown"), 1);
        assert_eq!(t.rig.counter("b", "rx_roce_marked"), 0);
        t.finish(1)?;
    }
    Ok(())
}

/// Where it is off nothing is done and nothing is counted; where the operator wants congestion control of queue pairs only,
/// it is counted.
#[test]
fn without_it_nothing_changes() -> Result<()> {
    for (on, soft) in [(false, false), (false, true), (true, false)] {
        let mut t = Two::new(1, None)?;
        t.configure(on, soft, |_| {})?;
        let plain = Packet {
            traffic_class: 26 << 2,
            ..request(true, OF_B, 100)
        };
        let marked = Packet {
            traffic_class: CE,
            ..request(false, OF_A, 8)
        };
        for p in [
            plain,
            request(false, OF_A, 7),
            answer(true, OF_B, 7),
            answer(false, OF_A, 100),
            marked,
        ] {
            assert_eq!(t.pass(p), t.frame(p));
        }
        let cnp = t.cnp();
        t.stage(false, &cnp);
        assert_eq!(t.next(true), cnp);
        for n in 101..150 {
            t.pass(request(true, OF_B, n));
        }
        assert!(t.rig.nic.guest_flows("a")?.is_empty());
        assert_eq!(t.all(false), Vec::<Vec<u8>>::new());
        let seen = u64::from(on);
        assert_eq!(
            (t.count("rx_roce_marked"), t.count("rx_cnp_ignored")),
            (seen, seen)
        );
        let nothing = ["tx_cnp_sent", "tx_cnp_unknown", "rx_cnp_handled", "tx_roce_held"];
        assert_eq!(nothing.map(|name| t.count(name)), [0; 4]);
        t.finish(0)?;
    }
    Ok(())
}

/// A guest's stack that says nothing of marks: its packets can be marked all the same, because the NIC reacts.
#[test]
fn packets_of_a_guest_that_is_spoken_for_can_be_marked() -> Result<()> {
    let mut t = Two::new(1, None)?;
    t.configure(true, true, |_| {})?;
    let plain = Packet {
        traffic_class: 26 << 2,
        ..request(true, OF_B, 100)
    };
    let came = t.pass(plain);
    let f = Frame::parse(&came)?;
    assert!(f.icrc_ok() && f.header_checksum_ok());
    assert_eq!(f.network.traffic_class(), 26 << 2 | Ecn::Ect0 as u8);
    assert_eq!(f.payload, &[100; PAYLOAD]);
    // Of another priority they are as they were.
    let other = Packet {
        traffic_class: 0,
        ..plain
    };
    assert_eq!(t.pass(other), t.frame(other));
    t.finish(0)
}

/// The flow that was notified is slowed down; another one of the same guest, behind it in the same ring, is not.
#[test]
fn a_flow_is_slowed_down_and_no_other() -> Result<()> {
    const FRAMES: u32 = 200;
    for send_queues in [false, true] {
        let mut t = Two::new(1, Some(Duration::from_micros(10)))?;
        t.slow(|s| s.qos.sending.queue_per_priority = send_queues)?;
        t.pass(request(true, OF_B, 100));
        t.pass(answer(false, OF_A, 100));
        let cnp = t.cnp();
        t.stage(false, &cnp);
        t.next(true);
        assert_eq!((t.count("rx_cnp_handled"), t.count("rx_cnp_ignored")), (1, 0));
        let flows = t.rig.nic.guest_flows("a")?;
        assert_eq!(flows.len(), 1);
        assert_eq!((flows[0].qp, flows[0].priority), (OF_B, PRIORITY));
        let rate = flows[0].limits.rate;
        assert!((1_000_000..=10_000_000).contains(&rate), "{rate}");
        for n in 0..FRAMES {
            let frames = [
                t.frame(request(true, OF_B, 101 + n)),
                t.frame(request(true, OF_B + 1, n)),
            ];
            frames.iter().for_each(|f| t.stage(true, f));
        }
        let clock = t.clock.clone().expect("time is virtual");
        clock.pass(Duration::from_millis(1));
        let of = |frames: &[Vec<u8>], qp| {
            let parsed = frames.iter().filter_map(|f| Frame::parse(f).ok());
            let psns = parsed.filter(|f| f.headers.bth.destination_qp == qp);
            psns.map(|f| f.headers.bth.psn.value()).collect::<Vec<_>>()
        };
        let first = t.all(false);
        assert_eq!(
            of(&first, OF_B + 1),
            (0..FRAMES).collect::<Vec<_>>(),
            "nothing holds it up"
        );
        let mut came = of(&first, OF_B);
        assert!(came.len() <= 3, "{came:?}");
        // Its buffers are completed: the guest may use them.
        t.a.drain();
        assert_eq!(t.count("tx_roce_held"), u64::from(FRAMES));
        clock.pass(Duration::from_millis(99));
        came.extend(of(&t.all(false), OF_B));
        let wire = t.frame(request(true, OF_B, 0)).len() as u64 + 24;
        let wanted = rate / 10 / 8 / wire;
        let n = came.len() as u64;
        assert!(n.abs_diff(wanted) <= 2, "{n} instead of {wanted}");
        assert_eq!(came, (101..101 + came.len() as u32).collect::<Vec<_>>());
        // The operator ends it: what waits leaves at once, in order.
        t.configure(true, false, |s| s.qos.sending.queue_per_priority = send_queues)?;
        clock.pass(Duration::from_micros(100));
        came.extend(of(&t.all(false), OF_B));
        assert_eq!(came, (101..101 + FRAMES).collect::<Vec<_>>());
        t.finish(0)?;
    }
    Ok(())
}

/// With a limit of the whole link, what waits for its flow's rate keeps to it as everything else does.
#[test]
fn the_links_limit_counts_too() -> Result<()> {
    let mut t = Two::new(1, Some(Duration::from_micros(10)))?;
    t.slow(|_| {})?;
    t.pass(request(true, OF_B, 100));
    t.pass(answer(false, OF_A, 100));
    let cnp = t.cnp();
    t.stage(false, &cnp);
    t.next(true);
    // Slower than the flow.
    let spec = QosSpec {
        rate: 1_000_000,
        ..QosSpec::default()
    };
    t.rig.nic.set_qos("a", spec)?;
    for n in 0..20 {
        let frame = t.frame(request(true, OF_B, 101 + n));
        t.stage(true, &frame);
    }
    let clock = t.clock.clone().expect("time is virtual");
    clock.pass(Duration::from_millis(100));
    // 12.5 kB.
    let n = t.all(false).len();
    assert!((10..=13).contains(&n), "{n}");
    t.rig.nic.set_qos("a", QosSpec::default())?;
    t.configure(false, false, |_| {})?;
    clock.pass(Duration::from_millis(1));
    assert_eq!(n + t.all(false).len(), 20);
    t.finish(0)
}

/// HPCC hears the links on the way of a guest's packets: they have telemetry behind them from one NIC's adapter to the other, the guests
/// get each frame as it was sent, and acknowledges take it back.
#[test]
fn hpcc_hears_links_that_guests_do_not_see() -> Result<()> {
    for v6 in [false, true] {
        let mut t = Two::new(1, Some(Duration::from_micros(10)))?;
        t.v6 = v6;
        for (adapter, algorithm) in [
            ("a", CongestionAlgorithm::Hpcc),
            ("b", CongestionAlgorithm::Dcqcn),
        ] {
            let mut settings = AdapterSettings::default();
            settings.qos.priorities.trust = Trust::Dscp;
            settings.congestion.enable = 1 << PRIORITY;
            t.rig.nic.configure_adapter(adapter, &settings)?;
            t.rig.nic.apply_qos_keys(adapter, &settings)?;
            let mut spec = CongestionSpec {
                algorithm,
                ..CongestionSpec::default()
            };
            spec.own.put(parameter("soft_roce").expect("it exists"), Some(1));
            t.rig.nic.set_congestion(adapter, spec)?;
        }
        let link = QosSpec {
            rate: 1_000_000_000,
            ..QosSpec::default()
        };
        // The link towards "b".
        t.rig.nic.set_qos("b", link.clone())?;
        let limits = |t: &Two| t.rig.nic.guest_flows("a").map(|flows| flows[0].limits);
        let exchange = |t: &mut Two, psn: u32| {
            let asking = t.asking(psn);
            t.stage(true, &asking);
            assert_eq!(t.next(false), asking, "the guest gets it as it was sent");
            let back = answer(false, OF_A, psn);
            assert_eq!(t.pass(back), t.frame(back));
        };
        exchange(&mut t, 100);
        // Who the acknowledge is from is known from here on.
        exchange(&mut t, 101);
        exchange(&mut t, 102);
        let heard = limits(&t)?;
        assert!(heard.rate < u64::MAX && heard.window < u64::MAX, "{heard:?}");
        // The link has written that it is not full.
        let full = t.rig.nic.guest_flows("a")?[0].state.alpha;
        assert!(full.is_some_and(|part| part < 1000), "{full:?}");
        // What is READ, by what the responses have gathered on the link towards "a": of another pair, which does nothing else.
        t.rig.nic.set_qos("a", link)?;
        for psn in 200..203 {
            let read = t.reading(psn);
            t.stage(true, &read);
            assert_eq!(t.next(false), read, "the guest gets it as it was sent");
            let response = Packet {
                operation: Operation::ReadResponseOnly,
                ..answer(false, OF_A + 1, psn)
            };
            assert_eq!(t.pass(response), t.frame(response));
        }
        let flows = t.rig.nic.guest_flows("a")?;
        let reads = flows.iter().find(|flow| flow.qp == OF_B + 1).expect("a flow");
        assert!(reads.limits.window < u64::MAX, "{reads:?}");
        assert!(reads.state.alpha.is_some_and(|part| part < 1000), "{reads:?}");
        // Without a proxy at the other end nothing comes back.
        t.rig.nic.set_congestion("b", CongestionSpec::default())?;
        (103..130).for_each(|psn| {
            let asking = t.asking(psn);
            t.stage(true, &asking);
            let came = t.next(false);
            assert_eq!(came[..asking.len()], asking);
            let back = answer(false, OF_A, psn);
            assert_eq!(t.pass(back), t.frame(back));
        });
        assert_eq!(limits(&t)?.window, u64::MAX);
        let asking = t.asking(130);
        t.stage(true, &asking);
        assert_eq!(t.next(false), asking, "no trailer any more");
        t.finish(0)?;
    }
    Ok(())
}

/// What waits is bounded: a guest that goes on sending loses frames of that flow, and of that one only.
#[test]
fn what_waits_is_bounded() -> Result<()> {
    let mut t = Two::new(1, Some(Duration::from_micros(10)))?;
    t.slow(|_| {})?;
    t.pass(request(true, OF_B, 100));
    t.pass(answer(false, OF_A, 100));
    let cnp = t.cnp();
    t.stage(false, &cnp);
    t.next(true);
    let clock = t.clock.clone().expect("time is virtual");
    let mut sent = 0;
    for n in 0..2000 {
        let frame = t.frame(request(true, OF_B, 101 + n));
        t.stage(true, &frame);
        sent += 1;
        if n % 100 == 99 {
            clock.pass(Duration::from_micros(100));
            t.a.drain();
            t.all(false);
        }
    }
    let lost = t.rig.drops("a", DropReason::SendQueueFull);
    let held = t.count("tx_roce_held");
    assert_eq!(held + lost, sent);
    // 1 MiB, each frame with what it takes to keep it.
    assert!((800..=950).contains(&held), "{held}");
    let other = t.pass(request(true, OF_B + 1, 5));
    assert_eq!(Frame::parse(&other)?.headers.bth.destination_qp, OF_B + 1);
    // An adapter that goes takes what waits with it.
    t.configure(false, false, |_| {})?;
    for _ in 0..20 {
        clock.pass(Duration::from_micros(100));
        t.all(false);
    }
    t.finish(0)
}

/// Frames of all kinds, many of them damaged, both ways, while the operator changes his mind: the books balance.
#[test]
fn hostile_frames() -> Result<()> {
    let mut dice = Dice::thrown();
    for cores in [1, 2] {
        let mut t = Two::new(cores, None)?;
        t.configure(true, true, |_| {})?;
        for round in 0..60 {
            if round % 20 == 19 {
                let (on, soft) = (dice.below(4) > 0, dice.below(3) > 0);
                t.configure(on, soft, |s| {
                    s.qos.sending.queue_per_priority = dice.below(4) == 0
                })?;
            }
            for _ in 0..32 {
                let from_a = dice.below(2) == 0;
                let p = Packet {
                    from_a,
                    qp: dice.below(6) as u32,
                    psn: dice.below(40) as u32,
                    operation: *dice.pick(&[
                        Operation::SendOnly,
                        Operation::Acknowledge,
                        Operation::ReadResponseOnly,
                        Operation::SendMiddle,
                    ]),
                    traffic_class: *dice.pick(&[0, 26 << 2, TRAFFIC_CLASS, CE]),
                };
                let mut frame = match dice.below(4) {
                    0 => t.built(p, &Headers::cnp(p.qp), &[]),
                    _ => t.frame(p),
                };
                if dice.below(4) == 0 {
                    let at = 12 + dice.below(frame.len() as u64 - 12) as usize;
                    frame[at] = dice.bits() as u8;
                }
                frame.truncate(if dice.below(8) == 0 {
                    14 + dice.below(60) as usize
                } else {
                    usize::MAX
                });
                t.stage(from_a, &frame);
            }
            t.a.drain();
            t.b.drain();
            t.all(true);
            t.all(false);
        }
        t.configure(false, false, |_| {})?;
        for _ in 0..20 {
            t.rig.settle()?;
            t.all(true);
            t.all(false);
        }
        assert!(wait_for(|| t
            .rig
            .nic
            .guest_flows("a")
            .is_ok_and(|f| f.is_empty())));
        t.a.drain();
        t.b.drain();
        t.rig.finish(Copies::Unknown)?;
    }
    Ok(())
}
