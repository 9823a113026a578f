//! The command line of `vnicctl`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};
use clap_complete::Shell;
use vnic_backend::LldpMode;
use vnic_backend::fault::PsnRange;

use super::nvconfig::NvVerb;
use super::output::Format;
use super::registry::RegistryVerb;
use super::tls::{GLOBAL, TlsArgs};
use super::vlan::VlanArgs;
use crate::check::{self, fault as limits};

const AFTER_HELP: &str = "\
Examples:
  vnicctl status
  vnicctl top
  vnicctl adapter list
  vnicctl adapter add blue --mtu 9000 --access-vlan 10
  vnicctl -o json counter list vf0 --nonzero
  vnicctl capture live vf0 --drops-only
  vnicctl gid list vf0
  vnicctl registry set vf0 DelayDropTimeout 50
  vnicctl team view Team0
  vnicctl export > nic.toml
  vnicctl fault add lossy --to vf1 --probability 1% --drop
  vnicctl --endpoint unix:/tmp/nic/control.sock health

Exit codes: 0 done; 1 the daemon refused or cannot be reached (the reason is on standard error); 2 the \
command line is wrong. Those of diff are like diff(1)'s.";

/// Controls vnicd, the NIC daemon.
#[derive(Debug, Parser)]
#[command(name = "vnicctl", version, after_help = AFTER_HELP, max_term_width = 110)]
pub struct Args {
    /// Where the daemon listens: unix:PATH, or https://HOST:PORT with certificates
    #[arg(
        long,
        global = true,
        help_heading = GLOBAL,
        env = "VNIC_ENDPOINT",
        value_name = "ENDPOINT",
        default_value = "unix:/run/vnic/control.sock"
    )]
    pub endpoint: String,

    #[command(flatten)]
    pub tls: TlsArgs,

    /// How results look: tables for people, JSON for scripts (messages as in the .proto files)
    #[arg(short, long, global = true, help_heading = GLOBAL, value_name = "FORMAT", default_value = "table")]
    pub output: Format,

    /// Only check the first change that the command would make; nothing is changed
    #[arg(long, global = true, help_heading = GLOBAL)]
    pub validate_only: bool,

    #[command(subcommand)]
    pub noun: Noun,
}

