//! From stored values to the settings that act.

use super::{AdapterSettings, Apply, KEYS, Scopes, Value, key};

/// Origin of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The value is stored for the adapter.
    Adapter,
    /// The value is stored for the driver.
    Driver,
    /// No value is stored.
    Unset,
}

/// Value that counts for an adapter: its own, else the driver's (WinOF-2 Ethernet Network, Configuring the RoCE Mode),
/// else the one that acts while nothing is stored. `None` if the key is unknown, or if nothing acts.
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
    /// Settings that act with these values. `lookup` returns the value that counts for a key of [`KEYS`], or `None` if
    /// nothing is stored. A value that its key does not allow (an older version may have stored it) counts as not stored.
    pub fn from_values(lookup: impl Fn(&str) -> Option<Value>) -> AdapterSettings {
        let mut settings = AdapterSettings::default();
        for def in KEYS.iter().filter(|def| def.field.is_some()) {
            if let Some(value) = lookup(def.name).filter(|value| def.allows(value, u32::MAX)) {
                def.set(&mut settings, &value);
            }
        }
        settings
    }

    /// Settings that act at once when an adapter with the settings `self` gets `wanted`: those of dynamic keys change, the
    /// others wait for a restart.
    pub fn at_once(&self, wanted: &AdapterSettings) -> AdapterSettings {
        let mut next = self.clone();
        for def in KEYS.iter().filter(|def| def.apply == Apply::Dynamic) {
            def.copy(&mut next, wanted);
        }
        next
    }
}
