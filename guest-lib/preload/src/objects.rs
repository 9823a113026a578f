//! Objects that programs make, and hold pointers to.

pub mod ah;
pub mod channel;
pub mod cq;
pub mod dm;
pub mod flow;
pub mod mr;
pub mod mw;
pub mod pd;
pub mod qp;
pub mod srq;
pub mod wq;
pub mod xrcd;

pub use ah::Ah;
pub use channel::Channel;
pub use cq::Cq;
pub use dm::Dm;
pub use flow::Flow;
pub use mr::Mr;
pub use mw::Mw;
pub use pd::{Pd, Td};
pub use qp::Qp;
pub use srq::Srq;
pub use wq::{RwqIndTable, Wq};
pub use xrcd::Xrcd;

use crate::errno::Errno;

/// Checks that all bits of a mask are known; `otherwise` is the error.
pub fn only(mask: impl Into<u64>, known: impl Into<u64>, otherwise: Errno) -> Result<(), Errno> {
    if mask.into() & !known.into() == 0 {
        Ok(())
    } else {
        Err(otherwise)
    }
}
