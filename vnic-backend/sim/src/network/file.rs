//! Scenarios as TOML files: `docs/simulator.md` has every key. What is wrong with a file is said with its line and key.

mod build;
mod quantity;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use serde::Deserialize;
use toml::{Spanned, Table, Value};
use vnic_engine::congestion::named::Named;

use super::scenario::Scenario;
pub use quantity::{Rate, Size, Time};

/// A scenario, and its algorithm with parameters for people.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// What is run.
    pub scenario: Scenario,
    /// Congestion control of its flows.
    pub algorithm: Named,
}

/// What a command line changes in a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Another algorithm, with its own parameters.
    pub algorithm: Option<String>,
    /// So many flows of each incast.
    pub flows: Option<usize>,
    /// Parameters of the algorithm (`ai_rate`), or keys of the file (`switch.buffer`), with values.
    pub set: Vec<(String, String)>,
    /// Another seed.
    pub seed: Option<u64>,
}

/// Names of scenarios, with their files.
macro_rules! built_in {
    ($($name:literal)*) => {
        [$(($name, include_str!(concat!("../../scenarios/", $name, ".toml")))),*]
    };
}

/// Scenarios that the simulator has with it: their names and files.
pub const BUILT_IN: [(&str, &str); 7] = built_in! {
    "star-8to1" "incast" "dumbbell" "permutation" "clos-pfc-unfairness" "leaf-spine-hadoop" "fat-tree-websearch"
};

/// A scenario by the path of its file, or by the name of one of [`BUILT_IN`].
pub fn load(name: &str, changes: &Changes) -> Result<Loaded> {
    let path = Path::new(name);
    if let Some((_, text)) = BUILT_IN.iter().find(|(n, _)| *n == name)
        && !path.exists()
    {
        return parse(text, Path::new(&format!("{name}.toml")), changes);
    }
    if !path.exists() && path.extension().is_none_or(|e| e != "toml") {
        let names: Vec<&str> = BUILT_IN.iter().map(|(n, _)| *n).collect();
        bail!(
            "there is no scenario {name:?}: name a TOML file, or one of {}",
            names.join(", ")
        );
    }
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
    parse(&text, path, changes)
}

/// A scenario from the text of its file. Paths in it are relative to the file's.
pub fn parse(text: &str, path: &Path, changes: &Changes) -> Result<Loaded> {
    let place = Place {
        text,
        path,
        set: false,
    };
    let loaded = read(&place)?;
    if *changes == Changes::default() {
        return Ok(loaded);
    }
    let changed = change(text, changes)?;
    read(&Place {
        text: &changed,
        path,
        set: true,
    })
}

fn read(place: &Place<'_>) -> Result<Loaded> {
    let file: File = toml::from_str(place.text).map_err(|e| {
        let message = e.message().replace('\n', ", ");
        place.at(e.span().map_or(0, |s| s.start), "", &message)
    })?;
    build::build(file, place)
}

/// The text of a file with the changes of a command line in it.
fn change(text: &str, changes: &Changes) -> Result<String> {
    let mut table: Table = toml::from_str(text)?;
    if let Some(name) = &changes.algorithm {
        // Parameters are of the algorithm that was named there, and so is the notification point.
        let control = Table::from_iter([("algorithm".to_owned(), name.clone().into())]);
        table.insert("control".to_owned(), control.into());
    }
    if let Some(seed) = changes.seed {
        table.insert("seed".to_owned(), Value::Integer(seed as i64));
    }
    if let Some(flows) = changes.flows {
        let entries = table.get_mut("flows").and_then(Value::as_array_mut);
        let mut incasts = 0;
        for entry in entries.into_iter().flatten().filter_map(Value::as_table_mut) {
            if entry.get("kind").and_then(Value::as_str) == Some("incast") {
                entry.insert("flows".to_owned(), Value::Integer(flows as i64));
                incasts += 1;
            }
        }
        if incasts == 0 {
            bail!("--flows: the scenario has no incast whose flows could be counted");
        }
    }
    for (key, value) in &changes.set {
        set(&mut table, key, value).with_context(|| format!("--set {key}={value}"))?;
    }
    Ok(toml::to_string(&table)?)
}

/// Sets one key. Without a dot and unknown at the top, it is a parameter of the algorithm.
fn set(table: &mut Table, key: &str, value: &str) -> Result<()> {
    let top = ["name", "seed", "duration", "mtu"].contains(&key);
    let path: Vec<&str> = match key.contains('.') || top {
        true => key.split('.').collect(),
        false => vec!["control", "parameters", key],
    };
    let (last, tables) = path.split_last().ok_or_else(|| anyhow!("there is no key"))?;
    let mut at = table;
    for name in tables {
        at = at
            .entry(*name)
            .or_insert_with(|| Table::new().into())
            .as_table_mut()
            .ok_or_else(|| anyhow!("{name} is not a table"))?;
    }
    // 5, true and { kmin = "5KB" } are TOML; what is not is a text.
    let value = toml::from_str::<Table>(&format!("v = {value}"))
        .ok()
        .and_then(|mut t| t.remove("v"))
        .unwrap_or_else(|| value.into());
    at.insert((*last).to_owned(), value);
    Ok(())
}

