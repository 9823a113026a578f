//! The control plane's end of a data core: what is to be done there is a closure, which the core runs between two rounds.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, bounded};
use vnic_engine::counters::CoreCounter as C;

use super::counters::CoreCounters;
use super::link::Waker;
use super::worker::Worker;
use crate::call::Signals;

/// What a core is to do.
pub type Job = Box<dyn FnOnce(&mut Worker) + Send>;

/// What comes to a core. Jobs of one thread are done in their order, but that questions may be answered later.
pub enum Order {
    /// It acts before a frame that comes later.
    Do(Job),
    /// It only asks, and waits where questions have had their share of the core's time.
    Ask(Job),
    /// The core ends.
    End,
}

/// An answer that may not be there yet.
pub struct Answer<R>(Receiver<R>);

impl<R> Answer<R> {
    /// Waits for it. `None`: the core has ended, or the job was dropped without an answer.
    pub fn wait(self) -> Option<R> {
        self.0.recv().ok()
    }

    /// The same, not for longer.
    pub fn wait_until(self, deadline: std::time::Instant) -> Option<R> {
        self.0.recv_deadline(deadline).ok()
    }
}

/// Where an answer comes from, and where it is to be had.
pub fn answer<R>() -> (Sender<R>, Answer<R>) {
    let (reply, answer) = bounded(1);
    (reply, Answer(answer))
}

/// The control plane's end of a data core.
pub struct WorkerHandle {
    /// The CPU it is pinned to.
    pub cpu: usize,
    /// Its counters.
    pub counters: Arc<CoreCounters>,
    /// How it interrupts its guests.
    pub signals: Arc<Signals>,
    orders: Sender<Order>,
    waker: Arc<Waker>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl WorkerHandle {
    /// Of a core that this thread runs, which takes orders from there and is woken so.
    pub(super) fn new(
        cpu: usize,
        counters: Arc<CoreCounters>,
        signals: Arc<Signals>,
        orders: Sender<Order>,
        waker: Arc<Waker>,
        thread: JoinHandle<()>,
    ) -> WorkerHandle {
        WorkerHandle {
            cpu,
            counters,
            signals,
            orders,
            waker,
            thread: Mutex::new(Some(thread)),
        }
    }

    /// A core that has ended drops what it is sent, and with it the sender of an answer.
    fn send(&self, order: Order) {
        let _ = self.orders.send(order);
        self.waker.wake();
    }

    /// Has something done. Nobody waits for it.
    pub fn post(&self, job: impl FnOnce(&mut Worker) + Send + 'static) {
        self.send(Order::Do(Box::new(job)));
    }

    /// Has something done whose answer may be waited for.
    pub fn start<R: Send + 'static>(&self, job: impl FnOnce(&mut Worker) -> R + Send + 'static) -> Answer<R> {
        self.start_later(move |worker, reply| drop(reply.send(job(worker))))
    }

    /// Has something begun that is answered when it is through: the job takes the way of the answer with it.
    pub fn start_later<R: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Worker, Sender<R>) + Send + 'static,
    ) -> Answer<R> {
        let (reply, answer) = answer();
        self.post(move |worker| job(worker, reply));
        answer
    }

    /// Has something done, and waits for it. `None`: the core has ended.
    pub fn call<R: Send + 'static>(&self, job: impl FnOnce(&mut Worker) -> R + Send + 'static) -> Option<R> {
        self.start(job).wait()
    }

    /// Asks a question whose answer is waited for later. It takes part of the time that the core has for questions.
    pub fn start_ask<R: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Worker) -> R + Send + 'static,
    ) -> Answer<R> {
        let (reply, answer) = answer();
        self.send(Order::Ask(Box::new(move |worker| {
            drop(reply.send(question(worker)))
        })));
        answer
    }

    /// Asks a question, and waits for the answer. `None`: the core has ended.
    pub fn ask<R: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Worker) -> R + Send + 'static,
    ) -> Option<R> {
        self.start_ask(question).wait()
    }

    /// Rounds that the core has made. If it sleeps, it wakes up and makes one.
    pub fn rounds(&self) -> u64 {
        let rounds = [C::BusyRounds, C::IdleRounds].map(|c| self.counters.get(c as usize));
        self.waker.wake();
        rounds.iter().sum()
    }

    /// The core ends when it has done what it was told before.
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
