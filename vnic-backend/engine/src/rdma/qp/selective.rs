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
//!   holds for what was sent again, too. When nothing more is to be sent, the last packet of the window follows, as a probe.
//! - READ responses are the peer's transmissions: a gap in them is asked for again, and so is a part that was asked for again when
//!   one came that was asked for later, or after some round trips.
//! - What ends by a timeout goes back as ever. The first answer ends that: it says what is missing.
//! - A loss restarts no window (zero touch RoCE, `SlowStart`): one packet is sent again. Where congestion control acts, it hears of one
//!   loss for each window of packets.
//! - Retries count as those of go-back-N: one for each time that the oldest packet is sent again without progress.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
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
use super::spread::{Ports, SPREADS, Spread, WAYS_MAX};

/// Words of the map of responses that came before others.
const FETCHED: usize = 64;
/// Parts of READs that may be asked for again at a time.
const ASKED: usize = 32;
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
}

/// Losses of a device that may be repaired at a time, in either role: what is known of one takes up to 22 KiB, and peers could
/// make all its queue pairs know something. Without a place a queue pair goes back.
const SEATS: usize = 512;

/// Places for what queue pairs know at length.
#[derive(Debug)]
pub(in super::super) struct Seats {
    places: Arc<()>,
    most: usize,
}

impl Seats {
    /// Those of losses that are being repaired.
    pub fn of_losses() -> Seats {
        let places = Arc::default();
        Seats { places, most: SEATS }
    }

    /// Those of queue pairs whose packets take several ways.
    pub fn of_spreads() -> Seats {
        Seats {
            places: Arc::default(),
            most: SPREADS,
        }
    }

    /// Takes a place, if there is one.
    fn take<T>(&self, what: impl FnOnce() -> Box<T>) -> Option<Seated<T>> {
        // (The device has one itself.)
        (Arc::strong_count(&self.places) <= self.most).then(|| Seated {
            what: what(),
            _place: self.places.clone(),
        })
    }
}

/// What has a place, and gives it back at its end.
#[derive(Debug)]
pub(super) struct Seated<T> {
    what: Box<T>,
    _place: Arc<()>,
}

impl<T> core::ops::Deref for Seated<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.what
    }
}

impl<T> core::ops::DerefMut for Seated<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.what
    }
}

/// Makes what a queue pair knows of losses, unless it is there. No: there is no place.
pub(super) fn ensure<T>(seats: &Seats, known: &mut Option<Seated<T>>, make: impl FnOnce() -> Box<T>) -> bool {
    if known.is_none() {
        *known = seats.take(make);
    }
    known.is_some()
}

impl Trouble {
    /// Whether no loss is being repaired, and nothing is under way on one of several ways.
    pub fn is_plain(&self) -> bool {
        let quiet = |spread: &Seated<Spread>| spread.is_quiet();
        self.repair.is_none() && self.fetched.is_none() && self.spread.as_ref().is_none_or(quiet)
    }
}

/// A bit for each of the `64 W` PSNs from one on that moves: a power of two.
#[derive(Debug)]
pub(super) struct Bits<const W: usize>([u64; W]);

impl<const W: usize> Bits<W> {
    pub const NONE: Bits<W> = Bits([0; W]);

    /// PSNs that it can hold.
    pub const SPAN: u32 = W as u32 * 64;

    fn place(psn: Psn) -> (usize, u32) {
        let at = psn.value() % Self::SPAN;
        (at as usize / 64, at % 64)
    }

    pub fn has(&self, psn: Psn) -> bool {
        let (word, bit) = Self::place(psn);
        self.0[word] >> bit & 1 == 1
    }

    pub fn set(&mut self, psn: Psn) {
        let (word, bit) = Self::place(psn);
        self.0[word] |= 1 << bit;
    }

    pub fn clear(&mut self, psn: Psn) {
        let (word, bit) = Self::place(psn);
        self.0[word] &= !(1 << bit);
    }

    /// Whether it was there; it is not, then.
    pub fn take(&mut self, psn: Psn) -> bool {
        let had = self.has(psn);
        self.clear(psn);
        had
    }

    /// Is none there in the word of this one?
    pub fn is_clear_around(&self, psn: Psn) -> bool {
        self.0[Self::place(psn).0] == 0
    }

