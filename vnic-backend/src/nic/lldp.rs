//! Link layer discovery: each port that speaks or listens has an agent, under the lock of the state. Received frames and link
//! changes go to it where they are noticed; the thread of LACP tells it the time.

use std::time::Duration;

use vnic_fabric::Instant;
use vnic_fabric::lldp::{Agent, Output};

use super::state::{Discovery, PortEntry, State};
use crate::datapath::WorkerHandle;
use crate::hub::EventHub;
use crate::types::*;

/// What the agents do their work with.
pub struct Means<'a> {
    /// The data cores, which send.
    pub workers: &'a [WorkerHandle],
    /// Where events go.
    pub hub: &'a EventHub,
}

/// Brings the agent of a port in line with its specification.
pub fn discover(nic: &Means<'_>, entry: &mut PortEntry) {
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
        (none, _) => *none = Some(Discovery::new(&entry.spec, entry.up)),
    }
    act(nic, entry);
    if mode == LldpMode::Disabled {
        entry.lldp = None;
    }
    nic.workers[entry.core].post(move |w| w.set_lldp(id, listens));
}

/// Runs the agents whose time has come. Returns how long the next one can wait.
pub fn time_passed(nic: &Means<'_>, state: &mut State) -> Option<Duration> {
    let mut next: Option<Duration> = None;
    for entry in state.ports.values_mut() {
        let Some(of) = &mut entry.lldp else { continue };
        let now = of.now();
        of.agent.tick(now);
        let wait = of.agent.next_time().map(|at| at.since(now));
        next = next.into_iter().chain(wait).min();
        act(nic, entry);
    }
    next
}

/// Handles a frame of link layer discovery from a port.
pub fn frame(nic: &Means<'_>, state: &mut State, port: PortId, frame: &[u8]) {
    with(nic, state, port, |agent, now| agent.receive(now, frame));
}

/// Handles a change of a port's link.
pub fn link(nic: &Means<'_>, state: &mut State, port: PortId, up: bool) {
    with(nic, state, port, |agent, now| agent.set_link(now, up));
}

fn with(nic: &Means<'_>, state: &mut State, port: PortId, work: impl FnOnce(&mut Agent, Instant)) {
    let Some(entry) = state.ports.values_mut().find(|entry| entry.id == port) else {
        return;
    };
    let Some(of) = &mut entry.lldp else { return };
    let now = of.now();
    work(&mut of.agent, now);
    act(nic, entry);
    state.ring_alarm();
}

/// The ports end: the others are told so.
pub fn end(nic: &Means<'_>, state: &mut State) {
    for entry in state.ports.values_mut() {
        part(nic, entry);
    }
}

/// A port ends: the others are told so.
pub fn part(nic: &Means<'_>, entry: &mut PortEntry) {
    if let Some(of) = &mut entry.lldp {
        of.agent.end();
        act(nic, entry);
        entry.lldp = None;
    }
}

/// Does what the agent of a port wants.
fn act(nic: &Means<'_>, entry: &mut PortEntry) {
    let Some(of) = &mut entry.lldp else { return };
    while let Some(output) = of.agent.poll() {
        let kind = match output {
            Output::Send(frame) => {
                let id = entry.id;
                nic.workers[entry.core].post(move |w| w.core.out.send_control(id, &frame));
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
        nic.hub.publish(&entry.spec.name, kind);
    }
}
