//! Data center bridging exchange of Converged Enhanced Ethernet, from before IEEE 802.1Qaz ("DCB Capability Exchange Protocol Base
//! Specification", revision 1.01, az-wadekar-dcbx-capability-exchange-discovery-protocol-1108-v1.01): one TLV of
//! [`lldp`] with the OUI 00-1B-21 and the subtype 2, which holds TLVs of its own.
//!
//! ```text
//!  1, control                        2, 3, 4, features begin alike
//!   0  operating version              0  operating version     1  greatest version
//!   1  greatest version               2  enabled, willing, error, 5 reserved bits
//!   2  sequence number, 32 bits       3  subtype, 0
//!   6  acknowledged, 32 bits
//!
//!  2, priority groups                3, flow control           4, applications, 6 bytes each
//!   4  group of each priority,        4  paused priorities,     0  protocol
//!      a nibble, 0 first; 15: strict     a bit each, 0 lowest   2  OUI 23..18, selector, 2 bits
//!   8  share of each group, %         5  classes                3  OUI 15..0
//!  16  classes                           that can pause         5  priorities, a bit each, 0 lowest
//! ```

use alloc::vec::Vec;

use super::{Algorithm, Application, Classes, Ets, Exchange, Pfc};
use crate::lldp::{self, Tlvs, kind};

/// Organization of the TLV (Intel).
pub const OUI: [u8; 3] = [0x00, 0x1b, 0x21];
/// Subtype of the TLV.
const SUBTYPE: u8 = 2;
/// Group of priorities that are served before all others.
pub const STRICT: u8 = 15;

mod sub {
    pub(super) const CONTROL: u8 = 1;
    pub(super) const GROUPS: u8 = 2;
    pub(super) const PFC: u8 = 3;
    pub(super) const APPLICATIONS: u8 = 4;
}

/// Numbers by which two stations know what the other one has read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Control {
    /// Version in use. Version 0 is the only one that is known.
    pub operating: u8,
    /// Number of the station's values: it rises with each change.
    pub sequence: u32,
    /// Number of the other station's values that it has read; 0: of none.
    pub acknowledged: u32,
}

/// A feature: how a station stands to it, and its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Feature<T> {
    /// Version in use. Version 0 is the only one that is known.
    pub operating: u8,
    /// Whether the station has the feature.
    pub enabled: bool,
    /// Whether it takes the other one's value.
    pub willing: bool,
    /// Whether it cannot bring both values together.
    pub error: bool,
    /// Its value.
    pub value: T,
}

/// Priority groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Groups {
    /// Group of each priority: 0..=7, or [`STRICT`].
    pub of_priority: [u8; 8],
    /// Share of each group, per cent; 100 together.
    pub share: [u8; 8],
    /// Traffic classes that the station has.
    pub classes_max: u8,
}

/// Flow control by priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pause {
    /// Priorities that are paused, a bit each.
    pub priorities: u8,
    /// Traffic classes that can be paused at a time.
    pub classes_max: u8,
}

/// A row of the table of applications.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Row {
    /// What `protocol` is: 0 an EtherType, 1 a port of TCP or UDP.
    pub selector: u8,
    /// The protocol.
    pub protocol: u16,
    /// Its priorities, a bit each.
    pub priorities: u8,
}

/// All that a station says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cee {
    /// Numbers.
    pub control: Control,
    /// Priority groups.
    pub groups: Option<Feature<Groups>>,
    /// Flow control.
    pub pause: Option<Feature<Pause>>,
    /// Priorities of applications.
    pub applications: Option<Feature<Vec<Row>>>,
}

impl Cee {
    /// Reads TLVs, such as [`Lldpdu::more`](crate::lldp::Lldpdu::more); `None`: the station does not speak it. Adds to `unread` what
    /// cannot be read: of a TLV that is there twice, or with another length than it has, nothing is taken, and without a control TLV
    /// nothing at all.
    pub fn parse(tlvs: &[u8], unread: &mut u32) -> Option<Cee> {
        let mut found = None;
        for tlv in Tlvs::of(tlvs).map_while(Result::ok) {
            let Some((&[a, b, c, SUBTYPE], value)) = tlv.value.split_first_chunk() else {
                continue;
            };
            if tlv.kind != kind::ORGANIZATION || [a, b, c] != OUI {
                continue;
            }
            if found.replace(value).is_some() {
                *unread += 1;
                return None;
            }
        }
        let new = Cee::of(found?, unread);
        *unread += u32::from(new.is_none());
        new
    }

