//! Stops all other threads of this process for a moment, by a signal whose handler waits.
//!
//! The signal is one that the C library keeps for itself (SIGSETXID, 33): it does not let programs block it, so
//! threads that block all others are stopped, too. The handler is ours only while threads are stopped, and it
//! passes signals of others on. A thread that cannot be stopped (it blocks that signal, too, or hangs in the
//! kernel) is waited for a while; then the stop fails.
//!
//! A stopped thread may hold any lock, that of the allocator as well: while threads are stopped nothing here allocates.
//!
//! The program's environment may forbid it ([`VARIABLE`]).

#![expect(
    unsafe_code,
    reason = "stops threads by a signal, which no library of ours speaks of"
)]

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
use std::time::Duration;

use rustix::io::Errno;

use super::threads::{self, THREADS};

/// Environment variable that forbids to stop threads if it is 0.
pub(crate) const VARIABLE: &str = "VNIC_STOP_THREADS";

/// SIGSETXID of the C library.
const SIGNAL: i32 = 33;
/// How often the stop looks whether all threads wait, and how long it sleeps between.
const LOOKS: u32 = 40_000;
const BETWEEN: Duration = Duration::from_micros(50);

/// Odd while threads are to wait.
static PHASE: AtomicU32 = AtomicU32::new(0);
/// Threads that wait.
static WAITING: AtomicUsize = AtomicUsize::new(0);
/// Threads that wait, and in which phase: see [`entry`].
static THREADS_WAITING: [AtomicU64; THREADS] = [const { AtomicU64::new(0) }; THREADS];
/// The thread that is never stopped; 0: none.
static SPARED: AtomicU32 = AtomicU32::new(0);
static SPARED_STACK: (AtomicUsize, AtomicUsize) = (AtomicUsize::new(0), AtomicUsize::new(0));
/// The handler that was there before.
static BEFORE: AtomicUsize = AtomicUsize::new(0);
/// Whether the old handler is told of the sender (SA_SIGINFO).
static BEFORE_IS_TOLD: AtomicBool = AtomicBool::new(false);

/// The kernel's structure of a handler.
#[repr(C)]
#[derive(Clone, Copy)]
struct Action {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

/// The kernel's information on a queued signal.
#[repr(C)]
struct Info {
    signal: i32,
    errno: i32,
    code: i32,
    _pad: i32,
    pid: i32,
    uid: u32,
    value: usize,
    _rest: [u64; 12],
}

const _: () = assert!(size_of::<Info>() == 128);

const SA_RESTORER: u64 = 0x0400_0000;

/// The address that a handler of this signal returns to.
#[cfg(target_arch = "x86_64")]
// SAFETY: the system call by which a handler ends; the kernel returns here with the stack as it wants it.
#[unsafe(naked)]
unsafe extern "C" fn end_of_handler() {
    std::arch::naked_asm!("mov eax, 15", "syscall")
}

fn action() -> Action {
    let flags = (libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK) as u64;
    #[cfg(target_arch = "x86_64")]
    let (flags, restorer) = (flags | SA_RESTORER, end_of_handler as *const () as usize);
    // Other architectures need no address: the kernel knows where to return to.
    #[cfg(not(target_arch = "x86_64"))]
    let restorer = 0;
    Action {
        handler: wait_here as extern "C" fn(i32, *mut Info, *mut c_void) as usize,
        flags,
        restorer,
        mask: !0,
    }
}

/// The mark that tells our signals from others.
fn mark() -> usize {
    &raw const PHASE as usize
}

/// An entry for a thread that waits. An entry of an earlier phase says nothing about this one.
fn entry(phase: u32, thread: u32) -> u64 {
    u64::from(phase) << 32 | u64::from(thread)
}

extern "C" fn wait_here(signal: i32, info: *mut Info, context: *mut c_void) {
    // SAFETY: the kernel's, and there until the handler ends.
    let told = unsafe { &*info };
    if told.code != libc::SI_QUEUE || told.value != mark() {
        pass_on(signal, info, context);
        return;
    }
    let phase = PHASE.load(Acquire);
    if phase.is_multiple_of(2) {
        return;
    }
    // SAFETY: the number of this thread's last error; what it interrupted may be about to look at it.
    let errno = unsafe { *libc::__errno_location() };
    let i = WAITING.fetch_add(1, AcqRel);
    if let Some(place) = THREADS_WAITING.get(i) {
        // SAFETY: it always succeeds.
        let me = unsafe { libc::syscall(libc::SYS_gettid) };
        place.store(entry(phase, me as u32), Release);
    }
    while PHASE.load(Acquire) == phase {
        let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: a word that is always there; it waits only while the word is what it was.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                PHASE.as_ptr(),
                operation,
                phase,
                std::ptr::null::<c_void>(),
            )
        };
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

fn pass_on(signal: i32, info: *mut Info, context: *mut c_void) {
    let before = BEFORE.load(Acquire);
    if before == libc::SIG_DFL || before == libc::SIG_IGN {
        return;
    }
    if BEFORE_IS_TOLD.load(Acquire) {
        // SAFETY: a handler that was set for this signal with SA_SIGINFO.
        let handler: extern "C" fn(i32, *mut Info, *mut c_void) = unsafe { std::mem::transmute(before) };
        handler(signal, info, context);
    } else {
        // SAFETY: a handler that was set for this signal without SA_SIGINFO.
        let handler: extern "C" fn(i32) = unsafe { std::mem::transmute(before) };
        handler(signal);
    }
}

/// Sets the handler, and returns the one before.
fn set(action: &Action) -> Result<Action, Errno> {
    let mut before = MaybeUninit::<Action>::zeroed();
    // The C library's own function refuses this signal.
    // SAFETY: both have the kernel's layout; a mask has 8 bytes.
    let result = unsafe {
        libc::syscall(
            libc::SYS_rt_sigaction,
            SIGNAL,
            &raw const *action,
            before.as_mut_ptr(),
            8usize,
        )
    };
    if result != 0 {
        return Err(last_error());
    }
    // SAFETY: all zeros before, filled by the kernel now: any bytes are a value.
    Ok(unsafe { before.assume_init() })
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// Never stops this thread, until the process forks. Who stops the others may wait for it: it reads what userfaultfd tells of
/// unmapped memory ([`watch`](super::super::watch)), and writes to no memory that is moved.
pub(in super::super) fn spare_this_thread() {
    // SAFETY: it always succeeds.
    let me = unsafe { libc::syscall(libc::SYS_gettid) } as u32;
    let (from, to) = threads::stack();
    SPARED_STACK.0.store(from, Release);
    SPARED_STACK.1.store(to, Release);
    SPARED.store(me, Release);
}

/// The stack of the thread that is never stopped: first byte, and the one behind the last.
pub(super) fn spared_stack() -> (usize, usize) {
    match SPARED.load(Acquire) {
        0 => (0, 0),
        _ => (SPARED_STACK.0.load(Acquire), SPARED_STACK.1.load(Acquire)),
    }
}

/// Spares no thread: in a forked child numbers of threads are others'.
pub(super) fn spare_nobody() {
    SPARED.store(0, Release);
}

/// Whether threads may be stopped. The environment is asked once.
pub(crate) fn is_allowed() -> bool {
    static ALLOWED: OnceLock<bool> = OnceLock::new();
    *ALLOWED.get_or_init(|| std::env::var_os(VARIABLE).is_none_or(|value| value != "0"))
}

/// Runs `work` while all other threads of the process are stopped, and returns its result. EPERM: they may not be stopped.
/// One caller at a time.
///
/// `work` must not allocate, and take no lock.
pub(super) fn during<R>(work: impl FnOnce() -> R) -> Result<R, Errno> {
    if !is_allowed() {
        return Err(Errno::PERM);
    }
    let action = action();
    let before = set(&action)?;
    if before.handler != action.handler {
        BEFORE_IS_TOLD.store(before.flags & libc::SA_SIGINFO as u64 != 0, Release);
        BEFORE.store(before.handler, Release);
    }
    WAITING.store(0, Release);
    PHASE.fetch_add(1, AcqRel);
    let stopped = stop_all();
    let result = stopped.map(|()| work());
    PHASE.fetch_add(1, AcqRel);
    // SAFETY: wakes those who wait at a word that is always there.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            PHASE.as_ptr(),
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            i32::MAX,
        )
    };
    // A signal that has not arrived yet still needs our handler.
    if stopped.is_ok() && before.handler != action.handler {
        let _ = set(&before);
    }
    result
}

