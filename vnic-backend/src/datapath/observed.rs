//! Who called: a call of the control plane may ask to be told when data cores have done what it gave them.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Instant;

use super::worker::Worker;

/// Work that is given to a data core.
type Job = Box<dyn FnOnce(&mut Worker) + Send>;

/// Work of a data core for a call of the control plane.
#[derive(Debug, Clone, Copy)]
pub struct CoreWork {
    /// CPU of the core.
    pub cpu: usize,
    /// When the core was given the work.
    pub given: Instant,
    /// When it began.
    pub begun: Instant,
    /// When it was done.
    pub done: Instant,
    /// Whether it was a question; otherwise it may have changed something.
    pub question: bool,
}

/// What is told of work, on the data core: it must not wait.
pub type Observer = Arc<dyn Fn(CoreWork) + Send + Sync>;

thread_local! {
    static OBSERVER: RefCell<Option<Observer>> = const { RefCell::new(None) };
}

/// Does `work`, and tells `observer` of all that it gives data cores from this thread.
pub fn observed<R>(observer: Observer, work: impl FnOnce() -> R) -> R {
    /// Puts back who was told before, also after a panic.
    struct Before(Option<Observer>);
    impl Drop for Before {
        fn drop(&mut self) {
            OBSERVER.set(self.0.take());
        }
    }
    let _before = Before(OBSERVER.replace(Some(observer)));
    work()
}

/// The job, with what tells the observer of this thread of it, if there is one.
pub(super) fn told(cpu: usize, question: bool, job: Job) -> Job {
    // (A NIC may end with its thread, after the thread's own values.)
    let observer = OBSERVER.try_with(|observer| observer.borrow().clone());
    let Some(observer) = observer.ok().flatten() else {
        return job;
    };
    let given = Instant::now();
    Box::new(move |worker| {
        let begun = Instant::now();
        job(worker);
        observer(CoreWork {
            cpu,
            given,
            begun,
            done: Instant::now(),
            question,
        });
    })
}
