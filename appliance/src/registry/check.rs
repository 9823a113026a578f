//! Check of operations, and the changes that they make.

use std::collections::{BTreeMap, BTreeSet};

use vnic_backend::settings::{
    self, AdapterSettings, Checked, Conflict, KEYS, KeyDef, Refusal as Refused, Scopes, Value,
};
use vnic_backend::{Nic, NicError};

use super::RegistryError;
use super::acting::LINE_RATE_MBPS;
use super::state::{Change, Scope, State};
use crate::check::nearest;

/// Action of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Stores this value. A text is parsed as the key's type.
    Set(Value),
    /// Deletes the stored value.
    Delete,
}

/// Operation of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// Scope.
    pub scope: Scope,
    /// Name of the key; case does not matter.
    pub key: String,
    /// Action.
    pub action: Action,
    /// Etag that the entry must have before the transaction; 0: nothing may be stored.
    pub if_match: Option<u64>,
}

/// Why an operation is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// No key has this name.
    #[error("there is no key {key:?}{}", nearest.map(|n| format!(": did you mean {n}?")).unwrap_or_default())]
    UnknownKey {
        /// Name of the unknown key.
        key: String,
        /// Known key with a similar name.
        nearest: Option<&'static str>,
    },
    /// The adapter does not exist.
    #[error("there is no adapter {0:?}")]
    NoAdapter(String),
    /// The key cannot be stored in this scope.
    #[error("{0}")]
    WrongScope(String),
    /// The key is not built; the text has what it waits for.
    #[error("not implemented: this key waits for {0}")]
    NotBuilt(&'static str),
    /// The value is not allowed.
    #[error("{0}")]
    NotAllowed(String),
    /// The rate is above the line rate.
    #[error("{text}")]
    AboveLineRate {
        /// Value that was stored; `None` in a transaction of several operations.
        stored: Option<Value>,
        /// Error text.
        text: String,
    },
    /// Values would contradict each other.
    #[error("{0}")]
    Conflict(String),
    /// The entry has changed since its etag was read.
    #[error("it has changed meanwhile: its etag is {current}")]
    Etag {
        /// Etag of the entry.
        current: u64,
    },
    /// The NIC refuses the value.
    #[error("{0}")]
    Nic(String),
}

/// A refused operation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{scope} {key}: {why}")]
pub struct Refusal {
    /// Index of the operation.
    pub operation: usize,
    /// Scope of the operation, or of the adapter in which it leads to a contradiction.
    pub scope: Scope,
    /// Name of the key.
    pub key: String,
    /// Cause.
    pub why: Why,
}

/// A value that was stored otherwise than asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// Scope.
    pub scope: Scope,
    /// Key.
    pub key: &'static KeyDef,
    /// Stored value and cause in words.
    pub message: String,
    /// Stored value.
    pub stored: Value,
}

/// Changes of checked operations.
#[derive(Debug, Default)]
pub struct Plan {
    /// Changed values, each once.
    pub changes: Vec<Change>,
    /// Values that are stored otherwise than asked for.
    pub warnings: Vec<Warning>,
    /// Refusal of an operation that stores the line rate instead.
    pub above_line_rate: Option<Refusal>,
}

type Next = BTreeMap<(Scope, &'static str), Option<Value>>;

struct Planner<'a> {
    head: &'a State,
    nic: &'a Nic,
    alone: bool,
    next: Next,
    warnings: Vec<Warning>,
    above_line_rate: Option<Refusal>,
}

