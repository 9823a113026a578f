//! The data cores: pinned, shared-nothing poll loops.
//!
//! ```text
//!  guest tx ring ─▶ tx ─▶ switch ─▶ rx ─▶ guest rx ring      (same core)
//!                            │
//!                            └─▶ link ─▶ other core ─▶ rx    (by reference, copied there)
//! ```

mod by_thread;
mod calls;
mod clock;
mod congestion;
mod control_queue;
mod core;
mod counters;
mod dpc;
mod frame;
mod gate;
mod handle;
mod idle;
mod link;
mod news;
mod observed;
mod outputs;
mod qos;
mod quota;
mod rdma;
mod ring_start;
mod rings;
mod run;
mod rx;
mod sender;
mod sleep;
mod storm;
mod ticket;
mod turns;
mod tx;
mod uplinks;
mod weight;
mod worker;

pub use clock::{Clock, ClockGuard, VirtualClock};
pub use congestion::CongestionChange;
pub use control_queue::ControlStart;
pub use counters::{AdapterCounters, CoreCounters, PortCounters, Priorities, Way};
pub use frame::{FRAME_MAX, Metadata, OutFrame};
pub use gate::Gate;
pub use handle::{Answer, WorkerHandle, answer};
pub use news::{CoreEvent, FaultReport, Reported, news};
pub use observed::{CoreWork, Observer, observed};
pub use outputs::vlan_behind;
pub use outputs::{BondSetup, BondSide, Link, Mirror, Receiver};
pub use qos::{PauseState, QosChange};
pub use rdma::Functions;
pub use ring_start::RingStart;
pub use run::start;
pub use ticket::Ticket;
pub use worker::{Side, Worker};

/// Largest number of data cores of a NIC.
pub const MAX_CORES: usize = 16;
