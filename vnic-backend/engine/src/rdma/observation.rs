//! Observation of queue pairs: what passes between a queue pair and its network while somebody looks at it.
//!
//! A device has none until the first look, and an observation ends by itself when nobody has looked for its time, or with its
//! queue pair. Packets are seen where the device takes and gives them, so queue pairs know nothing of it: what they do, and what
//! they cost, stays the same.
//!
//! ```text
//!  transmit ─▶ Tap ─▶ sink          receive ─▶ came
//!               └─▶ Observation ◀────────────────┘   ◀── again: why packets are sent again
//! ```

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use vnic_wire::aeth::Syndrome;
use vnic_wire::opcode::{Operation, Transport};
use vnic_wire::psn::Psn;
use vnic_wire::roce::{Ecn, Path};
use vnic_wire::time::Instant;
use vnic_wire::transport::{Extended, Headers};

use crate::congestion::zero_touch::RoundTrips;
use crate::counters::{HistogramValues, TimeHistogram};

use super::packet::{Incoming, Outgoing, OutgoingFrame, Sink};
use super::run::Run;
use super::timer::{Entry, Timers};
use super::types::{Mtu, QpNumber};

/// Queue pairs of a device that are observed at a time, at most: each costs its device a few comparisons a packet.
pub const OBSERVED_MAX: usize = 64;

/// The entry of all observations among the timers. (No queue pair has this number: IBTA 3.9.4.)
pub(super) const OBSERVER: QpNumber = QpNumber(0);

/// Why packets are sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The peer has said that packets are missing.
    SequenceNak,
    /// A response is missing.
    ImpliedNak,
    /// Nothing came back in the ACK timeout of the queue pair.
    Timeout,
    /// Nothing came back in the time that the adaptive timer expects.
    EarlyTimeout,
    /// The peer has said that it had no receive.
    ReceiverNotReady,
}

impl Cause {
    /// All causes.
    pub const ALL: [Cause; 5] = [
        Cause::SequenceNak,
        Cause::ImpliedNak,
        Cause::Timeout,
        Cause::EarlyTimeout,
        Cause::ReceiverNotReady,
    ];
}

/// Packets that have passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Passed {
    /// Packets.
    pub packets: u64,
    /// Bytes of their frames, without FCS.
    pub bytes: u64,
}

impl Passed {
    fn add(&mut self, packets: usize, bytes: u64) {
        self.packets += packets as u64;
        self.bytes += bytes;
    }
}

/// Packets that were sent again for a cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Repeats {
    /// How often the queue pair began to.
    pub times: u64,
    /// Packets that it has sent again then.
    pub packets: u64,
}

/// Round trips that were measured: from a request packet that asks for an answer to the first packet that answers it, one at a
/// time, and none of a packet that was sent again (Karn and Partridge, SIGCOMM 1987). Times are those of the device's calls: of a
/// shell, the beginnings of its rounds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trips {
    /// Their times, by the bounds of [`TimeHistogram`].
    pub values: HistogramValues,
    /// The least.
    pub least: Option<Duration>,
    /// The newest.
    pub newest: Option<Duration>,
    /// SRTT (RFC 6298, section 2).
    pub smoothed: Option<Duration>,
}

/// What an observation has counted since it began.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QpObservation {
    /// How long ago it began.
    pub span: Duration,
    /// Requests that were sent, also those that were sent again.
    pub requests_sent: Passed,
    /// Acknowledges, READ responses and atomic results that were sent.
    pub responses_sent: Passed,
    /// Requests that came from the peer. Datagrams to multicast groups are not among them.
    pub requests_received: Passed,
    /// Acknowledges, READ responses and atomic results that came from the peer.
    pub responses_received: Passed,
    /// Packets that were sent again for each of [`Cause::ALL`].
    pub repeats: [Repeats; Cause::ALL.len()],
    /// Packets that were sent again, also those of which the cause was before the observation.
    pub sent_again: u64,
    /// Packets that came with a mark of congestion: the code point CE (RFC 3168), or FECN.
    pub marked: u64,
    /// Packets that came with BECN.
    pub echoed: u64,
    /// Congestion notification packets that were sent.
    pub cnps_sent: u64,
    /// Congestion notification packets that came from the peer.
    pub cnps_received: u64,
    /// Round trips of its requests, if it is reliable.
    pub trips: Trips,
}

/// A request packet whose round trip is measured.
#[derive(Debug, Clone, Copy)]
struct Timed {
    psn: Psn,
    at: Instant,
    /// It is answered by data.
    fetches: bool,
}

