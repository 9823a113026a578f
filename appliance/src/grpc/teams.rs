//! `vnic.v1.TeamService`.

mod message;

use std::sync::Arc;

use prost::Message as _;
use tonic::{Request, Status};
use vnic_backend::lag::{Affinity, TeamType};
use vnic_control::v1;

use super::answer::{Answer, Stream, answer};
use super::errors::{form, id, invalid};
use super::looks::{self, resource};
use super::paging::page;
use crate::access::{self};
use crate::check::{Checked, Violations};
use crate::control::{Control, Refused, TeamNow, Teams};
use crate::names::{self, ADAPTERS, PORTS, TEAMS};
use crate::stored::teams as form;
use crate::teams::Draft;

/// The service.
pub struct Together(pub Arc<Control>);

/// Name of a team in a resource name: all after the collection.
fn team_id(field: &str, name: &str) -> Result<String, Status> {
    let id = name.strip_prefix(TEAMS).and_then(|n| n.strip_prefix('/'));
    id.filter(|id| !id.is_empty())
        .map(str::to_owned)
        .ok_or_else(|| invalid(field, form(name, "teams/{team}")))
}

/// Reads a new team.
fn draft(asked: &v1::Team) -> Result<Draft, Violations> {
    let mut wrong = Violations::default();
    let kind = match asked.r#type() {
        v1::team::Type::Aggregate => Some(TeamType::Aggregate),
        v1::team::Type::Failover => Some(TeamType::Failover),
        v1::team::Type::Unspecified => {
            wrong.add("team.type", "required: aggregate or failover");
            None
        }
    };
    let kind = kind.unwrap_or(TeamType::Aggregate);
    let mut draft = Draft::new(kind, false, (0, 0), Default::default());
    for field in form::whole() {
        form::take(&mut draft, field, asked, &mut wrong);
    }
    draft.check(&mut wrong);
    wrong.finish(Some(draft))
}

/// Reads an affinity of a request; `mac` gives the address of the adapter of a queue pair.
fn affinity(
    asked: Option<&v1::TeamAffinity>,
    mac: impl Fn(&v1::TeamQueuePair) -> Checked<vnic_backend::MacAddr>,
) -> Result<(Affinity, Option<String>), Violations> {
    let mut wrong = Violations::default();
    let read = form::affinity(asked, mac, &mut wrong);
    wrong.finish(read)
}

/// Address of the adapter of a queue pair.
fn adapter_mac(teams: &Teams<'_>, pair: &v1::TeamQueuePair) -> Checked<vnic_backend::MacAddr> {
    let name = &pair.adapter;
    let id = names::id(ADAPTERS, name);
    let id = id.ok_or_else(|| form(name, "adapters/{adapter}"))?;
    teams.adapter_mac(id)
}

impl Together {
    /// Does `work` on a team; responds with its state after that.
    async fn answer(
        &self,
        work: impl FnOnce(&Teams<'_>) -> Result<TeamNow, Refused> + Send + 'static,
    ) -> Answer<v1::Team> {
        answer(&self.0, move |control| {
            let now = work(&Teams(control))?;
            Ok(message::message(&now))
        })
        .await
    }
}

resource!(Team, WatchTeamsResponse { team }: |control| {
    let (all, _) = Teams(control).list();
    let mut teams: Vec<v1::Team> = all.iter().map(message::message).collect();
    for lacp in teams.iter_mut().flat_map(|team| &mut team.members).filter_map(|m| m.lacp.as_mut()) {
        (lacp.sent, lacp.received, lacp.markers) = (0, 0, 0);
    }
    teams
});

#[tonic::async_trait]
impl v1::team_service_server::TeamService for Together {
    async fn list_teams(&self, request: Request<v1::ListTeamsRequest>) -> Answer<v1::ListTeamsResponse> {
        let request = request.into_inner();
        answer(&self.0, move |control| {
            let page = page!(request, "ListTeams", [256, 256])?;
            let (teams, free) = Teams(control).list();
            let teams = teams.iter().map(|now| (now.more.number, message::message(now)));
            let key = |(number, _): &(u64, v1::Team)| format!("{number:020}");
            let cut = page.cut(teams.collect(), key);
            let (teams, next_page_token) = page.fit(cut, key, |(_, team)| team.encoded_len());
            Ok(v1::ListTeamsResponse {
                teams: teams.into_iter().map(|(_, team)| team).collect(),
                free_ports: free.iter().map(|p| names::of(PORTS, p)).collect(),
                next_page_token,
            })
        })
        .await
    }

