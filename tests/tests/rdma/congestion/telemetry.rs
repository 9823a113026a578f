//! HPCC between adapters: what the queue of the port writes into packets comes back in acknowledges and moves windows. Swift: so
//! does what a packet waited in its receiver.

use anyhow::Result;
use vnic_backend::{CongestionAlgorithm, CongestionFlow, CongestionSpec, QosSpec, ScheduleQueue};

use super::{Incast, PRIORITY, RECEIVER, SENDERS, Seen, link_takes, lossless};

/// Round trip that windows are computed with, in us. A first window is a round trip at line rate: together they are two round
/// trips more than the link takes.
const BASE_RTT: u64 = 100;
/// Bytes of payload of a first window; one packet more may be unacknowledged.
const FIRST_WINDOW: u64 = super::RATE * BASE_RTT / 8_000_000 * 1024 / 1126;

/// An algorithm for the test's priority, at all adapters.
fn with(mut incast: Incast, algorithm: CongestionAlgorithm, parameters: &[(&str, &str)]) -> Result<Incast> {
    for name in [&SENDERS[..], &[RECEIVER]].concat() {
        let nic = &incast.world.rig.nic;
        let mut settings = nic.adapter(name)?.settings;
        settings.congestion.enable = 1 << PRIORITY;
        nic.configure_adapter(name, &settings)?;
        let mut spec = CongestionSpec {
            algorithm,
            ..CongestionSpec::default()
        };
        for (name, value) in parameters {
            spec.tuned.set(name, value).expect("an algorithm")?;
        }
        nic.set_congestion(name, spec)?;
    }
    incast.start();
    Ok(incast)
}

fn with_hpcc(incast: Incast) -> Result<Incast> {
    let base_rtt = format!("{BASE_RTT}us");
    let parameters = [("hpcc.base_rtt", base_rtt.as_str()), ("hpcc.w_ai", "100")];
    with(incast, CongestionAlgorithm::Hpcc, &parameters)
}

impl Incast {
    /// Flows of all senders.
    fn flows(&self) -> Result<Vec<CongestionFlow>> {
        let mut all = Vec::new();
        for name in SENDERS {
            all.extend(self.world.rig.nic.congestion_flows(name)?);
        }
        assert_eq!(all.len(), SENDERS.len());
        Ok(all)
    }
}

/// How much more one has sent than another, and the part of the link that all use.
fn shares(seen: &Seen, ms: u64) -> (f64, f64) {
    let (most, least) = (seen.sent.iter().max(), seen.sent.iter().min());
    let ratio = *most.expect("three") as f64 / *least.expect("three") as f64;
    // (Frames have a trailer.)
    let used = seen.sent.iter().sum::<u64>() as f64 / link_takes(ms) * 1126.0 / 1102.0 * 1150.0 / 1174.0;
    (ratio, used)
}

#[test]
fn hpcc_holds_a_port_at_its_aim_and_its_queue_short() -> Result<()> {
    let incast = with_hpcc(Incast::new(&lossless(), false)?)?;
    incast.watch(30)?;
    let seen = incast.watch(100)?;
    let flows = incast.flows()?;
    println!("{seen:?}\n{flows:?}");
    for flow in &flows {
        let window = flow.limits.window - 1023;
        assert!(window < FIRST_WINDOW / 2, "{flow:?}");
        assert!(flow.state.cuts > 0, "{flow:?}");
    }
    let (ratio, used) = shares(&seen, 100);
    assert!(ratio < 1.05, "{seen:?}");
    assert!((0.90..0.99).contains(&used), "{used} {seen:?}");
    // First windows alone would keep more than 20 KB waiting.
    assert!(seen.queue < 6_000.0, "{seen:?}");
    assert_eq!((seen.drops, seen.pauses, seen.marked), (0, 0, 0));
    incast.world.finish()
}

/// Packets of the same size, but no room for a trailer: flows keep their first windows, and what is more than the link takes waits.
#[test]
fn hpcc_without_telemetry_keeps_its_first_windows() -> Result<()> {
    let incast = with_hpcc(Incast::with_mtu(&lossless(), false, 1120)?)?;
    incast.watch(30)?;
    let seen = incast.watch(100)?;
    println!("{seen:?}");
    for flow in incast.flows()? {
        let window = flow.limits.window - 1023;
        assert!(window >= FIRST_WINDOW - 1 && flow.state.cuts == 0, "{flow:?}");
    }
    assert!(seen.queue > 20_000.0, "{seen:?}");
    incast.world.finish()
}

/// Without a rate there is no link that could be too full: flows keep their first windows.
#[test]
fn hpcc_keeps_its_windows_where_no_queue_has_a_rate() -> Result<()> {
    let incast = with_hpcc(Incast::new(&lossless(), false)?)?;
    for name in [&SENDERS[..], &[RECEIVER]].concat() {
        incast.world.rig.nic.set_qos(name, lossless())?;
    }
    incast.watch(20)?;
    for flow in incast.flows()? {
        assert_eq!(flow.state.cuts, 0, "{flow:?}");
    }
    incast.world.finish()
}

/// Swift's two windows: acknowledges that wait in the receiver say so, and what they waited is not the network's.
#[test]
fn swift_tells_the_receivers_delay_from_the_networks() -> Result<()> {
    // An acknowledge takes half a millisecond: the receiver may send so little.
    let limit = [2_000_000; 8];
    for (split, target, cut) in [("on", "1s", false), ("on", "100us", true), ("off", "1s", true)] {
        let parameters = [
            ("swift.base", "1ms"),
            ("swift.endpoint_target", target),
            ("swift.split", split),
        ];
        let incast = with(
            Incast::new(&QosSpec::default(), false)?,
            CongestionAlgorithm::Swift,
            &parameters,
        )?;
        let slow = QosSpec {
            rate: super::RATE,
            queue: Some(ScheduleQueue {
                limit,
                ..ScheduleQueue::default()
            }),
            ..QosSpec::default()
        };
        incast.world.rig.nic.set_qos(RECEIVER, slow)?;
        incast.watch(40)?;
        for flow in incast.flows()? {
            assert_eq!(flow.state.cuts > 0, cut, "{split} {target}: {flow:?}");
        }
        incast.world.finish()?;
    }
    Ok(())
}
