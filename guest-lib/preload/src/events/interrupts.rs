//! Waiting as `read` on a descriptor of the kernel does.

#![expect(unsafe_code, reason = "asks how the program handles its signals")]

use std::ffi::c_int;
use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io;

use crate::errno::Errno;

/// Whether the program has made this descriptor non-blocking.
pub fn is_nonblocking(fd: BorrowedFd<'_>) -> bool {
    fcntl_getfl(fd).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK))
}

/// What `take` finds. Waits for it at a descriptor, unless that is non-blocking.
pub fn wait_for<T>(fd: BorrowedFd<'_>, take: impl Fn() -> Result<Option<T>, Errno>) -> Result<T, Errno> {
    loop {
        if let Some(found) = take()? {
            return Ok(found);
        }
        if is_nonblocking(fd) {
            return Err(Errno::AGAIN);
        }
        wait_readable(fd)?;
    }
}

/// Makes a new descriptor blocking, as programs expect.
pub fn make_blocking(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    Ok(fcntl_setfl(fd, fcntl_getfl(fd)? - OFlags::NONBLOCK)?)
}

/// Waits until a descriptor is readable. A signal ends the wait with EINTR, unless its handler was installed with
/// `SA_RESTART`.
fn wait_readable(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    loop {
        match poll(&mut [PollFd::new(&fd, PollFlags::IN)], None) {
            Ok(_) => return Ok(()),
            Err(io::Errno::INTR) if !may_interrupt() => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// Whether there is a handler that ends waiting. `poll` ends at every signal, while `read`, which this replaces,
/// goes on after handlers with `SA_RESTART`. The signal is not known; so one handler without it is enough.
fn may_interrupt() -> bool {
    (1..=libc::SIGRTMAX()).any(ends_waiting)
}

fn ends_waiting(signal: c_int) -> bool {
    // SAFETY: asks only, and writes into a structure of ours, for which zeros are a value.
    let (result, action) = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        (libc::sigaction(signal, std::ptr::null(), &raw mut action), action)
    };
    result == 0
        && !matches!(action.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN)
        && action.sa_flags & libc::SA_RESTART == 0
}
