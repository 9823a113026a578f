//! librdmacm's interface on the connections of our devices (`SPEC.md`, section 5.7).
//!
//! ```text
//!  program ──rdma_*──▶ exports::cm ──▶ id ──▶ manager (one for each device) ──▶ vnic_verbs::Connections
//!     ▲                                ▲         │ a thread takes the device's events
//!     └─rdma_get_cm_event── event ── queue ◀─────┘ and puts each into the queue of its identifier
//! ```
//! *Identifiers are ours if there is a device of ours when the process first asks*; else all calls go on to the real librdmacm. The
//! queue pair of an identifier changes its state where the program takes the event that asks for it, as with the real one.
//! *No event reaches a destroyed identifier*: as in [`events`](crate::events).

pub mod address;
pub mod addrinfo;
pub mod choose;
pub mod connect;
pub mod devices;
pub mod endpoint;
pub mod event;
pub mod header;
pub mod id;
pub mod multicast;
pub mod ports;
pub mod qp;
pub mod queue;
pub mod resolve;
pub mod state;

/// Whether connections are ours in this process: a device of ours was there at the first call.
pub fn ours() -> bool {
    static OURS: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *OURS.get_or_init(|| !crate::devices::list().is_empty())
}
