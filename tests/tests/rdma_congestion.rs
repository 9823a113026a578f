//! Three adapters' RDMA functions send to one behind a port of limited rate. Time passes by the rounds of the data core: what
//! is measured is the same on any machine, and nothing hangs on how fast it is.

use std::time::Duration;

use anyhow::Result;
use vnic_backend::settings::{AdapterSettings, RxTrust};
use vnic_backend::{DropReason, QosSpec, VirtualClock};
use vnic_device::queue::Operation;
use vnic_device::ring::Extent;
use vnic_device::verbs::QpType;
use vnic_tests::driver::rdma::{Area, Link, Mr, Qp, Side, World, Wr, link};

/// Traffic class of what is sent: DSCP 26, which is priority and traffic class 3, and ECT(0).
const TRAFFIC_CLASS: u8 = 26 << 2 | 0b10;
const PRIORITY: u8 = 3;
/// Those who send, and who receives.
const SENDERS: [&str; 3] = ["a", "b", "c"];
const RECEIVER: &str = "d";
/// A round of the data core: about what a packet takes.
const ROUND: Duration = Duration::from_micros(1);
/// Of every port, in bit/s.
const RATE: u64 = 10_000_000_000;
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
        let clock = VirtualClock::new(ROUND);
        let names = [&SENDERS[..], &[RECEIVER]].concat();
        let world = World::with_clock(clock.clone(), &names)?;
        for name in &names {
            let mut settings = AdapterSettings::default();
            settings.qos.trust = RxTrust::Dscp;
            (settings.qos.pause_tx, settings.qos.pause_rx) = (pause, pause);
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
    let before = incast.sent();
    let mut least = u64::MAX;
    for _ in 0..50 {
        incast.clock.pass(Duration::from_micros(200));
        least = least.min(incast.queue()?);
    }
    let now = incast.sent();
    let sum: u64 = (0..3).map(|i| now[i] - before[i]).sum();
    // 10 Gbit/s for 10 ms: 12.5 MB, of which preamble and gap are no bytes of frames.
    assert!((11_900_000..=12_500_000).contains(&sum), "{sum}");
    let pauses = incast.world.rig.priority_counter(RECEIVER, PRIORITY, "tx_pause");
    assert!(pauses > 100, "{pauses}");
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
