//! Memory for a device that sees guest-physical addresses: where pages are, that they stay there, and pages of our
//! own.
//!
//! Three things are needed before a device may be told of memory. It must be there and be the program's own (not a
//! page shared until it is written); it must stay where it is; and its guest-physical address must be known.
//! [`pin`] does the first two, [`pagemap`] the third, and [`arena`] makes memory with both.
//!
//! `mlock` does the first, but not the second: the kernel moves locked pages when it compacts memory.

pub mod arena;
pub mod extents;
mod mapping;
pub mod pagemap;
pub mod pin;

pub use arena::Arena;
pub use pin::{Pin, Pins};
