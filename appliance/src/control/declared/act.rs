//! Actions on objects, by the calls that requests have.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::plan::{Action, Plan};
use crate::config::Object;
use crate::control::refused::Refused;
use crate::control::{Adapters, Control, Faults, Ports, SubnetGroups, Teams, VerbsFaults};

/// What carries actions out.
pub struct Actor<'a> {
    pub control: &'a Arc<Control>,
    /// Client that asked.
    pub by: &'a str,
    /// Resource names of objects that were of the configuration file before: these are not stored.
    pub configured: BTreeSet<String>,
}

impl Actor<'_> {
    /// Brings an object from `before` to `after`, wholly or not at all. What is stored of an object that goes stays stored.
    pub fn put(&self, before: Option<&Object>, after: Option<&Object>) -> Result<(), Refused> {
        let (adapters, ports) = (Adapters(self.control), Ports(self.control));
        let (teams, faults) = (Teams(self.control), Faults(self.control));
        let (verbs_faults, groups) = (VerbsFaults(self.control), SubnetGroups(self.control));
        let configured = |object: &Object| self.configured.contains(&object.resource());
        match (before, after) {
            (None, None) => {}
            (_, Some(object @ Object::Team(team))) => {
                drop(teams.declare(self.by, team, configured(object))?)
            }
            (Some(Object::Team(team)), None) => drop(teams.remove(self.by, &team.name, "")?),
            (None, Some(object @ Object::Port(port, mesh))) => {
                drop(ports.create(port.clone(), mesh.clone(), !configured(object))?);
            }
            (Some(_), Some(Object::Port(port, _))) => {
                drop(ports.set("", port.clone())?);
            }
            (Some(Object::Port(port, _)), None) => ports.take_out(&port.name)?,
            (None, Some(object @ Object::Adapter(adapter))) => {
                drop(adapters.declare(adapter, !configured(object))?);
            }
            (Some(_), Some(Object::Adapter(adapter))) => drop(adapters.bring(adapter)?),
            (Some(Object::Adapter(adapter)), None) => adapters.take_out(&adapter.name)?,
            (_, Some(object @ Object::SubnetGroup(name, spec))) => {
                groups.declare(name, spec.clone(), !configured(object))?;
            }
            (Some(Object::SubnetGroup(name, _)), None) => groups.take_out(name)?,
            (_, Some(Object::Fault(rule))) => drop(faults.create(vec![rule.clone()], |_| String::new())?),
            (Some(Object::Fault(rule)), None) => drop(faults.take_out(&rule.name)?),
            (_, Some(Object::VerbsFault(rule))) => drop(verbs_faults.create(rule.clone())?),
            (Some(Object::VerbsFault(rule)), None) => drop(verbs_faults.take_out(&rule.name)?),
        }
        Ok(())
    }

    /// Carries an action out backwards.
    pub fn undo(&self, action: &Action, adds: bool) -> Result<(), Refused> {
        self.put(action.after.as_ref(), action.before.as_ref())?;
        match &action.after {
            Some(object) if adds => self.unmade(object),
            _ => Ok(()),
        }
    }

    /// Ends a plan that is carried out: what is stored for objects that have gone goes. Those that the configuration file does not
    /// have any more leave their settings, and those that it has are its own.
    pub fn finish(&self, plan: &Plan, wanted: &[Object], is_daemons: bool) -> Result<(), Refused> {
        for object in plan.gone() {
            match is_daemons {
                true => self.unmade(object)?,
                false => self.forget(object)?,
            }
        }
        let mut own = wanted.iter().filter(|_| is_daemons);
        own.try_for_each(|object| self.take_over(object))
    }

    /// Forgets that an object was made; its settings stay, as those of an object that is absent do.
    fn unmade(&self, object: &Object) -> Result<(), Refused> {
        self.unstore(object)?;
        self.gone(object);
        Ok(())
    }

    fn unstore(&self, object: &Object) -> Result<(), Refused> {
        match object {
            Object::Port(port, _) => Ports(self.control).unstore(&port.name)?,
            Object::Adapter(adapter) => Adapters(self.control).unstore(&adapter.name)?,
            Object::SubnetGroup(name, _) => SubnetGroups(self.control).unstore(name)?,
            Object::Team(_) | Object::Fault(_) | Object::VerbsFault(_) => {}
        }
        Ok(())
    }

    /// Forgets all that is stored for an object that has gone.
    fn forget(&self, object: &Object) -> Result<(), Refused> {
        match object {
            Object::Port(port, _) => Ports(self.control).forget(&port.name)?,
            Object::Adapter(adapter) => Adapters(self.control).forget(&adapter.name)?,
            Object::SubnetGroup(name, _) => SubnetGroups(self.control).unstore(name)?,
            Object::Team(_) | Object::Fault(_) | Object::VerbsFault(_) => {}
        }
        self.gone(object);
        Ok(())
    }

    fn gone(&self, object: &Object) {
        match object {
            Object::SubnetGroup(..) | Object::Fault(_) | Object::VerbsFault(_) => {
                self.control.origins.forget(&object.resource());
            }
            _ => self.control.origins.forget(object.name()),
        }
    }

    /// Makes an object one of the configuration file, which is not stored.
    fn take_over(&self, object: &Object) -> Result<(), Refused> {
        let origins = &self.control.origins;
        match object {
            Object::Team(team) => Teams(self.control).take_over(&team.name)?,
            Object::Fault(_) | Object::VerbsFault(_) => origins.set_configured(&object.resource()),
            Object::SubnetGroup(name, _) => {
                SubnetGroups(self.control).unstore(name)?;
                origins.set_configured(&object.resource());
            }
            _ => {
                if origins.is_stored(object.name()) {
                    self.unstore(object)?;
                }
                origins.set_configured(object.name());
            }
        }
        Ok(())
    }
}
