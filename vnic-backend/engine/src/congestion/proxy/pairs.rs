//! Which queue pair of the guest talks to which one of a peer.
//!
//! A packet names the queue pair that it goes to, not the one that it comes from. What ties the two directions of a connection
//! together is the sequence number: an answer has that of the request that it answers. So an answer to a queue pair tells who
//! it comes from, if exactly one queue pair of its sender has had a request with its number lately, between the same addresses.
//! With none or several nothing is learned.

use core::time::Duration;

use vnic_wire::gid::Gid;
use vnic_wire::psn::Psn;
use vnic_wire::time::Instant;

use super::recent::Recent;

/// Queue pairs that are remembered.
pub const KNOWN: usize = 2048;
/// How far back an answer may be.
const WINDOW: i32 = 1 << 14;
/// Looking at one more queue pair for an answer costs so much time,
const LOOK: Duration = Duration::from_nanos(200);
/// and so many can be looked at one after the other: whoever makes us search gets no more of us than that.
const LOOKS: u64 = 4 * KNOWN as u64;

/// Whose queue pair it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// The guest's.
    Own,
    /// The other end's.
    Peer,
}

impl Side {
    fn other(self) -> Side {
        match self {
            Side::Own => Side::Peer,
            Side::Peer => Side::Own,
        }
    }
}

/// A queue pair, of one end of a connection between two addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct End {
    /// The guest's address.
    pub own: Gid,
    /// The other one.
    pub peer: Gid,
    /// Whose it is.
    pub side: Side,
    /// The queue pair.
    pub qp: u32,
}

impl End {
    fn with(self, side: Side, qp: u32) -> End {
        End { side, qp, ..self }
    }
}

/// What is known of one.
#[derive(Debug, Clone, Copy, Default)]
pub struct Known {
    /// Sequence numbers of requests that it got: the first of this run, and the last.
    requests: Option<(Psn, Psn)>,
    /// The queue pair at the other end.
    pub mate: Option<u32>,
    /// Priority of the last packet to it.
    pub priority: u8,
    /// Payload of the longest packet to it, and that packet on the wire.
    pub largest: (u32, u32),
    /// The guest has sent it a notification: it does that itself.
    pub notified: bool,
}

impl Known {
    /// A request came.
    fn requested(&mut self, psn: Psn) {
        self.requests = match self.requests {
            Some((first, last)) if psn.distance(last).abs() <= WINDOW => {
                let last = if last.before(psn) { psn } else { last };
                let first = if last.distance(first) > WINDOW {
                    last.sub(WINDOW as u32)
                } else {
                    first
                };
                Some((first, last))
            }
            // Another connection, or one that has sent elsewhere in between.
            _ => Some((psn, psn)),
        };
    }

    /// May this be the number of an answer to one of them?
    fn answers(&self, psn: Psn) -> bool {
        let within = |(first, last): (Psn, Psn)| !psn.before(first) && !last.before(psn);
        self.requests.is_some_and(within)
    }
}

/// See the module.
#[derive(Debug)]
pub struct Pairs {
    known: Recent<End, Known>,
    looks: u64,
    looked: Instant,
}

impl Default for Pairs {
    fn default() -> Pairs {
        Pairs {
            known: Recent::new(KNOWN),
            looks: LOOKS,
            looked: Instant(0),
        }
    }
}

impl Pairs {
    /// Of one queue pair.
    pub fn get(&self, end: &End) -> Option<&Known> {
        self.known.get(end)
    }

    /// Queue pairs that are remembered.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Has the guest sent anything from one address to the other?
    pub fn talks(&self, own: Gid, peer: Gid) -> bool {
        let end = End {
            own,
            peer,
            side: Side::Peer,
            qp: 0,
        };
        let all = end..=end.with(Side::Peer, u32::MAX);
        self.known.range(all).next().is_some()
    }

    /// A packet to this queue pair is on its way.
    pub fn seen(&mut self, end: End) -> Option<&mut Known> {
        if self.known.place(&end).is_none() {
            self.known.insert(end, Known::default(), |_| true);
        }
        self.known.touch(&end)
    }

    /// A request.
    pub fn request(&mut self, end: End, psn: Psn) {
        if let Some(known) = self.seen(end) {
            known.requested(psn);
        }
    }

    /// An answer: who sends it?
    pub fn answer(&mut self, now: Instant, end: End, psn: Psn) {
        let side = end.side.other();
        if let Some(mate) = self.get(&end).and_then(|k| k.mate)
            && let Some(known) = self.known.get(&end.with(side, mate))
            && known.mate == Some(end.qp)
            && known.answers(psn)
        {
            return;
        }
        let earned = now.since(self.looked).as_nanos() as u64 / LOOK.as_nanos() as u64;
        if earned > 0 {
            (self.looks, self.looked) = ((self.looks.saturating_add(earned)).min(LOOKS), now);
        }
        let all = end.with(side, 0)..=end.with(side, u32::MAX);
        let mut found = None;
        for (other, known) in self.known.range(all) {
            let Some(left) = self.looks.checked_sub(1) else {
                return;
            };
            self.looks = left;
            if known.answers(psn) {
                if found.is_some() {
                    return;
                }
                found = Some(other.qp);
            }
        }
        if let Some(mate) = found {
            self.pair(end, mate);
            self.pair(end.with(side, mate), end.qp);
        }
    }

    fn pair(&mut self, end: End, mate: u32) {
        if let Some(known) = self.seen(end) {
            known.mate = Some(mate);
        }
    }
}
