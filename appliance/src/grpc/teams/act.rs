//! What the book says becomes what the NIC does, and what is stored.

use std::collections::BTreeSet;

use prost::Message as _;
use tonic::{Code, Status};
use vnic_backend::lag::{NewMember, NewTeam, Team, TeamMember, TeamType};
use vnic_backend::{BondSpec, MacAddr, NicError, PortStatus};
use vnic_control::v1;

use super::super::errors::{Violations, status};
use super::fields::{self, Draft};
use super::{STORE, message};
use crate::daemon::Context;
use crate::events::{ControlEvent, Owner};
use crate::names::{self, PORTS, TEAMS};
use crate::store::{Batch, StoreError};
use crate::teams::{Book, Direction, More, TeamSettings, TeamSpec, guid_of};

/// One row, [`KEY`]: `vnic.v1.ListTeamsResponse` with what teams were told to be.
const TABLE: &str = "teams";
const KEY: &[u8] = b"all";

/// Names of the ports that there are.
fn ports(context: &Context) -> BTreeSet<String> {
    context.nic.ports().into_iter().map(|p| p.spec.name).collect()
}

/// Names that a bond cannot have.
fn taken(context: &Context, book: &Book) -> BTreeSet<String> {
    let adapters = context.nic.adapters().into_iter().map(|a| a.spec.name);
    let configured = context.settings.adapters.iter().map(|a| a.name.clone());
    let to_be = context.settings.ports.iter().map(|p| p.name.clone());
    let bonds = context.nic.bonds().into_iter().map(|b| b.spec.name);
    let own = book.more.values().map(|m| m.bond.clone());
    let all = adapters.chain(configured).chain(to_be).chain(bonds).chain(own);
    all.chain(ports(context)).collect()
}

/// What a new team has besides its name. It is in the book with [`Book::more`].
pub fn more(context: &Context, book: &Book, name: &str, settings: TeamSettings) -> More {
    More {
        bond: Book::bond_name(name, &taken(context, book)),
        settings,
        affinities: Vec::new(),
        configured: false,
        made: None,
        problem: None,
    }
}

/// The address of a port; one of our own making where its device has none.
pub fn mac(context: &Context, port: &PortStatus) -> MacAddr {
    let own = port.device.as_ref().and_then(|d| d.mac);
    own.filter(|m| !m.is_multicast() && *m != MacAddr::default())
        .unwrap_or_else(|| context.settings.macs.derive(&port.spec.name, &BTreeSet::new()))
}

/// Only what goes by a member of its own differs.
fn only_affinities(old: &BondSpec, new: &BondSpec) -> bool {
    let affinities = old.affinities.clone();
    *old == BondSpec {
        affinities,
        ..new.clone()
    }
}

