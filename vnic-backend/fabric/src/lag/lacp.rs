//! Link aggregation control (IEEE 802.1AX-2014 clause 6.4): ports find out with the other ends of their links which of them
//! lead to the same system, and only those carry frames.
//!
//! ```text
//!  receive ─▶ Receive machine ── partner ─▶ selection ─▶ Mux machine ─▶ collecting, distributing
//!                    │                                        │
//!                    ▼ partner's timeout                      ▼ NTT
//!            Periodic machine ─────────── NTT ─────────▶ Transmit machine ─▶ at most 3 LACPDUs a second
//! ```
//!
//! | of clause 6.4 | here |
//! |---|---|
//! | receive machine (6.4.12) | as in the standard; what a port that is down heard is forgotten when its partner is heard elsewhere (port_moved) |
//! | periodic machine (6.4.13), transmit machine (6.4.16) | as in the standard |
//! | selection (6.4.14) | there is one aggregator, see below |
//! | mux machine (6.4.15) | coupled control: collecting and distributing begin and end together |
//! | marker protocol (6.5) | markers are answered; none are sent: [`Bond`](super::Bond) moves flows by time |
//! | churn detection (6.4.17) | not there: [`PortView`] shows the state it would report |
//!
//! *Selection*: ports whose partners have the same system and key are one group; a port whose partner does not aggregate, and
//! each port if we do not, is a group by itself. A group that has a port in use stays. Otherwise the group with most ports that
//! are up is taken, of equal ones the one with the smallest port. Ports of other groups are not used: a cable to a wrong switch
//! carries nothing. A port whose partner is not heard, or is this system itself, is in no group: without a partner nothing is
//! sent.
//!
//! Time, PDUs and links go in; [`Lacp::poll`] gives what has to be done, [`Lacp::next_time`] when to call [`Lacp::tick`].

mod port;

use alloc::format;
use alloc::vec::Vec;
use core::time::Duration;

use vnic_wire::MacAddr;
use vnic_wire::lacp::{self, Frame, Participant, System};

use super::{LagError, MEMBERS_MAX, Member, refuse};
use crate::Instant;
pub use port::{Mux, Receive};
use port::{Port, Us};

/// Time between LACPDUs to a partner that wants to hear often (clause 6.4.4, Fast_Periodic_Time).
pub const FAST_PERIODIC: Duration = Duration::from_secs(1);
/// Time between LACPDUs to a partner that does not want to hear often (Slow_Periodic_Time).
pub const SLOW_PERIODIC: Duration = Duration::from_secs(30);
/// Silence after which a partner that was asked to speak often has expired (Short_Timeout_Time).
pub const SHORT_TIMEOUT: Duration = Duration::from_secs(3);
/// Silence after which a partner that was not asked to speak often has expired (Long_Timeout_Time).
pub const LONG_TIMEOUT: Duration = Duration::from_secs(90);
/// How long a port waits for others that belong to the same group (Aggregate_Wait_Time).
pub const AGGREGATE_WAIT: Duration = Duration::from_secs(2);
/// Most LACPDUs of a port within [`FAST_PERIODIC`] (clause 6.4.16).
pub const TRANSMIT_LIMIT: usize = 3;

/// Settings of a system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LacpSettings {
    /// Identifier of the system; the address is not zero, nor a group's.
    pub system: System,
    /// Key of the ports, 1 or more.
    pub key: u16,
    /// Whether the system speaks without being spoken to.
    pub active: bool,
    /// Whether the system wants to hear often: it then notices a silent partner after 3 s, not 90.
    pub short_timeout: bool,
    /// Ports, in the order of the bond's members; their numbers differ, and are 1 or more.
    pub ports: Vec<lacp::Port>,
}

impl LacpSettings {
    /// Checks the settings.
    pub fn check(&self) -> Result<(), LagError> {
        let address = self.system.address;
        if address == MacAddr::default() || address.is_multicast() {
            let problem = format!("{address}; allowed: the address of one station");
            return refuse("system", problem);
        }
        if self.key == 0 {
            return refuse("key", "0; allowed: 1 to 65535");
        }
        let ports = self.ports.len();
        if !(1..=MEMBERS_MAX).contains(&ports) {
            let problem = format!("{ports}; allowed: 1 to {MEMBERS_MAX}");
            return refuse("ports", problem);
        }
        for (i, port) in self.ports.iter().enumerate() {
            let number = port.number;
            if number == 0 {
                return refuse("ports", "number 0; allowed: 1 to 65535");
            }
            if self.ports[..i].iter().any(|p| p.number == number) {
                return refuse("ports", format!("number {number} is there twice"));
            }
        }
        Ok(())
    }
}

/// What has to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// A member begins or ends to take and to send frames ([`Bond::set_lacp`](super::Bond::set_lacp)).
    State {
        /// The member.
        member: Member,
        /// Whether it takes frames.
        collecting: bool,
        /// Whether it sends frames.
        distributing: bool,
    },
    /// A member sends a frame, from its own address.
    Send {
        /// The member.
        member: Member,
        /// The frame.
        frame: Frame,
    },
}

/// A port, for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortView {
    /// State of the receive machine.
    pub receive: Receive,
    /// State of the mux machine.
    pub mux: Mux,
    /// Whether the port is in the group in use.
    pub selected: bool,
    /// What the port says of itself.
    pub actor: Participant,
    /// What the port takes its partner for.
    pub partner: Participant,
    /// LACPDUs that the port sent.
    pub sent: u64,
    /// LACPDUs that the port received.
    pub received: u64,
    /// Markers that the port received, responses included.
    pub markers: u64,
}

