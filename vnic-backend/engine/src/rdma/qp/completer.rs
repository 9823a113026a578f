//! The completer: what comes back to the requester (IBTA 9.7.5.2, 9.7.6), and the clocks it waits by.

use core::time::Duration;

use vnic_wire::aeth::{self, NakCode, Syndrome};
use vnic_wire::opcode::Operation;
use vnic_wire::psn::Psn;
use vnic_wire::time::Instant;
use vnic_wire::transport::Extended;

use crate::congestion::Loss;

use super::super::marks::Mark;
use super::super::memory::Memory;
use super::super::observation::Cause;
use super::super::on_demand::{Half, Verdict};
use super::super::packet::{Incoming, Payload, SpanList};
use super::super::pool::NONE;
use super::super::shared::Shared;
use super::super::status::TimerStatus;
use super::super::timer::Moment;
use super::super::types::{Access, SendData, Status};
use super::requester::{Stage, WINDOW_RESTART};
use super::{Qp, dynamic, scatter, spread};

/// RNR retry count that means "for ever" (IBTA 9.7.5.2.8).
const RNR_RETRY_FOREVER: u8 = 7;

/// Shortest time without an answer, in ns, after which the end of what is under way is looked for.
const PROBE: u64 = 500_000;

/// Why something is sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Again {
    /// The responder saw a gap.
    SequenceNak,
    /// A response is missing.
    ImpliedNak,
    /// Nothing came back in time.
    Timeout,
    /// Nothing came back in the time that the adaptive timer expects. That costs none of the retries.
    Early,
}

/// What becomes of responses that are missing though the peer has gone on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gap {
    /// Everything from there on is asked for again.
    GoneBackTo,
    /// They are asked for again.
    AskedFor,
    /// They were asked for.
    Known,
}

impl Again {
    /// The same for observations.
    fn cause(self) -> Cause {
        match self {
            Again::SequenceNak => Cause::SequenceNak,
            Again::ImpliedNak => Cause::ImpliedNak,
            Again::Timeout => Cause::Timeout,
            Again::Early => Cause::EarlyTimeout,
        }
    }
}

/// The ACK timeout of a queue pair in ns (IBTA 9.7.6.1.3: 4.096 µs · 2^timeout); 0: none.
fn own_timeout(timeout: u8) -> u64 {
    match timeout {
        0 => 0,
        t => 4096 << t.min(31),
    }
}

impl Qp {
    /// An acknowledge or a response came.
    pub(super) fn complete(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        operation: Operation,
        packet: &Incoming<'_>,
        memory: &dyn Memory,
    ) {
        let psn = packet.headers.bth.psn;
        let aeth = match packet.headers.extended {
            Extended::Aeth(aeth) | Extended::AtomicAck(aeth, _) => Some(aeth),
            _ => None,
        };
        // Nothing that was never sent can be acknowledged.
        if !psn.before(self.requester.end) {
            if self.dynamic.is_none() || !dynamic::is_refusal(self, psn, aeth) {
                shared.marks.hit(Mark::GhostAck);
                shared.counters.drop_stale_response += 1;
                return;
            }
            shared.marks.hit(Mark::DcAnsweredFirst);
        }
        if psn.before(self.requester.oldest) {
            shared.counters.drop_stale_response += 1;
            shared.marks.hit(match operation {
                Operation::Acknowledge => Mark::StaleAck,
                _ => Mark::DuplicateResponse,
            });
            return;
        }
        if packet.headers.bth.spread {
            spread::begin(self, shared);
        }
        let losses = packet.headers.bth.selective || self.trouble.is_some();
        match (operation, aeth) {
            (Operation::Acknowledge, Some(aeth)) => self.acknowledge(shared, now, psn, aeth, packet),
            (Operation::AtomicAcknowledge, Some(aeth)) => {
                let Extended::AtomicAck(_, original) = packet.headers.extended else {
                    return;
                };
                let bytes = original.to_ne_bytes();
                let data = Payload::Bytes(&bytes);
                if losses {
                    self.response::<true>(shared, now, packet, Some(aeth), data, operation, memory);
                } else {
                    self.response::<false>(shared, now, packet, Some(aeth), data, operation, memory);
                }
            }
            (o, aeth) if o.is_read_response() => {
                if losses {
                    self.response::<true>(shared, now, packet, aeth, packet.payload, operation, memory);
                } else {
                    self.response::<false>(shared, now, packet, aeth, packet.payload, operation, memory);
                }
            }
            _ => shared.counters.drop_malformed += 1,
        }
    }

