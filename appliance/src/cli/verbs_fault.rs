//! `vnicctl fault verbs`.

mod args;

use vnic_backend::fault::ALWAYS;
use vnic_backend::{CompletionFault, VerbsFaultAction, VerbsFaultSpec};
use vnic_control::v1;
use vnic_control::v1::completion_fault::Fault;
use vnic_control::v1::fault_service_client::FaultServiceClient;
use vnic_control::v1::verbs_fault::Action;

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
            let all = paging::list(service, v1::ListVerbsFaultsRequest::default()).await?;
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

/// What happens to completions; `None`: the rule is about commands.
fn fault(add: &VerbsFaultAdd) -> Option<CompletionFault> {
    let plain = [
        (add.lose, CompletionFault::Lose),
        (add.double, CompletionFault::Double),
        (add.hang, CompletionFault::Hang),
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
    let action = match (fault(&add), add.status) {
        (None, Some(status)) => VerbsFaultAction::Command {
            commands: add.command,
            status,
        },
        (fault, _) => VerbsFaultAction::Completion {
            qp: add.qp,
            kinds: add.kind,
            // One of them is given.
            fault: fault.unwrap_or(CompletionFault::Hang),
        },
    };
    VerbsFaultSpec {
        name: add.name,
        adapter: names::last(&add.adapter).to_owned(),
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
fn action(of: &v1::VerbsFault) -> String {
    let fault = match &of.action {
        Some(Action::Completion(completion)) => completion.fault.as_ref(),
        Some(Action::Command(command)) => return format!("refuse {}", kebab(&command.status)),
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
    }
}

/// What a rule matches, in words.
fn matches(of: &v1::VerbsFault) -> String {
    match &of.action {
        None => String::new(),
        Some(Action::Command(command)) => listed(&command.commands, " or "),
        Some(Action::Completion(completion)) => {
            let kinds = listed(&completion.kinds, " or ");
            let kinds = text::or(&kinds, "any").to_owned();
            let qp = completion.queue_pair.map(|qp| format!(", QP {qp}"));
            format!("completions: {kinds}{}", qp.unwrap_or_default())
        }
    }
}

fn state(of: &v1::VerbsFault) -> &'static str {
    match of.count {
        Some(count) if of.injected >= count => "spent",
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
        "probability": percent(f.probability),
        "skip": number(Some(f.skip).filter(|n| *n > 0)),
        "count": number(f.count),
        "seed": number(f.seed),
        "matched": f.matched,
        "injected": f.injected,
        "state": state(f),
        "created": text::time(f.create_time),
    }
    facts.finish()
}
