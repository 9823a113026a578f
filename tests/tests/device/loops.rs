//! Two ports of one network, one network device as two ports, and storm control.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use vnic_backend::{
    DropReason, MacAddr, NicEventKind, PortEnd, PortKind, PortSpec, StormControl, VirtualClock,
};
use vnic_tests::driver::packets::{BROADCAST, Number, numbered};
use vnic_tests::driver::rig::{Copies, Rig, deadline, wait_for};
use vnic_tests::driver::veth::{ENDS, Veth, refusal};
use vnic_tests::driver::{NetHdr, Options};

const PORTS: [&str; 2] = ["p0", "p1"];

fn port(rig: &Rig, name: &str) -> Result<PortEnd> {
    let (_, end) = rig.nic.add_port_exchange(PortSpec::new(
        name,
        PortKind::Mesh {
            label: "a test".into(),
        },
    ))?;
    rig.nic.set_port_link(name, true, None)?;
    Ok(end)
}

/// What leaves one port comes in at the other.
fn relay(ends: &mut [PortEnd; 2]) {
    for (from, to) in [(0, 1), (1, 0)] {
        while let Some(frame) = ends[from].rx.next_frame() {
            let frame = frame.to_vec();
            ends[to].tx.put_or_lose(&frame);
        }
        ends[to].tx.flush();
    }
}

fn suspected(rig: &mut Rig) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for event in rig.poll_events() {
        if let NicEventKind::LoopSuspected { other, .. } = &event.kind {
            all.push((event.owner.clone(), other.clone()));
        }
    }
    all
}

#[test]
fn a_loop_of_two_ports_is_told_once() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let mac = rig.add("a")?;
    let mut guest = rig.attach("a", Options::default())?;
    let mut ends = [port(&rig, PORTS[0])?, port(&rig, PORTS[1])?];
    let number = Number {
        sender: 0,
        stream: 0,
        seq: 0,
    };
    guest.send_wait(0, &numbered(BROADCAST, mac, number, 60), NetHdr::default());
    let end = deadline();
    while suspected(&mut rig).is_empty() {
        ensure!(Instant::now() < end, "nobody told; there were {:?}", rig.events);
        relay(&mut ends);
        std::thread::sleep(Duration::from_millis(1));
    }
    for _ in 0..300 {
        relay(&mut ends);
        std::thread::sleep(Duration::from_millis(1));
    }
    let told = suspected(&mut rig);
    ensure!(told.len() == 1, "{told:?}");
    let (owner, other) = &told[0];
    ensure!(PORTS.contains(&owner.as_str()) && other == "a", "{told:?}");
    rig.finish(Copies::Unknown)
}

/// Another daemon of a mesh has an adapter with the same address.
#[test]
fn a_doubled_address_is_told() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let mac = rig.add("a")?;
    let mut guest = rig.attach("a", Options::default())?;
    let mut end = port(&rig, PORTS[0])?;
    let n = Number {
        sender: 0,
        stream: 0,
        seq: 0,
    };
    let limit = deadline();
    while suspected(&mut rig).is_empty() {
        ensure!(Instant::now() < limit, "nobody told; there were {:?}", rig.events);
        end.tx.put_or_lose(&numbered(BROADCAST, mac, n, 60));
        end.tx.flush();
        std::thread::sleep(Duration::from_millis(5));
    }
    let told = suspected(&mut rig);
    ensure!(told == [(PORTS[0].to_owned(), "a".to_owned())], "{told:?}");
    // The other one is out of reach: what is meant for it is for the sender itself.
    guest.send_wait(0, &numbered(mac, mac, n, 60), NetHdr::default());
    guest.drain();
    rig.settle()?;
    ensure!(rig.drops("a", DropReason::OwnAddress) == 1);
    rig.finish(Copies::Unknown)
}

#[test]
fn a_network_device_is_one_port() -> Result<()> {
    let Some(veth) = Veth::new(1500)? else {
        return Ok(());
    };
    let rig = Rig::new(1)?;
    rig.nic.add_port(veth.port("packet", ENDS[0])?)?;
    for kind in ["packet", "xdp"] {
        let mut second = veth.port(kind, ENDS[0])?;
        second.name = "p1".into();
        let text = refusal(rig.nic.add_port(second))?;
        ensure!(
            text.starts_with("ifname: port p0 has the network device"),
            "{text}"
        );
        ensure!(text.contains("remove p0"), "{text}");
    }
    rig.nic.remove_port("p0")?;
    rig.nic.add_port(veth.port("packet", ENDS[0])?)?;
    rig.finish(Copies::Unknown)
}

#[test]
fn a_storm_from_a_wire_is_cut_by_kind() -> Result<()> {
    // A virtual clock that stands still: what passes is the one frame that each limit of 1 has from the beginning.
    let mut rig = Rig::with_clock(VirtualClock::new(Duration::from_micros(1)))?;
    let mac = rig.add("a")?;
    let mut guest = rig.attach("a", Options::default())?;
    guest.post(0, 256);
    let mut end = port(&rig, "p0")?;
    let stranger = MacAddr([2, 0, 0, 0, 9, 9]);
    let nobody = MacAddr([2, 0, 0, 0, 9, 8]);
    let multicast = MacAddr([0x33, 0x33, 0, 0, 0, 1]);
    let mut seq = 0;
    // Sends 20 frames for each destination, of which `dropped` are dropped, and the others arrive.
    let mut storm = |rig: &Rig, dropped: u64| -> Result<()> {
        let before = (
            rig.drops("p0", DropReason::StormControl),
            rig.counter("p0", "rx_frames"),
        );
        for _ in 0..20 {
            for to in [BROADCAST, nobody, multicast, mac] {
                let number = Number {
                    sender: 9,
                    stream: 0,
                    seq,
                };
                seq += 1;
                end.tx.put_or_lose(&numbered(to, stranger, number, 60));
            }
        }
        end.tx.flush();
        ensure!(wait_for(|| rig.counter("p0", "rx_frames") >= before.1 + 80));
        rig.settle()?;
        let lost = rig.drops("p0", DropReason::StormControl) - before.0;
        ensure!(lost == dropped, "{lost} of 80 were dropped, and not {dropped}");
        Ok(())
    };
    storm(&rig, 0)?;
    let limits = |broadcast_pps, unknown_unicast_pps| StormControl {
        broadcast_pps,
        unknown_unicast_pps,
    };
    rig.nic.set_port_storm("p0", limits(Some(1), None))?;
    storm(&rig, 19)?;
    rig.nic.set_port_storm("p0", limits(Some(1), Some(1)))?;
    storm(&rig, 38)?;
    storm(&rig, 40)?;
    rig.nic.set_port_storm("p0", StormControl::default())?;
    storm(&rig, 0)?;
    let text = refusal(rig.nic.set_port_storm("p0", limits(None, Some(0))))?;
    ensure!(
        text.contains("storm_unknown_unicast_pps: 0 is out of range"),
        "{text}"
    );
    guest.drain();
    rig.finish(Copies::Unknown)
}
