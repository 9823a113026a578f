//! A DPDK testpmd process: started, asked for its counters over DPDK's telemetry socket, ended.
//!
//! It runs without its prompt, whose thread would spin on the CPU that is measured. Commands come from a named pipe,
//! which it opens when its ports are started and reads to the end before it forwards. It waits for the end of its
//! standard input: when we die, whatever the reason, it quits. Its hugetlbfs is mounted in a mount namespace of
//! its own, which goes with it.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv, send,
    socket_with,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::machine::CpuTime;

/// Memory of one process.
pub const MEMORY_BYTES: u64 = 128 << 20;

/// What to start.
#[derive(Debug, Clone)]
pub struct Spec {
    /// The program.
    pub program: PathBuf,
    /// CPU of the forwarding thread (and of the main thread, which sleeps).
    pub cpu: usize,
    /// `--vdev` arguments.
    pub vdevs: Vec<String>,
    /// Arguments of testpmd itself, after `--`.
    pub args: Vec<String>,
}

/// Counters of one of its ports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PortStats {
    /// Frames received.
    pub received: u64,
    /// Frames sent.
    pub sent: u64,
}

/// A running testpmd.
#[derive(Debug)]
pub struct Testpmd {
    child: Child,
    stdin: Option<ChildStdin>,
    commands: Option<File>,
    telemetry: PathBuf,
    log: PathBuf,
    connection: Option<OwnedFd>,
}

static STARTED: AtomicU32 = AtomicU32::new(0);

/// Mounts the huge pages where nobody else sees them, then becomes testpmd. (Where / is no mount point, as in a plain chroot,
/// its propagation cannot be changed.)
const LAUNCH: &str = r#"{ mount --make-rprivate / 2>/dev/null || :; } && mount -t hugetlbfs -o pagesize=2M none "$1" && shift && exec "$@""#;

impl Testpmd {
    /// Starts it; files go below `dir`. Returns when its ports are started; it forwards after [`Testpmd::go`].
    pub fn start(dir: &Path, spec: &Spec) -> Result<Testpmd> {
        let prefix = format!("t{}", STARTED.fetch_add(1, Ordering::Relaxed));
        let huge = dir.join(format!("{prefix}-huge"));
        fs::create_dir(&huge)?;
        let pipe = dir.join(format!("{prefix}-commands"));
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
        let log = dir.join(format!("{prefix}.log"));
        let out = File::create(&log)?;
        let lcores = format!("0@{0},1@{0}", spec.cpu);
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--propagation", "unchanged", "sh", "-c", LAUNCH, "sh"])
            .arg(&huge)
            .arg(&spec.program)
            .args(["--lcores", &lcores, "--no-pci", "--file-prefix", &prefix])
            .args(["-m", &(MEMORY_BYTES >> 20).to_string(), "--single-file-segments"])
            .arg("--huge-dir")
            .arg(&huge);
        for vdev in &spec.vdevs {
            command.args(["--vdev", vdev]);
        }
        command
            .args(["--", "--nb-cores=1", "--total-num-mbufs=8192"])
            .arg(format!("--cmdline-file={}", pipe.display()))
            .args(&spec.args)
            .env("RUNTIME_DIRECTORY", dir)
            .stdin(Stdio::piped())
            .stdout(out.try_clone()?)
            .stderr(out);
        let mut child = command.spawn().context("starting unshare (of util-linux)")?;
        let stdin = child.stdin.take();
        let telemetry = dir.join("dpdk").join(&prefix).join("dpdk_telemetry.v2");
        let mut t = Testpmd {
            child,
            stdin,
            commands: None,
            telemetry,
            log,
            connection: None,
        };
        // Without waiting, a pipe can be opened for writing only when somebody reads it.
        let open = || {
            rustix::fs::open(
                &pipe,
                OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC,
                Mode::empty(),
            )
        };
        t.wait_until("start its ports", Duration::from_secs(30), |t| {
            t.commands = open().ok().map(File::from);
            t.commands.is_some()
        })?;
        Ok(t)
    }

    /// Is there a program of this name that can be run?
    pub fn present(program: &Path) -> bool {
        Command::new(program)
            .arg("--version")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok()
    }

