//! Registered memory: buffers, regions, windows, device memory.
//!
//! # Why nothing here can be used after it was freed
//!
//! The device writes into a registered buffer on behalf of peers that know its key, at any time and from another
//! address space. Lifetimes of this program's references cannot speak about that. So:
//!
//! * *No references.* Nothing hands out `&[u8]` or `&mut [u8]` into registered memory. Programs read and write it
//!   by copies ([`read_at`](SharedBuffer::read_at), [`write_at`](SharedBuffer::write_at)) and by atomics
//!   ([`load`](SharedBuffer::load), …), which are defined whatever the device does meanwhile.
//! * *Work requests name memory by key, not by reference.* An [`Sge`] is a number for the device. An element that
//!   outlives its region is harmless: the device refuses a key that is no longer there, and the request completes
//!   with an error.
//! * *Memory is freed after the device has let it go.* A region holds its memory by a reference count. Dropping
//!   the region sends DEREGISTER_MR; when the device has answered, it does not touch the memory any more
//!   (`SPEC.md`, section 5.1), and only then the count goes down. While windows are bound to the region the device
//!   refuses; the library then tries again whenever another object has ended. If no answer can be had (the device
//!   is gone), the memory is kept until the transport has stopped the device. Rings of queues are treated alike.
//!   So no order of drops frees memory early.
//!
//! ```compile_fail,E0599
//! # fn wrong(region: &vnic_verbs::MemoryRegion) {
//! let bytes: &[u8] = region.as_ref(); // there is no such thing
//! # }
//! ```
//! ```compile_fail,E0133
//! # fn wrong(pd: &vnic_verbs::ProtectionDomain) -> Result<(), vnic_verbs::Error> {
//! let mut mine = vec![0u8; 4096];
//! // Memory of the program's own can be freed while the device writes it: registering it is unsafe.
//! let region = pd.register_raw(std::ptr::NonNull::from(&mut mine[0]), 4096, 0, vnic_verbs::Access::LOCAL_WRITE)?;
//! # Ok(())
//! # }
//! ```

mod device;
mod dmabuf;
mod region;
mod window;

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

use vnic_device::ring::Extent;

pub use device::DeviceMemory;
pub use region::{MemoryRegion, Reregister};
pub use window::{MemoryWindow, MwType};

use crate::Error;
use crate::driver::Core;
use crate::shared::Memory;

/// A scatter/gather element: where the bytes of a work request are (`ibv_sge`). It is a number, not a reference:
/// see the [module](self). Its layout in memory is that of the C structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(C)]
pub struct Sge {
    /// Address in the region.
    pub addr: u64,
    /// Length in bytes.
    pub len: u32,
    /// Local key of the region.
    pub lkey: u32,
}

/// Memory that the device can see, once parts of it are registered. Clones are the same memory.
#[derive(Clone, Debug)]
pub struct SharedBuffer(pub(crate) Arc<Buffer>);

pub(crate) struct Buffer {
    pub memory: Memory,
    pub extents: Vec<Extent>,
    pub core: Arc<Core>,
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.memory.fmt(f)
    }
}

impl SharedBuffer {
    pub(crate) fn new(core: &Arc<Core>, len: usize) -> Result<SharedBuffer, Error> {
        if len == 0 {
            return Err(Error::Invalid("a buffer of 0 bytes".into()));
        }
        let (memory, extents) = Memory::allocate(&*core.transport, len)?;
        Ok(SharedBuffer(Arc::new(Buffer {
            memory: memory.part(0, len),
            extents,
            core: Arc::clone(core),
        })))
    }

    fn memory(&self) -> &Memory {
        &self.0.memory
    }

    /// Address of the first byte in this process, which peers may be told. A multiple of the page size.
    pub fn addr(&self) -> u64 {
        self.0.memory.addr()
    }
}

/// The offset and length of a range of `len` bytes.
///
/// # Panics
/// If the range is not within the `len` bytes.
#[track_caller]
pub(crate) fn bounds(range: impl RangeBounds<usize>, len: usize) -> (usize, usize) {
    let start = match range.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(start) => start.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(end) => end.saturating_add(1),
        Bound::Excluded(end) => *end,
        Bound::Unbounded => len,
    };
    assert!(
        start <= end && end <= len,
        "{start}..{end} is not within the {len} bytes of this memory"
    );
    (start, end - start)
}

