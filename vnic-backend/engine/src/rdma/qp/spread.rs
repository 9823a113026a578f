//! Multipath: packets of WRITEs of one queue pair take several ways at once, each with a UDP source port of its own, which switches
//! and teams of ports hash to a path or a member. They land as they come, and complete in order (qp/selective.rs, of which this
//! is a part, repeats what is lost).
//!
//! ```text
//!  requester                way 0  port P      ┌─────┐        responder
//!   WRITE 5 6 7 8 9 10 ──── way 1  port P ^ 2 ─┤     ├──────▶  lands 6, 5, 8: each packet has an RETH
//!                           way 2  port P ^ 4 ─┤     │         says what is missing when that must be lost, by Ports
//!   Spread: who went where ◀───────────────────┴─────┴───────  NAK 7, "8 has come"
//! ```
//!
//! - **A way keeps its order**, ways among each other do not: a packet is lost when a later one of the same way has come, or when a
//!   quarter of the window passed it, and as much has come by others since anything came by its way. What is repeated takes the
//!   first way that works.
//! - **Eight packets take the way with the fewest under way**, so that a slow or narrow way gets as much as it carries. One from which
//!   nothing came while others went on rests: 1 ms, and twice as long each time up to 64 ms; then one packet tries it.
//! - **What has to come in its turn** (SENDs, READs, atomics, the packet with immediate data) takes the first way, and waits for what is
//!   under way on others. Acknowledges take the way of the queue pair itself; READ responses have several (qp/scatter.rs).
//!
//! That packets are spread one by one by an entropy value that switches hash, and that each says where it goes, is what MRC and Ultra
//! Ethernet's transport do, too; so is completion in order. Theirs are what marks by ECN and trimmed packets say of a way, and
//! congestion windows for each: here the queue pair has one rate for all ways. Ours is the choice by what is under way.

use alloc::boxed::Box;
use core::time::Duration;

use smallvec::SmallVec;
use vnic_wire::psn::Psn;
use vnic_wire::roce::Path;
use vnic_wire::sack::SPAN;
use vnic_wire::time::Instant;

use crate::congestion::zero_touch;

use super::super::marks::Mark;
use super::super::shared::Shared;
use super::super::status::WayStatus;
use super::super::types::SendOp;
use super::Qp;
use super::requester::SendWqe;
use super::selective::{earlier, ensure};

/// Most ways of a queue pair.
pub(super) const WAYS_MAX: usize = zero_touch::WAYS_MAX as usize;
/// Shortest rest of a way.
const REST: Duration = Duration::from_millis(1);
/// Doublings of it at most.
const DOUBLINGS: u8 = 6;
/// A port that is so many packets behind the newest counts no more at the responder.
const BEHIND: i32 = 512;
/// Packets that take a way one after the other. What a host sends by one way goes together through its kernel and its device.
pub(super) const BURST: u32 = 8;
/// So many packets after a port was seen for the first time there may be others that bring what is missing.
const SETTLED: u32 = 4 * BURST;
/// The packet is under way.
const UNDER_WAY: u8 = 0x80;

/// One of the ways.
#[derive(Debug, Clone, Copy, Default)]
struct Way {
    /// Packets on it that nobody has heard of.
    under_way: u32,
    /// Packets of the queue pair that were known to have come when the last one was that came by it, or when it got something again.
    last: u32,
    /// One came by it since that was looked at.
    heard: bool,
    /// It rests until then.
    rests_until: Option<Instant>,
    /// Rests since a packet came by it.
    rests: u8,
}

impl Way {
    fn may(&self, now: Instant) -> bool {
        self.rests_until.is_none_or(|until| until <= now)
    }

    fn rest(&mut self, now: Instant) {
        self.rests_until = Some(now + REST * (1 << self.rests.min(DOUBLINGS)));
        self.rests = self.rests.saturating_add(1);
    }
}

/// What a requester knows of its ways.
#[derive(Debug)]
pub(super) struct Spread {
    ways: [Way; WAYS_MAX],
    count: usize,
    /// The way that was taken last, and how many packets more are to take it.
    taken: usize,
    more: u32,
    /// Packets that have come, by any.
    came: u32,
    /// By PSN: the way that its newest transmission took, and whether it is under way.
    of: [u8; SPAN as usize],
}

fn place(psn: Psn) -> usize {
    (psn.value() % SPAN) as usize
}

impl Spread {
    pub fn new(count: usize) -> Spread {
        Spread {
            ways: [Way::default(); WAYS_MAX],
            count: count.clamp(1, WAYS_MAX),
            taken: 0,
            more: 0,
            came: 0,
            of: [0; SPAN as usize],
        }
    }

