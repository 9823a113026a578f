//! Congestion control of an adapter as it is switched and set under traffic: marks make notifications, notifications make
//! limited flows, and settings change what those do. Time passes by the rounds of the data core.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use vnic_backend::fault::Action;
use vnic_backend::settings::{AdapterSettings, Trust, parameter};
use vnic_backend::{
    AlgorithmLimits, CongestionAlgorithm, CongestionFlow, CongestionSpec, FaultSpec, NicEventKind, Program,
    QosSpec, VirtualClock,
};
use vnic_device::queue::Operation;
use vnic_device::ring::Extent;
use vnic_device::verbs::QpType;
use vnic_tests::driver::rdma::{Area, Link, Mr, Side, World, Wr, link};

/// DSCP 26, which is priority 3, and ECT(0).
const TRAFFIC_CLASS: u8 = 26 << 2 | 0b10;
const PRIORITY: u8 = 3;
/// Of both ports, in bit/s.
const RATE: u64 = 10_000_000_000;
const BYTES: u64 = 1 << 30;
const REPEATED: u64 = 1 << 20;

/// A region of [`BYTES`] whose memory is the same piece again and again.
fn long(side: &mut Side) -> Mr {
    let piece = side.d.area(REPEATED);
    let pieces: Vec<Extent> = piece.extents.repeat((BYTES / REPEATED) as usize);
    let area = Area::new(&side.d.mem, pieces);
    side.d
        .mr_of(side.pd, area, 0x10_0000_0000, vnic_tests::driver::rdma::FULL)
}

/// A sends to b without end, and all its packets are marked.
struct Marked {
    world: World,
    clock: Arc<VirtualClock>,
    qp: u32,
    _sides: (Side, Side),
}

impl Marked {
    /// `set`: keys of congestion control that both have.
    fn start(set: &[(&str, u32)]) -> Result<Marked> {
        let clock = VirtualClock::new(Duration::from_micros(1));
        let world = World::with_clock(clock.clone(), &["a", "b"])?;
        for name in ["a", "b"] {
            let mut settings = AdapterSettings::default();
            settings.qos.priorities.trust = Trust::Dscp;
            world.rig.nic.apply_qos_keys(name, &settings)?;
            world.rig.nic.set_qos(
                name,
                QosSpec {
                    rate: RATE,
                    ..QosSpec::default()
                },
            )?;
        }
        let (mut a, mut b) = (world.side("a")?, world.side("b")?);
        let (source, target) = (long(&mut a), long(&mut b));
        let (mut qp, peer) = (a.qp(QpType::Rc), b.qp(QpType::Rc));
        let (there, back) = (a.d.address_of(&mut b.d), b.d.address_of(&mut a.d));
        for (d, own, other, mut address) in [(&mut a.d, &qp, &peer, there), (&mut b.d, &peer, &qp, back)] {
            address.traffic_class = TRAFFIC_CLASS;
            let way = Link {
                // 17 s.
                timeout: 22,
                ..link(address, other.number)
            };
            d.up(own, &way);
        }
        let marked = Marked {
            qp: qp.number,
            world,
            clock,
            _sides: (a, b),
        };
        for name in ["a", "b"] {
            marked.keys(name, 1 << PRIORITY, set)?;
        }
        let rule = FaultSpec {
            from: Some("a".to_owned()),
            roce: true,
            ..FaultSpec::new("ce", Action::MarkCe)
        };
        marked.world.rig.nic.add_fault(rule)?;
        let mut marked = marked;
        let whole = Wr::new(1, Operation::Write, &[source.element(0, BYTES as u32)]);
        let whole = whole.remote(target.iova, target.rkey);
        let side = &mut marked._sides.0;
        side.post(&mut qp, &whole);
        side.bells.wait_taken();
        Ok(marked)
    }

    /// The keys of an adapter.
    fn keys(&self, name: &str, enable: u8, set: &[(&str, u32)]) -> Result<()> {
        let mut settings = self.world.rig.nic.adapter_settings(name)?;
        settings.congestion.enable = enable;
        for (key, value) in set {
            let key = parameter(key).expect("a parameter");
            settings.congestion.parameters.put(key, Some(*value));
        }
        Ok(self.world.rig.nic.configure_adapter(name, &settings)?)
    }

    fn pass(&self, millis: u64) {
        self.clock.pass(Duration::from_millis(millis));
    }

    fn flows(&self, name: &str) -> Result<Vec<CongestionFlow>> {
        Ok(self.world.rig.nic.congestion_flows(name)?)
    }

    fn counter(&self, owner: &str, name: &str) -> u64 {
        self.world.rig.counter(owner, name)
    }

