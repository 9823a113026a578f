//! Work that a function may do in a turn, and debt from earlier turns: deficit round robin (Shreedhar, Varghese, Efficient
//! Fair Queuing Using Deficit Round Robin, SIGCOMM 1995), in one unit of work for all that a driver can ask for. Time is not
//! measured: two readings of a clock for each turn would cost more than most turns.
//!
//! The unit is a doorbell, or a work request that is read: some 50 ns. A turn ends when its work is done. Work beyond it
//! (some cannot be cut in two) costs the function later turns; work that it did not use is lost.

/// Work in a turn for reading rings, and as much again for sending: of a function that has the core for itself, and of one
/// that shares it, whose turn takes about as long as an Ethernet queue's burst of frames.
const ALONE: i32 = 256;
const SHARED: i32 = 64;

/// Work of a sent packet, up to the copy at its receiver.
pub const PACKET: i32 = 16;
/// Work of a frame's bytes, which are looked at and copied once more than a packet's.
pub fn of_bytes(len: usize) -> u32 {
    PACKET.cast_unsigned() + (len / 256) as u32
}

/// Work of a packet of a run.
pub const RUN_PACKET: i32 = 4;
/// Work of a command, with its reply and the interrupt.
pub const COMMAND: i32 = 64;
/// Work of a queue pair's timer.
pub const TIMER: i32 = 4;
/// Work of an event, with the interrupt of its queue.
pub const EVENT: i32 = 8;
/// Number of extents of a list that are one unit of work.
pub const EXTENTS: u32 = 4;
/// Work that a packet without a receive may spend on the search for one when the turn is over.
pub const LACKING: i32 = 16;

/// Work of one turn for reading, or for sending.
#[inline]
pub fn of_a_turn(shared: bool) -> i32 {
    if shared { SHARED } else { ALONE }
}

/// Work of a packet that leaves through an uplink. If the core is not shared, it is that of a packet of a run: packets that
/// leave together cost the kernel less.
#[inline]
pub fn of_a_packet_that_leaves(shared: bool) -> i32 {
    if shared { PACKET } else { RUN_PACKET }
}

/// Account of a function's work.
#[derive(Debug, Default)]
pub struct Account {
    /// Work left of this turn; below 0: debt.
    left: i32,
    /// Work of the whole turn.
    turn: i32,
    /// Whether the function wants to send: its driver has posted something in this turn, much was done, or a timer has
    /// passed.
    pub asked: bool,
    /// Priorities with packets that wait for the adapter's limits, as the core knows them.
    pub waits: u8,
}

impl Account {
    /// Begins a turn. False: earlier turns' debt takes it.
    #[inline]
    pub fn begin(&mut self, shared: bool) -> bool {
        self.turn = of_a_turn(shared);
        self.left = self.left.saturating_add(self.turn).min(self.turn);
        self.left > 0
    }

    /// Charges work that was done.
    #[inline]
    pub fn charge(&mut self, work: i32) {
        self.left = self.left.saturating_sub(work);
    }

    /// Work that may still be done.
    #[inline]
    pub fn left(&self) -> u32 {
        self.left.max(0).cast_unsigned()
    }

    /// Whether no more work may be done.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.left <= 0
    }

    /// Lends work to something that cannot wait, so that at least `work` may be done. [`Account::repay`] takes the result.
    #[inline]
    pub fn lend(&mut self, work: i32) -> i32 {
        let lent = work.saturating_sub(self.left).max(0);
        self.left = self.left.saturating_add(lent);
        lent
    }

    /// Charges lent work.
    #[inline]
    pub fn repay(&mut self, lent: i32) {
        self.charge(lent);
    }

    /// Whether more than half of this turn was used. Other adapters have then waited, whether or not anything was sent.
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
        // Unused work is not saved.
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
