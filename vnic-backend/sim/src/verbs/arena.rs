//! Buffers out of a range of addresses: each byte has one user at a time.

/// A range of addresses, given out in pieces.
#[derive(Debug, Clone, Default)]
pub struct Arena {
    /// Free pieces by address: begin and end.
    free: Vec<(u64, u64)>,
}

impl Arena {
    /// The addresses `base..base + len`.
    pub fn new(base: u64, len: u64) -> Arena {
        Arena {
            free: vec![(base, base + len)],
        }
    }

    /// A piece of `len` bytes that begins at a multiple of `align`.
    pub fn take(&mut self, len: u64, align: u64) -> Option<u64> {
        for i in 0..self.free.len() {
            let (begin, end) = self.free[i];
            let at = begin.next_multiple_of(align);
            if at.checked_add(len).is_some_and(|to| to <= end) {
                self.free.remove(i);
                if at + len < end {
                    self.free.insert(i, (at + len, end));
                }
                if begin < at {
                    self.free.insert(i, (begin, at));
                }
                return Some(at);
            }
        }
        None
    }

    /// Is nothing taken of `base..base + len`?
    pub fn is_whole(&self, base: u64, len: u64) -> bool {
        self.free == [(base, base + len)]
    }

    /// Takes a piece back.
    pub fn give(&mut self, at: u64, len: u64) {
        if len == 0 {
            return;
        }
        let (mut begin, mut end) = (at, at + len);
        let i = self.free.partition_point(|(b, _)| *b < begin);
        if self.free.get(i).is_some_and(|(b, _)| *b == end) {
            end = self.free.remove(i).1;
        }
        if i > 0 && self.free[i - 1].1 == begin {
            begin = self.free[i - 1].0;
            self.free[i - 1] = (begin, end);
        } else {
            self.free.insert(i, (begin, end));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Arena;

    #[test]
    fn what_is_given_back_is_whole_again() {
        let mut arena = Arena::new(3, 100);
        let a = arena.take(10, 1).expect("room");
        let b = arena.take(8, 8).expect("room");
        let c = arena.take(1, 1).expect("room");
        assert_eq!((a, b, c), (3, 16, 13));
        assert_eq!(arena.take(100, 1), None);
        for (at, len) in [(b, 8), (a, 10), (c, 1)] {
            arena.give(at, len);
        }
        assert_eq!(arena.take(100, 1), Some(3));
    }
}
