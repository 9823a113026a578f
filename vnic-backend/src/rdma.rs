//! The RDMA function of an adapter: verbs for a guest, as `proto/device` specifies them.
//!
//! ```text
//!  guest memory                         this module                              engine
//!  doorbell rings ─────▶ doorbells ──▶ function ──▶ work_queue ──▶ post_send, post_recv ─▶ Device
//!  completion rings ◀── completions ◀──┘   │                                                 │
//!  virtqueue 0 ────────▶ command ──────────┘                          transmit ─▶ Sink ◀─────┘
//!  virtqueue 1 … ◀────── events                                                    │
//!                                              `datapath::rdma`: a neighbour's function, or the switch as a frame
//! ```
//!
//! A function belongs to the data core of its adapter. It exists as long as the adapter; drivers attach and detach.

mod account;
mod command;
mod completions;
mod config;
mod connection_news;
mod device_memory;
mod doorbells;
mod events;
mod feed;
mod flows;
mod function;
mod gid_news;
mod gids;
mod identity;
mod journal;
mod memory;
mod memory_share;
mod outage;
mod partitions;
mod registry;
mod remains;
mod remap;
mod request;
mod sample;
mod services;
mod session;
mod shared_ring;
mod slots;
mod turn;
mod verbs_faults;
mod verbs_rules;
mod work_queue;

pub use account::{PACKET, RUN_PACKET, of_a_packet_that_leaves, of_a_turn, of_bytes};
pub use config::{EVENT_QUEUES, SPEED_MBPS, VIRTQUEUES, WAKE_QUEUES, device_config, guid};
pub use events::EventQueue;
pub use flows::AdapterFlows;
pub use function::{Attachment, Function, RdmaCounters, RdmaRings, RdmaSnapshot};
pub use identity::Identity;
pub use journal::{Arrival, Journal, Row};
pub use registry::GidRegistry;
pub use verbs_rules::VerbsRule;