    /// bit/s that a sends in the next milliseconds.
    fn rate(&self, millis: u64) -> u64 {
        let sent = || self.world.rig.priority_counter("a", PRIORITY, "tx_bytes");
        let before = sent();
        self.pass(millis);
        (sent() - before) * 8 * 1000 / millis
    }
}

#[test]
fn marks_make_notifications_and_these_a_limited_flow() -> Result<()> {
    let marked = Marked::start(&[("DcqcnRpgMinRate", 500)])?;
    marked.pass(5);
    let flows = marked.flows("a")?;
    assert_eq!(flows.len(), 1, "{flows:?}");
    let flow = flows[0];
    assert_eq!((flow.qp.0, flow.priority), (marked.qp, PRIORITY));
    assert!(
        flow.limits.rate < RATE && flow.limits.rate >= 500_000_000,
        "{flow:?}"
    );
    assert!(flow.state.cuts > 0 && flow.notifications > 0, "{flow:?}");
    assert!(
        flow.state.alpha.is_some() && flow.state.target.is_some(),
        "{flow:?}"
    );
    assert!(marked.flows("b")?.is_empty());
    let (seen, sent) = (
        marked.counter("b", "np_ecn_marked_roce_packets"),
        marked.counter("b", "np_cnp_sent"),
    );
    assert!(seen > 0 && sent > 0 && sent <= seen, "{seen} {sent}");
    let handled = marked.counter("a", "rp_cnp_handled");
    assert!(handled > 0 && handled <= sent, "{handled} of {sent}");
    // All packets are marked all the time: about the least rate.
    let slow = marked.rate(10);
    assert!((300_000_000..1_500_000_000).contains(&slow), "{slow}");

    // A greater least rate acts on the flow that is there.
    marked.keys("a", 1 << PRIORITY, &[("DcqcnRpgMinRate", 4000)])?;
    marked.pass(5);
    let faster = marked.rate(10);
    assert!(faster > 3_000_000_000, "{faster}");

    // The priority is off: the flow is free, at once.
    marked.keys("a", 0, &[])?;
    assert!(marked.flows("a")?.is_empty());
    let free = marked.rate(5);
    assert!(free > 9_000_000_000, "{free}");
    // Notifications that still come change nothing.
    assert!(marked.counter("a", "rp_cnp_ignored") > 0);
    marked.world.finish()
}

#[test]
fn each_end_has_a_switch() -> Result<()> {
    let marked = Marked::start(&[])?;
    marked.pass(2);
    assert_eq!(marked.flows("a")?.len(), 1);
    // Only the reaction point of b is on: its marked packets are not answered, and a's flow recovers.
    let spec = CongestionSpec {
        only_reaction: 1 << PRIORITY,
        ..CongestionSpec::default()
    };
    marked.world.rig.nic.set_congestion("b", spec)?;
    marked.pass(1);
    let sent = marked.counter("b", "np_cnp_sent");
    marked.pass(5);
    assert_eq!(marked.counter("b", "np_cnp_sent"), sent);
    // And on again.
    marked
        .world
        .rig
        .nic
        .set_congestion("b", CongestionSpec::default())?;
    marked.pass(10);
    assert!(marked.counter("b", "np_cnp_sent") > sent);
    marked.world.finish()
}

#[test]
fn the_notification_point_keeps_its_spacing() -> Result<()> {
    let mut sent = Vec::new();
    for spacing in [50, 500] {
        // The least rate keeps packets coming.
        let marked = Marked::start(&[("DcqcnRpgMinRate", 5000)])?;
        let mut spec = CongestionSpec::default();
        let key = parameter("np_min_time_between_cnps").expect("a parameter");
        spec.own.put(key, Some(spacing));
        marked.world.rig.nic.set_congestion("b", spec)?;
        marked.pass(1);
        let before = marked.counter("b", "np_cnp_sent");
        marked.pass(10);
        sent.push(marked.counter("b", "np_cnp_sent") - before);
        marked.world.finish()?;
    }
    // 10 ms have 200 spacings of 50 us, and 20 of 500 us.
    assert!(
        (180..=201).contains(&sent[0]) && (18..=21).contains(&sent[1]),
        "{sent:?}"
    );
    Ok(())
}

#[test]
fn without_an_algorithm_nothing_is_limited() -> Result<()> {
    let marked = Marked::start(&[])?;
    marked.pass(2);
    assert_eq!(marked.flows("a")?.len(), 1);
    let spec = CongestionSpec {
        algorithm: CongestionAlgorithm::None,
        ..CongestionSpec::default()
    };
    marked.world.rig.nic.set_congestion("a", spec)?;
    assert!(marked.flows("a")?.is_empty());
    let free = marked.rate(5);
    assert!(free > 9_000_000_000, "{free}");
    marked.world.finish()
}

