//! Multicast groups of the subnet.

use vnic_backend::NicError;
use vnic_backend::subnet::{Group, GroupSpec};

use super::Control;
use super::refused::Refused;
use crate::events::Owner;
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
        let _order = self.0.change_order();
        let row = stored::subnet_groups::encode(&spec);
        self.0.nic.create_group(name, spec).map_err(Refused::nic(path))?;
        let mut batch = Batch::new();
        batch.put(TABLE, name.as_bytes(), row);
        if let Err(error) = self.0.store.commit(batch) {
            // A group that cannot be stored is not kept.
            let _ = self.0.nic.remove_group(name);
            return Err(error.into());
        }
        self.0
            .settings_changed(Owner::Nic, NAME, format!("{name} is made"), by);
        self.get(name)
    }

    /// Removes a group and forgets it, for a client; returns what it was. May block.
    pub fn remove(&self, by: &str, name: &str) -> Result<Group, Refused> {
        let _order = self.0.change_order();
        let last = self.get(name)?;
        let mut batch = Batch::new();
        batch.delete(TABLE, name.as_bytes());
        self.0.store.commit(batch)?;
        self.0
            .nic
            .remove_group(name)
            .map_err(Refused::nic(str::to_owned))?;
        self.0
            .settings_changed(Owner::Nic, NAME, format!("{name} is removed"), by);
        Ok(last)
    }

    /// Makes the stored groups again. One that cannot be read is told, and left out. May block.
    pub fn bring_back(&self) -> Result<(), StoreError> {
        for (name, row) in self.0.store.all(TABLE)? {
            let name = String::from_utf8_lossy(&name).into_owned();
            let made = stored::subnet_groups::decode(&name, &row).and_then(|spec| {
                self.0
                    .nic
                    .create_group(&name, spec)
                    .map_err(|e: NicError| e.to_string())
            });
            if let Err(problem) = made {
                self.0
                    .settings_refused(Owner::Nic, NAME, format!("{name}: {problem}"), "");
            }
        }
        Ok(())
    }
}
