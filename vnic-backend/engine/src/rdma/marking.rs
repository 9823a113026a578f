//! How packets of an adapter are marked, and which priority its queue pairs have: traffic class, DSCP, priority code point
//! (WinOF-2 Ethernet Network, DSCP Based QoS: RDMA; MLNX_OFED Documentation, Quality of Service).
//!
//! ```text
//!  traffic class ─▶ ToS byte ─▶ DSCP ─▶ priority        (believed: DSCP)
//!  service level ─▶ code point of the tag ─▶ priority   (believed: code point)
//!  its fourth bit ─▶ drop eligible indicator of the tag
//! ```
//!
//! A queue pair is marked when it gets its path, an address handle when it is made, and all of them again when the rules
//! change; packets carry the marks of their path.

use alloc::vec::Vec;

use vnic_wire::EtherType;
use vnic_wire::cm::{PortSpace, ServiceId};
use vnic_wire::qos::{MarkRules, PriorityRules, TagMaps, Trust};
use vnic_wire::roce::{Ecn, Network, Path};
use vnic_wire::vlan::{self, Tci};

use super::types::AddressVector;

/// What an operator's policy gives to packets (`New-NetQosPolicy -NetDirect`, `-NetDirectPortMatchCondition`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MarkPolicy {
    /// About queue pairs whose connection is for this port; `None`: about all packets.
    pub port: Option<u16>,
    /// Priority that they get.
    pub priority: Option<u8>,
    /// DSCP that they get.
    pub dscp: Option<u8>,
}

/// The port that a connection's service is made of, for policies: of RDMA CM's TCP and UDP ports; 0: none.
pub fn policy_port(service: ServiceId) -> u16 {
    match service.port() {
        Some((PortSpace::Tcp | PortSpace::Udp, port)) => port,
        _ => 0,
    }
}

/// Rules by which packets get their DSCP and queue pairs their priority.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marking {
    /// What names the priority: nothing (the default priority); the service level, which is the priority code point if the
    /// packet has a tag; the DSCP, the upper six bits of the traffic class (RoCE v1 has none: the default priority); the DSCP
    /// of RoCE v2, otherwise the service level.
    pub priorities: PriorityRules,
    /// Priority by DSCP.
    pub dscp_to_priority: [u8; 64],
    /// Priority by a tag, and what is written into one.
    pub tags: TagMaps,
    /// DSCP by priority, written with `marks.dscp_by_priority`, and if the DSCP names the priority and only a service level is
    /// given.
    pub priority_to_dscp: [u8; 8],
    /// Priorities, a bit each, whose DSCP of that map was named for RDMA (`RroceDscpMarkPriorityFlowControl`): packets to which a
    /// policy gives such a priority have it, whatever names the priority elsewhere.
    pub named_dscp: u8,
    /// The DSCP beside that map.
    pub marks: MarkRules,
    /// Traffic class of all packets, whatever queue pairs and address handles say.
    pub forced_traffic_class: Option<u8>,
    /// Policies of the operator's: the first that is about a packet counts.
    pub policies: Vec<MarkPolicy>,
}

impl Default for Marking {
    fn default() -> Self {
        Marking {
            priorities: PriorityRules::default(),
            dscp_to_priority: core::array::from_fn(|i| (i / 8) as u8),
            tags: TagMaps::default(),
            priority_to_dscp: [0, 1, 2, 3, 4, 5, 6, 7],
            named_dscp: 0,
            marks: MarkRules::default(),
            forced_traffic_class: None,
            policies: Vec::new(),
        }
    }
}

/// Marks of packets to an address, and their priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marked {
    /// ToS byte or traffic class: DSCP, and ECN in the lower two bits.
    pub traffic_class: u8,
    /// Priority code point of the tag, if there is one.
    pub pcp: u8,
    /// Whether the tag says that the packet is drop eligible: of service levels 8..=15, which have the priority of 0..=7.
    pub dei: bool,
    /// Priority, 0..=7.
    pub priority: u8,
}

/// The tag of packets without a VLAN whose service level is in no other place: a priority tag.
const UPPER: vlan::Header = vlan::Header {
    tci: Tci(0),
    ethertype: EtherType(0),
};
/// Bits of a traffic class that are ECN (RFC 3168).
const ECN: u8 = 3;

impl Marking {
    fn by_dscp(&self, dscp: u8) -> u8 {
        self.dscp_to_priority[usize::from(dscp & 63)] & 7
    }

    fn dscp_of(&self, priority: u8) -> u8 {
        self.priority_to_dscp[usize::from(priority & 7)] & 63
    }

