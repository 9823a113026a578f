//! `vnicctl fault verbs`.

mod args;

use std::time::{Duration, SystemTime};

use vnic_backend::fault::ALWAYS;
use vnic_backend::{CompletionFault, VerbsFaultAction, VerbsFaultSpec};
use vnic_control::v1;
use vnic_control::v1::completion_fault::Fault;
use vnic_control::v1::fault_service_client::FaultServiceClient;
use vnic_control::v1::verbs_fault::Action;

use super::adapter::lifetime;
use super::client::resource;
use super::fault::{percent, span};
use super::output::Output;
use super::rehearsal::Channel;
use super::text::{self, Facts};
use super::{Failure, paging};
use crate::check::verbs_fault::kebab;
use crate::names::{self, VERBS_FAULTS};
use crate::verbs_faults::message;
use args::VerbsFaultAdd;
pub use args::VerbsFaultVerb;

/// Runs a command.
pub async fn run(
    verb: VerbsFaultVerb,
    service: &mut FaultServiceClient<Channel>,
    out: &Output,
) -> Result<(), Failure> {
    match verb {
        VerbsFaultVerb::Add(add) => {
            let spec = spec(*add);
            let request = v1::CreateVerbsFaultRequest {
                verbs_fault_id: spec.name.clone(),
                verbs_fault: Some(message(&spec)),
            };
            out.answer("VerbsFault", service.create_verbs_fault(request).await?, facts)
        }
        VerbsFaultVerb::List => {
            let all = list(service).await?;
            out.message("ListVerbsFaultsResponse", &all, || table(&all.verbs_faults))
        }
        VerbsFaultVerb::Remove { names } => {
            for name in names {
                let name = resource(VERBS_FAULTS, &name);
                let request = v1::DeleteVerbsFaultRequest { name };
                service.delete_verbs_fault(request).await?;
            }
            Ok(())
        }
    }
}

/// All rules, page by page.
pub async fn list(service: &mut FaultServiceClient<Channel>) -> Result<v1::ListVerbsFaultsResponse, Failure> {
    paging::list(service, v1::ListVerbsFaultsRequest::default()).await
}

/// What happens to completions; `None`: the rule is about something else.
fn fault(add: &VerbsFaultAdd) -> Option<CompletionFault> {
    let plain = [
        (add.lose, CompletionFault::Lose),
        (add.double, CompletionFault::Double),
        (add.hang, CompletionFault::Hang),
        (add.overrun, CompletionFault::Overrun),
        (add.srq_limit, CompletionFault::SrqLimit),
    ];
    let plain = plain.into_iter().find(|(given, _)| *given);
    None.or(add.lie.map(CompletionFault::Lie))
        .or(add.fail.map(CompletionFault::Fail))
        .or(add.late.map(CompletionFault::Late))
        .or(add.swap.map(CompletionFault::Swap))
        .or(add.length.map(CompletionFault::Length))
        .or(add.immediate.map(CompletionFault::Immediate))
        .or(plain.map(|(_, fault)| fault))
}

/// Rule that the options describe.
fn spec(add: VerbsFaultAdd) -> VerbsFaultSpec {
    let post = add.post.zip(add.errno);
    let action = match fault(&add) {
        Some(fault) => VerbsFaultAction::Completion {
            qp: add.qp,
            kinds: add.kind,
            fault,
        },
        None if add.not_ready => VerbsFaultAction::NotReady { qp: add.qp },
        None => match post {
            Some((post, errno)) => VerbsFaultAction::Post {
                post,
                qp: add.qp,
                operations: add.operation,
                errno,
            },
            None => VerbsFaultAction::Command {
                commands: add.command,
                status: add.status,
                delay: add.delay,
            },
        },
    };
    VerbsFaultSpec {
        name: add.name,
        adapter: names::last(&add.adapter).to_owned(),
        process: add.process,
        min_bytes: add.min_bytes,
        max_bytes: add.max_bytes,
        after: add.after.unwrap_or_default(),
        lasts: add.lasts,
        action,
        skip: add.skip,
        probability: add.probability.unwrap_or(ALWAYS),
        count: add.count,
        seed: add.seed,
    }
}

/// Names of a message in one cell.
fn listed(all: &[String], between: &str) -> String {
    let all: Vec<String> = all.iter().map(|name| kebab(name)).collect();
    all.join(between)
}

