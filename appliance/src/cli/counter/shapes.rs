//! Text of counters: tables, and the output formats of ethtool and rdma.

use std::fmt::Write as _;

use vnic_control::v1;
use vnic_control::v1::CounterAvailability as A;

use super::super::text;
use crate::names;

/// Counters as `ethtool -S` prints them; names without a value are left out.
pub fn ethtool(sets: &[v1::CounterSetValues]) -> String {
    let mut text = String::from("NIC statistics:\n");
    for value in sets.iter().flat_map(|s| &s.values) {
        if let Some(n) = value.value {
            let _ = writeln!(text, "     {}: {n}", value.name);
        }
    }
    text
}

/// Counters as `rdma statistic show link` prints them: the hardware counters of the one port.
pub fn rdma_statistic(sets: &[v1::CounterSetValues]) -> String {
    let mut text = String::new();
    // The first set has hw_counters; the port's counters are in sysfs only.
    for set in sets.iter().take(1) {
        let _ = write!(text, "link {}/1", names::last(&set.owner));
        for value in &set.values {
            if let Some(n) = value.value {
                let _ = write!(text, " {} {n}", value.name);
            }
        }
        text.push('\n');
    }
    text
}

fn label(value: &v1::CounterValue) -> String {
    match (value.queue, value.priority) {
        (Some(queue), _) if !value.name.contains(&queue.to_string()) => format!("queue {queue}"),
        (_, Some(priority)) if !value.name.contains(&priority.to_string()) => format!("priority {priority}"),
        _ => value.reason.clone(),
    }
}

/// Growth per second.
fn rate(rate: f64) -> String {
    // A rate is never negative, and far below 2^63.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    match rate {
        r if r >= 99.5 => format!("{}/s", text::count(r.round() as u64)),
        0.0 => "0/s".to_owned(),
        r => format!("{r:.1}/s"),
    }
}

/// A table for each set; with `all` also the names without a value, and why they have none.
pub fn tables(sets: &[v1::CounterSetValues], all: bool) -> String {
    let mut out = String::new();
    for set in sets {
        let values: Vec<_> = set.values.iter().filter(|v| all || v.value.is_some()).collect();
        if values.is_empty() && sets.len() > 1 {
            continue;
        }
        if sets.len() > 1 {
            let gap = if out.is_empty() { "" } else { "\n" };
            let _ = writeln!(out, "{gap}{}", set.title);
        }
        out += &text::table! { value in values, "no counters";
            let (shown, note) = match (value.availability(), value.value, value.rate) {
                (A::Rate, _, Some(r)) => (rate(r), String::new()),
                (A::Rate, _, None) => ("-".to_owned(), "a rate: see --sample, or counter watch".to_owned()),
                (A::NotYet, ..) => ("-".to_owned(), format!("not yet: {}", value.why)),
                (_, Some(n), _) => (n.to_string(), String::new()),
                (_, None, _) => ("-".to_owned(), format!("not modelled: {}", value.why)),
            };
            "COUNTER": value.name,
            "LABEL": label(value),
            ">VALUE": shown,
            "UNIT": value.unit,
            "NOTE": note,
        };
    }
    text::or(&out, "no counters\n").to_owned()
}

/// One sample of a stream.
pub fn sample(message: &v1::WatchCountersResponse) -> String {
    let table = text::table! { value in &message.values, "no counters";
        let shown = value.value.map(|n| n.to_string());
        "COUNTER": value.name,
        "LABEL": label(value),
        ">VALUE": if value.availability() == A::Rate { "-".to_owned() } else { shown.unwrap_or_default() },
        ">RATE": value.rate.map(rate).unwrap_or_default(),
        "UNIT": value.unit,
    };
    format!("{}\n{table}\n", text::time(message.sample_time))
}

/// Table of sets.
pub fn sets(sets: &[v1::CounterSet]) -> String {
    use v1::counter_set::Instance;
    text::table! { set in sets, "no sets";
        let readable = set.counters.iter().filter(|c| matches!(c.availability(), A::Available | A::Rate));
        let known = |n: usize| if set.counters.is_empty() { String::new() } else { n.to_string() };
        "SET": names::last(&set.name),
        "TITLE": set.title,
        "ABOUT": match set.instance() {
            Instance::Unspecified => "anything",
            Instance::Adapter => "an adapter",
            Instance::Queue => "a queue pair",
            Instance::Priority => "a priority",
            Instance::Port => "an uplink port",
        },
        ">COUNTERS": known(set.counters.len()),
        ">WITH A VALUE": known(readable.count()),
    }
}

/// Table of the names of each set.
pub fn names(sets: &[v1::CounterSet]) -> String {
    let table = |set: &v1::CounterSet| {
        text::table! { counter in &set.counters, "the NIC's own names: see counter list";
            "COUNTER": counter.name,
            "UNIT": counter.unit,
            "KIND": match (counter.availability(), counter.kind()) {
                (A::Rate, _) => "rate",
                (_, v1::CounterKind::Gauge) => "gauge",
                _ => "counter",
            },
            "WHERE IT COMES FROM": match counter.availability() {
                A::NotModelled => format!("not modelled: {}", counter.source),
                A::NotYet => format!("not yet: {}", counter.source),
                _ => counter.source.clone(),
            },
        }
    };
    sets.iter().map(table).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(name: &str, value: Option<u64>) -> v1::CounterValue {
        v1::CounterValue {
            name: name.to_owned(),
            value,
            ..v1::CounterValue::default()
        }
    }

    fn set(values: Vec<v1::CounterValue>) -> v1::CounterSetValues {
        v1::CounterSetValues {
            owner: "adapters/vf0".to_owned(),
            values,
            ..v1::CounterSetValues::default()
        }
    }

    #[test]
    fn ethtools_shape() {
        let sets = [
            set(vec![value("rx_packets", Some(7)), value("rx[i]_recover", None)]),
            set(vec![value("rx_vport_unicast_bytes", Some(u64::MAX))]),
        ];
        assert_eq!(
            ethtool(&sets),
            "NIC statistics:\n     rx_packets: 7\n     rx_vport_unicast_bytes: 18446744073709551615\n"
        );
    }

    #[test]
    fn rdma_statistics_shape() {
        let sets = [
            set(vec![
                value("rx_write_requests", Some(0)),
                value("rx_dct_connect", None),
                value("out_of_buffer", Some(3)),
            ]),
            set(vec![value("port_rcv_data", Some(9))]),
        ];
        assert_eq!(
            rdma_statistic(&sets),
            "link vf0/1 rx_write_requests 0 out_of_buffer 3\n"
        );
    }

    #[test]
    fn rates_are_short() {
        assert_eq!(rate(0.0), "0/s");
        assert_eq!(rate(1.25), "1.2/s");
        assert_eq!(rate(1234.6), "1235/s");
        assert_eq!(rate(2_000_000.0), "2.00M/s");
    }
}
