//! Three adapters' RDMA functions send to one behind a port of limited rate. Time passes by the rounds of the data core: what
//! is measured is the same on any machine, and nothing hangs on how fast it is.

mod telemetry;

use std::time::Duration;

use anyhow::Result;
use vnic_backend::settings::{AdapterSettings, FlowControl, Trust, parameter};
use vnic_backend::{
    Capable, CongestionSpec, Curve, DropReason, MarkAt, NotCapable, Preset, QosSpec, Red, VirtualClock,
};
use vnic_device::queue::Operation;
use vnic_device::ring::Extent;
use vnic_device::verbs::QpType;
use vnic_tests::driver::rdma::{Area, Link, Mr, Qp, Side, World, Wr, link};
use vnic_tests::driver::rig::wait_for;

/// Traffic class of what is sent: DSCP 26, which is priority and traffic class 3, and ECT(0).
const TRAFFIC_CLASS: u8 = 26 << 2 | 0b10;
const PRIORITY: u8 = 3;
/// Those who send, and who receives.
const SENDERS: [&str; 3] = ["a", "b", "c"];
const RECEIVER: &str = "d";
/// A round of the data core: half of what a packet takes.
const ROUND: Duration = Duration::from_micros(3);
/// Of every port, in bit/s.
const RATE: u64 = 1_500_000_000;
/// Bytes that each of them sends: more than fit into the time that a test lets pass.
const BYTES: u64 = 1 << 30;
/// Bytes of memory behind that, again and again.
const REPEATED: u64 = 1 << 20;

/// A sender and its queue pair.
struct Sender {
    side: Side,
    qp: Qp,
    mr: Mr,
}

struct Incast {
    world: World,
    clock: std::sync::Arc<VirtualClock>,
    senders: Vec<Sender>,
    /// It stays there.
    _receiver: Side,
    target: Mr,
}

/// A region of [`BYTES`] whose memory is the same piece again and again.
fn long(side: &mut Side) -> Mr {
    let piece = side.d.area(REPEATED);
    let pieces: Vec<Extent> = piece.extents.repeat((BYTES / REPEATED) as usize);
    let area = Area::new(&side.d.mem, pieces);
    side.d
        .mr_of(side.pd, area, 0x10_0000_0000, vnic_tests::driver::rdma::FULL)
}

impl Incast {
    /// Everybody there, connected, time stands still. All ports have this configuration and the same rate; `pause`: global
    /// pause, which they have unless somebody takes it from them.
    fn new(spec: &QosSpec, pause: bool) -> Result<Incast> {
        Incast::with_mtu(spec, pause, 1500)
    }

    /// The same with adapters of this Ethernet MTU.
    fn with_mtu(spec: &QosSpec, pause: bool, mtu: u16) -> Result<Incast> {
        let clock = VirtualClock::new(ROUND);
        let names = [&SENDERS[..], &[RECEIVER]].concat();
        let mut world = World::with_clock(clock.clone(), &[])?;
        for name in &names {
            world.add(name, mtu)?;
            let mut settings = AdapterSettings::default();
            settings.qos.priorities.trust = Trust::Dscp;
            settings.qos.flow_control = FlowControl::of(pause, pause);
            world.rig.nic.apply_qos_keys(name, &settings)?;
            let spec = QosSpec {
                rate: RATE,
                ..spec.clone()
            };
            world.rig.nic.set_qos(name, spec)?;
        }
        let mut receiver = world.side(RECEIVER)?;
        let target = long(&mut receiver);
        let mut senders = Vec::new();
        for name in SENDERS {
            let mut side = world.side(name)?;
            let mr = long(&mut side);
            let (qp, peer) = (side.qp(QpType::Rc), receiver.qp(QpType::Rc));
            let there = side.d.address_of(&mut receiver.d);
            let back = receiver.d.address_of(&mut side.d);
            for (d, own, other, mut address) in [
                (&mut side.d, &qp, &peer, there),
                (&mut receiver.d, &peer, &qp, back),
            ] {
                address.traffic_class = TRAFFIC_CLASS;
                let way = Link {
                    // 67 ms: longer than anything waits here.
                    timeout: 14,
                    ..link(address, other.number)
                };
                d.up(own, &way);
            }
            senders.push(Sender { side, qp, mr });
        }
        Ok(Incast {
            world,
            clock,
            senders,
            _receiver: receiver,
            target,
        })
    }

