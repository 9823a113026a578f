//! Access lists: which frames an adapter's guest may send and get, by ordered rules.
//!
//! A rule says what it knows. Where a condition's field cannot be seen (ports of a fragment, a packet behind more than two
//! tags, a chain of headers that is too long or cut off), a rule that denies matches and a rule that permits does not: nobody
//! gets around a list by hiding.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::sync::atomic::{AtomicU64, Ordering};

use vnic_wire::gid::Gid;
use vnic_wire::prefix::Prefix;
use vnic_wire::{EtherType, MacAddr, ipv4};

use crate::lag::flow::{Flow, Ports};

/// Most rules of a list.
pub const RULES_MAX: usize = 256;

vnic_wire::named! {
    /// What becomes of a frame.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub enum Action {
        /// It passes.
        #[default]
        Permit => "permit",
        /// It is dropped.
        Deny => "deny",
    }
}

vnic_wire::named! {
    /// Way of a frame, seen from the adapter.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum Way {
        /// To the guest.
        Rx => "rx",
        /// From the guest.
        Tx => "tx",
    }
}

/// Frames that a rule is about: all that is given must hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Match {
    /// Ethernet source.
    pub source_mac: Option<MacAddr>,
    /// Ethernet destination.
    pub destination_mac: Option<MacAddr>,
    /// VLAN of the frame's tag at the adapter; 0: it has none.
    pub vlan: Option<u16>,
    /// EtherType behind the tags.
    pub ethertype: Option<u16>,
    /// Source of an IP packet, or of RoCEv1.
    pub source: Option<Prefix>,
    /// Destination of an IP packet, or of RoCEv1.
    pub destination: Option<Prefix>,
    /// Protocol above IP.
    pub protocol: Option<u8>,
    /// First and last source port, of TCP or UDP.
    pub source_ports: Option<(u16, u16)>,
    /// First and last destination port, of TCP or UDP.
    pub destination_ports: Option<(u16, u16)>,
}

/// A rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rule {
    /// Frames of which way the rule is about.
    pub way: Way,
    /// What becomes of the frames.
    pub action: Action,
    /// Frames that the rule is about.
    pub matches: Match,
}

/// Rules in their order, and what becomes of frames that no rule matches.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rules {
    /// The first rule that matches decides.
    pub rules: Vec<Rule>,
    /// Frames to the guest that no rule matches.
    pub default_rx: Action,
    /// Frames from the guest that no rule matches.
    pub default_tx: Action,
}

impl Rules {
    /// No rule, and nothing passes.
    pub fn deny_all() -> Rules {
        Rules {
            rules: Vec::new(),
            default_rx: Action::Deny,
            default_tx: Action::Deny,
        }
    }

    /// What becomes of frames of this way that no rule matches.
    pub fn default_of(&self, way: Way) -> Action {
        match way {
            Way::Rx => self.default_rx,
            Way::Tx => self.default_tx,
        }
    }

    /// Whether frames of this way are looked at.
    pub fn concern(&self, way: Way) -> bool {
        self.default_of(way) == Action::Deny || self.rules.iter().any(|rule| rule.way == way)
    }
}

/// A list in force: rules with counters, which data cores share.
#[derive(Debug)]
pub struct AccessList {
    rules: Rules,
    hits: Box<[Arc<AtomicU64>]>,
    /// Frames to the guest and from it that no rule matched.
    unmatched: Arc<[AtomicU64; 2]>,
}

/// A decision about a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// What becomes of the frame.
    pub action: Action,
    /// Place of the rule that decided; `None`: no rule matched.
    pub rule: Option<usize>,
}

impl AccessList {
    /// A list of these rules. A rule that the list before it had keeps its count.
    pub fn new(rules: Rules, before: Option<&AccessList>) -> AccessList {
        let old = |rule: &Rule| {
            let before = before?;
            let at = before.rules.rules.iter().position(|r| r == rule)?;
            before.hits.get(at).cloned()
        };
        let hits = rules.rules.iter().map(|rule| old(rule).unwrap_or_default());
        AccessList {
            hits: hits.collect(),
            unmatched: before.map(|b| b.unmatched.clone()).unwrap_or_default(),
            rules,
        }
    }

    /// The rules.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Frames that each rule decided about.
    pub fn hits(&self) -> impl Iterator<Item = u64> {
        self.hits.iter().map(|n| n.load(Ordering::Relaxed))
    }

    /// Frames of this way that no rule matched.
    pub fn unmatched(&self, way: Way) -> u64 {
        self.unmatched[way as usize].load(Ordering::Relaxed)
    }

    /// The decision about a frame that begins with `head`, and has a tag of this VLAN (0: none). Counts nothing.
    pub fn explain(&self, way: Way, vlan: u16, head: &[u8]) -> Decision {
        let facts = Facts::of(vlan, head);
        let mut rules = self.rules.rules.iter();
        let rule = rules.position(|rule| rule.way == way && rule.matches(&facts));
        let action = rule.map(|at| self.rules.rules[at].action);
        Decision {
            action: action.unwrap_or(self.rules.default_of(way)),
            rule,
        }
    }

