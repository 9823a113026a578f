//! Stored values, and their encoding in the store.

use std::collections::BTreeMap;
use std::fmt;
use std::time::SystemTime;

use vnic_backend::MacAddr;
use vnic_backend::settings::{self, KeyDef, Origin, Scopes, Value};

use crate::names;
use crate::store::{Batch, Store, StoreError};

/// Table of values. Key of a row: scope, a zero byte, key; value: the revision that wrote it, and the value.
pub const VALUES: &str = "registry";
/// Table of the revision, with one row.
pub const REVISION: &str = "registry_revision";
/// Table of indexes in `.reg` files. Key of a row: the adapter's name.
pub const INDEXES: &str = "adapter_index";

/// Greatest index of an adapter in `.reg` files: four digits.
pub const INDEX_MAX: u16 = 9999;

/// Scope of a value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// All adapters.
    Driver,
    /// One adapter.
    Adapter(String),
}

/// Why a text is not a scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoScope {
    /// This version does not have scopes of this kind.
    NotBuilt(String),
    /// The text has a wrong form.
    Form(String),
}

/// Name of the driver's scope.
const DRIVER: &str = "driver";

impl Scope {
    /// Parses `driver` or `adapters/{adapter}`.
    pub fn parse(text: &str) -> Result<Scope, NoScope> {
        if text == DRIVER {
            return Ok(Scope::Driver);
        }
        if let Some(name) = names::id(names::ADAPTERS, text) {
            return Ok(Scope::Adapter(name.to_owned()));
        }
        let kind = text.split('/').next().unwrap_or_default();
        Err(match kind {
            "teams" => NoScope::NotBuilt("teams of adapters are not built yet".to_owned()),
            names::PORTS => NoScope::NotBuilt("ports have no settings in the registry yet".to_owned()),
            _ => NoScope::Form(format!(
                "{text:?} is no scope: driver, or adapters/NAME, is allowed"
            )),
        })
    }

    /// Adapter of the scope; `None`: the scope is the driver's.
    pub fn adapter(&self) -> Option<&str> {
        match self {
            Scope::Driver => None,
            Scope::Adapter(name) => Some(name),
        }
    }

    /// Kind of the scope, which a key must allow.
    pub fn kind(&self) -> Scopes {
        match self {
            Scope::Driver => Scopes::DRIVER,
            Scope::Adapter(_) => Scopes::ADAPTER,
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scope::Driver => f.write_str(DRIVER),
            Scope::Adapter(name) => f.write_str(&names::of(names::ADAPTERS, name)),
        }
    }
}

/// A stored value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Value.
    pub value: Value,
    /// Revision that wrote the value.
    pub revision: u64,
}

/// Stored values at a revision.
#[derive(Debug, Clone, Default)]
pub struct State {
    /// Revision of the last transaction.
    pub revision: u64,
    /// Values by scope and key.
    pub entries: BTreeMap<(Scope, &'static str), Entry>,
}

/// Change of one value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Scope.
    pub scope: Scope,
    /// Key.
    pub key: &'static KeyDef,
    /// Stored value after the transaction.
    pub value: Option<Value>,
    /// Stored value before the transaction.
    pub before: Option<Value>,
}

/// A checked transaction.
#[derive(Debug, Clone)]
pub struct Commit {
    /// Revision of the transaction.
    pub revision: u64,
    /// Time of the transaction.
    pub time: SystemTime,
    /// Changed values, each once.
    pub changes: Vec<Change>,
}

impl State {
    /// Etag of an entry: the revision of its last change; 0: nothing is stored.
    pub fn etag(&self, scope: &Scope, key: &'static str) -> u64 {
        self.entry(scope, key).map_or(0, |e| e.revision)
    }

    /// Stored value of a key in a scope.
    pub fn entry(&self, scope: &Scope, key: &'static str) -> Option<&Entry> {
        self.entries.get(&(scope.clone(), key))
    }

    /// Stored value that counts for an adapter, and its origin.
    pub fn resolve(&self, adapter: &str, key: &'static KeyDef) -> (Option<Value>, Origin) {
        let of = |scope| self.entry(&scope, key.name).map(|e| &e.value);
        let own = of(Scope::Adapter(adapter.to_owned()));
        match settings::effective(key.name, own, of(Scope::Driver)) {
            (_, Origin::Unset) => (None, Origin::Unset),
            stored => stored,
        }
    }

    /// Adapters with stored values.
    pub fn adapters(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().filter_map(|(scope, _)| scope.adapter())
    }

    /// Applies a transaction.
    pub fn apply(&mut self, commit: &Commit) {
        self.revision = commit.revision;
        for change in &commit.changes {
            let at = (change.scope.clone(), change.key.name);
            match &change.value {
                None => self.entries.remove(&at),
                Some(value) => self.entries.insert(
                    at,
                    Entry {
                        value: value.clone(),
                        revision: commit.revision,
                    },
                ),
            };
        }
    }
}

fn row(scope: &Scope, key: &str) -> Vec<u8> {
    format!("{scope}\0{key}").into_bytes()
}

