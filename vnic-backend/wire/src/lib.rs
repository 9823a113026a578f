//! Wire formats: one file per header, one shape for all files. Sans-I/O, no clock, no allocation.
//!
//! The shape: `HEADER_LEN`, the bytes of the header without options; a small `Copy` struct of its fields in
//! host order; `parse`, which reads it from the front of a slice that may be of any length and hold anything;
//! `emit`, which gives the bytes.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod arp;
pub mod checksum;
pub mod ethernet;
pub mod ipv4;
pub mod ipv6;
pub mod tcp;
pub mod time;
pub mod udp;
pub mod vlan;

pub use ethernet::{EtherType, MacAddr};

/// Why bytes are not the header that was looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Error {
    /// The bytes end before the header does.
    #[error("the bytes end before the header does")]
    Truncated,
    /// A version, type or format field names something else.
    #[error("a version or format field names another kind of header")]
    Kind,
    /// A length field is smaller than the header it is in, or a chain of headers does not end.
    #[error("a length field contradicts the header it is in")]
    Length,
}

/// Big-endian 16 bits at `at` of a header of known length.
#[inline]
const fn be16<const N: usize>(b: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([b[at], b[at + 1]])
}

/// Big-endian 32 bits at `at` of a header of known length.
#[inline]
const fn be32<const N: usize>(b: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}
