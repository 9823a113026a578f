//! Uplink ports: the NIC's connection to other hosts.
//!
//! [`device`] is the interface: a kind of device is a receiving and a sending half, both owned by the core that serves the
//! port, and facts that the control plane reads ([`link`]). [`watch`] follows changes of devices.

mod device;
mod exchange;
mod frames;
mod link;
mod packet;
mod port;
mod stamps;
mod sys;
mod tap;
mod watch;
mod xdp;

pub use device::{Opened, RxHalf, TxHalf, open, open_exchange, own_address, reopen};
pub use exchange::{FrameRx, FrameTx, PortEnd};
pub use frames::Arrived;
pub use link::{Facts, Links};
pub use port::PortTx;
pub use stamps::Stamping;
pub use sys::{device_statistics, speed_mbps};
pub use watch::Watch;
