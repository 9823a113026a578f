//! Device memory.

use std::sync::Arc;

use vnic_device::command::Opcode;
use vnic_device::command::memory::{AllocDm, CopyDm};
use vnic_device::zerocopy::IntoBytes;

use crate::Error;
use crate::driver::Core;
use crate::pd::Plain;

/// Most bytes of a copy by one command.
const PIECE: usize = 32768;

/// Memory of the device's own (`ibv_alloc_dm`; `SPEC.md`, section 11.4). It is zeros at first; programs reach it
/// by copies and, when it is registered, by keys. Clones are the same memory.
#[derive(Clone)]
pub struct DeviceMemory(Arc<Dm>);

struct Dm {
    object: Plain,
    len: u64,
}

impl std::fmt::Debug for DeviceMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DeviceMemory({}, {} bytes)", self.number(), self.0.len)
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
        Ok(DeviceMemory(Arc::new(Dm { object, len })))
    }

    pub(super) fn core(&self) -> &Arc<Core> {
        &self.0.object.core
    }

    /// Number of the memory.
    pub fn number(&self) -> u32 {
        self.0.object.handle
    }

    /// Length in bytes.
    // Device memory is never empty.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> u64 {
        self.0.len
    }

    /// Copies bytes in. Offset and length are multiples of 4.
    pub fn copy_to(&self, offset: u64, from: &[u8]) -> Result<(), Error> {
        let mut at = offset;
        for piece in pieces(from.len()) {
            let bytes = &from[piece.clone()];
            self.copy(Opcode::CopyToDm, at, bytes.len(), bytes, 0)?;
            at += bytes.len() as u64;
        }
        Ok(())
    }

    /// Copies bytes out. Offset and length are multiples of 4.
    pub fn copy_from(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        let mut at = offset;
        for piece in pieces(into.len()) {
            let bytes = &mut into[piece];
            let reply = self.copy(Opcode::CopyFromDm, at, bytes.len(), &[], bytes.len())?;
            if reply.len() != bytes.len() {
                return Err(Error::Protocol(format!(
                    "{} bytes of device memory instead of {}",
                    reply.len(),
                    bytes.len()
                )));
            }
            bytes.copy_from_slice(&reply);
            at += bytes.len() as u64;
        }
        Ok(())
    }

    fn copy(
        &self,
        opcode: Opcode,
        offset: u64,
        len: usize,
        list: &[u8],
        room: usize,
    ) -> Result<Vec<u8>, Error> {
        let body = CopyDm {
            dm: self.number(),
            len: len as u32,
            offset,
        };
        let Plain { core, epoch, .. } = &self.0.object;
        core.command(Some(*epoch), opcode, body.as_bytes(), list, room)
    }
}

/// Ranges of at most [`PIECE`] bytes. Without bytes there is one empty range, so that the device checks the rest.
fn pieces(len: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    let count = len.div_ceil(PIECE).max(1);
    (0..count).map(move |i| i * PIECE..((i + 1) * PIECE).min(len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_cut_into_pieces() {
        let ends = |len| pieces(len).map(|p| (p.start, p.end)).collect::<Vec<_>>();
        assert_eq!(ends(0), [(0, 0)]);
        assert_eq!(ends(4), [(0, 4)]);
        assert_eq!(ends(PIECE + 4), [(0, PIECE), (PIECE, PIECE + 4)]);
    }
}
