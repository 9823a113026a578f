//! The file of costs, and how measured ones compare with it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context as _, Result, ensure};

/// What a cost may differ by from what is recorded.
pub const TOLERANCE: f64 = 0.03;

/// A cost that was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Cost {
    /// Of this case.
    pub name: &'static str,
    /// Instructions for what.
    pub unit: &'static str,
    /// What is in it.
    pub what: &'static str,
    /// How many.
    pub value: f64,
}

/// What is recorded.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// Who made the instructions.
    pub compiler: String,
    costs: BTreeMap<String, f64>,
}

/// The text of the file.
pub fn text(compiler: &str, costs: &[Cost]) -> String {
    let mut out = format!(
        "# Instructions that a packet and a work request cost, on the release build. `vnic-bench costs` measures them and fails when\n\
         # one differs by more than {} %; `vnic-bench costs --record` writes this file.\n\
         compiler = \"{compiler}\"\n\n[costs]\n",
        TOLERANCE * 100.0
    );
    for c in costs {
        let _ = writeln!(out, "# {}: {}.\n{} = {:.1}", c.unit, c.what, c.name, c.value);
    }
    out
}

impl Record {
    /// Reads the file.
    pub fn parse(text: &str) -> Result<Record> {
        let table: toml::Table = text.parse()?;
        let compiler = table.get("compiler").and_then(toml::Value::as_str);
        let costs = table.get("costs").and_then(toml::Value::as_table);
        let number = |(name, value): (&String, &toml::Value)| {
            let value = value.as_float().or(value.as_integer().map(|i| i as f64));
            let value = value.with_context(|| format!("{name} is not a number"))?;
            ensure!(value > 0.0, "{name} is not above 0");
            Ok((name.clone(), value))
        };
        let costs = costs.context("no table [costs]")?.iter().map(number);
        Ok(Record {
            compiler: compiler.context("no compiler")?.into(),
            costs: costs.collect::<Result<_>>()?,
        })
    }

    /// What is recorded of a case.
    pub fn of(&self, name: &str) -> Option<f64> {
        self.costs.get(name).copied()
    }

    /// How many costs are not what is recorded, or are missing in one of the two.
    pub fn breaches(&self, measured: &[Cost]) -> usize {
        self.rows(measured).filter(|row| row.breach()).count()
    }

    /// All of them, for people.
    pub fn table(&self, measured: &[Cost]) -> String {
        let mut out = format!("{:<24} {:>10} {:>10} {:>9}\n", "case", "recorded", "measured", "");
        for row in self.rows(measured) {
            let number = |v: Option<f64>| v.map_or("–".into(), |v| format!("{v:.1}"));
            let difference = row
                .difference()
                .map_or("–".into(), |d| format!("{:+.1} %", d * 100.0));
            let mark = if row.breach() { "  <--" } else { "" };
            let (recorded, measured) = (number(row.recorded), number(row.measured));
            let _ = writeln!(
                out,
                "{:<24} {recorded:>10} {measured:>10} {difference:>9}{mark}",
                row.name
            );
        }
        out
    }

    fn rows<'a>(&'a self, measured: &'a [Cost]) -> impl Iterator<Item = Row<'a>> {
        let gone = self
            .costs
            .iter()
            .filter(|(name, _)| !measured.iter().any(|c| c.name == **name));
        let there = measured.iter().map(|c| Row {
            name: c.name,
            recorded: self.of(c.name),
            measured: Some(c.value),
        });
        there.chain(gone.map(|(name, &value)| Row {
            name,
            recorded: Some(value),
            measured: None,
        }))
    }
}

/// A cost as it is and as it should be.
struct Row<'a> {
    name: &'a str,
    recorded: Option<f64>,
    measured: Option<f64>,
}

impl Row<'_> {
    fn difference(&self) -> Option<f64> {
        Some(self.measured? / self.recorded? - 1.0)
    }

    fn breach(&self) -> bool {
        self.difference().is_none_or(|d| d.abs() > TOLERANCE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(name: &'static str, value: f64) -> Cost {
        Cost {
            name,
            unit: "instructions per frame",
            what: "a \"frame\"",
            value,
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let record =
            Record::parse(&text("rustc 1.95.0", &[cost("a", 12.34), cost("b", 5.0)])).expect("sound");
        assert_eq!(record.compiler, "rustc 1.95.0");
        assert_eq!(
            (record.of("a"), record.of("b"), record.of("c")),
            (Some(12.3), Some(5.0), None)
        );
    }

    #[test]
    fn nonsense_is_refused() {
        for bad in [
            "",
            "compiler = \"x\"",
            "compiler = \"x\"\n[costs]\na = \"1\"",
            "compiler = \"x\"\n[costs]\na = 0",
            "[costs]\na = 1",
        ] {
            assert!(Record::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn more_and_less_and_none_are_breaches() {
        let record =
            Record::parse("compiler = \"x\"\n[costs]\na = 100\nb = 100\nc = 100\nd = 100").expect("sound");
        let measured = [
            cost("a", 102.9),
            cost("b", 103.1),
            cost("c", 96.9),
            cost("e", 100.0),
        ];
        assert_eq!(record.breaches(&measured[..1]), 3);
        assert_eq!(record.breaches(&measured), 4);
        let table = record.table(&measured);
        let marked: Vec<&str> = table
            .lines()
            .filter(|l| l.ends_with("<--"))
            .map(|l| &l[..1])
            .collect();
        assert_eq!(marked, ["b", "c", "e", "d"], "{table}");
        assert!(table.contains("+3.1 %") && table.contains("-3.1 %"), "{table}");
    }
}
