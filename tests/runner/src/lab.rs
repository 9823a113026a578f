//! Steps on what is shipped: attackers, programs of others, virtual machines.

use std::collections::BTreeMap;
use std::process::Command;

use crate::cargo::{HOSTILE, Program, SHIPPED, cargo};
use crate::shell;
use crate::step::Suite;

/// A program that finds ours, in release form.
pub fn programs(suite: &Suite, program: &str) -> Command {
    let mut command = Command::new(program);
    command.env("VNIC_BIN_DIR", suite.target.join("release"));
    command
}

/// Steps at a time: each waits half of its time, for timers and for its own other processes.
const LANES: usize = 2;

/// All of them, and what else may run beside them. `machines`: the program of tests that need virtual machines, if all that they need
/// could be built.
pub fn run(suite: &mut Suite, machines: Option<&Program>, beside: Option<(String, Command)>) {
    let Some(machines) = machines else {
        for name in ["e2e"].into_iter().chain(beside.iter().map(|(name, _)| &**name)) {
            suite.skip(name, "what it needs could not be built");
        }
        return;
    };
    let bin = suite.target.join("release");
    // Instructions of packets and work requests, beside tests/costs.toml, with nothing else on the machine. With another compiler they
    // cannot be judged (3).
    suite.skip_code = Some((3, "instruction-costs: recorded with another compiler"));
    let mut costs = suite.program("vnic-bench");
    suite.step("instruction costs", costs.arg("costs").env("VNIC_BIN_DIR", &bin));

    let mut steps: Vec<_> = beside.into_iter().collect();
    let mut add = |name: &str, command: Command| steps.push((name.to_owned(), command));
    // Attackers in process, at what is shipped: unit tests are debug builds, another program.
    let mut hostile = cargo("test --release --locked --no-fail-fast".split(' '));
    hostile.args(SHIPPED).args(HOSTILE).env("VNIC_BIN_DIR", &bin);
    add("hostile, release build", hostile);
    // The pages of docs/quickstart, as they stand.
    let mut pages = programs(suite, "tests/quickstart");
    pages.arg("--bin").arg(&bin);
    add("quickstarts", pages);
    // Programs that use libibverbs, in processes of this machine: some of each; `tests/verbs/matrix --full` runs all.
    let mut matrix = programs(suite, "tests/verbs/matrix");
    let json = suite.logs.join("verbs-matrix.json");
    matrix
        .args(["--verbose", "--json"])
        .arg(json)
        .arg("--bin")
        .arg(&bin);
    let tests = "source deploy/guest/lib.sh; lab_pyverbs_tests";
    if suite.quietly("pyverbs", &mut shell(tests)) {
        add("verbs matrix", matrix);
    } else {
        suite.skip("verbs matrix", "rdma-core's tests could not be fetched");
    }
    // Each module of cases is a step; of its machines, which are heavy, one case at a time.
    let listed = |suite: &mut Suite, name: &str, words: &str| {
        let mut command = machines.command();
        let made = suite.quietly(name, command.args(words.split(' ')));
        made.then(|| suite.log_of(name).text())
    };
    let (all, hand) = ("--list --format terse", "--list --format terse --ignored");
    let (Some(all), Some(by_hand)) = (listed(suite, "cases", all), listed(suite, "cases by hand", hand))
    else {
        suite.fail("e2e", "its cases cannot be listed: target/test-logs/cases.log");
        return;
    };
    for (module, cases) in modules(&all, &by_hand) {
        let mut command = machines.command();
        command
            .args(["--test-threads", "1", "--exact"])
            .args(cases)
            .env("VNIC_BIN_DIR", &bin);
        steps.push((format!("e2e {module}"), command));
    }
    suite.side_by_side(LANES, steps);
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
