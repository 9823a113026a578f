//! Selective repeat: lost packets of WRITEs and READs are sent again one by one, where go-back-N sends all behind them again
//! (WinOF-2 Ethernet Network, Zero Touch RoCE; NV parameter RDMA_SELECTIVE_REPEAT_EN; register ROCE_ACCL, selective_repeat_forced_en).
//!
//! ```text
//!  requester                                       responder (qp/responder/ahead.rs)
//!   WRITE 5 6 7 8 9 ──── 6 lost ────────────────▶  7, 8 land; NAK 6, "7 has come" (wire/src/sack.rs)
//!   Repair: 7 was sent behind 6, so 6 is lost ◀──
//!   6 ──────────────────────────────────────────▶  6 lands; ACK 9
//!
//!   READ 5 ─────────────────────────────────────▶  responses 5 6 7 8
//!   Fetched: 5, 7, 8 landed; 6 is missing    ◀───  6 lost
//!   READ 6, of one packet ──────────────────────▶  response 6, before what else is due
//! ```
//!
//! Both sides say in the BTH that they know it, in each packet, so that it works without an agreement, and a peer that does not
//! know it (Soft-RoCE, cards) gets and makes the standard's go-back-N. Adapters' own protocol is not published but for its
//! name, for READ and WRITE only, and for what is sent again: the packet that is missing, and the last one of the window.
//!
//! - **Lost** is what was sent before something that has come: a packet is sent again when a later transmission arrived, and that
//!   holds for what was sent again, too. When nothing more is to be sent, the last packet of the window follows, as a probe; and so it
//!   does when nothing came for two round trips, or the last response is asked for (`Qp::probe_end`).
//! - READ responses are the peer's transmissions: a gap in them is asked for again, and so is a part that was asked for again when
//!   one came that was asked for later, or after some round trips.
//! - What ends by a timeout goes back as ever. The first answer ends that: it says what is missing.
//! - A loss restarts no window (zero touch RoCE, `SlowStart`): one packet is sent again. Where congestion control acts, it hears of one
//!   loss for each window of packets.
//! - Retries count as those of go-back-N: one for each time that the oldest packet is sent again without progress.

mod bits;
mod fetched;
mod repair;
mod seats;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::time::Duration;

use vnic_wire::psn::Psn;
use vnic_wire::sack::{self, SPAN};
use vnic_wire::time::Instant;

use crate::congestion::Loss;
use crate::congestion::zero_touch::RoundTrips;

use super::super::marks::Mark;
use super::super::memory::Memory;
use super::super::observation::Cause;
use super::super::packet::{Incoming, Sink};
use super::super::pool::NONE;
use super::super::shared::Shared;
use super::super::status::QpErrors;
use super::super::types::Status;
use super::Qp;
use super::completer::Gap;
use super::requester::{Stage, Turn};
use super::responder::ahead::Beyond;
use super::scatter::{self, Scatter};
use super::spread::{Ports, Spread};
pub(super) use bits::{Bits, earlier, pieces, psns};
pub(super) use fetched::Fetched;
use fetched::{Asked, FETCHED};
use repair::{Overtaken, Repair, ways};
pub(in super::super) use seats::Seats;
pub(super) use seats::{Seated, ensure};

/// Parts of READs that may be asked for again at a time.
pub(super) const ASKED: usize = 32;
/// Time after which a part is asked for again while no round trip was measured.
const UNMEASURED: Duration = Duration::from_micros(500);
/// Shortest such time in ns.
const SHORTEST: u64 = 4_000;
/// PSNs of a READ that is asked for again with all that is behind.
pub(super) const WHOLE: u32 = u32::MAX;

