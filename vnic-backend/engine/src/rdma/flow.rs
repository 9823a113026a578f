//! A flow under congestion control: what one queue pair has sent and got acknowledged, and the credit that its algorithm's
//! rate gives it.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::time::Duration;

use vnic_wire::int::Telemetry;
use vnic_wire::psn::Psn;
use vnic_wire::time::Instant;

use crate::congestion::{Ack, Algorithm, Limits, Loss, Needs, Notification, State, UNLIMITED};

use super::pacing::{OVERHEAD, Request};

/// Credit is counted in 10^-9 bit: what one bit/s gives in a nanosecond.
const PER_BYTE: i64 = 8_000_000_000;
/// Most credit, and most debt.
const LONGEST: i64 = i64::MAX / 4;

/// Credit of a rate. Nothing is rounded but the time that is waited, up to the next nanosecond, and that is credit again.
#[derive(Debug, Clone)]
struct Bucket {
    /// bit/s, or [`UNLIMITED`].
    rate: u64,
    /// Below zero it waits.
    credit: i64,
    /// As of then.
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

    /// What so many nanoseconds give.
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

    /// Another rate from now on. A debt stays the same in bytes: whoever waits at a low rate does so for less time at a
    /// higher one.
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

    /// So many bytes went over the wire.
    fn sent(&mut self, bytes: u64) {
        if self.rate != UNLIMITED {
            let cost = i64::try_from(bytes).unwrap_or(LONGEST).saturating_mul(PER_BYTE);
            self.credit = self.credit.saturating_sub(cost).max(-LONGEST);
        }
    }
}

/// A stretch of packets that ends with one that asked for an acknowledge. All but the last are full: the last packet of
/// each message asks.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    /// PSN behind it.
    end: Psn,
    /// Bytes of payload up to there.
    bytes: u64,
    /// When its last packet was sent, if only once.
    at: Option<Instant>,
}

/// Bytes of payload that a requester has sent, by PSN.
#[derive(Debug)]
struct Stream {
    /// First PSN that is not acknowledged.
    base: Psn,
    /// Bytes before it.
    acked: u64,
    /// PSN behind the last packet that was ever sent.
    tail: Psn,
    /// Bytes before that.
    sent: u64,
    /// From `base` on; behind the last one there are only full packets that did not ask.
    stretches: VecDeque<Stretch>,
    /// Bytes since an acknowledge was asked for.
    unasked: u32,
    /// Behind the last packet that asked, while nothing was sent again since.
    asked: Psn,
    mtu: u32,
}

