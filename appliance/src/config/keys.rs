//! Keys of a table of the configuration file with their values, as they are written.

use std::fmt::{Display, Write as _};
use std::path::Path;

use toml::Value;

/// Keys of a table, in the order in which they are written.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Keys(Vec<Key>);

#[derive(Debug, Clone, PartialEq)]
struct Key {
    name: &'static str,
    value: Value,
    /// Value of a table without the key; `None`: the key is required, or has no such value.
    default: Option<Value>,
}

/// A key that has another value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Key of the object's table.
    pub key: &'static str,
    /// Value before, in TOML; empty: none.
    pub before: String,
    /// Value after, in TOML; empty: none.
    pub after: String,
}

impl Keys {
    /// Adds a key that is always written.
    pub fn must(&mut self, name: &'static str, value: impl Into<Value>) {
        let value = value.into();
        self.0.push(Key {
            name,
            value,
            default: None,
        });
    }

    /// Adds a key that always has a value.
    pub fn plain(&mut self, name: &'static str, value: impl Into<Value>, default: impl Into<Value>) {
        let (value, default) = (value.into(), Some(default.into()));
        self.0.push(Key { name, value, default });
    }

    /// Adds a key, if there is a value.
    pub fn optional(&mut self, name: &'static str, value: Option<Value>) {
        if let Some(value) = value {
            self.must(name, value);
        }
    }

    /// Adds a list, if it is not empty.
    pub fn several(&mut self, name: &'static str, values: impl Iterator<Item = Value>) {
        let all: Vec<Value> = values.collect();
        self.optional(name, (!all.is_empty()).then_some(Value::Array(all)));
    }

    /// The keys that do not have their default.
    pub fn said(mut self) -> Keys {
        self.0.retain(|key| key.default.as_ref() != Some(&key.value));
        self
    }

    /// Lines `key = value`.
    pub fn lines(&self) -> String {
        let mut lines = String::new();
        for key in &self.0 {
            let _ = writeln!(lines, "{} = {}", key.name, key.value);
        }
        lines
    }

    fn of(&self, name: &str) -> String {
        let found = self.0.iter().find(|key| key.name == name);
        found.map_or_else(String::new, |key| key.value.to_string())
    }

    /// Keys that `after` has with another value, has alone, or has not.
    pub fn differences(&self, after: &Keys) -> Vec<Difference> {
        let added = after.0.iter().filter(|key| self.of(key.name).is_empty());
        let all = self.0.iter().chain(added).map(|key| Difference {
            key: key.name,
            before: self.of(key.name),
            after: after.of(key.name),
        });
        all.filter(|d| d.before != d.after).collect()
    }
}

/// A string.
pub fn text(value: impl Display) -> Value {
    Value::String(value.to_string())
}

/// An integer.
pub fn number(value: impl TryInto<i64>) -> Value {
    Value::Integer(value.try_into().unwrap_or(i64::MAX))
}

/// A path.
pub fn path(value: &Path) -> Value {
    text(value.display())
}

/// A list.
pub fn list(values: impl Iterator<Item = Value>) -> Value {
    Value::Array(values.collect())
}
