//! What may surely go in this instant: so many bytes of each class, whatever their frames, before any rate is used up. What
//! goes of it is one look-up and two subtractions a frame; the rates are charged for all of it together.

use super::{Bucket, SLACK};
use crate::Instant;
use crate::qos::PRIORITIES;

/// Most that is granted at once of a class without a limit: far more than goes in an instant, and no sum overflows.
const MOST: u32 = 1 << 28;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    /// The instant; with nothing granted it says nothing.
    now: Instant,
    /// Bytes on the wire that may still go: of all classes together, and of each.
    all: u32,
    left: [u32; PRIORITIES],
    /// What they were.
    granted_all: u32,
    granted: [u32; PRIORITIES],
}

impl Ahead {
    /// Does so much of a class go? Then it has gone.
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

    /// From now on until [`Ahead::end`] there is what these rates have room for: those of the classes that have one, a bit
    /// each, and the port's.
    pub(super) fn begin(&mut self, now: Instant, port: &Bucket, limits: &[Bucket; PRIORITIES], limited: u8) {
        let since = Instant(now.0.saturating_sub(SLACK.as_nanos() as u64));
        self.now = now;
        self.granted = [MOST; PRIORITIES];
        for class in super::bits(limited) {
            self.granted[class] = limits[class].room(now, since).min(MOST);
        }
        self.granted_all = port.room(now, since).min(PRIORITIES as u32 * MOST - 1);
        (self.all, self.left) = (self.granted_all, self.granted);
    }

    /// Nothing goes any more. What has gone is charged.
    pub(super) fn end(&mut self, port: &mut Bucket, limits: &mut [Bucket; PRIORITIES], limited: u8) {
        let all = self.granted_all - self.all;
        if all != 0 {
            let since = Instant(self.now.0.saturating_sub(SLACK.as_nanos() as u64));
            port.charge_since(self.now, since, all);
            for class in super::bits(limited) {
                let gone = self.granted[class] - self.left[class];
                if gone != 0 {
                    limits[class].charge_since(self.now, since, gone);
                }
            }
        }
        (self.all, self.granted_all) = (0, 0);
    }
}
