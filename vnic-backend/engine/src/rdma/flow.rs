//! A flow under congestion control: what one queue pair has sent and got acknowledged, and its credit at the rate of its
//! algorithm.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::time::Duration;

use vnic_wire::int::{Sign, Telemetry};
use vnic_wire::psn::Psn;
use vnic_wire::time::Instant;

use crate::congestion::{Ack, Algorithm, Limits, Loss, Needs, Notification, Start, State, UNLIMITED};

use super::pacing::{OVERHEAD, Request};

/// Credit of a byte, in 10^-9 bit: one bit/s gives one of these in a nanosecond.
const PER_BYTE: i64 = 8_000_000_000;
/// Most credit, and most debt.
const LONGEST: i64 = i64::MAX / 4;

/// Credit of a rate. Only the time of a wait is rounded, up to the next nanosecond, and that time is credit again.
#[derive(Debug, Clone)]
struct Bucket {
    /// Rate in bit/s, or [`UNLIMITED`].
    rate: u64,
    /// Credit; below zero the flow waits.
    credit: i64,
    /// Time of `credit`.
    since: Instant,
    /// Time in which credit is gathered, in ns.
    slack: u64,
}

impl Bucket {
    fn new(now: Instant, slack: Duration) -> Bucket {
        Bucket {
            rate: UNLIMITED,
            credit: 0,
            since: now,
            // A clock of nanoseconds loses nothing by this much.
            slack: u64::try_from(slack.as_nanos()).unwrap_or(u64::MAX).max(1),
        }
    }

    /// Credit of `ns` nanoseconds.
    fn gain(&self, ns: u64) -> i64 {
        let gain = u128::from(ns) * u128::from(self.rate);
        i64::try_from(gain).unwrap_or(LONGEST).min(LONGEST)
    }

    fn earn(&mut self, now: Instant) {
        let passed = now.0.saturating_sub(self.since.0);
        self.since = now;
        if self.rate != UNLIMITED && passed > 0 {
            let credit = self.credit.saturating_add(self.gain(passed));
            self.credit = credit.min(self.gain(self.slack));
        }
    }

    /// Changes the rate. A debt stays the same in bytes: a flow that waits at a low rate does so for less time at a higher
    /// one.
    fn set_rate(&mut self, now: Instant, rate: u64) {
        let rate = rate.max(1);
        if rate != self.rate {
            self.earn(now);
            self.rate = rate;
            self.credit = match rate {
                UNLIMITED => 0,
                _ => self.credit.min(self.gain(self.slack)),
            };
        }
    }

    /// When a packet may be sent, if not now.
    fn waits(&mut self, now: Instant) -> Option<Instant> {
        self.earn(now);
        if self.credit >= 0 {
            return None;
        }
        let wait = self.credit.unsigned_abs().div_ceil(self.rate);
        Some(Instant(now.0.saturating_add(wait)))
    }

    /// Takes the credit of bytes that went over the wire.
    fn sent(&mut self, bytes: u64) {
        if self.rate != UNLIMITED {
            let cost = i64::try_from(bytes).unwrap_or(LONGEST).saturating_mul(PER_BYTE);
            self.credit = self.credit.saturating_sub(cost).max(-LONGEST);
        }
    }
}

/// A stretch of packets that ends with one that asked for an acknowledge. All but the last are full: the last packet of
/// each message asks. Or the responses of a READ.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    /// PSN behind the stretch.
    end: Psn,
    /// Bytes of payload up to there.
    bytes: u64,
    clock: Clock,
}

/// The time of a stretch.
#[derive(Debug, Clone, Copy)]
enum Clock {
    /// None: something was sent again.
    None,
    /// When its last packet was sent.
    Sent(Instant),
    /// When the READ was sent.
    Asked(Instant),
    /// How long the first response took.
    Answered(Duration),
}

impl Clock {
    /// A response came: how long the first one of its READ took.
    fn response(&mut self, now: Instant) -> Option<Duration> {
        if let Clock::Asked(at) = *self {
            *self = Clock::Answered(now.since(at));
        }
        match *self {
            Clock::Answered(delay) => Some(delay),
            _ => None,
        }
    }
}

