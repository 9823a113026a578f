//! Bonds: two NICs that two wires join, each with both ends in one bond.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use vnic_backend::fault::Action;
use vnic_backend::lag::{Affinity, BondSettings, Member, Mode, Packet, Policy, Ports, View};
use vnic_backend::{BondSpec, DropReason, FaultSpec, MacAddr, NicEventKind, QosSpec};
use vnic_tests::driver::packets::{
    BROADCAST, Flow, Number, eth, number_of, numbered, pattern, tagged, tso, udp,
};
use vnic_tests::driver::rig::{Copies, Rig, deadline, wait_for};
use vnic_tests::driver::veth::{Veth, ends, ip};

use vnic_tests::driver::{Guest, NetHdr, OFFLOADS, Options, Wire};

const BOND: &str = "bond0";

/// What a bond of all ports is made from.
fn spec(settings: BondSettings) -> BondSpec {
    BondSpec {
        settings,
        ..BondSpec::new(BOND, vec!["p0".into(), "p1".into()])
    }
}

fn by(policy: Policy) -> BondSettings {
    BondSettings {
        mode: Mode::Aggregate { policy, lacp: false },
        failback_delay: Duration::from_millis(50),
        patience: Some(Duration::from_millis(20)),
        ..BondSettings::default()
    }
}

fn backup(failback: bool) -> BondSettings {
    BondSettings {
        mode: Mode::ActiveBackup {
            primary: Some(Member(0)),
            failback,
        },
        ..by(Policy::Layer34)
    }
}

/// A guest's address; those of the two must differ.
fn mac(side: usize) -> MacAddr {
    MacAddr([2, 0x44, 0, 0, 0, side as u8 + 1])
}

/// Two NICs, two wires between them, an adapter and its guest at each.
struct Pair {
    veth: Veth,
    rigs: [Rig; 2],
    guests: Vec<Guest>,
}

impl Pair {
    /// The bonds are served by the last of so many cores, the guests by the first.
    fn new(cores: usize, spec: &BondSpec, options: Options) -> Result<Option<Pair>> {
        let Some(veth) = Veth::several(1500, 2)? else {
            return Ok(None);
        };
        let mut rigs = [Rig::new(cores)?, Rig::new(cores)?];
        let mut guests = Vec::new();
        for (side, rig) in rigs.iter_mut().enumerate() {
            rig.add_with("a", |s| s.macs = vec![mac(side)])?;
            for mut port in veth.ports("packet", side)? {
                port.data_core = rig.cores.last().copied();
                ensure!(rig.nic.add_port(port)?.up);
            }
            let status = rig.nic.set_bond(spec.clone())?;
            ensure!(status.up && status.members.iter().all(|m| m.up), "{status:?}");
            guests.push(rig.attach("a", options.clone())?);
        }
        Ok(Some(Pair { veth, rigs, guests }))
    }

    fn plain(settings: BondSettings) -> Result<Option<Pair>> {
        Pair::new(1, &spec(settings), Options::default())
    }

    fn send(&mut self, from: usize, frame: &[u8]) {
        self.guests[from].send_wait(0, frame, NetHdr::default());
    }

    /// What a guest gets next, announcements aside.
    fn recv(&mut self, at: usize) -> Result<(NetHdr, Vec<u8>)> {
        loop {
            let (hdr, _, frame) = self.guests[at].recv(0, deadline()).context("no frame")?;
            if frame.get(12..14) != Some(&[0x80, 0x35]) {
                return Ok((hdr, frame));
            }
        }
    }

    /// Nothing comes any more, announcements aside: a frame of our own is the next.
    fn is_quiet(&mut self, from: usize) -> Result<()> {
        let last = numbered(
            mac(1 - from),
            mac(from),
            Number {
                sender: 99,
                stream: 99,
                seq: 99,
            },
            60,
        );
        self.send(from, &last);
        ensure!(self.recv(1 - from)?.1 == last);
        Ok(())
    }

