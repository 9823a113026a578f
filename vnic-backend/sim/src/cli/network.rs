//! `vnic-sim SCENARIO`, `vnic-sim scenarios`, `vnic-sim algorithms`.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Error, Result};
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use vnic_engine::congestion::named::{Named, Parameter};

use crate::network;
use crate::network::file::{BUILT_IN, Changes, Loaded, load};
use crate::network::output;
use crate::network::program;
use crate::plot;
use crate::plot::panels;

pub(super) const EXAMPLES: &str = "\
Examples:
  vnic-sim star-8to1                                      a scenario that comes with the simulator
  vnic-sim mine.toml --plot run.svg                       your own, with plots of rates, queues and more
  vnic-sim star-8to1 --cc timely --set beta=0.5           another algorithm, and a parameter of it
  vnic-sim star-8to1 --cc program:aimd.wat --set step_bps=40M   a program of your own (docs/congestion.md)
  vnic-sim star-8to1 --flows 64 --set topology.rate=10Gb/s --set switch.red.kmax=400KB
  vnic-sim incast --csv out --json out/run.json --quiet   numbers for other programs";

#[derive(Debug, Args)]
pub(super) struct Run {
    /// A TOML file, or the name of a scenario that comes with the simulator (see `vnic-sim scenarios`).
    scenario: String,
    /// Congestion control of the flows (see `vnic-sim algorithms`), or `program:FILE`: one of your own.
    #[arg(long, value_name = "NAME")]
    cc: Option<String>,
    /// So many flows of each incast.
    #[arg(long, value_name = "N")]
    flows: Option<usize>,
    /// A parameter of the algorithm (`ai_rate=40M`), or a key of the file (`switch.buffer=1MB`).
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    set: Vec<(String, String)>,
    /// Whatever is random follows from it.
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// Everything as JSON; `-`: to standard output.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Plots, as .svg or .png.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Flows, queues and time series as CSV.
    #[arg(long, value_name = "DIR")]
    csv: Option<PathBuf>,
    /// No summary and no progress bar.
    #[arg(short, long)]
    quiet: bool,
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_owned(), value.trim().to_owned())),
        _ => Err(format!("{text:?} is not KEY=VALUE")),
    }
}

impl Run {
    /// The scenario as it is to be run.
    pub(super) fn load(&self) -> Result<Loaded> {
        load(&self.scenario, &self.changes())
    }

    /// What is different from the file.
    pub(super) fn changes(&self) -> Changes {
        Changes {
            algorithm: self.cc.clone(),
            flows: self.flows,
            set: self.set.clone(),
            seed: self.seed,
        }
    }
}

/// A bar on standard error; none if that is no terminal.
pub(super) fn bar(length: u64, show: bool) -> ProgressBar {
    let target = match show && std::io::stderr().is_terminal() {
        true => ProgressDrawTarget::stderr_with_hz(10),
        false => ProgressDrawTarget::hidden(),
    };
    let bar = ProgressBar::with_draw_target(Some(length), target);
    if let Ok(style) =
        ProgressStyle::with_template("{bar:32} {percent:>3} %  {elapsed} / {duration}  {wide_msg}")
    {
        bar.set_style(
            style.progress_chars("\u{2588}\u{2589}\u{258a}\u{258b}\u{258c}\u{258d}\u{258e}\u{258f} "),
        );
    }
    bar
}

/// `vnic-sim SCENARIO`.
pub(super) fn run(args: &Run) -> Result<bool> {
    let mut loaded = args.load()?;
    if args.plot.is_some() || args.csv.is_some() {
        watch(&mut loaded);
    }
    let progress = bar(1000, !args.quiet);
    progress.set_message(loaded.scenario.name.clone());
    let start = Instant::now();
    let outcome = network::run(&loaded.scenario, &mut |part| {
        progress.set_position((part * 1000.0) as u64);
    })?;
    progress.finish_and_clear();
    let seconds = start.elapsed().as_secs_f64();
    let json_out = args.json.as_ref().is_some_and(|p| p.as_os_str() == "-");
    if !args.quiet && !json_out {
        print!("{}", output::text(&loaded, &outcome));
        println!(
            "\n{} of virtual time in {seconds:.2} s, {:.2} M packets of data a second; trace {:016x}",
            output::time(outcome.end as f64),
            outcome.totals.data_packets as f64 / seconds / 1e6,
            outcome.hash
        );
    }
    if let Some(path) = &args.json {
        let text = serde_json::to_string(&output::json(&loaded, &outcome))? + "\n";
        output::save(path, text)?;
    }
    if let Some(folder) = &args.csv {
        output::csv(folder, &loaded.scenario, &outcome)?;
    }
    if let Some(path) = &args.plot {
        let charts = panels::all(panels::Run {
            name: &loaded.scenario.name,
            scenario: &loaded.scenario,
            outcome: &outcome,
        });
        plot::write(path, &charts)?;
    }
    Ok(true)
}