    /// Priority and DSCP of the policy that is about a queue pair whose connection is for a port, or (0) for none.
    fn policy(&self, port: u16) -> (Option<u8>, Option<u8>) {
        let about = |p: &&MarkPolicy| p.port.is_none_or(|its| its == port);
        let policy = self.policies.iter().find(about);
        policy.map_or((None, None), |p| (p.priority, p.dscp))
    }

    /// Marks for a traffic class and a service level, of a queue pair whose connection is for a port, or (0) for none. `ip`: RoCE v2;
    /// `tagged`: packets have a VLAN tag.
    pub fn mark(&self, port: u16, traffic_class: u8, service_level: u8, ip: bool, tagged: bool) -> Marked {
        let (policy_priority, policy_dscp) = self.policy(port);
        let level = self.tags.level_of(traffic_class, service_level);
        let ecn = traffic_class & ECN;
        let by_dscp = ip && matches!(self.priorities.trust, Trust::Dscp | Trust::Both);
        let by_level = match self.priorities.trust {
            Trust::Pcp | Trust::Both if tagged || level > 0 => level & 7,
            _ => self.priorities.default_priority & 7,
        };
        let marked = |traffic_class, level, priority| Marked {
            traffic_class,
            pcp: self.tags.pcp_of(level),
            dei: level > 7,
            priority,
        };
        // A value of the operator's for the whole port wins (as MLNX_OFED's `tc/1/traffic_class` does).
        if let Some(forced) = self.forced_traffic_class {
            let priority = match policy_priority {
                _ if by_dscp => self.by_dscp(forced >> 2),
                Some(priority) => priority & 7,
                None => by_level,
            };
            return marked(forced, policy_priority.map_or(level, |p| p & 7), priority);
        }
        if policy_priority.is_some() || policy_dscp.is_some() {
            let priority = match (policy_priority, policy_dscp) {
                (Some(priority), _) => priority & 7,
                (None, Some(dscp)) if by_dscp => self.by_dscp(dscp),
                (None, _) => by_level,
            };
            let named = policy_priority.is_some() && self.named_dscp >> priority & 1 == 1;
            let class = match policy_dscp {
                Some(dscp) => (dscp & 63) << 2 | ecn,
                None if by_dscp || self.marks.dscp_by_priority || named => self.dscp_of(priority) << 2 | ecn,
                None => traffic_class,
            };
            return marked(class, policy_priority.map_or(level, |p| p & 7), priority);
        }
        if !by_dscp {
            let class = if self.marks.dscp_by_priority {
                self.dscp_of(by_level) << 2 | ecn
            } else {
                traffic_class
            };
            return marked(class, level, by_level);
        }
        let asked = traffic_class >> 2;
        let dscp = match (asked, level) {
            (0, 0) => {
                return marked(
                    (self.marks.default_dscp & 63) << 2 | ecn,
                    0,
                    self.by_dscp(self.marks.default_dscp),
                );
            }
            (0, _) => self.dscp_of(level),
            _ => asked,
        };
        let priority = self.by_dscp(dscp);
        let dscp = if self.marks.dscp_by_priority {
            self.dscp_of(if asked == 0 { level } else { priority })
        } else {
            dscp
        };
        marked(dscp << 2 | ecn, level, priority)
    }

    /// Marks the packets of a path to an address, and returns their priority. `port`: as for [`mark`](Marking::mark). `reaction`: priorities whose senders react to
    /// marks of the network, a bit each. Their packets say so (RFC 3168: ECT(0)) unless the address has an ECN field of its
    /// own, or the operator has named the whole byte.
    pub(super) fn apply(&self, path: &mut Path, address: &AddressVector, port: u16, reaction: u8) -> u8 {
        let ip = !matches!(path.network, Network::V1 { .. });
        // (A tag of VLAN 0 is from here, and has been for a service level that may be another one now.)
        path.vlan = path.vlan.filter(|tag| tag.tci.vid() != 0);
        let marked = self.mark(
            port,
            address.traffic_class,
            address.service_level,
            ip,
            path.vlan.is_some(),
        );
        if marked.dei && path.vlan.is_none() && self.priorities.trust == Trust::Pcp {
            path.vlan = Some(UPPER);
        }
        let reacts = reaction >> (marked.priority & 7) & 1 == 1;
        let says_nothing = marked.traffic_class & ECN == 0 && self.forced_traffic_class.is_none();
        let ecn = if ip && reacts && says_nothing {
            Ecn::Ect0 as u8
        } else {
            0
        };
        path.network.set_traffic_class(marked.traffic_class | ecn);
        if let Some(tag) = &mut path.vlan {
            tag.tci = Tci::new(marked.pcp, marked.dei, tag.tci.vid());
        }
        marked.priority
    }

    /// Whether a packet without a tag may have another priority than 0.
    pub(super) fn sorts(&self) -> bool {
        self.priorities.trust != Trust::Pcp || self.priorities.default_priority != 0
    }