/// What a command is about.
#[derive(Debug, Subcommand)]
pub enum Noun {
    /// The state of the daemon on one page, what is odd about it, and what to do
    #[command(
        after_help = "Examples:\n  vnicctl status\n  vnicctl status --check --since 10min >/dev/null || echo look\n  \
                      vnicctl -o json status | jq -r '.findings[] | .what, .command'\n\nExit code: 0, whatever is odd, unless \
                      --check is given; 1 when the daemon cannot be reached."
    )]
    Status(super::status::StatusArgs),
    /// Adapters, ports, queue pairs and data cores with their rates, live; q ends it
    #[command(
        after_help = "Examples:\n  vnicctl top\n  vnicctl top --section qps vf0 --sort errors\n  vnicctl top --iterations 1 \
                      --limit 5 | mail -s rates root\n  vnicctl -o json top --iterations 10   (one object a line)\n\nb/s: \
                      bits in a second; f/s: frames. RDMA RX, RDMA TX: bits in a second of the RDMA function. SENT/s, RECV/s: \
                      packets that a queue pair's PSNs went on by.\n\nInto a pipe or file, and with --iterations, it prints pages one after another. What is odd is in \
                      colour on a terminal, unless NO_COLOR is set."
    )]
    Top(super::top::TopArgs),
    /// Where a frame would go, and why it would be dropped: every decision of the switch; nothing is sent
    #[command(
        after_help = "Examples:\n  vnicctl trace vf0 --to vf1\n  vnicctl trace vf0 --to vf1 --protocol roce --length 4200 --vlan 10\n  \
                      vnicctl trace p0 --to broadcast --source 02:00:5e:00:00:09\n  vnicctl -o json trace vf0 --frame \
                      ffffffffffff02005e0000010806\n\nRates, queues and the probability of fault rules are no part of the answer. \
                      DROPPED has the reason as `counter list --name drops` counts it."
    )]
    Trace(super::trace::TraceArgs),
    /// Adapters: what one virtual machine gets
    #[command(subcommand)]
    Adapter(super::adapter::AdapterVerb),
    /// GID tables of adapters: the addresses of their RDMA functions
    #[command(subcommand)]
    Gid(GidVerb),
    /// Objects of RDMA functions
    #[command(subcommand)]
    Resource(ResourceVerb),
    /// Queue pairs of RDMA functions: state, peer, PSNs, window, retries, errors, process
    #[command(subcommand)]
    Qp(super::qp::QpVerb),
    /// RDMA functions: connections of their communication management
    #[command(subcommand)]
    Rdma(super::connection::RdmaVerb),
    /// Uplink ports: where the switch leaves the NIC
    #[command(subcommand)]
    Port(PortVerb),
    /// Teams: several ports that are one, as mlx5muxtool and bonding have them; which flow is on which port
    #[command(subcommand)]
    Team(super::team::TeamVerb),
    /// Data center bridging exchange of ports (DCBX): what the operator wants, what the peer says, and what acts
    #[command(subcommand)]
    Dcbx(super::dcbx::DcbxVerb),
    /// Quality of service and flow control of adapters and ports, as mlnx_qos has them: trust, traffic classes, rates, PFC
    #[command(subcommand)]
    Qos(super::qos::QosVerb),
    /// Congestion control of RDMA: DCQCN and others, by adapter and priority; flows that are limited now
    #[command(subcommand)]
    Cc(super::congestion::CcVerb),
    /// Quality of service by path, as a subnet manager of InfiniBand has it
    #[command(subcommand)]
    Subnet(super::subnet::SubnetVerb),
    /// The embedded switch
    #[command(subcommand)]
    Switch(SwitchVerb),
    /// Counters
    #[command(subcommand)]
    Counter(super::counter::CounterVerb),
    /// Packet capture, with drop reasons
    #[command(subcommand)]
    Capture(CaptureVerb),
    /// Faults put into the traffic on purpose: loss, delay, reordering, duplicates, corruption, CE marks
    #[command(subcommand)]
    Fault(FaultVerb),
    /// Access lists: which frames guests may send and get
    #[command(subcommand)]
    Acl(super::acl::AclVerb),
    /// Bumps in the wire: two ports joined, with fault rules, captures and counters on all that passes
    #[command(subcommand)]
    Bridge(super::bridge::BridgeVerb),
    /// Mirror sessions: copies of an adapter's or port's frames for another one, as SPAN has them
    #[command(subcommand)]
    Mirror(super::mirror::MirrorVerb),
    /// The NIC's clock: times of RDMA completions, and of PTP messages
    #[command(subcommand)]
    Clock(super::clock::ClockVerb),
    /// OIDs: what an NDIS driver is asked and told, byte by byte
    #[command(subcommand)]
    Oid(super::oid::OidVerb),
    /// Settings by the names that WinOF-2 users know
    #[command(subcommand)]
    Registry(RegistryVerb),
    /// NV configuration, as of mlxconfig: takes effect when the device is reset
    #[command(subcommand)]
    Nvconfig(NvVerb),
    /// What happened
    #[command(subcommand)]
    Event(EventVerb),
    /// The daemon itself
    #[command(subcommand)]
    Server(ServerVerb),
    /// Verbs of the Windows tool mlx5cmd, with its options
    #[command(after_help = super::mlx5cmd::HELP)]
    Mlx5cmd {
        /// Verb and options of the tool
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTION")]
        words: Vec<String>,
    },
    /// Verbs of the Windows tool mlx5muxtool, with its words
    #[command(after_help = super::mlx5muxtool::HELP)]
    Mlx5muxtool {
        /// Verb and words of the tool
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "WORD")]
        words: Vec<String>,
    },
    /// Write an archive with the state of the daemon, without secrets, for somebody who helps from outside
    #[command(
        after_help = "Examples:\n  vnicctl support-bundle\n  vnicctl support-bundle --file /tmp/ticket-4711.tar.gz\n\nThe archive \
                      has the answers of the daemon as JSON, two samples of counters, metrics, the last events, and the configuration \
                      without keys, passwords, tokens and comments; its README says what is in it and what is not. It has names, and MAC \
                      and IP addresses: look into it before you give it away. What cannot be read is a file NAME.error with the reason. \
                      Only its owner can read the archive."
    )]
    SupportBundle(super::support::SupportArgs),
    /// Print the ports, teams, adapters, multicast groups and fault rules that there are, as a configuration file
    #[command(
        after_help = "Example:\n  vnicctl export > nic.toml\n\nThe file goes into `vnicd --config`, `diff -f` and `apply -f`, here or on \
                      another machine. Keys with their default are left out; sockets are named where they are not in the directory of sockets."
    )]
    Export,
    /// Show what a configuration file would change; exit code 1 if it changes something, 2 if it cannot be told
    #[command(
        after_help = "Examples:\n  vnicctl diff -f nic.toml && echo as it should be\n  vnicctl -o json diff -f nic.toml --prune | jq -r \
                      '.changes[].name'"
    )]
    Diff(super::config::FileArgs),
    /// Make the ports, teams, adapters, multicast groups and fault rules of a configuration file; again, it changes nothing
    #[command(
        after_help = "Examples:\n  vnicctl apply -f nic.toml --dry-run\n  vnicctl apply -f nic.toml --prune\n\nThe file is checked as a whole \
                      first. If a step is refused, those before it are undone. What is made is stored, as by `adapter add` and others. \
                      [nic], [control], [access], [metrics] and [events] are checked, and act from the daemon's own file alone \
                      (server reload)."
    )]
    Apply(super::config::ApplyArgs),
    /// Write a copy of all that the daemon has stored, while it runs
    #[command(
        after_help = "Example:\n  vnicctl backup /var/backups/vnic.redb\n\nA daemon that starts with the file as state.redb in its state \
                      directory, without state.redb.mark, has the same. Only its owner can read the file."
    )]
    Backup(super::config::BackupArgs),
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
pub enum GidVerb {
    /// List GIDs, as show_gids does
    #[command(
        visible_alias = "show",
        after_help = "Examples:\n  vnicctl gid list\n  vnicctl -o json gid list vf0 | jq -r '.gids[] | select(.ipv4 != \
                      \"\") | .ipv4'\n\nSOURCE says where an entry comes from: the adapter's MAC address, the \
                      guest's ARP, ND or DHCP, the guest's driver, or the operator (`gid set`). DEV at the end is \
                      the adapter, with the VLAN of the guest's interface."
    )]
    List {
        /// Name of the adapter; all when absent
        adapter: Option<String>,
    },
    /// Put a GID into the table of an adapter; it stays until `gid remove`, or the adapter is removed (it is not stored)
    #[command(
        after_help = "Examples:\n  vnicctl gid set vf0 --gid 10.0.0.5\n  vnicctl gid set vf0 --index 7 --gid \
                      2001:db8::5 --version v1 --vlan 10"
    )]
    Set {
        /// Name of the adapter
        adapter: String,
        /// Its place in the table [default: the first free one]
        #[arg(long, value_name = "N", value_parser = number(check::gid_index))]
        index: Option<u16>,
        /// The GID: an IPv6 or an IPv4 address
        #[arg(long, value_name = "ADDR", value_parser = gid)]
        gid: String,
        /// How its packets travel
        #[arg(long, value_name = "VERSION", default_value = "v2")]
        version: GidVersion,
        /// VLAN of its interface, 1 to 4094 [default: none]
        #[arg(long, value_name = "VLAN", value_parser = number(check::vlan_id))]
        vlan: Option<u16>,
    },
    /// Remove a GID; one that was learned comes back when the guest uses the address again
    #[command(visible_aliases = ["delete", "clear"], after_help = "Example:\n  vnicctl gid remove vf0 7")]
    Remove {
        /// Name of the adapter
        adapter: String,
        /// Its place in the table
        #[arg(value_parser = number(check::gid_index))]
        index: u16,
    },
}

