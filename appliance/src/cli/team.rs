//! `vnicctl team`.

mod args;
pub mod show;

use vnic_control::v1;

use super::Failure;
use super::client::{Client, resource};
use super::output::Output;
use super::paging;
use crate::names::{self, PORTS, TEAMS};

use args::AffinityVerb;
pub use args::TeamVerb;

/// Runs a command.
pub async fn run(verb: TeamVerb, client: &Client, out: &Output) -> Result<(), Failure> {
    let mut service = client.teams().await?;
    let team = match verb {
        TeamVerb::Showlist => {
            let all = list(client).await?;
            return out.message("ListTeamsResponse", &all, || show::list(&all));
        }
        TeamVerb::View { name, flows } => {
            let name = team_name(&name);
            let view = service.get_team_view(v1::GetTeamViewRequest { name }).await?;
            return out.answer("TeamView", view, |view| show::view(view, flows));
        }
        TeamVerb::Remove { name } => {
            let name = team_name(&name);
            service
                .delete_team(v1::DeleteTeamRequest {
                    name,
                    etag: String::new(),
                })
                .await?;
            return Ok(());
        }
        TeamVerb::Create { kind, name, settings } => {
            let (mut team, _) = settings.message()?;
            team.set_type(args::kind(kind));
            let request = v1::CreateTeamRequest {
                team_id: name,
                team: Some(team),
            };
            service.create_team(request).await?
        }
        TeamVerb::Attach {
            name,
            port,
            primary,
            set_team_mac,
        } => {
            let request = v1::AttachTeamMemberRequest {
                name: team_name(&name),
                port: resource(PORTS, &port),
                primary,
                set_team_mac_address: set_team_mac,
            };
            service.attach_team_member(request).await?
        }
        TeamVerb::Detach { name, port } => {
            let request = v1::DetachTeamMemberRequest {
                name: team_name(&name),
                port: resource(PORTS, &port),
            };
            service.detach_team_member(request).await?
        }
        TeamVerb::Query { name } => {
            let name = team_name(&name);
            service.get_team(v1::GetTeamRequest { name }).await?
        }
        TeamVerb::Set { name, settings } => {
            let (mut team, paths) = settings.message()?;
            if paths.is_empty() {
                let text = "team set: nothing to change; vnicctl team set --help tells what there is";
                return Err(Failure::Usage(text.to_owned()));
            }
            team.name = team_name(&name);
            let request = v1::UpdateTeamRequest {
                team: Some(team),
                update_mask: Some(prost_types::FieldMask { paths }),
            };
            service.update_team(request).await?
        }
        TeamVerb::Affinity {
            name,
            verb: AffinityVerb::Set { port, what },
        } => {
            let request = v1::SetTeamAffinityRequest {
                name: team_name(&name),
                affinity: Some(what.message(resource(PORTS, &port))),
            };
            service.set_team_affinity(request).await?
        }
        TeamVerb::Affinity {
            name,
            verb: AffinityVerb::Remove { what },
        } => {
            let request = v1::DeleteTeamAffinityRequest {
                name: team_name(&name),
                affinity: Some(what.message(String::new())),
            };
            service.delete_team_affinity(request).await?
        }
    };
    out.answer("Team", team, show::team)
}

/// Resource name of a team; the team's name may have slashes.
pub fn team_name(name: &str) -> String {
    names::of(TEAMS, name)
}

/// Gets all teams, and the ports in none.
pub async fn list(client: &Client) -> Result<v1::ListTeamsResponse, Failure> {
    let mut service = client.teams().await?;
    paging::list(&mut service, v1::ListTeamsRequest::default()).await
}
