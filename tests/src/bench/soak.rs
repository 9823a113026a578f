//! Does the daemon's memory stay where it is? A mix of everything that comes and goes, at a modest rate, for as long as wanted.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::json;
use vnic_sim::plot::{Axis, Chart, Line, Look, svg};

use super::machine::{self, CpuTime};
use super::product::{Product, Setup};
use super::report::{Outcome, Summary};
use super::{Lab, Run};
use traffic::Mix;

mod traffic;

/// Part of the samples at the start in which caches and pools may fill.
const WARM_UP_PART: usize = 6;

/// What of a sample is drawn.
type Curve = fn(&Sample) -> f64;

/// The daemon at one time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    seconds: f64,
    /// KiB of the whole resident set, guests' memory included.
    resident: f64,
    /// KiB that are nobody else's and written.
    private: f64,
    /// KiB that no file is behind: heap, stacks.
    pub(super) anonymous: f64,
    pub(super) threads: f64,
    pub(super) files: f64,
}

impl Sample {
    pub(super) fn take(pid: u32, since: Instant) -> Result<Sample> {
        let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
        let kib = |key: &str| -> Result<f64> {
            let line = rollup
                .lines()
                .find_map(|l| l.strip_prefix(key)?.strip_prefix(':'));
            let word = line.and_then(|l| l.split_whitespace().next());
            Ok(word
                .with_context(|| format!("no {key} in smaps_rollup"))?
                .parse()?)
        };
        let entries =
            |dir: &str| Ok::<_, anyhow::Error>(fs::read_dir(format!("/proc/{pid}/{dir}"))?.count() as f64);
        Ok(Sample {
            seconds: since.elapsed().as_secs_f64(),
            resident: kib("Rss")?,
            private: kib("Private_Dirty")?,
            anonymous: kib("Anonymous")?,
            threads: entries("task")?,
            files: entries("fd")?,
        })
    }
}

/// `soak`.
pub fn run(lab: &Lab) -> Result<Run> {
    let Some(vnicd) = &lab.vnicd else {
        return Ok(Run::Skipped(
            "it looks at a daemon's memory: none is beside this program, name one with --vnicd PATH".into(),
        ));
    };
    let vnicctl = vnicd.with_file_name("vnicctl");
    if !vnicctl.is_file() {
        return Ok(Run::Skipped(format!(
            "there is no {} beside the daemon",
            vnicctl.display()
        )));
    }
    let dir = lab.part()?;
    let product = Product::start(&Setup {
        dir: dir.path(),
        cpu: lab.cpus[0],
        adapters: traffic::ADAPTERS,
        queue_pairs: 1,
        control_queue: false,
        anti_spoofing: true,
        mtu: 9000,
        vnicd: Some(vnicd),
        first_guest: 0,
        uplinks: &[],
    })?;
    let mut mix = Mix::start(&product, dir.path(), vnicctl)?;
    let pid = product.pid();
    let (begin, own) = (Instant::now(), CpuTime::of(std::process::id(), ""));
    let daemon = CpuTime::of(pid, "");
    let mut samples = vec![Sample::take(pid, begin)?];
    let turn = Duration::from_secs(1) / u32::from(lab.pace);
    let limit = Duration::from_secs(60 * u64::from(lab.minutes.unwrap_or(1)));
    // A signal ends it early, with what there is.
    while begin.elapsed() < limit && !lab.interrupted() {
        std::thread::sleep(turn);
        mix.turn(&product)?;
        if mix.is_at_rest() {
            let sample = Sample::take(pid, begin)?;
            eprintln!(
                "soak {:6.0} s: anonymous {:.0} KiB, private {:.0} KiB, resident {:.0} KiB, {} threads, {} files; {}",
                sample.seconds,
                sample.anonymous,
                sample.private,
                sample.resident,
                sample.threads,
                sample.files,
                mix.done
            );
            samples.push(sample);
        }
    }
    let elapsed = begin.elapsed().as_secs_f64();
    let share = |now: CpuTime, before| now.since(before).ran as f64 / 1e7 / elapsed;
    let cpu = [
        share(CpuTime::of(pid, ""), daemon),
        share(CpuTime::of(std::process::id(), ""), own),
    ];
    if let Some(out) = &lab.out {
        keep(out, &samples)?;
    }
    outcome(&samples, cpu, &mix).map(|o| Run::Measured(vec![o]))
}

