//! What a recording notes of one driver: each work request with what the driver was told, and what peers' messages did here.
//! [`Recorder`] is what a function has of a recording; the control plane takes its journals when that ends, and compares them
//! (`nic::recording`).

mod recorder;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};

use vnic_device::queue::{CompletionKind, Operation};
use vnic_engine::rdma::{Completion, End, Landed, Note, SendFlags, SendWr, Status};
use vnic_fabric::Instant;
use vnic_wire::psn::Psn;

use crate::types::Caller;
pub use recorder::Recorder;

/// Part of the arrivals that is dropped at a time when there are too many.
const DROPPED_AT_ONCE: usize = 16;
/// Arrivals of a queue pair among which the message in progress is looked for: it is the newest but for answers to READs.
const NEWEST: usize = 64;

/// A work request.
#[derive(Debug, Clone)]
pub struct Row {
    /// The how manieth queue pair of the journal has it.
    pub pair: u32,
    /// Number of the queue pair.
    pub qp: u32,
    /// Id of the driver.
    pub wr_id: u64,
    tag: u32,
    /// Operation; `None`: it is a receive.
    pub operation: Option<Operation>,
    /// Bytes of the message, or those asked for; of a receive, those that it got.
    pub bytes: u64,
    /// Whether it has a completion in any case.
    pub signaled: bool,
    /// When it was posted. Of a receive: nothing.
    pub posted: Option<Instant>,
    /// What is known since its first packet.
    pub sent: Option<Sent>,
    /// How it ended for the engine.
    pub really: Option<Status>,
    /// Completion that the driver got.
    pub told: Option<(Status, Instant)>,
    /// Whether its queue pair was reset or destroyed before it had a completion.
    pub gone: bool,
}

/// What is known of a request since its first packet.
#[derive(Debug, Clone, Copy)]
pub struct Sent {
    /// Destination.
    pub to: End,
    /// First PSN.
    pub first: Psn,
    /// Number of PSNs.
    pub psns: u32,
    /// When it began.
    pub at: Instant,
}

/// A message that came, whole or not.
#[derive(Debug, Clone, Copy)]
pub struct Arrival {
    /// Queue pair that it came to.
    pub qp: u32,
    /// Requester.
    pub from: End,
    /// First PSN.
    pub first: Psn,
    /// Bytes that were written, read or changed.
    pub bytes: u64,
    /// Whether it came whole.
    pub whole: bool,
    /// Number in the journal of the receive that it took.
    pub receive: Option<u64>,
    /// When its newest packet came.
    pub at: Instant,
}

/// A queue pair of a journal.
#[derive(Debug, Default)]
struct Pair {
    number: u32,
    /// Requests without a completion, oldest first, by their numbers in the journal.
    sends: VecDeque<u64>,
    /// Receives that were taken and whose completion was not written yet.
    receives: VecDeque<u64>,
    /// The receive that the message whose last packet is being noted took.
    taken: Option<u64>,
}

/// What a recording noted of one driver.
#[derive(Debug)]
pub struct Journal {
    /// Process of the driver.
    pub owner: Option<Caller>,
    /// When the journal began.
    pub began: Instant,
    /// Requests, in the order in which they were posted; receives, when they were taken.
    pub rows: VecDeque<Row>,
    /// Number of the first of them.
    pub first: u64,
    /// Messages that came, by the queue pair of the journal.
    pub arrivals: BTreeMap<u32, VecDeque<Arrival>>,
    /// Notes that are missing for want of room.
    pub lost: u64,
    pairs: BTreeMap<u32, Pair>,
    next_pair: u32,
    /// Number of all arrivals.
    arrived: usize,
    limit: usize,
}

impl Journal {
    /// An empty journal with room for `limit` requests, and as many messages that came.
    pub fn new(limit: usize, owner: Option<Caller>, began: Instant) -> Journal {
        Journal {
            owner,
            began,
            rows: VecDeque::new(),
            first: 0,
            arrivals: BTreeMap::new(),
            lost: 0,
            pairs: BTreeMap::new(),
            next_pair: 0,
            arrived: 0,
            limit: limit.max(1),
        }
    }

