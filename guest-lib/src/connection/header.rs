//! What RDMA CM puts in front of a program's private data in a request: which addresses it is between (IBTA volume 1 annex A11,
//! "RDMA IP CM service").
//!
//! ```text
//!  0  major, minor version (4 bits each)    4  source address: 16 bytes, of IPv4 the last four
//!  1  IP version (4 bits)                  20  destination address
//!  2  source port                          36  private data of the program
//! ```

use std::net::{IpAddr, SocketAddr};

/// Bytes of the header.
pub(super) const LEN: usize = 36;

/// Port space of connections by the port numbers of TCP (`RDMA_PS_TCP`).
const TCP: u64 = 0x0106;

/// The service of a port.
pub(super) const fn service(port: u16) -> u64 {
    TCP << 16 | port as u64
}

/// Between which addresses a connection is. Both are of the same version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// Where the request comes from.
    pub source: SocketAddr,
    /// The address that it is for.
    pub destination: IpAddr,
}

impl Header {
    /// Reads the header in front of `bytes`; none if there is none.
    pub fn parse(bytes: &[u8]) -> Option<Header> {
        let bytes: &[u8; LEN] = bytes.first_chunk()?;
        let [versions, ip, port @ ..] = bytes.first_chunk::<4>()?;
        let address = |at: usize| {
            let octets: [u8; 16] = *bytes.get(at..)?.first_chunk()?;
            match ip >> 4 {
                4 => octets.last_chunk::<4>().map(|octets| IpAddr::from(*octets)),
                6 => Some(IpAddr::from(octets)),
                _ => None,
            }
        };
        (versions >> 4 == 0).then_some(())?;
        Some(Header {
            source: SocketAddr::new(address(4)?, u16::from_be_bytes(*port)),
            destination: address(20)?,
        })
    }

    /// The header's bytes. Addresses of two versions are written as IPv6, that of IPv4 mapped.
    pub fn emit(&self) -> [u8; LEN] {
        let both = (self.source.ip(), self.destination);
        let version: u8 = if matches!(both, (IpAddr::V4(_), IpAddr::V4(_))) {
            4
        } else {
            6
        };
        let octets = |ip: IpAddr| match ip {
            IpAddr::V4(ip) if version == 4 => u128::from(u32::from(ip)).to_be_bytes(),
            IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
            IpAddr::V6(ip) => ip.octets(),
        };
        let [high, low] = self.source.port().to_be_bytes();
        let mut bytes = [0; LEN];
        let (front, addresses) = bytes.split_at_mut(4);
        front.copy_from_slice(&[0, version << 4, high, low]);
        let (source, destination) = addresses.split_at_mut(16);
        source.copy_from_slice(&octets(both.0));
        destination.copy_from_slice(&octets(both.1));
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_written_and_read() {
        for (source, destination, version) in [
            ("10.0.0.1:7471", "10.0.0.2", 0x40),
            ("[fe80::1]:1", "fe80::2", 0x60),
        ] {
            let header = Header {
                source: source.parse().expect("an address"),
                destination: destination.parse().expect("an address"),
            };
            let bytes = header.emit();
            assert_eq!(bytes[1], version);
            assert_eq!(Header::parse(&bytes), Some(header));
            assert_eq!(Header::parse(&bytes[..35]), None, "too short");
            for (at, wrong) in [(0, 0x10), (1, 0x50)] {
                let mut bytes = bytes;
                bytes[at] = wrong;
                assert_eq!(Header::parse(&bytes), None, "byte {at}");
            }
        }
        // Linux, `cma_format_hdr`: 10.0.0.1 port 7471 to 10.0.0.2.
        let header = Header {
            source: "10.0.0.1:7471".parse().expect("an address"),
            destination: "10.0.0.2".parse().expect("an address"),
        };
        let bytes = header.emit();
        assert_eq!(bytes[..4], [0, 0x40, 0x1d, 0x2f]);
        assert_eq!(
            (bytes[4..16].iter().sum::<u8>(), &bytes[16..20]),
            (0, &[10, 0, 0, 1][..])
        );
        assert_eq!(
            (bytes[20..32].iter().sum::<u8>(), &bytes[32..]),
            (0, &[10, 0, 0, 2][..])
        );
        assert_eq!(service(7471), 0x0106_1d2f);
    }

    #[test]
    fn two_versions_are_written_as_the_later_one() {
        let header = Header {
            source: "10.0.0.1:1".parse().expect("an address"),
            destination: "fd00::2".parse().expect("an address"),
        };
        let read = Header::parse(&header.emit()).expect("a header");
        assert_eq!(read.source.to_string(), "[::ffff:10.0.0.1]:1");
        assert_eq!(read.destination.to_string(), "fd00::2");
    }
}
