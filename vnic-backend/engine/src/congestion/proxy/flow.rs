//! A flow of the guest's that is limited: its rate, and its frames that wait for it.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::time::Duration;

use vnic_wire::int::Telemetry;
use vnic_wire::psn::Psn;
use vnic_wire::time::Instant;

use super::super::{Ack, Algorithm, Limits, UNLIMITED};
use super::asked::{Asked, Heard, Request};
use super::links::Links;

/// Frames among which a READ is looked for that waits already: as many as Soft-RoCE has outstanding.
const READS: usize = 128;

/// 1 bit, in the unit of a flow's debt: at 1 bit/s a nanosecond pays one.
const BIT: i128 = 1_000_000_000;

/// A frame that waits.
#[derive(Debug)]
pub struct QueuedFrame<F> {
    /// The frame.
    pub frame: F,
    /// Bytes on the wire: of the frame, and of the responses that it asks for.
    pub wire: u64,
    /// Memory that it takes.
    pub cost: u32,
    /// Bytes of payload, or those that it asks for.
    pub payload: u32,
    /// Whether it answers a request: answers to later ones stay behind it.
    pub response: bool,
    /// What there is to say of a request packet.
    pub request: Option<Request>,
}

/// A limited flow of the guest's.
#[derive(Debug)]
pub struct Flow<F> {
    /// Algorithm that limits it.
    pub algorithm: Box<dyn Algorithm>,
    /// Priority of its frames.
    pub priority: u8,
    /// Notifications that the flow has handled.
    pub notifications: u64,
    /// Frames that wait.
    pub queue: VecDeque<QueuedFrame<F>>,
    /// Memory that they take.
    pub cost: u64,
    /// Answers among them.
    pub responses: u32,
    /// What has left, and what is acknowledged.
    pub asked: Asked,
    /// What has been heard of the links.
    pub links: Links,
    /// The last round trip.
    rtt: Option<Duration>,
    /// When the flow is looked at next, while frames wait.
    pub due: Option<Instant>,
    /// Bytes that the flow has sent and its rate has not paid yet, in 10^-9 bit; below zero it has
    /// credit.
    owed: i128,
    /// Time of `owed`.
    since: Instant,
    /// Rate in bit/s since then.
    rate: u64,
    slack: Duration,
}

impl<F> Flow<F> {
    /// A flow that begins to be limited.
    pub fn new(
        now: Instant,
        algorithm: Box<dyn Algorithm>,
        links: Links,
        priority: u8,
        slack: Duration,
    ) -> Flow<F> {
        Flow {
            algorithm,
            priority,
            notifications: 0,
            queue: VecDeque::new(),
            cost: 0,
            responses: 0,
            asked: Asked::default(),
            links,
            rtt: None,
            due: None,
            owed: 0,
            since: now,
            rate: UNLIMITED,
            slack,
        }
    }

    /// Pays for the time that has passed, at the rate of that time.
    fn pay(&mut self, now: Instant) {
        let passed = now.since(self.since).as_nanos() as i128;
        if now > self.since {
            self.since = now;
        }
        if self.rate == UNLIMITED {
            self.owed = self.owed.min(0);
            return;
        }
        let rate = i128::from(self.rate);
        let credit = rate * self.slack.as_nanos() as i128;
        self.owed = (self.owed - rate * passed).max(-credit);
    }

    /// Brings the flow's limits up to date.
    pub fn advance(&mut self, now: Instant) {
        self.pay(now);
        self.algorithm.advance(now, false);
        let limits = self.limits();
        self.rate = limits.rate.min(self.paced(limits.window)).max(1);
    }

    /// Limits of the flow: none while the algorithm does not have what it needs.
    pub fn limits(&self) -> Limits {
        match self.links.limits() {
            true => self.algorithm.limits(),
            false => Limits::NONE,
        }
    }

    /// The rate that sends a window in a round trip: how much is under way is the guest's business.
    fn paced(&self, window: u64) -> u64 {
        match self.rtt {
            Some(rtt) if window != UNLIMITED => {
                let bits = u128::from(window) * 8 * 1_000_000_000;
                u64::try_from(bits / rtt.as_nanos().max(1)).unwrap_or(UNLIMITED)
            }
            _ => UNLIMITED,
        }
    }

    /// An acknowledge for a request of the flow came, or a response. `heard`: what [`Asked`] makes of it.
    pub fn heard(&mut self, now: Instant, heard: Heard, marked: bool, telemetry: Option<&Telemetry>) {
        self.rtt = heard.rtt.or(self.rtt);
        let ack = Ack {
            rtt: heard.rtt,
            acked: self.asked.acked,
            sent: self.asked.sent,
            bytes: u32::try_from(heard.bytes).unwrap_or(u32::MAX),
            hops: 0,
            marked,
            telemetry,
        };
        self.links.acknowledged(telemetry.is_some());
        self.algorithm.on_ack(now, &ack);
    }

    /// Changes the algorithm. The debt stays.
    pub fn replace(&mut self, now: Instant, algorithm: Box<dyn Algorithm>, links: Links, slack: Duration) {
        (self.algorithm, self.links, self.slack) = (algorithm, links, slack);
        self.advance(now);
    }

    /// When the flow may send, brought up to date for `now`; now or earlier: it may.
    pub fn opens(&self, now: Instant) -> Instant {
        if self.owed <= 0 || self.rate == UNLIMITED {
            return now;
        }
        let rate = u128::from(self.rate);
        let wait = self.owed.unsigned_abs().div_ceil(rate);
        let at = Instant(now.0.saturating_add(u64::try_from(wait).unwrap_or(u64::MAX)));
        match self.algorithm.next_change() {
            Some(change) if change > now => at.min(change),
            _ => at,
        }
    }

    /// Whether a READ with this number waits. The wait may be longer than the guest's timer, whose copies would make it longer still.
    pub fn holds_read(&self, psn: Psn) -> bool {
        let newest = self.queue.iter().rev().take(READS);
        let mut requests = newest.filter_map(|held| held.request);
        requests.any(|request| request.read && request.psn == psn)
    }

    /// Makes a frame wait.
    pub fn push(&mut self, held: QueuedFrame<F>) {
        self.cost += u64::from(held.cost);
        self.responses += u32::from(held.response);
        self.queue.push_back(held);
    }

    /// Takes the frame that waits longest, which is sent.
    pub fn pop(&mut self, now: Instant) -> Option<QueuedFrame<F>> {
        let held = self.queue.pop_front()?;
        self.cost -= u64::from(held.cost);
        self.responses -= u32::from(held.response);
        self.pay(now);
        if self.rate != UNLIMITED {
            self.owed += i128::from(held.wire) * 8 * BIT;
        }
        self.algorithm.on_sent(now, held.payload);
        if let Some(request) = held.request {
            self.asked.left(now, request);
        }
        Some(held)
    }
}
