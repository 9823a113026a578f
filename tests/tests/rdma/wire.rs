//! RDMA between two NICs over a wire, by packet ports: packets of a message cross the kernel as one.

use std::net::Ipv4Addr;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use vnic_backend::{CongestionAlgorithm, CongestionSpec, GidKind, GidSetting, MacAddr, QosSpec};
use vnic_device::queue::Operation;
use vnic_device::verbs::QpType;
use vnic_tests::driver::rdma::{Side, World, Wr, fill, link};
use vnic_tests::driver::veth::{ENDS, Veth, ip};

use super::dynamic::{KEY, initiator, target};

/// Where the adapters have their IPv4 addresses in their tables of GIDs.
const GID_V4: u16 = 2;
/// Several messages' worth of packets of 1 KiB, and a bit.
const LEN: usize = 200_001;

/// Packets that the kernel has sent by a device.
fn sent_by(device: &str) -> Result<u64> {
    let output = Command::new("ip")
        .args(["-j", "-s", "link", "show", device])
        .output()?;
    let all: Value = serde_json::from_slice(&output.stdout)?;
    all[0]["stats64"]["tx"]["packets"]
        .as_u64()
        .context("what ip says")
}

/// Two NICs, each with an RDMA function, its driver and an IPv4 address.
fn hosts(veth: &Veth) -> Result<(Vec<World>, Vec<Side>)> {
    let (mut worlds, mut sides) = (Vec::new(), Vec::new());
    for (side, end) in (0u8..).zip(ENDS) {
        let mut world = World::new(1, &[])?;
        world.add_with("a", |s| s.macs = vec![MacAddr([2, 0x55, 0, 0, 0, side + 1])])?;
        world.rig.nic.add_port(veth.port("packet", end)?)?;
        let gid = GidSetting {
            gid: Ipv4Addr::new(10, 0, 0, side + 1).to_ipv6_mapped().octets(),
            kind: GidKind::RoceV2,
            vlan: None,
        };
        world.rig.nic.set_gid("a", Some(GID_V4), Some(gid))?;
        sides.push(world.side("a")?);
        worlds.push(world);
    }
    Ok((worlds, sides))
}

/// Writes over both versions of IP: all arrives, nothing twice. Answers the RDMA packets of the writer, and how many packets its
/// kernel has sent for them.
fn write(worlds: &[World], sides: &mut [Side]) -> Result<[[u64; 2]; 2]> {
    let [a, b] = sides else { panic!("two sides") };
    let mut counts = [[0; 2]; 2];
    for (v4, counts) in [false, true].into_iter().zip(&mut counts) {
        let (mut near, far) = (a.qp(QpType::Rc), b.qp(QpType::Rc));
        let (mut to_b, mut to_a) = (a.d.address_of(&mut b.d), b.d.address_of(&mut a.d));
        if v4 {
            for (to, host) in [(&mut to_b, 2), (&mut to_a, 1)] {
                to.sgid_index = GID_V4;
                to.dgid = Ipv4Addr::new(10, 0, 0, host).to_ipv6_mapped().octets();
            }
        }
        a.d.up(&near, &link(to_b, far.number));
        b.d.up(&far, &link(to_a, near.number));
        let before = [
            worlds[0].rig.counter("a", "tx_vport_rdma_unicast_packets"),
            sent_by(ENDS[0])?,
        ];
        let bytes = fill(v4.into(), LEN);
        a.mr.area.write(0, &bytes[..]);
        let wr = Wr::new(1, Operation::Write, &[a.at(0, LEN as u32)]);
        a.done(&mut near, &wr.remote(b.mr.element(0, 1).addr, b.mr.rkey));
        ensure!(b.mr.area.bytes(0, LEN) == bytes, "what arrived, IPv4: {v4}");
        let after = [
            worlds[0].rig.counter("a", "tx_vport_rdma_unicast_packets"),
            sent_by(ENDS[0])?,
        ];
        *counts = [after[0] - before[0], after[1] - before[1]];
    }
    for world in worlds {
        for wrong in [
            "rx_icrc_encapsulated",
            "drop_malformed",
            "out_of_sequence",
            "duplicate_request",
        ] {
            ensure!(world.rig.counter("a", wrong) == 0, "{wrong}");
        }
    }
    Ok(counts)
}

