//! CEE: a port and a switch's frames, two ports on a wire that loses frames, and which version ports come to.

use vnic_wire::dcbx::cee::{Feature, Groups, Pause, Row};
use vnic_wire::lldp::{Id, Lldpdu};

use super::*;

const CEE: Versions = Versions::Only(Version::Cee);
const IEEE: Versions = Versions::Only(Version::Ieee);

fn feature<T>(willing: bool, value: T) -> Feature<T> {
    Feature {
        operating: 0,
        enabled: true,
        willing,
        error: false,
        value,
    }
}

/// A switch that is not willing: groups with 30 and 70 %, one priority of 15, flow control for 3, priority 3 for EtherType 0x8915.
fn switch() -> Cee {
    Cee {
        groups: Some(feature(
            false,
            Groups {
                of_priority: [0, 0, 0, 1, 1, 1, 1, 15],
                share: [30, 70, 0, 0, 0, 0, 0, 0],
                classes_max: 8,
            },
        )),
        pause: Some(feature(
            false,
            Pause {
                priorities: 1 << 3,
                classes_max: 8,
            },
        )),
        applications: Some(feature(
            false,
            Vec::from([Row {
                selector: 0,
                protocol: 0x8915,
                priorities: 1 << 3,
            }]),
        )),
        ..Cee::default()
    }
}

/// A port and a station that is played by hand.
struct Played {
    agent: Agent,
    now: Instant,
}

impl Played {
    fn new(wanted: Administrative) -> Played {
        let mut agent = agent(1);
        agent.set_dcbx(Instant(0), Some(wanted));
        Played {
            agent,
            now: Instant(0),
        }
    }

    /// The station says this with these numbers, and the port answers: its numbers, and its features.
    fn says(&mut self, said: &Cee, sequence: u32, acknowledged: u32) -> (u32, u32, Cee) {
        let mut said = said.clone();
        (said.control.sequence, said.control.acknowledged) = (sequence, acknowledged);
        let mut more = Vec::new();
        said.emit(&mut more);
        let id = |bytes| Id { subtype: 7, bytes };
        let frame = Lldpdu::frame(mac(9), id(b"switch"), id(b"1"), 120, &more);
        self.agent.receive(self.now, &frame);
        self.told()
    }

    /// What the port says next.
    fn told(&mut self) -> (u32, u32, Cee) {
        self.now = self.now + core::time::Duration::from_secs(30);
        self.agent.tick(self.now);
        let mut last = None;
        while let Some(output) = self.agent.poll() {
            if let Output::Send(frame) = output {
                let pdu = Lldpdu::parse(&frame).expect("a message");
                let mut unread = 0;
                last = Cee::parse(pdu.more, &mut unread);
                assert_eq!(Exchange::parse(pdu.more, &mut unread), Exchange::default());
                assert_eq!(unread, 0);
            }
        }
        let told = last.expect("it says CEE");
        (told.control.sequence, told.control.acknowledged, told)
    }

    fn outcome(&self) -> &Outcome {
        self.agent.dcbx().expect("DCBX").outcome()
    }

    fn pfc(&self) -> (u8, Source, Option<&'static str>) {
        let outcome = self.outcome();
        (outcome.operational.pfc, outcome.sources.pfc, outcome.problem)
    }
}

fn willing(versions: Versions) -> Administrative {
    Administrative {
        versions,
        willing: Willing::default(),
        parameters: Parameters {
            pfc: 1,
            ..Parameters::default()
        },
        limits: Limits::default(),
    }
}

