//! The last events, numbered.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use tokio::sync::broadcast;
use vnic_backend::{NicEvent, NicEventKind};

use super::words::{self, Level};
use super::{BACKLOG, describe};

/// Events that are kept.
pub const KEPT: usize = 10_000;

/// To what an event happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    /// To no adapter or port in particular.
    Nic,
    /// To this adapter.
    Adapter(String),
    /// To this port.
    Port(String),
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its number, from 1; 0 until it is in the log.
    pub revision: u64,
    /// When.
    pub time: SystemTime,
    /// When, in nanoseconds of CLOCK_MONOTONIC.
    pub monotonic_ns: u64,
    /// How much it matters.
    pub level: Level,
    /// What kind it is, for programs.
    pub kind: &'static str,
    /// To what it happened.
    pub owner: Owner,
    /// What happened, for people.
    pub message: String,
    /// Its facts, for programs.
    pub parameters: Vec<(&'static str, String)>,
    /// So many more of its kind are summed up in it.
    pub suppressed: u64,
}

fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let rest = u64::try_from(now.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}

impl Record {
    /// The record of an event that has just come. `is_port` says whether a name is a port's.
    pub fn of(event: &NicEvent, is_port: impl FnOnce(&str) -> bool) -> Record {
        let (level, message) = describe(event);
        let name = || event.owner.clone();
        let owner = match &event.kind {
            _ if event.owner.is_empty() => Owner::Nic,
            NicEventKind::PortAdded | NicEventKind::PortRemoved | NicEventKind::PortLink { .. } => {
                Owner::Port(name())
            }
            NicEventKind::Fault(_) if is_port(&event.owner) => Owner::Port(name()),
            _ => Owner::Adapter(name()),
        };
        // The event has come a moment after it happened: the clocks are brought together again.
        let ago = event.time.elapsed().unwrap_or_default();
        let ago = u64::try_from(ago.as_nanos()).unwrap_or(0);
        Record {
            revision: 0,
            time: event.time,
            monotonic_ns: monotonic_ns().saturating_sub(ago),
            level,
            kind: words::kind(&event.kind),
            owner,
            message,
            parameters: words::parameters(&event.kind),
            suppressed: words::suppressed(&event.kind),
        }
    }

    /// Events were lost before they came here.
    pub fn gap() -> Record {
        Record {
            revision: 0,
            time: SystemTime::now(),
            monotonic_ns: monotonic_ns(),
            level: Level::Warn,
            kind: "events_lost",
            owner: Owner::Nic,
            message: "more happened than could be written down: events before this one are missing"
                .to_owned(),
            parameters: Vec::new(),
            suppressed: 0,
        }
    }
}

/// What was, and what will be.
#[derive(Debug)]
pub struct Following {
    /// Events that had happened, oldest first.
    pub before: Vec<Arc<Record>>,
    /// Those that come behind them, without a gap.
    pub news: broadcast::Receiver<Arc<Record>>,
}

/// The last [`KEPT`] events.
pub struct EventLog {
    inner: Mutex<Inner>,
    news: broadcast::Sender<Arc<Record>>,
}

struct Inner {
    records: VecDeque<Arc<Record>>,
    last: u64,
}

impl EventLog {
    /// Nothing has happened yet.
    pub fn new() -> EventLog {
        let inner = Inner {
            records: VecDeque::new(),
            last: 0,
        };
        EventLog {
            inner: Mutex::new(inner),
            news: broadcast::channel(BACKLOG).0,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Numbers an event and keeps it.
    pub fn append(&self, mut record: Record) {
        let mut inner = self.lock();
        inner.last += 1;
        record.revision = inner.last;
        let record = Arc::new(record);
        if inner.records.len() == KEPT {
            inner.records.pop_front();
        }
        inner.records.push_back(record.clone());
        // Nobody follows: that is fine. Sent under the lock, so that who follows misses nothing.
        let _ = self.news.send(record);
    }

    /// All that are kept, oldest first.
    pub fn all(&self) -> Vec<Arc<Record>> {
        self.lock().records.iter().cloned().collect()
    }

    /// Events from now on, and before them those after `after`; without it none. An error is the number of the oldest
    /// that could be had.
    pub fn follow(&self, after: Option<u64>) -> Result<Following, u64> {
        let inner = self.lock();
        let before: Vec<_> = match after {
            None => Vec::new(),
            // From the beginning, whatever that is.
            Some(0) => inner.records.iter().cloned().collect(),
            Some(after) => {
                let oldest = inner.records.front().map_or(inner.last + 1, |r| r.revision);
                if after + 1 < oldest {
                    return Err(oldest);
                }
                inner
                    .records
                    .iter()
                    .filter(|r| r.revision > after)
                    .cloned()
                    .collect()
            }
        };
        let news = self.news.subscribe();
        Ok(Following { before, news })
    }
}

impl Default for EventLog {
    fn default() -> Self {
        EventLog::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_events_are_kept_and_numbered() {
        let log = EventLog::new();
        for _ in 0..KEPT + 5 {
            log.append(Record::gap());
        }
        let all = log.all();
        assert_eq!(all.len(), KEPT);
        assert_eq!((all[0].revision, all[KEPT - 1].revision), (6, KEPT as u64 + 5));
        assert_eq!(log.follow(Some(4)).expect_err("gone"), 6);
        let mut following = log.follow(Some(KEPT as u64 + 3)).expect("kept");
        assert_eq!(following.before.len(), 2);
        log.append(Record::gap());
        assert_eq!(following.news.try_recv().expect("news").revision, KEPT as u64 + 6);
        assert_eq!(log.follow(None).expect("nothing").before.len(), 0);
        assert_eq!(log.follow(Some(0)).expect("all").before.len(), KEPT);
    }

    #[test]
    fn records_know_to_what_it_happened() {
        let of = |owner: &str, kind| {
            let event = NicEvent {
                time: SystemTime::now(),
                owner: owner.to_owned(),
                kind,
            };
            Record::of(&event, |name| name == "p0")
        };
        let fault = || {
            NicEventKind::Fault(vnic_backend::FaultInjection {
                id: 3,
                name: "lossy".to_owned(),
                what: vnic_backend::Injected::More(7),
            })
        };
        assert_eq!(of("p0", fault()).owner, Owner::Port("p0".to_owned()));
        assert_eq!(of("vf0", fault()).owner, Owner::Adapter("vf0".to_owned()));
        let record = of("", fault());
        assert_eq!((record.owner, record.suppressed), (Owner::Nic, 7));
        assert_eq!(record.message, "fault 3 \"lossy\": 7 more frames");
        assert_eq!(record.parameters[1], ("fault", "lossy".to_owned()));
        let record = of("p0", NicEventKind::PortLink { up: false });
        assert_eq!((record.level, record.kind), (Level::Warn, "port_link"));
        assert!(record.monotonic_ns > 0);
    }
}
