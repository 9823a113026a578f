//! What RDMA CM puts in front of a program's private data in a REQ and a SIDR_REQ (IBTA volume 1, annex A11).
//!
//! ```text
//!  0  version (0)    1  IP version (4 bits)    2  source port
//!  4  source address: 16 bytes, of IPv4 the last four     20  destination address     36  private data of the program
//! ```

use std::net::{IpAddr, SocketAddr};

/// Bytes of the header.
pub const LEN: usize = 36;

/// Addresses that a request is between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Where it comes from.
    pub source: SocketAddr,
    /// Whom it is for; the service has the port.
    pub destination: IpAddr,
}

impl Header {
    /// Reads the header. `None`: there is none.
    pub fn read(bytes: &[u8]) -> Option<Header> {
        let bytes: &[u8; LEN] = bytes.first_chunk()?;
        let word = |at: usize| bytes.get(at..)?.first_chunk::<16>().copied();
        let (source, destination) = (word(4)?, word(20)?);
        let last = |all: [u8; 16]| all.last_chunk::<4>().map(|four| IpAddr::from(*four));
        let (source, destination) = match (bytes[0] >> 4, bytes[1] >> 4) {
            (0, 4) => (last(source)?, last(destination)?),
            (0, 6) => (IpAddr::from(source), IpAddr::from(destination)),
            _ => return None,
        };
        let port = u16::from_be_bytes([bytes[2], bytes[3]]);
        Some(Header {
            source: SocketAddr::new(source, port),
            destination,
        })
    }

    /// The header's bytes. Both addresses are of one version: else that of IPv4 is written as a mapped one.
    pub fn write(&self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        let four = matches!(
            (self.source.ip(), self.destination),
            (IpAddr::V4(_), IpAddr::V4(_))
        );
        bytes[1] = if four { 4 << 4 } else { 6 << 4 };
        bytes[2..4].copy_from_slice(&self.source.port().to_be_bytes());
        let octets = |ip: IpAddr| match ip {
            IpAddr::V4(ip) if four => {
                let mut all = [0; 16];
                all[12..].copy_from_slice(&ip.octets());
                all
            }
            IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
            IpAddr::V6(ip) => ip.octets(),
        };
        bytes[4..20].copy_from_slice(&octets(self.source.ip()));
        bytes[20..].copy_from_slice(&octets(self.destination));
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(source: &str, destination: &str) -> Header {
        Header {
            source: source.parse().expect("an address"),
            destination: destination.parse().expect("an address"),
        }
    }

    #[test]
    fn it_is_laid_out_as_the_annex_says() {
        let bytes = header("10.1.2.3:258", "10.1.2.4").write();
        assert_eq!(bytes[..4], [0, 0x40, 1, 2]);
        assert_eq!(bytes[4..20], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10, 1, 2, 3]);
        assert_eq!(bytes[32..], [10, 1, 2, 4]);
    }

    #[test]
    fn what_is_written_is_read() {
        for header in [
            header("10.1.2.3:1", "10.1.2.4"),
            header("[fe80::1]:65535", "fe80::2"),
        ] {
            assert_eq!(Header::read(&header.write()), Some(header));
        }
        let mixed = header("10.1.2.3:1", "fe80::2").write();
        let read = Header::read(&mixed).expect("a header");
        assert_eq!(read.source.ip().to_string(), "::ffff:10.1.2.3");
    }

    #[test]
    fn what_is_none_is_none() {
        assert_eq!(Header::read(&[0; 35]), None);
        assert_eq!(Header::read(&[0; 36]), None, "no IP version");
        let mut later = header("10.1.2.3:1", "10.1.2.4").write();
        later[0] = 0x10;
        assert_eq!(Header::read(&later), None, "another major version");
    }
}