    fn view(&self, side: usize) -> Result<View> {
        Ok(self.rigs[side].nic.bond_view(BOND)?)
    }

    fn sent_by(&self, side: usize, port: &str) -> u64 {
        self.rigs[side].counter(port, "tx_frames")
    }

    /// Takes one of the first NIC's links away, or gives it back; waits until both bonds know.
    fn set_link(&mut self, pair: usize, up: bool) -> Result<()> {
        let [left, _] = ends(pair);
        ip(&["link", "set", &left, if up { "up" } else { "down" }])?;
        for rig in &self.rigs {
            let is = || {
                let status = rig.nic.bond(BOND).ok();
                status.is_some_and(|s| s.members[pair].up == up)
            };
            ensure!(wait_for(is), "the link of {left}");
        }
        Ok(())
    }

    fn finish(mut self) -> Result<()> {
        for guest in &mut self.guests {
            guest.detach()?;
        }
        for rig in self.rigs {
            rig.finish(Copies::Unknown)?;
        }
        Ok(())
    }
}

fn flow(from: usize, port: u16) -> Flow {
    Flow {
        to: mac(1 - from),
        from: mac(from),
        v6: false,
        vlan: None,
        port,
    }
}

/// Frames of many flows, to one and to all, in both directions: each arrives once, and both wires carry some.
fn frames(cores: usize) -> Result<()> {
    let spec = spec(by(Policy::Layer34));
    let Some(mut pair) = Pair::new(cores, &spec, Options::default())? else {
        return Ok(());
    };
    for port in 0..64 {
        for from in [0, 1] {
            for to in [mac(1 - from), BROADCAST] {
                let frame = udp(
                    &Flow {
                        to,
                        ..flow(from, 1000 + port)
                    },
                    &pattern(40 + usize::from(port)),
                );
                pair.send(from, &frame);
                assert_eq!(pair.recv(1 - from)?.1, frame);
            }
        }
    }
    for from in [0, 1] {
        pair.is_quiet(from)?;
        for port in ["p0", "p1"] {
            assert!(pair.sent_by(from, port) >= 32, "{port} of {from}");
        }
        assert_eq!(pair.rigs[from].drops("p0", DropReason::BondInactive), 0);
    }
    pair.finish()
}

#[test]
fn frames_go_both_ways() -> Result<()> {
    frames(1)
}

#[test]
fn frames_go_both_ways_between_cores() -> Result<()> {
    frames(2)
}

/// A VXLAN frame: the outer headers are the same for all, the inner flow differs.
fn tunnelled(inner: &Flow) -> Vec<u8> {
    let mut outer = udp(
        &flow(0, 5000),
        &[&[8, 0, 0, 0, 0, 0, 7, 0][..], &udp(inner, &[1; 40])].concat(),
    );
    // Destination port of VXLAN, and no checksum.
    outer[36..38].copy_from_slice(&4789u16.to_be_bytes());
    outer[40..42].copy_from_slice(&[0, 0]);
    outer
}

/// 64 flows of each policy: no member has more than 60 % of them.
#[test]
fn flows_spread_by_every_policy() -> Result<()> {
    let Some(mut pair) = Pair::plain(by(Policy::Layer34))? else {
        return Ok(());
    };
    for policy in Policy::ALL {
        pair.rigs[0].nic.set_bond(spec(by(policy)))?;
        for i in 0..64u8 {
            let mut frame = match policy {
                Policy::FiveTuple => tunnelled(&flow(0, 2000 + u16::from(i))),
                Policy::Layer34 => udp(&flow(0, 2000 + u16::from(i)), &[i; 40]),
                _ => udp(&flow(0, 2000), &[i; 40]),
            };
            match policy {
                // Nobody knows these: they are flooded, to the bond, too.
                Policy::Layer2 => frame[5] = 0x80 | i,
                Policy::Layer23 => frame[33] = i,
                _ => {}
            }
            pair.send(0, &frame);
        }
        ensure!(
            wait_for(|| pair.view(0).is_ok_and(|v| v.flows.len() >= 64)),
            "{policy}"
        );
        let view = pair.view(0)?;
        assert_eq!(
            view.members.iter().map(|m| m.flows).sum::<usize>(),
            view.flows.len()
        );
        let even = view.by_flows.context("flows")?;
        assert!(even.largest <= 0.6, "{policy}: {even}");
        let sent: u64 = view.members.iter().map(|m| m.packets).sum();
        assert_eq!(sent, 64, "{policy}");
    }
    pair.finish()
}

