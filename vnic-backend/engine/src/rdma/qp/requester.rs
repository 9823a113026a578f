//! The requester: turns the send queue into request packets (IBTA 9.7.2 to 9.7.5, 9.8).
//!
//! Requests are numbered when they are first sent and keep their PSNs: going back (after a NAK, a timeout, a lost
//! response) moves a cursor, nothing else. What is not acknowledged stays in the queue; completions leave from its
//! front, so they are in order whatever comes back.

mod headers;
mod run;
mod wqe;

use vnic_device::queue::Operation;
use vnic_wire::int::Sign;
use vnic_wire::opcode::Opcode;
use vnic_wire::psn::Psn;
use vnic_wire::sack::SPAN;
use vnic_wire::time::Instant;
use vnic_wire::transport::Headers;
use vnic_wire::{bth, xrceth};

use crate::congestion::zero_touch::{RoundTrips, ZeroTouch};

use super::super::address_handle::AddressHandles;
use super::super::marks::Mark;
use super::super::memory::Memory;
use super::super::on_demand::{self, Half, Missing, Verdict};
use super::super::pacing::Request;
use super::super::packet::{Outgoing, Payload, Sink, SpanList};
use super::super::pool::{NONE, Pool, Queue};
use super::super::shared::Shared;
use super::super::timer::Moment;
use super::super::types::{
    Access, Event, MESSAGE_MAX, QpState, QpType, SendData, SendFlags, SendOp, SendWr, Status, VerbsError,
};
use super::completer::Again;
use super::selective::WHOLE;
use super::spread::{self, next_way};
use super::{Qp, dynamic, notes, raw, scatter, state};
use headers::{Place, request};
use wqe::FETCHING;
pub(in super::super) use wqe::SendWqe;
pub(super) use wqe::{Finished, Stage};

/// What may be unacknowledged after a timeout, and after each loss with slow restart. It grows by what is acknowledged, which
/// doubles it each round trip. A slow receiver, whose buffers a full window would flood again and again, gets on.
pub(super) const WINDOW_RESTART: u32 = 16;
/// Every so many packets of a long message ask for an acknowledge.
const ACK_EVERY: u32 = 64;
/// PSNs that may be between the oldest unacknowledged one and the next: half of all, or order would be lost
/// (IBTA 9.7.2).
const PSN_SPAN: u32 = 1 << 23;

/// Operations that no peer hears of.
const LOCAL: u32 = Operation::BindMw.bit() | Operation::LocalInvalidate.bit();

/// What a sender knows of its network, for zero touch RoCE.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Trips {
    /// Estimate of the round trips.
    pub estimate: RoundTrips,
    /// No round trip need be measured until the timer is looked at again.
    pub fresh: bool,
    /// What is sent again is answered once: the peer said that it has dropped the rest (9.7.5.2.8), and no timeout came since.
    pub alone: bool,
    /// The timer ran out early, and nothing was acknowledged since: when the QP's own timeout runs out.
    pub stuck: Option<Moment>,
    /// It restarts slowly until this PSN is acknowledged.
    pub restarting: Option<Psn>,
    /// The peer knew selective repeat when a round trip was measured last.
    pub selective: bool,
    /// The oldest PSN when the end of what is under way was looked for last.
    pub probed: Option<Psn>,
}

/// The sending half of a QP.
// Wide: the variables of one state machine (IBTA 9.7), which each packet reads together.
#[derive(Debug)]
pub(super) struct Requester {
    queue: Queue,
    /// Slot of the request that is sent from next, or [`NONE`]: all were sent.
    cursor: u32,
    /// PSN of the next packet.
    next: Psn,
    /// Oldest PSN that is not acknowledged or answered.
    pub oldest: Psn,
    /// One beyond the highest PSN that was used: behind it is what is sent again.
    pub end: Psn,
    /// READs and atomics in the network.
    pub responses_due: u8,
    /// PSNs of READs that were asked for and have not come.
    pub response_psns: u32,
    pub retries_left: u8,
    pub rnr_retries_left: u8,
    /// Went back to this PSN by a NAK, said or implied; not again by the same before there is progress.
    pub went_back: Option<(Psn, Again)>,
    /// The peer was not ready: wait until then.
    pub rnr_until: Option<Moment>,
    /// Request packets that may be unacknowledged now.
    pub window: u32,
    /// Time of the ACK timer in ns; 0: there is none.
    pub ack_timer: u64,
    /// When the oldest packet is given up for lost.
    pub deadline: Option<Moment>,
    /// The next packet starts the ACK timer, or is timed.
    pub unwatched: bool,
    /// The packet whose round trip is measured.
    pub timed: Option<Psn>,
    /// When that packet was sent; if everything was acknowledged, when that was.
    pub since: Instant,
    /// What zero touch RoCE knows of it.
    pub trips: Trips,
    /// Number of the next request.
    ssn: u32,
    /// Highest request number the peer has a receive for, when it says so (IBTA 9.7.7.2: LSN).
    pub credit_limit: Option<u32>,
    /// `SQ_DRAINED` was told.
    drained_told: bool,
}

