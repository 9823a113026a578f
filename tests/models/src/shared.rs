//! In the place of the memory that a driver shares with its device.

use std::sync::Arc;

use vnic_device::ring::Extent;

use crate::sync::{AtomicU16, AtomicU32, AtomicU64};
use crate::transport::SharedPages;

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

    pub fn of_pages(pages: Arc<SharedPages>) -> Memory {
        Memory::new(pages.extents[0].gpa)
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

pub fn part_of(extents: &[Extent], offset: u64, len: u64) -> Vec<Extent> {
    let gpa = extents[0].gpa + offset;
    vec![Extent { gpa, len }]
}
