//! Tables of the state machines, and two ports on a wire that loses frames, against what the standard says.

use std::string::String;
use std::string::ToString as _;
use std::vec::Vec;

use expect_test::expect;

use super::*;
use crate::Instant;
use crate::lldp::{Agent, Local, Output};

mod cee;

const S: u64 = 1_000_000_000;

#[test]
fn state_machines() {
    let mut table = String::from("willing  peer             lower  asymmetric  symmetric\n");
    for willing in [false, true] {
        for peer in [None, Some(false), Some(true)] {
            for lower in [false, true] {
                let said = match peer {
                    None => "says nothing",
                    Some(false) => "is not willing",
                    Some(true) => "is willing",
                };
                let (a, s) = (
                    asymmetric(willing, peer.is_some()),
                    symmetric(willing, peer, lower),
                );
                let [willing, lower] = [willing, lower].map(|yes| if yes { "yes" } else { "no" });
                let [a, s] = [a, s].map(|source| std::format!("{source:?}"));
                table += std::format!("{willing:<8} {said:<16} {lower:<6} {a:<11} {s}\n").as_str();
            }
        }
    }
    expect![[r#"
        willing  peer             lower  asymmetric  symmetric
        no       says nothing     no     Local       Local
        no       says nothing     yes    Local       Local
        no       is not willing   no     Local       Local
        no       is not willing   yes    Local       Local
        no       is willing       no     Local       Local
        no       is willing       yes    Local       Local
        yes      says nothing     no     Local       Local
        yes      says nothing     yes    Local       Local
        yes      is not willing   no     Peer        Peer
        yes      is not willing   yes    Peer        Peer
        yes      is willing       no     Peer        Local
        yes      is willing       yes    Peer        Peer
    "#]]
    .assert_eq(&table);
}

fn classes(shares: [u8; 8], algorithm: [Algorithm; 8]) -> Classes {
    Classes {
        of_priority: [0, 1, 2, 3, 4, 5, 6, 7],
        share: shares,
        algorithm,
    }
}

#[test]
fn classes_that_a_port_cannot_have_are_not_taken() {
    use Algorithm::{CreditBased, Ets, Other, Strict};
    let mixed = [Ets, Ets, Strict, VENDOR, Strict, Strict, Strict, Strict];
    for (shares, algorithm, fits) in [
        ([30, 70, 0, 0, 0, 0, 0, 0], mixed, true),
        ([30, 69, 0, 0, 0, 0, 0, 0], mixed, false),
        // The share of a class without ETS does not count.
        ([30, 70, 9, 0, 0, 0, 0, 0], mixed, true),
        ([0; 8], [Strict; 8], true),
        ([0; 8], [Ets; 8], false),
        ([0; 8], [CreditBased; 8], false),
        ([0; 8], [Other(7); 8], false),
    ] {
        let told = classes(shares, algorithm);
        assert_eq!(unfit(&told, Limits::default()).is_ok(), fits, "{told:?}");
        let port = qos::PortQos {
            classes: taken(&told, [7000; 8]),
            ..qos::PortQos::default()
        };
        assert!(!fits || port.check().is_ok(), "{told:?}");
    }
}

#[test]
fn shares_are_told_as_per_cent() {
    let mut port = qos::Classes::default();
    for (weights, wanted) in [
        ([1, 1, 1], [34, 33, 33]),
        ([20, 30, 50], [20, 30, 50]),
        ([0, 7, 0], [0, 100, 0]),
    ] {
        port.share[..3].copy_from_slice(&weights);
        port.tsa[..3].fill(Tsa::Ets);
        let told = told(&port);
        let mut shares = told.share[..3].to_vec();
        let mut wanted = wanted.to_vec();
        shares.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(shares, wanted);
        assert_eq!(unfit(&told, Limits::default()), Ok(()));
    }
}

/// A port of four classes with two priorities that it pauses at a time says so, and takes no more.
#[test]
fn limits_are_told_and_kept() {
    let mut algorithm = [Algorithm::Strict; 8];
    algorithm[..2].fill(Algorithm::Ets);
    let switch = |of_priority, pfc| Exchange {
        recommendation: Some(Classes {
            of_priority,
            share: [30, 70, 0, 0, 0, 0, 0, 0],
            algorithm,
        }),
        pfc: Some(Pfc {
            willing: false,
            capability: 8,
            priorities: pfc,
        }),
        ..Exchange::default()
    };
    let limits = Limits {
        classes: 4,
        pfc: 2,
        ..Limits::default()
    };
    let wanted = Administrative {
        limits,
        ..Administrative::default()
    };
    let mut port = Negotiation::new(MacAddr([2, 0, 0, 0, 0, 1]), wanted);
    let Said::Ieee(said) = port.says() else {
        panic!("it speaks IEEE");
    };
    assert_eq!(
        (
            said.ets.map(|ets| ets.classes_max),
            said.pfc.map(|pfc| pfc.capability)
        ),
        (Some(4), Some(2))
    );
    let mut hear = |said: Exchange| {
        let station = Station {
            mac: MacAddr([2, 0, 0, 0, 0, 9]),
            ieee: &said,
            cee: None,
        };
        port.hear(&[station]);
        let outcome = port.outcome();
        let why = outcome.problem.unwrap_or_default().split(" is not taken").next();
        let why = why
            .unwrap_or_default()
            .split(" are not taken")
            .next()
            .unwrap_or_default();
        (
            outcome.sources.ets,
            outcome.sources.pfc,
            outcome.operational.pfc,
            why.to_string(),
        )
    };
    let is = |ets, pfc, acts, why: &str| (ets, pfc, acts, why.to_string());
    assert_eq!(
        hear(switch([0, 0, 1, 1, 2, 2, 3, 3], 0b1100)),
        is(Source::Peer, Source::Peer, 0b1100, "")
    );
    assert_eq!(
        hear(switch([0, 0, 1, 1, 2, 2, 3, 4], 0b1100)),
        is(Source::Local, Source::Peer, 0b1100, "the peer's classes")
    );
    assert_eq!(
        hear(switch([0, 0, 1, 1, 2, 2, 3, 3], 0b11100)),
        is(Source::Peer, Source::Local, 0, "the peer's flow control")
    );
}

/// Numbers from a seed (xorshift).
struct Seed(u64);

impl Seed {
    fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }

    fn yes(&mut self) -> bool {
        self.next(2) == 1
    }

    fn administrative(&mut self) -> Administrative {
        let first = self.next(101) as u8;
        let mut algorithm = [Algorithm::Strict; 8];
        algorithm[..2].fill(Algorithm::Ets);
        // One in eight has a scheduler that no port has.
        if self.next(8) == 0 {
            algorithm[7] = Algorithm::CreditBased;
        }
        let rows = self.next(3) as u16;
        Administrative {
            versions: Versions::default(),
            willing: Willing {
                ets: self.yes(),
                pfc: self.yes(),
                applications: self.yes(),
            },
            parameters: Parameters {
                classes: classes([first, 100 - first, 0, 0, 0, 0, 0, 0], algorithm),
                pfc: self.next(256) as u8,
                applications: (0..rows)
                    .map(|i| Application {
                        selector: 3,
                        protocol: 4791 + i,
                        priority: self.next(8) as u8,
                    })
                    .collect(),
            },
            limits: Limits::default(),
        }
    }
}

fn mac(n: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, n])
}