    /// Counts a decision about a frame of this way.
    pub fn count(&self, way: Way, decision: Decision) {
        let hits = decision.rule.and_then(|at| self.hits.get(at));
        let counter = hits.map_or(&self.unmatched[way as usize], |hits| hits);
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// A field of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field<T> {
    /// The frame has none.
    None,
    /// It cannot be seen.
    Hidden,
    Is(T),
}

impl<T> Field<T> {
    /// Whether a condition holds; `None`: that cannot be seen. No condition holds always.
    fn holds<C>(&self, wanted: Option<C>, holds: impl FnOnce(&T, C) -> bool) -> Option<bool> {
        match (wanted, self) {
            (None, _) => Some(true),
            (Some(_), Field::None) => Some(false),
            (Some(_), Field::Hidden) => None,
            (Some(wanted), Field::Is(value)) => Some(holds(value, wanted)),
        }
    }
}

/// Fields of a frame that rules look at.
struct Facts {
    source_mac: MacAddr,
    destination_mac: MacAddr,
    vlan: u16,
    ethertype: Field<EtherType>,
    addresses: Field<(Gid, Gid)>,
    protocol: Field<u8>,
    ports: Field<Ports>,
}

/// EtherTypes behind which a packet may hide: further tags (IEEE 802.1Q table 9-1, and one from before that standard).
const TAGS: [u16; 3] = [0x8100, 0x88a8, 0x9100];
/// Headers of LLC and SNAP, behind which there is another EtherType (RFC 1042).
const SNAP: [u8; 3] = [0xaa, 0xaa, 3];
/// IPv6 extension headers behind which the protocol is: the chain was not walked to its end.
const EXTENSIONS: [u8; 4] = [0, 43, 44, 60];

impl Facts {
    fn of(vlan: u16, head: &[u8]) -> Facts {
        let mut facts = Facts {
            source_mac: MacAddr::default(),
            destination_mac: MacAddr::default(),
            vlan,
            ethertype: Field::Hidden,
            addresses: Field::Hidden,
            protocol: Field::Hidden,
            ports: Field::Hidden,
        };
        let Some(flow) = Flow::parse(head) else {
            return facts;
        };
        (facts.source_mac, facts.destination_mac) = (flow.source, flow.destination);
        let offset = vnic_wire::ethernet::payload(head).map(|p| p.offset);
        let behind = offset.ok().and_then(|at| head.get(at..)).unwrap_or(&[]);
        let hides = TAGS.contains(&flow.ethertype.0) || flow.ethertype.0 < 0x600 && behind.starts_with(&SNAP);
        if hides {
            return facts;
        }
        facts.ethertype = Field::Is(flow.ethertype);
        match (flow.packet, flow.ethertype) {
            (Some(packet), _) => {
                facts.addresses = Field::Is((gid(packet.source), gid(packet.destination)));
                let unwalked = flow.ethertype == EtherType::IPV6 && EXTENSIONS.contains(&packet.protocol);
                if !unwalked {
                    facts.protocol = Field::Is(packet.protocol);
                    facts.ports = match (packet.ports, packet.protocol) {
                        (Some(ports), _) => Field::Is(ports),
                        (None, ipv4::PROTOCOL_TCP | ipv4::PROTOCOL_UDP) => Field::Hidden,
                        (None, _) => Field::None,
                    };
                }
            }
            (None, EtherType::IPV4 | EtherType::IPV6) => {}
            (None, EtherType::ROCE) => {
                (facts.protocol, facts.ports) = (Field::None, Field::None);
                let address = |at| {
                    behind
                        .get(at..at + 16)
                        .and_then(|b: &[u8]| b.first_chunk())
                        .map(|b| Gid(*b))
                };
                if let Some(both) = address(8).zip(address(24)) {
                    facts.addresses = Field::Is(both);
                }
            }
            (None, _) => {
                (facts.addresses, facts.protocol, facts.ports) = (Field::None, Field::None, Field::None);
            }
        }
        facts
    }
}

fn gid(address: IpAddr) -> Gid {
    match address {
        IpAddr::V4(a) => Gid::from_ipv4(a.octets()),
        IpAddr::V6(a) => Gid(a.octets()),
    }
}

impl Rule {
    fn matches(&self, facts: &Facts) -> bool {
        match self.matches.holds(facts) {
            Some(holds) => holds,
            None => self.action == Action::Deny,
        }
    }
}

impl Match {
    /// Whether all conditions hold; `None`: none fails, and one cannot be seen.
    fn holds(&self, facts: &Facts) -> Option<bool> {
        let within = |port: u16, (first, last): (u16, u16)| (first..=last).contains(&port);
        let all = [
            Some(self.source_mac.is_none_or(|mac| mac == facts.source_mac)),
            Some(
                self.destination_mac
                    .is_none_or(|mac| mac == facts.destination_mac),
            ),
            Some(self.vlan.is_none_or(|vlan| vlan == facts.vlan)),
            facts.ethertype.holds(self.ethertype, |is, wanted| is.0 == wanted),
            facts
                .addresses
                .holds(self.source, |(from, _), p| p.contains(*from)),
            facts
                .addresses
                .holds(self.destination, |(_, to), p| p.contains(*to)),
            facts.protocol.holds(self.protocol, |is, wanted| *is == wanted),
            facts
                .ports
                .holds(self.source_ports, |p, range| within(p.source, range)),
            facts
                .ports
                .holds(self.destination_ports, |p, range| within(p.destination, range)),
        ];
        if all.contains(&Some(false)) {
            return Some(false);
        }
        (!all.contains(&None)).then_some(true)
    }
}

#[cfg(test)]
mod tests;
