//! Brings the NIC's bonds and the store to what the book has.

use std::collections::BTreeSet;

use vnic_backend::lag::{NewMember, NewTeam};
use vnic_backend::{BondSpec, MacAddr, NicError, PortStatus};

use super::book::{Book, More};
use crate::control::Control;
use crate::control::refused::{Refused, acts};
use crate::events::{ControlEvent, Owner};
use crate::store::{Batch, StoreError};
use crate::stored::teams::{self, Row};
use crate::teams::{TeamSettings, TeamSpec};

/// Name of these settings in events.
const STORE: &str = "team";
/// Table of the store. It has one row, [`KEY`]; value: see [`teams`].
const TABLE: &str = "teams";
const KEY: &[u8] = b"all";

/// Names that a new bond cannot have.
fn taken(control: &Control, book: &Book) -> BTreeSet<String> {
    let adapters = control.nic.adapters().into_iter().map(|a| a.spec.name);
    let configured = control.settings.adapters.iter().map(|a| a.name.clone());
    let to_be = control.settings.ports.iter().map(|p| p.name.clone());
    let bonds = control.nic.bonds().into_iter().map(|b| b.spec.name);
    let own = book.more.values().map(|m| m.bond.clone());
    let all = adapters.chain(configured).chain(to_be).chain(bonds).chain(own);
    all.chain(control.port_names()).collect()
}

/// [`More`] of a new team. The caller adds it to the book.
pub fn more(control: &Control, book: &Book, name: &str, settings: TeamSettings) -> More {
    let numbers = book.more.values().map(|more| more.number + 1);
    More {
        number: numbers.max().unwrap_or(0),
        bond: Book::bond_name(name, &taken(control, book)),
        settings,
        affinities: Vec::new(),
        configured: false,
        made: None,
        problem: None,
    }
}

/// Address of a port: that of its device, or one that is derived from its name.
pub fn mac(control: &Control, port: &PortStatus) -> MacAddr {
    let own = port.device.as_ref().and_then(|d| d.mac);
    own.filter(|m| !m.is_multicast() && *m != MacAddr::default())
        .unwrap_or_else(|| control.settings.macs.derive(&port.spec.name, &BTreeSet::new()))
}

/// Whether two bonds differ in their affinities alone.
fn only_affinities(old: &BondSpec, new: &BondSpec) -> bool {
    let affinities = old.affinities.clone();
    *old == BondSpec {
        affinities,
        ..new.clone()
    }
}

/// Brings the NIC's bond of a team from `before` to what the book has.
fn act(control: &Control, book: &mut Book, guid: u128, before: Option<&BondSpec>) -> Result<(), NicError> {
    let target = book.spec(guid, &control.port_names());
    match (before, &target) {
        (Some(old), Some(new)) if old == new => {}
        (Some(old), Some(new)) if only_affinities(old, new) => {
            let set = |(what, member), on: bool| {
                control
                    .nic
                    .set_bond_affinity(&new.name, what, on.then_some(member))
            };
            let gone = |a: &&(_, _)| !new.affinities.iter().any(|b| b.0 == a.0);
            for affinity in old.affinities.iter().filter(gone) {
                set(*affinity, false)?;
            }
            for affinity in new.affinities.iter().filter(|a| !old.affinities.contains(a)) {
                set(*affinity, true)?;
            }
        }
        (_, Some(new)) => {
            control.nic.set_bond(new.clone())?;
        }
        (Some(old), None) => control.nic.remove_bond(&old.name)?,
        (None, None) => {}
    }
    if let Some(more) = book.more.get_mut(&guid) {
        more.made = target;
        more.problem = None;
    }
    Ok(())
}

fn store(control: &Control, book: &Book) -> Result<(), StoreError> {
    let own = book.iter().filter(|(_, more)| !more.configured);
    let own = own.map(|(team, more)| Row::of(team, &more.bond, &more.settings, &more.affinities));
    // A team of the configuration hides a stored one of its name only while it exists.
    let free = |row: &&Row| {
        let same = book.teams.query(row.name()).ok();
        same.and_then(|t| book.more.get(&t.guid))
            .is_none_or(|m| m.configured)
    };
    let rows: Vec<Row> = own.chain(book.shadowed.iter().filter(free).cloned()).collect();
    let mut batch = Batch::new();
    if rows.is_empty() {
        batch.delete(TABLE, KEY);
    } else {
        batch.put(TABLE, KEY, teams::encode(rows.into_iter()));
    }
    control.store.commit(batch)
}

/// Changes one team in the NIC, in the store and in the book, or nowhere. `path` is as in [`Refused::nic`].
pub fn carry_out(
    control: &Control,
    book: &mut Book,
    mut next: Book,
    guid: u128,
    path: impl Fn(&str) -> String,
) -> Result<(), Refused> {
    let before = book.more.get(&guid).and_then(|m| m.made.clone());
    act(control, &mut next, guid, before.as_ref()).map_err(Refused::nic(path))?;
    acts()?;
    if let Err(error) = store(control, &next) {
        let made = next.more.get(&guid).and_then(|m| m.made.clone());
        if let Err(error) = act(control, book, guid, made.as_ref()) {
            tracing::error!("team: the bond is not as it was: {error}");
        }
        return Err(error.into());
    }
    *book = next;
    Ok(())
}

