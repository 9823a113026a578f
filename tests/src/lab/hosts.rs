//! Two hosts, each with the real daemon, and wires between them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use super::process::Process;
use super::{BIN_DIR_VARIABLE, MESH_ENDS, Namespace, PATIENCE, built, mesh_certificates, output, wait_for};

/// Where `vnicd` and `vnicctl` are: as the lab says, or as they were built with the tests.
pub fn programs() -> Result<&'static Path> {
    static DIR: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let made = DIR.get_or_init(|| {
        if let Some(dir) = std::env::var_os(BIN_DIR_VARIABLE) {
            return Ok(dir.into());
        }
        let vnicd = built("vnic-appliance", "vnicd").map_err(|e| format!("{e:#}"))?;
        Ok(vnicd.parent().unwrap_or(Path::new(".")).to_owned())
    });
    made.as_deref().map_err(|e| anyhow::anyhow!("no programs: {e}"))
}

/// A network namespace with a daemon in it.
#[derive(Debug)]
pub struct Host {
    /// Its name in logs.
    pub name: &'static str,
    /// Its network.
    pub net: Namespace,
    dir: TempDir,
    words: Vec<String>,
    daemon: Process,
}

impl Host {
    /// Starts the daemon there with adapters and ports of a configuration, on this CPU, and waits until it is ready.
    pub fn start(name: &'static str, net: Namespace, cpu: usize, config: &str) -> Result<Host> {
        let dir = tempfile::Builder::new().prefix("vnic-").tempdir_in("/tmp")?;
        let at = dir.path().display();
        let file = dir.path().join("vnicd.toml");
        let config = format!(
            "[nic]\ndata_cores = [{cpu}]\nsocket_dir = \"{at}\"\nstate_dir = \"{at}/state\"\n\
             [metrics]\nlisten = \"127.0.0.1:0\"\n{config}"
        );
        std::fs::write(&file, config)?;
        let mut words = net.prefix();
        words.push(programs()?.join("vnicd").display().to_string());
        words.extend(["--config".into(), file.display().to_string()]);
        let log = dir.path().join("vnicd.log");
        let mut host = Host {
            name,
            net,
            daemon: Process::start(name, &words, &log, &log)?,
            words,
            dir,
        };
        host.wait_ready()?;
        Ok(host)
    }