    /// All begin to send.
    fn start(&mut self) {
        for s in &mut self.senders {
            let whole = Wr::new(1, Operation::Write, &[s.mr.element(0, BYTES as u32)]);
            let whole = whole.remote(self.target.iova, self.target.rkey);
            s.side.post(&mut s.qp, &whole);
            s.side.bells.wait_taken();
        }
    }

    /// Bytes on the wire that each has sent.
    fn sent(&self) -> [u64; 3] {
        SENDERS.map(|name| self.world.rig.priority_counter(name, PRIORITY, "tx_bytes"))
    }

    fn drops(&self) -> u64 {
        let names = [&SENDERS[..], &[RECEIVER]].concat();
        names.iter().map(|n| self.world.rig.counter(n, "drops")).sum()
    }

    /// Bytes of the class that wait, now.
    fn queue(&self) -> Result<u64> {
        Ok(self.world.rig.nic.qos(RECEIVER)?.queues.bytes[usize::from(PRIORITY)])
    }
}

/// The queue stands at the threshold of flow control: nobody is told to be slower.
#[test]
fn without_congestion_control_lossless_senders_are_paused() -> Result<()> {
    let lossless = QosSpec {
        pfc: 1 << PRIORITY,
        ..QosSpec::default()
    };
    let mut incast = Incast::new(&lossless, true)?;
    incast.start();
    incast.clock.pass(Duration::from_millis(10));
    let (before, waited) = (incast.sent(), incast.queue()?);
    let mut least = u64::MAX;
    for _ in 0..50 {
        incast.clock.pass(Duration::from_micros(200));
        least = least.min(incast.queue()?);
    }
    let (now, wait) = (incast.sent(), incast.queue()?);
    // What has left the queue: that goes up and down by what senders may send before they hear of it.
    let sum: u64 = (0..3).map(|i| now[i] - before[i]).sum::<u64>() + waited - wait;
    // Of 1126 bytes that a packet takes on the wire 1102 are of its frame.
    let link = RATE / 8 / 100 * 1102 / 1126;
    assert!((link * 97 / 100..=link * 103 / 100).contains(&sum), "{sum}");
    let pauses = incast.world.rig.priority_counter(RECEIVER, PRIORITY, "tx_pause");
    assert!(pauses > 10, "{pauses}");
    assert_eq!(incast.drops(), 0);
    // Three sources, each at least at a good part of what it may have waiting.
    assert!(least > 400_000, "{least}");
    incast.world.finish()
}

/// Without flow control what has no room is lost.
#[test]
fn without_congestion_control_lossy_packets_are_dropped() -> Result<()> {
    let mut incast = Incast::new(&QosSpec::default(), false)?;
    incast.start();
    incast.clock.pass(Duration::from_millis(10));
    let lost = incast.world.rig.drops(RECEIVER, DropReason::EgressFull);
    assert!(lost > 0);
    assert_eq!(incast.drops(), lost);
    let pauses = |name| incast.world.rig.priority_counter(name, PRIORITY, "tx_pause");
    assert_eq!(SENDERS.map(pauses), [0; 3]);
    assert_eq!(pauses(RECEIVER), 0);
    incast.world.finish()
}

