//! The event log: numbered events, stored in a file of its own.
//!
//! ```text
//!  append ─▶ limiter ─▶ tail (numbered) ─▶ followers at once
//!                          └─ writer thread: a batch, at most half a second late ─▶ store; oldest pruned
//! ```
//!
//! Each origin has a table and a share of its own: what guests and strangers cause in any number takes no room of what
//! operators did, and within a share no adapter takes the room of another. Revisions go through all of them.
//!
//! Who appends never waits for the disk. Who reads gets what is stored and then the tail. What matters most is stored
//! without delay. `kill -9` loses the tail at most; its numbers are not given again, so that a follower that has seen one
//! of them goes on behind it.

mod share;

use std::collections::VecDeque;
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

/// Events that a watcher may be behind before its stream is ended.
pub const BACKLOG: usize = 4096;

/// The file, in the state directory.
pub const FILE: &str = "events.redb";
/// What is in the file, and how.
const SCHEMA: Schema = Schema::new(1);
/// Events, as `vnic.v1.Event`, by revision in network order: a table for each [`Origin`].
const TABLES: [&str; Origin::COUNT] = ["events", "events_outside", "events_guests"];
/// What the log knows about itself.
const LOG: &str = "log";
/// No revision above this one was given, in network order.
const RESERVED: &[u8] = b"reserved";
/// The last event of any origin that has made room, in network order.
const GONE: &[u8] = b"gone";
/// 1: the daemon ended in order.
const ORDERLY: &[u8] = b"orderly";

/// An event is stored so many nanoseconds after it happened at the latest.
const STORE_WITHIN_NS: u64 = 500_000_000;
/// So many events that are not stored are stored without delay.
const TOGETHER: usize = 512;
/// Revisions that are set aside at a time. The next ones are set aside when half of them are left.
const RESERVE: u64 = 65_536;
/// Rows that are read at a time.
const ROWS: usize = 512;
/// How often old events are looked for when nothing happens.
const PRUNE_NS: u64 = 3_600_000_000_000;

/// The file of a log, and whether a damaged one was put aside; or why there is none.
pub type EventFile = Result<(Store, Option<Reset>), StoreError>;

/// How much is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep {
    /// At most so many events of each origin.
    pub events: usize,
    /// None that is older.
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

/// What will be, behind what was.
#[derive(Debug)]
pub struct Following {
    /// The last event that had happened; those up to it are read with [`EventLog::read`].
    pub last: u64,
    /// Those that come behind it, without a gap.
    pub news: broadcast::Receiver<Arc<Event>>,
}

/// A part of the log.
#[derive(Debug, Default)]
pub struct Part {
    /// Events that were wanted, oldest first.
    pub events: Vec<Arc<Event>>,
    /// The last one that was looked at.
    pub up_to: u64,
}

/// Why events cannot be followed from a revision on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotKept {
    /// They are no longer kept: this is the oldest.
    Gone(u64),
    /// This is the last one that there ever was.
    Ahead(u64),
}

/// Events, numbered, kept and stored.
pub struct EventLog {
    shared: Arc<Shared>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    inner: Mutex<Inner>,
    /// For the writer: there is something to do.
    wake: Condvar,
    /// For those who wait until something is stored.
    stored: Condvar,
    news: broadcast::Sender<Arc<Event>>,
    store: Option<Store>,
    boot_id: String,
    keep: Keep,
}

struct Inner {
    /// Events that have happened since the log was opened, by [`Level`](super::Level), those told in sum included.
    happened: [u64; 3],
    limiter: Limiter,
    /// What is kept, by origin: what is stored, or the tail if nothing is.
    kept: [Share; Origin::COUNT],
    /// Of the events up to this one some have made room; 0: none.
    gone: u64,
    /// What is not stored.
    tail: VecDeque<Arc<Event>>,
    /// The last revision that was given.
    last: u64,
    /// Revisions up to this one are set aside in the store.
    reserved: u64,
    /// Since when something waits to be stored.
    waiting_since: Option<u64>,
    urgent: bool,
    stop: bool,
    /// Nothing is stored (any more).
    memory_only: bool,
    /// How often the writer was through.
    rounds: u64,
}

/// Of which origin an event is: its place among [`TABLES`].
fn place(event: &Event) -> usize {
    Origin::of(event.id) as usize
}

fn number(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_be_bytes)
}

/// The daemon's own log.
fn write_down(event: &Event) {
    use vnic_control::v1::event::Severity;
    let owner = [&event.adapter, &event.port].into_iter().find(|o| !o.is_empty());
    // What is about no adapter or port has no such field.
    let (owner, message) = (owner.map(|o| crate::names::last(o)), &event.message);
    match event.severity() {
        Severity::Error => tracing::error!(owner, "{message}"),
        Severity::Warning => tracing::warn!(owner, "{message}"),
        _ => tracing::info!(owner, "{message}"),
    }
}