/// What a queue pair with losses knows of them.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    /// Its errors.
    pub errors: QpErrors,
    /// Requests that are missing at the peer, while some are.
    pub repair: Option<Seated<Repair>>,
    /// Responses that came before others, while some are missing.
    pub fetched: Option<Seated<Fetched>>,
    /// Times from when a part of a READ was asked for first until something of it came. Other than round trips they are of all
    /// parts: of those alone that came before they were asked for again, all would be short.
    asks: RoundTrips,
    /// Requests that came before others, while some are missing.
    pub beyond: Option<Seated<Beyond>>,
    /// The ways that its requests take, if they are several.
    pub spread: Option<Seated<Spread>>,
    /// The ways that requests come by, if they are several.
    pub ports: Option<Box<Ports>>,
    /// The ways that its responses take, if they are several.
    pub scatter: Option<Seated<Scatter>>,
    /// The ways that responses come by, if they are several.
    pub sources: Option<Box<Ports>>,
    /// A NAK that came before responses that are due: the request that it refuses, and how that ends.
    refused: Option<(Psn, Status)>,
}

impl Trouble {
    /// Whether no loss is being repaired, and nothing is under way on one of several ways.
    pub fn is_plain(&self) -> bool {
        let quiet = |spread: &Seated<Spread>| spread.is_quiet();
        self.repair.is_none() && self.fetched.is_none() && self.spread.as_ref().is_none_or(quiet)
    }
}

/// What is sent again.
#[derive(Debug, Clone, Copy)]
struct Part {
    psn: Psn,
    /// PSNs that a READ asks for.
    psns: u32,
    /// A slot whose request has an earlier PSN, and that PSN.
    hint: Option<(u32, Psn)>,
}

impl Qp {
    /// Does it take part in selective repeat?
    pub(super) fn is_selective(&self, shared: &Shared) -> bool {
        shared.congestion.zero_touch.selective && self.init.qp_type.reliable()
    }

    pub(super) fn repair(&mut self) -> Option<&mut Repair> {
        self.trouble.as_mut()?.repair.as_deref_mut()
    }

    pub(super) fn fetched(&mut self) -> Option<&mut Fetched> {
        self.trouble.as_mut()?.fetched.as_deref_mut()
    }

    /// Nothing is sent again one by one any more: it goes back, or has stopped.
    pub(super) fn forget_repair(&mut self) {
        if let Some(trouble) = &mut self.trouble {
            trouble.repair = None;
        }
    }

    /// An acknowledge says that nothing before the packet behind `psn` is missing, so that nothing was when it was made. (One that
    /// comes late, and is older than what is known to be missing, says nothing.)
    #[inline]
    pub(super) fn nothing_missing(&mut self, psn: Psn) {
        if let Some(trouble) = &mut self.trouble
            && trouble.repair.as_ref().is_some_and(|r| !psn.before(r.base))
        {
            trouble.repair = None;
        }
    }

    /// Nothing is missing any more, for whatever reason, and nothing is known of ways.
    pub(super) fn forget_losses(&mut self) {
        if let Some(trouble) = &mut self.trouble {
            (trouble.repair, trouble.fetched, trouble.beyond) = (None, None, None);
            (trouble.spread, trouble.ports) = (None, None);
            (trouble.scatter, trouble.sources) = (None, None);
            trouble.refused = None;
            trouble.asks = RoundTrips::default();
        }
    }

    /// What is before `oldest` has come, and what is before `before` had.
    pub(super) fn passed(&mut self, before: Psn, oldest: Psn) {
        let window = self.requester.window;
        let Some(trouble) = &mut self.trouble else { return };
        if let Some(repair) = trouble.repair.as_deref_mut() {
            repair.passed(before, oldest, ways(&trouble.spread, window));
        }
        if let Some(spread) = trouble.spread.as_deref_mut() {
            spread.passed(before, oldest);
        }
    }

    /// Has it something to send again, one by one?
    pub(super) fn repeats(&self, shared: &Shared) -> bool {
        let Some(trouble) = &self.trouble else {
            return false;
        };
        let fetches = || trouble.fetched.as_ref().is_some_and(|f| f.due().is_some());
        let repairs = |r: &Repair| r.count > 0 || (r.unproved && self.probe(shared).is_some());
        trouble.repair.as_deref().is_some_and(repairs) || fetches()
    }