/// Checks operations against the accepted values; the error has all refusals.
pub fn plan(head: &State, nic: &Nic, operations: &[Operation]) -> Result<Plan, RegistryError> {
    let mut planner = Planner {
        head,
        nic,
        alone: operations.len() == 1,
        next: Next::new(),
        warnings: Vec::new(),
        above_line_rate: None,
    };
    let mut refused = Vec::new();
    // Index of the operation that changes a key last.
    let mut by = BTreeMap::new();
    for (i, operation) in operations.iter().enumerate() {
        match planner.step(i, operation) {
            Ok(def) => {
                by.insert((operation.scope.clone(), def.name), i);
            }
            Err(why) => refused.push(refusal(i, operation.scope.clone(), &operation.key, why)),
        }
    }
    if refused.is_empty() {
        planner.together(&by, &mut refused);
    }
    if !refused.is_empty() {
        return Err(RegistryError::Refused(refused));
    }
    let changes = planner.next.iter().filter_map(|((scope, key), value)| {
        let before = head.entry(scope, key).map(|e| e.value.clone());
        // To delete an absent value is no change; to store the stored value is one.
        (value.is_some() || before.is_some()).then(|| {
            Some(Change {
                scope: scope.clone(),
                key: settings::key(key)?,
                value: value.clone(),
                before,
            })
        })?
    });
    Ok(Plan {
        changes: changes.collect(),
        warnings: planner.warnings,
        above_line_rate: planner.above_line_rate,
    })
}

fn refusal(operation: usize, scope: Scope, key: &str, why: Why) -> Refusal {
    Refusal {
        operation,
        scope,
        key: key.to_owned(),
        why,
    }
}

/// Row of a key, or the refusal.
pub fn known(key: &str) -> Result<&'static KeyDef, Why> {
    settings::key(key).ok_or_else(|| {
        let names: Vec<&'static str> = KEYS.iter().map(|k| k.name).collect();
        Why::UnknownKey {
            key: key.to_owned(),
            nearest: nearest(key, &names),
        }
    })
}

