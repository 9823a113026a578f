//! `roce_mode` and `*NetworkDirect`: which GIDs an adapter has, how its packets travel, and who gets RoCE without RDMA.

use anyhow::{Context as _, Result};
use vnic_backend::settings::{AdapterSettings, RoceMode};
use vnic_backend::{AttachState, CaptureSpec, GidKind, GidSetting, NicError};
use vnic_device::command::Opcode;
use vnic_device::command::device::{GidRecord, Hello};
use vnic_device::command::qp::AddressVector;
use vnic_device::status::CommandStatus;
use vnic_device::verbs::{GidKind as Kind, QpType};
use vnic_tests::driver::packets::eth;
use vnic_tests::driver::rdma::{Driver, Options, Qp, Side, World, Wr, link};
use vnic_tests::driver::rig::{PATIENCE, deadline, wait_for};
use vnic_tests::driver::{self, NetHdr};

fn set(world: &World, name: &str, change: impl FnOnce(&mut AdapterSettings)) -> Result<()> {
    let mut settings = AdapterSettings::default();
    change(&mut settings);
    let before = world.rig.nic.adapter(name)?.settings;
    world.rig.nic.configure_adapter(name, &settings)?;
    let acting = world.rig.nic.adapter(name)?.settings;
    assert_eq!(
        (acting.roce_mode, acting.network_direct),
        (before.roce_mode, before.network_direct),
        "they wait for a restart"
    );
    world.rig.nic.restart_adapter(name)?;
    Ok(())
}

fn kinds(world: &World, name: &str) -> Result<Vec<GidKind>> {
    let status = world.rig.nic.rdma(name)?.context("a function")?;
    Ok(status.gids.iter().map(|g| g.kind).collect())
}

fn first_of_v1(driver: &mut Driver) -> GidRecord {
    let gids = driver.gids();
    let v1 = gids.into_iter().find(|g| g.kind == Kind::RoceV1.number());
    v1.expect("the adapter's own entry")
}

/// Brings a QP up over RoCEv1.
fn up(side: &mut Side, qp: &Qp, to: &GidRecord, number: u32) {
    let own = first_of_v1(&mut side.d);
    let address = AddressVector {
        dgid: to.gid,
        dmac: to.mac,
        sgid_index: own.index,
        hop_limit: 64,
        ..AddressVector::default()
    };
    side.d.up(qp, &link(address, number));
}

#[test]
fn mode_0_is_rocev1_only() -> Result<()> {
    let world = World::new(1, &["a", "b"])?;
    let nic = &world.rig.nic;
    assert_eq!(kinds(&world, "a")?, [GidKind::RoceV1, GidKind::RoceV2]);
    let setting = |kind| GidSetting {
        gid: [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7],
        kind,
        vlan: None,
    };
    nic.set_gid("a", Some(5), Some(setting(GidKind::RoceV2)))?;
    set(&world, "a", |s| s.roce_mode = RoceMode::V1)?;
    assert_eq!(kinds(&world, "a")?, [GidKind::RoceV1]);
    let refused = nic.set_gid("a", None, Some(setting(GidKind::RoceV2)));
    assert!(
        matches!(refused, Err(NicError::Invalid { field: "version", .. })),
        "{refused:?}"
    );
    nic.set_gid("a", None, Some(setting(GidKind::RoceV1)))?;

    // With a neighbour that speaks both.
    let (mut a, mut b) = (world.side("a")?, world.side("b")?);
    let (mut qa, mut qb) = (a.qp(QpType::Rc), b.qp(QpType::Rc));
    let (at_a, at_b) = (first_of_v1(&mut a.d), first_of_v1(&mut b.d));
    up(&mut a, &qa, &at_b, qb.number);
    up(&mut b, &qb, &at_a, qa.number);
    let capture = nic.capture(CaptureSpec {
        owners: vec!["b".into()],
        snaplen: 64,
        drops_only: false,
    })?;
    world.rig.settle()?;
    b.receive(&mut qb, 1, &[b.at(0, 1000)]);
    a.done(&mut qa, &Wr::send(1, &[a.at(0, 1000)]));
    b.cq.good(1);
    let frame = capture.frames.recv_timeout(PATIENCE)?;
    assert_eq!(frame.data[12..14], [0x89, 0x15]);
    drop(capture);
    drop((a, b));

    // Back: what the operator had set is there again.
    set(&world, "a", |_| {})?;
    let status = nic.rdma("a")?.context("a function")?;
    let own: Vec<_> = status.gids.iter().map(|g| (g.index, g.kind)).collect();
    let (v1, v2) = (GidKind::RoceV1, GidKind::RoceV2);
    assert_eq!(own, [(0, v1), (1, v2), (2, v1), (5, v2)]);
    world.finish()
}

#[test]
fn without_rdma_drivers_are_refused_and_roce_is_the_ethernet_drivers() -> Result<()> {
    type Change = fn(&mut AdapterSettings);
    let ways: [(Change, &str); 2] = [
        (|s| s.roce_mode = RoceMode::Off, "roce_mode is 4"),
        (|s| s.network_direct = false, "*NetworkDirect is 0"),
    ];
    for (change, why) in ways {
        let mut world = World::new(1, &["a", "b"])?;
        // A driver that is there when it is switched off is ended.
        let driver = world.driver("a")?;
        assert_eq!(world.rig.nic.rdma("a")?.context("a function")?.off, None);
        set(&world, "a", change)?;
        let gone = || {
            let status = world.rig.nic.rdma("a");
            status.is_ok_and(|s| s.is_some_and(|s| s.state == AttachState::Detached))
        };
        assert!(wait_for(gone), "the driver is still there");
        drop(driver);
        let status = world.rig.nic.rdma("a")?.context("a function")?;
        assert!(
            status.off.is_some_and(|off| off.contains(why)),
            "{:?}",
            status.off
        );
        assert!(status.gids.is_empty());

        // The next one is told why.
        let mut driver = Driver::attach(world.socket("a"), Options::default())?;
        let hello = Hello {
            abi_major: 1,
            ..Hello::default()
        };
        let reply = driver
            .ask::<_, vnic_device::command::device::HelloReply>(Opcode::Hello, &hello, &[])
            .expect_err("no RDMA");
        assert_eq!(reply.status, CommandStatus::NotPermitted);
        assert!(reply.text().contains(why), "{}", reply.text());

        // RoCE goes where it goes on a card without RDMA.
        let mut ga = world.rig.attach("a", driver::Options::default())?;
        let mut gb = world.rig.attach("b", driver::Options::default())?;
        let (to, from) = (
            world.rig.nic.adapter("a")?.spec.macs[0],
            world.rig.nic.adapter("b")?.spec.macs[0],
        );
        let frame = eth(to, from, [0x89, 0x15], &[0; 60]);
        gb.send_wait(0, &frame, NetHdr::default());
        let (_, _, got) = ga.recv(0, deadline()).context("a frame")?;
        assert_eq!(got, frame);
        drop((ga, gb, driver));

        // On again.
        set(&world, "a", |_| {})?;
        let side = world.side("a")?;
        assert_eq!(kinds(&world, "a")?.len(), 2);
        drop(side);
        world.finish()?;
    }
    Ok(())
}
