//! Congestion control of adapters.

use std::sync::{Arc, PoisonError};

use vnic_engine::congestion::dcqcn::Dcqcn;
use vnic_engine::congestion::{CongestionControl, none};
use vnic_engine::rdma::Congestion;
use vnic_engine::settings::Value;

use super::rdma::no_function;
use super::state::AdapterEntry;
use super::{Inner, Nic};
use crate::datapath::CongestionChange;
use crate::rehearsal::acts;
use crate::types::*;

impl Nic {
    /// Configures congestion control of an adapter, at once and under traffic: limited flows keep their rate. The error names
    /// the field.
    pub fn set_congestion(&self, adapter: &str, spec: CongestionSpec) -> Result<(), NicError> {
        check(&spec)?;
        let mut state = self.inner.state()?;
        let entry = state.adapter_mut(adapter)?;
        acts()?;
        let same = entry.congestion == spec;
        // A program that is stopped begins anew when it is given again.
        let anew = same && entry.program.faults().stopped;
        if anew {
            entry.program.forget();
        }
        if anew || !same {
            entry.congestion = spec;
            self.inner.send_congestion(entry);
        }
        Ok(())
    }

    /// Limits the algorithms of all adapters, from now on.
    pub fn limit_algorithms(&self, limits: AlgorithmLimits) -> Result<(), NicError> {
        let state = self.inner.state()?;
        let mut acting = self
            .inner
            .algorithms
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *acting, limits);
        drop(acting);
        for entry in state.adapters.values() {
            let algorithm = entry.congestion.algorithm;
            if before.allow(algorithm) != limits.allow(algorithm) {
                self.inner.send_congestion(entry);
            }
        }
        Ok(())
    }

    /// Checks what [`Nic::set_congestion`] would check. The error names the field and what is allowed.
    pub fn check_congestion(&self, spec: &CongestionSpec) -> Result<(), NicError> {
        check(spec)
    }

    /// Congestion control of an adapter, as configured and as it acts.
    pub fn congestion(&self, adapter: &str) -> Result<CongestionStatus, NicError> {
        let state = self.inner.state()?;
        let entry = state.adapter(adapter)?;
        let (keys, line_rate) = (entry.adapter.settings().congestion, entry.line_rate());
        Ok(CongestionStatus {
            algorithm: self.inner.acting(&entry.congestion),
            faults: entry.program.faults(),
            spec: entry.congestion.clone(),
            keys,
            acting: entry.congestion.points(&keys, line_rate),
            line_rate,
            rdma: entry.rdma.is_some(),
        })
    }

    /// Queue pairs of an adapter that congestion control limits now.
    pub fn congestion_flows(&self, adapter: &str) -> Result<Vec<CongestionFlow>, NicError> {
        let adapter = self.inner.adapter(adapter)?;
        let id = adapter.id;
        let flows = self.inner.workers[adapter.core].ask(move |w| w.functions.flows(id, w.core.now));
        flows.flatten().ok_or_else(|| no_function(&adapter.spec().name))
    }

    /// Flows of a guest's own RoCE over Ethernet that congestion control limits now (`soft_roce`).
    pub fn guest_flows(&self, adapter: &str) -> Result<Vec<GuestFlow>, NicError> {
        let adapter = self.inner.adapter(adapter)?;
        let id = adapter.id;
        let flows = self.inner.workers[adapter.core].ask(move |w| w.core.guest_flows(id));
        Ok(flows.unwrap_or_default())
    }

    /// Speed of an adapter's link in Mbit/s, the upper limit of its rates.
    pub fn line_rate_mbps(&self, adapter: &str) -> u32 {
        let state = self.inner.lock();
        let rate = state.adapters.get(adapter).map(AdapterEntry::line_rate);
        rate.map_or(LINE_RATE_MBPS, |bps| {
            u32::try_from(bps / 1_000_000).unwrap_or(u32::MAX).max(1)
        })
    }
}

/// Checks a specification.
pub(super) fn check(spec: &CongestionSpec) -> Result<(), NicError> {
    if spec.only_reaction & spec.only_notification != 0 {
        let problem = "a priority has the reaction point alone and the notification point alone";
        return invalid("reaction", problem);
    }
    if let (CongestionAlgorithm::Program, None) = (spec.algorithm, &spec.program) {
        return invalid("algorithm", "no program is loaded");
    }
    if spec.algorithm != CongestionAlgorithm::Program
        && control(spec.algorithm, spec, &spec.preset.points()).is_none()
    {
        let problem = format!("{} is not there in this version", spec.algorithm.name());
        return invalid("algorithm", problem);
    }
    for (parameter, value) in spec.own.iter() {
        // A link may become slower than a rate that was set, which then acts as the line rate.
        let checked = parameter.def.check_value(&Value::Dword(value), u32::MAX);
        if let (false, Ok(_)) = (parameter.keyed && !parameter.is_zero_touch(), &checked) {
            continue;
        }
        let problem = format!("{value} is not allowed; allowed: {}", parameter.def.allowed());
        return invalid(parameter.def.name, problem);
    }
    Ok(())
}

impl Inner {
    /// The algorithm that acts where this is configured.
    fn acting(&self, spec: &CongestionSpec) -> CongestionAlgorithm {
        let limits = *self.algorithms.lock().unwrap_or_else(PoisonError::into_inner);
        match limits.allow(spec.algorithm) {
            true => spec.algorithm,
            false => CongestionAlgorithm::Dcqcn,
        }
    }

    /// Sends congestion control to the core that serves the adapter and waits until it has it.
    pub(super) fn send_congestion(&self, entry: &AdapterEntry) {
        let change = change(entry, self.acting(&entry.congestion));
        let id = entry.adapter.id;
        self.workers[entry.adapter.core].call(move |w| w.set_congestion(id, &change));
    }
}

/// Congestion control for a core.
fn change(entry: &AdapterEntry, algorithm: CongestionAlgorithm) -> CongestionChange {
    let (spec, keys) = (&entry.congestion, &entry.adapter.settings().congestion);
    let line_rate = entry.line_rate();
    let points = spec.points(keys, line_rate);
    let (reaction, notification) = spec.enabled(keys);
    let program = spec
        .program
        .as_ref()
        .filter(|_| algorithm == CongestionAlgorithm::Program);
    let control = match program {
        Some(program) => Arc::new(entry.program.run(program)),
        // An algorithm that does not exist was refused before.
        None => control(algorithm, spec, &points).unwrap_or_else(|| Arc::new(none::None)),
    };
    CongestionChange {
        congestion: Congestion {
            control,
            reaction,
            notification,
            point: points.notification,
            line_rate,
            zero_touch: points.zero_touch,
            slack: points.idle_credit,
        },
        soft: points.soft_roce,
        pin_source_port: points.pin_source_port,
    }
}

/// An algorithm with the adapter's parameters.
fn control(
    algorithm: CongestionAlgorithm,
    spec: &CongestionSpec,
    points: &Points,
) -> Option<Arc<dyn CongestionControl>> {
    match algorithm {
        CongestionAlgorithm::None => Some(Arc::new(none::None)),
        CongestionAlgorithm::Dcqcn => Some(Arc::new(Dcqcn {
            parameters: points.reaction.clone(),
        })),
        other => Some(spec.tuned.get(other.name())?.build()),
    }
}
