//! What cargo builds and which tests it has.

use std::ffi::OsStr;
use std::process::Command;

use crate::step::{Background, Suite};

/// What is shipped, and what attacks it.
pub const SHIPPED: [&str; 10] = [
    "-p",
    "vnic-sim",
    "-p",
    "vnic-appliance",
    "-p",
    "vnic-guest",
    "-p",
    "vnic-verbs-preload",
    "-p",
    "vnic-tests",
];
/// Attackers in process.
pub const HOSTILE: [&str; 2] = ["--test", "hostile"];
/// The step that builds tests.
pub const TEST_BUILD: &str = "test build";
/// The tests that need virtual machines.
pub const MACHINES: &str = "vm";

/// Cargo, with these words.
pub fn cargo(words: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
    let mut command = Command::new("cargo");
    command.args(words);
    command
}

/// Tests that are targets of their own, as cargo lists them.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tests {
    /// Programs of integration tests.
    programs: Vec<String>,
    /// Examples that their manifests make tests.
    examples: Vec<String>,
}

impl Tests {
    /// From lines like `Executable tests/device/main.rs (target/debug/deps/device-0123456789abcdef)`.
    fn of(log: &str) -> Tests {
        let named = |source: &str| {
            let lines = log
                .lines()
                .filter_map(|line| line.split_once("Executable ")?.1.strip_prefix(source));
            let name = |line: &str| {
                let path = line.split_once('(')?.1.strip_suffix(')')?;
                let (name, _) = path.rsplit('/').next()?.rsplit_once('-')?;
                Some(name.to_owned())
            };
            lines.filter_map(name).collect()
        };
        Tests {
            programs: named("tests/"),
            examples: named("unittests examples/"),
        }
    }
}

/// Builds all tests, and says which there are; none if they cannot be built.
pub fn build_tests(suite: &mut Suite) -> Option<Tests> {
    let words = "test --locked --workspace --no-run";
    let built = suite.step(TEST_BUILD, &mut cargo(words.split(' ')));
    built.then(|| Tests::of(&suite.log_of(TEST_BUILD).text()))
}

/// Each program of tests is a step, so that its seconds are known. `alone`: nothing is built meanwhile; the longest, whose tests wait
/// much of their time, then runs beside the others.
pub fn run_tests(suite: &mut Suite, tests: Option<Tests>, alone: bool) {
    /// The longest.
    const DEVICE: (&str, &str) = ("device", "tests device");
    let Some(tests) = tests else {
        suite.skip("unit tests", "they could not be built");
        return;
    };
    if tests.programs.is_empty() {
        suite.fail("integration tests", "cargo names none");
    }
    let bin = suite.target.join("debug");
    let command = |targets: &[&str]| {
        let mut command = cargo("test --locked --workspace --no-fail-fast".split(' '));
        command.args(targets).args(["--", "--show-output"]);
        command.env_remove("VNIC_BIN_DIR").env("VNIC_TEST_PROGRAMS", &bin);
        command
    };
    let apart = alone && tests.programs.iter().any(|name| name == DEVICE.0);
    let beside = apart.then(|| Background::start(suite, DEVICE.1, &mut command(&["--test", DEVICE.0])));
    let mut test = |name: &str, targets: &[&str]| {
        suite.step(name, &mut command(targets));
        // Tests outside the lab say in their output what they skip.
        suite.note_skips(name);
    };
    let mut targets = vec!["--lib", "--bins"];
    targets.extend(tests.examples.iter().flat_map(|name| ["--example", name]));
    test("unit tests", &targets);
    let others = tests.programs.iter().filter(|name| *name != MACHINES);
    for name in others.filter(|name| !(apart && *name == DEVICE.0)) {
        test(&format!("tests {name}"), &["--test", name]);
    }
    test("tests of pages", &["--doc"]);
    if let Some(beside) = beside {
        beside.end(suite);
        suite.note_skips(DEVICE.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_tests_are_named() {
        let log = "   Compiling vnic-tests v0.1.0
  Executable tests/engine/main.rs (target/debug/deps/engine-cee6c468ed3095bc)
  Executable tests/house_rules.rs (/t/debug/deps/house_rules-cee6c468ed3095bc)
  Executable unittests src/lib.rs (target/debug/deps/vnic_wire-69a628d053f8bc9f)
  Executable unittests examples/own_algorithm.rs (target/debug/examples/own_algorithm-69a628d053f8bc9f)
";
        let found = Tests::of(log);
        assert_eq!(found.programs, ["engine", "house_rules"]);
        assert_eq!(found.examples, ["own_algorithm"]);
        assert_eq!(Tests::of("    Finished"), Tests::default());
    }
}
