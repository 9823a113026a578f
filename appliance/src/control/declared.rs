//! Declared objects: what is there as a configuration file says it, and the way from there to what a file says.
//!
//! ```text
//!  file ─▶ objects ─▶ plan ─▶ check ─▶ actions, one after the other ─▶ report
//!                                        │ refused
//!                                        └▶ those that are done, backwards
//! ```

mod act;
mod plan;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, PoisonError};

use vnic_backend::lag::Team;
use vnic_backend::rehearsal::rehearses;

use super::Control;
use super::refused::Refused;
use crate::config::{self, Difference, Object, Overrides, Settings};
use crate::events::ControlEvent;
use crate::names;
use crate::teams::{TeamSettings, TeamSpec};
use act::Actor;
pub use plan::{Plan, Step, What};

/// What becomes of a change of an object of the configuration file.
const AGAIN: &str =
    "it is of the configuration file, which says again what it is when the daemon starts or reloads";

/// Declared objects.
pub struct Declared<'a>(pub &'a Arc<Control>);

/// An object that is there.
#[derive(Debug, Clone)]
pub struct Known {
    pub object: Object,
    /// Whether it is of the configuration file.
    pub configured: bool,
}

/// Result of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// Refused; why.
    Failed(String),
    /// Done, and undone because a later step was refused.
    Undone,
    /// Done, and could not be undone; why.
    NotUndone(String),
    /// Not tried, because an earlier step was refused.
    NotReached,
}

/// A plan that was carried out.
#[derive(Debug, Clone)]
pub struct Applied {
    pub plan: Plan,
    /// Results of the steps.
    pub outcomes: Vec<Outcome>,
    /// Refusal of the step that failed.
    pub problem: Option<String>,
}

/// Whose file is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// A client's. What is made is as if it had been made by requests.
    Client {
        /// Whether objects that are not in it are removed.
        prune: bool,
    },
    /// The daemon's configuration file. Objects of it that it does not have any more are removed.
    Daemon,
}

/// Team as a file says it; `None`: the bond of a team has no such form.
fn team(team: &Team, settings: &TeamSettings, ports: &BTreeSet<String>) -> TeamSpec {
    let members: Vec<_> = team
        .members
        .iter()
        .filter(|m| ports.contains(&m.adapter))
        .collect();
    let name = |m: &&vnic_backend::lag::TeamMember| m.adapter.clone();
    TeamSpec {
        name: team.name.clone(),
        kind: team.kind,
        no_failback: team.no_failback,
        primary: members.iter().copied().find(|m| m.primary).as_ref().map(name),
        mac_of: members
            .iter()
            .copied()
            .find(|m| Some(m.mac) == team.mac)
            .as_ref()
            .map(name),
        members: members.iter().map(name).collect(),
        vlan_id: team.vlan_id,
        vlan_prio: team.vlan_prio,
        settings: settings.clone(),
    }
}

