//! What programs make, and hold pointers to.

pub mod cq;
pub mod memory;
pub mod pd;
pub mod qp;
pub mod srq;

pub use cq::{Channel, Cq};
pub use memory::{Dm, Mr, Mw};
pub use pd::{Ah, Pd, Td, Xrcd};
pub use qp::Qp;
pub use srq::Srq;
