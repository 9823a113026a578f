//! The shell around the sans-I/O core: vhost-user devices, polled rings, data cores, uplinks. The only clock and nearly all
//! `unsafe` code of the project are here. The control plane holds a [`Nic`].

mod call;
mod capture;
mod check;
mod confine;
mod datapath;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod heap;
mod hub;
mod mem;
mod nic;
mod rdma;
pub mod rehearsal;
mod ring;
mod sync;
pub mod types;
mod uplink;
mod vhost;

pub use confine::Filter;
pub use datapath::{ClockGuard, CoreWork, Observer, VirtualClock, observed};
pub use nic::{AdapterSetup, Capture, Nic};
pub use rdma::SPEED_MBPS as RDMA_SPEED_MBPS;
pub use types::*;
pub use uplink::{FrameRx, FrameTx, PortEnd};