/// A program as the algorithm.
fn programmed(text: &str) -> CongestionSpec {
    let binary = wat::parse_str(text).expect("WebAssembly as text");
    CongestionSpec {
        algorithm: CongestionAlgorithm::Program,
        program: Some(Program::load(&binary).expect("a program")),
        ..CongestionSpec::default()
    }
}

/// The example that people begin with; the simulator has the same.
const AIMD: &str = include_str!("../../../vnic-backend/engine/examples/aimd.wat");

#[test]
fn a_program_limits_live_flows() -> Result<()> {
    let marked = Marked::start(&[])?;
    let nic = &marked.world.rig.nic;
    let mut spec = programmed(AIMD);
    // No round trip is too long, so that only notifications lower the rate.
    for (key, value) in [("target_ns", "1s"), ("step_bps", "1M"), ("hold_ns", "1us")] {
        let done = spec.program.as_mut().and_then(|program| program.set(key, value));
        assert_eq!(done, Some(Ok(())), "{key}");
    }
    nic.set_congestion("a", spec.clone())?;
    marked.pass(5);
    let flows = marked.flows("a")?;
    assert_eq!(flows.len(), 1, "{flows:?}");
    let flow = flows[0];
    assert!(flow.limits.rate < RATE / 2 && flow.state.cuts > 5, "{flow:?}");
    assert!(flow.notifications > 0 && flow.state.alpha.is_none(), "{flow:?}");
    let slow = marked.rate(5);
    assert!(slow < RATE / 2 && slow > 0, "{slow}");

    // Its parameters act on the flow that is there: notifications lower nothing any more.
    for (key, value) in [("cut", "0"), ("step_bps", "1G")] {
        let done = spec.program.as_mut().and_then(|program| program.set(key, value));
        assert_eq!(done, Some(Ok(())), "{key}");
    }
    nic.set_congestion("a", spec)?;
    marked.pass(5);
    let fast = marked.rate(5);
    assert!(fast > 9_000_000_000, "{fast}");
    let status = nic.congestion("a")?;
    assert_eq!(
        (status.algorithm, status.faults.count),
        (CongestionAlgorithm::Program, 0)
    );

    // It may not be used any more: DCQCN acts, and what is configured stays.
    let limits = AlgorithmLimits {
        programs: false,
        ..AlgorithmLimits::default()
    };
    nic.limit_algorithms(limits)?;
    marked.pass(5);
    let status = nic.congestion("a")?;
    assert_eq!(status.algorithm, CongestionAlgorithm::Dcqcn);
    assert_eq!(status.spec.algorithm, CongestionAlgorithm::Program);
    assert!(marked.flows("a")?[0].state.alpha.is_some());
    marked.world.finish()
}

#[test]
fn a_program_that_hangs_is_stopped_and_told() -> Result<()> {
    let marked = Marked::start(&[])?;
    let nic = &marked.world.rig.nic;
    let events = nic.subscribe();
    let hangs = "(module (memory (export \"memory\") 1)
        (global (export \"program\") i32 (i32.const 0)) (data (i32.const 0) \"\\01\\00\\00\\00\\00\\00\\00\\00\\01\")
        (global (export \"event\") i32 (i32.const 256)) (global (export \"flow\") i32 (i32.const 512))
        (func (export \"on_start\")) (func (export \"on_notification\") (loop (br 0))))";
    nic.set_congestion("a", programmed(hangs))?;
    marked.pass(20);
    let faults = nic.congestion("a")?.faults;
    assert!(faults.stopped && faults.count >= 16, "{faults:?}");
    // DCQCN has taken over: the flow is limited.
    let flows = marked.flows("a")?;
    assert!(flows.len() == 1 && flows[0].state.alpha.is_some(), "{flows:?}");
    let mut told = Vec::new();
    while let Ok(event) = events.recv_timeout(Duration::from_secs(60)) {
        if let NicEventKind::ProgramFault(faults) = event.kind {
            assert_eq!(event.owner, "a");
            assert_eq!(
                faults.last.as_deref(),
                Some("on_notification: more than 4096 instructions")
            );
            told.push(faults.stopped);
            if faults.stopped {
                break;
            }
        }
    }
    assert!(told == [false, true] || told == [true], "{told:?}");
    // What is loaded again begins anew, even if it is the same.
    nic.set_congestion("a", programmed(hangs))?;
    assert_eq!(nic.congestion("a")?.faults.count, 0);
    // Nobody else has noticed.
    assert_eq!(nic.congestion("b")?.faults.count, 0);
    marked.world.finish()
}
