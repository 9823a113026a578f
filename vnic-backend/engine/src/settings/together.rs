//! What the keys of one adapter may be together.

use alloc::format;
use alloc::string::String;

use super::{KEYS, KeyDef, Rule, Value, key};

/// Two values that may not be together, or a change at the wrong time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Conflict {
    /// The key whose row has the rule.
    pub key: &'static str,
    /// The key it depends on.
    pub other: &'static str,
    /// Both keys, what they are and what is allowed; for people.
    pub text: String,
}

/// Whether the values of one adapter may be together. `lookup` gives what is stored for a key and would win (the adapter's
/// value over the driver's); where it gives None, what acts while nothing is stored counts.
///
/// Stored values count, not only those that act: a value that waits for a restart would otherwise break the rule then.
///
/// # Errors
///
/// The first [`Conflict`], in the order of [`KEYS`].
pub fn check_together(lookup: impl Fn(&str) -> Option<Value>) -> Result<(), Conflict> {
    let number = |def: &KeyDef| match lookup(def.name) {
        Some(Value::Dword(number)) => Some(number),
        Some(_) => None,
        None => def.unset,
    };
    for def in KEYS {
        for rule in def.rules {
            let Rule::While {
                values,
                other,
                min,
                max,
            } = rule
            else {
                continue;
            };
            let (Some(this), Some(that)) = (number(def), key(other).and_then(number)) else {
                continue;
            };
            if values.contains(&this) && !(min..=max).contains(&&that) {
                let allowed = if min == max {
                    format!("{min}")
                } else {
                    format!("from {min} to {max}")
                };
                return Err(Conflict {
                    key: def.name,
                    other,
                    text: format!(
                        "{} = {this} and {other} = {that} exclude each other: while {} is {this}, {other} must be {allowed}",
                        def.name, def.name
                    ),
                });
            }
        }
    }
    Ok(())
}

/// Whether the key `name` may be changed. `lookup` as for [`check_together`], with what the transaction changes already in
/// it: switching a feature on and setting what depends on it may be one transaction.
///
/// # Errors
///
/// The [`Conflict`] with the key it depends on.
pub fn check_change(name: &str, lookup: impl Fn(&str) -> Option<Value>) -> Result<(), Conflict> {
    let Some(def) = key(name) else {
        return Ok(());
    };
    for rule in def.rules {
        let Rule::ChangeOnlyWhile { other, value } = rule else {
            continue;
        };
        let that = match lookup(other) {
            Some(Value::Dword(number)) => Some(number),
            Some(_) => None,
            None => key(other).and_then(|def| def.default),
        };
        if that != Some(*value) {
            return Err(Conflict {
                key: def.name,
                other,
                text: format!("{} can be changed only while {other} is {value}", def.name),
            });
        }
    }
    Ok(())
}