/// Ports that may become one group: the partner's system and key; the port, if it is a group by itself.
type Group = (System, u16, Option<usize>);

/// Link aggregation control of one system.
#[derive(Debug, Clone)]
pub struct Lacp {
    us: Us,
    ports: Vec<Port>,
    group: Option<Group>,
}

impl Lacp {
    /// All links are down.
    pub fn new(settings: &LacpSettings) -> Result<Lacp, LagError> {
        settings.check()?;
        let us = Us {
            system: settings.system,
            key: settings.key,
        };
        let (active, short) = (settings.active, settings.short_timeout);
        let ports = settings.ports.iter().map(|p| Port::new(*p, active, short));
        Ok(Lacp {
            us,
            ports: ports.collect(),
            group: None,
        })
    }

    /// Sets whether the system speaks without being spoken to, and whether it wants to hear often.
    pub fn configure(&mut self, now: Instant, active: bool, short_timeout: bool) {
        for port in &mut self.ports {
            port.configure(active, short_timeout);
        }
        self.run(now);
    }

    /// Sets whether a member's link is up.
    pub fn set_link(&mut self, now: Instant, member: Member, up: bool) {
        if let Some(port) = self.ports.get_mut(usize::from(member.0)) {
            port.set_link(now, up);
            self.run(now);
        }
    }

    /// Takes a frame that a member received.
    pub fn receive(&mut self, now: Instant, member: Member, frame: &Frame) {
        let i = usize::from(member.0);
        let us = self.us;
        let Some(port) = self.ports.get_mut(i).filter(|p| p.is_up()) else {
            return;
        };
        match frame {
            Frame::Marker(marker) => port.marker(*marker),
            Frame::Lacpdu(pdu) => {
                port.receive(now, us, pdu);
                let (system, number) = (pdu.actor.system, pdu.actor.port.number);
                let others = self.ports.iter_mut().enumerate().filter(|(j, _)| *j != i);
                for (_, other) in others {
                    other.forget_moved(system, number);
                }
                self.run(now);
            }
        }
    }

    /// Lets time pass.
    pub fn tick(&mut self, now: Instant) {
        self.run(now);
    }

    /// Takes the next output. State of members comes first, then frames.
    pub fn poll(&mut self, now: Instant) -> Option<Output> {
        let us = self.us;
        let states = (0..).zip(self.ports.iter_mut());
        let mut news = states.filter_map(|(i, port)| {
            let (collecting, distributing) = port.news()?;
            Some(Output::State {
                member: Member(i),
                collecting,
                distributing,
            })
        });
        if let Some(state) = news.next() {
            return Some(state);
        }
        let mut frames = (0..).zip(self.ports.iter_mut()).filter_map(|(i, port)| {
            let frame = port.transmit(now, us)?;
            Some(Output::Send {
                member: Member(i),
                frame,
            })
        });
        frames.next()
    }

    /// When there is something to do without an event, at the earliest: [`Lacp::tick`], then [`Lacp::poll`].
    pub fn next_time(&self) -> Option<Instant> {
        let timers = self.ports.iter().filter_map(Port::next_time);
        timers.chain(self.ready_at()).min()
    }

    /// When all ports that wait for the aggregator have waited (Ready).
    fn ready_at(&self) -> Option<Instant> {
        self.ports.iter().filter_map(Port::waits_until).max()
    }

    /// A member's port, as it is now.
    pub fn port(&self, member: Member) -> Option<PortView> {
        Some(self.ports.get(usize::from(member.0))?.view(self.us))
    }

    /// Runs all machines until none of them moves.
    fn run(&mut self, now: Instant) {
        for port in &mut self.ports {
            port.run_timers(now);
        }
        // A port that is to change groups leaves the old one first.
        for port in &mut self.ports {
            port.run_mux(false);
        }
        self.select(now);
        let is_ready = self.ready_at().is_some_and(|at| at <= now);
        for port in &mut self.ports {
            port.run_mux(is_ready);
        }
    }

    /// Decides which group is in use, and which ports belong to it.
    fn select(&mut self, now: Instant) {
        let groups: Vec<Option<Group>> = (0..).zip(&self.ports).map(|(i, p)| p.group(i, self.us)).collect();
        let used = |group: Group| {
            let mut of = groups.iter().zip(&self.ports);
            of.any(|(g, p)| *g == Some(group) && p.is_up() && p.is_attached())
        };
        if !self.group.is_some_and(used) {
            let up = |group: Group| {
                let of = groups.iter().zip(&self.ports);
                of.filter(|(g, p)| **g == Some(group) && p.is_up()).count()
            };
            // Of equal ones the first, which has the smallest port.
            let mut best: Option<(usize, Group)> = None;
            let mut by_port: Vec<usize> = (0..self.ports.len()).collect();
            by_port.sort_by_key(|i| self.ports[*i].identifier());
            for group in by_port.into_iter().filter_map(|i| groups[i]) {
                let ports = up(group);
                if ports > best.map_or(0, |(most, _)| most) {
                    best = Some((ports, group));
                }
            }
            self.group = best.map(|(_, group)| group).or(self.group);
        }
        for (port, group) in self.ports.iter_mut().zip(groups) {
            port.select(now, group.is_some() && group == self.group);
        }
    }
}

#[cfg(test)]
mod tests;
