//! Completion queues (IBTA 10.2.4 and 11.2.8; `ibv_create_cq`).

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

use super::types::{Arm, Completion, QpNumber, SrqHandle, Status, VerbsError};

/// Effect of adding a completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Pushed {
    /// Whether the queue was armed: an event is due.
    pub event: bool,
    /// Whether the entry is lost for want of room, and the queue has just gone into error. Reported once.
    pub overrun: bool,
    /// Whether the completion is in the queue.
    pub taken: bool,
}

/// Memory for entries that queues have given back. Queues that are emptied at each turn lend each other their memory; a
/// need of many of them at times does not stay with each.
#[derive(Debug, Default)]
pub struct Spares(Vec<VecDeque<Completion>>);

/// Most pieces of memory that wait for a queue.
const SPARES: usize = 16;
/// Most entries that spare memory has room for.
const LARGE: usize = 1 << 13;
/// Entries below which a queue keeps its memory while some are left.
const SMALL: usize = 1024;

/// A completion queue. While it is empty, it has no memory for entries.
#[derive(Debug)]
pub struct CompletionQueue {
    entries: VecDeque<Completion>,
    capacity: u32,
    armed: Option<Arm>,
    failed: bool,
    /// Whether it is on the device's list of queues that got something.
    pub listed: bool,
    /// QPs and SRQs that complete here, counted once for each of their queues.
    pub users: u32,
    /// The same users, as long as an overrun of this queue is news to them.
    pub members: BTreeSet<Member>,
}

/// A user of a completion queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Member {
    /// A queue pair.
    Qp(QpNumber),
    /// A shared receive queue for XRC.
    Srq(SrqHandle),
}

impl CompletionQueue {
    /// An empty queue with room for `entries`.
    pub fn new(entries: u32) -> CompletionQueue {
        CompletionQueue {
            entries: VecDeque::new(),
            capacity: entries,
            armed: None,
            failed: false,
            listed: false,
            users: 0,
            members: BTreeSet::new(),
        }
    }

    /// Takes memory that another queue has given back, before completions are added.
    #[inline(always)]
    pub fn borrow(&mut self, spares: &mut Spares) {
        if self.entries.capacity() == 0
            && let Some(spare) = spares.0.pop()
        {
            self.entries = spare;
        }
    }

    /// Gives memory back that is not needed any more, after completions were taken.
    #[inline(always)]
    pub fn give_back(&mut self, spares: &mut Spares) {
        let (len, capacity) = (self.entries.len(), self.entries.capacity());
        if len == 0 && capacity > 0 {
            let mut spare = core::mem::take(&mut self.entries);
            if spares.0.len() < SPARES {
                if capacity > LARGE {
                    spare.shrink_to(LARGE);
                }
                spares.0.push(spare);
            }
        } else if capacity > SMALL && len < capacity / 4 {
            self.entries.shrink_to(2 * len);
        }
    }