/// Bytes of payload that a requester has sent, by PSN.
#[derive(Debug)]
struct Stream {
    /// First PSN that is not acknowledged.
    base: Psn,
    /// Bytes before `base`.
    acked: u64,
    /// PSN behind the last packet that was ever sent.
    tail: Psn,
    /// Bytes before `tail`.
    sent: u64,
    /// Stretches from `base` on; behind the last one there are only full packets that did not ask.
    stretches: VecDeque<Stretch>,
    /// Bytes since an acknowledge was asked for.
    unasked: u32,
    /// PSN behind the last packet that asked, while nothing was sent again since.
    asked: Psn,
    mtu: u32,
}

/// Progress by an acknowledge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Progress {
    bytes: u64,
    /// When the last packet that it acknowledges was sent.
    sent_at: Option<Instant>,
    /// How long the first response of the READ took that it is about.
    delay: Option<Duration>,
}

impl Stream {
    fn new(psn: Psn, mtu: u32) -> Stream {
        Stream {
            base: psn,
            acked: 0,
            tail: psn,
            sent: 0,
            stretches: VecDeque::new(),
            unasked: 0,
            asked: psn,
            mtu,
        }
    }

    /// Bytes before a PSN, from `base` to `tail`.
    fn position(&self, psn: Psn) -> u64 {
        if psn == self.tail {
            return self.sent;
        }
        if !self.base.before(psn) {
            return self.acked;
        }
        let at = self.stretches.partition_point(|s| s.end.before(psn));
        let before = at.checked_sub(1).and_then(|i| self.stretches.get(i));
        let (first, start) = before.map_or((self.base, self.acked), |s| (s.end, s.bytes));
        let end = self.stretches.get(at).map_or(self.sent, |s| s.bytes);
        let packets = psn.distance(first).max(0) as u64;
        (start + packets * u64::from(self.mtu)).min(end)
    }

    /// Bytes in flight when a requester has come to `next`.
    fn in_flight(&self, next: Psn) -> u64 {
        self.position(next).saturating_sub(self.acked)
    }

    /// Whether an acknowledge is due.
    fn awaits(&self) -> bool {
        self.base.before(self.asked)
    }

    /// The packet before `next` was sent.
    fn sent(&mut self, psn: Psn, next: Psn, bytes: u32, asks: bool, clock: Clock) {
        if psn == self.tail {
            self.tail = next;
            self.sent += u64::from(bytes);
            if asks {
                self.stretches.push_back(Stretch {
                    end: next,
                    bytes: self.sent,
                    clock,
                });
            }
        }
        if asks {
            self.unasked = 0;
            self.asked = next;
        } else {
            self.unasked = self.unasked.saturating_add(bytes);
        }
    }

    /// The requester sends again from somewhere: nobody knows which copy an acknowledge means (Karn and Partridge, SIGCOMM
    /// 1987).
    fn again(&mut self) {
        for stretch in &mut self.stretches {
            stretch.clock = Clock::None;
        }
        self.unasked = 0;
        self.asked = self.base;
    }

    /// All packets before a PSN have arrived.
    fn acknowledged(&mut self, psn: Psn, now: Instant) -> Option<Progress> {
        if !self.base.before(psn) {
            return None;
        }
        let position = self.position(psn);
        let (mut sent_at, mut delay) = (None, None);
        let mut start = self.base;
        while let Some(first) = self.stretches.front_mut() {
            if psn.before(first.end) {
                // Something of it has come: of a READ, responses.
                if start.before(psn) {
                    delay = first.clock.response(now);
                }
                break;
            }
            start = first.end;
            let last = first.end == psn;
            (sent_at, delay) = match first.clock {
                Clock::Sent(at) if last => (Some(at), None),
                Clock::Asked(_) | Clock::Answered(_) if last => (None, first.clock.response(now)),
                _ => (None, None),
            };
            self.stretches.pop_front();
        }
        let bytes = position.saturating_sub(self.acked);
        if self.asked.before(psn) {
            self.asked = psn;
        }
        (self.base, self.acked) = (psn, position);
        Some(Progress {
            bytes,
            sent_at,
            delay,
        })
    }
}

/// Details of an acknowledge.
#[derive(Debug, Clone, Copy)]
pub(super) struct Answer<'a> {
    /// Whether it is about one packet, the last that it acknowledges.
    pub exact: bool,
    /// Switches on its way; 0: not known.
    pub hops: u8,
    /// Whether FECN or BECN was set.
    pub marked: bool,
    /// Telemetry that its request gathered.
    pub telemetry: Option<&'a Telemetry>,
    /// Whether it came with a trailer, and where: the peer knows telemetry.
    pub sign: Sign,
}

