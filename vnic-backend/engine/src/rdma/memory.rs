//! The function's memory, as the engine sees it.

use core::fmt;

/// An access to memory that is not there (any more).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no memory at {at:#x}")]
pub struct Unmapped {
    /// The first address that failed.
    pub at: u64,
}

/// First address of memory that is nowhere: null regions have it. Reads there give zeros, writes do nothing. Whoever implements
/// [`Memory`] without it has no null regions.
pub const NULL_MEMORY: u64 = 0xffff_0000_0000_0000;

/// Memory of one function: what its guest shares. Addresses are those of the [`Span`](super::Span)s that were
/// given at registration. The guest writes there at any time; nothing is read twice for one decision.
///
/// All methods take `&self`: the memory is shared.
pub trait Memory {
    /// Copies bytes out.
    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Unmapped>;

    /// Copies bytes in.
    fn write(&self, at: u64, from: &[u8]) -> Result<(), Unmapped>;

    /// Replaces 8 bytes, in the host's byte order, by `change` of them, atomically for every function of this
    /// daemon (`IBV_ATOMIC_GLOB`) if the shell can, and returns the old value. `at` is a multiple of 8.
    fn atomic(&self, at: u64, change: &dyn Fn(u64) -> u64) -> Result<u64, Unmapped>;

    /// Address of `at` in this process and the number of bytes that follow it there, for a shell whose memory has
    /// one: its [`copy_from`](Memory::copy_from) can then copy between two functions directly. The engine itself
    /// looks at no such address.
    fn place(&self, at: u64) -> Option<(*mut u8, u64)> {
        let _ = at;
        None
    }

    /// Copies `len` bytes from another function's memory. A shell overrides this with one copy, if both are the
    /// same kind of memory.
    fn copy_from(&self, at: u64, source: &dyn Memory, from: u64, len: u64) -> Result<(), Unmapped> {
        let mut bounce = [0; 512];
        let mut done = 0;
        while done < len {
            let step = (len - done).min(bounce.len() as u64);
            let bytes = &mut bounce[..step as usize];
            source.read(from + done, bytes)?;
            self.write(at + done, bytes)?;
            done += step;
        }
        Ok(())
    }
}

impl fmt::Debug for dyn Memory + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Memory")
    }
}