/// Records that a part of a team does not act.
fn lives_without(control: &Control, what: String) {
    control.hub.record(ControlEvent::SettingsRefused {
        owner: Owner::Nic,
        store: STORE,
        what,
        by: String::new(),
    });
}

/// Adds a new port to the team that has it as a member. A refusal of the NIC causes an event, and is shown with the team.
pub fn port_made(control: &Control, port: &str) {
    let mut book = control.teams();
    let Some((guid, name)) = book.teams.team_of(port).map(|t| (t.guid, t.name.clone())) else {
        return;
    };
    let before = book.more.get(&guid).and_then(|m| m.made.clone());
    if let Err(error) = act(control, &mut book, guid, before.as_ref()) {
        let problem = format!("port {port} does not join: {error}");
        lives_without(control, format!("team \"{name}\": {problem}"));
        if let Some(more) = book.more.get_mut(&guid) {
            more.problem = Some(problem);
        }
    }
}

/// Makes the teams of the configuration. The error has the team's name.
pub fn configure(control: &Control) -> Result<(), (String, NicError)> {
    let mut book = control.teams();
    for spec in &control.settings.teams {
        let made =
            declare(control, &mut book, spec, true).and_then(|guid| act(control, &mut book, guid, None));
        made.map_err(|e| (spec.name.clone(), e))?;
    }
    Ok(())
}

/// Brings a team of the book to a specification, or adds it; of its affinities those to its members stay. Returns its GUID.
pub fn declare(
    control: &Control,
    book: &mut Book,
    spec: &TeamSpec,
    configured: bool,
) -> Result<u128, NicError> {
    let known = book.teams.remove(&spec.name).ok();
    let guid = match &known {
        Some(team) => team.guid,
        None => control.settings.macs.guid(&spec.name, 0),
    };
    let known = book.more.remove(&guid);
    let more = match known {
        Some(mut more) => {
            more.affinities.retain(|a| spec.members.contains(&a.port));
            more.settings = spec.settings.clone();
            more
        }
        None => more(control, book, &spec.name, spec.settings.clone()),
    };
    book.teams.create(NewTeam {
        name: spec.name.clone(),
        guid,
        kind: spec.kind,
        no_failback: spec.no_failback,
        ipoib: false,
    })?;
    book.teams.set_vlan(&spec.name, spec.vlan_id, spec.vlan_prio)?;
    for port in &spec.members {
        let found = control.nic.port(port)?;
        book.teams.attach(
            &spec.name,
            NewMember {
                adapter: port.clone(),
                mac: mac(control, &found),
                primary: spec.primary.as_ref() == Some(port),
                set_team_mac: spec.mac_of.as_ref() == Some(port),
            },
        )?;
    }
    book.more.insert(guid, More { configured, ..more });
    Ok(guid)
}

/// Notes that a team is of the configuration, which is why it is not stored.
pub fn take_over(control: &Control, name: &str) -> Result<(), StoreError> {
    let mut book = control.teams();
    let Ok(guid) = book.teams.query(name).map(|team| team.guid) else {
        return Ok(());
    };
    let mut next = book.clone();
    let stored = |more: &mut More| !std::mem::replace(&mut more.configured, true);
    if next.more.get_mut(&guid).is_some_and(stored) {
        next.shadowed
            .retain(|row| row.name().to_lowercase() != name.to_lowercase());
        store(control, &next)?;
        *book = next;
    }
    Ok(())
}

/// Makes the stored teams again. A team that cannot be made causes an event and stays stored; a missing port also causes an event.
pub fn bring_back(control: &Control) -> Result<(), StoreError> {
    let rows = control.store.all(TABLE)?;
    let Some((_, bytes)) = rows.into_iter().find(|(key, _)| key == KEY) else {
        return Ok(());
    };
    let rows = match teams::decode(&bytes) {
        Ok(rows) => rows,
        Err(error) => {
            lives_without(control, format!("what is stored cannot be read: {error}"));
            return Ok(());
        }
    };
    let mut book = control.teams();
    let here = control.port_names();
    for stored in rows {
        let name = stored.name().to_owned();
        let guid = match again(control, &mut book, &stored) {
            Ok(guid) => guid,
            Err(problem) => {
                lives_without(control, format!("team \"{name}\" does not come back: {problem}"));
                book.shadowed.push(stored);
                continue;
            }
        };
        let members = book.get(guid).map(|(team, _)| team.members.clone());
        for member in members
            .into_iter()
            .flatten()
            .filter(|m| !here.contains(&m.adapter))
        {
            let port = member.adapter;
            let what = format!("team \"{name}\": there is no port {port}; it joins when it is made");
            lives_without(control, what);
        }
        if let Err(error) = act(control, &mut book, guid, None) {
            lives_without(control, format!("team \"{name}\" carries nothing: {error}"));
            if let Some(more) = book.more.get_mut(&guid) {
                more.problem = Some(error.to_string());
            }
        }
    }
    Ok(())
}

/// Adds a stored team to the book.
fn again(control: &Control, book: &mut Book, stored: &Row) -> Result<u128, String> {
    let asked = stored.read()?;
    let guid = asked.team.guid;
    let mut more = more(control, book, &asked.team.name, asked.settings);
    if !asked.bond.is_empty() && !taken(control, book).contains(&asked.bond) {
        more.bond = asked.bond;
    }
    more.affinities = asked.affinities;
    book.teams.restore(asked.team).map_err(|e| e.to_string())?;
    book.more.insert(guid, more);
    Ok(guid)
}
