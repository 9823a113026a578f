//! Bonds on the control side: what is refused, what becomes of ports and links, and what events say of it.

use anyhow::{Context, Result, ensure};
use vnic_backend::lag::{Affinity, BondSettings, Member, Mode, Policy};
use vnic_backend::{
    BondSpec, BondStatus, CaptureSpec, FaultSpec, LacpSpec, MacAddr, NicEventKind, PortKind, PortSpec,
    VlanMode, fault,
};
use vnic_tests::driver::packets::{Number, numbered};
use vnic_tests::driver::rig::{Copies, Rig, cpus, deadline, wait_for};
use vnic_tests::driver::veth::{Veth, ends, ip, refusal};
use vnic_tests::driver::{Guest, NetHdr, Options};

fn port(name: &str, ifname: &str) -> PortSpec {
    PortSpec::new(
        name,
        PortKind::Packet {
            ifname: ifname.into(),
        },
    )
}

fn bond(name: &str, members: &[&str]) -> BondSpec {
    BondSpec::new(name, members.iter().map(|m| (*m).to_owned()).collect())
}

fn backup(primary: Option<Member>) -> BondSettings {
    BondSettings {
        mode: Mode::ActiveBackup {
            primary,
            failback: true,
        },
        ..BondSettings::default()
    }
}

fn aggregate(lacp: bool) -> BondSettings {
    BondSettings {
        mode: Mode::Aggregate {
            policy: Policy::default(),
            lacp,
        },
        ..BondSettings::default()
    }
}

