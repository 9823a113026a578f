//! Eventfds of others, signalled without ever waiting.
//!
//! write(2) waits while the counter of an eventfd is at its end and O_NONBLOCK is not set. Both are the guest's side's to
//! change at any time, for it shares the open file, so no look beforehand helps; RWF_NOWAIT is not for eventfds. The kernel's own
//! devices do not write: they signal, which adds to the counter as much as there is room for. For programs there is one
//! way to that: a request of asynchronous I/O that tells of its end by an eventfd (io_submit(2), IOCB_FLAG_RESFD). The
//! request reads nothing of an empty file and is done before the call returns: it is one system call, as the write
//! would be.

#![expect(unsafe_code, reason = "asynchronous I/O, for which no safe crate has a name")]

use std::ffi::{c_long, c_ulong};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, memfd_create};

/// Requests that are done and not taken back. (What they say is of no interest.)
const DONE: usize = 128;
/// IOCB_CMD_PREAD.
const READ: u16 = 0;
/// IOCB_FLAG_RESFD.
const TELLS: u32 = 1;

/// `struct iocb` (linux/aio_abi.h) of little-endian machines.
#[repr(C)]
#[derive(Default)]
struct Request {
    data: u64,
    key: u32,
    rw_flags: u32,
    opcode: u16,
    priority: i16,
    file: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    told: u32,
}

/// `struct io_event`.
type Event = [u64; 4];

/// The way to signal eventfds. Each data core has one.
#[derive(Debug)]
pub struct Signals {
    /// What io_setup gave; 0: ended.
    context: AtomicU64,
    /// A file without a byte.
    nothing: OwnedFd,
}

impl Signals {
    /// A new one.
    pub fn new() -> io::Result<Signals> {
        let nothing = memfd_create("vnic-nothing", MemfdFlags::CLOEXEC)?;
        let mut context: c_ulong = 0;
        // SAFETY: the kernel writes the context's name.
        match unsafe { libc::syscall(libc::SYS_io_setup, DONE as c_long, &mut context) } {
            0 => Ok(Signals {
                context: AtomicU64::new(context),
                nothing,
            }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Adds 1 to an eventfd, or nothing if it is full.
    pub fn signal(&self, eventfd: BorrowedFd<'_>) -> io::Result<()> {
        if self.submit(eventfd) {
            return Ok(());
        }
        // No room for one more that is done, perhaps.
        self.take_back();
        if self.submit(eventfd) {
            return Ok(());
        }
        Err(io::Error::last_os_error())
    }

    /// Gives the context back: nothing is signalled any more. The kernel takes 30 ms for it.
    pub fn end(&self) {
        let context = self.context.swap(0, Ordering::AcqRel);
        if context != 0 {
            // SAFETY: the context is ours. Who is about to use it is refused (EINVAL), for its name is no longer known.
            unsafe { libc::syscall(libc::SYS_io_destroy, context) };
        }
    }

    fn context(&self) -> c_ulong {
        self.context.load(Ordering::Relaxed)
    }

    fn submit(&self, eventfd: BorrowedFd<'_>) -> bool {
        let mut request = Request {
            opcode: READ,
            file: self.nothing.as_raw_fd().cast_unsigned(),
            flags: TELLS,
            told: eventfd.as_raw_fd().cast_unsigned(),
            ..Request::default()
        };
        let list = [&raw mut request];
        // SAFETY: one valid request, which is not looked at any more when the call returns; it has no buffer.
        let taken = unsafe { libc::syscall(libc::SYS_io_submit, self.context(), 1 as c_long, list.as_ptr()) };
        taken == 1
    }

    #[cold]
    fn take_back(&self) {
        let mut events = [const { MaybeUninit::<Event>::uninit() }; DONE];
        let now = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: there is room for as many events as are asked for; with no time to wait, none is waited for.
        unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.context(),
                0 as c_long,
                DONE as c_long,
                events.as_mut_ptr(),
                &now,
            )
        };
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.end();
    }
}