/// RoCE versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum GidVersion {
    /// RoCE v1: EtherType 0x8915
    V1,
    /// RoCE v2: UDP port 4791
    V2,
}

#[derive(Debug, Subcommand)]
pub enum ResourceVerb {
    /// List how many objects of each type there are, and can be, as rdma resource does
    #[command(
        visible_alias = "show",
        after_help = "Examples:\n  vnicctl resource list\n  vnicctl -o json resource list vf0 | jq '.resources[] | \
                      select(.type == \"qp\") | .used'"
    )]
    List {
        /// Name of the adapter; all when absent
        adapter: Option<String>,
    },
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
    /// Make an uplink port; it is stored, and comes back when the daemon starts again
    #[command(
        after_help = "Example:\n  vnicctl port add p0 --tap tap0 --trunk all\n  vnicctl port add p1 --packet veth0 --mtu 9000 --speed 10G\n  \
                      vnicctl port add m0 --mesh 0.0.0.0:4790 --peer node2:4790 --cert /etc/vnic/node1.pem --key \
                      /etc/vnic/node1.key --ca /etc/vnic/mesh-ca.pem"
    )]
    Add(Box<PortAdd>),
    /// Change the speed of a port, its storm control, link layer discovery or data center bridging exchange, under traffic; a port of the
    /// configuration has the configured ones when the daemon starts again
    #[command(
        after_help = "Examples:\n  vnicctl port set p0 --speed 25G\n  vnicctl port set p0 --storm-broadcast 1000 --storm-unknown-unicast 10000\n  \
                      vnicctl port set p0 --lldp rx-and-tx --dcbx ieee\n  vnicctl port set p0 --dcbx-willing pfc --dcbx-application \
                      udp:4791=3"
    )]
    Set {
        /// Name of the port
        name: String,
        /// Line rate in Mbit/s, 1 to 400000, or with a unit (10G); 0: that of the device, and no limit
        #[arg(long, value_name = "MBPS", value_parser = check::qos::speed_mbps, required_unless_present_any = ["broadcast", "unknown_unicast", "lldp", "mode", "willing", "applications"])]
        speed: Option<u32>,
        /// Link layer discovery: disabled, tx-only, rx-only or rx-and-tx
        #[arg(long, value_name = "MODE", value_parser = check::lldp)]
        lldp: Option<LldpMode>,
        #[command(flatten)]
        dcbx: super::dcbx::DcbxArgs,
        #[command(flatten)]
        storm: StormArgs,
    },
    /// Show the stations at the other ends of links, as they say themselves by link layer discovery (LLDP)
    #[command(
        visible_alias = "neighbours",
        after_help = "Example:\n  vnicctl port set p0 --lldp rx-and-tx && vnicctl port neighbors"
    )]
    Neighbors {
        /// Name of the port; all when absent
        name: Option<String>,
    },
    /// Remove a port
    #[command(visible_alias = "delete")]
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

