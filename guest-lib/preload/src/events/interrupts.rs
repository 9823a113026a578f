//! Waiting as `read` on a descriptor of the kernel would.

use std::ffi::c_int;
use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io;

use crate::errno::Errno;

/// Has the program asked not to wait at this descriptor?
pub fn is_nonblocking(fd: BorrowedFd<'_>) -> bool {
    fcntl_getfl(fd).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK))
}

/// Descriptors begin as programs expect them: with waiting.
pub fn make_blocking(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    let flags = fcntl_getfl(fd).map_err(errno)?;
    fcntl_setfl(fd, flags - OFlags::NONBLOCK).map_err(errno)
}

/// Waits until it is readable. A signal ends that with EINTR, if its handler was not installed to let calls go on.
pub fn wait_readable(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    loop {
        match poll(&mut [PollFd::new(&fd, PollFlags::IN)], None) {
            Ok(_) => return Ok(()),
            Err(io::Errno::INTR) if !may_interrupt() => {}
            Err(e) => return Err(errno(e)),
        }
    }
}

fn errno(e: io::Errno) -> Errno {
    Errno(e.raw_os_error())
}

/// Is there a handler that ends waiting? `poll` ends at every signal, while `read`, for which this stands, goes on
/// after handlers with `SA_RESTART`. Which signal it was is not known; so one handler without it is enough.
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
