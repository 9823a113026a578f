//! Regions whose pages are given when somebody asks for them (on-demand paging), and who waits for them.
//!
//! Such a region has addresses and, at first, no memory. An access that finds a page missing is not carried out: the queue pair
//! waits (a requester) or tells its peer to (RNR NAK), the driver hears of it ([`Event::PageFault`]), and gives the pages or
//! refuses them by [`Device::set_pages`](super::Device::set_pages), which also takes pages away.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use vnic_wire::aeth;

use super::shared::Shared;
use super::types::{Event, MrHandle, QpNumber, Span};

/// Bytes of what faults are told in.
pub const PAGE: u64 = 4096;
/// An access that waits asks again after so many attempts: its first question may have been lost.
const ASK_AGAIN: u32 = 16;
/// Most pieces of a region: to give one goes through them, in one step.
pub(super) const PIECES_MAX: u32 = 1 << 16;
/// Most accesses whose pages are asked for at a time: to give some goes through them. Others ask when they try again.
const WAITING_MAX: usize = 4096;
/// Pieces that are looked at before a message begins, so that one question is for all of it.
const AHEAD: usize = 64;
/// An access to pages that are held back tries again after so long.
pub(super) const HELD: Duration = Duration::from_micros(100);
/// A request whose pages were asked for is looked at again after so long, if nothing comes.
pub(super) const ASKED: Duration = Duration::from_millis(10);
/// What a peer is told to wait at least, as the code of an RNR NAK: 1.28 ms. So long a driver may take for a page.
pub(super) const PEER_WAITS: u8 = 14;

/// Says whether the driver holds the pages of a region back: while it does, none of them is used.
pub struct Hold(Box<dyn Fn() -> bool + Send>);

impl Hold {
    /// One that asks each time.
    pub fn new(is_held: impl Fn() -> bool + Send + 'static) -> Hold {
        Hold(Box::new(is_held))
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hold")
    }
}

impl PartialEq for Hold {
    fn eq(&self, other: &Hold) -> bool {
        core::ptr::eq(&raw const *self.0, &raw const *other.0)
    }
}

impl Eq for Hold {}

/// The pages that a region has.
#[derive(Debug, PartialEq, Eq)]
pub struct Pages {
    /// In the order of their bytes; none overlap.
    pieces: Vec<Piece>,
    hold: Hold,
}

/// Bytes of a region that are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Piece {
    /// First byte in the region, and the one behind the last.
    start: u64,
    end: u64,
    /// Where the first byte is.
    at: u64,
    /// Whether it may be written.
    write: bool,
}

impl Piece {
    /// What is left of it within a range.
    fn within(&self, start: u64, end: u64) -> Option<Piece> {
        let (from, to) = (self.start.max(start), self.end.min(end));
        (from < to).then(|| Piece {
            start: from,
            end: to,
            at: self.at + (from - self.start),
            ..*self
        })
    }

    fn span(&self) -> Span {
        Span {
            at: self.at,
            len: self.end - self.start,
        }
    }
}

/// A page that was missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Missing {
    pub mr: MrHandle,
    /// First byte that is missing, and the one behind the last that is wanted.
    pub start: u64,
    pub end: u64,
    pub write: bool,
    /// The pages are held back: there is nobody to ask.
    pub held: bool,
}

impl Pages {
    /// None yet.
    pub fn new(hold: Hold) -> Pages {
        Pages {
            pieces: Vec::new(),
            hold,
        }
    }

    /// Entries of the translation table that they take.
    pub fn count(&self) -> u32 {
        self.pieces.len() as u32
    }

    /// Shows the memory of a range to `out`; `write`: it will be written. `Err`: the first byte that is missing, and whether all
    /// is held back.
    pub fn collect(
        &self,
        start: u64,
        end: u64,
        write: bool,
        mut out: impl FnMut(Span),
    ) -> Result<(), (u64, bool)> {
        if (self.hold.0)() {
            return Err((start, true));
        }
        let mut at = start;
        for part in self.parts(start, end, write) {
            out(part.span());
            at = part.end;
        }
        if at < end { Err((at, false)) } else { Ok(()) }
    }

    /// The place of a range that is there in one piece, to be written if `write`.
    #[inline(never)]
    pub fn place(&self, start: u64, end: u64, write: bool) -> Option<u64> {
        if (self.hold.0)() {
            return None;
        }
        let first = self.parts(start, end, write).next();
        first.filter(|part| part.end == end).map(|part| part.at)
    }

