//! Options that tools share. Their letters are those of perftest and of libibverbs' examples.

use std::time::Duration;

use clap::{Args, ValueEnum};
use vnic_verbs::{Context, DeviceAddress, Gid, GidEntry, GidKind, Mtu, QpType, RateLimit};

use crate::exchange::QPS_MAX;
use crate::failure::{Failure, Result};

/// Where tools tell each other who they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Exchange {
    /// Over TCP: the server listens, the client connects
    Tcp,
    /// Over standard input and output, for a script between the two: each prints a line `endpoint`, and reads that of the
    /// other
    Stdio,
}

/// Which device.
#[derive(Debug, Clone, Args)]
pub struct DeviceOptions {
    /// Device: the NAME-rdma.sock of an adapter, or in a virtual machine a PCI address. Default: the socket in VNIC_SOCKET,
    /// else the first RDMA function on PCI
    #[arg(short, long, visible_alias = "ib-dev", value_name = "SOCKET|PCI")]
    pub device: Option<DeviceAddress>,
    /// Print one line of JSON
    #[arg(long)]
    pub json: bool,
}

/// How two tools find each other, and what all of them understand.
#[derive(Debug, Clone, Args)]
pub struct PeerOptions {
    /// The server's host. Without it this side is the server
    #[arg(conflicts_with_all = ["loopback", "client"])]
    pub host: Option<String>,
    #[command(flatten)]
    pub device: DeviceOptions,
    /// TCP port for the exchange; a server with 0 takes a free one and says which
    #[arg(short, long, value_name = "PORT", default_value_t = 18515)]
    pub port: u16,
    /// How the two sides exchange their addresses
    #[arg(long, value_name = "HOW", default_value = "tcp")]
    pub exchange: Exchange,
    /// With --exchange stdio: this side begins
    #[arg(long)]
    pub client: bool,
    /// Be both sides in one process: the client on --device, the server on this one (it may be the same)
    #[arg(long, value_name = "SOCKET|PCI", conflicts_with = "client")]
    pub loopback: Option<DeviceAddress>,
    /// Index of the own GID. Default: the first one of RoCE v2
    #[arg(
        short = 'x',
        long,
        visible_short_alias = 'g',
        visible_alias = "gid-idx",
        value_name = "INDEX"
    )]
    pub gid_index: Option<u16>,
    /// Path MTU: 256, 512, 1024, 2048 or 4096. Default: the most that both ports can
    #[arg(short, long, value_name = "BYTES", value_parser = parse_mtu)]
    pub mtu: Option<Mtu>,
    /// How long a reliable connection waits for an acknowledge before it repeats: 4.096 µs · 2^N; 0: for ever
    #[arg(short = 'u', long, visible_alias = "qp_timeout", value_name = "N", default_value_t = 14, value_parser = clap::value_parser!(u8).range(..32))]
    pub qp_timeout: u8,
    /// Sleep on events of the completion queue instead of polling it
    #[arg(short, long)]
    pub events: bool,
    /// Traffic class of what this side sends: DSCP and ECN, as the ToS byte of an IP header
    #[arg(long, visible_alias = "tos", value_name = "0..255", default_value_t = 0)]
    pub tclass: u8,
    /// Rate of each queue pair of this side, in Mbit/s on the wire. Default: not limited
    #[arg(long, visible_alias = "rate_limit", value_name = "MBIT", value_parser = clap::value_parser!(u32).range(1..=4_000_000))]
    pub rate_limit: Option<u32>,
    /// With --rate-limit: bytes that a queue pair may send at once after a pause. Default: the device chooses
    #[arg(
        long,
        visible_alias = "burst_size",
        value_name = "BYTES",
        requires = "rate_limit"
    )]
    pub burst_size: Option<u32>,
    /// Seed of the data that this side sends
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Do not make data for each message, and do not check it
    #[arg(long)]
    pub no_verify: bool,
}

/// What ping-pongs understand besides.
#[derive(Debug, Clone, Args)]
pub struct PingpongOptions {
    #[command(flatten)]
    pub peer: PeerOptions,
    /// Bytes of a message. Default: 4096; datagrams: at most the MTU
    #[arg(short, long, value_name = "BYTES")]
    pub size: Option<u32>,
    /// Messages each way
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    pub iters: u64,
    /// Receives that are posted at a time
    #[arg(short, long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub rx_depth: u32,
    /// Service level
    #[arg(short = 'l', long = "sl", value_name = "SL", default_value_t = 0, value_parser = clap::value_parser!(u8).range(..16))]
    pub service_level: u8,
}

