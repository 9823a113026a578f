//! Messages of rules for completions and commands: for the service, and for the command line, which makes them from options.

use std::fmt::Debug;
use std::time::Duration;

use vnic_backend::fault::ALWAYS;
use vnic_backend::{CompletionFault, VerbsFaultAction, VerbsFaultSpec, VerbsFaultStatus};
use vnic_control::v1;
use vnic_control::v1::completion_fault::Fault;
use vnic_control::v1::verbs_fault::Action;

use crate::check::verbs_fault as words;
use crate::names;
use crate::stored::values::timestamp;

/// Message of a rule.
pub fn message(spec: &VerbsFaultSpec) -> v1::VerbsFault {
    v1::VerbsFault {
        name: names::of(names::VERBS_FAULTS, &spec.name),
        adapter: names::of(names::ADAPTERS, &spec.adapter),
        skip: spec.skip,
        probability: Some(f64::from(spec.probability) / f64::from(ALWAYS)),
        count: spec.count,
        seed: spec.seed,
        process: spec.process.as_ref().map(ToString::to_string).unwrap_or_default(),
        min_bytes: spec.min_bytes,
        max_bytes: spec.max_bytes,
        after: (!spec.after.is_zero()).then(|| span(spec.after)),
        lasts: spec.lasts.map(span),
        action: Some(action(&spec.action)),
        ..v1::VerbsFault::default()
    }
}

/// A span of a rule, none of which is longer than a few days.
fn span(of: Duration) -> prost_types::Duration {
    prost_types::Duration::try_from(of).unwrap_or_default()
}

/// Message of a rule with its counters, without the lifetime.
pub fn status_message(status: &VerbsFaultStatus) -> v1::VerbsFault {
    v1::VerbsFault {
        id: status.id,
        matched: status.matched,
        injected: status.injected,
        create_time: Some(timestamp(status.created)),
        ..message(&status.spec)
    }
}

fn name(value: impl Debug) -> String {
    format!("{value:?}")
}

fn action(action: &VerbsFaultAction) -> Action {
    match action {
        VerbsFaultAction::Completion { qp, kinds, fault: of } => Action::Completion(v1::CompletionFault {
            queue_pair: *qp,
            kinds: kinds.iter().map(name).collect(),
            fault: Some(fault(*of)),
        }),
        VerbsFaultAction::Command {
            commands,
            status,
            delay,
        } => Action::Command(v1::CommandFault {
            commands: commands.iter().map(name).collect(),
            status: status.map(name).unwrap_or_default(),
            delay: delay.map(span),
        }),
        VerbsFaultAction::NotReady { qp } => Action::NotReady(v1::NotReadyFault { queue_pair: *qp }),
        VerbsFaultAction::Post {
            post,
            qp,
            operations,
            errno,
        } => Action::Post(v1::PostFault {
            post: name(post),
            errno: words::errno_name(*errno),
            queue_pair: *qp,
            operations: operations.iter().map(name).collect(),
        }),
    }
}

fn fault(fault: CompletionFault) -> Fault {
    match fault {
        CompletionFault::Lie(status) => Fault::Lie(name(status)),
        CompletionFault::Fail(status) => Fault::Fail(name(status)),
        CompletionFault::Lose => Fault::Lose(v1::LoseFault {}),
        CompletionFault::Double => Fault::Double(v1::DoubleFault {}),
        CompletionFault::Late(by) => Fault::Late(span(by)),
        CompletionFault::Hang => Fault::Hang(v1::HangFault {}),
        CompletionFault::Swap(at_most) => Fault::Swap(span(at_most)),
        CompletionFault::Length(length) => Fault::Length(length),
        CompletionFault::Immediate(data) => Fault::Immediate(data),
        CompletionFault::Overrun => Fault::Overrun(v1::OverrunFault {}),
        CompletionFault::SrqLimit => Fault::SrqLimit(v1::SrqLimitFault {}),
    }
}
