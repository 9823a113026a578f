//! Scenario files: failures at given times, for `vnicctl fault play`.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;
use vnic_backend::RdmaEvent;

use super::diagnostics::{Diagnostics, Sink};
use super::faults::{FaultTable, Owners, fault};
use super::reader::{self, Texts};
use super::verbs_faults::{VerbsFaultTable, verbs_fault};
use crate::check::{self, Checked, fault as limits};
use crate::scenarios::{Act, Moment, PortChange, Scenario};

/// Moments of a scenario, at most.
const MOMENTS_MAX: usize = 10_000;
/// Length of a scenario, at most.
const LENGTH_MAX: Duration = Duration::from_secs(7 * 86_400);
/// The one port of an RDMA function.
const PORT: u32 = 1;
/// Keys that are of some actions only.
const OF_ACTIONS: [(&str, &[&str]); 11] = [
    ("event_delay", &["port_down"]),
    ("index", &["gid_gone", "gid_moved", "event"]),
    ("event", &["event"]),
    ("priorities", &["pause_storm"]),
    ("to", &["gid_moved", "device_removed"]),
    ("mtu", &["mtu"]),
    ("speed", &["speed"]),
    ("rate", &["rate"]),
    ("fault", &["fault"]),
    ("verbs_fault", &["verbs_fault"]),
    ("rule", &["fault_removed"]),
];
/// Actions.
const ACTIONS: [&str; 14] = [
    "port_down",
    "device_fatal",
    "device_removed",
    "gid_gone",
    "gid_moved",
    "mtu",
    "speed",
    "rate",
    "pause_storm",
    "event",
    "fault",
    "verbs_fault",
    "fault_removed",
    "kill",
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: Option<Spanned<String>>,
    description: Option<String>,
    #[serde(default)]
    seed: Option<Spanned<i64>>,
    length: Option<Spanned<String>>,
    /// Parts in the scenario, with the adapters that play them.
    #[serde(default)]
    adapters: BTreeMap<Spanned<String>, Spanned<String>>,
    #[serde(default)]
    step: Vec<Spanned<StepTable>>,
}

/// `[[step]]`.
// Wide: the keys of the table in the file.
#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct StepTable {
    at: Option<Spanned<String>>,
    after: Option<Spanned<String>>,
    action: Option<Spanned<String>>,
    adapter: Option<Spanned<Texts>>,
    r#for: Option<Spanned<String>>,
    every: Option<Spanned<String>>,
    duty: Option<Spanned<f64>>,
    times: Option<Spanned<i64>>,
    event_delay: Option<Spanned<String>>,
    index: Option<Spanned<i64>>,
    to: Option<Spanned<i64>>,
    mtu: Option<Spanned<i64>>,
    speed: Option<Spanned<i64>>,
    rate: Option<Spanned<i64>>,
    priorities: Option<Spanned<Vec<i64>>>,
    event: Option<Spanned<String>>,
    fault: Option<Spanned<FaultTable>>,
    verbs_fault: Option<Spanned<VerbsFaultTable>>,
    rule: Option<Spanned<String>>,
}

/// When a step acts.
struct Times {
    /// Rule whose first hit it is counted from.
    after: Option<String>,
    at: Duration,
    /// How long it lasts; `None`: until the scenario ends.
    lasts: Option<Duration>,
    every: Duration,
    times: u32,
}

