//! Teams. A team is a bond of the NIC over those of its members that exist.
//!
//! ```text
//!  wish ─▶ change of a copy of the book ─▶ the NIC's bond ─▶ store ─▶ the copy is the book
//! ```

mod act;
mod book;

use std::collections::BTreeMap;
use std::time::SystemTime;

use vnic_backend::lag::{Affinity, LacpView, LagError, NewMember, NewTeam, Team, TeamType, View};
use vnic_backend::{BondStatus, MacAddr, NicError, PortStatus};

use super::Control;
use super::fields::{etag, named, unchanged};
use super::refused::Refused;
use crate::check::{Checked, Violations};
use crate::events::Owner;
use crate::store::StoreError;
use crate::stored;
use crate::teams::{AFFINITIES_MAX, Direction, Draft, TeamSpec};

pub use book::{Book, More};

/// Name of these settings in events.
const STORE: &str = "team";

pub struct Teams<'a>(pub &'a Control);

/// A team at one time.
#[derive(Debug, Clone)]
pub struct TeamNow {
    pub team: Team,
    /// Parts of the team that [`Team`] has not.
    pub more: More,
    /// Bond of the team; `None` without members.
    pub bond: Option<BondStatus>,
    /// How the bond spreads its load; of an aggregate team only on request.
    pub view: Option<View>,
    /// Members of the team, in its order.
    pub members: Vec<MemberNow>,
    /// Why the team does not carry frames as it should; may be empty.
    pub problem: String,
}

/// A member of a team at one time.
#[derive(Debug, Clone)]
pub struct MemberNow {
    /// Whether there is no such port.
    pub missing: bool,
    /// Whether it can carry frames.
    pub up: bool,
    /// Whether it is the active member of a failover team.
    pub active: bool,
    /// State of LACP.
    pub lacp: Option<LacpView>,
}

/// Result of a change.
struct Change {
    guid: u128,
    /// The change in words.
    what: String,
}

/// Path of a field that the NIC refuses.
fn path(name: &str) -> String {
    match name {
        "affinity" | "members" | "primary" => name.to_owned(),
        other => format!("team.{other}"),
    }
}

/// Translates an error of link aggregation.
fn lag(error: LagError) -> Refused {
    let field = match error.field {
        "name" => "team_id".to_owned(),
        "adapter" => "port".to_owned(),
        "VlanID" => "team.vlan_id".to_owned(),
        "VlanPrio" => "team.vlan_prio".to_owned(),
        "members" | "primary" => error.field.to_owned(),
        other => format!("team.{other}"),
    };
    Refused::field(field, error.problem)
}

fn not_found(name: &str) -> Refused {
    Refused::NotFound {
        kind: "team",
        name: name.to_owned(),
    }
}

fn find<'b>(book: &'b Book, name: &str) -> Result<(&'b Team, &'b More), Refused> {
    let guid = book.teams.query(name).map(|t| t.guid);
    guid.ok()
        .and_then(|guid| book.get(guid))
        .ok_or_else(|| not_found(name))
}

/// Finds a team of the book by its name, to change its [`More`].
fn more<'b>(book: &'b mut Book, name: &str) -> Result<(u128, &'b mut More), Refused> {
    let guid = find(book, name)?.0.guid;
    let more = book.more.get_mut(&guid);
    more.map(|more| (guid, more)).ok_or_else(|| not_found(name))
}

