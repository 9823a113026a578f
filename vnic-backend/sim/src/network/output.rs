//! What is said of an outcome: a summary for people, JSON with everything, CSV for spreadsheets.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::file::Loaded;
use super::measures::{Bin, bins, fairness, throughputs};
use super::outcome::{FlowOutcome, Outcome, QueueOutcome};
use super::scenario::Scenario;
use crate::plot::panels::queue_name;

/// Time with a unit in which it is short.
pub fn time(ns: f64) -> String {
    short(ns, &[("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)])
}

/// Bytes, decimal.
pub fn size(bytes: f64) -> String {
    short(bytes, &[("B", 1.0), ("KB", 1e3), ("MB", 1e6), ("GB", 1e9)])
}

/// bit/s.
pub fn rate(bits: f64) -> String {
    short(
        bits,
        &[
            ("b/s", 1.0),
            ("kb/s", 1e3),
            ("Mb/s", 1e6),
            ("Gb/s", 1e9),
            ("Tb/s", 1e12),
        ],
    )
}

/// Three digits that matter, and a unit.
fn short(value: f64, units: &[(&str, f64)]) -> String {
    let (unit, factor) = units
        .iter()
        .rev()
        .find(|(_, factor)| value >= *factor)
        .unwrap_or(&units[0]);
    let value = value / factor;
    let digits = match value {
        v if v >= 100.0 || v == v.trunc() => 0,
        v if v >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.digits$} {unit}")
}

/// Percentiles of queues that are shown.
const PERCENTILES: [(f64, &str); 4] = [(50.0, "p50"), (90.0, "p90"), (95.0, "p95"), (99.0, "p99")];

fn name_of(scenario: &Scenario, queue: usize) -> String {
    match scenario.record.queues.get(queue) {
        Some(queue) => queue_name(scenario, *queue),
        // The simulator chooses one if the scenario names none.
        None => busiest(scenario).map_or_else(|| format!("{queue}"), |q| queue_name(scenario, q)),
    }
}

/// The queue that most flows end at: that of the first such host.
fn busiest(scenario: &Scenario) -> Option<(usize, usize)> {
    let mut counts = vec![0_usize; scenario.topology.hosts];
    for flow in &scenario.flows {
        *counts.get_mut(flow.to)? += 1;
    }
    let most = counts.iter().max()?;
    let host = counts.iter().position(|n| n == most)?;
    scenario.topology.queue_to(host)
}

fn count(n: usize, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

/// For the terminal.
pub fn text(loaded: &Loaded, outcome: &Outcome) -> String {
    let scenario = &loaded.scenario;
    let mut text = String::new();
    let total: f64 = throughputs(scenario, outcome).iter().sum();
    let finite = scenario.flows.iter().filter(|f| f.bytes.is_some()).count();
    let finished = outcome.flows.iter().filter(|f| f.end.is_some()).count();
    let _ = write!(
        text,
        "{}\n{}, {}, {}, {}\n\n",
        scenario.name,
        count(scenario.topology.hosts, "host", "hosts"),
        count(scenario.topology.switches, "switch", "switches"),
        count(scenario.flows.len(), "flow", "flows"),
        scenario.control.algorithm.name()
    );
    let _ = write!(
        text,
        "throughput  {} from {} to {}",
        rate(total),
        time(scenario.record.from as f64),
        time(outcome.end as f64)
    );
    if let Some(fair) = fairness(scenario, outcome) {
        let _ = write!(text, "; Jain's index {fair:.3}");
    }
    if finite > 0 {
        let _ = write!(text, "; {finished} of {finite} flows ended");
    }
    text.push('\n');
    for (n, queue) in outcome.queues.iter().enumerate() {
        let percentiles: Vec<String> = PERCENTILES
            .iter()
            .map(|(p, name)| format!("{name} {}", size(queue.percentile(*p) as f64)))
            .collect();
        let _ = writeln!(
            text,
            "queue       {}: mean {}, {}, max {}; link {:.1} % busy",
            name_of(scenario, n),
            size(queue.mean),
            percentiles.join(", "),
            size(queue.max as f64),
            queue.utilization() * 100.0
        );
    }
    let t = &outcome.totals;
    let _ = writeln!(
        text,
        "network     {} pause frames, {} CNPs, {} marked packets, {} drops; {} packets of data",
        t.pauses, t.cnps, t.marks, t.drops, t.data_packets
    );
    let faults = scenario.control.algorithm.faults();
    if let Some(last) = &faults.last {
        let stopped = if faults.stopped {
            "; dcqcn has taken over"
        } else {
            ""
        };
        let _ = writeln!(text, "program     {} faults, last {last}{stopped}", faults.count);
    }
    let rows = bins(scenario, outcome);
    if !rows.is_empty() {
        text.push('\n');
        text.push_str(&bin_table(&rows));
    }
    text
}

/// Completion times and slowdowns by size.
fn bin_table(rows: &[Bin]) -> String {
    let mut text = format!(
        "{:<10} {:>7} {:>7}  {:>10} {:>10}  {:>8} {:>8} {:>8} {:>8}\n",
        "size", "flows", "ended", "FCT mean", "FCT p99", "slowdown", "p50", "p95", "p99"
    );
    for (n, row) in rows.iter().enumerate() {
        let name = match row.up_to {
            Some(bytes) => format!("<= {}", size(bytes as f64)),
            None if n + 1 == rows.len() => "all".to_owned(),
            None => "larger".to_owned(),
        };
        let s = &row.slowdown;
        let _ = writeln!(
            text,
            "{name:<10} {:>7} {:>7}  {:>10} {:>10}  {:>8.2} {:>8.2} {:>8.2} {:>8.2}",
            row.flows,
            row.finished,
            time(row.mean),
            time(row.p99),
            s.mean,
            s.p50,
            s.p95,
            s.p99
        );
    }
    text
}

/// Everything.
pub fn json(loaded: &Loaded, outcome: &Outcome) -> Value {
    let scenario = &loaded.scenario;
    let rates = throughputs(scenario, outcome);
    let parameters: serde_json::Map<String, Value> = loaded
        .algorithm
        .parameters()
        .into_iter()
        .map(|p| (p.name.into_owned(), p.value.into()))
        .collect();
    let flows: Vec<Value> = outcome
        .flows
        .iter()
        .enumerate()
        .map(|(n, f)| flow_json(scenario, n, f, rates.get(n).copied()))
        .collect();
    let queues: Vec<Value> = outcome
        .queues
        .iter()
        .enumerate()
        .map(|(n, q)| queue_json(&name_of(scenario, n), q))
        .collect();
    let s = &outcome.series;
    json!({
        "scenario": {
            "name": scenario.name,
            "seed": scenario.seed,
            "duration_ns": scenario.duration,
            "mtu": scenario.mtu,
            "hosts": scenario.topology.hosts,
            "switches": scenario.topology.switches,
            "links": scenario.topology.links.len(),
            "algorithm": scenario.control.algorithm.name(),
            "parameters": parameters,
            "faults": scenario.control.algorithm.faults().count,
            "record_from_ns": scenario.record.from,
        },
        "hash": format!("{:016x}", outcome.hash),
        "end_ns": outcome.end,
        "fairness": fairness(scenario, outcome),
        "throughput_bps": rates.iter().sum::<f64>(),
        "totals": outcome.totals,
        "bins": bins(scenario, outcome),
        "queues": queues,
        "flows": flows,
        "series": {
            "time_ns": s.time,
            "queue_bytes": s.queues,
            "flow_numbers": scenario.record.flows,
            "rate_bps": s.rates,
            "delivered_bps": s.delivered,
            "pauses": s.pauses,
            "cnps": s.cnps,
            "marks": s.marks,
            "drops": s.drops,
        },
    })
}

fn flow_json(scenario: &Scenario, number: usize, f: &FlowOutcome, rate: Option<f64>) -> Value {
    let flow = scenario.flows.get(number);
    let name = |node: Option<usize>| node.map(|n| scenario.topology.name(n));
    json!({
        "from": name(flow.map(|f| f.from)),
        "to": name(flow.map(|f| f.to)),
        "group": flow.map(|f| f.group),
        "priority": flow.map(|f| f.priority),
        "bytes": flow.and_then(|f| f.bytes),
        "start_ns": f.start,
        "end_ns": f.end,
        "completion_ns": f.completion(),
        "ideal_ns": f.ideal,
        "slowdown": f.slowdown(),
        "delivered": f.delivered,
        "throughput_bps": rate,
        "rtt_mean_ns": (f.rtt_count > 0).then(|| f.rtt_sum as f64 / f.rtt_count as f64),
        "rtt_max_ns": f.rtt_max,
        "retransmitted": f.retransmitted,
        "notifications": f.notifications,
    })
}

fn queue_json(name: &str, q: &QueueOutcome) -> Value {
    json!({
        "name": name,
        "mean": q.mean,
        "max": q.max,
        "permille": q.permille,
        "sent": q.sent,
        "time_ns": q.time,
        "rate_bps": q.rate,
        "utilization": q.utilization(),
    })
}

/// Writes a file; `-` is standard output.
pub fn save(path: &Path, bytes: impl AsRef<[u8]>) -> Result<()> {
    if path.as_os_str() == "-" {
        return Ok(std::io::stdout().write_all(bytes.as_ref())?);
    }
    std::fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

/// Writes `flows.csv`, `queues.csv` and, where there are samples, `series.csv` into a folder.
pub fn csv(folder: &Path, scenario: &Scenario, outcome: &Outcome) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut files = vec![
        ("flows.csv", flows_csv(scenario, outcome)),
        ("queues.csv", queues_csv(scenario, outcome)),
    ];
    if !outcome.series.time.is_empty() {
        files.push(("series.csv", series_csv(scenario, outcome)));
    }
    for (name, text) in files {
        save(&folder.join(name), text)?;
    }
    Ok(())
}

fn optional<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(String::new, |v| v.to_string())
}

fn flows_csv(scenario: &Scenario, outcome: &Outcome) -> String {
    let mut text = "flow,from,to,group,bytes,start_ns,end_ns,ideal_ns,slowdown,delivered,throughput_bps,\
                    rtt_mean_ns,rtt_max_ns,retransmitted,notifications\n"
        .to_owned();
    let rates = throughputs(scenario, outcome);
    for (n, (flow, f)) in scenario.flows.iter().zip(&outcome.flows).enumerate() {
        let rtt = (f.rtt_count > 0).then(|| f.rtt_sum / f.rtt_count);
        let _ = writeln!(
            text,
            "{n},{},{},{},{},{},{},{},{},{},{:.0},{},{},{},{}",
            scenario.topology.name(flow.from),
            scenario.topology.name(flow.to),
            flow.group,
            optional(flow.bytes),
            f.start,
            optional(f.end),
            f.ideal,
            optional(f.slowdown().map(|s| format!("{s:.4}"))),
            f.delivered,
            rates[n],
            optional(rtt),
            f.rtt_max,
            f.retransmitted,
            f.notifications
        );
    }
    text
}

fn queues_csv(scenario: &Scenario, outcome: &Outcome) -> String {
    let names: Vec<String> = (0..outcome.queues.len()).map(|n| name_of(scenario, n)).collect();
    let mut text = format!("permille_of_time,{}\n", names.join(","));
    for permille in 0..=1000 {
        let cells: Vec<String> = outcome
            .queues
            .iter()
            .map(|q| optional(q.permille.get(permille)))
            .collect();
        let _ = writeln!(text, "{permille},{}", cells.join(","));
    }
    text
}

fn series_csv(scenario: &Scenario, outcome: &Outcome) -> String {
    let s = &outcome.series;
    let mut columns: Vec<(String, &[u64])> = vec![("time_ns".to_owned(), &s.time)];
    for (n, row) in s.queues.iter().enumerate() {
        columns.push((format!("queue_bytes {}", name_of(scenario, n)), row));
    }
    for (what, rows) in [("rate_bps", &s.rates), ("delivered_bps", &s.delivered)] {
        for (row, flow) in rows.iter().zip(&scenario.record.flows) {
            columns.push((format!("{what} flow {flow}"), row));
        }
    }
    for (name, row) in [
        ("pauses", &s.pauses),
        ("cnps", &s.cnps),
        ("marks", &s.marks),
        ("drops", &s.drops),
    ] {
        columns.push((name.to_owned(), row));
    }
    let names: Vec<&str> = columns.iter().map(|(n, _)| n.as_str()).collect();
    let mut text = names.join(",");
    text.push('\n');
    for n in 0..s.time.len() {
        let cells: Vec<String> = columns.iter().map(|(_, row)| optional(row.get(n))).collect();
        text.push_str(&cells.join(","));
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use vnic_engine::congestion::named::Named;

    use super::*;
    use crate::network::made_up;

    fn loaded() -> (Loaded, Outcome) {
        let (scenario, outcome) = made_up(4);
        let loaded = Loaded {
            scenario,
            algorithm: Named::None,
        };
        (loaded, outcome)
    }

    #[test]
    fn the_summary_is_short() {
        let (loaded, outcome) = loaded();
        expect![[r#"
            made up
            5 hosts, 1 switch, 8 flows, none

            throughput  7.20 Gb/s from 2 ms to 10 ms; Jain's index 1.000; 4 of 4 flows ended
            queue       switch → h4: mean 65.2 KB, p50 53.2 KB, p90 82.0 KB, p95 116 KB, p99 249 KB, max 448 KB; link 97.5 % busy
            network     50 pause frames, 999 CNPs, 2997 marked packets, 0 drops; 40000 packets of data

            size         flows   ended    FCT mean    FCT p99  slowdown      p50      p95      p99
            <= 1 KB          2       2     8.80 us      12 us      1.88     1.37     2.40     2.40
            <= 10 KB         1       1       85 us      85 us      6.07     6.07     6.07     6.07
            <= 100 KB        1       1      905 us     905 us      8.70     8.70     8.70     8.70
            all              4       4      252 us     905 us      4.63     2.40     8.70     8.70
        "#]].assert_eq(&text(&loaded, &outcome));
    }

    #[test]
    fn json_has_everything() {
        let (loaded, outcome) = loaded();
        let json = json(&loaded, &outcome);
        assert_eq!(json["hash"], "0123456789abcdef");
        assert_eq!(json["flows"].as_array().map(Vec::len), Some(8));
        assert_eq!(json["flows"][4]["bytes"], 100);
        assert_eq!(json["flows"][0]["bytes"], Value::Null);
        assert_eq!(json["queues"][0]["name"], "switch → h4");
        assert_eq!(json["series"]["rate_bps"].as_array().map(Vec::len), Some(4));
        assert_eq!(json["totals"]["cnps"], 999);
    }

    #[test]
    fn csv_has_a_row_for_each_flow_and_sample() {
        let (loaded, outcome) = loaded();
        let lines = |text: String| -> Vec<String> { text.lines().map(str::to_owned).collect() };
        let flows = lines(flows_csv(&loaded.scenario, &outcome));
        assert_eq!(flows.len(), 9);
        expect!["4,h0,h4,0,100,1000,6600,4100,1.3659,1000000,900000000,8004,20000,0,3"].assert_eq(&flows[5]);
        let queues = lines(queues_csv(&loaded.scenario, &outcome));
        assert_eq!(queues.len(), 1002);
        let series = lines(series_csv(&loaded.scenario, &outcome));
        assert_eq!(series.len(), 1001);
        let width = |line: &String| line.split(',').count();
        assert!(series.iter().all(|l| width(l) == width(&series[0])));
        assert_eq!(width(&series[0]), 1 + 1 + 4 + 4 + 4);
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(time(1_500.0), "1.50 us");
        assert_eq!(size(93_812.0), "93.8 KB");
        assert_eq!(size(0.0), "0 B");
        assert_eq!(rate(39.4e9), "39.4 Gb/s");
        assert_eq!(rate(250e6), "250 Mb/s");
    }
}
