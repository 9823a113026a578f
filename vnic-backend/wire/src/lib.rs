//! Wire formats: one file per header, one shape for all files. Sans-I/O, no clock, no allocation.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod ethernet;

pub use ethernet::MacAddr;
