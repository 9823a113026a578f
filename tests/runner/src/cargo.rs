//! What cargo builds and which tests it has.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::step::Suite;

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
/// The tests that need virtual machines.
const MACHINES: &str = "vm";

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
    programs: Vec<Program>,
    /// Examples that their manifests make tests.
    examples: Vec<String>,
}

/// A program of integration tests.
#[derive(Debug, PartialEq, Eq)]
pub struct Program {
    name: String,
    path: PathBuf,
    /// Directory of its package, in which cargo would run it.
    dir: PathBuf,
}

impl Program {
    /// The program, as cargo would run it.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        // Snapshots are found by it.
        command
            .current_dir(&self.dir)
            .env("CARGO_MANIFEST_DIR", &self.dir);
        command
    }
}

impl Tests {
    /// From cargo's messages in JSON (The Cargo Book, "External tools"), of which each is a line.
    fn of(messages: &str) -> Tests {
        let mut tests = Tests::default();
        for line in messages.lines().filter(|line| line.contains("\"test\":true}")) {
            let text = |key: &str| {
                let (_, value) = line.split_once(&format!("\"{key}\":\""))?;
                value.split('"').next()
            };
            let (Some(name), Some(path), Some(manifest)) =
                (text("name"), text("executable"), text("manifest_path"))
            else {
                continue;
            };
            if line.contains("\"kind\":[\"test\"]") {
                tests.programs.push(Program {
                    name: name.to_owned(),
                    path: path.into(),
                    dir: Path::new(manifest)
                        .parent()
                        .map(PathBuf::from)
                        .unwrap_or_default(),
                });
            } else if line.contains("\"kind\":[\"example\"]") {
                tests.examples.push(name.to_owned());
            }
        }
        tests
    }

    /// The program of tests that need virtual machines.
    pub fn machines(&self) -> Option<&Program> {
        self.programs.iter().find(|program| program.name == MACHINES)
    }
}

/// Builds tests, all or those that need virtual machines, and says which there are; none if they cannot be built.
pub fn build_tests(suite: &mut Suite, all: bool) -> Option<Tests> {
    const LIST: &str = "test list";
    // (--workspace: for vnic-tests alone, cargo would build dependencies again with other features.)
    let mut words = vec!["test", "--locked", "--workspace", "--no-run"];
    words.extend((!all).then_some(["--test", MACHINES]).into_iter().flatten());
    let built = suite.step("test build", &mut cargo(&words));
    let mut list = cargo(&words);
    list.arg("--message-format=json-render-diagnostics");
    let listed = built && suite.quietly(LIST, &mut list);
    listed.then(|| Tests::of(&suite.log_of(LIST).text()))
}

/// Each program of tests is a step, so that its seconds are known. `alone`: nothing is built meanwhile, and two run at a time, those
/// first that took the most CPU time when it was recorded.
pub fn run_tests(suite: &mut Suite, tests: Option<&Tests>, alone: bool) {
    const PAGES: &str = "tests of pages";
    let Some(tests) = tests else {
        suite.skip("unit tests", "they could not be built");
        return;
    };
    if tests.programs.is_empty() {
        suite.fail("integration tests", "cargo names none");
    }
    let bin = suite.target.join("debug");
    let by_cargo = |targets: &[&str]| {
        let mut command = cargo("test --locked --workspace --no-fail-fast".split(' '));
        command.args(targets).args(["--", "--show-output"]);
        command
    };
    let mut targets = vec!["--lib", "--bins"];
    targets.extend(tests.examples.iter().flat_map(|name| ["--example", name]));
    let mut steps = vec![("unit tests".to_owned(), by_cargo(&targets))];
    for program in tests.programs.iter().filter(|program| program.name != MACHINES) {
        let mut command = program.command();
        command.arg("--show-output");
        steps.push((format!("tests {}", program.name), command));
    }
    steps.push((PAGES.to_owned(), by_cargo(&["--doc"])));
    for (_, command) in &mut steps {
        command.env_remove("VNIC_BIN_DIR").env("VNIC_TEST_PROGRAMS", &bin);
    }
    let names: Vec<String> = steps.iter().map(|(name, _)| name.clone()).collect();
    suite.side_by_side(if alone { 2 } else { 1 }, steps);
    // Tests outside the lab say in their output what they skip.
    names.iter().for_each(|name| suite.note_skips(name));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_tests_are_named() {
        let message = |manifest: &str, kind: &str, name: &str, executable: &str, test: bool| {
            format!(
                "{{\"reason\":\"compiler-artifact\",\"package_id\":\"path+file:///w#0.1.0\",\"manifest_path\":\"{manifest}\",\
                 \"target\":{{\"kind\":[\"{kind}\"],\"crate_types\":[\"bin\"],\"name\":\"{name}\",\"test\":true}},\
                 \"profile\":{{\"opt_level\":\"0\",\"test\":{test}}},\"features\":[],\"executable\":{executable},\"fresh\":true}}\n"
            )
        };
        let log = [
            "   Compiling vnic-tests v0.1.0\n".to_owned(),
            message(
                "/w/tests/Cargo.toml",
                "test",
                "device",
                "\"/t/deps/device-0\"",
                true,
            ),
            message("/w/appliance/Cargo.toml", "bin", "vnicd", "\"/t/vnicd\"", false),
            message(
                "/w/engine/Cargo.toml",
                "lib",
                "vnic_engine",
                "\"/t/deps/vnic_engine-0\"",
                true,
            ),
            message(
                "/w/engine/Cargo.toml",
                "example",
                "own_algorithm",
                "\"/t/own-0\"",
                true,
            ),
        ];
        let found = Tests::of(&log.concat());
        let device = Program {
            name: "device".to_owned(),
            path: "/t/deps/device-0".into(),
            dir: "/w/tests".into(),
        };
        assert_eq!(found.programs, [device]);
        assert_eq!(found.examples, ["own_algorithm"]);
        assert_eq!(Tests::of("    Finished"), Tests::default());
    }
}
