//! Errors of the interface's calls, each reported in one of three ways.

#![expect(unsafe_code, reason = "the C library's place for error numbers")]

use std::ffi::{CStr, c_char, c_int};

use vnic_verbs::{Error, PostReason};

/// A number of `errno.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub c_int);

impl Errno {
    pub const INVALID: Errno = Errno(libc::EINVAL);
    pub const UNSUPPORTED: Errno = Errno(libc::EOPNOTSUPP);
    pub const MISSING: Errno = Errno(libc::ENOSYS);
    pub const BUSY: Errno = Errno(libc::EBUSY);
    pub const NO_MEMORY: Errno = Errno(libc::ENOMEM);
    pub const NO_ENTRY: Errno = Errno(libc::ENOENT);
    pub const NO_DATA: Errno = Errno(libc::ENODATA);
    pub const AGAIN: Errno = Errno(libc::EAGAIN);
    pub const BROKEN: Errno = Errno(libc::EIO);

    /// The same, with its cause for whoever has asked for causes.
    #[cold]
    pub fn because(self, why: &str) -> Errno {
        complain(&why);
        self
    }
}

impl From<Error> for Errno {
    fn from(e: Error) -> Errno {
        complain(&e);
        Errno(e.errno())
    }
}

impl From<rustix::io::Errno> for Errno {
    fn from(e: rustix::io::Errno) -> Errno {
        Errno(e.raw_os_error())
    }
}

impl From<std::io::Error> for Errno {
    fn from(e: std::io::Error) -> Errno {
        e.raw_os_error().map_or(Errno::BROKEN, Errno)
    }
}

impl From<PostReason> for Errno {
    fn from(reason: PostReason) -> Errno {
        // A full queue is nothing special: programs fill queues until they are full.
        if reason != PostReason::Full {
            complain(&reason);
        }
        Errno(match reason {
            PostReason::Full => libc::ENOMEM,
            PostReason::Gone => libc::EIO,
            PostReason::OnDemand(errno) => errno,
            _ => libc::EINVAL,
        })
    }
}

/// Environment variable that makes errors print their text on standard error.
const TALK: &str = "VNIC_IBVERBS_DEBUG";

/// Prints an error's text.
pub fn complain(what: &dyn std::fmt::Display) {
    static WANTED: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    if *WANTED.get_or_init(|| std::env::var_os(TALK).is_some_and(|v| v != "0")) {
        eprintln!("libvnic_ibverbs: {what}");
    }
}

/// Sets `errno` of this thread.
pub fn set(errno: Errno) {
    // SAFETY: the C library's own place for it, of this thread.
    unsafe { *libc::__errno_location() = errno.0 };
}

/// Returns a pointer, or NULL and `errno`.
pub fn pointer<T>(result: Result<*mut T, Errno>) -> *mut T {
    result.unwrap_or_else(|e| {
        set(e);
        std::ptr::null_mut()
    })
}

/// Returns 0, or the number itself. `errno` has it, too, for programs that look there.
pub fn code(result: Result<(), Errno>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(e) => {
            set(e);
            e.0
        }
    }
}

/// Returns a number that is not negative, or -1 and `errno`.
pub fn signed(result: Result<c_int, Errno>) -> c_int {
    result.unwrap_or_else(|e| {
        set(e);
        -1
    })
}

/// Returns a number that is not negative, or the negative error. `errno` has it, too.
pub fn negative(result: Result<usize, Errno>) -> isize {
    match result {
        Ok(count) => count.cast_signed(),
        Err(e) => {
            set(e);
            -(e.0 as isize)
        }
    }
}

/// Returns the value of a call that cannot fail; zeros if it did.
pub fn plain<T: Default>(result: Result<T, Errno>) -> T {
    result.unwrap_or_default()
}

/// Returns a text; NULL if the call failed.
pub fn text(result: Result<&'static CStr, Errno>) -> *const c_char {
    result.map_or(std::ptr::null(), CStr::as_ptr)
}