#[test]
fn numbers_say_what_was_read() {
    let mut port = Played::new(willing(CEE));
    let (sequence, acknowledged, told) = port.told();
    assert_eq!((sequence, acknowledged), (1, 0));
    assert_eq!(
        told.pause,
        Some(feature(
            true,
            Pause {
                priorities: 1,
                classes_max: 8
            }
        ))
    );
    // The switch has not read it: nothing is taken, and what it said is acknowledged.
    let (sequence, acknowledged, _) = port.says(&switch(), 4, 0);
    assert_eq!((sequence, acknowledged, port.pfc().1), (1, 4, Source::Local));
    // It has.
    let (sequence, acknowledged, _) = port.says(&switch(), 4, 1);
    assert_eq!((sequence, acknowledged), (1, 4));
    let outcome = port.outcome();
    let peers = Sources {
        ets: Source::Peer,
        pfc: Source::Peer,
        applications: Source::Peer,
    };
    assert_eq!(
        (outcome.sources, outcome.problem, outcome.version),
        (peers, None, Version::Cee)
    );
    let acts = &outcome.operational;
    assert_eq!(
        (acts.pfc, acts.classes.of_priority),
        (1 << 3, [0, 0, 0, 1, 1, 1, 1, 7])
    );
    assert_eq!((acts.applications.len(), acts.applications[0].priority), (1, 3));
    // The operator changes its mind twice: the second change waits until the first one is acknowledged.
    let mut wanted = willing(CEE);
    wanted.parameters.pfc = 2;
    port.agent.set_dcbx(port.now, Some(wanted.clone()));
    let pause = |told: &Cee| told.pause.map(|pause| pause.value.priorities);
    let (sequence, _, told) = port.told();
    assert_eq!((sequence, pause(&told)), (2, Some(2)));
    wanted.parameters.pfc = 4;
    port.agent.set_dcbx(port.now, Some(wanted));
    let (sequence, _, told) = port.told();
    assert_eq!((sequence, pause(&told)), (2, Some(2)));
    let (sequence, _, told) = port.says(&switch(), 4, 2);
    assert_eq!((sequence, pause(&told)), (3, Some(4)));
    assert_eq!(
        port.pfc(),
        (1 << 3, Source::Peer, None),
        "the switch's still acts"
    );
    // The switch starts anew.
    let (_, acknowledged, _) = port.says(&switch(), 1, 0);
    assert_eq!((acknowledged, port.pfc().0), (1, 1 << 3));
    // It leaves: all begins anew.
    port.agent.set_link(port.now, false);
    assert_eq!(port.pfc(), (4, Source::Local, None));
    port.agent.set_link(port.now, true);
    let (sequence, acknowledged, _) = port.told();
    assert_eq!((sequence, acknowledged), (1, 0));
}