/// What is behind a port.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub struct UplinkArgs {
    /// A TAP device, made when it does not exist (the daemon needs CAP_NET_ADMIN)
    #[arg(long, value_name = "IFNAME")]
    pub tap: Option<String>,
    /// A network device of the host that is there (the daemon needs CAP_NET_RAW)
    #[arg(long, value_name = "IFNAME")]
    pub packet: Option<String>,
    /// The same past the kernel's network stack, by AF_XDP (the daemon needs CAP_NET_ADMIN, CAP_BPF and CAP_NET_RAW)
    #[arg(long, value_name = "IFNAME")]
    pub xdp: Option<String>,
    /// Other daemons: listens on this UDP address for them, and calls each --peer (needs no rights)
    #[arg(long, value_name = "ADDR:PORT", requires_all = ["mesh_cert", "mesh_key", "mesh_ca", "mesh_name"])]
    pub mesh: Option<String>,
}

/// Limits of storm control; 0: none.
#[derive(Debug, clap::Args)]
pub struct StormArgs {
    /// Most broadcast frames a second from the wire, 1 to 100000000; 0: no limit
    #[arg(long = "storm-broadcast", value_name = "PPS")]
    pub broadcast: Option<u32>,
    /// Most frames a second from the wire for unknown unicast addresses, 1 to 100000000; 0: no limit
    #[arg(long = "storm-unknown-unicast", value_name = "PPS")]
    pub unknown_unicast: Option<u32>,
}