/// Where something is in a file.
struct Place<'a> {
    text: &'a str,
    path: &'a Path,
    /// The text has the changes of a command line in it: lines mean nothing.
    set: bool,
}

impl Place<'_> {
    /// What is wrong at an offset.
    fn at(&self, offset: usize, key: &str, message: &str) -> anyhow::Error {
        let before = &self.text[..self.text.floor_char_boundary(offset.min(self.text.len()))];
        let line = before.matches('\n').count();
        let source = self.text.lines().nth(line).unwrap_or("");
        let key = match (key, source.split_once('=')) {
            ("", Some((name, _))) => name.trim(),
            ("", None) => source.trim(),
            _ => key,
        };
        let name = self.path.display();
        match self.set {
            true => anyhow!("{name} with what was set: {key}: {message}"),
            false => anyhow!("{name}:{}: {key}: {message}", line + 1),
        }
    }

    fn wrong<T>(&self, value: &Spanned<T>, key: &str, message: impl AsRef<str>) -> anyhow::Error {
        self.at(value.span().start, key, message.as_ref())
    }

    /// A path of the file, relative to it.
    fn resolve(&self, path: &str) -> PathBuf {
        self.path.parent().unwrap_or(Path::new("")).join(path)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: Option<String>,
    seed: Option<u64>,
    duration: Time,
    mtu: Option<Spanned<u16>>,
    topology: Spanned<TopologyTable>,
    switch: Option<SwitchTable>,
    host: Option<HostTable>,
    control: Option<ControlTable>,
    #[serde(default)]
    flows: Vec<Spanned<FlowsTable>>,
    record: Option<RecordTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TopologyTable {
    kind: Spanned<String>,
    hosts: Option<usize>,
    left: Option<usize>,
    right: Option<usize>,
    hosts_per_tor: Option<usize>,
    leaves: Option<usize>,
    spines: Option<usize>,
    ports: Option<Spanned<usize>>,
    rate: Option<Rate>,
    fabric_rate: Option<Rate>,
    delay: Option<Time>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SwitchTable {
    preset: Option<Spanned<String>>,
    buffer: Option<Size>,
    red: Option<RedTable>,
    pfc: Option<PfcValue>,
    xon_offset: Option<Size>,
    telemetry: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RedTable {
    enable: Option<bool>,
    kmin: Option<Size>,
    kmax: Option<Size>,
    pmax: Option<Spanned<f64>>,
    at: Option<Spanned<String>>,
    scale: Option<Rate>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PfcValue {
    off: Option<bool>,
    r#static: Option<Size>,
    dynamic: Option<Spanned<f64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HostTable {
    delay: Option<Time>,
    receive_rate: Option<Rate>,
    receive_queue: Option<u32>,
    control_first: Option<bool>,
    loss: Option<Spanned<f64>>,
    timeout: Option<Spanned<u8>>,
    zero_touch: Option<ZeroTouchTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ZeroTouchTable {
    adp_retrans: Option<bool>,
    adp_retrans_floor: Option<Time>,
    tx_window: Option<Spanned<u32>>,
    slow_restart: Option<bool>,
    slow_restart_idle: Option<bool>,
    selective_repeat: Option<bool>,
    multipath_ways: Option<Spanned<u32>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ControlTable {
    algorithm: Spanned<String>,
    #[serde(default)]
    parameters: BTreeMap<String, Spanned<Value>>,
    notification: Option<NotificationTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NotificationTable {
    enable: Option<bool>,
    scope: Option<Spanned<String>>,
    spacing: Option<Time>,
    trailing: Option<bool>,
    told: Option<Time>,
    priority: Option<Spanned<u8>>,
}

/// A host by its number or name.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Node {
    Number(usize),
    Name(String),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Nodes {
    One(Node),
    List(Vec<Node>),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum SizesValue {
    Name(String),
    Points(Vec<(f64, f64)>),
}

// Wide: a table of a scenario file, a field for each of its keys.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FlowsTable {
    kind: Spanned<String>,
    from: Option<Spanned<Nodes>>,
    to: Option<Spanned<Node>>,
    flows: Option<usize>,
    bytes: Option<Size>,
    start: Option<Time>,
    spread: Option<Time>,
    every: Option<Time>,
    stop: Option<Time>,
    until: Option<Time>,
    load: Option<Spanned<f64>>,
    sizes: Option<Spanned<SizesValue>>,
    fan_in: Option<usize>,
    path: Option<Spanned<String>>,
    priority: Option<Spanned<u8>>,
    group: Option<u16>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordTable {
    from: Option<Time>,
    interval: Option<Time>,
    #[serde(default)]
    queues: Vec<Spanned<String>>,
    flows: Option<Spanned<FlowNumbers>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum FlowNumbers {
    Word(String),
    List(Vec<usize>),
}
