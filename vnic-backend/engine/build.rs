//! Makes Rust of `counters.toml`. A word that the table does not know fails the build.
#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "it is no part of the engine: cargo speaks to it in its environment and by what it prints"
)]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::{env, error, fs};

use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    own: Vec<Own>,
    set: Vec<Set>,
    sums: BTreeMap<String, String>,
    not_modelled: BTreeMap<String, String>,
    not_yet: BTreeMap<String, String>,
}

/// What the NIC counts of a queue, a port and so on.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Own {
    of: String,
    help: String,
    scopes: Vec<String>,
    rows: Vec<(String, String, String)>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Set {
    title: String,
    family: String,
    instance: String,
    names: Vec<(String, String, String, String)>,
}

fn main() -> Result<(), Box<dyn error::Error>> {
    const FILE: &str = "counters.toml";
    println!("cargo::rerun-if-changed={FILE}");
    let table: Table = toml::from_str(&fs::read_to_string(FILE)?)?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let (rdma, others): (Vec<&Own>, Vec<&Own>) = table.own.iter().partition(|own| own.of == "rdma");
    let kinds: String = others.into_iter().map(kind).collect();
    let rows: String = table.own.iter().map(rows).collect();
    fs::write(out.join("own_counters.rs"), kinds + &rows)?;
    let field = |(name, _, help): &(String, String, String)| format!("{name}: {help:?};\n");
    let fields: String = rdma.iter().flat_map(|own| own.rows.iter().map(field)).collect();
    fs::write(out.join("rdma_counters.rs"), format!("counters! {{ {fields} }}"))?;
    let sets = table
        .set
        .iter()
        .map(|set| table.set(set))
        .collect::<Result<String, _>>()?;
    let doc = "/// All sets.";
    fs::write(
        out.join("sets.rs"),
        format!("{doc}\npub static SETS: &[&Set] = &[{sets}];"),
    )?;
    Ok(())
}

/// `rx_frames` is `RxFrames`.
fn camel(name: &str) -> String {
    name.split('_')
        .map(|word| word[..1].to_uppercase() + &word[1..])
        .collect()
}

/// The enumeration of an owner's counters.
fn kind(Own { of, help, rows, .. }: &Own) -> String {
    let (name, count) = (camel(of), rows.len());
    let variant =
        |(name, _, help): &(String, String, String)| format!("#[doc = {help:?}] {},\n", camel(name));
    let variants: String = rows.iter().map(variant).collect();
    format!(
        "#[doc = {help:?}]
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(usize)]
        pub enum {name}Counter {{ {variants} }}
        impl {name}Counter {{
            /// How many there are: the `N` of their [`Block`].
            pub const COUNT: usize = {count};
        }}\n"
    )
}

/// The rows of an owner's counters, once for each scope that has them.
fn rows(Own { of, scopes, rows, .. }: &Own) -> String {
    let (of, count) = (of.to_uppercase(), rows.len());
    let table = |scope: &String| {
        let port = if scope.starts_with("Port") && of != "PORT" {
            "PORT_"
        } else {
            ""
        };
        let row = |(name, unit, help): &(String, String, String)| {
            format!(
                "CounterDef {{ name: {name:?}, scope: Scope::{scope}, unit: {unit:?}, help: {help:?} }},\n"
            )
        };
        let rows: String = rows.iter().map(row).collect();
        format!(
            "/// The rows of [`Scope::{scope}`].
            pub static {port}{of}_COUNTERS: [CounterDef; {count}] = [{rows}];\n"
        )
    };
    scopes.iter().map(table).collect()
}

impl Table {
    fn set(&self, set: &Set) -> Result<String, String> {
        let name = |(name, unit, kind, value): &(String, String, String, String)| {
            let (source, text) = self.source(value).map_err(|e| format!("{name}: {e}"))?;
            let kind = camel(kind);
            Ok::<_, String>(format!(
                "Name {{ name: {name:?}, unit: {unit:?}, kind: Kind::{kind}, source: {source}, text: {text:?} }},\n"
            ))
        };
        let names = set.names.iter().map(name).collect::<Result<String, _>>()?;
        let Set {
            title,
            family,
            instance,
            ..
        } = set;
        Ok(format!(
            "&Set {{ title: {title:?}, family: Family::{family}, instance: Instance::{instance}, names: &[{names}] }},\n"
        ))
    }

    /// Where a value comes from, or why there is none: for the program, and for people.
    fn source(&self, value: &str) -> Result<(String, String), String> {
        if let Some(why) = self.not_modelled.get(value) {
            return Ok((format!("Source::NotModelled({why:?})"), why.clone()));
        }
        if let Some(why) = self.not_yet.get(value) {
            return Ok((format!("Source::NotYet({why:?})"), why.clone()));
        }
        if let Some(sum) = value.strip_prefix("rate of ") {
            let (sum, text) = self.sum(sum)?;
            return Ok((format!("Source::Rate({sum})"), text));
        }
        let mean = value
            .strip_prefix('(')
            .and_then(|v| v.strip_suffix(')')?.split_once(") / ("));
        if let Some((sum, count)) = mean {
            let ((sum, above), (count, below)) = (self.sum(sum)?, self.sum(count)?);
            return Ok((
                format!("Source::Mean({sum}, {count})"),
                format!("({above}) / ({below})"),
            ));
        }
        let (sum, text) = self.sum(value)?;
        Ok((format!("Source::Is({sum})"), text))
    }

    /// `a + b - c / 4`, where words stand for sums: all of it is divided.
    fn sum(&self, sum: &str) -> Result<(String, String), String> {
        let (sum, per) = sum.split_once(" / ").unwrap_or((sum, "1"));
        let words = sum
            .split_whitespace()
            .map(|word| self.sums.get(word).map_or(word, String::as_str));
        let (mut plus, mut minus, mut text) = (String::new(), String::new(), String::new());
        let mut terms = &mut plus;
        for word in words.collect::<Vec<_>>().join(" ").split_whitespace() {
            match word {
                "+" => (terms, text) = (&mut plus, text + " + "),
                "-" => (terms, text) = (&mut minus, text + " − "),
                _ => {
                    let (term, name) = self.term(word).ok_or_else(|| format!("there is no {word:?}"))?;
                    *terms += &(term + ", ");
                    text += &name;
                }
            }
        }
        let text = match per {
            "1" => text,
            _ if text.contains(" + ") || text.contains(" − ") => format!("({text}) / {per}"),
            _ => format!("{text} / {per}"),
        };
        Ok((
            format!("Sum {{ plus: &[{plus}], minus: &[{minus}], per: {per} }}"),
            text,
        ))
    }

    /// A counter, and the name that people know it by.
    fn term(&self, term: &str) -> Option<(String, String)> {
        let (of, name) = match term.split_once('.') {
            None if term == "cpu" => return Some(("Term::Cpu".into(), "the CPU of its data core".into())),
            Some(("drops", reason)) => {
                return Some((format!("Term::Drop({reason:?})"), format!("drops{{{reason}}}")));
            }
            owner => owner?,
        };
        let own = self.own.iter().find(|own| own.of == of)?;
        let place = own.rows.iter().position(|row| row.0 == name)?;
        let kind = camel(of);
        Some(match of {
            "rdma" => (format!("Term::Rdma({place})"), name.into()),
            "priority" | "link" => (
                format!("Term::{kind}({kind}Counter::{})", camel(name)),
                format!("{name} of the {of}"),
            ),
            _ => (
                format!("Term::{kind}({kind}Counter::{})", camel(name)),
                name.into(),
            ),
        })
    }
}
