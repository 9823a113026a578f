//! From stored values to what acts.

use alloc::vec::Vec;

use super::{AdapterSettings, Burst, RecvCompletion, RoceMode, Scopes, SendCompletion, Value, key};

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
    /// What acts with these values. `lookup` gives what counts for a key of [`KEYS`](super::KEYS), or None where nothing is
    /// stored. A value that its key does not allow (an older version may have stored it) counts as not stored.
    pub fn from_values(lookup: impl Fn(&str) -> Option<Value>) -> AdapterSettings {
        let number = |name| legal_number(&lookup, name);
        let unset = AdapterSettings::default();
        AdapterSettings {
            burst: match number("AsyncReceiveIndicate") {
                Some(0) => Burst::Off,
                Some(1) => Burst::Thread,
                Some(2) => Burst::Poll,
                _ => unset.burst,
            },
            reserve: number("RfdReservationFactor").unwrap_or(unset.reserve),
            recv_completion: match number("RecvCompletionMethod") {
                Some(0) => RecvCompletion::Polling,
                Some(1) => RecvCompletion::Adaptive,
                Some(4) => RecvCompletion::NdisPoll,
                _ => unset.recv_completion,
            },
            send_completion: match number("SendCompletionMethod") {
                Some(0) => SendCompletion::Polling,
                Some(1) => SendCompletion::Interrupt,
                Some(2) => SendCompletion::NdisPoll,
                _ => unset.send_completion,
            },
            tx_coalescing: small(number("TxMaxPostSendsCoalescing"), unset.tx_coalescing),
            vlan_id: small(number("VlanID"), unset.vlan_id),
            vlan_prio: small(number("VlanPrio"), unset.vlan_prio),
            tx_untag_priority_tag: number("TxUntagPriorityTag")
                .map_or(unset.tx_untag_priority_tag, |v| v != 0),
            macs: legal(&lookup, "mac-address-list").map_or(Vec::new(), |value| match value {
                Value::Macs(macs) => macs,
                _ => Vec::new(),
            }),
            roce_mode: match number("roce_mode") {
                Some(0) => RoceMode::V1,
                Some(2) => RoceMode::V2,
                Some(4) => RoceMode::Off,
                _ => unset.roce_mode,
            },
            network_direct: number("*NetworkDirect").map_or(unset.network_direct, |v| v != 0),
            qos: super::QosKeys::from_numbers(number),
            congestion: super::CongestionKeys::from_numbers(|name| match legal(&lookup, name) {
                Some(Value::Dword(number)) => Some(number),
                _ => None,
            }),
        }
    }
}

/// `DelayDropTimeout` with these values, in 100 us; 0: dropless mode is off. `lookup` as for
/// [`AdapterSettings::from_values`].
pub fn dropless_timeout(lookup: impl Fn(&str) -> Option<Value>) -> u8 {
    small(legal_number(&lookup, "DelayDropTimeout"), 0)
}

fn legal(lookup: &impl Fn(&str) -> Option<Value>, name: &str) -> Option<Value> {
    let def = key(name)?;
    lookup(def.name).filter(|value| def.allows(value, u32::MAX))
}

fn legal_number(lookup: &impl Fn(&str) -> Option<Value>, name: &str) -> Option<u32> {
    match legal(lookup, name) {
        Some(Value::Dword(number)) => Some(number),
        _ => key(name)?.unset,
    }
}

fn small<T: TryFrom<u32>>(number: Option<u32>, unset: T) -> T {
    number.and_then(|n| T::try_from(n).ok()).unwrap_or(unset)
}
