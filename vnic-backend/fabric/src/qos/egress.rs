//! Queues of a port, and which of them sends next: strict classes, then ETS by deficit in bytes on the wire; within a class,
//! guaranteed rates of sources, then all in turn.
//!
//! [`Order`] says which class is next. With tables of [`VlArbitration`](super::VlArbitration) a class is a virtual lane, and the
//! tables say it.
//!
//! In a class a source gets its guaranteed rate, and its turn in what is left of the class.
//!
//! Rates are those of a link: a frame that has waited is sent as if it had been sent in time, so that a core that looks late
//! does not lose rate (up to [`CATCH_UP`]; [`Away`] says for how long); silence gathers credit of [`SLACK`] only.

mod ahead;
mod fifo;
#[cfg(test)]
mod tests;
mod turns;

use alloc::vec::Vec;
use core::time::Duration;

use super::arbiter::Turn;
use super::order::{Order, bits};
use super::{Away, Bucket, Colour, LANES, LEVELS, PRIORITIES, PortQos};
use crate::Instant;
use ahead::Ahead;
use fifo::{NONE, Nodes};
use turns::{Queue, Turns};

/// Credit that silence gathers: a round of a busy core.
pub const SLACK: Duration = Duration::from_micros(100);
/// How late a core may look at frames that wait without losing rate: a time slice of the kernel's scheduler.
pub const CATCH_UP: Duration = Duration::from_millis(5);

/// What a queue knows of an item that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Port that the item came from.
    pub source: u16,
    /// Priority of the item, 0..=7.
    pub priority: u8,
    /// Service level of the item, 0..=15: the priority, or 8 more. Its class follows from it.
    pub level: u8,
    /// Colour of the item, which marks and early drops look at.
    pub colour: Colour,
    /// Bytes on the wire, [`WIRE_OVERHEAD`](super::WIRE_OVERHEAD) of each frame included.
    pub wire: u32,
    /// Bytes of buffer that the item takes.
    pub bytes: u32,
    /// When the item came.
    pub since: Instant,
}

/// The item that goes next. Valid until the queues are touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pick {
    /// The traffic class.
    pub class: u8,
    /// Index of the source's queue.
    pub(super) queue: u32,
    /// Whether it goes by the source's guaranteed rate.
    sure: bool,
    /// The turn of its virtual lane, where there are arbitration tables.
    turn: Option<Turn>,
}

/// Queues of a port, by class and source. `T` is an item that waits.
// Wide: the state of one scheduler, which each frame reads together.
#[derive(Debug)]
pub struct Egress<T> {
    /// Bytes that may pass; only while nothing waits.
    ahead: Ahead,
    len: usize,
    /// Class by service level.
    class_of: [u8; LEVELS],
    /// Whether service levels 8..=15 may have other classes than their priorities.
    upper: bool,
    /// Class by service level of what some sources sent, by source.
    by_source: Vec<(u16, [u8; LEVELS])>,
    port: Bucket,
    limits: [Bucket; LANES],
    /// Classes with a limit, a bit each.
    limited: u16,
    order: Order,
    away: Away,
    /// Until then the port had credit, and nothing that might have gone.
    idle_until: Instant,
    nodes: Nodes<T>,
    turns: Turns,
    /// Index of the queue by source and class.
    index: Vec<[u32; LANES]>,
    free: Vec<u32>,
    bytes: [u64; LANES],
    frames: [u32; LANES],
}

impl<T> Egress<T> {
    /// Empty queues.
    pub fn new(qos: &PortQos, now: Instant) -> Egress<T> {
        let mut egress = Egress {
            ahead: Ahead::default(),
            len: 0,
            class_of: [0; LEVELS],
            upper: false,
            by_source: Vec::new(),
            port: Bucket::new(0, SLACK),
            limits: [Bucket::new(0, SLACK); LANES],
            limited: 0,
            order: Order::default(),
            away: Away::default(),
            idle_until: now,
            nodes: Nodes::new(),
            turns: Turns::new(),
            index: Vec::new(),
            free: Vec::new(),
            bytes: [0; LANES],
            frames: [0; LANES],
        };
        egress.configure(qos, now);
        egress
    }

