//! `vnic.v1.TeamService`.

mod act;
mod fields;
mod message;

use std::sync::Arc;
use std::time::SystemTime;

use tonic::{Code, Request, Response, Status};
use vnic_backend::lag::{LagError, NewMember, NewTeam, TeamType};
use vnic_backend::{MacAddr, NicError};
use vnic_control::v1;

use super::errors::{Violations, blocking, from_nic, invalid, status};
use crate::access;
use crate::check::Checked;
use crate::config::nearest;
use crate::daemon::Context;
use crate::events::{ControlEvent, Owner};
use crate::names::{self, ADAPTERS, PORTS, TEAMS};
use crate::teams::{AFFINITIES_MAX, Book, Direction};
use fields::{Draft, FIELDS};

pub use act::{bring_back, configure, port_made, remove_port};

/// The service.
pub struct Together(pub Arc<Context>);

/// The name that events have for this kind of settings.
const STORE: &str = "team";

/// The name of a team in a resource name of a request: everything behind the collection.
fn id(field: &str, name: &str) -> Result<String, Status> {
    let id = name.strip_prefix(TEAMS).and_then(|n| n.strip_prefix('/'));
    id.filter(|id| !id.is_empty())
        .map(str::to_owned)
        .ok_or_else(|| invalid(field, format!("{name:?} is not of the form teams/{{team}}")))
}

/// The name of a port in a resource name of a request.
fn port_id(field: &str, name: &str) -> Result<String, Status> {
    names::id(PORTS, name)
        .map(str::to_owned)
        .ok_or_else(|| invalid(field, format!("{name:?} is not of the form ports/{{port}}")))
}

fn not_found(name: &str) -> Status {
    let metadata = [("kind", "team".to_owned()), ("name", name.to_owned())];
    status(
        Code::NotFound,
        "NOT_FOUND",
        format!("there is no team \"{name}\""),
        metadata,
    )
}

/// The GUID of a team.
fn guid(book: &Book, name: &str) -> Result<u128, Status> {
    book.teams
        .query(name)
        .map(|t| t.guid)
        .map_err(|_| not_found(name))
}

/// What link aggregation refuses.
fn lag(error: LagError) -> Status {
    invalid(fields::lag_field(&error), error.problem)
}

/// What the NIC refuses of a change that is not about a port.
fn refused(error: NicError) -> Status {
    from_nic(error, |name| match name {
        "affinity" | "members" | "primary" => name.to_owned(),
        other => format!("team.{other}"),
    })
}

/// What a change did.
struct Change {
    guid: u128,
    /// For people.
    what: String,
}

fn create(context: &Context, book: &mut Book, request: &v1::CreateTeamRequest) -> Result<Change, Status> {
    let none = v1::Team::default();
    let asked = request.team.as_ref().unwrap_or(&none);
    let mut wrong = Violations::default();
    let kind = match asked.r#type() {
        v1::team::Type::Aggregate => Some(TeamType::Aggregate),
        v1::team::Type::Failover => Some(TeamType::Failover),
        v1::team::Type::Unspecified => {
            wrong.add("team.type", "required: aggregate or failover");
            None
        }
    };
    let mut draft = Draft::new(
        kind.unwrap_or(TeamType::Aggregate),
        false,
        (0, 0),
        Default::default(),
    );
    for field in fields::whole() {
        draft.take(field, asked, &mut wrong);
    }
    draft.check(&mut wrong);
    wrong.finish(kind)?;
    let name = &request.team_id;
    if let Ok(other) = book.teams.query(name) {
        let text = format!("there is a team \"{}\" already", other.name);
        let metadata = [("kind", "team".to_owned()), ("name", other.name.clone())];
        return Err(status(Code::AlreadyExists, "NAME_TAKEN", text, metadata));
    }
    let salt = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let salt = u64::try_from(salt.unwrap_or_default().as_nanos()).unwrap_or_default();
    let guid = context.settings.macs.guid(name, salt);
    let more = act::more(context, book, name, draft.settings);
    let made = book.teams.create(NewTeam {
        name: name.clone(),
        guid,
        kind: draft.kind,
        no_failback: draft.no_failback,
        ipoib: asked.ipoib,
    });
    made.map_err(|e| match e.field {
        "team" => status(
            Code::ResourceExhausted,
            "LIMIT_REACHED",
            format!("teams: {}", e.problem),
            [],
        ),
        "ipoib" => invalid("team.ipoib", format!("Ethernet only: {}", e.problem)),
        _ => lag(e),
    })?;
    book.teams
        .set_vlan(name, draft.vlan_id, draft.vlan_prio)
        .map_err(lag)?;
    book.more.insert(guid, more);
    let kind = draft.kind.name().to_lowercase();
    Ok(Change {
        guid,
        what: format!("{kind} team \"{name}\" made"),
    })
}