    /// The last packet of the window, if nothing new is to be sent behind it. (A READ that has come is answered once.)
    fn probe(&self, shared: &Shared) -> Option<Psn> {
        // (Only what has been sent is held by a request.)
        let last = self.requester.end.sub(1);
        let requester = &self.requester;
        let waits = requester.cursor() == NONE || requester.in_flight() >= requester.window;
        let nothing_more = waits && !last.before(requester.oldest);
        let mut slot = self.requester.tail();
        if self.requester.cursor() != NONE {
            slot = self.requester.cursor();
        }
        let tail = shared.sends.get(slot)?;
        let psn = if tail.awaits_response() { tail.first } else { last };
        let there = tail.holds(last) && !psn.before(requester.oldest);
        (nothing_more && there).then_some(psn)
    }

    /// Nothing came for long: sends the last packet that is under way once more, or asks for the last response. What comes back says
    /// what is missing before it.
    #[cold]
    pub(super) fn probe_end(&mut self, shared: &mut Shared) {
        let (oldest, end) = (self.requester.oldest, self.requester.end);
        let last = end.sub(1);
        let mut slot = self.requester.head();
        let fetches = loop {
            match shared.sends.get(slot) {
                Some(wqe) if wqe.holds(last) => break wqe.awaits_response(),
                Some(_) => slot = shared.sends.next(slot),
                None => return,
            }
        };
        if fetches {
            // (One packet: whoever has not carried out the READ says so.)
            let asks = self
                .fetch_out_of_order(shared)
                .is_some_and(|f| f.asked.is_empty());
            if asks && self.ask_between(shared, last, end, 0) {
                shared.marks.hit(Mark::EndAskedFor);
            }
            return;
        }
        let trouble = self.trouble.get_or_insert_default();
        if ensure(&shared.seats, &mut trouble.repair, || {
            Repair::new(oldest, end, end)
        }) && let Some(repair) = trouble.repair.as_deref_mut()
        {
            shared.marks.hit(Mark::EndSentAgain);
            repair.unproved = true;
            self.schedule(shared);
        }
    }

    /// A NAK for a sequence error says what has come behind the PSN that is missing.
    pub(super) fn learn_missing(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        psn: Psn,
        packet: &Incoming<'_>,
    ) {
        let mut bytes = [0; sack::LEN_MAX];
        let parsed = bytes
            .get_mut(..packet.payload.len())
            .and_then(|bytes| packet.payload.read(bytes).ok().map(|()| &*bytes))
            .and_then(|bytes| sack::Header::parse(bytes).ok());
        let Some(sack) = parsed else {
            shared.counters.drop_malformed += 1;
            return;
        };
        // (Answers that are still to be sent are not missing.)
        let gap = match sack.answers {
            true => Gap::Known,
            false => Gap::AskedFor,
        };
        let (oldest, next, end) = (
            self.requester.oldest,
            self.requester.next_psn(),
            self.requester.end,
        );
        let trouble = self.trouble.get_or_insert_default();
        if !ensure(&shared.seats, &mut trouble.repair, || {
            Repair::new(oldest, next, end)
        }) {
            if self.acknowledged_up_to(shared, now, psn, gap) {
                self.sequence_nak(shared, now, psn);
            }
            return;
        }
        if next != end {
            // It was going back: what it does not know yet is in this answer.
            self.requester.go_back(shared, end);
        }
        self.acknowledged_up_to(shared, now, psn, gap);
        self.progress(shared, now);
        let end = self.requester.end;
        // (Whoever waits for responses has not passed `oldest` yet.)
        self.passed(oldest, psn);
        let Some(repair) = self.repair() else { return };
        if core::mem::replace(&mut repair.base, psn).before(psn) {
            self.requester.retries_left = self.attributes.retry_count;
        }
        let window = self.requester.window;
        let Some(trouble) = self.trouble.as_deref_mut() else {
            return;
        };
        let Some(repair) = trouble.repair.as_deref_mut() else {
            return;
        };
        let known = earlier(end, psn.add(SPAN));
        for ((at, mut mask), says) in pieces(psn, known).zip(sack.map) {
            // (The missing one is not said to have come.)
            mask &= !u64::from(at == psn);
            let new = says & !repair.came.word(at) & mask;
            repair.came.put(at, says, mask);
            repair.forget_due(at, new);
            for psn in psns(at, new) {
                repair.came_of(psn, ways(&trouble.spread, window).of(psn));
                if let Some(spread) = trouble.spread.as_deref_mut() {
                    spread.came(psn);
                }
            }
        }
        let since = sack.trigger.distance(oldest);
        if (0..SPAN as i32).contains(&since) && sack.trigger.before(end) {
            let ways = ways(&trouble.spread, window);
            // (What cannot land before its turn takes the first way, each time.)
            let landed = sack.has(sack.trigger.distance(psn).max(0) as u32);
            match sack.again {
                true => repair.heard_of(sack.trigger, ways.of(sack.trigger)),
                false if landed && !ways.is_one() => repair.came_of(sack.trigger, ways.of(sack.trigger)),
                false => repair.some_came_of(sack.trigger, ways),
            }
        }
        shared.work = shared.work.saturating_add(known.distance(psn).max(0) as u32 / 64);
        // (What it was going to send again was not lost once more.)
        let retry = next == end || psn.before(next);
        self.find_lost(shared, now, psn, retry);
    }