    /// Takes another configuration; items that wait stay, in their order.
    pub fn configure(&mut self, qos: &PortQos, now: Instant) {
        self.settle();
        let classes = &qos.classes;
        // Waiting at the old rates gives no credit at the new ones.
        self.idle_until = now;
        self.away = Away::default();
        self.port.set_rate(qos.rate);
        self.limited = 0;
        for c in 0..PRIORITIES {
            self.limits[c].set_rate(classes.limit[c]);
            self.limited |= u16::from(classes.limit[c] != 0) << c;
        }
        self.order.configure(classes);
        self.upper = classes.has_upper();
        let class_of = classes.of_level().map(|c| c % LANES as u8);
        let by_source = classes.by_source.iter();
        let by_source: Vec<_> = by_source
            .map(|(source, table)| (*source, table.map(|c| c % LANES as u8)))
            .collect();
        if (class_of, &by_source) != (self.class_of, &self.by_source) {
            (self.class_of, self.by_source) = (class_of, by_source);
            self.reclass();
        }
    }

    /// Whether service levels 8..=15 may have other classes than their priorities.
    #[inline(always)]
    pub fn has_upper(&self) -> bool {
        self.upper
    }

    /// Class of what a source sends with this service level, below [`LANES`].
    #[inline]
    pub fn class(&self, source: u16, level: u8) -> u8 {
        let level = usize::from(level) % LEVELS;
        if self.by_source.is_empty() {
            return self.class_of[level];
        }
        let own = self.by_source.iter().find(|(of, _)| *of == source);
        own.map_or(&self.class_of, |(_, table)| table)[level]
    }

    /// Service levels go to other classes: all items that wait are put in order again.
    fn reclass(&mut self) {
        let mut waiting = Vec::with_capacity(self.len);
        for q in &mut self.turns.queues {
            while let Some(first) = self.nodes.pop(&mut q.fifo) {
                waiting.push(first);
            }
        }
        waiting.sort_unstable_by_key(|(number, ..)| *number);
        let gone = self.turns.queues.iter().filter(|q| q.gone);
        let gone: Vec<u16> = gone.map(|q| q.source).collect();
        self.turns.clear();
        self.len = 0;
        (self.bytes, self.frames) = ([0; LANES], [0; LANES]);
        for (_, entry, item) in waiting {
            self.push(entry, item);
        }
        for source in gone {
            for class in 0..LANES as u8 {
                let at = self.place(source, class);
                let q = self.turns.queues.get_mut(at as usize);
                if let Some(q) = q.filter(|q| q.sure.rate() == 0) {
                    q.gone = true;
                    self.end_if_gone(at);
                }
            }
        }
    }

    /// Sets the guaranteed rate of a source in each class, in bit/s (0: none); [`Egress::forget_source`] forgets it.
    pub fn set_guarantee(&mut self, source: u16, guarantee: &[u64; 8]) {
        for (class, rate) in guarantee.iter().enumerate() {
            if *rate == 0 && self.place(source, class as u8) == NONE {
                continue;
            }
            let at = self.queue(source, class as u8);
            self.turns.queues[at as usize].gone = false;
            if self.turns.queues[at as usize].sure.rate() != *rate {
                self.turns.set_sure(at, Bucket::new(*rate, CATCH_UP));
            }
        }
    }

    /// Forgets a source that is gone; items that it has sent are still sent.
    pub fn forget_source(&mut self, source: u16) {
        for class in 0..LANES as u8 {
            let at = self.place(source, class);
            if at != NONE {
                self.turns.set_sure(at, Bucket::UNLIMITED);
                self.turns.queues[at as usize].gone = true;
                self.end_if_gone(at);
            }
        }
    }

    /// Whether an item that has just come may go at once, because nothing that it would have to wait for waits, and there is
    /// credit. Then it counts as sent. `wire`: bytes on the wire. `closed`: priorities that may not be sent now, a bit each. Its service
    /// level is its priority, and its source has no classes of its own.
    #[inline(always)]
    pub fn pass(&mut self, now: Instant, priority: u8, wire: u32, closed: u8) -> bool {
        let p = usize::from(priority) % PRIORITIES;
        self.pass_in(now, (p, usize::from(self.class_of[p])), wire, closed)
    }

    /// As [`pass`](Egress::pass), of any source and service level.
    #[inline]
    pub fn pass_from(&mut self, now: Instant, (source, level): (u16, u8), wire: u32, closed: u8) -> bool {
        let p = usize::from(level) % PRIORITIES;
        self.pass_in(now, (p, self.class(source, level).into()), wire, closed)
    }

