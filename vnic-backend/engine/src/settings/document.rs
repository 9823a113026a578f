//! The document `docs/registry.md`, made from the table.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::{self, Write as _};

use super::{Apply, Built, Illegal, KEYS, KeyDef, Kind, Place, Rule};

const HEAD: &str = "\
# Settings

Every key of the registry (`vnicctl registry list`). This file is made from the table in `vnic-backend/engine/src/settings`;
a test holds it to that.

Names are those of WinOF-2, and so are ranges and defaults. A number may be given as `REG_DWORD` or as text, in decimal or in
hexadecimal after `0x`. What is stored for an adapter wins over what is stored for the driver. A value that is not allowed is
refused with what is allowed, and nothing changes, unless the key says otherwise.

";

/// Groups of keys whose names differ in a number alone.
fn families() -> Vec<Vec<&'static KeyDef>> {
    let mut families: Vec<Vec<&KeyDef>> = Vec::new();
    for def in KEYS {
        match families.last_mut() {
            Some(family) if family.first().is_some_and(|first| stem(first) == stem(def)) => family.push(def),
            _ => families.push(alloc::vec![def]),
        }
    }
    families
}

fn stem(def: &KeyDef) -> String {
    def.name.chars().filter(|c| !c.is_ascii_digit()).collect()
}

fn name(family: &[&KeyDef]) -> String {
    match family {
        [first, .., last] => format!("`{}` to `{}`", first.name, last.name),
        [def] => format!("`{}`", def.name),
        [] => String::new(),
    }
}

fn defaults(family: &[&KeyDef]) -> String {
    let one = |def: &KeyDef| def.default.map_or_else(|| "none".to_string(), |n| n.to_string());
    let mut all: Vec<String> = family.iter().map(|def| one(def)).collect();
    if all.windows(2).all(|pair| pair.first() == pair.last()) {
        all.truncate(1);
    }
    all.join(" ")
}

fn scopes(def: &KeyDef) -> String {
    let names: Vec<String> = def
        .scopes
        .iter_names()
        .map(|(name, _)| name.to_ascii_lowercase())
        .collect();
    names.join(", ")
}

fn acts(def: &KeyDef) -> &'static str {
    match def.apply {
        Apply::Dynamic => "at once",
        Apply::Restart => "at restart",
    }
}

/// Table with a row for each key: allowed values, and whether the key is built.
fn overview(out: &mut String) {
    out.push_str("| Key | Allowed | Default | Acts | Built |\n|---|---|---|---|---|\n");
    for family in families() {
        let Some(def) = family.first() else { continue };
        let built = match def.built {
            Built::Yes => "yes".to_string(),
            Built::No(what) => format!("no: waits for {what}"),
        };
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {built} |",
            name(&family),
            def.allowed(),
            defaults(&family),
            acts(def),
        );
    }
}

/// Section of a key.
fn section(out: &mut String, family: &[&KeyDef]) {
    let Some(def) = family.first() else { return };
    let _ = writeln!(out, "\n### {}\n\n{}\n", name(family), def.help);
    let mut fact = |what: &str, is: &str| {
        if !is.is_empty() {
            let _ = writeln!(out, "- {what}: {is}");
        }
    };
    fact("Allowed", &def.allowed());
    if !matches!(def.kind, Kind::MacList { .. } | Kind::Text { .. }) {
        fact("Default", &defaults(family));
        if let Some(unset) = def.unset.filter(|_| def.unset != def.default) {
            fact("While nothing is stored", &unset.to_string());
        }
    }
    fact("Stored for", &scopes(def));
    fact("Acts", acts(def));
    match def.illegal {
        Illegal::Reject => {}
        Illegal::Default => fact("A value that is not allowed", "the default is stored instead"),
        Illegal::LineRate => fact(
            "A rate above the line rate",
            "is refused, and the line rate is stored",
        ),
    }
    for rule in def.rules {
        fact("Together", &rule.to_string());
    }
    if let Place::Tool(verb) = def.place {
        fact("In WinOF-2", &format!("`mlx5cmd {verb}`"));
    }
    let aliases: Vec<String> = def.aliases.iter().map(|a| format!("`{a}`")).collect();
    fact("Also written", &aliases.join(", "));
    if let Built::No(what) = def.built {
        fact("Not built", &format!("waits for {what}"));
    }
    fact("Source", def.source);
    if !def.note.is_empty() {
        let _ = writeln!(out, "\n{}", def.note);
    }
}

impl fmt::Display for Rule {
    /// Text of the rule for the key that has it: `while it is 4, AsyncReceiveIndicate must be 0`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Rule::While {
                values,
                other,
                min,
                max,
            } => {
                f.write_str("while it is ")?;
                for (i, value) in values.iter().enumerate() {
                    write!(f, "{}{value}", if i == 0 { "" } else { " or " })?;
                }
                write!(f, ", {other} must be {min}")?;
                if min == max {
                    Ok(())
                } else {
                    write!(f, " to {max}")
                }
            }
            Rule::ChangeOnlyWhile { other, value } => {
                write!(f, "it can be changed only while {other} is {value}")
            }
        }
    }
}

/// Text of `docs/registry.md`.
pub fn markdown() -> String {
    let mut out = HEAD.to_string();
    overview(&mut out);
    for (title, built) in [("Built", true), ("Not built", false)] {
        let _ = writeln!(out, "\n## {title}");
        for family in families() {
            if family
                .first()
                .is_some_and(|def| (def.built == Built::Yes) == built)
            {
                section(&mut out, &family);
            }
        }
    }
    out
}
