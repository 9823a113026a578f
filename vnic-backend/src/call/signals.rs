//! Signals to eventfds of other processes, without ever waiting.
//!
//! write(2) waits while the counter of an eventfd is at its maximum and O_NONBLOCK is not set. The guest's side can change
//! both at any time, because it shares the open file, so a check before does not help; RWF_NOWAIT does not work for eventfds.
//! The kernel's own devices do not write: they signal, which adds to the counter as much as there is room for. A program can
//! do that only by a request of asynchronous I/O that reports its end by an eventfd (io_submit(2), IOCB_FLAG_RESFD). The
//! request reads nothing of an empty file and is done before the call returns: it is one system call, as the write would be.

#![expect(unsafe_code, reason = "asynchronous I/O, for which no safe crate has a name")]

use std::ffi::{c_long, c_ulong};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, memfd_create};

/// Largest number of completed requests that were not taken back. (Their results are not used.)
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

/// A context of asynchronous I/O to signal eventfds. Each data core has one.
#[derive(Debug)]
pub struct Signals {
    /// Context of io_setup(2); 0: it was destroyed.
    context: AtomicU64,
    /// An empty file.
    nothing: OwnedFd,
}

impl Signals {
    /// Makes a context.
    pub fn new() -> io::Result<Signals> {
        let nothing = memfd_create("vnic-nothing", MemfdFlags::CLOEXEC)?;
        let mut context: c_ulong = 0;
        // SAFETY: the kernel writes the context.
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
        // There may be no room for another completed request.
        self.take_back();
        if self.submit(eventfd) {
            return Ok(());
        }
        Err(io::Error::last_os_error())
    }

    /// Destroys the context: no eventfd is signalled any more. The kernel takes 30 ms for it.
    pub fn end(&self) {
        let context = self.context.swap(0, Ordering::AcqRel);
        if context != 0 {
            // SAFETY: the context is this value's own. A use from now on is refused (EINVAL), because the kernel does not
            // know it any more.
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
        // SAFETY: one valid request, which is not read any more when the call returns; it has no buffer.
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
        // SAFETY: there is room for all events; with a timeout of zero the call does not wait.
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
