//! Which of a class's sources goes next: those with credit of their guaranteed rate, the most behind first; then all in
//! turn (deficit round robin in bytes on the wire, Shreedhar and Varghese 1995; a frame may take its source into debt, so
//! that lengths need not be known before).
//!
//! A source's queue stands in the list of its class and its first frame's priority, so that closed priorities cost nothing to skip.
//! A round number keeps turns equal between the lists of one class.

use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::fifo::{Fifo, NONE};
use crate::Instant;
use crate::qos::order::bits;
use crate::qos::{Bucket, LANES, PRIORITIES};

/// Bytes of a turn: a full-size frame.
const QUANTUM: i64 = 1600;
/// Lists: one by class and priority, and those of a class that is not there.
const LISTS: usize = (LANES + 1) * PRIORITIES;
/// Lists in a word of [`Turns::heads`].
const WORD: usize = u64::BITS as usize;
/// No priority.
const NOWHERE: u8 = u8::MAX;

/// Frames of one source in one class.
#[derive(Debug)]
pub(super) struct Queue {
    pub source: u16,
    pub class: u8,
    pub fifo: Fifo,
    /// Guaranteed rate; a rate of 0: none.
    pub sure: Bucket,
    /// Whether the source is gone: the queue ends when it is empty.
    pub gone: bool,
    /// Priority of the first frame, whose list the queue stands in; [`NOWHERE`]: the queue is empty, and in no list.
    head: u8,
    previous: u32,
    next: u32,
    /// Bytes that the queue may still send in this turn; negative: debt.
    deficit: i64,
    /// Round of the queue's next turn.
    round: u64,
    /// The queue's entry in a heap of `sure`: the heap, and a number that makes older entries void.
    heap: u8,
    ticket: u32,
}

impl Queue {
    pub(super) fn new(source: u16, class: u8, ticket: u32) -> Queue {
        Queue {
            source,
            class,
            fifo: Fifo::EMPTY,
            sure: Bucket::UNLIMITED,
            gone: false,
            head: NOWHERE,
            previous: NONE,
            next: NONE,
            deficit: 0,
            round: 0,
            heap: NOWHERE,
            ticket,
        }
    }

    /// The list of frames with this priority.
    #[inline]
    fn list(&self, priority: u8) -> usize {
        place(self.class.into(), priority.into())
    }

    /// A number that no entry of this queue has.
    pub(super) fn next_ticket(&self) -> u32 {
        self.ticket.wrapping_add(1)
    }
}

/// Place of the list of a class and a priority.
#[inline]
fn place(class: usize, priority: usize) -> usize {
    (class * PRIORITIES + priority) % LISTS
}

