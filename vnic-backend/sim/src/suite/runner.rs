//! Runs cases: all scenarios of all of them on some threads, then the judgement. What comes out does not depend on the threads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use super::{Case, Check, Known, Size, check};
use crate::network::{self, Outcome, Scenario};
use crate::oracle::Violation;
use crate::runner::each;

/// What is said of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It is accepted.
    Pass,
    /// It is not.
    Fail,
    /// It is not, for the reason that is given, which is known.
    Differs(String),
}

/// A case that was run.
pub struct Done {
    /// Which.
    pub case: Case,
    /// What was run.
    pub scenarios: Vec<Scenario>,
    /// What came of each scenario; or nothing, where one failed.
    pub outcomes: Vec<Outcome>,
    /// Rows of the report.
    pub checks: Vec<(Check, Verdict)>,
    /// Differences that were known and are none: what they were.
    pub settled: Vec<String>,
}

impl Done {
    /// Is there no failure but those that are known?
    pub fn good(&self) -> bool {
        self.checks.iter().all(|(_, v)| *v != Verdict::Fail)
    }

    /// How many checks are accepted.
    pub fn passed(&self) -> usize {
        self.checks.iter().filter(|(_, v)| *v == Verdict::Pass).count()
    }
}

/// Who wants to know how far it is.
pub trait Watcher: Sync {
    /// A scenario begins.
    fn begins(&self, case: &Case, scenario: &Scenario) {
        let _ = (case, scenario);
    }

    /// So much of one more scenario is done, in 1/1000.
    fn advances(&self, permille: u64) {
        let _ = permille;
    }
}

type Slot = Mutex<Option<Result<Outcome, String>>>;

/// Runs cases on so many threads.
pub fn run(cases: &[Case], threads: usize, watcher: &dyn Watcher) -> Vec<Done> {
    run_with(cases, threads, watcher, &|scenario, progress| {
        network::run(scenario, progress)
    })
}

type Simulate<'a> = &'a (dyn Fn(&Scenario, &mut dyn FnMut(f64)) -> anyhow::Result<Outcome> + Sync);

fn run_with(cases: &[Case], threads: usize, watcher: &dyn Watcher, simulate: Simulate<'_>) -> Vec<Done> {
    let scenarios: Vec<Vec<Scenario>> = cases.iter().map(|c| (c.trial.scenarios)()).collect();
    let slots: Vec<Vec<Slot>> = scenarios
        .iter()
        .map(|list| list.iter().map(|_| Mutex::default()).collect())
        .collect();
    // A case, and one of its scenarios.
    let mut jobs: Vec<(usize, usize)> = Vec::new();
    for (case, list) in scenarios.iter().enumerate() {
        jobs.extend((0..list.len()).map(|scenario| (case, scenario)));
    }
    // The long ones first, so that no thread is left with one at the end.
    jobs.sort_by_key(|&(case, scenario)| {
        let switches = u64::from(cases[case].about.size == Size::Switch);
        (
            switches,
            u64::MAX - scenarios[case][scenario].duration,
            case,
            scenario,
        )
    });
    each(0..jobs.len() as u64, threads, true, &|number| {
        let (case, scenario) = jobs[number as usize];
        let result = one(&cases[case], &scenarios[case][scenario], watcher, simulate);
        if let Ok(mut slot) = slots[case][scenario].lock() {
            *slot = Some(result);
        }
        false
    });
    let mut done = Vec::new();
    for ((case, scenarios), slots) in cases.iter().zip(scenarios).zip(slots) {
        let results = slots.into_iter().map(|slot| slot.into_inner().ok().flatten());
        done.push(judge(case.clone(), scenarios, results.collect()));
    }
    done
}

fn one(
    case: &Case,
    scenario: &Scenario,
    watcher: &dyn Watcher,
    simulate: Simulate<'_>,
) -> Result<Outcome, String> {
    watcher.begins(case, scenario);
    let mut told = 0;
    let mut progress = |part: f64| {
        let permille = (part.clamp(0.0, 1.0) * 1000.0) as u64;
        if permille > told {
            watcher.advances(permille - told);
            told = permille;
        }
    };
    let result = catch_unwind(AssertUnwindSafe(|| simulate(scenario, &mut progress)));
    watcher.advances(1000 - told);
    match result {
        Ok(Ok(outcome)) => Ok(outcome),
        Ok(Err(error)) => Err(format!("{error:#}")),
        Err(panic) => Err(format!("it panicked: {}", Violation::panic(&*panic).text)),
    }
}

