//! Mirror sessions: made, listed and removed here, in force on the data cores.

use std::sync::Arc;
use std::time::SystemTime;

use super::Inner;
use super::state::{MirrorEntry, State, not_found};
use crate::check;
use crate::datapath::Mirror;
use crate::rehearsal::acts;
use crate::types::*;

/// Adds a session; on return all data cores know it. Without `at_once` it may wait for its source and destination.
pub fn add(nic: &Inner, spec: MirrorSpec, at_once: bool) -> Result<MirrorStatus, NicError> {
    check::mirror(&spec)?;
    let mut state = nic.state()?;
    if state.mirrors.contains_key(&spec.name) {
        return Err(NicError::Exists {
            kind: "mirror",
            name: spec.name,
        });
    }
    if state.mirrors.len() >= MIRRORS_MAX {
        return Err(NicError::Limit(format!(
            "a NIC has at most {MIRRORS_MAX} mirror sessions"
        )));
    }
    state.roles(&spec)?;
    if at_once && let Err((field, problem)) = state.ends(&spec) {
        return invalid(field, problem);
    }
    acts()?;
    let name = spec.name.clone();
    let entry = MirrorEntry {
        spec,
        tally: Arc::default(),
        created: SystemTime::now(),
    };
    state.mirrors.insert(name.clone(), entry);
    send(nic, &state);
    state.mirror(&name)
}

/// Removes a session; returns its last status.
pub fn remove(nic: &Inner, name: &str) -> Result<MirrorStatus, NicError> {
    let mut state = nic.state()?;
    let last = state.mirror(name)?;
    acts()?;
    state.mirrors.remove(name);
    send(nic, &state);
    Ok(last)
}

/// Status of all sessions, by name.
pub fn list(nic: &Inner) -> Vec<MirrorStatus> {
    let state = nic.lock();
    state.mirrors.values().map(|entry| state.status(entry)).collect()
}

/// Sends the sessions to all data cores and waits until all have them.
fn send(nic: &Inner, state: &State) {
    let sessions = state.sessions();
    nic.everywhere(move |w| w.set_mirrors(sessions));
}

/// Updates the sessions after an adapter or a port, or the membership of one in a bond, has come or gone.
pub fn bind(nic: &Inner, state: &State) {
    if state.mirrors.is_empty() {
        return;
    }
    let sessions = state.sessions();
    for w in nic.workers.iter() {
        let sessions = sessions.clone();
        w.post(move |w| w.set_mirrors(sessions));
    }
}

impl State {
    /// Refuses a session that would make a destination a source, so that copies could be copied.
    fn roles(&self, spec: &MirrorSpec) -> Result<(), NicError> {
        for MirrorEntry { spec: other, .. } in self.mirrors.values() {
            let name = &other.name;
            if other.destination == spec.source {
                let problem = format!(
                    "{} is the destination of mirror {name}: copies are not copied",
                    spec.source
                );
                return invalid("source", problem);
            }
            if other.source == spec.destination {
                let problem = format!(
                    "{} is the source of mirror {name}: copies are not copied",
                    spec.destination
                );
                return invalid("destination", problem);
            }
        }
        Ok(())
    }

    /// Source and destination of a session, or the field of the one that cannot be, and why.
    fn ends(&self, spec: &MirrorSpec) -> Result<(PortId, PortId), (&'static str, String)> {
        let end = |field, name: &String| {
            let problem = || match self.bonds.contains_key(name) {
                true => format!("{name} is a team; a session is about one of its members"),
                false => format!("no adapter or port is named {name}"),
            };
            self.id_of(name).ok_or_else(|| (field, problem()))
        };
        let ends = (
            end("source", &spec.source)?,
            end("destination", &spec.destination)?,
        );
        if let Some(team) = self.bond_of(ends.1) {
            let problem = format!(
                "{} is a member of {team}: it has frames of its own to carry",
                spec.destination
            );
            return Err(("destination", problem));
        }
        if let Some(other) = self.bridged_with(&spec.destination) {
            let problem = format!("{} is bridged with {other}", spec.destination);
            return Err(("destination", problem));
        }
        Ok(ends)
    }

    /// The sessions that run, for the data cores.
    fn sessions(&self) -> Vec<Mirror> {
        self.mirrors
            .values()
            .filter_map(|entry| self.session(entry))
            .collect()
    }

    /// A session for the data cores, if it runs.
    fn session(&self, entry: &MirrorEntry) -> Option<Mirror> {
        let (source, destination) = self.ends(&entry.spec).ok()?;
        let direction = entry.spec.direction;
        let (rx, tx) = (direction != MirrorDirection::Tx, direction != MirrorDirection::Rx);
        // An adapter sends into the switch, a port receives into it.
        let (ingress, egress) = match self.adapters.contains_key(&entry.spec.source) {
            true => (tx, rx),
            false => (rx, tx),
        };
        Some(Mirror {
            source,
            destination,
            ingress,
            egress,
            tally: entry.tally.clone(),
        })
    }

    fn status(&self, entry: &MirrorEntry) -> MirrorStatus {
        let (mirrored, dropped) = entry.tally.read();
        MirrorStatus {
            spec: entry.spec.clone(),
            mirrored,
            dropped,
            created: entry.created,
            problem: self.ends(&entry.spec).err().map(|(_, problem)| problem),
        }
    }

    /// Status of a session.
    pub(super) fn mirror(&self, name: &str) -> Result<MirrorStatus, NicError> {
        let entry = self.mirrors.get(name).ok_or_else(|| not_found("mirror", name))?;
        Ok(self.status(entry))
    }

    /// Sessions that copy frames of an adapter or port (`ingress`: those that enter the switch there), and their destinations.
    pub(super) fn copies(&self, name: &str, ingress: bool) -> Vec<(String, String)> {
        let wants = |m: Mirror| if ingress { m.ingress } else { m.egress };
        let of_it = self.mirrors.values().filter(|entry| entry.spec.source == name);
        let copying = of_it.filter(|entry| self.session(entry).is_some_and(wants));
        copying
            .map(|entry| (entry.spec.name.clone(), entry.spec.destination.clone()))
            .collect()
    }

    /// The session of which an adapter or port is the destination.
    pub(super) fn mirrored_to(&self, name: &str) -> Option<&str> {
        let found = self.mirrors.values().find(|e| e.spec.destination == name)?;
        Some(&found.spec.name)
    }
}
