//! Names and labels of counters, from the data path's table.

use vnic_backend::Sample;
use vnic_backend::counters::{CounterDef, Scope};

/// How names of counters of nanoseconds end. In Prometheus, time is in seconds.
pub const NANOSECONDS: &str = "_ns";

/// Nanoseconds as seconds, exact.
pub fn seconds(ns: u64) -> String {
    let text = format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The Prometheus name of a counter: `vnic_<scope>_<name>_total`.
pub fn metric(def: &CounterDef) -> String {
    let scope = match def.scope {
        Scope::AdapterQueue | Scope::AdapterDrop => "adapter",
        Scope::Port | Scope::PortDrop => "port",
        Scope::Rdma => "rdma",
        Scope::Core => "core",
        Scope::Priority => "priority",
        Scope::Link => "link",
    };
    match def.name.strip_suffix(NANOSECONDS) {
        Some(name) => format!("vnic_{scope}_{name}_seconds_total"),
        None => format!("vnic_{scope}_{}_total", def.name),
    }
}

/// The labels of a value.
pub fn labels(sample: &Sample) -> Vec<(&'static str, String)> {
    let owner = match sample.def.scope {
        Scope::AdapterQueue | Scope::AdapterDrop | Scope::Rdma => "adapter",
        Scope::Port | Scope::PortDrop => "port",
        Scope::Core => "core",
        Scope::Priority | Scope::Link => "adapter",
    };
    let mut labels = vec![(owner, sample.owner.clone())];
    if let Some(queue) = sample.queue {
        labels.push(("queue", queue.to_string()));
    }
    if let Some(reason) = sample.reason {
        labels.push(("reason", reason.to_owned()));
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_counter_of_the_table_has_a_name_of_its_own_with_its_unit() {
        let mut seen = BTreeSet::new();
        for def in vnic_backend::counters::all() {
            let name = metric(def);
            assert!(seen.insert(name.clone()), "{name} twice");
            assert!(
                name.bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'),
                "{name}"
            );
            assert!(
                def.help.ends_with('.') && !def.help.contains(['\\', '\n']),
                "{name}: {}",
                def.help
            );
        }
    }

    #[test]
    fn time_is_in_seconds() {
        assert_eq!(seconds(0), "0");
        assert_eq!(seconds(1), "0.000000001");
        assert_eq!(seconds(2_500_000_000), "2.5");
        assert_eq!(seconds(u64::MAX), "18446744073.709551615");
    }
}
