//! The event log: numbered events, stored in a file of its own.
//!
//! ```text
//!  append ─▶ limiter ─▶ tail (numbered) ─▶ followers at once
//!                          └─ writer thread: a batch, at most half a second late ─▶ store; oldest pruned
//! ```
//!
//! Each origin has a table and a share of its own: what guests and strangers cause in any number takes no room of what
//! operators did. Revisions go through all of them.
//!
//! Who appends never waits for the disk. Who reads gets what is stored and then the tail. What matters most is stored
//! without delay. `kill -9` loses the tail at most; its numbers are not given again, so that a follower that has seen one
//! of them goes on behind it.

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
use super::{BACKLOG, ControlEvent, Level, Owner, Record};
use crate::store::{Batch, OnDamage, Reset, Schema, Store, StoreError};

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
/// The same where few are looked for.
const ROWS_LEAST: usize = 16;
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
    /// Events that have happened since the log was opened, by [`Level`], those told in sum included.
    happened: [u64; 3],
    limiter: Limiter,
    /// By origin.
    stored: [Stored; Origin::COUNT],
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

/// What is in the store.
#[derive(Debug, Clone, Copy, Default)]
struct Stored {
    /// So many events.
    count: usize,
    /// The oldest: its revision and time, in seconds since 1970.
    oldest: Option<(u64, i64)>,
}

/// Revision and time of a stored event.
fn told((key, value): &(Vec<u8>, Vec<u8>)) -> (u64, i64) {
    let time = Event::decode(value.as_slice()).map_or(0, |e| seconds(&e));
    (number(key), time)
}

/// Of which origin an event is: its place among [`TABLES`].
fn place(event: &Event) -> usize {
    Origin::of(event.id) as usize
}

