//! `[[fault]]` tables: in the configuration file, and in a separate file for `vnicctl fault load`.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;
use vnic_backend::fault::{ALWAYS, Action, Opcodes, PsnRange};
use vnic_backend::{FAULTS_MAX, FaultSpec};

use super::diagnostics::{Diagnostics, Sink};
use super::reader::{self, Scalar};
use super::taken::{limit, name_once};
use crate::check::{self, Checked, fault as limits};

/// Names of adapters and ports, with their lines.
pub(super) type Owners = BTreeMap<String, usize>;

/// Keys of each action.
const OF_ACTION: [(&str, &[&str]); 6] = [
    ("drop", &[]),
    ("delay", &["delay", "jitter"]),
    ("reorder", &["frames", "at_most"]),
    ("duplicate", &["copies"]),
    ("corrupt", &["bits", "offset"]),
    ("mark_ce", &[]),
];

/// `[[fault]]`.
// Wide: the keys of the table in the file.
#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct FaultTable {
    name: Option<Spanned<String>>,
    from: Option<Spanned<String>>,
    to: Option<Spanned<String>>,
    roce: bool,
    destination_qp: Option<Spanned<i64>>,
    opcodes: Option<Spanned<Vec<Spanned<Scalar>>>>,
    psn: Option<Spanned<Scalar>>,
    ethertype: Option<Spanned<i64>>,
    skip: Option<Spanned<i64>>,
    probability: Option<Spanned<Scalar>>,
    count: Option<Spanned<i64>>,
    seed: Option<Spanned<i64>>,
    action: Option<Spanned<String>>,
    delay: Option<Spanned<String>>,
    jitter: Option<Spanned<String>>,
    frames: Option<Spanned<i64>>,
    at_most: Option<Spanned<String>>,
    copies: Option<Spanned<i64>>,
    bits: Option<Spanned<i64>>,
    offset: Option<Spanned<i64>>,
}

/// Reads a file that has only `[[fault]]` tables.
pub fn from_text(path: &Path, text: &str) -> Result<Vec<FaultSpec>, Diagnostics> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        #[serde(default)]
        fault: Vec<Spanned<FaultTable>>,
    }
    let (file, sink) = reader::read::<File>(path, text)?;
    let faults = faults(&sink, file.fault, None);
    if faults.is_empty() {
        sink.error(0..0, "fault", "no rule: each is a table written as [[fault]]");
    }
    sink.finish(faults)
}

/// Reads the tables `[[fault]]`. Rules may name the adapters and ports in `owners`; `None`: any.
pub(super) fn faults(
    sink: &Sink<'_>,
    mut tables: Vec<Spanned<FaultTable>>,
    owners: Option<&Owners>,
) -> Vec<FaultSpec> {
    limit(sink, &mut tables, FAULTS_MAX, "fault rules");
    let mut names = Owners::new();
    let faults = tables.into_iter().filter_map(|table| {
        let (at, table) = (table.span(), table.into_inner());
        fault(sink, &at, table, owners, &mut names)
    });
    faults.collect()
}

/// Reads a table `[[fault]]`. `names`: of the rules before it.
pub(super) fn fault(
    sink: &Sink<'_>,
    at: &Range<usize>,
    mut table: FaultTable,
    owners: Option<&Owners>,
    names: &mut Owners,
) -> Option<FaultSpec> {
    let owner = |name: &str| {
        let name = check::name(name)?;
        match owners.is_some_and(|all| !all.contains_key(&name)) {
            true => Err(format!("no adapter or port of this file is named {name}")),
            false => Ok(name),
        }
    };
    let name = name_once(sink, at, table.name.take(), names, "fault rules");
    let action = action(sink, at, &mut table);
    Some(FaultSpec {
        name: name.unwrap_or_default(),
        from: sink.text(table.from, owner),
        to: sink.text(table.to, owner),
        roce: table.roce,
        destination_qp: sink.check(table.destination_qp, limits::destination_qp),
        opcodes: table.opcodes.and_then(|list| opcodes(sink, list)),
        psn: sink.check(table.psn, psn),
        ethertype: sink.check(table.ethertype, limits::ethertype),
        skip: sink.check(table.skip, limits::count).unwrap_or(0),
        probability: sink.check(table.probability, probability).unwrap_or(ALWAYS),
        count: sink.check(table.count, limits::count),
        seed: sink.check(table.seed, limits::count),
        action: action?,
    })
}