/// Numbers of frames that may be lost: they are sent while a link is down and nobody knows.
const UNCERTAIN: u64 = 1 << 40;

/// Sends one frame of each of so many flows.
fn round(pair: &mut Pair, flows: u32, seq: u64) {
    for stream in 0..flows {
        let number = Number {
            sender: 0,
            stream,
            seq,
        };
        // The numbers are behind UDP headers.
        let inner = numbered(mac(1), mac(0), number, 60);
        let frame = udp(&flow(0, 3000 + stream as u16), &inner);
        pair.send(0, &frame);
    }
}

/// Number of a frame that follows those.
const PROBE: u64 = u64::MAX;

/// Waits until those have arrived or are lost that are on their way: they would take buffers from what follows. Frames of one wire
/// arrive in their order, so all have when one has that was sent behind them; of these themselves some may find no buffer.
fn settle(pair: &mut Pair) -> Result<()> {
    let end = deadline();
    loop {
        round(pair, 1, PROBE);
        let next = std::time::Instant::now() + Duration::from_millis(50);
        while std::time::Instant::now() < next {
            while let Some((_, _, frame)) = pair.guests[1].try_recv(0) {
                if frame
                    .get(42..)
                    .and_then(number_of)
                    .is_some_and(|n| n.seq == PROBE)
                {
                    return Ok(());
                }
            }
        }
        ensure!(std::time::Instant::now() < end, "nothing arrives any more");
    }
}

/// Takes what came, and checks that no flow overtook itself.
fn take(pair: &mut Pair, last: &mut BTreeMap<u32, u64>) -> Result<usize> {
    let mut n = 0;
    while let Some((_, _, frame)) = pair.guests[1].try_recv(0) {
        let Some(number) = frame.get(42..).and_then(number_of) else {
            continue;
        };
        if number.seq >= UNCERTAIN {
            continue;
        }
        let before = last.insert(number.stream, number.seq);
        ensure!(
            before.is_none_or(|b| b < number.seq),
            "{number:?} after {before:?}"
        );
        n += 1;
    }
    Ok(n)
}

