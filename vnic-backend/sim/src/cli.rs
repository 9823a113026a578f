//! The command line: `vnic-sim SCENARIO …`.

mod connections;
mod network;
mod suite;

use std::collections::BTreeSet;
use std::io::{IsTerminal, Write};
use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::{Args, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

use crate::commands;
use crate::oracle::Violation;
use crate::pause;
use crate::runner::{Report, run_commands, run_many};
use crate::verbs::{Capture, Cut, Plan, Profile, run};

const EXAMPLES: &str = "\
Examples:
  vnic-sim verbs --seeds 0..2000              two thousand runs, on all cores
  vnic-sim verbs --seed 42 -v                 one run with every packet and completion
  vnic-sim verbs --seed 42 --pcap run.pcapng  its frames for Wireshark, with what the network did to them
  vnic-sim verbs --seed 42 --shrink           a smaller run that still fails
  vnic-sim commands --seeds 0..2000           random verbs with handles and attributes of any value
  vnic-sim connections --seeds 0..2000        drivers that connect, on a network that loses and repeats
  vnic-sim pause --seeds 0..2000              flow control: incast, pause storms, rings that wait for themselves

  vnic-sim star-8to1 --plot run.svg           congestion control of a whole network, with plots
  vnic-sim mine.toml --cc timely --json -     a scenario of your own with another algorithm, result as JSON
  vnic-sim algorithms dcqcn                   parameters of an algorithm
  vnic-sim suite --switch-only                published results, run again";

/// Deterministic simulator of vnic's RoCE engine and of whole networks: a seed is a whole run, exactly.
#[derive(Debug, Parser)]
#[command(
    name = "vnic-sim",
    version,
    after_help = EXAMPLES,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    arg_required_else_help = true
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Scenario>,
    #[command(flatten)]
    run: Option<network::Run>,
}

#[derive(Debug, Subcommand)]
enum Scenario {
    /// Two to sixteen devices, objects and work at random, judged by an oracle.
    #[command(after_help = EXAMPLES)]
    Verbs(Verbs),
    /// Random verbs, valid or not: nothing panics, refusals change nothing and name their reason.
    Commands(Commands),
    /// Connections: requests, replies and ends that are lost, late and repeated, and devices that forget.
    Connections(connections::Connections),
    /// Hosts and switches with flow control: incast, pause storms, deadlocks, what ends them and who suffers.
    Pause(Pause),
    /// A network with congestion control, from a scenario file; `vnic-sim SCENARIO` is the same.
    #[command(after_help = network::EXAMPLES)]
    Run(network::Run),
    /// Scenarios that can be run by name.
    Scenarios(network::Scenarios),
    /// Algorithms of congestion control, or the parameters of one.
    Algorithms(network::Algorithms),
    /// Check a program of congestion control, and make its binary form of text.
    #[command(after_help = "Example:\n  vnic-sim program aimd.wat --out aimd.wasm")]
    Program(network::Check),
    /// Published results, run again and compared.
    #[command(after_help = suite::EXAMPLES)]
    Suite(suite::Suite),
    /// Print a completion script.
    #[command(
        after_help = "Example:\n  vnic-sim completions bash > /usr/share/bash-completion/completions/vnic-sim"
    )]
    Completions {
        /// bash, zsh, fish, elvish or powershell.
        shell: Shell,
    },
}

/// Which runs.
#[derive(Debug, Args)]
struct Runs {
    /// One run.
    #[arg(
        long,
        value_name = "S",
        required_unless_present = "seeds",
        conflicts_with = "seeds"
    )]
    seed: Option<u64>,
    /// Many runs, FROM up to but without TO.
    #[arg(long, value_name = "FROM..TO", value_parser = seeds)]
    seeds: Option<Range<u64>>,
    /// Threads for many runs [default: one a core].
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
}

impl Runs {
    /// The seeds of many runs.
    fn many(&self) -> Result<Range<u64>> {
        self.seeds.clone().context("--seed or --seeds is needed")
    }

    /// Threads: as many as wanted, or one a core.
    fn jobs(&self) -> usize {
        jobs(self.jobs)
    }
}