fn opcodes(sink: &Sink<'_>, list: Spanned<Vec<Spanned<Scalar>>>) -> Option<Opcodes> {
    if list.get_ref().is_empty() {
        sink.wrong(&list.span(), "no opcode at all; leave the key out to mean any");
    }
    let list = list.into_inner().into_iter();
    limits::opcodes(list.filter_map(|one| sink.check(Some(one), opcode)).collect())
}

fn action(sink: &Sink<'_>, at: &Range<usize>, table: &mut FaultTable) -> Option<Action> {
    let (name, keys) = sink.text(sink.required(at, "action", table.action.take()), |text| {
        let known = OF_ACTION.map(|(name, _)| format!("{name:?}")).join(", ");
        let found = OF_ACTION.into_iter().find(|(name, _)| *name == text);
        found.ok_or_else(|| format!("{text:?} is no action: {known}"))
    })?;
    for (other, foreign) in OF_ACTION {
        for key in foreign.iter().filter(|key| !keys.contains(key)) {
            if let Some(place) = sink.place(at, key) {
                sink.wrong(&place, format!("allowed with action = {other:?} only"));
            }
        }
    }
    let held = |text: &str| limits::span(text).and_then(limits::held);
    Some(match name {
        "drop" => Action::Drop,
        "mark_ce" => Action::MarkCe,
        "delay" => {
            let by = sink
                .text(sink.required(at, "delay", table.delay.take()), held)
                .unwrap_or_default();
            let jitter = sink.text(table.jitter.take(), |text| {
                let jitter = limits::span(text)?;
                limits::held(by.saturating_add(jitter))
                    .map_err(|problem| format!("with the delay, {problem}"))?;
                Ok(jitter)
            });
            Action::Delay {
                by,
                jitter: jitter.unwrap_or(Duration::ZERO),
            }
        }
        "reorder" => Action::Reorder {
            by: sink.check(table.frames.take(), limits::reorder).unwrap_or(1),
            at_most: sink
                .text(table.at_most.take(), held)
                .unwrap_or(limits::AT_MOST_DEFAULT),
        },
        "duplicate" => Action::Duplicate {
            copies: sink.check(table.copies.take(), limits::copies).unwrap_or(1),
        },
        _ => {
            let in_one_byte = table.offset.is_some();
            let bits = sink.check(table.bits.take(), |n| limits::bits(n, in_one_byte));
            Action::Corrupt {
                bits: bits.unwrap_or(1),
                offset: sink.check(table.offset.take(), limits::offset),
            }
        }
    })
}

fn opcode(value: Scalar) -> Checked<u8> {
    match value {
        Scalar::Integer(n) => limits::opcode(n),
        Scalar::Text(text) => limits::opcode_text(&text),
        Scalar::Float(n) => limits::opcode_text(&n.to_string()),
    }
}

fn psn(value: Scalar) -> Checked<PsnRange> {
    match value {
        Scalar::Integer(n) => limits::psn(n).map(|psn| PsnRange {
            first: psn,
            last: psn,
        }),
        Scalar::Text(text) => limits::psn_text(&text),
        Scalar::Float(n) => limits::psn_text(&n.to_string()),
    }
}

#[allow(clippy::cast_precision_loss, reason = "what is exact is 0 and 1")]
pub(super) fn probability(value: Scalar) -> Checked<u32> {
    match value {
        Scalar::Integer(n) => limits::probability(n as f64),
        Scalar::Float(n) => limits::probability(n),
        Scalar::Text(text) => limits::probability_text(&text),
    }
}