#[derive(Debug, clap::Args)]
pub struct PortAdd {
    /// Name: 1 to 15 of a-z, 0-9, '-' and '_'
    pub name: String,
    #[command(flatten)]
    pub uplink: UplinkArgs,
    /// Queues of the TAP device, 1 to 8 [default: 1]
    #[arg(long, value_name = "N", requires = "tap", conflicts_with_all = ["packet", "xdp"])]
    pub queues: Option<u32>,
    #[command(flatten)]
    pub mesh: super::mesh::MeshArgs,
    /// Bytes of Ethernet payload, 68 to 9216 [default: 1500]
    #[arg(long, value_name = "BYTES")]
    pub mtu: Option<u32>,
    /// Line rate in Mbit/s, 1 to 400000, or with a unit (10G) [default: that of the device, and no limit]
    #[arg(long, value_name = "MBPS", value_parser = check::qos::speed_mbps)]
    pub speed: Option<u32>,
    #[command(flatten)]
    pub storm: StormArgs,
    /// Link layer discovery: disabled, tx-only, rx-only or rx-and-tx [default: disabled]
    #[arg(long, value_name = "MODE", value_parser = check::lldp)]
    pub lldp: Option<LldpMode>,
    #[command(flatten)]
    pub dcbx: super::dcbx::DcbxArgs,
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
    /// Check what reliable connections did: going back, negative acknowledgements, notifications; exit code 1 if a rule is broken
    #[command(
        after_help = "Examples:\n  vnicctl capture check wire.pcapng --at p1\n  vnicctl -o json capture check wire.pcapng | jq \
                      '.flows[].findings[]'\n\nThe daemon is not asked. The frames must be those of the responder's wire: what a fault \
                      rule has dropped on the way is left out, and what it has corrupted counts as lost. Of captures of several \
                      adapters or ports, --at names the one at the responder."
    )]
    Check {
        /// A capture as pcapng, of this daemon or of other programs; - is standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Adapter, port or network interface at which the responder is
        #[arg(long, value_name = "NAME")]
        at: Option<String>,
        /// Packets that are marked need no notification: the responder is no notification point
        #[arg(long)]
        no_cnp: bool,
        /// A queue pair is notified no sooner again: the interval of the responder's notification point, in microseconds
        /// (np_min_time_between_cnps); where frames have the times of the wire
        #[arg(
            long,
            value_name = "MICROSECONDS",
            default_value_t = 0,
            conflicts_with = "no_cnp"
        )]
        cnp_interval: u32,
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
pub enum FaultVerb {
    /// Make a rule; it lives until it is removed or the daemon ends (it is not stored)
    #[command(
        after_help = "Examples:\n  vnicctl fault add lossy --from vf0 --to vf1 --probability 1% --drop\n  vnicctl fault \
                      add slow --to vf1 --delay 1.2ms --jitter 300us\n  vnicctl fault add once --qp 17 --opcode \
                      RC_SEND_ONLY --psn 100-199 --skip 5 --count 1 --corrupt 1\n  vnicctl fault add swap --roce \
                      --reorder 1 --probability 0.1 --seed 42\n\nRules are asked in the order in which they were made; \
                      all that hit a frame act, until one drops it."
    )]
    Add(Box<FaultAdd>),
    /// List all rules, in the order in which they are asked
    #[command(
        after_help = "Example:\n  vnicctl -o json fault list | jq '.faults[] | select(.spent) | .name'"
    )]
    List,
    /// Show one rule in full
    #[command(after_help = "Example:\n  vnicctl fault show lossy")]
    Show {
        /// Name of the rule
        name: String,
    },
    /// Remove rules; frames that they hold back are let go
    #[command(
        visible_alias = "delete",
        after_help = "Examples:\n  vnicctl fault remove lossy slow\n  vnicctl fault remove --all"
    )]
    Remove {
        /// Names of the rules
        #[arg(value_name = "NAME", required_unless_present = "all", conflicts_with = "all")]
        names: Vec<String>,
        /// Remove all rules
        #[arg(long)]
        all: bool,
    },
    /// Make the rules of a file with [[fault]] tables, as in the daemon's configuration: all of them, or none
    #[command(
        after_help = "Example:\n  vnicctl fault load bad-day.toml\n\nThe file, with every key that rules can \
                            have:\n  [[fault]]\n  name = \"bad-day\"\n  from = \"vf0\"\n  to = \"vf1\"\n  \
                            destination_qp = 17\n  opcodes = [\"RC_SEND_ONLY\", 0x06]\n  psn = \"100-199\"\n  \
                            probability = 0.01\n  skip = 10\n  count = 100\n  seed = 42\n  action = \"delay\"   # \
                            drop, delay, reorder, duplicate, corrupt, mark_ce\n  delay = \"1.2ms\"\n  jitter = \
                            \"300us\"\n\nOther conditions: roce, ethertype. With reorder: frames, at_most. With \
                            duplicate: copies. With corrupt: bits, offset."
    )]
    Load {
        /// The file; - is standard input
        file: PathBuf,
    },
    /// Play a scenario: failures of adapters at given times; everything is put back at its end
    #[command(
        after_help = "Examples:\n  vnicctl fault play port-flap --set nic=vf0 --watch\n  vnicctl fault play \
                            ./bad-day.toml\n\nThe file, with what steps can do:\n  name = \"bad-day\"\n  \
                            [adapters]\n  nic = \"vf0\"            # a part; --set nic=vf3 gives it to another \
                            adapter\n  [[step]]\n  at = \"200ms\"\n  action = \"port_down\"   # device_fatal, \
                            device_removed, gid_gone, gid_moved, mtu, speed, fault, kill\n  adapter = \"nic\"\n  \
                            for = \"100ms\"\n  event_delay = \"20ms\" # PORT_ERR comes later than packets stop; \
                            -20ms: earlier\n  every = \"500ms\"\n  times = 3"
    )]
    Play(FaultPlay),
    /// Stop a scenario; everything is put back
    #[command(after_help = "Example:\n  vnicctl fault stop port-flap")]
    Stop {
        /// Name of the scenario
        name: String,
    },
    /// List scenarios: those that are shipped, and those that were played
    #[command(after_help = "Example:\n  vnicctl fault scenarios")]
    Scenarios,
    /// Rules for what RDMA functions tell their drivers: completions and commands
    #[command(subcommand)]
    Verbs(super::verbs_fault::VerbsFaultVerb),
    /// Record what programs are told of their work requests, and what really happens to these
    #[command(subcommand)]
    Record(RecordVerb),
    /// Show what became of each request of the last recording: told, really, at the responder, and a verdict
    #[command(
        after_help = "Examples:\n  vnicctl fault report --only lies\n  vnicctl fault report --comparable > run1.txt\n  vnicctl \
                      -o json fault report | jq '.outcomes[] | select(.lie) | .verdict'\n\nTOLD: the completion that the program \
                      got, and when. REALLY: how the request ended for the device. DONE: how often its responder carried it out, \
                      and how many bytes; - when the responder was not seen here. RECEIVE: the receive that it took, and what the \
                      program there was told."
    )]
    Report {
        /// Which requests
        #[arg(long, value_name = "WHICH", default_value = "all")]
        only: super::recording::Only,
        /// Without times, processes' numbers, and numbers of queue pairs and packets: the same for two runs that do the same
        #[arg(long)]
        comparable: bool,
    },
}

