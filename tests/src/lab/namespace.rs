//! Hosts that are network namespaces of this machine, without names: two runs never meet, and one is gone when its last
//! program and the value here are.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result, anyhow};
use nix::sched::{CloneFlags, setns, unshare};

use super::output;

/// Numbers of network devices that are not given yet.
static INDEX: AtomicU32 = AtomicU32::new(1000);

/// A network namespace.
#[derive(Debug)]
pub struct Namespace {
    file: File,
}

impl Namespace {
    /// A new one, its loopback interface up. `Err` within: this machine gives us none, and why.
    pub fn new() -> Result<Result<Namespace, String>> {
        // A thread of its own: nobody else is taken along.
        let made = on_thread(|| {
            if let Err(errno) = unshare(CloneFlags::CLONE_NEWNET) {
                return Ok(Err(format!("no network namespace: {errno}")));
            }
            // Frames of the host's own would disturb.
            for which in ["default", "all"] {
                let path = format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6");
                // There may be no IPv6 at all.
                let _ = std::fs::write(path, "1");
            }
            // Only the interface that has an address answers for it. As Linux comes, a wire of the daemon would answer for the
            // address behind a TAP port, and what is sent there never reaches the daemon's kernel.
            std::fs::write("/proc/sys/net/ipv4/conf/all/arp_ignore", "1").context("arp_ignore")?;
            let file = File::open("/proc/thread-self/ns/net").context("the own network namespace")?;
            Ok(Ok(Namespace { file }))
        })?;
        if let Ok(namespace) = &made {
            namespace.ip("link set lo up")?;
        }
        Ok(made)
    }

    /// Where other programs of ours find it, while we live.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }

    /// What stands before the words of a command that shall run in it.
    pub fn prefix(&self) -> Vec<String> {
        vec!["nsenter".into(), format!("--net={}", self.path())]
    }

    /// A program in it, without standard input.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--net={}", self.path()))
            .arg(program)
            .stdin(Stdio::null());
        command
    }

    /// Runs something on a thread in it. What that starts stays in it.
    pub fn run<T: Send>(&self, body: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        on_thread(|| {
            setns(&self.file, CloneFlags::CLONE_NEWNET).context("entering a network namespace")?;
            body()
        })
    }

    /// `ip` with these words.
    pub fn ip(&self, words: &str) -> Result<String> {
        output(self.command("ip").args(words.split_whitespace()))
    }

    /// A pair of devices, one end here and one there, both up.
    pub fn veth(&self, end: &str, there: &Namespace, other_end: &str, mtu: u16) -> Result<()> {
        // Equal numbers at both ends would let the kernel tell of a carrier that is lost up to a second late.
        let index = INDEX.fetch_add(2, Ordering::Relaxed);
        let (other, there_path) = (index + 1, there.path());
        self.ip(&format!(
            "link add {end} index {index} mtu {mtu} type veth peer name {other_end} index {other} mtu {mtu} netns {there_path}"
        ))?;
        self.ip(&format!("link set {end} up"))?;
        there.ip(&format!("link set {other_end} up"))?;
        Ok(())
    }
}

fn on_thread<T: Send>(body: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|s| s.spawn(body).join())
        .map_err(|_| anyhow!("the thread of a network namespace panicked"))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_hosts_hear_each_other_and_nobody_else() -> Result<()> {
        let (Ok(a), Ok(b)) = (Namespace::new()?, Namespace::new()?) else {
            println!("skipped: no network namespaces here");
            return Ok(());
        };
        a.veth("left", &b, "right", 4200)?;
        assert!(a.ip("link show left")?.contains("mtu 4200"));
        assert!(b.ip("link show right")?.contains("mtu 4200"));
        assert!(a.ip("link show right").is_err(), "it is elsewhere");
        assert_ne!(a.run(|| Ok(std::fs::read_link("/proc/thread-self/ns/net")?))?, {
            std::fs::read_link("/proc/thread-self/ns/net")?
        });
        Ok(())
    }
}
