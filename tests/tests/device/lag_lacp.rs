//! Bonds towards a stranger: Open vSwitch at the other end speaks LACP, actively or only when spoken to, or does not.
//! LACP's timers are in seconds and run in real time here; nothing is asserted on how long anything takes.

mod ovs;

use std::collections::HashSet;

use anyhow::{Context, Result, ensure};
use ovs::Ovs;
use vnic_backend::lag::{BondSettings, LacpMux, LacpReceive, Mode, Policy};
use vnic_backend::{BondSpec, BondStatus, LacpSpec, MacAddr, NicEventKind};
use vnic_tests::driver::packets::{Flow, udp};
use vnic_tests::driver::rig::{Copies, Rig, deadline, wait_for};
use vnic_tests::driver::veth::{Veth, ends, ip};
use vnic_tests::driver::{Guest, NetHdr, Options};

const NEAR: MacAddr = MacAddr([2, 0x55, 0, 0, 0, 1]);
const FAR: MacAddr = MacAddr([2, 0x55, 0, 0, 0, 2]);

/// A guest behind a bond of two ports, whose wires end at a switch; another guest behind a port of that switch.
struct Lab {
    near: Rig,
    far: Rig,
    guests: [Guest; 2],
    ovs: Ovs,
    _veth: Veth,
}

/// How we speak.
fn lacp(active: bool) -> Option<LacpSpec> {
    Some(LacpSpec {
        active,
        ..LacpSpec::default()
    })
}

impl Lab {
    /// `theirs` are the settings of the switch's bond.
    fn new(ours: Option<LacpSpec>, theirs: &str) -> Result<Option<Lab>> {
        let Some(veth) = Veth::several(1500, 3)? else {
            return Ok(None);
        };
        ip(&["link", "set", "lo", "up"])?;
        let Some(ovs) = Ovs::start()? else {
            return Ok(None);
        };
        let [_, third] = ends(2);
        ovs.configure(&format!("add-port br0 {third}"))?;
        ovs.configure(&format!(
            "add-bond br0 bond0 {} {} {theirs}",
            ends(0)[1],
            ends(1)[1]
        ))?;
        let (mut near, mut far) = (Rig::new(1)?, Rig::new(1)?);
        let mut ports = veth.ports("packet", 0)?.into_iter();
        for port in ports.by_ref().take(2) {
            near.nic.add_port(port)?;
        }
        near.nic.set_bond(BondSpec {
            settings: BondSettings {
                mode: Mode::Aggregate {
                    policy: Policy::default(),
                    lacp: ours.is_some(),
                },
                failback_delay: std::time::Duration::ZERO,
                ..BondSettings::default()
            },
            lacp: ours,
            ..BondSpec::new("b", vec!["p0".into(), "p1".into()])
        })?;
        far.nic.add_port(ports.next().context("no third pair")?)?;
        let guest = |rig: &mut Rig, mac| -> Result<Guest> {
            rig.add_with("a", |s| s.macs = vec![mac])?;
            rig.attach("a", Options::default())
        };
        let guests = [guest(&mut near, NEAR)?, guest(&mut far, FAR)?];
        Ok(Some(Lab {
            near,
            far,
            guests,
            ovs,
            _veth: veth,
        }))
    }

    fn status(&self) -> Result<BondStatus> {
        Ok(self.near.nic.bond("b")?)
    }

    /// Waits until the bond is so. LACP may take its 3 s, or 90 s for a partner that is not in a hurry.
    fn wait(&self, what: &str, is: impl Fn(&BondStatus) -> bool) -> Result<()> {
        let there = || self.status().is_ok_and(|s| is(&s));
        for _ in 0..6 {
            if wait_for(there) {
                return Ok(());
            }
        }
        anyhow::bail!("not {what}: {:#?}", self.status()?)
    }

