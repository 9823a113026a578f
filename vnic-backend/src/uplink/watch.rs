//! Follows the devices of ports: a thread that sleeps until the kernel reports a change of any link, or for a while.

use std::os::fd::OwnedFd;
use std::thread::Builder;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::link::{self, Links};
use crate::types::NicError;

/// Sockets of the thread.
pub struct Watch {
    /// Socket for queries.
    pub links: Links,
    /// When all devices were last looked at.
    pub looked: Option<Instant>,
    changes: OwnedFd,
}

impl Watch {
    /// Opens the sockets.
    pub fn open() -> Result<Watch, NicError> {
        let os = || NicError::os("opening a netlink socket");
        Ok(Watch {
            links: Links::open().map_err(os())?,
            looked: None,
            changes: link::changes().map_err(os())?,
        })
    }

    /// Starts the thread. `look` returns how long it may then sleep without a message; `None`: the thread ends.
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

    /// Messages of the kernel since the last call, in its order: the index of a device, and whether it is up; `None`: it is
    /// gone. Messages can be lost (the kernel drops them if they are not read in time): the list is then shorter. No list:
    /// there is no message.
    pub fn news(&self) -> Option<Vec<(u32, Option<bool>)>> {
        let mut all = None;
        let mut told = [0; 32 * 1024];
        loop {
            match rustix::net::recv(&self.changes, &mut told[..], RecvFlags::DONTWAIT) {
                Ok((n, _)) => {
                    let news = link::news(&told[..n.min(told.len())]);
                    all.get_or_insert_with(Vec::new).extend(news);
                }
                // Some messages were lost; the others follow.
                Err(Errno::NOBUFS) => drop(all.get_or_insert_with(Vec::new)),
                Err(_) => return all,
            }
        }
    }
}
