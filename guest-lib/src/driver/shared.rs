//! What the objects of a device and the thread of interrupts share: whether the device lives, and who waits.

use std::any::Any;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, Weak};

use vnic_device::command::Opcode;
use vnic_device::command::device::DeviceReply;

use super::control::Control;
use super::paging::Paging;
use super::posts::WatchedPosts;
use super::waiting::{Closing, News};
use crate::event::AsyncEvent;
use crate::shared::Memory;
use crate::sync::lock;
use crate::transport::Transport;
use crate::{Error, GidEntry};

/// Most asynchronous events that wait for the program; the oldest give way.
const ASYNC_LIMIT: usize = 4096;

/// Receives the notifications of a completion queue.
pub(crate) trait Sink: Send + Sync {
    /// An armed queue has a completion. Must not wait, nor drop an object that ends by a command.
    fn completed(&self);
}

/// An object without an owner, which the device still uses.
pub(super) struct Lingering {
    pub epoch: u32,
    pub end: Opcode,
    pub handle: u32,
    /// Memory that the device may write for it.
    pub memory: Box<dyn Any + Send + Sync>,
}

/// Memory that the device may still use.
#[derive(Default)]
pub(super) struct Kept {
    /// Until the transport has stopped the device.
    pub graveyard: Mutex<Vec<Box<dyn Any + Send + Sync>>>,
    /// Of objects that could not end yet, because the device still uses them.
    pub lingering: Mutex<Vec<Lingering>>,
}

/// The GID table, as it was when it was last asked for.
#[derive(Default)]
struct KnownGids {
    /// How often the device has told of a change.
    changes: u64,
    entries: Option<Vec<GidEntry>>,
}

/// What the thread of interrupts shares with the objects.
// Wide: a device has one, and each part its own lock.
pub(crate) struct Shared {
    pub transport: Arc<dyn Transport>,
    pub(super) control: Mutex<Control>,
    /// Counts interrupts; whoever waits for a command waits for it.
    pub(super) bell: (Mutex<u64>, Condvar),
    /// The epoch that is alive, or 0.
    alive: AtomicU32,
    last_epoch: Mutex<u32>,
    /// Whether the transport is broken: no reset helps.
    broken: AtomicBool,
    /// Whether this is a forked child of the process that opened the device.
    parents: AtomicBool,
    why_dead: Mutex<Option<String>>,
    device: Mutex<DeviceReply>,
    pub(super) posts: WatchedPosts,
    pub news: News<AsyncEvent>,
    pub(super) sinks: Mutex<HashMap<u32, Arc<dyn Sink>>>,
    waiting: Mutex<Vec<Weak<dyn Closing>>>,
    pub(super) kept: Kept,
    /// Whoever waits for events of connections.
    connections: Mutex<Weak<News<()>>>,
    /// Regions on demand.
    pub(super) paging: Paging,
    /// What is known of the GID table.
    gids: Mutex<KnownGids>,
    /// Memory of virtqueues that never carry a buffer. The device may look at them all the same.
    _wakes: Vec<Memory>,
}

impl Shared {
    /// A device without an epoch. `wakes`: memory of virtqueues that never carry a buffer.
    pub(super) fn new(
        transport: Arc<dyn Transport>,
        control: Control,
        wakes: Vec<Memory>,
    ) -> Result<Shared, Error> {
        Ok(Shared {
            control: Mutex::new(control),
            bell: (Mutex::new(0), Condvar::new()),
            alive: AtomicU32::new(0),
            last_epoch: Mutex::new(0),
            broken: AtomicBool::new(false),
            parents: AtomicBool::new(false),
            why_dead: Mutex::new(None),
            device: Mutex::new(DeviceReply::default()),
            posts: WatchedPosts::default(),
            news: News::new()?,
            sinks: Mutex::new(HashMap::new()),
            waiting: Mutex::new(Vec::new()),
            kept: Kept::default(),
            connections: Mutex::default(),
            paging: Paging::default(),
            gids: Mutex::default(),
            _wakes: wakes,
            transport,
        })
    }