    /// The priority of a packet that came.
    pub(super) fn received(&self, path: &Path) -> u8 {
        let by_tag = || {
            path.vlan.map_or(self.priorities.default_priority, |tag| {
                self.tags.priority_of((tag.tci.0 >> 8) as u8)
            })
        };
        let ip = !matches!(path.network, Network::V1 { .. });
        match self.priorities.trust {
            Trust::Pcp => by_tag(),
            Trust::Port => self.priorities.default_priority,
            Trust::Dscp | Trust::Both if ip => self.by_dscp(path.network.traffic_class() >> 2),
            Trust::Dscp => self.priorities.default_priority,
            Trust::Both => by_tag(),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn about(port: Option<u16>, priority: Option<u8>, dscp: Option<u8>) -> MarkPolicy {
        MarkPolicy { port, priority, dscp }
    }

    fn by(trust: Trust) -> Marking {
        Marking {
            priorities: trust.into(),
            ..Marking::default()
        }
    }

    /// Traffic class and priority.
    fn two(marking: &Marking, class: u8, level: u8) -> (u8, u8) {
        let marked = marking.mark(0, class, level, true, false);
        (marked.traffic_class, marked.priority)
    }

    /// 32 traffic classes are 8 DSCPs are one priority, as mlnx_qos shows it.
    #[test]
    fn every_traffic_class_in_every_trust() {
        for class in 0..=255u8 {
            assert_eq!(two(&by(Trust::Port), class, 5), (class, 0));
            for level in 0..8 {
                assert_eq!(two(&by(Trust::Pcp), class, level), (class, level));
                for trust in [Trust::Dscp, Trust::Both] {
                    let wanted = match (class >> 2, level) {
                        (0, 0) => (26 << 2 | class & 3, 3),
                        (0, _) => (level << 2 | class & 3, 0),
                        _ => (class, class / 32),
                    };
                    assert_eq!(two(&by(trust), class, level), wanted, "{class} {level}");
                    // RoCE v1 has no DSCP.
                    let v1 = by(trust).mark(0, class, level, false, true);
                    let priority = if trust == Trust::Both { level } else { 0 };
                    assert_eq!((v1.traffic_class, v1.pcp, v1.priority), (class, level, priority));
                }
            }
        }
        assert_eq!(two(&by(Trust::Dscp), 106, 0), (106, 3));
    }

    /// A service level is written as its code point, and read as the priority of that code point and DEI.
    /// All sockets' priorities are 4, as in MLNX_OFED's example; a program that names a service level keeps it.
    #[test]
    fn socket_priorities_go_by_their_map() {
        let mut marking = by(Trust::Pcp);
        marking.tags.by_socket = Some([4; 16]);
        for (class, level, wanted) in [(0, 0, 4), (106, 0, 4), (0, 3, 3)] {
            let marked = marking.mark(0, class, level, true, true);
            assert_eq!(
                (marked.traffic_class, marked.pcp, marked.priority),
                (class, wanted, wanted)
            );
        }
    }

    #[test]
    fn code_points_go_by_the_maps() {
        let mut marking = by(Trust::Pcp);
        marking.tags.pcp[3] = 5;
        marking.tags.priority[2 * 5] = 3;
        marking.tags.priority[2 * 5 + 1] = 0;
        let marked = marking.mark(0, 0, 3, true, true);
        assert_eq!((marked.pcp, marked.priority), (5, 3));
        let (policy, mut of_policy) = (about(None, Some(3), None), marking.clone());
        of_policy.policies = vec![policy];
        assert_eq!(of_policy.mark(0, 0, 1, true, true).pcp, 5);
    }

    #[test]
    fn what_says_nothing_has_the_default_priority() {
        let marking = Marking {
            priorities: PriorityRules {
                default_priority: 2,
                ..PriorityRules::default()
            },
            ..Marking::default()
        };
        assert_eq!(two(&marking, 0, 0).1, 2);
        assert_eq!(marking.mark(0, 0, 0, true, true).priority, 0, "the tag says 0");
        assert_eq!(two(&marking, 0, 4).1, 4);
    }

    #[test]
    fn a_forced_traffic_class_is_over_everything() {
        for trust in [Trust::Port, Trust::Pcp, Trust::Dscp, Trust::Both] {
            let marking = Marking {
                forced_traffic_class: Some(106),
                policies: vec![about(None, None, Some(1))],
                marks: MarkRules {
                    dscp_by_priority: true,
                    ..MarkRules::default()
                },
                ..by(trust)
            };
            for class in 0..=255 {
                let (got, priority) = two(&marking, class, 6);
                let wanted = match trust {
                    Trust::Port => 0,
                    Trust::Pcp => 6,
                    Trust::Dscp | Trust::Both => 3,
                };
                assert_eq!((got, priority), (106, wanted), "{trust:?} {class}");
            }
        }
    }

    #[test]
    fn policies_name_priority_and_dscp() {
        let policy = |trust, priority, dscp| Marking {
            policies: vec![about(None, priority, dscp)],
            ..by(trust)
        };
        assert_eq!(two(&policy(Trust::Pcp, Some(4), None), 9, 1), (9, 4));
        assert_eq!(two(&policy(Trust::Dscp, Some(4), None), 9, 1), (4 << 2 | 1, 4));
        assert_eq!(
            two(&policy(Trust::Dscp, Some(4), Some(46)), 9, 1),
            (46 << 2 | 1, 4)
        );
        assert_eq!(two(&policy(Trust::Dscp, None, Some(46)), 9, 1), (46 << 2 | 1, 5));
        assert_eq!(two(&policy(Trust::Pcp, None, Some(46)), 9, 1), (46 << 2 | 1, 1));
        let tagged = policy(Trust::Pcp, Some(4), None).mark(0, 0, 1, true, true);
        assert_eq!(tagged.pcp, 4);
    }

    /// "The NIC uses a mapping table between the CoS value and the DSCP value" (WinOF-2, Setting the DSCP in the IP Header), in
    /// whatever trust.
    #[test]
    fn the_priority_of_a_policy_has_the_dscp_that_was_named_for_it() {
        let marking = |trust, priority, dscp| Marking {
            policies: vec![about(None, priority, dscp)],
            priority_to_dscp: [8, 9, 10, 30, 12, 13, 14, 15],
            named_dscp: 1 << 3,
            ..by(trust)
        };
        for trust in [Trust::Port, Trust::Pcp] {
            assert_eq!(two(&marking(trust, Some(3), None), 9, 1), (30 << 2 | 1, 3));
            assert_eq!(two(&marking(trust, Some(3), Some(46)), 9, 1), (46 << 2 | 1, 3));
            assert_eq!(
                two(&marking(trust, Some(2), None), 9, 1),
                (9, 2),
                "nothing was named"
            );
        }
        // A service level is no class that the operator has programmed.
        let alone = Marking {
            policies: Vec::new(),
            ..marking(Trust::Pcp, None, None)
        };
        assert_eq!(two(&alone, 9, 3), (9, 3));
    }

    #[test]
    fn policies_by_port_are_about_connections_for_it() {
        let marking = Marking {
            policies: vec![
                about(Some(445), Some(3), None),
                about(Some(10_000), None, Some(46)),
                about(None, Some(1), None),
                about(Some(20_000), Some(7), None),
            ],
            ..by(Trust::Dscp)
        };
        let of = |port| {
            let marked = marking.mark(port, 9, 1, true, false);
            (marked.traffic_class, marked.priority)
        };
        assert_eq!(of(445), (3 << 2 | 1, 3));
        assert_eq!(of(10_000), (46 << 2 | 1, 5), "the priority of its DSCP");
        assert_eq!(
            [of(0), of(4450), of(20_000)],
            [(1 << 2 | 1, 1); 3],
            "the first that is about it"
        );
    }

    #[test]
    fn ports_of_services() {
        for (space, port) in [
            (PortSpace::Tcp, 445),
            (PortSpace::Udp, 445),
            (PortSpace::Ib, 0),
            (PortSpace::Ipoib, 0),
        ] {
            assert_eq!(policy_port(ServiceId::of_port(space, 445)), port, "{space}");
        }
        assert_eq!(policy_port(ServiceId(445)), 0);
    }

    #[test]
    fn the_dscp_follows_the_priority() {
        let marking = |trust| Marking {
            marks: MarkRules {
                dscp_by_priority: true,
                ..MarkRules::default()
            },
            priority_to_dscp: [8, 9, 10, 30, 12, 13, 14, 15],
            ..by(trust)
        };
        assert_eq!(two(&marking(Trust::Pcp), 0, 3), (30 << 2, 3));
        assert_eq!(two(&marking(Trust::Pcp), 255, 0), (8 << 2 | 3, 0));
        // DSCP 26 is priority 3, whose DSCP is 30; only a service level: its DSCP, and what the table says of that.
        assert_eq!(two(&marking(Trust::Dscp), 106, 0), (30 << 2 | 2, 3));
        assert_eq!(two(&marking(Trust::Dscp), 0, 3), (30 << 2, 3));
        assert_eq!(two(&marking(Trust::Dscp), 0, 2), (10 << 2, 1));
        // No priority was set.
        assert_eq!(two(&marking(Trust::Dscp), 0, 0), (26 << 2, 3));
    }
}
