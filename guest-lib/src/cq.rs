//! Completion queues and their channels (`SPEC.md`, section 9).

mod channel;
mod completion;
mod outstanding;
mod ring;

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU32, Ordering::Release};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use vnic_device::command::queues::{CreateCq, ResizeCq, ResizeCqReply};
use vnic_device::command::{Object, Opcode};
use vnic_device::doorbell::Kind;
use vnic_device::queue::CompletionKind;
use vnic_device::ring::{Extent, completion_ring_len};

pub use channel::CompletionChannel;
pub use completion::{WorkCompletion, completion_flags};
pub(crate) use outstanding::{Flushed, Outstanding, flushed};
use ring::Ring;

use crate::Error;
use crate::driver::Core;
use crate::driver::doorbells::bell;
use crate::pd::numbered;
use crate::shared::Memory;
use crate::sync::lock;

/// Settings of a completion queue that is to be made.
#[derive(Debug, Clone)]
pub struct CqBuilder {
    entries: u32,
    channel: Option<CompletionChannel>,
    context: u64,
}

impl CqBuilder {
    /// A queue with room for at least `entries` completions. It needs room for all that may be outstanding: a queue
    /// that overruns is lost, with its queue pairs.
    pub fn new(entries: u32) -> CqBuilder {
        CqBuilder {
            entries,
            channel: None,
            context: 0,
        }
    }

    /// Sets the channel that the queue's events arrive at.
    pub fn channel(mut self, channel: &CompletionChannel) -> CqBuilder {
        self.channel = Some(channel.clone());
        self
    }

    /// Sets a number of the program's own, which [`CompletionQueue::context`] gives back.
    pub fn context(mut self, context: u64) -> CqBuilder {
        self.context = context;
        self
    }
}

/// A completion queue. Clones are the same queue; it is destroyed with the last clone and the last queue pair that
/// completes there.
#[derive(Clone)]
pub struct CompletionQueue(pub(crate) Arc<Cq>);

pub(crate) struct Cq {
    pub core: Arc<Core>,
    epoch: u32,
    handle: u32,
    context: u64,
    channel: Option<CompletionChannel>,
    state: Mutex<State>,
}

struct State {
    ring: Ring,
    /// What stands before the ring.
    old: Option<Old>,
    /// Completions taken since the queue was made.
    taken: u64,
    queues: HashMap<u32, Completing, BuildHasherDefault<NumberHasher>>,
    /// The queue pair of the last completion.
    last: Option<(u32, Completing)>,
}

/// What stands before a completion queue's ring.
enum Old {
    /// The ring before a resize, until it is empty, and its index.
    Resized(Ring, u32),
    /// The end of the device: what it may write now is nobody's, for requests end by themselves.
    Gone,
}

/// Up to where the device has consumed a queue pair's queues.
#[derive(Debug, Default)]
pub(crate) struct Consumed {
    pub send: AtomicU32,
    pub receive: AtomicU32,
}

/// A queue pair that completes here.
#[derive(Clone)]
struct Completing {
    consumed: Arc<Consumed>,
    /// Whether the queue pair has a receive queue of its own.
    receives: bool,
    /// Completions before this one (by [`State::taken`]) belong to the time before a reset, or to another queue pair
    /// of the same number.
    from: u64,
    /// The queue pair.
    posted: Weak<dyn Outstanding>,
}

/// A hash of queue pair numbers: a multiplication spreads them.
#[derive(Default)]
struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(u32::from(*byte));
        }
    }

    fn write_u32(&mut self, number: u32) {
        let mixed = (self.0 ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // Tables use the highest and the lowest bits.
        self.0 = mixed ^ mixed >> 32;
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        self.core.remove_sink(self.handle);
        let memory = self
            .state
            .get_mut()
            .map_or_else(|poisoned| poisoned.into_inner().memory(), |state| state.memory());
        self.core
            .end(self.epoch, Opcode::DestroyCq, self.handle, Box::new(memory));
    }
}

numbered! { CompletionQueue }