/// What `srq_pingpong` understands besides.
#[derive(Debug, Clone, Args)]
pub struct SrqOptions {
    #[command(flatten)]
    pub pingpong: PingpongOptions,
    /// Queue pairs
    #[arg(short, long = "num-qp", value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=QPS_MAX as i64))]
    pub qps: u32,
}

/// An atomic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Atomic {
    /// Adds 1
    #[value(name = "FETCH_AND_ADD")]
    FetchAndAdd,
    /// Replaces a number by the next
    #[value(name = "CMP_AND_SWAP")]
    CmpAndSwap,
}

impl Atomic {
    /// As in the option.
    pub fn name(self) -> &'static str {
        match self {
            Atomic::FetchAndAdd => "FETCH_AND_ADD",
            Atomic::CmpAndSwap => "CMP_AND_SWAP",
        }
    }
}

/// What `atomic_lat` understands besides.
#[derive(Debug, Clone, Args)]
pub struct AtomicOptions {
    #[command(flatten)]
    pub perf: PerfOptions,
    /// Which atomic
    #[arg(
        short = 'A',
        long,
        visible_alias = "atomic_type",
        value_name = "TYPE",
        default_value = "FETCH_AND_ADD",
        ignore_case = true
    )]
    pub atomic_type: Atomic,
}

/// What benchmarks understand besides.
#[derive(Debug, Clone, Args)]
pub struct PerfOptions {
    #[command(flatten)]
    pub peer: PeerOptions,
    /// Bytes of a message. Default: 65536 for bandwidth (datagrams: the MTU), 2 for latency
    #[arg(short, long, value_name = "BYTES")]
    pub size: Option<u32>,
    /// All sizes from 2 bytes to 8 MiB (datagrams: to the MTU)
    #[arg(short, long, conflicts_with = "size")]
    pub all: bool,
    /// Messages. Default: 1000
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub iters: Option<u64>,
    /// Run for so many seconds instead of a number of messages
    #[arg(short = 'D', long, value_name = "SECONDS", conflicts_with = "iters", value_parser = clap::value_parser!(u32).range(1..))]
    pub duration: Option<u32>,
    /// Type of the queue pairs
    #[arg(short, long, value_name = "RC|UC|UD", default_value = "RC", value_parser = parse_type)]
    pub connection: QpType,
    /// Messages up to so many bytes are posted inline
    #[arg(
        short = 'I',
        long,
        visible_alias = "inline_size",
        value_name = "BYTES",
        default_value_t = 0
    )]
    pub inline_size: u32,
    /// Service level
    #[arg(short = 'S', long = "sl", value_name = "SL", default_value_t = 0, value_parser = clap::value_parser!(u8).range(..16))]
    pub service_level: u8,
}

/// What bandwidth benchmarks understand besides.
#[derive(Debug, Clone, Args)]
pub struct BandwidthOptions {
    #[command(flatten)]
    pub perf: PerfOptions,
    /// Queue pairs
    #[arg(short, long = "qp", value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=QPS_MAX as i64))]
    pub qps: u32,
    /// Requests that one queue pair may have outstanding. Default: 128, for READ 16
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 16))]
    pub tx_depth: Option<u32>,
    /// Receives that one queue pair has posted (send_bw)
    #[arg(short, long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=1 << 16))]
    pub rx_depth: u32,
    /// Both sides send
    #[arg(short, long)]
    pub bidirectional: bool,
    /// Every so many requests one that completes visibly
    #[arg(short = 'Q', long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    pub cq_mod: u32,
}

fn parse_mtu(text: &str) -> Result<Mtu, String> {
    Mtu::ALL
        .iter()
        .copied()
        .find(|mtu| text == mtu.bytes().to_string())
        .ok_or_else(|| "it is 256, 512, 1024, 2048 or 4096".into())
}

fn parse_type(text: &str) -> Result<QpType, String> {
    match text.to_ascii_uppercase().as_str() {
        "RC" => Ok(QpType::Rc),
        "UC" => Ok(QpType::Uc),
        "UD" => Ok(QpType::Ud),
        _ => Err("it is RC, UC or UD".into()),
    }
}

