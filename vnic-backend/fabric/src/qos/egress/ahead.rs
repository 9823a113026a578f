//! Bytes that may surely go in this instant, of each class and whatever their frames, before any rate is used up. A frame
//! costs one look-up and two subtractions; the rates are charged for all frames together.

use super::Bucket;
use crate::Instant;
use crate::qos::LANES;

/// Most bytes that are granted at once to a class without a limit: far more than goes in an instant, and no sum overflows.
const MOST: u32 = 1 << 28;
/// Lanes, and one more: a whole number of the CPU's registers.
const PLACES: usize = LANES + 1;

/// Bytes that may go in one instant without asking the rates.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    /// The instant; without a grant it means nothing.
    now: Instant,
    /// Since when credit counts.
    since: Instant,
    /// Bytes on the wire that may still go: of all classes together, and of each.
    all: u32,
    left: [u32; PLACES],
    /// What `all` and `left` held at the beginning of the grant.
    granted_all: u32,
    granted: [u32; PLACES],
}

impl Ahead {
    /// Takes bytes of a class. False: they are not granted.
    #[inline(always)]
    pub(super) fn take(&mut self, now: Instant, class: usize, wire: u32) -> bool {
        let Some(left) = self.left.get_mut(class) else {
            return false;
        };
        if self.now != now || *left < wire || self.all < wire {
            return false;
        }
        *left -= wire;
        self.all -= wire;
        true
    }

    /// Begins a grant: what these rates have room for, until [`Ahead::end`]. `limited`: the classes that have a rate, a bit
    /// each. `since`: since when credit counts.
    pub(super) fn begin(
        &mut self,
        (now, since): (Instant, Instant),
        port: &Bucket,
        limits: &[Bucket; LANES],
        limited: u16,
    ) {
        (self.now, self.since) = (now, since);
        self.granted = [MOST; PLACES];
        for class in super::bits(limited) {
            self.granted[class] = limits[class].room(now, since).min(MOST);
        }
        self.granted_all = port.room(now, since).min(LANES as u32 * MOST - 1);
        (self.all, self.left) = (self.granted_all, self.granted);
    }

    /// Ends the grant, and charges what has gone.
    pub(super) fn end(&mut self, port: &mut Bucket, limits: &mut [Bucket; LANES], limited: u16) {
        let all = self.granted_all - self.all;
        if all != 0 {
            port.charge_since(self.now, self.since, all);
            for class in super::bits(limited) {
                let gone = self.granted[class] - self.left[class];
                if gone != 0 {
                    limits[class].charge_since(self.now, self.since, gone);
                }
            }
        }
        (self.all, self.granted_all) = (0, 0);
    }
}
