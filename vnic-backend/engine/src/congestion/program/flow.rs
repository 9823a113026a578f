//! A flow whose algorithm is a program.
//!
//! ```text
//!  event, 96 bytes, little endian           flow
//!   0 now, ns          56 bytes              0 rate, bit/s on the wire
//!   8 line rate        60 marked             8 window, bytes of payload
//!  16 mtu, 20 wire     64 hops              16 time of on_time, ns
//!  24 rate at start    68 loss              24 cuts
//!  32 round trip, ns   72 period, ns        32 what the program keeps
//!  40 acked, 48 sent   80 paused, 84 records of switches
//! ```
//!
//! All ones is no limit, no time, not known. What an event has not is zero.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use core::time::Duration;

use vnic_wire::int::{self, HOPS_MAX, Telemetry};
use vnic_wire::time::Instant;

use super::{Handler, Running, Trap};
use crate::congestion::dcqcn::{Dcqcn, Parameters};
use crate::congestion::{
    Ack, Algorithm, CongestionControl, Faults, Limits, Loss, Needs, Notification, Start, State, UNLIMITED,
};

/// Bytes of an event.
pub const EVENT: usize = 96;
/// Bytes of a flow that the contract has.
pub const HEAD: usize = 32;
/// Bytes of the record of a switch: rate, queue, bytes sent, time.
const HOP: usize = 32;
/// Bytes of all records.
pub const HOPS: usize = HOP * HOPS_MAX;

/// All ones: no limit, no time, not known.
const NONE: u64 = u64::MAX;
/// Lowest rate in bit/s: a flow always goes on.
const LEAST_RATE: u64 = 1_000_000;
/// Shortest time to the next `on_time`.
const LEAST_TIME: Duration = Duration::from_micros(1);

/// An event, as the program sees it.
#[derive(Debug, Clone, Copy, Default)]
struct Event {
    rate: u64,
    rtt: u64,
    acked: u64,
    sent: u64,
    bytes: u32,
    marked: u32,
    hops: u32,
    loss: u32,
    period: u64,
    paused: u32,
    records: u32,
}

impl Event {
    fn write(&self, now: Instant, start: &Start) -> [u8; EVENT] {
        let mut out = [0; EVENT];
        for (at, value) in [
            (0, now.0),
            (8, start.line_rate),
            (24, self.rate),
            (32, self.rtt),
            (40, self.acked),
            (48, self.sent),
            (72, self.period),
        ] {
            put(&mut out, at, value.to_le_bytes());
        }
        for (at, value) in [
            (16, start.mtu),
            (20, start.wire),
            (56, self.bytes),
            (60, self.marked),
            (64, self.hops),
            (68, self.loss),
            (80, self.paused),
            (84, self.records),
        ] {
            put(&mut out, at, value.to_le_bytes());
        }
        out
    }
}

fn put<const N: usize>(out: &mut [u8], at: usize, bytes: [u8; N]) {
    out[at..at + N].copy_from_slice(&bytes);
}

fn some(duration: Option<Duration>) -> u64 {
    duration.map_or(NONE, |d| u64::try_from(d.as_nanos()).unwrap_or(NONE))
}

/// Records of switches, and how many there are.
fn records(telemetry: &Telemetry) -> ([u8; HOPS], u32) {
    let mut out = [0; HOPS];
    let mut count = 0;
    for (record, hop) in out.chunks_exact_mut(HOP).zip(telemetry.hops()) {
        put(record, 0, hop.rate().unwrap_or(NONE).to_le_bytes());
        put(record, 8, hop.queued().to_le_bytes());
        put(record, 16, (u64::from(hop.sent) * int::SENT_UNIT).to_le_bytes());
        put(record, 24, u64::from(hop.timestamp).to_le_bytes());
        count += 1;
    }
    (out, count)
}

/// Tries whether a flow can begin.
pub fn try_start(running: &Arc<Running>) -> Result<(), Trap> {
    let start = Start {
        line_rate: 100_000_000_000,
        mtu: 1024,
        wire: 1110,
        rate: None,
    };
    Flow::new(running, Instant(0), &start).1
}

impl CongestionControl for Arc<Running> {
    fn name(&self) -> &'static str {
        "program"
    }

    fn needs(&self) -> Needs {
        self.program.needs
    }

    fn start(&self, now: Instant, flow: &Start) -> Box<dyn Algorithm> {
        Box::new(Flow::new(self, now, flow).0)
    }

    fn faults(&self) -> Faults {
        Running::faults(self)
    }
}

/// One flow.
#[derive(Debug)]
struct Flow {
    running: Arc<Running>,
    start: Start,
    limits: Limits,
    /// When `on_time` is due.
    time: Option<Instant>,
    /// The flow's bytes, as the program wrote them.
    kept: Box<[u8]>,
    /// What takes over when the program runs no more.
    instead: Option<Box<dyn Algorithm>>,
}

impl Flow {
    fn new(running: &Arc<Running>, now: Instant, start: &Start) -> (Flow, Result<(), Trap>) {
        let mut kept = vec![0; running.program.flow].into_boxed_slice();
        for at in [0, 8, 16] {
            put(&mut kept, at, NONE.to_le_bytes());
        }
        let mut flow = Flow {
            running: running.clone(),
            start: *start,
            limits: Limits {
                rate: start.rate.unwrap_or(start.line_rate),
                window: UNLIMITED,
            },
            time: None,
            kept,
            instead: None,
        };
        let event = Event {
            rate: start.rate.unwrap_or(NONE),
            ..Event::default()
        };
        let done = match running.stopped() {
            true => Ok(()),
            false => flow.event(now, Handler::Start, &event, None),
        };
        (flow, done)
    }