    /// Those of the 64 PSNs from one on: bit i is that of `psn` + i.
    pub fn word(&self, psn: Psn) -> u64 {
        let (word, bit) = Self::place(psn);
        let low = self.0[word] >> bit;
        match bit {
            0 => low,
            _ => low | self.0[(word + 1) % W] << (64 - bit),
        }
    }

    /// Makes those of the 64 PSNs from one on that `mask` has what `bits` says.
    pub fn put(&mut self, psn: Psn, bits: u64, mask: u64) {
        let (word, bit) = Self::place(psn);
        let bits = bits & mask;
        self.0[word] = self.0[word] & !(mask << bit) | bits << bit;
        if bit > 0 {
            let next = &mut self.0[(word + 1) % W];
            *next = *next & !(mask >> (64 - bit)) | bits >> (64 - bit);
        }
    }

    /// The first that is there, from one PSN to before another.
    pub fn first(&self, from: Psn, to: Psn) -> Option<Psn> {
        pieces(from, to).find_map(|(at, mask)| psns(at, self.word(at) & mask).next())
    }

    /// Clears what is from one PSN to before another.
    pub fn clear_between(&mut self, from: Psn, to: Psn) {
        for (at, mask) in pieces(from, to).take(W) {
            self.put(at, 0, mask);
        }
    }
}

/// The PSNs from one to before another, 64 at a time: the first of them, and a bit for each.
pub(super) fn pieces(from: Psn, to: Psn) -> impl Iterator<Item = (Psn, u64)> {
    let count = to.distance(from).max(0) as u32;
    let pieces = (0..count).step_by(64);
    pieces.map(move |i| (from.add(i), u64::MAX >> 64u32.saturating_sub(count - i)))
}

/// The PSNs of a piece that begins with `from`, by their bits.
pub(super) fn psns(from: Psn, mut bits: u64) -> impl Iterator<Item = Psn> {
    core::iter::from_fn(move || {
        let psn = (bits != 0).then(|| from.add(bits.trailing_zeros()));
        bits &= bits.wrapping_sub(1);
        psn
    })
}

/// The earlier of two PSNs.
pub(super) fn earlier(one: Psn, other: Psn) -> Psn {
    match other.before(one) {
        true => other,
        false => one,
    }
}

/// Requests of which some are missing at the peer.
#[derive(Debug)]
pub(super) struct Repair {
    /// What has come, from the oldest that is missing on.
    came: Bits<{ sack::WORDS }>,
    /// What is to be sent again.
    due: Bits<{ sack::WORDS }>,
    /// PSNs in `due`.
    count: u32,
    /// Number of each PSN's newest transmission.
    sent: [u32; SPAN as usize],
    /// What was sent more than once: an answer may be to either (Karn).
    twice: Bits<{ sack::WORDS }>,
    /// One beyond the highest PSN that was sent.
    end: Psn,
    /// Number of the next transmission.
    next: u32,
    /// One beyond the newest transmission that has come, by way.
    heard: [u32; WAYS_MAX],
    /// The oldest that is missing.
    base: Psn,
    /// Losses before this PSN are those that congestion control knows.
    until: Option<Psn>,
    /// Packets were sent again, and the last one of the window not behind them.
    unproved: bool,
    /// Slot of the request that was sent again last, and a PSN of it.
    hint: Option<(u32, Psn)>,
}

fn place(psn: Psn) -> usize {
    (psn.value() % SPAN) as usize
}

/// The ways that a queue pair with this window knows of.
fn ways(spread: &Option<Seated<Spread>>, window: u32) -> Ways<'_> {
    Ways {
        spread: spread.as_deref(),
        reach: window.min(SPAN) / 4,
    }
}

impl Repair {
    /// Begins with what is in the network: `oldest` to before `end`, of which those before `again` were sent a second time.
    fn new(oldest: Psn, again: Psn, end: Psn) -> Box<Repair> {
        let mut repair = Box::new(Repair {
            came: Bits::NONE,
            due: Bits::NONE,
            count: 0,
            sent: [0; SPAN as usize],
            twice: Bits::NONE,
            end: oldest,
            next: 1,
            heard: [0; WAYS_MAX],
            base: oldest,
            until: None,
            unproved: false,
            hint: None,
        });
        let known = oldest.add(SPAN);
        for (from, to) in [(again, end), (oldest, again)] {
            let to = if known.before(to) { known } else { to };
            for i in 0..to.distance(from).max(0) as u32 {
                let psn = from.add(i);
                repair.transmitted(psn);
                // (Who goes back to the end has not gone back.)
                if psn.before(again) && again != end {
                    repair.twice.set(psn);
                }
            }
        }
        repair
    }

