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
mod command;
mod congestion;
mod core;
mod counters;
mod dpc;
mod frame;
mod gate;
mod guest_roce;
mod idle;
mod inject;
mod link;
mod news;
mod outputs;
mod qos;
mod quota;
mod rdma;
mod rings;
mod rx;
mod settings;
mod sleep;
mod ticket;
mod turns;
mod tx;
mod uplinks;
mod waiting;
mod weight;
mod worker;

pub use calls::{Call, Signals, is_eventfd, notify};
pub use clock::{Clock, Held, VirtualClock};
pub use command::{BondSetup, BondSide, Command, RdmaRings, RdmaSnapshot, RingStart, Side};
pub use congestion::CongestionChange;
pub use core::{Core, CoreEvent};
pub use counters::{AdapterCounters, CoreCounters, PortCounters, Priorities, Way};
pub use frame::{FRAME_MAX, Metadata, OutFrame, RawFrame, SNAP, flow_hash};
pub use gate::Gate;
pub use inject::{FaultReport, Reported};
pub use news::news;
pub use outputs::Inbound;
pub use qos::{Link, QosChange, Receiver};
pub use ticket::Ticket;
pub use worker::{WorkerHandle, start};

/// The most data cores a NIC can have.
pub const MAX_CORES: usize = 16;