#[derive(Debug, clap::Args)]
pub struct FaultPlay {
    /// The file, or the name of a scenario that is shipped; - is standard input
    pub file: PathBuf,
    /// Give a part of the scenario to an adapter
    #[arg(long, value_name = "PART=ADAPTER", value_parser = part)]
    pub set: Vec<(String, String)>,
    /// Show each step when it is done, and wait for the end
    #[arg(long)]
    pub watch: bool,
}

fn part(text: &str) -> Result<(String, String), String> {
    let (part, adapter) = text.split_once('=').ok_or("PART=ADAPTER")?;
    Ok((part.to_owned(), adapter.to_owned()))
}

#[derive(Debug, Subcommand)]
pub enum RecordVerb {
    /// Begin a recording; the last one is forgotten
    #[command(
        after_help = "Examples:\n  vnicctl fault record start\n  vnicctl fault record start --adapter vf0 --adapter vf1 --limit 1000"
    )]
    Start {
        /// An adapter with an RDMA function; again for further ones; all when absent
        #[arg(long = "adapter", value_name = "ADAPTER")]
        adapters: Vec<String>,
        /// Requests of each process that are kept, the newest: 1 to 1048576
        #[arg(long, value_name = "N", default_value = "65536", value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
        limit: u32,
    },
    /// End the recording, for fault report
    #[command(after_help = "Example:\n  vnicctl fault record stop && vnicctl fault report")]
    Stop,
}

