//! `VlanID`, `VlanPrio` and `TxUntagPriorityTag`: what the guest, its neighbours and a trunk see.

use anyhow::{Result, ensure};
use vnic_backend::settings::AdapterSettings;
use vnic_backend::{CaptureSpec, Direction, DropReason, MacAddr, QosSpec, Tpid, VlanMode};
use vnic_device::verbs::QpType;
use vnic_tests::driver::packets::{BROADCAST, Number, numbered, tagged};
use vnic_tests::driver::rdma::{World, Wr, fill, link};
use vnic_tests::driver::rig::{Copies, PATIENCE, Rig, deadline, wait_for};
use vnic_tests::driver::{Guest, NetHdr, Options, Wire};

/// Settings, given to an adapter whose guest is not there yet.
fn set(rig: &Rig, name: &str, change: impl FnOnce(&mut AdapterSettings)) -> Result<()> {
    let mut settings = AdapterSettings::default();
    change(&mut settings);
    rig.nic.configure_adapter(name, &settings)?;
    // They wait for a restart.
    rig.nic.restart_adapter(name)?;
    Ok(())
}

fn frame(to: MacAddr, from: MacAddr, seq: u64) -> Vec<u8> {
    let n = Number {
        sender: 1,
        stream: 0,
        seq,
    };
    numbered(to, from, n, 60)
}

fn send(g: &mut Guest, frame: &[u8]) {
    g.send_wait(0, frame, NetHdr::default());
}

fn expect(g: &mut Guest, frame: &[u8]) {
    loop {
        let (_, _, got) = g.recv(0, deadline()).expect("a frame");
        // (This machine speaks on a wire of its own accord: IPv6 to multicast groups.)
        if got[..2] != [0x33, 0x33] {
            return assert!(got == frame, "{got:02x?} instead of {frame:02x?}");
        }
    }
}

/// A neighbour whose tags have another TPID: they are the NIC's own on the way in, and its own on the way out.
#[test]
fn a_port_with_another_tpid() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let a = rig.add("a")?;
    let ifname = format!("vntp{}", std::process::id());
    let Some(wire) = Wire::of_port(&rig, &ifname, Some(0))? else {
        return Ok(());
    };
    let mut ga = rig.attach("a", Options::default())?;
    let spec = QosSpec {
        // (The kernel takes 0x8100 and 0x88a8 out of frames that it shows.)
        tpid: Tpid(0x9100),
        ..QosSpec::default()
    };
    rig.nic.set_qos("p0", spec.clone())?;
    let host = MacAddr([2, 0xaa, 0, 0, 0, 1]);
    let vendor = |frame: &[u8]| [&frame[..12], &[0x91, 0x00], &frame[14..]].concat();
    let out = tagged(&frame(host, a, 0), 0x6005);
    send(&mut ga, &out);
    let wanted = vendor(&out);
    wire.recv(|f| f == wanted)?;
    let plain = frame(host, a, 1);
    send(&mut ga, &plain);
    wire.recv(|f| f == plain)?;
    let back = tagged(&frame(a, host, 2), 0x6005);
    wire.send(&vendor(&back))?;
    expect(&mut ga, &back);
    // 0x8100 is no tag there: taken for one, it would name a VLAN that the neighbour did not.
    wire.send(&back)?;
    assert!(wait_for(|| rig.drops("p0", DropReason::VlanNotAllowed) == 1));
    let refused = rig.nic.set_qos("a", spec).expect_err("an adapter");
    assert!(refused.to_string().contains("tpid"), "{refused}");
    rig.nic.set_qos("p0", QosSpec::default())?;
    wire.send(&back)?;
    expect(&mut ga, &back);
    ga.drain();
    rig.finish(Copies::Unknown)?;
    Ok(())
}

#[test]
fn all_frames_of_the_guest_are_in_its_vlan() -> Result<()> {
    for cores in [1, 2] {
        let mut rig = Rig::new(cores)?;
        let a = rig.add("a")?;
        let trunk = rig.add("trunk")?;
        let same = rig.add("same")?;
        let other = rig.add_with("other", |s| s.vlan = VlanMode::Access(20))?;
        set(&rig, "a", |s| (s.vlan_id, s.vlan_prio) = (10, 5))?;
        set(&rig, "same", |s| s.vlan_id = 10)?;
        let mut ga = rig.attach("a", Options::default())?;
        let mut gt = rig.attach("trunk", Options::default())?;
        let mut gs = rig.attach("same", Options::default())?;
        let mut go = rig.attach("other", Options::default())?;
        const TCI: u16 = 5 << 13 | 10;

        // To everybody: the trunk sees the tag with its priority, the neighbour in the VLAN sees none.
        let f = frame(BROADCAST, a, 1);
        send(&mut ga, &f);
        expect(&mut gt, &tagged(&f, TCI));
        expect(&mut gs, &f);
        // To one.
        let f = frame(same, a, 2);
        send(&mut ga, &f);
        expect(&mut gs, &f);
        // What comes tagged with the VLAN comes without its tag; what is in no VLAN or in another does not come.
        send(&mut gt, &frame(a, trunk, 3));
        send(&mut gt, &tagged(&frame(a, trunk, 3), 20));
        let f = frame(a, other, 3);
        send(&mut go, &f);
        expect(&mut gt, &tagged(&f, 20));
        let f = frame(a, trunk, 4);
        send(&mut gt, &tagged(&f, 3 << 13 | 10));
        expect(&mut ga, &f);
        // The trunk is known in the VLAN by now.
        let f = frame(trunk, a, 5);
        send(&mut ga, &f);
        expect(&mut gt, &tagged(&f, TCI));
        // A neighbour in the VLAN has a priority of its own: 0.
        let f = frame(trunk, same, 6);
        send(&mut gs, &f);
        expect(&mut gt, &tagged(&f, 10));
        // The guest cannot choose another VLAN.
        send(&mut ga, &tagged(&frame(trunk, a, 7), 20));
        ga.drain();
        assert_eq!(rig.drops("a", DropReason::VlanNotAllowed), 1);

        // Off again: as if nothing had been set.
        set(&rig, "a", |_| {})?;
        let mut ga = rig.attach("a", Options::default())?;
        let f = frame(trunk, a, 8);
        send(&mut ga, &f);
        expect(&mut gt, &f);
        drop((ga, gt, gs, go));
        rig.finish(Copies::Unknown)?;
    }
    Ok(())
}

