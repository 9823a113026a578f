use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::string::{String, ToString};
use std::vec::Vec;
use std::{format, vec};

use expect_test::expect;
use proptest::prelude::*;
use vnic_wire::lacp::{Lacpdu, Marker, State};

use super::*;
use crate::fault::random::SplitMix64;
use crate::lag::tests::for_seeds;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;

fn seconds(s: u64) -> Instant {
    Instant(s * SECOND)
}

fn settings(system: u8, active: bool, short_timeout: bool, ports: u16) -> LacpSettings {
    let ports = (1..=ports).map(|number| lacp::Port {
        priority: 0x8000,
        number,
    });
    LacpSettings {
        system: System {
            priority: 0x8000,
            address: MacAddr([2, 0, 0, 0, 0, system]),
        },
        key: u16::from(system) * 16,
        active,
        short_timeout,
        ports: ports.collect(),
    }
}

/// A port of a system.
type End = (usize, u8);

/// Frames under way: when they arrive, in which order they were sent, where.
type Wire = BinaryHeap<Reverse<(u64, u64, End, Vec<u8>)>>;

/// Systems and the cables between them, in virtual time.
struct World {
    now: u64,
    systems: Vec<Lacp>,
    /// The other end of each port that has a cable.
    cables: BTreeMap<End, End>,
    /// Systems that neither hear nor speak any more, with their links up.
    silent: Vec<usize>,
    frames: Wire,
    order: u64,
    random: SplitMix64,
    /// Frames lost, of 100; delays of up to this.
    loss: u64,
    delay: u64,
    /// Frames may overtake others.
    reorders: bool,
    /// The last arrival at a port.
    arrived: BTreeMap<End, u64>,
    collecting: BTreeMap<End, bool>,
    sent: BTreeMap<End, Vec<u64>>,
    log: String,
}

impl World {
    fn new(seed: u64, systems: &[LacpSettings]) -> World {
        World {
            now: 0,
            systems: systems.iter().map(|s| Lacp::new(s).unwrap()).collect(),
            cables: BTreeMap::new(),
            silent: Vec::new(),
            frames: BinaryHeap::new(),
            order: 0,
            random: SplitMix64::of(seed, 1),
            loss: 0,
            delay: MS,
            reorders: false,
            arrived: BTreeMap::new(),
            collecting: BTreeMap::new(),
            sent: BTreeMap::new(),
            log: String::new(),
        }
    }

    fn connect(&mut self, a: End, b: End) {
        self.cables.insert(a, b);
        self.cables.insert(b, a);
        for (system, port) in [a, b] {
            self.systems[system].set_link(Instant(self.now), Member(port), true);
        }
        self.settle();
    }

    fn cut(&mut self, a: End) {
        let b = self.cables.remove(&a).unwrap();
        self.cables.remove(&b);
        for (system, port) in [a, b] {
            self.systems[system].set_link(Instant(self.now), Member(port), false);
        }
        self.settle();
    }

    /// Does what the systems ask for.
    fn settle(&mut self) {
        let now = Instant(self.now);
        for system in 0..self.systems.len() {
            while let Some(output) = self.systems[system].poll(now) {
                match output {
                    Output::State {
                        member,
                        collecting,
                        distributing,
                    } => {
                        assert_eq!(collecting, distributing, "coupled");
                        let end = (system, member.0);
                        self.collecting.insert(end, collecting);
                        let (at, word) = (self.now / MS, if collecting { "in use" } else { "not in use" });
                        self.log += &format!("{at:6} ms system {} port {} {word}\n", end.0, end.1);
                    }
                    Output::Send { member, frame } => {
                        let end = (system, member.0);
                        self.sent.entry(end).or_default().push(self.now);
                        self.send(end, &frame);
                    }
                }
            }
        }
    }

    fn send(&mut self, from: End, frame: &Frame) {
        if self.silent.contains(&from.0) || self.random.below(100) < self.loss {
            return;
        }
        if let Some(to) = self.cables.get(&from) {
            self.order += 1;
            let mut at = self.now + 1 + self.random.below(self.delay);
            let last = self.arrived.entry(*to).or_default();
            if !self.reorders {
                at = at.max(*last);
            }
            *last = at.max(*last);
            let bytes = frame.emit(MacAddr([2, 0, 0, 0, 1, from.1])).to_vec();
            self.frames.push(Reverse((at, self.order, *to, bytes)));
        }
    }

