//! Reports of a GID table's changes to the control plane. A guest may change an entry as often as it likes: the reports give
//! the result, at a limited rate.

use std::collections::BTreeMap;
use std::time::Duration;

use vnic_fabric::Instant;

/// A GID, in network order.
type Raw = [u8; 16];

/// Least time between two reports.
const PAUSE: Duration = Duration::from_millis(100);
/// Largest number of entries in a report.
const ENTRIES: usize = 16;

/// Entries that changed since their last report.
#[derive(Debug, Default)]
pub struct GidNews {
    changed: BTreeMap<u16, Change>,
    /// No report is due before this time.
    next: Instant,
}

#[derive(Debug)]
struct Change {
    told: Option<Raw>,
    now: Option<Raw>,
}

impl GidNews {
    /// Records that an entry got this GID (`added`), or lost it.
    pub fn push(&mut self, (index, gid, added): (u16, Raw, bool)) {
        let (before, now) = if added {
            (None, Some(gid))
        } else {
            (Some(gid), None)
        };
        let change = self.changed.entry(index).or_insert(Change { told: before, now });
        change.now = now;
        if change.told == change.now {
            self.changed.remove(&index);
        }
    }

    /// Changes to be reported: index, GID, and whether it was added.
    pub fn take(&mut self, now: Instant) -> Vec<(u16, Raw, bool)> {
        let mut news = Vec::new();
        if now < self.next || self.changed.is_empty() {
            return news;
        }
        self.next = now + PAUSE;
        for _ in 0..ENTRIES {
            let Some((index, change)) = self.changed.pop_first() else {
                break;
            };
            news.extend(change.told.map(|gid| (index, gid, false)));
            news.extend(change.now.map(|gid| (index, gid, true)));
        }
        news
    }

    /// When changes are to be reported, if there are any.
    pub fn due(&self) -> Option<Instant> {
        (!self.changed.is_empty()).then_some(self.next)
    }

    /// Drops all changes.
    pub fn clear(&mut self) {
        self.changed.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    #[test]
    fn an_entry_that_changes_all_the_time_is_told_of_now_and_then() {
        let (mut news, mut told) = (GidNews::default(), Vec::new());
        let (mut now, mut there) = (Instant(0), false);
        // Ten seconds, a thousand changes a millisecond.
        for _ in 0..10_000 {
            now = now + MILLISECOND;
            for _ in 0..1001 {
                there = !there;
                news.push((3, [1; 16], there));
            }
            told.extend(news.take(now));
        }
        assert!((1..=100).contains(&told.len()), "{}", told.len());
        for (i, change) in told.iter().enumerate() {
            assert_eq!(*change, (3, [1; 16], i % 2 == 0));
        }
    }

    #[test]
    fn what_became_of_each_entry_is_told_however_many_there_are() {
        let mut news = GidNews::default();
        let mut now = Instant(0);
        let gid = |i: u16| [u8::try_from(i % 251).expect("a byte"); 16];
        let mut known = BTreeMap::new();
        let mut hear = |news: &mut GidNews, now: &mut Instant| {
            while let Some(due) = news.due() {
                *now = (*now).max(due);
                for (index, gid, added) in news.take(*now) {
                    // Each report continues the one before it.
                    assert_eq!(known.remove(&index), (!added).then_some(gid));
                    if added {
                        known.insert(index, gid);
                    }
                }
            }
            known.clone()
        };
        for i in 0..256 {
            news.push((i, gid(i), true));
        }
        assert_eq!(hear(&mut news, &mut now).len(), 256);
        for i in 0..256 {
            news.push((i, gid(i), false));
            if i % 2 == 0 {
                news.push((i, gid(i + 1), true));
            }
        }
        let known = hear(&mut news, &mut now);
        assert_eq!(known.len(), 128);
        assert!(known.iter().all(|(i, g)| *g == gid(i + 1)));
        assert_eq!(news.due(), None);
    }
}
