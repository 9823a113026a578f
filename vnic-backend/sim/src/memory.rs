//! The memory of a simulated function: plain bytes that remember who touched them.

use std::cell::{Cell, Ref, RefCell};

use vnic_engine::rdma::{Memory, Unmapped};

/// What the engine did to memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Touch {
    /// Copied bytes out.
    Read {
        /// First byte.
        at: u64,
        /// How many.
        len: u64,
    },
    /// Copied bytes in.
    Write {
        /// First byte.
        at: u64,
        /// How many.
        len: u64,
    },
    /// Replaced 8 bytes atomically.
    Atomic {
        /// First byte.
        at: u64,
        /// What was there.
        old: u64,
        /// What is there now.
        new: u64,
    },
}

/// Bytes from address 0, and a trace of every access since it was last taken.
#[derive(Debug)]
pub struct SimMemory {
    bytes: RefCell<Vec<u8>>,
    touched: RefCell<Vec<Touch>>,
    /// Accesses outside the memory: each is a fault of the engine, which has checked everything before.
    outside: Cell<u32>,
}

impl SimMemory {
    /// So many zeros.
    pub fn new(len: usize) -> SimMemory {
        SimMemory {
            bytes: RefCell::new(vec![0; len]),
            touched: RefCell::default(),
            outside: Cell::new(0),
        }
    }

    /// Bytes.
    pub fn len(&self) -> u64 {
        self.bytes.borrow().len() as u64
    }

    /// No bytes?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All bytes, without a trace: for the owner and the oracle.
    pub fn peek(&self) -> Ref<'_, [u8]> {
        Ref::map(self.bytes.borrow(), Vec::as_slice)
    }

    /// Writes without a trace: the owner does it.
    pub fn store(&self, at: u64, from: &[u8]) {
        self.bytes.borrow_mut()[at as usize..][..from.len()].copy_from_slice(from);
    }

    /// The accesses since the last call, and how many of them were outside.
    pub fn take(&self, into: &mut Vec<Touch>) -> u32 {
        into.append(&mut self.touched.borrow_mut());
        self.outside.take()
    }

    fn check(&self, at: u64, len: u64) -> Result<(), Unmapped> {
        match at.checked_add(len) {
            Some(end) if end <= self.len() => Ok(()),
            _ => {
                self.outside.set(self.outside.get() + 1);
                Err(Unmapped { at })
            }
        }
    }
}

impl Memory for SimMemory {
    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Unmapped> {
        let len = into.len() as u64;
        self.check(at, len)?;
        into.copy_from_slice(&self.bytes.borrow()[at as usize..][..into.len()]);
        self.touched.borrow_mut().push(Touch::Read { at, len });
        Ok(())
    }

    fn write(&self, at: u64, from: &[u8]) -> Result<(), Unmapped> {
        let len = from.len() as u64;
        self.check(at, len)?;
        self.store(at, from);
        self.touched.borrow_mut().push(Touch::Write { at, len });
        Ok(())
    }

    fn atomic(&self, at: u64, change: &dyn Fn(u64) -> u64) -> Result<u64, Unmapped> {
        self.check(at, 8)?;
        let mut word = [0; 8];
        word.copy_from_slice(&self.bytes.borrow()[at as usize..][..8]);
        let old = u64::from_ne_bytes(word);
        let new = change(old);
        self.store(at, &new.to_ne_bytes());
        self.touched.borrow_mut().push(Touch::Atomic { at, old, new });
        Ok(old)
    }

    fn copy_from(&self, at: u64, source: &dyn Memory, from: u64, len: u64) -> Result<(), Unmapped> {
        let mut bytes = vec![0; len as usize];
        source.read(from, &mut bytes)?;
        self.write(at, &bytes)
    }
}