/// Headings of the options of `fault add`.
const ACTIONS: &str = "Actions, one of them";
const FRAMES: &str = "Which frames; all that is given must be true";

// Wide: each field is an option of the command.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("action").required(true))]
pub struct FaultAdd {
    /// Name: 1 to 15 of a-z, 0-9, '-' and '_'
    #[arg(value_parser = check::name)]
    pub name: String,

    /// Lose frames
    #[arg(long, group = "action", help_heading = ACTIONS)]
    pub drop: bool,
    /// Hold frames back for a time, such as 1.2ms
    #[arg(long, group = "action", value_name = "SPAN", value_parser = span, help_heading = ACTIONS)]
    pub delay: Option<Duration>,
    /// Hold frames back until FRAMES later ones have overtaken them
    #[arg(
        long,
        group = "action",
        value_name = "FRAMES",
        help_heading = ACTIONS
    )]
    pub reorder: Option<u32>,
    /// Deliver COPIES more of a frame
    #[arg(
        long,
        group = "action",
        value_name = "COPIES",
        help_heading = ACTIONS
    )]
    pub duplicate: Option<u32>,
    /// Flip BITS bits, in RoCE packets where the ICRC notices
    #[arg(
        long,
        group = "action",
        value_name = "BITS",
        help_heading = ACTIONS
    )]
    pub corrupt: Option<u32>,
    /// Mark frames "congestion experienced", if their sender reacts to that (ECT)
    #[arg(long, group = "action", help_heading = ACTIONS)]
    pub mark_ce: bool,

    /// With --delay: up to so much more
    #[arg(long, conflicts_with_all = ["drop", "reorder", "duplicate", "corrupt", "mark_ce"], value_name = "SPAN", value_parser = span)]
    pub jitter: Option<Duration>,
    /// With --reorder: no longer than this [default: 10ms]
    #[arg(long, conflicts_with_all = ["drop", "delay", "duplicate", "corrupt", "mark_ce"], value_name = "SPAN", value_parser = span)]
    pub at_most: Option<Duration>,
    /// With --corrupt: in this byte of the frame
    #[arg(long, conflicts_with_all = ["drop", "delay", "reorder", "duplicate", "mark_ce"], value_name = "BYTE")]
    pub offset: Option<u16>,

    /// Only frames from this adapter or port
    #[arg(
        long,
        value_name = "OWNER",
        help_heading = FRAMES
    )]
    pub from: Option<String>,
    /// Only frames for this adapter or port
    #[arg(
        long,
        value_name = "OWNER",
        help_heading = FRAMES
    )]
    pub to: Option<String>,
    /// Only RoCE packets; the next three imply it
    #[arg(long, help_heading = FRAMES)]
    pub roce: bool,
    /// Only packets for this queue pair
    #[arg(long, value_name = "QP", value_parser = number(limits::destination_qp), help_heading = FRAMES)]
    pub qp: Option<u32>,
    /// Only packets with this BTH opcode, by name or number; again for further ones
    #[arg(long, value_name = "OPCODE", value_parser = limits::opcode_text, help_heading = FRAMES)]
    pub opcode: Vec<u8>,
    /// Only packets with these PSNs: 7, 10-20, or over the end of the number space 16777214-3
    #[arg(long, value_name = "PSNS", value_parser = limits::psn_text, help_heading = FRAMES)]
    pub psn: Option<PsnRange>,
    /// Only frames with this EtherType behind their VLAN tags, such as 0x0806
    #[arg(long, value_name = "TYPE", value_parser = number(limits::ethertype), help_heading = FRAMES)]
    pub ethertype: Option<u16>,

    /// How probable it is that a matching frame is hit, such as 0.01 or 1% [default: 1]
    #[arg(long, value_name = "P", value_parser = limits::probability_text, help_heading = "How often")]
    pub probability: Option<u32>,
    /// Let N matching frames go before it begins
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "How often")]
    pub skip: u64,
    /// End after N injections
    #[arg(long, value_name = "N", help_heading = "How often")]
    pub count: Option<u64>,
    /// Begin of the random numbers: the same seed and the same frames have the same fate [default: the daemon chooses]
    #[arg(long, value_name = "SEED", help_heading = "How often")]
    pub seed: Option<u64>,
}

