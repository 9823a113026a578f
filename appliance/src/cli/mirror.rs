//! `vnicctl mirror`.

use clap::{Args, Subcommand};
use vnic_control::v1;

use super::client::{Client, resource};
use super::output::Output;
use super::text::{self, Facts};
use super::{Failure, paging};
use crate::check;
use crate::names::{self, MIRRORS};

/// Verbs of mirror sessions.
#[derive(Debug, Subcommand)]
pub enum MirrorVerb {
    /// Make a session; it is stored, and comes back when the daemon restarts
    #[command(
        visible_alias = "add",
        after_help = "Examples:\n  vnicctl mirror create ids --source vf0 --destination probe\n  vnicctl mirror create \
                      out --source p0 --direction tx --destination p1\n\nThe destination gets copies and nothing else: the switch \
                      drops what it sends and what is for it (mirror_destination). It is an adapter, or a \
                      port in no team, and no source of a session."
    )]
    Create(MirrorCreate),
    /// List all sessions
    #[command(
        after_help = "Example:\n  vnicctl -o json mirror list | jq '.mirrors[] | select(.problem != \"\") | .name'"
    )]
    List,
    /// Show one session in full
    #[command(after_help = "Example:\n  vnicctl mirror show ids")]
    Show {
        /// Name of the session
        name: String,
    },
    /// End sessions; their destinations are a part of the network again
    #[command(
        visible_alias = "delete",
        after_help = "Example:\n  vnicctl mirror remove ids"
    )]
    Remove {
        /// Names of the sessions
        #[arg(value_name = "NAME", required = true)]
        names: Vec<String>,
    },
}

/// Options of `mirror create`.
#[derive(Debug, Args)]
pub struct MirrorCreate {
    /// Name: 1 to 15 of a-z, 0-9, '-' and '_'
    #[arg(value_parser = check::name)]
    name: String,
    /// Adapter or port whose frames are copied
    #[arg(long, value_name = "NAME")]
    source: String,
    /// rx: what its guest gets, or comes from its wire; tx: what its guest sends, or goes to its wire
    #[arg(long, value_name = "DIRECTION", default_value = "both")]
    direction: Direction,
    /// Adapter or port that gets the copies, and nothing else
    #[arg(long, value_name = "NAME")]
    destination: String,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Direction {
    Rx,
    Tx,
    Both,
}

/// Runs a command.
pub async fn run(verb: MirrorVerb, client: &Client, out: &Output) -> Result<(), Failure> {
    let mut service = client.mirrors().await?;
    match verb {
        MirrorVerb::List => {
            let all = paging::list(&mut service, v1::ListMirrorsRequest::default()).await?;
            out.message("ListMirrorsResponse", &all, || table(&all.mirrors))
        }
        MirrorVerb::Show { name } => {
            let name = resource(MIRRORS, &name);
            let answer = service.get_mirror(v1::GetMirrorRequest { name }).await?;
            out.answer("Mirror", answer, facts)
        }
        MirrorVerb::Create(create) => {
            let direction = match create.direction {
                Direction::Rx => v1::mirror::Direction::Rx,
                Direction::Tx => v1::mirror::Direction::Tx,
                Direction::Both => v1::mirror::Direction::Both,
            };
            let request = v1::CreateMirrorRequest {
                mirror_id: create.name,
                mirror: Some(v1::Mirror {
                    source: client.owner(&create.source).await?,
                    direction: direction.into(),
                    destination: client.owner(&create.destination).await?,
                    ..v1::Mirror::default()
                }),
            };
            out.answer("Mirror", service.create_mirror(request).await?, facts)
        }
        MirrorVerb::Remove { names } => {
            for name in names {
                let name = resource(MIRRORS, &name);
                service.delete_mirror(v1::DeleteMirrorRequest { name }).await?;
            }
            Ok(())
        }
    }
}

fn direction(mirror: &v1::Mirror) -> &'static str {
    match mirror.direction() {
        v1::mirror::Direction::Unspecified => "",
        v1::mirror::Direction::Rx => "rx",
        v1::mirror::Direction::Tx => "tx",
        v1::mirror::Direction::Both => "both",
    }
}

fn state(mirror: &v1::Mirror) -> &'static str {
    if mirror.problem.is_empty() {
        "runs"
    } else {
        "waits"
    }
}

fn table(mirrors: &[v1::Mirror]) -> String {
    text::table! { m in mirrors, "no mirror sessions";
        "NAME": names::last(&m.name),
        "STATE": state(m),
        "SOURCE": names::last(&m.source),
        "DIRECTION": direction(m),
        "DESTINATION": names::last(&m.destination),
        ">MIRRORED": text::count(m.mirrored_frames),
        ">DROPS": text::count(m.dropped_frames),
    }
}

fn facts(m: &v1::Mirror) -> String {
    let mut facts = Facts::default();
    facts
        .add("name", names::last(&m.name))
        .add("state", state(m))
        .add("source", m.source.clone())
        .add("direction", direction(m))
        .add("destination", m.destination.clone())
        .add("mirrored", format!("{} frames", m.mirrored_frames))
        .add("dropped", format!("{} copies", m.dropped_frames))
        .add("made", text::time(m.create_time))
        .add("problem", m.problem.clone());
    facts.finish()
}