    #[inline(always)]
    fn pass_in(&mut self, now: Instant, (p, class): (usize, usize), wire: u32, closed: u8) -> bool {
        closed & 1 << p == 0 && self.ahead.take(now, class, wire)
            || self.pass_slowly(now, (p, class), wire, closed)
    }

    /// As [`pass`](Egress::pass), if the answer is not sure already.
    #[inline(never)]
    fn pass_slowly(&mut self, now: Instant, (p, class): (usize, usize), wire: u32, closed: u8) -> bool {
        self.settle();
        if closed & 1 << p != 0 || !self.port.is_open(now) || !self.limits[class].is_open(now) {
            return false;
        }
        if self.len != 0 && (self.waits(class) || self.ready(now, closed) != 0) {
            return false;
        }
        self.pay(now, now, wire, class);
        if self.len == 0 {
            let since = self
                .away
                .since(now, Instant(now.0.saturating_sub(SLACK.as_nanos() as u64)));
            self.ahead
                .begin((now, since), &self.port, &self.limits, self.limited);
        }
        true
    }

    /// Counts credit for a time in which nobody looked.
    pub fn was_away(&mut self, away: Away) {
        self.settle();
        self.away = away;
    }

    /// Charges what has passed, and lets no more pass unseen.
    fn settle(&mut self) {
        self.ahead.end(&mut self.port, &mut self.limits, self.limited);
    }

    /// The limit that items of a class meet: its rate in bit/s, and the bytes on the wire that were sent at it ever (wraps). `None`:
    /// neither the port nor the class has one.
    pub fn limit(&mut self, class: u8) -> Option<(u64, u64)> {
        self.settle();
        let own = &self.limits[usize::from(class) % LANES];
        let limits = [&self.port, own].into_iter().filter(|limit| limit.rate() != 0);
        let least = limits.min_by_key(|limit| limit.rate())?;
        Some((least.rate(), least.sent()))
    }

    /// Adds an item behind those that its source sent in its class before.
    pub fn push(&mut self, entry: Entry, item: T) {
        self.settle();
        let class = self.class(entry.source, entry.level);
        let at = self.queue(entry.source, class);
        let q = &mut self.turns.queues[at as usize];
        q.gone = false;
        let starts = q.fifo.is_empty();
        self.nodes.push(&mut q.fifo, entry, item);
        if starts {
            self.turns.start(at, entry.priority % PRIORITIES as u8);
        }
        self.len += 1;
        self.bytes[usize::from(class)] += u64::from(entry.bytes);
        self.frames[usize::from(class)] += 1;
    }

    /// The item that goes next, if any may.
    pub fn next(&mut self, now: Instant, closed: u8) -> Option<Pick> {
        if self.len == 0 || !self.port.is_open(now) {
            return None;
        }
        let ready = self.ready(now, closed);
        if ready == 0 {
            self.idle_until = now;
            return None;
        }
        let (class, turn) = self.order.next(ready);
        let open = self.turns.heads(class) & !closed;
        let (queue, sure) = self.turns.next(now, class, open);
        Some(Pick {
            class: class as u8,
            queue,
            sure,
            turn,
        })
    }

    /// The item of a pick.
    pub fn front(&self, pick: Pick) -> Option<(&Entry, &T)> {
        let q = self.turns.queues.get(pick.queue as usize)?;
        self.nodes.front(&q.fifo)
    }

    /// Takes an item, which counts as sent.
    pub fn take(&mut self, now: Instant, pick: Pick) -> Option<(Entry, T)> {
        let q = self.turns.queues.get(pick.queue as usize)?;
        let class = usize::from(q.class);
        let entry = *self.nodes.front(&q.fifo)?.0;
        self.pay(now, entry.since, entry.wire, class);
        self.order.sent(class, pick.turn, entry.wire);
        self.turns.charge(now, pick.queue, pick.sure, entry.wire);
        self.remove(pick)
    }

    /// Takes an item that is dropped: it does not count as sent.
    pub fn discard(&mut self, pick: Pick) -> Option<(Entry, T)> {
        self.remove(pick)
    }

