//! Counters: declared once, in `counters.toml`, of which the build script makes these tables; gRPC, command line, Prometheus and
//! documentation read them.

pub mod names;
mod values;

use core::sync::atomic::{AtomicU64, Ordering};

pub use values::{AdapterValues, CoreValues, Drops, LinkValues, PortValues, Values};

/// What a counter is attached to, and therefore which labels it carries.
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

/// One row of the table.
#[derive(Debug, PartialEq, Eq)]
pub struct CounterDef {
    /// Name for gRPC and the command line; the Prometheus name is `vnic_<scope>_<name>_total`.
    pub name: &'static str,
    /// Where it is attached.
    pub scope: Scope,
    /// Unit of the value, or empty.
    pub unit: &'static str,
    /// One line for people.
    pub help: &'static str,
}

/// One value read from the data path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// The row of the table.
    pub def: &'static CounterDef,
    /// The adapter's or port's name or the data core's number.
    pub owner: alloc::string::String,
    /// The queue pair, for [`Scope::AdapterQueue`].
    pub queue: Option<u16>,
    /// The priority, for [`Scope::AdapterPriority`] and [`Scope::PortPriority`].
    pub priority: Option<u8>,
    /// The drop reason, for the scopes that carry one.
    pub reason: Option<&'static str>,
    /// The monotonic value since the owner was created.
    pub value: u64,
}

/// A block of `N` monotonic counters with one writer (a data thread) and any number of readers. Alone on its
/// cache lines.
#[derive(Debug)]
#[repr(align(64))]
pub struct Block<const N: usize>([AtomicU64; N]);

impl<const N: usize> Default for Block<N> {
    fn default() -> Self {
        Block([const { AtomicU64::new(0) }; N])
    }
}

impl<const N: usize> Block<N> {
    /// Adds `n`. Only the owning data thread may call this: it is a load and a store, not a locked add.
    #[inline]
    pub fn add(&self, i: usize, n: u64) {
        let c = &self.0[i];
        c.store(c.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Sets one value: for counts that are kept elsewhere. As for [`Block::add`], one thread.
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

/// The row of an adapter's drops.
pub static ADAPTER_DROP: CounterDef = CounterDef {
    name: "drops",
    scope: Scope::AdapterDrop,
    unit: "frames",
    help: "Frames from or for the adapter that were dropped, by reason; each dropped frame (each copy of a flooded one) counts once.",
};

/// The row of a port's drops.
pub static PORT_DROP: CounterDef = CounterDef {
    name: "drops",
    scope: Scope::PortDrop,
    unit: "frames",
    help: "Frames from or for the uplink port that were dropped, by reason; each dropped frame (each copy of a flooded one) counts once.",
};

/// Every counter the data path keeps.
pub fn all() -> impl Iterator<Item = &'static CounterDef> {
    QUEUE_COUNTERS
        .iter()
        .chain([&ADAPTER_DROP])
        .chain(&PRIORITY_COUNTERS)
        .chain(&LINK_COUNTERS)
        .chain(&PORT_COUNTERS)
        .chain([&PORT_DROP])
        .chain(&PORT_PRIORITY_COUNTERS)
        .chain(&PORT_LINK_COUNTERS)
        .chain(&RDMA_COUNTERS)
        .chain(&CORE_COUNTERS)
}