/// Samples, where somebody wants to see them and the scenario has none.
fn watch(loaded: &mut Loaded) {
    let record = &mut loaded.scenario.record;
    if record.interval == 0 {
        record.interval = (loaded.scenario.duration / 1000).max(1_000);
        if record.flows.is_empty() {
            record.flows = (0..loaded.scenario.flows.len().min(40)).collect();
        }
    }
}

#[derive(Debug, Args)]
pub(super) struct Scenarios {
    /// Prints the file of one of them: a start for your own.
    name: Option<String>,
}

/// `vnic-sim scenarios`.
pub(super) fn scenarios(args: &Scenarios) -> Result<bool> {
    let mut text = String::new();
    match &args.name {
        Some(name) => {
            let found = BUILT_IN.iter().find(|(n, _)| n == name);
            let (_, file) = found.with_context(|| format!("there is no scenario {name:?}"))?;
            text.push_str(file);
        }
        None => {
            for (name, _) in BUILT_IN {
                let loaded = load(name, &Changes::default())?;
                text += &format!("{name:<22} {}\n", loaded.scenario.name);
            }
        }
    }
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(true)
}

#[derive(Debug, Args)]
pub(super) struct Algorithms {
    /// One of them, with or without a preset, or `program:FILE`: its parameters.
    name: Option<String>,
}

/// `vnic-sim algorithms`.
pub(super) fn algorithms(args: &Algorithms) -> Result<bool> {
    let mut text = String::new();
    match &args.name {
        Some(name) => {
            let named = program::named(name).map_err(Error::msg)?;
            text += &parameters(&named);
        }
        None => {
            for name in Named::names().iter().filter(|n| !n.contains(':')) {
                let presets = presets(name);
                text += &match presets.as_slice() {
                    [] => format!("{name}\n"),
                    [first, ..] => format!(
                        "{name:<10} presets: {} (first is the default {first})\n",
                        presets.join(", ")
                    ),
                };
                let named = Named::by_name(name)?;
                text += &parameters(&named);
                text.push('\n');
            }
        }
    }
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(true)
}

#[derive(Debug, Args)]
pub(super) struct Check {
    /// A program of congestion control: WebAssembly in binary form, or as text.
    file: PathBuf,
    /// Writes the binary form, which adapters load (`vnicctl cc load`).
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// `vnic-sim program FILE`.
pub(super) fn check(args: &Check) -> Result<bool> {
    let loaded = program::load(&args.file).map_err(Error::msg)?;
    let mut text = format!(
        "{} bytes, fingerprint {:016x}, {} bytes of a flow\nevents: {}\nparameters:\n",
        loaded.bytes().len(),
        loaded.fingerprint(),
        loaded.flow_bytes(),
        loaded.events().join(", ")
    );
    if let Some(out) = &args.out {
        output::save(out, loaded.bytes())?;
    }
    text += &parameters(&Named::Program(loaded));
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(true)
}

fn presets(name: &str) -> Vec<String> {
    let of = |n: &String| n.strip_prefix(&format!("{name}:")).map(str::to_owned);
    Named::names().iter().filter_map(of).collect()
}

/// A table: name, value, what it can be, what it does.
fn parameters(named: &Named) -> String {
    let rows = named.parameters();
    let width = |get: fn(&Parameter) -> &str| rows.iter().map(|p| get(p).chars().count()).max().unwrap_or(0);
    let (names, values) = (width(|p| &p.name), width(|p| &p.value));
    let line = |p: &Parameter| {
        format!(
            "  {:<names$}  {:<values$}  {}\n  {:names$}  {:values$}  {}\n",
            p.name, p.value, p.help, "", "", p.accepted
        )
    };
    rows.iter().map(line).collect()
}
