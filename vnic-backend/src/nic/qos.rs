//! Quality of service of adapters and ports.

mod check;

use vnic_engine::settings::{AdapterSettings, QosKeys};

use super::acting::{acts, change, merge, of_adapter, of_port};
use super::state::{PortEntry, not_found};
use super::{Nic, lldp};
use crate::datapath::PauseState;
use crate::rehearsal;
use crate::types::*;

impl Nic {
    /// Configures an adapter or a port, at once and under traffic: no waiting frame is lost. An error leaves everything
    /// unchanged and names the field.
    pub fn set_qos(&self, name: &str, spec: QosSpec) -> Result<(), NicError> {
        let mut state = self.inner.state()?;
        if let Some(entry) = state.adapters.get_mut(name) {
            let keys = entry.adapter.settings().qos;
            check::adapter(&spec)?;
            let change = of_adapter(&spec, &keys, entry.rdma_priority)?;
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
        change(&entry.limited(&spec), &spec.keys)?;
        rehearsal::acts()?;
        entry.qos = spec;
        lldp::administer(&self.inner.lldp(), entry);
        let change = of_port(entry)?;
        self.inner.send_qos(entry.id, change);
        state.ring_alarm();
        Ok(())
    }

    /// Checks what [`Nic::set_qos`] would check, with these keys acting on an adapter; a port's keys are those of `spec`. The
    /// error names the field and what is allowed.
    pub fn check_qos(&self, name: &str, spec: &QosSpec, keys: &QosKeys) -> Result<(), NicError> {
        let state = self.inner.state()?;
        match (state.adapters.get(name), state.ports.contains_key(name)) {
            (Some(entry), _) => {
                check::adapter(spec)?;
                merge(spec, keys).check()?;
                check_queue(spec, &entry.qos, keys)?;
                // Watermarks of the registry may be out of range: others then act in their place.
                if keys.guard == entry.adapter.settings().qos.guard {
                    return Ok(());
                }
                check::watermarks(keys.guard)
            }
            (None, true) => {
                check::port(spec)?;
                Ok(merge(spec, keys).check()?)
            }
            (None, false) => Err(not_found("adapter or port", name)),
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
        let (spec, acts_of, keys, (id, core), dcbx, rdma_priority) = {
            let state = self.inner.state()?;
            let of_port = |p: &PortEntry| {
                let outcome = p.lldp.as_ref()?.agent.dcbx()?.outcome();
                Some((outcome.version, outcome.sources))
            };
            match (state.adapters.get(name), state.ports.get(name)) {
                (Some(e), _) => {
                    let keys = e.adapter.settings().qos;
                    let acting = (e.qos.clone(), keys.clone());
                    let driver = e.adapter.settings().dcbx.is_some();
                    let dcbx = state.ports.values().find_map(of_port).filter(|_| driver);
                    let dcbx = dcbx.map(|(version, _)| (version, DcbxSources::default()));
                    let at = (e.adapter.id, e.adapter.core);
                    (e.qos.clone(), acting, keys, at, dcbx, e.rdma_priority)
                }
                (None, Some(p)) => {
                    let acts = p.operational();
                    let acting = (acts.clone(), acts.keys);
                    let keys = p.qos.keys.clone();
                    (p.qos.clone(), acting, keys, (p.id, p.core), of_port(p), None)
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
            rdma_priority,
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

/// Checks a schedule queue against the keys, if it is new.
fn check_queue(spec: &QosSpec, before: &QosSpec, keys: &QosKeys) -> Result<(), NicError> {
    match &spec.queue {
        Some(queue) if spec.queue != before.queue => check::new_queue(queue, keys),
        _ => Ok(()),
    }
}