/// Reads a scenario. `set`: the adapters that play parts, instead of those that the file names.
pub fn from_text(path: &Path, text: &str, set: &BTreeMap<String, String>) -> Result<Scenario, Diagnostics> {
    let (file, sink) = reader::read::<File>(path, text)?;
    let whole = 0..0;
    let name = sink.text(sink.required(&whole, "name", file.name), scenario_name);
    let seed = sink.check(file.seed, limits::count).unwrap_or(0);
    let mut parts: BTreeMap<String, String> = BTreeMap::new();
    for (part, adapter) in file.adapters {
        let adapter = sink.text(Some(adapter), check::name);
        parts.extend(Some(part.into_inner()).zip(adapter));
    }
    for (part, adapter) in set {
        match parts.get_mut(part) {
            Some(there) => adapter.clone_into(there),
            None => {
                let known: Vec<&str> = parts.keys().map(String::as_str).collect();
                let problem = format!("the scenario has no part {part:?}; it has: {}", known.join(", "));
                sink.error(0..0, "adapters", problem);
            }
        }
    }
    let mut reader = Reader {
        sink: &sink,
        parts,
        names: Owners::new(),
        rules: BTreeMap::new(),
        seed,
        moments: Vec::new(),
    };
    if file.step.is_empty() {
        sink.error(
            0..0,
            "step",
            "nothing happens: each step is a table written as [[step]]",
        );
    }
    for table in file.step {
        let at = table.span();
        reader.step(&at, table.into_inner());
    }
    let mut moments = reader.moments;
    moments.sort_by_key(|moment| moment.at);
    let waits = |moment: &&Moment| moment.after.is_some();
    if file.length.is_none() && moments.iter().any(|moment| waits(&moment)) {
        sink.error(
            0..0,
            "length",
            "required: a step waits for a rule, and the scenario ends by then",
        );
    }
    let timed = moments.iter().rfind(|moment| !waits(moment));
    let last = timed.map_or(Duration::ZERO, |moment| moment.at);
    let length = sink.text(file.length, |text| {
        let length = limits::span(text)?;
        match length < last {
            true => Err(format!("a step acts later, after {last:?}")),
            false => bounded(length),
        }
    });
    sink.finish(Scenario {
        name: name.unwrap_or_default(),
        description: file.description.unwrap_or_default(),
        moments,
        length: length.unwrap_or(last),
    })
}

fn scenario_name(text: &str) -> Checked<String> {
    let fine = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    match text.len() {
        1..=40 if text.bytes().all(fine) => Ok(text.to_owned()),
        _ => Err(format!("{text:?} is not a name: 1 to 40 of a-z, 0-9 and '-'")),
    }
}

fn bounded(time: Duration) -> Checked<Duration> {
    match time <= LENGTH_MAX {
        true => Ok(time),
        false => Err("at most 7 d".to_owned()),
    }
}

fn time(text: &str) -> Checked<Duration> {
    bounded(limits::span(text)?)
}

fn some_time(text: &str) -> Checked<Duration> {
    match time(text)? {
        Duration::ZERO => Err("must be more than 0".to_owned()),
        time => Ok(time),
    }
}

/// A time that may be negative.
fn signed(text: &str) -> Checked<(bool, Duration)> {
    let magnitude = text.strip_prefix('-');
    Ok((magnitude.is_some(), time(magnitude.unwrap_or(text))?))
}

fn gid_index(index: i64) -> Checked<u16> {
    u16::try_from(index).map_err(|_| "an index of the GID table is not negative".to_owned())
}

/// Number of a device among those of a process.
fn device_number(number: i64) -> Checked<u32> {
    u32::try_from(number)
        .ok()
        .filter(|number| *number <= 255)
        .ok_or_else(|| "0 to 255, as in vnic2".to_owned())
}

/// Code of an MTU of queue pairs.
fn mtu(bytes: i64) -> Checked<u8> {
    let codes = (1..=5_u8).find(|code| 128_i64 << code == bytes);
    codes.ok_or_else(|| format!("{bytes} is none of 256, 512, 1024, 2048 and 4096"))
}

fn speed(mbps: i64) -> Checked<u32> {
    u32::try_from(mbps)
        .ok()
        .filter(|mbps| (1..=1_600_000).contains(mbps))
        .ok_or_else(|| "1 to 1600000, in Mbit/s".to_owned())
}

