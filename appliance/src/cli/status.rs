//! `vnicctl status`: the state of a daemon on one page, what is odd about it, and what to do.

mod advice;
mod args;
mod findings;
mod page;
mod state;

use std::time::{Duration, SystemTime};

use serde::Serialize;
use vnic_control::v1;
use vnic_control::v1::event::Severity;
use vnic_control::v1::queue_pair::State;

use super::client::Client;
use super::look::Looker;
use super::output::Output;
use super::{Failure, counter, fault, paging, server, team, text, verbs_fault};
pub use args::StatusArgs;
use findings::Finding;
use state::{Answers, Status};

/// What is printed as JSON.
#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    status: &'a Status,
    findings: &'a [Finding],
}

/// Prints the state of the daemon and what is odd.
pub async fn run(args: StatusArgs, client: &Client, out: &Output) -> Result<(), Failure> {
    let (status, findings) = look(&args, client).await?;
    let value = document(&status, &findings)?;
    let since = text::span(Some(counter::wire_span(args.since)?));
    out.value(&value, || page::text(&status, &findings, &since))?;
    match findings.len() {
        n if n > 0 && args.check => Err(Failure::Failed(format!("findings: {n}"))),
        _ => Ok(()),
    }
}

/// State of the daemon and what is odd, as `-o json` has them.
pub async fn json(args: &StatusArgs, client: &Client) -> Result<serde_json::Value, Failure> {
    let (status, findings) = look(args, client).await?;
    document(&status, &findings)
}

fn document(status: &Status, findings: &[Finding]) -> Result<serde_json::Value, Failure> {
    serde_json::to_value(Document { status, findings }).map_err(|e| Failure::Failed(e.to_string()))
}

/// Looks twice, and finds what is odd.
async fn look(args: &StatusArgs, client: &Client) -> Result<(Status, Vec<Finding>), Failure> {
    let mut looker = Looker::new(client).await?;
    let before = looker.look().await?;
    let answers = ask(client, args.since).await?;
    tokio::time::sleep(args.interval).await;
    let now = looker.look().await?;
    let status = Status::new(&before, &now, &answers);
    let findings = findings::of(&status);
    Ok((status, findings))
}

/// Asks for all that does not grow.
async fn ask(client: &Client, since: Duration) -> Result<Answers, Failure> {
    let serving = server::is_serving(client).await?;
    let mut service = client.server().await?;
    let info = service.get_server_info(v1::GetServerInfoRequest {}).await?;
    let mut rdma = client.rdma().await?;
    let request = v1::ListQueuePairsRequest {
        states: vec![State::Err.into(), State::Sqe.into()],
        ..Default::default()
    };
    let queue_pairs = paging::list(&mut rdma, request).await?;
    let mut registry = client.registry().await?;
    let entries = paging::list(&mut registry, v1::ListEntriesRequest::default()).await?;
    let mut nv = client.nvconfig().await?;
    let nv = nv.list_nv_parameters(v1::ListNvParametersRequest {}).await?;
    let mut events = client.events().await?;
    let filter = v1::EventFilter {
        min_severity: Severity::Warning.into(),
        since: SystemTime::now().checked_sub(since).map(Into::into),
        ..v1::EventFilter::default()
    };
    let request = v1::ListEventsRequest {
        filter: Some(filter),
        ..Default::default()
    };
    let events = paging::list(&mut events, request).await?;
    Ok(Answers {
        serving,
        info: info.into_inner(),
        teams: team::list(client).await?.teams,
        queue_pairs: queue_pairs.queue_pairs,
        entries: entries.entries,
        nv: nv.into_inner().parameters,
        faults: fault::list(client).await?.faults,
        verbs_faults: verbs_fault::list(&mut client.faults().await?).await?.verbs_faults,
        events: events.events,
    })
}