/// The flow of one queue pair.
#[derive(Debug)]
pub(super) struct Flow {
    algorithm: Box<dyn Algorithm>,
    needs: Needs,
    bucket: Bucket,
    /// Bytes of payload that have left of the burst under way; 0: there is none.
    burst: u32,
    /// Bytes on the wire that a packet has beside its payload.
    headers: u32,
    /// Bytes on the wire of the responses that the packet asks for which is about to be sent.
    responses: u64,
    limits: Limits,
    stream: Stream,
    /// Notifications that the flow has handled.
    pub notifications: u64,
    /// Time of the last notification.
    pub notified: Option<Instant>,
    /// PSN that is not acknowledged yet since the flow slowed down for a loss or an idle time.
    pub restarting: Option<Psn>,
    /// Time of the last packet.
    pub sent_at: Instant,
    /// Time of the last look.
    looked_at: Instant,
    /// Where answers have had trailers: the peer can read them there.
    trailers: Option<Sign>,
}

impl Flow {
    /// A flow that begins at a PSN.
    pub fn new(
        algorithm: Box<dyn Algorithm>,
        needs: Needs,
        now: Instant,
        slack: Duration,
        psn: Psn,
        start: &Start,
    ) -> Flow {
        let mut flow = Flow {
            algorithm,
            needs,
            bucket: Bucket::new(now, slack),
            burst: 0,
            headers: start.wire.saturating_sub(start.mtu),
            responses: 0,
            limits: Limits::NONE,
            stream: Stream::new(psn, start.mtu),
            notifications: 0,
            notified: None,
            restarting: None,
            sent_at: now,
            looked_at: now,
            trailers: None,
        };
        flow.learn(now);
        flow
    }

    /// Changes the algorithm; the flow keeps its rate.
    pub fn adopt(&mut self, algorithm: Box<dyn Algorithm>, needs: Needs, now: Instant, slack: Duration) {
        self.algorithm = algorithm;
        self.needs = needs;
        self.burst = 0;
        self.set_slack(slack);
        self.learn(now);
    }

    /// Changes how long credit is gathered.
    pub fn set_slack(&mut self, slack: Duration) {
        self.bucket.slack = u64::try_from(slack.as_nanos()).unwrap_or(u64::MAX).max(1);
    }

    /// Takes over the algorithm's limits.
    fn learn(&mut self, now: Instant) {
        self.limits = self.algorithm.limits();
        self.bucket.set_rate(now, self.limits.rate);
    }

    /// Lets time pass. `closed`: when its priority was last seen closed.
    pub fn advance(&mut self, now: Instant, closed: Option<Instant>) {
        let paused = closed.is_some_and(|at| self.looked_at <= at);
        self.looked_at = now;
        self.algorithm.advance(now, paused);
        self.learn(now);
    }

    /// Limits of the flow at the last look.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// State of the flow, for people.
    pub fn state(&self) -> State {
        self.algorithm.state()
    }

    /// Whether nobody need remember the flow.
    pub fn is_released(&self) -> bool {
        !self.needs.from_start && self.algorithm.is_released()
    }

    /// Whether the algorithm has released its limiter, though the flow is kept.
    pub fn is_done(&self) -> bool {
        self.needs.from_start && self.algorithm.is_released()
    }

    /// When the flow's rate lets it send, if not now, or when that has to be looked at again.
    pub fn waits(&mut self, now: Instant) -> Option<Instant> {
        // A burst that has begun goes on at the speed of the link.
        let at = self.bucket.waits(now).filter(|_| self.burst == 0)?;
        Some(self.changes().map_or(at, |t| t.min(at)))
    }

    /// When the flow's limits change without an event.
    pub fn changes(&self) -> Option<Instant> {
        self.algorithm.next_change()
    }

    /// Whether the window keeps a packet of `bytes` bytes from going. One packet may always go, and one that asks for an
    /// acknowledge when none is due.
    pub fn is_full(&self, next: Psn, bytes: u32) -> bool {
        self.limits.window != UNLIMITED && self.stream.awaits() && {
            let in_flight = self.stream.in_flight(next);
            in_flight > 0 && in_flight + u64::from(bytes) > self.limits.window
        }
    }

