//! Frames that are held back.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::Hold;
use crate::Instant;
use crate::switch::PortId;

/// A path: the port that frames come from, and the one that they go to.
pub type Path = (PortId, PortId);

/// Time at which a frame leaves in any case, and its number.
type Key = (Instant, u64);

#[derive(Debug)]
struct Delayed<T> {
    path: Path,
    /// The frame does not leave before this time.
    earliest: Instant,
    /// Frames that still have to leave before it; 0: only its time counts.
    left: u32,
    item: T,
}

/// Frames that are held back until their time comes or enough others have overtaken them. Every frame
/// comes out again: each has a time at which it leaves in any case.
#[derive(Debug)]
pub struct Holding<T> {
    held: BTreeMap<Key, Delayed<T>>,
    /// Frames that wait for others, by path.
    waiting: BTreeMap<Path, Vec<Key>>,
    next: u64,
}

impl<T> Default for Holding<T> {
    fn default() -> Self {
        Holding {
            held: BTreeMap::new(),
            waiting: BTreeMap::new(),
            next: 0,
        }
    }
}

impl<T> Holding<T> {
    /// Number of frames that are held back.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether no frame is held back.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Holds a frame back from `now` on.
    pub fn hold(&mut self, now: Instant, path: Path, hold: &Hold, item: T) {
        let earliest = now + hold.delay;
        let due = if hold.by == 0 {
            earliest
        } else {
            earliest + hold.at_most
        };
        let key = self.insert(
            due,
            Delayed {
                path,
                earliest,
                left: hold.by,
                item,
            },
        );
        if hold.by > 0 {
            self.waiting.entry(path).or_default().push(key);
        }
    }

    /// A frame of this path has left: a frame that has let enough others pass may leave, too.
    pub fn passed(&mut self, now: Instant, path: Path) {
        if self.waiting.is_empty() {
            return;
        }
        let Some(mut keys) = self.waiting.remove(&path) else {
            return;
        };
        keys.retain(|key| {
            let Some(h) = self.held.get_mut(key) else {
                return false;
            };
            h.left = h.left.saturating_sub(1);
            if h.left > 0 {
                return true;
            }
            if let Some(h) = self.held.remove(key) {
                self.held.insert((h.earliest.max(now).min(key.0), key.1), h);
            }
            false
        });
        if !keys.is_empty() {
            self.waiting.insert(path, keys);
        }
    }

    /// When to call [`Holding::pop`] next; `None` while no frame is held back.
    pub fn next_time(&self) -> Option<Instant> {
        self.held.first_key_value().map(|((due, _), _)| *due)
    }

    /// Takes the next frame whose time has come, with that time. Call [`Holding::passed`] when it has
    /// left.
    pub fn pop(&mut self, now: Instant) -> Option<(Instant, Path, T)> {
        let (due, _) = *self.held.first_key_value()?.0;
        if due > now {
            return None;
        }
        let (key, h) = self.held.pop_first()?;
        if h.left > 0 {
            self.forget(h.path, key);
        }
        Some((due, h.path, h.item))
    }

    /// Lets the frames that `which` selects leave at `now`.
    pub fn let_go(&mut self, now: Instant, which: impl Fn(&T) -> bool) {
        let chosen = self.chosen(|_, item| which(item));
        for key in chosen {
            if let Some(mut h) = self.held.remove(&key) {
                if h.left > 0 {
                    self.forget(h.path, key);
                    h.left = 0;
                }
                self.held.insert((now.min(key.0), key.1), h);
            }
        }
    }

    /// Takes out the frames that `which` selects; they do not leave.
    pub fn take_out(&mut self, which: impl Fn(Path, &T) -> bool) -> Vec<T> {
        let chosen = self.chosen(which);
        let mut out = Vec::with_capacity(chosen.len());
        for key in chosen {
            if let Some(h) = self.held.remove(&key) {
                if h.left > 0 {
                    self.forget(h.path, key);
                }
                out.push(h.item);
            }
        }
        out
    }

    fn chosen(&self, which: impl Fn(Path, &T) -> bool) -> Vec<Key> {
        self.held
            .iter()
            .filter(|(_, h)| which(h.path, &h.item))
            .map(|(k, _)| *k)
            .collect()
    }

    fn insert(&mut self, due: Instant, held: Delayed<T>) -> Key {
        let key = (due, self.next);
        self.next += 1;
        self.held.insert(key, held);
        key
    }

    fn forget(&mut self, path: Path, key: Key) {
        if let Some(keys) = self.waiting.get_mut(&path) {
            keys.retain(|k| *k != key);
            if keys.is_empty() {
                self.waiting.remove(&path);
            }
        }
    }
}