    fn word(&self, at: usize) -> u64 {
        let bytes = self.kept.get(at..).and_then(|b| b.first_chunk::<8>());
        bytes.copied().map_or(NONE, u64::from_le_bytes)
    }

    /// Whether an event is the program's business; if it runs no more, DCQCN takes over from where the flow is.
    fn is_mine(&mut self, now: Instant) -> bool {
        if self.instead.is_none() && self.running.stopped() {
            let start = Start {
                rate: Some(self.limits.rate.min(self.start.line_rate)),
                ..self.start
            };
            let dcqcn = Dcqcn {
                parameters: Parameters::PAPER,
            };
            self.instead = Some(dcqcn.start(now, &start));
        }
        self.instead.is_none()
    }

    /// Runs an event. After a fault the flow is as before it.
    fn event(
        &mut self,
        now: Instant,
        handler: Handler,
        event: &Event,
        telemetry: Option<&Telemetry>,
    ) -> Result<(), Trap> {
        let mut event = *event;
        let addresses = self.running.program.addresses;
        let seen = telemetry.zip(addresses.hops);
        let seen = seen.map(|(telemetry, at)| (at, records(telemetry)));
        event.records = seen.as_ref().map_or(0, |(_, (_, count))| *count);
        let bytes = event.write(now, &self.start);
        let mut after = [0; super::FLOW_MAX];
        let after = &mut after[..self.kept.len()];
        let given = [
            (addresses.event, bytes.as_slice()),
            (addresses.flow, &self.kept),
            seen.as_ref()
                .map_or((0, &[][..]), |(at, (records, _))| (*at, records)),
        ];
        match self.running.run(handler, &given, after) {
            None => return Ok(()),
            Some(done) => done?,
        }
        self.kept.copy_from_slice(after);
        self.limits = Limits {
            rate: self.word(0).max(LEAST_RATE),
            window: self.word(8),
        };
        let due = self.word(16);
        let handled = self.running.program.handlers[Handler::Time as usize].is_some();
        self.time = (handled && due != NONE).then(|| Instant(due).max(now + LEAST_TIME));
        Ok(())
    }

    /// Runs an event of which a fault is counted, and nothing else.
    fn hear(&mut self, now: Instant, handler: Handler, event: &Event) {
        let _ = self.event(now, handler, event, None);
    }
}

impl Algorithm for Flow {
    fn on_sent(&mut self, now: Instant, bytes: u32) {
        match self.is_mine(now) {
            true => self.hear(
                now,
                Handler::Sent,
                &Event {
                    bytes,
                    ..Event::default()
                },
            ),
            false => self.instead.iter_mut().for_each(|a| a.on_sent(now, bytes)),
        }
    }

    fn on_notification(&mut self, now: Instant, cnp: &Notification) {
        if !self.is_mine(now) {
            return self.instead.iter_mut().for_each(|a| a.on_notification(now, cnp));
        }
        let period = some(cnp.period);
        self.hear(
            now,
            Handler::Notification,
            &Event {
                period,
                ..Event::default()
            },
        );
    }

    fn on_ack(&mut self, now: Instant, ack: &Ack<'_>) {
        if !self.is_mine(now) {
            return self.instead.iter_mut().for_each(|a| a.on_ack(now, ack));
        }
        let event = Event {
            rtt: some(ack.rtt),
            acked: ack.acked,
            sent: ack.sent,
            bytes: ack.bytes,
            marked: ack.marked.into(),
            hops: ack.hops.into(),
            ..Event::default()
        };
        let _ = self.event(now, Handler::Ack, &event, ack.telemetry);
    }

    fn on_loss(&mut self, now: Instant, loss: Loss) {
        if !self.is_mine(now) {
            return self.instead.iter_mut().for_each(|a| a.on_loss(now, loss));
        }
        let loss = match loss {
            Loss::OutOfSequence => 1,
            Loss::Timeout => 2,
            Loss::NotReady => 3,
        };
        self.hear(
            now,
            Handler::Loss,
            &Event {
                loss,
                ..Event::default()
            },
        );
    }

    fn advance(&mut self, now: Instant, paused: bool) {
        if !self.is_mine(now) {
            return self.instead.iter_mut().for_each(|a| a.advance(now, paused));
        }
        if self.time.is_some_and(|time| time <= now) {
            // It is asked for anew each time.
            self.time = None;
            put(&mut self.kept, 16, NONE.to_le_bytes());
            let paused = paused.into();
            self.hear(
                now,
                Handler::Time,
                &Event {
                    paused,
                    ..Event::default()
                },
            );
        }
    }

    fn limits(&self) -> Limits {
        self.instead.as_ref().map_or(self.limits, |a| a.limits())
    }

    fn next_change(&self) -> Option<Instant> {
        self.instead.as_ref().map_or(self.time, |a| a.next_change())
    }

    fn is_released(&self) -> bool {
        let free = || self.limits == Limits::NONE && !self.running.program.needs.from_start;
        self.instead.as_ref().map_or_else(free, |a| a.is_released())
    }

    fn state(&self) -> State {
        let mine = || State {
            cuts: self.word(24),
            ..State::default()
        };
        self.instead.as_ref().map_or_else(mine, |a| a.state())
    }
}
