//! What a seed stands for: the world, and what will be done in it when. Each part has a seed of its own, so that parts
//! can be left out while the others stay as they are.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::time::Duration;

use fastrand::Rng;
use vnic_engine::rdma::Mtu;
use vnic_fabric::Link;
use vnic_fabric::fault::{Action as Fault, Rule, RuleId};

use crate::oracle::Terms;

vnic_wire::named! {
    /// A kind of run.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum Profile {
        /// The network does nothing wrong.
        Clean => "clean",
        /// One packet of a hundred is lost.
        Loss1 => "loss1",
        /// One of ten is lost.
        Loss10 => "loss10",
        /// Packets overtake each other and are late.
        Reorder => "reorder",
        /// Packets come twice and more often.
        Dup => "dup",
        /// Bits are flipped.
        Corrupt => "corrupt",
        /// Somebody sends packets that no queue pair sent.
        Hostile => "hostile",
        /// Some of everything the network can do.
        Mixed => "mixed",
    }
}

impl Profile {
    /// The profile of a seed that was not given one.
    pub fn of(seed: u64) -> Profile {
        Profile::ALL[(seed % Profile::ALL.len() as u64) as usize]
    }
}

impl FromStr for Profile {
    type Err = String;

    fn from_str(s: &str) -> Result<Profile, String> {
        let found = Profile::ALL.into_iter().find(|p| p.name() == s);
        found.ok_or_else(|| {
            let names: Vec<_> = Profile::ALL.iter().map(|p| p.name()).collect();
            format!("no such profile; there are {}", names.join(", "))
        })
    }
}

/// A connection, or a set of datagram queue pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Two datagram queue pairs, which talk to all others.
    Ud,
    /// Extended reliable connection: initiator at `a`, target at `b`.
    Xrc,
    /// Dynamic connections: initiator at `a`, target at `b`. Each initiator works with all targets.
    Dc,
}

/// Two queue pairs.
#[derive(Debug, Clone, Copy)]
pub struct Pair {
    /// Of what is random in it.
    pub seed: u64,
    /// Service.
    pub service: Service,
    /// Device of one end.
    pub a: usize,
    /// Device of the other, maybe the same.
    pub b: usize,
    /// It is attacked.
    pub victim: bool,
}

/// Something that is done to the world.
#[derive(Debug, Clone, Copy)]
pub struct Action {
    /// When, in nanoseconds.
    pub at: u64,
    /// Of what is random in it.
    pub seed: u64,
    /// What.
    pub what: What,
}

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Work is posted to one end (`false`: a) of a pair.
    Post(usize, bool),
    /// Something is changed or destroyed.
    Admin,
    /// An end of dynamic connections is changed or destroyed.
    Dynamic,
    /// A forged packet comes.
    Attack,
}

/// What the ends of dynamic connections have in common.
#[derive(Debug, Clone, Copy)]
pub struct Dynamic {
    /// Bytes of their packets.
    pub mtu: Mtu,
    /// Connections that the targets of a device know, if that is less than usual.
    pub connections: Option<u32>,
}

/// A run.
// Wide: a number for each thing that a seed decides.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Where it comes from.
    pub seed: u64,
    /// Kind.
    pub profile: Profile,
    /// Packets travel as bytes; otherwise as values, with the payload in the sender's memory until the last moment.
    pub wire: bool,
    /// Of each device: seed of its objects, bytes of its memory.
    pub nodes: Vec<(u64, usize)>,
    /// Connections.
    pub pairs: Vec<Pair>,
    /// What is done, by time.
    pub actions: Vec<Action>,
    /// What the oracle has to know.
    pub terms: Terms,
    /// All links.
    pub link: Link,
    /// Packets that a device sends at a time.
    pub burst: u32,
    /// Nanoseconds between two times.
    pub gap: u64,
    /// Longest time from completion to poll, in nanoseconds.
    pub lazy: u64,
    /// Longest READ and WRITE, in bytes.
    pub longest: u64,
    /// One request of so many is wrong on purpose; 0: none.
    pub flaws: u64,
    /// Of ten completion queues, so many are too small.
    pub small_cqs: u64,
    /// Priorities close and open, queue pairs get rates, and rules of marking change.
    pub outlets: bool,
    /// There are dynamic connections.
    pub dynamic: Option<Dynamic>,
    /// Faults.
    pub faults: Vec<Rule>,
}

/// What is left out of a plan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cut {
    /// Pairs, by number.
    pub pairs: BTreeSet<usize>,
    /// Actions, by number.
    pub actions: BTreeSet<usize>,
}

/// Whether something is so, which is so in so many of a hundred cases.
pub fn percent(rng: &mut Rng, n: u32) -> bool {
    rng.u32(0..100) < n
}

