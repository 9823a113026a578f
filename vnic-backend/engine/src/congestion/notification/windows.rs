//! Windows of one length. They end in the order in which they opened, so that a queue is their
//! timer.

use alloc::collections::{BTreeMap, VecDeque};

use vnic_wire::time::Instant;

use super::{CAPACITY, Cnp, Key, Settings};

/// Open windows.
#[derive(Debug)]
pub(super) struct Windows<T> {
    /// Notification that is owed at a window's end, by the key that shares the window.
    open: BTreeMap<Key, Option<T>>,
    /// Ends, in order. Each open window is here once.
    ends: VecDeque<(Instant, Key)>,
    /// Windows that owe a notification.
    owing: usize,
}

impl<T> Default for Windows<T> {
    fn default() -> Self {
        Windows {
            open: BTreeMap::new(),
            ends: VecDeque::new(),
            owing: 0,
        }
    }
}

impl<T> Windows<T> {
    /// A marked packet came. `key` is shared by the flows of the window.
    pub(super) fn marked(&mut self, now: Instant, key: Key, to: T, settings: &Settings) -> Option<Cnp<T>> {
        if settings.spacing.is_zero() {
            return Some(Cnp { to, period: None });
        }
        self.close(now);
        if let Some(owed) = self.open.get_mut(&key) {
            if settings.trailing {
                self.owing += usize::from(owed.replace(to).is_none());
            }
            return None;
        }
        if self.open.len() >= CAPACITY {
            self.take_oldest();
        }
        self.open(now, key, settings);
        Some(Cnp { to, period: None })
    }

    pub(super) fn due(&mut self, now: Instant, settings: &Settings) -> Option<Cnp<T>> {
        self.close(now);
        self.ends.front().filter(|(end, _)| *end <= now)?;
        let (key, to) = self.take_oldest()?;
        self.open(now, key, settings);
        Some(Cnp { to, period: None })
    }

    /// Closes windows that have ended and owe nothing, up to the first that does.
    fn close(&mut self, now: Instant) {
        while let Some((end, key)) = self.ends.front()
            && *end <= now
            && self.open.get(key).is_some_and(Option::is_none)
        {
            self.take_oldest();
        }
    }

    /// Closes the oldest window, and returns what it owes.
    fn take_oldest(&mut self) -> Option<(Key, T)> {
        let (_, key) = self.ends.pop_front()?;
        let to = self.open.remove(&key).flatten()?;
        self.owing -= 1;
        Some((key, to))
    }

    fn open(&mut self, now: Instant, key: Key, settings: &Settings) {
        self.open.insert(key, None);
        self.ends.push_back((now + settings.spacing, key));
    }

    pub(super) fn next_time(&self) -> Option<Instant> {
        if self.owing == 0 {
            return None;
        }
        self.ends
            .iter()
            .find(|(_, key)| self.open.get(key).is_some_and(Option::is_some))
            .map(|&(end, _)| end)
    }

    pub(super) fn len(&self) -> usize {
        self.open.len()
    }
}
