//! Bounds that a question sets for MTU, rate and packet lifetime (IBTA volume 1, 15.2.5.16 and 15.2.5.17), as OpenSM reads them: a path
//! with more than is wanted carries less, too.

use vnic_wire::sa::{Bound, Selector, status};

use super::path::PathRecord;
use super::rate::{mtu_bytes, rate_below, rate_mbps};

/// What a question wants; `None`: anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wanted {
    /// MTU.
    pub mtu: Option<Bound>,
    /// Rate.
    pub rate: Option<Bound>,
    /// Packet lifetime.
    pub packet_life: Option<Bound>,
}

/// Whether a value of a group is what a question wants.
fn holds<T: PartialOrd>(wanted: Option<Bound>, own: u8, order: impl Fn(u8) -> T) -> bool {
    wanted.is_none_or(|bound| {
        let (own, value) = (order(own), order(bound.value));
        match bound.selector {
            Selector::Greater => own > value,
            Selector::Less => own < value,
            Selector::Exactly => own == value,
            Selector::Best => true,
        }
    })
}

/// A path's value within a bound, `least` or more.
fn cut(wanted: Option<Bound>, own: u8, least: u8) -> Option<u8> {
    let Some(Bound { selector, value }) = wanted else {
        return Some(own);
    };
    match selector {
        Selector::Greater => (own > value).then_some(own),
        Selector::Less => value
            .checked_sub(1)
            .filter(|less| *less >= least)
            .map(|less| own.min(less)),
        Selector::Exactly => (own >= value).then_some(value),
        Selector::Best => Some(own),
    }
}

impl Wanted {
    /// Refuses codes that there are not.
    pub fn check(&self) -> Result<(), u16> {
        let coded = |bound: Option<Bound>, code: fn(u8) -> Option<u32>| {
            bound.is_none_or(|bound| bound.selector == Selector::Best || code(bound.value).is_some())
        };
        match coded(self.mtu, mtu_bytes) && coded(self.rate, rate_mbps) {
            true => Ok(()),
            false => Err(status::REQ_INVALID),
        }
    }

    /// MTU, rate and packet lifetime of a path within the bounds. `None`: it has none.
    pub fn cut(&self, path: &PathRecord<'_>) -> Option<[u8; 3]> {
        let rate = match self.rate.map(|bound| (bound.selector, bound.value)) {
            Some((Selector::Greater, rate)) => {
                (rate_mbps(path.rate) > rate_mbps(rate)).then_some(path.rate)?
            }
            Some((Selector::Less, rate)) if rate_mbps(path.rate) >= rate_mbps(rate) => rate_below(rate)?,
            // (Of MTUs and lifetimes OpenSM makes larger ones smaller, of rates it does not.)
            Some((Selector::Exactly, rate)) => (rate_mbps(path.rate) == rate_mbps(rate)).then_some(rate)?,
            Some((Selector::Less | Selector::Best, _)) | None => path.rate,
        };
        Some([
            cut(self.mtu, path.mtu, 1)?,
            rate,
            cut(self.packet_life, path.packet_life, 0)?,
        ])
    }

    /// Whether a group, whose values are what they are, is within the bounds.
    pub fn holds(&self, mtu: u8, rate: u8, packet_life: u8) -> bool {
        holds(self.mtu, mtu, |code| code)
            && holds(self.rate, rate, rate_mbps)
            && holds(self.packet_life, packet_life, |code| code)
    }
}