/// Priorities, a bit each.
fn priorities(list: Vec<i64>) -> Checked<u8> {
    let bit = |p: i64| u8::try_from(p).ok().and_then(|p| 1_u8.checked_shl(p.into()));
    let all: Option<Vec<u8>> = list.into_iter().map(bit).collect();
    let all = all.filter(|all| !all.is_empty()).ok_or("priorities are 0 to 7")?;
    Ok(all.into_iter().fold(0, |mask, bit| mask | bit))
}

fn event(text: &str) -> Checked<RdmaEvent> {
    let all = [
        ("lid_change", RdmaEvent::LidChange),
        ("gid_change", RdmaEvent::GidChange),
        ("port_error", RdmaEvent::PortError),
        ("port_active", RdmaEvent::PortActive),
    ];
    let found = all.into_iter().find(|(name, _)| *name == text);
    let known = all.map(|(name, _)| format!("{name:?}")).join(", ");
    found
        .map(|(_, event)| event)
        .ok_or_else(|| format!("{text:?} is no event: {known}"))
}

fn unknown_rule(rule: &str) -> String {
    format!("no step before makes a rule {rule:?}")
}

/// Reader of steps.
struct Reader<'a, 'b> {
    sink: &'a Sink<'b>,
    /// Adapters by part.
    parts: BTreeMap<String, String>,
    /// Names of fault rules, with their lines.
    names: Owners,
    /// What makes each of them.
    rules: BTreeMap<String, Act>,
    seed: u64,
    moments: Vec<Moment>,
}

impl Reader<'_, '_> {
    fn step(&mut self, at: &Range<usize>, mut table: StepTable) {
        let action = self
            .sink
            .text(self.sink.required(at, "action", table.action.take()), |text| {
                let known = ACTIONS.map(|name| format!("{name:?}")).join(", ");
                let found = ACTIONS.into_iter().find(|name| *name == text);
                found.ok_or_else(|| format!("{text:?} is no action: {known}"))
            });
        let Some(action) = action else { return };
        for (key, _) in OF_ACTIONS
            .iter()
            .filter(|(_, actions)| !actions.contains(&action))
        {
            if let Some(place) = self.sink.place(at, key) {
                self.sink
                    .wrong(&place, format!("not allowed with action = {action:?}"));
            }
        }
        let whole = matches!(action, "device_fatal" | "event" | "fault_removed" | "kill");
        let times = self.times(at, &mut table, whole);
        let delay = self.sink.text(table.event_delay.take(), signed);
        let number = match action {
            "device_removed" => self.sink.check(table.to.take(), device_number),
            _ => None,
        };
        let acts = self.acts(at, action, &mut table);
        let Some(times) = times else { return };
        if number.is_some() && times.lasts.is_none() {
            self.sink
                .wrong_key(at, "to", "needs the key for: when the device is back");
        }
        if let Some((true, early)) = delay
            && early > times.at
        {
            self.sink.wrong_key(
                at,
                "event_delay",
                "the event would come before the scenario begins",
            );
            return;
        }
        let told = |at: Duration, act: &Act| match (act, delay) {
            (
                Act::Port {
                    change: PortChange::Down(_),
                    ..
                },
                Some((true, early)),
            ) => at.saturating_sub(early),
            (
                Act::Port {
                    change: PortChange::Down(_),
                    ..
                },
                Some((false, late)),
            ) => at + late,
            _ => at,
        };
        for n in 0..times.times {
            let begin = times.at + times.every * n;
            for act in &acts {
                let at = told(begin, act);
                let (after, act) = (times.after.clone(), act.clone());
                self.moments.push(Moment { after, at, act });
            }
            let Some(end) = times.lasts.map(|lasts| begin + lasts) else {
                continue;
            };
            for act in acts.iter().filter_map(Act::inverse) {
                let act = match act {
                    Act::Away { adapter, away: false } if number.is_some() => {
                        Act::Renumber { adapter, number }
                    }
                    act => act,
                };
                let at = told(end, &act);
                let after = times.after.clone();
                self.moments.push(Moment { after, at, act });
            }
        }
        if self.moments.len() > MOMENTS_MAX {
            self.sink.wrong(
                at,
                format!("with this step the scenario does more than {MOMENTS_MAX} things"),
            );
            self.moments.clear();
        }
    }