/// All refusals, each with a word of its reason; nothing is half done.
#[test]
fn refusals_leave_all_as_it_was() -> Result<()> {
    let Some(_veth) = Veth::several(1500, 4)? else {
        return Ok(());
    };
    let mut rig = Rig::new(if cpus().len() > 1 { 2 } else { 1 })?;
    rig.add("vf0")?;
    for i in 0..3 {
        rig.nic.add_port(port(&format!("p{i}"), &ends(i)[0]))?;
    }
    let mut small = port("small", "left3");
    (small.mtu, small.data_core) = (1400, rig.cores.last().copied());
    rig.nic.add_port(small)?;
    rig.nic.set_bond(bond("taken", &["p2"]))?;
    let before = (rig.nic.bonds(), rig.nic.ports());
    rig.forget_events();

    let with = |change: &dyn Fn(&mut BondSpec)| {
        let mut spec = bond("b", &["p0", "p1"]);
        change(&mut spec);
        spec
    };
    let lacp = LacpSpec::default();
    let mut bad: Vec<(BondSpec, &str)> = vec![
        (with(&|s| s.name = "B".into()), "name: \"B\""),
        (with(&|s| s.name = "vf0".into()), "bond vf0 exists already"),
        (with(&|s| s.name = "p0".into()), "bond p0 exists already"),
        (with(&|s| s.members.clear()), "members: 0; allowed: 1 to 32 ports"),
        (
            with(&|s| s.members = (0..33).map(|i| format!("x{i}")).collect()),
            "members: 33; allowed: 1 to 32 ports",
        ),
        (
            with(&|s| s.members[1] = "nowhere".into()),
            "members: no port is named nowhere",
        ),
        (
            with(&|s| s.members[1] = "vf0".into()),
            "members: no port is named vf0",
        ),
        (
            with(&|s| s.members[1] = "p0".into()),
            "members: p0 is there twice",
        ),
        (
            with(&|s| s.members[1] = "p2".into()),
            "members: p2 is a member of taken already",
        ),
        (
            with(&|s| s.members[1] = "small".into()),
            "members: p0 has the MTU 1500, small has 1400",
        ),
        (
            with(&|s| s.tag = Some((0, 0))),
            "tag: VLAN 0; allowed are 1 to 4094",
        ),
        (with(&|s| s.tag = Some((4095, 0))), "tag: VLAN 4095"),
        (
            with(&|s| s.tag = Some((1, 8))),
            "tag: priority 8; allowed are 0 to 7",
        ),
        (with(&|s| s.vlan = VlanMode::Access(0)), "vlan: 0"),
        (
            with(&|s| s.settings = backup(Some(Member(2)))),
            "primary: 2; allowed: 0 to 1",
        ),
        (
            with(&|s| s.settings.quiet = std::time::Duration::from_secs(2)),
            "quiet: 2s",
        ),
        (with(&|s| s.settings.flows = 1 << 20), "flows: 1048576"),
        (with(&|s| s.lacp = Some(lacp)), "lacp: the mode is static"),
        (with(&|s| s.settings = aggregate(true)), "lacp: the mode is LACP"),
        (
            with(&|s| (s.settings, s.lacp) = (backup(None), Some(lacp))),
            "lacp: only an aggregate speaks LACP",
        ),
        (
            with(&|s| {
                s.settings = aggregate(true);
                s.lacp = Some(LacpSpec { key: 0, ..lacp });
            }),
            "key: 0; allowed: 1 to 65535",
        ),
        (
            with(&|s| s.mac = Some(MacAddr([1, 0, 0, 0, 0, 0]))),
            "mac: 01:00:00:00:00:00 is no unicast address",
        ),
        (
            with(&|s| s.affinities = vec![(Affinity::UdpSourcePort(1), Member(2))]),
            "affinities: UdpSourcePort(1): member: 2; allowed: 0 to 1",
        ),
        (
            with(&|s| s.affinities = vec![(Affinity::UdpSourcePort(1), Member(0)); 2]),
            "affinities: UdpSourcePort(1) is there twice",
        ),
        (
            with(&|s| {
                s.settings = backup(None);
                s.affinities = vec![(Affinity::UdpSourcePort(1), Member(0))];
            }),
            "affinities: UdpSourcePort(1): affinity: only an aggregate has it",
        ),
        // One that is there is not changed by a change that is refused.
        (bond("taken", &["p0", "p0"]), "members: p0 is there twice"),
    ];
    if rig.cores.len() > 1 {
        rig.nic.remove_port("small")?;
        let mut far = port("far", "left3");
        far.data_core = rig.cores.last().copied();
        rig.nic.add_port(far)?;
        rig.forget_events();
        let text = format!(
            "members: p0 is served by the data core on CPU {}, far by that on CPU {}",
            rig.cores[0], rig.cores[1]
        );
        let text: &'static str = text.leak();
        bad.retain(|(spec, _)| !spec.members.contains(&"small".to_owned()));
        bad.push((with(&|s| s.members[1] = "far".into()), text));
    }
    let before = (
        before.0,
        rig.nic.ports().iter().map(|p| p.spec.clone()).collect::<Vec<_>>(),
    );
    for (spec, want) in bad {
        let text = refusal(rig.nic.set_bond(spec))?;
        ensure!(text.starts_with(want), "{text:?}, wanted: {want:?}");
        let ports: Vec<_> = rig.nic.ports().iter().map(|p| p.spec.clone()).collect();
        ensure!((rig.nic.bonds(), ports) == before, "half done: {want}");
    }
    ensure!(rig.forget_events() == 0, "{:?}", rig.events);

    // And beside bonds.
    let text = refusal(rig.nic.remove_port("p2"))?;
    ensure!(
        text.contains("p2 is a member of taken; take it out of that first"),
        "{text}"
    );
    let text = refusal(rig.nic.add_port(port("taken", "left")))?;
    ensure!(text == "port taken exists already", "{text}");
    let mut spec = rig.spec("taken");
    spec.data_core = None;
    let text = refusal(rig.nic.add_adapter(spec))?;
    ensure!(text == "adapter taken exists already", "{text}");
    let mut rule = FaultSpec::new("f", fault::Action::Drop);
    rule.to = Some("taken".into());
    let text = refusal(rig.nic.add_fault(rule))?;
    ensure!(text.contains("taken is a bond"), "{text}");
    for answer in [
        refusal(rig.nic.bond("b"))?,
        refusal(rig.nic.remove_bond("b"))?,
        refusal(rig.nic.bond_view("b"))?,
        refusal(rig.nic.set_bond_affinity("b", Affinity::UdpSourcePort(1), None))?,
    ] {
        ensure!(answer == "no bond is named b", "{answer}");
    }
    let text = refusal(
        rig.nic
            .set_bond_affinity("taken", Affinity::UdpSourcePort(1), None),
    )?;
    ensure!(text.starts_with("affinity: there is none for this"), "{text}");
    rig.finish(Copies::Unknown)
}

