//! The guest's memory has changed: all references to it are checked again, some in each turn.
//!
//! The VMM gets its answer at the end: until then rings use their old memory. The engine's reads and writes use the new
//! memory from the beginning.

use crossbeam_channel::Sender;
use vnic_engine::rdma::MemoryWalk;

use super::memory::FunctionMemory;
use super::shared_ring::{Found, SharedRing};

/// Pieces of memory whose check takes as long as that of an object.
const OBJECT: u32 = 2;

/// Kind of objects that are checked next.
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

/// Progress of the check.
#[derive(Debug)]
pub struct Remap {
    stage: Stage,
    walk: MemoryWalk,
    /// Index of the first object of the stage that is not done; `found`: pieces of its ring so far.
    at: usize,
    found: Found,
    /// Sender of the answer to the VMM; to drop it is an answer, too.
    done: Sender<()>,
}

impl Remap {
    /// Begins a check; `done` gets the answer.
    pub fn new(done: Sender<()>) -> Remap {
        Remap {
            stage: Stage::Regions,
            walk: MemoryWalk::default(),
            at: 0,
            found: Found::default(),
            done,
        }
    }

    /// Kind of objects that are checked now.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// Index of the object that is checked.
    pub fn at(&self) -> usize {
        self.at
    }

    /// Progress among memory regions.
    pub fn walk(&mut self) -> &mut MemoryWalk {
        &mut self.walk
    }

    /// Answers the VMM.
    pub fn finish(self) {
        let _ = self.done.send(());
    }

    /// Goes on with another kind of objects.
    pub fn next(&mut self, stage: Stage) -> u32 {
        (self.stage, self.at) = (stage, 0);
        0
    }

    /// Skips an index without an object.
    pub fn skip(&mut self) -> u32 {
        self.at += 1;
        self.found = Found::default();
        1
    }

    /// Checks the object's ring. Returns whether its memory is gone, and how many pieces were checked.
    pub fn look(&mut self, ring: &mut SharedRing, memory: &FunctionMemory, most: u32) -> (bool, u32) {
        let looked = OBJECT + most.min(ring.extents() as u32);
        let there = ring.remap(memory, &mut self.found, most as usize);
        self.at += usize::from(there.is_some());
        (there == Some(false), looked)
    }
}