    /// An ACK, NAK or RNR NAK.
    fn acknowledge(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        psn: Psn,
        aeth: aeth::Header,
        packet: &Incoming<'_>,
    ) {
        let selective = packet.headers.bth.selective && self.is_selective(shared);
        let gap = match selective {
            true => Gap::AskedFor,
            false => Gap::GoneBackTo,
        };
        match aeth.syndrome {
            Syndrome::Ack { credits } => {
                self.nothing_missing(psn);
                if self.acknowledged_up_to(shared, now, psn.next(), gap) {
                    self.learn_credits(aeth.msn, credits);
                    self.progress(shared, now);
                }
            }
            Syndrome::RnrNak { timer } => {
                let before = self.requester.oldest;
                if !self.acknowledged_up_to(shared, now, psn, gap) {
                    return;
                }
                // A second one for the same packet, from before we began to wait, changes nothing.
                let waiting = self.requester.rnr_until.is_some_and(|t| now < t.at());
                if !waiting || self.requester.oldest != before {
                    self.receiver_not_ready(shared, now, psn, timer);
                }
            }
            Syndrome::Nak(NakCode::SequenceError) if selective && !packet.payload.is_empty() => {
                self.learn_missing(shared, now, psn, packet);
            }
            Syndrome::Nak(NakCode::SequenceError) => {
                if self.acknowledged_up_to(shared, now, psn, gap) {
                    shared.marks.hit(Mark::SequenceNakReceived);
                    self.sequence_nak(shared, now, psn);
                }
            }
            Syndrome::Nak(code) => {
                let (mark, status) = match code {
                    NakCode::InvalidRequest => (
                        Some(Mark::InvalidRequestReceived),
                        Status::RemoteInvalidRequestError,
                    ),
                    NakCode::RemoteAccess => (Some(Mark::RemoteAccessReceived), Status::RemoteAccessError),
                    NakCode::RemoteOperational => {
                        (Some(Mark::RemoteOperationReceived), Status::RemoteOperationError)
                    }
                    _ => (None, Status::BadResponseError),
                };
                if self.acknowledged_up_to(shared, now, psn, gap) {
                    mark.into_iter().for_each(|mark| shared.marks.hit(mark));
                    self.refused(shared, psn, status);
                } else if selective {
                    self.refused_before_responses(psn, status);
                }
            }
            Syndrome::Reserved(_) => shared.counters.drop_malformed += 1,
        }
    }

    /// Everything before `psn` has arrived, says the peer. A READ or atomic among it whose response has not come has
    /// lost it: then the rest of the packet does not count, and the answer is no.
    pub(super) fn acknowledged_up_to(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        psn: Psn,
        gap: Gap,
    ) -> bool {
        let before = self.requester.oldest;
        let mut slot = self.requester.head();
        let mut missing = None;
        let mut ended = 0;
        while let Some(wqe) = shared.sends.get_mut(slot) {
            match wqe.stage {
                Stage::Posted | Stage::Doomed(_) => break,
                Stage::Ended(_) => {}
                Stage::Started if !wqe.first.before(psn) => break,
                Stage::Started if wqe.awaits_response() => {
                    let (first, end, is_read) = (wqe.first, wqe.last().next(), wqe.is_read());
                    if gap != Gap::GoneBackTo {
                        if self.requester.oldest.before(first) {
                            self.requester.oldest = first;
                        }
                        let from = self.requester.oldest;
                        self.pass_fetched(end);
                        self.requester.responses_came(is_read, from);
                    }
                    if self.requester.oldest != end {
                        missing = Some((first, end));
                        break;
                    }
                    wqe.stage = Stage::Ended(Status::Success);
                    ended += 1;
                }
                Stage::Started => {
                    if wqe.last().before(psn) {
                        wqe.stage = Stage::Ended(Status::Success);
                        ended += 1;
                    } else {
                        break;
                    }
                }
            }
            slot = shared.sends.next(slot);
        }
        if ended > 1 {
            shared.marks.hit(Mark::AckCoalesced);
        }
        let reached = match missing {
            // Responses come in order, so what is missing begins where the READ does, or where it broke off.
            Some((first, _)) if self.requester.oldest.before(first) => first,
            Some(_) => self.requester.oldest,
            None => psn,
        };
        if self.requester.oldest.before(reached) {
            self.requester.oldest = reached;
        }
        if self.requester.oldest != before {
            self.refill(shared, before);
        }
        self.retire(shared);
        match (missing, gap) {
            (Some(_), Gap::GoneBackTo) => self.implied_nak(shared, now),
            (Some((_, end)), Gap::AskedFor) => self.responses_missing(shared, now, psn, end),
            (Some(_), Gap::Known) | (None, _) => {}
        }
        missing.is_none()
    }

