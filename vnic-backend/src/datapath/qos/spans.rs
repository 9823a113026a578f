//! Paused times of priorities.

use vnic_fabric::Instant;

/// Paused priorities, and when each was paused.
#[derive(Debug, Clone, Copy, Default)]
pub struct PauseSpans {
    mask: u8,
    since: [Instant; 8],
}

impl PauseSpans {
    /// Sets the paused priorities, a bit each. `add` gets, for each one that was paused, the whole microseconds since its
    /// last call, and whether the pause has ended.
    #[inline]
    pub fn set(&mut self, now: Instant, mask: u8, add: impl FnMut(usize, u64, bool)) {
        if self.mask | mask != 0 {
            self.follow(now, mask, add);
        }
    }

    fn follow(&mut self, now: Instant, mask: u8, mut add: impl FnMut(usize, u64, bool)) {
        for (p, since) in self.since.iter_mut().enumerate() {
            let (was, is) = (self.mask >> p & 1 != 0, mask >> p & 1 != 0);
            if was {
                let us = now.0.saturating_sub(since.0) / 1000;
                if us > 0 || !is {
                    since.0 += us * 1000;
                    add(p, us, !is);
                }
            } else if is {
                *since = now;
            }
        }
        self.mask = mask;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_time_is_lost_between_looks() {
        let mut spells = PauseSpans::default();
        let mut sums = [0; 8];
        let mut ends = [0; 8];
        for now in (0..100_000).step_by(700) {
            let mask = if now < 50_000 { 0b1000_0001 } else { 0b1000_0000 };
            spells.set(Instant(now), mask, |p, us, end| {
                sums[p] += us;
                ends[p] += u64::from(end);
            });
        }
        spells.set(Instant(100_000), 0, |p, us, end| {
            sums[p] += us;
            ends[p] += u64::from(end);
        });
        assert_eq!(sums, [50, 0, 0, 0, 0, 0, 0, 100]);
        assert_eq!(ends, [1, 0, 0, 0, 0, 0, 0, 1]);
    }
}
