//! Sleep of a data core until a kick.

use std::time::Duration;

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};

/// The event that woke the core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The control plane or another core.
    Waker,
    /// The kick of the transmit queue with this index.
    Kick(u32),
    /// The uplink with this index.
    Uplink(u32),
    /// The RDMA function of the adapter at this port.
    Rdma(u32),
    /// A guest posts receive buffers at the adapter of this port.
    Buffers(u32),
    /// A guest posts a command of its Ethernet driver.
    Control,
}

impl Source {
    fn data(self) -> EventData {
        EventData::new_u64(match self {
            Source::Waker => 0,
            Source::Kick(i) => 1 << 32 | u64::from(i),
            Source::Uplink(i) => 2 << 32 | u64::from(i),
            Source::Rdma(i) => 3 << 32 | u64::from(i),
            Source::Buffers(i) => 4 << 32 | u64::from(i),
            Source::Control => 5 << 32,
        })
    }

    fn of(data: EventData) -> Source {
        let v = data.u64();
        match v >> 32 {
            1 => Source::Kick(v as u32),
            2 => Source::Uplink(v as u32),
            3 => Source::Rdma(v as u32),
            4 => Source::Buffers(v as u32),
            5 => Source::Control,
            _ => Source::Waker,
        }
    }
}

/// An epoll set.
pub struct Sleeper {
    epoll: OwnedFd,
}

/// Events taken at once; polling finds the others.
const EVENTS: usize = 64;

impl Sleeper {
    /// An empty set.
    pub fn new() -> std::io::Result<Sleeper> {
        Ok(Sleeper {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
        })
    }

    /// Watches a descriptor. Kicks are edge-triggered: they are never read, so that polling costs no system call.
    pub fn add(&self, fd: BorrowedFd<'_>, source: Source) -> std::io::Result<()> {
        let edge = if matches!(source, Source::Uplink(_)) {
            EventFlags::empty()
        } else {
            EventFlags::ET
        };
        Ok(epoll::add(&self.epoll, fd, source.data(), EventFlags::IN | edge)?)
    }

    /// Stops watching a descriptor.
    pub fn remove(&self, fd: BorrowedFd<'_>) {
        // Closing the last descriptor has the same effect, so an error means nothing.
        let _ = epoll::delete(&self.epoll, fd.as_fd());
    }

    /// Sleeps until an event or for at most this time.
    pub fn wait(&self, at_most: Duration) -> impl Iterator<Item = Source> {
        let timeout = Timespec {
            tv_sec: at_most.as_secs().try_into().unwrap_or(1),
            tv_nsec: at_most.subsec_nanos().into(),
        };
        let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS);
        // An interrupted wait is an empty one.
        let _ = epoll::wait(
            &self.epoll,
            rustix::buffer::spare_capacity(&mut events),
            Some(&timeout),
        );
        events.into_iter().map(|e| Source::of(e.data))
    }
}