fn attach(
    context: &Context,
    book: &mut Book,
    request: &v1::AttachTeamMemberRequest,
) -> Result<Change, Status> {
    let name = id("name", &request.name)?;
    let port = port_id("port", &request.port)?;
    let guid = guid(book, &name)?;
    let found = context.nic.port(&port);
    let found = found.map_err(|e| from_nic(e, |_| "port".to_owned()))?;
    if let Some(team) = book.teams.team_of(&port) {
        let cure = "a port is in one team at most; detach it there first";
        return Err(act::in_team(&port, &team.name, cure));
    }
    let new = NewMember {
        mac: act::mac(context, &found),
        adapter: port.clone(),
        primary: request.primary,
        set_team_mac: request.set_team_mac_address,
    };
    book.teams.attach(&name, new).map_err(lag)?;
    let primary = if request.primary { " as its primary" } else { "" };
    Ok(Change {
        guid,
        what: format!("port {port} is in team \"{name}\"{primary}"),
    })
}

fn detach(book: &mut Book, request: &v1::DetachTeamMemberRequest) -> Result<Change, Status> {
    let name = id("name", &request.name)?;
    let port = port_id("port", &request.port)?;
    let guid = guid(book, &name)?;
    book.teams.detach(&name, &port).map_err(lag)?;
    if let Some(more) = book.more.get_mut(&guid) {
        more.affinities.retain(|a| a.port != port);
    }
    Ok(Change {
        guid,
        what: format!("port {port} is out of team \"{name}\""),
    })
}

/// The fields that a mask names, each once.
fn mask(mask: Option<&prost_types::FieldMask>) -> Result<Vec<&'static str>, Status> {
    let paths = mask.map(|m| m.paths.as_slice()).filter(|p| !p.is_empty());
    let paths = paths.ok_or_else(|| {
        invalid(
            "update_mask",
            "the fields to change are missing, such as \"hash_policy\"",
        )
    })?;
    let mut wrong = Violations::default();
    let mut named = Vec::new();
    for path in paths {
        match FIELDS.iter().find(|f| *f == path) {
            Some(field) if named.contains(field) => {}
            Some(field) => named.push(*field),
            None => {
                let meant =
                    nearest(path, FIELDS).map_or_else(String::new, |n| format!("; did you mean {n:?}?"));
                wrong.add(
                    "update_mask",
                    format!("{path:?} is no field that can be written{meant}"),
                );
            }
        }
    }
    wrong.finish(Some(named))
}

fn update(book: &mut Book, request: &v1::UpdateTeamRequest) -> Result<Change, Status> {
    let none = v1::Team::default();
    let asked = request.team.as_ref().unwrap_or(&none);
    let name = id("team.name", &asked.name)?;
    let paths = mask(request.update_mask.as_ref())?;
    let guid = guid(book, &name)?;
    let (team, more) = book.get(guid).ok_or_else(|| not_found(&name))?;
    let name = team.name.clone();
    let mut draft = Draft::new(
        team.kind,
        team.no_failback,
        (team.vlan_id, team.vlan_prio),
        more.settings.clone(),
    );
    let mut wrong = Violations::default();
    for path in &paths {
        draft.take(path, asked, &mut wrong);
    }
    draft.check(&mut wrong);
    wrong.finish(Some(()))?;
    let teams = &mut book.teams;
    teams.set_no_failback(&name, draft.no_failback).map_err(lag)?;
    teams
        .set_vlan(&name, draft.vlan_id, draft.vlan_prio)
        .map_err(lag)?;
    if let Some(more) = book.more.get_mut(&guid) {
        more.settings = draft.settings;
    }
    Ok(Change {
        guid,
        what: format!("team \"{name}\": {} changed", paths.join(", ")),
    })
}

/// The address of the adapter of a queue pair.
fn adapter_mac(context: &Context, pair: &v1::TeamQueuePair) -> Checked<MacAddr> {
    let name = &pair.adapter;
    let id = names::id(ADAPTERS, name)
        .ok_or_else(|| format!("{name:?} is not of the form adapters/{{adapter}}"))?;
    let adapter = context.nic.adapter(id);
    let adapter = adapter.map_err(|_| format!("adapter {id} does not exist"))?;
    let mac = adapter.spec.macs.first().copied();
    mac.ok_or_else(|| format!("adapter {id} has no address"))
}