impl Teams<'_> {
    /// A team without the spread of its load. May block.
    pub fn get(&self, name: &str) -> Result<TeamNow, Refused> {
        let book = self.0.teams().clone();
        let (team, more) = find(&book, name)?;
        Ok(self.now(team, more, &self.ports()))
    }

    /// A team with the spread of its load. May block.
    pub fn view(&self, name: &str) -> Result<TeamNow, Refused> {
        let mut now = self.get(name)?;
        if let (Some(made), None) = (&now.more.made, &now.view) {
            now.view = Some(self.0.nic.bond_view(&made.name).map_err(Refused::nic(path))?);
        }
        Ok(now)
    }

    /// All teams, and the ports that are in no team. May block.
    pub fn list(&self) -> (Vec<TeamNow>, Vec<String>) {
        let book = self.0.teams().clone();
        let ports = self.ports();
        let teams = book.iter().map(|(team, more)| self.now(team, more, &ports));
        let teams = teams.collect();
        let free = ports.into_keys().filter(|p| book.teams.team_of(p).is_none());
        (teams, free.collect())
    }

    /// Makes a team. May block.
    pub fn create(&self, by: &str, name: &str, draft: &Draft, ipoib: bool) -> Result<TeamNow, Refused> {
        self.carry_out(by, path, |book| {
            if let Ok(other) = book.teams.query(name) {
                return Err(Refused::Exists {
                    kind: "team",
                    name: other.name.clone(),
                });
            }
            let salt = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            let salt = u64::try_from(salt.unwrap_or_default().as_nanos()).unwrap_or_default();
            let guid = self.0.settings.macs.guid(name, salt);
            let more = act::more(self.0, book, name, draft.settings.clone());
            let made = book.teams.create(NewTeam {
                name: name.to_owned(),
                guid,
                kind: draft.kind,
                no_failback: draft.no_failback,
                ipoib,
            });
            made.map_err(|e| match e.field {
                "team" => Refused::Limit(format!("teams: {}", e.problem)),
                "ipoib" => Refused::field("team.ipoib", format!("Ethernet only: {}", e.problem)),
                _ => lag(e),
            })?;
            let vlan = book.teams.set_vlan(name, draft.vlan_id, draft.vlan_prio);
            vlan.map_err(lag)?;
            book.more.insert(guid, more);
            let kind = draft.kind.name().to_lowercase();
            let what = format!("{kind} team \"{name}\" made");
            Ok(Change { guid, what })
        })
    }

    /// Adds a port to a team. May block.
    pub fn attach(
        &self,
        by: &str,
        name: &str,
        port: &str,
        (primary, set_team_mac): (bool, bool),
    ) -> Result<TeamNow, Refused> {
        let path = |_: &str| "port".to_owned();
        self.carry_out(by, path, |book| {
            let guid = find(book, name)?.0.guid;
            let found = self.0.nic.port(port).map_err(Refused::nic(path))?;
            if let Some(team) = book.teams.team_of(port) {
                return Err(Refused::InTeam {
                    port: port.to_owned(),
                    team: team.name.clone(),
                    cure: "a port is in one team at most; detach it there first",
                });
            }
            let new = NewMember {
                mac: act::mac(self.0, &found),
                adapter: port.to_owned(),
                primary,
                set_team_mac,
            };
            book.teams.attach(name, new).map_err(lag)?;
            let primary = if primary { " as its primary" } else { "" };
            let what = format!("port {port} is in team \"{name}\"{primary}");
            Ok(Change { guid, what })
        })
    }

    /// Removes a port from a team. May block.
    pub fn detach(&self, by: &str, name: &str, port: &str) -> Result<TeamNow, Refused> {
        self.carry_out(
            by,
            |_| "port".to_owned(),
            |book| {
                find(book, name)?;
                book.teams.detach(name, port).map_err(lag)?;
                let (guid, more) = more(book, name)?;
                more.affinities.retain(|a| a.port != port);
                let what = format!("port {port} is out of team \"{name}\"");
                Ok(Change { guid, what })
            },
        )
    }

    /// ETag of a team's settings, with members and affinities.
    pub fn etag(team: &Team, more: &More) -> String {
        let row = stored::teams::Row::of(team, &more.bond, &more.settings, &more.affinities);
        etag(&stored::teams::encode(std::iter::once(row)))
    }

    /// Changes the named fields of a team by `write`, unless its settings have changed since an etag; empty: in any case. May block.
    pub fn update(
        &self,
        by: &str,
        name: &str,
        (since, fields): (&str, &[String]),
        write: impl FnOnce(&[&str], &mut Draft) -> Result<(), Violations>,
    ) -> Result<TeamNow, Refused> {
        self.carry_out(by, path, |book| {
            let fields = named(fields, stored::teams::FIELDS, "hash_policy")?;
            let (team, besides) = find(book, name)?;
            unchanged(since, Teams::etag(team, besides))?;
            let name = team.name.clone();
            let vlan = (team.vlan_id, team.vlan_prio);
            let mut draft = Draft::new(team.kind, team.no_failback, vlan, besides.settings.clone());
            write(&fields, &mut draft)?;
            let teams = &mut book.teams;
            teams.set_no_failback(&name, draft.no_failback).map_err(lag)?;
            let vlan = teams.set_vlan(&name, draft.vlan_id, draft.vlan_prio);
            vlan.map_err(lag)?;
            let (guid, besides) = more(book, &name)?;
            besides.settings = draft.settings;
            let what = format!("team \"{name}\": {} changed", fields.join(", "));
            Ok(Change { guid, what })
        })
    }

    /// Brings a team to a specification, or makes it, in one step. May block.
    pub fn declare(&self, by: &str, spec: &TeamSpec, configured: bool) -> Result<TeamNow, Refused> {
        self.carry_out(by, path, |book| {
            let what = format!("team \"{}\" as a configuration says it", spec.name);
            let guid = act::declare(self.0, book, spec, configured).map_err(Refused::nic(path))?;
            Ok(Change { guid, what })
        })
    }

    /// Notes that a team is of the configuration, which is why it is not stored. May block.
    pub fn take_over(&self, name: &str) -> Result<(), StoreError> {
        act::take_over(self.0, name)
    }

    /// Removes a team, unless its settings have changed since an etag (empty: in any case); returns its last state. May block.
    pub fn remove(&self, by: &str, name: &str, since: &str) -> Result<TeamNow, Refused> {
        let mut book = self.0.teams();
        let (team, more) = find(&book, name)?;
        unchanged(since, Teams::etag(team, more))?;
        let last = self.now(team, more, &self.ports());
        let guid = team.guid;
        let mut next = book.clone();
        next.teams.remove(name).map_err(lag)?;
        next.more.remove(&guid);
        act::carry_out(self.0, &mut book, next, guid, path)?;
        self.changed(by, format!("team \"{name}\" removed"));
        Ok(last)
    }

    /// Directs traffic to a member of its own; `read` gives the affinity and the adapter that it is about. May block.
    pub fn set_affinity(
        &self,
        by: &str,
        name: &str,
        port: &str,
        read: impl FnOnce() -> Result<(Affinity, Option<String>), Violations>,
    ) -> Result<TeamNow, Refused> {
        self.carry_out(by, path, |book| {
            let (team, _) = find(book, name)?;
            if team.kind == TeamType::Failover {
                let problem = "one member of a failover team carries all frames; allowed: with aggregate";
                return Err(Refused::field("affinity", problem));
            }
            if !team.members.iter().any(|m| m.adapter == port) {
                let problem = format!("{port} is not in team \"{}\"", team.name);
                return Err(Refused::field("affinity.port", problem));
            }
            let text = format!("team \"{}\": an affinity to port {port}", team.name);
            let (what, adapter) = read()?;
            let (guid, more) = more(book, name)?;
            let known = more.affinities.iter().position(|a| a.what == what);
            if known.is_none() && more.affinities.len() >= AFFINITIES_MAX {
                let problem = format!("there are {AFFINITIES_MAX}; allowed: no more");
                return Err(Refused::field("affinity", problem));
            }
            let port = port.to_owned();
            let direction = Direction { what, adapter, port };
            match known.and_then(|i| more.affinities.get_mut(i)) {
                Some(old) => *old = direction,
                None => more.affinities.push(direction),
            }
            Ok(Change { guid, what: text })
        })
    }

    /// Removes an affinity. May block.
    pub fn remove_affinity(&self, by: &str, name: &str, what: Affinity) -> Result<TeamNow, Refused> {
        self.carry_out(by, path, |book| {
            let (guid, more) = more(book, name)?;
            let Some(at) = more.affinities.iter().position(|d| d.what == what) else {
                return Err(Refused::NoAffinity(name.to_owned()));
            };
            let gone = more.affinities.remove(at);
            let what = format!("team \"{name}\": no affinity to port {} any more", gone.port);
            Ok(Change { guid, what })
        })
    }

    /// Address of an adapter, for an affinity of a queue pair.
    pub fn adapter_mac(&self, adapter: &str) -> Checked<MacAddr> {
        let found = self.0.nic.adapter(adapter);
        let found = found.map_err(|_| format!("adapter {adapter} does not exist"))?;
        let mac = found.spec.macs.first().copied();
        mac.ok_or_else(|| format!("adapter {adapter} has no address"))
    }

    /// Address of the adapter of an affinity that a team has; the adapter may be gone.
    pub fn known_mac(&self, name: &str, adapter: &str, qp: u32) -> Option<MacAddr> {
        let book = self.0.teams();
        let (_, more) = find(&book, name).ok()?;
        let named = |d: &&Direction| d.adapter.as_deref() == Some(adapter);
        more.affinities.iter().filter(named).find_map(|d| match d.what {
            Affinity::Qp { source, qp: own } if own == qp => Some(source),
            _ => None,
        })
    }

    fn ports(&self) -> BTreeMap<String, PortStatus> {
        let all = self.0.nic.ports().into_iter();
        all.map(|p| (p.spec.name.clone(), p)).collect()
    }

    fn now(&self, team: &Team, more: &More, ports: &BTreeMap<String, PortStatus>) -> TeamNow {
        let made = more.made.as_ref();
        let bond = made.and_then(|spec| self.0.nic.bond(&spec.name).ok());
        let view = made
            .filter(|_| team.kind == TeamType::Failover)
            .and_then(|spec| self.0.nic.bond_view(&spec.name).ok());
        let active = made.and_then(|spec| spec.members.get(usize::from(view.as_ref()?.active?.0)));
        let members = team.members.iter().map(|member| {
            let name = &member.adapter;
            let port = ports.get(name);
            let in_bond = bond.iter().flat_map(|b| &b.members).find(|m| m.port == *name);
            MemberNow {
                missing: port.is_none(),
                up: in_bond.map_or_else(|| port.is_some_and(|p| p.up), |m| m.up),
                active: active == Some(name),
                lacp: in_bond.and_then(|m| m.lacp),
            }
        });
        let members: Vec<MemberNow> = members.collect();
        let mut problem = more.problem.clone().unwrap_or_default();
        let missing = team.members.iter().zip(&members).filter(|(_, now)| now.missing);
        let mut missing: Vec<&str> = missing.map(|(m, _)| m.adapter.as_str()).collect();
        if problem.is_empty() && !missing.is_empty() {
            missing.sort_unstable();
            problem = format!(
                "there is no port {}: it joins when it is made",
                missing.join(", ")
            );
        }
        TeamNow {
            team: team.clone(),
            more: more.clone(),
            bond,
            view,
            members,
            problem,
        }
    }

    /// Carries out a change under the lock of the book, and records it or its refusal as an event.
    fn carry_out(
        &self,
        by: &str,
        path: impl Fn(&str) -> String,
        work: impl FnOnce(&mut Book) -> Result<Change, Refused>,
    ) -> Result<TeamNow, Refused> {
        let mut book = self.0.teams();
        let mut next = book.clone();
        let change = work(&mut next)?;
        act::carry_out(self.0, &mut book, next, change.guid, path)?;
        self.changed(by, change.what);
        let (team, more) = book.get(change.guid).ok_or_else(|| not_found(""))?;
        Ok(self.now(team, more, &self.ports()))
    }

    fn changed(&self, by: &str, what: String) {
        self.0.settings_changed(Owner::Nic, STORE, what, by);
    }

    /// Makes the teams of the configuration. The error has the team's name.
    pub fn configure(&self) -> Result<(), (String, NicError)> {
        act::configure(self.0)
    }

    /// Makes the stored teams again. A team that cannot be made causes an event and stays stored; a missing port also causes an event.
    pub fn bring_back(&self) -> Result<(), StoreError> {
        act::bring_back(self.0)
    }

    /// Adds a new port to the team that has it as a member. A refusal of the NIC causes an event, and is shown with the team.
    pub(super) fn port_made(&self, port: &str) {
        act::port_made(self.0, port);
    }

    /// Removes a port that is in no team.
    pub(super) fn remove_port(
        &self,
        port: &str,
        remove: impl FnOnce() -> Result<(), Refused>,
    ) -> Result<(), Refused> {
        let book = self.0.teams();
        if let Some(team) = book.teams.team_of(port) {
            return Err(Refused::InTeam {
                port: port.to_owned(),
                team: team.name.clone(),
                cure: "detach it first",
            });
        }
        remove()
    }
}
