//! The command line of `vnic-bench`.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;

use super::report::{Outcome, markdown};
use super::{BENCHES, Bench, Lab, OF_DAEMON, Run, costs, goals, torture};

/// Kinds of ports of `wire-write-bw` and `wire-loss`.
const UPLINKS: [&str; 3] = ["packet", "xdp", "mesh"];

const AFTER_HELP: &str = "\
Examples:
  vnic-bench list
  vnic-bench eth-drain
  vnic-bench eth-loop --rounds 31 --seconds 1 --json
  vnic-bench all --json                             lines for scripts, and a table for a README in vnic-bench.md
  vnic-bench all --markdown                         the table alone
  vnic-bench eth-drain --vnicd target/release/vnicd the daemon as its own process
  vnic-bench eth-loop --realtime                    on a machine with other work
  vnic-bench cm --rounds 3 --connections 1000       connections, by communication management

How it measures: product and peer take turns, round by round, on the same CPUs, each with a sender of the same kind;
those whose turn it is not are stopped, and whoever goes first in one round goes second in the next. Rates are
differences of the receiving side's counters over --seconds, after a warm-up. Shown are median, least and most over the
rounds; the ratio is taken within each round. Beside a figure is its goal, if it has one, and whether it is met.

all: every bench, one after the other; one that fails or cannot run here does not keep the others from it, and the
table says why it is missing. With --rounds 5 --seconds 0.3 that takes about 7 minutes.

bare ring exchange: two threads on the same two CPUs hand each other 8-byte entries in batches of 32 through two
rings of 256, no device and no frames. Virtual CPUs may be near or far from each other: compare figures only with
figures of a similar bare exchange.

eth-drain: a DPDK guest (virtio_user, txonly) sends 64-byte frames into one adapter; the switch looks each one up,
finds no receiver, counts and drops it. Peer: testpmd with a vhost port, rxonly.

eth-loop: a DPDK guest with two ports (virtio_user, io) sends each frame that comes from one adapter into the other,
for ever, starting with 192 frames a port (`start tx_first 6`). io forwarding leaves addresses alone: with anti-spoofing
off, the frames' destination is unknown to the switch, which floods each to the other adapter. With --unicast they
carry the other guest's address and are looked up instead. Both directions are added. Peer: testpmd, io between two
vhost ports.

