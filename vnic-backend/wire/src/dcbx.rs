//! Data center bridging exchange (IEEE 802.1Q annex D, first in 802.1Qaz): what two ends of a link tell each other about priorities, in
//! organizationally specific TLVs of [`lldp`]. [`cee`] has the version from before.
//!
//! Values behind the OUI 00-80-C2 and the subtype; a priority's nibble or bit is its number from the left, or from the right:
//!
//! ```text
//!  subtype 9, ETS Configuration          10, ETS Recommendation       11, Priority-based Flow Control
//!   0  willing, CBS, 3 reserved bits,     0  reserved                  0  willing, MBC, 2 reserved bits,
//!      classes, 3 bits, 0 is 8            1  class of each priority,      classes that can pause, 4 bits
//!   1  class of each priority, a nibble      a nibble each, 0 first    1  paused priorities, a bit each,
//!      each, 0 first                      5  share of each class, %       0 is the lowest
//!   5  share of each class, per cent     13  algorithm of each class
//!  13  algorithm of each class                                        12, Application Priority
//!                                                                      0  reserved
//!                                                                      1  3 bytes each: priority, 3 bits, 2 reserved,
//!                                                                         selector, 3 bits; protocol, 16 bits
//! ```

use alloc::vec::Vec;

use crate::lldp::{self, Tlvs, kind};

pub mod cee;

/// Organization of the TLVs (IEEE 802.1).
pub const OUI: [u8; 3] = [0x00, 0x80, 0xc2];
/// Most rows of a table of applications that fit into a TLV.
pub const APPLICATIONS_MAX: usize = (lldp::VALUE_MAX - 5) / 3;

mod subtype {
    pub(super) const ETS: u8 = 9;
    pub(super) const RECOMMENDATION: u8 = 10;
    pub(super) const PFC: u8 = 11;
    pub(super) const APPLICATIONS: u8 = 12;
}

/// How a class is served (transmission selection algorithm).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Algorithm {
    /// Strict priority.
    #[default]
    Strict,
    /// Credit-based shaper.
    CreditBased,
    /// Enhanced transmission selection: a share of what others leave.
    Ets,
    /// A vendor's own, or one that is not known.
    Other(u8),
}

impl Algorithm {
    fn of(number: u8) -> Algorithm {
        match number {
            0 => Algorithm::Strict,
            1 => Algorithm::CreditBased,
            2 => Algorithm::Ets,
            other => Algorithm::Other(other),
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Strict => "strict",
            Algorithm::CreditBased => "credit-based",
            Algorithm::Ets => "ets",
            Algorithm::Other(_) => "other",
        }
    }

    fn number(self) -> u8 {
        match self {
            Algorithm::Strict => 0,
            Algorithm::CreditBased => 1,
            Algorithm::Ets => 2,
            Algorithm::Other(number) => number,
        }
    }
}

/// Which priority is in which class, and how classes are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Classes {
    /// Class of each priority, 0..=7.
    pub of_priority: [u8; 8],
    /// Share of each class, per cent; those of classes with [`Algorithm::Ets`] are 100 together.
    pub share: [u8; 8],
    /// How each class is served.
    pub algorithm: [Algorithm; 8],
}

impl Classes {
    const LEN: usize = 20;

    fn parse(b: &[u8; Self::LEN]) -> Classes {
        let nibble = |i: usize| b[i / 2] >> (4 * (1 - i % 2)) & 7;
        Classes {
            of_priority: core::array::from_fn(nibble),
            share: core::array::from_fn(|i| b[4 + i]),
            algorithm: core::array::from_fn(|i| Algorithm::of(b[12 + i])),
        }
    }

    fn emit(&self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        for (i, class) in self.of_priority.iter().enumerate() {
            out[i / 2] |= (class & 15) << (4 * (1 - i % 2));
        }
        out[4..12].copy_from_slice(&self.share);
        out[12..].copy_from_slice(&self.algorithm.map(Algorithm::number));
        out
    }
}

/// ETS Configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ets {
    /// Whether the station takes what the other one recommends.
    pub willing: bool,
    /// Classes that it has, 1..=8.
    pub classes_max: u8,
    /// Its classes.
    pub classes: Classes,
}