/// Action of a rule in words.
pub fn action(of: &v1::VerbsFault) -> String {
    let fault = match &of.action {
        Some(Action::Completion(completion)) => completion.fault.as_ref(),
        Some(Action::Command(command)) => {
            let refuse = (!command.status.is_empty()).then(|| format!("refuse {}", kebab(&command.status)));
            let delay = command.delay.map(|by| format!("delay {}", span(Some(by))));
            let both: Vec<String> = delay.into_iter().chain(refuse).collect();
            return both.join(", ");
        }
        Some(Action::NotReady(_)) => return "not-ready".to_owned(),
        Some(Action::Post(post)) => return post.errno.clone(),
        None => None,
    };
    match fault {
        None => String::new(),
        Some(Fault::Lie(status)) => format!("lie {}", kebab(status)),
        Some(Fault::Fail(status)) => format!("fail {}", kebab(status)),
        Some(Fault::Lose(_)) => "lose".to_owned(),
        Some(Fault::Double(_)) => "double".to_owned(),
        Some(Fault::Late(by)) => format!("late {}", span(Some(*by))),
        Some(Fault::Hang(_)) => "hang".to_owned(),
        Some(Fault::Swap(at_most)) => format!("swap, at most {}", span(Some(*at_most))),
        Some(Fault::Length(length)) => format!("length {length}"),
        Some(Fault::Immediate(data)) => format!("immediate {data:#x}"),
        Some(Fault::Overrun(_)) => "overrun".to_owned(),
        Some(Fault::SrqLimit(_)) => "srq-limit".to_owned(),
    }
}

/// What a rule matches, in words.
pub fn matches(of: &v1::VerbsFault) -> String {
    let (mut all, qp) = match &of.action {
        None => (String::new(), None),
        Some(Action::Command(command)) => (listed(&command.commands, " or "), None),
        Some(Action::NotReady(messages)) => ("messages".to_owned(), messages.queue_pair),
        Some(Action::Post(of)) => {
            let operations = listed(&of.operations, " or ");
            let operations = text::or(&operations, "any");
            let post = match &*of.post {
                "Send" => format!("posts: {operations}"),
                post => format!("posts: {}", kebab(post)),
            };
            (post, of.queue_pair)
        }
        Some(Action::Completion(completion)) => {
            let kinds = listed(&completion.kinds, " or ");
            let kinds = text::or(&kinds, "any");
            (format!("completions: {kinds}"), completion.queue_pair)
        }
    };
    let process = (!of.process.is_empty()).then(|| format!("process {}", of.process));
    let bytes = match (of.min_bytes, of.max_bytes) {
        (None, None) => None,
        (min, None) => min.map(|min| format!("{min} bytes or more")),
        (min, Some(max)) => Some(format!("{} to {max} bytes", min.unwrap_or(0))),
    };
    let qp = qp.map(|qp| format!("QP {qp}"));
    for more in [qp, process, bytes].into_iter().flatten() {
        all += ", ";
        all += &more;
    }
    all
}

/// When a rule acts, in words; empty: always.
fn window(of: &v1::VerbsFault) -> String {
    let after = of.after.map(|after| format!("from {}", span(Some(after))));
    let lasts = of.lasts.map(|lasts| format!("for {}", span(Some(lasts))));
    let both: Vec<String> = after.into_iter().chain(lasts).collect();
    both.join(" ")
}

/// Times since its making at which a rule begins, and ends.
fn times(of: &v1::VerbsFault) -> (Duration, Option<Duration>) {
    let read = |span: Option<prost_types::Duration>| span.and_then(|span| Duration::try_from(span).ok());
    let begins = read(of.after).unwrap_or_default();
    (begins, read(of.lasts).map(|lasts| begins + lasts))
}

/// Where a rule is in its life.
pub fn state(of: &v1::VerbsFault) -> &'static str {
    let made = of.create_time.and_then(|time| SystemTime::try_from(time).ok());
    let age = made.and_then(|made| made.elapsed().ok()).unwrap_or_default();
    let (begins, ends) = times(of);
    match of.count {
        Some(count) if of.injected >= count => "spent",
        _ if ends.is_some_and(|ends| age >= ends) => "over",
        _ if age < begins => "waiting",
        _ => "active",
    }
}

fn table(all: &[v1::VerbsFault]) -> String {
    text::table! { f in all, "no faults of verbs";
        ">ID": f.id,
        "NAME": names::last(&f.name),
        "ADAPTER": names::last(&f.adapter),
        "MATCHES": matches(f),
        ">PROBABILITY": percent(f.probability),
        "ACTION": action(f),
        ">MATCHED": text::count(f.matched),
        ">INJECTED": text::count(f.injected),
        "STATE": state(f),
    }
}

fn facts(f: &v1::VerbsFault) -> String {
    let number = |n: Option<u64>| n.map(|n| n.to_string()).unwrap_or_default();
    let mut facts = Facts::default();
    text::facts! { facts;
        "name": names::last(&f.name),
        "id": f.id,
        "adapter": names::last(&f.adapter),
        "matches": matches(f),
        "action": action(f),
        "acts": window(f),
        "probability": percent(f.probability),
        "skip": number(Some(f.skip).filter(|n| *n > 0)),
        "count": number(f.count),
        "seed": number(f.seed),
        "matched": f.matched,
        "injected": f.injected,
        "state": state(f),
        "created": text::time(f.create_time),
        "lifetime": lifetime(f.lifetime()),
    }
    facts.finish()
}