    /// The way that a packet took, which was sent last less than [`SPAN`] packets ago.
    pub fn way_of(&self, psn: Psn) -> usize {
        usize::from(self.of[place(psn)] & !UNDER_WAY)
    }

    /// The way of what comes in its turn, and of what is repeated: the first that does not rest.
    pub fn first(&self, now: Instant) -> usize {
        let ways = &self.ways[..self.count];
        ways.iter().position(|way| way.may(now)).unwrap_or(0)
    }

    /// The way of the next packet that may land before others.
    pub fn next(&self, now: Instant) -> usize {
        match self.more > 0 && self.ways[self.taken].may(now) {
            true => self.taken,
            false => self.emptiest(now),
        }
    }

    /// The way with the fewest packets under way.
    fn emptiest(&self, now: Instant) -> usize {
        let order = (1..=self.count).map(|i| (self.taken + i) % self.count);
        let may = order.filter(|way| self.ways[*way].may(now));
        may.min_by_key(|way| self.ways[*way].under_way)
            .unwrap_or_else(|| self.first(now))
    }

    /// Is something under way on any but this?
    fn others_busy(&self, way: usize) -> bool {
        let ways = self.ways.iter().enumerate();
        ways.filter(|(i, _)| *i != way).any(|(_, way)| way.under_way > 0)
    }

    /// Is nothing under way? Then what follows may take the way of the queue pair itself, as a run between neighbours does.
    pub fn is_quiet(&self) -> bool {
        self.ways[..self.count].iter().all(|way| way.under_way == 0)
    }

    /// A packet is out. `again`: not for the first time.
    pub fn transmitted(&mut self, now: Instant, psn: Psn, way: usize, again: bool) {
        self.ended(psn);
        self.of[place(psn)] = way as u8 | UNDER_WAY;
        if !again {
            self.more = match way == self.taken && self.more > 0 {
                true => self.more - 1,
                false => BURST - 1,
            };
            self.taken = way;
        }
        let way = &mut self.ways[way];
        if way.under_way == 0 {
            way.last = self.came;
        }
        way.under_way += 1;
        if way.rests_until.is_some() {
            // It tries the way, and no other does for a time.
            way.rest(now);
        }
    }

    /// A packet is not under way any more; answers its way, if it was.
    fn ended(&mut self, psn: Psn) -> Option<&mut Way> {
        let of = &mut self.of[place(psn)];
        if *of & UNDER_WAY == 0 {
            return None;
        }
        *of &= !UNDER_WAY;
        let way = &mut self.ways[usize::from(*of)];
        way.under_way = way.under_way.saturating_sub(1);
        Some(way)
    }

    /// A packet has come.
    pub fn came(&mut self, psn: Psn) {
        if let Some(way) = self.ended(psn) {
            (way.rests_until, way.rests, way.heard) = (None, 0, true);
            self.came = self.came.wrapping_add(1);
        }
    }

    /// What an answer said of all ways is known now.
    pub fn settle(&mut self) {
        for way in &mut self.ways {
            if core::mem::take(&mut way.heard) {
                way.last = self.came;
            }
        }
    }

    /// Packets that have come since one came by the way of this one.
    pub fn silence(&self, psn: Psn) -> u32 {
        let way = &self.ways[self.way_of(psn)];
        self.came.wrapping_sub(way.last)
    }

    /// All from one PSN to before another have come.
    pub fn passed(&mut self, from: Psn, to: Psn) {
        for i in 0..(to.distance(from).max(0) as u32).min(SPAN) {
            self.came(from.add(i));
        }
    }

    /// Nothing came by these ways while so many came by others, and two rounds of all of them are as many: they rest. Answers how
    /// many.
    pub fn rest_silent(&mut self, now: Instant, reach: u32) -> u64 {
        let reach = reach.max(2 * self.count as u32 * BURST);
        let (came, count) = (self.came, self.count);
        let ways = self.ways[..count].iter_mut();
        let silent =
            ways.filter(|way| way.under_way > 0 && came.wrapping_sub(way.last) > reach && way.may(now));
        silent.map(|way| way.rest(now)).count() as u64
    }

    /// Nothing came by the way of this packet while others went on. Answers whether it rests anew.
    pub fn rest(&mut self, now: Instant, psn: Psn) -> bool {
        let way = self.way_of(psn);
        let (way, others) = (&mut self.ways[way], self.count > 1);
        let anew = others && way.may(now);
        if anew {
            way.rest(now);
        }
        anew
    }
}

/// UDP source port of a way, 0 to 15, of a queue pair that has this one itself: bits 1 to 4 differ. (The bonding driver's layer3+4
/// does not look at bit 0.)
pub const fn multipath_port(own: u16, way: usize) -> u16 {
    own ^ (way << 1) as u16
}

