//! Answers to queries for a path (IBTA volume 1, 15.2.5.16), as OpenSM's subnet administrator gives them: what the links carry, cut by
//! the level that the policy has for the query.

use alloc::string::String;
use core::fmt;

use vnic_wire::pkey::{admits, partition as base_of};

use super::policy::{Level, Policy, PortGroup, Rule, same};
use super::rate::rate_mbps;

/// Packet lifetime where no level has one: 2^18 × 4.096 µs, OpenSM's subnet timeout.
const PACKET_LIFE: u8 = 18;

/// The P_Key of the default partition without that bit; as a name, `Default`.
const DEFAULT_PARTITION: u16 = 0x7fff;

/// An end of a path: a port of a channel adapter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port<'a> {
    /// Port GUID.
    pub guid: u64,
    /// NodeDescription.
    pub node: &'a str,
    /// Number of the port at its node.
    pub number: u8,
    /// Code of its MTU.
    pub mtu: u8,
    /// Code of its rate.
    pub rate: u8,
    /// P_Keys of its table.
    pub pkeys: &'a [u16],
}

impl Port<'_> {
    /// The P_Key of its table with this base; of two, that of a full member.
    fn member(&self, base: u16) -> Option<u16> {
        let mine = self.pkeys.iter().copied();
        mine.filter(|key| base_of(*key) == base && base != 0).max()
    }

    /// Whether it is in a group.
    pub(super) fn is_in(&self, group: &PortGroup) -> bool {
        let pkey = |key: &u16| {
            let base = base_of(*key);
            group.pkeys.contains(base.into())
                || base == DEFAULT_PARTITION && group.partitions.iter().any(|name| same(name, "Default"))
        };
        let named = |(node, number): &(String, u8)| *number == self.number && same(node, self.node);
        group.adapters
            || group.guids.contains(self.guid)
            || group.ports.iter().any(named)
            || self.pkeys.iter().any(pkey)
    }
}

/// A query for a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query<'a> {
    /// Where it begins.
    pub source: &'a Port<'a>,
    /// Where it ends.
    pub destination: &'a Port<'a>,
    /// Service-ID.
    pub service_id: Option<u64>,
    /// QoS class, 0 to 4095.
    pub qos_class: Option<u16>,
    /// P_Key.
    pub pkey: Option<u16>,
    /// Service level, 0 to 15.
    pub sl: Option<u8>,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathRecord<'a> {
    /// Service level.
    pub sl: u8,
    /// Code of the MTU, 1 to 5.
    pub mtu: u8,
    /// Code of the rate, 2 to 24.
    pub rate: u8,
    /// Packet lifetime as log2 of 4.096 µs.
    pub packet_life: u8,
    /// P_Key, as the source has it in its table.
    pub pkey: u16,
    /// The level that it comes from; `None`: there is no policy.
    pub level: Option<&'a Level>,
    /// The rule that named the level; `None`: none matched.
    pub rule: Option<&'a Rule>,
}

/// Why there is no path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoPath {
    /// The ports are not both a member of the partition that the query names, or none is a full one.
    NotShared(u16),
    /// The level does not allow the P_Key of the query.
    NotOfLevel(u16, String),
    /// The ports share no partition that the level allows.
    NothingOfLevel(String),
    /// The ports share no partition.
    NothingShared,
    /// The level has another service level than the query wants.
    OtherSl(u8, String),
}

impl fmt::Display for NoPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoPath::NotShared(key) => write!(
                f,
                "P_Key {key:#06x}: not both ports are members, or both are limited ones, which do not speak with each other"
            ),
            NoPath::NotOfLevel(key, level) => {
                write!(f, "P_Key {key:#06x}: the QoS level {level:?} does not have it")
            }
            NoPath::NothingOfLevel(level) => {
                write!(f, "the ports share no P_Key that the QoS level {level:?} has")
            }
            NoPath::NothingShared => f.write_str("the ports share no P_Key"),
            NoPath::OtherSl(sl, level) => write!(
                f,
                "the QoS level {level:?} has service level {sl}, and the query wants another one"
            ),
        }
    }
}