    /// As [`collect`](Pages::collect), of the first [`AHEAD`] pieces: what is missing behind them shows when it is used.
    pub fn look_ahead(&self, start: u64, end: u64, write: bool) -> Result<(), (u64, bool)> {
        if (self.hold.0)() {
            return Err((start, true));
        }
        let (mut at, mut looked) = (start, 0);
        for part in self.parts(start, end, write).take(AHEAD) {
            looked += 1;
            at = part.end;
        }
        if at < end && looked < AHEAD {
            Err((at, false))
        } else {
            Ok(())
        }
    }

    /// The pieces of a range, up to the first byte that is missing.
    fn parts(&self, start: u64, end: u64, write: bool) -> impl Iterator<Item = Piece> {
        let first = self.pieces.partition_point(|piece| piece.end <= start);
        let mut at = start;
        self.pieces[first..].iter().map_while(move |piece| {
            if at >= end || piece.start > at || (write && !piece.write) {
                return None;
            }
            let part = piece.within(at, end)?;
            at = part.end;
            Some(part)
        })
    }

    /// Entries that there will be, at most, when a range was replaced by so many pieces.
    pub fn count_with(&self, pieces: u32) -> u32 {
        self.count().saturating_add(pieces).saturating_add(1)
    }

    /// Replaces what is there of a range that begins at `start`, by nothing or by memory.
    pub fn replace(&mut self, start: u64, end: u64, memory: impl IntoIterator<Item = Span>, write: bool) {
        let first = self.pieces.partition_point(|piece| piece.end <= start);
        let last = self.pieces.partition_point(|piece| piece.start < end);
        let before = self.pieces[first..last].iter().find_map(|p| p.within(0, start));
        let after = self.pieces[first..last]
            .iter()
            .find_map(|p| p.within(end, u64::MAX));
        let mut at = start;
        let new = memory.into_iter().map(|span| {
            let from = at;
            at += span.len;
            Piece {
                start: from,
                end: at,
                at: span.at,
                write,
            }
        });
        let all: Vec<Piece> = before.into_iter().chain(new).chain(after).collect();
        self.pieces.splice(first..last, all);
        self.join(first.saturating_sub(1));
    }

    /// Joins pieces that continue each other, from one on.
    fn join(&mut self, from: usize) {
        let mut kept = from;
        for i in from + 1..self.pieces.len() {
            let (one, next) = (self.pieces[kept], self.pieces[i]);
            let continues = (next.start, next.at) == (one.end, one.at + one.span().len);
            if continues && one.write == next.write {
                self.pieces[kept].end = next.end;
            } else {
                kept += 1;
                self.pieces[kept] = next;
            }
        }
        self.pieces.truncate(kept + 1);
    }

    /// Forgets pieces whose memory is not there any more, of at most `most` from byte `from` on. Returns how many were looked at,
    /// and the byte to go on from.
    pub fn lose(&mut self, from: u64, most: usize, is_there: impl Fn(Span) -> bool) -> (usize, Option<u64>) {
        let first = self.pieces.partition_point(|piece| piece.start < from);
        let last = self.pieces.len().min(first.saturating_add(most));
        let next = self.pieces.get(last).map(|piece| piece.start);
        let kept: Vec<Piece> = self.pieces[first..last]
            .iter()
            .filter(|piece| is_there(piece.span()))
            .copied()
            .collect();
        self.pieces.splice(first..last, kept);
        (last - first, next)
    }
}

/// The half of a queue pair that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Half {
    Requester,
    Responder,
}

/// What an access that found a page missing has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Try again later.
    Wait,
    /// The page will not come.
    Refused,
}

/// An access that waits for pages.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    missing: Missing,
    refused: bool,
    attempts: u32,
}

/// Pages that accesses to a region wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageFault {
    /// The region.
    pub mr: MrHandle,
    /// First of its pages that is wanted, in pages of 4096 bytes from its first byte.
    pub first: u64,
    /// Pages that are wanted.
    pub pages: u64,
    /// Whether they are to be written.
    pub write: bool,
}

/// All accesses that wait for pages: of each half of a queue pair the last one. And what of it the driver has to be told, in the order
/// of the events.
#[derive(Debug, Default)]
pub(super) struct Faults {
    waiting: BTreeMap<(QpNumber, Half), Waiting>,
    pub told: VecDeque<PageFault>,
}

