//! A daemon in a process of its own, and `vnicctl` beside it.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::lab::text;

const VNICD: &str = env!("CARGO_BIN_EXE_vnicd");
const VNICCTL: &str = env!("CARGO_BIN_EXE_vnicctl");

/// A daemon, killed when the test ends.
pub struct Process {
    child: Child,
    dir: PathBuf,
    pub ready: String,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a daemon with the configuration `config`, whose sockets and state are in `dir`; an error is what it said.
pub fn try_start(dir: &Path, config: &str) -> Result<Process, String> {
    let log = std::fs::File::options()
        .create(true)
        .append(true)
        .open(dir.join("log"))
        .expect("a file");
    start_with_log(dir, &format!("metrics.listen = \"off\"\n{config}"), log).ok_or_else(|| {
        let mut log = String::new();
        let mut file = std::fs::File::open(dir.join("log")).expect("its log");
        file.read_to_string(&mut log).expect("its log");
        log
    })
}

/// As [`try_start`], with metrics, and with this as its standard error.
pub fn start_with_log(dir: &Path, config: &str, log: impl Into<Stdio>) -> Option<Process> {
    let file = dir.join("vnicd.toml");
    let config = format!(
        "nic.socket_dir = {dir:?}\n{config}",
        dir = dir.to_str().expect("a path")
    );
    std::fs::write(&file, config).expect("a file");
    let mut child = Command::new(VNICD)
        .arg("--config")
        .arg(&file)
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .expect("vnicd");
    let mut ready = String::new();
    BufReader::new(child.stdout.take().expect("its output"))
        .read_line(&mut ready)
        .expect("a line");
    if ready.contains("ready") {
        let dir = dir.to_owned();
        return Some(Process { child, dir, ready });
    }
    let _ = child.wait();
    None
}

/// As [`try_start`], and it starts.
pub fn start(dir: &Path, config: &str) -> Process {
    try_start(dir, config).unwrap_or_else(|log| panic!("not ready: {log}"))
}

/// Exit code of `vnicd --check-config` for the file of [`try_start`], and what it said.
pub fn check_config(dir: &Path) -> (Option<i32>, String) {
    let mut command = Command::new(VNICD);
    command.arg("--check-config").arg(dir.join("vnicd.toml"));
    let output = command.arg("--socket-dir").arg(dir).output().expect("vnicd");
    (output.status.code(), text(&output.stdout) + &text(&output.stderr))
}

impl Process {
    /// `vnicctl`, for this daemon's Unix socket.
    pub fn vnicctl(&self) -> Command {
        let mut command = Command::new(VNICCTL);
        let socket = self.dir.join("control.sock");
        command.env("VNIC_ENDPOINT", format!("unix:{}", socket.display()));
        command
    }

    pub fn ctl(&self, arguments: &[&str]) -> Output {
        self.vnicctl().args(arguments).output().expect("vnicctl")
    }

    /// Standard output of a command that works.
    pub fn said(&self, arguments: &[&str]) -> String {
        let output = self.ctl(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// Standard error of a command that the daemon refuses.
    pub fn refused(&self, arguments: &[&str]) -> String {
        let output = self.ctl(arguments);
        assert_eq!(
            output.status.code(),
            Some(1),
            "{arguments:?}: {}",
            text(&output.stdout)
        );
        text(&output.stderr)
    }

    /// Events, as `vnicctl -o json event list` tells them.
    pub fn events(&self, arguments: &[&str]) -> Vec<serde_json::Value> {
        let all = [&["-o", "json", "event", "list"], arguments].concat();
        let list: serde_json::Value = serde_json::from_str(&self.said(&all)).expect("JSON");
        list["events"].as_array().cloned().unwrap_or_default()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the signal");
    }

    /// Page of its metrics server.
    pub fn page(&self, path: &str) -> String {
        let (_, rest) = self.ready.split_once("http://").expect("the metrics");
        let address = rest.split('/').next().expect("an address");
        super::get(&format!("http://{address}{path}"))
    }

    /// Ends it with a signal; returns its exit code.
    pub fn end(mut self, signal: Signal) -> Option<i32> {
        self.signal(signal);
        self.child.wait().expect("the end").code()
    }
}