impl Plan {
    /// The run of a seed.
    pub fn new(seed: u64, profile: Option<Profile>) -> Plan {
        let profile = profile.unwrap_or_else(|| Profile::of(seed));
        let mut rng = Rng::with_seed(seed ^ 0x7665_7262_735f_7631);
        let wire = percent(&mut rng, 60);
        let clean = profile == Profile::Clean;
        let count = match rng.u32(0..20) {
            0..=9 => 2,
            10..=14 => 3,
            15..=17 => rng.usize(4..7),
            18 => rng.usize(7..13),
            _ => 16,
        };
        let memory = match rng.u32(0..10) {
            0..=5 => 256 << 10,
            6..=8 => 512 << 10,
            _ => 2 << 20,
        };
        let nodes = (0..count).map(|_| (rng.u64(..), memory)).collect();
        let pairs = (0..rng.usize(1..=3) + count / 2)
            .map(|_| {
                let a = rng.usize(0..count);
                let b = if percent(&mut rng, 8) {
                    a
                } else {
                    (a + rng.usize(1..count)) % count
                };
                Pair {
                    seed: rng.u64(..),
                    service: match rng.u32(0..20) {
                        0..=10 => Service::Rc,
                        11..=13 => Service::Uc,
                        14..=16 => Service::Ud,
                        _ => Service::Xrc,
                    },
                    a,
                    b,
                    victim: profile == Profile::Hostile && percent(&mut rng, 40),
                }
            })
            .collect::<Vec<_>>();
        // Only a network with a rate or latency can hold many packets; local delivery is at once.
        let latency = if wire { rng.u64(50..20_000) } else { 0 };
        let rate = match rng.u32(0..3) {
            0 if wire => Some(10_000_000_000),
            1 if wire => Some(100_000_000_000),
            _ => None,
        };
        let tight = !clean && percent(&mut rng, 15);
        let mut plan = Plan {
            seed,
            profile,
            wire,
            nodes,
            pairs,
            actions: Vec::new(),
            terms: Terms {
                tight_timers: tight,
                clean,
                hostile: profile == Profile::Hostile,
                few_connections: false,
            },
            link: Link {
                latency: Duration::from_nanos(latency),
                bits_per_second: rate,
            },
            burst: [1, 2, 7, 16, 64, 1000][rng.usize(0..6)],
            gap: rng.u64(0..2_000),
            lazy: [100, 2_000, 50_000][rng.usize(0..3)],
            longest: [4 << 10, 16 << 10, 64 << 10, 256 << 10][rng.usize(0..4)].min(memory as u64 / 8),
            flaws: if percent(&mut rng, 50) { 0 } else { rng.u64(8..80) },
            small_cqs: if percent(&mut rng, 90) { 0 } else { rng.u64(1..6) },
            // Of its own, so that the other runs stay what they were.
            outlets: percent(&mut Rng::with_seed(seed ^ 0x6f75_746c_6574), 30),
            dynamic: None,
            faults: Vec::new(),
        };
        plan.add_faults(&mut rng);
        plan.add_actions(&mut rng);
        let mut rng = Rng::with_seed(seed ^ 0x0064_796e_616d_6963);
        if percent(&mut rng, 35) {
            plan.add_dynamic(&mut rng);
        }
        plan
    }

    /// Dynamic connections beside what there is.
    fn add_dynamic(&mut self, rng: &mut Rng) {
        let connections = percent(rng, 30).then(|| rng.u32(1..4));
        self.terms.few_connections = connections.is_some();
        self.dynamic = Some(Dynamic {
            mtu: Mtu::ALL[rng.usize(0..5)],
            connections,
        });
        let (first, count) = (self.pairs.len(), self.nodes.len());
        for _ in 0..rng.usize(1..5) {
            let a = rng.usize(0..count);
            self.pairs.push(Pair {
                seed: rng.u64(..),
                service: Service::Dc,
                a,
                b: (a + rng.usize(0..count)) % count,
                victim: self.terms.hostile && percent(rng, 40),
            });
        }
        // Some runs are so long that idle connections end, and targets forget others.
        let span = match rng.u32(0..8) {
            0 => rng.u64(5_000_000_000..40_000_000_000),
            1 => rng.u64(100_000_000..5_000_000_000),
            _ => rng.u64(20_000..2_000_000),
        };
        let changes = if percent(rng, 50) { 0 } else { rng.usize(1..12) };
        for _ in 0..rng.usize(10..120) {
            let end = What::Post(rng.usize(first..self.pairs.len()), false);
            self.add_action(rng, 0..span, end);
        }
        for _ in 0..changes {
            // Most are made while there is work.
            let at = rng.choice(&self.actions).map_or(0, |action| action.at);
            let late = [20_000, 20_000, span][rng.usize(0..3)];
            self.add_action(rng, at..at + late, What::Dynamic);
        }
        self.actions.sort_by_key(|action| action.at);
    }

