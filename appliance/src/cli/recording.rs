//! `vnicctl fault record` and `vnicctl fault report`.

use std::fmt::Write as _;

use clap::ValueEnum;
use vnic_control::v1;
use vnic_control::v1::fault_service_client::FaultServiceClient;
use vnic_control::v1::list_outcomes_request::Filter;

use super::args::RecordVerb;
use super::client::resource;
use super::output::Output;
use super::rehearsal::Channel;
use super::text::{self, Facts};
use super::{Failure, paging};
use crate::names::{self, ADAPTERS};
use crate::same::same;

type Service = FaultServiceClient<Channel>;

/// Requests that a report shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Only {
    /// Those whose program was told something else than what happened, or not told what did
    Lies,
    /// Those whose program was told that they failed
    Failed,
    /// All
    #[value(name = "all")]
    Unspecified,
}

same! { fn filter(Only) -> Filter { Lies, Failed, Unspecified } }

/// Begins or ends a recording.
pub async fn run(verb: RecordVerb, service: &mut Service, out: &Output) -> Result<(), Failure> {
    let recording = match verb {
        RecordVerb::Start { adapters, limit } => {
            let adapters = adapters.iter().map(|name| resource(ADAPTERS, name)).collect();
            let request = v1::StartRecordingRequest { adapters, limit };
            service.start_recording(request).await?
        }
        RecordVerb::Stop => service.stop_recording(v1::StopRecordingRequest {}).await?,
    };
    out.answer("Recording", recording, facts)
}

/// Shows what became of the requests of the last recording.
pub async fn report(
    only: Only,
    comparable: bool,
    service: &mut Service,
    out: &Output,
) -> Result<(), Failure> {
    let request = v1::ListOutcomesRequest {
        filter: filter(only).into(),
        ..Default::default()
    };
    let mut report = paging::list(service, request).await?;
    match &report.recording {
        None => return Err(Failure::Failed("nothing was recorded: fault record start".into())),
        Some(recording) if recording.running => {
            let text = "the recording still runs: fault record stop ends it, and compares";
            return Err(Failure::Failed(text.into()));
        }
        Some(_) => {}
    }
    if comparable {
        forget(&mut report);
    }
    out.message("ListOutcomesResponse", &report, || words(&report))
}

/// A report as text, without what differs between two runs that do the same.
pub fn comparable(mut report: v1::ListOutcomesResponse) -> String {
    forget(&mut report);
    words(&report)
}

/// Takes out what differs between two runs that do the same.
fn forget(report: &mut v1::ListOutcomesResponse) {
    if let Some(recording) = &mut report.recording {
        recording.start_time = None;
    }
    for outcome in &mut report.outcomes {
        (outcome.posted, outcome.told, outcome.psn) = (None, None, None);
        (outcome.process, outcome.queue_pair) = (None, 0);
        if let Some(responder) = &mut outcome.responder {
            (responder.time, responder.queue_pair) = (None, 0);
        }
    }
}

fn facts(r: &v1::Recording) -> String {
    let adapters: Vec<&str> = r.adapters.iter().map(|name| names::last(name)).collect();
    let mut facts = Facts::default();
    text::facts! { facts;
        "adapters": adapters.join(", "),
        "limit": format_args!("{} requests of each process", r.limit),
        "started": text::time(r.start_time),
        "state": if r.running { "running" } else { "ended" },
    }
    if !r.running {
        text::facts! { facts;
            "requests": text::count(r.requests),
            "dropped": text::count(r.dropped),
            "lost": text::count(r.lost),
        }
    }
    facts.finish()
}

/// Time of something from the beginning of the recording on.
fn at(span: Option<prost_types::Duration>) -> String {
    span.map_or_else(String::new, |d| format!("{}.{:06}", d.seconds, d.nanos / 1000))
}

/// What the program was told, and when.
fn told(o: &v1::Outcome) -> String {
    match (&*o.told_status, o.told) {
        ("", _) => "-".to_owned(),
        (status, None) => status.to_owned(),
        (status, told) => format!("{status} {}", at(told)),
    }
}

fn process(o: &v1::Outcome) -> String {
    match &o.process {
        None => format!("#{}", o.process_index),
        Some(p) => {
            let named = [p.command.clone(), p.pid.to_string()];
            let known = named.into_iter().filter(|text| !text.is_empty() && text != "0");
            let known: Vec<String> = known.collect();
            format!("#{} {}", o.process_index, known.join(" "))
        }
    }
}

fn queue_pair(o: &v1::Outcome) -> String {
    match o.queue_pair {
        0 => format!("#{}", o.queue_pair_index),
        number => format!("#{} {number:#x}", o.queue_pair_index),
    }
}

fn done(o: &v1::Outcome) -> String {
    let done = |r: &v1::ResponderView| {
        let there = names::last(&r.adapter);
        let time = r.time.map_or_else(String::new, |t| format!(" {}", at(Some(t))));
        format!("{there}: {} x, {} B{time}", r.executions, r.bytes)
    };
    o.responder.as_ref().map_or_else(|| "-".to_owned(), done)
}

fn receive(o: &v1::Outcome) -> String {
    let taken = |r: &v1::ResponderView| {
        let id = r.receive_wr_id?;
        Some(format!("{id} {}", text::or(&r.receive_status, "-")))
    };
    o.responder.as_ref().and_then(taken).unwrap_or_default()
}

fn words(report: &v1::ListOutcomesResponse) -> String {
    let mut all = text::table! { o in &report.outcomes, "no such requests";
        "ADAPTER": names::last(&o.adapter),
        "PROCESS": process(o),
        "QP": queue_pair(o),
        ">WR_ID": o.wr_id,
        "OPERATION": o.operation,
        ">BYTES": o.bytes,
        "PSN": o.psn.as_ref().map_or_else(String::new, |p| format!("{}-{}", p.first, p.last)),
        ">POSTED": at(o.posted),
        "TOLD": told(o),
        "REALLY": text::or(&o.real_status, "-"),
        "DONE": done(o),
        "RECEIVE": receive(o),
        "VERDICT": o.verdict,
    };
    all.push('\n');
    for v in &report.verdicts {
        let _ = writeln!(all, "{:>8}  {}", v.requests, v.verdict);
    }
    let r = report.recording.clone().unwrap_or_default();
    let missing = [
        (r.dropped, "requests are not there: newer ones needed their room"),
        (
            r.lost,
            "other notes are not there: requests may look as if they had not been carried out",
        ),
    ];
    for (count, what) in missing.into_iter().filter(|(count, _)| *count > 0) {
        let _ = writeln!(all, "{count:>8}  {what}");
    }
    all
}
