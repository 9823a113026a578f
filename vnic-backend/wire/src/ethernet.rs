//! Ethernet II header (IEEE 802.3 clause 3): destination, source, EtherType.

use core::fmt;
use core::str::FromStr;

/// A 48-bit MAC address (IEEE 802 clause 8).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// `ff:ff:ff:ff:ff:ff`.
    pub const BROADCAST: MacAddr = MacAddr([0xff; 6]);

    /// True for group addresses, broadcast included (I/G bit).
    pub const fn is_multicast(&self) -> bool {
        self.0[0] & 1 != 0
    }

    /// The address as a number below 2^48, first byte on top.
    #[inline]
    pub const fn to_u64(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_be_bytes([0, 0, a, b, c, d, e, f])
    }

    /// The address in the low 48 bits of `v`; the rest is ignored.
    #[inline]
    pub const fn from_u64(v: u64) -> MacAddr {
        let [_, _, a, b, c, d, e, f] = v.to_be_bytes();
        MacAddr([a, b, c, d, e, f])
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why a text is not a MAC address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a MAC address: expected six hexadecimal bytes such as 02:00:5e:00:00:01 or 02-00-5E-00-00-01")]
pub struct ParseMacError;

impl FromStr for MacAddr {
    type Err = ParseMacError;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let sep = if s.contains('-') { '-' } else { ':' };
        let mut out = [0u8; 6];
        let mut parts = s.split(sep);
        for byte in &mut out {
            let part = parts.next().ok_or(ParseMacError)?;
            if part.len() != 2 || !part.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(ParseMacError);
            }
            *byte = u8::from_str_radix(part, 16).map_err(|_| ParseMacError)?;
        }
        if parts.next().is_some() {
            Err(ParseMacError)
        } else {
            Ok(MacAddr(out))
        }
    }
}