    /// Until so many seconds have passed.
    fn run(&mut self, seconds: u64) {
        let end = self.now + seconds * SECOND;
        loop {
            let timers = self.systems.iter().filter_map(Lacp::next_time).map(|t| t.0);
            let frame = self.frames.peek().map(|Reverse((at, ..))| *at);
            let Some(next) = timers.chain(frame).min().filter(|t| *t <= end) else {
                break;
            };
            assert!(next >= self.now, "a timer of the past: {next} at {}", self.now);
            self.now = next;
            while let Some((to, bytes)) = self.frame_due(next) {
                let frame = Frame::parse(&bytes).unwrap();
                if self.cables.contains_key(&to) && !self.silent.contains(&to.0) {
                    self.systems[to.0].receive(Instant(next), Member(to.1), &frame);
                }
            }
            for system in &mut self.systems {
                system.tick(Instant(next));
            }
            self.settle();
        }
        self.now = end;
    }

    fn frame_due(&mut self, now: u64) -> Option<(End, Vec<u8>)> {
        self.frames.peek().filter(|Reverse((at, ..))| *at <= now)?;
        self.frames.pop().map(|Reverse((_, _, to, bytes))| (to, bytes))
    }

    /// Ports in use.
    fn used(&self) -> Vec<End> {
        let used = self.collecting.iter().filter(|(_, on)| **on);
        used.map(|(end, _)| *end).collect()
    }

    fn view(&self, end: End) -> PortView {
        self.systems[end.0].port(Member(end.1)).unwrap()
    }

    fn log(&mut self) -> String {
        core::mem::take(&mut self.log)
    }
}

/// Two systems, all ports of one wired to those of the other.
fn pair(seed: u64, a: (bool, bool), b: (bool, bool), ports: u8) -> World {
    let systems = [(1, a), (2, b)].map(|(n, (active, short))| settings(n, active, short, u16::from(ports)));
    let mut world = World::new(seed, &systems);
    for port in 0..ports {
        world.connect((0, port), (1, port));
    }
    world
}

const ACTIVE: (bool, bool) = (true, true);
const ACTIVE_LONG: (bool, bool) = (true, false);
const PASSIVE: (bool, bool) = (false, true);
const PASSIVE_LONG: (bool, bool) = (false, false);