impl EventLog {
    /// Opens the log's file in a directory. A damaged one is put aside.
    pub fn file(dir: &Path) -> EventFile {
        Store::open(dir, FILE, SCHEMA, OnDamage::Reset)
    }

    /// Opens the log in a directory, as [`EventLog::start`] with its file.
    pub fn open(dir: Option<&Path>, keep: Keep) -> std::io::Result<EventLog> {
        EventLog::start(dir.map(EventLog::file), keep)
    }

    /// Goes on with the log of a file, and notes in it that the daemon starts. Where no file can be had events are kept in
    /// memory: a log is no reason not to start.
    pub fn start(file: Option<EventFile>, keep: Keep) -> std::io::Result<EventLog> {
        let mut inner = Inner {
            happened: [0; 3],
            limiter: Limiter::default(),
            kept: Default::default(),
            gone: 0,
            tail: VecDeque::new(),
            last: 0,
            reserved: 0,
            waiting_since: None,
            urgent: false,
            stop: false,
            memory_only: false,
            rounds: 0,
        };
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
            // Some of these may have been given and not stored.
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
                .spawn(move || shared.write())?
        };
        let log = EventLog {
            shared,
            writer: Mutex::new(Some(writer)),
        };
        for record in first {
            log.append(record);
        }
        log.append(ControlEvent::DaemonStarted { orderly }.into());
        // Also sets the first revisions aside.
        log.flush();
        Ok(log)
    }

    /// Numbers an event, keeps it and hands it on. Never waits for the disk.
    pub fn append(&self, record: Record) {
        let urgent = record.urgent();
        let event = {
            let mut inner = self.shared.lock();
            let now = monotonic_ns();
            inner.happened[record.level as usize] += record.suppressed.max(1);
            let Some(record) = inner.limiter.admit(record, now) else {
                // The writer tells the sum.
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

    /// How many events have happened since the log was opened, by [`Level`](super::Level); those told in sum count each.
    pub fn happened(&self) -> [u64; 3] {
        self.shared.lock().happened
    }

    /// Waits until all that was appended is stored, or cannot be.
    pub fn flush(&self) {
        let mut inner = self.shared.lock();
        // The round that is under way may have begun before.
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

    /// Stores everything and notes that the end was in order.
    pub fn close(&self) {
        self.shared.lock().stop = true;
        self.shared.wake.notify_one();
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(writer) = writer {
            let _ = writer.join();
        }
    }

    /// At most `most` events behind `after` and up to `up_to` that are wanted, oldest first. May block.
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
        // What was in the tail may have been stored since.
        let stored_end = tail.first().map_or(up_to, |e| e.revision - 1);
        while part.events.len() < most && part.up_to < stored_end {
            let Some(store) = &self.shared.store else { break };
            let (mut all, mut end) = (Vec::new(), stored_end);
            for table in TABLES {
                let rows = store.rows(table, &(part.up_to + 1).to_be_bytes(), ROWS)?;
                // What is behind the last row is not known yet.
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
                // What another version wrote may be beyond this one.
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

    /// Are the events behind `after` kept, of which those up to `missed` need not be? 0: all that are kept.
    pub fn keeps(&self, after: u64, missed: u64) -> Result<(), NotKept> {
        self.shared.lock().keeps(after, missed)
    }

    /// Of the events up to this one some are no longer kept; 0: all are.
    pub fn gone(&self) -> u64 {
        self.shared.lock().gone
    }

    /// Events from now on, behind the last one.
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

/// Reads what the log knew when it ended, and whether that was in order.
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
                // (What cannot be read is nobody's.)
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
    // A version that had one table for all did not note it: what is before its first row has made room.
    inner.gone = gone.unwrap_or(first.map_or(0, |first: u64| first.saturating_sub(1)));
    Ok(orderly)
}

impl Inner {
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
        // Nobody follows: that is fine. Sent under the lock, so that who follows misses nothing.
        let _ = self.news.send(event.clone());
        event
    }

    /// The writer.
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
                        inner.memory_only = true;
                        inner.kept = Default::default();
                        let Inner { kept, tail, .. } = &mut *inner;
                        for event in tail {
                            kept[place(event)].add(event.revision, Row::from(&**event));
                        }
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

    /// Keeps these. Those that are too old go, and where there are too many, those that have to make room.
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
            // Who asks for what goes now is told that it is gone.
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

/// The boot of this machine. (A unit that keeps this part of /proc away says it itself: `%b` of systemd.unit(5).)
fn boot_id() -> String {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok();
    let told = kernel.or_else(|| std::env::var("VNIC_BOOT_ID").ok());
    as_kernel(told.unwrap_or_default().trim())
}

/// A number of 32 digits as the kernel writes it (RFC 9562 section 4); all else stays.
fn as_kernel(id: &str) -> String {
    if id.len() != 32 || !id.is_ascii() {
        return id.to_owned();
    }
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| &id[part]);
    parts.join("-")
}

#[cfg(test)]
mod tests;
