//! Runs the steps that `tests/run` names: builds, tests, virtual machines; each with a log, an end and its seconds. `tests/run --help`
//! says what there is, and installs what is missing.

mod cargo;
mod lab;
mod log;
mod report;
mod step;
mod times;

use std::process::{Command, ExitCode};

use cargo::{HOSTILE, SHIPPED, cargo};
use step::{Background, Suite};

/// For what takes as long as it is told to.
const LONG: u64 = 36_000;

fn main() -> ExitCode {
    let mut wanted = Vec::new();
    let mut minutes = Vec::new();
    let mut record = false;
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--minutes" => minutes = vec![word, words.next().unwrap_or_default()],
            "--record" => record = true,
            _ => wanted.push(word),
        }
    }
    match Suite::new() {
        Ok(mut suite) => {
            run(&mut suite, &wanted, &minutes);
            match report::end(&mut suite, record) {
                Ok(true) => ExitCode::SUCCESS,
                Ok(false) => ExitCode::FAILURE,
                Err(error) => complain(&error),
            }
        }
        Err(error) => complain(&error),
    }
}

fn complain(error: &std::io::Error) -> ExitCode {
    eprintln!("tests: {error}");
    ExitCode::FAILURE
}

fn run(suite: &mut Suite, wanted: &[String], minutes: &[String]) {
    let wants = |step: &str| wanted.iter().any(|w| w == step);
    let machines = wants("e2e") || wants("demo");
    // Downloading and the probe of KVM take no CPU: beside the compilers.
    let image = machines.then(|| {
        let script = "deploy/guest/qemu11 && deploy/guest/build --verbs && deploy/guest/accel";
        Background::start(suite, "guest image", &mut shell(script))
    });
    if wants("fmt") {
        suite.step("format", &mut cargo(["fmt", "--all", "--check"]));
    }
    if wants("clippy") {
        let words = "clippy --locked --workspace --all-targets -- -D warnings";
        suite.step("clippy", &mut cargo(words.split(' ')));
    }
    if wants("doc") {
        let words = "doc --locked --workspace --no-deps";
        let mut rustdoc = cargo(words.split(' '));
        suite.step("rustdoc", rustdoc.env("RUSTDOCFLAGS", "-D warnings"));
    }
    let tests = (wants("unit") || wants("e2e")).then(|| cargo::build_tests(suite, wants("unit")));
    let tests = tests.flatten();
    // Beside the unit tests, which wait much of their time; they go first. One build of all: cargo would build dependencies again for
    // other sets of packages, which want other features of them.
    let build = (machines || wants("sim") || wants("torture")).then(|| {
        let mut command = Command::new("nice");
        command.args(["cargo", "build", "--release", "--locked", "--bins", "--lib"]);
        Background::start(suite, "release build", command.args(SHIPPED).args(HOSTILE))
    });
    if wants("unit") {
        cargo::run_tests(suite, tests.as_ref(), build.is_none());
    }
    let mut built = build.is_some_and(|build| build.end(suite));
    if wants("sim") {
        simulator(suite, built);
    }
    // (They are among the unit tests.)
    if wants("models") && !wants("unit") {
        suite.step(
            "tests models",
            &mut cargo("test --locked --workspace --test models".split(' ')),
        );
    }
    if wants("asan") {
        suite.step("asan", &mut Command::new("tests/asan/run"));
        let words = "test --profile checked --locked -p vnic-tests --no-fail-fast";
        suite.step("hostile, overflow checks", cargo(words.split(' ')).args(HOSTILE));
    }
    if wants("fuzz") {
        suite
            .deadline(LONG)
            .step("fuzz", Command::new("tests/fuzz/run").args(minutes));
    }
    if wants("torture") {
        let mut bench = suite.program("vnic-bench");
        suite
            .deadline(LONG)
            .step_if(built, "torture", bench.arg("torture").args(minutes));
    }
    if let Some(image) = image {
        built &= image.end(suite);
    }
    let demo = wants("demo").then(|| {
        let mut demo = lab::programs(suite, "deploy/demo");
        demo.arg("--check");
        ("demo".to_owned(), demo)
    });
    if wants("e2e") {
        let machines = tests.as_ref().filter(|_| built).and_then(cargo::Tests::machines);
        lab::run(suite, machines, demo);
    } else if let Some((name, mut demo)) = demo {
        suite.step_if(built, &name, &mut demo);
    }
    if wants("supply") {
        // All else is in order then.
        suite.skip_code = Some((3, "advisories: not checked, their database cannot be had"));
        suite.step("supply", &mut Command::new("tests/supply"));
    }
    if wants("book") {
        suite.step("book", &mut Command::new("tests/book"));
    }
    if wants("fresh") {
        // (Builds of its own: two of the demo, one of what is shipped.)
        suite
            .deadline(7200)
            .step("fresh", &mut Command::new("tests/fresh"));
    }
}

/// Two thousand seeds, each path of the engine taken; then the verbs alone, at random; then drivers that connect; then flow control, with each kind of trouble and
/// what ends it; then congestion control in a network.
fn simulator(suite: &mut Suite, built: bool) {
    let steps = [
        ("simulator", "verbs --seeds 0..2000 --full-coverage"),
        ("simulator commands", "commands --seeds 0..2000"),
        (
            "simulator connections",
            "connections --seeds 0..2000 --full-coverage",
        ),
        ("simulator pause", "pause --seeds 0..600 --full-coverage"),
        // A part of the published results that takes no minute; the whole suite is docs/congestion-results.md.
        (
            "simulator network",
            "star-8to1 --set duration=10ms --set record.from=5ms",
        ),
        ("simulator suite", "suite --case D1,D6,H1"),
    ];
    for (name, words) in steps {
        let mut program = suite.program("vnic-sim");
        suite.step_if(built, name, program.args(words.split(' ')));
    }
}

/// A line for bash.
fn shell(script: &str) -> Command {
    let mut command = Command::new("bash");
    command.args(["-euo", "pipefail", "-c", script]);
    command
}