/// A link dies under load: what is sent afterwards arrives. It comes back: no frame is lost or overtakes another.
#[test]
fn a_link_dies_and_comes_back_under_load() -> Result<()> {
    const FLOWS: u32 = 16;
    // A core of a busy machine may stand still for a while, and then find frames on both wires, of which it cannot know which
    // came first: a flow pauses for longer than that before it changes wires.
    let settings = BondSettings {
        quiet: Duration::from_secs(1),
        ..by(Policy::Layer34)
    };
    let Some(mut pair) = Pair::plain(settings)? else {
        return Ok(());
    };
    let mut last = BTreeMap::new();
    let mut seq = 0;
    let frames = |rounds: u64| rounds as usize * FLOWS as usize;
    let mut turn = |pair: &mut Pair, last: &mut BTreeMap<u32, u64>, rounds: u64| -> Result<usize> {
        let mut came = 0;
        let end = deadline();
        for i in 1..=rounds {
            round(pair, FLOWS, seq);
            seq += 1;
            // Not more on the way than the other end has buffers for.
            while came + 64 < frames(i) || (i == rounds && came < frames(i)) {
                came += take(pair, last)?;
                ensure!(std::time::Instant::now() < end, "{came} of {}", frames(i));
            }
        }
        Ok(came)
    };
    assert_eq!(turn(&mut pair, &mut last, 200)?, frames(200));
    for dying in [0, 1, 0] {
        let [left, _] = ends(dying);
        ip(&["link", "set", &left, "down"])?;
        // Under load: some of this is lost, until the loss of the link is noticed.
        let lost = |pair: &Pair| pair.rigs[0].nic.bond(BOND).is_ok_and(|b| !b.members[dying].up);
        let end = deadline();
        let mut dropped = 0;
        while !lost(&pair) {
            round(&mut pair, FLOWS, UNCERTAIN + dropped);
            dropped += 1;
            ensure!(std::time::Instant::now() < end, "nobody noticed");
        }
        settle(&mut pair)?;
        last.clear();
        // Everything of now.
        assert_eq!(turn(&mut pair, &mut last, 200)?, frames(200));
        let view = pair.view(0)?;
        assert!(
            !view.members[dying].usable && view.members[dying].buckets == 0,
            "{view:?}"
        );
        // Back again: its flows return while they go on.
        pair.set_link(dying, true)?;
        let end = deadline();
        loop {
            assert_eq!(turn(&mut pair, &mut last, 50)?, frames(50));
            let view = pair.view(0)?;
            if view
                .members
                .iter()
                .all(|m| m.usable && m.buckets == 128 && m.leaving == 0)
            {
                break;
            }
            ensure!(std::time::Instant::now() < end, "{:?}", view.members);
        }
        let before = pair.sent_by(0, &format!("p{dying}"));
        assert_eq!(turn(&mut pair, &mut last, 50)?, frames(50));
        assert!(pair.sent_by(0, &format!("p{dying}")) > before);
    }
    let failover = pair.rigs[0]
        .nic
        .bond(BOND)?
        .last_failover
        .context("no failover")?;
    assert_eq!(failover.port, "p0");
    pair.finish()
}

/// The device of a member is deleted, and made again.
#[test]
fn a_device_goes_and_comes_back() -> Result<()> {
    let Some(mut pair) = Pair::plain(by(Policy::Layer34))? else {
        return Ok(());
    };
    ip(&["link", "del", &ends(1)[0]])?;
    for rig in &pair.rigs {
        ensure!(wait_for(|| rig.nic.bond(BOND).is_ok_and(|b| !b.members[1].up)));
    }
    for port in 0..32 {
        let frame = udp(&flow(0, 1000 + port), &[5; 60]);
        pair.send(0, &frame);
        assert_eq!(pair.recv(1)?.1, frame);
    }
    pair.veth.make_pair(1)?;
    for rig in &pair.rigs {
        ensure!(wait_for(|| rig.nic.bond(BOND).is_ok_and(|b| b.members[1].up)));
    }
    let usable = || {
        let views = [pair.view(0), pair.view(1)];
        views
            .into_iter()
            .all(|v| v.is_ok_and(|v| v.members[1].buckets == 128))
    };
    ensure!(wait_for(usable));
    let before = pair.sent_by(0, "p1");
    for port in 0..32 {
        let frame = udp(&flow(0, 1000 + port), &[5; 60]);
        pair.send(0, &frame);
        assert_eq!(pair.recv(1)?.1, frame);
    }
    assert_eq!(pair.sent_by(0, "p1") - before, 16);
    pair.finish()
}

