//! The data cores: pinned, shared-nothing poll loops.
//!
//! ```text
//!  guest tx ring ─▶ tx ─▶ switch ─▶ rx ─▶ guest rx ring      (same core)
//!                            │
//!                            └─▶ link ─▶ other core ─▶ rx    (by reference, copied there)
//! ```

mod bond;
mod calls;
mod clock;
mod congestion;
mod core;
mod counters;
mod dpc;
mod frame;
mod gate;
mod guest_roce;
mod handle;
mod idle;
mod inject;
mod link;
mod news;
mod outputs;
mod qos;
mod quota;
mod rdma;
mod ring_start;
mod rings;
mod run;
mod rx;
mod sleep;
mod ticket;
mod turns;
mod tx;
mod uplinks;
mod waiting;
mod weight;
mod worker;

pub use bond::{BondSetup, BondSide};
pub use clock::{Clock, Held, VirtualClock};
pub use congestion::CongestionChange;
pub use counters::{AdapterCounters, CoreCounters, PortCounters, Priorities, Way};
pub use frame::{FRAME_MAX, Metadata, OutFrame, flow_hash};
pub use gate::Gate;
pub use handle::{Answer, WorkerHandle, answer};
pub use news::{CoreEvent, FaultReport, Reported, news};
pub use qos::{Link, QosChange, Receiver};
pub use ring_start::RingStart;
pub use run::start;
pub use ticket::Ticket;
pub use worker::{Side, Worker};

/// The most data cores a NIC can have.
pub const MAX_CORES: usize = 16;