/// RED of the congestion point. Packets come seldom at this rate, so more of them have to be marked than in the paper.
const POINT: Red = Red {
    enable: true,
    green: Curve {
        kmin: 5_000,
        kmax: 200_000,
        pmax: 300_000,
    },
    yellow: None,
    red: None,
    percent: false,
    average: 0,
    at: MarkAt::Dequeue,
    capable: Capable::Mark,
    not_capable: NotCapable::Pass,
};
/// R_AI in Mbit/s: as large a part of the rate as in the paper's experiments.
const AI_RATE: u32 = 4;
/// Bytes that wait by the fluid model (Zhu, Ghobadi, Misra, Padhye, CoNEXT 2016, section 3): the exact root for three flows at
/// 1.5 Gbit/s, packets of 1126 bytes on the wire, the paper's parameters but R_AI, and [`POINT`]: 4.948 % are marked.
const MODEL: f64 = 37_160.0;

/// What happened between two times.
#[derive(Debug, Clone, PartialEq)]
struct Seen {
    /// Bytes of frames that each has sent.
    sent: [u64; 3],
    /// Bytes that waited on average.
    queue: f64,
    /// Since the beginning: packets dropped, pauses told, packets marked, CNPs sent by the receiver, handled by senders.
    drops: u64,
    pauses: u64,
    marked: u64,
    notified: u64,
    handled: u64,
}

impl Incast {
    /// With DCQCN for the priorities of `enable`, a bit each.
    fn with_dcqcn(spec: &QosSpec, red: Red, enable: u8) -> Result<Incast> {
        let mut spec = spec.clone();
        spec.ecn[usize::from(PRIORITY)] = red;
        let mut incast = Incast::new(&spec, spec.pfc != 0)?;
        for name in [&SENDERS[..], &[RECEIVER]].concat() {
            let nic = &incast.world.rig.nic;
            let mut settings = nic.adapter(name)?.settings;
            settings.congestion.enable = enable;
            let ai = parameter("DcqcnRpgAiRate").expect("a parameter");
            settings.congestion.parameters.put(ai, Some(AI_RATE));
            nic.configure_adapter(name, &settings)?;
            let paper = CongestionSpec {
                preset: Preset::Paper,
                ..CongestionSpec::default()
            };
            nic.set_congestion(name, paper)?;
        }
        incast.start();
        Ok(incast)
    }

    /// Lets so many milliseconds pass and looks four times in each.
    fn watch(&self, ms: u32) -> Result<Seen> {
        let before = self.sent();
        let mut queue = 0;
        for _ in 0..4 * ms {
            self.clock.pass(Duration::from_micros(250));
            queue += self.queue()?;
        }
        let now = self.sent();
        let rig = &self.world.rig;
        let of = |name: &str| rig.priority_counter(RECEIVER, PRIORITY, name);
        Ok(Seen {
            sent: std::array::from_fn(|i| now[i] - before[i]),
            queue: queue as f64 / f64::from(4 * ms),
            drops: self.drops(),
            pauses: of("tx_pause"),
            marked: of("ecn_marked"),
            notified: rig.counter(RECEIVER, "np_cnp_sent"),
            handled: SENDERS.iter().map(|n| rig.counter(n, "rp_cnp_handled")).sum(),
        })
    }
}

/// Bytes of frames that the link takes in so many milliseconds.
fn link_takes(ms: u64) -> f64 {
    (RATE / 8 * ms) as f64 / 1000.0 * 1102.0 / 1126.0
}

fn lossless() -> QosSpec {
    QosSpec {
        pfc: 1 << PRIORITY,
        ..QosSpec::default()
    }
}

