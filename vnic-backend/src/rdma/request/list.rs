//! Lists of extents (`SPEC.md`, section 6): read once, in pieces that fit into a turn. The result of a list grows with it.

use std::sync::Arc;

use vnic_device::ring::{EXTENTS_MAX, Extent, ExtentList, REGION_EXTENT_MIN};
use vnic_device::status::CommandStatus as S;
use vnic_engine::rdma::{Memory, Span, Translation};

use super::failure::{Failure, fail, refused};
use crate::mem::MemMap;
use crate::rdma::account::EXTENTS;
use crate::rdma::memory::FunctionMemory;
use crate::rdma::shared_ring::{RingMaker, SharedRing};
use crate::rdma::work_queue::structure;

const LEN: usize = size_of::<Extent>();
/// Extents that are read at once.
const AT_ONCE: usize = 32;

/// A list of extents, as far as it was read.
#[derive(Debug)]
pub struct List {
    /// Extents that were read.
    read: u32,
    /// Number of chunks that were read; `at`: bytes of the next one.
    chunk: usize,
    at: u64,
    made: Made,
}

/// Result of a list.
#[derive(Debug)]
enum Made {
    Region(Translation),
    Ring(RingMaker),
}

impl Made {
    /// Adds the next extent. Returns the number of the guest's memory regions that it spans.
    fn push(
        &mut self,
        extent: Extent,
        first: bool,
        last: bool,
        memory: &FunctionMemory,
    ) -> Result<u32, Failure> {
        match self {
            Made::Region(translation) => {
                let Some(regions) = memory.shared_regions(extent.gpa, extent.len) else {
                    let text = format!(
                        "{} bytes at {:#x} are not shared with the device",
                        extent.len, extent.gpa
                    );
                    return fail(S::BadAddress, text);
                };
                if !first && !last && extent.len < REGION_EXTENT_MIN {
                    let text = format!(
                        "an extent of {} bytes; all but the first and the last have {REGION_EXTENT_MIN} at least",
                        extent.len
                    );
                    return fail(S::Invalid, text);
                }
                translation.push(Span {
                    at: extent.gpa,
                    len: extent.len,
                });
                Ok(regions)
            }
            Made::Ring(maker) => maker.push(memory, extent, last).ok_or_else(|| maker.refusal()),
        }
    }
}

impl RingMaker {
    fn refusal(&self) -> Failure {
        let (len, stride) = self.wanted();
        refused(
            S::BadAddress,
            format!(
                "the ring needs {len} bytes of shared memory, in pieces that begin at multiples of 64 and hold whole \
                 entries of {stride} bytes"
            ),
        )
    }
}

/// A list that a command's body announces.
#[derive(Debug, Clone, Copy)]
pub struct Announced<'a> {
    wanted: ExtentList,
    /// Extents of the list behind the body, or its chunks.
    own: &'a [u8],
}

impl<'a> Announced<'a> {
    /// Takes the extents of a list, or its chunks, from the front of the bytes behind the body; at most `most` extents.
    pub fn take(list: &mut &'a [u8], wanted: ExtentList, most: u32) -> Result<Announced<'a>, Failure> {
        let following = wanted.following() as usize;
        let Some((own, rest)) = following
            .checked_mul(LEN)
            .and_then(|bytes| list.split_at_checked(bytes))
        else {
            let text = format!(
                "{following} extents are announced, the list has {} bytes",
                list.len()
            );
            return fail(S::Malformed, text);
        };
        *list = rest;
        if wanted.count > EXTENTS_MAX {
            let text = format!("{} extents; one command has at most {EXTENTS_MAX}", wanted.count);
            return fail(S::LimitReached, text);
        }
        if wanted.count > most {
            let text = format!("{} extents; the device has room for {most} more", wanted.count);
            return fail(S::LimitReached, text);
        }
        Ok(Announced { wanted, own })
    }

    /// Number of extents of the list.
    pub fn extents(&self) -> usize {
        self.wanted.count as usize
    }
}

/// Fails a command that takes a list as something else than it was read into.
pub fn other_kind<T>() -> Result<T, Failure> {
    fail(S::Internal, "a list of another kind")
}

impl List {
    fn new(made: Made) -> List {
        List {
            read: 0,
            chunk: 0,
            at: 0,
            made,
        }
    }

