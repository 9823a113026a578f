//! The driver half: virtqueues, commands, events, doorbells (`SPEC.md`, sections 4 to 7 and 10).
//!
//! *Threads.* One thread of ours waits for interrupts. It hands events on, and wakes whoever waits for a
//! command. It never waits for a command itself, and never drops an object whose end is a command.
//!
//! *Epochs.* An object that was made before a reset of the device is dead after it. Each object remembers the
//! epoch in which it was made; [`Shared::alive`] is the epoch that lives, or none.
//!
//! *Forks.* For a child every device is dead, and what the child does to its copies of objects does nothing
//! ([`fork`]).
//!
//! *Memory.* The device writes into memory until it has said that it does not any more. So memory of an object
//! is freed only after the device has answered the command that ends the object. If no answer can be had, the
//! memory goes to the graveyard, which is cleared when the transport has stopped the device.

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

/// Most asynchronous events that wait for the program; the oldest give way.
const ASYNC_LIMIT: usize = 4096;

/// Locks a mutex. A panic of another thread while it held the lock does not matter to what our locks guard.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Receives the notifications of a completion queue.
pub(crate) trait Sink: Send + Sync {
    /// An armed queue has a completion. Must not wait, nor drop an object that ends by a command.
    fn completed(&self);
}

/// A wait that ends when the device is gone.
pub(crate) trait Closing: Send + Sync {
    /// Ends all waiting.
    fn close(&self, why: &str);
}

impl<T: Send> Closing for News<T> {
    fn close(&self, why: &str) {
        News::close(self, why);
    }
}

/// A running device. Objects hold it; dropping the last reference stops the device.
pub(crate) struct Core {
    shared: Arc<Shared>,
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

/// An object without an owner, which the device still uses.
struct Lingering {
    epoch: u32,
    end: Opcode,
    handle: u32,
    /// Memory that the device may write for it.
    memory: Box<dyn Any + Send + Sync>,
}

/// What the thread of interrupts shares with the objects.
// Wide: each field is shared with the thread of interrupts and has a lock of its own.
pub(crate) struct Shared {
    pub transport: Arc<dyn Transport>,
    control: Mutex<Control>,
    /// Counts interrupts; whoever waits for a command waits for it.
    bell: (Mutex<u64>, Condvar),
    /// The epoch that is alive, or 0.
    alive: AtomicU32,
    last_epoch: Mutex<u32>,
    /// Whether the transport is broken: no reset helps.
    broken: AtomicBool,
    /// Whether this is a forked child of the process that opened the device.
    parents: AtomicBool,
    why_dead: Mutex<Option<String>>,
    device: Mutex<DeviceReply>,
    pub news: News<AsyncEvent>,
    sinks: Mutex<HashMap<u32, Arc<dyn Sink>>>,
    waiting: Mutex<Vec<Weak<dyn Closing>>>,
    pub doorbells: Doorbells,
    graveyard: Mutex<Vec<Box<dyn Any + Send + Sync>>>,
    /// Objects that could not end yet, because the device still uses them.
    lingering: Mutex<Vec<Lingering>>,
    resetting: Mutex<()>,
    /// Memory of virtqueues that never carry a buffer. The device may look at them all the same.
    _wakes: Vec<Memory>,
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
        // From here on every way out stops the device first: `Core` does that in its `drop`.
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
            // The thread is the parent's, too; and dropping the transport would end the device.
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
    /// Sends HELLO and what follows it: a new epoch.
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
            // A device of version 1.0 answers less: what it does not say is zero.
            reply.resize(room, 0);
        }
        *lock(&self.device) = control::parse(Opcode::QueryDevice, &reply)?;
        let mut last = lock(&self.last_epoch);
        // 0 is nobody's epoch.
        *last = last.checked_add(1).unwrap_or(1);
        self.alive.store(*last, SeqCst);
        drop(last);
        // Now, so that an error shows at the start.
        self.make_first_ring()
    }

    /// Resets the device: all objects are dead, and a new epoch begins.
    pub fn reset(&self) -> Result<(), Error> {
        let _one_at_a_time = lock(&self.resetting);
        self.die("it was reset", false);
        self.call_in::<_, ()>(None, Opcode::Reset, &())?;
        self.doorbells.forget();
        lock(&self.graveyard).clear();
        lock(&self.lingering).clear();
        self.begin()
    }

    /// The device's attributes, as it told them at the beginning of the epoch.
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

    /// Whether an epoch is the one that lives.
    #[inline]
    pub fn is_alive(&self, epoch: u32) -> bool {
        self.alive.load(std::sync::atomic::Ordering::Acquire) == epoch
    }

    /// Makes the device the parent's, in a forked child. Takes no lock.
    fn leave_to_parent(&self) {
        self.parents.store(true, SeqCst);
        self.broken.store(true, SeqCst);
        self.alive.store(0, SeqCst);
    }

    /// Whether this is a forked child of the process that opened the device.
    fn is_parents(&self) -> bool {
        self.parents.load(SeqCst)
    }

    /// The error that says why nothing can be done.
    pub fn dead(&self) -> Error {
        if self.is_parents() {
            return Error::parents(self.transport.name());
        }
        let why = lock(&self.why_dead).clone();
        Error::Gone(why.unwrap_or_else(|| "it was reset".into()))
    }

    /// Ends the epoch: no object lives any longer. `for_good`: there will be no other epoch.
    fn die(&self, why: &str, for_good: bool) {
        if self.is_parents() {
            // The device is dead already; descriptors are the parent's, too.
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

    /// Takes the device for dead, because it does not do what it must.
    fn die_unheard(&self, what: &str) {
        self.die(
            &format!("{what} for too long: its daemon hangs, or has ended without a word"),
            true,
        );
    }

    /// Checks whether the transport still is there; if not, ends the epoch.
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

    /// Sets who hears of a completion queue from now on.
    pub fn set_sink(&self, cq: u32, sink: Arc<dyn Sink>) {
        lock(&self.sinks).insert(cq, sink);
    }

    /// Nobody hears of a completion queue any more.
    pub fn remove_sink(&self, cq: u32) {
        let removed = lock(&self.sinks).remove(&cq);
        drop(removed);
    }

    /// Registers a wait, which ends when all ends.
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

    /// Ends an object by a command and frees its memory. If the device still uses the object (a region to which
    /// windows are bound, and what that region is in), the command is sent again whenever another object has
    /// ended. If the device does not say that the object ended, the memory is kept.
    pub fn end(&self, epoch: u32, opcode: Opcode, handle: u32, memory: Box<dyn Any + Send + Sync>) {
        if let Some(object) = self.end_once(epoch, opcode, handle, memory) {
            lock(&self.lingering).push(object);
        }
    }

    /// As [`end`](Shared::end), but returns false if the device still uses the object, which then is as before.
    pub fn end_unless_in_use(
        &self,
        epoch: u32,
        opcode: Opcode,
        handle: u32,
        memory: Box<dyn Any + Send + Sync>,
    ) -> bool {
        self.end_once(epoch, opcode, handle, memory).is_none()
    }

    /// Ends an object once; returns it if the device still uses it.
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

    /// Ends an object; returns it if the device still uses it.
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

    /// Ends all objects that can end now, until none does.
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
