//! Plans: how objects get from what they are to what they shall be.
//!
//! ```text
//!  objects now, objects wanted ─▶ steps, for people: one an object ─▶ actions, in an order that works
//! ```
//!
//! An action brings one object from a specification to another one, or makes or removes it, so that its reverse is an action, too.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::check::Violations;
use crate::config::{Difference, Keys, Object};
use crate::teams::TeamSpec;

/// What happens to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    Add,
    /// It changes while it is there.
    Change,
    /// It is removed and made anew.
    Replace,
    Remove,
}

/// What happens to an object, and its keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Resource name.
    pub name: String,
    pub what: What,
    /// Keys that change. Of an object that comes or goes those that are not its defaults.
    pub keys: Vec<Difference>,
    /// How long it lasts, in words; empty: for good.
    pub note: &'static str,
}

/// Brings an object to a specification, makes it or removes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Action {
    /// Index of the step that the action is a part of.
    pub step: usize,
    pub before: Option<Object>,
    pub after: Option<Object>,
}

/// A plan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    pub steps: Vec<Step>,
    pub actions: Vec<Action>,
    /// Objects that are not wanted and stay.
    pub kept: Vec<Object>,
}

impl Plan {
    /// Whether an action is a part of a step of this kind.
    pub fn is(&self, action: &Action, what: What) -> bool {
        self.steps.get(action.step).is_some_and(|step| step.what == what)
    }

    /// Objects that the plan removes.
    pub fn gone(&self) -> impl Iterator<Item = &Object> {
        let removes = self.actions.iter().filter(|action| self.is(action, What::Remove));
        removes.filter_map(|action| action.before.as_ref().filter(|_| action.after.is_none()))
    }
}

/// Keys of a port that change while it is there.
const LIVE: [&str; 8] = [
    "speed_mbps",
    "storm_broadcast_pps",
    "storm_unknown_unicast_pps",
    "bridge",
    "lldp",
    "dcbx",
    "dcbx_willing",
    "dcbx_applications",
];

/// Places of actions in the order: what goes gives free what others need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    FaultsGo,
    PortsLeave,
    OwnersGo,
    Ports,
    Teams,
    AdaptersChange,
    AdaptersCome,
    Faults,
}

/// Plan that is being made.
struct Planner<'a> {
    socket_dir: &'a Path,
    steps: Vec<Step>,
    actions: Vec<(Turn, Action)>,
}

fn same(a: &Object) -> impl Fn(&&Object) -> bool {
    let name = a.resource();
    move |b| b.resource() == name
}

/// Plans for a daemon with this directory of sockets. An object that is not wanted is removed if `goes` says so.
pub fn plan(now: &[Object], wanted: &[Object], socket_dir: &Path, goes: impl Fn(&Object) -> bool) -> Plan {
    let mut planner = Planner {
        socket_dir,
        steps: Vec::new(),
        actions: Vec::new(),
    };
    let mut kept = Vec::new();
    for object in wanted {
        let before = now.iter().find(same(object));
        if !matches!(object, Object::Team(_)) {
            planner.step(before, Some(object));
        }
    }
    for object in now.iter().filter(|o| !wanted.iter().any(|w| same(o)(&w))) {
        match object {
            object if !goes(object) => kept.push(object.clone()),
            Object::Team(_) => {}
            object => planner.step(Some(object), None),
        }
    }
    planner.teams(now, wanted, &mut kept);
    planner.actions.sort_by_key(|(turn, _)| *turn);
    Plan {
        steps: planner.steps,
        actions: planner.actions.into_iter().map(|(_, action)| action).collect(),
        kept,
    }
}

