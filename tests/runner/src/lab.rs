//! Steps on what is shipped: attackers, programs of others, virtual machines.

use std::collections::BTreeMap;
use std::process::Command;

use crate::cargo::{HOSTILE, MACHINES, SHIPPED, TEST_BUILD, cargo};
use crate::shell;
use crate::step::Suite;

/// A program that finds ours, in release form.
pub fn programs(suite: &Suite, program: &str) -> Command {
    let mut command = Command::new(program);
    command.env("VNIC_BIN_DIR", suite.target.join("release"));
    command
}

/// All of them.
pub fn run(suite: &mut Suite, built: bool) {
    let bin = suite.target.join("release");
    // Attackers in process, at what is shipped: unit tests are debug builds, another program.
    let mut hostile = cargo("test --release --locked --no-fail-fast".split(' '));
    hostile.args(SHIPPED).args(HOSTILE).env("VNIC_BIN_DIR", &bin);
    suite.step_if(built, "hostile, release build", &mut hostile);

    // Programs that use libibverbs, in processes of this machine: some of each; `tests/verbs/matrix --full` runs all.
    let found = built
        && suite.quietly(
            "pyverbs",
            &mut shell("source deploy/guest/lib.sh; lab_pyverbs_tests"),
        );
    let json = suite.logs.join("verbs-matrix.json");
    let mut matrix = programs(suite, "tests/verbs/matrix");
    suite.step_if(
        found,
        "verbs matrix",
        matrix.arg("--bin").arg(&bin).arg("--json").arg(json),
    );

    // The pages of docs/quickstart, as they stand.
    let mut pages = programs(suite, "tests/quickstart");
    suite.step_if(built, "quickstarts", pages.arg("--bin").arg(&bin));

    // Instructions of packets and work requests, beside tests/costs.toml. With another compiler it cannot be judged (3).
    suite.skip_code = Some((3, "instruction-costs: recorded with another compiler"));
    let mut bench = suite.program("vnic-bench");
    suite.step_if(
        built,
        "instruction costs",
        bench.arg("costs").env("VNIC_BIN_DIR", &bin),
    );

    // Each module of cases is a step; machines run one case at a time, for they are heavy.
    // (--workspace: for vnic-tests alone, cargo would build dependencies again with other features.)
    let vm = |words: &str| {
        let mut command = cargo("test --locked --workspace --no-fail-fast --test".split(' '));
        command.arg(MACHINES).args(words.split(' '));
        command
    };
    if suite.outcomes.iter().all(|o| o.name != TEST_BUILD) {
        suite.step(TEST_BUILD, &mut vm("--no-run"));
    }
    let listed = |suite: &mut Suite, name: &str, words: &str| {
        let made = suite.quietly(name, &mut vm(words));
        made.then(|| suite.log_of(name).text())
    };
    let Some(all) = listed(suite, "cases", "-- --list --format terse").filter(|_| built) else {
        suite.skip("e2e", "what it needs could not be built");
        return;
    };
    let by_hand = listed(suite, "cases by hand", "-- --list --format terse --ignored").unwrap_or_default();
    for (module, cases) in modules(&all, &by_hand) {
        let mut command = vm("-- --test-threads 1 --exact");
        command.args(cases).env("VNIC_BIN_DIR", &bin);
        suite.step(&format!("e2e {module}"), &mut command);
    }
}

/// Cases by their modules, from lists of tests like `two::machines_with_unequal_features: test`.
fn modules<'a>(all: &'a str, by_hand: &'a str) -> BTreeMap<&'a str, Vec<&'a str>> {
    let names = |text: &'a str| text.lines().filter_map(|line| line.strip_suffix(": test"));
    let mut modules: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for name in names(all).filter(|name| !names(by_hand).any(|other| other == *name)) {
        let module = name.split("::").next().unwrap_or(name);
        modules.entry(module).or_default().push(name);
    }
    modules
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_grouped() {
        let all = "two::a: test\ntwo::b: test\none::a: test\nhand::a: test\n\nrunning\n";
        let found = modules(all, "hand::a: test\n");
        assert_eq!(
            found,
            BTreeMap::from([("one", vec!["one::a"]), ("two", vec!["two::a", "two::b"])])
        );
    }
}
