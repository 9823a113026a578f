//! The thread that waits for receive buffers if the setting asks for one (`AsyncReceiveIndicate` 1): it sleeps until a guest
//! kicks its receive ring, and then tells the guest's data core, which need not look before. And the thread that interrupts guests in
//! place of their data cores (`ThreadedDpcEnable`, `TxThreadedDpcEnable`).

use std::io;
use std::sync::Arc;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};

use super::link::Waker;
use crate::call::{Call, notify};
use crate::sync::{AtomicBool, Ordering};

/// Events taken at once.
const EVENTS: usize = 64;
/// The event that ends the thread.
const END: u64 = u64::MAX;

/// Tells a data core that guests have posted buffers.
pub struct BufferAlarm {
    rung: AtomicBool,
    waker: Arc<Waker>,
}

impl BufferAlarm {
    /// The alarm of the core that `waker` wakes.
    pub fn new(waker: Arc<Waker>) -> BufferAlarm {
        BufferAlarm {
            rung: AtomicBool::new(false),
            waker,
        }
    }

    /// Reports new buffers and wakes the core.
    pub fn ring(&self) {
        self.look();
        self.waker.wake();
    }

    /// Makes the core look without a kick: after it has slept, because there are guests without a kick.
    pub fn look(&self) {
        self.rung.store(true, Ordering::Release);
    }

    /// Whether the alarm was rung and not taken.
    #[inline]
    pub fn is_rung(&self) -> bool {
        self.rung.load(Ordering::Relaxed)
    }

    /// Whether the alarm was rung since the last call.
    #[inline]
    pub fn take(&self) -> bool {
        self.is_rung() && self.rung.swap(false, Ordering::Acquire)
    }
}

/// Interrupts that wait for the thread at most; beyond that data cores interrupt by themselves.
const CALLS: usize = 4096;

/// Handle of the thread that interrupts guests. It ends with the last handle.
#[derive(Clone)]
pub struct Caller(Sender<Arc<Call>>);

impl Caller {
    fn start() -> io::Result<Caller> {
        let (calls, waiting): (_, Receiver<Arc<Call>>) = bounded(CALLS);
        std::thread::Builder::new()
            .name("vnic-dpc-calls".into())
            .spawn(move || waiting.iter().for_each(|call| notify(Some(&call))))?;
        Ok(Caller(calls))
    }

    /// Interrupts a guest, later.
    pub fn call(&self, call: &Arc<Call>) {
        if let Err(TrySendError::Full(call) | TrySendError::Disconnected(call)) =
            self.0.try_send(call.clone())
        {
            notify(Some(&call));
        }
    }
}

/// Handle of the threads, which end when the handle is dropped.
pub struct Dpc {
    caller: Caller,
    epoll: Arc<OwnedFd>,
    end: Arc<OwnedFd>,
}

impl Dpc {
    /// Starts the threads. The alarms are those of the data cores, by number.
    pub fn start(alarms: Vec<Arc<BufferAlarm>>) -> io::Result<Dpc> {
        let epoll = Arc::new(epoll::create(CreateFlags::CLOEXEC)?);
        let end = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        epoll::add(&epoll, &end, EventData::new_u64(END), EventFlags::IN)?;
        // (The thread has it, too: a descriptor that is closed before the thread looks is not in the set any more.)
        let (waits, ends) = (epoll.clone(), end.clone());
        std::thread::Builder::new()
            .name("vnic-dpc".into())
            .spawn(move || {
                let _ends = ends;
                wait(&waits, &alarms);
            })?;
        let caller = Caller::start()?;
        Ok(Dpc { caller, epoll, end })
    }

    /// The thread that interrupts guests.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Lets this kick ring the alarm of data core `core`.
    pub fn watch(&self, kick: BorrowedFd<'_>, core: usize) {
        // Edge-triggered, as at the data cores: never read. Without memory for it the frames wait for the next look.
        let data = EventData::new_u64(core as u64);
        let _ = epoll::add(&self.epoll, kick, data, EventFlags::IN | EventFlags::ET);
    }

    /// Stops watching a kick.
    pub fn forget(&self, kick: BorrowedFd<'_>) {
        let _ = epoll::delete(&self.epoll, kick.as_fd());
    }
}

impl Drop for Dpc {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.end, &1u64.to_ne_bytes());
    }
}

fn wait(epoll: &OwnedFd, alarms: &[Arc<BufferAlarm>]) {
    let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS);
    loop {
        events.clear();
        // An interrupted wait is an empty one.
        let _ = epoll::wait(epoll, rustix::buffer::spare_capacity(&mut events), None);
        for event in &events {
            let data = event.data.u64();
            if data == END {
                return;
            }
            if let Some(alarm) = alarms.get(data as usize) {
                alarm.ring();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a thread of this process has the name.
    fn runs(name: &str) -> bool {
        let threads = std::fs::read_dir("/proc/self/task").expect("threads");
        let names = threads
            .flatten()
            .filter_map(|t| std::fs::read_to_string(t.path().join("comm")).ok());
        names.into_iter().any(|n| n.trim() == name)
    }

    #[test]
    fn the_threads_end_with_their_handle() {
        for _ in 0..50 {
            drop(Dpc::start(Vec::new()).expect("threads"));
        }
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while runs("vnic-dpc") || runs("vnic-dpc-calls") {
            assert!(std::time::Instant::now() < deadline, "a thread goes on");
            std::thread::yield_now();
        }
    }
}
