//! perftest in an emulated virtual machine: our functions, and the kernel's Soft-RoCE in the same machine. `tests/verbs/compare`
//! knows how to boot and drive it; its figures are taken from there.

use std::io::{BufRead as _, BufReader, Read};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::report::{Outcome, Summary};
use super::{Lab, Run};
use crate::lab::checkout;

/// A round is some 20 s.
const ROUNDS_MAX: usize = 5;
/// How `compare` ends when something that it needs is not there.
const MISSING: i32 = 3;
const PEER: &str = "Soft-RoCE";

/// Its rows, and our figures of them.
const ROWS: [(&str, &str, &str); 2] = [
    ("write, 64 KiB, MB/s", "vm-write-bw", "MB/s"),
    ("write, 8 B, µs", "vm-write-lat", "µs one way"),
];

/// `vm`.
pub fn run(lab: &Lab) -> Result<Run> {
    let Some(programs) = lab.vnicd.as_ref().and_then(|vnicd| vnicd.parent()) else {
        return Ok(Run::Skipped(
            "it runs a daemon: none is beside this program, name one with --vnicd PATH".into(),
        ));
    };
    let dir = lab.part()?;
    let file = dir.path().join("rows.json");
    let script = checkout().join("tests/verbs/compare");
    let mut command = Command::new(&script);
    command.args(["vm", "--only", "write", "--rounds"]);
    command.arg(lab.rounds.min(ROUNDS_MAX).to_string());
    command.arg("--bin").arg(programs).arg("--json").arg(&file);
    // A group of its own: it is told to end once, by us, and puts everything away.
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .process_group(0);
    let mut child = match command.stderr(Stdio::piped()).spawn() {
        Ok(child) => child,
        Err(e) => {
            let script = script.display();
            let why = format!(
                "{script} cannot be run ({e}): a checkout and python3 (Debian: package python3) are wanted"
            );
            return Ok(Run::Skipped(why));
        }
    };
    let said = child.stderr.take().context("its standard error")?;
    let said = std::thread::spawn(move || pass_on(said));
    let status = wait(lab, &mut child)?;
    let last = said.join().unwrap_or_default();
    match status.code() {
        Some(0) => {}
        Some(MISSING) => return Ok(Run::Skipped(last)),
        _ => bail!("tests/verbs/compare: {status}: {last}"),
    }
    let text = std::fs::read_to_string(&file).context("what tests/verbs/compare measured")?;
    Ok(Run::Measured(outcomes(&serde_json::from_str(&text)?)?))
}

/// Shows what it says. Answers the last line.
fn pass_on(said: impl Read) -> String {
    let mut last = String::new();
    for line in BufReader::new(said).lines().map_while(|line| line.ok()) {
        eprintln!("vm: {line}");
        last = line;
    }
    last
}

/// Waits for its end, and ends it when a signal comes.
fn wait(lab: &Lab, child: &mut Child) -> Result<ExitStatus> {
    while !lab.interrupted() {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        kill_process(pid, Signal::INT).context("ending tests/verbs/compare")?;
    }
    child.wait()?;
    bail!("interrupted")
}

/// The figures in what `compare --json` wrote.
fn outcomes(written: &Value) -> Result<Vec<Outcome>> {
    let rows = written["rows"].as_array().context("no rows")?;
    let found = |what: &str, who: &str| {
        let row = rows.iter().find(|row| row["what"] == what && row["who"] == who);
        let row = row.with_context(|| format!("no row of {who}: {what}"))?;
        let values = row["values"].as_array().into_iter().flatten();
        let values: Vec<f64> = values.filter_map(Value::as_f64).collect();
        Ok::<_, anyhow::Error>((values, row["place"].as_str().unwrap_or_default()))
    };
    let figures = ROWS.iter().map(|&(what, name, unit)| {
        let ((ours, place), (theirs, _)) = (found(what, "ours")?, found(what, PEER)?);
        let ratios: Vec<f64> = ours.iter().zip(&theirs).map(|(a, b)| a / b).collect();
        Ok(Outcome {
            name: name.into(),
            unit,
            value: Summary::of(&ours).context("no rounds")?,
            peer: Some((PEER, Summary::of(&theirs).context("no rounds")?)),
            ratio: Summary::of(&ratios),
            bare_exchange: None,
            rounds: ours.len(),
            details: Vec::new(),
            notes: vec![format!(
                "{place}: stock perftest, both ends in one machine of two CPUs; ours between vf0 and vf1 by a daemon of its own"
            )],
        })
    });
    figures.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn row(what: &str, who: &str, values: &[f64]) -> Value {
        json!({ "place": "vm (tcg)", "what": what, "who": who, "values": values })
    }

    #[test]
    fn figures_are_of_rounds_ours_over_theirs() {
        let [bw, lat] = ROWS.map(|row| row.0);
        let written = json!({ "rows": [
            row(bw, "ours", &[900.0, 1000.0, 1100.0]),
            row(bw, PEER, &[9.0, 20.0, 10.0]),
            row(lat, "ours", &[30.0]),
            row(lat, PEER, &[15.0]),
        ]});
        let found = outcomes(&written).expect("figures");
        assert_eq!(
            (found[0].name.as_str(), found[0].value.median),
            ("vm-write-bw", 1000.0)
        );
        let ratio = found[0].ratio.expect("a ratio");
        assert_eq!((ratio.min, ratio.median, ratio.max), (50.0, 100.0, 110.0));
        assert_eq!(found[1].ratio.expect("a ratio").median, 2.0);
        assert!(
            found[1].notes[0].starts_with("vm (tcg): "),
            "{:?}",
            found[1].notes
        );
    }

    #[test]
    fn a_row_that_is_not_there_is_an_error() {
        let written = json!({ "rows": [row(ROWS[0].0, "ours", &[1.0])] });
        let error = outcomes(&written).expect_err("no peer");
        assert!(error.to_string().contains(PEER), "{error}");
        assert!(outcomes(&json!({})).is_err());
    }
}