impl Default for Requester {
    fn default() -> Requester {
        Requester {
            queue: Queue::default(),
            cursor: NONE,
            next: Psn::new(0),
            oldest: Psn::new(0),
            end: Psn::new(0),
            responses_due: 0,
            response_psns: 0,
            retries_left: 0,
            rnr_retries_left: 0,
            went_back: None,
            rnr_until: None,
            window: ZeroTouch::default().window,
            ack_timer: 0,
            deadline: None,
            unwatched: true,
            timed: None,
            // Who has sent nothing is not idle.
            since: Instant(u64::MAX),
            trips: Trips::default(),
            ssn: 1,
            credit_limit: None,
            drained_told: false,
        }
    }
}

/// Is request number `a` beyond `b`? They are 24 bits wide and wrap.
fn beyond(a: u32, b: u32) -> bool {
    Psn::new(b).before(Psn::new(a))
}

impl Requester {
    /// Begins at a PSN, with so many packets that may be unacknowledged.
    pub fn start(&mut self, psn: Psn, window: u32) {
        (self.next, self.oldest, self.end) = (psn, psn, psn);
        self.window = window;
        self.ssn = 1;
        self.credit_limit = None;
    }

    /// Requests that are not complete.
    pub fn queued(&self) -> u32 {
        self.queue.len()
    }

    pub fn next_psn(&self) -> Psn {
        self.next
    }

    /// Slot of the request that is sent from next, or [`NONE`].
    pub fn cursor(&self) -> u32 {
        self.cursor
    }

    /// Appends the request in the spare slot of the pool, which has begun.
    #[inline]
    pub fn append(&mut self, sends: &mut Pool<SendWqe>) {
        let slot = sends.append(&mut self.queue);
        if self.cursor == NONE {
            self.cursor = slot;
        }
    }

    /// Takes the oldest request off the queue, if it is at a stage that is asked for: what is left to say about it.
    #[inline(always)]
    pub fn take(&mut self, sends: &mut Pool<SendWqe>, at: impl FnOnce(Stage) -> bool) -> Option<Finished> {
        let head = self.queue.head();
        sends.take_if(&mut self.queue, |wqe, next| {
            if !at(wqe.stage) {
                return None;
            }
            if self.cursor == head {
                self.cursor = next;
            }
            if wqe.awaits_response() && wqe.psns > 0 {
                self.responses_due = self.responses_due.saturating_sub(1);
            }
            Some(Finished {
                id: wqe.wr.id,
                tag: wqe.wr.tag,
                op: wqe.op(),
                byte_len: wqe.byte_len(),
                signaled: wqe.wr.flags.contains(SendFlags::SIGNALED),
            })
        })
    }

    /// Nothing is in the network any more.
    pub fn stop(&mut self) {
        self.cursor = NONE;
        self.response_psns = 0;
        self.oldest = self.end;
        self.next = self.end;
        self.rnr_until = None;
        self.stop_timer();
        self.timed = None;
        self.trips.stuck = None;
        self.went_back = None;
    }

    /// So many ns, or less where the ACK timer would run out: what is lost is looked for before all is sent again.
    pub fn soon(&self, time: u64) -> u64 {
        match self.ack_timer {
            0 => time,
            timer => time.min(timer - timer / 4),
        }
    }

    /// Stops the ACK timer; the next packet starts it.
    pub fn stop_timer(&mut self) {
        self.deadline = None;
        self.unwatched = true;
    }

    /// Slot of the oldest request, or [`NONE`].
    pub fn head(&self) -> u32 {
        self.queue.head()
    }

    /// Slot of the newest request, or [`NONE`].
    pub fn tail(&self) -> u32 {
        self.queue.tail()
    }

