//! Queue pairs that may have something to send, by priority, in the order of their turns.

use alloc::collections::VecDeque;

use super::types::QpNumber;

/// Lists by priority, each in the order of turns.
#[derive(Debug, Default)]
pub(super) struct Ready {
    lists: [VecDeque<QpNumber>; 8],
    /// Priorities whose lists are not empty, a bit each.
    filled: u8,
    /// The priority that is served next, if it is open.
    next: u8,
}

impl Ready {
    /// Whether all lists are empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// Priorities with a queue pair, a bit each.
    #[inline]
    pub fn priorities(&self) -> u8 {
        self.filled
    }

    /// Puts a queue pair at the end of a list.
    #[inline]
    pub fn push(&mut self, priority: u8, qp: QpNumber) {
        let priority = priority & 7;
        self.lists[usize::from(priority)].push_back(qp);
        self.filled |= 1 << priority;
    }

    /// Takes the first queue pair of an open list; `open` has a bit for each. Lists take turns.
    #[inline]
    pub fn pop(&mut self, open: u8) -> Option<QpNumber> {
        let may = self.filled & open;
        if may == 0 {
            return None;
        }
        let ahead = may.rotate_right(self.next.into()).trailing_zeros() as u8;
        let priority = (self.next + ahead) & 7;
        let list = &mut self.lists[usize::from(priority)];
        let first = list.pop_front();
        if list.is_empty() {
            self.filled &= !(1 << priority);
        }
        self.next = (priority + 1) & 7;
        first
    }

    /// Takes a queue pair out of a list, wherever it is.
    pub fn remove(&mut self, priority: u8, qp: QpNumber) {
        let list = &mut self.lists[usize::from(priority & 7)];
        list.retain(|q| *q != qp);
        if list.is_empty() {
            self.filled &= !(1 << (priority & 7));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_lists_take_turns() {
        let mut ready = Ready::default();
        for n in 0..3 {
            for priority in [0, 3, 7] {
                ready.push(priority, QpNumber(10 * u32::from(priority) + n));
            }
        }
        let mut take = |open| ready.pop(open).map(|q| q.0);
        assert_eq!(take(0b0111_0110), None);
        assert_eq!(
            [take(0xff), take(0xff), take(0xff)],
            [Some(0), Some(30), Some(70)]
        );
        assert_eq!(
            [take(0b1000), take(0b1000), take(0b1000)],
            [Some(31), Some(32), None]
        );
        assert_eq!(ready.priorities(), 0b1000_0001);
        ready.remove(0, QpNumber(1));
        ready.remove(0, QpNumber(2));
        assert_eq!(ready.priorities(), 0b1000_0000);
        let rest: alloc::vec::Vec<_> = core::iter::from_fn(|| ready.pop(0xff)).map(|q| q.0).collect();
        assert_eq!((rest, ready.is_empty()), (alloc::vec![71, 72], true));
    }
}