    fn add_action(&mut self, rng: &mut Rng, at: Range<u64>, what: What) {
        self.actions.push(Action {
            at: rng.u64(at),
            seed: rng.u64(..),
            what,
        });
    }

    /// Does it last so long that receivers that are not ready have to be helped while there is work to come?
    pub fn is_long(&self) -> bool {
        self.actions.last().is_some_and(|action| action.at > 10_000_000)
    }

    fn add_faults(&mut self, rng: &mut Rng) {
        let mut add = |probability, action| {
            let id = RuleId(self.faults.len() as u32 + 1);
            self.faults.push(Rule {
                probability,
                ..Rule::new(id, action)
            });
        };
        let us = Duration::from_micros;
        let reorder = |rng: &mut Rng| Fault::Reorder {
            by: rng.u32(1..6),
            at_most: us(rng.u64(5..100)),
        };
        let delay = |rng: &mut Rng| Fault::Delay {
            by: us(rng.u64(1..50)),
            jitter: us(rng.u64(1..200)),
        };
        let corrupt = |rng: &mut Rng| Fault::Corrupt {
            bits: rng.u32(1..6),
            offset: None,
        };
        match self.profile {
            Profile::Clean | Profile::Hostile => {}
            Profile::Loss1 => add(10_000, Fault::Drop),
            Profile::Loss10 => add(100_000, Fault::Drop),
            Profile::Reorder => {
                add(rng.u32(5_000..100_000), reorder(rng));
                add(rng.u32(1_000..50_000), delay(rng));
            }
            Profile::Dup => add(
                rng.u32(10_000..200_000),
                Fault::Duplicate {
                    copies: rng.u32(1..4),
                },
            ),
            // Only bytes can be damaged: values would be lost.
            Profile::Corrupt if self.wire => add(rng.u32(5_000..80_000), corrupt(rng)),
            Profile::Corrupt => add(rng.u32(5_000..80_000), Fault::Drop),
            Profile::Mixed => {
                add(rng.u32(1_000..40_000), Fault::Drop);
                add(rng.u32(1_000..40_000), reorder(rng));
                add(rng.u32(1_000..40_000), delay(rng));
                add(rng.u32(1_000..40_000), Fault::Duplicate { copies: 1 });
                if self.wire {
                    add(rng.u32(1_000..20_000), corrupt(rng));
                }
            }
        }
        if percent(rng, 25) {
            let id = RuleId(100);
            self.faults.push(Rule {
                probability: rng.u32(1_000..300_000),
                ..Rule::new(id, Fault::MarkCe)
            });
        }
    }

    fn add_actions(&mut self, rng: &mut Rng) {
        let span = rng.u64(20_000..2_000_000);
        let posts = rng.usize(10..90);
        let changes = if percent(rng, 50) { 0 } else { rng.usize(1..12) };
        let attacks = if self.terms.hostile { rng.usize(5..150) } else { 0 };
        let mut actions = Vec::new();
        for _ in 0..posts {
            let end = What::Post(rng.usize(0..self.pairs.len()), rng.bool());
            actions.push((rng.u64(0..span), rng.u64(..), end));
        }
        for _ in 0..changes {
            actions.push((rng.u64(0..span), rng.u64(..), What::Admin));
        }
        for _ in 0..attacks {
            actions.push((rng.u64(0..span), rng.u64(..), What::Attack));
        }
        actions.sort_by_key(|(at, ..)| *at);
        self.actions = actions
            .into_iter()
            .map(|(at, seed, what)| Action { at, seed, what })
            .collect();
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "seed {}, profile {}, packets as {}{}: {} devices, {} pairs, {} actions",
            self.seed,
            self.profile,
            if self.wire { "bytes" } else { "values" },
            if self.outlets {
                ", with rates and priorities"
            } else {
                ""
            },
            self.nodes.len(),
            self.pairs.len(),
            self.actions.len()
        )?;
        for (i, p) in self.pairs.iter().enumerate() {
            write!(
                f,
                "\n  pair {i}: {:?} dev{} dev{}{}",
                p.service,
                p.a,
                p.b,
                if p.victim { ", attacked" } else { "" }
            )?;
        }
        for r in &self.faults {
            write!(f, "\n  fault: {} of {} ppm", r.action.name(), r.probability)?;
        }
        Ok(())
    }
}