/// The ways that requests or READ responses come by: UDP source ports, with the newest PSN of each.
#[derive(Debug, Default)]
pub(super) struct Ports {
    newest: SmallVec<[(u16, Psn); WAYS_MAX]>,
    /// The least of these PSNs, when that is known.
    passed: Option<Psn>,
    /// Packets that came since the newest port was seen first, up to [`SETTLED`].
    since: u32,
    /// What is missing before this was told.
    told: Option<Psn>,
    /// The newest PSN of its way before the packet that came last, if that one is newer.
    before: Option<Psn>,
}

impl Ports {
    /// A packet came.
    pub fn came(&mut self, port: u16, psn: Psn) {
        let slowest = self.passed;
        self.since = SETTLED.min(self.since + 1);
        match self.newest.iter().position(|(known, _)| *known == port) {
            Some(at) => {
                // Several come by one port, one after the other.
                self.newest.swap(0, at);
                let (_, newest) = &mut self.newest[0];
                self.before = None;
                if newest.before(psn) {
                    let was = core::mem::replace(newest, psn);
                    self.before = Some(was);
                    self.passed = slowest.filter(|slowest| was != *slowest);
                }
            }
            None => {
                (self.passed, self.before) = (None, None);
                if self.newest.len() == WAYS_MAX {
                    self.slowest();
                }
                if self.newest.len() < WAYS_MAX {
                    self.newest.push((port, psn));
                    self.since = 0;
                }
            }
        }
        self.passed = self.passed.filter(|slowest| psn.distance(*slowest) <= BEHIND);
    }

    /// What all ways have passed. One that is far behind counts no more.
    fn slowest(&mut self) -> Option<Psn> {
        if self.passed.is_none() {
            let psns = self.newest.iter().map(|(_, psn)| *psn);
            let newest = psns.reduce(|a, b| if a.before(b) { b } else { a })?;
            self.newest.retain(|(_, psn)| newest.distance(*psn) <= BEHIND);
            self.passed = self.newest.iter().map(|(_, psn)| *psn).reduce(earlier);
        }
        self.passed
    }

    /// The newest PSN of its way before the packet that came last, if that one is newer.
    pub fn before(&self) -> Option<Psn> {
        self.before
    }

    /// Has a later packet come by the way of this one, which has come?
    pub fn has_passed(&self, psn: Psn) -> bool {
        self.newest.iter().all(|(_, newest)| *newest != psn)
    }

    /// From which PSN to before which everything that has not come is lost, as all ways have passed it. Each is answered once.
    pub fn news(&mut self, expected: Psn) -> Option<(Psn, Psn)> {
        if self.since < SETTLED {
            return None;
        }
        let passed = self.slowest()?;
        let from = match self.told {
            Some(told) if expected.before(told) => told,
            _ => expected,
        };
        if !from.before(passed) {
            return None;
        }
        self.told = Some(passed);
        Some((from, passed))
    }
}

/// The peer takes requests that come by several ways.
#[cold]
#[inline(never)]
pub(super) fn begin(qp: &mut Qp, shared: &Shared) {
    let known = qp.trouble.as_ref().is_some_and(|t| t.spread.is_some());
    if !known && let Some(ways) = several(qp, shared) {
        let trouble = qp.trouble.get_or_insert_default();
        ensure(&shared.spreads, &mut trouble.spread, || {
            Box::new(Spread::new(ways))
        });
    }
}

/// The ways that its packets may take, if they are several.
pub(super) fn several(qp: &Qp, shared: &Shared) -> Option<usize> {
    let ways = shared.congestion.zero_touch.ways();
    let has_ports = qp.path.as_ref().is_some_and(|path| path.source_port != 0);
    (ways > 1 && has_ports && !shared.pin_source_port && qp.is_selective(shared)).then_some(ways)
}

/// What people see of the ways of its requests.
pub(super) fn ways(qp: &Qp, now: Instant) -> [Option<WayStatus>; WAYS_MAX] {
    let spread = qp.trouble.as_ref().and_then(|t| t.spread.as_deref());
    status(spread, qp, now)
}

/// What people see of some ways of a queue pair's.
pub(super) fn status(spread: Option<&Spread>, qp: &Qp, now: Instant) -> [Option<WayStatus>; WAYS_MAX] {
    let (Some(spread), Some(path)) = (spread, &qp.path) else {
        return [None; WAYS_MAX];
    };
    core::array::from_fn(|i| {
        let way = spread.ways[..spread.count].get(i)?;
        Some(WayStatus {
            source_port: multipath_port(path.source_port, i),
            under_way: way.under_way,
            rests: !way.may(now),
        })
    })
}