fn span(text: &str) -> Result<Duration, String> {
    limits::span(text)
}

fn gid(text: &str) -> Result<String, String> {
    check::gid(text).map(|_| text.to_owned())
}

pub(super) fn number<T>(
    check: impl Fn(i64) -> check::Checked<T> + Clone,
) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| limits::integer(text).and_then(&check)
}

/// Which events.
#[derive(Debug, clap::Args)]
pub struct EventArgs {
    /// Only events of this adapter or port
    pub owner: Option<String>,
    /// Only events of this kind, such as fault_injected or adapter_state
    #[arg(long, value_name = "KIND")]
    pub kind: Option<String>,
    /// Only events with this number, such as 75; `vnicctl event kinds` tells them
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub id: Option<u32>,
    /// Only events that matter at least so much
    #[arg(long, value_name = "SEVERITY", value_enum)]
    pub min_severity: Option<Severity>,
    /// Only events of the last SPAN, such as 10min or 1d
    #[arg(long, value_name = "SPAN", value_parser = span)]
    pub since: Option<Duration>,
}

/// How much an event matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Severity {
    /// Normal life
    Info,
    /// Someone should look
    Warning,
    /// A bug of the daemon, or something broke
    Error,
}

#[derive(Debug, Subcommand)]
pub enum EventVerb {
    /// List events, oldest first; they outlive the daemon
    #[command(
        after_help = "Examples:\n  vnicctl event list --since 10min --min-severity warning\n  vnicctl -o json event list vf0 \
                      --kind fault_injected | jq '.events[].parameters'"
    )]
    List {
        #[command(flatten)]
        filter: EventArgs,
        /// Only the last N of them
        #[arg(long, value_name = "N")]
        last: Option<usize>,
    },
    /// List the kinds of events that there can be
    #[command(after_help = "Example:\n  vnicctl -o json event kinds | jq '.kinds[].kind'")]
    Kinds,
    /// Show events as they happen
    #[command(
        after_help = "Examples:\n  vnicctl event follow --kind fault_injected\n  vnicctl -o json event follow --after 0   (one \
                      object a line, from the oldest on)"
    )]
    Follow {
        #[command(flatten)]
        filter: EventArgs,
        /// Begin with the events after this revision; 0: with the oldest that is kept
        #[arg(long, value_name = "REVISION")]
        after: Option<u64>,
    },
}

#[derive(Debug, Subcommand)]
pub enum ServerVerb {
    /// Make the daemon read its configuration file, certificates and roles again, as SIGHUP does
    #[command(
        after_help = "Example:\n  vnicctl server reload\n\nPorts, teams, adapters, multicast groups, fault rules and [access] act at once, what cannot change under \
                      traffic from a restart of its adapter on, other keys from the next start of the daemon on. A wrong file changes nothing."
    )]
    Reload,
    /// Show version, data cores, directories and addresses
    #[command(after_help = "Example:\n  vnicctl -o json server info | jq .pid")]
    Info,
    /// Show what the daemon logs, or change it until the daemon ends
    #[command(
        after_help = "Levels: off, error, warn, info, debug, trace. Of targets that no part names nothing is logged.\n\
                      The next start of the daemon takes VNIC_LOG again.\n\n\
                      Examples:\n  vnicctl server log-level\n  vnicctl server log-level debug,h2=warn"
    )]
    LogLevel {
        /// Parts LEVEL or TARGET=LEVEL with commas between them, as in VNIC_LOG
        #[arg(value_name = "SPEC")]
        filter: Option<String>,
    },
}
