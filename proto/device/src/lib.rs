//! The contract between a driver (guest) and the RDMA function of an adapter (device). `SPEC.md` beside this crate is
//! the normative text; these structs are its layouts, and `const` assertions hold them to the sizes it names.
//!
//! All numbers are little-endian. Everything is naturally aligned, sizes are multiples of 8, reserved bytes are zero.
#![no_std]
#![forbid(unsafe_code)]

pub mod command;
pub mod config;
pub mod doorbell;
pub mod event;
pub mod queue;
pub mod status;

pub use zerocopy;