/// Priority-based Flow Control Configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pfc {
    /// Whether the station takes what the other one has.
    pub willing: bool,
    /// Priorities that it can pause at a time, 0..=8.
    pub capability: u8,
    /// Priorities that are paused, a bit each.
    pub priorities: u8,
}

/// A row of Application Priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Application {
    /// What `protocol` is: 1 an EtherType, 2 a port of TCP or SCTP, 3 of UDP or DCCP, 4 of any of these, 5 a DSCP.
    pub selector: u8,
    /// The protocol.
    pub protocol: u16,
    /// Its priority, 0..=7.
    pub priority: u8,
}

/// All that a station says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Exchange {
    /// Its classes.
    pub ets: Option<Ets>,
    /// Classes that it recommends.
    pub recommendation: Option<Classes>,
    /// Its flow control.
    pub pfc: Option<Pfc>,
    /// Priorities of applications.
    pub applications: Vec<Application>,
}

impl Exchange {
    /// Reads TLVs, such as [`Lldpdu::more`](crate::lldp::Lldpdu::more). Of a subtype that is there twice, or with another length than
    /// it has, nothing is taken; `unread` counts such subtypes.
    pub fn parse(tlvs: &[u8], unread: &mut u32) -> Exchange {
        let mut new = Exchange::default();
        let mut seen = [false; 4];
        let mut bad = [false; 4];
        for tlv in Tlvs::of(tlvs).map_while(Result::ok) {
            let Some((&[a, b, c, subtype], value)) = tlv.value.split_first_chunk() else {
                continue;
            };
            if tlv.kind != kind::ORGANIZATION || [a, b, c] != OUI {
                continue;
            }
            let Some(i) = subtype.checked_sub(subtype::ETS).filter(|i| *i < 4) else {
                continue;
            };
            let again = core::mem::replace(&mut seen[usize::from(i)], true);
            let taken = match subtype {
                subtype::ETS => {
                    new.ets = ets(value).filter(|_| !again);
                    new.ets.is_some()
                }
                subtype::RECOMMENDATION => {
                    new.recommendation = classes(value).filter(|_| !again);
                    new.recommendation.is_some()
                }
                subtype::PFC => {
                    new.pfc = pfc(value).filter(|_| !again);
                    new.pfc.is_some()
                }
                _ => {
                    let rows = applications(value).filter(|_| !again);
                    let taken = rows.is_some();
                    new.applications = rows.unwrap_or_default();
                    taken
                }
            };
            bad[usize::from(i)] |= !taken;
        }
        *unread += bad.map(u32::from).iter().sum::<u32>();
        new
    }

    /// Appends the TLVs. Applications beyond [`APPLICATIONS_MAX`] are left out.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let mut put = |subtype: u8, parts: &[&[u8]]| {
            let head = [OUI[0], OUI[1], OUI[2], subtype];
            let parts: Vec<&[u8]> = core::iter::once(&head[..]).chain(parts.iter().copied()).collect();
            lldp::put(out, kind::ORGANIZATION, &parts);
        };
        if let Some(ets) = &self.ets {
            let head = u8::from(ets.willing) << 7 | ets.classes_max & 7;
            put(subtype::ETS, &[&[head], &ets.classes.emit()]);
        }
        if let Some(classes) = &self.recommendation {
            put(subtype::RECOMMENDATION, &[&[0], &classes.emit()]);
        }
        if let Some(pfc) = &self.pfc {
            let head = u8::from(pfc.willing) << 7 | pfc.capability & 15;
            put(subtype::PFC, &[&[head, pfc.priorities]]);
        }
        if !self.applications.is_empty() {
            let rows = self.applications.iter().take(APPLICATIONS_MAX);
            let bytes = rows.flat_map(|a| {
                let [high, low] = a.protocol.to_be_bytes();
                [a.priority << 5 | a.selector & 7, high, low]
            });
            put(subtype::APPLICATIONS, &[&[0], &bytes.collect::<Vec<_>>()]);
        }
    }
}