/// A path by this way.
#[inline(never)]
pub(super) fn by(path: &Path, way: usize) -> Path {
    Path {
        source_port: multipath_port(path.source_port, way),
        ..*path
    }
}

pub(super) fn of(qp: &mut Qp) -> Option<&mut Spread> {
    qp.trouble.as_mut()?.spread.as_deref_mut()
}

/// The way of the next packet, of this request; none where there is one way only. No: it waits for what is under way.
#[inline(never)]
pub(super) fn next_way(qp: &Qp, shared: &mut Shared, now: Instant, slot: u32) -> Result<Option<usize>, ()> {
    let spread = qp.trouble.as_ref().and_then(|t| t.spread.as_deref());
    let (Some(spread), Some(wqe)) = (spread, shared.sends.get(slot)) else {
        return Ok(None);
    };
    let psn = qp.requester.next_psn();
    let first = spread.first(now);
    if psn.before(qp.requester.end) {
        return Ok(Some(first));
    }
    let near = psn.distance(qp.requester.oldest) < SPAN as i32;
    if near && lands_ahead(wqe, psn) {
        return Ok(Some(spread.next(now)));
    }
    if spread.others_busy(first) {
        shared.marks.hit(Mark::SpreadWaited);
        return Err(());
    }
    Ok(Some(first))
}

/// May this packet of a request land before others?
pub(super) fn lands_ahead(wqe: &SendWqe, psn: Psn) -> bool {
    match wqe.wr.op {
        SendOp::Write { .. } => true,
        SendOp::WriteImm { .. } => psn.before(wqe.last()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Instant = Instant(1_000_000_000);

    #[test]
    fn the_emptiest_way_is_taken() {
        let mut spread = Spread::new(3);
        let mut taken = [0; 3];
        for i in 0..6 * BURST {
            let way = spread.next(AT);
            spread.transmitted(AT, Psn::new(i), way, false);
            taken[way] += 1;
        }
        assert_eq!(taken, [2 * BURST; 3]);
        // What one carries, it gets again.
        for psn in (0..6 * BURST).map(Psn::new) {
            if spread.way_of(psn) == 1 {
                spread.came(psn);
            }
        }
        for i in 6 * BURST..8 * BURST {
            assert_eq!(spread.next(AT), 1);
            // What is repeated meanwhile changes nothing.
            spread.transmitted(AT, Psn::new(0), 0, true);
            spread.transmitted(AT, Psn::new(i), 1, false);
        }
        assert!(spread.others_busy(1));
        spread.passed(Psn::new(0), Psn::new(8 * BURST));
        assert!(!spread.others_busy(1) && !spread.others_busy(0));
    }

    #[test]
    fn a_silent_way_rests_and_is_tried() {
        let mut spread = Spread::new(2);
        spread.transmitted(AT, Psn::new(0), 0, false);
        assert!(spread.rest(AT, Psn::new(0)));
        assert!(!spread.rest(AT, Psn::new(0)), "it rests already");
        assert_eq!((spread.first(AT), spread.emptiest(AT)), (1, 1));
        // Repeated by the other way, of which something is heard.
        spread.transmitted(AT, Psn::new(0), 1, true);
        spread.came(Psn::new(0));
        spread.transmitted(AT, Psn::new(2), 1, false);
        let later = AT + REST;
        assert_eq!(spread.emptiest(later), 0);
        spread.transmitted(later, Psn::new(1), 0, false);
        assert_eq!(spread.emptiest(later + REST), 1, "twice as long");
        assert_eq!(spread.first(later + 2 * REST), 0);
        spread.came(Psn::new(1));
        assert_eq!(spread.first(later), 0);
    }

    #[test]
    fn what_all_ports_have_passed_is_lost() {
        let mut ports = Ports::default();
        ports.came(0xc000, Psn::new(5));
        ports.came(0xc002, Psn::new(3));
        assert_eq!(ports.news(Psn::new(3)), None, "the second port may bring 4");
        ports.came(0xc002, Psn::new(8));
        assert_eq!(ports.news(Psn::new(4)), None, "a third one may");
        // (An older one, often.)
        (1..SETTLED).for_each(|_| ports.came(0xc000, Psn::new(5)));
        assert_eq!(ports.news(Psn::new(4)), Some((Psn::new(4), Psn::new(5))));
        assert_eq!(ports.news(Psn::new(4)), None, "once");
        // A port that is far behind counts no more.
        ports.came(0xc000, Psn::new(5 + 600));
        assert_eq!(ports.news(Psn::new(4)), Some((Psn::new(5), Psn::new(605))));
    }
}
