//! Seconds by step, recorded in `tests/times.toml` and compared with.
//!
//! Judged is CPU time, which other programs of the machine do not add to, and beside that of the other steps of the same run: another
//! machine is slower or faster in all of them.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

use crate::step::Outcome;

/// The table.
pub const FILE: &str = "tests/times.toml";
/// A step has grown if it takes this much more than its row says.
const GROWN: f64 = 4.0 / 3.0;
/// And so many seconds of CPU time: what is shorter is too noisy.
const LEAST: f64 = 5.0;
/// So many steps tell how fast the machine is.
const ENOUGH: usize = 5;

/// What is above the rows.
const HEAD: &str = "\
# CPU seconds by step of tests/run, user's and system's together, of all processes of the step that were waited for. Steps that build
# have no row: what they take depends on what there is already. A run compares its steps with these rows, in proportion to how fast the
# machine is in all of them, and names at its end each that has grown by a third. `tests/run --record` writes the rows of the steps
# that it ran, when all passed.
";

/// Rows by step.
pub type Table = BTreeMap<String, f64>;

/// Reads the rows; none where there is no file.
pub fn read(file: &Path) -> io::Result<Table> {
    match fs::read_to_string(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Table::new()),
        Err(error) => Err(error),
        Ok(text) => {
            let rows = text
                .lines()
                .filter(|line| !line.is_empty() && !line.starts_with('#'));
            rows.map(|line| {
                let bad = || io::Error::other(format!("{}: not a row: {line}", file.display()));
                let (name, seconds) = line.split_once(" = ").ok_or_else(bad)?;
                let seconds = seconds.parse().map_err(|_| bad())?;
                Ok((name.trim_matches('"').to_owned(), seconds))
            })
            .collect()
        }
    }
}

/// Writes the rows, those of other steps as they are.
pub fn record(file: &Path, outcomes: &[Outcome]) -> io::Result<()> {
    let mut table = read(file)?;
    table.extend(measured(outcomes));
    let mut text = HEAD.to_owned();
    for (name, seconds) in table {
        text += &format!("\"{name}\" = {seconds:.1}\n");
    }
    fs::write(file, text)
}

/// Does a row make sense for this step?
fn is_measured(name: &str) -> bool {
    // (Of clippy and of the images is built what is not there yet, asan and fuzz and what is fetched build as well.)
    let kinds = [
        "unit tests",
        "tests ",
        "simulator",
        "hostile, release build",
        "e2e ",
    ];
    kinds.iter().any(|kind| name.starts_with(kind))
}

fn measured(outcomes: &[Outcome]) -> impl Iterator<Item = (String, f64)> {
    let ran = outcomes
        .iter()
        .filter(|o| o.passed == Some(true) && is_measured(&o.name));
    ran.map(|o| (o.name.clone(), o.cpu))
}

/// Steps that have grown, as lines; and how much of the recorded time this machine takes, where enough steps tell.
pub fn judge(table: &Table, outcomes: &[Outcome]) -> (Option<f64>, Vec<String>) {
    let now: Vec<(String, f64, f64)> = measured(outcomes)
        .filter_map(|(name, cpu)| table.get(&name).map(|row| (name, cpu, *row)))
        .collect();
    let mut ratios: Vec<f64> = now
        .iter()
        .filter(|(.., row)| *row >= LEAST)
        .map(|(_, cpu, row)| cpu / row)
        .collect();
    if ratios.len() < ENOUGH {
        return (None, Vec::new());
    }
    ratios.sort_by(f64::total_cmp);
    let speed = ratios[ratios.len() / 2];
    let has_grown = |cpu: f64, row: f64| cpu > row * speed * GROWN && cpu > row * speed + LEAST;
    let grown = now.iter().filter(|(_, cpu, row)| has_grown(*cpu, *row));
    let lines = grown.map(|(name, cpu, row)| {
        let more = 100.0 * (cpu / (row * speed) - 1.0);
        format!(
            "{name}: {cpu:.1} s of CPU, {more:.0} % more than its row ({row:.1} s, here {:.1} s)",
            row * speed
        )
    });
    (Some(speed), lines.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn outcome(name: &str, cpu: f64) -> Outcome {
        Outcome {
            name: name.to_owned(),
            passed: Some(true),
            wall: Duration::ZERO,
            cpu,
            detail: String::new(),
        }
    }

    fn all(factor: f64, one: f64) -> Vec<Outcome> {
        let mut all: Vec<_> = (0..6)
            .map(|n| outcome(&format!("tests {n}"), 20.0 * factor))
            .collect();
        all[0].cpu *= one;
        all
    }

    #[test]
    fn a_step_that_grows_is_named_on_a_machine_of_any_speed() {
        let table: Table = measured(&all(1.0, 1.0)).collect();
        for factor in [0.5, 1.0, 3.0] {
            assert_eq!(judge(&table, &all(factor, 1.2)), (Some(factor), vec![]));
            let (_, grown) = judge(&table, &all(factor, 1.6));
            assert!(
                matches!(&grown[..], [line] if line.starts_with("tests 0: ")),
                "{grown:?}"
            );
        }
        assert_eq!(
            judge(&table, &all(1.0, 1.6)[..4]),
            (None, vec![]),
            "too few steps"
        );
        let builds = [outcome("clippy", 900.0)];
        assert_eq!(measured(&builds).count(), 0);
    }

    #[test]
    fn rows_are_written_and_read() {
        let file = std::env::temp_dir().join(format!("vnic-runner-{}.toml", std::process::id()));
        record(&file, &[outcome("tests a", 1.25), outcome("e2e b", 7.0)]).expect("written");
        record(&file, &[outcome("tests a", 2.0)]).expect("written");
        let table = read(&file).expect("rows");
        assert_eq!(
            table,
            Table::from([("tests a".to_owned(), 2.0), ("e2e b".to_owned(), 7.0)])
        );
        fs::write(&file, "nonsense\n").expect("written");
        assert!(read(&file).is_err());
        fs::remove_file(&file).expect("removed");
        assert_eq!(read(&file).expect("no rows"), Table::new());
    }
}