    /// When a step acts; `whole`: what it does cannot be undone.
    fn times(&self, at: &Range<usize>, table: &mut StepTable, whole: bool) -> Option<Times> {
        let sink = self.sink;
        let after = sink.text(table.after.take(), |rule| match self.rules.contains_key(rule) {
            true => Ok(rule.to_owned()),
            false => Err(unknown_rule(rule)),
        });
        let begin = sink.text(sink.required(at, "at", table.at.take()), time);
        let (has_for, has_every) = (table.r#for.is_some(), table.every.is_some());
        let lasts = sink.text(table.r#for.take(), some_time);
        let every = sink.text(table.every.take(), some_time);
        let duty = sink.check(table.duty.take(), |duty: f64| match duty > 0.0 && duty < 1.0 {
            true => Ok(duty),
            false => Err("between 0 and 1".to_owned()),
        });
        let times = sink.check(table.times.take(), |times| {
            u32::try_from(times)
                .ok()
                .filter(|times| (1..=5000).contains(times))
                .ok_or_else(|| "1 to 5000".to_owned())
        });
        let wrong = |key: &str, problem: &str| {
            if sink.place(at, key).is_some() {
                sink.wrong_key(at, key, problem);
            }
        };
        if whole {
            wrong("for", "what this action does is not put back");
            wrong("duty", "what this action does is not put back");
        }
        if !has_every {
            wrong("times", "needs the key every");
            wrong("duty", "needs the key every");
        } else if times.is_none() {
            sink.required::<()>(at, "times", None);
        }
        if has_for {
            wrong("duty", "the key for says how long it lasts");
        }
        let lasts = lasts.or_else(|| Some(every?.mul_f64(duty?)));
        if let (Some(every), false) = (every, whole) {
            match lasts {
                None => sink.wrong_key(at, "every", "with it, for or duty says how long each lasts"),
                Some(lasts) if lasts >= every => {
                    sink.wrong_key(at, "every", "must be longer than each lasts")
                }
                Some(_) => {}
            }
        }
        let every = every.unwrap_or_default();
        let times = times.unwrap_or(1);
        if every.checked_mul(times).is_none_or(|all| all > LENGTH_MAX) {
            sink.wrong_key(at, "times", "takes longer than 7 d");
            return None;
        }
        Some(Times {
            after,
            at: begin?,
            lasts,
            every,
            times,
        })
    }

    /// What a step does when it begins.
    fn acts(&mut self, at: &Range<usize>, action: &str, table: &mut StepTable) -> Vec<Act> {
        let sink = self.sink;
        if matches!(action, "fault" | "verbs_fault" | "fault_removed")
            && let Some(place) = sink.place(at, "adapter")
        {
            sink.wrong(&place, "a rule says itself which adapters it is about");
        }
        if matches!(action, "fault" | "verbs_fault") {
            return self.rule(at, action, table).into_iter().collect();
        }
        if action == "fault_removed" {
            let of = |rule: &str| self.rules.get(rule).and_then(Act::inverse);
            let named = |rule: &str| of(rule).ok_or_else(|| unknown_rule(rule));
            let act = sink.text(sink.required(at, "rule", table.rule.take()), named);
            return act.into_iter().collect();
        }
        let adapters = self.adapters(at, table);
        let index = sink.check(table.index.take(), gid_index);
        let to = match action {
            "gid_moved" => sink.check(sink.required(at, "to", table.to.take()), gid_index),
            _ => None,
        };
        let change = match action {
            "mtu" => sink
                .check(sink.required(at, "mtu", table.mtu.take()), mtu)
                .map(|code| PortChange::Mtu(Some(code))),
            "speed" => sink
                .check(sink.required(at, "speed", table.speed.take()), speed)
                .map(|mbps| PortChange::Speed(Some(mbps))),
            _ => Some(PortChange::Down(true)),
        };
        let rate = match action {
            "rate" => sink.check(sink.required(at, "rate", table.rate.take()), speed),
            _ => None,
        };
        let priorities = sink.check(table.priorities.take(), priorities).unwrap_or(0);
        let told = match action {
            "event" => sink.text(sink.required(at, "event", table.event.take()), event),
            _ => None,
        };
        let Some(change) = change else { return Vec::new() };
        let of = |adapter: String| match action {
            "port_down" => vec![
                Act::Cut {
                    adapter: adapter.clone(),
                    cut: true,
                },
                Act::Port { adapter, change },
            ],
            "device_fatal" => vec![Act::Fail { adapter }],
            "device_removed" => vec![Act::Away { adapter, away: true }],
            "gid_gone" | "gid_moved" => vec![Act::MoveGid { adapter, index, to }],
            "kill" => vec![Act::Kill { adapter }],
            "rate" => vec![Act::Rate { adapter, mbps: rate }],
            "pause_storm" => vec![Act::PauseStorm {
                adapter,
                priorities,
                storm: true,
            }],
            "event" => {
                let act = |event| Act::Tell {
                    adapter,
                    event,
                    object: match event {
                        RdmaEvent::GidChange => index.unwrap_or_default().into(),
                        _ => PORT,
                    },
                };
                told.map(act).into_iter().collect()
            }
            _ => vec![Act::Port { adapter, change }],
        };
        adapters.into_iter().flat_map(of).collect()
    }

    /// Adapters of a step: by their parts, or by their names.
    fn adapters(&self, at: &Range<usize>, table: &mut StepTable) -> Vec<String> {
        let Some(adapters) = self.sink.required(at, "adapter", table.adapter.take()) else {
            return Vec::new();
        };
        let names = |texts: Texts| {
            let texts = match texts {
                Texts::One(text) => vec![text],
                Texts::Several(texts) => texts,
            };
            if texts.is_empty() {
                return Err("no adapter at all".to_owned());
            }
            texts.into_iter().map(|text| self.adapter(&text)).collect()
        };
        self.sink.check(Some(adapters), names).unwrap_or_default()
    }

    fn adapter(&self, name: &str) -> Checked<String> {
        match self.parts.get(name) {
            Some(adapter) => Ok(adapter.clone()),
            None => check::name(name),
        }
    }

    /// What makes the rule of a step, with the adapters of its parts and a seed of its own.
    fn rule(&mut self, at: &Range<usize>, action: &str, table: &mut StepTable) -> Option<Act> {
        let (sink, parts, names) = (self.sink, &self.parts, &mut self.names);
        let named = |owner: &mut String| {
            if let Some(adapter) = parts.get(owner) {
                adapter.clone_into(owner);
            }
        };
        let nth = names.len() as u64 + 1;
        let seed = self.seed.wrapping_add(nth) & 0xffff_ffff;
        let (name, act) = if action == "fault" {
            let table = sink.required(at, "fault", table.fault.take())?;
            let mut rule = fault(sink, &table.span(), table.into_inner(), None, names)?;
            rule.seed.get_or_insert(seed);
            [&mut rule.from, &mut rule.to]
                .into_iter()
                .flatten()
                .for_each(named);
            (rule.name.clone(), Act::AddFault(Box::new(rule)))
        } else {
            let table = sink.required(at, "verbs_fault", table.verbs_fault.take())?;
            let mut rule = verbs_fault(sink, &table.span(), table.into_inner(), None, names)?;
            rule.seed.get_or_insert(seed);
            named(&mut rule.adapter);
            (rule.name.clone(), Act::AddVerbsFault(Box::new(rule)))
        };
        self.rules.insert(name, act.clone());
        Some(act)
    }
}
