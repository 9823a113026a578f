//! Which parts of a large piece of memory are free.

use std::collections::BTreeMap;

/// Free ranges, by their first byte. Neighbours of one kind are joined.
#[derive(Debug, Default)]
pub(crate) struct Free {
    ranges: BTreeMap<usize, Range>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    len: usize,
    /// Whether the range is zero: nothing was ever written there, or its pages were given back since.
    zero: bool,
}

impl Free {
    /// A list in which all is free, and zero.
    pub fn new(len: usize) -> Free {
        Free {
            ranges: BTreeMap::from([(0, Range { len, zero: true })]),
        }
    }

    /// Takes the first part that is large enough: its first byte, and the ranges of it that are not zero.
    pub fn take(&mut self, len: usize) -> Option<(usize, Vec<(usize, usize)>)> {
        let start = self.find(len)?;
        let mut dirty = Vec::new();
        let (mut at, end) = (start, start + len);
        while at < end {
            let range = self.ranges.remove(&at)?;
            let used = range.len.min(end - at);
            if !range.zero {
                dirty.push((at, used));
            }
            if used < range.len {
                let rest = Range {
                    len: range.len - used,
                    ..range
                };
                self.ranges.insert(at + used, rest);
            }
            at += used;
        }
        Some((start, dirty))
    }

    /// The first byte of the first row of ranges with `len` bytes.
    fn find(&self, len: usize) -> Option<usize> {
        let mut row: Option<(usize, usize)> = None;
        for (&at, range) in &self.ranges {
            let (start, _) = *row.filter(|(_, end)| *end == at).get_or_insert((at, at));
            if at + range.len - start >= len {
                return Some(start);
            }
            row = Some((start, at + range.len));
        }
        None
    }

    /// Gives a part back. `zero`: its pages were given back to the system, and are zero when they are
    /// used again.
    pub fn give_back(&mut self, at: usize, len: usize, zero: bool) {
        let (mut at, mut len) = (at, len);
        if let Some(next) = self.ranges.get(&(at + len)).copied()
            && next.zero == zero
        {
            self.ranges.remove(&(at + len));
            len += next.len;
        }
        if let Some((&before, range)) = self.ranges.range(..at).next_back()
            && before + range.len == at
            && range.zero == zero
        {
            len += range.len;
            at = before;
        }
        self.ranges.insert(at, Range { len, zero });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_taken_and_given_back() {
        let mut free = Free::new(100);
        assert_eq!(free.take(30), Some((0, vec![])));
        assert_eq!(free.take(30), Some((30, vec![])));
        free.give_back(0, 30, false);
        assert_eq!(free.take(50), None);
        assert_eq!(free.take(40), Some((60, vec![])));
        assert_eq!(free.take(10), Some((0, vec![(0, 10)])));
        free.give_back(30, 30, true);
        // Over both kinds.
        assert_eq!(free.take(30), Some((10, vec![(10, 20)])));
        free.give_back(10, 30, false);
        free.give_back(0, 10, false);
        free.give_back(60, 40, false);
        assert_eq!(free.take(100), Some((0, vec![(0, 40), (60, 40)])));
        assert_eq!(free.take(1), None);
    }

    #[test]
    fn neighbours_of_one_kind_are_joined() {
        let mut free = Free::new(100);
        for i in 0..10 {
            assert_eq!(free.take(10), Some((10 * i, vec![])));
        }
        for i in [5, 3, 4, 9, 8, 0, 1, 2, 7, 6] {
            free.give_back(10 * i, 10, false);
        }
        assert_eq!(free.ranges.len(), 1);
        assert_eq!(free.take(100), Some((0, vec![(0, 100)])));
    }
}
