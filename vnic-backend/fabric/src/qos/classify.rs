//! Priority of a frame.

use alloc::vec::Vec;

use vnic_wire::ipv4::{PROTOCOL_TCP, PROTOCOL_UDP};
use vnic_wire::qos::{Colour, PriorityRules, TagMaps, Trust};
use vnic_wire::{EtherType, checksum, ethernet, ipv4, ipv6};

use super::PRIORITIES;

/// Frames that a policy is about (`New-NetQosPolicy`; WinOF-2 Ethernet Network, Configuring QoS on the Host).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Match {
    /// Every frame that no other policy is about.
    Default,
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// TCP (6), UDP (17) or both (0), to one of these ports.
    DestinationPorts {
        /// Protocol: 6, 17, or 0 for both.
        protocol: u8,
        /// First port.
        first: u16,
        /// Last port.
        last: u16,
    },
    /// SMB over TCP: destination port 445.
    Smb,
    /// RDMA of the adapter's function.
    NetDirect,
    /// RDMA connections of the adapter's function that its communication management has made, for this port. A frame does not say
    /// which those are: the function marks them.
    NetDirectPort(u16),
}

/// A rule of the operator's for frames that an adapter sends. The first that matches counts; [`Match::Default`] comes last,
/// wherever it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Name of the policy.
    pub name: alloc::string::String,
    /// Frames that it is about.
    pub matches: Match,
    /// IEEE 802.1p priority that these frames get.
    pub priority: Option<u8>,
    /// DSCP that these packets get.
    pub dscp: Option<u8>,
}

/// How a port finds the priority of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Classification {
    /// What names the priority.
    pub priorities: PriorityRules,
    /// Priority by DSCP (`DscpToPriorityMappingTable_0..63`, register QPDPM).
    pub dscp_to_priority: [u8; 64],
    /// Colour by DSCP.
    pub dscp_to_colour: [Colour; 64],
    /// Priority and colour by a tag, and what is written into one.
    pub tags: TagMaps,
    /// Rules of the operator's for frames that are sent.
    pub policies: Vec<Policy>,
}

impl Default for Classification {
    fn default() -> Self {
        Classification {
            priorities: PriorityRules::default(),
            dscp_to_priority: Classification::STATIC_MAP,
            dscp_to_colour: [Colour::Green; 64],
            tags: TagMaps::default(),
            policies: Vec::new(),
        }
    }
}

/// The decision about a frame that an adapter sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Decision {
    /// Priority of the frame, 0..=7.
    pub priority: u8,
    /// Priority code point that a policy writes into the frame's tag.
    pub pcp: Option<u8>,
    /// DSCP that a policy writes into the frame's IP header.
    pub dscp: Option<u8>,
}

impl Classification {
    /// Priority by DSCP, eight values each (WinOF-2 Ethernet Network, Receive Trust State).
    pub const STATIC_MAP: [u8; 64] = {
        let mut map = [0; 64];
        let mut i = 0;
        while i < 64 {
            map[i] = (i / PRIORITIES) as u8;
            i += 1;
        }
        map
    };

    /// Whether frames have the priorities that they have while nothing is configured.
    pub fn is_plain(&self) -> bool {
        self.priorities == PriorityRules::default() && self.tags == TagMaps::default()
    }

    /// The priority of a received frame, 0..=7. `head`: at least its first 64 bytes, or all of it. The outer tag counts if
    /// the switch takes it for one: 0x8100, not 0x88a8 (IEEE 802.1Q table 9-1). The DSCP is that of the packet behind that
    /// tag.
    #[inline(always)]
    pub fn priority(&self, head: &[u8]) -> u8 {
        let (tci, at) = outer_tag(head);
        let rest = self.priorities.default_priority;
        let by_tag = || tci.map_or(rest, |tci| self.tags.priority_of(tci));
        let by_dscp = || dscp(head, at).and_then(|d| self.dscp_to_priority.get(usize::from(d)).copied());
        match self.priorities.trust {
            Trust::Port => rest,
            Trust::Pcp => by_tag(),
            Trust::Dscp => by_dscp().unwrap_or(rest),
            Trust::Both => by_dscp().unwrap_or_else(by_tag),
        }
    }