fn seconds(event: &Event) -> i64 {
    event.time.as_ref().map_or(0, |t| t.seconds)
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
            stored: Default::default(),
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

    /// How many events have happened since the log was opened, by [`Level`]; those told in sum count each.
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
    Record::now(
        &kinds::EVENTS_NOT_STORED,
        Level::Error,
        Owner::Nic,
        format!("events are kept in memory only: {error}"),
        vec![("problem", error.to_string())],
    )
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
    for (table, stored) in TABLES.into_iter().zip(&mut inner.stored) {
        let mut next = 0_u64;
        loop {
            let rows = store.rows(table, &next.to_be_bytes(), ROWS)?;
            stored.count += rows.len();
            stored.oldest = stored.oldest.or_else(|| rows.first().map(told));
            let last = rows.last().map_or(0, |(key, _)| number(key));
            inner.last = inner.last.max(last);
            if rows.len() < ROWS {
                break;
            }
            next = last + 1;
        }
    }
    // A version that had one table for all did not note it: what is before its first row has made room.
    let first = inner.stored[0].oldest.map_or(1, |(revision, _)| revision);
    inner.gone = gone.unwrap_or(first - 1);
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

impl Stored {
    /// What is left when the oldest have made room for `more`, and those that are too old have gone, and the last of those;
    /// 0: there is none. May block.
    fn pruned(
        self,
        store: &Store,
        table: &'static str,
        keep: Keep,
        more: usize,
    ) -> Result<(Stored, u64), StoreError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let since = i64::try_from(now.saturating_sub(keep.age).as_secs()).unwrap_or(0);
        let too_many = (self.count + more).saturating_sub(keep.events);
        let goes = |rest: &Stored| {
            rest.oldest
                .filter(|(_, time)| self.count - rest.count < too_many || *time < since)
        };
        let (mut rest, mut gone) = (self, 0);
        while let Some((first, _)) = goes(&rest) {
            let most = too_many.clamp(ROWS_LEAST, ROWS);
            let rows = store.rows(table, &first.to_be_bytes(), most)?;
            // The first of them goes, then the next one is the oldest.
            for next in rows.iter().skip(1).map(told) {
                let Some((goes, _)) = goes(&rest) else { break };
                gone = goes;
                rest.count = rest.count.saturating_sub(1);
                rest.oldest = Some(next);
            }
            if rows.len() < most
                && let Some((goes, _)) = goes(&rest)
            {
                gone = goes;
                rest = Stored::default();
            }
        }
        Ok((rest, gone))
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
            let tail = inner.tail.iter().enumerate();
            let mut same = tail.filter(|(_, e)| place(e) == place(&event));
            if let Some((oldest, _)) = same.next()
                && same.count() >= self.keep.events
                && let Some(event) = inner.tail.remove(oldest)
            {
                inner.gone = inner.gone.max(event.revision);
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
                    let before = inner.stored;
                    drop(inner);
                    let result = self
                        .make_room(store, before, &events, &mut batch)
                        .and_then(|()| store.commit(batch));
                    inner = self.lock();
                    if result.is_ok() {
                        inner.tail.drain(..events.len());
                        for event in &events {
                            let stored = &mut inner.stored[place(event)];
                            stored.count += 1;
                            stored.oldest = stored.oldest.or(Some((event.revision, seconds(event))));
                        }
                    } else {
                        inner.memory_only = true;
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

    /// Lets the oldest go where these need room, and those that are too old. May block.
    fn make_room(
        &self,
        store: &Store,
        before: [Stored; Origin::COUNT],
        events: &[Arc<Event>],
        batch: &mut Batch,
    ) -> Result<(), StoreError> {
        for (i, table) in TABLES.into_iter().enumerate() {
            let more = events.iter().filter(|e| place(e) == i).count();
            let (rest, gone) = before[i].pruned(store, table, self.keep, more)?;
            if gone == 0 {
                continue;
            }
            batch.delete_below(table, (gone + 1).to_be_bytes());
            // Who asks for what goes now is told that it is gone.
            let mut inner = self.lock();
            inner.stored[i] = rest;
            inner.gone = inner.gone.max(gone);
            batch.put(LOG, GONE, inner.gone.to_be_bytes());
        }
        Ok(())
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
mod tests {
    use super::*;

    fn note(text: &str) -> Record {
        let owner = Owner::Adapter(text.to_owned());
        Record::now(
            &kinds::ADAPTER_ADDED,
            Level::Info,
            owner,
            text.to_owned(),
            Vec::new(),
        )
    }

    fn keep(events: usize) -> Keep {
        Keep {
            events,
            ..Keep::default()
        }
    }

    fn messages(log: &EventLog, after: u64) -> Vec<(u64, String)> {
        let part = log.read(after, u64::MAX, usize::MAX, |_| true).expect("events");
        let all = part.events.iter();
        all.map(|e| (e.revision, e.message.clone())).collect()
    }

    fn numbers(log: &EventLog) -> Vec<u64> {
        messages(log, 0)
            .into_iter()
            .map(|(revision, _)| revision)
            .collect()
    }

    #[test]
    fn events_are_numbered_read_and_followed_wherever_they_are() {
        let dir = tempfile::tempdir().expect("a directory");
        for dir in [None, Some(dir.path())] {
            let log = EventLog::open(dir, Keep::default()).expect("a log");
            for name in ["a", "b"] {
                log.append(note(name));
            }
            log.flush();
            let mut following = log.follow();
            assert_eq!(following.last, 3);
            log.append(note("c"));
            assert_eq!(following.news.try_recv().expect("news").message, "c");
            let texts: Vec<_> = messages(&log, 1).into_iter().map(|(_, m)| m).collect();
            assert_eq!(texts, ["a", "b", "c"]);
            assert_eq!(messages(&log, 3), [(4, "c".to_owned())]);
            let part = log.read(0, 3, 1, |e| e.message != "a").expect("a part");
            assert_eq!((part.events[0].revision, part.events.len()), (1, 1));
            let part = log.read(1, 3, 9, |e| e.message != "a").expect("a part");
            assert_eq!((part.events[0].revision, part.up_to), (3, 3));
            assert!(
                log.read(4, u64::MAX, 9, |_| true)
                    .expect("a part")
                    .events
                    .is_empty()
            );
            assert_eq!(log.keeps(4, 0), Ok(()));
            assert_eq!(log.keeps(5, 0), Err(NotKept::Ahead(4)));
            log.close();
        }
    }

    #[test]
    fn an_end_in_order_leaves_no_hole_and_another_end_gives_no_number_twice() {
        let dir = tempfile::tempdir().expect("a directory");
        let log = EventLog::open(Some(dir.path()), Keep::default()).expect("a log");
        log.append(note("a"));
        drop(log);
        let log = EventLog::open(Some(dir.path()), Keep::default()).expect("a log");
        assert_eq!(numbers(&log), [1, 2, 3]);
        log.append(note("b"));
        log.flush();
        // As kill -9 leaves it.
        let copy = tempfile::tempdir().expect("a directory");
        for entry in std::fs::read_dir(dir.path()).expect("files") {
            let entry = entry.expect("a file");
            std::fs::copy(entry.path(), copy.path().join(entry.file_name())).expect("a copy");
        }
        log.append(note("seen by a follower, and never stored"));
        let log = EventLog::open(Some(copy.path()), Keep::default()).expect("a log");
        let all = messages(&log, 0);
        assert_eq!(
            all.iter().map(|(r, _)| *r).take(4).collect::<Vec<_>>(),
            [1, 2, 3, 4]
        );
        let (revision, text) = &all[4];
        assert!(*revision > 5 && text.contains("did not end in order"), "{all:?}");
        assert_eq!(log.keeps(5, 0), Ok(()));
        assert_eq!(messages(&log, 5).len(), 1);
    }

    #[test]
    fn the_oldest_go_by_number_and_by_age() {
        let dir = tempfile::tempdir().expect("a directory");
        let log = EventLog::open(Some(dir.path()), keep(5)).expect("a log");
        for i in 0..20 {
            log.append(note(&format!("n{i}")));
            log.flush();
        }
        assert_eq!(numbers(&log), [17, 18, 19, 20, 21]);
        assert_eq!(log.keeps(3, 0), Err(NotKept::Gone(17)));
        assert_eq!((log.keeps(16, 0), log.keeps(0, 0)), (Ok(()), Ok(())));
        drop(log);
        let log = EventLog::open(Some(dir.path()), keep(5)).expect("a log");
        assert_eq!(numbers(&log), [18, 19, 20, 21, 22]);
        let mut old = note("old");
        old.time = SystemTime::now() - Duration::from_secs(40 * 86_400);
        log.append(old);
        log.flush();
        assert_eq!(messages(&log, 22), [(23, "old".to_owned())]);
        for i in 0..5 {
            log.append(note(&format!("m{i}")));
        }
        log.flush();
        log.append(note("last"));
        log.flush();
        assert_eq!(numbers(&log), [25, 26, 27, 28, 29]);
        drop(log);

        let memory = EventLog::open(None, keep(3)).expect("a log");
        for i in 0..5 {
            memory.append(note(&format!("n{i}")));
        }
        assert_eq!(numbers(&memory), [4, 5, 6]);
    }

    #[test]
    fn what_guests_and_strangers_cause_takes_no_room_of_what_operators_did() {
        let caused = |kind, i: usize| {
            let mut record = note(&format!("n{i}"));
            record.kind = kind;
            record
        };
        let dir = tempfile::tempdir().expect("a directory");
        for dir in [None, Some(dir.path())] {
            let log = EventLog::open(dir, keep(5)).expect("a log");
            log.append(caused(&kinds::SETTINGS_CHANGED, 0));
            log.append(caused(&kinds::ACCESS_REFUSED, 0));
            for i in 0..2000 {
                log.append(caused(&kinds::GID_CHANGED, i));
            }
            log.append(caused(&kinds::SETTINGS_CHANGED, 1));
            // What was stored at once makes room at the next time.
            log.flush();
            log.flush();
            let kept = [1, 2, 3, 1999, 2000, 2001, 2002, 2003, 2004];
            assert_eq!(numbers(&log), kept);
            // Who wants all gets a part, however small.
            let part = log.read(2, 2001, 2, |_| true).expect("a part");
            assert_eq!((part.events.len(), part.up_to), (2, 1999));
            // Who goes on from an event before those that are gone is told.
            assert_eq!(log.keeps(1998, 0), Ok(()));
            assert_eq!(log.keeps(3, 0), Err(NotKept::Gone(1999)));
            assert_eq!((log.gone(), log.keeps(3, log.gone())), (1998, Ok(())));
            for i in 0..9 {
                log.append(caused(&kinds::ACCESS_REFUSED, i));
            }
            log.flush();
            log.flush();
            let kept = [
                1, 2, 1999, 2000, 2001, 2002, 2003, 2004, 2009, 2010, 2011, 2012, 2013,
            ];
            assert_eq!(numbers(&log), kept);
            log.close();
        }
        let log = EventLog::open(Some(dir.path()), keep(5)).expect("a log");
        assert_eq!(log.keeps(1997, 0), Err(NotKept::Gone(2009)));
        assert_eq!(messages(&log, 0).len(), 14);
    }

    #[test]
    fn a_log_that_cannot_be_read_or_written_keeps_nobody_from_starting() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join(FILE), vec![7_u8; 10_000]).expect("garbage");
        let log = EventLog::open(Some(dir.path()), Keep::default()).expect("a log");
        let all = messages(&log, 0);
        assert!(all[0].1.contains("the event log was damaged"), "{all:?}");
        assert!(all[0].1.contains("kept as"), "{all:?}");
        drop(log);
        let kept = std::fs::read_dir(dir.path()).expect("files").flatten();
        let kept = kept.map(|e| e.file_name().to_string_lossy().into_owned());
        assert!(kept.into_iter().any(|n| n.starts_with("events.redb.damaged-")));

        let nowhere = dir.path().join("is/not/there");
        let log = EventLog::open(Some(&nowhere), Keep::default()).expect("a log");
        log.append(note("a"));
        let all = messages(&log, 0);
        assert!(all[0].1.contains("in memory only"), "{all:?}");
        assert_eq!(all.len(), 3);
    }

    #[test]
    fn floods_are_summed_up_in_the_log() {
        let dir = tempfile::tempdir().expect("a directory");
        let log = EventLog::open(Some(dir.path()), Keep::default()).expect("a log");
        for _ in 0..5000 {
            log.append(note("same"));
        }
        log.close();
        let part = log.read(1, u64::MAX, usize::MAX, |_| true).expect("events");
        let told = part.events.iter().map(|e| e.suppressed.max(1)).sum::<u64>();
        assert_eq!(told, 5000);
        assert!(part.events.len() < 1000, "{}", part.events.len());
    }

    #[test]
    fn a_boot_is_written_as_the_kernel_does() {
        let kernel = "8b2b3c4d-0123-4567-89ab-cdef01234567";
        assert_eq!(as_kernel("8b2b3c4d0123456789abcdef01234567"), kernel);
        assert_eq!(as_kernel(kernel), kernel);
        assert_eq!(as_kernel(""), "");
    }
}
