//! Two ports of one network, and one network device as two ports.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use vnic_backend::{NicEventKind, PortEnd, PortKind, PortSpec, VlanMode};
use vnic_tests::driver::packets::{BROADCAST, Number, numbered};
use vnic_tests::driver::rig::{Copies, Rig, deadline};
use vnic_tests::driver::veth::{ENDS, Veth, refusal};
use vnic_tests::driver::{NetHdr, Options};

const PORTS: [&str; 2] = ["p0", "p1"];

fn port(rig: &Rig, name: &str) -> Result<PortEnd> {
    let (_, end) = rig.nic.add_port_exchange(PortSpec {
        name: name.into(),
        kind: PortKind::Mesh {
            label: "a test".into(),
        },
        mtu: 1500,
        vlan: VlanMode::default(),
        data_core: None,
        speed_mbps: None,
    })?;
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
