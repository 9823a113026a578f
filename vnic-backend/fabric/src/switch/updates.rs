//! Updates from one copy of the switch to the others.

use alloc::collections::VecDeque;
use vnic_wire::MacAddr;

use super::PortId;

/// A change of what a copy of the switch has learned, for the copies of the other data cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FdbUpdate {
    /// The address is behind this port: learned, moved, or still there (repeated while it is in use).
    Learn {
        /// VLAN of the address.
        vlan: u16,
        /// The address.
        mac: MacAddr,
        /// The port that the address is behind; the sender's core owns it.
        port: PortId,
    },
    /// The address was not seen for the ageing time, or was flushed.
    Forget {
        /// VLAN of the address.
        vlan: u16,
        /// The address.
        mac: MacAddr,
    },
}

/// A bounded queue that gives up the oldest updates. A lost `Learn` is repeated while the address is in
/// use; the backstop ageing of the other copy makes up for a lost `Forget`.
pub(crate) struct Updates {
    queue: VecDeque<FdbUpdate>,
    pub(crate) lost: u64,
}

impl Updates {
    pub(crate) const CAPACITY: usize = 1024;

    pub(crate) fn new() -> Updates {
        Updates {
            queue: VecDeque::with_capacity(Updates::CAPACITY),
            lost: 0,
        }
    }

    pub(crate) fn push(&mut self, update: FdbUpdate) {
        if self.queue.len() >= Updates::CAPACITY {
            self.queue.pop_front();
            self.lost += 1;
        }
        self.queue.push_back(update);
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<FdbUpdate> {
        self.queue.pop_front()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}
