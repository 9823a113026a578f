//! The table of keys.

use super::{Apply, Built, Illegal, KeyDef, Kind, Scopes};

/// Every key.
pub static KEYS: &[KeyDef] = &[KeyDef {
    name: "DelayDropTimeout",
    kind: Kind::Dword { min: 0, max: 100 },
    default: Some(50),
    unset: Some(0),
    unit: "100 us",
    scopes: Scopes::ADAPTER,
    apply: Apply::Dynamic,
    illegal: Illegal::Default,
    built: Built::Yes,
    help: "How long a packet that finds no receive buffer may wait before it is dropped and dropless mode ends; 0 switches dropless mode off.",
    source: "WinOF-2 Ethernet Network, Dropless Mode",
}];
