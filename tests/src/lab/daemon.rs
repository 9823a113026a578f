//! The daemon under test, and its command line.

use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;
use serde_json::Value;

use super::process::Process;
use super::{Lab, PATIENCE, output, wait_for};

/// A running `vnicd`.
#[derive(Debug)]
pub struct Daemon<'a> {
    lab: &'a Lab,
    command: Vec<String>,
    process: Process,
    endpoint: String,
    inside: Vec<String>,
}

impl<'a> Daemon<'a> {
    /// Starts it with the adapters and ports of a configuration file (TOML), and waits until it is ready.
    pub fn with_config(lab: &'a Lab, config: &str) -> Result<Daemon<'a>> {
        Daemon::start(lab, &config_arguments(lab, config)?, &[])
    }

    /// Starts it with adapters `vf0`…, and waits until it is ready.
    pub fn with_adapters(lab: &'a Lab, adapters: u16, more: &[&str]) -> Result<Daemon<'a>> {
        Daemon::start(lab, &adapter_arguments(adapters, more), &[])
    }

    /// As [`Daemon::with_config`], in a network namespace of its own, where it may make interfaces whoever
    /// we are. `None` when this machine gives us no namespace.
    pub fn in_namespace(lab: &'a Lab, config: &str) -> Result<Option<Daemon<'a>>> {
        let mut unshare = vec!["unshare", "--net"];
        if !rustix::process::geteuid().is_root() {
            unshare.extend(["--user", "--map-root-user"]);
        }
        let probe = Command::new(unshare[0])
            .args(&unshare[1..])
            .args(["ip", "tuntap", "add", "probe", "mode", "tap"])
            .output()
            .context("cannot start unshare")?;
        if !probe.status.success() {
            super::say(&format!(
                "no network namespace: {}",
                String::from_utf8_lossy(&probe.stderr).trim()
            ));
            return Ok(None);
        }
        // The daemon's metrics need the loopback interface.
        unshare.extend(["sh", "-c", "ip link set lo up && exec \"$0\" \"$@\""]);
        let unshare: Vec<String> = unshare.into_iter().map(str::to_owned).collect();
        Daemon::start(lab, &config_arguments(lab, config)?, &unshare).map(Some)
    }

    fn start(lab: &'a Lab, arguments: &[String], prefix: &[String]) -> Result<Daemon<'a>> {
        let dir = lab.dir().display().to_string();
        let mut command = prefix.to_vec();
        command.push(lab.program("vnicd").display().to_string());
        command.extend_from_slice(arguments);
        command.extend(["--socket-dir".to_owned(), dir.clone()]);
        command.extend(["--state-dir".to_owned(), format!("{dir}/state")]);
        command.extend(["--metrics".to_owned(), "127.0.0.1:0".to_owned()]);
        let process = launch(lab, &command)?;
        let mut daemon = Daemon {
            lab,
            command,
            process,
            endpoint: format!("unix:{dir}/control.sock"),
            inside: Vec::new(),
        };
        if !prefix.is_empty() {
            let pid = daemon.process.id().to_string();
            daemon.inside = ["nsenter", "--net", "--target"].map(str::to_owned).to_vec();
            daemon.inside.push(pid);
            if !rustix::process::geteuid().is_root() {
                daemon
                    .inside
                    .extend(["--user", "--preserve-credentials"].map(str::to_owned));
            }
        }
        daemon.wait_ready()?;
        Ok(daemon)
    }

    fn wait_ready(&mut self) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        while !self
            .process
            .line(end)
            .context("waiting for `ready`")?
            .contains("ready")
        {}
        Ok(())
    }

    /// Kills it without warning, as a crash would.
    pub fn kill(&mut self) -> Result<()> {
        self.process.signal(Signal::KILL)?;
        self.process.wait(PATIENCE)?;
        Ok(())
    }

    /// Starts it again with the same arguments, and waits until it is ready.
    pub fn restart(&mut self) -> Result<()> {
        ensure!(!self.process.running(), "the daemon still runs");
        self.process = launch(self.lab, &self.command)?;
        self.wait_ready()
    }

    /// Ends it the polite way.
    pub fn stop(&mut self) -> Result<ExitStatus> {
        self.process.signal(Signal::TERM)?;
        self.process.wait(PATIENCE)
    }

    /// Does it still run?
    pub fn running(&mut self) -> bool {
        self.process.running()
    }

    /// A command in the daemon's network namespace.
    pub fn host(&self, command: &[&str]) -> Result<String> {
        let mut words: Vec<&str> = self.inside.iter().map(String::as_str).collect();
        words.extend_from_slice(command);
        let (program, arguments) = words.split_first().context("no command")?;
        output(Command::new(program).args(arguments))
    }

    /// Starts a program in the daemon's network namespace.
    pub fn host_start(&self, command: &[&str]) -> Result<Process> {
        let mut words = self.inside.clone();
        words.extend(command.iter().map(|&w| w.to_owned()));
        let log = self.lab.log("host.log");
        Process::start("host", &words, &log, &log)
    }

    /// `vnicctl` with these arguments.
    pub fn ctl_command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.lab.program("vnicctl"));
        command
            .args(["--endpoint", &self.endpoint, "-o", "json"])
            .args(arguments);
        command
    }

    /// What `vnicctl -o json` says.
    pub fn ctl(&self, arguments: &[&str]) -> Result<Value> {
        let text = output(&mut self.ctl_command(arguments))?;
        serde_json::from_str(&text).with_context(|| format!("vnicctl {arguments:?} gave no JSON: {text}"))
    }

    /// Starts a `vnicctl` that runs on its own.
    pub fn ctl_start(&self, arguments: &[&str]) -> Result<Process> {
        let command = self.ctl_command(arguments);
        let mut words = vec![command.get_program().to_string_lossy().into_owned()];
        words.extend(command.get_args().map(|a| a.to_string_lossy().into_owned()));
        let log = self.lab.log("vnicctl.log");
        Process::start("vnicctl", &words, &log, &log)
    }

    /// An adapter, as it is now.
    pub fn adapter(&self, name: &str) -> Result<Value> {
        self.ctl(&["adapter", "show", name])
    }

    /// The address that the adapter's guest must use.
    pub fn mac(&self, adapter: &str) -> Result<String> {
        let value = self.adapter(adapter)?;
        let mac = value["macs"][0].as_str().context("the adapter has no address")?;
        Ok(mac.to_owned())
    }

    /// Waits until the adapter's guest is up.
    pub fn wait_up(&self, adapter: &str) -> Result<()> {
        wait_for(&format!("{adapter} up"), PATIENCE, || {
            let value = self.adapter(adapter)?;
            let state = value["state"].as_str().unwrap_or_default();
            ensure!(state == "STATE_UP", "its state is {state:?}");
            Ok(())
        })
    }

    /// The sum of a counter of an adapter or port (`vf0`, `ports/p0`) over its queues or reasons.
    pub fn counter(&self, owner: &str, name: &str) -> Result<u64> {
        self.sum(&["counter", "list", owner, "--name", name])
    }

    /// The sum of a counter over all that have it.
    pub fn total(&self, name: &str) -> Result<u64> {
        self.sum(&["counter", "list", "--name", name])
    }

    fn sum(&self, list: &[&str]) -> Result<u64> {
        let value = self.ctl(list)?;
        let rows = value["counters"].as_array();
        let rows = rows.with_context(|| format!("there is no such counter: {list:?}"))?;
        let mut sum = 0;
        // Priorities count the same once more.
        for row in rows.iter().filter(|row| row["labels"]["priority"].is_null()) {
            sum += number(&row["value"]).with_context(|| format!("not a number: {row}"))?;
        }
        Ok(sum)
    }

    /// Drops of an adapter by reason, those that happened.
    pub fn drops(&self, owner: &str) -> Result<Value> {
        self.ctl(&["counter", "list", owner, "--name", "drops", "--nonzero"])
    }

    /// How long a capture may wait for frames.
    pub const CAPTURE_SECONDS: &'static str = "120";
    /// Longest wait for the end of a capture.
    pub const CAPTURE_PATIENCE: Duration = Duration::from_secs(240);
}

/// 64-bit numbers are strings in the JSON form of protobuf; zero is left out.
fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Null => Some(0),
        Value::String(text) => text.parse().ok(),
        other => other.as_u64(),
    }
}

fn adapter_arguments(adapters: u16, more: &[&str]) -> Vec<String> {
    let mut arguments = vec!["--adapters".to_owned(), adapters.to_string()];
    arguments.extend(more.iter().map(|&a| a.to_owned()));
    arguments
}

fn config_arguments(lab: &Lab, config: &str) -> Result<[String; 2]> {
    let file = lab.log("vnicd.toml");
    std::fs::write(&file, config)?;
    Ok(["--config".to_owned(), file.display().to_string()])
}

fn launch(lab: &Lab, command: &[String]) -> Result<Process> {
    let log = lab.log("vnicd.log");
    Process::start("vnicd", command, &log, &log)
}