impl Planner<'_> {
    fn step(&mut self, i: usize, operation: &Operation) -> Result<&'static KeyDef, Why> {
        let Operation {
            scope,
            key,
            action,
            if_match,
        } = operation;
        let def = known(key)?;
        if !def.scopes.contains(scope.kind()) {
            return Err(Why::WrongScope(match scope {
                Scope::Driver => "it can be stored for adapters, not for the driver".to_owned(),
                Scope::Adapter(_) if def.scopes.contains(Scopes::DRIVER) => {
                    "it can be stored for the driver only".to_owned()
                }
                Scope::Adapter(_) => "it cannot be stored for adapters".to_owned(),
            }));
        }
        if let Some(name) = scope.adapter() {
            let stored = self.head.adapters().any(|a| a == name);
            let exists = self.nic.adapter(name).is_ok();
            // Stored values of an adapter that does not exist can be deleted.
            if !exists && (*action != Action::Delete || !stored) {
                return Err(Why::NoAdapter(name.to_owned()));
            }
        }
        let current = self.head.etag(scope, def.name);
        if if_match.is_some_and(|wanted| wanted != current) {
            return Err(Why::Etag { current });
        }
        let at = (scope.clone(), def.name);
        let value = match action {
            Action::Delete => None,
            Action::Set(value) => Some(self.value(i, scope, def, value)?),
        };
        self.next.insert(at, value);
        Ok(def)
    }

    /// Value that is stored for a requested one.
    fn value(&mut self, i: usize, scope: &Scope, def: &'static KeyDef, value: &Value) -> Result<Value, Why> {
        let line_rate = scope
            .adapter()
            .map_or(LINE_RATE_MBPS, |name| self.nic.line_rate_mbps(name));
        match def.check(value, line_rate) {
            Ok(Checked::Accepted(value)) => Ok(value),
            Ok(Checked::Fallback { stored, why, .. }) => {
                self.warnings.push(Warning {
                    scope: scope.clone(),
                    key: def,
                    message: why,
                    stored: stored.clone(),
                });
                Ok(stored)
            }
            Err(Refused::NotAllowed { text }) => Err(Why::NotAllowed(text)),
            Err(Refused::NotBuilt(what)) => Err(Why::NotBuilt(what)),
            Err(Refused::AboveLineRate { store, text }) if self.alone => {
                let why = Why::AboveLineRate {
                    stored: Some(store.clone()),
                    text,
                };
                self.above_line_rate = Some(refusal(i, scope.clone(), def.name, why));
                Ok(store)
            }
            Err(Refused::AboveLineRate { text, .. }) => Err(Why::AboveLineRate { stored: None, text }),
        }
    }

    /// Value of a key for an adapter after the operations; the empty name is an adapter without stored values.
    fn lookup(&self, adapter: &str, key: &str) -> Option<Value> {
        let def = settings::key(key)?;
        let of = |scope: Scope| match self.next.get(&(scope.clone(), def.name)) {
            Some(next) => next.clone(),
            None => self.head.entry(&scope, def.name).map(|e| e.value.clone()),
        };
        let own = of(Scope::Adapter(adapter.to_owned()));
        let driver = of(Scope::Driver);
        match settings::effective(def.name, own.as_ref(), driver.as_ref()) {
            (_, settings::Origin::Unset) => None,
            (value, _) => value,
        }
    }

    /// Checks the values after the operations, for each adapter.
    fn together(&self, by: &BTreeMap<(Scope, &'static str), usize>, refused: &mut Vec<Refusal>) {
        let driver = by.keys().any(|(scope, _)| *scope == Scope::Driver);
        let mut adapters: BTreeSet<String> = by
            .keys()
            .filter_map(|(s, _)| s.adapter().map(str::to_owned))
            .collect();
        let live: BTreeSet<String> = self.nic.adapters().into_iter().map(|a| a.spec.name).collect();
        if driver {
            adapters.extend(self.head.adapters().map(str::to_owned));
            adapters.extend(live.iter().cloned());
            // The empty name is an adapter without stored values: the driver's must suit new adapters.
            adapters.insert(String::new());
        }
        for adapter in &adapters {
            if let Err((i, scope, key, why)) = self.adapter(adapter, live.contains(adapter), by) {
                refused.push(refusal(i, scope, &key, why));
            }
        }
    }

    fn adapter(
        &self,
        adapter: &str,
        live: bool,
        by: &BTreeMap<(Scope, &'static str), usize>,
    ) -> Result<(), (usize, Scope, String, Why)> {
        let scope = if adapter.is_empty() {
            Scope::Driver
        } else {
            Scope::Adapter(adapter.to_owned())
        };
        let own = by.iter().filter(|((s, _), _)| *s == scope || *s == Scope::Driver);
        let lookup = |key: &str| self.lookup(adapter, key);
        let now = |key: &str| self.head.resolve(adapter, settings::key(key)?).0;
        // Operation that is blamed: the one about this key, or any.
        let blame = |key: &str| {
            let of = |(_, name): &&(Scope, &'static str)| *name == key;
            let found = own.clone().find(|(at, _)| of(at)).or_else(|| own.clone().next());
            found.map_or(0, |(_, i)| *i)
        };
        let conflict = |c: Conflict| {
            let key = if own.clone().any(|((_, name), _)| *name == c.key) {
                c.key
            } else {
                c.other
            };
            (blame(key), scope.clone(), key.to_owned(), Why::Conflict(c.text))
        };
        for ((s, key), _) in own.clone() {
            if self.next.get(&(s.clone(), *key)).is_some_and(Option::is_some) {
                settings::check_change(key, lookup).map_err(conflict)?;
            }
        }
        if let Err(c) = settings::check_together(lookup) {
            // A conflict that exists already is not this transaction's.
            if settings::check_together(now).err().as_ref() != Some(&c) {
                return Err(conflict(c));
            }
        }
        if live {
            let settings = AdapterSettings::from_values(lookup);
            self.nic
                .check_adapter_settings(adapter, &settings)
                .or_else(|e| match e {
                    NicError::NotFound { .. } => Ok(()),
                    NicError::Invalid { field, problem } => {
                        Err((blame(field), scope.clone(), field.to_owned(), Why::Nic(problem)))
                    }
                    other => Err((
                        blame(""),
                        scope.clone(),
                        String::new(),
                        Why::Nic(other.to_string()),
                    )),
                })?;
        }
        Ok(())
    }
}
