//! Uplink ports.

use std::sync::Arc;

use vnic_backend::{NicError, PortSpec, PortStatus};

use super::Control;
use super::qos::Qos;
use super::refused::Refused;
use super::teams::Teams;
use crate::events::Tell;
use crate::mesh::MeshSpec;

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

    /// Makes a port, with its mesh if it has one; settings that are stored for its name act, and it joins its team. May block.
    pub fn create(&self, spec: PortSpec, mesh: Option<MeshSpec>) -> Result<PortStatus, Refused> {
        let (name, kind) = (spec.name.clone(), spec.kind.name());
        let status = self
            .add(spec, mesh)
            .map_err(Refused::nic(|field| path(kind, field)))?;
        Teams(self.0).port_made(&name);
        Ok(status)
    }

    /// Makes a port of the configuration; its team is made later. May block.
    pub fn add(&self, spec: PortSpec, mesh: Option<MeshSpec>) -> Result<PortStatus, NicError> {
        let name = spec.name.clone();
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
        Qos(self.0).port_made(&name);
        Ok(status)
    }

    /// Sets the speed that a port reports; `None`: that of its device. May block.
    pub fn set_speed(&self, name: &str, mbps: Option<u32>) -> Result<PortStatus, Refused> {
        self.0.nic.set_port_speed(name, mbps).map_err(refused)
    }

    /// Removes a port that is in no team, and the settings that are stored for it. May block.
    pub fn remove(&self, name: &str) -> Result<(), Refused> {
        self.get(name)?;
        Teams(self.0).remove_port(name, || {
            Qos(self.0).forget_port(name)?;
            let remove = || self.0.nic.remove_port(name).map_err(refused);
            self.0.meshes.remove(name, remove)
        })?;
        self.0.origins.forget(name);
        Ok(())
    }
}