    /// A packet is out.
    pub fn transmitted(&mut self, psn: Psn) {
        if psn.before(self.end) {
            self.twice.set(psn);
        } else {
            self.twice.clear(psn);
            self.end = psn.next();
        }
        self.sent[place(psn)] = self.next;
        self.next = self.next.wrapping_add(1);
    }

    /// How many transmissions this one is older than the newest that has come by a way; 0: not older.
    fn older(&self, psn: Psn, way: usize) -> u32 {
        let beyond = self.sent[place(psn)].wrapping_add(1);
        (self.heard[way].wrapping_sub(beyond) as i32).max(0) as u32
    }

    /// Is this transmission lost: did a later one come by the same way, or by another one a much later one?
    fn overtaken(&self, psn: Psn, ways: Ways<'_>) -> Option<Overtaken> {
        let way = ways.of(psn);
        if self.older(psn, way) > 0 {
            return Some(Overtaken::OnItsWay);
        }
        let silent = ways.spread.is_some_and(|spread| spread.silence(psn) > ways.reach);
        let far = silent && (0..WAYS_MAX).any(|other| self.older(psn, other) > ways.reach);
        far.then_some(Overtaken::ByOthers)
    }

    /// A transmission of this PSN has come: the only one, by this way.
    fn came_of(&mut self, psn: Psn, way: usize) {
        if !self.twice.has(psn) {
            self.heard_of(psn, way);
        }
    }

    /// The newest transmission of this PSN has come, by this way.
    fn heard_of(&mut self, psn: Psn, way: usize) {
        let beyond = self.sent[place(psn)].wrapping_add(1);
        let heard = &mut self.heard[way];
        if (beyond.wrapping_sub(*heard) as i32) > 0 {
            *heard = beyond;
        }
    }

    /// Of 64 PSNs from one on these need not be sent again.
    fn forget_due(&mut self, psn: Psn, bits: u64) {
        self.count -= (self.due.word(psn) & bits).count_ones();
        self.due.put(psn, 0, bits);
    }

    /// All before `to` has come, which all before `from` had.
    pub fn passed(&mut self, from: Psn, to: Psn, ways: Ways<'_>) {
        for (at, mask) in pieces(from, earlier(to, from.add(SPAN))) {
            self.forget_due(at, mask);
            let new = !self.came.word(at) & mask;
            self.came.put(at, 0, mask);
            for psn in psns(at, new) {
                self.came_of(psn, ways.of(psn));
            }
        }
    }

    /// Was this PSN sent once, and not before anything that has come? Then that holds for those behind it, too.
    fn ends_search(&self, psn: Psn) -> bool {
        !self.twice.has(psn) && (0..WAYS_MAX).all(|way| self.older(psn, way) == 0)
    }
}

/// How a packet was overtaken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Overtaken {
    /// By one that took the same way.
    OnItsWay,
    /// By so many that took others.
    ByOthers,
}

/// The ways that packets took.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ways<'a> {
    spread: Option<&'a Spread>,
    /// So many transmissions may overtake one that took another way, and so many may come while none does by its own.
    reach: u32,
}

