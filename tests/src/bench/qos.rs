//! Known mixes through a port with a limited rate: what each stream gets, and how evenly.

mod dpdk;
mod rdma;
mod rows;
mod series;
mod traffic;

use std::time::Duration;

use anyhow::{Context as _, Result};
use vnic_backend::settings::{QosKeys, Trust};
use vnic_backend::{Classes, Nic, QosSpec, ScheduleQueue, Tsa};

use super::machine::CpuTime;
use super::product::{Product, Setup};
use super::report::{Outcome, Summary};
use super::{Lab, Run};
use series::{Series, unevenness};

/// Rounds are long, and differ little.
const ROUNDS_MAX: usize = 3;
/// The least time over which a rate is judged.
const TIME_MIN: Duration = Duration::from_secs(1);
/// Until queues are full and limits have used up what they had saved.
const WARM_UP: Duration = Duration::from_millis(300);
/// What a rate may be off by.
const ERROR_MAX: f64 = 0.02;
/// Below this share of its CPU a thread was disturbed: what it was kept from for long cannot be made up for.
const SHARE_MIN: f64 = 0.99;

/// `qos`.
pub fn run(lab: &Lab) -> Result<Run> {
    let mut outcomes = Vec::new();
    for row in rows::ALL {
        if let Some(only) = &lab.only
            && !row.name.contains(only.as_str())
        {
            continue;
        }
        if row.needs_testpmd && !super::testpmd::Testpmd::present(&lab.testpmd) {
            eprintln!(
                "qos {}: skipped: {} cannot be run",
                row.name,
                lab.testpmd.display()
            );
            continue;
        }
        let found = (row.run)(lab).with_context(|| format!("qos {}", row.name))?;
        for outcome in &found {
            eprintln!("{}", line(outcome));
        }
        outcomes.extend(found);
    }
    Ok(Run::Measured(outcomes))
}

/// One row of the bench.
struct Row {
    name: &'static str,
    needs_testpmd: bool,
    run: fn(&Lab) -> Result<Vec<Outcome>>,
}

/// What a stream is to get.
struct Stream {
    name: &'static str,
    /// bit/s on the wire.
    configured: f64,
}

const fn stream(name: &'static str, configured: f64) -> Stream {
    Stream { name, configured }
}

fn rounds(lab: &Lab) -> usize {
    lab.rounds.min(ROUNDS_MAX)
}

fn time(lab: &Lab) -> Duration {
    lab.window.max(TIME_MIN)
}

/// A figure for each stream.
fn outcomes(row: &str, streams: &[Stream], rounds: &[Series], note: &str) -> Result<Vec<Outcome>> {
    let of = |(i, stream): (usize, &Stream)| {
        let rates: Vec<f64> = rounds.iter().map(|s| s.rate(i)).collect();
        let windows: Vec<f64> = rounds.iter().flat_map(|s| s.windows(i)).collect();
        let name = format!("qos-{row}-{}", stream.name);
        let mut found = outcome(name, stream.configured, &rates, &windows, note)?;
        found.notes.extend(disturbed(rounds));
        Ok(found)
    };
    streams.iter().enumerate().map(of).collect()
}

/// What a reader has to know when others had the CPUs as well.
fn disturbed(rounds: &[Series]) -> Option<String> {
    let share = rounds.iter().filter_map(|s| s.share).reduce(f64::min)?;
    (share < SHARE_MIN).then(|| {
        format!(
            "other programs took CPU: the NIC or the guests got {:.0} % of theirs. Measure on a quiet machine",
            100.0 * share
        )
    })
}

/// Times of the threads of a row: the NIC's, and the guests'.
struct Threads([CpuTime; 2]);

impl Threads {
    fn now(guests: CpuTime) -> Threads {
        Threads([CpuTime::of(std::process::id(), "vnic-core"), guests])
    }

    /// The lesser share since.
    fn share(&self, end: &Threads) -> Option<f64> {
        let shares = self.0.iter().zip(&end.0).map(|(a, b)| b.since(*a).share());
        shares.reduce(f64::min)
    }
}

