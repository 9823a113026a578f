//! What operators do meanwhile: adapters come and go, settings change. What was acknowledged is there after a crash.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Result, bail, ensure};

use crate::driver::rig::Dice;

/// Adapters that may come at the same time.
const COME: usize = 4;

/// An operator.
pub(super) struct Operator {
    vnicctl: PathBuf,
    endpoint: String,
    dice: Dice,
    /// Adapters made at run time.
    come: BTreeSet<String>,
    names: u64,
    /// What was stored: adapter and key, and the value.
    stored: BTreeMap<(String, &'static str), u64>,
    watching: Option<Watcher>,
    /// Calls so far.
    pub(super) calls: u64,
}

/// A client that is killed, as clients are.
struct Watcher(Child);

impl Drop for Watcher {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Operator {
    pub(super) fn new(vnicctl: PathBuf, dir: &Path, dice: Dice) -> Operator {
        Operator {
            vnicctl,
            endpoint: format!("unix:{}", dir.join("control.sock").display()),
            dice,
            come: BTreeSet::new(),
            names: 0,
            stored: BTreeMap::new(),
            watching: None,
            calls: 0,
        }
    }

    /// One thing, by the dice: `honest` adapters keep their traffic, those of others do not have to.
    pub(super) fn act(&mut self, honest: usize, all: usize) -> Result<()> {
        let mine = format!("vf{}", self.dice.below(honest as u64));
        let other = format!("vf{}", honest as u64 + self.dice.below((all - honest) as u64));
        let any = if self.dice.below(2) == 0 { &mine } else { &other };
        match self.dice.below(14) {
            0 | 1 if self.come.len() < COME => {
                self.names += 1;
                let name = format!("come{}", self.names);
                self.call(&["adapter", "add", &name])?;
                self.come.insert(name);
            }
            0..=3 => {
                if let Some(name) = self.come.pop_first() {
                    self.call(&["adapter", "remove", &name])?;
                }
            }
            4 => self.call(&["adapter", "restart", &other])?,
            5 => self.store(any, "DelayDropTimeout", 1, 100)?,
            6 => self.store(any, "RfdReservationFactor", 1, 1000)?,
            7 => self.store(&other, "TxMaxPostSendsCoalescing", 1, 256)?,
            8 => {
                let trust = *self.dice.pick(&["port", "pcp", "dscp", "both"]);
                self.call(&["qos", "set", any, "--trust", trust])?;
            }
            9 => {
                let rate = format!("{}G", 1 + self.dice.below(40));
                self.call(&["qos", "set", &other, "--rate", &rate])?;
            }
            10 => self.call(&["qos", "reset", &other])?,
            11 => {
                let index = (100 + self.dice.below(8)).to_string();
                let gid = format!("10.9.{}.{}", self.dice.below(200), 1 + self.dice.below(200));
                self.call(&["gid", "set", any, "--index", &index, "--gid", &gid])?;
            }
            12 => {
                let list = *self
                    .dice
                    .pick(&["adapter", "counter", "event", "fault", "registry"]);
                let of = if list == "registry" {
                    Some(mine.as_str())
                } else {
                    None
                };
                let words: Vec<&str> = [list, "list"].into_iter().chain(of).collect();
                self.call(&words)?;
            }
            _ => self.watch(&mine)?,
        }
        Ok(())
    }

    /// Who came since is not there any more: adapters that were not `before`, clients.
    pub(super) fn leave(&mut self, before: &BTreeSet<String>) -> Result<()> {
        self.watching = None;
        for name in self.come.clone().difference(before) {
            self.call(&["adapter", "remove", name])?;
            self.come.remove(name);
        }
        Ok(())
    }

    /// Adapters made at run time.
    pub(super) fn come(&self) -> BTreeSet<String> {
        self.come.clone()
    }

    /// After a crash: what was acknowledged is there.
    pub(super) fn check(&mut self) -> Result<()> {
        self.watching = None;
        let list = self.call_for(&["-o", "json", "adapter", "list"])?;
        for name in &self.come {
            ensure!(
                list.contains(&format!("adapters/{name}\"")),
                "adapter {name} was made, and is not there after a crash: {list}"
            );
        }
        let gone = (1..=self.names).map(|n| format!("come{n}"));
        for name in gone.filter(|name| !self.come.contains(name)) {
            ensure!(
                !list.contains(&format!("adapters/{name}\"")),
                "adapter {name} was removed, and is there after a crash"
            );
        }
        for ((adapter, key), value) in self.stored.clone() {
            let is = self.call_for(&["registry", "get", &adapter, key])?;
            ensure!(
                is.split_whitespace().any(|w| w == value.to_string()),
                "{key} of {adapter} was set to {value}; after a crash: {is}"
            );
        }
        Ok(())
    }

    fn store(&mut self, adapter: &str, key: &'static str, least: u64, most: u64) -> Result<()> {
        let value = least + self.dice.below(most - least + 1);
        self.call(&["registry", "set", adapter, key, &value.to_string()])?;
        self.stored.insert((adapter.to_owned(), key), value);
        Ok(())
    }

    /// A capture or a stream, until the next one or a crash.
    fn watch(&mut self, adapter: &str) -> Result<()> {
        let words: &[&str] = match self.dice.below(3) {
            0 => &["adapter", "watch"],
            1 => &["registry", "watch"],
            _ => &["capture", "live", "-w", "/dev/null", adapter],
        };
        let child = self.command(words).stderr(Stdio::null()).spawn()?;
        self.watching = Some(Watcher(child));
        Ok(())
    }

    fn call(&mut self, words: &[&str]) -> Result<()> {
        self.call_for(words).map(|_| ())
    }

    fn call_for(&mut self, words: &[&str]) -> Result<String> {
        self.calls += 1;
        let output = self
            .command(words)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .output()?;
        if !output.status.success() {
            bail!(
                "vnicctl {}: {}",
                words.join(" "),
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.vnicctl);
        command.args(["--endpoint", &self.endpoint]).args(words);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command
    }
}