    /// Both ends agree, each by its own word.
    fn wait_agreed(&mut self) -> Result<()> {
        self.wait("agreed", |s| s.up && s.members.iter().all(|m| m.up && in_use(m)))?;
        for member in ["right", "right1"] {
            self.ovs.wait_says(
                &["lacp/show", "bond0"],
                &["negotiated", &format!("member: {member}: current attached")],
            )?;
            let text = format!("member {member}: enabled\n");
            self.ovs.wait_says(&["bond/show", "bond0"], &[&text])?;
        }
        Ok(())
    }

    /// Many flows each way, with these addresses at the far end: each frame arrives once, and both members carry some.
    fn carry(&mut self, addresses: &[MacAddr]) -> Result<()> {
        let sent = self.round(0, addresses, "tx_frames")?;
        ensure!(sent.iter().all(|n| *n >= SHARE), "sent: {sent:?}");
        // The switch moves flows to a member that has come when it next looks at what they carry.
        let mut got = [0; 2];
        for _ in 0..60 {
            got = self.round(1, addresses, "rx_frames")?;
            if got.iter().all(|n| *n >= SHARE) {
                return Ok(());
            }
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
        anyhow::bail!("received: {got:?}")
    }

    /// A frame of each flow from one of the guests. Answers by how much a counter of the two ports grew.
    fn round(&mut self, from: usize, addresses: &[MacAddr], name: &str) -> Result<[u64; 2]> {
        let counted = |lab: &Lab| ["p0", "p1"].map(|port| lab.near.counter(port, name));
        let before = counted(self);
        let mut missing = HashSet::new();
        for i in 0..FLOWS {
            let far = addresses[usize::from(i) % addresses.len()];
            let (from_mac, to) = if from == 0 { (NEAR, far) } else { (far, NEAR) };
            let flow = Flow {
                to,
                from: from_mac,
                v6: false,
                vlan: None,
                port: 1000 + i,
            };
            let frame = udp(&flow, &[i as u8; 1400]);
            self.guests[from].send_wait(0, &frame, NetHdr::default());
            missing.insert(frame);
            // The other side's buffers are few.
            while missing.len() > 32 {
                self.receive(1 - from, &mut missing)?;
            }
        }
        while !missing.is_empty() {
            self.receive(1 - from, &mut missing)?;
        }
        let after = counted(self);
        Ok([after[0] - before[0], after[1] - before[1]])
    }

    fn receive(&mut self, at: usize, missing: &mut HashSet<Vec<u8>>) -> Result<()> {
        let (_, _, frame) = self.guests[at].recv(0, deadline()).context("a frame is lost")?;
        // Announcements and the switch's own are none of ours.
        if frame.get(12..14) == Some(&[8, 0]) {
            ensure!(missing.remove(&frame), "a frame came twice, or was not sent");
        }
        Ok(())
    }

    /// What was told of a port of the bond.
    fn told(&mut self, port: &str, like: impl Fn(&NicEventKind) -> bool) -> usize {
        self.near.count_events(port, like)
    }

    fn finish(self) -> Result<()> {
        for mut guest in self.guests {
            guest.detach()?;
        }
        self.near.finish(Copies::Unknown)?;
        self.far.finish(Copies::Unknown)
    }
}

/// Flows of each direction.
const FLOWS: u16 = 200;
/// Of them on a member, at least.
const SHARE: u64 = FLOWS as u64 / 5;

fn in_use(member: &vnic_backend::BondMember) -> bool {
    member.lacp.is_some_and(|l| {
        l.receive == LacpReceive::Current && l.mux == LacpMux::CollectingDistributing && l.selected
    })
}

const FAST: &str = "bond_mode=balance-tcp -- set port bond0 other_config:lacp-time=fast \
                    other_config:bond-rebalance-interval=1000";

/// They agree and carry; the switch falls silent with its links up, and no member carries anything; it speaks again.
fn agree(active: bool, theirs: &str) -> Result<()> {
    let Some(mut lab) = Lab::new(lacp(active), &format!("lacp={theirs} {FAST}"))? else {
        return Ok(());
    };
    lab.wait_agreed()?;
    lab.carry(&[FAR])?;
    for port in ["p0", "p1"] {
        ensure!(lab.told(port, |k| matches!(k, NicEventKind::LacpPartnerFound { .. })) >= 1);
    }
    lab.ovs.freeze(true)?;
    lab.wait("silent", |s| {
        !s.up && !s.members.iter().any(in_use) && s.members.iter().all(|m| m.up)
    })?;
    for port in ["p0", "p1"] {
        ensure!(lab.told(port, |k| matches!(k, NicEventKind::LacpPartnerLost { .. })) >= 1);
        ensure!(lab.told(port, |k| matches!(k, NicEventKind::BondMemberLost { .. })) >= 1);
    }
    lab.ovs.freeze(false)?;
    lab.wait_agreed()?;
    lab.carry(&[FAR])?;
    lab.finish()
}

#[test]
fn both_active() -> Result<()> {
    agree(true, "active")
}

#[test]
fn only_we_are_active() -> Result<()> {
    agree(true, "passive")
}

#[test]
fn only_they_are_active() -> Result<()> {
    agree(false, "active")
}

/// Nobody begins, so nobody finds anybody; a change on one side is enough.
#[test]
fn both_passive_find_nobody() -> Result<()> {
    let Some(lab) = Lab::new(lacp(false), &format!("lacp=passive {FAST}"))? else {
        return Ok(());
    };
    let mut lab = lab;
    lab.wait("alone", |s| {
        let alone = |l: &vnic_backend::lag::LacpView| l.receive == LacpReceive::Defaulted && l.received == 0;
        !s.up
            && s.members
                .iter()
                .all(|m| m.up && m.lacp.as_ref().is_some_and(alone))
    })?;
    ensure!(lab.told("p0", |k| matches!(k, NicEventKind::LacpPartnerFound { .. })) == 0);
    let mut spec = lab.status()?.spec;
    spec.lacp = lacp(true);
    lab.near.nic.set_bond(spec)?;
    lab.wait_agreed()?;
    lab.carry(&[FAR])?;
    lab.finish()
}

/// One wire breaks: the group goes on with the other one, on both sides; with the wire, all is as before. Then the switch
/// ceases to speak LACP.
#[test]
fn one_wire_breaks_and_then_they_cease_to_speak() -> Result<()> {
    let Some(mut lab) = Lab::new(lacp(true), &format!("lacp=active {FAST}"))? else {
        return Ok(());
    };
    lab.wait_agreed()?;
    ip(&["link", "set", "right1", "down"])?;
    lab.wait("one", |s| s.up && in_use(&s.members[0]) && !s.members[1].up)?;
    lab.ovs.wait_says(
        &["bond/show", "bond0"],
        &["member right: enabled", "member right1: disabled"],
    )?;
    ip(&["link", "set", "right1", "up"])?;
    lab.wait_agreed()?;
    lab.carry(&[FAR])?;
    lab.ovs.configure("set port bond0 lacp=off")?;
    lab.wait("alone", |s| !s.up && s.members.iter().all(|m| m.up && !in_use(m)))?;
    lab.finish()
}

/// Without LACP on either side. The switch balances by source address then, so there are many of them.
#[test]
fn static_groups() -> Result<()> {
    let Some(mut lab) = Lab::new(None, "lacp=off bond_mode=balance-slb")? else {
        return Ok(());
    };
    lab.wait("up", |s| {
        s.up && s.members.iter().all(|m| m.up && m.lacp.is_none())
    })?;
    lab.ovs.wait_says(
        &["bond/show", "bond0"],
        &["member right: enabled", "member right1: enabled"],
    )?;
    let sources: Vec<MacAddr> = (0..32).map(|i| MacAddr([2, 0x55, 0, 0, 1, i])).collect();
    lab.carry(&sources)?;
    lab.finish()
}
