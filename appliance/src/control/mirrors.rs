//! Mirror sessions.

use vnic_backend::{MirrorSpec, MirrorStatus, NicError};

use super::Control;
use super::refused::Refused;
use crate::events::ControlEvent;
use crate::store::{Batch, StoreError};
use crate::stored;

/// Table of the store. Key of a row: the session's name; value: see [`stored::mirrors`].
const TABLE: &str = "mirrors";

/// Mirror sessions.
pub struct Mirrors<'a>(pub &'a Control);

/// Path of a field of [`MirrorSpec`] in a request.
fn path(name: &str) -> String {
    match name {
        "name" => "mirror_id".to_owned(),
        other => format!("mirror.{other}"),
    }
}

fn refused(error: NicError) -> Refused {
    Refused::nic(str::to_owned)(error)
}

impl Mirrors<'_> {
    /// Status of a session. May block.
    pub fn get(&self, name: &str) -> Result<MirrorStatus, Refused> {
        self.0.nic.mirror(name).map_err(refused)
    }

    /// Makes a session and stores it, for a client. May block.
    pub fn create(&self, by: &str, spec: MirrorSpec) -> Result<MirrorStatus, Refused> {
        let _order = self.0.change_order();
        let row = stored::mirrors::encode(&spec);
        let status = self.0.nic.add_mirror(spec).map_err(Refused::nic(path))?;
        let name = &status.spec.name;
        let mut batch = Batch::new();
        batch.put(TABLE, name.as_bytes(), row);
        if let Err(error) = self.0.store.commit(batch) {
            // A session that cannot be stored is not kept.
            let _ = self.0.nic.remove_mirror(name);
            return Err(error.into());
        }
        self.0.hub.record(ControlEvent::MirrorAdded {
            spec: status.spec.clone(),
            by: by.to_owned(),
        });
        Ok(status)
    }

    /// Ends a session and forgets it, for a client; returns its last status. May block.
    pub fn remove(&self, by: &str, name: &str) -> Result<MirrorStatus, Refused> {
        let _order = self.0.change_order();
        self.get(name)?;
        let mut batch = Batch::new();
        batch.delete(TABLE, name.as_bytes());
        self.0.store.commit(batch)?;
        let last = self.0.nic.remove_mirror(name).map_err(refused)?;
        self.0.hub.record(ControlEvent::MirrorRemoved {
            spec: last.spec.clone(),
            mirrored: last.mirrored,
            by: by.to_owned(),
        });
        Ok(last)
    }

    /// Makes the stored sessions again. A session without its source or destination waits for it. May block.
    pub fn bring_back(&self) -> Result<(), StoreError> {
        for (name, row) in self.0.store.all(TABLE)? {
            let name = String::from_utf8_lossy(&name).into_owned();
            let made = stored::mirrors::decode(&name, &row)
                .and_then(|spec| self.0.nic.restore_mirror(spec).map_err(|e| e.to_string()));
            match made {
                Ok(status) => tracing::debug!(
                    mirror = name,
                    problem = status.problem,
                    "mirror session made again"
                ),
                Err(problem) => self.0.hub.record(ControlEvent::MirrorLost { name, problem }),
            }
        }
        Ok(())
    }
}
