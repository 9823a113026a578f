//! The monitor of a QEMU machine (QMP).

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use super::{PATIENCE, wait_for};

/// A connection to a machine's monitor.
#[derive(Debug)]
pub struct Qmp(BufReader<UnixStream>);

impl Qmp {
    /// The option of a QEMU with a monitor at a socket.
    pub fn option(socket: &Path) -> String {
        format!("-qmp unix:{},server=on,wait=off", socket.display())
    }

    /// Connects as soon as the machine listens.
    pub fn connect(socket: &Path) -> Result<Qmp> {
        let stream = wait_for("a monitor", PATIENCE, || Ok(UnixStream::connect(socket)?))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut qmp = Qmp(BufReader::new(stream));
        qmp.line()?;
        qmp.run("qmp_capabilities", &json!({}))?;
        Ok(qmp)
    }

    fn line(&mut self) -> Result<Value> {
        let mut text = String::new();
        self.0.read_line(&mut text).context("reading from the monitor")?;
        serde_json::from_str(&text).with_context(|| format!("no JSON: {text:?}"))
    }

    /// Runs a command; returns its answer.
    pub fn run(&mut self, command: &str, arguments: &Value) -> Result<Value> {
        let line = json!({"execute": command, "arguments": arguments});
        self.0.get_mut().write_all(format!("{line}\n").as_bytes())?;
        loop {
            let answer = self.line()?;
            // (Events come in between.)
            if let Some(value) = answer.get("return") {
                return Ok(value.clone());
            }
            if let Some(error) = answer.get("error") {
                bail!("{command}: {error}");
            }
        }
    }

    /// Waits until the machine has moved elsewhere.
    pub fn wait_migrated(&mut self) -> Result<Value> {
        wait_for("the end of a migration", PATIENCE, || {
            let info = self.run("query-migrate", &json!({}))?;
            let status = info["status"].as_str().unwrap_or_default();
            if ["failed", "cancelled"].contains(&status) {
                return Ok(info);
            }
            ensure!(status == "completed", "{info}");
            Ok(info)
        })
    }
}
