//! Multicast groups of the subnet.

use std::collections::BTreeSet;

use vnic_backend::subnet::{Group, GroupSpec};

use super::Control;
use super::refused::Refused;
use crate::events::Owner;
use crate::names;
use crate::store::{Batch, StoreError};
use crate::stored;

/// Table of the store. Key of a row: the group's name; value: see [`stored::subnet_groups`].
const TABLE: &str = "subnet_groups";
/// Name of the groups in events.
const NAME: &str = "subnet groups";

/// Multicast groups of the subnet.
pub struct SubnetGroups<'a>(pub &'a Control);

/// Path of a field of [`GroupSpec`] in a request.
fn path(name: &str) -> String {
    match name {
        "mtu" => "subnet_group.mtu_bytes".to_owned(),
        "rate" => "subnet_group.rate_mbps".to_owned(),
        "packet_life" => "subnet_group.packet_lifetime".to_owned(),
        "sl" => "subnet_group.service_level".to_owned(),
        other => format!("subnet_group.{other}"),
    }
}

impl SubnetGroups<'_> {
    /// A group. May block.
    pub fn get(&self, name: &str) -> Result<Group, Refused> {
        let all = self.0.nic.groups();
        let found = all.into_iter().find(|(other, _)| other == name);
        found.map(|(_, group)| group).ok_or_else(|| Refused::NotFound {
            kind: "multicast group",
            name: name.to_owned(),
        })
    }

    /// Makes a group and stores it, for a client. May block.
    pub fn create(&self, by: &str, name: &str, spec: GroupSpec) -> Result<Group, Refused> {
        self.declare(name, spec, true)?;
        self.0
            .settings_changed(Owner::Nic, NAME, format!("{name} is made"), by);
        self.get(name)
    }

    /// Makes a group of a file. One of the configuration file is not stored. May block.
    pub fn declare(&self, name: &str, spec: GroupSpec, stored: bool) -> Result<(), Refused> {
        let _order = self.0.change_order();
        let row = stored::subnet_groups::encode(&spec);
        self.0.nic.create_group(name, spec).map_err(Refused::nic(path))?;
        if !stored {
            return Ok(());
        }
        let mut batch = Batch::new();
        batch.put(TABLE, name.as_bytes(), row);
        if let Err(error) = self.0.store.commit(batch) {
            // A group that cannot be stored is not kept.
            let _ = self.0.nic.remove_group(name);
            return Err(error.into());
        }
        Ok(())
    }

    /// Removes a group and forgets it, for a client; returns what it was. May block.
    pub fn remove(&self, by: &str, name: &str) -> Result<Group, Refused> {
        let _order = self.0.change_order();
        let last = self.get(name)?;
        self.unstore(name)?;
        self.take_out(name)?;
        self.0.origins.forget(&names::of(names::SUBNET_GROUPS, name));
        self.0
            .settings_changed(Owner::Nic, NAME, format!("{name} is removed"), by);
        Ok(last)
    }

    /// Removes a group; a stored one comes back when the daemon restarts. May block.
    pub fn take_out(&self, name: &str) -> Result<(), Refused> {
        let removed = self.0.nic.remove_group(name);
        removed.map_err(Refused::nic(str::to_owned))
    }

    /// Forgets that a group was made. May block.
    pub fn unstore(&self, name: &str) -> Result<(), StoreError> {
        let mut batch = Batch::new();
        batch.delete(TABLE, name.as_bytes());
        self.0.store.commit(batch)
    }

    /// Makes the groups of the configuration file, and those that are stored again; of two of one name the file's. One that cannot be
    /// made is told, and left out. May block.
    pub fn bring_back(&self) -> Result<(), StoreError> {
        let stored = self.0.store.all(TABLE)?.into_iter().map(|(name, row)| {
            let name = String::from_utf8_lossy(&name).into_owned();
            let spec = stored::subnet_groups::decode(&name, &row);
            (name, spec)
        });
        let configured = self.0.settings.subnet_groups.iter().cloned();
        let configured = configured.map(|(name, spec)| (name, Ok(spec)));
        let mut made = BTreeSet::new();
        for (name, spec) in configured.chain(stored) {
            if !made.insert(name.clone()) {
                continue;
            }
            let create = |spec| self.0.nic.create_group(&name, spec);
            if let Err(problem) = spec.and_then(|spec| create(spec).map_err(|e| e.to_string())) {
                self.0
                    .settings_refused(Owner::Nic, NAME, format!("{name}: {problem}"), "");
            }
        }
        Ok(())
    }
}
