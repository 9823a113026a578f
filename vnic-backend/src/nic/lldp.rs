//! Link layer discovery: each port that speaks or listens has an agent, under the lock of the state. Received frames and link
//! changes go to it where they are noticed; the thread of LACP tells it the time. What data center bridging exchange comes to acts at
//! once.

use std::time::Duration;

use vnic_fabric::Instant;
use vnic_fabric::lldp::{Agent, Output};

use super::acting::{of_adapter, of_port};
use super::state::{Discovery, PortEntry, State, Wanted, wanted};
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

/// Brings the agent of a port in line with what the operator and the NV configuration want.
pub fn discover(nic: &Means<'_>, entry: &mut PortEntry) {
    let Wanted { mode, optional, .. } = wanted(entry);
    let listens = mode.receives();
    let id = entry.id;
    let before = entry.operational();
    match (&mut entry.lldp, mode) {
        (None, LldpMode::Disabled) => return,
        (Some(of), LldpMode::Disabled) => of.agent.end(),
        (Some(of), _) => {
            let now = of.now();
            of.agent.configure(now, mode.transmits(), listens);
        }
        (none, _) => *none = Some(Discovery::new(&entry.spec, mode, entry.up)),
    }
    if let Some(of) = &mut entry.lldp {
        of.agent.set_optional(optional.0, optional.1);
    }
    administer(nic, entry);
    act(nic, entry);
    if mode == LldpMode::Disabled {
        entry.lldp = None;
    }
    if entry.operational() != before {
        carry_out(nic, entry);
    }
    nic.workers[entry.core].post(move |w| w.set_lldp(id, listens));
}

/// Tells the agent of a port what the operator wants of its quality of service.
pub fn administer(nic: &Means<'_>, entry: &mut PortEntry) {
    let Wanted { dcbx, .. } = wanted(entry);
    if let Some(of) = &mut entry.lldp {
        let now = of.now();
        of.agent.set_dcbx(now, dcbx);
        act(nic, entry);
    }
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
    prefer(nic, state);
    next
}

/// Lets the RDMA functions of all adapters have the priority that the peer of a port names, if it has changed.
pub fn prefer(nic: &Means<'_>, state: &mut State) {
    let named = state.ports.values().find_map(PortEntry::rdma_priority);
    if core::mem::replace(&mut state.imposed.rdma_priority, named) == named {
        return;
    }
    let imposed = state.imposed;
    for entry in state.adapters.values_mut() {
        entry.imposed = imposed;
        let (id, settings) = (entry.adapter.id, entry.adapter.settings());
        let Ok(change) = of_adapter(&entry.qos, &settings.qos, imposed) else {
            continue;
        };
        for worker in nic.workers {
            let change = change.clone();
            worker.post(move |w| w.set_qos(id, change));
        }
    }
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
    entry.counters.count_dcbx(of.agent.take_dcbx_counters());
    let mut negotiated = false;
    while let Some(output) = of.agent.poll() {
        let kind = match output {
            Output::Send(frame) => {
                let id = entry.id;
                nic.workers[entry.core].post(move |w| w.core.out.send_control(id, &frame));
                continue;
            }
            Output::Negotiated(before) => {
                negotiated = true;
                let Some(dcbx) = of.agent.dcbx() else { continue };
                for kind in news(&before, dcbx.outcome()) {
                    nic.hub.publish(&entry.spec.name, kind);
                }
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
    if negotiated {
        carry_out(nic, entry);
    }
}

/// Lets what the operator and the peer want act on all cores, without waiting for them: a core may wait for the caller.
pub fn carry_out(nic: &Means<'_>, entry: &PortEntry) {
    let Ok(change) = of_port(entry) else { return };
    let id = entry.id;
    for worker in nic.workers {
        let change = change.clone();
        worker.post(move |w| w.set_qos(id, change));
    }
}

/// Events about what data center bridging exchange came to.
fn news(before: &DcbxOutcome, after: &DcbxOutcome) -> Vec<NicEventKind> {
    let mut all = Vec::new();
    if after.peers > 1 && before.peers < 2 {
        all.push(NicEventKind::DcbxSeveralPeers { peers: after.peers });
    }
    if let Some(why) = after.problem.filter(|_| after.problem != before.problem) {
        all.push(NicEventKind::DcbxRefused { why });
    }
    // What the operator alone changes is told where it is changed.
    let own = |outcome: &DcbxOutcome| outcome.sources == Default::default();
    let acts = |outcome: &DcbxOutcome| (outcome.operational.clone(), outcome.sources);
    if acts(before) != acts(after) && !(own(before) && own(after)) {
        let outcome = after.clone();
        all.push(NicEventKind::DcbxChanged { outcome });
    }
    all
}
