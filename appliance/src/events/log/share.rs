//! Index of the kept events of one origin, by owner.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};

use vnic_control::v1::Event;

/// Index of the kept events of one origin. If one must be pruned, it is the oldest of the adapter or port with the most
/// events, so that an owner with many events does not displace those of another.
#[derive(Debug, Default)]
pub struct Share {
    /// Revision and time in seconds since 1970 of the events of each owner; events without adapter and port have the empty owner.
    owners: HashMap<String, VecDeque<(u64, i64)>>,
    count: usize,
}

/// Fields of a stored event that the index needs.
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
    /// Adds an event; revisions come in order.
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

    /// Removes one event if there are more than `most`. Returns its revision.
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

    /// Removes all events that are older than `since`. Returns their revisions.
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
        // b has the most until it has as many as a; then the older one goes; then b's again.
        assert_eq!(gone, [1, 2, 0, 3]);
        assert_eq!(share.make_room(3), None);
        // A late owner finds room.
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
