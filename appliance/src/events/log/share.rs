//! What is kept of the events of one origin: whose, oldest first.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};

use vnic_control::v1::Event;

/// What is kept has so many rows at most. Where one must go, it is the oldest of the adapter or port that has the most: who
/// causes many takes no room of another who causes few.
#[derive(Debug, Default)]
pub struct Share {
    /// Revision and time, in seconds since 1970, of what is kept of each; what is about no adapter or port is somebody's, too.
    owners: HashMap<String, VecDeque<(u64, i64)>>,
    count: usize,
}

/// Of an event as it is stored, as much as a share wants to know.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Row {
    #[prost(message, optional, tag = "2")]
    time: Option<prost_types::Timestamp>,
    #[prost(string, tag = "7")]
    adapter: String,
    #[prost(string, tag = "8")]
    port: String,
}

impl From<&Event> for Row {
    fn from(event: &Event) -> Row {
        Row {
            time: event.time,
            adapter: event.adapter.clone(),
            port: event.port.clone(),
        }
    }
}

impl Share {
    /// One more is kept; revisions come in order.
    pub fn add(&mut self, revision: u64, row: Row) {
        let owner = if row.adapter.is_empty() {
            row.port
        } else {
            row.adapter
        };
        let time = row.time.map_or(0, |t| t.seconds);
        self.owners.entry(owner).or_default().push_back((revision, time));
        self.count += 1;
    }

    /// Takes one out while there are more than this. Answers its revision.
    pub fn make_room(&mut self, most: usize) -> Option<u64> {
        if self.count <= most {
            return None;
        }
        let oldest = |rows: &VecDeque<(u64, i64)>| rows.front().map_or(0, |(revision, _)| *revision);
        let all = self.owners.iter();
        let (owner, _) = all.max_by_key(|(_, rows)| (rows.len(), Reverse(oldest(rows))))?;
        let owner = owner.clone();
        let gone = self.owners.get_mut(&owner)?.pop_front();
        self.count -= 1;
        self.owners.retain(|_, rows| !rows.is_empty());
        gone.map(|(revision, _)| revision)
    }

    /// Takes those out that are older. Answers their revisions.
    pub fn forget(&mut self, since: i64) -> Vec<u64> {
        let mut gone = Vec::new();
        for rows in self.owners.values_mut() {
            while let Some((revision, _)) = rows.front().filter(|(_, time)| *time < since) {
                gone.push(*revision);
                rows.pop_front();
            }
        }
        self.owners.retain(|_, rows| !rows.is_empty());
        self.count -= gone.len();
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(adapter: &str, seconds: i64) -> Row {
        Row {
            time: Some(prost_types::Timestamp { seconds, nanos: 0 }),
            adapter: adapter.to_owned(),
            port: String::new(),
        }
    }

    #[test]
    fn who_has_the_most_makes_room() {
        let mut share = Share::default();
        for (i, adapter) in ["a", "b", "b", "b", "", "b", "a"].iter().enumerate() {
            share.add(i as u64, row(adapter, 0));
        }
        let gone: Vec<u64> = std::iter::from_fn(|| share.make_room(3)).collect();
        // b's until it has no more than a; then whose oldest is older; then b's again.
        assert_eq!(gone, [1, 2, 0, 3]);
        assert_eq!(share.make_room(3), None);
        // One who comes late finds room.
        share.add(7, row("c", 0));
        assert_eq!(share.make_room(3), Some(4));
    }

    #[test]
    fn what_is_old_goes_whoever_caused_it() {
        let mut share = Share::default();
        for (i, (adapter, time)) in [("a", 5), ("b", 6), ("a", 20), ("b", 7), ("", 9)]
            .iter()
            .enumerate()
        {
            share.add(i as u64, row(adapter, *time));
        }
        let mut gone = share.forget(8);
        gone.sort_unstable();
        assert_eq!(gone, [0, 1, 3]);
        assert_eq!((share.forget(8), share.make_room(2)), (Vec::new(), None));
        assert_eq!(share.make_room(1), Some(2));
    }
}
