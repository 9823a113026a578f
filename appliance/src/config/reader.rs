//! Reads a TOML file with serde. A key that the tables do not accept becomes a diagnostic with its place; it is left out
//! and the rest is read again, so that one run reports all problems.

use std::ops::Range;
use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer};

use super::diagnostics::{Diagnostics, Entry, Sink};
use crate::check;

/// Keys that tables do not accept, at most: each costs another reading, and files come from clients, too.
const WRONG_MAX: usize = 20;

/// A value that can be written as a number or as a string.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged, expecting = "expected a number or a string")]
pub enum Scalar {
    /// An integer.
    Integer(i64),
    /// A number with a fraction.
    Float(f64),
    /// A string.
    Text(String),
}

/// Numbers, as a list or as a string.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "expected a string or a list of integers")]
pub enum Numbers {
    /// A string.
    Text(String),
    /// A list.
    List(Vec<i64>),
}

/// One string or several.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "expected a string or a list of strings")]
pub enum Texts {
    /// One string.
    One(String),
    /// Several strings.
    Several(Vec<String>),
}

/// Reads the tables `T` of a file. Wrong keys are in the sink, and not in the tables.
pub fn read<'a, T: DeserializeOwned>(path: &'a Path, text: &'a str) -> Result<(T, Sink<'a>), Diagnostics> {
    let mut sink = Sink::new(path, text);
    let (mut tree, syntax) = DeTable::parse_recoverable(text);
    for error in &syntax {
        sink.error(error.span().unwrap_or(0..0), "", error.message());
    }
    // The tree of a file with syntax errors is a guess; missing keys in it would be reported as problems.
    if sink.failed() {
        return Err(sink.into_diagnostics());
    }
    keys(tree.get_ref(), "", &mut sink.entries);
    for _ in 0..WRONG_MAX {
        let error = match T::deserialize(Deserializer::from(tree.clone())) {
            Ok(tables) => return Ok((tables, sink)),
            Err(error) => error,
        };
        let span = error.span().unwrap_or(0..0);
        let wrong = sink.around(&span);
        sink.wrong(
            &span,
            message(error.message(), wrong.map_or("", |entry| &entry.path)),
        );
        if !wrong.is_some_and(|entry| remove(tree.get_mut(), &entry.key)) {
            break;
        }
    }
    Err(sink.into_diagnostics())
}

/// Adds the entries of a table.
fn keys(table: &DeTable<'_>, path: &str, all: &mut Vec<Entry>) {
    let dot = if path.is_empty() { "" } else { "." };
    for (key, value) in table {
        entries(format!("{path}{dot}{}", key.get_ref()), key.span(), value, all);
    }
}

fn entries(path: String, key: Range<usize>, of: &Spanned<DeValue<'_>>, all: &mut Vec<Entry>) {
    let (path, value) = (path.as_str(), of.span());
    all.push(Entry {
        path: path.to_owned(),
        key: key.clone(),
        value,
    });
    match of.get_ref() {
        DeValue::Table(table) => keys(table, path, all),
        DeValue::Array(list) => {
            for (i, element) in list.iter().enumerate() {
                entries(format!("{path}[{i}]"), key.clone(), element, all);
            }
        }
        _ => {}
    }
}

/// Removes the key at this place; returns whether it was there.
fn remove(table: &mut DeTable<'_>, key: &Range<usize>) -> bool {
    match table.keys().find(|k| k.span() == *key).cloned() {
        Some(here) => table.remove(&here).is_some(),
        None => table.iter_mut().any(|(_, value)| remove_in(value, key)),
    }
}

fn remove_in(value: &mut Spanned<DeValue<'_>>, key: &Range<usize>) -> bool {
    match value.get_mut() {
        DeValue::Table(table) => remove(table, key),
        DeValue::Array(list) => list.iter_mut().any(|element| remove_in(element, key)),
        _ => false,
    }
}

/// Message of serde in the words of a user.
fn message(text: &str, path: &str) -> String {
    if text.starts_with("unknown field") {
        let mut known: Vec<&str> = text.split('`').skip(1).step_by(2).collect();
        let name = known.remove(0);
        known.sort_unstable();
        return match check::nearest(name, &known) {
            Some(meant) => format!("unknown key; did you mean {meant:?}?"),
            None => format!("unknown key; allowed here: {}", known.join(", ")),
        };
    }
    let wrong_type = text
        .strip_prefix("invalid type: ")
        .and_then(|t| t.rsplit_once(", expected "));
    let Some((found, expected)) = wrong_type else {
        return text.to_owned();
    };
    let found = found.replace("map", "table");
    match expected {
        "a sequence" if found == "table" => {
            format!("expected tables, each written as [[{path}]], found table")
        }
        "a sequence" => format!("expected a list, found {found}"),
        "i64" => format!("expected an integer, found {found}"),
        "a boolean" => format!("expected true or false, found {found}"),
        "a map" => format!("expected a table, found {found}"),
        _ if expected.starts_with("struct ") => format!("expected a table, found {found}"),
        _ => format!("expected {expected}, found {found}"),
    }
}