/// The observation of one queue pair.
#[derive(Debug)]
struct Observation {
    began: Instant,
    /// It ends then, unless somebody looks again.
    until: Instant,
    counted: QpObservation,
    times: TimeHistogram,
    estimate: RoundTrips,
    /// One beyond the highest PSN that was sent.
    tail: Psn,
    mtu: Mtu,
    timed: Option<Timed>,
    /// Why it sent again the last time.
    cause: Option<Cause>,
}

impl Observation {
    fn seen(&self, now: Instant) -> QpObservation {
        let counted = &self.counted;
        QpObservation {
            span: now.since(self.began),
            trips: Trips {
                values: self.times.read(),
                smoothed: self.estimate.smoothed(),
                ..counted.trips.clone()
            },
            ..counted.clone()
        }
    }

    /// It sends a packet.
    fn sent(&mut self, now: Instant, path: &Path, headers: &Headers, payload: usize) {
        let bth = &headers.bth;
        if bth.opcode.transport() == Transport::Cnp {
            self.counted.cnps_sent += 1;
            return;
        }
        let bytes = path.frame_len(headers, payload) as u64;
        match bth.opcode.operation() {
            Some(operation) if operation.is_response() => self.counted.responses_sent.add(1, bytes),
            Some(operation) => {
                self.counted.requests_sent.add(1, bytes);
                if matches!(bth.opcode.transport(), Transport::Rc | Transport::Xrc) {
                    self.numbered(now, operation, headers);
                }
            }
            None => {}
        }
    }

    /// A request of a reliable queue pair goes.
    fn numbered(&mut self, now: Instant, operation: Operation, headers: &Headers) {
        let psn = headers.bth.psn;
        if psn.before(self.tail) {
            self.counted.sent_again += 1;
            if let Some(cause) = self.cause {
                self.counted.repeats[cause as usize].packets += 1;
            }
            return;
        }
        let psns = match (operation, &headers.extended) {
            (Operation::ReadRequest, Extended::Reth(reth)) => reth.len.div_ceil(self.mtu.bytes()).max(1),
            _ => 1,
        };
        self.tail = psn.add(psns);
        let fetches = operation == Operation::ReadRequest || operation.is_atomic();
        if self.timed.is_none() && (fetches || headers.bth.ack_request) {
            self.timed = Some(Timed {
                psn,
                at: now,
                fetches,
            });
        }
    }

    /// A packet of its peer's came.
    fn came(&mut self, now: Instant, packet: &Incoming<'_>) {
        let bth = &packet.headers.bth;
        if bth.opcode.transport() == Transport::Cnp {
            self.counted.cnps_received += 1;
            return;
        }
        let ce = Ecn::of(packet.path.network.traffic_class()) == Ecn::Ce;
        self.counted.marked += u64::from(ce || bth.fecn);
        self.counted.echoed += u64::from(bth.becn);
        let bytes = packet.path.frame_len(&packet.headers, packet.payload.len()) as u64;
        match bth.opcode.operation() {
            Some(operation) if operation.is_response() => {
                self.counted.responses_received.add(1, bytes);
                self.answered(now, operation, &packet.headers);
            }
            Some(_) => self.counted.requests_received.add(1, bytes),
            None => {}
        }
    }

    /// An acknowledge or a response came.
    fn answered(&mut self, now: Instant, operation: Operation, headers: &Headers) {
        let Some(timed) = self.timed else { return };
        let psn = headers.bth.psn;
        let data = operation != Operation::Acknowledge;
        // A NAK acknowledges what was before it (IBTA 9.7.5.1.1).
        let behind = match &headers.extended {
            Extended::Aeth(aeth) if !matches!(aeth.syndrome, Syndrome::Ack { .. }) => psn,
            _ => psn.next(),
        };
        let ends = match timed.fetches {
            // The response to it comes first of all that come after it.
            true => data && psn == timed.psn,
            false => timed.psn.before(behind) && psn.before(self.tail),
        };
        if !ends {
            return;
        }
        self.timed = None;
        let trip = now.since(timed.at);
        self.times.add(u64::try_from(trip.as_nanos()).unwrap_or(u64::MAX));
        self.estimate.measure(trip);
        let trips = &mut self.counted.trips;
        trips.least = Some(trips.least.map_or(trip, |least| least.min(trip)));
        trips.newest = Some(trip);
    }
}

/// Where a queue pair is when its observation begins.
#[derive(Debug, Clone, Copy)]
pub(super) struct Whereabouts {
    /// One beyond the highest PSN that was sent.
    pub end: Psn,
    pub mtu: Mtu,
}

/// All observations of a device; at least one.
#[derive(Debug, Default)]
pub(super) struct Observations {
    all: Vec<(QpNumber, Box<Observation>)>,
    timer: Entry,
}

