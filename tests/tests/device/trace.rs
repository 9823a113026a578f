//! What `Nic::trace` says of a frame is what happens to it.

use anyhow::Result;
use vnic_backend::{DropReason, FaultSpec, MacAddr, Trace, TraceFunction, VlanMode};
use vnic_tests::driver::packets::{BROADCAST, Number, eth, numbered, tagged};
use vnic_tests::driver::rdma::{self, Driver};
use vnic_tests::driver::rig::{Copies, Rig, deadline};
use vnic_tests::driver::{NetHdr, Options};

fn trace(rig: &Rig, from: &str, frame: &[u8]) -> Result<Trace> {
    let head = &frame[..frame.len().min(512)];
    Ok(rig.nic.trace(from, head, frame.len())?)
}

/// Names and functions of the receivers.
fn receivers(trace: &Trace) -> Vec<(&str, TraceFunction)> {
    assert_eq!(trace.dropped, None, "{trace:?}");
    trace
        .receivers
        .iter()
        .map(|r| (r.owner.as_str(), r.function))
        .collect()
}

#[test]
fn a_trace_is_what_happens() -> Result<()> {
    for cores in [1, 2] {
        let mut rig = Rig::new(cores)?;
        let a = rig.add_with("a", |s| s.anti_spoofing = true)?;
        let b = rig.add("b")?;
        let tenth = rig.add_with("c", |s| s.vlan = VlanMode::Access(10))?;
        let down = rig.add("d")?;
        let mut ga = rig.attach("a", Options::default())?;
        let mut gb = rig.attach("b", Options::default())?;
        let mut gc = rig.attach("c", Options::default())?;
        let n = Number {
            sender: 1,
            stream: 0,
            seq: 0,
        };
        let unknown = MacAddr([2, 9, 9, 9, 9, 9]);
        let plain = |to: MacAddr, from: MacAddr, len| numbered(to, from, n, len);
        let ethernet = TraceFunction::Ethernet;
        for (what, frame, want) in [
            ("to a neighbour", plain(b, a, 60), Ok(vec!["b"])),
            ("to everybody", plain(BROADCAST, a, 60), Ok(vec!["b"])),
            ("to nobody's address", plain(unknown, a, 60), Ok(vec!["b"])),
            ("in another VLAN", tagged(&plain(tenth, a, 60), 10), Ok(vec!["c"])),
            (
                "to a guest that is down",
                plain(down, a, 60),
                Err(DropReason::ReceiverDown),
            ),
            ("to itself", plain(a, a, 60), Err(DropReason::OwnAddress)),
            (
                "from another's address",
                plain(b, unknown, 60),
                Err(DropReason::SpoofedSource),
            ),
            ("too long", plain(b, a, 1515), Err(DropReason::MtuExceeded)),
            (
                "flow control",
                eth(b, a, [0x88, 0x08], &[0; 46]),
                Err(DropReason::MacControl),
            ),
        ] {
            let before: Vec<u64> = DropReason::ALL.iter().map(|r| rig.drops("a", *r)).collect();
            let said = trace(&rig, "a", &frame)?;
            let same: Vec<u64> = DropReason::ALL.iter().map(|r| rig.drops("a", *r)).collect();
            assert_eq!(before, same, "{what}: nothing is counted");
            ga.send_wait(0, &frame, NetHdr::default());
            match want {
                Ok(names) => {
                    let all: Vec<_> = names.iter().map(|name| (*name, ethernet)).collect();
                    assert_eq!(receivers(&said), all, "{what}");
                    let guest = if names == ["b"] { &mut gb } else { &mut gc };
                    assert!(guest.recv(0, deadline()).is_some(), "{what}");
                }
                Err(reason) => {
                    ga.drain();
                    rig.settle()?;
                    assert_eq!(said.dropped, Some(reason), "{what}: {said:?}");
                    // Who is down counts for the adapter whose guest it is.
                    let at = DropReason::ALL
                        .iter()
                        .position(|r| *r == reason)
                        .expect("a reason");
                    assert_eq!(rig.drops("a", reason), before[at] + 1, "{what}");
                }
            }
        }
        // A trace teaches the switch nothing.
        assert!(rig.nic.fdb().iter().all(|e| e.mac != unknown));
        assert!(rig.nic.trace("nobody", &plain(b, a, 60), 60).is_err());
        rig.finish(Copies::Unknown)?;
    }
    Ok(())
}

#[test]
fn receivers_say_who_takes_the_frame_and_what_may_happen_to_it() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let socket = rig.socket("b-rdma");
    let a = rig.add_with("a", |s| s.mtu = 9000)?;
    let b = rig.add_with("b", |s| s.rdma_socket = Some(socket.clone()))?;
    let _ga = rig.attach("a", Options::default())?;
    let n = Number {
        sender: 1,
        stream: 0,
        seq: 0,
    };
    let roce = eth(b, a, [0x89, 0x15], &[0; 46]);
    let driver = Driver::start(&socket, rdma::Options::default())?;
    assert_eq!(receivers(&trace(&rig, "a", &roce)?), [("b", TraceFunction::Rdma)]);
    let other = trace(&rig, "a", &numbered(b, a, n, 60))?;
    assert_eq!(other.receivers[0].dropped, Some(DropReason::ReceiverDown));
    let _gb = rig.attach("b", Options::default())?;
    assert_eq!(
        receivers(&trace(&rig, "a", &numbered(b, a, n, 60))?),
        [("b", TraceFunction::Ethernet)]
    );
    let long = trace(&rig, "a", &numbered(b, a, n, 4000))?;
    assert_eq!(long.receivers[0].dropped, Some(DropReason::ReceiverMtu));
    rig.nic.add_fault(FaultSpec {
        to: Some("b".to_owned()),
        ..FaultSpec::new("lossy", vnic_backend::fault::Action::Drop)
    })?;
    assert_eq!(trace(&rig, "a", &roce)?.receivers[0].fault_rules, ["lossy"]);
    drop(driver);
    Ok(())
}
