//! Counters of the data path, declared in `counters.toml`, from which the build script makes the tables. gRPC, command
//! line, Prometheus and documentation read these.

mod histogram;
pub mod names;
mod values;

use core::sync::atomic::{AtomicU64, Ordering};

pub use histogram::{
    DepthHistogram, HISTOGRAMS, HistogramDef, HistogramSample, HistogramValues, MESSAGE_LATENCY, ROUND,
    TX_QUEUE_DEPTH, TimeHistogram, WAKE_UP,
};
pub use values::{AdapterValues, CoreValues, Drops, LinkValues, PortValues, Values};

/// Kind of a counter's owner, which determines the labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// One direction of one queue pair of an adapter: labels `adapter`, `queue`.
    AdapterQueue,
    /// An adapter, with a drop reason: labels `adapter`, `reason`.
    AdapterDrop,
    /// An uplink port: label `port`.
    Port,
    /// An uplink port, with a drop reason: labels `port`, `reason`.
    PortDrop,
    /// The mesh behind an uplink port: label `port`.
    Mesh,
    /// A priority of an adapter: labels `adapter`, `priority`.
    AdapterPriority,
    /// A priority of an uplink port: labels `port`, `priority`.
    PortPriority,
    /// The link of an adapter: label `adapter`.
    AdapterLink,
    /// The link of an uplink port: label `port`.
    PortLink,
    /// The RDMA function of an adapter: label `adapter`.
    Rdma,
    /// A data core: label `core`.
    Core,
}

/// Row of the table of counters.
#[derive(Debug, PartialEq, Eq)]
pub struct CounterDef {
    /// Name for gRPC and the command line; the Prometheus name is `vnic_<scope>_<name>_total`.
    pub name: &'static str,
    /// Kind of the owner.
    pub scope: Scope,
    /// Unit of the value; may be empty.
    pub unit: &'static str,
    /// Meaning in one line.
    pub help: &'static str,
}

/// A value of a counter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// Row of the table.
    pub def: &'static CounterDef,
    /// Name of the adapter or port, or number of the data core.
    pub owner: alloc::string::String,
    /// Queue pair, for [`Scope::AdapterQueue`].
    pub queue: Option<u16>,
    /// Priority, for [`Scope::AdapterPriority`] and [`Scope::PortPriority`].
    pub priority: Option<u8>,
    /// Drop reason, for [`Scope::AdapterDrop`] and [`Scope::PortDrop`].
    pub reason: Option<&'static str>,
    /// Monotonic value since the owner was created.
    pub value: u64,
}

/// Block of `N` monotonic counters with one writer (a data thread) and any number of readers. It has its own cache lines.
#[derive(Debug)]
#[repr(align(64))]
pub struct Block<const N: usize>([AtomicU64; N]);

impl<const N: usize> Default for Block<N> {
    fn default() -> Self {
        Block([const { AtomicU64::new(0) }; N])
    }
}

impl<const N: usize> Block<N> {
    /// Adds `n`. Only the writer's thread may call this: it is a load and a store, not a locked add.
    #[inline]
    pub fn add(&self, i: usize, n: u64) {
        let c = &self.0[i];
        c.store(c.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Sets one value, for counts that are kept elsewhere. Only the writer's thread may call this.
    #[inline]
    pub fn set(&self, i: usize, value: u64) {
        self.0[i].store(value, Ordering::Relaxed);
    }

    /// Reads one value.
    pub fn get(&self, i: usize) -> u64 {
        self.0[i].load(Ordering::Relaxed)
    }

    /// Reads all values.
    pub fn snapshot(&self) -> [u64; N] {
        core::array::from_fn(|i| self.get(i))
    }
}

include!(concat!(env!("OUT_DIR"), "/own_counters.rs"));

/// Counters of the mesh behind a port; its thread is the writer.
pub type MeshCounters = Block<{ MeshCounter::COUNT }>;

/// Row of an adapter's drops.
pub static ADAPTER_DROP: CounterDef = CounterDef {
    name: "drops",
    scope: Scope::AdapterDrop,
    unit: "frames",
    help: "Frames from or for the adapter that were dropped, by reason; each dropped frame (each copy of a flooded one) counts once.",
};

/// Row of a port's drops.
pub static PORT_DROP: CounterDef = CounterDef {
    name: "drops",
    scope: Scope::PortDrop,
    unit: "frames",
    help: "Frames from or for the uplink port that were dropped, by reason; each dropped frame (each copy of a flooded one) counts once.",
};

/// All counters of the data path.
pub fn all() -> impl Iterator<Item = &'static CounterDef> {
    QUEUE_COUNTERS
        .iter()
        .chain([&ADAPTER_DROP])
        .chain(&PRIORITY_COUNTERS)
        .chain(&LINK_COUNTERS)
        .chain(&PORT_COUNTERS)
        .chain(&PORT_DCBX_COUNTERS)
        .chain([&PORT_DROP])
        .chain(&MESH_COUNTERS)
        .chain(&PORT_PRIORITY_COUNTERS)
        .chain(&PORT_LINK_COUNTERS)
        .chain(&RDMA_COUNTERS)
        .chain(&CORE_COUNTERS)
}
