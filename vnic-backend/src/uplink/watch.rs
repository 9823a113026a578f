//! Follows the devices of ports: a thread that sleeps until the kernel tells of a change at any link, or for a while.

use std::os::fd::OwnedFd;
use std::thread::Builder;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::link::{self, Links};
use crate::types::NicError;

/// What it needs from the kernel.
pub struct Watch {
    /// To ask.
    pub links: Links,
    /// When all devices were looked at last.
    pub looked: Option<Instant>,
    changes: OwnedFd,
}

impl Watch {
    /// Asks the kernel for it.
    pub fn open() -> Result<Watch, NicError> {
        let os = || NicError::os("opening a netlink socket");
        Ok(Watch {
            links: Links::open().map_err(os())?,
            looked: None,
            changes: link::changes().map_err(os())?,
        })
    }

    /// Starts the thread. `look` says how long it may sleep then, if the kernel tells nothing; none: it ends.
    pub fn start(
        mut self,
        mut look: impl FnMut(&mut Watch) -> Option<Duration> + Send + 'static,
    ) -> Result<(), NicError> {
        let thread = Builder::new().name("vnic-links".into()).spawn(move || {
            while let Some(timeout) = look(&mut self) {
                self.wait(timeout);
            }
        });
        thread.map(drop).map_err(NicError::os("starting a thread"))
    }

    fn wait(&self, timeout: Duration) {
        let timeout = Timespec {
            tv_sec: timeout.as_secs().cast_signed(),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        // An interrupted wait is a short one.
        let _ = poll(&mut [PollFd::new(&self.changes, PollFlags::IN)], Some(&timeout));
    }

    /// What the kernel has told since, in its order: the index of a device, and whether it is up; none: it is gone. News can
    /// be lost (the kernel drops what nobody reads in time): then there is less than was told. None at all: nothing is new.
    pub fn news(&self) -> Option<Vec<(u32, Option<bool>)>> {
        let mut all = None;
        let mut told = [0; 32 * 1024];
        loop {
            match rustix::net::recv(&self.changes, &mut told[..], RecvFlags::DONTWAIT) {
                Ok((n, _)) => {
                    let news = link::news(&told[..n.min(told.len())]);
                    all.get_or_insert_with(Vec::new).extend(news);
                }
                // Some were lost; those that are there follow.
                Err(Errno::NOBUFS) => drop(all.get_or_insert_with(Vec::new)),
                Err(_) => return all,
            }
        }
    }
}
