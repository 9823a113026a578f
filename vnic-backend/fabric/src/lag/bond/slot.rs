//! What moves from member to member as a whole: a bucket, or what an affinity is about.

use core::time::Duration;

use crate::Instant;
use crate::lag::Member;

/// A slot of a bond: what [`departed`](super::Bond::departed) and [`retry`](super::Bond::retry) are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SlotId(pub(super) u32);

impl SlotId {
    /// Its place: less than [`SLOTS_MAX`](super::SLOTS_MAX).
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// In the place of a member's number.
const NOBODY: u8 = u8::MAX;

/// See the module.
#[derive(Debug, Clone, Copy)]
pub(in crate::lag) struct Slot {
    /// Where frames go.
    current: u8,
    /// Where they are to go.
    wanted: u8,
    /// It is new, and frames that match it may be under way by any member.
    fresh: bool,
    /// It is an affinity's that is to go when nothing of it is under way.
    leaves: bool,
    /// It has moved since somebody asked.
    pub(super) moved: bool,
    /// Frames that were given to a port and have not left it.
    pub(super) waiting: u32,
    /// Frames that the caller holds.
    pub(super) held: u32,
    /// When what has left the port has arrived.
    clear_at: Instant,
    /// When it has had time enough to pause by itself.
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
    /// A new affinity's: nothing goes before this time.
    pub(super) fn fresh(clear_at: Instant) -> Slot {
        Slot {
            fresh: true,
            clear_at,
            ..Slot::default()
        }
    }

    /// Where frames go.
    #[inline]
    pub(in crate::lag) fn member(&self) -> Option<Member> {
        member(self.current)
    }

    /// Where they are to go.
    #[inline]
    pub(in crate::lag) fn wanted(&self) -> Option<Member> {
        member(self.wanted)
    }

    /// Is it where it belongs, and stays?
    #[inline]
    pub(in crate::lag) fn is_settled(&self) -> bool {
        self.current == self.wanted && !self.leaves
    }

    /// Is it to go?
    #[inline]
    pub(in crate::lag) fn leaves(&self) -> bool {
        self.leaves
    }

    /// It is to go, or after all not. True: that is new.
    pub(super) fn set_leaves(&mut self, leaves: bool) -> bool {
        core::mem::replace(&mut self.leaves, leaves) != leaves
    }

    /// Is nobody there to go to?
    #[inline]
    pub(super) fn is_aimless(&self) -> bool {
        self.wanted == NOBODY
    }

    /// It belongs to this member from now on. `dead`: the one it is on carries nothing any more. True: it has moved.
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

    /// Is nothing of it under way?
    #[inline]
    pub(super) fn is_clear(&self, now: Instant) -> bool {
        self.waiting == 0 && now >= self.clear_at
    }

    /// Goes where it belongs if nothing of it is under way. True: it is there.
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

    /// May its frames not go where it still is?
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

    /// When it may move without a frame; none: not before one departs.
    pub(super) fn wakes(&self) -> Option<Instant> {
        (self.waiting == 0 && self.wanted != NOBODY).then_some(self.clear_at)
    }

    /// A frame has left its port; all has arrived at this time.
    #[inline]
    pub(super) fn departed(&mut self, clear_at: Instant) {
        self.waiting = self.waiting.saturating_sub(1);
        self.clear_at = self.clear_at.max(clear_at);
    }
}
