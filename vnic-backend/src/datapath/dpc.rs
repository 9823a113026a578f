//! The thread that waits for receive buffers where a setting says that a thread shall (`AsyncReceiveIndicate` 1): it sleeps
//! until a guest kicks its receive ring, and tells the guest's data core, which need not look until then.

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

/// Tells a data core that buffers have come.
pub struct BufferAlarm {
    rung: AtomicBool,
    waker: Arc<Waker>,
}

impl BufferAlarm {
    /// For the core that this wakes.
    pub fn new(waker: Arc<Waker>) -> BufferAlarm {
        BufferAlarm {
            rung: AtomicBool::new(false),
            waker,
        }
    }

    /// Buffers have come.
    pub fn ring(&self) {
        self.look();
        self.waker.wake();
    }

    /// The core shall look, whether or not anybody has kicked: it has slept, and there are guests without a kick.
    pub fn look(&self) {
        self.rung.store(true, Ordering::Release);
    }

    /// Has it been rung?
    #[inline]
    pub fn is_rung(&self) -> bool {
        self.rung.load(Ordering::Relaxed)
    }

    /// Has it been rung since the last call?
    #[inline]
    pub fn take(&self) -> bool {
        self.is_rung() && self.rung.swap(false, Ordering::Acquire)
    }
}

/// The thread, from outside; it ends when this is dropped.
pub struct Dpc {
    epoll: Arc<OwnedFd>,
    end: OwnedFd,
}

impl Dpc {
    /// Starts it. The alarms are those of the data cores, by number.
    pub fn start(alarms: Vec<Arc<BufferAlarm>>) -> io::Result<Dpc> {
        let epoll = Arc::new(epoll::create(CreateFlags::CLOEXEC)?);
        let end = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &end, EventData::new_u64(END), EventFlags::IN)?;
        let waits = epoll.clone();
        std::thread::Builder::new()
            .name("vnic-dpc".into())
            .spawn(move || wait(&waits, &alarms))?;
        Ok(Dpc { epoll, end })
    }

    /// From now on this kick rings the alarm of data core `core`.
    pub fn watch(&self, kick: BorrowedFd<'_>, core: usize) {
        // Edge-triggered, as the data cores' own: never read. Without memory for it the frames wait for the next look.
        let data = EventData::new_u64(core as u64);
        let _ = epoll::add(&self.epoll, kick, data, EventFlags::IN | EventFlags::ET);
    }

    /// No longer.
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