    /// Has everything that was sent been acknowledged?
    pub fn quiet(&self) -> bool {
        self.oldest == self.end
    }

    /// Sends again from `psn`.
    pub fn go_back(&mut self, shared: &Shared, psn: Psn) {
        self.go_back_from(shared, None, psn);
    }

    /// Sends again from `psn`, which the request in a slot has, or a later one; none: any may.
    pub fn go_back_from(&mut self, shared: &Shared, slot: Option<u32>, psn: Psn) {
        let mut slot = slot.unwrap_or(self.queue.head());
        while slot != NONE {
            match shared.sends.get(slot) {
                Some(wqe) if wqe.holds(psn) => break,
                Some(SendWqe {
                    stage: Stage::Started | Stage::Ended(Status::Success),
                    ..
                }) => slot = shared.sends.next(slot),
                _ => break,
            }
        }
        self.cursor = slot;
        self.next = psn;
    }

    /// Goes on where it was.
    pub fn resume(&mut self, cursor: u32, next: Psn) {
        (self.cursor, self.next) = (cursor, next);
    }

    /// Gives a request its PSNs and its number.
    #[inline]
    fn number(&mut self, wqe: &mut SendWqe, first: Psn, psns: u32) {
        wqe.first = first;
        wqe.psns = psns;
        wqe.ssn = self.ssn;
        wqe.stage = Stage::Started;
        self.ssn = Psn::new(self.ssn).next().value();
    }

    /// Responses from this PSN on to before `oldest` have come, of a READ or of an atomic.
    #[inline]
    pub fn responses_came(&mut self, read: bool, from: Psn) {
        if read {
            let came = self.oldest.distance(from).max(0) as u32;
            self.response_psns = self.response_psns.saturating_sub(came);
        }
    }

    /// Requests that take a receive of the peer's and may be begun, if the peer says how many it has.
    pub fn credits(&self) -> Option<u32> {
        let limit = self.credit_limit?;
        Some(Psn::new(limit).next().distance(Psn::new(self.ssn)).max(0) as u32)
    }

    /// Packets in the network that acknowledges are due for.
    pub fn in_flight(&self) -> u32 {
        (self.next.distance(self.oldest).max(0) as u32).saturating_sub(self.response_psns)
    }
}

/// What becomes of the request at the cursor.
pub(super) enum Turn {
    /// A packet was sent.
    Sent,
    /// Nothing can be sent now.
    Blocked,
    /// It took no packet: look at the next.
    Next,
    /// What is next is of another priority: its turn is over, and it wants one of that priority.
    Aside,
}

impl Qp {
    /// Refuses send work requests that can never be carried out (IBTA 10.8.3.1: immediate errors).
    #[inline(always)]
    pub(super) fn check_send(&self, ahs: &AddressHandles, wr: &SendWr) -> Result<(), VerbsError> {
        let kind = self.init.qp_type;
        let operation = wr.op.operation();
        if !kind.allows(operation) {
            return Err(VerbsError::Invalid(
                "this transport service does not have the operation",
            ));
        }
        match &wr.data {
            SendData::Sges(sges) if sges.len() as u64 > u64::from(self.init.max_send_sge) => {
                return Err(VerbsError::OutOfRange {
                    what: "elements of a send",
                    value: sges.len() as u64,
                    min: 0,
                    max: self.init.max_send_sge.into(),
                });
            }
            SendData::Inline(bytes) if bytes.len() as u64 > u64::from(self.init.max_inline) => {
                return Err(VerbsError::OutOfRange {
                    what: "bytes of an inline send",
                    value: bytes.len() as u64,
                    min: 0,
                    max: self.init.max_inline.into(),
                });
            }
            SendData::Inline(_) if operation.bit() & FETCHING != 0 => {
                return Err(VerbsError::Invalid("what is fetched cannot be inline"));
            }
            SendData::Sges(_) | SendData::Inline(_) => {}
        }
        match kind {
            QpType::Ud | QpType::DcInitiator => self.check_target(ahs, wr),
            _ => Ok(()),
        }
    }

    /// Does a request that names its destination name one?
    #[inline(never)]
    fn check_target(&self, ahs: &AddressHandles, wr: &SendWr) -> Result<(), VerbsError> {
        match (self.init.qp_type, &wr.ud) {
            (QpType::DcInitiator, _) if wr.op.operation().bit() & LOCAL != 0 => Ok(()),
            (QpType::DcInitiator, None) => Err(VerbsError::Invalid("a DC request needs a target")),
            (_, None) => Err(VerbsError::Invalid("a datagram needs a destination")),
            (_, Some(to)) => self.check_destination(ahs, to),
        }
    }

