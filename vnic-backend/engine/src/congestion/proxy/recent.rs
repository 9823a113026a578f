//! A map of bounded size: a new entry takes the place of the one that was least recently used.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::RangeInclusive;

/// No entry.
const NONE: u32 = u32::MAX;

#[derive(Debug)]
struct Node<K, V> {
    key: K,
    value: V,
    newer: u32,
    older: u32,
}

/// The map. Its order is that of use, so the same calls always give the same map.
#[derive(Debug)]
pub struct Recent<K, V> {
    places: BTreeMap<K, u32>,
    nodes: Vec<Option<Node<K, V>>>,
    free: Vec<u32>,
    newest: u32,
    oldest: u32,
    most: usize,
}

impl<K: Ord + Copy, V> Recent<K, V> {
    /// A map for `most` entries, 1 or more.
    pub fn new(most: usize) -> Recent<K, V> {
        Recent {
            places: BTreeMap::new(),
            nodes: Vec::new(),
            free: Vec::new(),
            newest: NONE,
            oldest: NONE,
            most: most.max(1),
        }
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    fn node(&self, at: u32) -> Option<&Node<K, V>> {
        self.nodes.get(at as usize)?.as_ref()
    }

    fn node_mut(&mut self, at: u32) -> Option<&mut Node<K, V>> {
        self.nodes.get_mut(at as usize)?.as_mut()
    }

    /// The place of an entry, which it keeps while it is there.
    pub fn place(&self, key: &K) -> Option<u32> {
        self.places.get(key).copied()
    }

    /// An entry; this is no use of it.
    pub fn get(&self, key: &K) -> Option<&V> {
        Some(&self.node(self.place(key)?)?.value)
    }

    /// An entry to be changed; this is no use of it.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let at = self.place(key)?;
        Some(&mut self.node_mut(at)?.value)
    }

    /// The entry at a place.
    pub fn at(&self, place: u32) -> Option<(&K, &V)> {
        self.node(place).map(|n| (&n.key, &n.value))
    }

    /// The entry at a place, to be changed.
    pub fn at_mut(&mut self, place: u32) -> Option<&mut V> {
        self.node_mut(place).map(|n| &mut n.value)
    }

    /// Entries of a range of keys, in order.
    pub fn range(&self, keys: RangeInclusive<K>) -> impl Iterator<Item = (&K, &V)> {
        let places = self.places.range(keys);
        places.filter_map(|(k, at)| Some((k, &self.node(*at)?.value)))
    }

    /// All entries, in order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.places
            .iter()
            .filter_map(|(k, at)| Some((k, &self.node(*at)?.value)))
    }

    fn unlink(&mut self, at: u32) {
        let Some((newer, older)) = self.node(at).map(|n| (n.newer, n.older)) else {
            return;
        };
        match self.node_mut(newer) {
            Some(n) => n.older = older,
            None => self.newest = older,
        }
        match self.node_mut(older) {
            Some(n) => n.newer = newer,
            None => self.oldest = newer,
        }
    }

    fn link(&mut self, at: u32) {
        let before = self.newest;
        if let Some(n) = self.node_mut(at) {
            (n.newer, n.older) = (NONE, before);
        }
        match self.node_mut(before) {
            Some(n) => n.newer = at,
            None => self.oldest = at,
        }
        self.newest = at;
    }

    /// Uses an entry: it is the last to be forgotten.
    pub fn touch(&mut self, key: &K) -> Option<&mut V> {
        let at = self.place(key)?;
        if self.newest != at {
            self.unlink(at);
            self.link(at);
        }
        self.at_mut(at)
    }

    /// Takes an entry out.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let at = self.places.remove(key)?;
        self.unlink(at);
        let node = self.nodes.get_mut(at as usize)?.take()?;
        self.free.push(at);
        Some(node.value)
    }

    /// Puts an entry in as the one used last, in place of its namesake or, without room, of the oldest that may be
    /// forgotten; only a few of the oldest are asked. False: none may, and nothing is changed.
    pub fn insert(&mut self, key: K, value: V, may_go: impl Fn(&V) -> bool) -> bool {
        /// Entries that are asked.
        const ASKED: usize = 16;
        if let Some(old) = self.touch(&key) {
            *old = value;
            return true;
        }
        if self.places.len() >= self.most {
            let mut at = self.oldest;
            let mut victim = None;
            for _ in 0..ASKED {
                let Some(n) = self.node(at) else { break };
                if may_go(&n.value) {
                    victim = Some(n.key);
                    break;
                }
                at = n.newer;
            }
            let Some(victim) = victim else { return false };
            self.remove(&victim);
        }
        let node = Some(Node {
            key,
            value,
            newer: NONE,
            older: NONE,
        });
        let at = match self.free.pop() {
            Some(at) => {
                if let Some(place) = self.nodes.get_mut(at as usize) {
                    *place = node;
                }
                at
            }
            None => {
                self.nodes.push(node);
                (self.nodes.len() - 1) as u32
            }
        };
        self.places.insert(key, at);
        self.link(at);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    proptest! {
        /// Against a list that is kept in the order of use.
        #[test]
        fn forgets_what_was_used_least_lately(calls in prop::collection::vec((0..4u8, 0..12u8), 0..200)) {
            let mut map = Recent::new(5);
            let mut model: Vec<(u8, u8)> = vec![];
            for (i, (call, key)) in calls.into_iter().enumerate() {
                let value = i as u8;
                let known = model.iter().position(|(k, _)| *k == key);
                match call {
                    0 => {
                        prop_assert!(map.insert(key, value, |_| true));
                        match known {
                            Some(i) => drop(model.remove(i)),
                            None if model.len() == 5 => drop(model.remove(0)),
                            None => {}
                        }
                        model.push((key, value));
                    }
                    1 => {
                        let got = map.touch(&key).copied();
                        prop_assert_eq!(got, known.map(|i| model[i].1));
                        if let Some(i) = known {
                            let entry = model.remove(i);
                            model.push(entry);
                        }
                    }
                    2 => prop_assert_eq!(map.remove(&key), known.map(|i| model.remove(i).1)),
                    _ => prop_assert_eq!(map.get(&key).copied(), known.map(|i| model[i].1)),
                }
                prop_assert_eq!(map.len(), model.len());
                let mut all = model.clone();
                all.sort_unstable();
                prop_assert_eq!(map.iter().map(|(k, v)| (*k, *v)).collect::<Vec<_>>(), all);
                prop_assert!(map.nodes.len() <= 5);
            }
        }
    }

    #[test]
    fn what_may_not_go_stays() {
        let mut map = Recent::new(3);
        for key in 0..3 {
            assert!(map.insert(key, key == 1, |_| true));
        }
        let idle = |busy: &bool| !busy;
        assert!(map.insert(3, false, idle));
        assert!(map.insert(4, true, idle));
        assert!(map.insert(5, true, idle));
        assert!(!map.insert(6, true, idle));
        assert_eq!(map.iter().map(|(k, _)| *k).collect::<Vec<_>>(), [1, 4, 5]);
    }
}
