//! Global identifiers (IBTA vol 1 section 4.1.1; annex A17 for their meaning in RoCEv2): IPv6 addresses, or IPv4
//! addresses mapped into them (RFC 4291 section 2.5.5.2).

use core::fmt;
use core::net::{IpAddr, Ipv6Addr};
use core::str::FromStr;

use crate::MacAddr;

/// A global identifier, in network order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Gid(pub [u8; 16]);

/// Prefix of IPv4-mapped identifiers.
const MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

impl From<Ipv6Addr> for Gid {
    fn from(address: Ipv6Addr) -> Gid {
        Gid(address.octets())
    }
}

impl Gid {
    /// `::`, which is no identifier.
    pub const UNSPECIFIED: Gid = Gid([0; 16]);

    /// The identifier of an IPv4 address, `::ffff:a.b.c.d`.
    #[inline]
    pub const fn from_ipv4([a, b, c, d]: [u8; 4]) -> Gid {
        Gid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d])
    }

    /// The link-local identifier of a port with this address: `fe80::/64` and the modified EUI-64 (RFC 4291
    /// appendix A).
    #[inline]
    pub const fn from_mac(mac: MacAddr) -> Gid {
        let [a, b, c, d, e, f] = mac.0;
        Gid([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
    }

    /// The IPv4 address that is mapped into the identifier.
    #[inline]
    pub fn to_ipv4(self) -> Option<[u8; 4]> {
        let (prefix, address) = self.0.split_last_chunk::<4>()?;
        (prefix == MAPPED).then_some(*address)
    }

    /// The identifier as an IP address.
    pub fn to_ip(self) -> IpAddr {
        match self.to_ipv4() {
            Some(a) => IpAddr::from(a),
            None => IpAddr::from(self.0),
        }
    }

    /// A multicast group: `ff00::/8` (RFC 4291 section 2.7) or a mapped address out of 224.0.0.0/4 (RFC 5771).
    #[inline]
    pub fn is_multicast(self) -> bool {
        self.0[0] == 0xff || self.to_ipv4().is_some_and(|a| a[0] >> 4 == 0xe)
    }

    /// The Ethernet group address of a multicast group: `01:00:5e` and 23 bits of an IPv4 address (RFC 1112
    /// section 6.4), `33:33` and 32 bits of an IPv6 address (RFC 2464 section 7). `None` if it is no multicast
    /// group.
    pub fn multicast_mac(self) -> Option<MacAddr> {
        if !self.is_multicast() {
            return None;
        }
        let [.., a, b, c, d] = self.0;
        Some(MacAddr(match self.to_ipv4() {
            Some(_) => [0x01, 0x00, 0x5e, b & 0x7f, c, d],
            None => [0x33, 0x33, a, b, c, d],
        }))
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Ipv6Addr::from(self.0), f)
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why a text is not a GID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a GID: expected an IPv6 address such as fe80::5054:ff:fe00:1 or ::ffff:10.0.0.1")]
pub struct ParseGidError;

impl FromStr for Gid {
    type Err = ParseGidError;

    fn from_str(s: &str) -> Result<Gid, ParseGidError> {
        let address: Ipv6Addr = s.parse().map_err(|_| ParseGidError)?;
        Ok(Gid(address.octets()))
    }
}
