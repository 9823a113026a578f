//! The event log: numbered events in a file of their own.
//!
//! ```text
//!  append ─▶ limiter ─▶ tail (numbered) ─▶ followers at once
//!                          └─ writer thread: a batch, at most half a second late ─▶ store; oldest pruned
//! ```
//!
//! Each origin has its own table and share, so that guests and strangers cannot displace the events of operators; within a
//! share an adapter with many events does not displace those of another. All origins have one sequence of revisions.
//!
//! An appender never waits for the disk. A reader gets the stored events and then the tail. Urgent events are stored
//! without delay. `kill -9` loses the tail at most; its revisions are not used again, so that a follower that has seen one
//! of them can continue after it.

mod share;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prost::Message as _;
use tokio::sync::broadcast;
use vnic_control::v1::Event;

use super::kinds::{self, Origin};
use super::limit::Limiter;
use super::record::monotonic_ns;
use super::{ControlEvent, Owner, Record, told};
use crate::store::{Batch, OnDamage, Reset, Schema, Store, StoreError};
use share::{Row, Share};

/// Number of events that a watcher may be behind before its stream ends.
pub const BACKLOG: usize = 4096;

/// Name of the file in the state directory.
pub const FILE: &str = "events.redb";
/// Version of the file's schema.
const SCHEMA: Schema = Schema::new(1);
/// Tables of events as `vnic.v1.Event`, one for each [`Origin`]. Key: revision, big-endian.
const TABLES: [&str; Origin::COUNT] = ["events", "events_outside", "events_guests"];
/// Table of the log's own state.
const LOG: &str = "log";
/// Key of the last reserved revision, big-endian: none above it was used.
const RESERVED: &[u8] = b"reserved";
/// Key of the greatest revision that was pruned, big-endian.
const GONE: &[u8] = b"gone";
/// Key of whether the daemon ended in order: 1 if it did.
const ORDERLY: &[u8] = b"orderly";

/// Greatest delay of storing an event, in nanoseconds.
const STORE_WITHIN_NS: u64 = 500_000_000;
/// Number of waiting events at which they are stored without delay.
const TOGETHER: usize = 512;
/// Number of revisions that are reserved at a time. The next ones are reserved when half of them are left.
const RESERVE: u64 = 65_536;
/// Number of rows that are read at a time.
const ROWS: usize = 512;
/// Interval of pruning when no events come, in nanoseconds.
const PRUNE_NS: u64 = 3_600_000_000_000;

/// File of a log, and whether a damaged one was put aside; or why there is none.
pub type EventFile = Result<(Store, Option<Reset>), StoreError>;

/// Limits of the stored events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep {
    /// Greatest number of events of each origin.
    pub events: usize,
    /// Greatest age.
    pub age: Duration,
}

impl Default for Keep {
    fn default() -> Keep {
        Keep {
            events: 10_000,
            age: Duration::from_secs(30 * 86_400),
        }
    }
}

/// Position in the log, and the events after it.
#[derive(Debug)]
pub struct Following {
    /// Revision of the last event; events up to it are read with [`EventLog::read`].
    pub last: u64,
    /// Events after `last`, without a gap.
    pub news: broadcast::Receiver<Arc<Event>>,
}

/// A part of the log.
#[derive(Debug, Default)]
pub struct Part {
    /// Wanted events, oldest first.
    pub events: Vec<Arc<Event>>,
    /// Revision of the last event that was examined.
    pub up_to: u64,
}

/// Why events cannot be followed from a revision on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotKept {
    /// Events after the revision were pruned; all from this one on are kept.
    Gone(u64),
    /// The revision is ahead of the log; the last revision.
    Ahead(u64),
}

/// Log of events.
pub struct EventLog {
    shared: Arc<Shared>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    inner: Mutex<Inner>,
    /// Wakes the writer.
    wake: Condvar,
    /// Wakes those who wait until events are stored.
    stored: Condvar,
    news: broadcast::Sender<Arc<Event>>,
    store: Option<Store>,
    boot_id: String,
    keep: Keep,
}

