//! Multipath of READ responses: those of one queue pair take several ways at once, as WRITEs do (qp/spread.rs).
//!
//! ```text
//!  requester                                             responder
//!   READ 5, "my responses may" ───────────────────────▶  Scatter: which response went where
//!                           ◀── way 0  port P      5 6
//!   8 lands before 7        ◀── way 1  port P ^ 2  7 8
//!   READ 9, "5, 6, 8 came"  ──────────────────────────▶  the emptiest way is taken, a silent one rests
//!   Ports: all ways have passed 7, so it is lost
//!   READ 7, of one packet   ──────────────────────────▶  response 7, by the first way
//! ```
//!
//! - **Nothing acknowledges a response**, so requests of READs say what has come, behind their RETH (wire/src/sack.rs), once a response was
//!   one of several ways. So the responder knows as much as a requester does of its WRITEs, and chooses ways likewise. Within one
//!   READ it hears only of what is asked for again.
//! - **A gap is no loss** to the requester: a response is lost when the ways of its neighbours have passed it (`Qp::ask_around`), when all
//!   ways have (`Ports`), or when it has not come in the time that parts of READs take (`Qp::ask_late`). What is asked for again takes
//!   the first way.
//! - Each request says that its responses may. One that does not ends it.

use alloc::boxed::Box;

use smallvec::SmallVec;
use vnic_wire::psn::Psn;
use vnic_wire::sack::{self, SPAN};
use vnic_wire::time::Instant;

use super::super::marks::Mark;
use super::super::packet::{Incoming, Payload};
use super::super::shared::Shared;
use super::super::status::WayStatus;
use super::Qp;
use super::selective::{ASKED, Fetched, earlier, ensure, pieces, psns};
use super::spread::{BURST, Spread, WAYS_MAX, several, status};

/// What a responder knows of the ways of its READ responses.
#[derive(Debug)]
pub(super) struct Scatter {
    ways: Spread,
    /// One beyond the newest response.
    end: Psn,
    /// Everything before has come.
    oldest: Psn,
}

/// What people see of the ways of its READ responses.
pub(super) fn ways(qp: &Qp, now: Instant) -> [Option<WayStatus>; WAYS_MAX] {
    let scatter = qp.trouble.as_ref().and_then(|t| t.scatter.as_deref());
    status(scatter.map(|s| &s.ways), qp, now)
}

impl Scatter {
    fn new(ways: usize, expected: Psn) -> Box<Scatter> {
        Box::new(Scatter {
            ways: Spread::new(ways),
            end: expected,
            oldest: expected,
        })
    }

    /// A response leaves: by this way.
    pub fn leaves(&mut self, shared: &mut Shared, psn: Psn) -> usize {
        let (now, again) = (shared.now, psn.before(self.end));
        let way = match again {
            true => self.ways.first(now),
            false => self.ways.next(now),
        };
        if !again {
            self.end = psn.next();
        }
        if self.knows(psn) {
            self.ways.transmitted(now, psn, way, again);
        }
        if way > 0 {
            shared.marks.hit(Mark::ResponseScattered);
            shared.counters.roce_multipath_packets += 1;
        }
        way
    }

    /// Is it known which way this response took?
    fn knows(&self, psn: Psn) -> bool {
        (1..=SPAN as i32).contains(&self.end.distance(psn))
    }

    /// The requester says what has come. Answers how many ways rest anew.
    fn hears(&mut self, now: Instant, says: &sack::Header) -> u64 {
        let (oldest, first) = (earlier(says.trigger, self.end), self.end.sub(SPAN));
        if oldest.before(self.oldest) {
            // One that was overtaken.
            return 0;
        }
        let from = match self.oldest.before(first) {
            true => first,
            false => self.oldest,
        };
        self.ways.passed(from, oldest);
        self.oldest = oldest;
        let known = earlier(self.end, oldest.add(SPAN));
        for ((at, mask), came) in pieces(oldest, known).zip(says.map) {
            psns(at, came & mask)
                .filter(|psn| (1..=SPAN as i32).contains(&self.end.distance(*psn)))
                .for_each(|psn| self.ways.came(psn));
        }
        self.ways.settle();
        let under_way = self.end.distance(oldest).max(0) as u32;
        self.ways.rest_silent(now, under_way.min(SPAN) / 4)
    }
}

/// A request of a READ came: its responses may take several ways, or not, and it may say what has come.
#[cold]
#[inline(never)]
pub(super) fn heard(qp: &mut Qp, shared: &mut Shared, packet: &Incoming<'_>) {
    let (ways, expected) = (several(qp, shared), qp.responder.expected_psn());
    let may = packet.headers.bth.scattered && packet.headers.bth.selective;
    let (Some(ways), true) = (ways, may) else {
        if let Some(trouble) = &mut qp.trouble {
            trouble.scatter = None;
        }
        return;
    };
    let trouble = qp.trouble.get_or_insert_default();
    ensure(&shared.spreads, &mut trouble.scatter, || {
        Scatter::new(ways, expected)
    });
    let mut bytes = [0; sack::LEN_MAX];
    let says = bytes
        .get_mut(..packet.payload.len())
        .and_then(|bytes| packet.payload.read(bytes).ok().map(|()| &*bytes))
        .and_then(|bytes| sack::Header::parse(bytes).ok());
    if let (Some(scatter), Some(says)) = (trouble.scatter.as_deref_mut(), says) {
        let rested = scatter.hears(shared.now, &says);
        if rested > 0 {
            shared.marks.hit(Mark::WayRested);
            shared.counters.roce_multipath_rests += rested;
        }
    }
}

