//! Child processes that never outlive their case.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// A program that runs, its standard input, and the lines it prints.
///
/// It leads a process group, which is killed on drop, and the kernel kills it when the thread that started it
/// dies. So start it from the thread of the case.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Process {
    /// Starts `program`; what it prints goes line by line to [`Process::line`] and into the file `out`, its
    /// standard error into the file `err`. Both files are appended to.
    pub fn start(name: &str, program: &[String], out: &Path, err: &Path) -> Result<Process> {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).args(program);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {name}: {}", program.join(" ")))?;
        let (sender, lines) = channel();
        if let Some(stdout) = child.stdout.take() {
            let log = append(out)?;
            copy_lines(stdout, log, move |line| {
                // Nobody may listen any more.
                let _ = sender.send(line);
            });
        }
        if let Some(stderr) = child.stderr.take() {
            copy_lines(stderr, append(err)?, |_| {});
        }
        Ok(Process {
            name: name.to_owned(),
            input: child.stdin.take(),
            child,
            lines,
        })
    }

    /// Its process number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    fn pid(&self) -> Option<Pid> {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
    }

    /// Writes a line to its standard input.
    pub fn send(&mut self, line: &str) -> Result<()> {
        let Some(input) = &mut self.input else {
            bail!("{} has no input", self.name);
        };
        writeln!(input, "{line}")
            .and_then(|()| input.flush())
            .with_context(|| format!("{} takes no input", self.name))
    }

    /// A line that it has printed already, without the line end.
    pub fn try_line(&mut self) -> Result<Option<String>> {
        match self.lines.try_recv() {
            Ok(line) => Ok(Some(line)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => self.line(Instant::now()).map(Some),
        }
    }

    /// The next line it prints, without the line end.
    pub fn line(&mut self, end: Instant) -> Result<String> {
        let left = end.saturating_duration_since(Instant::now());
        match self.lines.recv_timeout(left) {
            Ok(line) => Ok(line),
            Err(RecvTimeoutError::Timeout) => bail!("{} says nothing more", self.name),
            Err(RecvTimeoutError::Disconnected) => {
                let how = self
                    .child
                    .wait()
                    .map_or_else(|e| e.to_string(), |s| s.to_string());
                bail!("{} has ended ({how})", self.name)
            }
        }
    }

    /// Sends a signal to it alone.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = self.pid().context("no process number")?;
        kill_process(pid, signal).with_context(|| format!("cannot signal {}", self.name))
    }

    /// Waits for its end.
    pub fn wait(&mut self, patience: Duration) -> Result<ExitStatus> {
        let end = Instant::now() + patience;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if Instant::now() >= end {
                bail!("{} does not end", self.name);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Does it still run?
    pub fn running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The group, not only the child: User-Mode-Linux leaves helpers behind. It may be empty already.
        if let Some(pid) = self.pid() {
            let _ = kill_process_group(pid, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

fn append(path: &Path) -> Result<File> {
    File::options()
        .create(true)
        .append(true)
        .open(path)
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Copies what arrives to a file and to `each`, until its end.
fn copy_lines(from: impl Read + Send + 'static, mut log: File, each: impl Fn(String) + Send + 'static) {
    std::thread::spawn(move || {
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        while let Ok(1..) = from.read_until(b'\n', &mut line) {
            // The log is for people; the case goes on without.
            let _ = log.write_all(&line);
            let text = String::from_utf8_lossy(&line);
            each(text.trim_end_matches(['\r', '\n']).to_owned());
            line.clear();
        }
    });
}
