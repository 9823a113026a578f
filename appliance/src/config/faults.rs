//! `[[fault]]` tables: in the configuration file, and in a file of their own for `vnicctl fault load`.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use vnic_backend::fault::{ALWAYS, Action, Opcodes, PsnRange};
use vnic_backend::{FAULTS_MAX, FaultSpec};

use super::diagnostics::{Diagnostics, Sink};
use super::file::{limit, tree};
use super::reader::{At, Scalar, Section};
use crate::check::{self, Checked, fault as limits};

/// Names of adapters and ports, with the line where.
type Owners = BTreeMap<String, usize>;

/// Which keys belong to which action.
const OF_ACTION: [(&str, &[&str]); 6] = [
    ("drop", &[]),
    ("delay", &["delay", "jitter"]),
    ("reorder", &["frames", "at_most"]),
    ("duplicate", &["copies"]),
    ("corrupt", &["bits", "offset"]),
    ("mark_ce", &[]),
];

/// Reads a file that holds nothing but `[[fault]]` tables.
pub fn from_text(path: &Path, text: &str) -> Result<Vec<FaultSpec>, Diagnostics> {
    let sink = Sink::new(path, text);
    let tree = tree(text, &sink);
    if sink.failed() {
        return sink.finish(None);
    }
    let root = Section::root(&tree, &sink);
    let faults = tables(&root, &sink, None);
    if faults.as_ref().is_some_and(Vec::is_empty) {
        sink.error(0..0, "fault", "no rule: each is a table written as [[fault]]");
    }
    root.finish();
    sink.finish(faults)
}

/// The tables `[[fault]]`. Rules are about adapters and ports among the `owners`; `None`: about any.
pub(super) fn tables(root: &Section<'_>, sink: &Sink<'_>, owners: Option<&Owners>) -> Option<Vec<FaultSpec>> {
    let sections = root.tables("fault");
    limit(sink, &sections, FAULTS_MAX, "fault rules");
    let mut names = Owners::new();
    let faults: Vec<Option<FaultSpec>> = sections
        .into_iter()
        .map(|section| {
            let reader = Reader { sink, owners };
            let fault = reader.fault(&section, &mut names);
            section.finish();
            fault
        })
        .collect();
    faults.into_iter().collect()
}

struct Reader<'s, 'a> {
    sink: &'s Sink<'a>,
    owners: Option<&'s Owners>,
}

impl Reader<'_, '_> {
    /// A value that may be absent.
    fn optional<V, T>(&self, at: Option<At<V>>, check: impl FnOnce(V) -> Checked<T>) -> Option<Option<T>> {
        match at {
            None => Some(None),
            Some(at) => at.check(self.sink, check).map(|at| Some(at.value)),
        }
    }

    fn fault(&self, section: &Section<'_>, names: &mut Owners) -> Option<FaultSpec> {
        let name = self.name(section, names);
        let from = self.optional(section.string("from"), |n| self.owner(n));
        let to = self.optional(section.string("to"), |n| self.owner(n));
        let roce = section.boolean("roce").is_some_and(|at| at.value);
        let destination_qp = self.optional(section.integer("destination_qp"), limits::destination_qp);
        let opcodes = self.opcodes(section);
        let psn = self.optional(section.scalar("psn"), psn);
        let ethertype = self.optional(section.integer("ethertype"), limits::ethertype);
        let skip = self.optional(section.integer("skip"), limits::count);
        let probability = self.optional(section.scalar("probability"), probability);
        let count = self.optional(section.integer("count"), limits::count);
        let seed = self.optional(section.integer("seed"), limits::count);
        let action = self.action(section);
        Some(FaultSpec {
            name: name?,
            from: from?,
            to: to?,
            roce,
            destination_qp: destination_qp?,
            opcodes: opcodes?,
            psn: psn?,
            ethertype: ethertype?,
            skip: skip?.unwrap_or(0),
            probability: probability?.unwrap_or(ALWAYS),
            count: count?,
            seed: seed?,
            action: action?,
        })
    }

    fn name(&self, section: &Section<'_>, names: &mut Owners) -> Option<String> {
        let at = section.required_string("name")?.check(self.sink, check::name)?;
        let line = self.sink.line(at.span.start);
        if let Some(first) = names.get(&at.value) {
            let name = &at.value;
            let problem =
                format!("the name {name} is taken by line {first}; names are unique among fault rules");
            self.sink.error(at.span, at.key, problem);
            return None;
        }
        names.insert(at.value.clone(), line);
        Some(at.value)
    }

