//! The machine under the bench: what it is, how much of a CPU a thread got.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

/// What a reader needs to judge figures.
pub fn describe() -> Value {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo
        .lines()
        .find_map(|l| l.strip_prefix("model name")?.split_once(": "));
    let line = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    json!({
        "cpu": model.map_or("unknown", |(_, m)| m),
        "cpus": std::thread::available_parallelism().map_or(1, usize::from),
        "kernel": line("/proc/sys/kernel/osrelease"),
        "load": line("/proc/loadavg").split(' ').next().and_then(|l| l.parse::<f64>().ok()),
    })
}

/// Time a set of threads spent on a CPU, and waiting for one that somebody else had.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// Running, in ns.
    pub ran: u64,
    /// Ready to run but not running, in ns.
    pub waited: u64,
}

impl CpuTime {
    /// Of the threads of process `pid` whose name starts with `prefix`.
    pub fn of(pid: u32, prefix: &str) -> CpuTime {
        let mut sum = CpuTime::default();
        let threads = CpuTime::by_thread(pid).into_iter();
        for (_, t) in threads.filter(|(name, _)| name.starts_with(prefix)) {
            sum.ran += t.ran;
            sum.waited += t.waited;
        }
        sum
    }

    /// Of each thread of a process, by name: those of one name together.
    pub fn by_thread(pid: u32) -> BTreeMap<String, CpuTime> {
        let mut all = BTreeMap::<String, CpuTime>::new();
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
        for task in tasks.flatten() {
            let name = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
            let (t, sum) = (
                CpuTime::of_task(&task.path()),
                all.entry(name.trim().to_owned()).or_default(),
            );
            sum.ran += t.ran;
            sum.waited += t.waited;
        }
        all
    }

    fn of_task(task: &Path) -> CpuTime {
        let text = fs::read_to_string(task.join("schedstat")).unwrap_or_default();
        let mut fields = text.split_ascii_whitespace().filter_map(|f| f.parse().ok());
        CpuTime {
            ran: fields.next().unwrap_or(0),
            waited: fields.next().unwrap_or(0),
        }
    }

    /// What came on top since `earlier`.
    pub fn since(self, earlier: CpuTime) -> CpuTime {
        CpuTime {
            ran: self.ran.saturating_sub(earlier.ran),
            waited: self.waited.saturating_sub(earlier.waited),
        }
    }

    /// The share of the CPU that a thread got while it wanted to run: 1 when nobody disturbed it.
    pub fn share(self) -> f64 {
        if self.ran + self.waited == 0 {
            1.0
        } else {
            self.ran as f64 / (self.ran + self.waited) as f64
        }
    }
}

/// Real-time priority for a measurement, so that no other program takes CPU from the threads that poll. Other
/// programs stand still meanwhile but for the 5 % that Linux keeps for them.
#[derive(Debug)]
pub struct RealTime {
    /// In the order in which they become ordinary again.
    raised: Vec<u32>,
}

/// Those who poll, and those who must get a word in between.
const POLLING: &str = "1";
const ASKING: &str = "2";

impl RealTime {
    /// For the threads of these processes; those that poll have names that start with `vnic-core` or `rte-worker`.
    /// The others come before them: a stop signal, for one, is for a process's main thread to see.
    pub fn raise(pids: &[u32]) -> Result<RealTime> {
        let own = std::process::id();
        let mut rt = RealTime { raised: Vec::new() };
        // First ourselves: what we start from now on inherits it.
        rt.set(ASKING, own)?;
        for &pid in pids {
            for task in fs::read_dir(format!("/proc/{pid}/task"))?.flatten() {
                let name = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
                let polls = name.starts_with("vnic-core") || name.starts_with("rte-worker");
                let Some(tid) = task.file_name().to_str().and_then(|t| t.parse().ok()) else {
                    continue;
                };
                if tid != own {
                    rt.set(if polls { POLLING } else { ASKING }, tid)?;
                }
            }
        }
        Ok(rt)
    }

    fn set(&mut self, priority: &str, tid: u32) -> Result<()> {
        chrt("-f", priority, tid)?;
        self.raised.insert(0, tid);
        Ok(())
    }
}

impl Drop for RealTime {
    fn drop(&mut self) {
        for &tid in &self.raised {
            let _ = chrt("-o", "0", tid);
        }
    }
}

fn chrt(policy: &str, priority: &str, tid: u32) -> Result<()> {
    let status = Command::new("chrt")
        .args([policy, "-p", priority, &tid.to_string()])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .context("running chrt (of util-linux)")?;
    ensure!(
        status.success(),
        "no right to set a real-time priority: run as root or without --realtime"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_threads_have_run() {
        let mut spin = 0u64;
        while CpuTime::of(std::process::id(), "").ran == 0 && spin < 1_000_000 {
            spin += 1;
        }
        assert!(CpuTime::of(std::process::id(), "").ran > 0);
        assert_eq!(
            CpuTime::of(std::process::id(), "no-such-thread"),
            CpuTime::default()
        );
    }

    #[test]
    fn a_share_is_what_was_wanted() {
        assert_eq!(CpuTime { ran: 3, waited: 1 }.share(), 0.75);
        assert_eq!(CpuTime::default().share(), 1.0);
    }

    #[test]
    fn the_machine_has_a_name() {
        let d = describe();
        assert!(d["cpus"].as_u64().is_some_and(|n| n > 0), "{d}");
        assert!(d["kernel"].as_str().is_some_and(|k| !k.is_empty()), "{d}");
    }
}