fn finish((worlds, sides): (Vec<World>, Vec<Side>)) -> Result<()> {
    drop(sides);
    worlds.into_iter().try_for_each(World::finish)
}

#[test]
fn packets_cross_together() -> Result<()> {
    let Some(veth) = Veth::new(1500)? else {
        return Ok(());
    };
    let (worlds, mut sides) = hosts(&veth)?;
    for [packets, crossed] in write(&worlds, &mut sides)? {
        ensure!(packets >= LEN.div_ceil(1024) as u64, "{packets}");
        ensure!(crossed < packets / 2, "{crossed} for {packets}");
    }
    finish((worlds, sides))
}

#[test]
fn a_kernel_that_cuts_gives_them_back_as_they_were() -> Result<()> {
    let Some(veth) = Veth::new(1500)? else {
        return Ok(());
    };
    for end in ENDS {
        ip(&["link", "set", end, "gso_max_size", "2000"])?;
    }
    let (worlds, mut sides) = hosts(&veth)?;
    for [packets, crossed] in write(&worlds, &mut sides)? {
        ensure!(crossed >= packets, "{crossed} for {packets}");
    }
    finish((worlds, sides))
}

/// HPCC's flows on one NIC hear of a queue on the other one, over both versions of IP, and all payload arrives.
#[test]
fn telemetry_crosses_a_wire() -> Result<()> {
    let Some(veth) = Veth::new(1500)? else {
        return Ok(());
    };
    let (worlds, mut sides) = hosts(&veth)?;
    let slow = QosSpec {
        rate: 100_000_000,
        ..QosSpec::default()
    };
    worlds[1].rig.nic.set_qos("a", slow)?;
    let nic = &worlds[0].rig.nic;
    let mut settings = nic.adapter("a")?.settings;
    settings.congestion.enable = 0xff;
    nic.configure_adapter("a", &settings)?;
    let mut hpcc = CongestionSpec {
        algorithm: CongestionAlgorithm::Hpcc,
        ..CongestionSpec::default()
    };
    // 25 KB at line rate: a part of a message.
    hpcc.tuned.set("hpcc.base_rtt", "2us").context("an algorithm")??;
    nic.set_congestion("a", hpcc)?;
    write(&worlds, &mut sides)?;
    let flows = worlds[0].rig.nic.congestion_flows("a")?;
    ensure!(flows.len() == 2, "{flows:?}");
    // Only telemetry makes windows smaller.
    for flow in &flows {
        ensure!(flow.state.cuts > 0 && flow.limits.window < 25_000, "{flow:?}");
    }
    finish((worlds, sides))
}

#[test]
fn dynamic_connections_cross_a_wire() -> Result<()> {
    let Some(veth) = Veth::new(1500)? else {
        return Ok(());
    };
    let (worlds, mut sides) = hosts(&veth)?;
    let [a, b] = &mut sides[..] else {
        panic!("two sides")
    };
    let mut targets = [target(b), target(b)];
    let mut qp = initiator(a);
    let way = a.d.address_of(&mut b.d);
    let ah = a.d.ah(a.pd, way);
    for round in 0..6 {
        let (target, srq) = &mut targets[round as usize % 2];
        let bytes = fill(round, LEN);
        a.mr.area.write(0, &bytes[..]);
        let wr = Wr::new(1, Operation::Write, &[a.at(0, LEN as u32)]);
        let wr = wr.remote(b.mr.element(0, 1).addr, b.mr.rkey);
        a.done(&mut qp, &wr.to_target(ah, target.number, KEY));
        ensure!(b.mr.area.bytes(0, LEN) == bytes, "what arrived");
        let into = b.at(210_000, 9000);
        srq.receive(&mut b.bells, 7, &[into]);
        let wr = Wr::send(2, &[a.at(5, 9000)]).to_target(ah, target.number, KEY);
        a.done(&mut qp, &wr);
        let e = b.cq.good(7);
        ensure!((e.qp, e.byte_len) == (target.number, 9000), "{e:?}");
        ensure!(
            b.mr.area.bytes(210_000, 9000) == bytes[5..9005],
            "what was received"
        );
    }
    ensure!(worlds[1].rig.counter("a", "rx_dct_connect") >= 6);
    finish((worlds, sides))
}
