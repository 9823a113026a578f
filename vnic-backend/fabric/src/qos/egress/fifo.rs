//! Many first-in-first-out queues in one piece of memory. It is as large as the most items that waited at once since all
//! queues were empty; nothing is allocated beyond that.

use alloc::vec::Vec;

use super::Entry;

/// No index.
pub(super) const NONE: u32 = u32::MAX;

/// Nodes that are kept when nothing waits any more.
const KEPT: usize = 4096;

/// One queue: indices of its first and last node in [`Nodes`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Fifo {
    head: u32,
    tail: u32,
}

impl Fifo {
    pub(super) const EMPTY: Fifo = Fifo {
        head: NONE,
        tail: NONE,
    };

    pub(super) fn is_empty(&self) -> bool {
        self.head == NONE
    }
}

#[derive(Debug)]
struct Node<T> {
    entry: Entry,
    /// The item; `None` in a free node.
    item: Option<T>,
    /// Number of the item: items that were pushed before have lower ones.
    number: u64,
    next: u32,
}

/// The memory of all queues.
#[derive(Debug)]
pub(super) struct Nodes<T> {
    nodes: Vec<Node<T>>,
    free: u32,
    next: u64,
}

impl<T> Nodes<T> {
    pub(super) const fn new() -> Nodes<T> {
        Nodes {
            nodes: Vec::new(),
            free: NONE,
            next: 0,
        }
    }

    pub(super) fn push(&mut self, fifo: &mut Fifo, entry: Entry, item: T) {
        let number = self.next;
        self.next += 1;
        let node = Node {
            entry,
            item: Some(item),
            number,
            next: NONE,
        };
        let at = match self.nodes.get_mut(self.free as usize) {
            Some(free) => {
                let at = self.free;
                self.free = free.next;
                *free = node;
                at
            }
            None => {
                // A node is larger than 32 bytes: memory ends long before the indices do.
                let at = self.nodes.len() as u32;
                self.nodes.push(node);
                at
            }
        };
        match self.nodes.get_mut(fifo.tail as usize) {
            Some(last) => last.next = at,
            None => fifo.head = at,
        }
        fifo.tail = at;
    }

    /// All queues are empty: memory that only a flood needed is given back.
    pub(super) fn all_empty(&mut self) {
        if self.nodes.len() > KEPT {
            self.nodes.clear();
            self.nodes.shrink_to(KEPT);
            self.free = NONE;
        }
    }

    #[cfg(test)]
    pub(super) fn places(&self) -> usize {
        self.nodes.capacity()
    }

    pub(super) fn front(&self, fifo: &Fifo) -> Option<(&Entry, &T)> {
        let node = self.nodes.get(fifo.head as usize)?;
        node.item.as_ref().map(|item| (&node.entry, item))
    }

    /// Takes the first item, with its number.
    pub(super) fn pop(&mut self, fifo: &mut Fifo) -> Option<(u64, Entry, T)> {
        let at = fifo.head;
        let node = self.nodes.get_mut(at as usize)?;
        let item = node.item.take()?;
        fifo.head = node.next;
        if fifo.head == NONE {
            fifo.tail = NONE;
        }
        node.next = self.free;
        self.free = at;
        Some((node.number, node.entry, item))
    }
}
