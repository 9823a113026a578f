//! Values of all counters, as they were read together.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use super::{
    ADAPTER_DROP, CORE_COUNTERS, CoreCounter, CounterDef, DcbxCounter, LINK_COUNTERS, LinkCounter,
    MESH_COUNTERS, MeshCounter, PORT_COUNTERS, PORT_DCBX_COUNTERS, PORT_DROP, PORT_LINK_COUNTERS,
    PORT_PRIORITY_COUNTERS, PRIORITY_COUNTERS, PortCounter, PriorityCounter, QUEUE_COUNTERS, QueueCounter,
    RDMA_COUNTERS, Sample,
};
use crate::rdma;

/// Drop reasons with their counts.
pub type Drops = Vec<(&'static str, u64)>;

/// Counters of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkValues {
    /// Counters by priority.
    pub priorities: [[u64; PriorityCounter::COUNT]; 8],
    /// Counters of the link's flow control, over all priorities.
    pub all: [u64; LinkCounter::COUNT],
}

/// Counters of an adapter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdapterValues {
    /// Name of the adapter.
    pub name: String,
    /// Number of the adapter among those of its name: unique while the process lives.
    pub life: u64,
    /// CPU of the poll loop that serves the adapter.
    pub core: u32,
    /// Counters by queue pair: of the first, and of those that were used.
    pub queues: Vec<(u16, [u64; QueueCounter::COUNT])>,
    /// Drops by reason; all reasons are listed.
    pub drops: Drops,
    /// Counters of the adapter's link.
    pub link: Box<LinkValues>,
    /// Counters of the RDMA function, in the order of [`RDMA_COUNTERS`].
    pub rdma: Option<Box<[u64; rdma::Counters::COUNT]>>,
}

/// Counters of an uplink port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortValues {
    /// Name of the port.
    pub name: String,
    /// Number of the port among those of its name, as [`AdapterValues::life`].
    pub life: u64,
    /// Traffic counters.
    pub io: [u64; PortCounter::COUNT],
    /// Drops by reason; all reasons are listed.
    pub drops: Drops,
    /// Counters of the port's link.
    pub link: Box<LinkValues>,
    /// Counters of data center bridging exchange.
    pub dcbx: [u64; DcbxCounter::COUNT],
    /// Counters of the mesh behind the port, if there is one.
    pub mesh: Option<Box<[u64; MeshCounter::COUNT]>>,
}

/// Counters of a data core.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoreValues {
    /// CPU of the core.
    pub cpu: usize,
    /// Counters of the core.
    pub values: [u64; CoreCounter::COUNT],
}

/// All counters. They are read one after the other, not at one instant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Values {
    /// Counters of adapters, by name.
    pub adapters: Vec<AdapterValues>,
    /// Counters of ports, by name.
    pub ports: Vec<PortValues>,
    /// Counters of data cores, in the order of the NIC.
    pub cores: Vec<CoreValues>,
}

/// Growth since `base`; of a counter that has restarted, all of its value.
fn grown(value: u64, base: u64) -> u64 {
    value.checked_sub(base).unwrap_or(value)
}

fn less(values: &mut [u64], base: &[u64]) {
    for (value, base) in values.iter_mut().zip(base) {
        *value = grown(*value, *base);
    }
}

fn less_drops(drops: &mut Drops, base: &Drops) {
    for ((_, value), (_, base)) in drops.iter_mut().zip(base) {
        *value = grown(*value, *base);
    }
}

impl LinkValues {
    /// Counters of the first priority, and of those that were used.
    pub fn used(&self) -> impl Iterator<Item = (u8, &[u64; PriorityCounter::COUNT])> {
        let all = (0..).zip(&self.priorities);
        all.filter(|(priority, values)| *priority == 0 || values.iter().any(|v| *v != 0))
    }

    fn less(&mut self, base: &LinkValues) {
        for (values, base) in self.priorities.iter_mut().zip(&base.priorities) {
            less(values, base);
        }
        less(&mut self.all, &base.all);
    }