    /// Adds a completion. Without room the queue goes into error and takes nothing any more (IBTA 11.6.3, CQ error).
    #[inline(always)]
    pub fn push(&mut self, completion: Completion) -> Pushed {
        if self.failed {
            return Pushed::default();
        }
        if self.entries.len() >= self.capacity as usize {
            self.failed = true;
            return Pushed {
                overrun: true,
                ..Pushed::default()
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
            taken: true,
        }
    }

    /// Takes the oldest completions, at most `most`, and returns their number.
    #[inline]
    pub fn take(&mut self, most: u32, each: impl FnMut(&Completion)) -> u32 {
        let count = self.entries.len().min(most as usize);
        self.entries.range(..count).for_each(each);
        self.entries.drain(..count);
        count as u32
    }

    /// Completions that wait.
    #[inline]
    pub fn len(&self) -> u32 {
        self.entries.len() as u32
    }

    /// Whether no completion waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Makes the queue take no more completions. False: it did not before, either.
    pub fn fail(&mut self) -> bool {
        !core::mem::replace(&mut self.failed, true)
    }

    /// Asks for an event when the next completion, or the next solicited or failed one, is added. Completions that wait
    /// already make none (`ibv_req_notify_cq`). After asking for any completion, asking for solicited ones changes nothing
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

#[cfg(test)]
mod tests {
    use super::super::types::{CompletionOp, QpNumber};
    use super::*;

    use proptest::collection::vec;
    use proptest::prelude::*;

    impl CompletionQueue {
        fn pop(&mut self) -> Option<Completion> {
            let mut oldest = None;
            self.take(1, |completion| oldest = Some(*completion));
            oldest
        }
    }

    fn completion(wr_id: u64, status: Status, solicited: bool) -> Completion {
        Completion {
            solicited,
            ..Completion::new(wr_id, 0, QpNumber(2), CompletionOp::Recv, status)
        }
    }

    #[test]
    fn an_idle_queue_takes_no_memory() {
        let queue = CompletionQueue::new(4_194_303);
        assert_eq!(queue.entries.capacity(), 0);
    }

    #[test]
    fn memory_goes_round_and_does_not_stay() {
        let mut spares = Spares::default();
        let mut queues: Vec<_> = (0..100).map(|_| CompletionQueue::new(4_194_303)).collect();
        for queue in &mut queues {
            queue.borrow(&mut spares);
            for id in 0..100_000 {
                queue.push(completion(id, Status::Success, false));
            }
            // One stays.
            queue.take(99_999, |_| {});
            queue.give_back(&mut spares);
        }
        let kept = |queues: &[CompletionQueue]| queues.iter().map(|q| q.entries.capacity()).sum::<usize>();
        assert!(kept(&queues) <= 100 * SMALL, "{}", kept(&queues));
        for queue in &mut queues {
            assert_eq!(queue.pop().map(|c| c.wr_id), Some(99_999));
            queue.give_back(&mut spares);
        }
        assert_eq!(kept(&queues), 0);
        assert_eq!(spares.0.len(), SPARES);
        let spare: usize = spares.0.iter().map(VecDeque::capacity).sum();
        assert!(spare <= SPARES * LARGE, "{spare}");
    }

    #[test]
    fn what_waits_already_makes_no_event() {
        let mut queue = CompletionQueue::new(10);
        let silent = Pushed {
            taken: true,
            ..Pushed::default()
        };
        assert_eq!(queue.push(completion(1, Status::Success, true)), silent);
        queue.arm(Arm::Next);
        assert_eq!(queue.pop().map(|c| c.wr_id), Some(1));
        assert!(queue.push(completion(2, Status::Success, false)).event);
        assert!(!queue.push(completion(3, Status::Success, true)).event);
    }

    #[test]
    fn a_solicited_request_wakes_for_solicited_and_failed_ones() {
        for (status, solicited, event) in [
            (Status::Success, false, false),
            (Status::Success, true, true),
            (Status::FlushError, false, true),
        ] {
            let mut queue = CompletionQueue::new(10);
            queue.arm(Arm::Solicited);
            assert_eq!(queue.push(completion(1, status, solicited)).event, event);
            // It is still armed if there was no event.
            assert_eq!(queue.push(completion(2, Status::Success, true)).event, !event);
        }
    }

    #[test]
    fn an_overrun_is_said_once_and_is_for_ever() {
        let mut queue = CompletionQueue::new(1);
        queue.push(completion(1, Status::Success, false));
        queue.arm(Arm::Next);
        let lost = Pushed {
            overrun: true,
            ..Pushed::default()
        };
        assert_eq!(queue.push(completion(2, Status::Success, false)), lost);
        assert_eq!(
            queue.push(completion(3, Status::Success, false)),
            Pushed::default()
        );
        assert_eq!(queue.pop().map(|c| c.wr_id), Some(1));
        assert_eq!(
            queue.push(completion(4, Status::Success, false)),
            Pushed::default()
        );
        assert_eq!(queue.pop(), None);
        assert!(queue.resize(5).is_err());
    }

    #[test]
    fn a_queue_is_not_made_smaller_than_what_waits() {
        let mut queue = CompletionQueue::new(4);
        for wr_id in 0..4 {
            queue.push(completion(wr_id, Status::Success, false));
        }
        assert!(queue.resize(3).is_err());
        queue.resize(6).expect("larger");
        queue.push(completion(4, Status::Success, false));
        queue.pop();
        queue.pop();
        queue.resize(3).expect("as many as wait");
        assert!(queue.push(completion(5, Status::Success, false)).overrun);
        let rest: Vec<u64> = core::iter::from_fn(|| queue.pop()).map(|c| c.wr_id).collect();
        assert_eq!(rest, [2, 3, 4]);
    }

    #[derive(Debug, Clone)]
    enum Op {
        Push(bool, bool),
        Pop,
        Arm(Arm),
        Resize(u32),
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            4 => any::<(bool, bool)>().prop_map(|(failed, solicited)| Op::Push(failed, solicited)),
            3 => Just(Op::Pop),
            2 => prop_oneof![Just(Op::Arm(Arm::Next)), Just(Op::Arm(Arm::Solicited))],
            1 => (0u32..8).prop_map(Op::Resize),
        ]
    }

    proptest! {
        /// The model remembers everything that was ever asked and added, and judges from that alone.
        #[test]
        fn as_the_model_says(ops in vec(op(), 0..60)) {
            let mut queue = CompletionQueue::new(5);
            let mut room = 5usize;
            let mut waiting = Vec::new();
            let mut asked = Vec::new();
            let mut broken = false;
            for (number, op) in (0u64..).zip(ops) {
                match op {
                    Op::Push(failed, solicited) => {
                        let status = if failed { Status::RemoteAborted } else { Status::Success };
                        let got = queue.push(completion(number, status, solicited));
                        let overrun = !broken && waiting.len() >= room;
                        broken |= overrun;
                        let wakes = |arm: &Arm| *arm == Arm::Next || failed || solicited;
                        let event = !broken && asked.iter().any(wakes);
                        prop_assert_eq!(got, Pushed { event, overrun, taken: !broken });
                        if !broken {
                            waiting.push(number);
                        }
                        if event {
                            asked.clear();
                        }
                    }
                    Op::Pop => {
                        let wanted = (!waiting.is_empty()).then(|| waiting.remove(0));
                        prop_assert_eq!(queue.pop().map(|c| c.wr_id), wanted);
                    }
                    Op::Arm(arm) => {
                        queue.arm(arm);
                        asked.push(arm);
                    }
                    Op::Resize(entries) => {
                        let possible = !broken && entries as usize >= waiting.len();
                        prop_assert_eq!(queue.resize(entries).is_ok(), possible);
                        if possible {
                            room = entries as usize;
                        }
                    }
                }
                prop_assert_eq!(queue.len() as usize, waiting.len());
            }
        }
    }
}
