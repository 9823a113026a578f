//! What plots show: rates, queues, distributions, signals.

use super::{Axis, COLORS_MAX, Chart, Line, Look};
use crate::network::measures::slowdowns;
use crate::network::{Outcome, Scenario};

/// A run with its name in the legend.
#[derive(Debug, Clone, Copy)]
pub struct Run<'a> {
    /// In the legend.
    pub name: &'a str,
    /// What was run.
    pub scenario: &'a Scenario,
    /// What came of it.
    pub outcome: &'a Outcome,
}

/// Lines of one chart for flows that are each drawn; the others show in the mean alone.
const FLOWS_MAX: usize = 40;

/// A unit for values up to a maximum: its name, and how many of the small units it has.
fn unit(max: f64, units: &[(&'static str, f64)]) -> (&'static str, f64) {
    let fits = units.iter().rev().find(|(_, size)| max >= *size * 2.0);
    *fits.unwrap_or(&units[0])
}

const TIMES: [(&str, f64); 4] = [("ns", 1.0), ("µs", 1e3), ("ms", 1e6), ("s", 1e9)];
const SIZES: [(&str, f64); 3] = [("B", 1.0), ("KB", 1e3), ("MB", 1e6)];
const RATES: [(&str, f64); 3] = [("Mb/s", 1e6), ("Gb/s", 1e9), ("Tb/s", 1e12)];

/// Something above the greatest value that is drawn.
fn head_room(max: f64) -> f64 {
    if max > 0.0 { max * 1.06 } else { 1.0 }
}

fn greatest(lines: &[Line]) -> f64 {
    let values = lines.iter().flat_map(|l| l.points.iter().map(|p| p.1));
    values.fold(0.0, f64::max)
}

fn farthest(lines: &[Line]) -> f64 {
    let values = lines.iter().flat_map(|l| l.points.last().map(|p| p.0));
    values.fold(0.0, f64::max)
}

/// A chart of values over time, in ns, that begins at 0 in both directions; in units that fit.
fn over_time(title: &str, what: &str, units: &[(&'static str, f64)], mut lines: Vec<Line>) -> Option<Chart> {
    if lines.iter().all(|l| l.points.len() < 2) {
        return None;
    }
    let (time, ns) = unit(farthest(&lines), &TIMES);
    let (value, size) = unit(greatest(&lines), units);
    for point in lines.iter_mut().flat_map(|l| &mut l.points) {
        *point = (point.0 / ns, point.1 / size);
    }
    Some(Chart {
        title: title.to_owned(),
        x: Axis::new(format!("time ({time})"), 0.0, farthest(&lines)),
        y: Axis::new(
            if value.is_empty() {
                what.to_owned()
            } else {
                format!("{what} ({value})")
            },
            0.0,
            head_room(greatest(&lines)),
        ),
        logarithmic: false,
        lines,
    })
}

fn series(times: &[u64], values: &[u64]) -> Vec<(f64, f64)> {
    let pairs = times.iter().zip(values);
    pairs.map(|(t, v)| (*t as f64, *v as f64)).collect()
}

fn mean_of(times: &[u64], rows: &[Vec<u64>]) -> Vec<(f64, f64)> {
    let mean = |n: usize| {
        let values = rows.iter().filter_map(|r| r.get(n));
        values.map(|v| *v as f64).sum::<f64>() / rows.len().max(1) as f64
    };
    times
        .iter()
        .enumerate()
        .map(|(n, t)| (*t as f64, mean(n)))
        .collect()
}

/// What a flow is called.
fn flow_name(scenario: &Scenario, flow: usize) -> String {
    match scenario.flows.get(flow) {
        Some(f) => {
            let name = |node| scenario.topology.name(node);
            format!("{} → {}", name(f.from), name(f.to))
        }
        None => format!("flow {flow}"),
    }
}

/// Names of flows; where two would be the same, with their numbers.
fn flow_names(scenario: &Scenario, flows: &[usize]) -> Vec<String> {
    let names: Vec<String> = flows.iter().map(|f| flow_name(scenario, *f)).collect();
    let twice = |name: &String| names.iter().filter(|n| *n == name).count() > 1;
    let full = |(name, flow): (&String, &usize)| match twice(name) {
        true => format!("{name} #{flow}"),
        false => name.clone(),
    };
    names.iter().zip(flows).map(full).collect()
}

fn of_flows(title: &str, what: &str, runs: &[Run<'_>], rows: fn(&Outcome) -> &[Vec<u64>]) -> Option<Chart> {
    let mut lines = Vec::new();
    if let [run] = runs {
        let (times, rows) = (&run.outcome.series.time, rows(run.outcome));
        let names = flow_names(run.scenario, &run.scenario.record.flows);
        let few = rows.len() <= COLORS_MAX;
        let step = rows.len().div_ceil(FLOWS_MAX).max(1);
        for (n, row) in rows.iter().enumerate().step_by(step) {
            lines.push(Line {
                name: match few {
                    true => names.get(n).cloned().unwrap_or_default(),
                    false => String::new(),
                },
                points: series(times, row),
                look: if few { Look::Strong } else { Look::Thin },
                color: if few { n } else { 0 },
            });
        }
        if !few {
            lines.last_mut()?.name = match step {
                1 => format!("each of {} flows", rows.len()),
                _ => format!("{} of {} flows", rows.len().div_ceil(step), rows.len()),
            };
            lines.push(Line::strong("mean", mean_of(times, rows), 1));
        }
    } else {
        let mean = |run: &Run<'_>| mean_of(&run.outcome.series.time, rows(run.outcome));
        let line = |(n, run): (usize, &Run<'_>)| Line::strong(run.name, mean(run), n);
        lines.extend(runs.iter().enumerate().map(line));
    }
    over_time(title, what, &RATES, lines)
}

/// Rates that flows are allowed.
pub fn rates(title: &str, runs: &[Run<'_>]) -> Option<Chart> {
    of_flows(title, "rate", runs, |o| &o.series.rates)
}

/// What flows deliver.
pub fn throughput(title: &str, runs: &[Run<'_>]) -> Option<Chart> {
    of_flows(title, "throughput", runs, |o| &o.series.delivered)
}

/// A line for each recorded queue of one run, for the first one of each of several.
fn queues<T>(runs: &[Run<'_>], get: impl Fn(&Outcome, usize) -> Option<T>) -> Vec<(String, T)> {
    let mut list = Vec::new();
    for run in runs {
        let count = if runs.len() == 1 { COLORS_MAX } else { 1 };
        for n in 0..count {
            let Some(line) = get(run.outcome, n) else { break };
            let name = match (runs.len(), run.scenario.record.queues.get(n)) {
                (1, Some(queue)) => queue_name(run.scenario, *queue),
                (1, None) => "queue".to_owned(),
                _ => run.name.to_owned(),
            };
            list.push((name, line));
        }
    }
    list
}

/// `switch → h8`.
pub fn queue_name(scenario: &Scenario, (node, link): (usize, usize)) -> String {
    let name = |node| scenario.topology.name(node);
    match scenario.topology.links.get(link) {
        Some(l) if l.a == node => format!("{} → {}", name(node), name(l.b)),
        Some(l) => format!("{} → {}", name(node), name(l.a)),
        None => name(node),
    }
}

/// Bytes in queues over time.
pub fn queue(title: &str, runs: &[Run<'_>]) -> Option<Chart> {
    let rows = queues(runs, |o, n| {
        let row = o.series.queues.get(n)?;
        Some(series(&o.series.time, row))
    });
    let line = |(color, (name, points))| Line::strong(name, points, color);
    let lines = rows.into_iter().enumerate().map(line).collect();
    over_time(title, "queue", &SIZES, lines)
}

/// Part of the time that queues are at most so long.
pub fn queue_distribution(title: &str, runs: &[Run<'_>]) -> Option<Chart> {
    let rows = queues(runs, |o, n| {
        let queue = o.queues.get(n)?;
        let row: Vec<f64> = queue.permille.iter().map(|b| *b as f64).collect();
        Some(row)
    });
    // Nobody would see the rest for one peak: it ends where 99.9 % of the time does.
    let max = rows
        .iter()
        .filter_map(|(_, row)| row.get(999).copied())
        .fold(0.0, f64::max);
    let (name, size) = unit(max, &SIZES);
    let lines: Vec<Line> = rows
        .into_iter()
        .enumerate()
        .map(|(color, (name, row))| Line::strong(name, steps(row.iter().map(|b| b / size)), color))
        .collect();
    if lines.is_empty() {
        return None;
    }
    Some(Chart {
        title: title.to_owned(),
        x: Axis::new(format!("queue ({name})"), 0.0, head_room(max / size)),
        y: Axis::new("time (%)", 0.0, 100.0),
        logarithmic: false,
        lines,
    })
}

/// Values from the least to the greatest, each with the percent that do not exceed it.
fn steps(values: impl ExactSizeIterator<Item = f64>) -> Vec<(f64, f64)> {
    let last = values.len().saturating_sub(1).max(1) as f64;
    values
        .enumerate()
        .map(|(n, v)| (v, n as f64 / last * 100.0))
        .collect()
}

/// Part of the flows whose slowdown is at most so great.
pub fn slowdown(title: &str, runs: &[Run<'_>]) -> Option<Chart> {
    let lines: Vec<Line> = runs
        .iter()
        .enumerate()
        .map(|(color, run)| {
            let slowdowns = slowdowns(&run.outcome.flows).into_iter();
            Line::strong(run.name, steps(slowdowns.map(|s| s.max(1.0))), color)
        })
        .filter(|l| l.points.len() > 1)
        .collect();
    if lines.is_empty() {
        return None;
    }
    Some(Chart {
        title: title.to_owned(),
        x: Axis::new(
            "slowdown: time to complete, relative to that alone",
            1.0,
            farthest(&lines).max(2.0) * 1.05,
        ),
        y: Axis::new("flows (%)", 0.0, 100.0),
        logarithmic: true,
        lines,
    })
}

/// Pause frames, CNPs, marked and dropped packets of one run, in each ms.
pub fn signals(title: &str, run: &Run<'_>) -> Option<Chart> {
    let series_of = &run.outcome.series;
    let interval = run.scenario.record.interval;
    if interval == 0 {
        return None;
    }
    let all = [
        ("marked packets", &series_of.marks),
        ("CNPs", &series_of.cnps),
        ("pause frames", &series_of.pauses),
        ("drops", &series_of.drops),
    ];
    // At most so many points that a person sees a rate, not single packets.
    let group = (series_of.time.len() / 200).max(1);
    let per_ms = 1e6 / (interval as f64 * group as f64);
    let lines: Vec<Line> = all
        .iter()
        .enumerate()
        .filter(|(_, (_, values))| values.iter().any(|v| *v > 0))
        .map(|(color, (name, values))| {
            let groups = series_of.time.chunks_exact(group).zip(values.chunks_exact(group));
            let point = |(times, values): (&[u64], &[u64])| {
                (
                    times[group - 1] as f64,
                    values.iter().sum::<u64>() as f64 * per_ms,
                )
            };
            Line::strong(*name, groups.map(point).collect(), color)
        })
        .collect();
    over_time(title, "in one ms", &[("", 1.0)], lines)
}

/// All that can be shown of one run.
pub fn all(run: Run<'_>) -> Vec<Chart> {
    let runs = [run];
    [
        rates("Rates that flows are allowed", &runs),
        throughput("Throughput of flows", &runs),
        queue("Queue over time", &runs),
        queue_distribution("Distribution of the queue", &runs),
        slowdown("Slowdown of flows", &runs),
        signals("Marks, notifications, pauses, drops", &run),
    ]
    .into_iter()
    .flatten()
    .collect()
}