    fn samples(
        &self,
        priorities: &'static [CounterDef],
        all: &'static [CounterDef],
        owner: &str,
        out: &mut Vec<Sample>,
    ) {
        for (priority, values) in self.used() {
            push(priorities, values, owner, Part::Priority(priority), out);
        }
        push(all, &self.all, owner, Part::All, out);
    }
}

impl AdapterValues {
    /// Growth since `base` was read from the same life of the adapter.
    pub fn since(mut self, base: &AdapterValues) -> AdapterValues {
        for (queue, values) in &mut self.queues {
            // A queue without a base was not used then.
            if let Some((_, base)) = base.queues.iter().find(|(q, _)| q == queue) {
                less(values, base);
            }
        }
        less_drops(&mut self.drops, &base.drops);
        self.link.less(&base.link);
        if let (Some(values), Some(base)) = (&mut self.rdma, &base.rdma) {
            less(values.as_mut_slice(), base.as_slice());
        }
        self
    }

    fn samples(&self, out: &mut Vec<Sample>) {
        for (queue, values) in &self.queues {
            push(&QUEUE_COUNTERS, values, &self.name, Part::Queue(*queue), out);
        }
        push_drops(&ADAPTER_DROP, &self.drops, &self.name, out);
        self.link
            .samples(&PRIORITY_COUNTERS, &LINK_COUNTERS, &self.name, out);
        if let Some(values) = &self.rdma {
            push(&RDMA_COUNTERS, values.as_slice(), &self.name, Part::All, out);
        }
    }
}

impl PortValues {
    /// Growth since `base` was read from the same life of the port.
    pub fn since(mut self, base: &PortValues) -> PortValues {
        less(&mut self.io, &base.io);
        less(&mut self.dcbx, &base.dcbx);
        less_drops(&mut self.drops, &base.drops);
        self.link.less(&base.link);
        if let (Some(values), Some(base)) = (&mut self.mesh, &base.mesh) {
            less(values.as_mut_slice(), base.as_slice());
        }
        self
    }

    fn samples(&self, out: &mut Vec<Sample>) {
        push(&PORT_COUNTERS, &self.io, &self.name, Part::All, out);
        push(&PORT_DCBX_COUNTERS, &self.dcbx, &self.name, Part::All, out);
        push_drops(&PORT_DROP, &self.drops, &self.name, out);
        if let Some(values) = &self.mesh {
            push(&MESH_COUNTERS, values.as_slice(), &self.name, Part::All, out);
        }
        self.link
            .samples(&PORT_PRIORITY_COUNTERS, &PORT_LINK_COUNTERS, &self.name, out);
    }
}

impl CoreValues {
    /// Growth since `base` was read.
    pub fn since(mut self, base: &CoreValues) -> CoreValues {
        less(&mut self.values, &base.values);
        self
    }
}

impl Values {
    /// Each value with its row of the table and its owner.
    pub fn samples(&self) -> Vec<Sample> {
        let mut out = Vec::new();
        for adapter in &self.adapters {
            adapter.samples(&mut out);
        }
        for port in &self.ports {
            port.samples(&mut out);
        }
        for core in &self.cores {
            push(
                &CORE_COUNTERS,
                &core.values,
                &alloc::format!("{}", core.cpu),
                Part::All,
                &mut out,
            );
        }
        out
    }
}

/// Part of its owner that a value is about.
#[derive(Clone, Copy)]
enum Part {
    All,
    Queue(u16),
    Priority(u8),
}

fn push(defs: &'static [CounterDef], values: &[u64], owner: &str, part: Part, out: &mut Vec<Sample>) {
    let (queue, priority) = match part {
        Part::All => (None, None),
        Part::Queue(queue) => (Some(queue), None),
        Part::Priority(priority) => (None, Some(priority)),
    };
    out.extend(defs.iter().zip(values).map(|(def, value)| Sample {
        def,
        owner: owner.into(),
        queue,
        priority,
        reason: None,
        value: *value,
    }));
}

fn push_drops(def: &'static CounterDef, drops: &Drops, owner: &str, out: &mut Vec<Sample>) {
    out.extend(drops.iter().map(|(reason, value)| Sample {
        def,
        owner: owner.into(),
        queue: None,
        priority: None,
        reason: Some(reason),
        value: *value,
    }));
}
