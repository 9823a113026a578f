//! Fields that are keys of an adapter's registry.

use vnic_backend::settings::{self, AdapterSettings, KEYS, QosKeys, Value};

use crate::registry::{Action, Operation, Scope};

/// Keys that fields are kept in, by field.
const OF_FIELDS: &[(&str, &str)] = &[
    ("trust", "RxTrustedState"),
    ("default_priority", "DefaultUntaggedPriority"),
    ("dscp_to_priority", "DscpBasedEtsEnabled"),
    ("untagged_to_lossless", "RxUntaggedMapToLossless"),
    ("pause_tx", "*FlowControl"),
    ("pause_rx", "*FlowControl"),
    ("storm_critical_ms", "DeviceRxStallTimeout"),
    ("storm_minor_ms", "DeviceRxStallWatermark"),
    ("hol_lifetime", "TCHeadOfQueueLifeTimeLimit"),
    ("hol_stall_count", "TCStallCount"),
    ("hol_lifetime_classes", "TCHeadOfQueueLifeTimeLimitEnable"),
    ("send_queue_per_priority", "SendQueuePerPrio"),
    ("congestion_monitoring", "CongestionMonitoringEnable"),
    ("congestion_action", "CongestionAction"),
    ("congestion_mode", "CongestionMode"),
];

/// The keys of the table by DSCP.
const TABLE: &str = "DscpToPriorityMappingTable_";

/// The field that is kept in a key.
pub fn field(key: &str) -> Option<&'static str> {
    if key.starts_with(TABLE) {
        return Some("dscp_to_priority");
    }
    OF_FIELDS
        .iter()
        .find(|(_, of)| *of == key)
        .map(|(field, _)| *field)
}

/// What is written to an adapter's registry so that the keys of these fields say what `keys` says.
pub fn write(adapter: &str, fields: &[&str], keys: &QosKeys) -> Vec<Operation> {
    let mut writer = Writer {
        scope: Scope::Adapter(adapter.to_owned()),
        operations: Vec::new(),
    };
    let settings = AdapterSettings {
        qos: keys.clone(),
        ..AdapterSettings::default()
    };
    for field in fields {
        if *field == "dscp_to_priority" {
            writer.dscp_map(keys);
            continue;
        }
        let Some((_, key)) = OF_FIELDS.iter().find(|(of, _)| of == field) else {
            continue;
        };
        writer.act(key, settings::key(key).and_then(|def| def.get(&settings)));
    }
    writer.operations
}

/// What forgets all keys of fields.
pub fn forget(adapter: &str) -> Vec<Operation> {
    let mut writer = Writer {
        scope: Scope::Adapter(adapter.to_owned()),
        operations: Vec::new(),
    };
    for def in KEYS.iter().filter(|def| field(def.name).is_some()) {
        writer.act(def.name, None);
    }
    writer.operations
}

struct Writer {
    scope: Scope,
    operations: Vec<Operation>,
}

impl Writer {
    /// Each key once: two fields may be one key.
    fn act(&mut self, key: &str, value: Option<Value>) {
        if self.operations.iter().any(|o| o.key == key) {
            return;
        }
        self.operations.push(Operation {
            scope: self.scope.clone(),
            key: key.to_owned(),
            action: value.map_or(Action::Delete, Action::Set),
            if_match: None,
        });
    }

    /// The table as the documents have it, and what differs; nothing of it while the static one counts.
    fn dscp_map(&mut self, keys: &QosKeys) {
        self.act("DscpBasedEtsEnabled", keys.dscp_table.then_some(Value::Dword(1)));
        let default = QosKeys::default().dscp_to_priority;
        for (dscp, (priority, plain)) in keys.dscp_to_priority.iter().zip(&default).enumerate() {
            let differs = keys.dscp_table && priority != plain;
            let value = differs.then_some(Value::Dword((*priority).into()));
            self.act(&format!("{TABLE}{dscp}"), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vnic_backend::settings::{Built, FlowControl, Guard, HintSettings, Lifetimes, Trust};

    /// What acts when these operations are carried out on an empty registry.
    fn acting(operations: &[Operation]) -> QosKeys {
        AdapterSettings::from_values(|name| {
            operations
                .iter()
                .find(|o| o.key == name)
                .and_then(|o| match &o.action {
                    Action::Set(value) => Some(value.clone()),
                    Action::Delete => None,
                })
        })
        .qos
    }

    #[test]
    fn what_is_written_acts() {
        let mut keys = QosKeys {
            flow_control: FlowControl::Receive,
            default_priority: 5,
            trust: Trust::Port,
            untagged_to_lossless: true,
            send_queue_per_priority: true,
            lifetimes: Lifetimes {
                limit: 3,
                stall_count: 2,
                enable: 0x81,
            },
            guard: Guard {
                minor_ms: 100,
                critical_ms: 900,
            },
            hint: HintSettings {
                enable: true,
                action: settings::HintAction::Drop,
                mode: settings::HintMode::Aggressive,
            },
            ..QosKeys::default()
        };
        let mut map = keys.acting_dscp_map();
        map[30] = 5;
        keys.set_dscp_map(map);
        let operations = write("vf0", super::super::fields::FIELDS, &keys);
        assert_eq!(acting(&operations), keys);
        // Only what was asked for: 3 and 4 are where the documented table differs from the static one.
        let set: Vec<&str> = operations
            .iter()
            .filter(|o| o.key.starts_with(TABLE) && o.action != Action::Delete)
            .map(|o| o.key.trim_start_matches(TABLE))
            .collect();
        assert_eq!(set, ["3", "4", "30"]);
        // Back to the static table: nothing is left.
        keys.set_dscp_map(QosKeys::default().acting_dscp_map());
        let back = write("vf0", &["dscp_to_priority"], &keys);
        assert_eq!(back.len(), 65);
        assert!(back.iter().all(|o| o.action == Action::Delete));
    }

    #[test]
    fn keys_of_fields_are_keys() {
        for (of, key) in OF_FIELDS {
            let def = settings::key(key).unwrap_or_else(|| panic!("{key}"));
            assert_eq!((def.name, def.built), (*key, Built::Yes));
            assert!(super::super::fields::FIELDS.contains(of), "{of}");
        }
        assert_eq!(forget("vf0").len(), OF_FIELDS.len() - 1 + 64);
        assert_eq!(field("DscpToPriorityMappingTable_63"), Some("dscp_to_priority"));
        assert_eq!(field("VlanID"), None);
    }
}
