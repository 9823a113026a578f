//! Quality of service of adapters and ports.

mod check;

use vnic_engine::settings::{AdapterSettings, QosKeys};

use super::acting::{acts, change, merge, of_adapter, of_port};
use super::state::{Imposed, PortEntry, State, not_found};
use super::{Inner, Nic, lldp};
use crate::datapath::PauseState;
use crate::rehearsal;
use crate::types::*;

impl Nic {
    /// Configures an adapter or a port, at once and under traffic: no waiting frame is lost. What is beyond the device's limits
    /// ([`Nic::limit_qos`]) acts as far as it is within. An error leaves everything unchanged and names the field.
    pub fn set_qos(&self, name: &str, mut spec: QosSpec) -> Result<(), NicError> {
        let mut state = self.inner.state()?;
        let by_source = bound(&state, &spec);
        if let Some(entry) = state.adapters.get_mut(name) {
            let keys = entry.adapter.settings().qos;
            check::adapter(&spec)?;
            let change = of_adapter(&spec, &keys, entry.imposed)?;
            check_queue(&spec, &entry.qos, &keys)?;
            rehearsal::acts()?;
            let faster = entry.qos.rate != spec.rate;
            entry.qos = spec;
            self.inner.send_qos(entry.adapter.id, change);
            if faster {
                // The line rate is where congestion control begins.
                self.inner.send_congestion(entry);
            }
            return Ok(());
        }
        let entry = state
            .ports
            .get_mut(name)
            .ok_or_else(|| not_found("adapter or port", name))?;
        check::port(&spec)?;
        spec.classes.by_source = by_source;
        change(&entry.limited(&spec), &spec.keys)?;
        rehearsal::acts()?;
        entry.qos = spec;
        lldp::administer(&self.inner.lldp(), entry);
        let change = of_port(entry)?;
        self.inner.send_qos(entry.id, change);
        state.ring_alarm();
        Ok(())
    }

    /// Limits the traffic classes and the priorities with flow control of all adapters and ports, also those that come later, at once and
    /// under traffic.
    pub fn limit_qos(&self, limits: QosLimits) -> Result<(), NicError> {
        let mut state = self.inner.state()?;
        if std::mem::replace(&mut state.imposed.limits, limits) == limits {
            return Ok(());
        }
        let imposed = state.imposed;
        for entry in state.adapters.values_mut() {
            entry.imposed = imposed;
            let change = of_adapter(&entry.qos, &entry.adapter.settings().qos, imposed)?;
            self.inner.send_qos(entry.adapter.id, change);
        }
        for entry in state.ports.values_mut() {
            entry.limits = limits;
            lldp::administer(&self.inner.lldp(), entry);
            self.inner.send_qos(entry.id, of_port(entry)?);
        }
        state.ring_alarm();
        Ok(())
    }

    /// Checks what [`Nic::set_qos`] would check, with these keys acting on an adapter; a port's keys are those of `spec`. What is new has
    /// to be within the device's limits, too. The error names the field and what is allowed.
    pub fn check_qos(&self, name: &str, spec: &QosSpec, keys: &QosKeys) -> Result<(), NicError> {
        let state = self.inner.state()?;
        match (state.adapters.get(name), state.ports.get(name)) {
            (Some(entry), _) => {
                check::adapter(spec)?;
                merge(spec, keys).check()?;
                check_queue(spec, &entry.qos, keys)?;
                check::limits(spec, &entry.qos, entry.imposed.limits)?;
                // Watermarks of the registry may be out of range: others then act in their place.
                if keys.guard == entry.adapter.settings().qos.guard {
                    return Ok(());
                }
                check::watermarks(keys.guard)
            }
            (None, Some(entry)) => {
                check::port(spec)?;
                check::limits(spec, &entry.qos, entry.limits)?;
                Ok(merge(spec, keys).check()?)
            }
            (None, None) => Err(not_found("adapter or port", name)),
        }
    }

    /// Lets an adapter pause all others and the uplinks, as a card in a pause storm: these priorities by priority flow control, a bit
    /// each; 0: all, by global pause. `None` ends it. Who does not obey goes on.
    pub fn set_pause_storm(&self, name: &str, priorities: Option<u8>) -> Result<(), NicError> {
        let adapter = self.inner.adapter(name)?;
        rehearsal::acts()?;
        let state = priorities.map_or(PauseState::default(), |priorities| PauseState {
            priorities,
            global: priorities == 0,
        });
        let id = adapter.id;
        self.inner.workers[adapter.core].call(move |w| w.core.out.storm(id, state));
        Ok(())
    }