fn classes(value: &[u8]) -> Option<Classes> {
    let (_, rest) = value.split_first()?;
    Some(Classes::parse(rest.try_into().ok()?))
}

fn ets(value: &[u8]) -> Option<Ets> {
    let head = *value.first()?;
    Some(Ets {
        willing: head & 0x80 != 0,
        classes_max: match head & 7 {
            0 => 8,
            n => n,
        },
        classes: classes(value)?,
    })
}

fn pfc(value: &[u8]) -> Option<Pfc> {
    let &[head, priorities] = <&[u8; 2]>::try_from(value).ok()?;
    Some(Pfc {
        willing: head & 0x80 != 0,
        capability: head & 15,
        priorities,
    })
}

fn applications(value: &[u8]) -> Option<Vec<Application>> {
    let (rows, []) = value.get(1..)?.as_chunks::<3>() else {
        return None;
    };
    let row = |&[head, high, low]: &[u8; 3]| Application {
        selector: head & 7,
        protocol: u16::from_be_bytes([high, low]),
        priority: head >> 5,
    };
    Some(rows.iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn known() -> Exchange {
        let classes = Classes {
            of_priority: [0, 0, 1, 1, 2, 2, 3, 7],
            share: [40, 60, 0, 0, 0, 0, 0, 0],
            algorithm: [
                Algorithm::Ets,
                Algorithm::Ets,
                Algorithm::Strict,
                Algorithm::CreditBased,
                Algorithm::Other(255),
                Algorithm::Strict,
                Algorithm::Strict,
                Algorithm::Strict,
            ],
        };
        Exchange {
            ets: Some(Ets {
                willing: true,
                classes_max: 8,
                classes,
            }),
            recommendation: Some(classes),
            pfc: Some(Pfc {
                willing: false,
                capability: 8,
                priorities: 1 << 3,
            }),
            applications: Vec::from([Application {
                selector: 3,
                protocol: 4791,
                priority: 3,
            }]),
        }
    }

    fn parsed(bytes: &[u8]) -> (Exchange, u32) {
        let mut unread = 0;
        (Exchange::parse(bytes, &mut unread), unread)
    }

    #[test]
    fn known_bytes() {
        let mut bytes = Vec::new();
        known().emit(&mut bytes);
        assert_eq!(bytes[..8], [0xfe, 25, 0, 0x80, 0xc2, 9, 0x80, 0x00]);
        assert_eq!(bytes[8..12], [0x11, 0x22, 0x37, 40]);
        // Flow control: type and length, then willing 0, capability 8, priority 3.
        let pfc = bytes
            .windows(8)
            .position(|w| w[..6] == [0xfe, 6, 0, 0x80, 0xc2, 11])
            .expect("it is there");
        assert_eq!(bytes[pfc + 6..pfc + 8], [8, 8]);
        assert_eq!(bytes[bytes.len() - 4..], [0, 3 << 5 | 3, 0x12, 0xb7]);
        assert_eq!(parsed(&bytes), (known(), 0));
    }

    #[test]
    fn what_is_there_twice_is_not_taken() {
        let mut bytes = Vec::new();
        let pfc = known().pfc;
        let one = Exchange {
            pfc,
            ..Exchange::default()
        };
        one.emit(&mut bytes);
        assert_eq!(parsed(&bytes).0.pfc, pfc);
        one.emit(&mut bytes);
        assert_eq!(parsed(&bytes), (Exchange::default(), 1));
        // Rows of another length.
        assert_eq!(
            parsed(&[0xfe, 7, 0, 0x80, 0xc2, 12, 0, 1, 2]),
            (Exchange::default(), 1)
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes: Vec<u8>, value: Vec<u8>, subtype in 8u8..14) {
            parsed(&bytes);
            let mut tlv = Vec::new();
            lldp::put(&mut tlv, kind::ORGANIZATION, &[&OUI, &[subtype], &value]);
            let said = parsed(&tlv).0;
            let mut again = Vec::new();
            said.emit(&mut again);
            prop_assert_eq!(parsed(&again).0, said);
        }
    }
}