    /// Takes one step on the send queue.
    pub(super) fn send_request(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        memory: &dyn Memory,
        sink: &mut dyn Sink,
    ) -> Turn {
        if !self.permissions().drain || self.requester.rnr_until.is_some_and(|t| now < t.at()) {
            return Turn::Blocked;
        }
        if self.trouble.is_some() && self.repeats(shared) {
            if self.must_wait(shared, now) {
                return Turn::Blocked;
            }
            if let Some(turn) = self.repeat(shared, now, memory, sink) {
                return turn;
            }
        }
        if self.dynamic.is_some()
            && let Some(turn) = dynamic::leave(self, shared, sink)
        {
            return turn;
        }
        let slot = self.requester.cursor;
        let Some(wqe) = shared.sends.get(slot) else {
            return Turn::Blocked;
        };
        match wqe.stage {
            Stage::Ended(Status::Success) => {
                self.requester.cursor = shared.sends.next(slot);
                return Turn::Next;
            }
            Stage::Ended(_) => return Turn::Blocked,
            Stage::Doomed(status) => {
                if !self.permissions().transmit {
                    return Turn::Blocked;
                }
                self.end_request(shared, slot, status);
                return Turn::Next;
            }
            Stage::Posted => {
                if !self.permissions().transmit {
                    return Turn::Blocked;
                }
                if wqe.is_local() {
                    return self.do_locally(shared, slot);
                }
                if self.dynamic.is_some()
                    && let Some(turn) = dynamic::turn_to(self, shared, slot, now, sink)
                {
                    return turn;
                }
                if let Some(turn) = self.start_request(shared, slot) {
                    return turn;
                }
            }
            Stage::Started => {}
        }
        if self.must_wait(shared, now) {
            return Turn::Blocked;
        }
        if self.dynamic.is_some()
            && let Some(turn) = dynamic::connect_first(self, shared, sink)
        {
            return turn;
        }
        match self.init.qp_type {
            QpType::Ud => return self.send_datagram(shared, slot, memory, now, sink),
            QpType::RawPacket => return raw::send(self, shared, slot, memory, now, sink),
            _ => {}
        }
        self.send_packet(shared, slot, now, WHOLE, memory, sink)
    }

    /// Binds or invalidates; no packet is sent.
    fn do_locally(&mut self, shared: &mut Shared, slot: u32) -> Turn {
        let Some(wqe) = shared.sends.get_mut(slot) else {
            return Turn::Blocked;
        };
        if wqe.wr.flags.contains(SendFlags::FENCE) && self.requester.responses_due > 0 {
            shared.marks.hit(Mark::FenceWaited);
            return Turn::Blocked;
        }
        let (Some(pd), number) = (self.init.pd, self.number) else {
            return Turn::Blocked;
        };
        let status = match wqe.wr.op {
            SendOp::BindMw(ref bind) => {
                let failed = shared.regions.bind(pd, number, bind).err();
                shared.marks.hit(match failed {
                    None => Mark::WindowBound,
                    Some(_) => Mark::WindowBindFailed,
                });
                failed
            }
            SendOp::LocalInvalidate(key) => {
                shared.marks.hit(Mark::InvalidateLocal);
                shared.regions.invalidate_local(pd, number, key).err()
            }
            _ => None,
        };
        self.end_request(shared, slot, status.unwrap_or(Status::Success));
        Turn::Next
    }

    /// The request at `slot` has ended; it is reported when those before it are.
    pub(super) fn end_request(&mut self, shared: &mut Shared, slot: u32, status: Status) {
        if let Some(wqe) = shared.sends.get_mut(slot) {
            wqe.stage = Stage::Ended(status);
        }
        self.retire(shared);
    }

