//! What a seed makes: devices, their network, and what their drivers will do.

use std::fmt;
use std::time::Duration;

use fastrand::Rng;
use vnic_engine::rdma::cm::Timing;
use vnic_fabric::fault::{Action, Faults, Rule, RuleId};
use vnic_wire::time::Instant;

/// What a driver does with a request or a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Does {
    /// Accepts it.
    Accept,
    /// Rejects it.
    Reject,
    /// Nothing.
    Ignore,
    /// Destroys the connection.
    Destroy,
}

/// What a driver does, and how long it takes.
#[derive(Debug, Clone, Copy)]
pub struct Manner {
    /// What it does.
    pub does: Does,
    /// How long it takes.
    pub after: Duration,
}

/// A connection that a driver wants, and what becomes of it.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// When.
    pub at: Instant,
    /// Device that wants it.
    pub from: usize,
    /// Device that is asked.
    pub to: usize,
    /// It is no connection: the queue pair of a service is asked for.
    pub datagram: bool,
    /// Somebody listens.
    pub served: bool,
    /// What the active driver does with the reply.
    pub active: Manner,
    /// What the passive driver does with the request.
    pub passive: Manner,
    /// How long after the active side is ready data comes to the passive side; none: never.
    pub data: Option<Duration>,
    /// How long each side keeps it; none: until the other ends it.
    pub keep: [Option<Duration>; 2],
    /// How long a driver takes to see that a connection is over.
    pub notice: Duration,
}

/// A run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// Devices.
    pub nodes: usize,
    /// Loss, in millionths.
    pub loss: u32,
    /// Repetition, in millionths.
    pub duplicates: u32,
    /// The longest time that a message is under way.
    pub jitter: Duration,
    /// What devices assume of it.
    pub timing: Timing,
    /// Requests that may wait at a listener.
    pub backlog: u32,
    /// Connections.
    pub attempts: Vec<Attempt>,
    /// When a device begins anew, and which.
    pub crashes: Vec<(Instant, usize)>,
}

fn within(rng: &mut Rng, longest: Duration) -> Duration {
    Duration::from_nanos(rng.u64(0..=longest.as_nanos() as u64))
}

fn manner(rng: &mut Rng, timing: &Timing) -> Manner {
    let does = match rng.u32(0..16) {
        0 | 1 => Does::Reject,
        2 => Does::Ignore,
        3 => Does::Destroy,
        _ => Does::Accept,
    };
    let longest = match rng.u32(0..6) {
        0 => 3 * timing.wait(timing.response_timeout),
        1 => 3 * timing.wait_longer(timing.service_timeout),
        _ => Duration::from_millis(1),
    };
    let after = within(rng, longest);
    Manner { does, after }
}

impl Plan {
    /// The plan of a seed.
    pub fn new(seed: u64) -> Plan {
        let rng = &mut Rng::with_seed(seed);
        let nodes = rng.usize(2..=4);
        let timing = Timing {
            packet_lifetime: rng.u8(8..=18),
            response_timeout: rng.u8(10..=22),
            service_timeout: rng.u8(10..=24),
            retries: *rng.choice(&[1, 2, 3, 7, 15, 15]).unwrap_or(&15),
        };
        let bad = |rng: &mut Rng, most: u32| match rng.u32(0..3) {
            0 => 0,
            1 => rng.u32(0..most / 10),
            _ => rng.u32(0..most),
        };
        let (loss, duplicates) = (bad(rng, 500_000), bad(rng, 400_000));
        let jitter = match rng.u32(0..4) {
            0 | 1 => Duration::from_micros(rng.u64(1..500)),
            2 => within(rng, timing.ack_timeout()),
            _ => within(rng, Duration::from_secs(30)),
        };
        let span = *rng.choice(&[1_u64, 1_000, 100_000]).unwrap_or(&1);
        let attempt = |rng: &mut Rng| {
            let (from, to) = (rng.usize(0..nodes), rng.usize(0..nodes));
            let keeps = rng.u32(0..4);
            let keep = within(rng, Duration::from_millis(span));
            let side = |rng: &mut Rng, wants: bool| {
                let late = if rng.bool() {
                    Duration::ZERO
                } else {
                    within(rng, jitter)
                };
                wants.then_some(keep + late)
            };
            Attempt {
                at: Instant(rng.u64(0..=span * 1_000_000)),
                from,
                to,
                datagram: rng.u32(0..8) == 0,
                served: rng.u32(0..16) != 0,
                active: manner(rng, &timing),
                passive: manner(rng, &timing),
                data: (rng.u32(0..4) == 0).then(|| within(rng, jitter)),
                keep: [side(rng, keeps != 1), side(rng, keeps != 0)],
                notice: within(rng, Duration::from_millis(2)),
            }
        };
        let attempts = (0..rng.usize(1..=16)).map(|_| attempt(rng)).collect();
        let crashes = match rng.u32(0..5) {
            0 => (0..rng.usize(1..=2))
                .map(|_| (Instant(rng.u64(0..=span * 2_000_000)), rng.usize(0..nodes)))
                .collect(),
            _ => Vec::new(),
        };
        Plan {
            seed,
            nodes,
            loss,
            duplicates,
            jitter,
            timing,
            backlog: *rng.choice(&[1, 3, 64]).unwrap_or(&64),
            attempts,
            crashes,
        }
    }

    /// What the network does to messages.
    pub fn faults(&self) -> Faults {
        let mut faults = Faults::new(self.seed);
        let by = Duration::from_nanos(500);
        let delay = Action::Delay {
            by,
            jitter: self.jitter,
        };
        let rules = [
            (Action::Drop, self.loss),
            (Action::Duplicate { copies: 1 }, self.duplicates),
            (delay, 1_000_000),
        ];
        for (n, (action, probability)) in (1..).zip(rules) {
            let rule = Rule {
                probability,
                ..Rule::new(RuleId(n), action)
            };
            // What a plan draws is allowed.
            let _ = faults.add(rule);
        }
        faults
    }

    /// Whether nothing of the network or the devices keeps two from connecting that answer in time.
    pub fn clean(&self) -> bool {
        self.loss == 0 && self.crashes.is_empty() && 2 * self.jitter < self.first_wait()
    }

    /// Whether a driver answers before its peer asks again.
    pub fn prompt(&self, manner: Manner) -> bool {
        manner.after + 2 * self.jitter < self.first_wait()
    }

    /// How long the answer to a message is waited for at first.
    pub fn first_wait(&self) -> Duration {
        self.timing.wait(self.timing.response_timeout)
    }

    /// The longest that a driver hears nothing of a call. (An MRA begins the wait anew in which it comes.)
    pub fn longest_wait(&self) -> Duration {
        let longest = self
            .first_wait()
            .max(self.timing.wait_longer(self.timing.service_timeout));
        longest * (u32::from(self.timing.retries) + 1)
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |millionths: u32| f64::from(millionths) / 1e4;
        write!(
            f,
            "{} devices, {} connections, {:.1} % lost, {:.1} % twice, up to {:?} under way, {:?}, backlog {}, {} begin anew",
            self.nodes,
            self.attempts.len(),
            percent(self.loss),
            percent(self.duplicates),
            self.jitter,
            self.timing,
            self.backlog,
            self.crashes.len()
        )
    }
}
