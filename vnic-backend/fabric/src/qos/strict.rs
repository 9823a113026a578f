//! An output queue without rates and shares: the highest priority first, in order within one. A switch that weighs
//! neither classes nor sources uses it instead of [`Egress`](super::Egress), and does not pay for weights.

use alloc::collections::VecDeque;

use super::PRIORITIES;

/// Items that wait to leave by a port.
#[derive(Debug, Clone)]
pub struct Strict<T> {
    queues: [VecDeque<(u32, T)>; PRIORITIES],
    bytes: [u64; PRIORITIES],
    total: u64,
    /// Priorities with an item that waits, a bit each.
    filled: u8,
}

impl<T> Default for Strict<T> {
    fn default() -> Strict<T> {
        Strict {
            queues: core::array::from_fn(|_| VecDeque::new()),
            bytes: [0; PRIORITIES],
            total: 0,
            filled: 0,
        }
    }
}

impl<T> Strict<T> {
    /// Adds an item behind those of the same priority.
    #[inline]
    pub fn push(&mut self, priority: u8, bytes: u32, item: T) {
        let p = usize::from(priority & 7);
        self.queues[p].push_back((bytes, item));
        self.bytes[p] += u64::from(bytes);
        self.total += u64::from(bytes);
        self.filled |= 1 << p;
    }

    /// Takes the item that goes next, with priority and bytes. `closed`: priorities that may not go, a bit each.
    #[inline]
    pub fn pop(&mut self, closed: u8) -> Option<(u8, u32, T)> {
        let open = self.filled & !closed;
        if open == 0 {
            return None;
        }
        let p = open.ilog2() as usize;
        let (bytes, item) = self.queues[p].pop_front()?;
        self.bytes[p] -= u64::from(bytes);
        self.total -= u64::from(bytes);
        if self.queues[p].is_empty() {
            self.filled &= !(1 << p);
        }
        Some((p as u8, bytes, item))
    }

    /// Priorities with an item that waits, a bit each.
    #[inline]
    pub fn filled(&self) -> u8 {
        self.filled
    }

    /// Bytes of a priority that wait.
    #[inline]
    pub fn bytes(&self, priority: u8) -> u64 {
        self.bytes[usize::from(priority & 7)]
    }

    /// Bytes that wait.
    #[inline]
    pub fn total(&self) -> u64 {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_open_priority_goes_first_in_order() {
        let mut q = Strict::default();
        for (i, p) in [0, 3, 3, 7, 0].into_iter().enumerate() {
            q.push(p, 10 + i as u32, i);
        }
        assert_eq!((q.filled(), q.total(), q.bytes(3)), (0b1000_1001, 60, 23));
        assert_eq!(q.pop(0x80), Some((3, 11, 1)));
        assert_eq!(q.pop(0x88), Some((0, 10, 0)));
        assert_eq!(q.pop(0x89), None);
        let rest: alloc::vec::Vec<usize> = core::iter::from_fn(|| q.pop(0)).map(|(_, _, i)| i).collect();
        assert_eq!((rest, q.filled(), q.total()), (alloc::vec![3, 2, 4], 0, 0));
    }
}
