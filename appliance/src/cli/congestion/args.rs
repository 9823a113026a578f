//! The command line of `vnicctl cc`.

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub enum CcVerb {
    /// Show congestion control of an adapter: algorithm, priorities, and the parameters of both points
    #[command(
        after_help = "Examples:\n  vnicctl cc show vf0\n  vnicctl -o json cc show vf0 | jq '.parameters[] | \
                      select(.set) | .name'"
    )]
    Show {
        /// Name of the adapter
        name: String,
    },
    /// List all adapters with the most important of it
    #[command(after_help = "Example:\n  vnicctl cc list")]
    List,
    /// Print parameters, each as NAME=VALUE, as `set` takes them
    #[command(
        after_help = "Examples:\n  vnicctl cc get vf0\n  vnicctl cc get vf0 DcqcnRpgAiRate np_min_time_between_cnps\n  \
                      vnicctl cc set vf1 $(vnicctl cc get vf0)"
    )]
    Get {
        /// Name of the adapter
        name: String,
        /// Names of parameters, those of WinOF-2 or of Linux; none: all
        parameters: Vec<String>,
    },
    /// Set parameters, the preset or the algorithm, at once and under traffic; it is stored. All of it or nothing
    #[command(
        after_help = "Examples:\n  vnicctl cc set vf0 DcqcnRpgAiRate=40 DcqcnRpgTimeReset=55\n  vnicctl cc set vf0 \
                      rp_rate_reduce_monitor_period=2 np_min_time_between_cnps=2\n  vnicctl cc set vf0 --preset mlx-fw\n  \
                      vnicctl cc set vf0 --algorithm swift swift.base=30us\n  vnicctl cc set vf0 np_cnp_scope=ip-pair\n  vnicctl cc set vf0 \
                      DcqcnRpgAiRate=      (as the preset has it)\n\nNames are those of WinOF-2 (DcqcnRpgAiRate), of sysfs \
                      (rpg_ai_rate) or of debugfs (rp_ai_rate); those of other algorithms begin with the algorithm (swift.base). A preset forgets what was set before, but for zero touch RoCE. A rate above the line \
                      rate fails, and the line rate is stored instead, as WinOF-2 has it; with an algorithm or a preset beside it nothing is."
    )]
    Set(CcSet),
    /// Load a program of one's own as the algorithm, at once and under traffic; it is stored
    #[command(
        after_help = "Examples:\n  vnic-sim program aimd.wat --out aimd.wasm\n  vnicctl cc load vf0 aimd.wasm\n  vnicctl cc set vf0 \
                      program.step_bps=40M\n  vnicctl cc set vf0 --algorithm dcqcn      (the program stays loaded)\n\nThe NV parameter \
                      USER_PROGRAMMABLE_CC has to be 1, and ROCE_CC_LEGACY_DCQCN 0. What a program is: docs/congestion.md."
    )]
    Load {
        /// Name of the adapter
        name: String,
        /// The program: WebAssembly in binary form
        #[arg(value_hint = clap::ValueHint::FilePath)]
        file: std::path::PathBuf,
    },
    /// Remove the program; where it was the algorithm, that is dcqcn again
    #[command(after_help = "Example:\n  vnicctl cc unload vf0")]
    Unload {
        /// Name of the adapter
        name: String,
    },
    /// Switch congestion control on: on these priorities, or on all
    #[command(
        after_help = "Examples:\n  vnicctl cc enable vf0\n  vnicctl cc enable vf0 3\n  vnicctl cc enable vf0 3 4 --rp   \
                      (senders react, marked packets are not answered)"
    )]
    Enable(Ends),
    /// Switch it off: on these priorities, or on all. Flows that are limited are free at once
    #[command(after_help = "Examples:\n  vnicctl cc disable vf0\n  vnicctl cc disable vf0 3 --np")]
    Disable(Ends),
    /// Show what parameters are while nobody has set them, and where that differs from now
    #[command(after_help = "Example:\n  vnicctl cc defaults vf0")]
    Defaults {
        /// Name of the adapter
        name: String,
    },
    /// Put everything but zero touch RoCE back to what it is while nobody has configured anything: off, dcqcn, winof2-doc
    #[command(after_help = "Example:\n  vnicctl cc restore vf0")]
    Restore {
        /// Name of the adapter
        name: String,
    },
    /// List algorithms, and the parameters of all presets side by side
    #[command(after_help = "Example:\n  vnicctl cc presets")]
    Presets,
    /// List the queue pairs that are limited now: rate, target, alpha, stages, cuts, notifications
    #[command(
        after_help = "Examples:\n  vnicctl cc flows\n  vnicctl cc flows vf0\n  vnicctl -o json cc flows vf0 | jq \
                      '[.flows[].rate_bps] | add'"
    )]
    Flows {
        /// Name of the adapter; none: all
        name: Option<String>,
    },
}

/// `NAME=VALUE`.
fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text
        .split_once('=')
        .filter(|(name, _)| !name.is_empty())
        .ok_or_else(|| format!("{text:?} is not of the form NAME=VALUE"))?;
    Ok((name.to_owned(), value.trim().to_owned()))
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").args(["parameters", "preset", "algorithm"]).required(true).multiple(true))]
pub struct CcSet {
    /// Name of the adapter
    pub name: String,
    /// Parameters; without a value as the preset has it
    #[arg(value_name = "NAME=VALUE", value_parser = pair)]
    pub parameters: Vec<(String, String)>,
    /// Where parameters come from that nobody has set: winof2-doc, mlx-fw, paper, ns3-rdma
    #[arg(long)]
    pub preset: Option<String>,
    /// How queue pairs react: dcqcn, dcqcn+, timely, swift, hpcc, program, none
    #[arg(long)]
    pub algorithm: Option<String>,
}

#[derive(Debug, Args)]
pub struct Ends {
    /// Name of the adapter
    pub name: String,
    /// Priorities; none: all
    #[arg(value_name = "PRIORITY", value_parser = clap::value_parser!(u8).range(0..=7))]
    pub priorities: Vec<u8>,
    /// Only the reaction point: senders
    #[arg(long, conflicts_with = "np")]
    pub rp: bool,
    /// Only the notification point: receivers
    #[arg(long)]
    pub np: bool,
}