/// Ports become one and are themselves again; affinities stay with the bond; names are free afterwards.
#[test]
fn made_changed_and_removed() -> Result<()> {
    let Some(_veth) = Veth::several(1500, 3)? else {
        return Ok(());
    };
    let mut rig = Rig::new(1)?;
    for i in 0..3 {
        rig.nic.add_port(port(&format!("p{i}"), &ends(i)[0]))?;
    }
    let made = rig.nic.set_bond(bond("b", &["p0", "p1"]))?;
    ensure!(
        made.up && made.members.iter().all(|m| m.up && m.lacp.is_none()),
        "{made:?}"
    );
    ensure!(rig.nic.port_name(made.port).as_deref() == Some("b"));
    ensure!(rig.nic.bond("b")? == made && rig.nic.bonds() == [made.clone()]);
    let what = Affinity::UdpSourcePort(4791);
    rig.nic.set_bond_affinity("b", what, Some(Member(1)))?;
    let text = refusal(rig.nic.set_bond_affinity("b", what, Some(Member(2))))?;
    ensure!(text.starts_with("member: 2"), "{text}");
    ensure!(rig.nic.bond("b")?.spec.affinities == [(what, Member(1))]);
    ensure!(rig.nic.bond_view("b")?.affinities.len() == 1);
    rig.nic.set_bond_affinity("b", what, Some(Member(0)))?;
    ensure!(rig.nic.bond("b")?.spec.affinities == [(what, Member(0))]);
    // Settings alone, then other members, with the same number both times.
    let mut spec = rig.nic.bond("b")?.spec;
    spec.tag = Some((7, 3));
    ensure!(rig.nic.set_bond(spec.clone())?.port == made.port);
    ensure!(rig.nic.bond_view("b")?.affinities.len() == 1);
    rig.nic.set_bond_affinity("b", what, None)?;
    ensure!(rig.nic.bond("b")?.spec.affinities.is_empty());
    spec.members = vec!["p2".into(), "p0".into()];
    spec.affinities.clear();
    let changed = rig.nic.set_bond(spec.clone())?;
    ensure!(changed.port == made.port && changed.spec == spec, "{changed:?}");
    // The port that left is free.
    rig.nic.remove_port("p1")?;
    rig.nic.remove_bond("b")?;
    ensure!(rig.nic.bonds().is_empty() && rig.nic.port_name(made.port).is_none());
    rig.nic.remove_port("p0")?;
    rig.count_events("b", |_| true);
    let said: Vec<_> = rig.events.iter().map(|e| (&e.owner, &e.kind)).collect();
    let ours = said.iter().filter(|(owner, _)| *owner == "b");
    let kinds: Vec<_> = ours.map(|(_, kind)| *kind).collect();
    ensure!(
        kinds == [&NicEventKind::BondAdded, &NicEventKind::BondRemoved],
        "{said:?}"
    );
    rig.finish(Copies::Unknown)
}

fn guest(rig: &mut Rig, name: &str, mac: MacAddr) -> Result<Guest> {
    rig.add_with(name, |s| s.macs = vec![mac])?;
    rig.attach(name, Options::default())
}

fn n(seq: u64) -> Number {
    Number {
        sender: 1,
        stream: 0,
        seq,
    }
}

/// What a guest gets next, announcements aside.
fn recv(guest: &mut Guest) -> Result<Vec<u8>> {
    loop {
        let (_, _, frame) = guest.recv(0, deadline()).context("no frame")?;
        if frame.get(12..14) != Some(&[0x80, 0x35]) {
            return Ok(frame);
        }
    }
}

fn is_lost(kind: &NicEventKind) -> bool {
    matches!(kind, NicEventKind::BondMemberLost { bond, .. } if bond == "b")
}

fn is_back(kind: &NicEventKind) -> bool {
    matches!(kind, NicEventKind::BondMemberBack { bond } if bond == "b")
}

