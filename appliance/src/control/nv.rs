//! Changes of the NV configuration by operators.

use vnic_backend::NicError;

use super::Control;
use super::refused::{Refused, acts};
use crate::check::Violations;
use crate::events::Owner;
use crate::names;
use crate::nv::{NvDef, NvWhy, PARAMETERS, parameter};

/// Name of these settings in events.
const STORE: &str = "nvconfig";

/// NV configuration.
pub struct NvConfig<'a>(pub &'a Control);

impl NvConfig<'_> {
    /// Sets parameters, by name and value, from the next device reset on; returns them. May block.
    pub fn set<'n>(
        &self,
        by: &str,
        asked: impl IntoIterator<Item = (&'n str, &'n str)>,
    ) -> Result<Vec<&'static NvDef>, Refused> {
        let mut assignments = Vec::new();
        for (i, (name, value)) in asked.into_iter().enumerate() {
            let refuse = |part: &str, why: NvWhy| self.refused(by, format!("assignments[{i}].{part}"), why);
            let def = parameter(name).map_err(|why| refuse("name", why))?;
            let value = def.check(value.trim()).map_err(|why| refuse("value", why))?;
            assignments.push((def, value));
        }
        if assignments.is_empty() {
            return Err(Refused::field("assignments", "at least one is required"));
        }
        acts()?;
        self.0.nv.set(&assignments)?;
        let words: Vec<String> = assignments
            .iter()
            .map(|(d, v)| format!("{} = {v}", d.name))
            .collect();
        self.changed(by, format!("{} after the next reset", words.join(", ")));
        let mut named: Vec<&'static NvDef> = assignments.iter().map(|(d, _)| *d).collect();
        named.sort_by_key(|d| d.name);
        named.dedup_by_key(|d| d.name);
        Ok(named)
    }

    /// Resets the named parameters, or all if none is named, to their defaults from the next device reset on; returns
    /// those that change. May block.
    pub fn reset(&self, by: &str, names: &[String]) -> Result<Vec<&'static NvDef>, Refused> {
        let mut wanted: Vec<&'static NvDef> = Vec::new();
        for (i, name) in names.iter().enumerate() {
            wanted.push(parameter(name).map_err(|why| self.refused(by, format!("names[{i}]"), why))?);
        }
        if wanted.is_empty() {
            wanted = PARAMETERS.iter().collect();
        }
        acts()?;
        let changed = self.0.nv.reset(&wanted)?;
        if !changed.is_empty() {
            let names: Vec<&str> = changed.iter().map(|d| d.name).collect();
            self.changed(by, format!("{}: default after the next reset", names.join(", ")));
        }
        Ok(changed)
    }

    /// Resets the device: all adapters restart, and ports are as the parameters have them. Returns the parameters whose acting value changed and the restarted adapters. May block.
    pub fn reset_device(&self, by: &str) -> Result<(Vec<&'static NvDef>, Vec<String>), Refused> {
        acts()?;
        let changed = self.0.nv.reset_device();
        self.0.registry.set_nv(self.0.nv.acting());
        self.0
            .nic
            .limit_algorithms(self.0.nv.algorithms())
            .map_err(Refused::Nic)?;
        self.0
            .nic
            .stamp_in_real_time(self.0.nv.real_time())
            .map_err(Refused::Nic)?;
        self.0
            .nic
            .limit_qos(self.0.nv.qos_limits())
            .map_err(Refused::Nic)?;
        self.0
            .nic
            .preset_ports(self.0.nv.presets())
            .map_err(Refused::Nic)?;
        let mut adapters = Vec::new();
        let mut wrong = Violations::default();
        for adapter in self.0.nic.adapters() {
            let name = adapter.spec.name;
            match self.0.registry.restart(&name) {
                Ok(_) => adapters.push(name),
                // The adapter was removed meanwhile.
                Err(NicError::NotFound { .. }) => {}
                Err(NicError::ShuttingDown) => return Err(Refused::Nic(NicError::ShuttingDown)),
                Err(error) => wrong.add(names::of(names::ADAPTERS, &name), error.to_string()),
            }
        }
        self.changed(by, "device reset".to_owned());
        wrong.finish(Some(()))?;
        Ok((changed, adapters))
    }

    fn changed(&self, by: &str, what: String) {
        self.0.settings_changed(Owner::Nic, STORE, what, by);
    }

    fn refused(&self, by: &str, field: String, why: NvWhy) -> Refused {
        if let NvWhy::NotAllowed { .. } = why {
            self.0.settings_refused(Owner::Nic, STORE, why.to_string(), by);
        }
        Refused::Nv(field, why)
    }
}