fn outcome(samples: &[Sample], cpu: [f64; 2], mix: &Mix) -> Result<Outcome> {
    let settled = &samples[samples.len() / WARM_UP_PART..];
    let growth = |of: Curve| {
        let points: Vec<(f64, f64)> = settled.iter().map(|s| (s.seconds / 3600.0, of(s))).collect();
        rise(&points)
    };
    let (first, last) = (samples[0], samples[samples.len() - 1]);
    let per_hour = growth(|s| s.anonymous);
    Ok(Outcome {
        name: "soak".into(),
        unit: "KiB an hour",
        value: Summary::of(&[per_hour]).context("no samples")?,
        peer: None,
        ratio: None,
        bare_exchange: None,
        rounds: samples.len(),
        details: vec![
            ("minutes", last.seconds / 60.0),
            ("private_growth_kib_per_hour", growth(|s| s.private)),
            ("resident_growth_kib_per_hour", growth(|s| s.resident)),
            ("anonymous_first_kib", first.anonymous),
            ("anonymous_warm_kib", settled[0].anonymous),
            ("anonymous_last_kib", last.anonymous),
            ("threads_first", first.threads),
            ("threads_last", last.threads),
            ("files_first", first.files),
            ("files_last", last.files),
            ("daemon_cpu_percent", cpu[0]),
            ("bench_cpu_percent", cpu[1]),
        ],
        notes: vec![
            format!(
                "growth of the daemon's anonymous memory: from the median of a half to that of the next, after the first {} samples",
                samples.len() / WARM_UP_PART
            ),
            mix.done.to_string(),
        ],
    })
}

/// The slope from the first half's medians to the second's: steps count, wherever they are, and a spike does not.
fn rise(points: &[(f64, f64)]) -> f64 {
    let (early, late) = points.split_at(points.len() / 2);
    let middle = |half: &[(f64, f64)], of: fn(&(f64, f64)) -> f64| {
        let values: Vec<f64> = half.iter().map(of).collect();
        Summary::of(&values).map(|s| s.median)
    };
    let middles = |half| middle(half, |p| p.0).zip(middle(half, |p| p.1));
    match middles(early).zip(middles(late)) {
        Some(((x, y), (later, then))) if later > x => (then - y) / (later - x),
        _ => 0.0,
    }
}

/// The whole curve: `soak.json` and `soak.svg`.
fn keep(out: &Path, samples: &[Sample]) -> Result<()> {
    fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    let rows: Vec<_> = samples
        .iter()
        .map(|s| {
            json!({
                "seconds": s.seconds,
                "resident_kib": s.resident,
                "private_dirty_kib": s.private,
                "anonymous_kib": s.anonymous,
                "threads": s.threads,
                "files": s.files,
            })
        })
        .collect();
    let whole = json!({ "machine": machine::describe(), "samples": rows });
    fs::write(out.join("soak.json"), format!("{whole:#}\n"))?;
    let curves: [(&str, Curve); 3] = [
        ("resident", |s| s.resident),
        ("private, written", |s| s.private),
        ("anonymous", |s| s.anonymous),
    ];
    let top = samples.iter().map(|s| s.resident).fold(0.0, f64::max) / 1024.0;
    let chart = Chart {
        title: "Memory of vnicd while everything comes and goes".into(),
        x: Axis {
            label: "minutes".into(),
            from: 0.0,
            to: samples[samples.len() - 1].seconds.max(1.0) / 60.0,
        },
        logarithmic: false,
        y: Axis {
            label: "MiB".into(),
            from: 0.0,
            to: (top * 1.1).max(1.0),
        },
        lines: curves
            .iter()
            .enumerate()
            .map(|(color, (name, of))| Line {
                name: (*name).into(),
                points: samples
                    .iter()
                    .map(|s| (s.seconds / 60.0, of(s) / 1024.0))
                    .collect(),
                look: Look::Strong,
                color,
            })
            .collect(),
    };
    fs::write(out.join("soak.svg"), svg(&[chart])?)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rise_is_that_of_curves_and_steps_and_not_of_a_spike() {
        let curve = |of: fn(f64) -> f64| -> Vec<(f64, f64)> {
            (0..50).map(|i| (f64::from(i), of(f64::from(i)))).collect()
        };
        let mut points = curve(|x| 7.0 + 2.0 * x);
        points[0].1 = -1e6;
        points[49].1 = 1e6;
        assert!((rise(&points) - 2.0).abs() < 1e-9);
        let step = curve(|x| if x < 30.0 { 0.0 } else { 50.0 });
        assert!((rise(&step) - 2.0).abs() < 1e-9);
        assert_eq!(rise(&points[..1]), 0.0);
    }

    #[test]
    fn a_process_is_looked_at() {
        let sample = Sample::take(std::process::id(), Instant::now()).expect("a sample of this process");
        assert!(sample.anonymous > 0.0 && sample.resident >= sample.anonymous);
        assert!(sample.threads >= 1.0 && sample.files >= 3.0);
    }
}