    fn of(value: &[u8], unread: &mut u32) -> Option<Cee> {
        let mut parts: [Option<&[u8]>; 5] = [None; 5];
        let mut twice = [false; 5];
        for tlv in Tlvs::of(value) {
            let tlv = tlv.ok()?;
            let at = usize::from(tlv.kind);
            // Another subtype of a feature is another feature.
            let known = tlv.kind == sub::CONTROL || matches!(tlv.value, [_, _, _, 0, ..]);
            if let Some(part) = parts.get_mut(at).filter(|_| known) {
                twice[at] |= part.replace(tlv.value).is_some();
            }
        }
        if twice[usize::from(sub::CONTROL)] {
            return None;
        }
        let mut feature = |which: u8| {
            let at = usize::from(which);
            *unread += u32::from(twice[at]);
            parts[at].filter(|_| !twice[at])
        };
        let (groups, pause, applications) = (
            feature(sub::GROUPS),
            feature(sub::PFC),
            feature(sub::APPLICATIONS),
        );
        let new = Cee {
            control: control(parts[usize::from(sub::CONTROL)]?)?,
            groups: groups.and_then(|value| read(value, self::groups)),
            pause: pause.and_then(|value| read(value, self::pause)),
            applications: applications.and_then(|value| read(value, table)),
        };
        for unfit in [
            groups.is_some() && new.groups.is_none(),
            pause.is_some() && new.pause.is_none(),
            applications.is_some() && new.applications.is_none(),
        ] {
            *unread += u32::from(unfit);
        }
        Some(new)
    }

    /// Appends the TLV. Applications that have no room in it are left out.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let mut all = Vec::from([OUI[0], OUI[1], OUI[2], SUBTYPE]);
        let c = &self.control;
        let (sequence, acknowledged) = (c.sequence.to_be_bytes(), c.acknowledged.to_be_bytes());
        lldp::put(
            &mut all,
            sub::CONTROL,
            &[&[c.operating, 0], &sequence, &acknowledged],
        );
        if let Some(feature) = &self.groups {
            let v = &feature.value;
            let mut of = [0; 4];
            for (i, group) in v.of_priority.iter().enumerate() {
                of[i / 2] |= (group & 15) << (4 * (1 - i % 2));
            }
            lldp::put(
                &mut all,
                sub::GROUPS,
                &[&feature.head(), &of, &v.share, &[v.classes_max]],
            );
        }
        if let Some(feature) = &self.pause {
            let v = &feature.value;
            lldp::put(
                &mut all,
                sub::PFC,
                &[&feature.head(), &[v.priorities, v.classes_max]],
            );
        }
        if let Some(feature) = &self.applications {
            let room = lldp::VALUE_MAX.saturating_sub(all.len() + 6) / 6;
            let rows = feature.value.iter().take(room).flat_map(|row| {
                let [high, low] = row.protocol.to_be_bytes();
                let selector = OUI[0] & 0xfc | row.selector & 3;
                [high, low, selector, OUI[1], OUI[2], row.priorities]
            });
            let rows: Vec<u8> = rows.collect();
            lldp::put(&mut all, sub::APPLICATIONS, &[&feature.head(), &rows]);
        }
        lldp::put(out, kind::ORGANIZATION, &[&all]);
    }

    /// The same in the terms of IEEE 802.1Qaz, as far as it has them: what the station has, and recommends nothing.
    pub fn exchange(&self) -> Exchange {
        Exchange {
            ets: self.groups.map(|groups| Ets {
                willing: groups.willing,
                classes_max: groups.value.classes_max,
                classes: groups.value.classes(8),
            }),
            recommendation: None,
            pfc: self.pause.map(|pause| Pfc {
                willing: pause.willing,
                capability: pause.value.classes_max,
                priorities: pause.value.priorities,
            }),
            applications: self
                .applications
                .iter()
                .flat_map(|rows| applications(&rows.value))
                .collect(),
        }
    }
}

impl<T> Feature<T> {
    fn head(&self) -> [u8; 4] {
        let bit = |yes: bool, at: u8| u8::from(yes) << at;
        let bits = bit(self.enabled, 7) | bit(self.willing, 6) | bit(self.error, 5);
        [self.operating, 0, bits, 0]
    }
}

impl Groups {
    /// Classes as groups: those with ETS are groups by their number, all others are [`STRICT`].
    pub fn of(classes: &Classes) -> Groups {
        let ets = |class: u8| classes.algorithm.get(usize::from(class)) == Some(&Algorithm::Ets);
        let mut share = classes.share;
        for (class, share) in (0..).zip(&mut share) {
            if !ets(class) {
                *share = 0;
            }
        }
        Groups {
            of_priority: classes
                .of_priority
                .map(|class| if ets(class) { class } else { STRICT }),
            share,
            classes_max: 8,
        }
    }

