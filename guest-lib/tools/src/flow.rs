//! Keeping many requests outstanding.

use std::time::{Duration, Instant};

use vnic_verbs::{Data, SendWr, WorkCompletion};

use crate::failure::Result;
use crate::session::Session;
use crate::slots::Slots;

/// Requests that are posted with one doorbell.
const BATCH: usize = 16;

/// End of a flow.
#[derive(Debug, Clone, Copy)]
pub enum Goal {
    /// The flow ends after so many messages on each queue pair.
    Messages(u64),
    /// The flow ends after this time.
    Time(Duration),
}

impl Goal {
    /// Whether message `i` of a run that began at `start` is to be sent.
    pub fn wants(self, i: u64, start: Instant) -> bool {
        match self {
            Goal::Messages(n) => i < n,
            Goal::Time(time) => start.elapsed() < time,
        }
    }
}

/// Progress of a queue pair.
#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    posted: u64,
    /// Requests before this one will have a completion.
    visible: u64,
    done: u64,
}

/// Progress of all queue pairs. Requests complete in order, and not all visibly: a visible completion completes those before
/// it.
pub struct Flow {
    goal: Goal,
    end: Option<Instant>,
    depth: u64,
    every: u64,
    queues: Vec<Progress>,
    posted: u64,
    done: u64,
    inline: bool,
    copies: Vec<u8>,
}

impl Flow {
    /// Begins a flow now. `depth`: requests that a queue pair may have outstanding; one of `every` completes visibly.
    pub fn start(qps: usize, goal: Goal, depth: u64, every: u32) -> Flow {
        let depth = depth.max(1);
        Flow {
            goal,
            end: match goal {
                Goal::Messages(_) => None,
                Goal::Time(time) => Some(Instant::now() + time),
            },
            depth,
            every: u64::from(every).clamp(1, depth),
            queues: vec![Progress::default(); qps],
            posted: 0,
            done: 0,
            inline: false,
            copies: Vec::new(),
        }
    }

    /// Sets whether requests carry their data inline.
    pub fn inline(mut self, inline: bool) -> Flow {
        self.inline = inline;
        self
    }

    /// Completed messages of each queue pair.
    pub fn sent(&self) -> Vec<u64> {
        self.queues.iter().map(|q| q.done).collect()
    }

    /// Completed messages of all queue pairs.
    pub fn done(&self) -> u64 {
        self.done
    }

    /// Whether the goal is reached.
    pub fn is_finished(&self) -> bool {
        let reached = match self.goal {
            Goal::Messages(n) => self.posted >= n.saturating_mul(self.queues.len() as u64),
            Goal::Time(_) => self.is_late(),
        };
        reached && self.done == self.posted
    }

    fn is_late(&self) -> bool {
        self.end.is_some_and(|end| Instant::now() >= end)
    }

    /// The next message that may be posted, and whether it completes visibly. `late`: the time is over.
    fn next(&mut self, queue: usize, late: bool) -> Option<(u64, bool)> {
        let progress = &mut self.queues[queue];
        let i = progress.posted;
        if i - progress.done >= self.depth {
            return None;
        }
        let visible = match self.goal {
            Goal::Messages(n) if i >= n => return None,
            // One more message, if no completion would show the last ones.
            Goal::Time(_) if late && progress.visible == i => return None,
            Goal::Messages(n) => (i + 1).is_multiple_of(self.every) || i + 1 == n,
            Goal::Time(_) => (i + 1).is_multiple_of(self.every) || late,
        };
        progress.posted += 1;
        self.posted += 1;
        if visible {
            progress.visible = progress.posted;
        }
        Some((i, visible))
    }

    /// Posts the messages that may be posted. `prepare` makes the data of a message in its slot, `request` makes its work
    /// request.
    pub fn post(
        &mut self,
        session: &mut Session,
        slots: &Slots<'_>,
        mut prepare: impl FnMut(usize, u64),
        request: impl for<'a> Fn(usize, u64, Data<'a>) -> SendWr<'a>,
    ) -> Result {
        let size = slots.size() as usize;
        let mut copies = std::mem::take(&mut self.copies);
        for queue in 0..self.queues.len() {
            loop {
                let late = self.is_late();
                let mut next = [(0, false); BATCH];
                let mut count = 0;
                while count < BATCH
                    && let Some((i, visible)) = self.next(queue, late)
                {
                    prepare(queue, i);
                    next[count] = (i, visible);
                    count += 1;
                }
                if count == 0 {
                    break;
                }
                if self.inline {
                    copies.resize(BATCH * size, 0);
                    for ((i, _), copy) in next[..count].iter().zip(copies.chunks_mut(size)) {
                        slots.read(queue, *i, copy);
                    }
                }
                let mut batch = [SendWr::send(Data::NONE); BATCH];
                for (n, (i, visible)) in next[..count].iter().enumerate() {
                    let data = match self.inline {
                        true => Data::inline(&copies[n * size..(n + 1) * size]),
                        false => slots.sge(queue, *i).into(),
                    };
                    let request = request(queue, *i, data).id(*i);
                    batch[n] = if *visible { request.signaled() } else { request };
                }
                session.queues[queue].send_all(&mut batch[..count])?;
            }
        }
        self.copies = copies;
        session.outstanding = self.posted - self.done;
        Ok(())
    }

    /// A send has completed: shows the messages that are complete now and were not before.
    pub fn completed(
        &mut self,
        session: &mut Session,
        completion: &WorkCompletion,
    ) -> (usize, std::ops::Range<u64>) {
        let queue = session.queue_of(completion);
        let progress = &mut self.queues[queue];
        let before = progress.done;
        progress.done = (completion.id() + 1).clamp(before, progress.posted);
        self.done += progress.done - before;
        let now = progress.done;
        session.outstanding = self.posted - self.done;
        (queue, before..now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_message_is_always_visible() {
        for (n, depth, every) in [(1, 8, 16), (100, 8, 3), (17, 1, 1), (5, 100, 100)] {
            let mut flow = Flow::start(1, Goal::Messages(n), depth, every);
            let mut visible = Vec::new();
            while !flow.is_finished() {
                while let Some((i, seen)) = flow.next(0, false) {
                    visible.extend(seen.then_some(i));
                }
                // What is outstanding must have one that completes visibly.
                let last = *visible.last().expect("one is visible");
                assert!(
                    last + 1 > flow.queues[0].done,
                    "{n} {depth} {every}: stuck at {last}"
                );
                flow.done = last + 1;
                flow.queues[0].done = last + 1;
            }
            assert_eq!(visible.last(), Some(&(n - 1)));
            assert_eq!(flow.sent(), [n]);
        }
    }

    #[test]
    fn time_ends_with_a_visible_message() {
        let mut flow = Flow::start(1, Goal::Time(Duration::ZERO), 8, 3);
        assert!(flow.is_finished());
        let seen: Vec<_> = (0..5).map_while(|_| flow.next(0, false)).collect();
        assert_eq!(seen, [(0, false), (1, false), (2, true), (3, false), (4, false)]);
        assert_eq!(flow.next(0, true), Some((5, true)));
        assert_eq!(flow.next(0, true), None);
        assert!(!flow.is_finished());
    }
}