    /// Whether nothing was noted.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.arrivals.is_empty()
    }

    /// Requests and messages that it has.
    pub fn len(&self) -> usize {
        self.rows.len() + self.arrived
    }

    /// The request of this number, if it was not dropped.
    pub fn row(&self, number: u64) -> Option<&Row> {
        let at = number.checked_sub(self.first)?;
        self.rows.get(usize::try_from(at).ok()?)
    }

    fn row_mut(rows: &mut VecDeque<Row>, first: u64, number: u64) -> Option<&mut Row> {
        let at = number.checked_sub(first)?;
        rows.get_mut(usize::try_from(at).ok()?)
    }

    fn pair(&mut self, qp: u32) -> &mut Pair {
        self.pairs.entry(qp).or_insert_with(|| {
            self.next_pair += 1;
            Pair {
                number: self.next_pair,
                ..Pair::default()
            }
        })
    }

    /// Adds a request, and drops the oldest one if there are too many. Returns its number.
    fn push(&mut self, row: Row) -> u64 {
        if self.rows.len() >= self.limit
            && let Some(old) = self.rows.pop_front()
        {
            let number = self.first;
            self.first += 1;
            if let Some(pair) = self.pairs.get_mut(&old.qp) {
                for queue in [&mut pair.sends, &mut pair.receives] {
                    queue.pop_front_if(|waits| *waits == number);
                }
            }
        }
        self.rows.push_back(row);
        self.first + self.rows.len() as u64 - 1
    }

    /// The driver has posted a request. `all`: its queue pair signals all.
    #[cold]
    pub fn posted(&mut self, qp: u32, wr: &SendWr, all: bool, now: Instant) {
        let pair = self.pair(qp).number;
        let number = self.push(Row {
            pair,
            qp,
            wr_id: wr.id,
            tag: wr.tag,
            operation: Some(wr.op.operation()),
            bytes: wr.bytes(),
            signaled: all || wr.flags.contains(SendFlags::SIGNALED),
            posted: Some(now),
            sent: None,
            really: None,
            told: None,
            gone: false,
        });
        self.pair(qp).sends.push_back(number);
    }

    /// Takes a note of the engine.
    pub fn take(&mut self, note: Note, now: Instant) {
        match note {
            Note::Begun {
                qp,
                tag,
                to,
                first,
                psns,
            } => {
                let Some(pair) = self.pairs.get(&qp.0) else { return };
                for number in pair.sends.iter().rev() {
                    if let Some(row) = Self::row_mut(&mut self.rows, self.first, *number)
                        && row.tag == tag
                    {
                        let at = now;
                        row.sent = Some(Sent { to, first, psns, at });
                        break;
                    }
                }
            }
            Note::Received { qp, id } => {
                let number = self.receive(qp.0, id, Status::Success, 0);
                let pair = self.pair(qp.0);
                pair.receives.push_back(number);
                pair.taken = Some(number);
            }
            Note::Landed(landed) => self.landed(&landed, now),
        }
    }

    fn receive(&mut self, qp: u32, id: u64, really: Status, bytes: u64) -> u64 {
        let pair = self.pair(qp).number;
        self.push(Row {
            pair,
            qp,
            wr_id: id,
            tag: 0,
            operation: None,
            bytes,
            signaled: true,
            posted: None,
            sent: None,
            really: Some(really),
            told: None,
            gone: false,
        })
    }

    fn landed(&mut self, landed: &Landed, now: Instant) {
        let pair = self.pair(landed.qp.0);
        let (number, taken) = (pair.number, pair.taken.take());
        if landed.begins {
            self.arrivals.entry(number).or_default().push_back(Arrival {
                qp: landed.qp.0,
                from: landed.from,
                first: landed.psn,
                bytes: landed.bytes.into(),
                whole: landed.ends,
                receive: taken,
                at: now,
            });
            self.arrived += 1;
        } else if let Some(all) = self.arrivals.get_mut(&number)
            && let Some(message) = all.iter_mut().rev().take(NEWEST).find(|a| !a.whole)
        {
            message.bytes += u64::from(landed.bytes);
            message.whole = landed.ends;
            message.receive = taken;
            message.at = now;
        }
        if self.arrived > self.limit {
            self.drop_arrivals();
        }
    }

    /// Drops the oldest messages of the queue pair that got the most: a peer that floods one hides nothing of the others.
    fn drop_arrivals(&mut self) {
        let most = self.arrivals.iter().max_by_key(|(_, all)| all.len());
        let Some(pair) = most.map(|(pair, _)| *pair) else {
            return;
        };
        if let Entry::Occupied(mut all) = self.arrivals.entry(pair) {
            let count = all.get().len().min(self.limit / DROPPED_AT_ONCE + 1);
            all.get_mut().drain(..count);
            self.arrived -= count;
            self.lost += count as u64;
            if all.get().is_empty() {
                all.remove();
            }
        }
    }

    /// The driver was told of a request's completion; what it was told first counts.
    pub fn told(&mut self, number: u64, status: Status, now: Instant) {
        if let Some(row) = Self::row_mut(&mut self.rows, self.first, number) {
            row.told.get_or_insert((status, now));
        }
    }

    /// A completion left the engine. Returns the number of its request, if it is known.
    #[cold]
    pub fn completed(&mut self, completion: &Completion) -> Option<u64> {
        let (qp, first) = (completion.qp.0, self.first);
        if CompletionKind::is_receive(completion.op.number()) {
            let oldest = self.pair(qp).receives.front().copied();
            let oldest = oldest.filter(|n| self.row(*n).is_some_and(|row| row.wr_id == completion.wr_id));
            let number = match oldest {
                Some(number) => {
                    self.pair(qp).receives.pop_front();
                    number
                }
                None => self.receive(qp, completion.wr_id, completion.status, 0),
            };
            if let Some(row) = Self::row_mut(&mut self.rows, self.first, number) {
                row.really = Some(completion.status);
                row.bytes = completion.byte_len.into();
            }
            return Some(number);
        }
        let pair = self.pairs.get_mut(&qp)?;
        let rows = &mut self.rows;
        let mut tag = |n: &u64| Self::row_mut(rows, first, *n).is_some_and(|row| row.tag == completion.tag);
        let at = pair.sends.iter().position(&mut tag)?;
        let of = pair.sends[at];
        for (i, number) in pair.sends.drain(..=at).enumerate() {
            let Some(row) = Self::row_mut(&mut self.rows, first, number) else {
                continue;
            };
            if i == at {
                row.really = Some(completion.status);
            } else {
                // Without a completion only what succeeds.
                row.really = Some(Status::Success);
            }
        }
        Some(of)
    }

    /// A queue pair begins anew or is destroyed.
    pub fn ended(&mut self, qp: u32) {
        if let Some(pair) = self.pairs.remove(&qp) {
            for number in pair.sends.into_iter().chain(pair.receives) {
                if let Some(row) = Self::row_mut(&mut self.rows, self.first, number) {
                    row.gone = true;
                }
            }
        }
    }

    /// All queue pairs are gone.
    pub fn ended_all(&mut self) {
        let pairs: Vec<u32> = self.pairs.keys().copied().collect();
        for qp in pairs {
            self.ended(qp);
        }
    }
}

