//! The command line of `vnicd`.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process;
use std::time::Duration;

use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::Receiver;

use super::{Daemon, StartError, descriptors, placement, sandbox};
use crate::check::{self, ControlListen};
use crate::config::{Environment, Overrides, Settings, Simple, Uplink};
use crate::logging::{self, LogFormat};
use crate::panics::{self, Notice};
use crate::traces::Collector;
use crate::{private, systemd};

/// Exit codes of `vnicd`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ExitCode {
    /// The daemon was ended by SIGTERM or SIGINT, or the configuration is valid.
    Ok = 0,
    /// The operating system or the NIC refused something.
    Failed = 1,
    /// The command line or the configuration is wrong.
    Usage = 2,
    /// Another daemon uses the state directory.
    InUse = 3,
}

impl From<ExitCode> for process::ExitCode {
    fn from(code: ExitCode) -> process::ExitCode {
        process::ExitCode::from(code as u8)
    }
}

/// Configuration file of a daemon whose command line names none and no adapters and ports.
const DEFAULT_CONFIG: &str = "/etc/vnic/vnicd.toml";

const AFTER_HELP: &str = "\
Examples:
  vnicd                                       (with /etc/vnic/vnicd.toml)
  vnicd --config /etc/vnic/vnicd.toml
  vnicd --check-config /etc/vnic/vnicd.toml
  vnicd --socket-dir /tmp/nic --adapters 2 --metrics 127.0.0.1:0
  vnicd --adapters 2 --tap p0=tap0            (needs CAP_NET_ADMIN for the TAP device)
  vnicd --adapters 2 --packet p0=veth0        (needs CAP_NET_RAW)
  vnicd --adapters 2 --xdp p0=eth1            (needs CAP_NET_ADMIN, CAP_BPF and CAP_NET_RAW)

When all sockets listen, one line with the word `ready` goes to standard output; it names the control socket \
and the metrics URL. Logs go to standard error; VNIC_LOG=debug shows more, and so does, \
until the daemon ends, `vnicctl server log-level debug`. SIGTERM and SIGINT end the daemon; SIGHUP makes it read \
the configuration file again, and certificates and lists of revoked ones, as `vnicctl server reload` does: ports, teams, \
adapters, multicast groups, fault rules and [access] act at once, other keys from the next start on, and a wrong file changes nothing. Connections \
for which roles and certificates do not hold any more end.

Adapters and ports made at run time (vnicctl, gRPC), settings and NV configuration are stored in state.redb in the state \
directory and are there again after a restart.

Rights: none are needed but for TAP ports (CAP_NET_ADMIN, or a TAP device made beforehand for this user) and \
for the directories of the sockets and the state. Once started, the daemon writes files nowhere else (Landlock) and starts \
no program (seccomp), as far as the kernel allows it.

Exit codes: 0 ended by a signal, or the configuration is valid; 1 the operating system or the NIC refused \
something; 2 the command line or the configuration is wrong; 3 the state directory is used by another vnicd.";

/// The NIC daemon: virtual NICs for virtual machines over vhost-user, on an embedded switch.
// Wide: a field for each option.
#[derive(Debug, Parser)]
#[command(name = "vnicd", version, after_help = AFTER_HELP, max_term_width = 110)]
pub struct Args {
    /// Read the configuration from FILE; other options override what it says [default: /etc/vnic/vnicd.toml, if there is
    /// no --adapters, --tap, --packet or --xdp]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["adapters", "tap", "packet", "xdp"])]
    config: Option<PathBuf>,

    /// Check the configuration in FILE and the certificates that it names, report everything that is wrong, and end
    #[arg(long, value_name = "FILE", conflicts_with_all = ["config", "adapters", "tap", "packet", "xdp"])]
    check_config: Option<PathBuf>,

    /// Directory of the sockets [default: $RUNTIME_DIRECTORY; /run/vnic as root; else $XDG_RUNTIME_DIR/vnic]
    #[arg(long, value_name = "DIR")]
    socket_dir: Option<PathBuf>,

    /// Make N adapters vf0, vf1, … with sockets DIR/vfK-eth.sock
    #[arg(long, value_name = "N")]
    adapters: Option<usize>,