/// Lets the NIC have the bond that the book says, where it had `before`.
pub fn act(
    context: &Context,
    book: &mut Book,
    guid: u128,
    before: Option<&BondSpec>,
) -> Result<(), NicError> {
    let target = book.spec(guid, &ports(context));
    match (before, &target) {
        (Some(old), Some(new)) if old == new => {}
        (Some(old), Some(new)) if only_affinities(old, new) => {
            let set = |(what, member), on: bool| {
                context
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
            context.nic.set_bond(new.clone())?;
        }
        (Some(old), None) => context.nic.remove_bond(&old.name)?,
        (None, None) => {}
    }
    if let Some(more) = book.more.get_mut(&guid) {
        more.made = target;
        more.problem = None;
    }
    Ok(())
}

/// Stores a book.
fn store(context: &Context, book: &Book) -> Result<(), StoreError> {
    let own = book.iter().filter(|(_, more)| !more.configured);
    let own = own.map(|(team, more)| message::asked(team, more));
    // One of the configuration takes the name only for as long as it is there.
    let free = |t: &&v1::Team| {
        let same = book.teams.query(name_of(t)).ok();
        same.and_then(|t| book.more.get(&t.guid))
            .is_none_or(|m| m.configured)
    };
    let shadowed = book.shadowed.iter().filter(free).cloned();
    let row = v1::ListTeamsResponse {
        teams: own.chain(shadowed).collect(),
        free_ports: Vec::new(),
    };
    let mut batch = Batch::new();
    if row.teams.is_empty() {
        batch.delete(TABLE, KEY);
    } else {
        batch.put(TABLE, KEY, row.encode_to_vec());
    }
    context.store.commit(batch)
}

/// A change of one team: of the NIC, of what is stored, and of the book; or of nothing. `field` is as in
/// [`super::super::errors::from_nic`].
pub fn carry_out(
    context: &Context,
    book: &mut Book,
    mut next: Book,
    guid: u128,
    refused: impl Fn(NicError) -> Status,
) -> Result<(), Status> {
    let before = book.more.get(&guid).and_then(|m| m.made.clone());
    act(context, &mut next, guid, before.as_ref()).map_err(refused)?;
    if let Err(error) = store(context, &next) {
        let made = next.more.get(&guid).and_then(|m| m.made.clone());
        if let Err(error) = act(context, book, guid, made.as_ref()) {
            tracing::error!("team: the bond is not as it was: {error}");
        }
        return Err(status(Code::Unavailable, "STORE_FAILED", error.to_string(), []));
    }
    *book = next;
    Ok(())
}

/// Something of a team does not act: it is told.
fn lives_without(context: &Context, what: String) {
    context.hub.record(ControlEvent::SettingsRefused {
        owner: Owner::Nic,
        store: STORE,
        what,
        by: String::new(),
    });
}

/// A port was made: if it is a member of a team, it joins. What the NIC refuses is told, and shown with the team.
pub fn port_made(context: &Context, port: &str) {
    let mut book = context.teams();
    let Some((guid, name)) = book.teams.team_of(port).map(|t| (t.guid, t.name.clone())) else {
        return;
    };
    let before = book.more.get(&guid).and_then(|m| m.made.clone());
    if let Err(error) = act(context, &mut book, guid, before.as_ref()) {
        let problem = format!("port {port} does not join: {error}");
        lives_without(context, format!("team \"{name}\": {problem}"));
        if let Some(more) = book.more.get_mut(&guid) {
            more.problem = Some(problem);
        }
    }
}

/// Removes a port that is in no team.
pub fn remove_port(
    context: &Context,
    port: &str,
    remove: impl FnOnce() -> Result<(), Status>,
) -> Result<(), Status> {
    let book = context.teams();
    if let Some(team) = book.teams.team_of(port) {
        return Err(in_team(port, &team.name, "detach it first"));
    }
    remove()
}

/// A port is in a team already.
pub fn in_team(port: &str, team: &str, cure: &str) -> Status {
    let metadata = [("port", port.to_owned()), ("team", team.to_owned())];
    let text = format!("port {port} is in team \"{team}\": {cure}");
    status(Code::FailedPrecondition, "IN_TEAM", text, metadata)
}

fn name_of(team: &v1::Team) -> &str {
    team.name
        .strip_prefix(TEAMS)
        .and_then(|n| n.strip_prefix('/'))
        .unwrap_or("")
}

/// Makes the teams of the configuration. The error is the team and what is wrong.
pub fn configure(context: &Context) -> Result<(), (String, NicError)> {
    let mut book = context.teams();
    for spec in &context.settings.teams {
        configured(context, &mut book, spec).map_err(|e| (spec.name.clone(), e))?;
    }
    Ok(())
}

fn configured(context: &Context, book: &mut Book, spec: &TeamSpec) -> Result<(), NicError> {
    let guid = context.settings.macs.guid(&spec.name, 0);
    let more = more(context, book, &spec.name, spec.settings.clone());
    book.teams.create(NewTeam {
        name: spec.name.clone(),
        guid,
        kind: spec.kind,
        no_failback: spec.no_failback,
        ipoib: false,
    })?;
    book.teams.set_vlan(&spec.name, spec.vlan_id, spec.vlan_prio)?;
    for port in &spec.members {
        let found = context.nic.port(port)?;
        book.teams.attach(
            &spec.name,
            NewMember {
                adapter: port.clone(),
                mac: mac(context, &found),
                primary: spec.primary.as_ref() == Some(port),
                set_team_mac: spec.mac_of.as_ref() == Some(port),
            },
        )?;
    }
    let more = More {
        configured: true,
        ..more
    };
    book.more.insert(guid, more);
    act(context, book, guid, None)
}

/// Makes the stored teams again. One that cannot be made is told as an event, and stays stored; so is a port that is
/// missing.
pub fn bring_back(context: &Context) -> Result<(), StoreError> {
    let rows = context.store.all(TABLE)?;
    let Some((_, bytes)) = rows.into_iter().find(|(key, _)| key == KEY) else {
        return Ok(());
    };
    let row = match v1::ListTeamsResponse::decode(bytes.as_slice()) {
        Ok(row) => row,
        Err(error) => {
            lives_without(context, format!("what is stored cannot be read: {error}"));
            return Ok(());
        }
    };
    let mut book = context.teams();
    let here = ports(context);
    for stored in row.teams {
        let name = name_of(&stored).to_owned();
        let guid = match again(context, &mut book, &stored) {
            Ok(guid) => guid,
            Err(problem) => {
                lives_without(context, format!("team \"{name}\" does not come back: {problem}"));
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
            lives_without(context, what);
        }
        if let Err(error) = act(context, &mut book, guid, None) {
            lives_without(context, format!("team \"{name}\" carries nothing: {error}"));
            if let Some(more) = book.more.get_mut(&guid) {
                more.problem = Some(error.to_string());
            }
        }
    }
    Ok(())
}

/// Puts a stored team into the book.
fn again(context: &Context, book: &mut Book, stored: &v1::Team) -> Result<u128, String> {
    let name = name_of(stored).to_owned();
    let guid = guid_of(&stored.guid).ok_or("it has no GUID")?;
    let address = |text: &str| {
        text.parse::<MacAddr>()
            .map_err(|_| format!("{text:?} is no address"))
    };
    let kind = match stored.r#type() {
        v1::team::Type::Failover => TeamType::Failover,
        _ => TeamType::Aggregate,
    };
    let mut wrong = Violations::default();
    let mut draft = Draft::new(kind, false, (0, 0), TeamSettings::default());
    for field in fields::whole() {
        draft.take(field, stored, &mut wrong);
    }
    let mut affinities = Vec::new();
    for affinity in &stored.affinities {
        let mac = |pair: &v1::TeamQueuePair| address(&pair.mac);
        if let Some((what, adapter)) = fields::affinity(Some(affinity), mac, &mut wrong) {
            affinities.push(Direction {
                what,
                adapter,
                port: names::last(&affinity.port).to_owned(),
            });
        }
    }
    let draft = wrong.finish(Some(draft)).map_err(|e| e.message().to_owned())?;
    let members = stored.members.iter().map(|m| {
        let adapter = names::id(PORTS, &m.port)
            .ok_or("a member has no name")?
            .to_owned();
        let mac = address(&m.mac)?;
        let primary = m.primary;
        Ok::<_, String>(TeamMember {
            adapter,
            mac,
            primary,
        })
    });
    let team = Team {
        name: name.clone(),
        guid,
        kind,
        no_failback: draft.no_failback,
        members: members.collect::<Result<_, _>>()?,
        mac: (!stored.mac.is_empty())
            .then(|| address(&stored.mac))
            .transpose()?,
        vlan_id: draft.vlan_id,
        vlan_prio: draft.vlan_prio,
    };
    let mut more = more(context, book, &name, draft.settings);
    if !stored.bond.is_empty() && !taken(context, book).contains(&stored.bond) {
        more.bond.clone_from(&stored.bond);
    }
    more.affinities = affinities;
    book.teams.restore(team).map_err(|e| e.to_string())?;
    book.more.insert(guid, more);
    Ok(guid)
}