eth-drain-packed, eth-loop-packed: the same with packed rings at both devices (virtio_user's packed_vq=1), without and with
IN_ORDER. (virtio_user's split rings are in order.)

eth-qos: eth-loop with classification by DSCP, two ETS classes and a limit for each of them at both adapters; nothing is
held up. Same peer.

qos: known mixes through a port with a limited rate, and what each stream gets: at least a second, after 0.3 s, in at most 3
rounds. Sources are a DPDK guest (rows -dpdk) or guests in this process, all on one CPU with the one that receives; frames are
of 1514 bytes unless the row says otherwise, because two CPUs can do 10 Gb/s of those (0.8 million a second). Rates are of bytes
on the wire: preamble, FCS and gap included. The error is that of the worst round, the jitter the standard deviation of windows
of 10 ms. Rows whose error is above 2 % say MISSED. incast counts frames: sent and received, lossless and lossy.

eth-latency: one thread drives two guests in this process and times each frame from send to receive; 20,000 frames
with the NIC awake, 200 after pauses of 2 ms, in which its poll loop falls asleep.

eth-strides: 64-byte frames between two guests of this process, driven by one thread. The receiver has 1 MiB of buffers: 16 of
64 KiB without MRG_RXBUF, of which each takes one frame, and in the other half of the rounds 1,024 of 1 KiB with it. Two busy CPUs.

eth-rsc: TCP of iperf3 from a network namespace over a veth pair whose sending end does not segment, into a NIC in this process (port
of AF_PACKET), and by a driver in this process and a TAP device with virtio headers into the kernel of a second namespace, which is the
guest's. Four streams of a second at least with *RscIPv4 1, and the same with 0: the guest's driver then takes no long frames. Details: TCP packets
of a coalesced frame.

idle: CPU time of all threads of the daemon while everything is attached and silent: Ethernet drivers alone at 2 and at 64
adapters, and those of 64 with an RDMA driver each, its queue pairs connected, and a team of two ports over virtual wires.

scale: the engine's objects alone, made and used in this process; what it grows by, divided by how many there are.

rdma-write-bw, rdma-read-bw, rdma-send-bw, rdma-msg-rate, rdma-write-lat: one thread of this process drives two adapters
through the verbs library, MTU 9000. Peers: memcpy of as many bytes on the NIC's CPU; the rings of the contract between the
same two CPUs without any RDMA: the device copies each request and completes it. rdma-write-lat has rows with the NIC awake (50,000 ping-pongs a round) and woken:
1,000 single WRITEs, each after a millisecond in which the NIC has fallen asleep.

wire-write-bw: two hosts are network namespaces with a veth pair between them; each has a daemon (--vnicd, or the vnicd beside this
program; where there is none, a NIC in this process) with one adapter and a port over its end of the pair, on a CPU of its own.
One thread of this process posts and sleeps until something completes. Each packet has its ICRC, made and checked; what was written is compared at the end of each round.
Peer: one TCP stream of iperf3 over the same pair, with all that the kernel offloads there (segmentation: 64 KiB at once), for a
second at least. With --uplink mesh the ports are of type mesh: QUIC and encryption over the pair. Daemons run only in their own turns. With --ports 2 both hosts have two wires and a team of both ports, and there
are 8 queue pairs; the peer is a stream by each wire. Each daemon still has one data core. With --ipv4 the adapters are given
IPv4 addresses as GIDs; with a daemon that takes the vnicctl beside it.

wire-loss: the same two hosts, one queue pair, MTU 9000: goodput while a fault rule at each of them drops 0, 0.01, 0.1 and 1 % of the
frames that come. WRITEs and READs with go-back-N, selective repeat, and selective repeat over 4 and 16 ways. The
peer of a row is the same row with a rule that drops nothing, in the same round; that row's peer is no rule, so that its ratio is
what a rule costs by itself. Details: frames lost, packets sent again one by one, and timeouts, at both hosts over all rounds. Zero
touch RoCE is as adapters come.

rdma-scale: 64 drivers in this process make and connect 131,072 queue pairs; the daemon's own memory and the time of a
scrape.

cm: one thread drives two functions, between two adapters of a daemon and then between two daemons as in wire-write-bw, at most 5
rounds. cm-rate: --connections are made at once, 256 under way: REQ, REP and RTU, and both queue pairs brought from INIT to RTS by
the driver; the queue pairs are made before. Each is then used for a WRITE of 8 B, which is compared, and disconnected; the details
have the seconds of the parts. When all is destroyed and nothing is under way any more, both devices must have as many objects of each
kind as before, or the bench fails. cm-time: 1,000 connections one after the other, from the call until both ends are connected.

sim: the network simulator on one CPU, engines in all hosts, DCQCN, each data packet acknowledged: eight senders and a
receiver at one switch for 50 ms of virtual time, and a permutation of 2 MB on a fat tree of 320 hosts. At most 5 rounds;
--seconds does not count. Figures of other simulators are in the notes: they are published ones and not run here.

scrape: 64 adapters, the traffic of eth-loop through two of them, with and without somebody who reads all metrics once a
second, in turns of a second or --seconds, whatever is longer. The rate is what the guest counts.

fairness: one thread drives all: drivers whose rings are always full, of 64 and 1514 byte frames (buffers are given back as
they are), of 64 KiB and 8 B WRITEs, and beside them a pair of adapters that sends one frame of 64 bytes, or one WRITE of 8,
at a time: its round trips, halved, beside each load and alone. Shares: what each of two loads keeps beside the other, of what it
has alone; 0.5 each is the NIC's time shared evenly, more where it waits for the drivers. Jain's index: of four equal senders.

hostile: an honest pair on the data core of an attacker's pair; one thread drives all, and keeps the attack going meanwhile, as
fairness does. rate: 64-byte frames, or 8-byte WRITEs, with full rings. tail: the 99.9th percentile of one way, one at a time. Peer: in
the same round beside an honest pair at full blast, 64-byte frames or 64 KiB WRITEs, whichever leaves less; what the pair has alone
stands beside it. All attacks take turns within a round; no round is begun that would end after --minutes. Attacks that wait for
the daemon or reach everybody are of torture alone.

uml-ping: ping from one User-Mode-Linux guest to another, 2,000 a measurement, each answer's time as ping prints it, in at most
5 rounds. Frames are of 64 bytes (18 of payload). The guests share one CPU, the device has the other. uml-ping: each ping as soon
as the last is answered, with a NIC that goes on polling for 20 ms (idle_spin_us); uml-ping-idle: one every 3 ms, with the usual
50 us, so that the NIC sleeps before each. Peer: the same guests at two vhost ports of testpmd (io), which polls for ever: what it
takes is the guests' kernels. (Kept from the guests are its offers of a control queue, which it does not serve, and of packed
rings, which User-Mode-Linux does not start right.) The guests' image is made by deploy/guest/build in the checkout;
VNIC_LAB_DIR moves it.

vm: stock ib_write_bw and ib_write_lat (perftest) in a QEMU virtual machine of two CPUs, emulated where there is no KVM; both
ends are in it. Ours: `vnic-verbs run -- ib_write_bw -s 65536 -D 2`, the server on the function of vf0 and the client on that of vf1
of a daemon. Peer: the same programs with the same options on the Soft-RoCE of that machine's kernel. Bandwidth is what perftest
prints as the average, in 10^6 bytes a second; latency its median of 5,000, one way. At most 5 rounds, about 20 s each, after half a
minute to boot. QEMU and the image come by deploy/guest/qemu11 and deploy/guest/build --verbs when they are not there (VNIC_LAB_DIR
moves them); without them the bench says why and ends with 3. The daemon's other programs must be beside it:
  cargo build --locked --release -p vnic-appliance -p vnic-guest -p vnic-verbs-preload
  vnic-bench vm --rounds 3
tests/verbs/compare vm is what measures, and knows more sizes.

soak: a daemon with four adapters for --minutes: frames, WRITE, READ and SEND between two of them, some ten times a second;
each time two queue pairs with completion queues and regions come and go; each second a guest, an RDMA driver and scrapes;
every 10 s fault rules, a capture whose client dies, an adapter. It sleeps in between and takes a few per cent of a CPU. Looked at
every 100 turns, when none of these is there: anonymous, private and all resident memory, threads, open files. --out DIR keeps
the curve as soak.json and soak.svg. The growth is that between the halves of the time after its first sixth (medians); judge it
from 30 minutes on: `all` leaves out a shorter one. A signal ends it early, with its figures. --pace: turns a second; with 100 six
minutes see what comes and goes in an hour.

torture (no figures; not part of all): honest guests of Ethernet and RDMA whose every byte is compared, attackers (--only NAME: this
one alone) and operators at one daemon, which is killed every 10 s and started again, for --minutes. A line for each daemon says
what was begun, arrived, and was lost with a daemon. Exit code 1, the cause and a command that does it again (--seed) when
something is wrong: bytes, order, loss without a crash, traffic that stands still, /livez, a daemon that ends by itself, memory,
descriptors, threads or files that grow from daemon to daemon, a setting or adapter that a crash has taken.

restart: two guests in this process exchange frames; the daemon is killed and started again, the guests reconnect.

costs: instructions of a frame, a packet and a work request, counted by callgrind while guests and core take turns round by
round, so that each run counts the same. Beside them what tests/costs.toml has (--costs FILE); the bench fails when one
differs by more than 3 %, also downwards: --record writes what was counted into the file. With another compiler than the
recorded one it is not judged (exit code 3).

Rights: root, for the huge pages of DPDK (more are taken when too few are free, and given back at the end).

Exit codes: 0 measured; 1 something failed; 2 the command line is wrong; 3 cannot be measured here (the reason is on
standard error).";

/// Benches of the NIC against its peers.
#[derive(Debug, Parser)]
#[command(name = "vnic-bench", version, after_help = AFTER_HELP, max_term_width = 114)]
struct Args {
    /// Which bench; `list` shows them, `all` runs all
    name: String,

    /// Length of each measurement
    #[arg(long, value_name = "S", default_value = "0.5", value_parser = seconds)]
    seconds: Duration,

    /// Measurements of each side
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,

    /// Print one line of JSON for each figure
    #[arg(long, conflicts_with = "markdown")]
    json: bool,

    /// Print a Markdown table
    #[arg(long)]
    markdown: bool,

    /// Write the Markdown table to this file; `all --json` writes it to vnic-bench.md
    #[arg(long, value_name = "FILE")]
    table: Option<PathBuf>,

    /// The receiving side's CPU and the sending side's
    #[arg(long, value_name = "A,B", default_value = "0,1", value_parser = two_cpus)]
    cpus: Cpus,

    /// Measure this daemon instead of a NIC in the bench's own process. Benches of the daemon itself (idle, wire-write-bw,
    /// wire-loss, rdma-scale, cm, scrape, restart, vm, soak) need none when there is a vnicd beside this program
    #[arg(long, value_name = "PATH")]
    vnicd: Option<PathBuf>,

    /// The peer's and the guests' program
    #[arg(long, value_name = "PATH", default_value = "dpdk-testpmd")]
    testpmd: PathBuf,

    /// eth-loop: frames carry the other guest's address
    #[arg(long)]
    unicast: bool,

    /// Give the polling threads real-time priority while measuring: other programs stand still meanwhile
    #[arg(long)]
    realtime: bool,

    /// wire-write-bw, wire-loss: kind of the ports
    #[arg(long, value_name = "KIND", default_value = "packet", value_parser = UPLINKS)]
    uplink: String,

    /// wire-write-bw, wire-loss: MTU of the devices, adapters and ports, instead of 1500 and then 9000, or 9000
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(600..=9000))]
    mtu: Option<u16>,

    /// wire-write-bw: ports of each host; two are a team
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    ports: u8,

    /// soak, torture: how long [default: 1, torture 2]; hostile: how long at most [default: 6]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    minutes: Option<u16>,

    /// torture: of what is done by chance [default: another one each time]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// soak: turns a second
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pace: u16,

    /// Directory for files that are to be kept, such as the curves of soak
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// wire-write-bw: packets of RoCE over IPv4 instead of IPv6
    #[arg(long)]
    ipv4: bool,

    /// cm: connections that are made at once
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    connections: u32,

    /// costs: the file of what is recorded
    #[arg(long, value_name = "FILE", default_value = "tests/costs.toml")]
    costs: PathBuf,

    /// costs: write that file
    #[arg(long)]
    record: bool,

    /// Only rows of qos or wire-loss whose name has this in it; torture, hostile: this attack alone
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
}