    /// Marks what is lost from `base` on, the oldest request that is missing. `retry`: to send that again is one more try.
    fn find_lost(&mut self, shared: &mut Shared, now: Instant, base: Psn, retry: bool) {
        let end = self.requester.end;
        let mut slot = self.requester.head();
        let window = self.requester.window;
        let Some(trouble) = &mut self.trouble else { return };
        if let Some(spread) = trouble.spread.as_deref_mut() {
            spread.settle();
        }
        let Some(repair) = trouble.repair.as_deref_mut() else {
            return;
        };
        let (mut lost, mut again) = (0, false);
        let known = earlier(end, base.add(SPAN));
        'requests: while let Some(wqe) = shared.sends.get(slot) {
            if matches!(wqe.stage, Stage::Posted | Stage::Doomed(_)) {
                break;
            }
            if wqe.stage == Stage::Started && !wqe.first.before(known) {
                break;
            }
            if wqe.stage == Stage::Started && wqe.psns > 0 {
                let packets = if wqe.awaits_response() { 1 } else { wqe.psns };
                let from = if wqe.first.before(base) { base } else { wqe.first };
                for (at, mask) in pieces(from, earlier(wqe.first.add(packets), known)) {
                    let unknown = !(repair.came.word(at) | repair.due.word(at)) & mask;
                    for psn in psns(at, unknown) {
                        let Some(how) = repair.overtaken(psn, ways(&trouble.spread, window)) else {
                            if repair.ends_search(psn) {
                                break 'requests;
                            }
                            continue;
                        };
                        if how == Overtaken::ByOthers
                            && let Some(spread) = trouble.spread.as_deref_mut()
                            && spread.rest(now, psn)
                        {
                            shared.marks.hit(Mark::WayRested);
                            shared.counters.roce_multipath_rests += 1;
                        }
                        repair.due.set(psn);
                        repair.count += 1;
                        lost += 1;
                        again |= retry && psn == base;
                    }
                }
            }
            slot = shared.sends.next(slot);
        }
        if lost == 0 {
            return;
        }
        repair.unproved = true;
        repair.hint = None;
        let known = repair.until.is_some_and(|until| base.before(until));
        repair.until = Some(end);
        shared.marks.hit(match known {
            false => Mark::SelectiveNakReceived,
            true => Mark::RepeatedOften,
        });
        shared.counters.packet_seq_err += 1;
        self.went_wrong(shared, |errors| &mut errors.packet_seq_err);
        if again {
            if self.requester.retries_left == 0 {
                shared.marks.hit(Mark::RetryExceeded);
                return self.give_up(shared, Status::RetryExceeded);
            }
            self.requester.retries_left -= 1;
        }
        self.untimed(shared);
        shared.sends_again(self.number, Cause::SequenceNak);
        self.requester.unwatched = true;
        // (Slow restart is for what goes back. Who is limited slows down as ever.)
        if !known && self.reacts(shared) {
            self.lost(shared, now, Loss::OutOfSequence);
        }
        self.start_timer(shared, now);
        self.schedule(shared);
    }

    /// Sends one packet again, or asks again for a part of a READ, if something is missing.
    #[cold]
    #[inline(never)]
    pub(super) fn repeat(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        memory: &dyn Memory,
        sink: &mut dyn Sink,
    ) -> Option<Turn> {
        let (oldest, end) = (self.requester.oldest, self.requester.end);
        if let Some(fetched) = self.fetched()
            && let Some(at) = fetched.due()
            && let Some(part) = fetched.asked.get(at).copied()
        {
            let from = if part.from.before(oldest) {
                oldest
            } else {
                part.from
            };
            if !from.before(part.to) {
                fetched.asked.remove(at);
                return Some(Turn::Next);
            }
            let psns = part.to.distance(from).max(0) as u32;
            let part = Part {
                psn: from,
                psns,
                hint: None,
            };
            let (turn, _) = self.send_once(shared, now, part, memory, sink);
            if let Some(fetched) = self.fetched()
                && !matches!(turn, Turn::Blocked)
            {
                let look = fetched.looked.1.max(now);
                if let Some(part) = fetched.asked.get_mut(at) {
                    part.at = Some(now);
                    if part.tries == 0 {
                        part.first = Some(now);
                    }
                }
                shared.timers.arm(&mut self.timer, self.number, look);
                shared.counters.roce_selective_repeats += u64::from(matches!(turn, Turn::Sent));
            }
            return Some(turn);
        }
        let probe = self.probe(shared);
        let repair = self.repair()?;
        // (They are sent again in their order, so that those before the newest of these are out.)
        let from = repair
            .hint
            .map_or(oldest, |(_, at)| if at.before(oldest) { oldest } else { at });
        if repair.count > 0
            && let Some(psn) = repair.due.first(from, earlier(end, from.add(SPAN)))
        {
            let hint = repair.hint;
            let part = Part {
                psn,
                psns: WHOLE,
                hint,
            };
            let (turn, slot) = self.send_once(shared, now, part, memory, sink);
            if let Some(repair) = self.repair()
                && !matches!(turn, Turn::Blocked)
            {
                repair.forget_due(psn, 1);
                repair.hint = Some((slot, psn));
                shared.counters.roce_selective_repeats += u64::from(matches!(turn, Turn::Sent));
            }
            return Some(turn);
        }
        repair.count = 0;
        let psn = probe.filter(|_| core::mem::take(&mut repair.unproved))?;
        shared.marks.hit(Mark::RepeatProved);
        let part = Part {
            psn,
            psns: WHOLE,
            hint: None,
        };
        Some(self.send_once(shared, now, part, memory, sink).0)
    }

    /// Sends it. What is sent next is as before. Answers the slot of its request, too.
    fn send_once(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        part: Part,
        memory: &dyn Memory,
        sink: &mut dyn Sink,
    ) -> (Turn, u32) {
        let Part { psn, psns, hint } = part;
        let was = (self.requester.cursor(), self.requester.next_psn());
        // The slot of a hint holds what is not acknowledged, so it is still that request's.
        let from = hint.filter(|(_, at)| !at.before(self.requester.oldest) && !psn.before(*at));
        self.requester
            .go_back_from(shared, from.map(|(slot, _)| slot), psn);
        let slot = self.requester.cursor();
        let turn = match shared.sends.get(slot) {
            Some(wqe) if wqe.holds(psn) => self.send_packet(shared, slot, now, psns, memory, sink),
            _ => Turn::Next,
        };
        let ended = !matches!(turn, Turn::Blocked | Turn::Sent);
        let (cursor, next) = was;
        // (A request that failed took the queue pair with it.)
        if !(ended && self.requester.queued() == 0) {
            self.requester.resume(cursor, next);
        }
        (turn, slot)
    }

    /// A response came before others that are missing, or while some are; its payload has landed.
    pub(super) fn fetched_ahead(&mut self, shared: &mut Shared, now: Instant, psn: Psn) {
        shared.marks.hit(Mark::FetchedAhead);
        let oldest = self.requester.oldest;
        let sources = self.trouble.as_ref().and_then(|t| t.sources.as_ref());
        // (What is asked for again is older than what took its way before.)
        let first_copy = sources.is_some_and(|sources| sources.before().is_some());
        let Some(fetched) = self.fetch_out_of_order(shared) else {
            return;
        };
        fetched.came.set(psn);
        if fetched.acked.before(psn.next()) {
            fetched.acked = psn.next();
        }
        let (from, to) = (fetched.end, psn);
        if !psn.before(fetched.end) {
            fetched.end = psn.next();
        }
        if first_copy {
            scatter::landed(self, shared, psn);
            return self.ask_late(shared, now);
        }
        // What was asked for again comes in order, too.
        let (mut measured, mut waited) = (None, None);
        let mut overtaken = None;
        let mut late = 0;
        let holds = |part: &Asked| part.at.is_some() && !psn.before(part.from) && psn.before(part.to);
        if let Some(at) = fetched.asked.iter().position(holds)
            && let Some(asked) = fetched.asked.get(at).and_then(|part| part.at)
        {
            // (In the order of their PSNs, those that wait for each other.)
            for (i, part) in fetched.asked.iter_mut().enumerate() {
                let earlier = part.at.is_some_and(|other| (other, i) < (asked, at));
                if earlier && part.from.before(psn) {
                    // (That one is lost for certain, so that the time until the next answer is a round trip.)
                    (part.at, part.first) = (None, None);
                    late += 1;
                }
            }
        }
        if let Some(at) = fetched.asked.iter().position(holds)
            && let Some(part) = fetched.asked.get_mut(at)
        {
            if let (Some(at), 0) = (part.at, part.tries) {
                measured = Some(now.since(at));
            }
            waited = part.first.take().map(|first| now.since(first));
            if part.from.before(psn) {
                overtaken = Some((part.from, psn, part.tries));
            }
            part.from = psn.next();
            if !part.from.before(part.to) {
                fetched.asked.remove(at);
            }
        }
        if late > 0 {
            shared.marks.hit(Mark::FetchedOvertaken);
            self.schedule(shared);
        }
        if let Some(trip) = measured {
            self.requester.trips.estimate.measure(trip);
        }
        if let (Some(time), Some(trouble)) = (waited, &mut self.trouble) {
            trouble.asks.measure(time);
        }
        if let Some((from, to, tries)) = overtaken {
            self.ask_between(shared, from, to, tries);
        }
        if from.before(to) {
            let from = if from.before(oldest) { oldest } else { from };
            self.miss(shared, from, to);
        }
        if self.is_scattered() {
            scatter::ask_passed(self, shared);
        }
        self.ask_late(shared, now);
    }

    /// Responses come by several ways?
    fn is_scattered(&self) -> bool {
        self.trouble.as_ref().is_some_and(|t| t.sources.is_some())
    }

    /// The responses from one PSN to before another did not come before those behind them. That is no news where they may take
    /// another way.
    fn miss(&mut self, shared: &mut Shared, from: Psn, to: Psn) {
        if !self.is_scattered() {
            self.ask_between(shared, from, to, 0);
        }
    }

    /// The request with this PSN was refused, and responses to others before it have not come: they may take another way.
    pub(super) fn refused_before_responses(&mut self, psn: Psn, status: Status) {
        if let Some(trouble) = &mut self.trouble
            && trouble.fetched.is_some()
        {
            trouble.refused = Some((psn, status));
        }
    }

    /// What was refused before responses came, when they have.
    pub(super) fn refused_now(&mut self) -> Option<(Psn, Status)> {
        let oldest = self.requester.oldest;
        let refused = &mut self.trouble.as_mut()?.refused;
        let (psn, _) = (*refused)?;
        match oldest.before(psn) {
            true => None,
            false => refused.take().filter(|_| psn == oldest),
        }
    }

    fn fetch_out_of_order(&mut self, shared: &Shared) -> Option<&mut Fetched> {
        let oldest = self.requester.oldest;
        let trouble = self.trouble.get_or_insert_default();
        ensure(&shared.seats, &mut trouble.fetched, || {
            Box::new(Fetched {
                came: Bits::NONE,
                end: oldest,
                asked: VecDeque::new(),
                acked: oldest,
                looked: (oldest, Instant(0)),
            })
        });
        trouble.fetched.as_deref_mut()
    }

    /// Has this response landed already, before others?
    pub(super) fn has_fetched(&mut self, psn: Psn) -> bool {
        let oldest = self.requester.oldest;
        self.fetched()
            .is_some_and(|f| psn.distance(oldest) < Bits::<FETCHED>::SPAN as i32 && f.came.has(psn))
    }

    /// Is there room to note that this response has come before others? Who has none at all goes back.
    pub(super) fn may_fetch(&mut self, shared: &Shared, psn: Psn) -> Option<bool> {
        let near = psn.distance(self.requester.oldest) < Bits::<FETCHED>::SPAN as i32;
        self.fetch_out_of_order(shared).map(|_| near)
    }

    /// Is it known that the peer has carried out everything before this request?
    pub(super) fn knows_carried_out(&mut self, first: Psn) -> bool {
        self.fetched().is_some_and(|f| !f.acked.before(first))
    }

    /// May one more READ or atomic be asked for though `max_rd_atomic` of them are not complete? Those wait for parts alone that were lost:
    /// the peer, which answers in order, has answered them and something behind them. It knows the results of its last `max_rd_atomic`
    /// atomics only, so that one more, in `slot`, must not make it forget that of one whose answer was lost.
    #[cold]
    #[inline(never)]
    pub(super) fn answered(&self, shared: &Shared, slot: u32) -> bool {
        let requester = &self.requester;
        let fetched = self.trouble.as_ref().and_then(|t| t.fetched.as_deref());
        let (Some(fetched), due) = (fetched, usize::from(requester.responses_due)) else {
            return false;
        };
        let most = usize::from(self.attributes.max_rd_atomic);
        let used = requester.next_psn().distance(requester.oldest);
        if due >= 2 * most || requester.responses_due == u8::MAX || used >= Bits::<FETCHED>::SPAN as i32 / 2 {
            return false;
        }
        let next_is_atomic = shared.sends.get(slot).is_some_and(|wqe| wqe.is_atomic());
        let (mut slot, mut open, mut atomics) = (requester.head(), 0, 0);
        while let Some(wqe) = shared.sends.get(slot) {
            if matches!(wqe.stage, Stage::Posted | Stage::Doomed(_)) {
                break;
            }
            open += usize::from(wqe.awaits_response() && !wqe.last().before(fetched.end));
            atomics += usize::from(wqe.is_atomic());
            slot = shared.sends.next(slot);
        }
        open < most && !(next_is_atomic && atomics >= most)
    }

    /// Passes over responses that have landed, from `oldest` on and before `end`.
    pub(super) fn pass_fetched(&mut self, end: Psn) {
        let mut oldest = self.requester.oldest;
        if let Some(fetched) = self.fetched() {
            while oldest.before(end) && fetched.came.take(oldest) {
                oldest = oldest.next();
            }
        }
        self.requester.oldest = oldest;
    }

    /// Everything that had come before others is behind what is complete?
    pub(super) fn settle_fetched(&mut self) -> Option<Psn> {
        let oldest = self.requester.oldest;
        let trouble = self.trouble.as_mut()?;
        let fetched = trouble.fetched.as_deref_mut()?;
        let acked = fetched.acked;
        fetched.asked.retain(|part| oldest.before(part.to));
        if !oldest.before(fetched.end) {
            trouble.fetched = None;
        }
        oldest.before(acked).then_some(acked)
    }

    /// The peer has carried out everything before `psn`, and the responses from `oldest` to before `end` have not all come.
    pub(super) fn responses_missing(&mut self, shared: &mut Shared, now: Instant, psn: Psn, end: Psn) {
        let oldest = self.requester.oldest;
        let Some(fetched) = self.fetch_out_of_order(shared) else {
            return self.implied_nak(shared, now);
        };
        if fetched.acked.before(psn) {
            fetched.acked = psn;
        }
        let from = if fetched.end.before(oldest) {
            oldest
        } else {
            fetched.end
        };
        if from.before(end) {
            fetched.end = end;
            self.miss(shared, from, end);
        }
        self.ask_late(shared, now);
    }

    /// The time may have come to look for what is late.
    pub(super) fn look_for_late(&mut self, shared: &mut Shared, now: Instant) {
        let Some(fetched) = self.fetched() else { return };
        let (_, at) = fetched.looked;
        if now < at {
            shared.timers.arm(&mut self.timer, self.number, at);
        } else {
            self.ask_late(shared, now);
        }
    }

    /// What was asked for again and did not come in time is asked for again, and so is the oldest response if nobody did.
    fn ask_late(&mut self, shared: &mut Shared, now: Instant) {
        let (oldest, estimate) = (self.requester.oldest, self.requester.trips.estimate);
        let scattered = self.is_scattered();
        let Some(trouble) = &mut self.trouble else { return };
        let Some(fetched) = trouble.fetched.as_deref_mut() else {
            return;
        };
        if fetched.looked.0 == oldest && now < fetched.looked.1 {
            return;
        }
        let known = [trouble.asks, estimate];
        let wait = match known.into_iter().find(RoundTrips::measured) {
            Some(trips) => (2 * trips.expected()).max(SHORTEST),
            None => UNMEASURED.as_nanos() as u64,
        };
        let (mut late, mut first_late) = (0, u64::MAX);
        let mut covered = !oldest.before(fetched.end) || fetched.came.has(oldest);
        for part in &mut fetched.asked {
            covered |= !oldest.before(part.from) && oldest.before(part.to);
            let limit = wait.saturating_mul(1 << part.tries.min(20));
            let Some(at) = part.at else { continue };
            if now.since(at).as_nanos() as u64 >= limit {
                part.at = None;
                part.tries = part.tries.saturating_add(1);
                late += 1;
            } else {
                first_late = first_late.min(at.0.saturating_add(limit));
            }
        }
        let anew = fetched.looked.0 != oldest || fetched.looked.1 == Instant(0);
        if scattered && !covered && anew {
            // It may come by another way.
            covered = true;
            first_late = first_late.min(now.0.saturating_add(self.requester.soon(wait)));
        }
        let again = first_late.min(now.0.saturating_add(wait));
        fetched.looked = (oldest, Instant(again));
        if first_late < u64::MAX {
            shared
                .timers
                .arm(&mut self.timer, self.number, Instant(first_late));
        }
        let mut to = oldest;
        while !covered && to.before(fetched.end) && !fetched.came.has(to) && to.distance(oldest) < 64 {
            to = to.next();
        }
        if late > 0 {
            shared.marks.hit(Mark::FetchedLate);
            self.schedule(shared);
        }
        if oldest.before(to) {
            self.ask_between(shared, oldest, to, 1);
        }
    }

    /// Asks again for the responses from one PSN to before another, and answers whether there are any.
    pub(super) fn ask_between(&mut self, shared: &mut Shared, from: Psn, to: Psn, tries: u8) -> bool {
        let mut slot = self.requester.head();
        let Some(trouble) = &mut self.trouble else {
            return false;
        };
        let Some(fetched) = trouble.fetched.as_deref_mut() else {
            return false;
        };
        let mut asked = false;
        while let Some(wqe) = shared.sends.get(slot) {
            if matches!(wqe.stage, Stage::Posted | Stage::Doomed(_)) {
                break;
            }
            if wqe.stage == Stage::Started && wqe.awaits_response() {
                if !wqe.first.before(to) {
                    break;
                }
                let behind = wqe.last().next();
                let start = if wqe.first.before(from) { from } else { wqe.first };
                let stop = if behind.before(to) { behind } else { to };
                if start.before(stop) && fetched.asked.len() < ASKED {
                    fetched.asked.push_back(Asked {
                        from: start,
                        to: stop,
                        at: None,
                        first: None,
                        tries,
                    });
                    asked = true;
                }
            }
            slot = shared.sends.next(slot);
        }
        if asked {
            shared.sends_again(self.number, Cause::ImpliedNak);
            shared.marks.hit(Mark::ReadGapAsked);
            shared.counters.implied_nak_seq_err += 1;
            self.went_wrong(shared, |errors| &mut errors.implied_nak_seq_err);
            self.schedule(shared);
        }
        asked
    }
}