#[cfg(test)]
mod tests {
    use vnic_engine::rdma::{CompletionOp, QpNumber};
    use vnic_wire::MacAddr;

    use super::*;

    const NOW: Instant = Instant(0);

    fn landed(qp: u32, psn: u32) -> Note {
        Note::Landed(Landed {
            qp: QpNumber(qp),
            from: End {
                mac: MacAddr([2, 0, 0, 0, 0, 1]),
                qp: QpNumber(7),
            },
            psn: Psn::new(psn),
            bytes: 1,
            begins: true,
            ends: true,
        })
    }

    fn post(journal: &mut Journal, qp: u32, tag: u32) {
        let wr = SendWr {
            id: tag.into(),
            tag,
            ..SendWr::default()
        };
        journal.posted(qp, &wr, false, NOW);
    }

    #[test]
    fn a_peer_that_floods_one_queue_pair_hides_nothing_of_another() {
        let mut journal = Journal::new(100, None, NOW);
        (0..10).for_each(|psn| journal.take(landed(1, psn), NOW));
        (0..10_000).for_each(|psn| journal.take(landed(2, psn), NOW));
        let count = |pair| journal.arrivals[&pair].len();
        assert_eq!(count(1), 10);
        assert!(count(2) <= 90 && journal.len() <= 100);
        assert_eq!(journal.lost as usize + journal.len(), 10_010);
        let newest = journal.arrivals[&2].back().map(|a| a.first.value());
        assert_eq!(newest, Some(9_999));
    }

    #[test]
    fn queue_pairs_that_come_and_go_leave_no_more_than_the_limit() {
        let mut journal = Journal::new(10, None, NOW);
        for qp in 0..1000 {
            // Unsignaled: nothing ends them.
            (0..20).for_each(|tag| post(&mut journal, qp, tag));
            journal.take(landed(qp, 0), NOW);
            let waits: usize = journal.pairs.values().map(|pair| pair.sends.len()).sum();
            assert!(waits <= 10, "{waits}");
            if qp % 2 == 0 {
                journal.ended(qp);
            }
        }
        assert_eq!((journal.rows.len(), journal.first), (10, 19_990));
        assert!(journal.arrivals.len() <= 10, "{}", journal.arrivals.len());
    }

    #[test]
    fn a_completion_is_of_its_request_and_ends_those_before_it() {
        let mut journal = Journal::new(10, None, NOW);
        (1..=3).for_each(|tag| post(&mut journal, 5, tag));
        let done = |tag, status| Completion::new(0, tag, QpNumber(5), CompletionOp::Send, status);
        if let Some(row) = journal.completed(&done(9, Status::Success)) {
            journal.told(row, Status::Success, NOW);
        }
        assert!(journal.rows.iter().all(|row| row.really.is_none()));
        journal.completed(&done(2, Status::RetryExceeded));
        let ends: Vec<_> = journal.rows.iter().map(|row| (row.really, row.told)).collect();
        let failed = Some(Status::RetryExceeded);
        assert_eq!(
            ends,
            [(Some(Status::Success), None), (failed, None), (None, None)]
        );
        journal.ended(5);
        assert!(journal.rows[2].gone && !journal.rows[1].gone);
    }
}
