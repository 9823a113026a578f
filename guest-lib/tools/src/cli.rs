//! The command line.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;

use crate::options::{
    AtomicOptions, BandwidthOptions, DeviceOptions, PerfOptions, PingpongOptions, SrqOptions,
};
use crate::tools;

const AFTER_HELP: &str = "\
Examples:
  vnic-guest doctor                                   what is missing, and how to mend it
  vnic-guest devinfo -v
  vnic-guest rc_pingpong                              server
  vnic-guest rc_pingpong 10.0.0.1                     client
  vnic-guest write_bw -s 65536 -q 4 -D 5 10.0.0.1     as perftest
  VNIC_SOCKET=/run/vnic/vf0-rdma.sock vnic-guest send_lat --loopback /run/vnic/vf1-rdma.sock
  ln -s vnic-guest rc_pingpong; ./rc_pingpong --help  called by a tool's name it is that tool

Exit codes: 0 all is well, and all data are verified (unless --no-verify); 1 it is not (the reason is on standard error, and in \
the JSON); 2 the command line is wrong.";

/// Under the help of tools that work in pairs.
const PAIR: &str = "\
Start it with the same options on both sides: first without HOST (the server), then with the server's HOST (the client). Or \
on one machine, both sides in one process: -d SOCKET --loopback OTHER_SOCKET.";

/// Tools for vnic's RDMA function, in a virtual machine or in a process of the host.
#[derive(Debug, Parser)]
#[command(name = "vnic-guest", version, after_help = AFTER_HELP, max_term_width = 110)]
struct Args {
    #[command(subcommand)]
    tool: Tool,
}

#[derive(Debug, Subcommand)]
#[command(rename_all = "snake_case")]
enum Tool {
    /// Say what stands in the way of RDMA on this machine, and how to mend it. Exit code 0 if nothing does
    Doctor {
        /// Print one line of JSON
        #[arg(long)]
        json: bool,
    },
    /// List devices
    Devices {
        /// Print one line of JSON
        #[arg(long)]
        json: bool,
    },
    /// Say what a device is, as ibv_devinfo
    Devinfo {
        #[command(flatten)]
        device: DeviceOptions,
        /// All of it, counters and objects included
        #[arg(short, long)]
        verbose: bool,
    },
    /// List the GIDs of a device
    #[command(visible_alias = "show-gids")]
    ShowGids {
        #[command(flatten)]
        device: DeviceOptions,
    },
    /// Messages there and back over a reliable connection
    #[command(after_help = PAIR)]
    RcPingpong(PingpongOptions),
    /// Messages there and back over an unreliable connection
    #[command(after_help = PAIR)]
    UcPingpong(PingpongOptions),
    /// Datagrams there and back
    #[command(after_help = PAIR)]
    UdPingpong(PingpongOptions),
    /// Messages there and back on several connections with one shared receive queue
    #[command(after_help = PAIR)]
    SrqPingpong(SrqOptions),
    /// Bandwidth of RDMA WRITE
    #[command(after_help = PAIR)]
    WriteBw(BandwidthOptions),
    /// Latency of RDMA WRITE, half of the way there and back
    #[command(after_help = PAIR)]
    WriteLat(PerfOptions),
    /// Bandwidth of RDMA READ
    #[command(after_help = PAIR)]
    ReadBw(BandwidthOptions),
    /// Latency of RDMA READ
    #[command(after_help = PAIR)]
    ReadLat(PerfOptions),
    /// Bandwidth of SEND
    #[command(after_help = PAIR)]
    SendBw(BandwidthOptions),
    /// Latency of SEND, half of the way there and back
    #[command(after_help = PAIR)]
    SendLat(PerfOptions),
    /// Latency of atomics
    #[command(after_help = PAIR)]
    AtomicLat(AtomicOptions),
    /// Print a completion script
    #[command(
        after_help = "Example:\n  vnic-guest completions bash > /usr/share/bash-completion/completions/vnic-guest"
    )]
    Completions {
        /// For which shell
        shell: Shell,
    },
}

/// Does what the command line says.
pub fn run(mut words: Vec<OsString>) -> ExitCode {
    if let Some(tool) = words.first().and_then(called_as) {
        words.splice(0..1, ["vnic-guest".into(), tool]);
    }
    match Args::parse_from(words).tool {
        Tool::Doctor { json } => tools::doctor::run(json),
        Tool::Devices { json } => tools::devices::run(json),
        Tool::Devinfo { device, verbose } => tools::devinfo::run(&device, verbose),
        Tool::ShowGids { device } => tools::show_gids::run(&device),
        Tool::RcPingpong(options) => tools::rc_pingpong::run(&options),
        Tool::UcPingpong(options) => tools::ud_pingpong::run_uc(&options),
        Tool::UdPingpong(options) => tools::ud_pingpong::run(&options),
        Tool::SrqPingpong(options) => tools::srq_pingpong::run(&options),
        Tool::WriteBw(options) => tools::write_bw::run(&options),
        Tool::WriteLat(options) => tools::write_lat::run(&options),
        Tool::ReadBw(options) => tools::read_bw::run(&options),
        Tool::ReadLat(options) => tools::read_lat::run(&options),
        Tool::SendBw(options) => tools::send_bw::run(&options),
        Tool::SendLat(options) => tools::send_lat::run(&options),
        Tool::AtomicLat(options) => tools::atomic_lat::run(&options),
        Tool::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Args::command(), "vnic-guest", &mut script);
            // Whoever reads it may have seen enough.
            let _ = std::io::stdout().write_all(&script);
            ExitCode::SUCCESS
        }
    }
}

/// The tool as which the program was called, if it was.
fn called_as(program: &OsString) -> Option<OsString> {
    let name = Path::new(program).file_name()?;
    let command = Args::command();
    let tool = command.find_subcommand(name)?;
    Some(tool.get_name().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Args::command().debug_assert();
    }

    #[test]
    fn it_is_the_tool_by_whose_name_it_is_called() {
        assert_eq!(
            called_as(&"/usr/bin/rc_pingpong".into()),
            Some("rc_pingpong".into())
        );
        assert_eq!(called_as(&"show-gids".into()), Some("show_gids".into()));
        assert_eq!(called_as(&"./vnic-guest".into()), None);
    }

    #[test]
    fn letters_are_those_of_perftest() {
        let words = "vnic-guest write_bw -s 64 -n 10 -q 2 -t 8 -c UC -b -e -I 64 -m 1024 -x 1 -p 0 --json";
        let Tool::WriteBw(options) = Args::parse_from(words.split(' ')).tool else {
            panic!("another tool");
        };
        assert_eq!(
            (options.qps, options.perf.size, options.perf.peer.gid_index),
            (2, Some(64), Some(1))
        );
        assert!(Args::try_parse_from("vnic-guest write_bw -D 1 -n 5".split(' ')).is_err());
        assert!(Args::try_parse_from("vnic-guest rc_pingpong --client 10.0.0.1".split(' ')).is_err());
    }
}
