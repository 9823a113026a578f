//! Uplink ports: the NIC's way to the world.

mod tap;

pub use tap::{PortTx, TapDevice};