fn judge(case: Case, scenarios: Vec<Scenario>, results: Vec<Option<Result<Outcome, String>>>) -> Done {
    let mut outcomes = Vec::new();
    let mut failures = Vec::new();
    for (scenario, result) in scenarios.iter().zip(results) {
        match result.unwrap_or_else(|| Err("it did not run".to_owned())) {
            Ok(outcome) => outcomes.push(outcome),
            Err(message) => failures.push(failed(&scenario.name, message)),
        }
    }
    let checks = match failures.is_empty() {
        true => {
            let rows = catch_unwind(AssertUnwindSafe(|| (case.trial.judge)(&scenarios, &outcomes)));
            rows.unwrap_or_else(|panic| vec![failed("the judgement", Violation::panic(&*panic).text)])
        }
        false => {
            outcomes.clear();
            failures
        }
    };
    let fails = |known: &Known| {
        let named = |check: &Check| check.what.starts_with(&known.what);
        checks.iter().any(|c| !c.pass && named(c))
    };
    let settled = case
        .about
        .known
        .iter()
        .filter(|k| !fails(k))
        .map(|k| k.what.clone());
    Done {
        settled: settled.collect(),
        checks: checks
            .into_iter()
            .map(|check| {
                let verdict = verdict(&check, &case.about.known);
                (check, verdict)
            })
            .collect(),
        case,
        scenarios,
        outcomes,
    }
}

fn failed(what: &str, message: String) -> Check {
    check(what, "-", "it runs", message, false)
}

fn verdict(check: &Check, known: &[Known]) -> Verdict {
    match known.iter().find(|k| check.what.starts_with(&k.what)) {
        _ if check.pass => Verdict::Pass,
        Some(known) => Verdict::Differs(known.why.clone()),
        None => Verdict::Fail,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::network::made_up;
    use crate::suite::{Trial, rows};

    struct Nobody;
    impl Watcher for Nobody {}

    fn scenarios() -> Vec<Scenario> {
        let scenario = |seed| {
            let (mut scenario, _) = made_up(3);
            scenario.seed = seed;
            scenario.duration = 100 - seed;
            scenario
        };
        (0..6).map(scenario).collect()
    }

    fn row(what: &str, pass: bool) -> Check {
        check(what, "1 | 2", "3", "4", pass)
    }

    /// A case that checks that each outcome is that of its scenario.
    const TRIAL: Trial = Trial {
        id: "M1",
        scenarios,
        judge: |scenarios, outcomes| {
            let same = |(s, o): (&Scenario, &Outcome)| s.seed == o.hash;
            vec![
                row("order", scenarios.iter().zip(outcomes).all(same)),
                row("queue, N = 2", false),
                row("rate", false),
            ]
        },
    };

    pub(in crate::suite) fn made_up_case() -> Case {
        let text = r#"
            [[case]]
            id = "M1"
            title = "Made up"
            source = "nobody"
            size = "switch"
            remarks = "Nobody published *this*."
            known = [
                { what = "queue", why = "the figure is of another switch" },
                { what = "order", why = "it was so once" },
            ]
            pictures = [{ kind = "Queue", title = "Queue over time", of = [[0, "first"], [1, "second"]] }]
        "#;
        Case {
            about: rows(text).remove(0),
            trial: TRIAL,
        }
    }

    pub(in crate::suite) fn made(cases: &[Case], threads: usize) -> Vec<Done> {
        run_with(cases, threads, &Nobody, &|scenario, progress| {
            progress(0.5);
            let (_, outcome) = made_up(3);
            Ok(Outcome {
                hash: scenario.seed,
                ..outcome
            })
        })
    }

    #[test]
    fn outcomes_are_those_of_their_scenarios_on_any_number_of_threads() {
        for threads in [1, 2, 5, 100] {
            let done = made(&[made_up_case(), made_up_case()], threads);
            let verdicts: Vec<Vec<Verdict>> = done
                .iter()
                .map(|d| d.checks.iter().map(|(_, v)| v.clone()).collect())
                .collect();
            let expected = vec![
                Verdict::Pass,
                Verdict::Differs("the figure is of another switch".to_owned()),
                Verdict::Fail,
            ];
            assert_eq!(verdicts, [expected.clone(), expected]);
            assert_eq!(done[0].settled, ["order"]);
            assert!(!done[0].good());
        }
    }

    #[test]
    fn what_does_not_run_fails() {
        let broken = |scenario: &Scenario, _: &mut dyn FnMut(f64)| match scenario.seed {
            1 => anyhow::bail!("no route"),
            2 => panic!("at sea"),
            _ => Ok(Outcome::default()),
        };
        let done = run_with(&[made_up_case()], 2, &Nobody, &broken);
        let said: Vec<&str> = done[0].checks.iter().map(|(c, _)| c.measured.as_str()).collect();
        assert_eq!(said, ["no route", "it panicked: at sea"]);
        assert!(done[0].outcomes.is_empty() && !done[0].good());
    }
}
