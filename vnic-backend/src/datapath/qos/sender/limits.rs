//! Rates that an adapter keeps: of its link, of its traffic classes, and of its schedule queue.

use std::time::Duration;

use vnic_fabric::Instant;
use vnic_fabric::qos::{Bucket, PRIORITIES, PortQos};

/// Credit that silence gathers: as long as a core may be late without a loss of rate.
const SLACK: Duration = Duration::from_micros(500);

/// See the module.
#[derive(Debug)]
pub struct Limits {
    /// There is a limit at all.
    any: bool,
    link: Bucket,
    /// By traffic class: what the port gives it,
    class: [Bucket; PRIORITIES],
    /// and what the virtual machine may.
    queue: [Bucket; PRIORITIES],
    class_of: [u8; PRIORITIES],
}

impl Limits {
    /// Nothing is owed yet.
    pub fn new(qos: &PortQos) -> Limits {
        let mut limits = Limits {
            any: false,
            link: Bucket::new(0, SLACK),
            class: [Bucket::new(0, SLACK); PRIORITIES],
            queue: [Bucket::new(0, SLACK); PRIORITIES],
            class_of: [0; PRIORITIES],
        };
        limits.configure(qos);
        limits
    }

    /// Other rates; what is owed stays owed.
    pub fn configure(&mut self, qos: &PortQos) {
        self.link.set_rate(qos.rate);
        self.class_of = qos.classes.of_priority.map(|c| c & 7);
        let queue = qos.queue.as_ref().map_or([0; PRIORITIES], |q| q.limit);
        for tc in 0..PRIORITIES {
            self.class[tc].set_rate(qos.classes.limit[tc]);
            self.queue[tc].set_rate(queue[tc]);
        }
        let rates = qos.classes.limit.iter().chain(&queue).chain([&qos.rate]);
        self.any = rates.into_iter().any(|r| *r != 0);
    }

    /// May something of this priority go?
    #[inline]
    pub fn is_open(&self, now: Instant, priority: u8) -> bool {
        if !self.any {
            return true;
        }
        let tc = self.tc(priority);
        self.link.is_open(now) && self.class[tc].is_open(now) && self.queue[tc].is_open(now)
    }

    /// Priorities of which something may go, a bit each.
    pub fn open(&self, now: Instant) -> u8 {
        if !self.any {
            return 0xff;
        }
        (0..8).fold(0, |open, p| open | u8::from(self.is_open(now, p)) << p)
    }

    /// So many bytes on the wire went.
    #[inline]
    pub fn charge(&mut self, now: Instant, priority: u8, wire: u64) {
        if !self.any {
            return;
        }
        let bytes = u32::try_from(wire).unwrap_or(u32::MAX);
        let tc = self.tc(priority);
        self.link.charge(now, bytes);
        self.class[tc].charge(now, bytes);
        self.queue[tc].charge(now, bytes);
    }

    /// When something of this priority may go.
    pub fn opens_at(&self, priority: u8) -> Instant {
        let tc = self.tc(priority);
        let buckets = [&self.link, &self.class[tc], &self.queue[tc]];
        let times = buckets.iter().filter(|b| b.rate() != 0).map(|b| b.opens_at());
        times.max().unwrap_or(Instant(0))
    }

    /// When the first priority opens that is closed now.
    pub fn next_time(&self, now: Instant) -> Option<Instant> {
        if !self.any {
            return None;
        }
        let times = (0..8).map(|p| self.opens_at(p)).filter(|at| *at > now);
        times.min()
    }

    #[inline]
    fn tc(&self, priority: u8) -> usize {
        usize::from(self.class_of[usize::from(priority & 7)] & 7)
    }
}
