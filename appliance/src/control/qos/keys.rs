//! Fields of quality of service that are keys of an adapter's registry.

use vnic_backend::settings::{self, AdapterSettings, KEYS, KeyDef, QosKeys, Value};

use crate::registry::{Action, Operation, Scope};

pub fn field(key: &str) -> Option<&'static str> {
    settings::key(key)?.messages().first().copied()
}

/// Operations that bring the keys of these fields to the values in `keys`. An entry of a table is not stored if it is the documented one.
pub fn write(adapter: &str, fields: &[&str], keys: &QosKeys) -> Vec<Operation> {
    let settings = AdapterSettings {
        qos: keys.clone(),
        ..AdapterSettings::default()
    };
    let plain = AdapterSettings::default();
    let mut operations: Vec<Operation> = Vec::new();
    for field in fields {
        let kept = || KEYS.iter().filter(|def| def.messages().contains(field));
        let table = kept().nth(1).is_some();
        for def in kept() {
            // Two fields may have one key, which is written once.
            if operations.iter().all(|o| o.key != def.name) {
                let value = def.get(&settings);
                let differs = !table || value != def.get(&plain);
                operations.push(operation(adapter, def, value.filter(|_| differs)));
            }
        }
    }
    operations
}

/// Operations that delete the keys of all fields.
pub fn forget(adapter: &str) -> Vec<Operation> {
    let kept = KEYS.iter().filter(|def| !def.messages().is_empty());
    kept.map(|def| operation(adapter, def, None)).collect()
}

fn operation(adapter: &str, def: &KeyDef, value: Option<Value>) -> Operation {
    Operation {
        scope: Scope::Adapter(adapter.to_owned()),
        key: def.name.to_owned(),
        action: value.map_or(Action::Delete, Action::Set),
        if_match: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stored::qos::names;
    use crate::stored::qos::tests::keys_unlike_the_default;
    use vnic_backend::settings::Built;

    /// Settings after these operations on an empty registry.
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
        let mut keys = keys_unlike_the_default();
        let mut map = QosKeys::default().acting_dscp_map();
        map[30] = 5;
        keys.set_dscp_map(map);
        let operations = write("vf0", names(), &keys);
        assert_eq!(acting(&operations), keys);
        // Only the changed entry is set, and 3 and 4, in which the documented table differs from the static one.
        let set: Vec<&str> = operations
            .iter()
            .filter(|o| o.action != Action::Delete)
            .filter_map(|o| o.key.strip_prefix("DscpToPriorityMappingTable_"))
            .collect();
        assert_eq!(set, ["3", "4", "30"]);
        // Back to the static table: no key is set.
        keys.set_dscp_map(QosKeys::default().acting_dscp_map());
        let back = write("vf0", &["dscp_to_priority"], &keys);
        assert_eq!(back.len(), 65);
        assert!(back.iter().all(|o| o.action == Action::Delete));
    }

    #[test]
    fn keys_of_fields_are_keys_that_act() {
        let kept: Vec<_> = KEYS.iter().filter(|def| !def.messages().is_empty()).collect();
        for def in &kept {
            assert_eq!(def.built, Built::Yes, "{}", def.name);
            for field in def.messages() {
                assert!(names().contains(field), "{}: {field}", def.name);
            }
        }
        assert_eq!(forget("vf0").len(), kept.len());
        for (key, of) in [
            ("DscpToPriorityMappingTable_63", Some("dscp_to_priority")),
            ("DscpBasedEtsEnabled", Some("dscp_to_priority")),
            ("*FlowControl", Some("pause_tx")),
            ("TCStallCount", Some("hol_stall_count")),
            ("VlanID", None),
        ] {
            assert_eq!(field(key), of, "{key}");
        }
    }
}
