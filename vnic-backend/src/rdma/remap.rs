//! The guest shares other memory now: what refers to memory is looked at anew, in turns.
//!
//! The VMM is answered at the end: until then rings use what they used before. What the engine reads and writes is found in the
//! new memory from the beginning.

use crossbeam_channel::Sender;
use vnic_engine::rdma::MemoryWalk;

use super::memory::FunctionMemory;
use super::shared_ring::{Found, SharedRing};

/// To look at an object takes as long as to look at so many pieces of memory.
const OBJECT: u32 = 2;

/// What is looked at next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
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
pub struct Remap {
    stage: Stage,
    walk: MemoryWalk,
    /// The first object of the stage that is not done, and what was found of its ring.
    at: usize,
    found: Found,
    /// Answered when it is dropped, too.
    done: Sender<()>,
}

impl Remap {
    /// Nothing was looked at; the end is told here.
    pub fn new(done: Sender<()>) -> Remap {
        Remap {
            stage: Stage::Regions,
            walk: MemoryWalk::default(),
            at: 0,
            found: Found::default(),
            done,
        }
    }

    /// What is looked at now.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// The place of the object that is looked at.
    pub fn at(&self) -> usize {
        self.at
    }

    /// How far regions were looked at.
    pub fn walk(&mut self) -> &mut MemoryWalk {
        &mut self.walk
    }

    /// The VMM is answered.
    pub fn finish(self) {
        let _ = self.done.send(());
    }

    /// Goes on with another kind of objects.
    pub fn next(&mut self, stage: Stage) -> u32 {
        (self.stage, self.at) = (stage, 0);
        0
    }

    /// There is nothing to look at.
    pub fn skip(&mut self) -> u32 {
        self.at += 1;
        self.found = Found::default();
        1
    }

    /// Looks at the ring of the object. Is it found to be gone? And how many pieces were looked at?
    pub fn look(&mut self, ring: &mut SharedRing, memory: &FunctionMemory, most: u32) -> (bool, u32) {
        let looked = OBJECT + most.min(ring.extents() as u32);
        let there = ring.remap(memory, &mut self.found, most as usize);
        self.at += usize::from(there.is_some());
        (there == Some(false), looked)
    }
}