fn set_affinity(
    context: &Context,
    book: &mut Book,
    request: &v1::SetTeamAffinityRequest,
) -> Result<Change, Status> {
    let name = id("name", &request.name)?;
    let guid = guid(book, &name)?;
    let (team, more) = book.get(guid).ok_or_else(|| not_found(&name))?;
    if team.kind == TeamType::Failover {
        let problem = "one member of a failover team carries all frames; allowed: with aggregate";
        return Err(invalid("affinity", problem));
    }
    let asked = request.affinity.as_ref();
    let port = asked.map(|a| a.port.as_str()).unwrap_or_default();
    let port = port_id("affinity.port", port)?;
    if !team.members.iter().any(|m| m.adapter == port) {
        let problem = format!("{port} is not in team \"{}\"", team.name);
        return Err(invalid("affinity.port", problem));
    }
    let mut wrong = Violations::default();
    let read = fields::affinity(asked, |pair| adapter_mac(context, pair), &mut wrong);
    let (what, adapter) = wrong.finish(read)?;
    let known = more.affinities.iter().position(|a| a.what == what);
    if known.is_none() && more.affinities.len() >= AFFINITIES_MAX {
        let problem = format!("there are {AFFINITIES_MAX}; allowed: no more");
        return Err(invalid("affinity", problem));
    }
    let text = format!("team \"{}\": an affinity to port {port}", team.name);
    let Some(more) = book.more.get_mut(&guid) else {
        return Err(not_found(&name));
    };
    let direction = Direction { what, adapter, port };
    match known.and_then(|i| more.affinities.get_mut(i)) {
        Some(old) => *old = direction,
        None => more.affinities.push(direction),
    }
    Ok(Change { guid, what: text })
}

fn delete_affinity(
    context: &Context,
    book: &mut Book,
    request: &v1::DeleteTeamAffinityRequest,
) -> Result<Change, Status> {
    let name = id("name", &request.name)?;
    let guid = guid(book, &name)?;
    let Some(more) = book.more.get_mut(&guid) else {
        return Err(not_found(&name));
    };
    let mut wrong = Violations::default();
    // The adapter may be gone: then its name finds it.
    let known = |pair: &v1::TeamQueuePair| {
        let named = |d: &&Direction| d.adapter.as_deref() == Some(names::last(&pair.adapter));
        let old = more.affinities.iter().filter(named).find_map(|d| match d.what {
            vnic_backend::lag::Affinity::Qp { source, qp } if qp == pair.qp => Some(source),
            _ => None,
        });
        old.map_or_else(|| adapter_mac(context, pair), Ok)
    };
    let read = fields::affinity(request.affinity.as_ref(), known, &mut wrong);
    let (what, _) = wrong.finish(read)?;
    let Some(at) = more.affinities.iter().position(|d| d.what == what) else {
        let text = format!("team \"{name}\" has no such affinity");
        let metadata = [("kind", "affinity".to_owned())];
        return Err(status(Code::NotFound, "NOT_FOUND", text, metadata));
    };
    let gone = more.affinities.remove(at);
    Ok(Change {
        guid,
        what: format!("team \"{name}\": no affinity to port {} any more", gone.port),
    })
}

impl Together {
    /// Runs a change with nothing between its look and its act, and tells what came of it.
    async fn change(
        &self,
        by: String,
        refused: fn(NicError) -> Status,
        work: impl FnOnce(&Context, &mut Book) -> Result<Change, Status> + Send + 'static,
    ) -> Result<Response<v1::Team>, Status> {
        let context = self.0.clone();
        blocking(move || {
            let mut book = context.teams();
            let mut next = book.clone();
            let change = work(&context, &mut next)?;
            act::carry_out(&context, &mut book, next, change.guid, refused)?;
            context.hub.record(ControlEvent::SettingsChanged {
                owner: Owner::Nic,
                store: STORE,
                what: change.what,
                by,
            });
            let (team, more) = book.get(change.guid).ok_or_else(|| not_found(""))?;
            let ports = message::ports(&context);
            Ok(Response::new(message::message(&context, team, more, &ports)))
        })
        .await?
    }
}

#[tonic::async_trait]
impl v1::team_service_server::TeamService for Together {
    async fn list_teams(
        &self,
        _request: Request<v1::ListTeamsRequest>,
    ) -> Result<Response<v1::ListTeamsResponse>, Status> {
        let context = self.0.clone();
        blocking(move || {
            let book = context.teams().clone();
            let ports = message::ports(&context);
            let teams = book.iter();
            let teams = teams.map(|(team, more)| message::message(&context, team, more, &ports));
            let free = ports.keys().filter(|p| book.teams.team_of(p).is_none());
            Ok(Response::new(v1::ListTeamsResponse {
                teams: teams.collect(),
                free_ports: free.map(|p| names::of(PORTS, p)).collect(),
            }))
        })
        .await?
    }