    /// The item that waits longest at the head of a class, whether it may go or not.
    pub fn oldest(&self, class: u8) -> Option<(Pick, &Entry)> {
        if !self.waits(usize::from(class) % LANES) {
            return None;
        }
        let queues = self
            .turns
            .queues
            .iter()
            .enumerate()
            .filter(|(_, q)| q.class == class);
        let heads = queues.filter_map(|(at, q)| Some((at, self.nodes.front(&q.fifo)?.0)));
        let (at, entry) = heads.min_by_key(|(_, entry)| entry.since)?;
        let pick = Pick {
            class,
            queue: at as u32,
            sure: false,
            turn: None,
        };
        Some((pick, entry))
    }

    /// When an item may go that now lacks credit; `None`: only a push or an opened priority changes anything. In the past:
    /// now.
    pub fn next_time(&self, now: Instant, closed: u8) -> Option<Instant> {
        let waiting = self.turns.classes(closed);
        let opens = bits(waiting).map(|c| self.limits[c].opens_at()).min()?;
        Some(opens.max(self.port.opens_at()).max(now))
    }

    /// Number of items that wait.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no item waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of buffer of the items that wait, by class.
    pub fn bytes(&self) -> [u64; LANES] {
        self.bytes
    }

    /// Number of items that wait, by class.
    pub fn frames(&self) -> [u32; LANES] {
        self.frames
    }

    /// Whether an item waits in a class.
    fn waits(&self, class: usize) -> bool {
        self.turns.heads(class) != 0
    }

    /// Classes with an item that may go, apart from the port's rate.
    fn ready(&self, now: Instant, closed: u8) -> u16 {
        let waiting = self.turns.classes(closed);
        bits(waiting & self.limited)
            .filter(|c| !self.limits[*c].is_open(now))
            .fold(waiting, |ready, c| ready & !(1 << c))
    }

    /// Charges the rates for an item of a class that came at `since`.
    #[inline]
    fn pay(&mut self, now: Instant, since: Instant, wire: u32, class: usize) {
        if self.port.rate() == 0 && self.limited & 1 << class == 0 {
            return;
        }
        let earliest = now.0.saturating_sub(CATCH_UP.as_nanos() as u64);
        let slack = SLACK.as_nanos() as u64;
        let came = since.min(now);
        let port = came.max(self.idle_until.min(now)).0.saturating_sub(slack);
        let port = self.away.since(now, Instant(port.max(earliest)));
        self.port.charge_since(now, port, wire);
        let class_since = Instant(came.0.saturating_sub(slack).max(earliest));
        self.limits[class].charge_since(now, self.away.since(now, class_since), wire);
    }

    fn remove(&mut self, pick: Pick) -> Option<(Entry, T)> {
        let q = self.turns.queues.get_mut(pick.queue as usize)?;
        let class = usize::from(q.class);
        let (_, entry, item) = self.nodes.pop(&mut q.fifo)?;
        let head = self
            .nodes
            .front(&q.fifo)
            .map(|(e, _)| e.priority % PRIORITIES as u8);
        self.turns.advance(pick.queue, head);
        self.len -= 1;
        self.bytes[class] -= u64::from(entry.bytes);
        self.frames[class] -= 1;
        if head.is_none() {
            self.end_if_gone(pick.queue);
        }
        if self.len == 0 {
            self.nodes.all_empty();
        }
        Some((entry, item))
    }

    /// Index of a source's queue; [`NONE`]: it has none.
    fn place(&self, source: u16, class: u8) -> u32 {
        let places = self.index.get(usize::from(source));
        places.map_or(NONE, |p| p[usize::from(class)])
    }

    /// Index of a source's queue, which is made if there is none.
    fn queue(&mut self, source: u16, class: u8) -> u32 {
        let at = self.place(source, class);
        if at != NONE {
            return at;
        }
        let at = match self.free.pop() {
            Some(at) => {
                let ticket = self.turns.queues[at as usize].next_ticket();
                self.turns.queues[at as usize] = Queue::new(source, class, ticket);
                at
            }
            None => {
                self.turns.queues.push(Queue::new(source, class, 0));
                (self.turns.queues.len() - 1) as u32
            }
        };
        let row = usize::from(source);
        if self.index.len() <= row {
            self.index.resize(row + 1, [NONE; LANES]);
        }
        self.index[row][usize::from(class)] = at;
        at
    }

    /// Frees the queue of a source that is gone, if it is empty.
    fn end_if_gone(&mut self, at: u32) {
        let q = &self.turns.queues[at as usize];
        if q.gone && q.fifo.is_empty() {
            self.index[usize::from(q.source)][usize::from(q.class)] = NONE;
            self.free.push(at);
        }
    }
}
