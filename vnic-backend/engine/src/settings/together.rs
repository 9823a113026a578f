//! Dependences between the keys of one adapter.

use alloc::format;
use alloc::string::String;

use super::{KEYS, KeyDef, Rule, Value, key};

/// Two values that exclude each other, or a change at the wrong time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Conflict {
    /// Name of the key whose row has the rule.
    pub key: &'static str,
    /// Name of the other key.
    pub other: &'static str,
    /// Both keys, their values, and what is allowed, in words.
    pub text: String,
}

/// Checks the values of one adapter against each other. `lookup` returns the stored value that counts for a key (the
/// adapter's, else the driver's); if it is `None`, the value that acts while nothing is stored counts.
///
/// Stored values count, not only acting ones: a value that waits for a restart would otherwise break the rule at the restart.
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

/// Checks whether the key `name` may be changed. `lookup` as for [`check_together`], with the changes of the transaction:
/// one transaction may enable a feature and set a key that depends on it.
///
/// # Errors
///
/// The [`Conflict`] with the other key.
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
