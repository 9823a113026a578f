//! `[[verbs_fault]]` tables: in the configuration file, and in the steps of a scenario. Keys are the options of `vnicctl fault verbs add`.

use std::fmt::Debug;
use std::ops::Range;
use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;
use vnic_backend::fault::ALWAYS;
use vnic_backend::{
    AdapterSpec, CompletionFault, Post, SIZED_COMMANDS, VERBS_FAULTS_MAX, VerbsFaultAction, VerbsFaultSpec,
};

use super::diagnostics::Sink;
use super::faults::{Owners, probability};
use super::keys::{Keys, number, text};
use super::reader::{Scalar, Texts};
use super::taken::{limit, name_once};
use crate::check::{self, Checked, fault as limits, verbs_fault as words};

/// Keys that say what a rule does, with the keys that are allowed beside each.
const ACTIONS: [(&str, &[&str]); 14] = [
    ("lie", COMPLETIONS),
    ("fail", COMPLETIONS),
    ("lose", COMPLETIONS),
    ("double", COMPLETIONS),
    ("late", COMPLETIONS),
    ("hang", COMPLETIONS),
    ("swap", COMPLETIONS),
    ("length", COMPLETIONS),
    ("immediate", COMPLETIONS),
    ("overrun", COMPLETIONS),
    ("srq_limit", COMPLETIONS),
    ("command", &["status", "delay", "min_bytes", "max_bytes"]),
    ("not_ready", &["qp"]),
    ("post", &["errno", "operation", "qp", "min_bytes", "max_bytes"]),
];
/// Keys that are allowed with some of them.
const BESIDE: [&str; 8] = [
    "qp",
    "kind",
    "min_bytes",
    "max_bytes",
    "status",
    "delay",
    "errno",
    "operation",
];
const COMPLETIONS: &[&str] = &["qp", "kind", "min_bytes", "max_bytes"];

/// `[[verbs_fault]]`.
// Wide: the keys of the table in the file.
#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct VerbsFaultTable {
    name: Option<Spanned<String>>,
    adapter: Option<Spanned<String>>,
    process: Option<Spanned<Scalar>>,
    lie: Option<Spanned<String>>,
    fail: Option<Spanned<String>>,
    lose: Option<Spanned<bool>>,
    double: Option<Spanned<bool>>,
    late: Option<Spanned<String>>,
    hang: Option<Spanned<bool>>,
    swap: Option<Spanned<String>>,
    length: Option<Spanned<i64>>,
    immediate: Option<Spanned<i64>>,
    overrun: Option<Spanned<bool>>,
    srq_limit: Option<Spanned<bool>>,
    not_ready: Option<Spanned<bool>>,
    post: Option<Spanned<String>>,
    errno: Option<Spanned<String>>,
    operation: Option<Spanned<Texts>>,
    qp: Option<Spanned<i64>>,
    kind: Option<Spanned<Texts>>,
    min_bytes: Option<Spanned<i64>>,
    max_bytes: Option<Spanned<i64>>,
    command: Option<Spanned<Texts>>,
    status: Option<Spanned<String>>,
    delay: Option<Spanned<String>>,
    after: Option<Spanned<String>>,
    r#for: Option<Spanned<String>>,
    skip: Option<Spanned<i64>>,
    probability: Option<Spanned<Scalar>>,
    count: Option<Spanned<i64>>,
    seed: Option<Spanned<i64>>,
}

/// Reads the tables `[[verbs_fault]]`. Rules are about these adapters.
pub(super) fn verbs_faults(
    sink: &Sink<'_>,
    mut tables: Vec<Spanned<VerbsFaultTable>>,
    adapters: &[AdapterSpec],
) -> Vec<VerbsFaultSpec> {
    limit(
        sink,
        &mut tables,
        VERBS_FAULTS_MAX,
        "rules for completions and commands",
    );
    let mut names = Owners::new();
    let rules = tables.into_iter().filter_map(|table| {
        let (at, table) = (table.span(), table.into_inner());
        verbs_fault(sink, &at, table, Some(adapters), &mut names)
    });
    rules.collect()
}