#[derive(Default)]
struct Inner {
    /// Number of events since the log was opened, by [`Level`](super::Level), summed-up ones included.
    happened: [u64; 3],
    limiter: Limiter,
    /// Kept events, by origin: the stored ones, or the tail if nothing is stored.
    kept: [Share; Origin::COUNT],
    /// Greatest revision that was pruned; 0: none.
    gone: u64,
    /// Events that are not stored yet.
    tail: VecDeque<Arc<Event>>,
    /// Last revision.
    last: u64,
    /// Last revision that is reserved in the store.
    reserved: u64,
    /// Time since which an event waits to be stored.
    waiting_since: Option<u64>,
    urgent: bool,
    stop: bool,
    /// Whether nothing is stored (any more).
    memory_only: bool,
    /// Number of rounds of the writer.
    rounds: u64,
}

/// Index of an event's table in [`TABLES`].
fn place(event: &Event) -> usize {
    Origin::of(event.id) as usize
}

fn number(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_be_bytes)
}

/// Writes an event to the daemon's log on standard error.
fn write_down(event: &Event) {
    use vnic_control::v1::event::Severity;
    let owner = [&event.adapter, &event.port].into_iter().find(|o| !o.is_empty());
    // An event without adapter and port has no owner field.
    let owner = owner.map(|o| crate::names::last(o));
    let (kind, id, message) = (event.kind.as_str(), event.id, &event.message);
    match event.severity() {
        Severity::Error => tracing::error!(owner, kind, id, "{message}"),
        Severity::Warning => tracing::warn!(owner, kind, id, "{message}"),
        _ => tracing::info!(owner, kind, id, "{message}"),
    }
}

impl EventLog {
    /// Opens the log's file in a directory. A damaged file is put aside.
    pub fn file(dir: &Path) -> EventFile {
        Store::open(dir, FILE, SCHEMA, OnDamage::Reset)
    }

    /// Opens the log in a directory, as [`EventLog::start`] with its file.
    pub fn open(dir: Option<&Path>, keep: Keep) -> std::io::Result<EventLog> {
        EventLog::start(dir.map(EventLog::file), keep)
    }

    /// Continues the log of a file, and records the start of the daemon. If there is no file, events are kept in memory:
    /// the daemon starts all the same.
    pub fn start(file: Option<EventFile>, keep: Keep) -> std::io::Result<EventLog> {
        let mut inner = Inner::default();
        let (mut first, mut orderly, mut store) = (Vec::new(), None, None);
        match file {
            None => {}
            Some(Ok((opened, reset))) => {
                match load(&opened, &mut inner) {
                    Ok(ended) => orderly = ended,
                    Err(error) => first.push(not_stored(&error)),
                }
                if let Some(reset) = reset {
                    let kept = reset.kept.map(|path| path.display().to_string());
                    first.push(Record::from(ControlEvent::StateReset {
                        what: format!("the event log was damaged ({})", reset.problem),
                        kept_as: kept.unwrap_or_default(),
                        by: String::new(),
                    }));
                }
                store = Some(opened);
            }
            Some(Err(error)) => first.push(not_stored(&error)),
        }
        inner.memory_only = store.is_none();
        if orderly == Some(false) {
            // Some of the reserved revisions may have been used and not stored.
            inner.last = inner.last.max(inner.reserved);
        }
        let shared = Arc::new(Shared {
            inner: Mutex::new(inner),
            wake: Condvar::new(),
            stored: Condvar::new(),
            news: broadcast::channel(BACKLOG).0,
            store,
            boot_id: boot_id(),
            keep,
        });
        let writer = {
            let shared = shared.clone();
            std::thread::Builder::new()
                .name("event-log".to_owned())
                .spawn(move || {
                    if catch_unwind(AssertUnwindSafe(|| shared.write())).is_err() {
                        shared.give_up();
                    }
                })?
        };
        let log = EventLog {
            shared,
            writer: Mutex::new(Some(writer)),
        };
        for record in first {
            log.append(record);
        }
        log.append(ControlEvent::DaemonStarted { orderly }.into());
        // The flush also reserves the first revisions.
        log.flush();
        Ok(log)
    }

