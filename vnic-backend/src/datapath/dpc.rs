//! The thread that waits for receive buffers if the setting asks for one (`AsyncReceiveIndicate` 1): it sleeps until a guest
//! kicks its receive ring, and then tells the guest's data core, which need not look before.

use std::io;
use std::sync::Arc;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};

use super::link::Waker;
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

/// Handle of the threads, which end when the handle is dropped.
pub struct Dpc {
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
        Ok(Dpc { epoll, end })
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
