//! A device from its start to its end.

use std::ops::{Deref, Range};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, eventfd};
use vnic_device::command::Opcode;
use vnic_device::command::device::{DeviceReply, Hello, HelloReply};
use vnic_device::config::{ABI_MAJOR, ABI_MINOR, CONTROL_QUEUE, FIRST_EVENT_QUEUE};
use vnic_device::doorbell::Doorbell;
use vnic_device::status::CommandStatus;

use super::control::{Control, parse};
use super::doorbells::Doorbells;
use super::shared::Shared;
use super::virtqueue::Queue;
use super::{events, fork};
use crate::Error;
use crate::sync::lock;
use crate::transport::{Transport, identity};

/// A running device. Objects hold it; dropping the last reference stops the device.
pub(crate) struct Core {
    shared: Arc<Shared>,
    doorbells: Arc<Doorbells>,
    /// Locked while the device is reset.
    resetting: Mutex<()>,
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Deref for Core {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}

impl Core {
    /// Sets up the virtqueues, sends HELLO and asks for the device's attributes.
    pub fn start(transport: Arc<dyn Transport>) -> Result<Arc<Core>, Error> {
        let config = *transport.config();
        identity::check(&config)?;
        // A device that was checked has one.
        let first_wake = config.wake_virtqueue(0).unwrap_or_default();
        let queue = |number| Queue::new(&*transport, transport.queue_size_max(number));
        let queues = |numbers: Range<u16>| numbers.map(queue).collect::<Result<Vec<_>, _>>();
        let control = queue(CONTROL_QUEUE)?;
        let event_queues = queues(FIRST_EVENT_QUEUE..first_wake)?;
        let wakes = queues(first_wake..identity::virtqueues(&config))?;
        let all = [&control].into_iter().chain(&event_queues).chain(&wakes);
        let layouts: Vec<_> = all.map(Queue::layout).collect();
        let mut event_queues = events::EventQueues::new(&*transport, event_queues)?;
        let control = Control::new(&*transport, control)?;
        let stop = eventfd(0, EventfdFlags::CLOEXEC).map_err(Error::os("making an eventfd"))?;
        let stop = Arc::new(stop);
        let wakes = wakes.into_iter().map(Queue::into_memory).collect();
        let shared = Arc::new(Shared::new(transport, control, wakes)?);
        let doorbells = Arc::new(Doorbells::new(first_wake));
        // From here on every way out stops the device first: `Core` does that in its `drop`.
        let mut core = Core {
            shared: Arc::clone(&shared),
            doorbells: Arc::clone(&doorbells),
            resetting: Mutex::new(()),
            stop: Arc::clone(&stop),
            thread: None,
        };
        core.transport.start(&layouts)?;
        event_queues.offer_all(&*core.transport);
        fork::watch(&shared);
        let thread = std::thread::Builder::new()
            .name("vnic-events".into())
            .spawn(move || events::run(&shared, &doorbells, &mut event_queues, &stop))
            .map_err(Error::os("starting a thread"))?;
        core.thread = Some(thread);
        core.begin()?;
        Ok(Arc::new(core))
    }

    /// Sends HELLO and what follows it: a new epoch.
    fn begin(&self) -> Result<(), Error> {
        let hello = Hello {
            abi_major: ABI_MAJOR,
            minor_min: 0,
            minor_max: ABI_MINOR,
            ..Hello::default()
        };
        self.posts.expect();
        let _reply: HelloReply = self.call(None, Opcode::Hello, &hello).map_err(|e| {
            if e.status() != Some(CommandStatus::NotSupported) {
                return e;
            }
            let config = self.transport.config();
            Error::Version(format!(
                "{} speaks version {}.{} of the contract and not {ABI_MAJOR}.0 to {ABI_MAJOR}.{ABI_MINOR}: \
                 use the library that came with the daemon ({e})",
                self.transport.name(),
                config.abi_major,
                config.abi_minor,
            ))
        })?;
        let room = size_of::<DeviceReply>();
        let mut reply = self.command(None, Opcode::QueryDevice, &[], &[], room)?;
        if [DeviceReply::LEN_1_0, DeviceReply::LEN_1_1].contains(&reply.len()) {
            // A device of an older version answers less: what it does not say is zero.
            reply.resize(room, 0);
        }
        let device: DeviceReply = parse(Opcode::QueryDevice, &reply)?;
        self.posts.answered(device.watched_posts);
        self.begin_epoch(device);
        // Now, so that an error shows at the start.
        self.doorbells.make_first_ring(&self.shared)
    }

    /// What the objects share.
    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Resets the device: all objects are dead, and a new epoch begins.
    pub fn reset(&self) -> Result<(), Error> {
        let _one_at_a_time = lock(&self.resetting);
        self.die("it was reset", false);
        let () = self.call(None, Opcode::Reset, &())?;
        self.doorbells.forget();
        self.release();
        self.begin()
    }

    /// Tells the device how far a queue was written, or arms a completion queue. The queue was made in
    /// `epoch`.
    #[inline]
    pub fn ring(&self, epoch: u32, bell: Doorbell) -> Result<(), Error> {
        self.doorbells.ring(&self.shared, epoch, bell)
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        if self.is_parents() {
            // The thread is the parent's, too; and dropping the transport would end the device.
            std::mem::forget(self.thread.take());
            std::mem::forget((Arc::clone(&self.shared), Arc::clone(&self.doorbells)));
            return;
        }
        let _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
        let keep = self.thread.take().map(JoinHandle::join);
        self.shared.die("it was closed", true);
        self.shared.paging.stop();
        self.shared.transport.stop();
        drop(keep);
        self.shared.release();
    }
}