/// The rule for a query: the first of which all holds.
fn rule<'a>(policy: &'a Policy, query: &Query<'_>) -> Option<&'a Rule> {
    let among = |port: &Port<'_>, groups: &[usize]| {
        groups.is_empty()
            || groups
                .iter()
                .any(|at| policy.groups.get(*at).is_some_and(|group| port.is_in(group)))
    };
    policy.rules.iter().find(|rule| {
        // What a rule asks for and the query does not have does not match.
        let holds = |ranges: &super::Ranges, value: Option<u64>| {
            ranges.is_empty() || value.is_some_and(|value| ranges.contains(value))
        };
        holds(&rule.classes, query.qos_class.map(Into::into))
            && holds(&rule.services, query.service_id)
            && holds(&rule.pkeys, query.pkey.map(|key| base_of(key).into()))
            && among(query.source, &rule.sources)
            && among(query.destination, &rule.destinations)
    })
}

/// Answers a query; without a policy as if there were no levels.
///
/// # Errors
/// There is no path as the query and the policy want it.
pub fn resolve<'a>(policy: Option<&'a Policy>, query: &Query<'_>) -> Result<PathRecord<'a>, NoPath> {
    let rule = policy.and_then(|policy| rule(policy, query));
    let level = policy.and_then(|policy| policy.levels.get(rule.map_or(policy.default, |rule| rule.level)));
    let (source, destination) = (query.source, query.destination);

    let mtu = source.mtu.min(destination.mtu);
    let mtu = level
        .and_then(|level| level.mtu)
        .map_or(mtu, |limit| mtu.min(limit));
    let slowest = |a: u8, b: u8| if rate_mbps(b) < rate_mbps(a) { b } else { a };
    let rate = slowest(source.rate, destination.rate);
    let rate = level
        .and_then(|level| level.rate)
        .map_or(rate, |limit| slowest(rate, limit));
    // A path to oneself takes no time (IBTA volume 1, table 205).
    let life = match source.guid == destination.guid {
        true => 0,
        false => level.and_then(|level| level.packet_life).unwrap_or(PACKET_LIFE),
    };
    let pkey = partition(level, query)?;
    let sl = match (query.sl, level) {
        (Some(sl), Some(level)) if sl != level.sl => {
            return Err(NoPath::OtherSl(level.sl, level.name.clone()));
        }
        (sl, level) => sl.or(level.map(|level| level.sl)).unwrap_or(0),
    };
    Ok(PathRecord {
        sl,
        mtu,
        rate,
        packet_life: life,
        pkey,
        level,
        rule,
    })
}

/// The partition of a path: that of the query, or the lowest that both ports share and the level allows.
fn partition(level: Option<&Level>, query: &Query<'_>) -> Result<u16, NoPath> {
    let shared = |base: u16| {
        let (mine, other) = (query.source.member(base)?, query.destination.member(base)?);
        admits(mine, other).then_some(mine)
    };
    let allowed =
        |base: u16| level.is_none_or(|level| level.pkeys.is_empty() || level.pkeys.contains(base.into()));
    if let Some(key) = query.pkey {
        let found = shared(base_of(key)).ok_or(NoPath::NotShared(key))?;
        return match level {
            Some(level) if !allowed(base_of(key)) => Err(NoPath::NotOfLevel(key, level.name.clone())),
            _ => Ok(found),
        };
    }
    let bases = query.source.pkeys.iter().map(|key| base_of(*key));
    let lowest = bases
        .filter(|base| allowed(*base) && shared(*base).is_some())
        .min();
    lowest.and_then(shared).ok_or_else(|| match level {
        Some(level) if !level.pkeys.is_empty() => NoPath::NothingOfLevel(level.name.clone()),
        _ => NoPath::NothingShared,
    })
}