#[test]
fn a_priority_without_a_vlan() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let (a, b) = (rig.add("a")?, rig.add("b")?);
    let mut gb = rig.attach("b", Options::default())?;
    let priority = |p: u16| p << 13;

    // The guest's own priority tags leave as they are.
    let mut ga = rig.attach("a", Options::default())?;
    let f = frame(b, a, 1);
    send(&mut ga, &tagged(&f, priority(6)));
    expect(&mut gb, &tagged(&f, priority(6)));
    send(&mut ga, &f);
    expect(&mut gb, &f);

    // A priority without a VLAN: a priority tag.
    set(&rig, "a", |s| s.vlan_prio = 3)?;
    let mut ga = rig.attach("a", Options::default())?;
    send(&mut ga, &f);
    expect(&mut gb, &tagged(&f, priority(3)));
    send(&mut ga, &tagged(&f, priority(6)));
    expect(&mut gb, &tagged(&f, priority(6)));
    send(&mut ga, &tagged(&f, 7 << 13 | 20));
    expect(&mut gb, &tagged(&f, 7 << 13 | 20));

    // No tag where there is a priority only.
    set(&rig, "a", |s| (s.vlan_prio, s.tx_untag_priority_tag) = (3, true))?;
    let mut ga = rig.attach("a", Options::default())?;
    send(&mut ga, &f);
    expect(&mut gb, &f);
    send(&mut ga, &tagged(&f, priority(6)));
    expect(&mut gb, &f);
    send(&mut ga, &tagged(&f, 7 << 13 | 20));
    expect(&mut gb, &tagged(&f, 7 << 13 | 20));

    // The other way nothing is changed.
    let f = frame(a, b, 2);
    send(&mut gb, &tagged(&f, priority(6)));
    expect(&mut ga, &tagged(&f, priority(6)));
    drop((ga, gb));
    rig.finish(Copies::Unknown)
}

#[test]
fn roce_is_in_the_vlan_too() -> Result<()> {
    let world = World::new(1, &["a", "b"])?;
    set(&world.rig, "a", |s| (s.vlan_id, s.vlan_prio) = (10, 5))?;
    set(&world.rig, "b", |s| s.vlan_id = 10)?;
    let (mut a, mut b) = (world.side("a")?, world.side("b")?);
    let (mut qa, mut qb) = a.pair(&mut b, QpType::Rc);
    // Packets of a service level have its priority in the tag.
    let (mut third, peer) = (a.qp(QpType::Rc), b.qp(QpType::Rc));
    let mut address = a.d.address_of(&mut b.d);
    address.service_level = 3;
    a.d.up(&third, &link(address, peer.number));
    let bytes = fill(1, 5000);
    a.mr.area.write(0, &bytes);
    b.receive(&mut qb, 1, &[b.at(0, 8000)]);
    a.done(&mut qa, &Wr::send(1, &[a.at(0, 5000)]));
    b.cq.good(1);
    assert_eq!(b.mr.area.bytes(0, 5000), bytes);

    // The same pair, when the other one is not in the VLAN any more but sees all: its frames come tagged.
    let capture = world.rig.nic.capture(CaptureSpec {
        owners: vec!["b".into()],
        snaplen: 64,
        drops_only: false,
    })?;
    world.rig.settle()?;
    let settings = AdapterSettings::default();
    world.rig.nic.configure_adapter("b", &settings)?;
    world.rig.nic.restart_adapter("b")?;
    let _again = world.side("b")?;
    for (pair, priority) in [(&mut qa, 5), (&mut third, 3)] {
        a.post(pair, &Wr::send(2, &[a.at(0, 100)]));
        let give_up = deadline();
        loop {
            let f = capture.frames.recv_timeout(PATIENCE)?;
            // (Those of the other pair come again.)
            if f.direction == Direction::Egress
                && f.data[..6] == [2, 0, 0, 0, 0, 2]
                && f.data[12..18] == [0x81, 0, priority << 5, 10, 0x86, 0xdd]
            {
                break;
            }
            ensure!(
                std::time::Instant::now() < give_up,
                "no RoCE frame of priority {priority} came"
            );
        }
    }
    drop(capture);
    world.finish()
}
