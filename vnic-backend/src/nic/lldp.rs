//! Link layer discovery: each port that speaks or listens has an agent, under the lock of the state. Received frames and link
//! changes go to it where they are noticed; the thread of LACP tells it the time.

use std::time::{Duration, Instant as Moment, SystemTime};

use vnic_fabric::Instant;
use vnic_fabric::lldp::{Agent, Local, Output};

use super::state::{PortEntry, State, not_found};
use super::{Inner, Nic};
use crate::rehearsal::acts;
use crate::types::*;
use crate::uplink::{Links, own_address};

/// Link layer discovery of a port.
pub struct Discovery {
    agent: Agent,
    /// Start of its clock.
    began: Moment,
}

impl Discovery {
    fn now(&self) -> Instant {
        Instant(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// What the port hears.
    pub fn status(&self) -> LldpStatus {
        let (now, date) = (self.now(), SystemTime::now());
        let neighbour = |said: &vnic_fabric::lldp::Neighbour| LldpNeighbour {
            since: date - now.since(said.since),
            until: date + said.until.since(now),
            said: said.clone(),
        };
        LldpStatus {
            neighbours: self.agent.neighbours().map(neighbour).collect(),
            counters: self.agent.counters(),
        }
    }
}

/// What a port says of itself.
fn local(spec: &PortSpec) -> Local {
    let device = || Links::open().ok()?.find(spec.kind.ifname()).ok()??.mac;
    let mac = device().filter(|mac| *mac != MacAddr::default() && !mac.is_multicast());
    let kind = spec.kind.name();
    Local {
        mac: mac.unwrap_or_else(|| own_address(&spec.name)),
        port: spec.name.clone(),
        description: format!("{kind} {}", spec.kind.ifname()).trim_end().to_owned(),
        system_name: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        system_description: concat!("vnic ", env!("CARGO_PKG_VERSION"), ", virtual RoCE NIC").to_owned(),
    }
}

impl Nic {
    /// Sets whether a port speaks and listens by link layer discovery, at once and under traffic.
    pub fn set_port_lldp(&self, name: &str, mode: LldpMode) -> Result<PortStatus, NicError> {
        {
            let mut state = self.inner.state()?;
            state.port(name)?;
            if let Some(other) = state.bridged_with(name).filter(|_| mode != LldpMode::Disabled) {
                let problem =
                    format!("{name} is bridged with {other}: what links say to each other is for that one");
                return invalid("lldp", problem);
            }
            acts()?;
            if mode != LldpMode::Disabled {
                self.inner.set_alarm(&mut state)?;
            }
            let entry = state.ports.get_mut(name).ok_or_else(|| not_found("port", name))?;
            entry.spec.lldp = mode;
            self.inner.discover(entry);
            self.inner.silence(&mut state);
            state.ring_alarm();
        }
        self.port(name)
    }
}

impl Inner {
    /// Brings the agent of a port in line with its specification.
    pub(super) fn discover(&self, entry: &mut PortEntry) {
        let mode = entry.spec.lldp;
        let listens = mode.receives();
        let id = entry.id;
        match (&mut entry.lldp, mode) {
            (None, LldpMode::Disabled) => return,
            (Some(of), LldpMode::Disabled) => of.agent.end(),
            (Some(of), _) => {
                let now = of.now();
                of.agent.configure(now, mode.transmits(), listens);
            }
            (none, _) => {
                let mut agent = Agent::new(local(&entry.spec), mode.transmits(), listens);
                agent.set_link(Instant(0), entry.up);
                *none = Some(Discovery {
                    agent,
                    began: Moment::now(),
                });
            }
        }
        self.do_lldp(entry);
        if mode == LldpMode::Disabled {
            entry.lldp = None;
        }
        self.workers[entry.core].post(move |w| w.set_lldp(id, listens));
    }

    /// Runs the agents whose time has come. Returns how long the next one can wait.
    pub(super) fn lldp_time(&self, state: &mut State) -> Option<Duration> {
        let mut next: Option<Duration> = None;
        for entry in state.ports.values_mut() {
            let Some(of) = &mut entry.lldp else { continue };
            let now = of.now();
            of.agent.tick(now);
            let wait = of.agent.next_time().map(|at| at.since(now));
            next = next.into_iter().chain(wait).min();
            self.do_lldp(entry);
        }
        next
    }

    /// Handles a frame of link layer discovery from a port.
    pub(super) fn lldp_frame(&self, state: &mut State, port: PortId, frame: &[u8]) {
        self.with_lldp(state, port, |agent, now| agent.receive(now, frame));
    }

    /// Handles a change of a port's link.
    pub(super) fn lldp_link(&self, state: &mut State, port: PortId, up: bool) {
        self.with_lldp(state, port, |agent, now| agent.set_link(now, up));
    }

    fn with_lldp(&self, state: &mut State, port: PortId, work: impl FnOnce(&mut Agent, Instant)) {
        let Some(entry) = state.ports.values_mut().find(|entry| entry.id == port) else {
            return;
        };
        let Some(of) = &mut entry.lldp else { return };
        let now = of.now();
        work(&mut of.agent, now);
        self.do_lldp(entry);
        state.ring_alarm();
    }

    /// The ports end: the others are told so.
    pub(super) fn end_lldp(&self, state: &mut State) {
        for entry in state.ports.values_mut() {
            self.part(entry);
        }
    }

    /// A port ends: the others are told so.
    pub(super) fn part(&self, entry: &mut PortEntry) {
        if let Some(of) = &mut entry.lldp {
            of.agent.end();
            self.do_lldp(entry);
            entry.lldp = None;
        }
    }

    /// Does what the agent of a port wants.
    fn do_lldp(&self, entry: &mut PortEntry) {
        let Some(of) = &mut entry.lldp else { return };
        while let Some(output) = of.agent.poll() {
            let kind = match output {
                Output::Send(frame) => {
                    let id = entry.id;
                    self.workers[entry.core].post(move |w| w.core.out.send_control(id, &frame));
                    continue;
                }
                Output::Found(n) => NicEventKind::LldpNeighbourFound {
                    chassis: n.chassis,
                    port: n.port,
                    system: n.system_name,
                },
                Output::Lost(n, why) => NicEventKind::LldpNeighbourLost {
                    chassis: n.chassis,
                    port: n.port,
                    system: n.system_name,
                    why,
                },
            };
            self.hub.publish(&entry.spec.name, kind);
        }
    }
}