/// Stops all other threads: when it succeeds, they wait in the handler.
fn stop_all() -> Result<(), Errno> {
    // SAFETY: these always succeed.
    let (process, me) = unsafe { (libc::getpid(), libc::syscall(libc::SYS_gettid) as u32) };
    let (phase, spared) = (PHASE.load(Acquire), SPARED.load(Acquire));
    let (mut sent, mut count) = ([0u32; THREADS], 0);
    for _ in 0..LOOKS {
        let mut missing = false;
        threads::each(|thread| {
            if thread == me || thread == spared || waits(entry(phase, thread)) {
                return Ok(());
            }
            missing = true;
            if sent[..count].contains(&thread) {
                return Ok(());
            }
            match send(process, thread) {
                Ok(()) => {
                    *sent.get_mut(count).ok_or(Errno::RANGE)? = thread;
                    count += 1;
                    Ok(())
                }
                // The thread has ended meanwhile, or too many signals wait: later.
                Err(Errno::SRCH | Errno::AGAIN) => Ok(()),
                Err(e) => Err(e),
            }
        })?;
        if !missing {
            return Ok(());
        }
        // SAFETY: it only waits.
        unsafe {
            let time = libc::timespec {
                tv_sec: 0,
                tv_nsec: BETWEEN.as_nanos() as i64,
            };
            libc::nanosleep(&time, std::ptr::null_mut())
        };
    }
    Err(Errno::TIMEDOUT)
}

fn waits(entry: u64) -> bool {
    let count = WAITING.load(Acquire).min(THREADS);
    THREADS_WAITING[..count].iter().any(|t| t.load(Acquire) == entry)
}

/// Sends the signal to a thread, with our mark.
fn send(process: i32, thread: u32) -> Result<(), Errno> {
    let info = Info {
        signal: SIGNAL,
        errno: 0,
        code: libc::SI_QUEUE,
        _pad: 0,
        pid: process,
        // SAFETY: it always succeeds.
        uid: unsafe { libc::getuid() },
        value: mark(),
        _rest: [0; 12],
    };
    // SAFETY: the structure has the kernel's layout. The signal has a handler, which is ours.
    let result = unsafe {
        libc::syscall(
            libc::SYS_rt_tgsigqueueinfo,
            process,
            thread,
            SIGNAL,
            &raw const info,
        )
    };
    if result == 0 { Ok(()) } else { Err(last_error()) }
}
