//! The command line of `vnicctl`.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use clap_complete::Shell;

use super::output::Format;
use super::vlan::VlanArgs;

const AFTER_HELP: &str = "\
Examples:
  vnicctl adapter list
  vnicctl adapter add blue --mtu 9000 --access-vlan 10
  vnicctl -o json counter list vf0 --nonzero
  vnicctl capture live vf0 --drops-only
  vnicctl --endpoint unix:/tmp/nic/control.sock health

Exit codes: 0 done; 1 the daemon refused or cannot be reached (the reason is on standard error); 2 the \
command line is wrong.";

/// Controls vnicd, the NIC daemon.
#[derive(Debug, Parser)]
#[command(name = "vnicctl", version, after_help = AFTER_HELP, max_term_width = 110)]
pub struct Args {
    /// Where the daemon listens: unix:PATH, or http://ADDR:PORT on this machine
    #[arg(
        long,
        global = true,
        env = "VNIC_ENDPOINT",
        value_name = "ENDPOINT",
        default_value = "unix:/run/vnic/control.sock"
    )]
    pub endpoint: String,

    /// How results look: tables for people, JSON for scripts (messages as in the .proto files)
    #[arg(short, long, global = true, value_name = "FORMAT", default_value = "table")]
    pub output: Format,

    #[command(subcommand)]
    pub noun: Noun,
}

/// What a command is about.
#[derive(Debug, Subcommand)]
pub enum Noun {
    /// Adapters: what one virtual machine gets
    #[command(subcommand)]
    Adapter(AdapterVerb),
    /// Uplink ports: where the switch leaves the NIC
    #[command(subcommand)]
    Port(PortVerb),
    /// The embedded switch
    #[command(subcommand)]
    Switch(SwitchVerb),
    /// Counters
    #[command(subcommand)]
    Counter(CounterVerb),
    /// Packet capture, with drop reasons
    #[command(subcommand)]
    Capture(CaptureVerb),
    /// The daemon itself
    #[command(subcommand)]
    Server(ServerVerb),
    /// Is the daemon ready? Exit code 0 when it is
    #[command(after_help = "Example:\n  vnicctl health && echo ready")]
    Health,
    /// Print a completion script
    #[command(
        after_help = "Example:\n  vnicctl completions bash > /usr/share/bash-completion/completions/vnicctl"
    )]
    Completions {
        /// Of which shell
        shell: Shell,
    },
    /// Write the man pages of vnicctl and vnicd
    #[command(hide = true)]
    Man {
        /// Into this directory
        dir: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
pub enum AdapterVerb {
    /// List all adapters
    #[command(after_help = "Example:\n  vnicctl -o json adapter list | jq -r '.adapters[].macs[0]'")]
    List,
    /// Show one adapter in full
    #[command(after_help = "Example:\n  vnicctl adapter show vf0")]
    Show {
        /// Name of the adapter
        name: String,
    },
    /// Make an adapter; it lives until it is removed or the daemon ends (it is not stored)
    #[command(
        after_help = "Examples:\n  vnicctl adapter add blue\n  vnicctl adapter add db --mac 02:00:5e:00:00:07 \
                      --mtu 9000 --queue-pairs 4\n  vnicctl adapter add lab --trunk 10,20 --native 1 \
                      --no-anti-spoofing"
    )]
    Add(AdapterAdd),
    /// Detach the guest and remove the adapter
    #[command(after_help = "Example:\n  vnicctl adapter remove blue")]
    Remove {
        /// Name of the adapter
        name: String,
    },
    /// Close the connection to the guest's VMM, which reconnects; brings back a failed adapter
    #[command(after_help = "Example:\n  vnicctl adapter restart vf0")]
    Restart {
        /// Name of the adapter
        name: String,
    },
    /// Show attach and link state, and then changes as they happen
    #[command(
        after_help = "Examples:\n  vnicctl adapter watch\n  vnicctl -o json adapter watch vf0   (one object a line)"
    )]
    Watch {
        /// Name of the adapter; all when absent
        name: Option<String>,
    },
}

#[derive(Debug, clap::Args)]
pub struct AdapterAdd {
    /// Name: 1 to 15 of a-z, 0-9, '-' and '_'
    pub name: String,
    /// MAC address; again for further ones. The first is given to the guest [default: derived from the name]
    #[arg(long, value_name = "MAC")]
    pub mac: Vec<String>,
    /// Bytes of Ethernet payload, 68 to 9216 [default: 1500]
    #[arg(long, value_name = "BYTES")]
    pub mtu: Option<u32>,
    /// Queue pairs offered to the guest, 1 to 16 [default: 16]
    #[arg(long, value_name = "N")]
    pub queue_pairs: Option<u32>,
    #[command(flatten)]
    pub vlan: VlanArgs,
    /// Accept frames from any source address
    #[arg(long)]
    pub no_anti_spoofing: bool,
    /// The data core that serves it [default: the one with the fewest adapters]
    #[arg(long, value_name = "CPU")]
    pub data_core: Option<u32>,
    /// Path of the socket [default: NAME-eth.sock in the daemon's socket directory]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<String>,
    /// The VMM listens on the socket and the daemon connects
    #[arg(long)]
    pub connect: bool,
}

