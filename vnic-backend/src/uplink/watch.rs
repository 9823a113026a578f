//! Follows the devices of ports: a thread that sleeps until the kernel tells of a change at any link, or for a while.

use std::os::fd::OwnedFd;
use std::thread::Builder;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::RecvFlags;

use super::link::{self, Links};
use crate::types::NicError;

/// News can be lost (the kernel drops what nobody reads in time): devices are looked at this often at least.
const SELDOM: Duration = Duration::from_secs(1);

/// What it needs from the kernel.
pub struct Watch {
    links: Links,
    changes: OwnedFd,
}

impl Watch {
    /// Asks the kernel for it.
    pub fn open() -> Result<Watch, NicError> {
        let os = |source| NicError::Os {
            what: "opening a netlink socket".into(),
            source,
        };
        Ok(Watch {
            links: Links::open().map_err(os)?,
            changes: link::changes().map_err(os)?,
        })
    }

    /// Starts the thread. It ends when `look` says so.
    pub fn start(
        mut self,
        mut look: impl FnMut(&mut Links) -> bool + Send + 'static,
    ) -> Result<(), NicError> {
        let thread = Builder::new().name("vnic-links".into()).spawn(move || {
            while look(&mut self.links) {
                self.wait();
            }
        });
        thread.map(drop).map_err(|source| NicError::Os {
            what: "starting a thread".into(),
            source,
        })
    }

    fn wait(&self) {
        let timeout = Timespec {
            tv_sec: SELDOM.as_secs().cast_signed(),
            tv_nsec: 0,
        };
        // An interrupted wait is a short one.
        let _ = poll(&mut [PollFd::new(&self.changes, PollFlags::IN)], Some(&timeout));
        let mut news = [0; 4096];
        // What it says does not matter: everything is looked at. An error is news that were lost, and ends with them.
        while rustix::net::recv(&self.changes, &mut news[..], RecvFlags::DONTWAIT).is_ok() {}
    }
}
