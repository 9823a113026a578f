//! Two ports as a wire: what comes to one goes out of the other.

use super::Inner;
use super::state::State;
use crate::types::*;

/// Tells all data cores which ports are joined, after a port or a setting has come or gone, and waits until all have it.
pub fn bind(nic: &Inner, state: &State) {
    let joined = state.joined();
    nic.everywhere(move |w| w.set_bridges(&joined));
}

impl State {
    /// The port that a port is joined to by its own setting or the other's.
    pub(super) fn bridged_with(&self, name: &str) -> Option<&str> {
        let own = self.ports.get(name).and_then(|p| p.spec.bridge.as_deref());
        own.or_else(|| {
            let other = self
                .ports
                .values()
                .find(|p| p.spec.bridge.as_deref() == Some(name));
            other.map(|p| p.spec.name.as_str())
        })
    }

    /// Refuses to join a port, of this name, to another one.
    pub(super) fn may_bridge(&self, name: &str, other: &str) -> Result<(), NicError> {
        let no = |problem: String| invalid("bridge", problem);
        if name == other {
            return no(format!("{name} is the port itself"));
        }
        if self.adapters.contains_key(other) || self.bonds.contains_key(other) {
            return no(format!("{other} is no port"));
        }
        for (port, one) in [(name, other), (other, name)] {
            if let Some(with) = self.bridged_with(port).filter(|with| *with != one) {
                return no(format!("{port} is bridged with {with} already"));
            }
            let id = self.ports.get(port).map(|p| p.id);
            if let Some(team) = id.and_then(|id| self.bond_of(id)) {
                return no(format!("{port} is a member of {team}"));
            }
            let lldp = self.ports.get(port).map(|p| p.spec.lldp);
            if let Some(mode) = lldp.filter(|mode| *mode != LldpMode::Disabled) {
                return no(format!(
                    "{port} has link layer discovery ({mode}), which would be for {one} then"
                ));
            }
            if let Some(mirror) = self.mirrored_to(port) {
                return no(format!(
                    "{port} is the destination of mirror {mirror}, and carries copies only"
                ));
            }
        }
        Ok(())
    }

    /// Joined ports, each with the other one if that is there.
    fn joined(&self) -> Vec<(PortId, Option<PortId>)> {
        let ports = self.ports.values();
        let joined = ports.filter_map(|port| {
            let other = self.bridged_with(&port.spec.name)?;
            Some((port.id, self.ports.get(other).map(|p| p.id)))
        });
        joined.collect()
    }
}
