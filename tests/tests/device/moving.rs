//! A guest that moves from one adapter to another ([`vnic_backend::Moving`]): the addresses are where the guest runs.

use anyhow::Result;
use vhost::VhostBackend;
use vnic_backend::{AdapterSpec, AttachState, DropReason, MacAddr, MovePart, Moving, NicEventKind, VlanMode};
use vnic_tests::driver::packets::{Number, numbered};
use vnic_tests::driver::rig::{Copies, Rig, deadline, wait_for};
use vnic_tests::driver::{Guest, NetHdr, Options, Wire, feature};

fn frame(to: MacAddr, from: MacAddr, seq: u64) -> Vec<u8> {
    let n = Number {
        sender: 1,
        stream: 0,
        seq,
    };
    numbered(to, from, n, 60)
}

fn pass(from: &mut Guest, to: &mut Guest, frame: &[u8]) {
    from.send_wait(0, frame, NetHdr::default());
    loop {
        let (_, _, got) = to.recv(0, deadline()).expect("a frame");
        if got == frame {
            return;
        }
    }
}

fn change(rig: &Rig, name: &str, change: impl FnOnce(&mut AdapterSpec)) -> Result<()> {
    let mut spec = rig.nic.adapter(name)?.wanted;
    change(&mut spec);
    rig.nic.update_adapter(spec)?;
    Ok(())
}

fn with(part: MovePart, peer: &str) -> Option<Moving> {
    let peer = Some(peer.to_owned());
    Some(Moving { part, peer })
}

/// Prepares the move of the guest of `a` to `b`.
fn prepare(rig: &Rig, mac: MacAddr) -> Result<()> {
    change(rig, "a", |s| s.moving = with(MovePart::Source, "b"))?;
    change(rig, "b", |s| {
        (s.macs, s.moving) = (vec![mac], with(MovePart::Target, "a"));
    })?;
    rig.nic.restart_adapter("b")?;
    Ok(())
}

fn speaks(rig: &Rig) -> Result<(bool, bool)> {
    Ok((rig.nic.adapter("a")?.speaks, rig.nic.adapter("b")?.speaks))
}

/// The adapter whose static address it is.
fn place(rig: &Rig, mac: MacAddr) -> Vec<String> {
    let fdb = rig.nic.fdb();
    fdb.into_iter()
        .filter(|e| e.mac == mac)
        .map(|e| e.owner)
        .collect()
}

fn protected(rig: &mut Rig) -> Result<[MacAddr; 3]> {
    let safe = |s: &mut AdapterSpec| s.anti_spoofing = true;
    Ok([
        rig.add_with("a", safe)?,
        rig.add_with("b", safe)?,
        rig.add_with("c", safe)?,
    ])
}

fn moved(part: MovePart, peer: Option<&str>, speaks: bool) -> impl Fn(&NicEventKind) -> bool + use<> {
    let peer = peer.map(str::to_owned);
    move |kind| {
        *kind
            == NicEventKind::GuestMoved {
                part,
                peer: peer.clone(),
                speaks,
            }
    }
}

