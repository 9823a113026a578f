//! Prefixes of IP addresses (RFC 4632 section 3.1, RFC 4291 section 2.3). They are compared with GIDs, in which IPv4 addresses
//! are mapped: one comparison for both families.

use core::fmt;
use core::net::IpAddr;
use core::str::FromStr;

use crate::gid::Gid;

/// An address, or all addresses with the same first bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Prefix {
    address: u128,
    /// Bits that count, of 128.
    len: u8,
    ipv4: bool,
}

/// Why a text is no prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParsePrefixError {
    /// The text is not of the form `address` or `address/length`.
    #[error("not an IP address or prefix: expected for example 10.0.0.5, 10.0.1.0/24 or fd00::/64")]
    Form,
    /// The length is more bits than an address has.
    #[error("a prefix of this family has at most {0} bits")]
    Length(u8),
    /// Bits behind the prefix are set.
    #[error("the address has bits that are not in its prefix; the prefix is {0}")]
    Host(Prefix),
    /// The address is an IPv4 address that is mapped into an IPv6 address.
    #[error("a mapped IPv4 address: expected the IPv4 address itself")]
    Mapped,
}

impl Prefix {
    /// Whether an address has this prefix. Addresses of the other family never do.
    #[inline]
    pub fn contains(&self, gid: Gid) -> bool {
        let differs = (u128::from_be_bytes(gid.0) ^ self.address) & self.mask();
        differs == 0 && gid.to_ipv4().is_some() == self.ipv4
    }

    const fn mask(&self) -> u128 {
        match self.len {
            0 => 0,
            len => u128::MAX << (128 - len),
        }
    }
}

impl FromStr for Prefix {
    type Err = ParsePrefixError;

    fn from_str(text: &str) -> Result<Prefix, ParsePrefixError> {
        let (address, len) = match text.split_once('/') {
            Some((address, len)) => (address, Some(len)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| ParsePrefixError::Form)?;
        let (gid, most) = match address {
            IpAddr::V4(a) => (Gid::from_ipv4(a.octets()), 32),
            IpAddr::V6(a) if a.to_ipv4_mapped().is_some() => return Err(ParsePrefixError::Mapped),
            IpAddr::V6(a) => (Gid(a.octets()), 128),
        };
        let len = match len {
            // `parse` would take signs as well.
            Some(len) if !len.bytes().all(|b| b.is_ascii_digit()) => return Err(ParsePrefixError::Form),
            Some(len) => len.parse().map_err(|_| ParsePrefixError::Form)?,
            None => most,
        };
        if len > most {
            return Err(ParsePrefixError::Length(most));
        }
        let mut prefix = Prefix {
            address: u128::from_be_bytes(gid.0),
            len: 128 - most + len,
            ipv4: most == 32,
        };
        let all = prefix.address;
        prefix.address &= prefix.mask();
        if prefix.address != all {
            return Err(ParsePrefixError::Host(prefix));
        }
        Ok(prefix)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = Gid(self.address.to_be_bytes()).to_ip();
        let most = if self.ipv4 { 32 } else { 128 };
        match 128 - self.len {
            0 => write!(f, "{address}"),
            rest => write!(f, "{address}/{}", most - rest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    fn gid(text: &str) -> Gid {
        match text.parse().expect("an address") {
            IpAddr::V4(a) => Gid::from_ipv4(a.octets()),
            IpAddr::V6(a) => Gid(a.octets()),
        }
    }

    #[test]
    fn prefixes_contain_what_begins_like_them() {
        for (prefix, inside, outside) in [
            ("10.0.0.5", "10.0.0.5", "10.0.0.4"),
            ("10.0.1.0/24", "10.0.1.255", "10.0.2.0"),
            ("10.0.0.128/25", "10.0.0.200", "10.0.0.127"),
            ("0.0.0.0/0", "192.0.2.1", "2001:db8::1"),
            ("::/0", "2001:db8::1", "192.0.2.1"),
            ("fd00::/64", "fd00::1:2:3:4", "fd00:0:0:1::1"),
            ("2001:db8::5", "2001:db8::5", "2001:db8::4"),
        ] {
            let p: Prefix = prefix.parse().expect(prefix);
            assert!(p.contains(gid(inside)), "{inside} in {prefix}");
            assert!(!p.contains(gid(outside)), "{outside} in {prefix}");
            assert_eq!(p.to_string(), prefix);
        }
        let whole: Prefix = "10.0.0.5/32".parse().expect("a prefix");
        assert_eq!(whole.to_string(), "10.0.0.5");
    }

    #[test]
    fn other_texts_are_refused() {
        use ParsePrefixError::*;
        let host = "10.0.1.0/24".parse().expect("a prefix");
        for (text, error) in [
            ("", Form),
            ("10.0.0", Form),
            ("10.0.0.0/", Form),
            ("10.0.0.0/+8", Form),
            ("10.0.0.0/999", Form),
            ("10.0.0.0/8/8", Form),
            ("host", Form),
            ("10.0.0.0/33", Length(32)),
            ("fd00::/129", Length(128)),
            ("10.0.1.5/24", Host(host)),
            ("::ffff:10.0.0.5", Mapped),
        ] {
            assert_eq!(text.parse::<Prefix>(), Err(error), "{text}");
        }
    }
}
