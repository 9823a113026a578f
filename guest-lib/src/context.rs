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
    CompletionChannel, CompletionQueue, Connections, Counter, DeviceAttributes, Error, GidEntry,
    PortAttributes, ProtectionDomain, Resource, XrcDomain,
};

/// An open device. Clones are the same device; it is closed when the last clone and the last of its objects
/// are dropped.
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
    ///
    /// ```no_run
    /// # fn example(device: &vnic_verbs::Context) -> Result<(), vnic_verbs::Error> {
    /// let attributes = device.query_device();
    /// println!("{}: {} queue pairs", attributes.firmware(), attributes.max_qp);
    /// # Ok(())
    /// # }
    /// ```
    pub fn query_device(&self) -> DeviceAttributes {
        DeviceAttributes(self.core.device())
    }

    /// Whether regions can have their pages on demand here ([`register_on_demand`](ProtectionDomain::register_on_demand)); the error
    /// says why not.
    pub fn can_page(&self) -> Result<(), Error> {
        self.core.can_page()
    }

    /// What the port is and whether it is up.
    ///
    /// ```no_run
    /// # fn example(device: &vnic_verbs::Context) -> Result<(), vnic_verbs::Error> {
    /// use vnic_verbs::PortState;
    ///
    /// let up = device.query_port()?.state() == PortState::Active;
    /// # Ok(())
    /// # }
    /// ```
    pub fn query_port(&self) -> Result<PortAttributes, Error> {
        let port: PortReply = self.core.call_since(Opcode::QueryPort, PortReply::LEN_1_0)?;
        Ok(PortAttributes(port))
    }

    /// The entries of the GID table that are not empty, by index.
    ///
    /// ```no_run
    /// # fn example(device: &vnic_verbs::Context) -> Result<(), vnic_verbs::Error> {
    /// for entry in device.gids()? {
    ///     println!("{}: {}", entry.index, entry.gid);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn gids(&self) -> Result<Vec<GidEntry>, Error> {
        let records: Vec<GidRecord> = self.core.records(Opcode::QueryGids)?;
        Ok(records.into_iter().map(GidEntry::from).collect())
    }

    /// The same, without asking the device while it has told of no change since it was asked
    /// ([`AsyncEvent::GidChange`], which an interrupt brings).
    pub fn known_gids(&self) -> Result<Vec<GidEntry>, Error> {
        self.core.known_gids(|| self.gids())
    }

    /// Sets an entry of the GID table, or with [`GidKind::None`](crate::GidKind::None) clears it.
    pub fn set_gid(&self, entry: &GidEntry) -> Result<(), Error> {
        let record = GidRecord::from(*entry);
        let set = self.core.call(self.core.epoch()?, Opcode::SetGid, &record);
        self.core.gids_changed();
        set
    }

    /// The device's counters.
    ///
    /// ```no_run
    /// # fn example(device: &vnic_verbs::Context) -> Result<(), vnic_verbs::Error> {
    /// for counter in device.counters()? {
    ///     println!("{} {}", counter.name, counter.value);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn counters(&self) -> Result<Vec<Counter>, Error> {
        let records: Vec<CounterRecord> = self.core.records(Opcode::QueryCounters)?;
        Ok(records.into_iter().map(Counter::from).collect())
    }

    /// How many objects of each kind there are.
    pub fn resources(&self) -> Result<Vec<Resource>, Error> {
        let records: Vec<ResourceRecord> = self.core.records(Opcode::QueryResources)?;
        Ok(records.into_iter().map(Resource::from).collect())
    }

    /// The NIC's clock. It goes back only where an operator of the NIC sets it.
    /// [`WorkCompletion::time`](crate::WorkCompletion::time) has the same clock.
    pub fn clock(&self) -> Result<Duration, Error> {
        let clock: ClockReply = self.core.call(self.core.epoch()?, Opcode::QueryClock, &())?;
        Ok(Duration::from_nanos(clock.now))
    }

    /// Resets the device. All objects are dead: posts and waits end in [`Error::Gone`], and
    /// [`AsyncEvent::DeviceFatal`] is raised. The context itself goes on, for new objects.
    pub fn reset(&self) -> Result<(), Error> {
        self.core.reset()
    }

    /// Communication management of the device.
    ///
    /// ```no_run
    /// # fn example(device: &vnic_verbs::Context) -> Result<(), vnic_verbs::Error> {
    /// let connections = device.connections()?;
    /// connections.listen(0x0106_4e20, 16)?; // RDMA_PS_TCP, port 20000
    /// for event in connections.wait(None)? {
    ///     println!("{:?} of {}", event.kind, event.connection);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn connections(&self) -> Result<Connections, Error> {
        Connections::new(&self.core)
    }

    /// Makes a protection domain.
    ///
    /// ```no_run
    /// # fn example(device: &vnic_verbs::Context) -> Result<(), vnic_verbs::Error> {
    /// let pd = device.alloc_pd()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn alloc_pd(&self) -> Result<ProtectionDomain, Error> {
        ProtectionDomain::new(&self.core)
    }

    /// Makes a completion queue with room for at least so many completions.
    ///
    /// ```no_run
    /// # fn example(device: &vnic_verbs::Context) -> Result<(), vnic_verbs::Error> {
    /// let cq = device.create_cq(256)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn create_cq(&self, entries: u32) -> Result<CompletionQueue, Error> {
        self.create_cq_with(CqBuilder::new(entries))
    }

    /// Makes a completion queue.
    ///
    /// ```no_run
    /// # fn example(device: &vnic_verbs::Context) -> Result<(), vnic_verbs::Error> {
    /// use vnic_verbs::CqBuilder;
    ///
    /// let channel = device.create_completion_channel()?;
    /// let cq = device.create_cq_with(CqBuilder::new(256).channel(&channel))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn create_cq_with(&self, builder: CqBuilder) -> Result<CompletionQueue, Error> {
        CompletionQueue::new(&self.core, builder)
    }

    /// Makes a completion channel: where events of completion queues arrive.
    pub fn create_completion_channel(&self) -> Result<CompletionChannel, Error> {
        CompletionChannel::new(&self.core)
    }

    /// Makes an XRC domain.
    ///
    /// ```no_run
    /// # fn example(device: &vnic_verbs::Context) -> Result<(), vnic_verbs::Error> {
    /// let domain = device.open_xrcd()?;
    /// let target = domain.xrc_target().build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn open_xrcd(&self) -> Result<XrcDomain, Error> {
        XrcDomain::new(&self.core)
    }

    /// Allocates memory on the device, at a multiple of 2^`log_alignment` bytes.
    ///
    /// ```no_run
    /// # fn example(device: &vnic_verbs::Context) -> Result<(), vnic_verbs::Error> {
    /// let memory = device.alloc_dm(4096, 6)?; // at a multiple of 64
    /// memory.copy_to(0, &[1, 2, 3, 4])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn alloc_dm(&self, len: u64, log_alignment: u32) -> Result<DeviceMemory, Error> {
        DeviceMemory::new(&self.core, len, log_alignment)
    }

    /// Allocates memory of zeros that can be registered, as often as wanted, with
    /// [`ProtectionDomain::register`].
    ///
    /// ```no_run
    /// # fn example(device: &vnic_verbs::Context) -> Result<(), vnic_verbs::Error> {
    /// let buffer = device.allocate(1 << 20)?;
    /// buffer.write_at(0, b"hello");
    /// assert_eq!(buffer.read_vec(0, 5), b"hello");
    /// # Ok(())
    /// # }
    /// ```
    pub fn allocate(&self, len: usize) -> Result<SharedBuffer, Error> {
        SharedBuffer::new(&self.core, len)
    }

    /// Takes the oldest asynchronous event that waits; `None` if none waits. [`Error::Gone`] after the last
    /// event of a device that is gone for good.
    pub fn async_event(&self) -> Result<Option<AsyncEvent>, Error> {
        self.lost_events()
            .map_or_else(|| self.core.news.take(), |lost| Ok(Some(lost)))
    }

    /// Waits for an asynchronous event. `None`: `patience` is over.
    ///
    /// ```no_run
    /// # fn example(device: &vnic_verbs::Context) -> Result<(), vnic_verbs::Error> {
    /// use std::time::Duration;
    /// use vnic_verbs::AsyncEvent;
    ///
    /// if let Some(AsyncEvent::PortError) = device.wait_async_event(Some(Duration::from_secs(1)))? {
    ///     println!("the port is down");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait_async_event(&self, patience: Option<Duration>) -> Result<Option<AsyncEvent>, Error> {
        self.lost_events()
            .map_or_else(|| self.core.news.wait(patience), |lost| Ok(Some(lost)))
    }

    /// A descriptor that is readable while asynchronous events wait, or when the device is gone.
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

impl CompletionQueue {
    /// The device that the queue belongs to.
    pub fn device(&self) -> Context {
        Context {
            core: Arc::clone(&self.0.core),
        }
    }
}
