//! Rules for completions and commands of RDMA functions.

use vnic_backend::{VerbsFaultSpec, VerbsFaultStatus};

use super::Control;
use super::refused::Refused;
use crate::names;

pub struct VerbsFaults<'a>(pub &'a Control);

/// Path of a field of [`VerbsFaultSpec`] in a request.
fn path(name: &str) -> String {
    format!("verbs_fault.{name}")
}

impl VerbsFaults<'_> {
    /// Makes a rule. May block.
    pub fn create(&self, spec: VerbsFaultSpec) -> Result<VerbsFaultStatus, Refused> {
        self.0.nic.add_verbs_fault(spec).map_err(Refused::nic(path))
    }

    /// Status of all rules in the order in which they are asked. May block.
    pub fn list(&self) -> Vec<VerbsFaultStatus> {
        self.0.nic.verbs_faults()
    }

    /// Removes a rule; returns its last status. May block.
    pub fn remove(&self, name: &str) -> Result<VerbsFaultStatus, Refused> {
        let last = self.take_out(name)?;
        self.0.origins.forget(&names::of(names::VERBS_FAULTS, name));
        Ok(last)
    }

    /// Removes a rule; one of its name is of the configuration again. May block.
    pub fn take_out(&self, name: &str) -> Result<VerbsFaultStatus, Refused> {
        let removed = self.0.nic.remove_verbs_fault(name);
        removed.map_err(Refused::nic(str::to_owned))
    }

    /// Whether a rule is of the configuration.
    pub fn is_configured(&self, name: &str) -> bool {
        self.0
            .origins
            .is_configured(&names::of(names::VERBS_FAULTS, name))
    }
}