    async fn get_team(&self, request: Request<v1::GetTeamRequest>) -> Answer<v1::Team> {
        let name = team_id("name", &request.into_inner().name)?;
        self.answer(move |teams| teams.get(&name)).await
    }

    async fn create_team(&self, request: Request<v1::CreateTeamRequest>) -> Answer<v1::Team> {
        let by = access::who(&request);
        let request = request.into_inner();
        let asked = request.team.unwrap_or_default();
        let draft = draft(&asked)?;
        self.answer(move |teams| teams.create(&by, &request.team_id, &draft, asked.ipoib))
            .await
    }

    async fn attach_team_member(&self, request: Request<v1::AttachTeamMemberRequest>) -> Answer<v1::Team> {
        let by = access::who(&request);
        let request = request.into_inner();
        let name = team_id("name", &request.name)?;
        let port = id(PORTS, "port", &request.port)?;
        let how = (request.primary, request.set_team_mac_address);
        self.answer(move |teams| teams.attach(&by, &name, &port, how))
            .await
    }

    async fn detach_team_member(&self, request: Request<v1::DetachTeamMemberRequest>) -> Answer<v1::Team> {
        let by = access::who(&request);
        let request = request.into_inner();
        let name = team_id("name", &request.name)?;
        let port = id(PORTS, "port", &request.port)?;
        self.answer(move |teams| teams.detach(&by, &name, &port)).await
    }

    async fn update_team(&self, request: Request<v1::UpdateTeamRequest>) -> Answer<v1::Team> {
        let by = access::who(&request);
        let request = request.into_inner();
        let asked = request.team.unwrap_or_default();
        let fields = request.update_mask.unwrap_or_default().paths;
        let name = team_id("team.name", &asked.name)?;
        self.answer(move |teams| {
            teams.update(&by, &name, (&asked.etag, &fields), |fields, draft| {
                let mut wrong = Violations::default();
                for field in fields {
                    form::take(draft, field, &asked, &mut wrong);
                }
                draft.check(&mut wrong);
                wrong.finish(Some(()))
            })
        })
        .await
    }

    async fn delete_team(&self, request: Request<v1::DeleteTeamRequest>) -> Answer<v1::Team> {
        let by = access::who(&request);
        let request = request.into_inner();
        let name = team_id("name", &request.name)?;
        self.answer(move |teams| teams.remove(&by, &name, &request.etag))
            .await
    }

    async fn get_team_view(&self, request: Request<v1::GetTeamViewRequest>) -> Answer<v1::TeamView> {
        let name = team_id("name", &request.into_inner().name)?;
        answer(&self.0, move |control| {
            let now = Teams(control).view(&name)?;
            Ok(message::view(control, &now))
        })
        .await
    }

    async fn set_team_affinity(&self, request: Request<v1::SetTeamAffinityRequest>) -> Answer<v1::Team> {
        let by = access::who(&request);
        let request = request.into_inner();
        let name = team_id("name", &request.name)?;
        let asked = request.affinity;
        let port = asked.as_ref().map(|a| a.port.as_str()).unwrap_or_default();
        let port = id(PORTS, "affinity.port", port)?;
        self.answer(move |teams| {
            teams.set_affinity(&by, &name, &port, || {
                affinity(asked.as_ref(), |pair| adapter_mac(teams, pair))
            })
        })
        .await
    }

    async fn delete_team_affinity(
        &self,
        request: Request<v1::DeleteTeamAffinityRequest>,
    ) -> Answer<v1::Team> {
        let by = access::who(&request);
        let request = request.into_inner();
        let name = team_id("name", &request.name)?;
        self.answer(move |teams| {
            // If the adapter is gone, its name finds the affinity.
            let known = |pair: &v1::TeamQueuePair| {
                let known = teams.known_mac(&name, names::last(&pair.adapter), pair.qp);
                known.map_or_else(|| adapter_mac(teams, pair), Ok)
            };
            let (what, _) = affinity(request.affinity.as_ref(), known)?;
            teams.remove_affinity(&by, &name, what)
        })
        .await
    }

    type WatchTeamsStream = Stream<v1::WatchTeamsResponse>;

    async fn watch_teams(&self, request: Request<v1::WatchRequest>) -> Answer<Self::WatchTeamsStream> {
        looks::watch::<v1::Team>(&self.0, request.into_inner(), |name| {
            team_id("name", name).map(drop)
        })
        .await
    }
}
