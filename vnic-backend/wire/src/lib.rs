//! Wire formats: one file per header, one shape for all files. Sans-I/O, no clock, no allocation (except in
//! `roce::build` and [`lldp`], which are for callers with time).
//!
//! The shape: `HEADER_LEN`, the bytes of the header without options; a small `Copy` struct of its fields in
//! host order; `parse`, which reads it from the front of a slice that may be of any length and hold anything;
//! `emit`, which gives the bytes.
//!
//! RoCE, from the outside in: [`roce`] has whole frames, [`icrc`] the CRC at their end, [`transport`] the
//! transport headers together; each header has its file ([`grh`], [`bth`] with [`opcode`] and [`psn`],
//! [`reth`], [`aeth`], [`deth`], [`atomiceth`], [`atomicacketh`], [`immdt`], [`ieth`], [`xrceth`], [`dceth`] with [`dcceth`], [`cnp`],
//! [`int`]);
//! [`gid`] has the identifiers; [`sack`] is ours, and so are the layouts of [`dceth`] and [`dcceth`]. Connections are made by messages ([`cm`]) in management datagrams ([`mad`]);
//! questions about paths and groups are others ([`sa`]).
//!
//! Tunnels, as far as a hash over inner headers needs them: [`vxlan`], [`geneve`], [`gre`]; [`tunnel`] finds what is inside. Between neighbours on a link:
//! [`pause`], [`lacp`], [`lldp`].
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod aeth;
pub mod arp;
pub mod atomicacketh;
pub mod atomiceth;
pub mod bth;
pub mod checksum;
pub mod cm;
pub mod cnp;
pub mod dcbx;
pub mod dcceth;
pub mod dceth;
pub mod deth;
pub mod dhcp;
pub mod ethernet;
pub mod geneve;
pub mod gid;
pub mod gre;
pub mod grh;
pub mod icrc;
pub mod ieth;
pub mod immdt;
pub mod int;
pub mod ipv4;
pub mod ipv6;
pub mod lacp;
pub mod lldp;
pub mod mad;
mod named;
pub mod nd;
pub mod opcode;
pub mod pause;
pub mod pkey;
pub mod prefix;
pub mod psn;
pub mod ptp;
pub mod qos;
pub mod reth;
pub mod roce;
pub mod sa;
pub mod sack;
pub mod tcp;
pub mod time;
pub mod transport;
pub mod tunnel;
pub mod udp;
pub mod vlan;
pub mod vxlan;
pub mod xrceth;

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

/// Big-endian 64 bits at `at` of a header of known length.
#[inline]
const fn be64<const N: usize>(b: &[u8; N], at: usize) -> u64 {
    (be32(b, at) as u64) << 32 | be32(b, at + 4) as u64
}