#[test]
fn the_addresses_go_with_the_guest_and_come_back_with_it() -> Result<()> {
    for cores in [1, 2] {
        let mut rig = Rig::new(cores)?;
        let [a, own, c] = protected(&mut rig)?;
        let mut guest = rig.attach("a", Options::default())?;
        let mut other = rig.attach("c", Options::default())?;
        prepare(&rig, a)?;
        assert_eq!(
            (speaks(&rig)?, place(&rig, a)),
            ((true, false), vec!["a".to_owned()])
        );
        assert!(place(&rig, own).is_empty());
        pass(&mut guest, &mut other, &frame(c, a, 1));
        pass(&mut other, &mut guest, &frame(a, c, 2));

        // As QEMU does: the rings stop at the source, and go on at the target from where they stand.
        guest.detach()?;
        rig.state("a", AttachState::Detached)?;
        assert_eq!(speaks(&rig)?, (true, false));
        guest.connect(rig.socket("b"))?;
        rig.up("b")?;
        assert_eq!(
            (speaks(&rig)?, place(&rig, a)),
            ((false, true), vec!["b".to_owned()])
        );
        pass(&mut guest, &mut other, &frame(c, a, 3));
        pass(&mut other, &mut guest, &frame(a, c, 4));
        rig.wait_event("b", moved(MovePart::Target, Some("a"), true))?;

        // The target fails: the guest runs at the source again.
        guest.hang_up();
        rig.state("b", AttachState::Detached)?;
        guest.connect(rig.socket("a"))?;
        rig.up("a")?;
        assert_eq!(
            (speaks(&rig)?, place(&rig, a)),
            ((true, false), vec!["a".to_owned()])
        );
        pass(&mut guest, &mut other, &frame(c, a, 5));
        pass(&mut other, &mut guest, &frame(a, c, 6));
        rig.wait_event("a", moved(MovePart::Source, Some("b"), true))?;
        for name in ["a", "b"] {
            assert_eq!(rig.drops(name, DropReason::SpoofedSource), 0);
        }

        // It moves once more, and the move ends: each adapter has its own address for good.
        guest.detach()?;
        guest.connect(rig.socket("b"))?;
        rig.up("b")?;
        change(&rig, "a", |s| (s.macs, s.moving) = (vec![own], None))?;
        rig.nic.restart_adapter("a")?;
        change(&rig, "b", |s| s.moving = None)?;
        assert_eq!(
            (speaks(&rig)?, place(&rig, a), place(&rig, own)),
            ((true, true), vec!["b".to_owned()], vec!["a".to_owned()])
        );
        pass(&mut guest, &mut other, &frame(c, a, 7));
        let mut next = rig.attach("a", Options::default())?;
        pass(&mut next, &mut guest, &frame(a, own, 8));
        rig.finish(Copies::Unknown)?;
    }
    Ok(())
}

#[test]
fn while_both_guests_run_the_first_speaks_and_the_second_follows_when_it_stops() -> Result<()> {
    for spoofing in [true, false] {
        let mut rig = Rig::new(1)?;
        let [a, _, c] = protected(&mut rig)?;
        change(&rig, "b", |s| s.anti_spoofing = spoofing)?;
        let mut first = rig.attach("a", Options::default())?;
        let mut other = rig.attach("c", Options::default())?;
        prepare(&rig, a)?;
        let mut second = rig.attach("b", Options::default())?;
        second.send_wait(0, &frame(c, a, 1), NetHdr::default());
        second.drain();
        rig.settle()?;
        assert_eq!(rig.drops("b", DropReason::SpoofedSource), 1);
        assert!(other.try_recv(0).is_none());
        pass(&mut first, &mut other, &frame(c, a, 2));
        pass(&mut other, &mut first, &frame(a, c, 3));
        assert_eq!(speaks(&rig)?, (true, false));

        first.detach()?;
        assert!(wait_for(|| speaks(&rig).is_ok_and(|s| s == (false, true))));
        pass(&mut second, &mut other, &frame(c, a, 4));
        pass(&mut other, &mut second, &frame(a, c, 5));
        // Nobody else may have the address meanwhile.
        let mut spec = rig.spec("d");
        spec.macs = vec![a];
        assert!(rig.nic.add_adapter(spec).is_err());
        rig.finish(Copies::Unknown)?;
    }
    Ok(())
}

