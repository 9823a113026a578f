//! `vnicctl event`.

use std::time::SystemTime;

use vnic_control::v1;
use vnic_control::v1::event::Severity as Wire;

use super::args::{EventArgs, EventVerb, Severity};
use super::client::Client;
use super::output::Output;
use super::text;
use super::{Failure, paging};
use crate::names;
use crate::same::same;

/// Runs a command.
pub async fn run(verb: EventVerb, client: &Client, out: &Output) -> Result<(), Failure> {
    let mut service = client.events().await?;
    match verb {
        EventVerb::List { filter, last } => {
            let filter = wanted(&filter, client).await?;
            let request = v1::ListEventsRequest {
                filter: Some(filter),
                ..Default::default()
            };
            let mut all = paging::list(&mut service, request).await?;
            if let Some(last) = last {
                let first = all.events.len().saturating_sub(last);
                all.events.drain(..first);
            }
            out.message("ListEventsResponse", &all, || match all.events.as_slice() {
                [] => "no events\n".to_owned(),
                events => events.iter().map(line).collect(),
            })
        }
        EventVerb::Kinds => {
            let list = service.list_event_kinds(v1::ListEventKindsRequest {}).await?;
            out.answer("ListEventKindsResponse", list, |list| {
                text::table! { k in &list.kinds, "no kinds";
                    ">ID": k.id,
                    "KIND": k.kind,
                    "SEVERITY": k.severities().map(severity).collect::<Vec<_>>().join(", "),
                    "MEANING": k.meaning,
                }
            })
        }
        EventVerb::Follow { filter, after } => {
            let request = v1::FollowEventsRequest {
                filter: Some(wanted(&filter, client).await?),
                after_revision: after,
            };
            let mut stream = service.follow_events(request).await?.into_inner();
            while let Some(message) = stream.message().await? {
                let event = message.event.unwrap_or_default();
                out.streamed("Event", &event, || line(&event))?;
            }
            Ok(())
        }
    }
}

same! { fn at_least(Severity) -> Wire { Info, Warning, Error } }

/// Event filter of a request.
async fn wanted(args: &EventArgs, client: &Client) -> Result<v1::EventFilter, Failure> {
    let owner = match &args.owner {
        None => String::new(),
        Some(name) => client.owner(name).await?,
    };
    let is_port = names::id(names::PORTS, &owner).is_some();
    let (adapter, port) = if is_port {
        (String::new(), owner)
    } else {
        (owner, String::new())
    };
    let severity = args.min_severity.map_or(Wire::Unspecified, at_least);
    let since = args.since.and_then(|span| SystemTime::now().checked_sub(span));
    Ok(v1::EventFilter {
        adapter,
        port,
        kind: args.kind.clone().unwrap_or_default(),
        min_severity: severity.into(),
        since: since.map(Into::into),
        id: args.id.unwrap_or(0),
    })
}

/// Severity in a word.
pub fn severity(severity: Wire) -> &'static str {
    match severity {
        Wire::Unspecified => "",
        Wire::Info => "info",
        Wire::Warning => "warning",
        Wire::Error => "error",
    }
}

fn line(e: &v1::Event) -> String {
    let owner = if e.adapter.is_empty() { &e.port } else { &e.adapter };
    let owner = if owner.is_empty() { "-" } else { names::last(owner) };
    format!(
        "{}  {:>4}  {:<7}  {owner:<15}  {}\n",
        text::time(e.time),
        e.id,
        severity(e.severity()),
        e.message
    )
}