/// Two NICs, two ports each: links go and come; frames go as long as one is left; events, status and the bond's own link
/// say how it is.
#[test]
fn links_go_and_come() -> Result<()> {
    for settings in [BondSettings::default(), backup(Some(Member(0)))] {
        let Some(_veth) = Veth::several(1500, 2)? else {
            return Ok(());
        };
        let mut rigs = [Rig::new(1)?, Rig::new(1)?];
        let macs = [MacAddr([2, 0x44, 0, 0, 0, 1]), MacAddr([2, 0x44, 0, 0, 0, 2])];
        let mut guests = Vec::new();
        for (side, (rig, mac)) in rigs.iter_mut().zip(macs).enumerate() {
            for i in 0..2 {
                rig.nic.add_port(port(&format!("p{i}"), &ends(i)[side]))?;
            }
            let mut spec = bond("b", &["p0", "p1"]);
            spec.settings = settings;
            spec.settings.failback_delay = std::time::Duration::ZERO;
            rig.nic.set_bond(spec)?;
            guests.push(guest(rig, "a", mac)?);
        }
        let mut seq = 0;
        let mut carry = |guests: &mut Vec<Guest>| -> Result<()> {
            for (from, to) in [(0, 1), (1, 0)] {
                seq += 1;
                let frame = numbered(macs[to], macs[from], n(seq), 100);
                guests[from].send_wait(0, &frame, NetHdr::default());
                ensure!(recv(&mut guests[to])? == frame, "another frame");
            }
            Ok(())
        };
        carry(&mut guests)?;
        for round in 1..=2 {
            for (port, far) in [("p0", "right"), ("p1", "right1")] {
                let before = std::time::SystemTime::now();
                ip(&["link", "set", far, "down"])?;
                for rig in &mut rigs {
                    let both = || rig.count_events(port, is_lost) == round;
                    ensure!(wait_for(both), "no event for {port}");
                    let status = rig.nic.bond("b")?;
                    let lost = status.last_failover.clone().context("no failover")?;
                    ensure!(status.up && lost.port == port, "{status:?}");
                    let since = lost.at.duration_since(before)?;
                    println!(
                        "lost {since:?} after ip was started, {:?} after it was noticed",
                        lost.took
                    );
                    let up: Vec<bool> = status.members.iter().map(|m| m.up).collect();
                    ensure!(up == [port != "p0", port != "p1"], "{status:?}");
                }
                carry(&mut guests)?;
                ip(&["link", "set", far, "up"])?;
                for rig in &mut rigs {
                    ensure!(
                        wait_for(|| rig.count_events(port, is_back) == round),
                        "{port} is not back"
                    );
                }
                carry(&mut guests)?;
            }
        }
        // None is left, and one is again.
        for down in ["right", "right1"] {
            ip(&["link", "set", down, "down"])?;
        }
        for rig in &mut rigs {
            let down = |k: &NicEventKind| matches!(k, NicEventKind::BondLink { up: false });
            ensure!(
                wait_for(|| rig.count_events("b", down) == 1),
                "the bond is not down"
            );
            ensure!(!rig.nic.bond("b")?.up && rig.nic.bond("b")?.failovers == 6);
        }
        ip(&["link", "set", "right1", "up"])?;
        for rig in &mut rigs {
            let up = |k: &NicEventKind| matches!(k, NicEventKind::BondLink { up: true });
            ensure!(wait_for(|| rig.count_events("b", up) == 1), "the bond is not up");
        }
        carry(&mut guests)?;
        // A capture by the bond's name has the frames at its members.
        let capture = rigs[0].nic.capture(CaptureSpec {
            owners: vec!["b".into()],
            snaplen: 64,
            drops_only: false,
        })?;
        carry(&mut guests)?;
        ensure!(
            capture.frames.recv_deadline(deadline()).is_ok(),
            "nothing captured"
        );
        drop(capture);
        let owner = |rig: &Rig, mac| rig.nic.fdb().into_iter().find(|e| e.mac == mac).map(|e| e.owner);
        ensure!(owner(&rigs[0], macs[1]).as_deref() == Some("b"));
        for guest in &mut guests {
            guest.detach()?;
        }
        for rig in rigs {
            rig.finish(Copies::Unknown)?;
        }
    }
    Ok(())
}

/// The device of a member is deleted and made again.
#[test]
fn a_device_of_a_member_goes_and_comes() -> Result<()> {
    let Some(veth) = Veth::several(1500, 2)? else {
        return Ok(());
    };
    let mut rig = Rig::new(1)?;
    for i in 0..2 {
        rig.nic.add_port(port(&format!("p{i}"), &ends(i)[0]))?;
    }
    rig.nic.set_bond(bond("b", &["p0", "p1"]))?;
    for round in 1..=2 {
        ip(&["link", "delete", "left"])?;
        ensure!(wait_for(|| rig.count_events("p0", is_lost) == round), "not lost");
        let ups = |s: BondStatus| s.members.iter().map(|m| m.up).collect::<Vec<_>>();
        ensure!(ups(rig.nic.bond("b")?) == [false, true]);
        veth.make()?;
        ensure!(wait_for(|| rig.count_events("p0", is_back) == round), "not back");
        ensure!(ups(rig.nic.bond("b")?) == [true, true]);
    }
    // The NIC ends with a bond.
    rig.finish(Copies::Unknown)
}
