//! In the place of the memory that a driver shares with its device.

use vnic_device::ring::Extent;

use crate::sync::{AtomicU16, AtomicU32, AtomicU64};
use crate::transport::{Error, Transport};

#[derive(Debug, Clone)]
pub struct Memory {
    first: usize,
}

impl Memory {
    pub fn new(first: u64) -> Memory {
        Memory {
            first: first as usize,
        }
    }

    pub fn allocate(transport: &dyn Transport, len: usize) -> Result<(Memory, Vec<Extent>), Error> {
        let pages = transport.allocate(len)?;
        Ok((Memory::new(pages.extents[0].gpa), pages.extents))
    }

    fn at<T>(&self, offset: usize) -> *mut T {
        std::ptr::without_provenance_mut(self.first + offset)
    }

    pub fn u16(&self, offset: usize) -> &AtomicU16 {
        AtomicU16::from_ptr(self.at(offset))
    }

    pub fn u32(&self, offset: usize) -> &AtomicU32 {
        AtomicU32::from_ptr(self.at(offset))
    }

    pub fn u64(&self, offset: usize) -> &AtomicU64 {
        AtomicU64::from_ptr(self.at(offset))
    }
}
