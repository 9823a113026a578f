//! Names and labels of counters, from the table of the data path.

use vnic_backend::Sample;
use vnic_backend::counters::{CounterDef, HistogramDef, Scope};

/// Suffixes of counters of time, with their units per second. Time is in seconds in Prometheus.
const TIMES: [(&str, u64); 2] = [("_ns", 1_000_000_000), ("_us", 1_000_000)];

/// Name without the suffix of a unit of time, and units per second.
pub fn time(name: &str) -> Option<(&str, u64)> {
    TIMES
        .into_iter()
        .find_map(|(unit, second)| Some((name.strip_suffix(unit)?, second)))
}

/// Time in seconds, exact; `second` is the number of units per second, a power of ten.
pub fn seconds(time: u64, second: u64) -> String {
    let digits = second.ilog10() as usize;
    let text = format!("{}.{:0digits$}", time / second, time % second);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Word for a scope in Prometheus names.
fn word(scope: Scope) -> &'static str {
    match scope {
        Scope::AdapterQueue | Scope::AdapterDrop => "adapter",
        Scope::Port | Scope::PortDrop => "port",
        Scope::Mesh => "mesh",
        Scope::Rdma => "rdma",
        Scope::Core => "core",
        Scope::AdapterPriority => "adapter_priority",
        Scope::PortPriority => "port_priority",
        Scope::AdapterLink => "adapter_link",
        Scope::PortLink => "port_link",
    }
}

/// Prometheus name of a counter: `vnic_<scope>_<name>_total`.
pub fn metric(def: &CounterDef) -> String {
    let scope = word(def.scope);
    match time(def.name) {
        Some((name, _)) => format!("vnic_{scope}_{name}_seconds_total"),
        None => format!("vnic_{scope}_{}_total", def.name),
    }
}

/// Units of a histogram per second, if it is of times.
pub fn histogram_time(def: &HistogramDef) -> Option<u64> {
    (def.unit == "ns").then_some(1_000_000_000)
}

/// Prometheus name of a histogram: `vnic_<scope>_<name>`, of times with `_seconds`.
pub fn histogram(def: &HistogramDef) -> String {
    let unit = if histogram_time(def).is_some() {
        "_seconds"
    } else {
        ""
    };
    format!("vnic_{}_{}{unit}", word(def.scope), def.name)
}

/// Label of what counters of a scope belong to.
pub fn owner(scope: Scope) -> &'static str {
    match scope {
        Scope::AdapterQueue
        | Scope::AdapterDrop
        | Scope::AdapterPriority
        | Scope::AdapterLink
        | Scope::Rdma => "adapter",
        Scope::Port | Scope::PortDrop | Scope::Mesh | Scope::PortPriority | Scope::PortLink => "port",
        Scope::Core => "core",
    }
}

/// Labels of a value.
pub fn labels(sample: &Sample) -> Vec<(&'static str, String)> {
    let mut labels = vec![(owner(sample.def.scope), sample.owner.clone())];
    if let Some(queue) = sample.queue {
        labels.push(("queue", queue.to_string()));
    }
    if let Some(priority) = sample.priority {
        labels.push(("priority", priority.to_string()));
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
        for def in vnic_backend::counters::HISTOGRAMS {
            let name = histogram(def);
            assert!(seen.insert(name.clone()), "{name} twice");
            assert!(
                def.help.ends_with('.') && !def.help.contains(['\\', '\n']),
                "{name}: {}",
                def.help
            );
        }
        assert!(seen.contains("vnic_core_round_seconds") && seen.contains("vnic_adapter_tx_queue_depth"));
    }

    #[test]
    fn time_is_in_seconds() {
        let ns = |name| time(name).expect("a time").1;
        assert_eq!(seconds(0, ns("x_ns")), "0");
        assert_eq!(seconds(1, ns("x_ns")), "0.000000001");
        assert_eq!(seconds(2_500_000_000, ns("x_ns")), "2.5");
        assert_eq!(seconds(u64::MAX, ns("x_ns")), "18446744073.709551615");
        assert_eq!(time("rx_pause_us"), Some(("rx_pause", 1_000_000)));
        assert_eq!(seconds(2_000_001, 1_000_000), "2.000001");
        assert_eq!(time("rx_bus"), None);
    }
}