/// Reads and writes of shared memory. An offset that is not within the memory is a bug of the program, and panics
/// as for slices.
macro_rules! accessors {
    ($(#[$doc:meta])* $name:ty, $memory:expr) => {
        impl $name {
            /// Length in bytes.
            // What is registered or allocated is never empty.
            #[allow(clippy::len_without_is_empty)]
            pub fn len(&self) -> usize {
                $memory(self).len()
            }

            /// Copies bytes out. If the device writes there meanwhile, the copy is a mixture.
            ///
            /// # Panics
            /// If the range reaches beyond the end.
            #[track_caller]
            pub fn read_at(&self, offset: usize, into: &mut [u8]) {
                $memory(self).read(offset, into);
            }

            /// Copies bytes out, into a vector.
            ///
            /// # Panics
            /// If the range reaches beyond the end.
            #[track_caller]
            pub fn read_vec(&self, offset: usize, len: usize) -> Vec<u8> {
                let mut bytes = vec![0; len];
                $memory(self).read(offset, &mut bytes);
                bytes
            }

            /// Copies bytes in.
            ///
            /// # Panics
            /// If the range reaches beyond the end.
            #[track_caller]
            pub fn write_at(&self, offset: usize, from: &[u8]) {
                $memory(self).write(offset, from);
            }

            /// Sets all bytes of a range.
            ///
            /// # Panics
            /// If the range reaches beyond the end.
            #[track_caller]
            pub fn fill(&self, range: impl RangeBounds<usize>, byte: u8) {
                let memory = $memory(self);
                let (offset, len) = bounds(range, memory.len());
                memory.fill(offset, len, byte);
            }

            /// Loads the byte at an offset, with acquire order: for programs that wait for the last byte of a
            /// WRITE.
            ///
            /// # Panics
            /// If the offset is beyond the end.
            #[track_caller]
            pub fn load_u8(&self, offset: usize) -> u8 {
                $memory(self).u8(offset).load(Acquire)
            }

            /// Loads 8 bytes in one piece, with acquire order: the program then also sees what the device wrote
            /// before.
            ///
            /// # Panics
            /// If the bytes reach beyond the end, or their address is not a multiple of 8.
            #[track_caller]
            pub fn load(&self, offset: usize) -> u64 {
                $memory(self).u64(offset).load(Acquire)
            }

            /// Stores 8 bytes in one piece, with release order.
            ///
            /// # Panics
            /// As [`load`](Self::load).
            #[track_caller]
            pub fn store(&self, offset: usize, value: u64) {
                $memory(self).u64(offset).store(value, Release);
            }

            /// Adds to 8 bytes atomically, and returns the old value. It is atomic with atomics of peers only if
            /// [`DeviceAttributes::atomic_scope`](crate::DeviceAttributes::atomic_scope) is GLOBAL.
            ///
            /// # Panics
            /// As [`load`](Self::load).
            #[track_caller]
            pub fn fetch_add(&self, offset: usize, add: u64) -> u64 {
                $memory(self).u64(offset).fetch_add(add, AcqRel)
            }

            /// Replaces 8 bytes atomically if they are `expected`, and returns the old value. With peers as
            /// [`fetch_add`](Self::fetch_add).
            ///
            /// # Panics
            /// As [`load`](Self::load).
            #[track_caller]
            pub fn compare_swap(&self, offset: usize, expected: u64, new: u64) -> u64 {
                let result = $memory(self)
                    .u64(offset)
                    .compare_exchange(expected, new, AcqRel, Acquire);
                match result {
                    Ok(was) | Err(was) => was,
                }
            }
        }
    };
}

use accessors;
accessors!(SharedBuffer, SharedBuffer::memory);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_checked() {
        assert_eq!(bounds(.., 8), (0, 8));
        assert_eq!(bounds(2..5, 8), (2, 3));
        assert_eq!(bounds(2..=7, 8), (2, 6));
        assert_eq!(bounds(8.., 8), (8, 0));
        for wrong in [0..9, 9..9] {
            assert!(std::panic::catch_unwind(|| bounds(wrong.clone(), 8)).is_err());
        }
    }
}
