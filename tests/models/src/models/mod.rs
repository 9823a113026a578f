//! What threads do around the parts, and what must hold whatever their order.

pub mod doorbells;
pub mod exchange;
pub mod links;
pub mod sigbus;
pub mod virtqueues;

use std::sync::atomic::{AtomicU32, Ordering};

use loom::cell::UnsafeCell;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::BorrowedFd;

/// All executions in which threads are preempted at most so many times where they need not be.
fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 10_000;
    builder.check(model);
}

/// Memory that threads hand on to each other. Loom complains when two reach it and nothing says who was first.
struct Handed(UnsafeCell<()>);

impl Handed {
    fn new() -> Handed {
        Handed(UnsafeCell::new(()))
    }

    fn write(&self) {
        self.0.with_mut(|_| ());
    }

    fn read(&self) {
        self.0.with(|_| ());
    }
}

/// In the place of an eventfd: writes that nobody has waited for.
#[derive(Default)]
struct Kicks(AtomicU32);

impl Kicks {
    fn kick(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    /// Who would sleep is woken.
    fn wake(&self) -> bool {
        self.0.swap(0, Ordering::SeqCst) > 0
    }
}

/// Would a thread that waits for this be woken?
fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let n = poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&now));
    n.expect("poll works") == 1
}
