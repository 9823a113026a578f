//! Quality of service of adapters and ports.

mod check;
mod marking;

use std::sync::Arc;

use vnic_engine::settings::{AdapterSettings, FlowControl, QosKeys, SendRules};

use super::Nic;
use super::state::not_found;
use crate::datapath::{PauseState, QosChange};
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
            let change = change(&spec, &keys)?;
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
        let change = change(&entry.limited(&spec), &spec.keys)?;
        rehearsal::acts()?;
        entry.qos = spec;
        self.inner.send_qos(entry.id, change);
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
        let (spec, acting, keys, id, core) = {
            let state = self.inner.state()?;
            match (state.adapters.get(name), state.ports.get(name)) {
                (Some(e), _) => (
                    e.qos.clone(),
                    e.qos.clone(),
                    e.adapter.settings().qos,
                    e.adapter.id,
                    e.adapter.core,
                ),
                (None, Some(p)) => (p.qos.clone(), p.limited(&p.qos), p.qos.keys.clone(), p.id, p.core),
                (None, None) => return Err(not_found("adapter or port", name)),
            }
        };
        let acting = acts(merge(&acting, &keys), acting.disabled);
        let queues = self.inner.workers[core].ask(move |w| w.qos_status(id));
        Ok(QosStatus {
            spec,
            keys,
            acting,
            queues: queues.unwrap_or_default(),
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

/// Quality of service for the cores.
pub(super) fn change(spec: &QosSpec, keys: &QosKeys) -> Result<Arc<QosChange>, NicError> {
    let whole = merge(spec, keys);
    whole.check()?;
    let qos = acts(whole, spec.disabled);
    let (plain, keys) = match spec.disabled {
        true => (None, &QosKeys::default()),
        false => (spec.forced_traffic_class, keys),
    };
    let marking = marking::marking(&qos.classification, keys, plain);
    Ok(Arc::new(QosChange { qos, marking }))
}

/// The operator's configuration and the keys together.
fn merge(spec: &QosSpec, keys: &QosKeys) -> PortQos {
    PortQos {
        ecn: spec.ecn,
        rate: spec.rate,
        tpid: spec.tpid,
        classification: Classification {
            priorities: keys.priorities,
            dscp_to_priority: keys.acting_dscp_map(),
            dscp_to_colour: spec.dscp_to_colour.0,
            tags: spec.tags,
            policies: spec.policies.clone(),
        },
        classes: spec.classes.clone(),
        pause: PauseSettings {
            global_tx: keys.flow_control.is_sent(),
            global_rx: keys.flow_control.is_obeyed(),
            global_waits: keys.flow_control == FlowControl::Negotiated,
            pfc: spec.pfc,
        },
        buffer: spec.buffer,
        guard: keys.acting_watermarks(),
        lifetimes: keys.lifetimes,
        hint: keys.hint,
        queue: spec.queue.clone(),
        sending: keys.sending,
    }
}

/// The part that acts: a schedule queue only while hardware QoS is on, and only for the classes that it supports; thresholds in
/// bytes. While quality of service is disabled, of the rest the link's speed, its buffer and global pause.
fn acts(whole: PortQos, disabled: bool) -> PortQos {
    let SendRules {
        offload,
        offload_classes,
        ..
    } = whole.sending;
    let supported = |rates: [u64; 8]| {
        std::array::from_fn(|tc| {
            if offload_classes & (1 << tc) != 0 {
                rates[tc]
            } else {
                0
            }
        })
    };
    let queue = whole.queue.filter(|_| offload).map(|queue| ScheduleQueue {
        limit: supported(queue.limit),
        guarantee: supported(queue.guarantee),
    });
    let ecn = whole.ecn.map(|red| red.in_bytes(whole.buffer.size));
    let on = PortQos { queue, ecn, ..whole };
    if !disabled {
        return on;
    }
    PortQos {
        rate: on.rate,
        tpid: on.tpid,
        pause: PauseSettings { pfc: 0, ..on.pause },
        buffer: Buffer {
            parts: None,
            ..on.buffer
        },
        guard: on.guard,
        hint: on.hint,
        queue: on.queue,
        sending: on.sending,
        ..PortQos::default()
    }
}