fn agent(n: u8) -> Agent {
    let local = Local {
        mac: mac(n),
        port: "p0".to_string(),
        description: String::new(),
        system_name: String::new(),
        system_description: String::new(),
    };
    let mut agent = Agent::new(local, true, true);
    agent.set_link(Instant(0), true);
    agent
}

/// What acts on the first of two ports by the standard's text, where the two have these addresses and want this.
fn by_the_standard(mine: (u8, &Administrative), peer: (u8, &Administrative)) -> Parameters {
    let mut acts = mine.1.parameters.clone();
    let (me, other) = (mine.1.willing, peer.1.willing);
    let theirs = &peer.1.parameters;
    // Only who is not willing recommends; the scheduler that nobody has is refused.
    if me.ets && !other.ets && theirs.classes.algorithm[7] != Algorithm::CreditBased {
        acts.classes = theirs.classes;
    }
    if me.pfc && (!other.pfc || mine.0 < peer.0) {
        acts.pfc = theirs.pfc;
    }
    if me.applications && !theirs.applications.is_empty() {
        acts.applications.clone_from(&theirs.applications);
    }
    acts
}

/// A wire of several ports, told the time in steps of a quarter of a second. A frame reaches each other port, or is lost for it.
struct Wire {
    seed: Seed,
    agents: Vec<Agent>,
    now: u64,
}

impl Wire {
    fn new(seed: u64, ports: u8) -> Wire {
        Wire::of(seed, &std::vec![Versions::default(); usize::from(ports)])
    }

    /// A wire of ports with these versions.
    fn of(seed: u64, versions: &[Versions]) -> Wire {
        let mut seed = Seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let agents = (1..).zip(versions).map(|(n, versions)| {
            let mut agent = agent(n);
            let wanted = seed.administrative();
            let versions = *versions;
            agent.set_dcbx(Instant(0), Some(Administrative { versions, ..wanted }));
            agent
        });
        let agents = agents.collect();
        Wire { seed, agents, now: 0 }
    }

    /// One of two operators, at random, changes its mind, and sometimes cuts the wire for a moment.
    fn turn(&mut self) {
        let (one, new) = (self.seed.next(2) as usize, self.seed.administrative());
        let versions = self.wants(one).versions;
        let now = Instant(self.now);
        self.agents[one].set_dcbx(now, Some(Administrative { versions, ..new }));
        if self.seed.next(4) == 0 {
            self.agents[one].set_link(now, false);
            self.agents[one].set_link(now, true);
        }
    }

