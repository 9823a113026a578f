//! Who shares a limit of an adapter gets the same share of it in bytes: start-time fair queueing (Goyal, Vin, Cheng 1996),
//! over the adapter's transmit queues, its send queues, its RDMA function and what waits of its guest's own RoCE. Without it the
//! queue that is looked at first would get everything.

use vnic_fabric::Instant;

use super::limits::Limits;

/// Transmit queues of an adapter at most.
const QUEUES: usize = 16;
const MEMBERS: usize = QUEUES + 3;

/// One who sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member(u8);

impl Member {
    /// The adapter's RDMA function.
    pub const RDMA: Member = Member(QUEUES as u8);
    /// All transmit queues together, where each priority has a send queue.
    pub const SEND_QUEUES: Member = Member(QUEUES as u8 + 1);

    /// Frames of the guest's own RoCE that wait for the rate of their flow.
    pub const GUEST_ROCE: Member = Member(QUEUES as u8 + 2);

    /// A transmit queue.
    #[inline]
    pub fn queue(pair: usize) -> Member {
        Member((pair % QUEUES) as u8)
    }

    #[inline]
    fn bit(self) -> u32 {
        1 << self.0
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Turn {
    /// Priorities that it waits for, a bit each.
    priorities: u8,
    /// Since when it has had more to send than it may.
    since: Instant,
    /// The round in which it asked last, and the one before in which it did.
    asked: Instant,
    before: Instant,
    /// Bytes that it has had, in the time of the whole.
    served: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Turns {
    /// Members that have more to send than they may, a bit each.
    waiting: u32,
    members: [Turn; MEMBERS],
    /// Where the member that was served last stood.
    time: u64,
}

impl Turns {
    /// Does nobody wait?
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Since when a member has had more to send than it may.
    #[inline]
    pub fn since(&self, who: Member) -> Option<Instant> {
        (self.waiting & who.bit() != 0).then(|| self.members[usize::from(who.0)].since)
    }

    /// A member waits for one of these priorities, not none.
    pub fn wait(&mut self, now: Instant, who: Member, priorities: u8) {
        self.ask(now, who);
        let turn = &mut self.members[usize::from(who.0)];
        turn.priorities = priorities;
        if self.waiting & who.bit() == 0 {
            self.waiting |= who.bit();
            turn.since = now;
            turn.served = turn.served.max(self.time);
        }
    }

    /// It has nothing to send, or cannot send for another reason: nobody needs to wait for it.
    #[inline]
    pub fn leave(&mut self, who: Member) {
        self.waiting &= !who.bit();
    }

    fn ask(&mut self, now: Instant, who: Member) {
        let turn = &mut self.members[usize::from(who.0)];
        if turn.asked != now {
            (turn.before, turn.asked) = (turn.asked, now);
        }
    }

    /// Is it another's turn to use the limits that a frame of this priority needs? Asked when they are open.
    #[inline]
    pub fn is_others(&mut self, now: Instant, who: Member, priority: u8, limits: &Limits) -> bool {
        self.waiting & !who.bit() != 0 && self.is_behind(now, who, priority, limits)
    }

    #[cold]
    fn is_behind(&mut self, now: Instant, who: Member, priority: u8, limits: &Limits) -> bool {
        self.ask(now, who);
        let me = self.members[usize::from(who.0)];
        let mine = me.served.max(self.time);
        self.members.iter().zip(0u8..).any(|(other, i)| {
            i != who.0
                && self.waiting >> i & 1 != 0
                && other.served < mine
                // All are looked at in each round: who has missed one does not come.
                && other.asked >= me.before
                && (0..8).any(|p| {
                    other.priorities >> p & 1 != 0 && limits.shared(p, priority) && limits.is_open(now, p)
                })
        })
    }

    /// A member has sent so many bytes.
    #[inline]
    pub fn served(&mut self, who: Member, wire: u64) {
        let turn = &mut self.members[usize::from(who.0)];
        let start = turn.served.max(self.time);
        turn.served = start + wire;
        self.time = start;
    }
}