impl Planner<'_> {
    fn differences(&self, before: Option<&Object>, after: Option<&Object>) -> Vec<Difference> {
        let keys = |object: &Object| object.keys(self.socket_dir);
        let mut all = match (before, after) {
            (Some(before), Some(after)) => keys(before).differences(&keys(after)),
            (None, Some(new)) => Keys::default().differences(&keys(new).said()),
            (Some(old), None) => keys(old).said().differences(&Keys::default()),
            (None, None) => Vec::new(),
        };
        let unsaid = match (before, after) {
            (Some(_), Some(Object::Fault(rule))) => rule.seed.is_none(),
            (Some(_), Some(Object::VerbsFault(rule))) => rule.seed.is_none(),
            _ => false,
        };
        if unsaid {
            // The NIC has chosen it.
            all.retain(|d| d.key != "seed");
        }
        all
    }

    fn act(&mut self, turn: Turn, step: usize, before: Option<&Object>, after: Option<&Object>) {
        let (before, after) = (before.cloned(), after.cloned());
        self.actions.push((turn, Action { step, before, after }));
    }

    fn add_step(&mut self, object: &Object, what: What, keys: Vec<Difference>) -> usize {
        let name = object.resource();
        self.steps.push(Step {
            name,
            what,
            keys,
            note: "",
        });
        self.steps.len() - 1
    }

    /// Plans a port, an adapter, a multicast group or a rule of faults.
    fn step(&mut self, before: Option<&Object>, after: Option<&Object>) {
        let keys = self.differences(before, after);
        let Some(object) = before.or(after).filter(|_| !keys.is_empty()) else {
            return;
        };
        let live = match object {
            Object::Adapter(_) | Object::Team(_) => true,
            Object::Port(..) => keys.iter().all(|d| LIVE.contains(&d.key)),
            Object::SubnetGroup(..) | Object::Fault(_) | Object::VerbsFault(_) => false,
        };
        let what = match (before, after) {
            (None, _) => What::Add,
            (_, None) => What::Remove,
            _ if live => What::Change,
            _ => What::Replace,
        };
        let (goes, comes) = match object {
            Object::Fault(_) | Object::VerbsFault(_) => (Turn::FaultsGo, Turn::Faults),
            Object::Adapter(_) => (Turn::OwnersGo, Turn::AdaptersCome),
            _ => (Turn::OwnersGo, Turn::Ports),
        };
        let step = self.add_step(object, what, keys);
        match (what, object) {
            (What::Change, Object::Adapter(_)) => self.act(Turn::AdaptersChange, step, before, after),
            (What::Replace, _) => {
                self.act(goes, step, before, None);
                self.act(comes, step, None, after);
            }
            (What::Remove, _) => self.act(goes, step, before, None),
            _ => self.act(comes, step, before, after),
        }
    }

    /// Plans the teams. A port leaves its team before it goes, or is another team's.
    fn teams(&mut self, now: &[Object], wanted: &[Object], kept: &mut [Object]) {
        let port = |action: &Action| match (&action.before, &action.after) {
            (Some(Object::Port(port, _)), None) => Some((port.name.clone(), action.step)),
            _ => None,
        };
        // Ports that go, also those that come back as others, with their steps.
        let going: BTreeMap<String, usize> = self.actions.iter().filter_map(|(_, a)| port(a)).collect();
        let removed = |port: &String| {
            let step = going.get(port).and_then(|step| self.steps.get(*step));
            step.is_some_and(|step| step.what == What::Remove)
        };
        for object in kept.iter_mut() {
            if let Object::Team(team) = object {
                *team = part(team, |port| !removed(port));
            }
        }
        let after: Vec<&Object> = wanted.iter().chain(kept.iter()).collect();
        let after: Vec<&Object> = after
            .into_iter()
            .filter(|o| matches!(o, Object::Team(_)))
            .collect();
        let mut found = BTreeSet::new();
        for object in now {
            let Object::Team(team) = object else { continue };
            let target = after.iter().find(|o| same(object)(o)).copied();
            found.insert(object.resource());
            let keys = self.differences(Some(object), target);
            let Some(Object::Team(last)) = target else {
                let step = self.add_step(object, What::Remove, keys);
                self.act(Turn::PortsLeave, step, Some(object), None);
                continue;
            };
            let stays = part(team, |port| {
                last.members.contains(port) && !going.contains_key(port)
            });
            let own = (!keys.is_empty()).then(|| self.add_step(object, What::Change, keys));
            let of_port = team.members.iter().find_map(|port| going.get(port).copied());
            let Some(step) = own.or(of_port) else { continue };
            let mut from = object.clone();
            if stays.members != team.members {
                let less = Object::Team(stays);
                self.act(Turn::PortsLeave, step, Some(object), Some(&less));
                from = less;
            }
            if Some(&from) != target {
                self.act(Turn::Teams, step, Some(&from), target);
            }
        }
        for object in after.into_iter().filter(|o| !found.contains(&o.resource())) {
            let keys = self.differences(None, Some(object));
            let step = self.add_step(object, What::Add, keys);
            self.act(Turn::Teams, step, None, Some(object));
        }
    }
}

/// A team without some of its members.
fn part(team: &TeamSpec, stays: impl Fn(&String) -> bool) -> TeamSpec {
    TeamSpec {
        members: team.members.iter().filter(|m| stays(m)).cloned().collect(),
        primary: team.primary.clone().filter(&stays),
        mac_of: team.mac_of.clone().filter(&stays),
        ..team.clone()
    }
}

/// Things that one object has alone.
fn claims(object: &Object) -> Vec<(&'static str, String)> {
    match object {
        Object::Port(port, mesh) => {
            let device = match mesh {
                Some(mesh) => ("address", mesh.listen.to_string()),
                None => ("network device", port.kind.ifname().to_owned()),
            };
            vec![("name", port.name.clone()), device]
        }
        Object::Team(team) => {
            let members = team.members.iter().map(|port| ("member", port.clone()));
            members.collect()
        }
        Object::Adapter(adapter) => {
            let macs = adapter.macs.iter().map(|mac| ("address", mac.to_string()));
            let sockets = std::iter::once(&adapter.eth_socket).chain(&adapter.rdma_socket);
            let sockets = sockets.map(|path| ("socket", path.display().to_string()));
            let name = ("name", adapter.name.clone());
            std::iter::once(name).chain(macs).chain(sockets).collect()
        }
        Object::SubnetGroup(_, spec) => vec![("mgid", spec.mgid.to_string())],
        Object::Fault(_) | Object::VerbsFault(_) => Vec::new(),
    }
}

/// Checks that no wanted object has what one has that stays, nor the name of one of another kind: where an object is from is kept by its
/// name. (That they differ among themselves, the file's reader checks.)
pub fn check(wanted: &[Object], now: &[Object], kept: &[Object]) -> Result<(), Violations> {
    let all = kept.iter().flat_map(|object| {
        let named = move |claim| (claim, object.resource());
        claims(object).into_iter().map(named)
    });
    let taken: BTreeMap<(&str, String), String> = all.collect();
    let mut wrong = Violations::default();
    for object in wanted {
        let owns = |o: &Object| matches!(o, Object::Port(..) | Object::Adapter(_));
        let named = |o: &&Object| owns(o) && o.name() == object.name() && o.resource() != object.resource();
        if let Some(other) = now.iter().find(named).filter(|_| owns(object)) {
            wrong.add(
                object.resource(),
                format!("{} has its name: remove that first", other.resource()),
            );
        }
        for claim in claims(object) {
            if let Some(other) = taken.get(&claim) {
                let (what, value) = claim;
                let problem = format!("{other}, which is not in the file and stays, has the {what} {value}");
                wrong.add(object.resource(), problem);
            }
        }
    }
    wrong.finish(Some(()))
}

#[cfg(test)]
mod tests;