    /// Numbers an event, keeps it and sends it to followers. Never waits for the disk.
    pub fn append(&self, record: Record) {
        let urgent = record.urgent();
        let event = {
            let mut inner = self.shared.lock();
            let now = monotonic_ns();
            inner.happened[record.level as usize] += record.suppressed.max(1);
            let Some(record) = inner.limiter.admit(record, now) else {
                // The writer records the sum.
                self.shared.wake.notify_one();
                return;
            };
            inner.urgent |= urgent;
            let event = self.shared.push(&mut inner, record, now);
            if inner.urgent || inner.tail.len() == 1 || inner.tail.len() >= TOGETHER {
                self.shared.wake.notify_one();
            }
            event
        };
        write_down(&event);
    }

    /// Number of events since the log was opened, by [`Level`](super::Level); each summed-up event counts.
    pub fn happened(&self) -> [u64; 3] {
        self.shared.lock().happened
    }

    /// Waits until all appended events are stored, or cannot be.
    pub fn flush(&self) {
        let mut inner = self.shared.lock();
        // The present round may have begun before the last append.
        let enough = inner.rounds + 2;
        inner.urgent = true;
        while inner.rounds < enough && !inner.stop && (inner.urgent || !inner.tail.is_empty()) {
            inner.urgent = true;
            self.shared.wake.notify_one();
            inner = self
                .shared
                .stored
                .wait(inner)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Stores all events and that the daemon ended in order.
    pub fn close(&self) {
        self.shared.lock().stop = true;
        self.shared.wake.notify_one();
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(writer) = writer {
            let _ = writer.join();
        }
    }

    /// At most `most` wanted events after `after` and up to `up_to`, oldest first. May block.
    pub fn read(
        &self,
        after: u64,
        up_to: u64,
        most: usize,
        wants: impl Fn(&Event) -> bool,
    ) -> Result<Part, StoreError> {
        let tail: Vec<Arc<Event>> = {
            let inner = self.shared.lock();
            let tail = inner.tail.iter();
            tail.filter(|e| e.revision > after && e.revision <= up_to)
                .cloned()
                .collect()
        };
        let mut part = Part {
            events: Vec::new(),
            up_to: after,
        };
        // Events of the tail may have been stored meanwhile.
        let stored_end = tail.first().map_or(up_to, |e| e.revision - 1);
        while part.events.len() < most && part.up_to < stored_end {
            let Some(store) = &self.shared.store else { break };
            let (mut all, mut end) = (Vec::new(), stored_end);
            for table in TABLES {
                let rows = store.rows(table, &(part.up_to + 1).to_be_bytes(), ROWS)?;
                // Rows after the last one of a full read are unknown.
                if let Some((key, _)) = rows.get(ROWS - 1) {
                    end = end.min(number(key));
                }
                all.extend(rows.into_iter().map(|(key, value)| (number(&key), value)));
            }
            all.retain(|(revision, _)| *revision <= end);
            all.sort_unstable_by_key(|(revision, _)| *revision);
            for (revision, value) in all {
                if part.events.len() == most {
                    return Ok(part);
                }
                part.up_to = revision;
                // A row of another version may be unreadable.
                if let Ok(event) = Event::decode(value.as_slice())
                    && wants(&event)
                {
                    part.events.push(Arc::new(event));
                }
            }
            part.up_to = end;
        }
        for event in tail {
            if part.events.len() == most {
                return Ok(part);
            }
            part.up_to = event.revision;
            if wants(&event) {
                part.events.push(event);
            }
        }
        if part.events.len() < most {
            part.up_to = up_to;
        }
        Ok(part)
    }

    /// Whether the events after `after` are kept, except those up to `missed`; 0: no exception.
    pub fn keeps(&self, after: u64, missed: u64) -> Result<(), NotKept> {
        self.shared.lock().keeps(after, missed)
    }

    /// Greatest revision that was pruned; 0: none.
    pub fn gone(&self) -> u64 {
        self.shared.lock().gone
    }

    /// Follows events from now on.
    pub fn follow(&self) -> Following {
        let inner = self.shared.lock();
        Following {
            last: inner.last,
            news: self.shared.news.subscribe(),
        }
    }
}

impl Drop for EventLog {
    fn drop(&mut self) {
        self.close();
    }
}

fn not_stored(error: &StoreError) -> Record {
    let message = format!("events are kept in memory only: {error}");
    let told = told(&kinds::EVENTS_NOT_STORED, message).fact("problem", error);
    Record::now(told, Owner::Nic)
}

/// Reads the state of the log; returns whether its daemon ended in order.
fn load(store: &Store, inner: &mut Inner) -> Result<Option<bool>, StoreError> {
    let (mut orderly, mut gone) = (None, None);
    for (key, value) in store.all(LOG)? {
        match key.as_slice() {
            RESERVED => inner.reserved = number(&value),
            GONE => gone = Some(number(&value)),
            ORDERLY => orderly = Some(value == [1]),
            _ => {}
        }
    }
    let mut first = None;
    for (table, kept) in TABLES.into_iter().zip(&mut inner.kept) {
        let mut next = 0_u64;
        loop {
            let rows = store.rows(table, &next.to_be_bytes(), ROWS)?;
            let mut last = 0;
            for (key, value) in &rows {
                last = number(key);
                // A row that cannot be read counts as one without an owner.
                kept.add(last, Row::decode(value.as_slice()).unwrap_or_default());
                first = first.or(Some(last).filter(|_| table == TABLES[0]));
            }
            inner.last = inner.last.max(last);
            if rows.len() < ROWS {
                break;
            }
            next = last + 1;
        }
    }
    // A version with one table for all did not store this key: the events before the first row were pruned.
    inner.gone = gone.unwrap_or(first.map_or(0, |first: u64| first.saturating_sub(1)));
    Ok(orderly)
}

impl Inner {
    /// Stores nothing any more: the tail is what is kept.
    fn keep_in_memory(&mut self) {
        self.memory_only = true;
        self.kept = Default::default();
        for event in &self.tail {
            self.kept[place(event)].add(event.revision, Row::from(&**event));
        }
    }

    fn keeps(&self, after: u64, missed: u64) -> Result<(), NotKept> {
        if after > self.last {
            Err(NotKept::Ahead(self.last))
        } else if after != 0 && self.gone > after.max(missed) {
            Err(NotKept::Gone(self.gone + 1))
        } else {
            Ok(())
        }
    }
}

impl Shared {
    /// After a panic of the writer: events go on in memory, where they are limited, and nobody waits for the disk.
    fn give_up(&self) {
        let mut inner = self.lock();
        inner.keep_in_memory();
        inner.stop = true;
        self.stored.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, inner: &mut Inner, record: Record, now: u64) -> Arc<Event> {
        inner.last += 1;
        let event = Arc::new(record.into_event(inner.last, &self.boot_id));
        inner.tail.push_back(event.clone());
        if inner.memory_only {
            let kept = &mut inner.kept[place(&event)];
            kept.add(event.revision, Row::from(&*event));
            while let Some(gone) = kept.make_room(self.keep.events) {
                inner.gone = inner.gone.max(gone);
                if let Ok(i) = inner.tail.binary_search_by_key(&gone, |e| e.revision) {
                    inner.tail.remove(i);
                }
            }
        }
        inner.waiting_since.get_or_insert(now);
        // An error means that there is no follower. The event is sent under the lock, so that a new follower misses none.
        let _ = self.news.send(event.clone());
        event
    }

    /// Loop of the writer.
    fn write(&self) {
        let mut prune_at = monotonic_ns() + PRUNE_NS;
        loop {
            let mut inner = self.lock();
            let stop = loop {
                let now = monotonic_ns();
                let sums = if inner.stop {
                    inner.limiter.finish()
                } else {
                    inner.limiter.due(now)
                };
                if !sums.is_empty() {
                    let events: Vec<_> = sums
                        .into_iter()
                        .map(|record| self.push(&mut inner, record, now))
                        .collect();
                    drop(inner);
                    events.iter().for_each(|event| write_down(event));
                    inner = self.lock();
                    continue;
                }
                let store_at = inner.waiting_since.map(|since| since + STORE_WITHIN_NS);
                let store_at = store_at.filter(|_| !inner.memory_only);
                let full = inner.tail.len() >= TOGETHER && !inner.memory_only;
                let wanted = inner.stop || inner.urgent || full;
                if wanted || store_at.is_some_and(|at| at <= now) || prune_at <= now {
                    break inner.stop;
                }
                let until = [store_at, inner.limiter.next()].into_iter().flatten();
                let until = until.fold(prune_at, u64::min);
                let wait = Duration::from_nanos(until.saturating_sub(now).max(1));
                inner = self
                    .wake
                    .wait_timeout(inner, wait)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0;
            };
            prune_at = monotonic_ns() + PRUNE_NS;
            inner.urgent = false;
            inner.waiting_since = None;
            let failed = match self.store.as_ref().filter(|_| !inner.memory_only) {
                None => None,
                Some(store) => {
                    let events: Vec<Arc<Event>> = inner.tail.iter().cloned().collect();
                    let mut batch = self.batch(&mut inner, &events, stop);
                    self.make_room(&mut inner, &events, &mut batch);
                    drop(inner);
                    let result = store.commit(batch);
                    inner = self.lock();
                    if result.is_ok() {
                        inner.tail.drain(..events.len());
                    } else {
                        inner.keep_in_memory();
                    }
                    result.err()
                }
            };
            if let Some(error) = failed {
                let event = self.push(&mut inner, not_stored(&error), monotonic_ns());
                drop(inner);
                write_down(&event);
                inner = self.lock();
            }
            inner.rounds += 1;
            self.stored.notify_all();
            if stop {
                return;
            }
        }
    }

    /// Adds events to the shares. Events that are too old, and those beyond the limit of their share, are pruned.
    fn make_room(&self, inner: &mut Inner, events: &[Arc<Event>], batch: &mut Batch) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let since = i64::try_from(now.saturating_sub(self.keep.age).as_secs()).unwrap_or(0);
        let mut last = 0;
        for (i, table) in TABLES.into_iter().enumerate() {
            let kept = &mut inner.kept[i];
            let mut gone = kept.forget(since);
            for event in events.iter().filter(|e| place(e) == i) {
                kept.add(event.revision, Row::from(&**event));
            }
            gone.extend(std::iter::from_fn(|| kept.make_room(self.keep.events)));
            for revision in gone {
                batch.delete(table, revision.to_be_bytes());
                last = last.max(revision);
            }
        }
        if last > 0 {
            // A follower that asks for these revisions from now on gets an error.
            inner.gone = inner.gone.max(last);
            batch.put(LOG, GONE, inner.gone.to_be_bytes());
        }
    }

    fn batch(&self, inner: &mut Inner, events: &[Arc<Event>], stop: bool) -> Batch {
        let mut batch = Batch::new();
        for event in events {
            batch.put(
                TABLES[place(event)],
                event.revision.to_be_bytes(),
                event.encode_to_vec(),
            );
        }
        if stop {
            inner.reserved = inner.last;
        } else if inner.last + RESERVE / 2 > inner.reserved {
            inner.reserved = inner.last + RESERVE;
        } else {
            return batch;
        }
        batch.put(LOG, RESERVED, inner.reserved.to_be_bytes());
        batch.put(LOG, ORDERLY, [u8::from(stop)]);
        batch
    }
}

/// Boot ID of this machine. A systemd unit without access to this part of /proc passes it in a variable (`%b`, systemd.unit(5)).
fn boot_id() -> String {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok();
    let told = kernel.or_else(|| std::env::var("VNIC_BOOT_ID").ok());
    as_kernel(told.unwrap_or_default().trim())
}

/// Formats 32 digits as the kernel does (RFC 9562 section 4); other text stays.
fn as_kernel(id: &str) -> String {
    if id.len() != 32 || !id.is_ascii() {
        return id.to_owned();
    }
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| &id[part]);
    parts.join("-")
}

#[cfg(test)]
mod tests;
