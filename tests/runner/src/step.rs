//! A step: a command with a log and an end. What it took is counted.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::log::Log;
use crate::times;

/// A step that hangs must not hang the machine. Nothing is judged by this deadline.
const DEADLINE: u64 = 2400;
/// A step that takes longer says what it is at, as often.
const PATIENCE: Duration = Duration::from_secs(30);

/// What became of a step.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The step.
    pub name: String,
    /// Did it pass; or none, if it did not run.
    pub passed: Option<bool>,
    /// From its start to its end.
    pub wall: Duration,
    /// Seconds of CPU time, user's and system's, of its processes that somebody waited for.
    pub cpu: f64,
    /// What is behind its name.
    pub detail: String,
}

/// A run.
#[derive(Debug)]
pub struct Suite {
    /// Where cargo builds.
    pub target: PathBuf,
    /// Where logs are.
    pub logs: PathBuf,
    /// A line for each case that did not run: its name, then why.
    pub skip_log: PathBuf,
    /// All steps so far.
    pub outcomes: Vec<Outcome>,
    /// An exit code by which the next step says that it could not judge, and what is skipped then.
    pub skip_code: Option<(i32, &'static str)>,
    deadline: u64,
    started: Instant,
}

impl Suite {
    /// In the workspace that is the current directory.
    pub fn new() -> io::Result<Suite> {
        let here = std::env::current_dir()?;
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| here.join("target"), PathBuf::from);
        let logs = here.join("target/test-logs");
        // What an earlier run left says nothing of this one.
        if logs.exists() {
            std::fs::remove_dir_all(&logs)?;
        }
        std::fs::create_dir_all(&logs)?;
        let skip_log = logs.join("skipped");
        File::create(&skip_log)?;
        Ok(Suite {
            target: here.join(target),
            logs,
            skip_log,
            outcomes: Vec::new(),
            skip_code: None,
            deadline: DEADLINE,
            started: Instant::now(),
        })
    }

    /// How long the run has taken.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Another deadline for the next step, in seconds.
    pub fn deadline(&mut self, seconds: u64) -> &mut Suite {
        self.deadline = seconds;
        self
    }

    /// One of our programs, as it is shipped.
    pub fn program(&self, name: &str) -> Command {
        Command::new(self.target.join("release").join(name))
    }

    /// The log of a step.
    pub fn log_of(&self, step: &str) -> Log {
        Log(self.logs.join(format!("{}.log", step.replace(' ', "-"))))
    }

    /// Runs a command to its end, logs it and counts it. Says whether it passed.
    pub fn step(&mut self, name: &str, command: &mut Command) -> bool {
        println!("{:<8} {name}", "run");
        let started = Instant::now();
        let child = self.start(name, command);
        self.wait_and_end(name, child, started)
    }

    fn wait_and_end(&mut self, name: &str, child: io::Result<Child>, started: Instant) -> bool {
        let skip = self.skip_code.take();
        let outcome = self.wait(name, child, started, skip);
        self.deadline = DEADLINE;
        let passed = outcome.passed == Some(true);
        self.end(outcome);
        passed
    }

    /// The same, if what it needs is there.
    pub fn step_if(&mut self, built: bool, name: &str, command: &mut Command) {
        if built {
            self.step(name, command);
        } else {
            self.skip(name, "what it needs could not be built, or fetched");
        }
    }

    /// A command that is no step: only its log is wanted.
    pub fn quietly(&mut self, name: &str, command: &mut Command) -> bool {
        let child = self.start(name, command);
        child.and_then(end_of).is_ok_and(|(status, _)| status.success())
    }

    /// A step that does not run.
    pub fn skip(&mut self, name: &str, why: &str) {
        self.note(&format!("{name}: {why}"));
        (self.deadline, self.skip_code) = (DEADLINE, None);
        self.end(Outcome {
            name: name.to_owned(),
            passed: None,
            wall: Duration::ZERO,
            cpu: 0.0,
            detail: why.to_owned(),
        });
    }

    /// A step that cannot be run, though it could be built.
    pub fn fail(&mut self, name: &str, why: &str) {
        self.end(Outcome {
            name: name.to_owned(),
            passed: Some(false),
            wall: Duration::ZERO,
            cpu: 0.0,
            detail: why.to_owned(),
        });
    }

    /// Skips that the tests of a step told in their output.
    pub fn note_skips(&self, step: &str) {
        let text = self.log_of(step).text();
        for line in text.lines() {
            let told = ["SKIP ", "SKIPPED ", "skipped: "]
                .iter()
                .find_map(|word| line.strip_prefix(word));
            if let Some(told) = told.filter(|told| !told.starts_with(' ')) {
                self.note(told);
            }
        }
    }

    fn note(&self, line: &str) {
        let file = OpenOptions::new().append(true).open(&self.skip_log);
        if let Err(error) = file.and_then(|mut file| writeln!(file, "{line}")) {
            println!("the skip could not be noted: {error}: {line}");
        }
    }

