//! The shell around the sans-I/O core: vhost-user devices, polled rings, data cores, uplinks. The only clock
//! and nearly all `unsafe` of the project live here. [`Nic`] is what the control plane holds.

mod nic;
pub mod types;

pub use nic::Nic;
pub use types::*;