    /// A READ response or an atomic acknowledge. `LOSSES`: there may be something about selective repeat (else a packet does not pay
    /// for it).
    #[allow(clippy::too_many_arguments, reason = "the parts of one packet")]
    fn response<const LOSSES: bool>(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        packet: &Incoming<'_>,
        aeth: Option<aeth::Header>,
        payload: Payload<'_>,
        operation: Operation,
        memory: &dyn Memory,
    ) {
        let psn = packet.headers.bth.psn;
        let is_read_response = operation.is_read_response();
        let selective = LOSSES && packet.headers.bth.selective && self.is_selective(shared);
        if selective && is_read_response {
            scatter::came(self, packet);
        }
        if selective && self.has_fetched(psn) {
            shared.counters.drop_stale_response += 1;
            shared.marks.hit(Mark::DuplicateResponse);
            return;
        }
        // Find whose it is. SENDs and WRITEs before it are acknowledged by it; a READ or atomic before it has
        // lost its response.
        let mut slot = self.requester.head();
        while let Some(wqe) = shared.sends.get(slot) {
            if wqe.holds(psn) {
                break;
            }
            slot = shared.sends.next(slot);
        }
        let Some(wqe) = shared.sends.get(slot) else {
            shared.marks.hit(Mark::StaleAck);
            return;
        };
        let (first, last, is_read) = (wqe.first, wqe.last(), wqe.is_read());
        let fits = if is_read {
            is_read_response
        } else {
            wqe.is_atomic() && operation == Operation::AtomicAcknowledge
        };
        if !fits {
            shared.marks.hit(Mark::BadResponse);
            return self.refused(shared, psn, Status::BadResponseError);
        }
        let gap = match selective {
            true => Gap::AskedFor,
            false => Gap::GoneBackTo,
        };
        // (Of the oldest request nothing else is acknowledged by it.)
        let is_oldest = slot == self.requester.head() && !self.requester.oldest.before(first);
        let known = is_oldest || selective && self.knows_carried_out(first);
        if !known && !self.acknowledged_up_to(shared, now, first, gap) && !selective {
            return;
        }
        // The queue may have moved: the request is still in it, its slot is the same.
        let ahead = psn != self.requester.oldest;
        if ahead && !selective {
            return self.implied_nak(shared, now);
        }
        if LOSSES && ahead {
            match self.may_fetch(shared, psn) {
                Some(true) => {}
                Some(false) => {
                    shared.counters.drop_stale_response += 1;
                    return;
                }
                None => return self.implied_nak(shared, now),
            }
        }
        let Some(wqe) = shared.sends.get(slot) else { return };
        let offset = if is_read {
            u64::from(psn.distance(first).max(0) as u32) * u64::from(self.attributes.path_mtu.bytes())
        } else {
            0
        };
        let due = (wqe.len - offset.min(wqe.len)).min(if is_read {
            self.attributes.path_mtu.bytes().into()
        } else {
            8
        });
        let ends = operation.ends_message() || !is_read;
        // A part that was asked for again ends in the middle, also if one side was told to go back, or not any more, since.
        if payload.len() as u64 != due || (ends != (psn == last) && !(ends && LOSSES)) {
            shared.marks.hit(Mark::BadResponse);
            return self.refused(shared, psn, Status::BadResponseError);
        }
        let mut spans = SpanList::new();
        let landed = match (&wqe.wr.data, self.init.pd) {
            _ if due == 0 => Ok(()),
            (SendData::Sges(sges), Some(pd)) => shared
                .regions
                .local(pd, sges, offset, due, Access::LOCAL_WRITE, &mut spans)
                .and_then(|()| {
                    payload
                        .land(memory, &spans)
                        .map_err(|_| Status::LocalProtectionError)
                }),
            _ => Err(Status::LocalQpOperationError),
        };
        if let Err(status) = landed {
            if let Some(missing) = shared.regions.take_missing()
                && shared.page_fault(self.number, Half::Requester, missing) == Verdict::Wait
            {
                // As if it had not come: it is asked for again when the page is there.
                if selective {
                    return;
                }
                return self.implied_nak(shared, now);
            }
            shared.marks.hit(Mark::ReadScatterFailed);
            return self.end_request(shared, slot, status);
        }
        let before = self.requester.oldest;
        if LOSSES && (ahead || self.fetched().is_some()) {
            self.fetched_ahead(shared, now, psn);
            self.pass_fetched(last.next());
            self.requester.responses_came(is_read, before);
            if self.requester.oldest == before {
                return;
            }
        } else {
            self.requester.oldest = psn.next();
            let came = u32::from(is_read);
            self.requester.response_psns = self.requester.response_psns.saturating_sub(came);
        }
        self.refill(shared, before);
        if let Some(aeth) = aeth
            && let Syndrome::Ack { credits } = aeth.syndrome
        {
            self.learn_credits(aeth.msn, credits);
        }
        let complete = match LOSSES {
            true => self.requester.oldest == last.next(),
            false => psn == last,
        };
        if complete {
            self.end_request(shared, slot, Status::Success);
        }
        if LOSSES && let Some(acked) = self.settle_fetched() {
            self.acknowledged_up_to(shared, now, acked, Gap::Known);
            self.settle_fetched();
        }
        if LOSSES && let Some((psn, status)) = self.refused_now() {
            return self.refused(shared, psn, status);
        }
        self.progress(shared, now);
    }