    /// Makes a list that becomes the memory of a region.
    pub fn of_region(extents: usize) -> List {
        List::new(Made::Region(Translation::with_capacity(extents)))
    }

    /// Makes a list that becomes a ring of `len` bytes with entries of `stride` bytes.
    pub fn of_ring(map: Arc<MemMap>, extents: usize, len: u64, stride: u32) -> List {
        List::new(Made::Ring(RingMaker::new(map, extents, len, stride)))
    }

    /// Number of extents that were read.
    pub fn read(&self) -> usize {
        self.read as usize
    }

    /// Takes the result of the list.
    fn take(&mut self) -> Made {
        std::mem::replace(&mut self.made, Made::Region(Translation::default()))
    }

    /// Bytes of the memory that was read of; 0 of a ring.
    pub fn bytes(&self) -> u64 {
        match &self.made {
            Made::Region(translation) => translation.bytes(),
            Made::Ring(_) => 0,
        }
    }

    /// Takes the memory into which the list was read.
    pub fn memory(&mut self) -> Result<Translation, Failure> {
        match self.take() {
            Made::Region(translation) => Ok(translation),
            Made::Ring(_) => other_kind(),
        }
    }

    /// Takes the ring into which the list was read.
    pub fn ring(&mut self) -> Result<SharedRing, Failure> {
        match self.take() {
            Made::Ring(maker) => {
                let refusal = maker.refusal();
                maker.finish().ok_or(refusal)
            }
            Made::Region(_) => other_kind(),
        }
    }

    /// Reads more extents. Returns the work that this was.
    pub fn step(&mut self, from: &Announced<'_>, memory: &FunctionMemory) -> Result<i32, Failure> {
        let count = from.wanted.count;
        let left = (count.saturating_sub(self.read) as usize).min(AT_ONCE);
        let mut room = [0; AT_ONCE * LEN];
        let n = if from.wanted.chunks == 0 {
            let own = from.own.iter().skip(self.read as usize * LEN);
            room.iter_mut().zip(own).for_each(|(to, from)| *to = *from);
            left
        } else {
            let Some(chunk) = from.own.chunks_exact(LEN).nth(self.chunk) else {
                return fail(S::BadAddress, "the chunks hold fewer extents than announced");
            };
            let chunk: Extent = structure(chunk);
            if !chunk.gpa.is_multiple_of(16) || !chunk.len.is_multiple_of(16) {
                return fail(S::BadAddress, "a chunk of the list is not aligned to 16 bytes");
            }
            let there = chunk.len.saturating_sub(self.at) / LEN as u64;
            let n = usize::try_from(there).unwrap_or(usize::MAX).min(left);
            if n == 0 {
                (self.chunk, self.at) = (self.chunk + 1, 0);
                return Ok(1);
            }
            let (at, bytes) = (chunk.gpa.saturating_add(self.at), &mut room[..n * LEN]);
            if !memory.is_shared(at, bytes.len() as u64) || memory.read(at, bytes).is_err() {
                return fail(S::BadAddress, format!("no memory is shared at {at:#x}"));
            }
            self.at += bytes.len() as u64;
            n
        };
        let mut work = n as u32;
        for bytes in room.chunks_exact(LEN).take(n) {
            let (first, last) = (self.read == 0, self.read + 1 == count);
            self.read += 1;
            work += self.made.push(structure(bytes), first, last, memory)?;
        }
        Ok((work / (2 * EXTENTS)).cast_signed() + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8], wanted: ExtentList) -> Result<u32, Failure> {
        let memory = FunctionMemory::default();
        let mut list = List::new(Made::Region(Translation::default()));
        let from = Announced { wanted, own: bytes };
        while list.read() < from.extents() {
            list.step(&from, &memory)?;
        }
        Ok(list.read)
    }

    #[test]
    fn lists_are_read_as_far_as_announced() {
        let empty = [0u8; 50 * LEN];
        let refused = |count, chunks| match read(&empty, ExtentList { count, chunks }) {
            Err(Failure::Refused { status, .. }) => Some(status),
            _ => None,
        };
        let all = |count| read(&empty, ExtentList { count, chunks: 0 });
        assert_eq!((all(0), all(2)), (Ok(0), Ok(2)));
        // An empty extent may only be at an end.
        assert_eq!(refused(3, 0), Some(S::Invalid));
        // Chunks without extents.
        assert_eq!(refused(4, 2), Some(S::BadAddress));
    }
}