    /// Groups as classes of a port that has `count` of them: group N with priorities or a share is class N with ETS. Priorities of
    /// [`STRICT`] have the greatest class that is left; without one, and of groups that there are not, priorities have class 0, and its algorithm is none that is known.
    pub fn classes(&self, count: u8) -> Classes {
        let mut classes = Classes {
            of_priority: [0; 8],
            share: self.share,
            algorithm: [Algorithm::Strict; 8],
        };
        let used = |n: u8| self.of_priority.contains(&n) || self.share.get(usize::from(n)) != Some(&0);
        let strict = (0..count.min(8)).rev().find(|n| !used(*n));
        for (n, algorithm) in (0..).zip(&mut classes.algorithm) {
            if used(n) {
                *algorithm = Algorithm::Ets;
            }
        }
        for (class, group) in classes.of_priority.iter_mut().zip(self.of_priority) {
            match (group, strict) {
                (0..8, _) => *class = group,
                (STRICT, Some(strict)) => *class = strict,
                _ => classes.algorithm[0] = Algorithm::Other(group),
            }
        }
        classes
    }
}

/// Rows as those of IEEE 802.1Qaz. Of several priorities of a protocol the lowest counts; a row without one is none.
pub fn applications(rows: &[Row]) -> impl Iterator<Item = Application> {
    rows.iter().filter_map(|row| {
        Some(Application {
            selector: match row.selector {
                0 => 1,
                1 => 4,
                _ => return None,
            },
            protocol: row.protocol,
            priority: u8::try_from(row.priorities.trailing_zeros())
                .ok()
                .filter(|p| *p < 8)?,
        })
    })
}

/// Rows of IEEE 802.1Qaz as those of CEE, by protocol: a port is one of TCP and UDP, whose rows become one with the priorities of
/// both. A DSCP has no row.
pub fn rows(applications: &[Application]) -> Vec<Row> {
    let mut all: Vec<Row> = Vec::new();
    for row in applications {
        let selector = match row.selector {
            1 => 0,
            2..=4 => 1,
            _ => continue,
        };
        let priorities = 1 << (row.priority & 7);
        let same = |r: &&mut Row| (r.selector, r.protocol) == (selector, row.protocol);
        match all.iter_mut().find(same) {
            Some(there) => there.priorities |= priorities,
            None => all.push(Row {
                selector,
                protocol: row.protocol,
                priorities,
            }),
        }
    }
    all
}

fn control(value: &[u8]) -> Option<Control> {
    let &[operating, _, s0, s1, s2, s3, a0, a1, a2, a3] = <&[u8; 10]>::try_from(value).ok()?;
    Some(Control {
        operating,
        sequence: u32::from_be_bytes([s0, s1, s2, s3]),
        acknowledged: u32::from_be_bytes([a0, a1, a2, a3]),
    })
}

fn read<T>(value: &[u8], rest: impl Fn(&[u8]) -> Option<T>) -> Option<Feature<T>> {
    let (&[operating, _, bits, _], value) = value.split_first_chunk()?;
    Some(Feature {
        operating,
        enabled: bits & 0x80 != 0,
        willing: bits & 0x40 != 0,
        error: bits & 0x20 != 0,
        value: rest(value)?,
    })
}

fn groups(value: &[u8]) -> Option<Groups> {
    let b = <&[u8; 13]>::try_from(value).ok()?;
    Some(Groups {
        of_priority: core::array::from_fn(|i| b[i / 2] >> (4 * (1 - i % 2)) & 15),
        share: core::array::from_fn(|i| b[4 + i]),
        classes_max: b[12],
    })
}

fn pause(value: &[u8]) -> Option<Pause> {
    let &[priorities, classes_max] = <&[u8; 2]>::try_from(value).ok()?;
    Some(Pause {
        priorities,
        classes_max,
    })
}

/// Rows of other organizations are left out.
fn table(value: &[u8]) -> Option<Vec<Row>> {
    let (rows, []) = value.as_chunks::<6>() else {
        return None;
    };
    let row = |&[high, low, selector, b, c, priorities]: &[u8; 6]| {
        ([selector & 0xfc, b, c] == OUI).then_some(Row {
            selector: selector & 3,
            protocol: u16::from_be_bytes([high, low]),
            priorities,
        })
    };
    Some(rows.iter().filter_map(row).collect())
}

#[cfg(test)]
mod tests;
