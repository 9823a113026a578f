//! Open vSwitch with its userspace datapath, as a stranger at the other end of a bond: in this thread's network namespace,
//! with sockets, database and log of its own.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use vnic_tests::driver::rig::wait_for;

/// Where its programs are beside those of the path (Debian: openvswitch-switch).
const PLACES: [&str; 3] = ["/usr/lib/openvswitch-switch", "/usr/sbin", "/usr/bin"];

/// A switch that runs.
pub struct Ovs {
    switch: Daemon,
    _database: Daemon,
    control: PathBuf,
    dir: TempDir,
}

/// A process that ends with this.
struct Daemon(Child);

/// A program, in the path or where Debian has it.
fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all: Vec<PathBuf> = std::env::split_paths(&path)
        .chain(PLACES.map(PathBuf::from))
        .collect();
    all.into_iter()
        .map(|dir| dir.join(name))
        .find(|file| file.is_file())
}

/// A program with directories of its own.
fn command(name: &str, dir: &Path) -> Result<Command> {
    let mut command = Command::new(program(name).with_context(|| format!("no program {name}"))?);
    for variable in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"] {
        command.env(variable, dir);
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.current_dir(dir);
    Ok(command)
}

/// Runs it; answers what it says.
fn output(mut command: Command) -> Result<String> {
    let output = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .output()
        .with_context(|| format!("starting {command:?}"))?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {error}");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

impl Ovs {
    /// Starts it, with a bridge `br0`; none where it is not installed.
    pub fn start() -> Result<Option<Ovs>> {
        let missing = [
            "ovsdb-tool",
            "ovsdb-server",
            "ovs-vswitchd",
            "ovs-vsctl",
            "ovs-appctl",
        ]
        .into_iter()
        .find(|name| program(name).is_none());
        if let Some(name) = missing {
            println!("skipped: there is no {name} (Debian: package openvswitch-switch)");
            return Ok(None);
        }
        let dir = TempDir::with_prefix("ovs")?;
        let at = dir.path();
        let tool = program("ovsdb-tool").context("no ovsdb-tool")?;
        let share = tool.parent().and_then(Path::parent).context("no prefix")?;
        let schema = share.join("share/openvswitch/vswitch.ovsschema");
        let mut create = command("ovsdb-tool", at)?;
        create.args(["create", "conf.db"]).arg(schema);
        output(create)?;
        let socket = format!("unix:{}", at.join("db.sock").display());
        let mut database = command("ovsdb-server", at)?;
        database.args(["conf.db", &format!("--remote=p{socket}"), "--no-chdir"]);
        let database = Daemon(database.args(["--log-file=db.log", "-vconsole:off"]).spawn()?);
        ensure!(wait_for(|| at.join("db.sock").exists()), "no database");
        let mut init = command("ovs-vsctl", at)?;
        // Its socket is there a moment before it listens.
        init.args([
            &format!("--db={socket}"),
            "--retry",
            "-t",
            "20",
            "--no-wait",
            "init",
        ]);
        output(init)?;
        let mut switch = command("ovs-vswitchd", at)?;
        switch.args([&socket, "--no-chdir", "--log-file=switch.log", "-vconsole:off"]);
        let control = at.join("control");
        let switch = Daemon(switch.arg(format!("--unixctl={}", control.display())).spawn()?);
        let ovs = Ovs {
            switch,
            _database: database,
            control,
            dir,
        };
        let ready = || ovs.ask(&["version"]).is_ok();
        ensure!(wait_for(ready), "no switch");
        ovs.configure("add-br br0 -- set bridge br0 datapath_type=netdev")?;
        Ok(Some(ovs))
    }

    /// `ovs-vsctl` with these arguments; when it returns, the switch has done it.
    pub fn configure(&self, arguments: &str) -> Result<()> {
        let at = self.dir.path();
        let mut command = command("ovs-vsctl", at)?;
        command.arg(format!("--db=unix:{}", at.join("db.sock").display()));
        output({
            command.args(["-t", "20"]).args(arguments.split_whitespace());
            command
        })
        .map(drop)
    }

    /// `ovs-appctl` with these arguments.
    pub fn ask(&self, arguments: &[&str]) -> Result<String> {
        let mut command = command("ovs-appctl", self.dir.path())?;
        command.arg("-t").arg(&self.control).args(arguments);
        output(command)
    }

    /// Waits until the switch says all of these of its bond.
    pub fn wait_says(&self, arguments: &[&str], all: &[&str]) -> Result<()> {
        let mut said = String::new();
        for _ in 0..3 {
            let says = || {
                said = self.ask(arguments).unwrap_or_else(|e| e.to_string());
                let there = all.iter().all(|text| said.contains(text));
                if !there {
                    std::thread::sleep(Duration::from_millis(100));
                }
                there
            };
            if wait_for(says) {
                println!("{said}");
                return Ok(());
            }
        }
        bail!("it says not {all:?}, but {said}")
    }

    /// It stands still, its links as they are; or goes on.
    pub fn freeze(&self, still: bool) -> Result<()> {
        let pid = Pid::from_child(&self.switch.0);
        kill_process(pid, if still { Signal::STOP } else { Signal::CONT })?;
        Ok(())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // What has ended is ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
