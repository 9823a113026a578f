//! A change of congestion control: from a request to registry operations and a row of the store.

use std::collections::BTreeMap;

use vnic_backend::settings::{
    Checked, CongestionKeys, KeyDef, PARAMETERS, Parameter, Refusal, Value, parameter,
};
use vnic_backend::{CongestionAlgorithm, CongestionSpec, CongestionStatus, Preset, Program};

use crate::check::{Violations, nearest};
use crate::control::refused::Refused;
use crate::names::PROGRAM;
use crate::registry::{Action, Operation, Scope};

/// Names of `DcqcnDceTcpG` in Linux, where it is the weight of the old alpha.
const KEPT: [&str; 2] = ["rp_dce_tcp_g", "dce_tcp_g"];

/// Request for a change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wish {
    /// Name of an algorithm.
    pub algorithm: Option<String>,
    /// Name of a preset; it removes all parameters that were set, but for those of zero touch RoCE.
    pub preset: Option<String>,
    /// Values by name, as text; empty: the preset's value.
    pub parameters: BTreeMap<String, String>,
    /// A program in binary form; empty: none any more.
    pub program: Option<Vec<u8>>,
    /// Priorities to enable at the reaction point and at the notification point: a bit for each.
    pub enable: (u32, u32),
    /// Priorities to disable at the reaction point and at the notification point: a bit for each.
    pub disable: (u32, u32),
}

/// A checked change.
pub struct Change {
    /// Settings that are not registry keys.
    pub spec: CongestionSpec,
    /// Registry operations.
    pub operations: Vec<Operation>,
    pub words: Vec<String>,
    /// Error of a call that stores the line rate instead of rates above it.
    pub above: Option<Refused>,
}

fn operation(adapter: &str, def: &KeyDef, number: Option<u32>) -> Operation {
    Operation {
        scope: Scope::Adapter(adapter.to_owned()),
        key: def.name.to_owned(),
        action: number.map_or(Action::Delete, |n| Action::Set(Value::Dword(n))),
        if_match: None,
    }
}

fn keyed() -> impl Iterator<Item = &'static KeyDef> {
    PARAMETERS
        .iter()
        .filter(|p| p.keyed && !p.is_zero_touch())
        .map(|p| p.def)
}

/// Operations that delete all keys of congestion control, but for those of zero touch RoCE.
pub fn forget_keys(adapter: &str) -> Vec<Operation> {
    let enables = (0..8).filter_map(CongestionKeys::enable_key);
    enables
        .chain(keyed())
        .map(|def| operation(adapter, def, None))
        .collect()
}

struct Reader<'a> {
    adapter: &'a str,
    line_rate_mbps: u32,
    /// Whether nothing but parameters and priorities is to be changed.
    plain: bool,
    /// Priorities that parameters enable and disable, a bit each.
    by_key: (u32, u32),
    wrong: Violations,
    change: Change,
}

impl Change {
    /// Checks a wish.
    pub fn read(
        adapter: &str,
        wish: &Wish,
        now: &CongestionStatus,
        line_rate_mbps: u32,
    ) -> Result<Change, Violations> {
        let mut reader = Reader {
            adapter,
            line_rate_mbps,
            plain: wish.algorithm.is_none() && wish.preset.is_none() && wish.program.is_none(),
            by_key: (0, 0),
            wrong: Violations::default(),
            change: Change {
                spec: now.spec.clone(),
                operations: Vec::new(),
                words: Vec::new(),
                above: None,
            },
        };
        if let Some(code) = &wish.program {
            reader.program(code);
        }
        reader.names(wish);
        for (name, value) in &wish.parameters {
            reader.parameter(name, value);
        }
        reader.priorities(wish, now);
        if *wish == Wish::default() {
            reader.wrong.add("parameters", "nothing is to be changed");
        }
        let Reader { wrong, change, .. } = reader;
        wrong.finish(Some(change))
    }
}