    /// What is between `before` and the oldest PSN was acknowledged. Retries count anew after every progress (IBTA 9.7.6.1.2),
    /// and an acknowledge may overtake what is being sent again.
    fn refill(&mut self, shared: &Shared, before: Psn) {
        let oldest = self.requester.oldest;
        if self.requester.next_psn().before(oldest) {
            self.requester.go_back(shared, oldest);
        }
        self.requester.retries_left = self.attributes.retry_count;
        self.requester.rnr_retries_left = self.attributes.rnr_retry;
        self.requester.went_back = None;
        self.requester.trips.stuck = None;
        if self.trouble.is_some() {
            self.passed(before, oldest);
        }
        if self.requester.window != shared.window {
            let grown = self.requester.window + oldest.distance(before).max(0) as u32;
            self.requester.window = grown.min(shared.window);
        }
    }

    /// Something was acknowledged: the clock begins anew, what waited may go on.
    pub(super) fn progress(&mut self, shared: &mut Shared, now: Instant) {
        self.requester.rnr_until = None;
        if self.requester.quiet() {
            self.requester.stop_timer();
            if self.requester.timed.is_none() {
                self.requester.since = now;
            }
        } else {
            self.start_timer(shared, now);
        }
        if self.dynamic.is_some() {
            dynamic::progressed(self, shared, now);
        }
        self.check_drained(shared);
        self.schedule(shared);
    }

    /// End-to-end credits (IBTA 9.7.7.2): requests up to `msn + credits` have a receive waiting.
    fn learn_credits(&mut self, msn: u32, code: u8) {
        self.requester.credit_limit = aeth::credits(code).map(|n| Psn::new(msn).add(n).value());
    }

    /// A response is missing from `oldest` on. Asked for again once, until there is progress.
    pub(super) fn implied_nak(&mut self, shared: &mut Shared, now: Instant) {
        let oldest = self.requester.oldest;
        if self.requester.went_back == Some((oldest, Again::ImpliedNak)) {
            return;
        }
        shared.counters.implied_nak_seq_err += 1;
        self.went_wrong(shared, |errors| &mut errors.implied_nak_seq_err);
        shared.marks.hit(Mark::ImpliedNak);
        self.again(shared, now, oldest, Again::ImpliedNak);
        self.requester.went_back = Some((oldest, Again::ImpliedNak));
    }

    /// The peer misses the packet `psn`, and all from there on is sent again: once, until there is progress or the timer runs out. A
    /// responder of the standard says so once for each gap (IBTA 9.7.5.1.1); one that knows selective repeat says it of many
    /// packets that were under way, and that is one loss, not one for each.
    pub(super) fn sequence_nak(&mut self, shared: &mut Shared, now: Instant, psn: Psn) {
        let went_back = Some((psn, Again::SequenceNak));
        if self.requester.next_psn() == psn || self.requester.went_back == went_back {
            return shared.marks.hit(Mark::SequenceNakRepeated);
        }
        self.again(shared, now, psn, Again::SequenceNak);
        self.requester.went_back = went_back;
    }