    /// Gives a request its numbers, when it may begin.
    #[inline(always)]
    fn start_request(&mut self, shared: &mut Shared, slot: u32) -> Option<Turn> {
        let many = self.requester.responses_due >= self.attributes.max_rd_atomic;
        let many = many && !self.answered(shared, slot);
        let Some(wqe) = shared.sends.get_mut(slot) else {
            return Some(Turn::Blocked);
        };
        let requester = &mut self.requester;
        let reliable = self.init.qp_type.reliable();
        if reliable && requester.responses_due > 0 && wqe.wr.flags.contains(SendFlags::FENCE) {
            shared.marks.hit(Mark::FenceWaited);
            return Some(Turn::Blocked);
        }
        if wqe.len > MESSAGE_MAX.into() {
            self.end_request(shared, slot, Status::LocalLengthError);
            return Some(Turn::Next);
        }
        if wqe.awaits_response() {
            if self.attributes.max_rd_atomic == 0 {
                self.end_request(shared, slot, Status::LocalQpOperationError);
                return Some(Turn::Next);
            }
            if many {
                shared.marks.hit(Mark::ReadAtomicWaited);
                return Some(Turn::Blocked);
            }
        }
        let mtu = u64::from(self.attributes.path_mtu.bytes());
        let psns = if wqe.is_atomic() || matches!(self.init.qp_type, QpType::Ud | QpType::RawPacket) {
            1
        } else {
            wqe.len.div_ceil(mtu).max(1) as u32
        };
        let used = requester.next.distance(requester.oldest).max(0) as u32;
        if reliable && used > 0 && used + psns > PSN_SPAN {
            return Some(Turn::Blocked);
        }
        requester.number(wqe, requester.next, psns);
        if wqe.awaits_response() {
            requester.responses_due += 1;
            if wqe.is_read() {
                requester.response_psns += psns;
            }
        }
        if shared.notes.is_some() {
            notes::begun(self, shared, slot);
        }
        None
    }

