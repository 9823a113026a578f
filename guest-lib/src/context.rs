//! An open device.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use vnic_device::command::Opcode;
use vnic_device::command::device::{ClockReply, CounterRecord, GidRecord, PortReply, ResourceRecord};

use crate::cq::CqBuilder;
use crate::driver::Core;
use crate::event::AsyncEvent;
use crate::memory::{DeviceMemory, SharedBuffer};
use crate::transport::Transport;
use crate::{
    CompletionChannel, CompletionQueue, Counter, DeviceAttributes, Error, GidEntry, PortAttributes,
    ProtectionDomain, Resource, XrcDomain,
};

/// An open device. Clones are the same; the device is closed when the last clone and the last object of it are
/// gone.
#[derive(Clone)]
pub struct Context {
    pub(crate) core: Arc<Core>,
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Context({})", self.name())
    }
}

impl Context {
    pub(crate) fn start(transport: Arc<dyn Transport>) -> Result<Context, Error> {
        Ok(Context {
            core: Core::start(transport)?,
        })
    }

    /// What the device is called: a socket's path or a PCI address.
    pub fn name(&self) -> &str {
        self.core.transport.name()
    }

    /// What the device is and how much it has.
    pub fn query_device(&self) -> DeviceAttributes {
        DeviceAttributes(self.core.device())
    }

    /// What the port is and whether it is up.
    pub fn query_port(&self) -> Result<PortAttributes, Error> {
        let port: PortReply = self.core.call(self.core.epoch()?, Opcode::QueryPort, &())?;
        Ok(PortAttributes(port))
    }

    /// The entries of the GID table that are not empty, by index.
    pub fn gids(&self) -> Result<Vec<GidEntry>, Error> {
        let records: Vec<GidRecord> = self.core.records(Opcode::QueryGids)?;
        Ok(records.into_iter().map(GidEntry::from).collect())
    }

    /// Sets an entry of the GID table, or with [`GidKind::None`](crate::GidKind::None) clears it.
    pub fn set_gid(&self, entry: &GidEntry) -> Result<(), Error> {
        let record = GidRecord::from(*entry);
        self.core.call(self.core.epoch()?, Opcode::SetGid, &record)
    }

    /// The device's counters.
    pub fn counters(&self) -> Result<Vec<Counter>, Error> {
        let records: Vec<CounterRecord> = self.core.records(Opcode::QueryCounters)?;
        Ok(records.into_iter().map(Counter::from).collect())
    }

    /// How many objects of each kind there are.
    pub fn resources(&self) -> Result<Vec<Resource>, Error> {
        let records: Vec<ResourceRecord> = self.core.records(Opcode::QueryResources)?;
        Ok(records.into_iter().map(Resource::from).collect())
    }

    /// The device's clock, in nanoseconds since its own beginning: that of
    /// [`WorkCompletion::time`](crate::WorkCompletion::time).
    pub fn clock(&self) -> Result<Duration, Error> {
        let clock: ClockReply = self.core.call(self.core.epoch()?, Opcode::QueryClock, &())?;
        Ok(Duration::from_nanos(clock.now))
    }

    /// Resets the device. Everything that was made before is dead: posts and waits end in [`Error::Gone`], and
    /// [`AsyncEvent::DeviceFatal`] is raised. The context itself goes on, for new objects.
    pub fn reset(&self) -> Result<(), Error> {
        self.core.reset()
    }

    /// Makes a protection domain.
    pub fn alloc_pd(&self) -> Result<ProtectionDomain, Error> {
        ProtectionDomain::new(&self.core)
    }

    /// Makes a completion queue with room for at least so many completions.
    pub fn create_cq(&self, entries: u32) -> Result<CompletionQueue, Error> {
        self.create_cq_with(CqBuilder::new(entries))
    }

    /// Makes a completion queue.
    pub fn create_cq_with(&self, builder: CqBuilder) -> Result<CompletionQueue, Error> {
        CompletionQueue::new(&self.core, builder)
    }

    /// Makes a completion channel: where events of completion queues arrive.
    pub fn create_completion_channel(&self) -> Result<CompletionChannel, Error> {
        CompletionChannel::new(&self.core)
    }

    /// Makes an XRC domain.
    pub fn open_xrcd(&self) -> Result<XrcDomain, Error> {
        XrcDomain::new(&self.core)
    }

    /// Allocates memory on the device, at a multiple of 2^`log_alignment` bytes.
    pub fn alloc_dm(&self, len: u64, log_alignment: u32) -> Result<DeviceMemory, Error> {
        DeviceMemory::new(&self.core, len, log_alignment)
    }

    /// Allocates memory of zeros that can be registered, as often as wanted, with
    /// [`ProtectionDomain::register`].
    pub fn allocate(&self, len: usize) -> Result<SharedBuffer, Error> {
        SharedBuffer::new(&self.core, len)
    }

    /// The oldest asynchronous event that waits, if any does. [`Error::Gone`] after the last one, when the
    /// device is gone for good.
    pub fn async_event(&self) -> Result<Option<AsyncEvent>, Error> {
        self.lost_events()
            .map_or_else(|| self.core.news.take(), |lost| Ok(Some(lost)))
    }

    /// Waits for an asynchronous event. `None` only when `patience` is over.
    pub fn wait_async_event(&self, patience: Option<Duration>) -> Result<Option<AsyncEvent>, Error> {
        self.lost_events()
            .map_or_else(|| self.core.news.wait(patience), |lost| Ok(Some(lost)))
    }

    /// Readable while asynchronous events wait, or the device is gone.
    pub fn async_fd(&self) -> BorrowedFd<'_> {
        self.core.news.as_fd()
    }

    fn lost_events(&self) -> Option<AsyncEvent> {
        match self.core.news.lost() {
            0 => None,
            count => Some(AsyncEvent::EventsLost { count }),
        }
    }
}
