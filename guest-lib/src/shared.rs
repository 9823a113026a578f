//! Memory that others write while we read: the device, and through it its peers.
//!
//! Nobody makes a reference to plain bytes in this memory, here or outside: a `&[u8]` promises that nobody
//! writes, and somebody does. All access is by atomic loads and stores, so that what a copy holds may be old
//! or mixed, but is never undefined.

#![expect(
    unsafe_code,
    reason = "memory that the device writes at any time, reached by atomics alone"
)]

use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

use vnic_device::ring::Extent;

use crate::Error;
use crate::extents::part_of;
use crate::transport::{SharedPages, Transport};

/// A piece of memory that stays mapped for as long as this value lives.
#[derive(Clone)]
pub(crate) struct Memory {
    start: NonNull<u8>,
    len: usize,
    _keep: Arc<dyn Any + Send + Sync>,
}

// SAFETY: an address; all access through it is atomic.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// The memory of `pages`, as a whole.
    pub fn of_pages(pages: SharedPages) -> Memory {
        Memory {
            start: pages.start,
            len: pages.len,
            _keep: Arc::new(pages),
        }
    }

    /// New memory of zeros with at least `len` bytes, in whole pages, and where the device sees these bytes.
    pub fn allocate(transport: &dyn Transport, len: usize) -> Result<(Memory, Vec<Extent>), Error> {
        let pages = transport.allocate(len)?;
        let extents = part_of(&pages.extents, 0, len as u64);
        Ok((Memory::of_pages(pages), extents))
    }

    /// Memory of no bytes.
    pub fn none() -> Memory {
        Memory {
            start: NonNull::dangling(),
            len: 0,
            _keep: Arc::new(()),
        }
    }

    /// Memory of no bytes here, which the device sees while `keep` is there.
    pub fn unseen(keep: Arc<dyn Any + Send + Sync>) -> Memory {
        Memory {
            _keep: keep,
            ..Memory::none()
        }
    }

    /// Memory that somebody else owns.
    ///
    /// # Safety
    /// `len` bytes from `start` stay mapped, readable and writable, for as long as `keep` or a clone of it is
    /// there, and the program makes no references into them that this could contradict.
    pub unsafe fn foreign(start: NonNull<u8>, len: usize, keep: Arc<dyn Any + Send + Sync>) -> Memory {
        Memory {
            start,
            len,
            _keep: keep,
        }
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Address of the first byte in this process.
    pub fn addr(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    /// A part of the memory.
    ///
    /// # Panics
    /// If the range reaches beyond the end.
    pub fn part(&self, offset: usize, len: usize) -> Memory {
        self.check(offset, len);
        Memory {
            // SAFETY: within the memory, as was checked.
            start: unsafe { self.start.add(offset) },
            len,
            _keep: Arc::clone(&self._keep),
        }
    }

    #[inline]
    #[track_caller]
    fn check(&self, offset: usize, len: usize) {
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            self.outside(offset, len);
        }
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn outside(&self, offset: usize, len: usize) -> ! {
        panic!(
            "{len} bytes from {offset} are not within the {} of this memory",
            self.len
        );
    }

    #[inline]
    #[track_caller]
    fn at<T>(&self, offset: usize) -> *mut T {
        self.check(offset, size_of::<T>());
        // SAFETY: within the memory, as was checked.
        let place = unsafe { self.start.add(offset) }.as_ptr();
        assert!(
            (place as usize).is_multiple_of(align_of::<T>()),
            "{offset} is not aligned"
        );
        place.cast()
    }

    /// The 16-bit number at an offset.
    #[inline]
    pub fn u16(&self, offset: usize) -> &AtomicU16 {
        // SAFETY: mapped, aligned, and only ever reached by atomics.
        unsafe { &*self.at::<AtomicU16>(offset) }
    }

    /// The 32-bit number at an offset.
    #[inline]
    pub fn u32(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: mapped, aligned, and only ever reached by atomics.
        unsafe { &*self.at::<AtomicU32>(offset) }
    }

    /// The 64-bit number at an offset.
    #[inline]
    pub fn u64(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: mapped, aligned, and only ever reached by atomics.
        unsafe { &*self.at::<AtomicU64>(offset) }
    }

    /// The byte at an offset.
    #[inline]
    pub fn u8(&self, offset: usize) -> &AtomicU8 {
        // SAFETY: mapped, and only ever reached by atomics.
        unsafe { &*self.at::<AtomicU8>(offset) }
    }

    /// The first `len` bytes as words of 64 bits.
    ///
    /// # Panics
    /// If the memory is shorter, or does not begin at a multiple of 8.
    #[inline]
    pub fn words(&self, len: usize) -> &[AtomicU64] {
        self.check(0, len);
        let first = self.start.as_ptr();
        assert!((first as usize).is_multiple_of(8), "not aligned");
        // SAFETY: mapped, aligned, long enough, and only ever reached by atomics.
        unsafe { std::slice::from_raw_parts(first.cast(), len / 8) }
    }

    /// Splits a range into bytes before the first multiple of 8, whole words, and bytes behind them.
    fn split(&self, offset: usize, len: usize) -> (usize, &[AtomicU64], usize) {
        let first = self.start.as_ptr() as usize + offset;
        let head = first.wrapping_neg() % 8;
        if head > len {
            return (len, &[], 0);
        }
        let words = (len - head) / 8;
        let body = (first + head) as *const AtomicU64;
        let body = self.start.as_ptr().with_addr(body.addr()).cast::<AtomicU64>();
        // SAFETY: within the memory (the callers have checked), aligned, and only ever reached by atomics.
        let body = unsafe { std::slice::from_raw_parts(body, words) };
        (head, body, len - head - 8 * words)
    }

    /// Copies bytes out.
    ///
    /// # Panics
    /// If the range reaches beyond the end.
    #[track_caller]
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        self.check(offset, into.len());
        let (head, words, tail) = self.split(offset, into.len());
        let (first, rest) = into.split_at_mut(head);
        let (middle, last) = rest.split_at_mut(8 * words.len());
        debug_assert_eq!(last.len(), tail);
        for (i, byte) in first.iter_mut().enumerate() {
            *byte = self.u8(offset + i).load(Relaxed);
        }
        for (bytes, word) in middle.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.load(Relaxed).to_ne_bytes());
        }
        let behind = offset + head + 8 * words.len();
        for (i, byte) in last.iter_mut().enumerate() {
            *byte = self.u8(behind + i).load(Relaxed);
        }
    }

    /// Copies bytes in.
    ///
    /// # Panics
    /// If the range reaches beyond the end.
    #[track_caller]
    pub fn write(&self, offset: usize, from: &[u8]) {
        self.check(offset, from.len());
        let (head, words, _) = self.split(offset, from.len());
        let (first, rest) = from.split_at(head);
        let (middle, last) = rest.split_at(8 * words.len());
        for (i, byte) in first.iter().enumerate() {
            self.u8(offset + i).store(*byte, Relaxed);
        }
        for (bytes, word) in middle.chunks_exact(8).zip(words) {
            let mut value = [0; 8];
            value.copy_from_slice(bytes);
            word.store(u64::from_ne_bytes(value), Relaxed);
        }
        let behind = offset + head + 8 * words.len();
        for (i, byte) in last.iter().enumerate() {
            self.u8(behind + i).store(*byte, Relaxed);
        }
    }

    /// Sets all bytes of a range.
    ///
    /// # Panics
    /// If the range reaches beyond the end.
    #[track_caller]
    pub fn fill(&self, offset: usize, len: usize, byte: u8) {
        self.check(offset, len);
        let (head, words, tail) = self.split(offset, len);
        for i in 0..head {
            self.u8(offset + i).store(byte, Relaxed);
        }
        for word in words {
            word.store(u64::from_ne_bytes([byte; 8]), Relaxed);
        }
        let behind = offset + head + 8 * words.len();
        for i in 0..tail {
            self.u8(behind + i).store(byte, Relaxed);
        }
    }
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes at {:#x}", self.len, self.addr())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Memory of the test's own.
    pub(crate) fn memory(len: usize) -> Memory {
        let mut words = vec![0u64; len.div_ceil(8)];
        let start = NonNull::new(words.as_mut_ptr().cast()).expect("not null");
        // SAFETY: the vector is kept, never touched otherwise, and does not move its elements.
        unsafe { Memory::foreign(start, len, Arc::new(words)) }
    }

    #[test]
    fn bytes_go_in_and_out_at_any_place() {
        let m = memory(64);
        for offset in 0..20 {
            for len in 0..30 {
                m.fill(0, 64, 0xee);
                let data: Vec<u8> = (1..=len as u8).collect();
                m.write(offset, &data);
                let mut all = [0; 64];
                m.read(0, &mut all);
                assert_eq!(&all[offset..offset + len], data);
                assert!(
                    all[..offset]
                        .iter()
                        .chain(&all[offset + len..])
                        .all(|&b| b == 0xee)
                );
                let mut back = vec![0; len];
                m.part(offset, 64 - offset).read(0, &mut back);
                assert_eq!(back, data);
                m.fill(offset, len, 7);
                m.read(0, &mut all);
                assert_eq!(all.iter().filter(|&&b| b == 7).count(), len);
            }
        }
    }

    #[test]
    #[should_panic(expected = "not within")]
    fn nothing_is_read_beyond_the_end() {
        memory(16).read(10, &mut [0; 7]);
    }

    #[test]
    #[should_panic(expected = "not within")]
    fn sums_do_not_wrap() {
        memory(16).write(usize::MAX, &[0; 2]);
    }
}
