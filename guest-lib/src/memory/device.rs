//! Device memory.

use std::sync::Arc;

use vnic_device::command::Opcode;
use vnic_device::command::memory::AllocDm;

use super::SharedBuffer;
use crate::Error;
use crate::driver::Core;
use crate::pd::Plain;

/// Device memory (`ibv_alloc_dm`), of zeros at first: program and device both have it mapped, so that loads and stores reach it without
/// a command. The device counts it, by a piece of its own ([`Opcode::AllocDm`]), against what an adapter may have. Clones are the
/// same memory.
#[derive(Clone)]
pub struct DeviceMemory(Arc<Dm>);

struct Dm {
    object: Plain,
    memory: SharedBuffer,
}

impl std::fmt::Debug for DeviceMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DeviceMemory({}, {} bytes)", self.number(), self.len())
    }
}

impl DeviceMemory {
    pub(crate) fn new(core: &Arc<Core>, len: u64, log_alignment: u32) -> Result<DeviceMemory, Error> {
        let body = AllocDm {
            len,
            log_alignment,
            reserved: 0,
        };
        let object = Plain::new(core, core.epoch()?, Opcode::AllocDm, &body, Opcode::FreeDm)?;
        // (What the device counts is far less than memory can have. Pages have any alignment that it takes.)
        let memory = SharedBuffer::new(core, usize::try_from(len).unwrap_or(usize::MAX))?;
        Ok(DeviceMemory(Arc::new(Dm { object, memory })))
    }

    /// The memory as the program sees it, for loads, stores and atomics.
    pub fn mapped(&self) -> &SharedBuffer {
        &self.0.memory
    }

    /// Number of the memory.
    pub fn number(&self) -> u32 {
        self.0.object.handle
    }

    /// Length in bytes.
    // Device memory is never empty.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> u64 {
        self.0.memory.len() as u64
    }

    /// Copies bytes in, any number of them. The offset is a multiple of 4 (MLNX_OFED Documentation, Programming: Device Memory).
    pub fn copy_to(&self, offset: u64, from: &[u8]) -> Result<(), Error> {
        if !offset.is_multiple_of(4) {
            let text = format!("offset {offset} of device memory: a copy to it begins at a multiple of 4");
            return Err(Error::Invalid(text));
        }
        let at = self.inside(offset, from.len() as u64)?;
        self.0.memory.write_at(at, from);
        Ok(())
    }

    /// Copies bytes out, any number of them from any offset.
    pub fn copy_from(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        let at = self.inside(offset, into.len() as u64)?;
        self.0.memory.read_at(at, into);
        Ok(())
    }

    /// The offset of bytes that are there.
    pub(super) fn inside(&self, offset: u64, len: u64) -> Result<usize, Error> {
        let end = offset.checked_add(len).filter(|end| *end <= self.len());
        end.and_then(|_| usize::try_from(offset).ok()).ok_or_else(|| {
            let has = self.len();
            Error::Invalid(format!("{len} bytes at {offset}; the device memory has {has}"))
        })
    }
}
