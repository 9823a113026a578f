//! Uplink ports.

use std::sync::Arc;

use vnic_backend::{NicError, PortSpec, PortStatus};

use super::Control;
use super::fields;
use super::qos::Qos;
use super::refused::{Refused, acts};
use super::teams::Teams;
use crate::events::{Owner, Record, Tell, kinds, told};
use crate::mesh::MeshSpec;
use crate::store::{Batch, StoreError};
use crate::stored;

/// Table of the store. Key of a row: the port's name; value: see [`stored::ports`].
const TABLE: &str = "ports";

/// Uplink ports.
pub struct Ports<'a>(pub &'a Arc<Control>);

/// Path of a field of [`PortSpec`] in a request.
fn path(kind: &str, name: &str) -> String {
    match name {
        "name" => "port_id".to_owned(),
        "kind" | "ifname" => format!("port.{kind}.ifname"),
        "queues" => format!("port.{kind}.queues"),
        other => format!("port.{other}"),
    }
}

fn refused(error: NicError) -> Refused {
    Refused::nic(str::to_owned)(error)
}

impl Ports<'_> {
    /// Status of a port. May block.
    pub fn get(&self, name: &str) -> Result<PortStatus, Refused> {
        self.0.nic.port(name).map_err(refused)
    }

    /// Makes a port, with its mesh if it has one, and stores it if it shall be `stored`; settings that are stored for its name act,
    /// and it joins its team. May block.
    pub fn create(
        &self,
        spec: PortSpec,
        mesh: Option<MeshSpec>,
        stored: bool,
    ) -> Result<PortStatus, Refused> {
        let (name, kind) = (spec.name.clone(), spec.kind.name());
        let row = stored.then(|| stored::ports::encode(&spec, mesh.as_ref()));
        let status = self
            .add(spec, mesh)
            .map_err(Refused::nic(|field| path(kind, field)))?;
        if let Some(row) = row {
            if let Err(error) = self.store(&name, row) {
                // A port that cannot be stored is not kept.
                let _ = self.take_away(&name);
                return Err(error.into());
            }
            self.0.origins.set_stored(&name);
        }
        Teams(self.0).port_made(&name);
        Ok(status)
    }

    fn store(&self, name: &str, row: Vec<u8>) -> Result<(), StoreError> {
        let mut batch = Batch::new();
        batch.put(TABLE, name.as_bytes(), row);
        self.0.store.commit(batch)
    }

    fn take_away(&self, name: &str) -> Result<(), Refused> {
        let remove = || self.0.nic.remove_port(name).map_err(refused);
        self.0.meshes.remove(name, remove)
    }

    /// Makes the stored ports again. A port that cannot be made causes an event and stays stored. May block.
    pub fn bring_back(&self) -> Result<(), StoreError> {
        for (name, port) in self.0.store.all(TABLE)? {
            let name = String::from_utf8_lossy(&name).into_owned();
            match self.again(&name, &port) {
                Ok(()) => self.0.origins.set_stored(&name),
                Err(problem) => {
                    let message = format!("the port that was made at run time does not come back: {problem}");
                    let told = told(&kinds::STORED_PORT_SHADOWED, message).fact("problem", problem);
                    self.0.hub.record(Record::now(told, Owner::Port(name)));
                }
            }
        }
        Ok(())
    }

    fn again(&self, name: &str, port: &[u8]) -> Result<(), String> {
        if self.0.nic.port(name).is_ok() {
            return Err("the configuration has its name".to_owned());
        }
        let (spec, mesh) = stored::ports::decode(name, port, &self.0.settings.nic.data_cores)?;
        self.add(spec, mesh).map_err(|e| e.to_string())?;
        tracing::debug!(owner = name, "port made at run time added again");
        Ok(())
    }

    /// Makes a port of the configuration; its team is made later. May block.
    pub fn add(&self, spec: PortSpec, mesh: Option<MeshSpec>) -> Result<PortStatus, NicError> {
        let (name, core) = (spec.name.clone(), spec.data_core);
        let status = match mesh {
            None => self.0.nic.add_port(spec)?,
            Some(mesh) => {
                let weak = Arc::downgrade(self.0);
                let tell: Tell = Arc::new(move |event| {
                    if let Some(control) = weak.upgrade() {
                        control.hub.record(event);
                    }
                });
                let ageing = self.0.settings.nic.switch.ageing;
                self.0.meshes.add(&self.0.nic, tell, spec, mesh, ageing)?
            }
        };
        self.0.origins.set_core(&name, core);
        Qos(self.0).port_made(&name);
        Ok(status)
    }

    /// ETag of a port's settings.
    pub fn etag(control: &Control, spec: &PortSpec) -> String {
        let mesh = control.meshes.status(&spec.name).map(|status| status.spec);
        fields::etag(&stored::ports::encode(spec, mesh.as_ref()))
    }

    /// Sets what can change under traffic as a specification has it: the speed that the port reports, its storm control, the port
    /// that it is joined to, its link layer discovery and data center bridging exchange; unless its settings have changed since an etag; empty: in any case. May block.
    pub fn set(&self, since: &str, wanted: PortSpec) -> Result<PortStatus, Refused> {
        let _order = self.0.change_order();
        let name = wanted.name.as_str();
        fields::unchanged(since, Ports::etag(self.0, &self.get(name)?.spec))?;
        let nic = &self.0.nic;
        // A port that is joined to another one has none.
        if wanted.bridge.is_some() {
            nic.set_port_lldp(name, wanted.lldp).map_err(refused)?;
        }
        nic.set_port_bridge(name, wanted.bridge).map_err(refused)?;
        nic.set_port_lldp(name, wanted.lldp).map_err(refused)?;
        nic.set_port_dcbx(name, wanted.dcbx).map_err(refused)?;
        nic.set_port_speed(name, wanted.speed_mbps).map_err(refused)?;
        let status = nic.set_port_storm(name, wanted.storm).map_err(refused)?;
        if self.0.origins.is_stored(name) {
            let mesh = self.0.meshes.status(name).map(|status| status.spec);
            self.store(name, stored::ports::encode(&status.spec, mesh.as_ref()))?;
        }
        Ok(status)
    }

    /// Removes a port that is in no team, and what is stored for it, unless its settings have changed since an etag; empty: in any
    /// case. One that did not come back is there only in the store. May block.
    pub fn remove(&self, name: &str, since: &str) -> Result<(), Refused> {
        let _order = self.0.change_order();
        let found = self.get(name);
        if let Ok(port) = &found {
            fields::unchanged(since, Ports::etag(self.0, &port.spec))?;
        }
        if let Err(unknown) = found {
            let rows = self.0.store.all(TABLE)?;
            let is_stored = rows.iter().any(|(key, _)| key == name.as_bytes());
            return if is_stored {
                acts()?;
                Ok(self.forget(name)?)
            } else {
                Err(unknown)
            };
        }
        Teams(self.0).remove_port(name, || {
            acts()?;
            self.forget(name)?;
            self.take_away(name)
        })?;
        self.0.origins.forget(name);
        Ok(())
    }

    /// Removes a port that is in no team; what is stored for it stays. May block.
    pub fn take_out(&self, name: &str) -> Result<(), Refused> {
        Teams(self.0).remove_port(name, || self.take_away(name))
    }

    /// Removes a port's row from the store, and no settings.
    pub fn unstore(&self, name: &str) -> Result<(), StoreError> {
        let mut batch = Batch::new();
        batch.delete(TABLE, name.as_bytes());
        self.0.store.commit(batch)
    }

    /// Removes all that is stored for a port.
    pub fn forget(&self, name: &str) -> Result<(), StoreError> {
        let mut batch = Batch::new();
        batch.delete(TABLE, name.as_bytes());
        Qos(self.0).forget_port(name, batch)
    }
}
