//! The guest shares other memory now: what refers to memory is looked at anew, in turns.
//!
//! The VMM is answered at the end: until then rings use what they used before. What the engine reads and writes is found in the
//! new memory from the beginning.

use crossbeam_channel::Sender;
use vnic_device::event::{EventKind, FaultQueue, FaultReason, fault_detail};
use vnic_engine::rdma::{CqHandle, MemoryWalk, QpNumber, SrqHandle};

use super::account::EXTENTS;
use super::function::{Function, QueuePair};
use super::memory::FunctionMemory;
use super::shared_ring::{Found, SharedRing};

/// Pieces of memory that a turn looks at, at least.
const AT_LEAST: u32 = 256;
/// To look at an object takes as long as to look at so many pieces of memory.
const OBJECT: u32 = 2;

/// What is looked at next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Regions,
    SharedReceiveQueues,
    CompletionQueues,
    Doorbells,
    SendQueues,
    ReceiveQueues,
    Nothing,
}

/// How far that is.
#[derive(Debug)]
pub struct Refit {
    stage: Stage,
    walk: MemoryWalk,
    /// The first object of the stage that is not done, and what was found of its ring.
    at: usize,
    found: Found,
    /// Answered when it is dropped, too.
    done: Sender<()>,
}

impl Refit {
    /// Nothing was looked at; the end is told here.
    pub fn new(done: Sender<()>) -> Refit {
        Refit {
            stage: Stage::Regions,
            walk: MemoryWalk::default(),
            at: 0,
            found: Found::default(),
            done,
        }
    }

    fn next(&mut self, stage: Stage) -> u32 {
        (self.stage, self.at) = (stage, 0);
        0
    }

    /// There is nothing to look at.
    fn skip(&mut self) -> u32 {
        self.at += 1;
        self.found = Found::default();
        1
    }

    /// Looks at the ring of the object. Is it found to be gone? And how many pieces were looked at?
    fn look(&mut self, ring: &mut SharedRing, memory: &FunctionMemory, most: u32) -> (bool, u32) {
        let looked = OBJECT + most.min(ring.extents() as u32);
        let there = ring.remap(memory, &mut self.found, most as usize);
        self.at += usize::from(there.is_some());
        (there == Some(false), looked)
    }
}

/// Goes on where the last turn stopped. Answers how much was done.
#[cold]
pub fn go_on(f: &mut Function) -> usize {
    let Some(mut refit) = f.refit.take() else {
        return 0;
    };
    let most = (f.account.left() * EXTENTS).max(AT_LEAST);
    let mut looked = 0;
    while looked < most && refit.stage != Stage::Nothing {
        looked += step(f, &mut refit, most - looked);
    }
    f.account.charge((looked / EXTENTS).cast_signed());
    if refit.stage == Stage::Nothing {
        let _ = refit.done.send(());
    } else {
        f.refit = Some(refit);
    }
    1
}

/// Looks at so many pieces of memory, about, of one kind of object. Answers at how many.
fn step(f: &mut Function, refit: &mut Refit, most: u32) -> u32 {
    match refit.stage {
        Stage::Regions => {
            let memory = &f.memory;
            let (lost, looked) = f
                .device
                .lose_memory_in_turns(&mut refit.walk, most, &|span| memory.has(span));
            for mr in lost {
                f.events.push(EventKind::MrLost, mr.0, 0);
            }
            if refit.walk.is_over() {
                refit.next(Stage::SharedReceiveQueues);
            }
            looked
        }
        Stage::SharedReceiveQueues => {
            let Some(object) = f.srqs.place(refit.at) else {
                return refit.next(Stage::CompletionQueues);
            };
            let Some((number, srq)) = object else {
                return refit.skip();
            };
            let (lost, looked) = refit.look(&mut srq.queue.ring, &f.memory, most);
            if lost && !std::mem::replace(&mut srq.queue.faulted, true) {
                f.device.fail_srq(SrqHandle(number));
                let detail = fault_detail(FaultQueue::SharedReceive, FaultReason::Memory, srq.queue.read());
                f.events.push(EventKind::QueueFault, number, detail);
            }
            looked
        }
        Stage::CompletionQueues => {
            let Some(object) = f.cqs.place(refit.at) else {
                return refit.next(Stage::Doorbells);
            };
            let Some((number, cq)) = object else {
                return refit.skip();
            };
            let (lost, looked) = refit.look(&mut cq.ring, &f.memory, most);
            if lost && !std::mem::replace(&mut cq.lost, true) {
                let detail = fault_detail(FaultQueue::Completion, FaultReason::Memory, cq.produced());
                f.events.push(EventKind::QueueFault, number, detail);
                // As after an overrun: who completes there fails.
                f.device.fail_cq(CqHandle(number));
            }
            looked
        }
        Stage::Doorbells => {
            let Some(object) = f.bells.get_mut(refit.at) else {
                return refit.next(Stage::SendQueues);
            };
            let Some(bell) = object else { return refit.skip() };
            let at = refit.at;
            let (lost, looked) = refit.look(&mut bell.ring, &f.memory, most);
            if lost && bell.fail() {
                let detail = fault_detail(FaultQueue::Doorbells, FaultReason::Memory, bell.taken());
                f.events.push(EventKind::QueueFault, bell.handle, detail);
            } else if !lost && refit.at > at {
                bell.set_polling(true);
            }
            looked
        }
        Stage::SendQueues => {
            let Some(object) = f.qps.place(refit.at) else {
                return refit.next(Stage::ReceiveQueues);
            };
            let Some((number, QueuePair { send: Some(send), .. })) = object else {
                return refit.skip();
            };
            let (lost, looked) = refit.look(&mut send.ring, &f.memory, most);
            if lost && !std::mem::replace(&mut send.faulted, true) {
                let posted = send.posted();
                f.device.fail_qp(QpNumber(number));
                f.qp_fault(number, FaultQueue::Send, FaultReason::Memory, posted);
            }
            looked
        }
        Stage::ReceiveQueues => {
            let Some(object) = f.qps.place(refit.at) else {
                return refit.next(Stage::Nothing);
            };
            let Some((
                number,
                QueuePair {
                    receive: Some(receive),
                    ..
                },
            )) = object
            else {
                return refit.skip();
            };
            let (lost, looked) = refit.look(&mut receive.ring, &f.memory, most);
            if lost && !std::mem::replace(&mut receive.faulted, true) {
                let posted = receive.posted();
                f.device.fail_qp(QpNumber(number));
                f.qp_fault(number, FaultQueue::Receive, FaultReason::Memory, posted);
            }
            looked
        }
        Stage::Nothing => 0,
    }
}
