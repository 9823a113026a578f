//! Rules for completions and commands of `vnic.v1.FaultService`.

use std::sync::Arc;
use std::time::Duration;

use tonic::Status;
use vnic_backend::fault::ALWAYS;
use vnic_backend::{CompletionFault, VerbsFaultAction, VerbsFaultSpec, VerbsFaultStatus};
use vnic_control::v1;
use vnic_control::v1::completion_fault::Fault;
use vnic_control::v1::verbs_fault::Action;

use super::errors::{form, id};
use super::paging::page;
use crate::access::blocking;
use crate::check::{self, Checked, Violations, fault as limits, verbs_fault as words};
use crate::control::{Control, VerbsFaults};
use crate::names::{self, ADAPTERS, VERBS_FAULTS};
use crate::stored::values;
use crate::verbs_faults::status_message;

/// Makes a rule. May block.
pub fn create(control: &Control, request: &v1::CreateVerbsFaultRequest) -> Result<v1::VerbsFault, Status> {
    let mut wrong = Violations::default();
    let spec = spec(request, &mut wrong);
    let made = VerbsFaults(control).create(wrong.finish(spec)?)?;
    Ok(told(control, &made))
}

/// Lists a page.
pub async fn list(
    control: &Arc<Control>,
    request: v1::ListVerbsFaultsRequest,
) -> Result<v1::ListVerbsFaultsResponse, Status> {
    let page = page!(request, "ListVerbsFaults", [100, 1000])?;
    let control = control.clone();
    let all = move || {
        VerbsFaults(&control)
            .list()
            .iter()
            .map(|rule| told(&control, rule))
            .collect()
    };
    let all = blocking(all).await?;
    let (verbs_faults, next_page_token) = page.cut(all, |f: &v1::VerbsFault| format!("{:010}", f.id));
    Ok(v1::ListVerbsFaultsResponse {
        verbs_faults,
        next_page_token,
    })
}

/// Removes a rule. May block.
pub fn delete(control: &Control, request: &v1::DeleteVerbsFaultRequest) -> Result<v1::VerbsFault, Status> {
    let id = id(VERBS_FAULTS, "name", &request.name)?;
    let configured = VerbsFaults(control).is_configured(&id);
    let last = VerbsFaults(control).remove(&id)?;
    Ok(v1::VerbsFault {
        lifetime: lifetime(configured),
        ..status_message(&last)
    })
}

fn lifetime(configured: bool) -> i32 {
    match configured {
        true => v1::Lifetime::Configured.into(),
        false => v1::Lifetime::UntilDaemonEnds.into(),
    }
}

fn told(control: &Control, rule: &VerbsFaultStatus) -> v1::VerbsFault {
    v1::VerbsFault {
        lifetime: lifetime(VerbsFaults(control).is_configured(&rule.spec.name)),
        ..status_message(rule)
    }
}

/// Reads the rule of a request.
fn spec(request: &v1::CreateVerbsFaultRequest, wrong: &mut Violations) -> Option<VerbsFaultSpec> {
    let none = v1::VerbsFault::default();
    let fault = request.verbs_fault.as_ref().unwrap_or(&none);
    let name = wrong.check("verbs_fault_id", check::name(&request.verbs_fault_id));
    let adapter = names::id(ADAPTERS, &fault.adapter)
        .map(str::to_owned)
        .ok_or_else(|| form(&fault.adapter, "adapters/{adapter}"));
    let adapter = wrong.check("verbs_fault.adapter", adapter);
    let probability = wrong.optional("verbs_fault.probability", fault.probability, limits::probability);
    let action = match &fault.action {
        Some(Action::Completion(of)) => completion(of, wrong),
        Some(Action::Command(of)) => command(of, wrong),
        Some(Action::NotReady(of)) => {
            queue_pair("not_ready", of.queue_pair, wrong).map(|qp| VerbsFaultAction::NotReady { qp })
        }
        Some(Action::Post(of)) => post(of, wrong),
        None => wrong.check(
            "verbs_fault.action",
            Err("required: what it matches; completion, command, not_ready or post".to_owned()),
        ),
    };
    let process = Some(&*fault.process).filter(|process| !process.is_empty());
    let process = wrong.optional("verbs_fault.process", process, words::process);
    let (min_bytes, max_bytes) = (fault.min_bytes, fault.max_bytes);
    wrong.check("verbs_fault.max_bytes", words::bytes(min_bytes, max_bytes));
    let after = wrong.optional("verbs_fault.after", fault.after, |d| spanned(d, words::after));
    let lasts = wrong.optional("verbs_fault.lasts", fault.lasts, |d| spanned(d, words::lasts));
    Some(VerbsFaultSpec {
        name: name?,
        adapter: adapter?,
        process: process?,
        min_bytes,
        max_bytes,
        after: after?.unwrap_or_default(),
        lasts: lasts?,
        action: action?,
        skip: fault.skip,
        probability: probability?.unwrap_or(ALWAYS),
        count: fault.count,
        seed: fault.seed,
    })
}