#[derive(Debug, Args)]
struct Pause {
    #[command(flatten)]
    runs: Runs,
    /// Every pause frame, drop and watermark of one run.
    #[arg(short, long)]
    verbose: bool,
    /// Looks for fewer flows that still fail.
    #[arg(long)]
    shrink: bool,
    /// Leaves out these flows of one run: 1,4-6.
    #[arg(long, value_name = "LIST", value_parser = list, default_value = "")]
    without_flows: Numbers,
    /// Many runs: it is a failure if something that a run can show was never seen.
    #[arg(long)]
    full_coverage: bool,
}

#[derive(Debug, Args)]
struct Commands {
    #[command(flatten)]
    runs: Runs,
    /// Every verb and its answer.
    #[arg(short, long)]
    verbose: bool,
}

#[derive(Debug, Args)]
struct Verbs {
    #[command(flatten)]
    runs: Runs,
    /// Kind of run instead of the seed's own: clean, loss1, loss10, reorder, dup, corrupt, hostile, mixed.
    #[arg(long)]
    profile: Option<Profile>,
    /// Every packet, verb, completion and event of one run.
    #[arg(short, long)]
    verbose: bool,
    /// Frames of one run as pcapng, with what the network did to each.
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Looks for a smaller run that still fails.
    #[arg(long)]
    shrink: bool,
    /// Leaves out these connections of one run: 1,4-6.
    #[arg(long, value_name = "LIST", value_parser = list, default_value = "")]
    without_pairs: Numbers,
    /// Leaves out these actions of one run.
    #[arg(long, value_name = "LIST", value_parser = list, default_value = "")]
    without_actions: Numbers,
    /// Many runs: go on after a failure and list all.
    #[arg(long)]
    keep_going: bool,
    /// Many runs: it is a failure if a path of the engine was never taken.
    #[arg(long)]
    full_coverage: bool,
    /// Result as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// A set of numbers.
#[derive(Debug, Clone, Default)]
struct Numbers(BTreeSet<usize>);

fn seeds(s: &str) -> Result<Range<u64>, String> {
    let parse = |s: &str| s.parse().map_err(|_| format!("{s:?} is not a number"));
    let (from, to) = s.split_once("..").ok_or("expected FROM..TO, such as 0..2000")?;
    let (from, to) = (parse(from)?, parse(to)?);
    if from < to {
        Ok(from..to)
    } else {
        Err("there is no seed in it".into())
    }
}

fn list(s: &str) -> Result<Numbers, String> {
    let mut numbers = BTreeSet::new();
    for part in s.split(',').filter(|p| !p.is_empty()) {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let parse = |s: &str| s.parse::<usize>().map_err(|_| format!("{s:?} is not a number"));
        let (from, to) = (parse(from)?, parse(to)?);
        if to - from.min(to) > 100_000 {
            return Err(format!("{part} is too long"));
        }
        numbers.extend(from..=to);
    }
    Ok(Numbers(numbers))
}

/// Numbers as a list with ranges.
fn as_list(numbers: &BTreeSet<usize>) -> String {
    let mut parts: Vec<(usize, usize)> = Vec::new();
    for n in numbers {
        match parts.last_mut() {
            Some((_, to)) if *to + 1 == *n => *to = *n,
            _ => parts.push((*n, *n)),
        }
    }
    let text = |(from, to): &(usize, usize)| match from == to {
        true => from.to_string(),
        false => format!("{from}-{to}"),
    };
    parts.iter().map(text).collect::<Vec<_>>().join(",")
}

/// The command that repeats a run.
fn replay(seed: u64, profile: Option<Profile>, cut: &Cut) -> String {
    let mut command = format!("vnic-sim verbs --seed {seed}");
    if let Some(profile) = profile {
        command += &format!(" --profile {profile}");
    }
    for (name, numbers) in [("pairs", &cut.pairs), ("actions", &cut.actions)] {
        if !numbers.is_empty() {
            command += &format!(" --without-{name} {}", as_list(numbers));
        }
    }
    command
}

/// Runs the command line. Exit code 0: all rules held; 1: one was broken; 2: usage.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let Some(command) = &cli.command else {
        return finish(cli.run.as_ref().map_or_else(bail_usage, network::run));
    };
    let result = match command {
        Scenario::Verbs(verbs) => match verbs.runs.seed {
            Some(seed) if verbs.shrink => shrink_one(seed, verbs),
            Some(seed) => run_one(seed, verbs),
            None => run_range(verbs),
        },
        Scenario::Commands(commands) => run_verbs_at_random(commands),
        Scenario::Connections(args) => connections::run(args),
        Scenario::Pause(args) => match args.runs.seed {
            Some(seed) => run_pause(seed, args),
            None => run_pauses(args),
        },
        Scenario::Run(run) => network::run(run),
        Scenario::Scenarios(args) => network::scenarios(args),
        Scenario::Algorithms(args) => network::algorithms(args),
        Scenario::Program(args) => network::check(args),
        Scenario::Suite(args) => suite::run(args),
        Scenario::Completions { shell } => completions(*shell),
    };
    finish(result)
}

