//! The engine of an adapter: Ethernet function logic, counters, events; verbs, congestion control.
//! Sans-I/O: time, randomness and guest memory are arguments.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod checksums;
pub mod clock;
pub mod congestion;
pub mod counters;
pub mod dropless;
pub mod gids;
pub mod moderation;
pub mod offload;
pub mod oid;
pub mod rdma;
pub mod settings;
pub mod virtio_net;
