//! Work requests of all queues of a device, in one pool: an idle queue costs twelve bytes, and nothing is
//! allocated once the pool has grown to the device's load.

use alloc::vec::Vec;

/// No slot.
pub(super) const NONE: u32 = u32::MAX;

/// A queue of entries in a [`Pool`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Queue {
    head: u32,
    tail: u32,
    len: u32,
}

impl Default for Queue {
    fn default() -> Queue {
        Queue {
            head: NONE,
            tail: NONE,
            len: 0,
        }
    }
}

impl Queue {
    /// Number of entries.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Slot of the oldest entry, or [`NONE`].
    pub fn head(&self) -> u32 {
        self.head
    }

    /// Slot of the newest entry, or [`NONE`].
    pub fn tail(&self) -> u32 {
        self.tail
    }
}

/// An entry of a [`Pool`]. A free slot keeps its entry, to be written over: nothing of this size is moved.
pub(super) trait Item: Default {
    /// Frees what the entry holds beyond its own place.
    fn release(&mut self);
}

#[derive(Debug)]
struct Slot<T> {
    next: u32,
    used: bool,
    item: T,
}

/// Slots that queues chain together.
#[derive(Debug)]
pub(super) struct Pool<T> {
    slots: Vec<Slot<T>>,
    free: u32,
    /// Entries of all queues together.
    len: u32,
}

impl<T: Item> Pool<T> {
    /// An empty pool.
    pub fn new() -> Pool<T> {
        Pool {
            slots: Vec::new(),
            free: NONE,
            len: 0,
        }
    }

    /// Entries of all queues together.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// The slot that [`append`](Pool::append) takes next, with its old entry, to be written over.
    #[inline]
    pub fn spare(&mut self) -> &mut T {
        if self.free == NONE {
            self.free = self.slots.len() as u32;
            self.slots.push(Slot {
                next: NONE,
                used: false,
                item: T::default(),
            });
        }
        &mut self.slots[self.free as usize].item
    }

    /// Appends the [`spare`](Pool::spare) slot to a queue.
    #[inline]
    pub fn append(&mut self, queue: &mut Queue) -> u32 {
        let slot = self.free;
        let entry = &mut self.slots[slot as usize];
        self.free = entry.next;
        (entry.next, entry.used) = (NONE, true);
        if queue.tail == NONE {
            queue.head = slot;
        } else {
            self.slots[queue.tail as usize].next = slot;
        }
        queue.tail = slot;
        queue.len += 1;
        self.len += 1;
        slot
    }

    /// Appends an entry to a queue.
    pub fn push(&mut self, queue: &mut Queue, item: T) -> u32 {
        *self.spare() = item;
        self.append(queue)
    }

    /// Takes the oldest entry off the queue if `judge` returns something for it and the slot behind it ([`NONE`]: there is none).
    #[inline(always)]
    pub fn take_if<R>(
        &mut self,
        queue: &mut Queue,
        judge: impl FnOnce(&mut T, u32) -> Option<R>,
    ) -> Option<R> {
        let slot = queue.head;
        let entry = self.slots.get_mut(slot as usize)?;
        let taken = judge(&mut entry.item, entry.next)?;
        queue.head = entry.next;
        if queue.head == NONE {
            queue.tail = NONE;
        }
        queue.len -= 1;
        self.len -= 1;
        (entry.next, entry.used) = (self.free, false);
        self.free = slot;
        entry.item.release();
        Some(taken)
    }

    /// Takes the oldest entry.
    #[inline]
    pub fn pop(&mut self, queue: &mut Queue) -> Option<T> {
        self.take_if(queue, |item, _| Some(core::mem::take(item)))
    }

    /// The entry of a slot.
    #[inline]
    pub fn get(&self, slot: u32) -> Option<&T> {
        let entry = self.slots.get(slot as usize)?;
        entry.used.then_some(&entry.item)
    }

    /// The entry of a slot.
    #[inline]
    pub fn get_mut(&mut self, slot: u32) -> Option<&mut T> {
        let entry = self.slots.get_mut(slot as usize)?;
        entry.used.then_some(&mut entry.item)
    }

    /// The next slot of the queue, or [`NONE`].
    #[inline]
    pub fn next(&self, slot: u32) -> u32 {
        self.slots.get(slot as usize).map_or(NONE, |s| s.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Item for i32 {
        fn release(&mut self) {
            *self = -1;
        }
    }

    #[test]
    fn queues_share_the_slots_and_keep_their_order() {
        let mut pool = Pool::new();
        let (mut a, mut b) = (Queue::default(), Queue::default());
        for i in 0..10 {
            pool.push(&mut a, i);
            pool.push(&mut b, 100 + i);
        }
        assert_eq!(pool.get(pool.next(a.head())), Some(&1));
        for i in 0..10 {
            assert_eq!(pool.pop(&mut a), Some(i));
        }
        assert_eq!((pool.pop(&mut a), a), (None, Queue::default()));
        for i in 0..10 {
            pool.push(&mut a, 200 + i);
        }
        assert_eq!(pool.slots.len(), 20, "freed slots are used again");
        assert_eq!(pool.len(), 20);
        assert_eq!((b.len(), pool.pop(&mut b)), (10, Some(100)));
        while pool.pop(&mut b).is_some() {}
        assert_eq!((b.len(), pool.pop(&mut a)), (0, Some(200)));
        assert_eq!((pool.len(), a.len()), (9, 9));
    }
}