impl Observations {
    fn of(&mut self, qp: QpNumber) -> Option<&mut Observation> {
        let found = self.all.iter_mut().find(|(number, _)| *number == qp);
        found.map(|(_, of)| &mut **of)
    }

    /// Somebody looks at a queue pair, and perhaps again before `until`. None: so many are observed already.
    pub fn look(
        &mut self,
        timers: &mut Timers,
        now: Instant,
        until: Instant,
        qp: QpNumber,
        at: Whereabouts,
    ) -> Option<QpObservation> {
        if self.of(qp).is_none() {
            if self.all.len() == OBSERVED_MAX {
                return None;
            }
            let new = Box::new(Observation {
                began: now,
                until,
                counted: QpObservation::default(),
                times: TimeHistogram::default(),
                estimate: RoundTrips::default(),
                tail: at.end,
                mtu: at.mtu,
                timed: None,
                cause: None,
            });
            self.all.push((qp, new));
        }
        timers.arm(&mut self.timer, OBSERVER, until);
        let of = self.of(qp)?;
        of.until = of.until.max(until);
        Some(of.seen(now))
    }

    /// What was counted of a queue pair, if it is observed.
    pub fn seen(&mut self, now: Instant, qp: QpNumber) -> Option<QpObservation> {
        self.of(qp).map(|of| of.seen(now))
    }

    /// Whether a queue pair is observed.
    pub fn has(&self, qp: QpNumber) -> bool {
        self.all.iter().any(|(number, _)| *number == qp)
    }

    /// Ends those of which the time is over; the entry among the timers has fired. Whether there is any left.
    pub fn end_old(&mut self, timers: &mut Timers, now: Instant) -> bool {
        self.timer.fired();
        self.all.retain(|(_, of)| now < of.until);
        if let Some(first) = self.all.iter().map(|(_, of)| of.until).min() {
            timers.arm(&mut self.timer, OBSERVER, first);
        }
        !self.all.is_empty()
    }

    /// Ends that of a queue pair that is destroyed. Whether there is any left.
    pub fn end(&mut self, timers: &mut Timers, qp: QpNumber) -> bool {
        self.all.retain(|(number, _)| *number != qp);
        if self.all.is_empty() {
            timers.disarm(&mut self.timer, OBSERVER);
        }
        !self.all.is_empty()
    }

    /// A queue pair begins at another PSN.
    pub fn starts(&mut self, qp: QpNumber, at: Whereabouts) {
        if let Some(of) = self.of(qp) {
            (of.tail, of.mtu) = (at.end, at.mtu);
            (of.timed, of.cause) = (None, None);
        }
    }

    /// A queue pair sends again. What is measured may be answered twice from now on.
    pub fn again(&mut self, qp: QpNumber, cause: Cause) {
        if let Some(of) = self.of(qp) {
            of.counted.repeats[cause as usize].times += 1;
            (of.timed, of.cause) = (None, Some(cause));
        }
    }

    /// A packet of its peer's came for a queue pair.
    pub fn came(&mut self, now: Instant, qp: QpNumber, packet: &Incoming<'_>) {
        if let Some(of) = self.of(qp) {
            of.came(now, packet);
        }
    }

    /// So many packets of a run came for a queue pair from its peer.
    pub fn run_came(&mut self, qp: QpNumber, run: &Run<'_>, taken: usize) {
        if let Some(of) = self.of(qp) {
            of.counted.requests_received.add(taken, run.frame_bytes(taken));
        }
    }
}

/// A sink that shows what it is given to the observations.
pub(super) struct Tap<'a> {
    pub sink: &'a mut dyn Sink,
    pub observations: &'a mut Observations,
    pub now: Instant,
}

impl Sink for Tap<'_> {
    fn open(&mut self) -> u8 {
        self.sink.open()
    }

    fn send(&mut self, packet: &Outgoing<'_>) {
        if let Some(of) = self.observations.of(packet.from) {
            of.sent(self.now, packet.path, &packet.headers, packet.payload.len());
        }
        self.sink.send(packet);
    }

    fn send_frame(&mut self, frame: &OutgoingFrame<'_>) -> Result<(), u8> {
        self.sink.send_frame(frame)
    }

    fn run_room(&mut self, path: &Path, to: QpNumber) -> usize {
        self.sink.run_room(path, to)
    }

    fn send_run(&mut self, run: &Run<'_>) -> usize {
        let taken = self.sink.send_run(run);
        if let Some(of) = self.observations.of(run.from) {
            let now = self.now;
            run.first(taken)
                .for_each(|packet| of.sent(now, packet.path, &packet.headers, packet.payload.len()));
        }
        taken
    }
}
