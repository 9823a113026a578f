//! The control plane's end of a data core: an order is a closure, which the core runs between two rounds.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, bounded};
use vnic_engine::counters::CoreCounter as C;

use super::counters::{CoreCounters, CoreTimes};
use super::link::Waker;
use super::observed::told;
use super::worker::Worker;
use crate::call::Signals;
use crate::rehearsal::rehearses;

/// An order's closure.
pub type Job = Box<dyn FnOnce(&mut Worker) + Send>;

/// A message to a core. Jobs of one thread run in their order, except that questions may be answered later.
pub enum Order {
    /// A job that acts before any frame that comes later.
    Do(Job),
    /// A job that only reads, and waits if questions have had their share of the core's time.
    Ask(Job),
    /// Ends the core.
    End,
}

/// An answer that may not have come yet.
pub struct Answer<R>(Receiver<R>);

impl<R> Answer<R> {
    /// Waits for the answer. `None`: the core has ended, or the job was dropped without an answer.
    pub fn wait(self) -> Option<R> {
        self.0.recv().ok()
    }

    /// As [`Answer::wait`], until the deadline at the latest.
    pub fn wait_until(self, deadline: std::time::Instant) -> Option<R> {
        self.0.recv_deadline(deadline).ok()
    }
}

/// Both ends of an answer.
pub fn answer<R>() -> (Sender<R>, Answer<R>) {
    let (reply, answer) = bounded(1);
    (reply, Answer(answer))
}

/// The control plane's end of a data core.
pub struct WorkerHandle {
    /// The CPU to which the core is pinned.
    pub cpu: usize,
    /// Counters of the core.
    pub counters: Arc<CoreCounters>,
    /// Times of the core.
    pub times: Arc<CoreTimes>,
    /// Signals by which the core interrupts its guests.
    pub signals: Arc<Signals>,
    orders: Sender<Order>,
    waker: Arc<Waker>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl WorkerHandle {
    /// Handle of a core that `thread` runs, that takes `orders` and that `waker` wakes.
    pub(super) fn new(
        cpu: usize,
        (counters, times): (Arc<CoreCounters>, Arc<CoreTimes>),
        signals: Arc<Signals>,
        orders: Sender<Order>,
        waker: Arc<Waker>,
        thread: JoinHandle<()>,
    ) -> WorkerHandle {
        WorkerHandle {
            cpu,
            counters,
            times,
            signals,
            orders,
            waker,
            thread: Mutex::new(Some(thread)),
        }
    }

    /// Sends an order. A core that has ended drops it, and with it the sender of an answer.
    fn send(&self, order: Order) {
        let _ = self.orders.send(order);
        self.waker.wake();
    }

    /// Runs a job on the core; nothing waits for it.
    pub fn post(&self, job: impl FnOnce(&mut Worker) + Send + 'static) {
        debug_assert!(!rehearses(), "a rehearsal acts");
        self.send(Order::Do(told(self.cpu, false, Box::new(job))));
    }

    /// Runs a job on the core; its answer may be waited for.
    pub fn start<R: Send + 'static>(&self, job: impl FnOnce(&mut Worker) -> R + Send + 'static) -> Answer<R> {
        self.start_later(move |worker, reply| drop(reply.send(job(worker))))
    }

    /// Starts work on the core that ends later: the job takes the sender of the answer with it.
    pub fn start_later<R: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Worker, Sender<R>) + Send + 'static,
    ) -> Answer<R> {
        let (reply, answer) = answer();
        self.post(move |worker| job(worker, reply));
        answer
    }

    /// Runs a job on the core and waits for it. `None`: the core has ended.
    pub fn call<R: Send + 'static>(&self, job: impl FnOnce(&mut Worker) -> R + Send + 'static) -> Option<R> {
        self.start(job).wait()
    }

    /// Asks a question without waiting for the answer. It takes part of the core's time for questions.
    pub fn start_ask<R: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Worker) -> R + Send + 'static,
    ) -> Answer<R> {
        let (reply, answer) = answer();
        let job = Box::new(move |worker: &mut Worker| drop(reply.send(question(worker))));
        self.send(Order::Ask(told(self.cpu, true, job)));
        answer
    }

    /// Asks a question and waits for the answer. `None`: the core has ended.
    pub fn ask<R: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Worker) -> R + Send + 'static,
    ) -> Option<R> {
        self.start_ask(question).wait()
    }

    /// Rounds that the core has made. A sleeping core wakes and makes one.
    pub fn rounds(&self) -> u64 {
        let rounds = [C::BusyRounds, C::IdleRounds].map(|c| self.counters.get(c as usize));
        self.waker.wake();
        rounds.iter().sum()
    }

    /// Ends the core after its earlier orders.
    pub fn end(&self) {
        self.send(Order::End);
    }

    /// Waits for the core to end.
    pub fn join(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(t) = thread {
            let _ = t.join();
        }
    }
}