/// Reads a table `[[verbs_fault]]`. `adapters`: those that it may name; `None`: any. `names`: of the rules before it.
pub(super) fn verbs_fault(
    sink: &Sink<'_>,
    at: &Range<usize>,
    mut table: VerbsFaultTable,
    adapters: Option<&[AdapterSpec]>,
    names: &mut Owners,
) -> Option<VerbsFaultSpec> {
    let known = |text: &str| {
        let name = check::name(text)?;
        let Some(adapters) = adapters else { return Ok(name) };
        match adapters.iter().find(|adapter| adapter.name == name) {
            None => Err(format!("no adapter of this file is named {name}")),
            Some(adapter) if adapter.rdma_socket.is_none() => Err(format!("{name} has no RDMA function")),
            Some(_) => Ok(name),
        }
    };
    let name = name_once(
        sink,
        at,
        table.name.take(),
        names,
        "rules for completions and commands",
    );
    let adapter = sink.text(sink.required(at, "adapter", table.adapter.take()), known);
    let process = sink.check(table.process.take(), |process| match process {
        Scalar::Integer(pid) => words::process(&pid.to_string()),
        Scalar::Text(text) => words::process(&text),
        Scalar::Float(_) => Err("the number of a process, or the name of its program".to_owned()),
    });
    let min_bytes = sink.check(table.min_bytes.take(), limits::count);
    let max_bytes = sink.check(table.max_bytes.take(), |max| {
        let max = limits::count(max)?;
        words::bytes(min_bytes, Some(max)).map(|()| max)
    });
    let spanned = |text, check: fn(Duration) -> Checked<Duration>| {
        sink.text(text, |text| limits::span(text).and_then(check))
    };
    let after = spanned(table.after.take(), words::after);
    let lasts = spanned(table.r#for.take(), words::lasts);
    let action = action(sink, at, &mut table);
    Some(VerbsFaultSpec {
        name: name.unwrap_or_default(),
        adapter: adapter.unwrap_or_default(),
        process,
        min_bytes,
        max_bytes,
        after: after.unwrap_or_default(),
        lasts,
        skip: sink.check(table.skip, limits::count).unwrap_or(0),
        probability: sink.check(table.probability, probability).unwrap_or(ALWAYS),
        count: sink.check(table.count, limits::count),
        seed: sink.check(table.seed, limits::count),
        action: action?,
    })
}

fn action(sink: &Sink<'_>, at: &Range<usize>, table: &mut VerbsFaultTable) -> Option<VerbsFaultAction> {
    let mut given = ACTIONS
        .into_iter()
        .filter(|(key, _)| sink.place(at, key).is_some());
    let Some((name, keys)) = given.next() else {
        let all = ACTIONS.map(|(key, _)| key).join(", ");
        sink.wrong(
            at,
            format!("says not what happens; one of these keys is required: {all}"),
        );
        return None;
    };
    for (other, _) in given {
        sink.wrong_key(
            at,
            other,
            format!("not allowed with {name}: a rule does one thing"),
        );
    }
    for key in BESIDE.into_iter().filter(|key| !keys.contains(key)) {
        if sink.place(at, key).is_some() {
            sink.wrong_key(at, key, format!("not allowed with {name}"));
        }
    }
    let held = |text: &str| limits::span(text).and_then(limits::held);
    if name == "command" {
        let commands = sink.check(table.command.take(), |texts| several(texts, words::command));
        let sized = |all: &Vec<_>| all.iter().all(|one| SIZED_COMMANDS.contains(one));
        let sized = commands.as_ref().is_none_or(sized);
        for key in ["min_bytes", "max_bytes"].into_iter().filter(|_| !sized) {
            if sink.place(at, key).is_some() {
                sink.wrong_key(at, key, "of commands only registrations have a size");
            }
        }
        let delay = sink.text(table.delay.take(), held);
        let status = match sink.place(at, "delay") {
            Some(_) => table.status.take(),
            None => sink.required(at, "status", table.status.take()),
        };
        let status = sink.text(status, words::command_status);
        return Some(VerbsFaultAction::Command {
            commands: commands?,
            status,
            delay,
        });
    }
    if name == "post" {
        return post(sink, at, table);
    }
    let qp = sink.check(table.qp.take(), limits::destination_qp);
    if name == "not_ready" {
        return yes(sink, table.not_ready.take(), ()).map(|()| VerbsFaultAction::NotReady { qp });
    }
    let kinds = sink.check(table.kind.take(), |texts| several(texts, words::kind));
    let number = |n: i64| u32::try_from(n).map_err(|_| format!("{n} is out of range: 0 to {}", u32::MAX));
    use CompletionFault as F;
    let fault = match name {
        "lie" => sink.text(table.lie.take(), words::completion_status).map(F::Lie),
        "fail" => sink
            .text(table.fail.take(), words::completion_status)
            .map(F::Fail),
        "lose" => yes(sink, table.lose.take(), F::Lose),
        "double" => yes(sink, table.double.take(), F::Double),
        "late" => sink.text(table.late.take(), held).map(F::Late),
        "hang" => yes(sink, table.hang.take(), F::Hang),
        "swap" => sink.text(table.swap.take(), held).map(F::Swap),
        "overrun" => yes(sink, table.overrun.take(), F::Overrun),
        "srq_limit" => yes(sink, table.srq_limit.take(), F::SrqLimit),
        "length" => sink.check(table.length.take(), number).map(F::Length),
        _ => sink.check(table.immediate.take(), number).map(F::Immediate),
    };
    Some(VerbsFaultAction::Completion {
        qp,
        kinds: kinds.unwrap_or_default(),
        fault: fault?,
    })
}

fn post(sink: &Sink<'_>, at: &Range<usize>, table: &mut VerbsFaultTable) -> Option<VerbsFaultAction> {
    let post = sink.text(table.post.take(), words::post);
    let errno = sink.text(sink.required(at, "errno", table.errno.take()), words::errno);
    let beside = [
        ("operation", post.is_some_and(|post| post != Post::Send)),
        ("qp", post == Some(Post::SharedReceive)),
    ];
    for (key, _) in beside.into_iter().filter(|(_, wrong)| *wrong) {
        if sink.place(at, key).is_some() {
            sink.wrong_key(at, key, "such posts have none");
        }
    }
    let operations = sink.check(table.operation.take(), |texts| several(texts, words::operation));
    Some(VerbsFaultAction::Post {
        post: post?,
        qp: sink.check(table.qp.take(), limits::destination_qp),
        operations: operations.unwrap_or_default(),
        errno: errno?,
    })
}

/// A key that can only be true.
fn yes<T>(sink: &Sink<'_>, is: Option<Spanned<bool>>, then: T) -> Option<T> {
    sink.check(is, |is| {
        is.then_some(then)
            .ok_or_else(|| "true, or no such key".to_owned())
    })
}

fn several<T>(texts: Texts, check: impl Fn(&str) -> Checked<T>) -> Checked<Vec<T>> {
    let texts = match texts {
        Texts::One(text) => vec![text],
        Texts::Several(texts) => texts,
    };
    match texts.is_empty() {
        true => Err("an empty list; leave the key out".to_owned()),
        false => texts.iter().map(|text| check(text)).collect(),
    }
}

/// Keys of the table of a rule.
pub(super) fn keys(spec: &VerbsFaultSpec) -> Keys {
    let mut keys = Keys::default();
    keys.must("name", text(&spec.name));
    keys.must("adapter", text(&spec.adapter));
    let word = |value: &dyn Debug| text(words::kebab(&format!("{value:?}")));
    let span = |span: &Duration| text(format!("{span:?}"));
    match &spec.action {
        VerbsFaultAction::Command {
            commands,
            status,
            delay,
        } => {
            keys.several("command", commands.iter().map(|one| word(one)));
            keys.optional("status", status.as_ref().map(|one| word(one)));
            keys.optional("delay", delay.as_ref().map(span));
        }
        VerbsFaultAction::NotReady { qp } => {
            keys.must("not_ready", true);
            keys.optional("qp", qp.map(number));
        }
        VerbsFaultAction::Post {
            post,
            qp,
            operations,
            errno,
        } => {
            keys.must("post", word(post));
            keys.must("errno", text(words::errno_name(*errno)));
            keys.several("operation", operations.iter().map(|one| word(one)));
            keys.optional("qp", qp.map(number));
        }
        VerbsFaultAction::Completion { qp, kinds, fault } => {
            match fault {
                CompletionFault::Lie(status) => keys.must("lie", word(status)),
                CompletionFault::Fail(status) => keys.must("fail", word(status)),
                CompletionFault::Lose => keys.must("lose", true),
                CompletionFault::Double => keys.must("double", true),
                CompletionFault::Late(by) => keys.must("late", span(by)),
                CompletionFault::Hang => keys.must("hang", true),
                CompletionFault::Swap(at_most) => keys.must("swap", span(at_most)),
                CompletionFault::Length(length) => keys.must("length", number(*length)),
                CompletionFault::Immediate(data) => keys.must("immediate", number(*data)),
                CompletionFault::Overrun => keys.must("overrun", true),
                CompletionFault::SrqLimit => keys.must("srq_limit", true),
            }
            keys.optional("qp", qp.map(number));
            keys.several("kind", kinds.iter().map(|one| word(one)));
        }
    }
    keys.optional("process", spec.process.as_ref().map(text));
    keys.optional("min_bytes", spec.min_bytes.map(number));
    keys.optional("max_bytes", spec.max_bytes.map(number));
    keys.plain("after", span(&spec.after), span(&Duration::ZERO));
    keys.optional("for", spec.lasts.as_ref().map(span));
    keys.plain("skip", number(spec.skip), number(0));
    keys.plain(
        "probability",
        f64::from(spec.probability) / f64::from(ALWAYS),
        1.0,
    );
    keys.optional("count", spec.count.map(number));
    keys.optional("seed", spec.seed.map(number));
    keys
}
