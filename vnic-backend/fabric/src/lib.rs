//! The fabric: embedded switch, quality of service, link aggregation, link layer discovery, data center bridging exchange, faults, a network in virtual time.
//! Sans-I/O: time, frames and randomness are arguments; decisions are return values.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod access_list;
pub mod conformance;
pub mod dcbx;
pub mod drop_reason;
pub mod fault;
pub mod lag;
pub mod lldp;
pub mod network;
pub mod qos;
pub mod subnet;
pub mod switch;
pub mod vlan;
pub mod wake;

pub use drop_reason::DropReason;
pub use fault::{Facts, Faults};
pub use network::{Link, Network};
pub use switch::{PortId, Switch};
pub use vlan::{PriorityTags, TagEdit, VlanMode};
pub use vnic_wire::time::Instant;