/// Allocates a ring for at least `entries` completions.
fn new_ring(core: &Core, entries: u32) -> Result<(Ring, Vec<Extent>), Error> {
    let entries = ring_entries(entries)?;
    let len = completion_ring_len(entries);
    let (memory, extents) = Memory::allocate(&*core.transport, len as usize)?;
    Ok((Ring::new(memory, entries), extents))
}

/// Entries of a ring with room for `wanted` completions.
pub(crate) fn ring_entries(wanted: u32) -> Result<u32, Error> {
    wanted
        .max(1)
        .checked_next_power_of_two()
        .filter(|n| *n <= vnic_device::ring::ENTRIES_MAX)
        .ok_or_else(|| Error::Invalid(format!("{wanted} entries: no ring is so long")))
}

impl CompletionQueue {
    pub(crate) fn new(core: &Arc<Core>, builder: CqBuilder) -> Result<CompletionQueue, Error> {
        let epoch = core.epoch()?;
        let (ring, extents) = new_ring(core, builder.entries)?;
        let entries = ring.entries();
        let made: Object = core
            .call_with_extents(epoch, Opcode::CreateCq, &[&extents], |lists| CreateCq {
                entries,
                event_queue: 0,
                ring: lists[0],
            })
            .inspect_err(|e| core.bury_if_unknown(e, &ring.memory()))?;
        let cq = Arc::new(Cq {
            core: Arc::clone(core),
            epoch,
            handle: made.handle,
            context: builder.context,
            channel: builder.channel,
            state: Mutex::new(State {
                ring,
                old: None,
                taken: 0,
                queues: HashMap::default(),
                last: None,
            }),
        });
        if let Some(channel) = &cq.channel {
            core.set_sink(cq.handle, channel.sink(&cq));
        }
        Ok(CompletionQueue(cq))
    }

    /// Number of the queue.
    pub fn number(&self) -> u32 {
        self.0.handle
    }

    /// The number that the program gave it.
    pub fn context(&self) -> u64 {
        self.0.context
    }

    /// The channel that the queue's events arrive at.
    pub fn channel(&self) -> Option<&CompletionChannel> {
        self.0.channel.as_ref()
    }

    /// Completions that the queue has room for.
    pub fn entries(&self) -> u32 {
        self.lock().ring.entries()
    }

