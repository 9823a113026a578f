//! What RDMA CM puts in front of a program's private data in a REQ and a SIDR_REQ: which addresses it is between (IBTA vol 1
//! annex A11, "RDMA IP CM service").
//!
//! ```text
//!  0  major, minor version (4 bits each)    4  source address: 16 bytes, of IPv4 the last four
//!  1  IP version (4 bits)                  20  destination address
//!  2  source port                          36  private data of the program
//! ```

use core::net::IpAddr;

use crate::{Error, be16};

/// Bytes of the header.
pub const HEADER_LEN: usize = 36;

/// Addresses of a connection. Both are of the same version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Header {
    /// The port that the request comes from; the service ID has the other.
    pub source_port: u16,
    /// The address that the request comes from.
    pub source: IpAddr,
    /// The address that it is for.
    pub destination: IpAddr,
}

impl Header {
    /// Reads the header from the front of `bytes`. A later minor version is read as this one; reserved bits are ignored.
    pub fn parse(bytes: &[u8]) -> Result<Header, Error> {
        let b: &[u8; HEADER_LEN] = bytes.first_chunk().ok_or(Error::Truncated)?;
        let version = b[1] >> 4;
        if b[0] >> 4 != 0 || !matches!(version, 4 | 6) {
            return Err(Error::Kind);
        }
        let address = |at: usize| match version {
            4 => IpAddr::from([b[at + 12], b[at + 13], b[at + 14], b[at + 15]]),
            _ => IpAddr::from(core::array::from_fn::<u8, 16, _>(|i| b[at + i])),
        };
        Ok(Header {
            source_port: be16(b, 2),
            source: address(4),
            destination: address(20),
        })
    }

    /// The header's bytes. Addresses of two versions are written as IPv6, that of IPv4 mapped.
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        let mut b = [0; HEADER_LEN];
        b[2..4].copy_from_slice(&self.source_port.to_be_bytes());
        if let (IpAddr::V4(source), IpAddr::V4(destination)) = (self.source, self.destination) {
            b[1] = 4 << 4;
            b[16..20].copy_from_slice(&source.octets());
            b[32..].copy_from_slice(&destination.octets());
            return b;
        }
        let octets = |ip: IpAddr| match ip {
            IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
            IpAddr::V6(ip) => ip.octets(),
        };
        b[1] = 6 << 4;
        b[4..20].copy_from_slice(&octets(self.source));
        b[20..].copy_from_slice(&octets(self.destination));
        b
    }
}