/// Rates in bit/s of all rounds, and of all windows.
fn outcome(name: String, configured: f64, rates: &[f64], windows: &[f64], note: &str) -> Result<Outcome> {
    let giga = |values: &[f64]| values.iter().map(|v| v / 1e9).collect::<Vec<_>>();
    let value = Summary::of(&giga(rates)).context("no rounds")?;
    let wanted = configured / 1e9;
    // The round that is farthest off.
    let error = [value.min, value.max]
        .map(|v| v / wanted - 1.0)
        .into_iter()
        .max_by(|a, b| a.abs().total_cmp(&b.abs()))
        .unwrap_or_default();
    let parts = Summary::of(&giga(windows)).context("no windows")?;
    let mut notes = vec![note.to_owned()];
    if error.abs() > ERROR_MAX {
        notes.push(format!("MISSED: {:+.2} % off, 2 % were promised", 100.0 * error));
    }
    let ratio = |v: f64| v / wanted;
    Ok(Outcome {
        name,
        unit: "Gb/s",
        value,
        peer: Some((
            "configured",
            Summary {
                median: wanted,
                min: wanted,
                max: wanted,
            },
        )),
        ratio: Some(Summary {
            median: ratio(value.median),
            min: ratio(value.min),
            max: ratio(value.max),
        }),
        bare_exchange: None,
        rounds: rates.len(),
        details: vec![
            ("error_percent", 100.0 * error),
            ("jitter_percent", 100.0 * unevenness(windows)),
            ("least_10_ms", parts.min),
            ("most_10_ms", parts.max),
        ],
        notes,
    })
}

/// One line for people who watch.
fn line(o: &Outcome) -> String {
    let detail = |name: &str| {
        let found = o.details.iter().find(|d| d.0 == name);
        found.map_or(0.0, |d| d.1)
    };
    match &o.peer {
        Some((_, wanted)) => format!(
            "{}: configured {:.4}, measured {:.4} {} ({:+.2} %), 10 ms windows {:.4} .. {:.4}, jitter {:.2} %",
            o.name,
            wanted.median,
            o.value.median,
            o.unit,
            detail("error_percent"),
            detail("least_10_ms"),
            detail("most_10_ms"),
            detail("jitter_percent")
        ),
        None => format!("{}: {} {}", o.name, o.value.median, o.unit),
    }
}

/// A NIC with `adapters` adapters, the sink first; all trust the DSCP.
fn house(lab: &Lab, dir: &tempfile::TempDir, adapters: usize) -> Result<(Product, Nic)> {
    let product = Product::start(&Setup {
        dir: dir.path(),
        cpu: lab.cpus[0],
        adapters,
        queue_pairs: 1,
        control_queue: false,
        anti_spoofing: true,
        mtu: 1500,
        vnicd: None,
        first_guest: 0,
        uplinks: &[],
    })?;
    let nic = product.nic().context("a NIC in this process")?.clone();
    for i in 0..adapters {
        trust(&nic, i, |keys| keys.priorities.trust = Trust::Dscp)?;
    }
    Ok((product, nic))
}

/// Changes an adapter's keys.
pub(super) fn trust(nic: &Nic, adapter: usize, change: impl FnOnce(&mut QosKeys)) -> Result<()> {
    let name = format!("vf{adapter}");
    let mut settings = nic.adapter_settings(&name)?;
    change(&mut settings.qos);
    nic.apply_qos_keys(&name, &settings)?;
    Ok(())
}

/// Each priority has the traffic class of its number.
pub(super) fn classes() -> Classes {
    Classes {
        of_priority: [0, 1, 2, 3, 4, 5, 6, 7],
        ..Classes::default()
    }
}

/// Classes that share what is there by these percents.
fn ets(shares: &[(usize, u8)]) -> Classes {
    let mut classes = classes();
    for &(class, share) in shares {
        (classes.tsa[class], classes.share[class]) = (Tsa::Ets, share);
    }
    classes
}

fn set(nic: &Nic, adapter: usize, spec: QosSpec) -> Result<()> {
    nic.set_qos(&format!("vf{adapter}"), spec)?;
    Ok(())
}

/// A virtual machine's limit and guarantee, the same for all classes.
fn machine(limit: f64, guarantee: f64) -> QosSpec {
    QosSpec {
        classes: classes(),
        queue: Some(ScheduleQueue {
            limit: [limit as u64; 8],
            guarantee: [guarantee as u64; 8],
        }),
        ..QosSpec::default()
    }
}
