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
mod rings;
mod run;
mod rx;
mod sleep;
mod turns;
mod tx;
mod uplinks;
mod waiting;
mod weight;
mod worker;

pub use bond::{BondSetup, BondSide, Ticket};
pub use clock::{Clock, Held, VirtualClock};
pub use congestion::CongestionChange;
pub use core::CoreEvent;
pub use counters::{AdapterCounters, BY_TAG, CoreCounters, PortCounters, Priorities, Way};
pub use frame::{FRAME_MAX, OutFrame, flow_hash};
pub use handle::{Answer, WorkerHandle, answer};
pub use inject::{FaultReport, Reported};
pub use link::Gate;
pub use news::news;
pub use qos::{Link, QosChange, Receiver};
pub use run::start;
pub use worker::{RingStart, Side, Worker};

/// The most data cores a NIC can have.
pub const MAX_CORES: usize = 16;