    /// Sends again from `psn`, unless that was tried often enough.
    pub(super) fn again(&mut self, shared: &mut Shared, now: Instant, psn: Psn, why: Again) {
        if self.requester.retries_left == 0 && why != Again::Early {
            shared.marks.hit(Mark::RetryExceeded);
            let adaptive = why == Again::Timeout && shared.congestion.zero_touch.adaptive;
            shared.counters.roce_adp_retrans_to += u64::from(adaptive);
            return self.give_up(shared, Status::RetryExceeded);
        }
        self.forget_repair();
        self.untimed(shared);
        shared.sends_again(self.number, why.cause());
        // After a timeout an acknowledge may be for any copy of what is sent again.
        self.requester.trips.alone = why == Again::SequenceNak;
        self.requester.unwatched = true;
        match why {
            Again::SequenceNak => {
                shared.counters.packet_seq_err += 1;
                self.went_wrong(shared, |errors| &mut errors.packet_seq_err);
            }
            Again::Timeout | Again::Early => {
                shared.counters.local_ack_timeout_err += 1;
                self.went_wrong(shared, |errors| &mut errors.local_ack_timeout_err);
                self.requester.window = WINDOW_RESTART.min(shared.window);
                let oldest = self.requester.oldest;
                if spread::of(self).is_some_and(|spread| spread.rest(now, oldest)) {
                    shared.marks.hit(Mark::WayRested);
                    shared.counters.roce_multipath_rests += 1;
                }
            }
            Again::ImpliedNak => {}
        }
        match why {
            Again::Early => {
                shared.marks.hit(Mark::AdaptiveTimeout);
                shared.counters.roce_adp_retrans += 1;
            }
            _ => {
                // The queue pair's own timeout begins anew.
                self.requester.trips.stuck = None;
                self.requester.retries_left -= 1;
            }
        }
        if self.dynamic.is_some() && matches!(why, Again::Timeout | Again::Early) {
            dynamic::connect_again(self, shared, now);
        }
        self.requester.go_back(shared, psn);
        self.lost(
            shared,
            now,
            match why {
                Again::Timeout | Again::Early => Loss::Timeout,
                Again::SequenceNak | Again::ImpliedNak => Loss::OutOfSequence,
            },
        );
        self.note_partial(shared, psn);
        self.start_timer(shared, now);
        self.schedule(shared);
    }

    fn note_partial(&self, shared: &mut Shared, psn: Psn) {
        if let Some(wqe) = shared.sends.get(self.requester.head())
            && wqe.holds(psn)
            && wqe.first != psn
        {
            let mark = if wqe.is_read() {
                Mark::ReadRetryPartial
            } else {
                Mark::ResendMidMessage
            };
            shared.marks.hit(mark);
        }
    }

    fn receiver_not_ready(&mut self, shared: &mut Shared, now: Instant, psn: Psn, timer: u8) {
        shared.marks.hit(Mark::RnrNakReceived);
        // The last one counts and slows down as the others: a card without retries says so of its only one.
        shared.counters.rnr_nak_retry_err += 1;
        self.went_wrong(shared, |errors| &mut errors.rnr_nak_retry_err);
        if self.requester.rnr_retries_left == 0 {
            shared.marks.hit(Mark::RnrRetryExceeded);
            self.lost(shared, now, Loss::NotReady);
            return self.give_up(shared, Status::RnrRetryExceeded);
        }
        if self.attributes.rnr_retry != RNR_RETRY_FOREVER {
            self.requester.rnr_retries_left -= 1;
        }
        self.forget_repair();
        if self.dynamic.is_some() {
            dynamic::not_ready(self, shared, now);
        }
        self.requester.go_back(shared, psn);
        self.lost(shared, now, Loss::NotReady);
        self.untimed(shared);
        shared.sends_again(self.number, Cause::ReceiverNotReady);
        let until = now + aeth::rnr_timer(timer);
        self.requester.rnr_until = Some(Moment::of(until));
        // The peer is alive: the ACK clock stands still while we wait.
        self.requester.stop_timer();
        self.requester.trips.stuck = None;
        shared.timers.arm(&mut self.timer, self.number, until);
    }

