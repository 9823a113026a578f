//! Pairs of queue pairs: which one of the guest's talks to which one of a peer's.
//!
//! A packet names the queue pair that it goes to, not the one that it comes from. The sequence number ties the two directions
//! of a connection together: an answer has that of its request. So an answer to a queue pair shows its sender, if exactly one
//! queue pair of that address has had a request with its number lately, between the same addresses. With none or several
//! nothing is learned.

use core::time::Duration;

use vnic_wire::gid::Gid;
use vnic_wire::psn::Psn;
use vnic_wire::time::Instant;

use super::recent::Recent;

/// Most queue pairs that are remembered.
pub const KNOWN: usize = 2048;
/// Most requests that an answer may be behind.
const WINDOW: i32 = 1 << 14;
/// Time that a look at one more queue pair counts as.
const LOOK: Duration = Duration::from_nanos(200);
/// Most looks in a row: a sender that makes us search gets no more of our time.
const LOOKS: u64 = 4 * KNOWN as u64;

/// End of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// The guest's end.
    Own,
    /// The other end.
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
    /// The peer's address.
    pub peer: Gid,
    /// The end that has the queue pair.
    pub side: Side,
    /// The queue pair.
    pub qp: u32,
}

impl End {
    fn with(self, side: Side, qp: u32) -> End {
        End { side, qp, ..self }
    }
}

/// Facts about a queue pair.
#[derive(Debug, Clone, Copy, Default)]
pub struct Known {
    /// Sequence numbers of requests that came: the first of this run, and the last.
    requests: Option<(Psn, Psn)>,
    /// Queue pair at the other end.
    pub mate: Option<u32>,
    /// Priority of the last packet to the queue pair.
    pub priority: u8,
    /// Payload of the longest packet to the queue pair, and the size of that packet on the wire.
    pub largest: (u32, u32),
    /// Whether the guest has sent it a notification: it does that itself then.
    pub notified: bool,
}

impl Known {
    /// A request with a number came.
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

    /// Whether an answer with this number may be for one of the requests.
    fn answers(&self, psn: Psn) -> bool {
        let within = |(first, last): (Psn, Psn)| !psn.before(first) && !last.before(psn);
        self.requests.is_some_and(within)
    }
}

/// The queue pairs that a proxy remembers.
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
    /// Facts about a queue pair.
    pub fn get(&self, end: &End) -> Option<&Known> {
        self.known.get(end)
    }

    /// Queue pairs that are remembered.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether the guest has sent anything from one address to the other.
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

    /// A request to this queue pair is on its way.
    pub fn request(&mut self, end: End, psn: Psn) {
        if let Some(known) = self.seen(end) {
            known.requested(psn);
        }
    }

    /// An answer to this queue pair is on its way: finds its sender.
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