fn all<T>(
    field: &str,
    texts: &[String],
    wrong: &mut Violations,
    check: impl Fn(&str) -> Checked<T>,
) -> Option<Vec<T>> {
    let read = (0..).zip(texts).map(|(i, text)| {
        let field = format!("{field}[{i}]");
        wrong.check(field, check(text))
    });
    // Each is read, so that all problems are told.
    let read: Vec<Option<T>> = read.collect();
    read.into_iter().collect()
}

fn queue_pair(at: &str, qp: Option<u32>, wrong: &mut Violations) -> Option<Option<u32>> {
    wrong.optional(format!("verbs_fault.{at}.queue_pair"), qp, |q| {
        limits::destination_qp(i64::from(q))
    })
}

fn spanned(of: prost_types::Duration, check: impl Fn(Duration) -> Checked<Duration>) -> Checked<Duration> {
    let span = values::span(of).ok_or_else(|| "a time is not negative".to_owned())?;
    check(span)
}

fn completion(of: &v1::CompletionFault, wrong: &mut Violations) -> Option<VerbsFaultAction> {
    let at = |field: &str| format!("verbs_fault.completion.{field}");
    let qp = queue_pair("completion", of.queue_pair, wrong);
    let kinds = all(&at("kinds"), &of.kinds, wrong, words::kind);
    let held = |d: &prost_types::Duration| limits::held(values::span(*d).unwrap_or_default());
    let fault = match &of.fault {
        Some(Fault::Lie(status)) => wrong
            .check(at("lie"), words::completion_status(status))
            .map(CompletionFault::Lie),
        Some(Fault::Fail(status)) => wrong
            .check(at("fail"), words::completion_status(status))
            .map(CompletionFault::Fail),
        Some(Fault::Late(by)) => wrong.check(at("late"), held(by)).map(CompletionFault::Late),
        Some(Fault::Swap(at_most)) => wrong.check(at("swap"), held(at_most)).map(CompletionFault::Swap),
        Some(Fault::Lose(_)) => Some(CompletionFault::Lose),
        Some(Fault::Double(_)) => Some(CompletionFault::Double),
        Some(Fault::Hang(_)) => Some(CompletionFault::Hang),
        Some(Fault::Length(length)) => Some(CompletionFault::Length(*length)),
        Some(Fault::Immediate(data)) => Some(CompletionFault::Immediate(*data)),
        Some(Fault::Overrun(_)) => Some(CompletionFault::Overrun),
        Some(Fault::SrqLimit(_)) => Some(CompletionFault::SrqLimit),
        None => {
            let faults = "lie, fail, lose, double, late, hang, swap, length, immediate, overrun or srq_limit";
            let problem = format!("required: what happens to completions; {faults}");
            wrong.check(at("fault"), Err(problem))
        }
    };
    Some(VerbsFaultAction::Completion {
        qp: qp?,
        kinds: kinds?,
        fault: fault?,
    })
}

fn command(of: &v1::CommandFault, wrong: &mut Violations) -> Option<VerbsFaultAction> {
    let field = "verbs_fault.command.commands";
    if of.commands.is_empty() {
        wrong.add(field, "required: which commands, such as RegisterMr");
    }
    let commands = all(field, &of.commands, wrong, words::command);
    let delay = wrong.optional("verbs_fault.command.delay", of.delay, |d| {
        spanned(d, limits::held)
    });
    let status = match (&*of.status, of.delay) {
        ("", Some(_)) => Some(None),
        (text, _) => wrong
            .check("verbs_fault.command.status", words::command_status(text))
            .map(Some),
    };
    Some(VerbsFaultAction::Command {
        commands: commands?,
        status: status?,
        delay: delay?,
    })
}

fn post(of: &v1::PostFault, wrong: &mut Violations) -> Option<VerbsFaultAction> {
    let at = |field: &str| format!("verbs_fault.post.{field}");
    let post = wrong.check(at("post"), words::post(&of.post));
    let errno = wrong.check(at("errno"), words::errno(&of.errno));
    let qp = queue_pair("post", of.queue_pair, wrong);
    let operations = all(&at("operations"), &of.operations, wrong, words::operation);
    Some(VerbsFaultAction::Post {
        post: post?,
        qp: qp?,
        operations: operations?,
        errno: errno?,
    })
}