/// One of a bond's members carries all, the other what only it is given.
#[test]
fn a_flow_goes_where_it_is_told_to() -> Result<()> {
    let Some(mut pair) = Pair::plain(by(Policy::Layer34))? else {
        return Ok(());
    };
    let packet = |port| Packet {
        source: [10, 0, 0, 1].into(),
        destination: [10, 0, 0, 2].into(),
        protocol: 17,
        ports: Some(Ports {
            source: port,
            destination: 80,
        }),
    };
    let mut places = HashMap::new();
    for round in 0..2 {
        for port in 0..8 {
            let frame = udp(&flow(0, 4000 + port), &[7; 50]);
            pair.send(0, &frame);
            assert_eq!(pair.recv(1)?.1, frame);
            let view = pair.view(0)?;
            let seen = view
                .flows
                .iter()
                .find(|s| s.flow.packet == Some(packet(4000 + port)));
            let member = seen.context("not in the view")?.member;
            match round {
                0 => {
                    places.insert(port, member);
                    let other = Member(1 - member.0);
                    let what = Affinity::Flow(packet(4000 + port));
                    pair.rigs[0].nic.set_bond_affinity(BOND, what, Some(other))?;
                }
                _ => assert_ne!(places[&port], member, "flow {port}"),
            }
        }
    }
    assert_eq!(pair.view(0)?.affinities.len(), 8);
    assert_eq!(pair.rigs[0].nic.bond(BOND)?.spec.affinities.len(), 8);
    pair.finish()
}

/// A UDP source port whose flow is on this member.
fn port_on(pair: &mut Pair, member: Member) -> Result<u16> {
    for port in 6000.. {
        let frame = udp(&flow(0, port), &[0; 40]);
        pair.send(0, &frame);
        ensure!(pair.recv(1)?.1 == frame);
        let view = pair.view(0)?;
        let ports = |s: Option<Packet>| s.and_then(|p| p.ports);
        let mut flows = view.flows.iter();
        let seen = flows.find(|s| ports(s.flow.packet).is_some_and(|p| p.source == port));
        if seen.context("not in the view")?.member == member {
            return Ok(port);
        }
    }
    bail!("no port")
}

/// Frames wait at a member for their turn when its link dies: they are dropped and counted, the flow goes on at once by the other,
/// and comes back.
#[test]
fn what_waits_at_a_dead_link_is_dropped() -> Result<()> {
    let Some(mut pair) = Pair::plain(by(Policy::Layer34))? else {
        return Ok(());
    };
    let port = port_on(&mut pair, Member(0))?;
    let slow = QosSpec {
        rate: 1_000_000,
        ..QosSpec::default()
    };
    pair.rigs[0].nic.set_qos("p0", slow)?;
    for _ in 0..100 {
        pair.send(0, &udp(&flow(0, port), &[1; 1000]));
    }
    pair.guests[0].drain();
    pair.set_link(0, false)?;
    let lost = pair.rigs[0]
        .nic
        .bond(BOND)?
        .last_failover
        .context("no failover")?;
    assert!(lost.dropped > 0 && lost.port == "p0", "{lost:?}");
    assert_eq!(pair.rigs[0].drops("p0", DropReason::ReceiverDown), lost.dropped);
    let told = |kind: &NicEventKind| match kind {
        NicEventKind::BondMemberLost { bond, dropped, .. } => bond == BOND && *dropped == lost.dropped,
        _ => false,
    };
    pair.rigs[0].wait_event("p0", told)?;
    let frame = udp(&flow(0, port), &[2; 80]);
    pair.send(0, &frame);
    // Behind those that left in time.
    while pair.recv(1)?.1 != frame {}
    pair.rigs[0].nic.set_qos("p0", QosSpec::default())?;
    pair.set_link(0, true)?;
    let home = || {
        pair.view(0)
            .is_ok_and(|v| v.members[0].buckets == 128 && v.members[1].leaving == 0)
    };
    ensure!(wait_for(home), "{:?}", pair.view(0)?.members);
    pair.finish()
}

