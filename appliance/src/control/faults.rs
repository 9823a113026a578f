//! Fault rules.

use vnic_backend::{FaultSpec, FaultStatus};

use super::Control;
use super::refused::Refused;
use crate::names;

pub struct Faults<'a>(pub &'a Control);

/// Path of a field of [`FaultSpec`] in a request.
fn path(name: &str) -> String {
    match name {
        "name" => "fault_id".to_owned(),
        "from" | "to" | "destination_qp" | "opcodes" | "psn" => format!("fault.match.{name}"),
        "delay" => "fault.delay.delay".to_owned(),
        "reorder.by" => "fault.reorder.frames".to_owned(),
        other => format!("fault.{other}"),
    }
}

impl Faults<'_> {
    /// Status of a rule with its counters. May block.
    pub fn get(&self, name: &str) -> Result<FaultStatus, Refused> {
        self.0.nic.fault(name).map_err(Refused::nic(str::to_owned))
    }

    /// Makes rules, all or none. `at` gives the prefix of the field paths of each rule. May block.
    pub fn create(
        &self,
        specs: Vec<FaultSpec>,
        at: impl Fn(usize) -> String,
    ) -> Result<Vec<FaultStatus>, Refused> {
        let made = self.0.nic.add_faults(specs);
        made.map_err(|(i, error)| Refused::nic(|field| format!("{}{}", at(i), path(field)))(error))
    }

    /// Removes a rule; returns its last status. May block.
    pub fn remove(&self, name: &str) -> Result<FaultStatus, Refused> {
        let last = self.take_out(name)?;
        self.0.origins.forget(&names::of(names::FAULTS, name));
        Ok(last)
    }

    /// Removes a rule; one of its name is of the configuration again. May block.
    pub fn take_out(&self, name: &str) -> Result<FaultStatus, Refused> {
        let removed = self.0.nic.remove_fault(name);
        removed.map_err(Refused::nic(str::to_owned))
    }

    /// Whether a rule is of the configuration.
    pub fn is_configured(&self, name: &str) -> bool {
        self.0.origins.is_configured(&names::of(names::FAULTS, name))
    }
}