    /// Carries out a command if there is one, then forwards.
    pub fn go(&mut self, command: &str) -> Result<()> {
        let mut pipe = self.commands.take().context("testpmd forwards already")?;
        writeln!(pipe, "{command}").context("testpmd takes no commands")
    }

    /// Reads a port's counters.
    pub fn stats(&mut self, port: usize) -> Result<PortStats> {
        let answer = self.ask("/ethdev/stats", port)?;
        let field = |name: &str| {
            answer[name]
                .as_u64()
                .with_context(|| format!("no {name} in {answer}"))
        };
        Ok(PortStats {
            received: field("ipackets")?,
            sent: field("opackets")?,
        })
    }

    /// Is the link of a port up (is its peer there and running)?
    pub fn link_up(&mut self, port: usize) -> bool {
        self.ask("/ethdev/link_status", port)
            .is_ok_and(|a| a["status"] == "UP")
    }

    /// Waits until something holds; fails early when testpmd ends.
    pub fn wait_until(
        &mut self,
        what: &str,
        at_most: Duration,
        mut holds: impl FnMut(&mut Self) -> bool,
    ) -> Result<()> {
        let deadline = Instant::now() + at_most;
        while !holds(self) {
            if let Some(status) = self.child.try_wait()? {
                bail!(
                    "testpmd ended ({status}) before it would {what}; it said:\n{}",
                    self.log_tail()
                );
            }
            if Instant::now() > deadline {
                bail!(
                    "testpmd did not {what} within {at_most:?}; it said:\n{}",
                    self.log_tail()
                );
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Stops it until [`Testpmd::resume`].
    pub fn pause(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// Lets it go on.
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(self.child.id().cast_signed()).context("no process")?;
        kill_process(pid, signal).context("signalling testpmd")
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// CPU time of the forwarding thread.
    pub fn cpu_time(&self) -> CpuTime {
        CpuTime::of(self.child.id(), "rte-worker")
    }

    /// Ends it as a user would, and waits.
    pub fn quit(mut self) -> Result<()> {
        drop(self.commands.take());
        drop(self.stdin.take());
        let deadline = Instant::now() + Duration::from_secs(10);
        while self.child.try_wait()?.is_none() {
            if Instant::now() > deadline {
                bail!("testpmd did not quit within 10 s; it said:\n{}", self.log_tail());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    fn ask(&mut self, what: &str, port: usize) -> Result<Value> {
        let answer = self.exchange(&format!("{what},{port}"));
        if answer.is_err() {
            self.connection = None;
        }
        let mut answer = answer?;
        Ok(answer[what].take())
    }

    fn exchange(&mut self, request: &str) -> Result<Value> {
        let mut buffer = vec![0u8; 16 << 10];
        let fd = match &mut self.connection {
            Some(fd) => fd,
            none => {
                let fd = socket_with(
                    AddressFamily::UNIX,
                    SocketType::SEQPACKET,
                    SocketFlags::CLOEXEC,
                    None,
                )?;
                rustix::net::sockopt::set_socket_timeout(
                    &fd,
                    rustix::net::sockopt::Timeout::Recv,
                    Some(Duration::from_secs(2)),
                )?;
                connect(&fd, &SocketAddrUnix::new(&self.telemetry)?)?;
                recv(&fd, &mut buffer[..], RecvFlags::empty())?;
                none.insert(fd)
            }
        };
        send(&*fd, request.as_bytes(), SendFlags::empty())?;
        let (n, _) = recv(&*fd, &mut buffer[..], RecvFlags::empty())?;
        serde_json::from_slice(&buffer[..n]).with_context(|| format!("telemetry's answer to {request}"))
    }

    fn log_tail(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(12)..].join("\n")
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A `--vdev` argument: testpmd as the guest of a vhost-user socket.
pub fn guest(index: usize, socket: &Path, queues: u16) -> String {
    let path = socket.display();
    format!(
        "net_virtio_user{index},path={path},queues={queues},queue_size=256,mac={}",
        guest_mac(index)
    )
}

/// A `--vdev` argument: testpmd as the device behind a vhost-user socket.
pub fn device(index: usize, socket: &Path, queues: u16) -> String {
    format!("net_vhost{index},iface={},queues={queues}", socket.display())
}

/// The address of the guest behind `vf<index>`.
pub fn guest_mac(index: usize) -> String {
    format!("02:00:00:00:01:{index:02x}")
}
