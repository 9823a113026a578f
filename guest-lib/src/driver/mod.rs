//! The driver half: virtqueues, commands, events, doorbells (`SPEC.md`, sections 4 to 7 and 10).
//!
//! *Threads.* One thread of ours waits for interrupts. It hands events on, and wakes whoever waits for a
//! command. It never waits for a command itself, and never drops anything whose end is a command.
//!
//! *Epochs.* What was made before a reset of the device is dead after it. Each object remembers the epoch in
//! which it was made; [`Shared::alive`] says which one is, or that none is.
//!
//! *Forks.* For a child every device is dead, and what is done to its copies of objects does nothing ([`fork`]).
//!
//! *Memory.* The device writes into memory until it has said that it does not any more. So memory of objects is
//! given up only after the device has answered the command that ends the object; if that cannot be had, it goes
//! to the graveyard, which is cleared when the transport has stopped the device.

pub(crate) mod control;
pub(crate) mod doorbells;
mod events;
#[cfg(test)]
pub(crate) mod fake;
pub(crate) mod fork;
pub(crate) mod lists;
#[cfg(test)]
mod tests;
pub(crate) mod virtqueue;
pub(crate) mod waiting;

use std::any::Any;
use std::collections::HashMap;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, eventfd};
use vnic_device::command::Opcode;
use vnic_device::command::device::{DeviceReply, Hello, HelloReply};
use vnic_device::config::{ABI_MAJOR, ABI_MINOR};
use vnic_device::status::CommandStatus;

use crate::Error;
use crate::event::AsyncEvent;
use crate::shared::Memory;
use crate::transport::Transport;
use control::Control;
use doorbells::Doorbells;
pub use fork::NoFork;
use virtqueue::Queue;
use waiting::News;

/// Asynchronous events that may wait for the program; the oldest give way.
const ASYNC_LIMIT: usize = 4096;

/// Locks; a panic of another thread while it held the lock does not matter to what our locks guard.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Who hears of a completion queue.
pub(crate) trait Sink: Send + Sync {
    /// An armed queue has something. Must not wait, nor drop what ends by a command.
    fn completed(&self);
}

/// What can be told that nothing will come any more.
pub(crate) trait Closing: Send + Sync {
    /// Ends all waiting.
    fn close(&self, why: &str);
}

impl<T: Send> Closing for News<T> {
    fn close(&self, why: &str) {
        News::close(self, why);
    }
}