/// Bytes that are not 0 but for bits that are closed, a bit each.
#[inline]
fn filled(heads: u64, closed: u8) -> u8 {
    const LOW: u64 = u64::from_ne_bytes([1; 8]);
    const HIGH: u64 = LOW << 7;
    let open = heads & !(LOW * u64::from(closed));
    // The high bit of each byte that is not 0; then these eight bits, side by side.
    let some = (((open & !HIGH) + !HIGH) | open) & HIGH;
    ((some >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8
}

#[derive(Debug, Clone, Copy)]
struct List {
    first: u32,
    last: u32,
}

const EMPTY: List = List {
    first: NONE,
    last: NONE,
};

/// The order in which a port's sources send, by class.
#[derive(Debug)]
pub(super) struct Turns {
    pub queues: Vec<Queue>,
    /// Lists by class and priority of the first frame.
    lists: [List; LISTS],
    /// Lists that are not empty, a bit each: a byte of priorities for each class, eight classes in a word.
    heads: [u64; LISTS / WORD],
    /// Round by class.
    rounds: [u64; LANES],
    /// Queues with a guaranteed rate by class and priority of the first frame: when they have credit, their index, their ticket.
    sure: [BinaryHeap<Reverse<(Instant, u32, u32)>>; LISTS],
}

impl Turns {
    pub(super) fn new() -> Turns {
        Turns {
            queues: Vec::new(),
            lists: [EMPTY; LISTS],
            heads: [0; LISTS / WORD],
            rounds: [0; LANES],
            sure: [const { BinaryHeap::new() }; LISTS],
        }
    }

    /// Priorities of first frames of a class, a bit each.
    #[inline]
    pub(super) fn heads(&self, class: usize) -> u8 {
        (self.heads[class / PRIORITIES % 2] >> (8 * (class % PRIORITIES))) as u8
    }

    /// Classes with a first frame of a priority that is not closed, a bit each.
    #[inline]
    pub(super) fn classes(&self, closed: u8) -> u16 {
        let [lower, upper] = self.heads;
        let classes = u16::from(filled(lower, closed));
        match upper {
            0 => classes,
            _ => classes | u16::from(filled(upper, closed)) << 8,
        }
    }

    /// Queue `at`, which was empty, has a first frame of this priority.
    pub(super) fn start(&mut self, at: u32, priority: u8) {
        let q = &mut self.queues[at as usize];
        let round = self.rounds[usize::from(q.class)];
        // Debt lasts over an empty queue, but rounds that pass pay it.
        let passed = i64::try_from(round.saturating_sub(q.round)).unwrap_or(i64::MAX);
        q.deficit = q.deficit.saturating_add(passed.saturating_mul(QUANTUM)).min(0) + QUANTUM;
        let last = self.lists[q.list(priority)].last;
        let behind = self.queues.get(last as usize).map_or(0, |l| l.round);
        self.queues[at as usize].round = round.max(behind);
        self.link_last(at, priority);
        self.enlist(at);
    }

    /// Queue `at` has another first frame, or none any more.
    pub(super) fn advance(&mut self, at: u32, priority: Option<u8>) {
        let q = &self.queues[at as usize];
        let (head, deficit) = (q.head, q.deficit);
        match priority {
            Some(p) if p == head => {}
            None => self.unlink(at),
            Some(p) => {
                self.unlink(at);
                if deficit > 0 {
                    self.link_first(at, p);
                } else {
                    self.link_last(at, p);
                }
                self.enlist(at);
            }
        }
    }

    /// All queues are empty.
    pub(super) fn clear(&mut self) {
        self.lists = [EMPTY; LISTS];
        self.heads = [0; LISTS / WORD];
        for heap in &mut self.sure {
            heap.clear();
        }
        for q in &mut self.queues {
            q.fifo = Fifo::EMPTY;
            (q.head, q.previous, q.next, q.heap) = (NOWHERE, NONE, NONE, NOWHERE);
        }
    }

    /// The queue of a class that goes next, of those whose first frames have these priorities (none of which is empty); and whether it
    /// goes by its guaranteed rate.
    pub(super) fn next(&mut self, now: Instant, class: usize, open: u8) -> (u32, bool) {
        match self.most_behind(now, class, open) {
            Some(at) => (at, true),
            None => (self.turn(class, open), false),
        }
    }

    /// Charges queue `at` for bytes that it sent.
    #[inline]
    pub(super) fn charge(&mut self, now: Instant, at: u32, sure: bool, bytes: u32) {
        let q = &mut self.queues[at as usize];
        if sure {
            q.sure.charge(now, bytes);
            q.heap = NOWHERE;
            self.enlist(at);
        } else {
            q.deficit -= i64::from(bytes);
        }
    }

    /// Changes the guaranteed rate of queue `at`.
    pub(super) fn set_sure(&mut self, at: u32, sure: Bucket) {
        let q = &mut self.queues[at as usize];
        q.sure = sure;
        q.heap = NOWHERE;
        q.ticket = q.next_ticket();
        if q.head != NOWHERE {
            self.enlist(at);
        }
    }

    fn most_behind(&mut self, now: Instant, class: usize, open: u8) -> Option<u32> {
        let mut best: Option<(Instant, u32)> = None;
        for p in bits(open) {
            let heap = &mut self.sure[place(class, p)];
            while let Some(Reverse((since, at, ticket))) = heap.peek().copied() {
                let q = self.queues.get_mut(at as usize);
                match q.filter(|q| q.ticket == ticket) {
                    // The entry stays while the queue has such a frame in front, and comes back with it.
                    Some(q) if usize::from(q.head) == p => {
                        if since <= now && best.is_none_or(|(b, _)| since < b) {
                            best = Some((since, at));
                        }
                        break;
                    }
                    Some(q) => q.heap = NOWHERE,
                    None => {}
                }
                heap.pop();
            }
        }
        best.map(|(_, at)| at)
    }

    fn turn(&mut self, class: usize, open: u8) -> u32 {
        loop {
            // Turns of an earlier round come first; a priority that was closed has not gathered any.
            let p = if open.is_power_of_two() {
                open.trailing_zeros() as usize
            } else {
                let round = |p: usize| {
                    let q = self.queues.get(self.lists[place(class, p)].first as usize);
                    q.map_or(u64::MAX, |q| q.round.max(self.rounds[class]))
                };
                bits(open).min_by_key(|p| round(*p)).unwrap_or(0)
            };
            let list = place(class, p);
            let at = self.lists[list].first;
            let q = &mut self.queues[at as usize];
            let round = &mut self.rounds[class];
            *round = q.round.max(*round);
            q.round = *round;
            if q.deficit > 0 {
                return at;
            }
            q.deficit += QUANTUM;
            q.round += 1;
            if self.lists[list].last != at {
                self.unlink(at);
                self.link_last(at, p as u8);
            }
        }
    }

    /// Puts queue `at` into the heap of its first frame's priority, if it has a guaranteed rate.
    fn enlist(&mut self, at: u32) {
        let q = &mut self.queues[at as usize];
        if q.sure.rate() == 0 || q.heap == q.head {
            return;
        }
        q.ticket = q.next_ticket();
        q.heap = q.head;
        let entry = Reverse((q.sure.opens_at(), at, q.ticket));
        let heap = &mut self.sure[q.list(q.head)];
        heap.push(entry);
        if heap.len() > 2 * self.queues.len() + 64 {
            let queues = &self.queues;
            heap.retain(|Reverse((_, at, ticket))| queues[*at as usize].ticket == *ticket);
        }
    }

    fn link_last(&mut self, at: u32, priority: u8) {
        let place = self.queues[at as usize].list(priority);
        let list = &mut self.lists[place];
        let last = core::mem::replace(&mut list.last, at);
        if last == NONE {
            list.first = at;
        } else {
            self.queues[last as usize].next = at;
        }
        let q = &mut self.queues[at as usize];
        (q.head, q.previous, q.next) = (priority, last, NONE);
        self.heads[place / WORD] |= 1 << (place % WORD);
    }

    fn link_first(&mut self, at: u32, priority: u8) {
        let place = self.queues[at as usize].list(priority);
        let list = &mut self.lists[place];
        let first = core::mem::replace(&mut list.first, at);
        if first == NONE {
            list.last = at;
        } else {
            self.queues[first as usize].previous = at;
        }
        let q = &mut self.queues[at as usize];
        (q.head, q.previous, q.next) = (priority, NONE, first);
        self.heads[place / WORD] |= 1 << (place % WORD);
    }

    fn unlink(&mut self, at: u32) {
        let q = &mut self.queues[at as usize];
        let (place, previous, next) = (q.list(q.head), q.previous, q.next);
        (q.head, q.previous, q.next) = (NOWHERE, NONE, NONE);
        let list = &mut self.lists[place];
        if previous == NONE {
            list.first = next;
        } else {
            self.queues[previous as usize].next = next;
        }
        if next == NONE {
            list.last = previous;
        } else {
            self.queues[next as usize].previous = previous;
        }
        if list.first == NONE {
            self.heads[place / WORD] &= !(1 << (place % WORD));
        }
    }
}
