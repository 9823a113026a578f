//! Fair shares of an adapter's limits, in bytes: start-time fair queueing (Goyal, Vin, Cheng, Start-time Fair Queuing,
//! SIGCOMM 1996) over the adapter's transmit queues, its send queues, its RDMA function and its guest's waiting RoCE. Without
//! it the queue that is served first would get all bytes. Of the adapter's rate each traffic class has what the classes' order
//! gives it ([`Order`]), as at a port; members that send in one class have the same of it.

use vnic_fabric::Instant;
use vnic_fabric::qos::{Classes, Order, PRIORITIES};

use super::limits::Limits;

/// Largest number of transmit queues of an adapter.
const QUEUES: usize = 16;
const MEMBERS: usize = QUEUES + 3;

/// A member that shares the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member(u8);

impl Member {
    /// The adapter's RDMA function.
    pub const RDMA: Member = Member(QUEUES as u8);
    /// All send queues together, if each priority has one.
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
    /// Priorities that the member waits for, a bit each.
    priorities: u8,
    /// When the member began to have more to send than it may.
    since: Instant,
    /// The last two rounds in which the member asked, the newer one first.
    asked: Instant,
    before: Instant,
    /// Finish tag of the member's last bytes, in the virtual time of each class.
    served: [u64; PRIORITIES],
}

/// Turns of an adapter's members.
#[derive(Debug, Default)]
pub struct Turns {
    /// Members that have more to send than they may, a bit each.
    waiting: u32,
    members: [Turn; MEMBERS],
    /// Virtual time of each class: start tag of the member that was served last.
    time: [u64; PRIORITIES],
    /// Order of the classes that share the adapter's rate.
    order: Order,
}

impl Turns {
    /// Nobody waits.
    pub fn new(classes: &Classes) -> Turns {
        let mut turns = Turns::default();
        turns.order.configure(classes);
        turns
    }

    /// Whether no member waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// When a member began to have more to send than it may.
    #[inline]
    pub fn since(&self, who: Member) -> Option<Instant> {
        (self.waiting & who.bit() != 0).then(|| self.members[usize::from(who.0)].since)
    }

    /// Records that a member waits for these priorities, one or more.
    pub fn wait(&mut self, now: Instant, who: Member, priorities: u8) {
        self.ask(now, who);
        let turn = &mut self.members[usize::from(who.0)];
        turn.priorities = priorities;
        if self.waiting & who.bit() == 0 {
            self.waiting |= who.bit();
            turn.since = now;
            for (served, time) in turn.served.iter_mut().zip(self.time) {
                *served = time.max(*served);
            }
        }
    }

    /// Records that a member has nothing to send, or cannot send for another reason: no other member waits for it.
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

    /// Whether another member, or another class of the same member, is next to use the limits of this priority. Asked while they are
    /// open.
    #[inline]
    pub fn is_others(&mut self, now: Instant, who: Member, priority: u8, limits: &Limits) -> bool {
        let own = self.members[usize::from(who.0)].priorities;
        let alone = self.waiting & !who.bit() == 0 && own & own.wrapping_sub(1) == 0;
        self.waiting != 0 && !alone && self.is_behind(now, who, priority, limits)
    }

    #[cold]
    fn is_behind(&mut self, now: Instant, who: Member, priority: u8, limits: &Limits) -> bool {
        self.ask(now, who);
        let me = self.members[usize::from(who.0)];
        let (waiting, order) = (self.waiting, &self.order);
        let tc = limits.tc(priority);
        let time = self.time[tc];
        // Who did not ask while time went on has nothing to catch up with but others who did not.
        let tag = |member: &Turn| (member.served[tc].max(time), member.served[tc]);
        self.members.iter().zip(0u8..).any(|(other, i)| {
            // Whether what the member sends of a priority goes first.
            let is_first = |p: u8| {
                let class = limits.tc(p);
                match tc == class {
                    true => i != who.0 && tag(other) < tag(&me),
                    false => order.choose(1 << tc | 1 << class) == class,
                }
            };
            waiting >> i & 1 != 0
                // All members ask in each round: one that missed a round does not come.
                && other.asked >= me.before
                && (0..8).any(|p| {
                    other.priorities >> p & 1 != 0
                        && limits.shared(p, priority)
                        && is_first(p)
                        && limits.is_open(now, p)
                })
        })
    }

    /// Counts bytes that a member has sent in a class.
    #[inline]
    pub fn served(&mut self, who: Member, tc: usize, wire: u64) {
        let (served, time) = (
            &mut self.members[usize::from(who.0)].served[tc],
            &mut self.time[tc],
        );
        *time = (*served).max(*time);
        *served = *time + wire;
        self.order.charge(tc, wire.try_into().unwrap_or(u32::MAX));
    }
}
