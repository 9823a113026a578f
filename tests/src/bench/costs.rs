//! What a packet and a work request cost in instructions, beside what is recorded: a regression is a diff.
//!
//! The NIC and its guests run in one process under callgrind, which counts instructions. The data core's clock passes by rounds
//! that the guests' thread allows one by one, so that each run does the same work in the same rounds: counted is what lies between
//! the call of a round and its return, or what the driver does within [`cases::driver_at_work`]. No other thread is counted, and
//! no look at rings while the core waits for a guest.
//!
//! Callgrind shows programs a processor of its own (AVX2, no AVX-512), so that the C library chooses the same memcpy everywhere.

mod cases;
mod record;
mod wire;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};

pub use cases::main as within;
use record::{Cost, Record};

use super::report::{Outcome, Summary};
use super::{Lab, Run};

/// What the bench calls itself by, to run its cases.
pub const CASES: &str = "costs-cases";
/// Functions from whose call to whose return instructions are counted.
const COUNTED: [&str; 2] = ["*worker::Worker::round*", "*cases::driver_at_work*"];
/// When this function returns, callgrind writes what it has counted, and begins anew.
const BOUNDARY: &str = "*cases::boundary*";

/// `costs`.
pub fn run(lab: &Lab) -> Result<Run> {
    if !Command::new("valgrind")
        .arg("--version")
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|s| s.success())
    {
        return Ok(Run::Skipped(
            "valgrind cannot be run (Debian: package valgrind)".into(),
        ));
    }
    let costs = measure(lab)?;
    let compiler = compiler();
    if lab.record {
        fs::write(&lab.costs, record::text(&compiler, &costs))
            .with_context(|| format!("writing {}", lab.costs.display()))?;
        eprintln!(
            "costs: {} costs are recorded in {}",
            costs.len(),
            lab.costs.display()
        );
    }
    let recorded = match fs::read_to_string(&lab.costs) {
        Ok(text) => Record::parse(&text).with_context(|| format!("reading {}", lab.costs.display()))?,
        Err(e) => {
            eprintln!("costs: nothing to compare with: {}: {e}", lab.costs.display());
            return Ok(Run::Measured(
                costs.iter().map(|c| outcome(c, None, &compiler)).collect(),
            ));
        }
    };
    let breaches = recorded.breaches(&costs);
    if breaches > 0 {
        let table = recorded.table(&costs);
        if recorded.compiler != compiler {
            return Ok(Run::Skipped(format!(
                "the record is of {}, this is {compiler}, and {breaches} costs differ by more than {} %: \
                 run `vnic-bench costs --record` with code that is known to be good\n{table}",
                recorded.compiler,
                record::TOLERANCE * 100.0
            )));
        }
        bail!(
            "{breaches} of {} costs differ by more than {} % from {}:\n{table}\
             If it is meant to be so, `vnic-bench costs --record` writes them down. A cost that fell is written down, too: so \
             it stays low.",
            costs.len(),
            record::TOLERANCE * 100.0,
            lab.costs.display()
        );
    }
    let outcomes = costs.iter().map(|c| outcome(c, recorded.of(c.name), &compiler));
    Ok(Run::Measured(outcomes.collect()))
}

fn outcome(cost: &Cost, recorded: Option<f64>, compiler: &str) -> Outcome {
    let one = |value: f64| Summary {
        median: value,
        min: value,
        max: value,
    };
    Outcome {
        name: format!("cost-{}", cost.name),
        unit: cost.unit,
        value: one(cost.value),
        peer: recorded.map(|r| ("recorded", one(r))),
        ratio: recorded.map(|r| one(cost.value / r)),
        bare_exchange: None,
        rounds: 1,
        details: Vec::new(),
        notes: vec![cost.what.into(), format!("{compiler}, counted by callgrind")],
    }
}

