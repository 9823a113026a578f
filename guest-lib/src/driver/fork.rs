//! What a forked child gets of devices: nothing. The parent goes on with them.
//!
//! A child has a copy of all memory and none of the threads. So no thread of ours may hold a lock while the process
//! forks, or the child waits for the lock for ever: our threads work under [`NoFork`]. And a child does not touch what
//! it shares with the parent (rings, eventfds): for the child every device is dead at once
//! ([`Shared::leave_to_parent`]).
//!
//! Children that are made without `fork` of the C library (vfork, posix_spawn, clone) are not seen: they do nothing
//! before they execute another program.

#![expect(unsafe_code, reason = "is called by fork, and its tests fork")]

use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{AcqRel, Release};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};

use super::shared::Shared;
use crate::sync::lock;

/// Threads of ours hold it for reading while they work, a thread that forks for writing.
static AT_WORK: RwLock<()> = RwLock::new(());
/// All devices that are open, and some that were.
static OPEN: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());
/// What a thread has locked while it forks.
static FORKING: AtomicPtr<Forking> = AtomicPtr::new(std::ptr::null_mut());

/// While this value lives, `fork` waits. It is for threads that a library keeps in the background: they should hold it
/// while they work, and not while they wait. A thread that holds it must not fork: it would wait for itself.
#[derive(Debug)]
#[must_use = "forks are held back for as long as it is there"]
pub struct NoFork {
    _at_work: RwLockReadGuard<'static, ()>,
}

impl NoFork {
    /// Waits for a fork that is under way.
    pub fn hold() -> NoFork {
        NoFork {
            _at_work: AT_WORK.read().unwrap_or_else(PoisonError::into_inner),
        }
    }
}

struct Forking {
    open: MutexGuard<'static, Vec<Weak<Shared>>>,
    _at_work: RwLockWriteGuard<'static, ()>,
}

/// Makes a device known that is open from now on.
pub(super) fn watch(shared: &Arc<Shared>) {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        // It fails for want of memory only; then forks go unseen.
        // SAFETY: the three functions are there for as long as this library is.
        let _ = unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
    });
    let mut open = lock(&OPEN);
    open.retain(|one| one.strong_count() > 0);
    open.push(Arc::downgrade(shared));
}

// SAFETY: called by `fork`; nothing is asked of its caller.
unsafe extern "C" fn prepare() {
    let _at_work = AT_WORK.write().unwrap_or_else(PoisonError::into_inner);
    let forking = Box::new(Forking {
        open: lock(&OPEN),
        _at_work,
    });
    // The lock is held: nobody else forks, so there is nothing to lose.
    FORKING.store(Box::into_raw(forking), Release);
}

// SAFETY: called by `fork`; nothing is asked of its caller.
unsafe extern "C" fn parent() {
    drop(take());
}

// SAFETY: called by `fork`; nothing is asked of its caller.
unsafe extern "C" fn child() {
    let Some(mut forking) = take() else {
        return;
    };
    for shared in forking.open.drain(..).filter_map(|one| one.upgrade()) {
        shared.leave_to_parent();
        // If this was the last reference, dropping it would do to the device what only the parent may.
        std::mem::forget(shared);
    }
}

fn take() -> Option<Box<Forking>> {
    let state = FORKING.swap(std::ptr::null_mut(), AcqRel);
    // SAFETY: made by `prepare` from a box, and taken by one only.
    (!state.is_null()).then(|| unsafe { Box::from_raw(state) })
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::RwLock;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use vnic_device::event::{EventKind, EventRecord};

    use super::super::tests::fake::Fake;
    use super::*;
    use crate::{CqBuilder, Device};

    /// Tests that fork hold it for writing, tests that a fork would disturb for reading.
    pub(crate) static FORKS: RwLock<()> = RwLock::new(());

    /// Runs `work` in a child, which exits with its result: 0 if all is well. A child that hangs is killed.
    pub(crate) fn in_child(work: impl FnOnce() -> i32) -> i32 {
        // SAFETY: the child reads and writes memory that is there, and ends at once.
        match unsafe { libc::fork() } {
            0 => {
                // SAFETY: asks for a signal, later.
                unsafe { libc::alarm(120) };
                let code = work();
                // SAFETY: nothing of this process may run any more.
                unsafe { libc::_exit(code) }
            }
            child => {
                assert!(child > 0, "forked");
                let mut status = 0;
                // SAFETY: room for the answer.
                assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
                assert!(libc::WIFEXITED(status), "{status:#x}");
                libc::WEXITSTATUS(status)
            }
        }
    }

    /// So many events that the thread of events has not done with them at the fork.
    const EVENTS: usize = 100;

    /// Whatever a child does to its copies of objects, and however busy the thread of events was at the fork.
    #[test]
    fn a_child_has_no_device_and_its_parent_keeps_it() {
        let _forks = FORKS.write().unwrap_or_else(PoisonError::into_inner);
        let fake = Fake::shared(4096);
        let context = Device::with_transport(Arc::clone(&fake) as _).expect("it starts");
        let channel = context.create_completion_channel().expect("a channel");
        let cq = context
            .create_cq_with(CqBuilder::new(10).channel(&channel))
            .expect("a CQ");
        let event = EventRecord {
            kind: EventKind::Completion.number(),
            object: cq.number(),
            ..EventRecord::default()
        };
        let pd = context.alloc_pd().expect("a PD");
        // The parent still has the event that the child takes.
        let mut all = Some((context, channel, cq, pd));
        for _ in 0..500 {
            (0..EVENTS).for_each(|_| fake.raise(event));
            let code = in_child(|| {
                let Some((context, channel, cq, pd)) = all.take() else {
                    return 1;
                };
                let refused = |e: Option<crate::Error>| {
                    e.is_some_and(|e| e.is_gone() && e.to_string().contains("the parent's of this process"))
                };
                if !refused(context.alloc_pd().err()) {
                    return 2;
                }
                if !refused(context.reset().err()) {
                    return 3;
                }
                if !refused(cq.req_notify(false).err()) {
                    return 4;
                }
                drop((pd, cq, channel, context));
                0
            });
            assert_eq!(code, 0);
            let (context, channel, ..) = all.as_ref().expect("of the parent");
            for _ in 0..EVENTS {
                channel.get_event().expect("an event");
            }
            let zero = Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            let events = context.async_fd();
            let mut fds = [PollFd::new(&events, PollFlags::IN)];
            assert_eq!(poll(&mut fds, Some(&zero)), Ok(0), "nothing has happened");
            context.alloc_pd().expect("it goes on");
        }
        assert!(!fake.stopped.load(std::sync::atomic::Ordering::SeqCst));
        drop(all);
        assert!(fake.stopped.load(std::sync::atomic::Ordering::SeqCst));
    }
}
