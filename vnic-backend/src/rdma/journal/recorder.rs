//! The part of a function in a recording: the journal of its driver, and those of drivers that are gone.

use vnic_engine::rdma::{Completion, Device, SendWr, Status};
use vnic_fabric::Instant;

use super::Journal;
use crate::types::Caller;

/// A function's part in a recording.
#[derive(Debug)]
pub struct Recorder {
    journal: Journal,
    /// Journals of drivers that are gone, which have no more room than one driver.
    ended: Vec<Journal>,
    limit: usize,
    now: Instant,
}

impl Recorder {
    /// Begins with the driver of this process.
    pub fn new(limit: usize, owner: Option<Caller>, now: Instant) -> Recorder {
        Recorder {
            journal: Journal::new(limit, owner, now),
            ended: Vec::new(),
            limit,
            now,
        }
    }

    /// Another driver begins.
    pub fn next(&mut self, owner: Option<Caller>) {
        let fresh = Journal::new(self.limit, owner, self.now);
        let before = std::mem::replace(&mut self.journal, fresh);
        self.keep(before);
    }

    /// Keeps the journal of a driver that is gone.
    fn keep(&mut self, mut journal: Journal) {
        journal.ended_all();
        if journal.is_empty() {
            return;
        }
        self.ended.push(journal);
        while self.ended.len() > 1 && self.ended.iter().map(Journal::len).sum::<usize>() > self.limit {
            self.journal.lost += self.ended.remove(0).len() as u64;
        }
    }

    /// The driver has posted a request.
    pub fn posted(&mut self, qp: u32, wr: &SendWr, all: bool) {
        self.journal.posted(qp, wr, all, self.now);
    }

    /// A completion left the engine. Returns the number of its request, if it is known.
    pub fn completed(&mut self, completion: &Completion) -> Option<u64> {
        self.journal.completed(completion)
    }

    /// The driver was told of a request's completion.
    pub fn told(&mut self, row: u64, status: Status) {
        self.journal.told(row, status, self.now);
    }

    /// Sets the time of the turn.
    #[inline]
    pub fn stamp(&mut self, now: Instant) {
        self.now = now;
    }

    /// Takes the notes of the engine.
    #[cold]
    #[inline(never)]
    pub fn collect(&mut self, device: &mut Device, now: Instant) {
        self.now = now;
        let (notes, lost) = device.take_notes();
        for note in notes {
            self.journal.take(note, now);
        }
        self.journal.lost += lost;
    }

    /// A queue pair begins anew or is destroyed.
    pub fn ended(&mut self, qp: u32) {
        self.journal.ended(qp);
    }

    /// All queue pairs end, and their engine.
    pub fn ended_all(&mut self, device: &mut Device) {
        self.collect(device, self.now);
        self.journal.ended_all();
    }

    /// A recorder for a function beside this one, or for its successor.
    pub fn beside(&self) -> Recorder {
        Recorder::new(self.limit, None, self.now)
    }

    /// Keeps what was noted of a process that is gone.
    pub fn inherit(&mut self, gone: Recorder) {
        for journal in gone.into_journals() {
            self.keep(journal);
        }
    }

    /// All that was noted.
    pub fn into_journals(self) -> Vec<Journal> {
        let mut all = self.ended;
        all.push(self.journal);
        all
    }
}
