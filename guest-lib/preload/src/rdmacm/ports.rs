//! Ports that identifiers of this process have.

use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::AtomicU16;
use std::sync::atomic::Ordering::Relaxed;

use crate::errno::Errno;
use crate::sync::lock;

/// Ports for who asks for any (as the kernel's `net.ipv4.ip_local_port_range`).
const ANY: std::ops::Range<u16> = 32_768..61_000;
const IN_USE: Errno = Errno(libc::EADDRINUSE);
const NONE_LEFT: Errno = Errno(libc::EADDRNOTAVAIL);

/// Ports of a process.
#[derive(Debug, Default)]
pub struct Ports {
    taken: Mutex<Vec<Taken>>,
    next: AtomicU16,
}

/// Ports of this process.
pub static PORTS: Ports = Ports {
    taken: Mutex::new(Vec::new()),
    next: AtomicU16::new(0),
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Taken {
    number: u64,
    space: u32,
    port: u16,
    /// Whom it is for; `None`: all.
    address: Option<IpAddr>,
    shared: bool,
}

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// Port space.
    pub space: u32,
    /// 0: any.
    pub port: u16,
    /// `None`: every address.
    pub address: Option<IpAddr>,
    /// Others that allow it, too, may have the same (RDMA_OPTION_ID_REUSEADDR).
    pub shared: bool,
}

/// A port that is taken, until this is dropped.
#[derive(Debug)]
pub struct Lease {
    of: &'static Ports,
    number: u64,
    /// The port.
    pub port: u16,
}

impl Ports {
    /// Takes a port. EADDRINUSE: an identifier has it.
    pub fn take(&'static self, wanted: Wanted) -> Result<Lease, Errno> {
        let mut taken = lock(&self.taken);
        let port = if wanted.port != 0 {
            if clashes(&taken, &wanted, wanted.port) {
                return Err(IN_USE);
            }
            wanted.port
        } else {
            self.any(&taken, &wanted)?
        };
        let number = taken.iter().map(|t| t.number).max().unwrap_or(0).wrapping_add(1);
        taken.push(Taken {
            number,
            space: wanted.space,
            port,
            address: wanted.address,
            shared: wanted.shared,
        });
        Ok(Lease {
            of: self,
            number,
            port,
        })
    }

    /// A free port. The first one depends on the process, so that processes that share an address seldom meet.
    fn any(&self, taken: &[Taken], wanted: &Wanted) -> Result<u16, Errno> {
        let many = ANY.end - ANY.start;
        if self.next.load(Relaxed) == 0 {
            let first = std::process::id().wrapping_mul(0x9e37_79b9) >> 16;
            self.next.store((first % u32::from(many)) as u16, Relaxed);
        }
        for _ in 0..many {
            let step = self.next.fetch_update(Relaxed, Relaxed, |n| Some((n % many) + 1));
            let port = ANY.start + step.unwrap_or(0) % many;
            if !clashes(taken, wanted, port) {
                return Ok(port);
            }
        }
        Err(NONE_LEFT)
    }
}

fn clashes(taken: &[Taken], wanted: &Wanted, port: u16) -> bool {
    taken.iter().any(|t| {
        let meet = match (t.address, wanted.address) {
            (Some(one), Some(other)) => one == other,
            _ => true,
        };
        t.space == wanted.space && t.port == port && meet && !(t.shared && wanted.shared)
    })
}

impl Drop for Lease {
    fn drop(&mut self) {
        lock(&self.of.taken).retain(|t| t.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(port: u16, address: Option<&str>) -> Wanted {
        Wanted {
            space: 0x106,
            port,
            address: address.map(|a| a.parse().expect("an address")),
            shared: false,
        }
    }

    fn ports() -> &'static Ports {
        Box::leak(Box::default())
    }

    #[test]
    fn a_port_has_one_owner_for_each_address() {
        let ports = ports();
        let first = ports.take(wanted(7, Some("10.0.0.1"))).expect("free");
        assert_eq!(ports.take(wanted(7, Some("10.0.0.1"))).err(), Some(IN_USE));
        assert_eq!(
            ports.take(wanted(7, None)).err(),
            Some(IN_USE),
            "that would be both"
        );
        let second = ports.take(wanted(7, Some("10.0.0.2"))).expect("another address");
        let space = Wanted {
            space: 0x111,
            ..wanted(7, None)
        };
        ports.take(space).expect("another space");
        drop((first, second));
        ports.take(wanted(7, None)).expect("free again");
    }

    #[test]
    fn who_shares_shares_with_who_shares() {
        let ports = ports();
        let shared = Wanted {
            shared: true,
            ..wanted(7, None)
        };
        let _one = ports.take(shared).expect("free");
        let _two = ports.take(shared).expect("shared");
        assert_eq!(ports.take(wanted(7, None)).err(), Some(IN_USE));
    }

    #[test]
    fn any_port_is_a_free_one() {
        let ports = ports();
        let some = 300;
        let leases: Vec<_> = (0..some).map(|_| ports.take(wanted(0, None))).collect();
        let mut all: Vec<u16> = leases.iter().flatten().map(|l| l.port).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), some, "each once");
        assert!(all.iter().all(|p| ANY.contains(p)));
    }

    #[test]
    fn there_may_be_none_left() {
        let taken: Vec<Taken> = ANY
            .map(|port| Taken {
                number: port.into(),
                space: 0x106,
                port,
                address: None,
                shared: false,
            })
            .collect();
        assert!(
            ANY.step_by(1000)
                .all(|port| clashes(&taken, &wanted(0, None), port))
        );
        assert!(!clashes(&taken, &wanted(0, None), ANY.end));
    }
}