    /// The oldest request fails, and the QP with it.
    pub(super) fn give_up(&mut self, shared: &mut Shared, status: Status) {
        let mut slot = self.requester.head();
        while let Some(wqe) = shared.sends.get(slot) {
            if wqe.stage == Stage::Started {
                return self.end_request(shared, slot, status);
            }
            slot = shared.sends.next(slot);
        }
    }

    /// The peer refused the request that has this PSN.
    fn refused(&mut self, shared: &mut Shared, psn: Psn, status: Status) {
        let mut slot = self.requester.head();
        while slot != NONE {
            match shared.sends.get(slot) {
                Some(wqe) if wqe.holds(psn) => return self.end_request(shared, slot, status),
                Some(_) => slot = shared.sends.next(slot),
                None => return,
            }
        }
    }

    /// The QP's timer fired.
    pub(super) fn check_deadlines(&mut self, shared: &mut Shared, now: Instant) {
        let held = self.is_held(shared);
        if self.responder.has_answers() {
            // They may wait for a page.
            self.schedule(shared);
        }
        if let Some(until) = self.requester.rnr_until {
            let until = until.at();
            if until <= now {
                self.requester.rnr_until = None;
                shared.marks.hit(Mark::RnrRetried);
                self.schedule(shared);
            } else {
                shared.timers.arm(&mut self.timer, self.number, until);
            }
        }
        if self.trouble.is_some() {
            self.look_for_late(shared, now);
        }
        // So often a round trip is measured.
        self.requester.trips.fresh = false;
        self.requester.unwatched = true;
        if let Some(deadline) = self.requester.deadline.map(Moment::at) {
            if deadline <= now {
                self.requester.stop_timer();
                if !self.requester.quiet() && held {
                    self.requester.trips.stuck = None;
                    self.start_timer(shared, now);
                } else if !self.requester.quiet() {
                    shared.marks.hit(Mark::AckTimeout);
                    self.timed_out(shared, now, deadline);
                }
            } else {
                let at = match held {
                    true => deadline,
                    false => self.look_for_end(shared, now, deadline),
                };
                shared.timers.arm(&mut self.timer, self.number, at);
            }
        }
    }

    /// Time in ns without an answer after which the end of what is under way is looked for, where lost packets are sent again one by
    /// one (as RFC 8985, 7 has it for TCP).
    #[inline]
    pub(super) fn probe_time(&self, shared: &Shared) -> Option<u64> {
        let trips = &self.requester.trips;
        let knows = shared.congestion.zero_touch.selective && trips.selective && trips.estimate.measured();
        knows.then(|| self.requester.soon((2 * trips.estimate.expected()).max(PROBE)))
    }

    /// The ACK timer ends at `deadline`: looks for the end of what is under way, once, if nothing came for long enough. Answers when to
    /// look again.
    fn look_for_end(&mut self, shared: &mut Shared, now: Instant, deadline: Instant) -> Instant {
        let Some(time) = self.probe_time(shared) else {
            return deadline;
        };
        let requester = &mut self.requester;
        let started = deadline.0.saturating_sub(requester.ack_timer);
        let at = Instant(started.saturating_add(time));
        if deadline <= at || requester.trips.probed == Some(requester.oldest) {
            return deadline;
        }
        if now < at {
            return at;
        }
        requester.trips.probed = Some(requester.oldest);
        if requester.rnr_until.is_none() && requester.next_psn() == requester.end {
            self.probe_end(shared);
        }
        deadline
    }