#[test]
fn the_source_of_a_move_to_another_daemon_gives_its_addresses_up_while_its_guest_stands() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let [a, _, c] = protected(&mut rig)?;
    // (An adapter that learns stands for the port behind which the other daemon is.)
    rig.add("uplink")?;
    let mut guest = rig.attach("a", Options::default())?;
    let mut other = rig.attach("c", Options::default())?;
    let mut uplink = rig.attach("uplink", Options::default())?;
    let elsewhere = |part| Some(Moving { part, peer: None });
    change(&rig, "a", |s| s.moving = elsewhere(MovePart::Source))?;
    pass(&mut other, &mut guest, &frame(a, c, 1));
    guest.stop_ring(0)?;
    guest.stop_ring(1)?;
    rig.wait_event("a", moved(MovePart::Source, None, false))?;
    // The other daemon's announcement comes in by the uplink.
    pass(&mut uplink, &mut other, &frame(MacAddr::BROADCAST, a, 2));
    assert_eq!(place(&rig, a), ["uplink"]);
    pass(&mut other, &mut uplink, &frame(a, c, 3));

    // The move fails: the guest goes on here.
    guest.start_rings()?;
    rig.up("a")?;
    rig.wait_event("a", moved(MovePart::Source, None, true))?;
    assert_eq!(place(&rig, a), ["a"]);
    pass(&mut other, &mut guest, &frame(a, c, 4));
    pass(&mut guest, &mut other, &frame(c, a, 5));
    // A target whose source is elsewhere is silent until its guest runs.
    change(&rig, "b", |s| s.moving = elsewhere(MovePart::Target))?;
    assert!(!rig.nic.adapter("b")?.speaks);
    let target = rig.attach("b", Options::default())?;
    assert!(rig.nic.adapter("b")?.speaks);
    drop(target);
    rig.finish(Copies::Unknown)
}

#[test]
fn a_vmm_that_migrates_has_its_guest_announced_in_all_its_vlans() -> Result<()> {
    for cores in [1, 2] {
        let mut rig = Rig::new(cores)?;
        let a = rig.add_with("a", |s| {
            s.anti_spoofing = true;
            s.vlan = VlanMode::Trunk {
                native: 1,
                allowed: Some([5, 6].into()),
            };
        })?;
        rig.add("c")?;
        rig.add_with("d", |s| s.vlan = VlanMode::Access(6))?;
        let wire = Wire::of_port(&rig, &format!("vnrarp{cores}"), None)?;
        let migrates = || Options::default().with(feature::GUEST_ANNOUNCE);
        let mut guest = rig.attach("a", migrates())?;
        let (mut c, mut d) = (
            rig.attach("c", Options::default())?,
            rig.attach("d", Options::default())?,
        );
        let rarp = |frame: &[u8]| {
            let tagged = frame[12..14] == [0x81, 0];
            let at = if tagged { 16 } else { 12 };
            let vlan = tagged.then(|| u16::from_be_bytes([frame[14], frame[15]]));
            (frame[..6] == [0xff; 6] && frame[6..12] == a.0 && frame[at..at + 2] == [0x80, 0x35])
                .then_some(vlan)
        };
        // An address of somebody else is not announced.
        guest.send_rarp(MacAddr([2, 0, 0, 0, 7, 7]))?;
        guest.send_rarp(a)?;
        let mut vlans = Vec::new();
        while vlans.len() < 3 {
            let (_, _, frame) = c.recv(0, deadline()).expect("an announcement");
            assert!(frame[6..12] != [2, 0, 0, 0, 7, 7], "{frame:02x?}");
            vlans.extend(rarp(&frame));
        }
        assert_eq!(vlans, [None, Some(5), Some(6)]);
        // (The host's own frames come by the wire, in VLAN 1 only.)
        let (_, _, frame) = d.recv(0, deadline()).expect("an announcement");
        assert_eq!(rarp(&frame), Some(None));
        if let Some(wire) = wire {
            // (The kernel takes the tags off the copies that this socket gets.)
            for _ in 0..3 {
                wire.recv(|frame| rarp(frame).is_some())?;
            }
        }
        // A VMM that does not migrate guests is not offered the feature (such as User-Mode-Linux, whose guests need a control queue).
        drop(guest);
        let mut plain = rig.attach("a", Options::default())?;
        assert_eq!(plain.frontend()?.get_features()? & feature::GUEST_ANNOUNCE, 0);
        assert!(plain.send_rarp(a).is_err());
        drop(plain);
        rig.finish(Copies::Unknown)?;
    }
    Ok(())
}