    /// Queue pairs of each adapter, 1 to 16 (User-Mode-Linux works with 1 only)
    #[arg(long, value_name = "N", default_value_t = check::QUEUE_PAIRS_DEFAULT, value_parser = parse_queue_pairs,
          requires = "adapters")]
    queue_pairs: u16,

    /// CPUs with a poll loop, such as 2,4-6 [default: the last CPU]
    #[arg(long, value_name = "LIST", value_parser = parse_cores)]
    data_cores: Option<Cores>,

    /// Directory of the daemon's files [default: $STATE_DIRECTORY; /var/lib/vnic for sockets in /run/vnic as root;
    /// else the directory `state` beside the sockets]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,

    /// Serve Prometheus metrics, /livez and /readyz here; port 0 takes a free one, `off` none [default:
    /// 127.0.0.1:9400]
    #[arg(long, value_name = "ADDR:PORT", value_parser = parse_metrics)]
    metrics: Option<Metrics>,

    /// Send traces of gRPC requests to this collector of OpenTelemetry, by OTLP/HTTP: http://127.0.0.1:4318 [default: off]
    #[arg(long, value_name = "URL", value_parser = parse_collector)]
    otlp: Option<Traces>,

    /// Listen for gRPC here: unix:PATH instead of DIR/control.sock, or tcp:ADDR:PORT besides it (takes [control.tls]
    /// in the configuration file)
    #[arg(long, value_name = "ADDR", value_parser = check::control_listen)]
    control: Vec<ControlListen>,

    /// Make an uplink port over a TAP device (needs CAP_NET_ADMIN)
    #[arg(long, value_name = "PORTNAME=IFNAME")]
    tap: Vec<Uplink>,

    /// Make an uplink port over a network device of the host, such as one end of a veth pair (needs CAP_NET_RAW)
    #[arg(long, value_name = "PORTNAME=IFNAME")]
    packet: Vec<Uplink>,

    /// Make an uplink port over a network device of the host, past the kernel's network stack (AF_XDP; needs
    /// CAP_NET_ADMIN, CAP_BPF and CAP_NET_RAW)
    #[arg(long, value_name = "PORTNAME=IFNAME")]
    xdp: Vec<Uplink>,

    /// Keep a damaged state.redb under another name and begin with defaults, instead of refusing to start
    #[arg(long)]
    reset_damaged_state: bool,

    /// Do without Landlock and seccomp, for instance to trace the daemon or to debug it
    #[arg(long)]
    no_sandbox: bool,

    /// How log lines look
    #[arg(long, value_name = "FORMAT", default_value = "human")]
    log_format: LogFormat,
}

// clap interprets `Option<Vec<_>>` and `Option<Option<_>>` in its own way: hence these wrappers.
#[derive(Debug, Clone)]
struct Cores(Vec<usize>);
#[derive(Debug, Clone)]
struct Metrics(Option<SocketAddr>);
#[derive(Debug, Clone)]
struct Traces(Option<Collector>);

fn parse_queue_pairs(text: &str) -> Result<u16, String> {
    let number = text.parse().map_err(|_| format!("{text:?} is not a number"))?;
    check::queue_pairs(number)
}

fn parse_cores(text: &str) -> Result<Cores, String> {
    check::cpu_list(text).map(Cores)
}

fn parse_metrics(text: &str) -> Result<Metrics, String> {
    check::metrics_listen(text).map(Metrics)
}

fn parse_collector(text: &str) -> Result<Traces, String> {
    check::collector(text).map(Traces)
}

impl Args {
    fn overrides(&self) -> Overrides {
        Overrides {
            socket_dir: self.socket_dir.clone(),
            state_dir: self.state_dir.clone(),
            data_cores: self.data_cores.as_ref().map(|c| c.0.clone()),
            metrics: self.metrics.as_ref().map(|m| m.0),
            control: self.control.clone(),
            traces: self.otlp.as_ref().map(|t| t.0.clone()),
            reset_damaged_state: self.reset_damaged_state,
        }
    }

    /// Settings of the options, or of a default file if they do not say what there shall be; the error has all problems.
    fn settings(&self, environment: &Environment, default: &Path) -> Result<Settings, String> {
        let overrides = self.overrides();
        let named = self.check_config.as_deref().or(self.config.as_deref());
        let says =
            self.adapters.is_some() || [&self.tap, &self.packet, &self.xdp].iter().any(|u| !u.is_empty());
        if named.is_none() && !says && !default.exists() {
            return Err(format!(
                "vnicd: there is no {}: name a file with --config, or say with --adapters, --tap, --packet or --xdp what \
                 there shall be (--help has examples)",
                default.display()
            ));
        }
        match named.or((!says).then_some(default)) {
            Some(file) => Settings::from_file(file, &overrides, environment).map_err(|all| all.to_string()),
            None => {
                let simple = Simple {
                    adapters: self.adapters.unwrap_or(0),
                    queue_pairs: self.queue_pairs,
                    taps: self.tap.clone(),
                    packets: self.packet.clone(),
                    xdps: self.xdp.clone(),
                };
                Settings::from_command_line(&simple, &overrides, environment)
                    .map_err(|e| format!("vnicd: {e}"))
            }
        }
    }
}

