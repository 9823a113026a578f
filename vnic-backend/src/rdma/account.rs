//! What a function may do in a turn before others have theirs, and what it owes them: deficit round robin (Shreedhar and Varghese
//! 1995), in one unit of work for all that a driver can ask for. Time is not measured: two readings of a clock for each turn would
//! cost more than most turns.
//!
//! The unit is a doorbell, or a work request that is read: some 50 ns. A turn ends when its work is done. What it did beyond (what
//! is begun is not always cut in two) is paid by turns that the function does not have; what it did not use is lost.

/// What a turn reads of rings, and as much again of what it sends: of a function that has the core for itself, and of one that
/// has not, whose turn takes about as long as an Ethernet queue takes for a burst of frames.
const ALONE: i32 = 256;
const SHARED: i32 = 64;

/// A packet that is sent, up to where its bytes land.
pub const PACKET: i32 = 13;
/// One of a run.
pub const RUN_PACKET: i32 = 4;
/// A command, with its reply and the interrupt.
pub const COMMAND: i32 = 64;
/// The timer of a queue pair.
pub const TIMER: i32 = 4;
/// An event, and the interrupt of its queue.
pub const EVENT: i32 = 8;
/// So many extents of a list take one.
pub const EXTENTS: u32 = 4;
/// What a packet may look for, if it lacks a receive and the turn is over.
pub const LACKING: i32 = 16;

/// Work of one turn that reads, or of one that sends.
#[inline]
pub fn of_a_turn(shared: bool) -> i32 {
    if shared { SHARED } else { ALONE }
}

/// Work of a packet that leaves by an uplink. While nobody waits for the core, as little as of one of a run: packets that leave
/// together cost the kernel less.
#[inline]
pub fn of_a_packet_that_leaves(shared: bool) -> i32 {
    if shared { PACKET } else { RUN_PACKET }
}

/// A function's account.
#[derive(Debug, Default)]
pub struct Account {
    /// What is left of this turn; below 0: what is owed.
    left: i32,
    /// What it was at first.
    turn: i32,
    /// The function wants to send: its driver has posted something in this turn, much was done, or a timer has passed.
    pub asked: bool,
    /// Priorities of which something waits for the adapter's limits, as the core was told.
    pub waits: u8,
}

impl Account {
    /// A turn begins. False: it is others' turn, because of what was done before.
    #[inline]
    pub fn begin(&mut self, shared: bool) -> bool {
        self.turn = of_a_turn(shared);
        self.left = self.left.saturating_add(self.turn).min(self.turn);
        self.left > 0
    }

    /// Something was done.
    #[inline]
    pub fn charge(&mut self, work: i32) {
        self.left = self.left.saturating_sub(work);
    }

    /// What may still be done.
    #[inline]
    pub fn left(&self) -> u32 {
        self.left.max(0).cast_unsigned()
    }

    /// Nothing more may be done?
    #[inline]
    pub fn is_over(&self) -> bool {
        self.left <= 0
    }

    /// For what cannot wait: so much may be done at least. [`repay`](Account::repay) wants the answer.
    #[inline]
    pub fn lend(&mut self, work: i32) -> i32 {
        let lent = work.saturating_sub(self.left).max(0);
        self.left = self.left.saturating_add(lent);
        lent
    }

    /// What was lent counts as done.
    #[inline]
    pub fn repay(&mut self, lent: i32) {
        self.charge(lent);
    }

    /// Was more than half of this turn used? Then others have waited, whether or not anything was sent.
    #[inline]
    pub fn did_much(&self) -> bool {
        self.left < self.turn / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_done_beyond_a_turn_is_paid_by_turns() {
        let mut account = Account::default();
        assert!(account.begin(true));
        assert_eq!(account.left(), 64);
        account.charge(10 * 64 + 1);
        assert!(account.is_over() && account.did_much());
        let others = (0..100).take_while(|_| !account.begin(true)).count();
        assert_eq!((others, account.left()), (9, 63));
        // What is not used is not saved.
        for _ in 0..10 {
            assert!(account.begin(true));
        }
        assert_eq!((account.left(), account.did_much()), (64, false));
        assert!(account.begin(false));
        assert_eq!(account.left(), 256);
    }

    #[test]
    fn what_is_lent_is_owed() {
        let mut account = Account::default();
        assert!(account.begin(true));
        account.charge(100);
        let lent = account.lend(16);
        assert_eq!(account.left(), 16);
        account.charge(10);
        account.repay(lent);
        assert!(account.is_over());
        assert!(account.begin(true));
        assert_eq!(account.left(), 64 - 46);
        assert_eq!(account.lend(16), 0, "there is enough");
    }
}