/// A shorter soak sees caches fill.
const JUDGED_FROM_MINUTES: u16 = 30;

#[derive(Debug, Clone, Copy)]
struct Cpus([usize; 2]);

fn seconds(text: &str) -> Result<Duration, String> {
    let s: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    if (0.05..=3600.0).contains(&s) {
        Ok(Duration::from_secs_f64(s))
    } else {
        Err("0.05 to 3600 is allowed".into())
    }
}

fn two_cpus(text: &str) -> Result<Cpus, String> {
    let wrong = || format!("{text:?}: two CPU numbers such as 0,1 are wanted");
    let (a, b) = text.split_once(',').ok_or_else(wrong)?;
    let cpus = [a.parse().map_err(|_| wrong())?, b.parse().map_err(|_| wrong())?];
    if cpus[0] == cpus[1] {
        Err("two different CPUs are wanted".into())
    } else {
        Ok(Cpus(cpus))
    }
}

/// Runs the command line.
pub fn main() -> ExitCode {
    if let Some(code) = torture::attacker() {
        return code;
    }
    match run(&Args::parse()) {
        Ok(code) => code,
        Err(e) => {
            eprintln!("vnic-bench: {e:#}");
            ExitCode::from(1)
        }
    }
}

fn run(args: &Args) -> Result<ExitCode> {
    if args.name == "list" {
        for b in BENCHES {
            println!("{:<12} {}", b.name, b.summary);
        }
        return Ok(ExitCode::SUCCESS);
    }
    if args.name == costs::CASES {
        costs::within(&lab(args)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.name == "torture" {
        let mut lab = lab(args)?;
        lab.vnicd = args.vnicd.clone().or_else(beside);
        let wishes = torture::Wishes {
            minutes: args.minutes.unwrap_or(2),
            seed: args.seed.unwrap_or_else(torture::seed),
            json: args.json,
            only: args.only.as_deref(),
        };
        return torture::run(&lab, &wishes);
    }
    let (all, begun) = (args.name == "all", Instant::now());
    let chosen: Vec<&Bench> = BENCHES.iter().filter(|b| all || b.name == args.name).collect();
    if chosen.is_empty() {
        let names: Vec<&str> = BENCHES.iter().map(|b| b.name).collect();
        eprintln!(
            "vnic-bench: no bench is named {:?}; there are: {}, all, list",
            args.name,
            names.join(", ")
        );
        return Ok(ExitCode::from(2));
    }
    let mut lab = lab(args)?;
    let daemon = args.vnicd.clone().or_else(beside);
    let table = table_file(args);
    let (mut outcomes, mut without, mut failed) = (Vec::new(), Vec::new(), 0);
    for (i, bench) in chosen.iter().enumerate() {
        if all {
            let begun = begun.elapsed().as_secs();
            eprintln!(
                "vnic-bench: bench {} of {}, after {} min {} s: {}",
                i + 1,
                chosen.len(),
                begun / 60,
                begun % 60,
                bench.name
            );
        }
        if all && bench.name == "soak" && args.minutes.unwrap_or(1) < JUDGED_FROM_MINUTES {
            let why = format!("growth says something from --minutes {JUDGED_FROM_MINUTES} on");
            note_skip(bench.name, &why)?;
            without.push(format!("{}: skipped: {why}", bench.name));
            continue;
        }
        lab.vnicd = if OF_DAEMON.contains(&bench.name) {
            daemon.clone()
        } else {
            args.vnicd.clone()
        };
        match (bench.run)(&lab) {
            Ok(Run::Measured(figures)) => {
                if !args.markdown {
                    show(&figures, args.json)?;
                }
                outcomes.extend(figures);
            }
            Ok(Run::Skipped(why)) => {
                eprintln!("{}: skipped: {why}", bench.name);
                note_skip(bench.name, &why)?;
                without.push(format!("{}: skipped: {}", bench.name, first_line(&why)));
            }
            Err(e) if all => {
                failed += 1;
                eprintln!("{}: failed: {e:#}", bench.name);
                without.push(format!(
                    "{}: failed: {}",
                    bench.name,
                    first_line(&format!("{e:#}"))
                ));
                if lab.interrupted() {
                    break;
                }
            }
            Err(e) => return Err(e.context(bench.name)),
        }
    }
    let text = markdown(&outcomes, &without);
    if args.markdown {
        print!("{text}");
    }
    if let Some(file) = table {
        std::fs::write(&file, text).with_context(|| format!("writing {}", file.display()))?;
        eprintln!("vnic-bench: the table is in {}", file.display());
    }
    Ok(match (failed, without.is_empty(), outcomes.is_empty()) {
        (1.., ..) => ExitCode::from(1),
        (0, false, true) => ExitCode::from(3),
        _ => ExitCode::SUCCESS,
    })
}

/// The daemon beside this program, where a build leaves both.
fn beside() -> Option<PathBuf> {
    let daemon = std::env::current_exe().ok()?.with_file_name("vnicd");
    daemon.is_file().then_some(daemon)
}

/// Where a table goes.
fn table_file(args: &Args) -> Option<PathBuf> {
    let usual = args.name == "all" && args.json;
    args.table
        .clone()
        .or_else(|| usual.then(|| "vnic-bench.md".into()))
}

fn first_line(text: &str) -> &str {
    text.lines()
        .next()
        .unwrap_or_default()
        .trim_end_matches(['.', ':'])
}

/// Tells tests/run.
fn note_skip(name: &str, why: &str) -> Result<()> {
    if let Some(log) = std::env::var_os("VNIC_SKIP_LOG") {
        let mut log = std::fs::OpenOptions::new().append(true).create(true).open(log)?;
        writeln!(log, "{name}: {}", first_line(why))?;
    }
    Ok(())
}

fn show(figures: &[Outcome], json: bool) -> Result<()> {
    let mut out = std::io::stdout().lock();
    for f in figures {
        let verdicts = goals::verdicts(f, figures);
        if json {
            let mut line = f.json();
            line["goals"] = goals::json(&verdicts);
            writeln!(out, "{line}")?
        } else {
            write!(out, "{}", f.text())?;
            if !verdicts.is_empty() {
                writeln!(
                    out,
                    "  {:<22} {}",
                    "goal",
                    goals::cell(&verdicts).replace("**", "")
                )?
            }
        }
    }
    Ok(out.flush()?)
}

fn lab(args: &Args) -> Result<Lab> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // The first signal ends the bench in order; the second one ends it at once.
        signal_hook::flag::register_conditional_shutdown(signal, 1, interrupted.clone())?;
        signal_hook::flag::register(signal, interrupted.clone())?;
    }
    if let Some(path) = &args.vnicd {
        ensure!(path.is_file(), "--vnicd {}: no such file", path.display());
    }
    let allowed = rustix::thread::sched_getaffinity(None).context("asking for the allowed CPUs")?;
    for cpu in args.cpus.0 {
        ensure!(
            cpu < rustix::thread::CpuSet::MAX_CPU && allowed.is_set(cpu),
            "--cpus: CPU {cpu} may not be used"
        );
    }
    Ok(Lab {
        window: args.seconds,
        rounds: usize::from(args.rounds),
        cpus: args.cpus.0,
        vnicd: args.vnicd.clone(),
        testpmd: args.testpmd.clone(),
        unicast: args.unicast,
        realtime: args.realtime,
        only: args.only.clone(),
        uplink: UPLINKS
            .into_iter()
            .find(|kind| *kind == args.uplink)
            .context("no such kind of port")?,
        mtu: args.mtu,
        ports: args.ports,
        minutes: args.minutes,
        pace: args.pace,
        out: args.out.clone(),
        ipv4: args.ipv4,
        connections: args.connections as usize,
        costs: args.costs.clone(),
        record: args.record,
        interrupted,
        dir: tempfile::Builder::new().prefix("vnic-bench-").tempdir()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_sound() {
        Args::command().debug_assert();
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(seconds("0").is_err());
        assert!(seconds("x").is_err());
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        assert!(two_cpus("0").is_err());
        assert!(two_cpus("1,1").is_err());
        assert_eq!(two_cpus("3,1").map(|c| c.0), Ok([3, 1]));
    }

    #[test]
    fn the_table_of_all_has_a_usual_place() {
        let table = |words: &[&str]| {
            let args = Args::try_parse_from([&["vnic-bench"], words].concat()).expect("sound");
            table_file(&args)
        };
        assert_eq!(table(&["all", "--json"]), Some("vnic-bench.md".into()));
        assert_eq!(table(&["all", "--json", "--table", "t"]), Some("t".into()));
        assert_eq!(table(&["eth-loop", "--table", "t"]), Some("t".into()));
        assert_eq!(table(&["all"]), None);
        assert_eq!(table(&["eth-loop", "--json"]), None);
    }

    #[test]
    fn benches_of_the_daemon_are_benches() {
        for name in OF_DAEMON {
            assert!(BENCHES.iter().any(|b| b.name == *name), "{name}");
        }
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<&str> = BENCHES.iter().map(|b| b.name).chain(["all", "list"]).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), BENCHES.len() + 2);
    }
}