/// Appends the rows of a transaction to `batch`.
pub fn batch(commit: &Commit, mut batch: Batch) -> Batch {
    for change in &commit.changes {
        let row = row(&change.scope, change.key.name);
        match &change.value {
            None => batch.delete(VALUES, row),
            Some(value) => batch.put(VALUES, row, encode(commit.revision, value)),
        };
    }
    batch.put(REVISION, *b"revision", commit.revision.to_le_bytes());
    batch
}

const DWORD: u8 = 1;
const TEXT: u8 = 2;
const MACS: u8 = 3;

fn encode(revision: u64, value: &Value) -> Vec<u8> {
    let mut bytes = revision.to_le_bytes().to_vec();
    match value {
        Value::Dword(number) => {
            bytes.push(DWORD);
            bytes.extend(number.to_le_bytes());
        }
        Value::Text(text) => {
            bytes.push(TEXT);
            bytes.extend(text.as_bytes());
        }
        Value::Macs(macs) => {
            bytes.push(MACS);
            bytes.extend(macs.iter().flat_map(|mac| mac.0));
        }
    }
    bytes
}

fn decode(bytes: &[u8]) -> Option<Entry> {
    let (revision, rest) = bytes.split_at_checked(8)?;
    let (kind, rest) = rest.split_first()?;
    let value = match *kind {
        DWORD => Value::Dword(u32::from_le_bytes(rest.try_into().ok()?)),
        TEXT => Value::Text(String::from_utf8(rest.to_vec()).ok()?),
        MACS => {
            let (macs, rest) = rest.as_chunks::<6>();
            if !rest.is_empty() {
                return None;
            }
            Value::Macs(macs.iter().map(|m| MacAddr(*m)).collect())
        }
        _ => return None,
    };
    Some(Entry {
        value,
        revision: u64::from_le_bytes(revision.try_into().ok()?),
    })
}

/// Indexes of adapters in `.reg` files, by name.
pub type Indexes = BTreeMap<String, u16>;

/// A row that cannot be read, or that this version does not know; its description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unread(pub String);

/// Reads the stored values. Rows that this version does not know stay in the store.
pub fn read(store: &Store) -> Result<(State, Indexes, Vec<Unread>), StoreError> {
    let (values, revision, indexes) = (store.all(VALUES)?, store.all(REVISION)?, store.all(INDEXES)?);
    let mut known = BTreeMap::new();
    let (mut state, mut unread) = (State::default(), Vec::new());
    if let Some(bytes) = revision.first().and_then(|(_, v)| v.as_slice().try_into().ok()) {
        state.revision = u64::from_le_bytes(bytes);
    }
    for (row, value) in &values {
        let name = String::from_utf8_lossy(row).replace('\0', " ");
        let parts = std::str::from_utf8(row).ok().and_then(|r| r.split_once('\0'));
        let scope = parts.and_then(|(scope, _)| Scope::parse(scope).ok());
        let key = parts.and_then(|(_, key)| settings::key(key));
        match (scope, key, decode(value)) {
            (Some(scope), Some(key), Some(entry)) => {
                state.entries.insert((scope, key.name), entry);
            }
            (_, None, _) => unread.push(Unread(format!("{name}: unknown key"))),
            _ => unread.push(Unread(format!("{name}: unreadable value"))),
        }
    }
    for (adapter, index) in &indexes {
        let name = std::str::from_utf8(adapter).ok();
        let index = index.as_slice().try_into().ok().map(u16::from_le_bytes);
        match (name, index) {
            (Some(name), Some(index)) => {
                known.insert(name.to_owned(), index);
            }
            _ => unread.push(Unread(format!(
                "{}: unreadable index",
                String::from_utf8_lossy(adapter)
            ))),
        }
    }
    Ok((state, known, unread))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_they_were_written() {
        let macs = vec![MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2])];
        for value in [
            Value::Dword(0),
            Value::Dword(u32::MAX),
            Value::Text(String::new()),
            Value::Text("größer".to_owned()),
            Value::Macs(Vec::new()),
            Value::Macs(macs),
        ] {
            let entry = decode(&encode(7, &value)).expect("a value");
            assert_eq!((entry.revision, entry.value), (7, value));
        }
        for wrong in [
            &b""[..],
            &[0; 8],
            &[0, 0, 0, 0, 0, 0, 0, 0, 1, 2],
            &[0, 0, 0, 0, 0, 0, 0, 0, 9],
        ] {
            assert_eq!(decode(wrong), None);
        }
    }

    #[test]
    fn scopes_have_names() {
        for scope in [Scope::Driver, Scope::Adapter("vf0".to_owned())] {
            assert_eq!(Scope::parse(&scope.to_string()), Ok(scope));
        }
        for not_built in ["teams/t0", "ports/p0"] {
            assert!(matches!(Scope::parse(not_built), Err(NoScope::NotBuilt(_))));
        }
        for wrong in ["", "vf0", "adapters/", "adapters/a/b", "Driver"] {
            assert!(matches!(Scope::parse(wrong), Err(NoScope::Form(_))), "{wrong}");
        }
    }
}
