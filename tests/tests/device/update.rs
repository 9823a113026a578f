//! Changes of an adapter's specification ([`vnic_backend::Nic::update_adapter`]): under traffic, and by a restart.

use anyhow::Result;
use vnic_backend::AttachState::Detached;
use vnic_backend::{
    AdapterSpec, DropReason, GidKind, GidSetting, GidSource, MacAddr, NicEventKind, VlanMode,
};
use vnic_tests::driver::packets::{Number, numbered};
use vnic_tests::driver::rig::{Copies, Rig, deadline};
use vnic_tests::driver::{Guest, NetHdr, Options};

const MORE: MacAddr = MacAddr([2, 0, 0, 0, 9, 1]);

fn frame(to: MacAddr, from: MacAddr, seq: u64, len: usize) -> Vec<u8> {
    let n = Number {
        sender: 1,
        stream: 0,
        seq,
    };
    numbered(to, from, n, len)
}

fn pass(from: &mut Guest, to: &mut Guest, frame: &[u8]) {
    from.send_wait(0, frame, NetHdr::default());
    let (_, _, got) = to.recv(0, deadline()).expect("a frame");
    assert!(got == frame, "{got:02x?} instead of {frame:02x?}");
}

fn wanted(rig: &Rig, change: impl FnOnce(&mut AdapterSpec)) -> Result<AdapterSpec> {
    let mut spec = rig.nic.adapter("a")?.wanted;
    change(&mut spec);
    Ok(spec)
}

#[test]
fn vlans_anti_spoofing_and_further_addresses_change_under_traffic() -> Result<()> {
    for cores in [1, 2] {
        let mut rig = Rig::new(cores)?;
        let (a, b) = (rig.add("a")?, rig.add("b")?);
        let mut ga = rig.attach("a", Options::default())?;
        let mut gb = rig.attach("b", Options::default())?;
        pass(&mut ga, &mut gb, &frame(b, MORE, 1, 60));

        let spec = wanted(&rig, |s| s.anti_spoofing = true)?;
        let status = rig.nic.update_adapter(spec)?;
        assert_eq!(status.spec, status.wanted);
        ga.send_wait(0, &frame(b, MORE, 2, 60), NetHdr::default());
        ga.drain();
        rig.settle()?;
        assert_eq!(rig.drops("a", DropReason::SpoofedSource), 1);

        let spec = wanted(&rig, |s| s.macs.push(MORE))?;
        rig.nic.update_adapter(spec)?;
        pass(&mut ga, &mut gb, &frame(b, MORE, 3, 60));
        pass(&mut gb, &mut ga, &frame(MORE, b, 4, 60));

        // In another VLAN nobody hears it; back in the first, both do. The connection of the VMM stays all the time.
        let spec = wanted(&rig, |s| s.vlan = VlanMode::Access(7))?;
        rig.nic.update_adapter(spec)?;
        gb.send_wait(0, &frame(a, b, 5, 60), NetHdr::default());
        gb.drain();
        rig.settle()?;
        assert!(ga.try_recv(0).is_none());
        let spec = wanted(&rig, |s| s.vlan = VlanMode::default())?;
        rig.nic.update_adapter(spec)?;
        pass(&mut gb, &mut ga, &frame(a, b, 6, 60));
        assert_eq!(
            rig.count_events("a", |k| *k == NicEventKind::AdapterChanged { waits: false }),
            4
        );
        assert_eq!(
            rig.count_events("a", |k| matches!(k, NicEventKind::AdapterState(Detached))),
            0
        );
        rig.finish(Copies::Unknown)?;
    }
    Ok(())
}

