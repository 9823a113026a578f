//! Memory for a device that sees guest-physical addresses: where pages are, how they stay there, and pages of our
//! own.
//!
//! Three conditions hold before a device may be told of memory. It is there and the program's own (not a page that
//! is shared until it is written); it stays where it is; and its guest-physical address is known. [`pin`] does the
//! first two, [`pagemap`] the third, and [`arena`] makes memory with both.
//!
//! `mlock` does the first only: the kernel moves locked pages when it compacts memory.

pub mod arena;
mod file;
mod mapping;
pub mod pagemap;
pub mod pin;

pub use arena::Arena;
pub use pin::{Pin, Pins};
