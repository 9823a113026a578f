//! Pairs of network devices that are wired to each other, in a network namespace of this thread's own.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use nix::sched::{CloneFlags, unshare};
use vnic_backend::{NicError, PortKind, PortSpec};

/// The pair `left` and `right`, and more of them. The namespace, and all that is in it, is gone when the test's threads are.
pub struct Veth {
    mtu: u16,
    pairs: usize,
}

/// The ends of the pair.
pub const ENDS: [&str; 2] = ["left", "right"];

/// The ends of a pair, by its number.
pub fn ends(pair: usize) -> [String; 2] {
    ENDS.map(|end| match pair {
        0 => end.into(),
        n => format!("{end}{n}"),
    })
}

impl Veth {
    /// Takes this thread, and those that it starts, into a namespace with such a pair; none where this machine does not
    /// allow it.
    pub fn new(mtu: u16) -> Result<Option<Veth>> {
        Veth::several(mtu, 1)
    }

    /// The same with so many pairs.
    pub fn several(mtu: u16, pairs: usize) -> Result<Option<Veth>> {
        if let Err(errno) = unshare(CloneFlags::CLONE_NEWNET) {
            println!("skipped: a network namespace: {errno}");
            return Ok(None);
        }
        // Frames of the host's own would disturb.
        std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").or_else(|e| {
            let absent = e.kind() == std::io::ErrorKind::NotFound;
            if absent { Ok(()) } else { Err(e) }
        })?;
        let veth = Veth { mtu, pairs };
        for pair in 0..pairs {
            veth.make_pair(pair)?;
        }
        Ok(Some(veth))
    }

    /// Makes the pair, which was deleted or was not there yet.
    pub fn make(&self) -> Result<()> {
        self.make_pair(0)
    }

    /// The same with the pair of this number.
    pub fn make_pair(&self, pair: usize) -> Result<()> {
        let [left, right] = ends(pair);
        ip(&["link", "add", &left, "type", "veth", "peer", "name", &right])?;
        for end in [left, right] {
            ip(&["link", "set", &end, "mtu", &self.mtu.to_string(), "up"])?;
        }
        Ok(())
    }

    /// What ports `p0`, `p1`, … over the ends of all pairs at one side are made from.
    pub fn ports(&self, kind: &str, side: usize) -> Result<Vec<PortSpec>> {
        let port = |pair: usize| {
            let [left, right] = ends(pair);
            Ok(PortSpec {
                name: format!("p{pair}"),
                ..self.port(kind, if side == 0 { &left } else { &right })?
            })
        };
        (0..self.pairs).map(port).collect()
    }

    /// What a port `p0` over an end is made from.
    pub fn port(&self, kind: &str, end: &str) -> Result<PortSpec> {
        Ok(PortSpec {
            mtu: self.mtu,
            ..PortSpec::new(
                "p0",
                PortKind::new(kind, end.into()).context("no such kind of port")?,
            )
        })
    }
}

/// Runs `ip` with these arguments.
pub fn ip(arguments: &[&str]) -> Result<()> {
    let output = Command::new("ip")
        .args(arguments)
        .output()
        .context("starting ip")?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ip {}: {error}", arguments.join(" "));
    Ok(())
}

/// The text of what a NIC refused.
pub fn refusal<T>(answer: Result<T, NicError>) -> Result<String> {
    match answer {
        Ok(_) => anyhow::bail!("it was not refused"),
        Err(error) => Ok(error.to_string()),
    }
}