/// A running device. Objects hold it; the last one to go stops it.
pub(crate) struct Core {
    shared: Arc<Shared>,
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

/// An object without an owner.
struct Lingering {
    epoch: u32,
    end: Opcode,
    handle: u32,
    /// What it may write.
    memory: Box<dyn Any + Send + Sync>,
}

/// What the thread of interrupts knows, too.
// Wide: each field is shared with the thread of interrupts and has a lock of its own.
pub(crate) struct Shared {
    pub transport: Arc<dyn Transport>,
    control: Mutex<Control>,
    /// Counts interrupts; whoever waits for a command waits for it.
    bell: (Mutex<u64>, Condvar),
    /// The epoch that is alive, or 0.
    alive: AtomicU32,
    last_epoch: Mutex<u32>,
    /// The transport is broken: no reset helps.
    broken: AtomicBool,
    /// This is a child of the process that opened the device.
    parents: AtomicBool,
    why_dead: Mutex<Option<String>>,
    device: Mutex<DeviceReply>,
    pub news: News<AsyncEvent>,
    sinks: Mutex<HashMap<u32, Arc<dyn Sink>>>,
    waiting: Mutex<Vec<Weak<dyn Closing>>>,
    pub doorbells: Doorbells,
    graveyard: Mutex<Vec<Box<dyn Any + Send + Sync>>>,
    /// What could not end yet, because the device still uses it for something else.
    lingering: Mutex<Vec<Lingering>>,
    resetting: Mutex<()>,
    /// Of virtqueues that never carry a buffer. The device may look at them all the same.
    _wakes: Vec<Memory>,
}

impl Deref for Core {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}

impl Core {
    /// Sets up the virtqueues, says HELLO and asks what the device is.
    pub fn start(transport: Arc<dyn Transport>) -> Result<Arc<Core>, Error> {
        let config = *transport.config();
        if config.abi_major != ABI_MAJOR {
            return Err(Error::Version(format!(
                "{} speaks version {}.{} of the contract, this library {ABI_MAJOR}.{ABI_MINOR}: use the \
                 library that came with the daemon",
                transport.name(),
                config.abi_major,
                config.abi_minor
            )));
        }
        let virtqueues = 1 + u32::from(config.event_queues) + u32::from(config.wake_queues);
        let Some(wake) = config.wake_virtqueue(0).filter(|_| config.event_queues > 0) else {
            return Err(Error::Protocol(format!(
                "{} event queues and {} wake-up queues",
                config.event_queues, config.wake_queues
            )));
        };
        let mut queues = Vec::new();
        for i in 0..virtqueues {
            let number =
                u16::try_from(i).map_err(|_| Error::Protocol("more than 65535 virtqueues".into()))?;
            queues.push(Queue::new(&*transport, transport.queue_size_max(number))?);
        }
        let layouts: Vec<_> = queues.iter().map(Queue::layout).collect();
        let wakes = queues.split_off(1 + usize::from(config.event_queues));
        let event_queues = queues.split_off(1);
        let Some(control) = queues.pop() else {
            return Err(Error::Protocol("no control queue".into()));
        };
        let mut event_queues = events::EventQueues::new(&*transport, event_queues)?;
        let control = Control::new(&*transport, control)?;
        let stop = eventfd(0, EventfdFlags::CLOEXEC).map_err(|e| Error::os("making an eventfd")(e.into()))?;
        let stop = Arc::new(stop);
        let shared = Arc::new(Shared {
            control: Mutex::new(control),
            bell: (Mutex::new(0), Condvar::new()),
            alive: AtomicU32::new(0),
            last_epoch: Mutex::new(0),
            broken: AtomicBool::new(false),
            parents: AtomicBool::new(false),
            why_dead: Mutex::new(None),
            device: Mutex::new(DeviceReply::default()),
            news: News::new()?,
            sinks: Mutex::new(HashMap::new()),
            waiting: Mutex::new(Vec::new()),
            doorbells: Doorbells::new(wake),
            graveyard: Mutex::new(Vec::new()),
            lingering: Mutex::new(Vec::new()),
            resetting: Mutex::new(()),
            _wakes: wakes.into_iter().map(Queue::into_memory).collect(),
            transport,
        });
        // From here on whatever ends stops the device first: `Core` has that in its `drop`.
        let mut core = Core {
            shared: Arc::clone(&shared),
            stop: Arc::clone(&stop),
            thread: None,
        };
        core.transport.start(&layouts)?;
        event_queues.offer_all(&*core.transport);
        fork::watch(&shared);
        let thread = std::thread::Builder::new()
            .name("vnic-events".into())
            .spawn(move || events::run(&shared, &mut event_queues, &stop))
            .map_err(Error::os("starting a thread"))?;
        core.thread = Some(thread);
        core.begin()?;
        Ok(Arc::new(core))
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        if self.is_parents() {
            // The thread is the parent's, too; and with the transport the device would end.
            std::mem::forget(self.thread.take());
            std::mem::forget(Arc::clone(&self.shared));
            return;
        }
        let _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
        let keep = self.thread.take().map(JoinHandle::join);
        self.shared.die("it was closed", true);
        self.shared.transport.stop();
        drop(keep);
        lock(&self.shared.graveyard).clear();
        lock(&self.shared.lingering).clear();
    }
}

impl Shared {
    /// HELLO and what follows: a new epoch.
    fn begin(&self) -> Result<(), Error> {
        let hello = Hello {
            abi_major: ABI_MAJOR,
            minor_min: 0,
            minor_max: ABI_MINOR,
            ..Hello::default()
        };
        let _reply: HelloReply = self.call_in(None, Opcode::Hello, &hello).map_err(|e| {
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
        if reply.len() == DeviceReply::LEN_1_0 {
            // A device of version 1.0: what it does not say is zero.
            reply.resize(room, 0);
        }
        *lock(&self.device) = control::parse(Opcode::QueryDevice, &reply)?;
        let mut last = lock(&self.last_epoch);
        // 0 is nobody's epoch.
        *last = last.checked_add(1).unwrap_or(1);
        self.alive.store(*last, SeqCst);
        drop(last);
        // Early, so that it is known early if there can be none.
        self.make_first_ring()
    }

    /// Resets the device: all objects are dead, and it begins anew.
    pub fn reset(&self) -> Result<(), Error> {
        let _one_at_a_time = lock(&self.resetting);
        self.die("it was reset", false);
        self.call_in::<_, ()>(None, Opcode::Reset, &())?;
        self.doorbells.forget();
        lock(&self.graveyard).clear();
        lock(&self.lingering).clear();
        self.begin()
    }

    /// What the device is, as it was told when it began.
    pub fn device(&self) -> DeviceReply {
        *lock(&self.device)
    }

    /// The epoch in which new objects are made.
    pub fn epoch(&self) -> Result<u32, Error> {
        match self.alive.load(SeqCst) {
            0 => Err(self.dead()),
            epoch => Ok(epoch),
        }
    }

    /// Is the device as it was in that epoch?
    #[inline]
    pub fn is_alive(&self, epoch: u32) -> bool {
        self.alive.load(std::sync::atomic::Ordering::Acquire) == epoch
    }

    /// In a child: this is its parent's. Takes no lock.
    fn leave_to_parent(&self) {
        self.parents.store(true, SeqCst);
        self.broken.store(true, SeqCst);
        self.alive.store(0, SeqCst);
    }

    /// Is this a child of the process that opened the device?
    fn is_parents(&self) -> bool {
        self.parents.load(SeqCst)
    }

    /// Why nothing can be done.
    pub fn dead(&self) -> Error {
        if self.is_parents() {
            return Error::parents(self.transport.name());
        }
        let why = lock(&self.why_dead).clone();
        Error::Gone(why.unwrap_or_else(|| "it was reset".into()))
    }

    /// Nothing made so far lives any longer. `for_good`: nor will anything.
    fn die(&self, why: &str, for_good: bool) {
        if self.is_parents() {
            // It is dead already; descriptors are the parent's, too.
            return;
        }
        {
            let mut text = lock(&self.why_dead);
            let was = self.alive.swap(0, SeqCst);
            let broken = self.broken.fetch_or(for_good, SeqCst);
            if was == 0 && (broken || !for_good) {
                return;
            }
            *text = Some(why.to_owned());
        }
        lock(&self.sinks).clear();
        for one in lock(&self.waiting).drain(..).filter_map(|w| w.upgrade()) {
            one.close(why);
        }
        self.news.push(AsyncEvent::DeviceFatal, ASYNC_LIMIT);
        if for_good {
            self.news.close(why);
        }
        self.ring_bell();
    }

    /// The device does not do what it must: it is taken for dead.
    fn die_unheard(&self, what: &str) {
        self.die(
            &format!("{what} for too long: its daemon hangs, or has ended without a word"),
            true,
        );
    }

    /// Looks whether the transport still is there; if not, nothing lives any longer.
    fn check_transport(&self) -> bool {
        if self.broken.load(SeqCst) {
            return false;
        }
        match self.transport.gone() {
            None => true,
            Some(e) => {
                let why = match e {
                    Error::Gone(why) => why,
                    e => e.to_string(),
                };
                self.die(&why, true);
                false
            }
        }
    }

    fn ring_bell(&self) {
        let mut count = lock(&self.bell.0);
        *count = count.wrapping_add(1);
        self.bell.1.notify_all();
    }

    /// Who shall hear of a completion queue from now on.
    pub fn set_sink(&self, cq: u32, sink: Arc<dyn Sink>) {
        lock(&self.sinks).insert(cq, sink);
    }

    /// Nobody hears of it any more.
    pub fn remove_sink(&self, cq: u32) {
        let removed = lock(&self.sinks).remove(&cq);
        drop(removed);
    }

    /// Ends this one's waiting when all ends.
    pub fn register_waiting(&self, one: Weak<dyn Closing>) {
        let mut waiting = lock(&self.waiting);
        waiting.retain(|w| w.strong_count() > 0);
        waiting.push(one);
    }

    /// Keeps memory until the device certainly does not write there any more.
    pub fn bury(&self, memory: Box<dyn Any + Send + Sync>) {
        if self.is_parents() {
            return std::mem::forget(memory);
        }
        lock(&self.graveyard).push(memory);
    }

    /// Ends an object by a command and gives its memory up. If the device still uses the object (a region to
    /// which windows are bound, and what that is in), it is tried again whenever another one has ended. If the
    /// device does not say that it ended, the memory is kept.
    pub fn end(&self, epoch: u32, opcode: Opcode, handle: u32, memory: Box<dyn Any + Send + Sync>) {
        if let Some(object) = self.end_once(epoch, opcode, handle, memory) {
            lock(&self.lingering).push(object);
        }
    }

    /// As [`end`](Shared::end), but answers false if the device still uses the object: then it is as before.
    pub fn end_unless_in_use(
        &self,
        epoch: u32,
        opcode: Opcode,
        handle: u32,
        memory: Box<dyn Any + Send + Sync>,
    ) -> bool {
        self.end_once(epoch, opcode, handle, memory).is_none()
    }

    /// The object, if it is still in use.
    fn end_once(
        &self,
        epoch: u32,
        opcode: Opcode,
        handle: u32,
        memory: Box<dyn Any + Send + Sync>,
    ) -> Option<Lingering> {
        if self.is_parents() {
            // The parent has the object, and its memory in use.
            std::mem::forget(memory);
            return None;
        }
        let now = self.alive.load(SeqCst);
        if now != 0 && now != epoch {
            // The reset that ended the object was acknowledged.
            return None;
        }
        let object = Lingering {
            epoch,
            end: opcode,
            handle,
            memory,
        };
        let in_use = self.try_end(object);
        if in_use.is_none() {
            self.end_lingering();
        }
        in_use
    }

    /// The object, if it is still in use.
    fn try_end(&self, object: Lingering) -> Option<Lingering> {
        let Err(e) = self.object_command(object.epoch, object.end, object.handle) else {
            return None;
        };
        match e.status() {
            Some(CommandStatus::InUse) => return Some(object),
            Some(CommandStatus::NoSuchObject) => {}
            _ => self.bury(object.memory),
        }
        None
    }

    /// Ends what can end now, until nothing more does.
    fn end_lingering(&self) {
        loop {
            let before = std::mem::take(&mut *lock(&self.lingering));
            let count = before.len();
            if count == 0 {
                return;
            }
            let mut after: Vec<_> = before.into_iter().filter_map(|o| self.try_end(o)).collect();
            let ended = after.len() < count;
            lock(&self.lingering).append(&mut after);
            if !ended {
                return;
            }
        }
    }
}