/// What acts on a port with flow control for priority 0, and whether it tells an error, by what a switch says of flow control.
#[test]
fn flow_control_of_both_ends() {
    let mut table = String::from("port         switch           acts  of     error\n");
    let own = |priorities| Pause {
        priorities,
        classes_max: 8,
    };
    for ready in [false, true] {
        for (name, pause) in [
            ("says nothing", None),
            (
                "not enabled",
                Some(Feature {
                    enabled: false,
                    ..feature(false, own(8))
                }),
            ),
            (
                "another version",
                Some(Feature {
                    operating: 1,
                    ..feature(false, own(8))
                }),
            ),
            ("not willing", Some(feature(false, own(8)))),
            ("not willing, 0", Some(feature(false, own(1)))),
            (
                "with an error",
                Some(Feature {
                    error: true,
                    ..feature(false, own(8))
                }),
            ),
            ("willing", Some(feature(true, own(8)))),
            ("willing, 0", Some(feature(true, own(1)))),
        ] {
            let mut wanted = willing(CEE);
            wanted.willing.pfc = ready;
            let mut port = Played::new(wanted);
            let said = Cee { pause, ..switch() };
            port.says(&said, 1, 1);
            let (pfc, source, problem) = port.pfc();
            // An error is told with the next number.
            let (sequence, _, told) = port.told();
            let error = told.pause.is_some_and(|pause| pause.error);
            assert_eq!(sequence, if error { 2 } else { 1 }, "{name}");
            assert!(problem.is_none() || error);
            let ready = if ready { "willing" } else { "not willing" };
            let (acts, source) = (pfc.trailing_zeros(), std::format!("{source:?}"));
            table += std::format!("{ready:<12} {name:<16} {acts:<5} {source:<6} {error}\n").as_str();
        }
    }
    expect![[r#"
        port         switch           acts  of     error
        not willing  says nothing     0     Local  true
        not willing  not enabled      0     Local  false
        not willing  another version  0     Local  false
        not willing  not willing      0     Local  true
        not willing  not willing, 0   0     Local  false
        not willing  with an error    0     Local  true
        not willing  willing          0     Local  false
        not willing  willing, 0       0     Local  false
        willing      says nothing     0     Local  true
        willing      not enabled      0     Local  false
        willing      another version  0     Local  false
        willing      not willing      3     Peer   false
        willing      not willing, 0   0     Peer   false
        willing      with an error    0     Local  false
        willing      willing          0     Local  true
        willing      willing, 0       0     Local  false
    "#]]
    .assert_eq(&table);
}

#[test]
fn what_a_port_cannot_have_is_told_as_an_error() {
    let mut port = Played::new(willing(CEE));
    let mut said = switch();
    if let Some(groups) = &mut said.groups {
        groups.value.share[1] = 60;
    }
    port.says(&said, 1, 1);
    let outcome = port.outcome();
    assert_eq!(
        (outcome.sources.ets, outcome.sources.pfc),
        (Source::Local, Source::Peer)
    );
    assert!(
        outcome.problem.is_some_and(|why| why.contains("100 %")),
        "{outcome:?}"
    );
    let error = |told: &Cee| told.groups.map(|groups| groups.error);
    assert_eq!(error(&port.told().2), Some(true));
    // The switch mends it.
    let (sequence, _, told) = port.says(&switch(), 2, 2);
    assert_eq!(
        (sequence, error(&told), port.outcome().problem),
        (3, Some(false), None)
    );
    assert_eq!(port.outcome().sources.ets, Source::Peer);
    // A greater version of the protocol: the port waits for the switch to go back.
    let mut newer = switch();
    newer.control.operating = 1;
    let (_, acknowledged, _) = port.says(&newer, 3, 3);
    assert_eq!((acknowledged, port.pfc().1), (2, Source::Peer));
}

/// A peer that has applications in error, as lldpad has those that the other station names none of: the port names them.
#[test]
fn applications_that_a_peer_misses_are_named() {
    let mut wanted = willing(CEE);
    wanted.parameters.applications = Vec::from([Application {
        selector: 3,
        protocol: 4791,
        priority: 5,
    }]);
    let mut port = Played::new(wanted.clone());
    let names = |told: &Cee| {
        let rows = told.applications.iter().flat_map(|rows| &rows.value);
        rows.map(|row| (row.protocol, row.priorities)).collect::<Vec<_>>()
    };
    let mut said = switch();
    let applications = |said: &mut Cee, error, priorities| {
        if let Some(rows) = &mut said.applications {
            rows.error = error;
            rows.value[0].priorities = priorities;
        }
    };
    let acts = |port: &Played| {
        let outcome = port.outcome();
        let rows = outcome.operational.applications.iter();
        let rows: Vec<_> = rows.map(|row| (row.protocol, row.priority)).collect();
        (rows, outcome.sources.applications, outcome.problem)
    };
    let mine = (Vec::from([(4791, 5)]), Source::Local, None);
    applications(&mut said, true, 1 << 3);
    let (sequence, _, told) = port.says(&said, 1, 1);
    assert_eq!(
        (sequence, names(&told)),
        (2, [(4791, 1 << 5), (0x8915, 1 << 3)].into())
    );
    assert_eq!(acts(&port), mine);
    // It has read them, and its error is gone. The port goes on with them.
    applications(&mut said, false, 1 << 3);
    let (sequence, _, told) = port.says(&said, 2, 2);
    assert_eq!((sequence, names(&told).len()), (2, 2));
    assert_eq!(acts(&port), (Vec::from([(0x8915, 3)]), Source::Peer, None));
    // Another priority; the operator's own row for the protocol is told, and the peer's acts.
    applications(&mut said, false, 1 << 6);
    let (sequence, _, told) = port.says(&said, 3, 2);
    assert_eq!(
        (sequence, names(&told)),
        (3, [(4791, 1 << 5), (0x8915, 1 << 6)].into())
    );
    wanted.parameters.applications.push(Application {
        selector: 1,
        protocol: 0x8915,
        priority: 1,
    });
    port.agent.set_dcbx(port.now, Some(wanted.clone()));
    let (sequence, _, told) = port.says(&said, 3, 3);
    assert_eq!(
        (sequence, names(&told)),
        (4, [(4791, 1 << 5), (0x8915, 1 << 1)].into())
    );
    port.says(&said, 3, 4);
    assert_eq!(acts(&port), (Vec::from([(0x8915, 6)]), Source::Peer, None));
    // The peer is willing, or the port is not: only the operator's are told.
    wanted.parameters.applications.truncate(1);
    port.agent.set_dcbx(port.now, Some(wanted.clone()));
    let (_, _, told) = port.says(&said, 3, 4);
    assert_eq!(names(&told).len(), 2);
    if let Some(rows) = &mut said.applications {
        rows.willing = true;
    }
    let (sequence, _, told) = port.says(&said, 4, 5);
    assert_eq!((sequence, names(&told).len()), (6, 1));
    assert_eq!(port.says(&said, 4, 6).0, 6);
    assert_eq!(acts(&port), mine);
}

/// A port of four classes with two priorities that it pauses at a time says so, and takes no more.
#[test]
fn limits_are_told_and_kept() {
    let mut wanted = willing(CEE);
    wanted.limits = Limits {
        classes: 4,
        pfc: 2,
        ..Limits::default()
    };
    let mut port = Played::new(wanted.clone());
    let (_, _, told) = port.told();
    let most = (
        told.groups.map(|groups| groups.value.classes_max),
        told.pause.map(|pause| pause.value.classes_max),
    );
    assert_eq!(most, (Some(4), Some(2)));
    let mut said = switch();
    if let Some(pause) = &mut said.pause {
        pause.value.priorities = 0b11_1000;
    }
    port.says(&said, 1, 1);
    let outcome = port.outcome();
    assert_eq!(
        (outcome.sources.ets, outcome.sources.pfc),
        (Source::Peer, Source::Local)
    );
    assert_eq!(outcome.operational.classes.of_priority, [0, 0, 0, 1, 1, 1, 1, 3]);
    assert!(
        outcome.problem.is_some_and(|why| why.contains("flow control")),
        "{outcome:?}"
    );
    // More fits from now on; what was said is heard again.
    wanted.limits.pfc = 3;
    port.agent.set_dcbx(port.now, Some(wanted));
    port.says(&said, 1, 2);
    port.says(&said, 1, 3);
    assert_eq!(port.pfc(), (0b11_1000, Source::Peer, None));
}

/// What acts on the first of two ports of CEE by its text.
fn by_the_text(mine: &Administrative, peer: &Administrative) -> Parameters {
    let mut acts = mine.parameters.clone();
    let (me, other, theirs) = (mine.willing, peer.willing, &peer.parameters);
    if me.ets && !other.ets {
        acts.classes = Groups::of(&theirs.classes).classes(8);
    }
    if me.pfc && !other.pfc {
        acts.pfc = theirs.pfc;
    }
    if me.applications && !other.applications && !theirs.applications.is_empty() {
        acts.applications = theirs.applications.clone();
        for row in &mut acts.applications {
            row.selector = 4;
        }
    }
    acts
}

/// Whatever was lost, and however the operators change their minds, both ends come to what the text says, and fall silent then.
#[test]
fn two_ports_come_to_what_the_text_says() {
    for seed in 0..300 {
        let mut wire = Wire::of(seed, &[CEE, CEE]);
        for _ in 0..4 {
            let (seconds, lost) = (wire.seed.next(100), wire.seed.next(70));
            wire.pass(seconds, lost);
            wire.turn();
        }
        wire.pass(125, 0);
        for i in 0..2 {
            let text = by_the_text(wire.wants(i), wire.wants(1 - i));
            assert_eq!(*wire.acts(i), text, "seed {seed}, port {i}");
            let outcome = wire.negotiation(i).outcome();
            let [me, other] = [i, 1 - i].map(|i| wire.wants(i));
            let differ = me.willing.pfc == other.willing.pfc && me.parameters.pfc != other.parameters.pfc;
            let told = outcome.problem.is_some_and(|why| why.starts_with("flow control"));
            assert_eq!(told, differ, "seed {seed}, port {i}: {outcome:?}");
        }
        let sent = |wire: &Wire| wire.agents.iter().map(|a| a.counters().sent).sum::<u64>();
        let before = sent(&wire);
        wire.pass(60, 0);
        assert_eq!(sent(&wire) - before, 4, "seed {seed}: a message each in 30 s");
    }
}

#[test]
fn ports_come_to_a_version() {
    let name = |versions| match versions {
        IEEE => "ieee",
        CEE => "cee",
        _ => "both",
    };
    let mut table = String::from("ports       speak        agree\n");
    for (a, b) in [
        (IEEE, IEEE),
        (IEEE, CEE),
        (CEE, CEE),
        (Versions::Both, IEEE),
        (Versions::Both, CEE),
        (Versions::Both, Versions::Both),
    ] {
        let mut wire = Wire::of(3, &[a, b]);
        let mut wants = wire.wants(1).clone();
        (wants.willing.pfc, wants.parameters.pfc) = (false, 1 << 4);
        let now = Instant(0);
        wire.agents[1].set_dcbx(now, Some(wants));
        let mut wants = wire.wants(0).clone();
        wants.willing.pfc = true;
        wire.agents[0].set_dcbx(now, Some(wants.clone()));
        wire.pass(10, 0);
        let speaks = [0, 1].map(|i| wire.negotiation(i).outcome().version);
        let agree = wire.acts(0).pfc == 1 << 4;
        let problem = wire.negotiation(0).outcome().problem.filter(|_| !agree);
        assert!(agree || problem.is_some_and(|why| why.starts_with("the peer speaks DCBX of")));
        let ports = std::format!("{}, {}", name(a), name(b));
        let speak = std::format!("{:?}, {:?}", speaks[0], speaks[1]);
        table += std::format!("{ports:<11} {speak:<12} {agree}\n").as_str();
        // With the peer the version goes, too.
        wire.agents[1].end();
        wire.pass(1, 0);
        let outcome = wire.negotiation(0).outcome();
        assert_eq!(outcome.operational, wants.parameters);
        assert_eq!(outcome.version == Version::Cee, a == CEE);
    }
    expect![[r#"
        ports       speak        agree
        ieee, ieee  Ieee, Ieee   true
        ieee, cee   Ieee, Cee    false
        cee, cee    Cee, Cee     true
        both, ieee  Ieee, Ieee   true
        both, cee   Cee, Cee     true
        both, both  Ieee, Ieee   true
    "#]]
    .assert_eq(&table);
}

/// Among several stations nobody is taken, in whichever version they speak.
#[test]
fn among_several_stations_of_cee_nobody_is_taken() {
    for third in [CEE, IEEE] {
        let mut wire = Wire::of(5, &[CEE, CEE, third]);
        wire.pass(65, 0);
        for i in 0..3 {
            assert_eq!(wire.negotiation(i).outcome().peers, 2);
            assert_eq!(*wire.acts(i), wire.wants(i).parameters);
        }
        wire.agents[2].end();
        wire.pass(10, 0);
        for i in 0..2 {
            assert_eq!(
                *wire.acts(i),
                by_the_text(wire.wants(i), wire.wants(1 - i)),
                "port {i}"
            );
        }
    }
}