    /// The ACK timer, which was to end at `deadline`, has run out. A retry is used when the QP's own timeout has passed
    /// without progress, so that an adaptive timer tries more often and not for less time.
    fn timed_out(&mut self, shared: &mut Shared, now: Instant, deadline: Instant) {
        let (oldest, own) = (self.requester.oldest, own_timeout(self.attributes.timeout));
        let after = |at: Instant, ns: u64| Instant(at.0.saturating_add(ns));
        let started = Instant(deadline.0.saturating_sub(self.requester.ack_timer));
        let mut due = match self.requester.trips.stuck {
            Some(due) => due.at(),
            None => after(started, own),
        };
        let adaptive = shared.congestion.zero_touch.adaptive;
        if adaptive {
            let before = self.requester.ack_timer;
            self.requester.trips.estimate.back_off();
            self.set_ack_timer(shared);
            if self.requester.ack_timer > before {
                shared.marks.hit(Mark::AdaptiveBackoff);
            }
        }
        if adaptive && now < due {
            self.again(shared, now, oldest, Again::Early);
        } else {
            due = after(now, own);
            self.again(shared, now, oldest, Again::Timeout);
            self.requester.went_back = None;
        }
        if let Some(deadline) = &mut self.requester.deadline
            && adaptive
        {
            let at = due.min(deadline.at());
            *deadline = Moment::of(at);
            shared.timers.arm(&mut self.timer, self.number, at);
            self.requester.trips.stuck = Some(Moment::of(due));
        }
    }

    /// What people see of its clocks.
    pub(super) fn timers(&self, now: Instant) -> TimerStatus {
        let requester = &self.requester;
        let some = |ns: u64| (ns > 0).then(|| Duration::from_nanos(ns));
        let left = |at: Option<Moment>| at.map(|at| at.at().since(now));
        TimerStatus {
            timeout: some(own_timeout(self.attributes.timeout)),
            ack_timer: some(requester.ack_timer),
            ack_left: left(requester.deadline),
            rnr_left: left(requester.rnr_until),
            smoothed: requester.trips.estimate.smoothed(),
        }
    }

    /// Works out the time of the ACK timer. One that runs is not changed.
    pub(super) fn set_ack_timer(&mut self, shared: &Shared) {
        let own = own_timeout(self.attributes.timeout);
        let estimate = &self.requester.trips.estimate;
        self.requester.ack_timer = shared.congestion.zero_touch.timeout(own, estimate);
        // (There was perhaps none.)
        self.requester.unwatched = true;
    }

    /// The packet with this PSN was sent, and has one answer; the timer did not run or its estimate is old.
    pub(super) fn time(&mut self, shared: &mut Shared, now: Instant, psn: Psn) {
        let settings = shared.congestion.zero_touch;
        if settings.slow_restart_idle && psn == self.requester.oldest {
            self.was_quiet(shared, now);
        }
        let requester = &mut self.requester;
        if settings.adaptive
            && !requester.trips.fresh
            && requester.timed.is_none()
            && requester.ack_timer != 0
        {
            (requester.timed, requester.since) = (Some(psn), now);
        }
    }

    /// The round trip that is measured has ended, if its packet was acknowledged.
    pub(super) fn measured(&mut self, shared: &mut Shared, now: Instant) {
        let requester = &mut self.requester;
        let Some(psn) = requester.timed else { return };
        if !psn.before(requester.oldest) {
            return;
        }
        requester.timed = None;
        requester.trips.fresh = true;
        let sent = core::mem::replace(&mut requester.since, now);
        requester.trips.estimate.measure(now.since(sent));
        self.set_ack_timer(shared);
        if self.requester.deadline.is_some() {
            self.start_timer(shared, now);
        }
    }

    /// Packets are sent again: an acknowledge may be for either (Karn).
    pub(super) fn untimed(&mut self, shared: &mut Shared) {
        self.requester.trips.fresh = false;
        if self.requester.timed.take().is_some() {
            shared.marks.hit(Mark::KarnSkipped);
        }
    }

    /// The device's settings of zero touch RoCE have changed. What was measured is forgotten where it is not used. A window that
    /// was as large as it may be, `window`, is so again; a smaller one grows on.
    pub fn adopt_zero_touch(&mut self, shared: &mut Shared, now: Instant, window: u32) {
        if let Some(trouble) = &mut self.trouble {
            // (The next answer makes it anew.)
            (trouble.spread, trouble.scatter) = (None, None);
        }
        let requester = &mut self.requester;
        requester.window = match requester.window < window {
            true => shared.window.min(requester.window),
            false => shared.window,
        };
        if !requester.quiet() {
            // What is under way may have asked for no acknowledge: one more packet does.
            requester.window = requester.window.max(requester.in_flight() + 1);
        }
        if !shared.congestion.zero_touch.adaptive {
            self.requester.trips.estimate = Default::default();
            self.requester.timed = None;
        }
        self.set_ack_timer(shared);
        self.requester.trips.stuck = None;
        if self.requester.deadline.is_some() {
            self.start_timer(shared, now);
        }
    }
}
