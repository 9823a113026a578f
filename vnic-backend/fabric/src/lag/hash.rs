//! Transmit hash policies, as the Linux bonding driver documents them (`Documentation/networking/bonding.rst`,
//! `xmit_hash_policy`), so that a Linux machine, or a sheet of paper, can tell which port a flow takes.
//!
//! ```text
//!  layer2       source MAC[5] XOR destination MAC[5] XOR EtherType
//!  layer2+3     that, XOR source IP, XOR destination IP; h ^= h >> 16; h ^= h >> 8
//!  layer3+4     source and destination port as in the header, XOR source IP, XOR destination IP;
//!               h ^= h >> 16; h ^= h >> 8; h >>= 1
//!  five-tuple   as layer3+4, XOR protocol, of the innermost packet of a tunnel
//! ```
//!
//! The member is the hash modulo the number of members. Without IP all policies are layer2; without ports (fragments, other
//! protocols) the ports count as 0. An IPv6 address is the XOR of its four words. Words are as a little-endian machine reads
//! them from the packet, as on Linux's x86-64 and arm64; the EtherType is the number, as since Linux 5.15. RoCEv2 is UDP:
//! with layer3+4 its queue pairs spread by their UDP source ports. RoCEv1 is not IP: all its frames between two addresses go
//! one way.
//!
//! Linux's text leaves three points open, which are so here: the EtherType is the one behind VLAN tags (a tag that the switch
//! adds or takes away moves no flow); extension headers of IPv6 are walked over; ICMP has no ports (the driver takes the
//! identifier of an echo). `five-tuple` is Linux's `encap3+4` with the protocol, and looks into UDP tunnels, too.

use core::net::IpAddr;
use core::str::FromStr;

use super::{Flow, LagError, Packet};

vnic_wire::named! {
    /// Fields of a flow that decide about its port.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub enum Policy {
        /// MAC addresses and EtherType: all frames between two neighbours go one way.
        Layer2 => "layer2",
        /// MAC and IP addresses.
        Layer23 => "layer2+3",
        /// IP addresses and ports.
        Layer34 => "layer3+4",
        /// IP addresses, ports and protocol, of the innermost packet of a tunnel, as VF LAG's cards hash.
        #[default]
        FiveTuple => "five-tuple",
    }
}

impl Policy {
    /// The hash of a flow.
    #[inline]
    pub fn hash(self, flow: &Flow) -> u32 {
        let packet = match self {
            Policy::Layer2 => None,
            Policy::Layer23 | Policy::Layer34 => flow.packet.as_ref(),
            Policy::FiveTuple => flow.innermost(),
        };
        let Some(packet) = packet else {
            return layer2(flow);
        };
        match self {
            Policy::Layer2 | Policy::Layer23 => fold(layer2(flow) ^ addresses(packet)),
            Policy::Layer34 => fold(ports(packet) ^ addresses(packet)) >> 1,
            Policy::FiveTuple => fold(ports(packet) ^ addresses(packet) ^ u32::from(packet.protocol)) >> 1,
        }
    }
}

impl FromStr for Policy {
    type Err = LagError;

    fn from_str(s: &str) -> Result<Policy, LagError> {
        let named = Policy::ALL.into_iter().find(|p| p.name() == s);
        named.ok_or_else(|| {
            let allowed = Policy::ALL.map(Policy::name).join(", ");
            LagError::new("hash_policy", alloc::format!("\"{s}\"; allowed: {allowed}"))
        })
    }
}

#[inline]
fn layer2(flow: &Flow) -> u32 {
    u32::from(flow.destination.0[5] ^ flow.source.0[5]) ^ u32::from(flow.ethertype.0)
}

#[inline]
fn addresses(packet: &Packet) -> u32 {
    word(&packet.source) ^ word(&packet.destination)
}

#[inline]
fn word(address: &IpAddr) -> u32 {
    match address {
        IpAddr::V4(a) => u32::from_le_bytes(a.octets()),
        IpAddr::V6(a) => {
            let all = u128::from_le_bytes(a.octets());
            let half = (all >> 64) as u64 ^ all as u64;
            (half >> 32) as u32 ^ half as u32
        }
    }
}

#[inline]
fn ports(packet: &Packet) -> u32 {
    packet.ports.map_or(0, |p| {
        u32::from(p.source.swap_bytes()) | u32::from(p.destination.swap_bytes()) << 16
    })
}

#[inline]
fn fold(mut hash: u32) -> u32 {
    hash ^= hash >> 16;
    hash ^ hash >> 8
}

/// Remainders of a divisor that does not change, by two multiplications (D. Lemire, O. Kaser, N. Kurz, "Faster remainder by
/// direct computation", Software: Practice and Experience 49 (2019): exact for all 32-bit numbers).
#[derive(Debug, Clone, Copy)]
pub(super) struct Modulo {
    divisor: u32,
    /// 2^64 / divisor, rounded up; 0 if the divisor is 1.
    inverse: u64,
}

impl Modulo {
    /// Remainders of `divisor`; 0 counts as 1.
    pub(super) const fn new(divisor: u32) -> Modulo {
        let divisor = if divisor == 0 { 1 } else { divisor };
        Modulo {
            divisor,
            inverse: (u64::MAX / divisor as u64).wrapping_add(1),
        }
    }

    #[inline]
    pub(super) const fn divisor(self) -> u32 {
        self.divisor
    }

    #[inline]
    pub(super) const fn of(self, number: u32) -> u32 {
        let fraction = self.inverse.wrapping_mul(number as u64);
        ((fraction as u128 * self.divisor as u128) >> 64) as u32
    }
}

#[cfg(test)]
pub(super) mod tests;