/// A fault rule holds frames back at the member that a flow is to leave: those behind them wait, and do not overtake them by
/// the other.
#[test]
fn what_is_held_back_is_not_overtaken() -> Result<()> {
    let Some(mut pair) = Pair::plain(by(Policy::Layer34))? else {
        return Ok(());
    };
    let port = port_on(&mut pair, Member(1))?;
    pair.set_link(1, false)?;
    pair.rigs[0].nic.add_fault(FaultSpec {
        to: Some("p0".into()),
        ..FaultSpec::new(
            "later",
            Action::Delay {
                by: Duration::from_secs(60),
                jitter: Duration::ZERO,
            },
        )
    })?;
    let frame = |n: u8| udp(&flow(0, port), &[n; 60]);
    pair.send(0, &frame(0));
    pair.guests[0].drain();
    pair.set_link(1, true)?;
    let buckets = |pair: &Pair, member: usize| pair.view(0).map_or(0, |v| v.members[member].buckets);
    // All go home but the one with the frame.
    ensure!(wait_for(|| buckets(&pair, 1) == 127 && buckets(&pair, 0) == 129));
    let sent = pair.sent_by(0, "p1");
    for n in 1..20 {
        pair.send(0, &frame(n));
        std::thread::sleep(Duration::from_millis(3));
    }
    pair.guests[0].drain();
    assert_eq!(buckets(&pair, 1), 127);
    assert_eq!(pair.sent_by(0, "p1"), sent, "they wait");
    pair.rigs[0].nic.remove_fault("later")?;
    for n in 0..20 {
        assert_eq!(pair.recv(1)?.1, frame(n), "frame {n}");
    }
    ensure!(wait_for(|| buckets(&pair, 1) == 128));
    assert!(pair.sent_by(0, "p1") > sent);
    pair.finish()
}

/// Active-backup: one member carries all, and what comes by the other is dropped.
#[test]
fn one_is_active_and_the_other_waits() -> Result<()> {
    let Some(mut pair) = Pair::plain(backup(true))? else {
        return Ok(());
    };
    let both = |pair: &mut Pair, active: &str, idle: &str| -> Result<()> {
        let before: Vec<u64> = [0, 1].map(|side| pair.sent_by(side, idle)).into();
        for port in 0..16 {
            for from in [0, 1] {
                let frame = udp(&flow(from, 1000 + port), &[3; 60]);
                pair.send(from, &frame);
                ensure!(pair.recv(1 - from)?.1 == frame);
            }
        }
        for side in [0, 1] {
            ensure!(pair.sent_by(side, active) >= 16);
            ensure!(pair.sent_by(side, idle) == before[side], "{idle} is idle");
        }
        Ok(())
    };
    both(&mut pair, "p0", "p1")?;
    let [_, right] = ends(1);
    let wire = Wire::open(&right)?;
    pair.set_link(0, false)?;
    // Neighbours hear on the other wire where the guest is.
    let announced = |f: &[u8]| f.get(12..14) == Some(&[0x80, 0x35]) && f.get(6..12) == Some(&mac(0).0[..]);
    wire.recv(announced)?;
    both(&mut pair, "p1", "p0")?;
    pair.set_link(0, true)?;
    let back = || {
        [0, 1]
            .into_iter()
            .all(|side| pair.view(side).is_ok_and(|v| v.active == Some(Member(0))))
    };
    ensure!(wait_for(back));
    both(&mut pair, "p0", "p1")?;
    // Somebody sends by the wire that is idle.
    let idle = Wire::open(&ends(1)[0])?;
    idle.send(&udp(&flow(0, 1), &[0; 40]))?;
    let dropped = || pair.rigs[1].drops("p1", DropReason::BondInactive) > 0;
    ensure!(wait_for(dropped));
    pair.is_quiet(0)?;
    pair.finish()
}