    /// Runs steps in so many lanes, each of which takes the next step when its last has ended: those first that took the most CPU time
    /// when it was recorded. What is not recorded goes before all: it may be long.
    pub fn side_by_side(&mut self, lanes: usize, mut steps: Vec<(String, Command)>) {
        let recorded = times::read(Path::new(times::FILE)).unwrap_or_default();
        let seconds = |name: &str| recorded.get(name).copied().unwrap_or(f64::MAX);
        steps.sort_by(|(a, _), (b, _)| seconds(b).total_cmp(&seconds(a)));
        let waiting = Mutex::new(steps.into_iter());
        let ended = Mutex::new(Vec::new());
        let suite = &*self;
        let lane = || {
            let next = || waiting.lock().ok()?.next();
            while let Some((name, command)) = next() {
                println!("{:<8} {name}", "run");
                let started = Instant::now();
                let child = suite.start(&name, &command);
                let outcome = suite.wait(&name, child, started, None);
                if let Ok(mut ended) = ended.lock() {
                    suite.tell(&outcome);
                    ended.push(outcome);
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..lanes {
                scope.spawn(lane);
            }
        });
        self.outcomes.extend(ended.into_inner().unwrap_or_default());
    }

    fn start(&self, name: &str, command: &Command) -> io::Result<Child> {
        let log = File::create(self.log_of(name).0)?;
        let mut timed = Command::new("timeout");
        timed.args(["--foreground", "-k", "30", &self.deadline.to_string()]);
        timed.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => timed.env(name, value),
                None => timed.env_remove(name),
            };
        }
        if let Some(dir) = command.get_current_dir() {
            timed.current_dir(dir);
        }
        // (Logs are read.)
        timed
            .env("VNIC_SKIP_LOG", &self.skip_log)
            .env("CARGO_TERM_COLOR", "never");
        timed
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
    }

    /// Waits for a step's process. `skip`: an exit code that says that the step could not judge, and what is skipped then.
    fn wait(
        &self,
        name: &str,
        child: io::Result<Child>,
        started: Instant,
        skip: Option<(i32, &'static str)>,
    ) -> Outcome {
        let log = self.log_of(name);
        let (done, waits) = channel::<()>();
        let (shown, step) = (log.clone(), name.to_owned());
        let ticker = std::thread::spawn(move || {
            while waits.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                println!(
                    "     ... {step}, {} s: {}",
                    started.elapsed().as_secs(),
                    shown.last_words()
                );
            }
        });
        let ended = child.and_then(end_of);
        drop(done);
        let _ = ticker.join();
        let code = ended.as_ref().ok().and_then(|(status, _)| status.code());
        let unjudged = skip.filter(|(of, _)| code == Some(*of));
        if let Some((_, why)) = unjudged {
            self.note(why);
        }
        let [p, f, i] = log.counts();
        let mut detail = String::new();
        if p + f + i > 0 {
            detail = format!("{p} tests passed, {f} failed, {i} ignored");
        }
        if let Err(error) = &ended {
            detail = format!("cannot be started: {error}");
        }
        Outcome {
            name: name.to_owned(),
            passed: Some(code == Some(0) || unjudged.is_some()),
            wall: started.elapsed(),
            cpu: ended.map_or(0.0, |(_, cpu)| cpu),
            detail,
        }
    }

    /// Prints how a step has ended, and why it failed.
    fn tell(&self, outcome: &Outcome) {
        println!("{}", outcome.line());
        if outcome.passed == Some(false) && outcome.wall > Duration::ZERO {
            self.log_of(&outcome.name).tell_failure();
        }
    }

    fn end(&mut self, outcome: Outcome) {
        self.tell(&outcome);
        self.outcomes.push(outcome);
    }
}

impl Outcome {
    /// As it is printed.
    pub fn line(&self) -> String {
        let result = match self.passed {
            Some(true) => "passed",
            Some(false) => "FAILED",
            None => "skipped",
        };
        let (wall, cpu) = (self.wall.as_secs_f64(), self.cpu);
        let line = format!(
            "{result:<8} {:<30} {wall:>6.1} s {cpu:>7.1} s of CPU  {}",
            self.name, self.detail
        );
        line.trim_end().to_owned()
    }
}

/// A command that runs beside the steps, and is one when it is waited for.
#[derive(Debug)]
pub struct Background {
    name: &'static str,
    child: io::Result<Child>,
    started: Instant,
}

impl Background {
    /// Starts it.
    pub fn start(suite: &Suite, name: &'static str, command: &mut Command) -> Background {
        Background {
            name,
            child: suite.start(name, command),
            started: Instant::now(),
        }
    }

    /// Waits for it.
    pub fn end(self, suite: &mut Suite) -> bool {
        println!("{:<8} {}", "run", self.name);
        suite.wait_and_end(self.name, self.child, self.started)
    }
}

/// Waits until a process has ended: its status, and its seconds of CPU time with those of the processes that it waited for.
///
/// One thread at a time takes the status of one process, so that what is counted meanwhile is that process's own.
fn end_of(mut child: Child) -> io::Result<(ExitStatus, f64)> {
    /// Between two looks.
    const PAUSE: Duration = Duration::from_millis(20);
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    loop {
        {
            let _alone = ONE_AT_A_TIME.lock();
            let before = children_cpu();
            if let Some(status) = child.try_wait()? {
                return Ok((status, children_cpu() - before));
            }
        }
        std::thread::sleep(PAUSE);
    }
}

/// Seconds of CPU time of all processes that this one has waited for, and those that they have (`cutime`, `cstime` of proc(5)).
fn children_cpu() -> f64 {
    /// Of a second; the same on every Linux that runs here.
    const TICKS: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // (The program's name may have blanks in it.)
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks = fields.skip(13).take(2).filter_map(|n| n.parse::<u64>().ok());
    ticks.sum::<u64>() as f64 / TICKS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_each_child_is_its_own() {
        let cpu = |script: &str| {
            let child = Command::new("sh").args(["-c", script]).spawn();
            let (status, cpu) = end_of(child.expect("a shell")).expect("an end");
            assert!(status.success());
            cpu
        };
        let busy = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
        let (one, other, idle) = std::thread::scope(|scope| {
            let both = [busy, busy].map(|script| scope.spawn(move || cpu(script)));
            let idle = cpu("sleep 0.01");
            let [one, other] = both.map(|thread| thread.join().expect("its seconds"));
            (one, other, idle)
        });
        assert!(
            one > 0.0 && other > 0.0 && idle < one.min(other),
            "{one} {other} {idle}"
        );
    }
}
