//! Which transmissions of requests have come and which are lost.

use alloc::boxed::Box;

use vnic_wire::psn::Psn;
use vnic_wire::sack::{self, SPAN};

use super::super::spread::{Spread, WAYS_MAX};
use super::bits::{Bits, earlier, pieces, psns};
use super::seats::Seated;

/// Requests of which some are missing at the peer.
#[derive(Debug)]
pub(in super::super) struct Repair {
    /// What has come, from the oldest that is missing on.
    pub(super) came: Bits<{ sack::WORDS }>,
    /// What is to be sent again.
    pub(super) due: Bits<{ sack::WORDS }>,
    /// PSNs in `due`.
    pub(super) count: u32,
    /// Number of each PSN's newest transmission.
    pub(super) sent: [u32; SPAN as usize],
    /// What was sent more than once: an answer may be to either (Karn).
    pub(super) twice: Bits<{ sack::WORDS }>,
    /// One beyond the highest PSN that was sent.
    pub(super) end: Psn,
    /// Number of the next transmission.
    pub(super) next: u32,
    /// One beyond the newest transmission that has come, by way.
    pub(super) heard: [u32; WAYS_MAX],
    /// The oldest that is missing.
    pub(super) base: Psn,
    /// Losses before this PSN are those that congestion control knows.
    pub(super) until: Option<Psn>,
    /// Packets were sent again, and the last one of the window not behind them.
    pub(super) unproved: bool,
    /// Slot of the request that was sent again last, and a PSN of it.
    pub(super) hint: Option<(u32, Psn)>,
}

fn place(psn: Psn) -> usize {
    (psn.value() % SPAN) as usize
}

/// The ways that a queue pair with this window knows of.
pub(super) fn ways(spread: &Option<Seated<Spread>>, window: u32) -> Ways<'_> {
    Ways {
        spread: spread.as_deref(),
        reach: window.min(SPAN) / 4,
    }
}

impl Repair {
    /// Begins with what is in the network: `oldest` to before `end`, of which those before `again` were sent a second time.
    pub fn new(oldest: Psn, again: Psn, end: Psn) -> Box<Repair> {
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
    pub(super) fn overtaken(&self, psn: Psn, ways: Ways<'_>) -> Option<Overtaken> {
        let way = ways.of(psn);
        if self.older(psn, way) > 0 {
            return Some(Overtaken::OnItsWay);
        }
        let silent = ways.spread.is_some_and(|spread| spread.silence(psn) > ways.reach);
        let far = silent && (0..WAYS_MAX).any(|other| self.older(psn, other) > ways.reach);
        far.then_some(Overtaken::ByOthers)
    }

    /// A transmission of this PSN has come: the only one, by this way.
    pub(super) fn came_of(&mut self, psn: Psn, way: usize) {
        if !self.twice.has(psn) {
            self.heard_of(psn, way);
        }
    }

    /// Some transmission of this PSN has come, and all took one way. Of several nobody knows which it was, but what was sent once that
    /// way, and has an earlier PSN, was sent before all of them.
    pub(super) fn some_came_of(&mut self, psn: Psn, ways: Ways<'_>) {
        let way = ways.of(psn);
        if !self.twice.has(psn) {
            return self.heard_of(psn, way);
        }
        let mut before = (1..=psn.distance(self.base).max(0) as u32).map(|i| psn.sub(i));
        if let Some(once) = before.find(|psn| !self.twice.has(*psn) && ways.of(*psn) == way) {
            let beyond = self.sent[place(once)].wrapping_add(2);
            let heard = &mut self.heard[way];
            if (beyond.wrapping_sub(*heard) as i32) > 0 {
                *heard = beyond;
            }
        }
    }

    /// The newest transmission of this PSN has come, by this way.
    pub(super) fn heard_of(&mut self, psn: Psn, way: usize) {
        let beyond = self.sent[place(psn)].wrapping_add(1);
        let heard = &mut self.heard[way];
        if (beyond.wrapping_sub(*heard) as i32) > 0 {
            *heard = beyond;
        }
    }

    /// Of 64 PSNs from one on these need not be sent again.
    pub(super) fn forget_due(&mut self, psn: Psn, bits: u64) {
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
    pub(super) fn ends_search(&self, psn: Psn) -> bool {
        !self.twice.has(psn) && (0..WAYS_MAX).all(|way| self.older(psn, way) == 0)
    }
}

/// How a packet was overtaken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Overtaken {
    /// By one that took the same way.
    OnItsWay,
    /// By so many that took others.
    ByOthers,
}

/// The ways that packets took.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Ways<'a> {
    spread: Option<&'a Spread>,
    /// So many transmissions may overtake one that took another way, and so many may come while none does by its own.
    reach: u32,
}

impl Ways<'_> {
    pub fn is_one(self) -> bool {
        self.spread.is_none()
    }

    pub fn of(self, psn: Psn) -> usize {
        self.spread.map_or(0, |spread| spread.way_of(psn))
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::super::bits::tests::random;
    use super::*;

    /// What is found to be lost, looking at each packet by itself.
    fn lost(repair: &Repair, base: Psn, end: Psn) -> Vec<Psn> {
        let all = (0..end.distance(base) as u32).map(|i| base.add(i));
        let ways = ways(&None, SPAN);
        all.filter(|psn| !repair.came.has(*psn) && repair.overtaken(*psn, ways).is_some())
            .collect()
    }

    #[test]
    fn any_copy_overtakes_what_was_sent_once_before_the_first() {
        let psn = |n| Psn::new(n);
        let one_way = ways(&None, SPAN);
        let begin = || {
            let mut repair = Repair::new(psn(0), psn(4), psn(4));
            [0, 3]
                .map(psn)
                .into_iter()
                .for_each(|again| repair.transmitted(again));
            repair
        };
        let mut repair = begin();
        repair.came_of(psn(3), 0);
        assert_eq!(lost(&repair, psn(0), psn(4)), [], "a copy, nobody knows which");
        repair.some_came_of(psn(3), one_way);
        assert_eq!(lost(&repair, psn(0), psn(4)), [psn(1), psn(2)]);
        // What is before the oldest that is missing is not looked at.
        let mut repair = begin();
        repair.base = psn(3);
        repair.some_came_of(psn(3), one_way);
        assert_eq!(lost(&repair, psn(0), psn(4)), []);
        repair.some_came_of(psn(2), one_way);
        assert_eq!(lost(&repair, psn(0), psn(4)), [psn(1)]);
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