#[test]
fn dcqcn_shares_a_port_and_keeps_its_queue_short() -> Result<()> {
    let incast = Incast::with_dcqcn(&lossless(), POINT, 1 << PRIORITY)?;
    incast.watch(100)?;
    let seen = incast.watch(600)?;
    println!("{seen:?}");
    let (most, least) = (seen.sent.iter().max(), seen.sent.iter().min());
    let ratio = *most.expect("three") as f64 / *least.expect("three") as f64;
    assert!(ratio < 1.05, "{seen:?}");
    assert!((seen.queue / MODEL - 1.0).abs() < 0.2, "{seen:?}");
    let used = seen.sent.iter().sum::<u64>() as f64 / link_takes(600);
    assert!((0.97..1.01).contains(&used), "{used} {seen:?}");
    assert_eq!((seen.drops, seen.pauses), (0, 0));
    // A notification stands for one marked packet at least, and none is lost.
    assert!(seen.marked >= seen.notified && seen.notified > 1000, "{seen:?}");
    // Time stands still, the functions' counters are brought up to date all the same; a few may be under way.
    let rig = &incast.world.rig;
    let handled = || {
        SENDERS
            .iter()
            .map(|n| rig.counter(n, "rp_cnp_handled"))
            .sum::<u64>()
    };
    assert!(wait_for(|| rig.counter(RECEIVER, "np_cnp_sent") - handled() <= 3));
    let limited = incast.world.rig.nic.congestion_flows(SENDERS[0])?;
    assert_eq!(limited.len(), 1);
    assert!(limited[0].limits.rate < RATE, "{limited:?}");
    incast.world.finish()
}

/// The same without flow control: nothing has to hold anybody back for nothing to be lost.
#[test]
fn dcqcn_loses_nothing_without_flow_control() -> Result<()> {
    let incast = Incast::with_dcqcn(&QosSpec::default(), POINT, 1 << PRIORITY)?;
    let seen = incast.watch(100)?;
    assert_eq!((seen.drops, seen.pauses), (0, 0));
    assert!(seen.notified > 100, "{seen:?}");
    incast.world.finish()
}

/// Packets that are marked when they come are as old as the queue is long when their sender hears of it: the queue swings
/// further.
#[test]
fn dcqcn_with_marks_at_the_other_end_of_the_queue() -> Result<()> {
    let at = |at| -> Result<Seen> {
        let incast = Incast::with_dcqcn(&lossless(), Red { at, ..POINT }, 1 << PRIORITY)?;
        incast.watch(30)?;
        let seen = incast.watch(120)?;
        incast.world.finish()?;
        Ok(seen)
    };
    let (out, r#in) = (at(MarkAt::Dequeue)?, at(MarkAt::Enqueue)?);
    println!("{out:?}\n{in:?}", in = r#in);
    for seen in [&out, &r#in] {
        assert_eq!((seen.drops, seen.pauses), (0, 0));
        assert!(seen.notified > 100, "{seen:?}");
        let used = seen.sent.iter().sum::<u64>() as f64 / link_takes(120);
        assert!(used > 0.9, "{used} {seen:?}");
    }
    assert_ne!(out, r#in);
    Ok(())
}

/// Of a priority without congestion control nothing is marked, because nothing says that it can be, and flow control acts.
#[test]
fn dcqcn_acts_on_its_priorities_only() -> Result<()> {
    let incast = Incast::with_dcqcn(&lossless(), POINT, !(1 << PRIORITY))?;
    let seen = incast.watch(30)?;
    assert!(seen.pauses > 10, "{seen:?}");
    assert_eq!((seen.drops, seen.notified, seen.handled), (0, 0, 0));
    assert!(seen.queue > 300_000.0, "{seen:?}");
    for name in SENDERS {
        assert!(incast.world.rig.nic.congestion_flows(name)?.is_empty());
    }
    incast.world.finish()
}

/// The same begins the same: time that passes by rounds is all there is.
#[test]
fn two_runs_are_one() -> Result<()> {
    let run = || -> Result<Vec<_>> {
        let incast = Incast::with_dcqcn(&lossless(), POINT, 1 << PRIORITY)?;
        let look = |_| incast.watch(2).map(|s| (s.sent, s.queue, s.marked));
        let seen = (0..10).map(look).collect();
        incast.world.finish()?;
        seen
    };
    assert_eq!(run()?, run()?);
    Ok(())
}