/// A response came: by one of several ways, or by the only one.
pub(super) fn came(qp: &mut Qp, packet: &Incoming<'_>) {
    let bth = &packet.headers.bth;
    match &mut qp.trouble {
        known if bth.scattered => {
            let sources = known.get_or_insert_default().sources.get_or_insert_default();
            sources.came(packet.path.source_port, bth.psn);
        }
        Some(trouble) => trouble.sources = None,
        None => {}
    }
}

/// A response landed that took one of several ways and was sent once: no answer to what was asked for again.
pub(super) fn landed(qp: &mut Qp, shared: &mut Shared, psn: Psn) {
    shared.marks.hit(Mark::ScatterAwaited);
    if let Some(fetched) = qp.fetched() {
        fetched.asked.retain_mut(|part| {
            if part.from == psn {
                part.from = psn.next();
            }
            part.from.before(part.to)
        });
    }
    ask_around(qp, shared, psn);
    ask_passed(qp, shared);
}

/// This response came by one of several ways. Those that go one after the other take one way, but for the ends of such bursts, so that
/// a few that are missing took the way of the one before them, or that of the one behind: asks for them if both have passed them.
fn ask_around(qp: &mut Qp, shared: &mut Shared, psn: Psn) {
    let oldest = qp.requester.oldest;
    let Some(trouble) = &qp.trouble else { return };
    let (Some(sources), Some(fetched)) = (&trouble.sources, &trouble.fetched) else {
        return;
    };
    let Some(before) = sources.before() else { return };
    let few = |from: Psn, to: Psn| (1..BURST as i32).contains(&to.distance(from));
    let mut lost = [None; 2];
    // Behind the one that came by this way before.
    let from = before.next();
    if !from.before(oldest)
        && let Some(to) = fetched.came.first(from, earlier(psn.next(), from.add(BURST)))
    {
        lost[0] = few(from, to).then_some((from, to));
    }
    // In front of this one.
    let came = |psn: &Psn| psn.before(oldest) || fetched.came.has(*psn);
    if let Some(last) = (1..=BURST).map(|i| psn.sub(i)).find(came)
        && last != before
        && few(last.next(), psn)
        && sources.has_passed(last)
    {
        lost[1] = Some((last.next(), psn));
    }
    for (from, to) in lost.into_iter().flatten() {
        ask_once(qp, shared, from, to);
    }
}

/// Asks again for the responses from one PSN to before another, but for those that were asked for.
fn ask_once(qp: &mut Qp, shared: &mut Shared, mut from: Psn, to: Psn) {
    while from.before(to) {
        let Some(fetched) = qp.fetched() else { return };
        let asked = fetched.asked.iter();
        let known = asked
            .clone()
            .find(|part| !from.before(part.from) && from.before(part.to));
        if let Some(part) = known {
            from = part.to;
            continue;
        }
        let next = asked.map(|part| part.from).filter(|next| from.before(*next));
        let end = next.fold(to, earlier);
        qp.ask_between(shared, from, end, 0);
        from = end;
    }
}

/// Asks again for what did not come by any of several ways.
pub(super) fn ask_passed(qp: &mut Qp, shared: &mut Shared) {
    let oldest = qp.requester.oldest;
    let Some(trouble) = &mut qp.trouble else { return };
    let news = trouble.sources.as_mut().and_then(|sources| sources.news(oldest));
    let (Some((mut from, to)), Some(fetched)) = (news, trouble.fetched.as_deref()) else {
        return;
    };
    let to = earlier(to, from.add(Fetched::SPAN));
    let mut missing = SmallVec::<[(Psn, Psn); 4]>::new();
    while from.before(to) && missing.len() < ASKED {
        let came = fetched.came.first(from, to).unwrap_or(to);
        if from.before(came) {
            missing.push((from, came));
        }
        from = came.next();
    }
    for (from, to) in missing {
        ask_once(qp, shared, from, to);
    }
}

/// What a request of a READ says of responses.
pub(super) struct Report {
    bytes: [u8; sack::LEN_MAX],
    len: usize,
}

impl Report {
    pub fn payload(&self) -> Payload<'_> {
        self.bytes.get(..self.len).map_or(Payload::NONE, Payload::Bytes)
    }
}

/// Which responses have come.
#[cold]
#[inline(never)]
pub(super) fn report(qp: &Qp) -> Report {
    let oldest = qp.requester.oldest;
    let fetched = qp.trouble.as_ref().and_then(|t| t.fetched.as_deref());
    let says = sack::Header {
        trigger: oldest,
        again: false,
        answers: false,
        map: fetched.map_or([0; sack::WORDS], |fetched| fetched.since(oldest)),
    };
    let (bytes, len) = says.emit();
    Report { bytes, len }
}