/// A type of queue pair, as in the options.
pub fn type_name(kind: QpType) -> &'static str {
    match kind {
        QpType::Rc => "RC",
        QpType::Uc => "UC",
        QpType::Ud => "UD",
        QpType::RawPacket => "RAW_PACKET",
        QpType::XrcInitiator => "XRC_SEND",
        QpType::XrcTarget => "XRC_RECV",
        QpType::DcInitiator => "DC_INI",
        QpType::DcTarget => "DC_TGT",
    }
}

impl PeerOptions {
    /// How long a question to a peer may take, with all repetitions.
    pub fn answer(&self) -> Duration {
        let acknowledge = match self.qp_timeout {
            0 => Duration::ZERO,
            n => Duration::from_nanos(4096 << n),
        };
        Duration::from_secs(10) + acknowledge * 16
    }

    /// The rate of each queue pair, if it has one.
    pub fn rate(&self) -> Option<RateLimit> {
        self.rate_limit.map(|mbits| RateLimit {
            rate: mbits.saturating_mul(1000),
            max_burst: self.burst_size.unwrap_or(0),
            typical_packet: 0,
        })
    }

    /// What of these options only works if the peer answers.
    pub fn needs_talk(&self, option: &str) -> Result {
        if self.exchange == Exchange::Stdio && self.loopback.is_none() {
            return Err(Failure::Usage(format!(
                "{option} needs an exchange over TCP or --loopback: over standard input the client does not hear from the \
                 server"
            )));
        }
        Ok(())
    }
}

impl PerfOptions {
    /// Checks what goes together.
    pub fn check(&self, allowed: &[QpType], tool: &str) -> Result {
        if !allowed.contains(&self.connection) {
            let names: Vec<_> = allowed.iter().map(|kind| type_name(*kind)).collect();
            return Err(Failure::Usage(format!(
                "{tool} goes over {}: {} has no such operation",
                names.join(" or "),
                type_name(self.connection)
            )));
        }
        if self.all {
            self.peer.needs_talk("-a")?;
        }
        if self.duration.is_some() {
            self.peer.needs_talk("-D")?;
        }
        Ok(())
    }
}

/// The own GID that was asked for, or else the first one of RoCE v2.
pub fn own_gid(context: &Context, index: Option<u16>) -> Result<GidEntry> {
    let gids = context.gids()?;
    let there: Vec<&GidEntry> = gids
        .iter()
        .filter(|g| g.kind != GidKind::None && g.gid != Gid::default())
        .collect();
    let found = match index {
        Some(index) => there.iter().find(|g| g.index == index),
        None => there
            .iter()
            .find(|g| g.kind == GidKind::RoceV2)
            .or_else(|| there.first()),
    };
    found.map(|g| **g).ok_or_else(|| {
        let there: Vec<String> = there.iter().map(|g| g.index.to_string()).collect();
        Failure::Usage(match index {
            Some(index) if !there.is_empty() => {
                format!(
                    "there is no GID at index {index}; there are: {} (show_gids lists them)",
                    there.join(", ")
                )
            }
            _ => "the device has no GID yet: is its Ethernet function up?".into(),
        })
    })
}

/// The path MTU of both: what was asked for, else what both ports can.
pub fn path_mtu(context: &Context, wanted: Option<Mtu>) -> Result<Mtu> {
    let port = context.query_port()?;
    match wanted {
        Some(mtu) if mtu > port.active_mtu() => Err(Failure::Usage(format!(
            "the port carries packets of {} bytes now, not of {} (-m): raise the adapter's MTU",
            port.active_mtu().bytes(),
            mtu.bytes()
        ))),
        Some(mtu) => Ok(mtu),
        None => Ok(port.active_mtu()),
    }
}

/// The MTU with so many bytes, or the next smaller one.
pub fn mtu_of(bytes: u32) -> Mtu {
    let fits = |mtu: &&Mtu| mtu.bytes() <= bytes;
    Mtu::ALL.iter().rev().find(fits).copied().unwrap_or(Mtu::Mtu256)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mtus_and_types() {
        assert_eq!(parse_mtu("1024"), Ok(Mtu::Mtu1024));
        assert!(parse_mtu("1500").is_err());
        assert_eq!(
            (mtu_of(1500), mtu_of(4096), mtu_of(9)),
            (Mtu::Mtu1024, Mtu::Mtu4096, Mtu::Mtu256)
        );
        assert_eq!(parse_type("uc"), Ok(QpType::Uc));
        assert!(parse_type("XRC").is_err());
    }
}