#[test]
fn what_cannot_change_under_traffic_changes_by_a_restart_and_nothing_else_is_lost() -> Result<()> {
    let mut rig = Rig::new(2)?;
    let [first, second] = [rig.cores[0], rig.cores[1]];
    let rdma = rig.socket("a-rdma");
    let a = rig.add_with("a", |s| s.rdma_socket = Some(rdma))?;
    let b = rig.add_with("b", |s| s.mtu = 9000)?;
    let large = Options {
        rx_buffer: 16_384,
        tx_buffer: 16_384,
        ..Options::default()
    };
    let mut ga = rig.attach("a", large.clone())?;
    let mut gb = rig.attach("b", large)?;
    pass(&mut ga, &mut gb, &frame(b, a, 1, 60));
    let gid = GidSetting {
        gid: [0xfd, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
        kind: GidKind::RoceV2,
        vlan: None,
    };
    let index = rig.nic.set_gid("a", Some(9), Some(gid))?;
    let before = rig.nic.adapter("a")?;
    let sent = rig.counter("a", "tx_frames");
    assert!(sent > 0);

    let new = MacAddr([2, 0, 0, 0, 8, 8]);
    let spec = wanted(&rig, |s| {
        (s.mtu, s.queue_pairs, s.data_core) = (9000, 4, Some(second));
        s.macs = vec![new];
        s.eth_socket = rig.socket("moved");
        s.rdma_memory_mib = 300;
    })?;
    let status = rig.nic.update_adapter(spec.clone())?;
    assert_eq!((&status.spec, &status.wanted), (&before.spec, &spec));
    // Nothing of that acts: the guest goes on.
    pass(&mut gb, &mut ga, &frame(a, b, 2, 60));
    // What waits belongs to the adapter already.
    let other = rig.spec("other");
    let taken = AdapterSpec {
        macs: vec![new],
        ..other
    };
    let error = rig.nic.add_adapter(taken).expect_err("the address is taken");
    assert!(error.to_string().contains("belongs to adapter a"), "{error}");

    let status = rig.nic.restart_adapter("a")?;
    assert_eq!((&status.spec, &status.wanted), (&spec, &spec));
    assert_eq!((status.port, status.state), (before.port, Detached));
    assert!(!rig.socket("a").exists());
    ga.connect(rig.socket("moved"))?;
    rig.up("a")?;
    pass(&mut gb, &mut ga, &frame(new, b, 3, 8000));
    pass(&mut ga, &mut gb, &frame(b, new, 4, 8000));
    assert!(rig.counter("a", "tx_frames") > sent);
    let function = rig.nic.rdma("a")?.expect("a function");
    let row = function.gids.iter().find(|row| row.index == index);
    let row = row.expect("the operator's GID is there");
    assert_eq!((row.gid, row.source), (gid.gid, GidSource::Operator));
    assert_eq!(rig.nic.adapter("a")?.spec.data_core, Some(second));

    // Back to the first core and without an RDMA function.
    let spec = wanted(&rig, |s| (s.data_core, s.rdma_socket) = (Some(first), None))?;
    rig.nic.update_adapter(spec)?;
    rig.nic.restart_adapter("a")?;
    assert!(rig.nic.rdma("a")?.is_none());
    ga.connect(rig.socket("moved"))?;
    rig.up("a")?;
    pass(&mut gb, &mut ga, &frame(new, b, 5, 60));
    rig.finish(Copies::Unknown)
}

#[test]
fn a_restart_that_is_refused_leaves_the_adapter_as_it_was() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let (a, b) = (rig.add("a")?, rig.add("b")?);
    let before = rig.nic.adapter("a")?.spec;
    let spec = wanted(&rig, |s| s.eth_socket = rig.dir().join("nowhere").join("a.sock"))?;
    rig.nic.update_adapter(spec.clone())?;
    let error = rig.nic.restart_adapter("a").expect_err("no such directory");
    assert!(error.to_string().contains("nowhere"), "{error}");
    let status = rig.nic.adapter("a")?;
    assert_eq!((&status.spec, &status.wanted), (&before, &spec));
    let mut ga = rig.attach("a", Options::default())?;
    let mut gb = rig.attach("b", Options::default())?;
    pass(&mut ga, &mut gb, &frame(b, a, 1, 60));
    // Refused changes change nothing.
    for wrong in [
        wanted(&rig, |s| s.mtu = 1)?,
        wanted(&rig, |s| s.macs = vec![b])?,
        wanted(&rig, |s| s.data_core = Some(4095))?,
    ] {
        rig.nic.update_adapter(wrong).expect_err("a wrong value");
        assert_eq!(rig.nic.adapter("a")?.wanted, spec);
    }
    // As it was: nothing waits any more.
    rig.nic.update_adapter(before.clone())?;
    rig.nic.restart_adapter("a")?;
    assert_eq!(rig.nic.adapter("a")?.wanted, before);
    rig.finish(Copies::Unknown)
}
