//! Rate limits of an adapter: of its link, of its traffic classes, and of its schedule queue.

use vnic_fabric::Instant;
use vnic_fabric::qos::egress::{CATCH_UP, SLACK};
use vnic_fabric::qos::{Away, Bucket, PRIORITIES, PortQos};

/// Token buckets of an adapter's limits.
#[derive(Debug)]
pub struct Limits {
    /// Limits that are set, a bit each: of classes, of the schedule queue's classes, of the link.
    limited: u32,
    link: Bucket,
    /// Limit of the port for each traffic class.
    class: [Bucket; PRIORITIES],
    /// Limit of the schedule queue, which is the virtual machine's, for each traffic class.
    queue: [Bucket; PRIORITIES],
    class_of: [u8; PRIORITIES],
    /// The last time in which the core could not look.
    pub away: Away,
}

impl Limits {
    /// Limits whose buckets owe nothing.
    pub fn new(qos: &PortQos) -> Limits {
        let mut limits = Limits {
            limited: 0,
            link: Bucket::new(0, SLACK),
            class: [Bucket::new(0, SLACK); PRIORITIES],
            queue: [Bucket::new(0, SLACK); PRIORITIES],
            class_of: [0; PRIORITIES],
            away: Away::default(),
        };
        limits.configure(qos);
        limits
    }

    /// Changes the rates; debts of the buckets stay.
    pub fn configure(&mut self, qos: &PortQos) {
        // Time at the old rates gives no credit at the new ones.
        self.away = Away::default();
        self.link.set_rate(qos.rate);
        self.class_of = qos.classes.of_priority.map(|c| c & 7);
        let queue = qos.queue.as_ref().map_or([0; PRIORITIES], |q| q.limit);
        for (bucket, rate) in self.class.iter_mut().zip(qos.classes.limit) {
            bucket.set_rate(rate);
        }
        for (bucket, rate) in self.queue.iter_mut().zip(queue) {
            bucket.set_rate(rate);
        }
        let rates = qos.classes.limit.iter().chain(&queue).chain([&qos.rate]);
        let limited = rates.zip(0..).filter(|(rate, _)| **rate != 0);
        self.limited = limited.fold(0, |all, (_, i)| all | 1 << i);
    }

    /// Whether any limit is set.
    #[inline]
    pub fn any(&self) -> bool {
        self.limited != 0
    }

    /// Whether a frame of this priority may go.
    #[inline]
    pub fn is_open(&self, now: Instant, priority: u8) -> bool {
        if self.limited == 0 {
            return true;
        }
        let tc = self.tc(priority);
        self.link.is_open(now) && self.class[tc].is_open(now) && self.queue[tc].is_open(now)
    }

    /// Whether this many bytes may go, in any class, before any limit is reached.
    #[inline]
    pub fn may_send_all(&self, now: Instant, bytes: u32) -> bool {
        let has_enough = |b: &Bucket| {
            let mut after = *b;
            after.charge(now, bytes);
            after.is_open(now)
        };
        self.buckets().all(has_enough)
    }

    /// Buckets that limit something.
    #[inline]
    fn buckets(&self) -> impl Iterator<Item = &Bucket> {
        let mut left = self.limited;
        std::iter::from_fn(move || {
            let i = left.trailing_zeros() as usize;
            left &= left.wrapping_sub(1);
            match i {
                0..8 => self.class.get(i),
                8..16 => self.queue.get(i - 8),
                16 => Some(&self.link),
                _ => None,
            }
        })
    }

    /// Priorities of which a frame may go, a bit each.
    pub fn open(&self, now: Instant) -> u8 {
        if self.limited == 0 {
            return 0xff;
        }
        (0..8).fold(0, |open, p| open | u8::from(self.is_open(now, p)) << p)
    }

    /// Charges bytes on the wire. `since`: when they could first have gone (so a core that looks late loses no rate); `None`:
    /// now.
    #[inline]
    pub fn charge(&mut self, now: Instant, since: Option<Instant>, priority: u8, wire: u64) {
        if self.limited == 0 {
            return;
        }
        let bytes = u32::try_from(wire).unwrap_or(u32::MAX);
        let came = since.map_or(now, |s| s.min(now)).0;
        let from = came.saturating_sub(SLACK.as_nanos() as u64);
        let from = Instant(from.max(now.0.saturating_sub(CATCH_UP.as_nanos() as u64)));
        let from = self.away.since(now, from);
        let tc = self.tc(priority);
        self.link.charge_since(now, from, bytes);
        self.class[tc].charge_since(now, from, bytes);
        self.queue[tc].charge_since(now, from, bytes);
    }

    /// Whether two priorities share a limit.
    pub fn shared(&self, a: u8, b: u8) -> bool {
        let (tc, other) = (self.tc(a), self.tc(b));
        let limited = self.class[tc].rate() | self.queue[tc].rate();
        self.link.rate() != 0 || tc == other && limited != 0
    }

    /// When a frame of this priority may go.
    pub fn opens_at(&self, priority: u8) -> Instant {
        let tc = self.tc(priority);
        let buckets = [&self.link, &self.class[tc], &self.queue[tc]];
        let times = buckets.iter().filter(|b| b.rate() != 0).map(|b| b.opens_at());
        times.max().unwrap_or(Instant(0))
    }

    /// When a frame of one of these priorities, a bit each, may go.
    pub fn first(&self, priorities: u8) -> Option<Instant> {
        let wanted = (0..8).filter(|p| priorities >> p & 1 != 0);
        wanted.map(|p| self.opens_at(p)).min()
    }

    /// Traffic class of a priority.
    #[inline]
    pub fn tc(&self, priority: u8) -> usize {
        usize::from(self.class_of[usize::from(priority & 7)] & 7)
    }
}