#[derive(Debug, Subcommand)]
pub enum PortVerb {
    /// List all uplink ports
    List,
    /// Show one port in full
    Show {
        /// Name of the port
        name: String,
    },
    /// Make an uplink port; it lives until it is removed or the daemon ends (it is not stored)
    #[command(after_help = "Example:\n  vnicctl port add p0 --tap tap0 --trunk all")]
    Add(PortAdd),
    /// Remove a port
    Remove {
        /// Name of the port
        name: String,
    },
    /// Show link state, and then changes as they happen
    Watch {
        /// Name of the port; all when absent
        name: Option<String>,
    },
}

#[derive(Debug, clap::Args)]
pub struct PortAdd {
    /// Name: 1 to 15 of a-z, 0-9, '-' and '_'
    pub name: String,
    /// The TAP device, made when it does not exist (the daemon needs CAP_NET_ADMIN)
    #[arg(long, value_name = "IFNAME", required = true)]
    pub tap: String,
    /// Bytes of Ethernet payload, 68 to 9216 [default: 1500]
    #[arg(long, value_name = "BYTES")]
    pub mtu: Option<u32>,
    #[command(flatten)]
    pub vlan: VlanArgs,
    /// The data core that serves it [default: the first]
    #[arg(long, value_name = "CPU")]
    pub data_core: Option<u32>,
}

#[derive(Debug, Subcommand)]
pub enum SwitchVerb {
    /// Show the switch's settings and sizes
    Show,
    /// Show the address table
    #[command(after_help = "Examples:\n  vnicctl switch fdb\n  vnicctl switch fdb vf0 --vlan 10")]
    Fdb {
        /// Only entries of this adapter or port
        owner: Option<String>,
        /// Only entries of this VLAN
        #[arg(long, value_name = "VLAN")]
        vlan: Option<u32>,
    },
}

#[derive(Debug, Subcommand)]
pub enum CounterVerb {
    /// List counters
    #[command(
        visible_alias = "show",
        after_help = "Examples:\n  vnicctl counter list vf0 --nonzero\n  vnicctl counter list cores/1\n  vnicctl \
                      counter list --name drops --nonzero"
    )]
    List {
        /// Only counters of this adapter, port or core: vf0, ports/p0, cores/1
        owner: Option<String>,
        /// Only counters of this name
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// Leave out counters that are zero
        #[arg(long)]
        nonzero: bool,
    },
}

/// Which frames, and how many.
#[derive(Debug, clap::Args)]
pub struct FilterArgs {
    /// Adapters and ports; all when absent
    #[arg(value_name = "OWNER")]
    pub owners: Vec<String>,
    /// Only frames that were dropped
    #[arg(long)]
    pub drops_only: bool,
    /// End after N frames
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// End after S seconds
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(1..))]
    pub seconds: Option<u32>,
    /// Keep at most BYTES of each frame
    #[arg(long, value_name = "BYTES")]
    pub snaplen: Option<u32>,
}

#[derive(Debug, Subcommand)]
pub enum CaptureVerb {
    /// Capture until Ctrl-C or a limit: to a file, to a pipe, or as one line a frame
    #[command(
        after_help = "Examples:\n  vnicctl capture live vf0\n  vnicctl capture live -w /tmp/vf0.pcapng --count 100 \
                      vf0\n  vnicctl capture live -w - | wireshark -k -i -\n  vnicctl capture live --drops-only"
    )]
    Live {
        /// Write pcapng to FILE; - is standard output
        #[arg(short, long, value_name = "FILE")]
        write: Option<PathBuf>,
        #[command(flatten)]
        filter: FilterArgs,
    },
    /// Start a capture to a file in the daemon's state directory
    #[command(after_help = "Example:\n  vnicctl capture start --name trouble --drops-only vf0 vf1")]
    Start {
        /// Name of the capture [default: made from the time]
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// End when the file has this many bytes [default: 256 MiB]
        #[arg(long, value_name = "BYTES")]
        max_bytes: Option<u64>,
        #[command(flatten)]
        filter: FilterArgs,
    },
    /// List captures to files
    List,
    /// End a capture to a file
    #[command(after_help = "Example:\n  vnicctl capture stop trouble")]
    Stop {
        /// Name of the capture
        name: String,
    },
}

#[derive(Debug, Subcommand)]
pub enum ServerVerb {
    /// Show version, data cores, directories and addresses
    #[command(after_help = "Example:\n  vnicctl -o json server info | jq .pid")]
    Info,
}
