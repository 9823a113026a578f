//! Order of traffic classes, as on the cards (`tc_group` of the QETC register): [`Tsa::Vendor`] classes in equal turns; then
//! [`Tsa::Strict`] ones, the higher number first; then [`Tsa::Ets`] ones by their shares, which are weights of what is left;
//! then those with a share of 0. Turns and shares are by bytes on the wire: the class that has had the least for its weight is
//! next (start-time fair queueing, Goyal 1996: a class is never ahead or behind by more than one frame). A class that has
//! nothing to send, or may not, leaves its turn to the others and does not catch up later.

use alloc::boxed::Box;

use super::arbiter::{Arbiter, Turn};
use super::{Classes, PRIORITIES, Tsa};

/// Groups of classes that take turns.
const VENDOR: usize = 0;
const ETS: usize = 1;
const REST: usize = 2;

/// Which class of a port is next: by [tables](super::VlArbitration) of virtual lanes if the port has some, otherwise by the algorithms of its
/// traffic classes.
#[derive(Debug, Default)]
pub struct Order {
    classes: ClassOrder,
    lanes: Option<Box<Arbiter>>,
}

impl Order {
    /// Takes other settings. Turns go on where the tables stay the same.
    pub fn configure(&mut self, classes: &Classes) {
        self.classes.configure(classes);
        match (&classes.arbitration, &self.lanes) {
            (None, _) => self.lanes = None,
            (Some(tables), Some(lanes)) if lanes.has(tables) => {}
            (Some(tables), _) => self.lanes = Some(Box::new(Arbiter::new(tables))),
        }
    }

    /// The class that goes next, of these (a bit each, not none), and its turn in the tables.
    pub(super) fn next(&self, ready: u16) -> (usize, Option<Turn>) {
        let turn = self.lanes.as_deref().and_then(|lanes| lanes.choose(ready));
        // (Without tables there are no classes above 7.)
        turn.map_or_else(
            || (self.classes.choose(ready as u8), None),
            |(turn, lane)| (lane, Some(turn)),
        )
    }

    /// The class that goes next, of these (a bit each, not none).
    pub fn choose(&self, ready: u16) -> usize {
        self.next(ready).0
    }

    /// Counts bytes on the wire that a class has sent in a turn.
    pub(super) fn sent(&mut self, class: usize, turn: Option<Turn>, wire: u32) {
        match self.lanes.as_deref_mut().zip(turn) {
            Some((lanes, turn)) => lanes.sent(turn, wire),
            None => self.classes.charge(class, wire.into()),
        }
    }

    /// Counts bytes on the wire that a class has sent, in its next turn.
    pub fn charge(&mut self, class: usize, wire: u32) {
        let (_, turn) = self.next(1 << class);
        self.sent(class, turn, wire);
    }
}

/// Which traffic class of a port is next.
#[derive(Debug, Default)]
struct ClassOrder {
    /// Classes, a bit each: strict; by group.
    strict: u8,
    groups: [u8; 3],
    /// Virtual time of a byte in a class: 2^32 by the class's weight.
    cost: [u64; PRIORITIES],
    /// Virtual time: of the next frame of a class, and of the frame that a group sent last.
    start: [u128; PRIORITIES],
    group_time: [u128; 3],
}

impl ClassOrder {
    /// Takes other settings.
    fn configure(&mut self, classes: &Classes) {
        (self.strict, self.groups) = (0, [0; 3]);
        for c in 0..PRIORITIES {
            let bit = 1 << c;
            match (classes.tsa[c], classes.share[c]) {
                (Tsa::Vendor, _) => self.groups[VENDOR] |= bit,
                (Tsa::Strict, _) => self.strict |= bit,
                (Tsa::Ets, 0) => self.groups[REST] |= bit,
                (Tsa::Ets, _) => self.groups[ETS] |= bit,
            }
            let weight = match classes.tsa[c] {
                Tsa::Ets => u64::from(classes.share[c].max(1)),
                _ => 1,
            };
            self.cost[c] = (1 << 32) / weight;
        }
        // A class that joins a group has no part in the group's past.
        for (g, group) in self.groups.into_iter().enumerate() {
            let latest = bits(group).map(|c| self.start[c]).max().unwrap_or(0);
            self.group_time[g] = latest.max(self.group_time[g]);
            for c in bits(group) {
                self.start[c] = self.group_time[g];
            }
        }
    }

    /// The class that goes next, of these (a bit each, not none).
    fn choose(&self, ready: u8) -> usize {
        if ready.is_power_of_two() {
            return ready.trailing_zeros() as usize;
        }
        let strict = ready & self.strict;
        if ready & self.groups[VENDOR] == 0 && strict != 0 {
            return strict.ilog2() as usize;
        }
        let turn = |g: usize| {
            let time = |c: &usize| self.start[*c].max(self.group_time[g]);
            bits(ready & self.groups[g]).min_by_key(time)
        };
        (0..3).find_map(turn).unwrap_or(0)
    }

    /// Counts bytes on the wire that a class has sent.
    #[inline]
    fn charge(&mut self, class: usize, wire: u64) {
        if let Some(g) = self.groups.iter().position(|g| g & 1 << class != 0) {
            let start = self.start[class].max(self.group_time[g]);
            self.group_time[g] = start;
            self.start[class] = start + u128::from(wire) * u128::from(self.cost[class]);
        }
    }
}

/// Numbers of the bits that are set.
pub(super) fn bits(mask: impl Into<u16>) -> impl Iterator<Item = usize> {
    let mut mask = mask.into();
    core::iter::from_fn(move || {
        let bit = mask.trailing_zeros() as usize;
        (mask != 0).then(|| {
            mask &= mask - 1;
            bit
        })
    })
}