impl Declared<'_> {
    /// All objects, in the order in which they are made. May block.
    pub fn now(&self) -> Vec<Known> {
        let control = self.0;
        let origin = |name: &str| control.origins.is_configured(name);
        let names = control.port_names();
        let core = |name: &str, core: &mut Option<usize>| {
            core.take_if(|_| control.origins.is_anywhere(name));
        };
        let ports = control.nic.ports().into_iter().map(|mut port| {
            core(&port.spec.name, &mut port.spec.data_core);
            let mesh = control.meshes.status(&port.spec.name).map(|mesh| mesh.spec);
            let configured = origin(&port.spec.name);
            let object = Object::Port(port.spec, mesh);
            Known { object, configured }
        });
        let book = control.teams().clone();
        let teams = book.iter().map(|(of, more)| Known {
            object: Object::Team(team(of, &more.settings, &names)),
            configured: more.configured,
        });
        let adapters = control.nic.adapters().into_iter().map(|mut adapter| {
            core(&adapter.spec.name, &mut adapter.wanted.data_core);
            Known {
                configured: origin(&adapter.spec.name),
                object: Object::Adapter(adapter.wanted),
            }
        });
        let groups = control.nic.groups().into_iter().map(|(name, group)| {
            let object = Object::SubnetGroup(name, group.spec);
            let configured = origin(&object.resource());
            Known { object, configured }
        });
        let faults = control.nic.faults().into_iter().map(|fault| {
            let object = Object::Fault(fault.spec);
            let configured = origin(&object.resource());
            Known { object, configured }
        });
        let verbs_faults = control.nic.verbs_faults().into_iter().map(|fault| {
            let object = Object::VerbsFault(fault.spec);
            let configured = origin(&object.resource());
            Known { object, configured }
        });
        let owners = ports.chain(teams).chain(adapters).chain(groups);
        owners.chain(faults).chain(verbs_faults).collect()
    }

    /// What is there as a configuration file. May block.
    pub fn written(&self) -> String {
        let all: Vec<Object> = self.now().into_iter().map(|known| known.object).collect();
        config::written(&self.0.settings, &all)
    }

    /// Reads a file's objects as this daemon can have them while it runs: on its data cores, with sockets in its directory.
    pub fn read(&self, path: &Path, text: &str) -> Result<Vec<Object>, Refused> {
        let settings = &self.0.settings;
        let overrides = Overrides {
            socket_dir: Some(settings.socket_dir.clone()),
            state_dir: Some(settings.state_dir.clone()),
            data_cores: Some(settings.nic.data_cores.clone()),
            ..Overrides::default()
        };
        let read = Settings::from_text(path, text, &overrides, &settings.given.environment);
        Ok(read.map_err(Refused::File)?.objects())
    }

    fn plan_of(&self, now: &[Known], wanted: &[Object], whose: Whose) -> Result<Plan, Refused> {
        let configured: BTreeSet<String> = of_configuration(now);
        let goes = |object: &Object| match whose {
            Whose::Client { prune } => prune,
            Whose::Daemon => configured.contains(&object.resource()),
        };
        let objects: Vec<Object> = now.iter().map(|known| known.object.clone()).collect();
        let mut plan = plan::plan(&objects, wanted, &self.0.settings.socket_dir, goes);
        plan::check(wanted, &objects, &plan.kept)?;
        if whose != Whose::Daemon {
            for step in &mut plan.steps {
                step.note = match configured.contains(&step.name) {
                    true => AGAIN,
                    false if !is_rule(&step.name) => "",
                    false if step.what == What::Remove => "",
                    false => "it lives until the daemon ends",
                };
            }
        }
        Ok(plan)
    }

    /// What [`Declared::apply`] would do. May block.
    pub fn plan(&self, wanted: &[Object], whose: Whose) -> Result<Plan, Refused> {
        self.plan_of(&self.now(), wanted, whose)
    }

    /// Makes it so, as [`Declared::carry_out`] does, and records it as an event; `file` is the file's name. May block.
    pub fn apply(&self, by: &str, file: &str, wanted: &[Object], prune: bool) -> Result<Applied, Refused> {
        let applied = self.carry_out(by, wanted, Whose::Client { prune })?;
        if !applied.plan.steps.is_empty() {
            self.tell(by, file, &applied, &[]);
        }
        Ok(applied)
    }

    /// Records as an event what was applied of a file.
    pub(super) fn tell(&self, by: &str, file: &str, applied: &Applied, waits: &[Difference]) {
        let waits: Vec<&str> = waits.iter().map(|d| d.key).collect();
        self.0.hub.record(ControlEvent::ConfigApplied {
            file: file.to_owned(),
            changes: applied.plan.steps.len(),
            waits: waits.join(", "),
            problem: applied.problem.clone().unwrap_or_default(),
            by: by.to_owned(),
        });
    }

    /// Makes it so, as far as it can: what cannot act under traffic waits for a restart of its adapter. If a step is refused,
    /// those before it are undone. Only a wrong file is an error. May block.
    pub(super) fn carry_out(&self, by: &str, wanted: &[Object], whose: Whose) -> Result<Applied, Refused> {
        let _order = self.0.applying.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.now();
        let plan = self.plan_of(&now, wanted, whose)?;
        if rehearses() {
            // Later steps need what earlier ones make: the plan is all that can be checked.
            return Ok(Applied {
                outcomes: vec![Outcome::NotReached; plan.steps.len()],
                plan,
                problem: None,
            });
        }
        let actor = Actor {
            control: self.0,
            by,
            configured: of_configuration(&now),
        };
        let mut outcomes = vec![Outcome::NotReached; plan.steps.len()];
        let mut set = |step: usize, outcome| {
            if let Some(place) = outcomes.get_mut(step) {
                *place = outcome;
            }
        };
        let mut refusal = None;
        let mut done = Vec::new();
        for action in &plan.actions {
            if let Err(refused) = actor.put(action.before.as_ref(), action.after.as_ref()) {
                refusal = Some((action.step, refused.text()));
                break;
            }
            set(action.step, Outcome::Done);
            done.push(action);
        }
        let Some((failed, why)) = refusal else {
            actor.finish(&plan, wanted, whose == Whose::Daemon)?;
            return Ok(Applied {
                plan,
                outcomes,
                problem: None,
            });
        };
        let mut left = BTreeMap::new();
        for action in done.into_iter().rev() {
            set(action.step, Outcome::Undone);
            if let Err(refused) = actor.undo(action, plan.is(action, What::Add)) {
                left.insert(action.step, refused.text());
            }
        }
        let rest = match left.len() {
            0 => "what was done before it is undone".to_owned(),
            n => format!("of what was done before it {n} could not be undone"),
        };
        let name = plan.steps.get(failed).map_or("", |step| step.name.as_str());
        let problem = Some(format!("{name}: {why}; {rest}"));
        let also = left
            .remove(&failed)
            .map_or_else(String::new, |more| format!("; and it is not as it was: {more}"));
        set(failed, Outcome::Failed(why + &also));
        for (step, why) in left {
            set(step, Outcome::NotUndone(why));
        }
        Ok(Applied {
            plan,
            outcomes,
            problem,
        })
    }

    /// Keys of adapters that wait for a restart of the adapter, with its resource name. May block.
    pub fn pending(&self) -> Vec<(String, Vec<Difference>)> {
        let keys = |spec| Object::Adapter(spec).keys(&self.0.settings.socket_dir);
        let adapters = self.0.nic.adapters().into_iter().map(|adapter| {
            let name = names::of(names::ADAPTERS, &adapter.spec.name);
            (name, keys(adapter.spec).differences(&keys(adapter.wanted)))
        });
        adapters.filter(|(_, keys)| !keys.is_empty()).collect()
    }
}

/// Whether a resource name is of a rule of faults, which is not stored.
fn is_rule(name: &str) -> bool {
    [names::FAULTS, names::VERBS_FAULTS]
        .into_iter()
        .any(|kind| names::id(kind, name).is_some())
}

fn of_configuration(now: &[Known]) -> BTreeSet<String> {
    let configured = now.iter().filter(|known| known.configured);
    configured.map(|known| known.object.resource()).collect()
}
