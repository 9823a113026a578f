//! Head-of-queue lifetime: a frame that waits too long is dropped, and a class with too many such drops in a row is
//! stalled: all frames that wait in it are dropped until one of it is sent again, or 8 lifetimes have passed (WinOF-2
//! Ethernet Network, Head of Queue Lifetime Limit; IBTA volume 1 section 18.2.5.4; register QHLL).

use core::time::Duration;

use super::check::{Checked, up_to};
use super::{Lifetimes, PRIORITIES};
use crate::{DropReason, Instant};

/// The `limit` with which a frame may wait for ever.
const FOR_EVER: u8 = 20;
/// Lifetimes for which a class stays stalled.
const STALLED_FOR: u32 = 8;

/// Checks the settings.
pub(super) fn check(settings: Lifetimes) -> Checked {
    up_to("hol_lifetime", "", settings.limit, FOR_EVER)?;
    up_to("hol_stall_count", "", settings.stall_count, 7)
}

/// The state of one port's classes.
#[derive(Debug, Clone, Default)]
pub struct Lifetime {
    /// Drops in a row, by class.
    drops: [u8; PRIORITIES],
    /// Classes that are stalled, a bit each, and until when.
    stalled: u8,
    until: [Instant; PRIORITIES],
}

impl Lifetime {
    /// Whether the frame at the head of `class`, there since `head_since`, must be dropped. Ask again for the next one.
    pub fn judge(
        &mut self,
        now: Instant,
        settings: Lifetimes,
        class: u8,
        head_since: Instant,
    ) -> Option<DropReason> {
        let i = usize::from(class) % PRIORITIES;
        let Some(lifetime) = lifetime(settings, class) else {
            self.sent(class);
            return None;
        };
        let bit = 1 << i;
        if self.stalled & bit != 0 {
            if now < self.until[i] {
                return Some(DropReason::ClassStalled);
            }
            self.sent(class);
        }
        if now.since(head_since) < lifetime {
            return None;
        }
        self.drops[i] = self.drops[i].saturating_add(1);
        if settings.stall_count != 0 && self.drops[i] >= settings.stall_count {
            self.stalled |= bit;
            self.until[i] = now + lifetime * STALLED_FOR;
        }
        Some(DropReason::HeadOfQueue)
    }

    /// A frame of `class` was sent: the class is not stalled.
    #[inline]
    pub fn sent(&mut self, class: u8) {
        // (Virtual lanes above the traffic classes have no lifetime.)
        let Some(drops) = self.drops.get_mut(usize::from(class)) else {
            return;
        };
        *drops = 0;
        self.stalled &= !(1 << class);
    }

    /// Classes that are stalled, a bit each. A stall that has passed counts until [`Lifetime::judge`] is asked.
    pub fn stalled(&self) -> u8 {
        self.stalled
    }

    /// When the frame at the head of `class`, there since `head_since`, has waited too long.
    pub fn due(&self, settings: Lifetimes, class: u8, head_since: Instant) -> Option<Instant> {
        let lifetime = lifetime(settings, class)?;
        if self.stalled & 1 << (usize::from(class) % PRIORITIES) != 0 {
            return Some(head_since);
        }
        Some(head_since + lifetime)
    }
}

/// How long a frame of a class may wait; `None`: for ever.
fn lifetime(settings: Lifetimes, class: u8) -> Option<Duration> {
    let enabled = settings.enable & 1 << (usize::from(class) % PRIORITIES) != 0;
    (enabled && settings.limit < FOR_EVER).then(|| Duration::from_nanos(4096 << settings.limit))
}
