//! Ethernet II header (IEEE 802.3 clause 3): destination, source, EtherType.

use core::fmt;
use core::str::FromStr;

use crate::{Error, be16};

/// Bytes of the header: two addresses and the EtherType.
pub const HEADER_LEN: usize = 14;

/// Shortest frame on the wire without its FCS (IEEE 802.3 clause 4.4.2); shorter ones are padded.
pub const FRAME_MIN: usize = 60;

/// What a frame carries (IEEE 802 clause 9.2; values assigned by the IEEE Registration Authority). Below
/// 0x0600 it is a length instead.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct EtherType(pub u16);

impl EtherType {
    /// IPv4 (RFC 894).
    pub const IPV4: EtherType = EtherType(0x0800);
    /// ARP (RFC 826).
    pub const ARP: EtherType = EtherType(0x0806);
    /// Reverse ARP (RFC 903).
    pub const RARP: EtherType = EtherType(0x8035);
    /// Customer VLAN tag (IEEE 802.1Q table 9-1).
    pub const VLAN: EtherType = EtherType(0x8100);
    /// IPv6 (RFC 2464).
    pub const IPV6: EtherType = EtherType(0x86dd);
    /// An Ethernet frame inside a tunnel: NVGRE (RFC 7637 section 3.2), GENEVE (RFC 8926 section 3.4).
    pub const TRANSPARENT_ETHERNET: EtherType = EtherType(0x6558);
    /// MAC control: PAUSE and PFC (IEEE 802.3 annex 31A).
    pub const MAC_CONTROL: EtherType = EtherType(0x8808);
    /// Slow protocols: LACP and marker (IEEE 802.3 annex 57A).
    pub const SLOW_PROTOCOLS: EtherType = EtherType(0x8809);
    /// Link layer discovery (IEEE 802.1AB-2016 clause 7.3).
    pub const LLDP: EtherType = EtherType(0x88cc);
    /// RoCEv1: a GRH follows (IBTA vol 1 annex A16).
    pub const ROCE: EtherType = EtherType(0x8915);
    /// Service VLAN tag (IEEE 802.1Q table 9-1).
    pub const SERVICE_VLAN: EtherType = EtherType(0x88a8);

    /// Either kind of VLAN tag.
    #[inline]
    pub const fn is_vlan(self) -> bool {
        matches!(self, EtherType::VLAN | EtherType::SERVICE_VLAN)
    }
}

impl fmt::Debug for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#06x}", self.0)
    }
}

/// An Ethernet II header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Destination address.
    pub destination: MacAddr,
    /// Source address.
    pub source: MacAddr,
    /// What follows.
    pub ethertype: EtherType,
}

impl Header {
    /// Reads the header from the front of a frame.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Header, Error> {
        let b: &[u8; HEADER_LEN] = bytes.first_chunk().ok_or(Error::Truncated)?;
        Ok(Header {
            destination: MacAddr([b[0], b[1], b[2], b[3], b[4], b[5]]),
            source: MacAddr([b[6], b[7], b[8], b[9], b[10], b[11]]),
            ethertype: EtherType(be16(b, 12)),
        })
    }

    /// The header's bytes.
    #[inline]
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        let mut b = [0; HEADER_LEN];
        b[..6].copy_from_slice(&self.destination.0);
        b[6..12].copy_from_slice(&self.source.0);
        b[12..].copy_from_slice(&self.ethertype.0.to_be_bytes());
        b
    }
}

/// Where the payload of a frame begins behind its VLAN tags, and what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Payload {
    /// Offset in the frame.
    pub offset: usize,
    /// EtherType of the payload.
    pub ethertype: EtherType,
}

/// Skips the Ethernet header and up to two VLAN tags (IEEE 802.1Q clause 9). A third tag is reported as the payload.
#[inline]
pub fn payload(frame: &[u8]) -> Result<Payload, Error> {
    let mut offset = HEADER_LEN;
    let mut ethertype = Header::parse(frame)?.ethertype;
    for _ in 0..2 {
        if !ethertype.is_vlan() {
            break;
        }
        let tag = crate::vlan::Header::parse(frame.get(offset..).unwrap_or(&[]))?;
        ethertype = tag.ethertype;
        offset += crate::vlan::HEADER_LEN;
    }
    Ok(Payload { offset, ethertype })
}

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