    /// Completions that the program has not taken yet.
    pub fn waiting(&self) -> u32 {
        self.lock().waiting()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.0.state)
    }

    /// Takes as many completions as there are and fit into `into`, and returns their number. When the device is gone or
    /// was reset, each request that has not completed ends in [`FlushError`](crate::CompletionStatus::FlushError), except
    /// for receives of shared queues; then it is [`Error::Gone`]: there will be no more.
    ///
    /// ```no_run
    /// # fn example(cq: &vnic_verbs::CompletionQueue) -> Result<(), vnic_verbs::Error> {
    /// use vnic_verbs::WorkCompletion;
    ///
    /// let mut done = [WorkCompletion::default(); 16];
    /// let n = cq.poll(&mut done)?;
    /// for completion in &done[..n] {
    ///     println!("{}: {:?}", completion.id(), completion.status());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn poll(&self, into: &mut [WorkCompletion]) -> Result<usize, Error> {
        let mut slots = into.iter_mut();
        self.poll_each(slots.len(), |completion| {
            if let Some(slot) = slots.next() {
                *slot = completion;
            }
        })
    }

    /// As [`poll`](CompletionQueue::poll), but gives each of at most `max` completions to `take`, which must not use
    /// the queue.
    ///
    /// ```no_run
    /// # fn example(cq: &vnic_verbs::CompletionQueue) -> Result<(), vnic_verbs::Error> {
    /// let mut bytes = 0;
    /// cq.poll_each(16, |completion| bytes += completion.byte_len())?;
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn poll_each(&self, max: usize, mut take: impl FnMut(WorkCompletion)) -> Result<usize, Error> {
        let count = self.lock().poll(max, &mut take);
        if count == 0 && max > 0 && !self.0.core.is_alive(self.0.epoch) {
            return self.poll_last(max, &mut take);
        }
        Ok(count)
    }

    /// Looks once more after the device is gone: what it wrote before can still be taken. Then requests that have not
    /// completed end, in the order in which they were posted to their queue.
    #[cold]
    fn poll_last(&self, max: usize, take: &mut dyn FnMut(WorkCompletion)) -> Result<usize, Error> {
        let mut state = self.lock();
        let mut count = state.poll(max, &mut *take);
        // A forked child has copies of the parent's requests, which go on.
        if count > 0 || self.is_parents() {
            return if count > 0 {
                Ok(count)
            } else {
                Err(self.0.core.dead())
            };
        }
        state.old = Some(Old::Gone);
        let all: Vec<_> = state.queues.values().filter_map(|q| q.posted.upgrade()).collect();
        // Whoever posts has a queue pair's lock, and may want this one.
        drop(state);
        let mut busy = false;
        for queue_pair in &all {
            while count < max {
                match queue_pair.flush(self.number()) {
                    Flushed::One(completion) => take(completion),
                    Flushed::Nothing => break,
                    Flushed::Busy => {
                        busy = true;
                        break;
                    }
                }
                count += 1;
            }
        }
        if count > 0 || busy {
            return Ok(count);
        }
        // Nothing is posted any more to a device that is gone: there is nothing to look at again.
        self.lock().queues.clear();
        Err(self.0.core.dead())
    }

    /// Whether this process is a forked child of the one that opened the device, for which the device is gone.
    pub fn is_parents(&self) -> bool {
        self.0.core.is_parents()
    }

    /// Asks for one event at the channel, at the next completion that the program has not taken yet. With
    /// `solicited_only` only a completion counts whose sender asked for an event, or that is an error. If there is
    /// such a completion already, the event comes at once.
    ///
    /// ```no_run
    /// # fn example(cq: &vnic_verbs::CompletionQueue, channel: &vnic_verbs::CompletionChannel) -> Result<(), vnic_verbs::Error> {
    /// use vnic_verbs::WorkCompletion;
    ///
    /// let mut done = [WorkCompletion::default(); 16];
    /// while cq.poll(&mut done)? == 0 {
    ///     cq.req_notify(false)?;
    ///     channel.get_event()?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn req_notify(&self, solicited_only: bool) -> Result<(), Error> {
        self.arm(solicited_only, |ring| ring.consumer())
    }

    /// As libibverbs arms a queue: completions that are there already do not count, taken or not, so that a program
    /// must take all of them before it waits. A program that takes no more than `batch` and then waits might wait for
    /// ever; with more than `batch` completions the event comes at once.
    pub fn req_notify_new(&self, solicited_only: bool, batch: u32) -> Result<(), Error> {
        self.arm(solicited_only, |ring| {
            let (taken, seen) = (ring.consumer(), ring.seen());
            if seen.wrapping_sub(taken) > batch {
                taken
            } else {
                seen
            }
        })
    }

    fn arm(&self, solicited_only: bool, from: impl FnOnce(&Ring) -> u32) -> Result<(), Error> {
        let state = self.lock();
        if let Some(Old::Resized(..)) = state.old {
            // The channel must not be armed before it is empty, and there are completions to take.
            if let Some(channel) = &self.0.channel {
                channel.push(&self.0);
            }
            return Ok(());
        }
        let kind = if solicited_only {
            Kind::ArmSolicited
        } else {
            Kind::ArmNext
        };
        let bell = bell(kind, self.0.handle, from(&state.ring));
        self.0.core.ring(self.0.epoch, bell)
    }

    /// Gives the queue room for at least `entries` completions.
    pub fn resize(&self, entries: u32) -> Result<(), Error> {
        let Cq {
            core, epoch, handle, ..
        } = &*self.0;
        let mut state = self.lock();
        if state.old.is_some() {
            return Err(Error::Invalid(
                "completions from before the last resize were not taken yet: poll first".into(),
            ));
        }
        let (ring, extents) = new_ring(core, entries)?;
        let body = |lists: &[vnic_device::ring::ExtentList]| ResizeCq {
            cq: *handle,
            entries: ring.entries(),
            ring: lists[0],
        };
        let reply: ResizeCqReply = core
            .call_with_extents(*epoch, Opcode::ResizeCq, &[&extents], body)
            .inspect_err(|e| core.bury_if_unknown(e, &ring.memory()))?;
        let old = std::mem::replace(&mut state.ring, ring);
        if old.consumer() != reply.produced {
            state.old = Some(Old::Resized(old, reply.produced));
        }
        Ok(())
    }

    /// Completions of this queue pair count from now on.
    pub(crate) fn attach(
        &self,
        number: u32,
        consumed: &Arc<Consumed>,
        receives: bool,
        posted: Weak<dyn Outstanding>,
    ) {
        let mut state = self.lock();
        let from = state.taken + u64::from(state.waiting());
        state.last = None;
        let entry = state.queues.entry(number).or_insert_with(|| Completing {
            consumed: Arc::clone(consumed),
            receives,
            from,
            posted,
        });
        // A queue pair's sends and its receives may complete in the same queue.
        entry.receives |= receives;
        entry.from = from;
    }

    /// Completions of this queue pair do not count any more.
    pub(crate) fn detach(&self, number: u32) {
        let mut state = self.lock();
        state.last = None;
        state.queues.remove(&number);
    }
}

