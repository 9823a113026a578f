//! The counter blocks of one owner, written by its data core, read by anyone.

use vnic_engine::counters::{
    ADAPTER_DROP, Block, CORE_COUNTERS, CoreCounter, CounterDef, PORT_COUNTERS, PORT_DROP, PortCounter,
    QUEUE_COUNTERS, QueueCounter, RDMA_COUNTERS, Sample,
};
use vnic_fabric::DropReason;

use crate::rdma::RdmaCounters;

/// Drops by [`DropReason`].
pub type Drops = Block<{ DropReason::ALL.len() }>;

/// Counters of an adapter. They live as long as the adapter, whatever its guest does.
pub struct AdapterCounters {
    /// By queue pair.
    pub queues: Box<[Block<{ QueueCounter::COUNT }>]>,
    /// By reason.
    pub drops: Drops,
}

impl AdapterCounters {
    /// Zeroes for `pairs` queue pairs.
    pub fn new(pairs: usize) -> Self {
        AdapterCounters {
            queues: (0..pairs).map(|_| Block::default()).collect(),
            drops: Drops::default(),
        }
    }

    /// All values as samples.
    pub fn samples(&self, owner: &str, out: &mut Vec<Sample>) {
        for (queue, block) in self.queues.iter().enumerate() {
            // An adapter offers more pairs than most guests use: those never used are left out.
            if queue == 0 || block.snapshot().iter().any(|v| *v != 0) {
                push(&QUEUE_COUNTERS, block, owner, Some(queue as u16), out);
            }
        }
        push_drops(&ADAPTER_DROP, &self.drops, owner, out);
    }
}

/// Counters of an uplink port.
#[derive(Default)]
pub struct PortCounters {
    /// Traffic.
    pub io: Block<{ PortCounter::COUNT }>,
    /// By reason.
    pub drops: Drops,
}

impl PortCounters {
    /// All values as samples.
    pub fn samples(&self, owner: &str, out: &mut Vec<Sample>) {
        push(&PORT_COUNTERS, &self.io, owner, None, out);
        push_drops(&PORT_DROP, &self.drops, owner, out);
    }
}

/// Counters of a data core.
pub type CoreCounters = Block<{ CoreCounter::COUNT }>;

/// All values of a core as samples.
pub fn core_samples(block: &CoreCounters, owner: &str, out: &mut Vec<Sample>) {
    push(&CORE_COUNTERS, block, owner, None, out);
}

/// All values of an RDMA function as samples.
pub fn rdma_samples(block: &RdmaCounters, owner: &str, out: &mut Vec<Sample>) {
    push(&RDMA_COUNTERS, block, owner, None, out);
}

fn push<const N: usize>(
    defs: &'static [CounterDef; N],
    block: &Block<N>,
    owner: &str,
    queue: Option<u16>,
    out: &mut Vec<Sample>,
) {
    let values = defs.iter().enumerate();
    out.extend(values.map(|(i, def)| Sample {
        def,
        owner: owner.into(),
        queue,
        reason: None,
        value: block.get(i),
    }));
}

fn push_drops(def: &'static CounterDef, drops: &Drops, owner: &str, out: &mut Vec<Sample>) {
    out.extend(DropReason::ALL.iter().map(|r| Sample {
        def,
        owner: owner.into(),
        queue: None,
        reason: Some(r.name()),
        value: drops.get(*r as usize),
    }));
}