impl Faults {
    /// An access found a page missing. Also says whether the driver is to be asked, and whether that is for the first time.
    pub fn found(&mut self, qp: QpNumber, half: Half, missing: Missing) -> (Verdict, Option<bool>) {
        if missing.held {
            return (Verdict::Wait, None);
        }
        if let Some(waiting) = self.waiting.get_mut(&(qp, half))
            && (waiting.missing.mr, waiting.missing.start) == (missing.mr, missing.start)
        {
            if waiting.refused {
                self.waiting.remove(&(qp, half));
                return (Verdict::Refused, None);
            }
            waiting.attempts += 1;
            let again = waiting.attempts.is_multiple_of(ASK_AGAIN);
            return (Verdict::Wait, again.then_some(false));
        }
        if self.waiting.len() >= WAITING_MAX && !self.waiting.contains_key(&(qp, half)) {
            return (Verdict::Wait, None);
        }
        let waiting = Waiting {
            missing,
            refused: false,
            attempts: 0,
        };
        self.waiting.insert((qp, half), waiting);
        (Verdict::Wait, Some(true))
    }

    /// Accesses that wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Pages of a range came, or (`refused`) will not come. Names who waited for some of them.
    pub fn answered(&mut self, mr: MrHandle, start: u64, end: u64, refused: bool) -> Vec<(QpNumber, Half)> {
        let mut who = Vec::new();
        self.waiting.retain(|waits, w| {
            let meant = w.missing.mr == mr && w.missing.start < end && start < w.missing.end;
            if meant {
                who.push(*waits);
                w.refused = refused;
            }
            !meant || refused
        });
        who
    }

    /// A queue pair waits for nothing any more.
    pub fn forget(&mut self, qp: QpNumber) {
        for half in [Half::Requester, Half::Responder] {
            self.waiting.remove(&(qp, half));
        }
    }
}

/// The longer one of a QP's RNR timer and [`PEER_WAITS`].
pub(super) fn rnr_timer(own: u8) -> u8 {
    match aeth::rnr_timer(own) < aeth::rnr_timer(PEER_WAITS) {
        true => PEER_WAITS,
        false => own,
    }
}

