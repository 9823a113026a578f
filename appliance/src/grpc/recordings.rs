//! Recordings of `vnic.v1.FaultService`.

use std::collections::BTreeMap;
use std::sync::Arc;

use prost::Message as _;
use tonic::Status;
use vnic_backend::{Fate, RECORDED_DEFAULT, Recorded, RecordingStatus, Seen, There, WorkStatus};
use vnic_control::v1;
use vnic_control::v1::list_outcomes_request::Filter;

use super::convert;
use super::errors::{id, invalid};
use super::paging::page;
use crate::access::blocking;
use crate::control::{Control, Process, Recordings};
use crate::names;
use crate::stored::values::{duration, timestamp};

/// Begins a recording. May block.
pub fn start(control: &Control, request: &v1::StartRecordingRequest) -> Result<v1::Recording, Status> {
    let adapters = (0..).zip(&request.adapters);
    let adapters: Result<Vec<String>, Status> = adapters
        .map(|(i, name)| id(names::ADAPTERS, &format!("adapters[{i}]"), name))
        .collect();
    let limit = match request.limit {
        0 => RECORDED_DEFAULT,
        limit => limit,
    };
    Ok(message(&Recordings(control).start(&adapters?, limit)?))
}

/// Ends the recording. May block.
pub fn stop(control: &Control) -> Result<v1::Recording, Status> {
    Ok(message(&Recordings(control).stop()?))
}

fn message(status: &RecordingStatus) -> v1::Recording {
    let adapters = status.adapters.iter();
    v1::Recording {
        adapters: adapters.map(|name| names::of(names::ADAPTERS, name)).collect(),
        limit: status.limit,
        start_time: Some(timestamp(status.began)),
        running: status.runs,
        requests: status.requests,
        dropped: status.dropped,
        lost: status.lost,
    }
}

fn name(status: WorkStatus) -> String {
    format!("{status:?}")
}

fn view(seen: &Seen) -> v1::ResponderView {
    v1::ResponderView {
        adapter: names::of(names::ADAPTERS, &seen.adapter),
        queue_pair: seen.qp,
        executions: seen.times,
        bytes: seen.bytes,
        time: seen.at.map(duration),
        receive_wr_id: seen.receive.map(|receive| receive.wr_id),
        receive_status: seen
            .receive
            .and_then(|receive| receive.told)
            .map_or_else(String::new, name),
    }
}

fn outcome(fate: &Fate, process: Option<&Process>) -> v1::Outcome {
    let operation = fate.operation;
    v1::Outcome {
        adapter: names::of(names::ADAPTERS, &fate.adapter),
        process_index: fate.process,
        process: process.map(|p| convert::process(p.caller, p.command.as_deref())),
        queue_pair_index: fate.pair,
        queue_pair: fate.qp,
        wr_id: fate.wr_id,
        operation: operation.map_or_else(|| "Receive".to_owned(), |o| format!("{o:?}")),
        bytes: fate.bytes,
        signaled: fate.signaled,
        posted: fate.posted.map(duration),
        psn: fate.psns.map(|(first, last)| v1::PsnRange { first, last }),
        told_status: fate.told.map_or_else(String::new, |(status, _)| name(status)),
        told: fate.told.map(|(_, at)| duration(at)),
        real_status: fate.really.map_or_else(String::new, name),
        responder: match &fate.there {
            There::Seen(seen) => Some(view(seen)),
            _ => None,
        },
        verdict: fate.verdict(),
        lie: fate.is_lie(),
    }
}

/// Lists a page.
pub async fn list(
    control: &Arc<Control>,
    request: v1::ListOutcomesRequest,
) -> Result<v1::ListOutcomesResponse, Status> {
    let page = page!(request, "ListOutcomes", [100, 10_000])?;
    let filter = Filter::try_from(request.filter)
        .map_err(|_| invalid("filter", format!("{} is no filter", request.filter)))?;
    let (after, size, control) = (page.after_number()?, page.size(), control.clone());
    let part = blocking(move || {
        Recordings(&control).part(after, size, |fate| match filter {
            Filter::Unspecified => true,
            Filter::Lies => fate.is_lie(),
            Filter::Failed => fate.failed(),
        })
    })
    .await?;
    let outcomes = part.fates.iter();
    let outcomes = outcomes.map(|(place, fate, process)| (*place, outcome(fate, process.as_ref())));
    let next = part.next.map_or_else(String::new, |next| page.token(next));
    let key = |(place, _): &(u64, v1::Outcome)| (place + 1).to_string();
    let (outcomes, next_page_token) = page.fit((outcomes.collect(), next), key, |(_, outcome)| {
        outcome.encoded_len()
    });
    Ok(v1::ListOutcomesResponse {
        outcomes: outcomes.into_iter().map(|(_, outcome)| outcome).collect(),
        next_page_token,
        recording: part.status.as_ref().map(message),
        verdicts: verdicts(part.summary),
    })
}

fn verdicts(summary: BTreeMap<String, u64>) -> Vec<v1::VerdictCount> {
    let all = summary.into_iter();
    all.map(|(verdict, requests)| v1::VerdictCount { verdict, requests })
        .collect()
}

/// All that a recording noted, as a list of one page.
pub fn whole(recorded: &Recorded) -> v1::ListOutcomesResponse {
    v1::ListOutcomesResponse {
        outcomes: recorded.fates.iter().map(|fate| outcome(fate, None)).collect(),
        next_page_token: String::new(),
        recording: Some(message(&recorded.status)),
        verdicts: verdicts(recorded.summary.clone()),
    }
}