/// A team's VLAN is a tag on its wires.
#[test]
fn all_of_a_team_with_a_vlan_is_tagged() -> Result<()> {
    let tagging = BondSpec {
        tag: Some((7, 3)),
        ..spec(by(Policy::Layer34))
    };
    let options = Options {
        tx_buffer: 66000,
        queue_size: 64,
        ..Options::default()
    }
    .with(OFFLOADS);
    let Some(mut pair) = Pair::new(1, &tagging, options)? else {
        return Ok(());
    };
    for port in 0..8 {
        let frame = udp(&flow(0, 1000 + port), &[9; 60]);
        pair.send(0, &frame);
        assert_eq!(pair.recv(1)?.1, frame);
    }
    // So they were on the wire.
    let of = |port| pair.rigs[1].priority_counter(port, 3, "rx_frames");
    assert!(of("p0") + of("p1") >= 8);
    // A request is not cut, and its tag comes off at the other end.
    let (frame, hdr) = tso(&flow(0, 1000), &pattern(20_000), 1400);
    pair.guests[0].send_wait(0, &frame, hdr);
    let (got, whole) = pair.recv(1)?;
    assert_eq!(got, hdr);
    assert!(whole == frame);
    // What has a tag has no place in it, in neither direction.
    let drops = |pair: &Pair, side: usize| -> u64 {
        let of = |port| pair.rigs[side].drops(port, DropReason::VlanNotAllowed);
        of("p0") + of("p1")
    };
    pair.send(0, &tagged(&udp(&flow(0, 1000), &[1; 60]), 5));
    ensure!(wait_for(|| drops(&pair, 0) == 1));
    let before = drops(&pair, 1);
    for tci in [None, Some(8), Some(0)] {
        let frame = udp(&flow(0, 1000), &[1; 60]);
        let frame = tci.map_or(frame.clone(), |tci| tagged(&frame, tci));
        Wire::open(&ends(0)[0])?.send(&frame)?;
    }
    ensure!(wait_for(|| drops(&pair, 1) == before + 3));
    pair.is_quiet(0)?;
    pair.finish()
}

/// Links speak slow protocols, guests do not.
#[test]
fn guests_do_not_speak_for_links() -> Result<()> {
    let Some(mut pair) = Pair::plain(by(Policy::Layer34))? else {
        return Ok(());
    };
    let lacp = MacAddr([1, 0x80, 0xc2, 0, 0, 2]);
    pair.send(0, &eth(lacp, mac(0), [0x88, 9], &[1; 60]));
    ensure!(wait_for(|| pair.rigs[0].drops("a", DropReason::MacControl) == 1));
    // To another address the switch lets it pass, the bond does not.
    pair.send(0, &eth(mac(1), mac(0), [0x88, 9], &[1; 60]));
    let dropped = || {
        let of = |port| pair.rigs[0].drops(port, DropReason::MacControl);
        of("p0") + of("p1") == 1
    };
    ensure!(wait_for(dropped));
    // Nor does it come in from the wire.
    Wire::open(&ends(0)[0])?.send(&eth(lacp, mac(0), [0x88, 9], &[1; 110]))?;
    pair.is_quiet(0)?;
    pair.finish()
}

/// A bond that is removed leaves ports of the switch, and a port may be in one of its own.
#[test]
fn ports_come_out_of_a_bond() -> Result<()> {
    let Some(mut pair) = Pair::plain(by(Policy::Layer34))? else {
        return Ok(());
    };
    let frame = udp(&flow(0, 1), &[8; 60]);
    // Two links without a bond would be a loop: one is enough here.
    ip(&["link", "set", &ends(1)[0], "down"])?;
    for rig in &pair.rigs {
        ensure!(wait_for(|| rig.nic.bond(BOND).is_ok_and(|b| !b.members[1].up)));
        rig.nic.remove_bond(BOND)?;
    }
    for (from, frame) in [(0, frame.clone()), (1, udp(&flow(1, 1), &[8; 60]))] {
        pair.send(from, &frame);
        assert_eq!(pair.recv(1 - from)?.1, frame);
    }
    for rig in &pair.rigs {
        rig.nic.set_bond(BondSpec {
            members: vec!["p0".into()],
            ..spec(by(Policy::Layer2))
        })?;
    }
    pair.send(0, &frame);
    assert_eq!(pair.recv(1)?.1, frame);
    let event = |kind: &NicEventKind| matches!(kind, NicEventKind::PortLink { up: false });
    pair.rigs[0].wait_event("p1", event)?;
    pair.finish()
}
