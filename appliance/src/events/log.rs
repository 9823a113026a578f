//! The last events, numbered.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::broadcast;
use vnic_control::v1::Event;

use super::{BACKLOG, Record};

/// Events that are kept.
pub const KEPT: usize = 10_000;

/// What was, and what will be.
#[derive(Debug)]
pub struct Following {
    /// Events that had happened, oldest first.
    pub before: Vec<Arc<Event>>,
    /// Those that come behind them, without a gap.
    pub news: broadcast::Receiver<Arc<Event>>,
}

/// The last [`KEPT`] events.
pub struct EventLog {
    inner: Mutex<Inner>,
    news: broadcast::Sender<Arc<Event>>,
    boot_id: String,
}

struct Inner {
    records: VecDeque<Arc<Event>>,
    last: u64,
}

impl EventLog {
    /// Nothing has happened yet.
    pub fn new() -> EventLog {
        let inner = Inner {
            records: VecDeque::new(),
            last: 0,
        };
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        EventLog {
            inner: Mutex::new(inner),
            news: broadcast::channel(BACKLOG).0,
            boot_id: boot_id.trim().to_owned(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Numbers an event and keeps it.
    pub fn append(&self, record: Record) {
        let mut inner = self.lock();
        inner.last += 1;
        let event = Arc::new(record.into_event(inner.last, &self.boot_id));
        if inner.records.len() == KEPT {
            inner.records.pop_front();
        }
        inner.records.push_back(event.clone());
        // Nobody follows: that is fine. Sent under the lock, so that who follows misses nothing.
        let _ = self.news.send(event);
    }

    /// All that are kept, oldest first.
    pub fn all(&self) -> Vec<Arc<Event>> {
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
}