    async fn get_team(&self, request: Request<v1::GetTeamRequest>) -> Result<Response<v1::Team>, Status> {
        let name = id("name", &request.into_inner().name)?;
        let context = self.0.clone();
        blocking(move || {
            let book = context.teams().clone();
            let guid = guid(&book, &name)?;
            let (team, more) = book.get(guid).ok_or_else(|| not_found(&name))?;
            let ports = message::ports(&context);
            Ok(Response::new(message::message(&context, team, more, &ports)))
        })
        .await?
    }

    async fn create_team(
        &self,
        request: Request<v1::CreateTeamRequest>,
    ) -> Result<Response<v1::Team>, Status> {
        let by = access::who(&request);
        let request = request.into_inner();
        self.change(by, refused, move |context, book| create(context, book, &request))
            .await
    }

    async fn attach_team_member(
        &self,
        request: Request<v1::AttachTeamMemberRequest>,
    ) -> Result<Response<v1::Team>, Status> {
        let by = access::who(&request);
        let request = request.into_inner();
        let refused = |error| from_nic(error, |_| "port".to_owned());
        self.change(by, refused, move |context, book| attach(context, book, &request))
            .await
    }

    async fn detach_team_member(
        &self,
        request: Request<v1::DetachTeamMemberRequest>,
    ) -> Result<Response<v1::Team>, Status> {
        let by = access::who(&request);
        let request = request.into_inner();
        let refused = |error| from_nic(error, |_| "port".to_owned());
        self.change(by, refused, move |_, book| detach(book, &request))
            .await
    }

    async fn update_team(
        &self,
        request: Request<v1::UpdateTeamRequest>,
    ) -> Result<Response<v1::Team>, Status> {
        let by = access::who(&request);
        let request = request.into_inner();
        self.change(by, refused, move |_, book| update(book, &request))
            .await
    }

    async fn delete_team(
        &self,
        request: Request<v1::DeleteTeamRequest>,
    ) -> Result<Response<v1::Team>, Status> {
        let by = access::who(&request);
        let name = id("name", &request.into_inner().name)?;
        let context = self.0.clone();
        blocking(move || {
            let mut book = context.teams();
            let guid = guid(&book, &name)?;
            let (team, more) = book.get(guid).ok_or_else(|| not_found(&name))?;
            let ports = message::ports(&context);
            let last = message::message(&context, team, more, &ports);
            let mut next = book.clone();
            next.teams.remove(&name).map_err(lag)?;
            next.more.remove(&guid);
            act::carry_out(&context, &mut book, next, guid, refused)?;
            context.hub.record(ControlEvent::SettingsChanged {
                owner: Owner::Nic,
                store: STORE,
                what: format!("team \"{name}\" removed"),
                by,
            });
            Ok(Response::new(last))
        })
        .await?
    }

    async fn get_team_view(
        &self,
        request: Request<v1::GetTeamViewRequest>,
    ) -> Result<Response<v1::TeamView>, Status> {
        let name = id("name", &request.into_inner().name)?;
        let context = self.0.clone();
        blocking(move || {
            let book = context.teams().clone();
            let guid = guid(&book, &name)?;
            let (team, more) = book.get(guid).ok_or_else(|| not_found(&name))?;
            let Some(made) = &more.made else {
                let name = names::of(TEAMS, &team.name);
                return Ok(Response::new(v1::TeamView {
                    name,
                    ..v1::TeamView::default()
                }));
            };
            let view = context.nic.bond_view(&made.name).map_err(refused)?;
            Ok(Response::new(message::view(&context, team, more, &view)))
        })
        .await?
    }

    async fn set_team_affinity(
        &self,
        request: Request<v1::SetTeamAffinityRequest>,
    ) -> Result<Response<v1::Team>, Status> {
        let by = access::who(&request);
        let request = request.into_inner();
        self.change(by, refused, move |context, book| {
            set_affinity(context, book, &request)
        })
        .await
    }

    async fn delete_team_affinity(
        &self,
        request: Request<v1::DeleteTeamAffinityRequest>,
    ) -> Result<Response<v1::Team>, Status> {
        let by = access::who(&request);
        let request = request.into_inner();
        self.change(by, refused, move |context, book| {
            delete_affinity(context, book, &request)
        })
        .await
    }
}