/// Runs `vnicd`, from its command line to its exit code.
pub fn run(args: &Args) -> ExitCode {
    let environment = Environment::current();
    let mut settings = match args.settings(&environment, Path::new(DEFAULT_CONFIG)) {
        Ok(settings) => settings,
        Err(message) => {
            logging::say(message);
            return ExitCode::Usage;
        }
    };
    if let Some(file) = &args.check_config {
        let wrong = super::check_files(&settings);
        if !wrong.is_empty() {
            wrong
                .iter()
                .for_each(|e| logging::say(format_args!("{}: {e}", file.display())));
            return ExitCode::Usage;
        }
        let faults = match settings.faults.len() + settings.verbs_faults.len() {
            0 => String::new(),
            n => format!(", {}", super::count(n, "fault")),
        };
        let teams = match settings.teams.len() {
            0 => String::new(),
            n => format!(", {}", super::count(n, "team")),
        };
        let adapters = super::count(settings.adapters.len(), "adapter");
        let ports = super::count(settings.ports.len(), "port");
        // The exit code tells it as well, so that a closed standard output is no error.
        let _ = writeln!(
            io::stdout(),
            "{}: valid: {adapters}, {ports}{teams}{faults}",
            file.display()
        );
        return ExitCode::Ok;
    }
    vnic_backend::heap::keep_small();
    logging::start(args.log_format);
    let panics = panics::watch();
    if let Err(error) = private::keep_guests_out_of_core_dumps() {
        tracing::warn!("core dumps of this process may have memory of guests: {error}");
    }
    placement::leave_data_cores(&environment.cpus, &settings.nic.data_cores);
    if args.no_sandbox {
        settings.nic.confine = false;
    } else {
        // Before there is another thread. (The caller may have a filter that allows none of these calls, as a unit of an
        // older version has.)
        let without = |what: &str, error: String| {
            tracing::warn!("without limits on {what} (--no-sandbox says that this is wanted): {error}");
        };
        if let Err(error) = sandbox::files(&settings) {
            without("files", error);
        }
        if let Err(error) = sandbox::forbid() {
            without("system calls", error);
            settings.nic.confine = false;
        }
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("control")
        .enable_all()
        .build();
    let result = match runtime {
        Ok(runtime) => {
            let result = runtime.block_on(serve(settings, panics));
            // A blocked call of the NIC must not keep the process from ending.
            runtime.shutdown_timeout(Duration::from_secs(1));
            result
        }
        Err(source) => Err(StartError::Os {
            what: "cannot start threads".to_owned(),
            source,
        }),
    };
    match result {
        Ok(()) => ExitCode::Ok,
        Err(error) => {
            logging::say(format_args!("vnicd: {error}"));
            match error {
                StartError::InUse { .. } => ExitCode::InUse,
                _ => ExitCode::Failed,
            }
        }
    }
}

/// Runs the daemon until a signal ends it.
async fn serve(settings: Settings, mut panics: Receiver<Notice>) -> Result<(), StartError> {
    // Before the start, so that no signal is missed.
    let mut terminate = signal(SignalKind::terminate()).map_err(super::os("cannot catch SIGTERM"))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(super::os("cannot catch SIGINT"))?;
    let mut hangup = signal(SignalKind::hangup()).map_err(super::os("cannot catch SIGHUP"))?;

    descriptors::raise_limit().map_err(super::os("cannot raise the limit of open files"))?;
    let daemon = Daemon::start(settings).await?;
    let line = daemon.ready_line();
    // Standard output may be closed, which is no error.
    let mut out = io::stdout();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
    systemd::ready(&line);
    daemon.control().pulse.ping_systemd();

    let name = loop {
        tokio::select! {
            _ = terminate.recv() => break "SIGTERM",
            _ = interrupt.recv() => break "SIGINT",
            _ = hangup.recv() => daemon.reload().await,
            Some(notice) = panics.recv() => daemon.heed(notice).await,
        }
    };
    tracing::info!("{name}: ending");
    systemd::stopping();
    daemon.shutdown().await;
    tracing::info!("ended");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_arguments_the_default_file_is_read() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("vnicd.toml");
        let environment = Environment::current();
        let settings = |words: &[&str]| {
            let sockets = ["vnicd", "--socket-dir", "/tmp"];
            let args = Args::try_parse_from(sockets.iter().chain(words)).expect("arguments");
            args.settings(&environment, &file)
        };
        let names = |words: &[&str]| {
            let settings = settings(words).expect("settings");
            let names = settings.adapters.iter().map(|a| a.name.clone());
            (settings.config_file.clone(), names.collect::<Vec<_>>())
        };
        let error = settings(&[]).expect_err("no file");
        assert!(
            error.contains("there is no") && error.contains("--config"),
            "{error}"
        );
        assert_eq!(names(&["--adapters", "1"]), (None, vec!["vf0".to_owned()]));
        std::fs::write(&file, "[[adapter]]\nname = \"blue\"\n").expect("a file");
        assert_eq!(names(&[]), (Some(file.clone()), vec!["blue".to_owned()]));
        assert_eq!(names(&["--adapters", "1"]), (None, vec!["vf0".to_owned()]));
        assert!(Args::try_parse_from(["vnicd", "--queue-pairs", "2"]).is_err());
    }
}