    /// The colour of a received frame, by the field that names its priority. `head`: as for [`priority`](Classification::priority).
    pub fn colour(&self, head: &[u8]) -> Colour {
        let (tci, at) = outer_tag(head);
        let by_tag = || tci.map_or(Colour::Green, |tci| self.tags.colour_of(tci));
        let by_dscp = || dscp(head, at).and_then(|d| self.dscp_to_colour.get(usize::from(d)).copied());
        match self.priorities.trust {
            Trust::Port => Colour::Green,
            Trust::Pcp => by_tag(),
            Trust::Dscp => by_dscp().unwrap_or_default(),
            Trust::Both => by_dscp().unwrap_or_else(by_tag),
        }
    }

    /// The decision about a frame that is sent: by the first policy that matches, otherwise by
    /// [`priority`](Classification::priority). `rdma`: the adapter's RDMA function sends it. `head`: as for `priority`; with
    /// policies, all headers of the frame.
    #[inline]
    pub fn decide(&self, head: &[u8], rdma: bool) -> Decision {
        if self.policies.is_empty() {
            return Decision {
                priority: self.priority(head),
                ..Decision::default()
            };
        }
        self.by_policy(head, rdma)
    }

    fn by_policy(&self, head: &[u8], rdma: bool) -> Decision {
        let packet = Packet::parse(head);
        let is_default = |p: &&Policy| p.matches == Match::Default;
        let matching = self.policies.iter().find(|p| p.matches.holds(&packet, rdma));
        let Some(policy) = matching.or_else(|| self.policies.iter().find(is_default)) else {
            return Decision {
                priority: self.priority(head),
                ..Decision::default()
            };
        };
        let dscp = policy.dscp.filter(|_| packet.network.is_some()).map(|d| d & 0x3f);
        let written = match (self.priorities.trust, dscp) {
            (Trust::Dscp | Trust::Both, Some(d)) => self.dscp_to_priority.get(usize::from(d)).copied(),
            _ => None,
        };
        let pcp = policy.priority.map(|p| p & 7);
        Decision {
            priority: pcp.or(written).unwrap_or_else(|| self.priority(head)),
            pcp: pcp.map(|p| self.tags.pcp_of(p)),
            dscp,
        }
    }
}

/// First byte of the outer tag's TCI, if there is a tag, and where the EtherType behind it is.
#[inline(always)]
fn outer_tag(head: &[u8]) -> (Option<u8>, usize) {
    match head.get(12..16) {
        Some([0x81, 0x00, tci, _]) => (Some(*tci), 16),
        _ => (None, 12),
    }
}

/// DSCP of the IP packet whose EtherType is at `at`.
#[inline(always)]
fn dscp(head: &[u8], at: usize) -> Option<u8> {
    Some(match head.get(at..at + 4)? {
        [0x08, 0x00, _, tos] => tos >> 2,
        [0x86, 0xdd, a, b] => (a << 4 | b >> 4) >> 2,
        _ => return None,
    })
}

impl Match {
    /// Whether a condition holds for a frame. [`Match::Default`] depends on the other policies and never does.
    fn holds(&self, packet: &Packet, rdma: bool) -> bool {
        let upper = packet.upper.filter(|_| !rdma);
        let is = |protocol| upper.is_some_and(|u| u.protocol == protocol);
        let port = upper.and_then(|u| u.destination);
        match *self {
            Match::Default | Match::NetDirectPort(_) => false,
            Match::Tcp => is(PROTOCOL_TCP),
            Match::Udp => is(PROTOCOL_UDP),
            Match::DestinationPorts {
                protocol,
                first,
                last,
            } => (protocol == 0 || is(protocol)) && port.is_some_and(|p| (first..=last).contains(&p)),
            Match::Smb => is(PROTOCOL_TCP) && port == Some(SMB_PORT),
            Match::NetDirect => rdma,
        }
    }
}