/// What an acknowledge is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Progress {
    bytes: u64,
    /// When the last packet that it acknowledges was sent.
    sent_at: Option<Instant>,
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

    /// Bytes that are unacknowledged when a requester has come to `next`.
    fn in_flight(&self, next: Psn) -> u64 {
        self.position(next).saturating_sub(self.acked)
    }

    /// Is an acknowledge due?
    fn awaits(&self) -> bool {
        self.base.before(self.asked)
    }

    /// The packet before `next` was sent.
    fn sent(&mut self, psn: Psn, next: Psn, bytes: u32, asks: bool, at: Option<Instant>) {
        if psn == self.tail {
            self.tail = next;
            self.sent += u64::from(bytes);
            if asks {
                self.stretches.push_back(Stretch {
                    end: next,
                    bytes: self.sent,
                    at,
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

    /// It sends again from somewhere: nobody knows which copy an acknowledge means (Karn and Partridge, SIGCOMM 1987).
    fn again(&mut self) {
        for stretch in &mut self.stretches {
            stretch.at = None;
        }
        self.unasked = 0;
        self.asked = self.base;
    }

    /// Everything before a PSN has arrived.
    fn acknowledged(&mut self, psn: Psn) -> Option<Progress> {
        if !self.base.before(psn) {
            return None;
        }
        let position = self.position(psn);
        let mut sent_at = None;
        while let Some(first) = self.stretches.front().filter(|s| !psn.before(s.end)) {
            sent_at = first.at.filter(|_| first.end == psn);
            self.stretches.pop_front();
        }
        let bytes = position.saturating_sub(self.acked);
        if self.asked.before(psn) {
            self.asked = psn;
        }
        (self.base, self.acked) = (psn, position);
        Some(Progress { bytes, sent_at })
    }
}

/// What else an acknowledge says.
#[derive(Debug, Clone, Copy)]
pub(super) struct Answer<'a> {
    /// It is about one packet, the last that it acknowledges.
    pub exact: bool,
    /// Switches on its way; 0: not known.
    pub hops: u8,
    /// FECN or BECN.
    pub marked: bool,
    /// What its request gathered.
    pub telemetry: Option<&'a Telemetry>,
}

/// The flow of one queue pair.
#[derive(Debug)]
pub(super) struct Flow {
    algorithm: Box<dyn Algorithm>,
    needs: Needs,
    bucket: Bucket,
    /// Bytes of payload that left of the burst under way; 0: none is.
    burst: u32,
    limits: Limits,
    stream: Stream,
    /// Notifications that it has handled.
    pub notifications: u64,
    /// When the network last said that it is congested.
    pub notified: Option<Instant>,
    /// It slowed down for a loss or an idle time, and this PSN is not acknowledged yet.
    pub restarting: Option<Psn>,
    /// When it last sent something.
    pub sent_at: Instant,
    /// When it was last looked at.
    looked_at: Instant,
}

impl Flow {
    /// One that begins at a PSN.
    pub fn new(
        algorithm: Box<dyn Algorithm>,
        needs: Needs,
        now: Instant,
        slack: Duration,
        psn: Psn,
        mtu: u32,
    ) -> Flow {
        let mut flow = Flow {
            algorithm,
            needs,
            bucket: Bucket::new(now, slack),
            burst: 0,
            limits: Limits::NONE,
            stream: Stream::new(psn, mtu),
            notifications: 0,
            notified: None,
            restarting: None,
            sent_at: now,
            looked_at: now,
        };
        flow.learn(now);
        flow
    }

    /// Another algorithm from now on, with the rate that the flow has.
    pub fn adopt(&mut self, algorithm: Box<dyn Algorithm>, needs: Needs, now: Instant, slack: Duration) {
        self.algorithm = algorithm;
        self.needs = needs;
        self.burst = 0;
        self.set_slack(slack);
        self.learn(now);
    }

    /// Credit is gathered for so long from now on.
    pub fn set_slack(&mut self, slack: Duration) {
        self.bucket.slack = u64::try_from(slack.as_nanos()).unwrap_or(u64::MAX).max(1);
    }

    /// Takes over what the algorithm allows.
    fn learn(&mut self, now: Instant) {
        self.limits = self.algorithm.limits();
        self.bucket.set_rate(now, self.limits.rate);
    }

    /// Time has passed. `closed`: when its priority was last seen closed.
    pub fn advance(&mut self, now: Instant, closed: Option<Instant>) {
        let paused = closed.is_some_and(|at| self.looked_at <= at);
        self.looked_at = now;
        self.algorithm.advance(now, paused);
        self.learn(now);
    }

    /// What it may do, as of the last time that it was looked at.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// For people.
    pub fn state(&self) -> State {
        self.algorithm.state()
    }

    /// Needs nobody remember it?
    pub fn is_released(&self) -> bool {
        !self.needs.from_start && self.algorithm.is_released()
    }

    /// Has its algorithm released its limiter, though it is kept?
    pub fn is_done(&self) -> bool {
        self.needs.from_start && self.algorithm.is_released()
    }

    /// When its rate lets it send, if not now, or when that has to be looked at again.
    pub fn waits(&mut self, now: Instant) -> Option<Instant> {
        // A burst that has begun goes on at the speed of the link.
        let at = self.bucket.waits(now).filter(|_| self.burst == 0)?;
        Some(self.changes().map_or(at, |t| t.min(at)))
    }

    /// When its limits change though nothing happens.
    pub fn changes(&self) -> Option<Instant> {
        self.algorithm.next_change()
    }

    /// May a packet of so many bytes not go, because of the window? One always may, and one that asks for an acknowledge
    /// when none is due.
    pub fn is_full(&self, next: Psn, bytes: u32) -> bool {
        self.limits.window != UNLIMITED && self.stream.awaits() && {
            let in_flight = self.stream.in_flight(next);
            in_flight > 0 && in_flight + u64::from(bytes) > self.limits.window
        }
    }

    /// Shall a packet of so many bytes ask for an acknowledge?
    pub fn asks(&self, next: Psn, bytes: u32) -> bool {
        let every = self.needs.ack_every;
        let unasked = self.stream.unasked.saturating_add(bytes);
        let due = every > 0 && unasked >= every;
        // The one behind it would have to wait for it.
        due || self.limits.window != UNLIMITED && {
            let then = self.stream.in_flight(next) + u64::from(bytes) + u64::from(self.stream.mtu);
            then > self.limits.window
        }
    }

    /// What its packets gather on their way.
    pub fn telemetry(&self) -> Option<&'static Telemetry> {
        self.needs.telemetry.then_some(&Telemetry::EMPTY)
    }

    /// A request packet goes that is acknowledged some day.
    pub fn sent_numbered(&mut self, now: Instant, sent: &Request, asks: bool) {
        // One that asks for data has no acknowledge of its own.
        let at = (sent.bytes > 0 && !sent.again).then_some(now);
        self.stream.sent(sent.psn, sent.next, sent.bytes, asks, at);
    }

    /// A packet of so many bytes of payload was sent, which makes a frame of so many.
    pub fn sent(&mut self, now: Instant, payload: u32, frame: u64) {
        self.sent_at = now;
        if self.needs.burst > 0 {
            let burst = self.burst.saturating_add(payload);
            self.burst = if burst < self.needs.burst { burst } else { 0 };
        }
        self.bucket.sent(frame + OVERHEAD);
        self.algorithm.on_sent(now, payload);
    }

    /// Everything before a PSN has arrived.
    pub fn acknowledged(&mut self, now: Instant, psn: Psn, answer: &Answer<'_>) {
        let Some(progress) = self.stream.acknowledged(psn) else {
            return;
        };
        if self.restarting.is_some_and(|end| !psn.before(end)) {
            self.restarting = None;
        }
        if progress.bytes == 0 {
            return;
        }
        let ack = Ack {
            rtt: progress.sent_at.filter(|_| answer.exact).map(|at| now.since(at)),
            acked: self.stream.acked,
            sent: self.stream.sent,
            bytes: u32::try_from(progress.bytes).unwrap_or(u32::MAX),
            hops: answer.hops,
            marked: answer.marked,
            telemetry: answer.telemetry,
        };
        self.algorithm.on_ack(now, &ack);
    }

    /// Something was lost, and is sent again.
    pub fn lost(&mut self, now: Instant, loss: Loss) {
        self.stream.again();
        self.algorithm.on_loss(now, loss);
    }

    /// The network, or the transport itself, says that it shall slow down.
    pub fn notify(&mut self, now: Instant, cnp: &Notification) {
        self.notifications += 1;
        self.algorithm.on_notification(now, cnp);
        self.learn(now);
    }
}