    /// Configuration of all adapters and ports, by name.
    pub fn qos_specs(&self) -> Vec<(String, QosSpec)> {
        let state = self.inner.lock();
        let adapters = state
            .adapters
            .iter()
            .map(|(name, e)| (name.clone(), e.qos.clone()));
        let ports = state.ports.iter().map(|(name, p)| (name.clone(), p.qos.clone()));
        adapters.chain(ports).collect()
    }

    /// Configuration and state of an adapter's or a port's quality of service.
    pub fn qos(&self, name: &str) -> Result<QosStatus, NicError> {
        let (spec, acts_of, keys, (id, core), dcbx, imposed) = {
            let state = self.inner.state()?;
            let of_port = |p: &PortEntry| {
                let outcome = p.lldp.as_ref()?.agent.dcbx()?.outcome();
                Some((outcome.version, outcome.sources))
            };
            match (state.adapters.get(name), state.ports.get(name)) {
                (Some(e), _) => {
                    let keys = e.adapter.settings().qos;
                    let acting = (e.qos.within(e.imposed.limits), keys.clone());
                    let driver = e.adapter.settings().dcbx.is_some();
                    let dcbx = state.ports.values().find_map(of_port).filter(|_| driver);
                    let dcbx = dcbx.map(|(version, _)| (version, DcbxSources::default()));
                    let at = (e.adapter.id, e.adapter.core);
                    (e.qos.clone(), acting, keys, at, dcbx, e.imposed)
                }
                (None, Some(p)) => {
                    let acts = p.operational();
                    let acting = (acts.clone(), acts.keys);
                    let keys = p.qos.keys.clone();
                    let imposed = Imposed {
                        rdma_priority: None,
                        limits: p.limits,
                    };
                    (p.qos.clone(), acting, keys, (p.id, p.core), of_port(p), imposed)
                }
                (None, None) => return Err(not_found("adapter or port", name)),
            }
        };
        let acting = acts(merge(&acts_of.0, &acts_of.1), acts_of.0.disabled);
        let queues = self.inner.workers[core].ask(move |w| w.qos_status(id));
        Ok(QosStatus {
            spec,
            keys,
            acting,
            queues: queues.unwrap_or_default(),
            dcbx,
            rdma_priority: imposed.rdma_priority,
            limits: imposed.limits,
        })
    }

    /// Applies the quality-of-service keys of these settings at once, also those that otherwise wait for a restart, as
    /// `mlnx_qos` does.
    pub fn apply_qos_keys(&self, name: &str, settings: &AdapterSettings) -> Result<(), NicError> {
        let mut state = self.inner.state()?;
        state.check_settings(name, settings)?;
        let entry = state.adapter_mut(name)?;
        rehearsal::acts()?;
        entry.wanted.qos = settings.qos.clone();
        let mut acting = entry.adapter.settings();
        acting.qos = settings.qos.clone();
        self.inner.enforce(entry, acting, false);
        Ok(())
    }
}

/// The classes of a port by the numbers of those adapters and ports that are there.
fn bound(state: &State, spec: &QosSpec) -> Vec<(u16, [u8; 16])> {
    let tables = spec.classes_by_port.iter();
    tables
        .filter_map(|(name, table)| Some((state.id_of(name)?.0, *table)))
        .collect()
}

/// Lets classes by the port that a frame came by follow adapters and ports that come and go.
pub(super) fn bind(nic: &Inner, state: &mut State) {
    let named = state
        .ports
        .iter()
        .filter(|(_, p)| !p.qos.classes_by_port.is_empty());
    let named: Vec<_> = named
        .map(|(name, p)| (name.clone(), bound(state, &p.qos)))
        .collect();
    for (name, by_source) in named {
        let Some(entry) = state.ports.get_mut(&name) else {
            continue;
        };
        if entry.qos.classes.by_source != by_source {
            entry.qos.classes.by_source = by_source;
            lldp::carry_out(&nic.lldp(), entry);
        }
    }
}

/// Checks a schedule queue against the keys, if it is new.
fn check_queue(spec: &QosSpec, before: &QosSpec, keys: &QosKeys) -> Result<(), NicError> {
    match &spec.queue {
        Some(queue) if spec.queue != before.queue => check::new_queue(queue, keys),
        _ => Ok(()),
    }
}