    fn wait_ready(&mut self) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        loop {
            match self.daemon.line(end) {
                Ok(line) if line.contains("ready") => return Ok(()),
                Ok(_) => {}
                Err(error) => return Err(error.context(self.log())),
            }
        }
    }

    /// Kills the daemon without warning, as a crash would, starts it again, and waits until it is ready.
    pub fn kill_and_restart(&mut self) -> Result<()> {
        self.daemon.signal(Signal::KILL)?;
        self.daemon.wait(PATIENCE)?;
        let log = self.dir.path().join("vnicd.log");
        self.daemon = Process::start(self.name, &self.words, &log, &log)?;
        self.wait_ready()
    }

    /// What its daemon has logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("vnicd.log")).unwrap_or_default()
    }

    /// Its daemon is still there.
    pub fn running(&mut self) -> bool {
        self.daemon.running()
    }

    /// A file in the daemon's directory.
    pub fn path(&self, file: &str) -> PathBuf {
        self.dir.path().join(file)
    }

    /// The Ethernet socket of an adapter.
    pub fn eth_socket(&self, adapter: &str) -> PathBuf {
        self.path(&format!("{adapter}-eth.sock"))
    }

    /// The RDMA socket of an adapter.
    pub fn rdma_socket(&self, adapter: &str) -> PathBuf {
        self.dir.path().join(format!("{adapter}-rdma.sock"))
    }

    fn ctl_command(&self, words: &[&str]) -> Result<Command> {
        let mut command = Command::new(programs()?.join("vnicctl"));
        let endpoint = format!("unix:{}/control.sock", self.dir.path().display());
        command.args(["--endpoint", &endpoint, "-o", "json"]).args(words);
        Ok(command)
    }

    /// What `vnicctl -o json` says; nothing of commands that say nothing.
    pub fn ctl(&self, words: &[&str]) -> Result<Value> {
        let text = output(&mut self.ctl_command(words)?)?;
        if text.trim().is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_str(&text).with_context(|| format!("vnicctl {words:?} gave no JSON: {text}"))
    }

    /// What `vnicctl -o json` says with exit code 1, which is that it found something.
    pub fn finding(&self, words: &[&str]) -> Result<Value> {
        let output = self.ctl_command(words)?.output().context("vnicctl")?;
        ensure!(output.status.code() == Some(1), "vnicctl {words:?} found nothing");
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// Why `vnicctl` refuses.
    pub fn refusal(&self, words: &[&str]) -> Result<String> {
        let output = self.ctl_command(words)?.output().context("vnicctl")?;
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(!output.status.success(), "vnicctl {words:?} was not refused");
        Ok(error)
    }

    /// The sum of a counter of an adapter or port over its queues or reasons.
    pub fn counter(&self, owner: &str, name: &str) -> Result<u64> {
        let value = self.ctl(&["counter", "list", owner, "--name", name])?;
        let rows = value["counters"].as_array();
        let rows = rows.with_context(|| format!("{owner} has no counter {name}"))?;
        let mut sum = 0;
        // Priorities count the same once more.
        for row in rows.iter().filter(|row| row["labels"]["priority"].is_null()) {
            // 64-bit numbers may be strings in the JSON form of protobuf.
            let text = row["value"].to_string();
            let value = text.trim_matches('"').parse::<u64>();
            sum += value.with_context(|| format!("no number: {row}"))?;
        }
        Ok(sum)
    }

    /// Brings up a TAP port of the daemon as an interface of the host's kernel.
    pub fn tap_up(&self, device: &str, address: &str) -> Result<()> {
        wait_for(device, PATIENCE, || self.net.ip(&format!("link show {device}")))?;
        self.net.ip(&format!("addr add {address} dev {device}"))?;
        self.net.ip(&format!("link set {device} up"))?;
        Ok(())
    }
}

/// Two hosts in namespaces of their own, with these addresses and a wire between their kernels, whose daemons are joined by ports of
/// type `mesh`; `configuration` gives each its own, for the folder of certificates, which lives as long as the result. `None`: no
/// namespace can be made here, which is told.
///
/// # Errors
/// The wire, the certificates or a daemon cannot be made.
pub fn joined_by_a_mesh(
    addresses: [&str; 2],
    configuration: impl Fn(usize, &Path) -> String,
) -> Result<Option<([Host; 2], TempDir)>> {
    let (a, b) = match (Namespace::new()?, Namespace::new()?) {
        (Ok(a), Ok(b)) => (a, b),
        (Err(why), _) | (_, Err(why)) => {
            println!("skipped: {why}");
            return Ok(None);
        }
    };
    a.veth("wire", &b, "wire", 1500)?;
    for (net, address) in [&a, &b].into_iter().zip(addresses) {
        net.ip(&format!("addr add {address}/24 dev wire"))?;
    }
    let dir = tempfile::tempdir()?;
    mesh_certificates(dir.path())?;
    let cpus = two_cpus()?;
    let hosts = [
        Host::start(MESH_ENDS[0], a, cpus[0], &configuration(0, dir.path()))?,
        Host::start(MESH_ENDS[1], b, cpus[1], &configuration(1, dir.path()))?,
    ];
    Ok(Some((hosts, dir)))
}

/// CPUs that this process may use, the first and the last.
pub fn two_cpus() -> Result<[usize; 2]> {
    let set = rustix::thread::sched_getaffinity(None).context("asking for the allowed CPUs")?;
    let mut cpus = (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu));
    let first = cpus.next().context("no CPU")?;
    Ok([first, cpus.next_back().unwrap_or(first)])
}
