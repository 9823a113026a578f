//! Sets of numbers as a policy file writes them: `7-9,11`.

use alloc::vec::Vec;

/// Numbers, as inclusive ranges in order of which no two touch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ranges(Vec<(u64, u64)>);

impl Ranges {
    /// One range; the ends may be in either order, as OpenSM takes them.
    pub fn one(a: u64, b: u64) -> Ranges {
        Ranges(Vec::from([(a.min(b), a.max(b))]))
    }

    /// Whether there is no number.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a number is one of them.
    pub fn contains(&self, n: u64) -> bool {
        let at = self.0.partition_point(|(_, last)| *last < n);
        self.0.get(at).is_some_and(|(first, _)| *first <= n)
    }

    /// The ranges.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().copied()
    }

    /// Adds all numbers of `more`.
    pub fn add(&mut self, more: Ranges) {
        self.0.extend(more.0);
        self.0.sort_unstable();
        let mut joined: Vec<(u64, u64)> = Vec::with_capacity(self.0.len());
        for (first, last) in self.0.drain(..) {
            match joined.last_mut() {
                Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
                _ => joined.push((first, last)),
            }
        }
        self.0 = joined;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_join_and_find() {
        let mut all = Ranges::one(9, 7);
        all.add(Ranges::one(11, 11));
        all.add(Ranges::one(10, 10));
        all.add(Ranges::one(u64::MAX, u64::MAX));
        all.add(Ranges::one(0, 0));
        assert_eq!(
            all.iter().collect::<Vec<_>>(),
            [(0, 0), (7, 11), (u64::MAX, u64::MAX)]
        );
        for (n, is) in [
            (0, true),
            (1, false),
            (6, false),
            (7, true),
            (11, true),
            (12, false),
            (u64::MAX, true),
        ] {
            assert_eq!(all.contains(n), is, "{n}");
        }
        all.add(Ranges::one(0, u64::MAX));
        assert_eq!(all, Ranges::one(0, u64::MAX));
        assert!(!Ranges::default().contains(0));
    }
}
