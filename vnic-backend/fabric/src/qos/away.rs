//! Credit for a core that was away: the kernel gave its CPU to somebody else. Frames that would have gone meanwhile may not even be
//! there when it is back, because a ring of the sender's was full, or the sender waited for an answer.

use core::time::Duration;

use super::egress::CATCH_UP;
use crate::Instant;

/// How long a core that was away may take to catch up, at a rate of which there is little more on the CPUs.
const WITHIN: Duration = Duration::from_millis(20);

/// The last time in which a core could not look.
#[derive(Debug, Clone, Copy, Default)]
pub struct Away {
    from: Instant,
    until: Instant,
}

impl Away {
    /// A core that looked at `from`, and again only `now`.
    pub fn new(from: Instant, now: Instant) -> Away {
        let until = now + WITHIN;
        Away { from, until }
    }

    /// Since when credit counts that would else count since `since`: at most [`CATCH_UP`] of it.
    #[inline]
    pub fn since(&self, now: Instant, since: Instant) -> Instant {
        if now >= self.until {
            return since;
        }
        let earliest = Instant(now.0.saturating_sub(CATCH_UP.as_nanos() as u64));
        since.min(self.from.max(earliest))
    }
}
