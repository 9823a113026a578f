//! From stored values to what acts.

use super::{AdapterSettings, Apply, KEYS, Scopes, Value, key};

/// Where a value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// It is stored for the adapter.
    Adapter,
    /// It is stored for the driver.
    Driver,
    /// Nothing is stored.
    Unset,
}

/// What counts for an adapter: its own value, else the driver's (WinOF-2 Ethernet Network, Configuring the RoCE Mode), else
/// what acts while nothing is stored. None where the key is unknown, or nothing acts.
pub fn effective(name: &str, adapter: Option<&Value>, driver: Option<&Value>) -> (Option<Value>, Origin) {
    let Some(def) = key(name) else {
        return (None, Origin::Unset);
    };
    let for_driver = def.scopes.contains(Scopes::DRIVER);
    match (adapter, driver.filter(|_| for_driver)) {
        (Some(value), _) => (Some(value.clone()), Origin::Adapter),
        (None, Some(value)) => (Some(value.clone()), Origin::Driver),
        (None, None) => (def.unset.map(Value::Dword), Origin::Unset),
    }
}

impl AdapterSettings {
    /// What acts with these values. `lookup` gives what counts for a key of [`KEYS`], or None where nothing is stored. A value
    /// that its key does not allow (an older version may have stored it) counts as not stored.
    pub fn from_values(lookup: impl Fn(&str) -> Option<Value>) -> AdapterSettings {
        let mut settings = AdapterSettings::default();
        for def in KEYS.iter().filter(|def| def.field.is_some()) {
            if let Some(value) = lookup(def.name).filter(|value| def.allows(value, u32::MAX)) {
                def.set(&mut settings, &value);
            }
        }
        settings
    }

    /// What acts at once when `wanted` is given to an adapter on which this acts: what the table of keys says may change
    /// while a driver runs. The rest waits for a restart.
    pub fn at_once(&self, wanted: &AdapterSettings) -> AdapterSettings {
        let mut next = self.clone();
        for def in KEYS.iter().filter(|def| def.apply == Apply::Dynamic) {
            def.copy(&mut next, wanted);
        }
        next
    }
}