    /// Sends the packet at the cursor of a connected QP. A READ asks for `psns` PSNs at most.
    pub(super) fn send_packet(
        &mut self,
        shared: &mut Shared,
        slot: u32,
        now: Instant,
        psns: u32,
        memory: &dyn Memory,
        sink: &mut dyn Sink,
    ) -> Turn {
        let way = match &self.trouble {
            Some(trouble) if trouble.spread.is_some() => match next_way(self, shared, now, slot) {
                Ok(way) => way,
                Err(()) => return Turn::Blocked,
            },
            _ => None,
        };
        let (Some(wqe), Some(path), Some(pd)) = (shared.sends.get(slot), &self.path, self.init.pd) else {
            return Turn::Blocked;
        };
        let other;
        let path = match way {
            Some(way @ 1..) => {
                other = spread::by(path, way);
                &other
            }
            _ => path,
        };
        let requester = &self.requester;
        let window = match way {
            Some(_) => requester.window.min(SPAN),
            None => requester.window,
        };
        let reliable = self.init.qp_type.reliable();
        let psn = requester.next;
        debug_assert!(
            !psn.before(requester.oldest),
            "what is acknowledged is not sent again"
        );
        let index = psn.distance(wqe.first).max(0) as u32;
        if reliable {
            let waiting = requester.next != requester.oldest;
            if !wqe.awaits_response() && requester.in_flight() >= window {
                shared.marks.hit(Mark::WindowClosed);
                return Turn::Blocked;
            }
            let limit = requester.credit_limit;
            if waiting && wqe.takes_receive() && limit.is_some_and(|l| beyond(wqe.ssn, l)) {
                shared.marks.hit(Mark::CreditWaited);
                return Turn::Blocked;
            }
        }
        let mtu = self.attributes.path_mtu.bytes();
        let offset = u64::from(index) * u64::from(mtu);
        let mut rest = wqe.len.saturating_sub(offset);
        if psns != WHOLE && wqe.is_read() {
            rest = rest.min(u64::from(psns) * u64::from(mtu));
        }
        let (first, last) = (index == 0, index + 1 >= wqe.psns);
        let carried = if wqe.awaits_response() {
            0
        } else {
            rest.min(u64::from(mtu)) as u32
        };
        if wqe.awaits_response()
            && let SendData::Sges(sges) = &wqe.wr.data
            && let Some(missing) = shared.regions.missing_of(pd, sges, wqe.len)
        {
            return self.wait_for_page(shared, slot, missing, now);
        }
        let report = match &self.trouble {
            Some(trouble) if trouble.sources.is_some() && wqe.is_read() => Some(scatter::report(self)),
            _ => None,
        };
        let mut spans = SpanList::new();
        let payload = match &wqe.wr.data {
            _ if carried == 0 => report.as_ref().map_or(Payload::NONE, scatter::Report::payload),
            SendData::Inline(bytes) => {
                let from = offset as usize;
                Payload::Bytes(bytes.get(from..from + carried as usize).unwrap_or(&[]))
            }
            SendData::Sges(sges) => {
                let found =
                    shared
                        .regions
                        .local(pd, sges, offset, carried.into(), Access::empty(), &mut spans);
                if let Err(status) = found {
                    if let Some(missing) = shared.regions.take_missing()
                        && reliable
                    {
                        return self.wait_for_page(shared, slot, missing, now);
                    }
                    shared.marks.hit(if first {
                        Mark::LocalProtection
                    } else {
                        Mark::LocalProtectionMidMessage
                    });
                    self.end_request(shared, slot, status);
                    return Turn::Next;
                }
                Payload::Spans {
                    memory,
                    spans: &spans,
                }
            }
        };
        let place = Place {
            first,
            last,
            addressed: way.is_some(),
        };
        let (operation, extended) = request(&wqe.wr.op, place, offset, rest as u32);
        let window_full = reliable && requester.in_flight() + 1 >= window;
        let mut asks = reliable
            && (last
                || wqe.awaits_response()
                || index % ACK_EVERY == ACK_EVERY - 1
                || window_full
                // (The last packet waits for this one.)
                || (way.is_some() && index + 2 == wqe.psns && wqe.takes_receive())
                || requester.credit_limit.is_some());
        let selective = shared.congestion.zero_touch.selective;
        let mut telemetry = None;
        if let Some(pace) = &mut self.pace {
            let sent = Request {
                psn,
                next: if wqe.is_read() {
                    wqe.last().next()
                } else {
                    psn.next()
                },
                bytes: carried,
                asked: if wqe.is_read() {
                    wqe.len.min(u32::MAX.into()) as u32
                } else {
                    0
                },
                asks,
                again: psn != requester.end,
                reliable,
            };
            (asks, telemetry) = pace.request(now, &sent);
        }
        let headers = Headers {
            bth: bth::Header {
                pkey: self.pkey,
                solicited: last && wqe.takes_receive() && wqe.wr.flags.contains(SendFlags::SOLICITED),
                pad: (carried.wrapping_neg() & 3) as u8,
                ack_request: asks,
                selective,
                spread: way.is_some(),
                scattered: selective && wqe.is_read() && shared.seats.has_place(),
                telemetry: match telemetry {
                    Some((_, sign)) if shared.trailers => sign,
                    _ => Sign::None,
                },
                ..bth::Header::new(
                    Opcode::new(self.transport(), operation),
                    self.attributes.destination_qp.0,
                    psn,
                )
            },
            xrceth: (self.init.qp_type == QpType::XrcInitiator).then_some(xrceth::Header {
                srq: wqe.wr.remote_srq,
            }),
            dceth: dynamic::header(self),
            extended,
        };
        sink.send(&Outgoing {
            from: self.number,
            priority: self.priority,
            path,
            headers,
            payload,
            telemetry: telemetry.map(|(telemetry, _)| telemetry),
        });
        shared.counters.sent(path, &headers, payload.len());
        if let Some(trouble) = &mut self.trouble {
            if let Some(repair) = trouble.repair.as_deref_mut() {
                repair.transmitted(psn);
            }
            let near = psn.distance(self.requester.oldest) < SPAN as i32;
            if let (Some(way), Some(spread), true) = (way, trouble.spread.as_deref_mut(), near) {
                spread.transmitted(now, psn, way, psn.before(self.requester.end));
                shared.counters.roce_multipath_packets += u64::from(way > 0);
            }
        }
        let next = if wqe.is_read() {
            wqe.last().next()
        } else {
            psn.next()
        };
        let done = last || wqe.awaits_response();
        if next.value() < psn.value() {
            shared.marks.hit(Mark::PsnWrap);
        }
        self.advance(shared, slot, next, done, now);
        Turn::Sent
    }

    /// The packet at the cursor needs a page that is missing.
    #[cold]
    fn wait_for_page(&mut self, shared: &mut Shared, slot: u32, missing: Missing, now: Instant) -> Turn {
        if shared.page_fault(self.number, Half::Requester, missing) == Verdict::Refused {
            self.end_request(shared, slot, Status::LocalProtectionError);
            return Turn::Next;
        }
        let until = now
            + match missing.held {
                true => on_demand::HELD,
                false => on_demand::ASKED,
            };
        self.requester.rnr_until = Some(Moment::of(until));
        shared.timers.arm(&mut self.timer, self.number, until);
        Turn::Blocked
    }