    /// Begins an epoch of a device with these attributes.
    pub(super) fn begin_epoch(&self, device: DeviceReply) {
        *lock(&self.device) = device;
        let mut last = lock(&self.last_epoch);
        // 0 is nobody's epoch.
        *last = last.checked_add(1).unwrap_or(1);
        self.alive.store(*last, SeqCst);
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
    pub(super) fn leave_to_parent(&self) {
        self.parents.store(true, SeqCst);
        self.broken.store(true, SeqCst);
        self.alive.store(0, SeqCst);
    }

    /// Whether this is a forked child of the process that opened the device.
    pub fn is_parents(&self) -> bool {
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
    pub(super) fn die(&self, why: &str, for_good: bool) {
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
        // Who opens the device anew waits for other events.
        *lock(&self.connections) = Weak::new();
        self.gids_changed();
        for one in lock(&self.waiting).drain(..).filter_map(|w| w.upgrade()) {
            one.close(why);
        }
        self.raise(AsyncEvent::DeviceFatal);
        if for_good {
            self.news.close(why);
        }
        self.ring_bell();
    }

    /// Takes the device for dead, because it does not do what it must.
    pub(super) fn die_unheard(&self, what: &str) {
        self.die(
            &format!("{what} for too long: its daemon hangs, or has ended without a word"),
            true,
        );
    }

    /// Checks whether the transport still is there; if not, ends the epoch.
    pub(super) fn check_transport(&self) -> bool {
        if self.is_broken() {
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

    /// Whether the transport is broken: no reset helps.
    pub(super) fn is_broken(&self) -> bool {
        self.broken.load(SeqCst)
    }

    /// Tells the program of an asynchronous event.
    pub(super) fn raise(&self, event: AsyncEvent) {
        self.news.push(event, ASYNC_LIMIT);
    }

    /// Wakes whoever waits for a command.
    pub(super) fn ring_bell(&self) {
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

    /// Where it is told that something has happened to connections; once an entry waits, for all that happens before it is taken.
    pub fn connection_news(&self) -> Result<Arc<News<()>>, Error> {
        let mut known = lock(&self.connections);
        let news = match known.upgrade() {
            Some(news) => news,
            None => Arc::new(News::new()?),
        };
        *known = Arc::downgrade(&news);
        drop(known);
        let closing: Arc<dyn Closing> = Arc::<News<()>>::clone(&news);
        self.register_waiting(Arc::downgrade(&closing));
        // What happened before, which nobody may have taken.
        news.push((), 1);
        Ok(news)
    }

    /// The device has told that something has happened to connections.
    pub(super) fn connections_told(&self) {
        if let Some(news) = lock(&self.connections).upgrade() {
            news.push((), 1);
        }
    }

    /// The GID table, by `ask` unless it is known and the device has told of no change since.
    pub fn known_gids(
        &self,
        ask: impl FnOnce() -> Result<Vec<GidEntry>, Error>,
    ) -> Result<Vec<GidEntry>, Error> {
        let changes = {
            let known = lock(&self.gids);
            if let (Some(entries), Ok(_)) = (&known.entries, self.epoch()) {
                return Ok(entries.clone());
            }
            known.changes
        };
        let entries = ask()?;
        let mut known = lock(&self.gids);
        // The answer may be older than a change that was told of meanwhile.
        if known.changes == changes {
            known.entries = Some(entries.clone());
        }
        Ok(entries)
    }

    /// The GID table has changed, or may have.
    pub fn gids_changed(&self) {
        let mut known = lock(&self.gids);
        known.changes += 1;
        known.entries = None;
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
        lock(&self.kept.graveyard).push(memory);
    }

    /// Keeps memory that the device may have taken without an answer.
    pub fn bury_if_unknown(&self, error: &Error, memory: &Memory) {
        if !matches!(error, Error::Command { .. } | Error::Invalid(_)) {
            self.bury(Box::new(memory.clone()));
        }
    }

    /// Frees all memory that was kept because the device might use it: it does not any more.
    pub(super) fn release(&self) {
        lock(&self.kept.graveyard).clear();
        lock(&self.kept.lingering).clear();
    }
}
