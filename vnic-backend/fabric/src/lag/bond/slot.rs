//! A slot: frames that move from member to member together, of a bucket or of an affinity.

use core::time::Duration;

use crate::Instant;
use crate::lag::Member;

/// Number of a slot, which [`departed`](super::Bond::departed) and [`retry`](super::Bond::retry) take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SlotId(pub(super) u32);

impl SlotId {
    /// Index of the slot: less than [`SLOTS_MAX`](super::SLOTS_MAX).
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// No member, in place of a member's number.
const NOBODY: u8 = u8::MAX;

/// Frames that move from member to member together.
#[derive(Debug, Clone, Copy)]
pub(in crate::lag) struct Slot {
    /// Member that frames go by.
    current: u8,
    /// Member that frames are to go by.
    wanted: u8,
    /// Whether the slot is new, and frames that match it may be under way by any member.
    fresh: bool,
    /// Whether the slot is an affinity's that is to go when none of its frames is under way.
    leaves: bool,
    /// Whether the slot has moved since somebody asked.
    pub(super) moved: bool,
    /// Frames that were given to a port and have not left it.
    pub(super) waiting: u32,
    /// Frames that the caller holds.
    pub(super) held: u32,
    /// When all frames that have left the port have arrived.
    clear_at: Instant,
    /// When the slot has had time enough to pause by itself.
    force_at: Instant,
}

impl Default for Slot {
    fn default() -> Slot {
        Slot {
            current: NOBODY,
            wanted: NOBODY,
            fresh: false,
            leaves: false,
            moved: false,
            waiting: 0,
            held: 0,
            clear_at: Instant(0),
            force_at: Instant(0),
        }
    }
}

const fn member(of: u8) -> Option<Member> {
    match of {
        NOBODY => None,
        m => Some(Member(m)),
    }
}

impl Slot {
    /// The slot of a new affinity: no frame goes before this time.
    pub(super) fn fresh(clear_at: Instant) -> Slot {
        Slot {
            fresh: true,
            clear_at,
            ..Slot::default()
        }
    }

    /// Member that frames go by.
    #[inline]
    pub(in crate::lag) fn member(&self) -> Option<Member> {
        member(self.current)
    }

    /// Member that frames are to go by.
    #[inline]
    pub(in crate::lag) fn wanted(&self) -> Option<Member> {
        member(self.wanted)
    }

    /// Whether the slot is where it belongs, and stays.
    #[inline]
    pub(in crate::lag) fn is_settled(&self) -> bool {
        self.current == self.wanted && !self.leaves
    }

    /// Whether the slot's affinity is to go.
    #[inline]
    pub(in crate::lag) fn leaves(&self) -> bool {
        self.leaves
    }

    /// Sets whether the slot's affinity is to go. True: that is new.
    pub(super) fn set_leaves(&mut self, leaves: bool) -> bool {
        core::mem::replace(&mut self.leaves, leaves) != leaves
    }

    /// Whether there is no member to go to.
    #[inline]
    pub(super) fn is_aimless(&self) -> bool {
        self.wanted == NOBODY
    }

    /// Sets the member that the slot belongs to. `dead`: its current member carries nothing any more. True: the slot
    /// has moved.
    pub(super) fn aim(&mut self, to: Option<Member>, dead: bool, force_at: Instant) -> bool {
        let to = to.map_or(NOBODY, |m| m.0);
        if self.wanted != to {
            self.wanted = to;
            self.force_at = force_at;
        }
        let moves = dead && !self.fresh && self.current != to;
        if moves {
            self.current = to;
        }
        moves && to != NOBODY
    }

    /// Whether no frame of the slot is under way.
    #[inline]
    pub(super) fn is_clear(&self, now: Instant) -> bool {
        self.waiting == 0 && now >= self.clear_at
    }

    /// Moves the slot to where it belongs if none of its frames is under way. True: it is there.
    pub(super) fn move_if_clear(&mut self, now: Instant) -> bool {
        if self.current == self.wanted {
            return true;
        }
        if !self.is_clear(now) || self.wanted == NOBODY {
            return false;
        }
        (self.current, self.fresh, self.moved) = (self.wanted, false, true);
        true
    }

    /// Whether frames must not go by the current member.
    pub(super) fn must_wait(&self, now: Instant) -> bool {
        self.current == NOBODY || now >= self.force_at
    }

    /// When to ask again.
    pub(super) fn clear_at(&self, now: Instant, quiet: Duration) -> Instant {
        if self.waiting > 0 {
            now + quiet
        } else {
            self.clear_at.max(now)
        }
    }

    /// When the slot may move without a frame; `None`: not before a frame departs.
    pub(super) fn wakes(&self) -> Option<Instant> {
        (self.waiting == 0 && self.wanted != NOBODY).then_some(self.clear_at)
    }

    /// A frame has left its port; all frames have arrived at `clear_at`.
    #[inline]
    pub(super) fn departed(&mut self, clear_at: Instant) {
        self.waiting = self.waiting.saturating_sub(1);
        self.clear_at = self.clear_at.max(clear_at);
    }
}