    /// Pages came, or were refused, that a half of it waits for.
    pub fn pages_came(&mut self, shared: &mut Shared, half: Half) {
        if half == Half::Requester {
            self.requester.rnr_until = None;
        }
        if self.dynamic.is_some() {
            dynamic::pages_came(self, shared);
        }
        self.schedule(shared);
    }

    /// The packet at the cursor is out.
    fn advance(&mut self, shared: &mut Shared, slot: u32, next: Psn, done: bool, now: Instant) {
        let requester = &mut self.requester;
        let psn = core::mem::replace(&mut requester.next, next);
        let fresh = requester.end.before(next);
        if fresh {
            requester.end = next;
        }
        if done {
            requester.cursor = shared.sends.next(slot);
        }
        if self.init.qp_type.reliable() {
            if self.requester.unwatched {
                self.watch(shared, now, psn, fresh);
            }
        } else {
            self.requester.oldest = next;
            if done {
                self.end_request(shared, slot, Status::Success);
            }
        }
    }

    /// A datagram is out.
    pub(super) fn datagram_sent(&mut self, shared: &mut Shared, slot: u32, now: Instant) {
        let next = self.requester.next.next();
        self.advance(shared, slot, next, true, now);
    }

    /// The packet with this PSN is out, and the ACK timer does not run, or a round trip is to be measured. `fresh`: it was
    /// sent for the first time.
    #[inline(never)]
    fn watch(&mut self, shared: &mut Shared, now: Instant, psn: Psn, fresh: bool) {
        self.requester.unwatched = false;
        if self.requester.deadline.is_none() {
            self.start_timer(shared, now);
        }
        if fresh || self.requester.trips.alone {
            self.time(shared, now, psn);
        } else {
            // The first one that can be measured.
            self.requester.unwatched = !self.requester.trips.fresh;
        }
    }

    /// Starts the ACK timer.
    #[inline]
    pub(super) fn start_timer(&mut self, shared: &mut Shared, now: Instant) {
        self.requester.deadline = match self.requester.ack_timer {
            0 => None,
            ns => {
                let at = Instant(now.0.saturating_add(ns));
                let probe = self.probe_time(shared).unwrap_or(ns).min(ns);
                let first = Instant(now.0.saturating_add(probe));
                shared.timers.arm(&mut self.timer, self.number, first);
                Some(Moment::of(at))
            }
        };
    }

    /// Reports what has ended at the front of the queue.
    pub(super) fn retire(&mut self, shared: &mut Shared) {
        let (requester, number) = (&mut self.requester, self.number);
        let Some(cq) = self.init.send_cq else { return };
        let signal_all = self.init.signal_all;
        shared.complete_all(cq, |sends| {
            loop {
                let finished = requester.take(sends, |stage| stage == Stage::Ended(Status::Success))?;
                if finished.signaled || signal_all {
                    return Some(finished.completion(number, Status::Success));
                }
            }
        });
        if let Some(SendWqe {
            stage: Stage::Ended(status),
            ..
        }) = shared.sends.get(self.requester.head())
        {
            let status = *status;
            if let Some(finished) = self.requester.take(&mut shared.sends, |_| true) {
                self.complete_failed(shared, &finished, status);
            }
            return self.fail(shared, state::Trigger::SendError);
        }
        self.check_drained(shared);
    }

    /// In SQD, tells when what was begun is complete (IBTA 10.3.1.5).
    pub(super) fn check_drained(&mut self, shared: &mut Shared) {
        if self.state() != QpState::Sqd {
            self.requester.drained_told = false;
            return;
        }
        let begun = shared
            .sends
            .get(self.requester.head())
            .is_some_and(|wqe| !matches!(wqe.stage, Stage::Posted | Stage::Doomed(_)));
        if !begun && !self.requester.drained_told {
            self.requester.drained_told = true;
            shared.marks.hit(Mark::SendQueueDrained);
            if self.attributes.drained_event {
                shared.event(Event::SendQueueDrained(self.number));
            }
        }
    }

    /// Is the send queue drained? Only then may SQD be left or its attributes change.
    pub(super) fn drained(&self) -> bool {
        self.requester.drained_told
    }
}
