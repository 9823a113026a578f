//! Completion queues (IBTA 10.2.4 and 11.2.8; `ibv_create_cq`).

use alloc::collections::VecDeque;

use super::types::{Arm, Completion, Status, VerbsError};

/// What became of a completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Pushed {
    /// Whoever armed the queue is to be told.
    pub event: bool,
    /// There was no room: the entry is lost and the queue has just gone into error. Said once.
    pub overrun: bool,
}

/// A completion queue. While nothing completes it takes no memory for entries.
#[derive(Debug)]
pub struct CompletionQueue {
    entries: VecDeque<Completion>,
    capacity: u32,
    armed: Option<Arm>,
    failed: bool,
    /// QPs and SRQs that complete here, counted once for each of their queues.
    pub users: u32,
}

impl CompletionQueue {
    /// An empty queue with room for `entries`.
    pub fn new(entries: u32) -> CompletionQueue {
        CompletionQueue {
            entries: VecDeque::new(),
            capacity: entries,
            armed: None,
            failed: false,
            users: 0,
        }
    }

    /// Adds a completion. When there is no room the queue goes into error and takes nothing any more (IBTA 11.6.3,
    /// CQ error).
    #[inline]
    pub fn push(&mut self, completion: Completion) -> Pushed {
        if self.failed {
            return Pushed::default();
        }
        if self.entries.len() >= self.capacity as usize {
            self.failed = true;
            return Pushed {
                event: false,
                overrun: true,
            };
        }
        let event = match self.armed {
            None => false,
            Some(Arm::Next) => true,
            Some(Arm::Solicited) => completion.solicited || completion.status != Status::Success,
        };
        if event {
            self.armed = None;
        }
        self.entries.push_back(completion);
        Pushed {
            event,
            overrun: false,
        }
    }

    /// Takes the oldest completion.
    #[inline]
    pub fn pop(&mut self) -> Option<Completion> {
        self.entries.pop_front()
    }

    /// Completions that wait.
    #[inline]
    pub fn len(&self) -> u32 {
        self.entries.len() as u32
    }

    /// Nothing waits?
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Most completions that may wait.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Did it overrun?
    pub fn failed(&self) -> bool {
        self.failed
    }

    /// Asks for an event when the next completion, or the next solicited or failed one, is added. Those that wait
    /// already make none (`ibv_req_notify_cq`). Once asked for any completion, asking for solicited ones changes nothing
    /// until the event (IBTA 11.4.2.2).
    pub fn arm(&mut self, arm: Arm) {
        if self.armed != Some(Arm::Next) {
            self.armed = Some(arm);
        }
    }

    /// Changes how many completions may wait. Refused when more than that wait now, and in error.
    pub fn resize(&mut self, entries: u32) -> Result<(), VerbsError> {
        if self.failed {
            return Err(VerbsError::Invalid("the completion queue is in error"));
        }
        if entries < self.len() {
            return Err(VerbsError::OutOfRange {
                what: "entries",
                value: entries.into(),
                min: self.len().into(),
                max: u32::MAX.into(),
            });
        }
        self.entries.shrink_to(entries as usize);
        self.capacity = entries;
        Ok(())
    }
}
