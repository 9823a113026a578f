//! The fabric: embedded switch, and later ports, queues, schedulers and faults. Sans-I/O: time, frames and
//! randomness are arguments; decisions are return values.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod drop_reason;
pub mod switch;
pub mod vlan;

pub use drop_reason::DropReason;
pub use switch::Switch;
pub use vlan::{TagEdit, VlanMode};
pub use vnic_wire::time::Instant;