impl Ways<'_> {
    fn of(self, psn: Psn) -> usize {
        self.spread.map_or(0, |spread| spread.way_of(psn))
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

/// A part of a READ that was asked for again.
#[derive(Debug, Clone, Copy)]
struct Asked {
    from: Psn,
    /// One beyond its last PSN.
    to: Psn,
    /// When it was; none: it is to be.
    at: Option<Instant>,
    /// When it was for the first time, if nothing of it has come.
    first: Option<Instant>,
    /// Times that nothing of it came in time.
    tries: u8,
}

/// Responses of which some are missing.
#[derive(Debug)]
pub(super) struct Fetched {
    /// What has landed, from the oldest that is missing on.
    came: Bits<FETCHED>,
    /// One beyond the highest response that came, or is known to be due.
    end: Psn,
    asked: VecDeque<Asked>,
    /// The peer has carried out everything before this.
    acked: Psn,
    /// The oldest that was missing when it was last looked for what is late, and when to look again if it is still.
    looked: (Psn, Instant),
}

impl Fetched {
    fn due(&self) -> Option<usize> {
        self.asked.iter().position(|part| part.at.is_none())
    }
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
            let way = ways(&trouble.spread, window).of(sack.trigger);
            match sack.again {
                true => repair.heard_of(sack.trigger, way),
                false => repair.came_of(sack.trigger, way),
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
            self.ask_between(shared, from, to, 0);
        }
        self.ask_late(shared, now);
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
    /// the peer, which answers in order, has answered them and something behind them.
    #[cold]
    #[inline(never)]
    pub(super) fn answered(&self, shared: &Shared) -> bool {
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
        let (mut slot, mut open) = (requester.head(), 0);
        while let Some(wqe) = shared.sends.get(slot) {
            if matches!(wqe.stage, Stage::Posted | Stage::Doomed(_)) {
                break;
            }
            open += usize::from(wqe.awaits_response() && !wqe.last().before(fetched.end));
            slot = shared.sends.next(slot);
        }
        open < most
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
            self.ask_between(shared, from, end, 0);
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

    /// Asks again for the responses from one PSN to before another.
    fn ask_between(&mut self, shared: &mut Shared, from: Psn, to: Psn, tries: u8) {
        let mut slot = self.requester.head();
        let Some(trouble) = &mut self.trouble else { return };
        let Some(fetched) = trouble.fetched.as_deref_mut() else {
            return;
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
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn random(seed: u64) -> impl FnMut(u32) -> u32 {
        let mut state = seed;
        move |n| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % u64::from(n)) as u32
        }
    }

    #[test]
    fn words_of_a_map_are_its_bits() {
        let mut below = random(0x9e37_79b9_7f4a_7c15);
        // Over the end of the PSNs.
        let base = Psn::new(0xff_ff00);
        let mut bits = Bits::<16>::NONE;
        let mut model = [false; SPAN as usize];
        for _ in 0..2000 {
            let (from, len) = (below(SPAN - 64), below(65));
            let (says, mask) = (
                u64::from(below(u32::MAX)) << below(33),
                u64::MAX.checked_shr(64 - len).unwrap_or(0),
            );
            bits.put(base.add(from), says, mask);
            for i in 0..len {
                model[(from + i) as usize] = says >> i & 1 == 1;
            }
            let (from, to) = (below(SPAN), below(SPAN));
            let there = (from..to).filter(|i| model[*i as usize]).map(|i| base.add(i));
            let found = pieces(base.add(from), base.add(to));
            let found = found.flat_map(|(at, mask)| psns(at, bits.word(at) & mask));
            assert!(found.eq(there.clone()), "{from} to {to}");
            assert_eq!(bits.first(base.add(from), base.add(to)), there.clone().next());
            assert!(
                there
                    .clone()
                    .all(|psn| bits.has(psn) && !bits.is_clear_around(psn))
            );
            if below(4) == 0 {
                bits.clear_between(base.add(from), base.add(to));
                (from..to).for_each(|i| model[i as usize] = false);
            }
        }
    }

    /// What is found to be lost, looking at each packet by itself.
    fn lost(repair: &Repair, base: Psn, end: Psn) -> Vec<Psn> {
        let all = (0..end.distance(base) as u32).map(|i| base.add(i));
        let ways = ways(&None, SPAN);
        all.filter(|psn| !repair.came.has(*psn) && repair.overtaken(*psn, ways).is_some())
            .collect()
    }

    #[test]
    fn a_search_ends_where_nothing_behind_is_lost() {
        let mut below = random(0x1234_5678_9abc_def1);
        for _ in 0..60 {
            let base = Psn::new(below(1 << 24));
            let sent = 2 + below(SPAN - 2);
            let again = base.add(below(sent));
            let mut end = base.add(sent);
            let mut repair = Repair::new(base, again, end);
            for _ in 0..below(200) {
                let psn = base.add(below(sent));
                match below(3) {
                    0 => repair.transmitted(psn),
                    1 if end.distance(base) < SPAN as i32 => {
                        repair.transmitted(end);
                        end = end.next();
                    }
                    _ => {
                        repair.came.set(psn);
                        repair.heard_of(psn, 0);
                    }
                }
                let all = lost(&repair, base, end);
                let ends = (0..end.distance(base) as u32)
                    .map(|i| base.add(i))
                    .find(|psn| !repair.came.has(*psn) && !all.contains(psn) && repair.ends_search(*psn));
                if let Some(ends) = ends {
                    assert!(all.iter().all(|psn| psn.before(ends)), "{ends:?}: {all:?}");
                }
            }
        }
    }
}