    fn owner(&self, name: &str) -> Checked<String> {
        let name = check::name(name)?;
        if self.owners.is_some_and(|all| !all.contains_key(&name)) {
            return Err(format!("no adapter or port of this file is named {name}"));
        }
        Ok(name)
    }

    fn opcodes(&self, section: &Section<'_>) -> Option<Option<Opcodes>> {
        if !section.has("opcodes") {
            return Some(None);
        }
        let list = section.scalars("opcodes")?;
        let opcodes: Vec<Option<u8>> = list
            .value
            .into_iter()
            .map(|at| at.check(self.sink, opcode).map(|at| at.value))
            .collect();
        let opcodes: Vec<u8> = opcodes.into_iter().collect::<Option<_>>()?;
        if opcodes.is_empty() {
            let problem = "no opcode at all; leave the key out to mean any";
            self.sink.error(list.span, list.key, problem);
            return None;
        }
        Some(limits::opcodes(opcodes))
    }

    fn action(&self, section: &Section<'_>) -> Option<Action> {
        let known = OF_ACTION.map(|(name, _)| format!("{name:?}")).join(", ");
        let at = section.required_string("action")?;
        let (name, keys) = at
            .check(self.sink, |text| {
                let found = OF_ACTION.into_iter().find(|(name, _)| *name == text);
                found.ok_or_else(|| format!("{text:?} is no action: {known}"))
            })?
            .value;
        for (other, foreign) in OF_ACTION {
            for key in foreign.iter().filter(|k| !keys.contains(k) && section.has(k)) {
                let problem = format!("allowed with action = {other:?} only");
                self.sink.error(section.place(key), section.path(key), problem);
            }
        }
        match name {
            "drop" => Some(Action::Drop),
            "mark_ce" => Some(Action::MarkCe),
            "delay" => {
                let by = self.span(section, "delay", None);
                let jitter = match section.string("jitter") {
                    None => Some(Duration::ZERO),
                    Some(at) => at
                        .check(self.sink, |text| {
                            let jitter = limits::span(text)?;
                            limits::held(by.unwrap_or_default().saturating_add(jitter))
                                .map_err(|problem| format!("with the delay, {problem}"))?;
                            Ok(jitter)
                        })
                        .map(|at| at.value),
                };
                Some(Action::Delay {
                    by: by?,
                    jitter: jitter?,
                })
            }
            "reorder" => {
                let by = self.optional(section.integer("frames"), limits::reorder);
                let at_most = self.span(section, "at_most", Some(limits::AT_MOST_DEFAULT));
                Some(Action::Reorder {
                    by: by?.unwrap_or(1),
                    at_most: at_most?,
                })
            }
            "duplicate" => {
                let copies = self.optional(section.integer("copies"), limits::copies);
                Some(Action::Duplicate {
                    copies: copies?.unwrap_or(1),
                })
            }
            _ => {
                let offset = self.optional(section.integer("offset"), limits::offset);
                let in_one_byte = section.has("offset");
                let bits = self.optional(section.integer("bits"), |n| limits::bits(n, in_one_byte));
                Some(Action::Corrupt {
                    bits: bits?.unwrap_or(1),
                    offset: offset?,
                })
            }
        }
    }

    /// A time for which a frame is held back; required without a default.
    fn span(&self, section: &Section<'_>, key: &'static str, default: Option<Duration>) -> Option<Duration> {
        let at = match default {
            Some(default) if !section.has(key) => return Some(default),
            _ => section.required_string(key)?,
        };
        let checked = at.check(self.sink, |text| limits::span(text).and_then(limits::held));
        checked.map(|at| at.value)
    }
}

fn opcode(value: Scalar<'_>) -> Checked<u8> {
    match value {
        Scalar::Integer(n) => limits::opcode(n),
        Scalar::Text(text) => limits::opcode_text(text),
        Scalar::Float(n) => limits::opcode_text(&n.to_string()),
    }
}

fn psn(value: Scalar<'_>) -> Checked<PsnRange> {
    match value {
        Scalar::Integer(n) => limits::psn(n).map(|psn| PsnRange {
            first: psn,
            last: psn,
        }),
        Scalar::Text(text) => limits::psn_text(text),
        Scalar::Float(n) => limits::psn_text(&n.to_string()),
    }
}

#[allow(clippy::cast_precision_loss, reason = "what is exact is 0 and 1")]
fn probability(value: Scalar<'_>) -> Checked<u32> {
    match value {
        Scalar::Integer(n) => limits::probability(n as f64),
        Scalar::Float(n) => limits::probability(n),
        Scalar::Text(text) => limits::probability_text(text),
    }
}