impl State {
    fn memory(&self) -> Vec<Memory> {
        let old = match &self.old {
            Some(Old::Resized(ring, _)) => Some(ring.memory()),
            _ => None,
        };
        old.into_iter().chain([self.ring.memory()]).collect()
    }

    /// Completions that the program has not taken yet.
    fn waiting(&self) -> u32 {
        match &self.old {
            Some(Old::Gone) => 0,
            Some(Old::Resized(ring, end)) => end.wrapping_sub(ring.consumer()) + self.ring.waiting(),
            None => self.ring.waiting(),
        }
    }

    #[inline]
    fn poll(&mut self, max: usize, mut take: impl FnMut(WorkCompletion)) -> usize {
        let mut count = 0;
        if self.old.is_some() {
            match self.poll_old(max, &mut take) {
                Some(of_old) => count = of_old,
                None => return 0,
            }
        }
        let first = self.ring.consumer();
        while count < max {
            let Some(completion) = self.ring.take() else {
                break;
            };
            if self.consumed(&completion) {
                take(completion);
                count += 1;
            }
        }
        if self.ring.consumer() != first {
            self.ring.publish();
        }
        count
    }

    /// Takes completions from before a resize. `None`: there are no more, here and in the ring.
    #[cold]
    fn poll_old(&mut self, max: usize, take: &mut dyn FnMut(WorkCompletion)) -> Option<usize> {
        let Some(Old::Resized(mut ring, end)) = self.old.take_if(|old| !matches!(old, Old::Gone)) else {
            return None;
        };
        let mut count = 0;
        while ring.consumer() != end && count < max {
            let Some(completion) = ring.take() else { break };
            if self.consumed(&completion) {
                take(completion);
                count += 1;
            }
        }
        if ring.consumer() != end {
            self.old = Some(Old::Resized(ring, end));
        }
        Some(count)
    }

    /// Notes what a completion says about its queue pair. False: the completion is of the time before a reset, or of
    /// another queue pair that had the number. Nobody expects it any more, and the program might take it for one of
    /// its new requests.
    #[inline]
    fn consumed(&mut self, completion: &WorkCompletion) -> bool {
        let index = self.taken;
        self.taken += 1;
        let number = completion.0.qp;
        let found = match &self.last {
            Some((last, queue)) if *last == number => queue,
            _ => {
                let Some(queue) = self.queues.get(&number) else {
                    return true;
                };
                &self.last.insert((number, queue.clone())).1
            }
        };
        if index < found.from {
            return false;
        }
        if !CompletionKind::is_receive(completion.0.kind) {
            found.consumed.send.store(completion.0.consumed, Release);
        } else if found.receives {
            found.consumed.receive.store(completion.0.consumed, Release);
        }
        true
    }
}
