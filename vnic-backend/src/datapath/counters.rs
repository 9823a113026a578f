//! The counter blocks of one owner, written by its data core, read by anyone.

use std::sync::atomic::{AtomicU64, Ordering};

use vnic_engine::counters::{
    self, AdapterValues, Block, CoreCounter, LinkCounter, PortCounter, PortValues, PriorityCounter,
    QueueCounter,
};
use vnic_fabric::DropReason;

use super::waiting::WaitGauges;
use crate::rdma::RdmaCounters;

/// Drops by [`DropReason`].
pub type Drops = Block<{ DropReason::ALL.len() }>;

/// What is counted at a link, whoever is behind it: by priority, and of its flow control.
#[derive(Default)]
pub struct LinkCounters {
    /// By priority.
    pub priorities: [Block<{ PriorityCounter::COUNT }>; 8],
    /// All together.
    pub link: Block<{ LinkCounter::COUNT }>,
}

/// Counters of an adapter. They live as long as the adapter, whatever its guest does.
pub struct AdapterCounters {
    life: u64,
    /// By queue pair.
    pub queues: Box<[Block<{ QueueCounter::COUNT }>]>,
    /// By reason.
    pub drops: Drops,
    /// Its link.
    pub link: LinkCounters,
    /// Frames that wait for receive buffers, as they are now.
    pub waits: WaitGauges,
}

impl AdapterCounters {
    /// Zeroes for `pairs` queue pairs.
    pub fn new(pairs: usize) -> Self {
        AdapterCounters {
            life: Life::default().0,
            queues: (0..pairs).map(|_| Block::default()).collect(),
            drops: Drops::default(),
            link: LinkCounters::default(),
            waits: WaitGauges::default(),
        }
    }

    /// All values. An adapter offers more pairs than most guests use: those never used are left out.
    pub fn read(&self, name: &str, core: usize, rdma: Option<&RdmaCounters>) -> AdapterValues {
        let used = |(queue, values): &(u16, [u64; QueueCounter::COUNT])| {
            *queue == 0 || values.iter().any(|v| *v != 0)
        };
        let queues = (0..).zip(self.queues.iter().map(Block::snapshot));
        AdapterValues {
            name: name.into(),
            life: self.life,
            core: u32::try_from(core).unwrap_or(u32::MAX),
            queues: queues.filter(used).collect(),
            drops: read_drops(&self.drops),
            rdma: rdma.map(|block| Box::new(block.snapshot())),
        }
    }
}

/// Frames of a burst for several receivers. Most bursts have none: then there is nothing to add up.
#[derive(Default)]
pub struct Groups {
    multicast: u64,
    multicast_bytes: u64,
    broadcast: u64,
    broadcast_bytes: u64,
}

impl Groups {
    /// A frame that begins with `head`.
    #[inline]
    pub fn frame(&mut self, head: &[u8], len: u64) {
        if head.first().is_some_and(|first| first & 1 != 0) {
            self.group(head, len);
        }
    }

    #[inline(never)]
    fn group(&mut self, head: &[u8], len: u64) {
        self.multicast += 1;
        self.multicast_bytes += len;
        if head.starts_with(&[0xff; 6]) {
            self.broadcast += 1;
            self.broadcast_bytes += len;
        }
    }

    /// Adds what came together to these four counters: frames and bytes for groups, and those of them for all.
    #[inline]
    pub fn flush(&mut self, block: &Block<{ QueueCounter::COUNT }>, to: [QueueCounter; 4]) {
        if self.multicast > 0 {
            let sums = std::mem::take(self);
            let values = [
                sums.multicast,
                sums.multicast_bytes,
                sums.broadcast,
                sums.broadcast_bytes,
            ];
            for (counter, value) in to.into_iter().zip(values) {
                block.add(counter as usize, value);
            }
        }
    }
}

/// Counters of an uplink port.
#[derive(Default)]
pub struct PortCounters {
    life: Life,
    /// Traffic.
    pub io: Block<{ PortCounter::COUNT }>,
    /// Its link.
    pub link: LinkCounters,
    /// By reason.
    pub drops: Drops,
}

impl PortCounters {
    /// All values.
    pub fn read(&self, name: &str) -> PortValues {
        PortValues {
            name: name.into(),
            life: self.life.0,
            io: self.io.snapshot(),
            drops: read_drops(&self.drops),
        }
    }
}

/// Counters of a data core.
pub type CoreCounters = Block<{ CoreCounter::COUNT }>;

fn read_drops(drops: &Drops) -> counters::Drops {
    let all = DropReason::ALL.iter();
    all.map(|r| (r.name(), drops.get(*r as usize))).collect()
}

/// A number that no other owner of counters of this process has.
pub struct Life(u64);

impl Default for Life {
    fn default() -> Life {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Life(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}
