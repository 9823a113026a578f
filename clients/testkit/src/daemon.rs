//! A daemon of a test's own.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::{Error, Result};

/// After this a daemon does not start any more. Never a statement about speed.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often it is looked at meanwhile.
const LOOK: Duration = Duration::from_millis(10);

/// A daemon that runs; it ends with this.
pub struct Daemon {
    process: Child,
    dir: TempDir,
}

impl Daemon {
    /// Starts a daemon with so many adapters, and waits until it is ready.
    pub fn start(adapters: u16, program: &Path) -> Result<Daemon> {
        let io = |what: &Path| {
            let what = what.display().to_string();
            move |e| Error::Io(what, e)
        };
        let dir = TempDir::with_prefix("vnic").map_err(io(&std::env::temp_dir()))?;
        let said = dir.path().join("vnicd.log");
        let log = File::create(&said).map_err(io(&said))?;
        let errors = log.try_clone().map_err(io(&said))?;
        let mut command = Command::new(program);
        command.args(["--adapters", &adapters.to_string(), "--metrics", "off"]);
        command.arg("--socket-dir").arg(dir.path());
        command.arg("--state-dir").arg(dir.path().join("state"));
        command.stdin(Stdio::null()).stdout(log).stderr(errors);
        let process = command.spawn().map_err(io(program))?;
        let mut daemon = Daemon { process, dir };
        let end = Instant::now() + PATIENCE;
        loop {
            let text = std::fs::read_to_string(&said).unwrap_or_default();
            if text.contains("ready") {
                return Ok(daemon);
            }
            let ended = daemon.process.try_wait().map_err(io(program))?.is_some();
            if ended || end < Instant::now() {
                return Err(Error::Failed(format!(
                    "{} is not ready:\n{text}",
                    program.display()
                )));
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Directory of its sockets.
    pub fn place(&self) -> &Path {
        self.dir.path()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(pid) = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let _ = self.process.wait();
    }
}