    /// Whether a packet of `bytes` bytes shall ask for an acknowledge.
    pub fn asks(&self, next: Psn, bytes: u32) -> bool {
        let every = self.needs.ack_every;
        let unasked = self.stream.unasked.saturating_add(bytes);
        let due = every > 0 && unasked >= every;
        // The packet behind it would have to wait for that.
        due || self.limits.window != UNLIMITED && {
            let then = self.stream.in_flight(next) + u64::from(bytes) + u64::from(self.stream.mtu);
            then > self.limits.window
        }
    }

    /// Telemetry that the flow's packets gather on their way.
    pub fn telemetry(&self) -> Option<&'static Telemetry> {
        (self.needs.telemetry || self.needs.endpoint).then_some(&Telemetry::EMPTY)
    }

    /// What the flow's packets say about telemetry. Those of a flow that only wants to hear of the receiver need no trailer.
    pub fn sign(&self) -> Sign {
        match (self.needs.telemetry, self.needs.endpoint) {
            (false, false) => Sign::None,
            (true, _) => self.trailers.unwrap_or(Sign::Known),
            _ => Sign::Known,
        }
    }

    /// Whether the responses that a READ asks for count as sent: nobody else limits them where acknowledges are what an algorithm
    /// hears, for responses have none. (Notifications reach the responder.)
    pub fn counts_reads(&self) -> bool {
        self.needs.ack_every > 0
    }

    /// A request packet goes that will be acknowledged, or answered by data. Returns its bytes of payload, or those of the data.
    pub fn sent_numbered(&mut self, now: Instant, sent: &Request, asks: bool) -> u32 {
        let counted = self.counts_reads() && sent.asked > 0;
        let bytes = if counted { sent.asked } else { sent.bytes };
        let clock = match (bytes > 0 && !sent.again, counted) {
            // (A request for data has no acknowledge of its own.)
            (false, _) => Clock::None,
            (true, false) => Clock::Sent(now),
            (true, true) => Clock::Asked(now),
        };
        if counted {
            let packets = u64::from(sent.asked.div_ceil(self.stream.mtu.max(1)));
            self.responses = u64::from(sent.asked) + packets * u64::from(self.headers);
        }
        self.stream.sent(sent.psn, sent.next, bytes, asks, clock);
        bytes
    }

    /// A packet was sent, with `payload` bytes of payload in a frame of `frame` bytes.
    pub fn sent(&mut self, now: Instant, payload: u32, frame: u64) {
        self.sent_at = now;
        if self.needs.burst > 0 {
            let burst = self.burst.saturating_add(payload);
            self.burst = if burst < self.needs.burst { burst } else { 0 };
        }
        self.bucket
            .sent(frame + OVERHEAD + core::mem::take(&mut self.responses));
        self.algorithm.on_sent(now, payload);
    }

    /// All packets before a PSN have arrived.
    pub fn acknowledged(&mut self, now: Instant, psn: Psn, answer: &Answer<'_>) {
        if let Sign::Carried | Sign::Behind = answer.sign {
            self.trailers = Some(answer.sign);
        }
        let Some(progress) = self.stream.acknowledged(psn, now) else {
            return;
        };
        if self.restarting.is_some_and(|end| !psn.before(end)) {
            self.restarting = None;
        }
        if progress.bytes == 0 {
            return;
        }
        let ack = Ack {
            rtt: progress
                .delay
                .or(progress.sent_at.filter(|_| answer.exact).map(|at| now.since(at))),
            acked: self.stream.acked,
            sent: self.stream.sent,
            bytes: u32::try_from(progress.bytes).unwrap_or(u32::MAX),
            hops: answer.hops,
            marked: answer.marked,
            telemetry: answer.telemetry,
        };
        self.algorithm.on_ack(now, &ack);
    }

    /// A packet was lost, and is sent again.
    pub fn lost(&mut self, now: Instant, loss: Loss) {
        // Whoever is silent may be another one than before: a guest that has moved.
        self.trailers = self.trailers.filter(|_| loss != Loss::Timeout);
        self.stream.again();
        self.algorithm.on_loss(now, loss);
    }

    /// The network, or the transport itself, tells the flow to slow down.
    pub fn notify(&mut self, now: Instant, cnp: &Notification) {
        self.notifications += 1;
        self.algorithm.on_notification(now, cnp);
        self.learn(now);
    }
}