/// The compiler of this machine: another one makes other instructions.
fn compiler() -> String {
    // (Which one rustup takes, says the directory.)
    let here = env!("CARGO_MANIFEST_DIR");
    let output = Command::new("rustc").arg("--version").current_dir(here).output();
    let text = output.map(|o| String::from_utf8_lossy(&o.stdout).into_owned());
    // Without the date and the commit: a release says all.
    let words = text.unwrap_or_default();
    let words: Vec<&str> = words.split_whitespace().take(2).collect();
    if words.len() == 2 {
        words.join(" ")
    } else {
        "an unknown compiler".into()
    }
}

/// Runs all cases under callgrind.
fn measure(lab: &Lab) -> Result<Vec<Cost>> {
    let dir = lab.part()?;
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "-q"]);
    for function in COUNTED {
        command.arg(format!("--toggle-collect={function}"));
    }
    command
        .arg(format!("--dump-after={BOUNDARY}"))
        .arg(format!(
            "--callgrind-out-file={}",
            dir.path().join("out").display()
        ))
        .arg(std::env::current_exe().context("asking for the bench's own program")?)
        .arg(CASES)
        .args(["--cpus", &format!("{},{}", lab.cpus[0], lab.cpus[1])])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit());
    let output = command.output().context("running valgrind")?;
    ensure!(output.status.success(), "the cases failed under valgrind");
    let counted = counted(dir.path())?;
    let text = String::from_utf8(output.stdout).context("what the cases say")?;
    text.lines().map(|line| cost(line, &counted)).collect()
}

/// A line of the cases: name, units, numbers of the parts in which callgrind wrote what it counted; negative: without that part.
fn cost(line: &str, counted: &BTreeMap<u32, u64>) -> Result<Cost> {
    let (name, numbers) = line.split_once(' ').context("a name and numbers")?;
    let numbers = numbers.split(' ').map(str::parse);
    let numbers: Vec<i32> = numbers.collect::<Result<_, _>>().context(line.to_owned())?;
    let (units, parts) = numbers.split_first().context(line.to_owned())?;
    let case = cases::CASES.iter().find(|c| c.name == name);
    let case = case.with_context(|| format!("no case is named {name}"))?;
    let mut instructions = 0.0;
    for part in parts {
        let count = counted.get(&part.unsigned_abs());
        let count = *count.with_context(|| format!("{name}: callgrind counted nothing"))?;
        instructions += count as f64 * f64::from(part.signum());
    }
    ensure!(instructions > 0.0, "{name}: {instructions} instructions");
    Ok(Cost {
        name: case.name,
        unit: case.unit,
        what: case.what,
        value: instructions / f64::from(*units),
    })
}

/// Instructions of all threads, by part.
fn counted(dir: &Path) -> Result<BTreeMap<u32, u64>> {
    let mut all = BTreeMap::new();
    for file in fs::read_dir(dir)? {
        let text = fs::read_to_string(file?.path())?;
        let number = |key: &str| {
            text.lines()
                .find_map(|l| l.strip_prefix(key)?.trim().parse::<u64>().ok())
        };
        if let (Some(part), Some(total)) = (number("part:"), number("totals:")) {
            all.insert(u32::try_from(part)?, total);
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_is_a_part_without_another_divided_by_units() {
        let dir = tempfile::tempdir().expect("a directory");
        for (part, total) in [(1, 7), (2, 640), (4, 1000)] {
            let text = format!("# callgrind format\npart: {part}\n\ntotals: {total}\n");
            fs::write(dir.path().join(format!("out.{part}")), text).expect("a file");
        }
        let counted = counted(dir.path()).expect("sound files");
        assert_eq!(cost("eth-64 64 2", &counted).expect("sound").value, 10.0);
        assert_eq!(
            cost("write-8-driver 60 4 -2", &counted).expect("sound").value,
            6.0
        );
        assert_eq!(cost("wire-out 164 2 4", &counted).expect("sound").value, 10.0);
        for bad in [
            "eth-64 64 3",
            "none 64 2",
            "eth-64 x 2",
            "eth-64",
            "eth-64 64",
            "eth-64 64 2 -4",
        ] {
            assert!(cost(bad, &counted).is_err(), "{bad}");
        }
    }
}