fn bail_usage() -> Result<bool> {
    bail!("a scenario or a command is needed (see --help)")
}

/// The script goes out at once, so that a pipe that closes early is an error and no panic.
fn completions(shell: Shell) -> Result<bool> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "vnic-sim", &mut script);
    std::io::stdout().write_all(&script)?;
    Ok(true)
}

fn finish(result: Result<bool>) -> ExitCode {
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("vnic-sim: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run_one(seed: u64, verbs: &Verbs) -> Result<bool> {
    let plan = Plan::new(seed, verbs.profile);
    let cut = Cut {
        pairs: verbs.without_pairs.0.clone(),
        actions: verbs.without_actions.0.clone(),
    };
    println!("{plan}");
    let mut capture = Capture::new(verbs.verbose, verbs.pcap.is_some(), plan.nodes.len())?;
    let outcome = run(&plan, &cut, &mut capture);
    if let Some(path) = &verbs.pcap {
        capture.save(path)?;
    }
    println!(
        "{} packets, {} requests, {} completions in {:.3} ms of virtual time",
        outcome.packets,
        outcome.finish.posted,
        outcome.tally.total(),
        outcome.time as f64 / 1e6
    );
    match &outcome.violation {
        None => println!(
            "all rules held; {} bytes compared at the end",
            outcome.finish.bytes
        ),
        Some(v) => println!("FAILED {v}"),
    }
    Ok(outcome.violation.is_none())
}

fn shrink_one(seed: u64, verbs: &Verbs) -> Result<bool> {
    quiet_panics();
    let from = Cut {
        pairs: verbs.without_pairs.0.clone(),
        actions: verbs.without_actions.0.clone(),
    };
    let Some((cut, violation)) = crate::shrink::shrink(seed, verbs.profile, from) else {
        bail!("seed {seed} does not fail");
    };
    println!("FAILED {violation}");
    println!("{} -v", replay(seed, verbs.profile, &cut));
    Ok(false)
}

/// Panics are caught and judged; what they print is of no use among many runs.
fn quiet_panics() {
    std::panic::set_hook(Box::new(|_| {}));
}

fn run_range(verbs: &Verbs) -> Result<bool> {
    let range = verbs.runs.many()?;
    quiet_panics();
    let progress = Progress::new(range.end - range.start);
    let report = run_many(
        range,
        verbs.profile,
        verbs.runs.jobs(),
        verbs.keep_going,
        &|seed, v| {
            if let Some(v) = v.filter(|_| verbs.keep_going) {
                println!("seed {seed}: {v}");
            }
            progress.one_more();
        },
    );
    let seconds = progress.start.elapsed().as_secs_f64();
    print_report(&report, seconds, verbs.full_coverage);
    if let Some(path) = &verbs.json {
        let json = as_json(&report, seconds);
        std::fs::write(path, json).with_context(|| format!("cannot write {}", path.display()))?;
    }
    if let Some((seed, v)) = &report.failure {
        println!("FAILED seed {seed}: {v}");
        println!("{}", replay(*seed, verbs.profile, &Cut::default()));
        return Ok(false);
    }
    Ok(!verbs.full_coverage || report.unmarked().is_empty())
}

/// How far many runs are, on standard error.
struct Progress {
    total: u64,
    done: AtomicU64,
    start: Instant,
    terminal: bool,
}

impl Progress {
    fn new(total: u64) -> Progress {
        Progress {
            total,
            done: AtomicU64::new(0),
            start: Instant::now(),
            terminal: std::io::stderr().is_terminal(),
        }
    }

    fn one_more(&self) {
        let n = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        if self.terminal && n.is_multiple_of(50) || n.is_multiple_of(5_000) {
            let rate = n as f64 / self.start.elapsed().as_secs_f64();
            let end = if self.terminal { "\r" } else { "\n" };
            eprint!("{n} of {} runs, {rate:.0} a second{end}", self.total);
            let _ = std::io::stderr().flush();
        }
    }
}

/// Threads: as many as wanted, or one a core.
fn jobs(wanted: Option<usize>) -> usize {
    wanted.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
}

fn run_verbs_at_random(args: &Commands) -> Result<bool> {
    let failure = match args.runs.seed {
        Some(seed) => commands::run(seed, args.verbose).map(|v| (seed, v)),
        None => {
            let range = args.runs.many()?;
            quiet_panics();
            let progress = Progress::new(range.end - range.start);
            run_commands(range, args.runs.jobs(), &|_, _: Option<&Violation>| {
                progress.one_more()
            })
        }
    };
    let Some((seed, v)) = failure else {
        println!("all rules held");
        return Ok(true);
    };
    println!("FAILED seed {seed}: {v}");
    println!("vnic-sim commands --seed {seed} -v");
    Ok(false)
}

fn run_pause(seed: u64, args: &Pause) -> Result<bool> {
    let mut without = args.without_flows.0.clone();
    if args.shrink {
        quiet_panics();
        let Some((fewer, violation)) = pause::shrink(seed, without) else {
            bail!("seed {seed} does not fail");
        };
        without = fewer;
        println!("FAILED {violation}");
        println!("{} -v", replay_pause(seed, &without));
        return Ok(false);
    }
    let plan = pause::Plan::new(seed);
    print!("{plan}");
    let outcome = pause::run(&plan, &without, args.verbose);
    print_pauses(&outcome);
    println!("ended at {:.3} ms of virtual time", outcome.time.0 as f64 / 1e6);
    match &outcome.violation {
        None => println!("all rules held"),
        Some(v) => println!("FAILED {v}"),
    }
    Ok(outcome.violation.is_none())
}

fn replay_pause(seed: u64, without: &BTreeSet<usize>) -> String {
    let list = as_list(without);
    let flows = if list.is_empty() {
        list
    } else {
        format!(" --without-flows {list}")
    };
    format!("vnic-sim pause --seed {seed}{flows}")
}

fn run_pauses(args: &Pause) -> Result<bool> {
    let range = args.runs.many()?;
    quiet_panics();
    let progress = Progress::new(range.end - range.start);
    let report = pause::run_many(range, args.runs.jobs(), &|| progress.one_more());
    let seconds = progress.start.elapsed().as_secs_f64();
    println!(
        "{} runs in {seconds:.1} s, {:.1} seeds/s",
        report.runs,
        report.runs as f64 / seconds
    );
    print_pauses(&report.sum);
    if let Some((seed, v)) = &report.failure {
        println!("FAILED seed {seed}: {v}");
        println!("{}", replay_pause(*seed, &BTreeSet::new()));
        return Ok(false);
    }
    let never = pause::Mark::ALL
        .iter()
        .filter(|m| report.sum.marks[**m as usize] == 0);
    let never: Vec<_> = never.map(|m| m.name()).collect();
    if !never.is_empty() {
        println!("never seen: {}", never.join(", "));
    }
    Ok(!args.full_coverage || never.is_empty())
}

fn print_pauses(outcome: &pause::Outcome) {
    println!(
        "{} frames sent, {} delivered, {} dropped, {} of them of lossless priorities; {} pause frames",
        outcome.sent, outcome.delivered, outcome.dropped, outcome.lossless_dropped, outcome.pauses
    );
    for mark in pause::Mark::ALL {
        println!("  {:>10} {}", outcome.marks[mark as usize], mark.name());
    }
}

fn print_report(report: &Report, seconds: f64, full: bool) {
    println!(
        "{} runs in {seconds:.1} s, {:.1} seeds/s; {} packets, {} requests, {} completions, {} bytes compared",
        report.runs,
        report.runs as f64 / seconds,
        report.packets,
        report.posted,
        report.tally.total(),
        report.bytes
    );
    for (kind, n) in report.tally.iter() {
        println!("  {n:>10} {kind}");
    }
    println!("paths of the engine:");
    for (mark, n) in report.marks.iter() {
        println!("  {n:>10} {}", mark.name());
    }
    let never: Vec<_> = report.unmarked().iter().map(|m| m.name()).collect();
    if !never.is_empty() {
        let word = if full {
            "FAILED, never taken"
        } else {
            "never taken"
        };
        println!("{word}: {}", never.join(", "));
    }
}

fn as_json(report: &Report, seconds: f64) -> String {
    let map = |list: Vec<(String, u64)>| {
        list.into_iter()
            .map(|(k, n)| (k, n.into()))
            .collect::<serde_json::Map<_, _>>()
    };
    let marks = report
        .marks
        .iter()
        .map(|(m, n)| (m.name().to_owned(), u64::from(n)));
    let tally = report.tally.iter().map(|(k, n)| (k.to_owned(), n));
    let failure = report.failure.as_ref();
    serde_json::json!({
        "runs": report.runs,
        "seconds": seconds,
        "seeds_per_second": report.runs as f64 / seconds,
        "packets": report.packets,
        "requests": report.posted,
        "marks": map(marks.collect()),
        "completions": map(tally.collect()),
        "failure": failure.map(|(seed, v)| serde_json::json!({ "seed": seed, "rule": v.to_string() })),
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_scenario_needs_no_word_before_it() {
        let line = "vnic-sim star-8to1 --cc timely --flows 4 --set beta=0.5 --set duration=1ms --seed 3";
        let cli = Cli::try_parse_from(line.split(' ')).expect("it is right");
        assert!(cli.command.is_none());
        let run = cli.run.expect("a run");
        assert_eq!(run.changes().set.len(), 2);
        assert_eq!(run.changes().algorithm.as_deref(), Some("timely"));
        let cli = Cli::try_parse_from(["vnic-sim", "run", "x.toml"]).expect("it is right");
        assert!(matches!(cli.command, Some(Scenario::Run(_))));
        let cli = Cli::try_parse_from(["vnic-sim", "pause", "--seed", "1"]).expect("it is right");
        assert!(matches!(cli.command, Some(Scenario::Pause(_))));
    }

    fn page() -> String {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/simulator.md");
        std::fs::read_to_string(path).expect("the page is there")
    }

    #[test]
    fn commands_of_the_page_are_commands() {
        let page = page();
        let commands: Vec<&str> = page.lines().filter(|l| l.starts_with("vnic-sim ")).collect();
        assert!(commands.len() > 10);
        for command in commands {
            let words = command.split(" > ").next().unwrap_or("").split_whitespace();
            let cli = Cli::try_parse_from(words).unwrap_or_else(|e| panic!("{command}: {e}"));
            if let Some(run) = cli.run {
                run.load().unwrap_or_else(|e| panic!("{command}: {e:#}"));
            }
        }
    }

    #[test]
    fn the_file_of_the_page_is_a_scenario() {
        let page = page();
        let (_, rest) = page.split_once("```toml\n").expect("a file");
        let (text, _) = rest.split_once("```").expect("its end");
        let path = std::path::Path::new("mine.toml");
        let loaded = crate::network::file::parse(text, path, &Default::default());
        let scenario = loaded.unwrap_or_else(|e| panic!("{e:#}")).scenario;
        assert_eq!(scenario.record.queues.len(), 1);
    }
}