#[test]
fn who_speaks_to_whom() {
    let mut text = String::new();
    for (name, a, b) in [
        ("active, active", ACTIVE, ACTIVE),
        ("active, passive", ACTIVE, PASSIVE),
        ("active, passive, long", ACTIVE_LONG, PASSIVE_LONG),
        ("passive, passive", PASSIVE, PASSIVE),
    ] {
        let mut world = pair(0, a, b, 2);
        world.run(100);
        let before: usize = world.sent.values().map(Vec::len).sum();
        world.run(300);
        let after: usize = world.sent.values().map(Vec::len).sum();
        text += &format!(
            "{name}: {} LACPDUs in five minutes\n{}",
            after - before,
            world.log()
        );
    }
    expect![[r#"
        active, active: 1200 LACPDUs in five minutes
          2001 ms system 1 port 0 in use
          2001 ms system 0 port 1 in use
          2001 ms system 0 port 0 in use
          2001 ms system 1 port 1 in use
        active, passive: 1200 LACPDUs in five minutes
          2001 ms system 1 port 0 in use
          2001 ms system 0 port 0 in use
          2001 ms system 0 port 1 in use
          2001 ms system 1 port 1 in use
        active, passive, long: 40 LACPDUs in five minutes
          2001 ms system 0 port 1 in use
          2001 ms system 1 port 1 in use
          2001 ms system 0 port 0 in use
          2001 ms system 1 port 0 in use
        passive, passive: 0 LACPDUs in five minutes
    "#]]
    .assert_eq(&text);
}

/// What both ends say when it works.
#[test]
fn the_view_of_a_port_in_use() {
    let mut world = pair(0, ACTIVE, PASSIVE_LONG, 1);
    world.run(10);
    let mut text = String::new();
    for end in [(0, 0), (1, 0)] {
        let v = world.view(end);
        text += &format!(
            "{:?} {:?} selected {}\n  actor   {:?}\n  partner {:?}\n",
            v.receive, v.mux, v.selected, v.actor, v.partner
        );
    }
    expect![[r#"
        Current CollectingDistributing selected true
          actor   Participant { system: System { priority: 32768, address: 02:00:00:00:00:01 }, key: 16, port: Port { priority: 32768, number: 1 }, state: activity timeout aggregation synchronization collecting distributing }
          partner Participant { system: System { priority: 32768, address: 02:00:00:00:00:02 }, key: 32, port: Port { priority: 32768, number: 1 }, state: aggregation synchronization collecting distributing }
        Current CollectingDistributing selected true
          actor   Participant { system: System { priority: 32768, address: 02:00:00:00:00:02 }, key: 32, port: Port { priority: 32768, number: 1 }, state: aggregation synchronization collecting distributing }
          partner Participant { system: System { priority: 32768, address: 02:00:00:00:00:01 }, key: 16, port: Port { priority: 32768, number: 1 }, state: activity timeout aggregation synchronization collecting distributing }
    "#]].assert_eq(&text);
}

/// The other end falls silent with the link up, and speaks again: after 3 s without it, or 90.
#[test]
fn a_partner_that_disappears() {
    let mut text = String::new();
    for (name, who) in [("short", ACTIVE), ("long", ACTIVE_LONG)] {
        let mut world = pair(0, who, who, 2);
        world.run(60);
        world.silent.push(1);
        let last = world.sent[&(1, 0)]
            .iter()
            .copied()
            .filter(|t| *t <= world.now)
            .max()
            .unwrap();
        world.log();
        world.run(200);
        let v = world.view((0, 0));
        text += &format!("{name} timeout, last heard at {} ms\n", last / MS);
        text += &format!("{}  then {:?}, {:?}\n", world.log(), v.receive, v.mux);
        assert_eq!(v.partner.system, System::default());
        world.silent.clear();
        world.run(100);
        assert_eq!(world.used().len(), 4, "{name}: it is back");
    }
    expect![[r#"
        short timeout, last heard at 60000 ms
         62000 ms system 1 port 0 not in use
         62000 ms system 1 port 1 not in use
         63000 ms system 0 port 1 not in use
         63000 ms system 0 port 0 not in use
          then Defaulted, Detached
        long timeout, last heard at 30000 ms
        120000 ms system 0 port 0 not in use
        120001 ms system 1 port 1 not in use
        120001 ms system 0 port 1 not in use
        120001 ms system 1 port 0 not in use
          then Defaulted, Detached
    "#]]
    .assert_eq(&text);
}

/// A link that fails carries nothing at once; when it is back no time to wait for others is needed.
#[test]
fn a_link_that_fails_and_comes_back() {
    let mut world = pair(0, ACTIVE, ACTIVE, 2);
    world.run(10);
    world.log();
    world.cut((0, 1));
    world.run(5);
    world.connect((0, 1), (1, 1));
    world.run(5);
    expect![[r#"
        cut at 10 s, back at 15 s
         10000 ms system 0 port 1 not in use
         10000 ms system 1 port 1 not in use
         15000 ms system 0 port 1 in use
         15000 ms system 1 port 1 in use
    "#]]
    .assert_eq(&format!("cut at 10 s, back at 15 s\n{}", world.log()));
}

/// Ports 0 and 1 lead to one switch, port 2 to another, and port 3 back to port 4.
#[test]
fn a_wrong_cable_carries_nothing() {
    let systems = [
        settings(1, true, true, 5),
        settings(2, true, true, 2),
        settings(3, true, true, 1),
    ];
    let mut world = World::new(0, &systems);
    // The wrong one is there first.
    world.connect((0, 2), (2, 0));
    world.connect((0, 0), (1, 0));
    world.connect((0, 1), (1, 1));
    world.connect((0, 3), (0, 4));
    world.run(30);
    assert_eq!(world.used(), [(0, 0), (0, 1), (1, 0), (1, 1)]);
    assert_eq!(world.view((0, 2)).mux, Mux::Detached);
    assert_eq!(
        world.view((2, 0)).mux,
        Mux::Attached,
        "it would, if we were in sync"
    );
    // The group in use stays as long as one of its ports works.
    world.cut((0, 0));
    world.run(10);
    assert_eq!(world.used(), [(0, 1), (1, 1)]);
    // Then the other one is taken.
    world.cut((0, 1));
    world.run(10);
    assert_eq!(world.used(), [(0, 2), (2, 0)]);
    // And stays.
    world.connect((0, 0), (1, 0));
    world.connect((0, 1), (1, 1));
    world.run(10);
    assert_eq!(world.used(), [(0, 2), (2, 0)]);
}

/// A port is plugged into another switch.
#[test]
fn a_cable_that_moves() {
    let systems = [settings(1, true, true, 2), settings(2, true, true, 3)];
    let mut world = World::new(0, &systems);
    world.connect((0, 0), (1, 0));
    world.connect((0, 1), (1, 1));
    world.run(10);
    world.cut((0, 1));
    world.connect((0, 1), (1, 2));
    world.run(10);
    assert_eq!(world.used(), [(0, 0), (0, 1), (1, 0), (1, 2)]);
    // Two cables change places: what port 0 knew of its partner is heard at port 1.
    world.cut((0, 0));
    world.cut((0, 1));
    world.connect((0, 1), (1, 0));
    world.run(1);
    assert_eq!(world.view((0, 0)).partner.system, System::default(), "port_moved");
    world.connect((0, 0), (1, 2));
    world.run(10);
    assert_eq!(world.used(), [(0, 0), (0, 1), (1, 0), (1, 2)]);
}

fn lone(active: bool) -> Lacp {
    let mut lacp = Lacp::new(&settings(1, active, true, 2)).unwrap();
    lacp.set_link(seconds(0), Member(0), true);
    lacp
}

fn frames(lacp: &mut Lacp, now: Instant) -> Vec<Frame> {
    let outputs = core::iter::from_fn(|| lacp.poll(now));
    let frames = outputs.filter_map(|o| match o {
        Output::Send { frame, .. } => Some(frame),
        Output::State { .. } => None,
    });
    frames.collect()
}

/// What a partner says that is in sync with port 1, and what it knows of it.
fn partner(lacp: &Lacp, aggregates: bool) -> Lacpdu {
    let state = State::ACTIVITY | State::TIMEOUT | State::SYNCHRONIZATION;
    Lacpdu {
        actor: Participant {
            system: System {
                priority: 1,
                address: MacAddr([2, 9, 9, 9, 9, 9]),
            },
            key: 7,
            port: lacp::Port {
                priority: 1,
                number: 1,
            },
            state: state.with(State::AGGREGATION, aggregates),
        },
        partner: lacp.port(Member(0)).unwrap().actor,
        max_delay: 0,
    }
}

#[test]
fn an_individual_partner_is_a_group_by_itself() {
    let mut lacp = lone(true);
    lacp.set_link(seconds(0), Member(1), true);
    for s in 1..5 {
        for member in [0, 1] {
            let mut pdu = partner(&lacp, false);
            pdu.actor.port.number += u16::from(member);
            lacp.receive(seconds(s), Member(member), &Frame::Lacpdu(pdu));
        }
    }
    let mux = |m| lacp.port(Member(m)).map(|p| p.mux);
    assert_eq!(mux(0), Some(Mux::CollectingDistributing));
    assert_eq!(mux(1), Some(Mux::Detached));
}

#[test]
fn a_partner_that_takes_us_for_another_is_not_in_sync() {
    let mut lacp = lone(true);
    for s in 1..8 {
        let mut pdu = partner(&lacp, true);
        pdu.partner.port.number = 2;
        lacp.receive(seconds(s), Member(0), &Frame::Lacpdu(pdu));
    }
    assert_eq!(lacp.port(Member(0)).map(|p| p.mux), Some(Mux::Attached));
    let pdu = partner(&lacp, true);
    lacp.receive(seconds(8), Member(0), &Frame::Lacpdu(pdu));
    let port = lacp.port(Member(0)).unwrap();
    assert_eq!(port.mux, Mux::CollectingDistributing);
    // It is not in sync any more.
    let mut pdu = partner(&lacp, true);
    pdu.actor.state = pdu.actor.state.with(State::SYNCHRONIZATION, false);
    lacp.receive(seconds(9), Member(0), &Frame::Lacpdu(pdu));
    assert_eq!(lacp.port(Member(0)).map(|p| p.mux), Some(Mux::Attached));
}

#[test]
fn a_partner_that_changes_its_key_begins_anew() {
    let mut lacp = lone(true);
    for s in 1..5 {
        let pdu = partner(&lacp, true);
        lacp.receive(seconds(s), Member(0), &Frame::Lacpdu(pdu));
    }
    assert_eq!(
        lacp.port(Member(0)).map(|p| p.mux),
        Some(Mux::CollectingDistributing)
    );
    let mut pdu = partner(&lacp, true);
    pdu.actor.key = 8;
    lacp.receive(seconds(5), Member(0), &Frame::Lacpdu(pdu));
    assert_eq!(lacp.port(Member(0)).map(|p| p.mux), Some(Mux::Waiting));
}

#[test]
fn at_most_three_lacpdus_a_second() {
    let mut lacp = lone(true);
    let mut sent: Vec<u64> = Vec::new();
    for i in 0..400 {
        let now = Instant(i * 10 * MS);
        let mut pdu = partner(&lacp, true);
        // It never understands: each is a reason to answer.
        pdu.partner.key = 0;
        lacp.receive(now, Member(0), &Frame::Lacpdu(pdu));
        sent.extend(frames(&mut lacp, now).iter().map(|_| now.0));
    }
    assert_eq!(sent.len(), 12);
    for four in sent.windows(4) {
        assert!(four[3] - four[0] >= SECOND);
    }
    assert_eq!(lacp.next_time(), Some(Instant(sent[9] + SECOND)));
}

#[test]
fn markers_are_answered() {
    let mut lacp = lone(false);
    let marker = Marker {
        response: false,
        port: 5,
        system: MacAddr([2, 9, 9, 9, 9, 9]),
        transaction: 77,
    };
    lacp.receive(seconds(1), Member(0), &Frame::Marker(marker));
    let answer = marker.answer().unwrap();
    assert_eq!(frames(&mut lacp, seconds(1)), [Frame::Marker(answer)]);
    lacp.receive(seconds(1), Member(0), &Frame::Marker(answer));
    assert_eq!(frames(&mut lacp, seconds(1)), []);
    // A flood of them has one answer a turn, and none when the link is down.
    for _ in 0..9 {
        lacp.receive(seconds(2), Member(0), &Frame::Marker(marker));
    }
    lacp.receive(seconds(2), Member(1), &Frame::Marker(marker));
    lacp.receive(seconds(2), Member(99), &Frame::Marker(marker));
    assert_eq!(frames(&mut lacp, seconds(2)), [Frame::Marker(answer)]);
    let port = lacp.port(Member(0)).unwrap();
    assert_eq!((port.markers, port.received), (11, 0));
}

#[test]
fn settings_may_change() {
    let mut lacp = lone(false);
    assert_eq!(frames(&mut lacp, seconds(0)), [], "passive");
    lacp.configure(seconds(1), true, false);
    lacp.tick(seconds(2));
    let sent = frames(&mut lacp, seconds(2));
    let [Frame::Lacpdu(pdu)] = sent[..] else {
        panic!("{sent:?}");
    };
    assert!(pdu.actor.state.has(State::ACTIVITY) && !pdu.actor.state.has(State::TIMEOUT));
    assert_eq!(lacp.port(Member(9)), None);
}

#[test]
fn what_cannot_be() {
    let good = || settings(1, true, true, 2);
    let mut text = String::new();
    for wrong in [
        |s: &mut LacpSettings| s.system.address = MacAddr::default(),
        |s: &mut LacpSettings| s.system.address = MacAddr::BROADCAST,
        |s: &mut LacpSettings| s.key = 0,
        |s: &mut LacpSettings| s.ports.clear(),
        |s: &mut LacpSettings| s.ports = vec![s.ports[0]; 33],
        |s: &mut LacpSettings| s.ports[1].number = 0,
        |s: &mut LacpSettings| s.ports[1].number = 1,
    ] {
        let mut settings = good();
        wrong(&mut settings);
        text += &format!("{}\n", Lacp::new(&settings).unwrap_err());
    }
    expect![[r#"
        system: 00:00:00:00:00:00; allowed: the address of one station
        system: ff:ff:ff:ff:ff:ff; allowed: the address of one station
        key: 0; allowed: 1 to 65535
        ports: 0; allowed: 1 to 32
        ports: 33; allowed: 1 to 32
        ports: number 0; allowed: 1 to 65535
        ports: number 1 is there twice
    "#]]
    .assert_eq(&text);
    assert!(Lacp::new(&good()).is_ok());
}

/// Whatever is lost, late or out of order, and whatever links do: a port that is in use at one end and stays so for a while is
/// in use at the other; nobody sends more than it may; and when the network behaves, all is in use again.
fn promises(seed: u64) -> Result<(), String> {
    let mut random = SplitMix64::of(seed, 2);
    let who = [ACTIVE, ACTIVE_LONG, PASSIVE, PASSIVE_LONG];
    let a = who[random.below(2) as usize];
    let b = who[random.below(4) as usize];
    let ports = 1 + random.below(4) as u8;
    let mut world = pair(seed, a, b, ports);
    world.loss = random.below(40);
    (world.delay, world.reorders) = (1 + random.below(1500) * MS, true);
    for _ in 0..random.below(20) {
        let port = random.below(u64::from(ports)) as u8;
        if world.cables.contains_key(&(0, port)) {
            world.cut((0, port));
        } else {
            world.connect((0, port), (1, port));
        }
        world.run(random.below(20));
        for end in world.used() {
            if !world.cables.contains_key(&end) {
                return Err(format!("{end:?} is in use without a cable"));
            }
        }
    }
    (world.loss, world.delay, world.reorders) = (0, MS, false);
    for port in 0..ports {
        if !world.cables.contains_key(&(0, port)) {
            world.connect((0, port), (1, port));
        }
    }
    // Longer than a long timeout, a short one behind it, and the time to wait for others.
    world.run(200);
    if world.used().len() != 2 * usize::from(ports) {
        let views: Vec<_> = (0..ports)
            .map(|p| (world.view((0, p)), world.view((1, p))))
            .collect();
        return Err(format!("{a:?} {b:?}: in use are {:?}: {views:?}", world.used()));
    }
    for (end, sent) in &world.sent {
        if let Some(four) = sent.windows(4).find(|w| w[3] - w[0] < SECOND) {
            return Err(format!("{end:?} sends too much: {four:?}"));
        }
    }
    Ok(())
}

#[test]
fn promises_hold_in_bad_networks() {
    for_seeds("VNIC_LACP_SEED", 40, "promises_hold_in_bad_networks", promises);
}

proptest! {
    /// A partner that says anything at any time neither ends in a panic nor in a timer of the past, and gets no more than it may.
    #[test]
    fn any_partner(said in prop::collection::vec((0u64..3000, any::<[u8; 12]>(), any::<bool>()), 0..60)) {
        let mut lacp = lone(true);
        lacp.set_link(seconds(0), Member(1), true);
        let (mut now, mut sent) = (0, vec![Vec::new(); 2]);
        for (wait, noise, honest) in said {
            now += wait * MS;
            let at = Instant(now);
            let member = noise[0] & 1;
            let mut pdu = partner(&lacp, noise[1] & 1 != 0);
            if !honest {
                pdu.actor.state = State(noise[2]);
                pdu.actor.key = u16::from(noise[3] & 3);
                pdu.actor.system.address = MacAddr([2, 0, 0, 0, 0, noise[4] & 3]);
                pdu.partner.state = State(noise[5]);
                pdu.partner.port.number = u16::from(noise[6] & 3);
            }
            match noise[7] & 15 {
                0 => lacp.set_link(at, Member(member), noise[8] & 1 != 0),
                _ => lacp.receive(at, Member(member), &Frame::Lacpdu(pdu)),
            }
            while let Some(output) = lacp.poll(at) {
                if let Output::Send { member, .. } = output {
                    sent[usize::from(member.0)].push(now);
                }
            }
            lacp.tick(at);
            while lacp.poll(at).is_some() {}
            prop_assert!(lacp.next_time().is_none_or(|t| t > at), "{:?} at {:?}", lacp.next_time(), at);
        }
        for sent in sent {
            prop_assert!(sent.windows(4).all(|w| w[3] - w[0] >= SECOND));
        }
    }
}

#[test]
fn settings_show_in_a_view() {
    let lacp = lone(true);
    let view = lacp.port(Member(0)).unwrap();
    assert_eq!(
        view.actor.state.to_string(),
        "activity timeout aggregation defaulted expired"
    );
    assert_eq!(
        (view.receive, view.mux, view.selected),
        (Receive::Expired, Mux::Detached, false)
    );
}