    /// Lets seconds pass; of a hundred frames so many are lost.
    fn pass(&mut self, seconds: u64, lost: u64) {
        for _ in 0..4 * seconds {
            self.now += S / 4;
            let now = Instant(self.now);
            for i in 0..self.agents.len() {
                self.agents[i].tick(now);
                while let Some(output) = self.agents[i].poll() {
                    let Output::Send(frame) = output else { continue };
                    for other in (0..self.agents.len()).filter(|other| *other != i) {
                        if self.seed.next(100) >= lost {
                            self.agents[other].receive(now, &frame);
                        }
                    }
                }
            }
        }
    }

    fn acts(&self, i: usize) -> &Parameters {
        &self.negotiation(i).outcome().operational
    }

    fn wants(&self, i: usize) -> &Administrative {
        self.negotiation(i).administrative()
    }

    fn negotiation(&self, i: usize) -> &Negotiation {
        self.agents[i].dcbx().expect("it has DCBX")
    }

    fn standard(&self, i: usize) -> Parameters {
        let number = |i: usize| i as u8 + 1;
        by_the_standard((number(i), self.wants(i)), (number(1 - i), self.wants(1 - i)))
    }
}

/// Whatever was lost, and however the operators change their minds: after two messages that arrive, both ends have what the standard
/// says, and they agree on flow control where one of them is willing.
#[test]
fn two_ports_come_to_what_the_standard_says() {
    for seed in 0..300 {
        let mut wire = Wire::new(seed, 2);
        for _ in 0..4 {
            let (seconds, lost) = (wire.seed.next(100), wire.seed.next(70));
            wire.pass(seconds, lost);
            wire.turn();
        }
        wire.pass(65, 0);
        for i in 0..2 {
            assert_eq!(*wire.acts(i), wire.standard(i), "seed {seed}, port {i}");
        }
        let willing = [0, 1].map(|i| wire.wants(i).willing.pfc);
        if willing.contains(&true) {
            assert_eq!(wire.acts(0).pfc, wire.acts(1).pfc, "seed {seed}");
        }
        // They say no more than the others do, once it is settled.
        let before = wire.agents.iter().map(|a| a.counters().sent).sum::<u64>();
        wire.pass(60, 0);
        let sent = wire.agents.iter().map(|a| a.counters().sent).sum::<u64>() - before;
        assert_eq!(sent, 4, "seed {seed}: a message each in 30 s");
    }
}

/// A third station that speaks DCBX puts all of them back to what their operators gave, and its leave brings the two together again.
#[test]
fn among_several_peers_nobody_is_taken() {
    for seed in 0..50 {
        let mut wire = Wire::new(seed, 3);
        wire.pass(65, 0);
        for i in 0..3 {
            assert_eq!(wire.negotiation(i).outcome().peers, 2);
            assert_eq!(*wire.acts(i), wire.wants(i).parameters, "seed {seed}, port {i}");
        }
        wire.agents[2].end();
        wire.pass(10, 0);
        for i in 0..2 {
            assert_eq!(*wire.acts(i), wire.standard(i), "seed {seed}, port {i}");
        }
    }
}

/// What the operator gave comes back when the peer leaves, falls silent, or the link ends.
#[test]
fn without_a_peer_the_operators_values_act() {
    let ends: [fn(&mut Wire); 5] = [
        |wire| wire.agents[1].end(),
        |wire| wire.pass(130, 100),
        |wire| {
            let now = Instant(wire.now);
            wire.agents[0].set_link(now, false);
        },
        |wire| {
            let now = Instant(wire.now);
            wire.agents[0].configure(now, true, false);
        },
        |wire| {
            let now = Instant(wire.now);
            wire.agents[1].set_dcbx(now, None);
        },
    ];
    for (i, end) in ends.into_iter().enumerate() {
        let mut wire = Wire::new(7, 2);
        let now = Instant(0);
        let mut wants = wire.wants(1).clone();
        wants.willing = Willing {
            ets: false,
            pfc: false,
            applications: false,
        };
        wants.parameters.classes.algorithm = [Algorithm::Ets; 8];
        wire.agents[1].set_dcbx(now, Some(wants.clone()));
        let mut own = wire.wants(0).clone();
        own.willing = Willing::default();
        own.parameters.pfc = !wants.parameters.pfc;
        wire.agents[0].set_dcbx(now, Some(own.clone()));
        wire.pass(5, 0);
        assert_eq!(wire.acts(0).pfc, wants.parameters.pfc);
        assert_eq!(wire.acts(0).classes, wants.parameters.classes);
        end(&mut wire);
        wire.pass(1, 0);
        assert_eq!(*wire.acts(0), own.parameters, "{i}");
    }
}