impl Shared {
    /// An access found a page missing: asks the driver for it.
    #[cold]
    pub(super) fn page_fault(&mut self, qp: QpNumber, half: Half, missing: Missing) -> Verdict {
        let (verdict, ask) = self.faults.found(qp, half, missing);
        if let Some(first_time) = ask {
            self.counters.page_faults += u64::from(first_time);
            let first = missing.start / PAGE;
            self.faults.told.push_back(PageFault {
                mr: missing.mr,
                first,
                pages: (missing.end - 1) / PAGE - first + 1,
                write: missing.write,
            });
            self.event(Event::PageFault(missing.mr));
        }
        verdict
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn span(at: u64, len: u64) -> Span {
        Span { at, len }
    }

    fn there(pages: &Pages, start: u64, end: u64, write: bool) -> Result<Vec<Span>, (u64, bool)> {
        let mut spans = Vec::new();
        pages
            .collect(start, end, write, |s| spans.push(s))
            .map(|()| spans)
    }

    #[test]
    fn pages_come_and_go() {
        let mut pages = Pages::new(Hold::new(|| false));
        assert_eq!(there(&pages, 0, 1, false), Err((0, false)));
        pages.replace(4096, 8192, [span(0x1_0000, 4096)], true);
        pages.replace(8192, 12288, [span(0x1_1000, 4096)], true);
        assert_eq!(pages.count(), 1, "neighbours are one");
        assert_eq!(
            there(&pages, 5000, 9000, true),
            Ok(vec![span(0x1_0000 + 904, 4000)])
        );
        assert_eq!(there(&pages, 0, 9000, false), Err((0, false)));
        assert_eq!(there(&pages, 5000, 12289, false), Err((12288, false)));
        // A page in the middle goes, and another one that is read only comes.
        pages.replace(6000, 7000, [], false);
        assert_eq!(there(&pages, 5000, 9000, true), Err((6000, false)));
        pages.replace(6000, 7000, [span(0x9_0000, 1000)], false);
        assert_eq!(pages.count(), 3);
        assert_eq!(there(&pages, 5999, 7001, false).map(|s| s.len()), Ok(3));
        assert_eq!(there(&pages, 5000, 9000, true), Err((6000, false)));
        // All of it is replaced.
        pages.replace(0, 1 << 20, [span(0, 1 << 20)], true);
        assert_eq!(
            (pages.count(), there(&pages, 0, 1 << 20, true)),
            (1, Ok(vec![span(0, 1 << 20)]))
        );
        // Memory goes, some pieces at a time.
        for page in [7, 5, 3, 1] {
            pages.replace(page << 12, (page + 1) << 12, [span(page << 20, 4096)], true);
        }
        assert_eq!(pages.count(), 9);
        assert_eq!(pages.lose(0, 4, |s| s.at != 3 << 20), (4, Some(4 << 12)));
        assert_eq!(
            (pages.count(), there(&pages, 3 << 12, 4 << 12, false)),
            (8, Err((3 << 12, false)))
        );
        assert_eq!(pages.lose(4 << 12, 100, |_| false), (5, None));
        assert_eq!((pages.count(), pages.lose(0, 100, |_| false)), (3, (3, None)));
        assert_eq!(pages.count(), 0);
    }

    #[test]
    fn a_look_ahead_is_bounded() {
        let mut pages = Pages::new(Hold::new(|| false));
        for i in 0..2 * AHEAD as u64 {
            pages.replace(i * 10, i * 10 + 10, [span(i * 1000, 10)], true);
        }
        let end = 20 * AHEAD as u64;
        pages.replace(15, 16, [], false);
        assert_eq!(pages.look_ahead(0, end, true), Err((15, false)));
        assert_eq!(pages.look_ahead(20, end, true), Ok(()));
        assert_eq!(pages.look_ahead(20, end + 10, true), Ok(()), "too far off");
        assert_eq!(pages.look_ahead(end - 20, end + 10, true), Err((end, false)));
    }

    #[test]
    fn what_is_held_back_is_not_there() {
        use alloc::sync::Arc;
        use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
        let held = Arc::new(AtomicBool::new(true));
        let theirs = Arc::clone(&held);
        let mut pages = Pages::new(Hold::new(move || theirs.load(Relaxed)));
        pages.replace(0, 100, [span(7, 100)], true);
        assert_eq!(there(&pages, 5, 6, false), Err((5, true)));
        held.store(false, Relaxed);
        assert_eq!(there(&pages, 5, 6, false), Ok(vec![span(12, 1)]));
    }

    #[test]
    fn an_access_asks_once_and_hears_no_once() {
        let mut faults = Faults::default();
        let missing = |start, held| Missing {
            mr: MrHandle(3),
            start,
            end: start + 100,
            write: false,
            held,
        };
        let (a, b) = (QpNumber(1), QpNumber(2));
        let mut ask = |qp, half, start, held| faults.found(qp, half, missing(start, held));
        assert_eq!(ask(a, Half::Requester, 0, true), (Verdict::Wait, None));
        assert_eq!(ask(a, Half::Requester, 0, false), (Verdict::Wait, Some(true)));
        assert_eq!(ask(a, Half::Responder, 0, false), (Verdict::Wait, Some(true)));
        assert_eq!(ask(b, Half::Requester, 500, false), (Verdict::Wait, Some(true)));
        let again: Vec<_> = (0..ASK_AGAIN)
            .map(|_| ask(a, Half::Requester, 0, false).1)
            .collect();
        assert_eq!(again.iter().flatten().count(), 1);
        assert_eq!(faults.answered(MrHandle(4), 0, 1000, true), []);
        let both = [(a, Half::Requester), (a, Half::Responder)];
        assert_eq!(faults.answered(MrHandle(3), 90, 200, true), both);
        assert_eq!(
            faults.found(a, Half::Requester, missing(0, false)),
            (Verdict::Refused, None)
        );
        assert_eq!(
            faults.found(a, Half::Requester, missing(0, false)).1,
            Some(true),
            "anew"
        );
        // So many wait at a time.
        let before = faults.len();
        let mut ask = |n| {
            faults
                .found(QpNumber(100 + n), Half::Requester, missing(9000, false))
                .1
        };
        let asked = (0..WAITING_MAX as u32).filter_map(&mut ask).count();
        assert_eq!(asked, WAITING_MAX - before);
        assert!(faults.answered(MrHandle(3), 9000, 9001, false).len() < WAITING_MAX);
        faults.forget(a);
        let other = [(b, Half::Requester)];
        assert_eq!(faults.answered(MrHandle(3), 0, u64::MAX, false), other);
        assert!(faults.waiting.is_empty());
    }
}