/// SMB over TCP (IANA).
const SMB_PORT: u16 = 445;

/// Fields that policies look at.
struct Packet {
    /// Offset of the IP header, and whether it is an IPv6 one.
    network: Option<(usize, bool)>,
    upper: Option<Upper>,
}

/// The layer above IP.
#[derive(Clone, Copy)]
struct Upper {
    protocol: u8,
    /// Destination port, of TCP and UDP. Fragments, also the first one, have none: all of a packet goes the same way.
    destination: Option<u16>,
}

impl Packet {
    fn parse(head: &[u8]) -> Packet {
        let mut packet = Packet {
            network: None,
            upper: None,
        };
        let Ok(link) = ethernet::payload(head) else {
            return packet;
        };
        let bytes = head.get(link.offset..).unwrap_or(&[]);
        let (protocol, offset, fragment) = match link.ethertype {
            EtherType::IPV4 => {
                let Ok(ip) = ipv4::Header::parse(bytes) else {
                    return packet;
                };
                packet.network = Some((link.offset, false));
                (ip.protocol, ip.header_len, ip.is_fragment())
            }
            EtherType::IPV6 => {
                let Ok(ip) = ipv6::Header::parse(bytes) else {
                    return packet;
                };
                packet.network = Some((link.offset, true));
                let Ok(upper) = ip.upper(bytes) else {
                    return packet;
                };
                (upper.protocol, upper.offset, upper.fragment)
            }
            _ => return packet,
        };
        let has_ports = !fragment && matches!(protocol, PROTOCOL_TCP | PROTOCOL_UDP);
        let destination = bytes.get(offset + 2..offset + 4).filter(|_| has_ports);
        packet.upper = Some(Upper {
            protocol,
            destination: destination.map(|b| u16::from_be_bytes([b[0], b[1]])),
        });
        packet
    }
}

impl Decision {
    /// Whether a policy writes anything into the frame.
    #[inline]
    pub fn rewrites(&self) -> bool {
        self.pcp.is_some() || self.dscp.is_some()
    }

    /// Writes the policy's values into the front of the frame: the priority into its own tag, if it has one, and the DSCP
    /// (RFC 2474; ECN stays) with the checksum of an IPv4 header (RFC 1624). `unfinished`: place of a checksum that is
    /// computed later.
    pub fn apply(&self, head: &mut [u8], unfinished: Option<usize>) {
        if let (Some(pcp), Some([0x81, 0x00, tci, _])) = (self.pcp, head.get_mut(12..16)) {
            *tci = *tci & 0x1f | (pcp & 7) << 5;
        }
        let (Some(dscp), Some((at, v6))) = (self.dscp, Packet::parse(head).network) else {
            return;
        };
        let Some([first, second]) = head.get_mut(at..at + 2) else {
            return;
        };
        if v6 {
            // Version 4 bits, traffic class 8, flow label 20 (RFC 8200 section 3).
            *first = *first & 0xf0 | dscp >> 2;
            *second = *second & 0x3f | dscp << 6;
            return;
        }
        let before = u16::from_be_bytes([*first, *second]);
        *second = *second & 3 | dscp << 2;
        let after = u16::from_be_bytes([*first, *second]);
        let field = at + 10;
        if unfinished == Some(field) {
            return;
        }
        if let Some(sum) = head.get_mut(field..field + 2) {
            let old = u16::from_be_bytes([sum[0], sum[1]]);
            let total = u32::from(!old) + u32::from(!before) + u32::from(after);
            sum.copy_from_slice(&(!checksum::fold(total)).to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests;