impl Reader<'_> {
    fn names(&mut self, wish: &Wish) {
        if let Some(name) = &wish.algorithm {
            match CongestionAlgorithm::by_name(name) {
                Some(algorithm) => {
                    self.change.spec.algorithm = algorithm;
                    self.change.words.push(format!("algorithm {}", algorithm.name()));
                }
                None => {
                    let known = CongestionAlgorithm::ALL.map(CongestionAlgorithm::name).join(", ");
                    self.wrong.add(
                        "algorithm",
                        format!("there is no algorithm {name:?}: known are {known}"),
                    );
                }
            }
        }
        if let Some(name) = &wish.preset {
            match Preset::by_name(name) {
                Some(preset) => {
                    self.change.spec.preset = preset;
                    self.change.spec.own = self.change.spec.own.zero_touch();
                    let adapter = self.adapter;
                    self.change
                        .operations
                        .extend(keyed().map(|def| operation(adapter, def, None)));
                    self.change.words.push(format!("preset {}", preset.name()));
                }
                None => {
                    let known = Preset::ALL.map(Preset::name).join(", ");
                    self.wrong.add(
                        "preset",
                        format!("there is no preset {name:?}: known are {known}"),
                    );
                }
            }
        }
    }

    /// Loads a program, which is the algorithm from then on, or removes it.
    fn program(&mut self, code: &[u8]) {
        let spec = &mut self.change.spec;
        if code.is_empty() {
            spec.program = None;
            if spec.algorithm == CongestionAlgorithm::Program {
                spec.algorithm = CongestionAlgorithm::default();
            }
            return self.change.words.push("no program".to_owned());
        }
        match Program::load(code) {
            Ok(program) => {
                let word = format!("program of {} bytes, {:016x}", code.len(), program.fingerprint());
                spec.program = Some(program);
                spec.algorithm = CongestionAlgorithm::Program;
                self.change.words.push(word);
            }
            Err(error) => self.wrong.add("program", error.to_string()),
        }
    }

    /// A parameter of the program.
    fn program_parameter(&mut self, field: String, key: &str, text: &str) {
        let Some(program) = &mut self.change.spec.program else {
            return self.wrong.add(field, "no program is loaded");
        };
        let done = match text {
            "" => program.reset(key),
            text => program.set(key, text),
        };
        match done {
            Some(Ok(())) => {
                let word = if text.is_empty() {
                    "as the program has it"
                } else {
                    text
                };
                self.change.words.push(format!("program.{key} {word}"));
            }
            Some(Err(error)) => self.wrong.add(field, error.to_string()),
            None => {
                let known: Vec<_> = program.parameters().into_iter().map(|p| p.name).collect();
                let known = if known.is_empty() {
                    "none".into()
                } else {
                    known.join(", ")
                };
                self.wrong.add(
                    field,
                    format!("the program has no parameter {key:?}: it has {known}"),
                );
            }
        }
    }

    /// A parameter of one of the algorithms that have no keys. False: it is none.
    fn of_algorithm(&mut self, field: &str, name: &str, text: &str) -> bool {
        match self.change.spec.tuned.set(name, text) {
            None => return false,
            Some(Ok(())) => {
                let word = if text.is_empty() {
                    "as the algorithm has it"
                } else {
                    text
                };
                self.change.words.push(format!("{name} {word}"));
            }
            Some(Err(error)) => self.wrong.add(field, error.to_string()),
        }
        true
    }

    fn parameter(&mut self, name: &str, text: &str) {
        let field = format!("parameters[{name}]");
        if self.of_algorithm(&field, name, text) || self.enable(&field, name, text) {
            return;
        }
        if let Some(key) = name.strip_prefix(PROGRAM) {
            return self.program_parameter(field, key, text);
        }
        let kept = KEPT.iter().any(|k| k.eq_ignore_ascii_case(name));
        let Some(p) = parameter(if kept { "DcqcnDceTcpG" } else { name }) else {
            let known: Vec<&str> = PARAMETERS
                .iter()
                .flat_map(|p| std::iter::once(&p.def.name).chain(p.def.aliases))
                .copied()
                .collect();
            let meant = nearest(name, &known).map_or_else(String::new, |n| format!(": did you mean {n}?"));
            return self
                .wrong
                .add(field, format!("there is no parameter {name:?}{meant}"));
        };
        if text.is_empty() {
            return self.store(p, None);
        }
        let mut value = p.def.parse(text);
        if let (true, Value::Dword(number)) = (kept, &value) {
            if !(1..=1024).contains(number) {
                return self.wrong.add(
                    field,
                    format!("{name}: {number} is not allowed; allowed: 1 to 1024 (1/1024)"),
                );
            }
            value = Value::Dword(1024 - number);
        }
        match p.def.check(&value, self.line_rate_mbps) {
            Ok(
                Checked::Accepted(Value::Dword(number))
                | Checked::Fallback {
                    stored: Value::Dword(number),
                    ..
                },
            ) => {
                self.store(p, Some(number));
            }
            Err(Refusal::AboveLineRate {
                store: Value::Dword(rate),
                text,
            }) if self.plain => {
                self.store(p, Some(rate));
                self.above(p.def.name, rate, text);
            }
            Err(Refusal::AboveLineRate { .. }) => self.wrong.add(
                field,
                format!(
                    "{}: {text} Mbit/s is above the line rate, {} Mbit/s",
                    p.def.name, self.line_rate_mbps
                ),
            ),
            Err(refusal) => self.wrong.add(field, refusal.to_string()),
            Ok(_) => self
                .wrong
                .add(field, format!("{}: allowed: {}", p.def.name, p.def.allowed())),
        }
    }

    /// Adds a parameter to the error about rates above the line rate.
    fn above(&mut self, key: &'static str, rate: u32, text: String) {
        match &mut self.change.above {
            Some(Refused::AboveLineRate {
                keys, text: texts, ..
            }) => {
                keys.push(key);
                *texts = format!("{texts}; {text}");
            }
            above => {
                *above = Some(Refused::AboveLineRate {
                    keys: vec![key],
                    stored: rate,
                    text,
                });
            }
        }
    }

    /// A key that enables a priority at both ends. False: it is none.
    fn enable(&mut self, field: &str, name: &str, text: &str) -> bool {
        let mut keys =
            (0u8..8).filter_map(|priority| Some((priority, CongestionKeys::enable_key(priority)?)));
        let Some((priority, def)) = keys.find(|(_, def)| def.name.eq_ignore_ascii_case(name)) else {
            return false;
        };
        match text {
            "1" => self.by_key.0 |= 1 << priority,
            "0" | "" => self.by_key.1 |= 1 << priority,
            _ => self
                .wrong
                .add(field, format!("{}: {text:?}: 0 and 1 are allowed", def.name)),
        }
        true
    }

    fn store(&mut self, p: &'static Parameter, number: Option<u32>) {
        let word = number.map_or("as the preset has it".to_owned(), |n| n.to_string());
        self.change.words.push(format!("{} {word}", p.def.name));
        if !p.keyed {
            return self.change.spec.own.put(p, number);
        }
        // (Rows of older versions may have it here.)
        self.change.spec.own.put(p, None);
        self.change
            .operations
            .retain(|operation| operation.key != p.def.name);
        self.change
            .operations
            .push(operation(self.adapter, p.def, number));
    }

    fn priorities(&mut self, wish: &Wish, now: &CongestionStatus) {
        let (by_key, not_by_key) = self.by_key;
        let mut mask = |field: &str, value: u32| {
            u8::try_from(value).unwrap_or_else(|_| {
                let problem = format!("{value} is out of range: 0 to 255, a bit for each priority");
                self.wrong.add(field, problem);
                0
            })
        };
        let on = (
            mask("enable_reaction", wish.enable.0 | by_key),
            mask("enable_notification", wish.enable.1 | by_key),
        );
        let off = (
            mask("disable_reaction", wish.disable.0 | not_by_key),
            mask("disable_notification", wish.disable.1 | not_by_key),
        );
        for (field, both) in [
            ("disable_reaction", on.0 & off.0),
            ("disable_notification", on.1 & off.1),
        ] {
            if both != 0 {
                self.wrong.add(
                    field,
                    format!("priorities {both:#04x} are to be on and off at the same time"),
                );
            }
        }
        if on == (0, 0) && off == (0, 0) {
            return;
        }
        let before = now.spec.enabled(&now.keys);
        let (reaction, notification) = ((before.0 | on.0) & !off.0, (before.1 | on.1) & !off.1);
        self.change.words.push(format!(
            "reaction point on priorities {reaction:#04x}, notification point on {notification:#04x}"
        ));
        self.change.spec.only_reaction = reaction & !notification;
        self.change.spec.only_notification = notification & !reaction;
        let either = reaction | notification;
        // What is named is stored although it is so already: an NV parameter says nothing about it any more.
        let named = on.0 | on.1 | off.0 | off.1;
        for priority in 0..8 {
            let (was, is) = (now.keys.enable >> priority & 1, either >> priority & 1);
            let told = was != is || named >> priority & 1 != 0;
            if let (true, Some(def)) = (told, CongestionKeys::enable_key(priority)) {
                self.change
                    .operations
                    .push(operation(self.adapter, def, Some(is.into())));
            }
        }
    }
}
