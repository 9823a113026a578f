//! Device memory of an RDMA function: its pieces, and the regions over them.

use vnic_device::status::CommandStatus as S;
use vnic_engine::rdma::MrHandle;

use super::memory::FunctionMemory;
use super::request::{Failure, Outcome, fail, refused};

/// Bytes of device memory of an adapter: as many as a ConnectX-5 has by `ibv_devinfo -v`.
pub const DEVICE_MEMORY_MAX: u64 = 128 << 10;

/// Pieces of a function's device memory.
#[derive(Debug, Default)]
pub struct DeviceMemoryTable {
    pieces: Vec<Option<DmPiece>>,
    /// Part of handles that differs between old and new ones.
    generation: u32,
}

/// A piece of device memory.
#[derive(Debug)]
pub struct DmPiece {
    handle: u32,
    /// Place of the piece in the function's memory.
    place: usize,
    len: u64,
    /// Regions over the piece.
    pub regions: Vec<MrHandle>,
}

impl DeviceMemoryTable {
    /// Number of pieces in use.
    pub fn used(&self) -> u32 {
        self.pieces.iter().flatten().count() as u32
    }

    /// Largest number of pieces.
    pub const LIMIT: u32 = 1024;

    /// Frees all pieces.
    pub fn clear(&mut self, memory: &mut FunctionMemory) {
        for piece in self.pieces.drain(..).flatten() {
            memory.free(piece.place);
        }
    }

    /// Allocates a piece of `len` bytes. Returns its handle.
    pub fn allocate(&mut self, len: u64, memory: &mut FunctionMemory) -> Result<u32, Failure> {
        let free = DEVICE_MEMORY_MAX - memory.device_bytes();
        // (Each piece begins at a page, so that any alignment is kept.)
        if len == 0 || len.div_ceil(8).saturating_mul(8) > free {
            let text = format!("{len} bytes of device memory; {free} of {DEVICE_MEMORY_MAX} are free");
            return fail(S::LimitReached, text);
        }
        let slot = match self.pieces.iter().position(Option::is_none) {
            Some(slot) => slot,
            None if self.pieces.len() < Self::LIMIT as usize => {
                self.pieces.push(None);
                self.pieces.len() - 1
            }
            None => {
                let text = format!("there are {} pieces of device memory already", Self::LIMIT);
                return fail(S::LimitReached, text);
            }
        };
        self.generation = self.generation.wrapping_add(1) & 0xfffff;
        let handle = self.generation << 12 | slot as u32;
        self.pieces[slot] = Some(DmPiece {
            handle,
            place: memory.allocate(len),
            len,
            regions: Vec::new(),
        });
        Ok(handle)
    }

    /// Frees a piece without regions.
    pub fn free(&mut self, handle: u32, memory: &mut FunctionMemory) -> Outcome {
        let piece = self.find(handle)?;
        if !piece.regions.is_empty() {
            return fail(S::InUse, format!("{} regions are over it", piece.regions.len()));
        }
        memory.free(piece.place);
        for slot in &mut self.pieces {
            slot.take_if(|p| p.handle == handle);
        }
        Ok(())
    }

    /// The piece with this handle.
    pub fn find(&mut self, handle: u32) -> Result<&mut DmPiece, Failure> {
        let found = self.pieces.iter_mut().flatten().find(|p| p.handle == handle);
        found.ok_or_else(|| refused(S::NoSuchObject, "no such device memory"))
    }

    /// Removes a region that has ended, or has other memory now, from its piece.
    pub fn leave(&mut self, mr: MrHandle) {
        for piece in self.pieces.iter_mut().flatten() {
            piece.regions.retain(|r| *r != mr);
        }
    }
}

impl DmPiece {
    /// Address of bytes of the piece.
    pub fn address(&self, offset: u64, len: u64) -> Result<u64, Failure> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len => Ok(FunctionMemory::device_address(self.place, offset)),
            _ => {
                let text = format!("{len} bytes at {offset}; the device memory has {}", self.len);
                fail(S::OutOfRange, text)
            }
        }
    }
}
