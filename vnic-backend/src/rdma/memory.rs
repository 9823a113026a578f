//! Memory of an RDMA function: the guest's, and device memory. The engine has one address space for both: guest-physical
//! addresses below 2^63, device memory above, and memory that is nowhere ([`NULL_MEMORY`]) at the end.

#![expect(
    unsafe_code,
    reason = "payload of RDMA: copied between guests and device memory, changed by atomics"
)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use vnic_engine::rdma::{Memory, NULL_MEMORY, Span, Unmapped};

use crate::mem::MemMap;

/// First address of device memory: no guest has so much memory.
const DEVICE_BASE: u64 = 1 << 63;
/// Number of attempts of an atomic operation.
const ATTEMPTS: u32 = 256;
/// Addresses of each piece of device memory.
const DEVICE_SLOT: u64 = 1 << 32;

/// Words that are read and written at once of memory that is nowhere.
const NOWHERE: usize = 512;
/// What is read there.
static ZEROS: [u64; NOWHERE] = [0; NOWHERE];

/// What is done with bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Read,
    Write,
}

/// Memory that the engine reads and writes.
#[derive(Debug, Default)]
pub struct FunctionMemory {
    map: Arc<MemMap>,
    device: Vec<Option<Box<[AtomicU64]>>>,
    device_bytes: u64,
    /// What is written nowhere; nobody reads it.
    sink: OnceLock<Box<[AtomicU64]>>,
}

/// Words of memory that this process alone has.
fn words(count: usize) -> Box<[AtomicU64]> {
    std::iter::repeat_with(AtomicU64::default).take(count).collect()
}

impl FunctionMemory {
    /// The guest's memory.
    pub fn map(&self) -> &Arc<MemMap> {
        &self.map
    }

    /// Replaces the guest's memory.
    pub fn set_map(&mut self, map: Arc<MemMap>) {
        self.map = map;
    }

    /// Whether these bytes are mapped.
    pub fn has(&self, span: Span) -> bool {
        self.regions(span).is_some()
    }

    /// Number of memory regions that bytes span, if all are mapped.
    fn regions(&self, span: Span) -> Option<u32> {
        let (mut at, mut len) = (span.at, span.len);
        let mut regions = 0;
        while len > 0 {
            let (_, room) = self.locate(at, Use::Read)?;
            regions += 1;
            let step = room.min(len);
            len -= step;
            at = match at.checked_add(step) {
                Some(next) => next,
                None => return (len == 0).then_some(regions),
            };
        }
        Some(regions)
    }

    /// Whether these bytes are mapped and the guest's.
    pub fn is_shared(&self, gpa: u64, len: u64) -> bool {
        self.shared_regions(gpa, len).is_some()
    }

    /// Number of regions of the guest's memory that bytes span, if all are mapped.
    pub fn shared_regions(&self, gpa: u64, len: u64) -> Option<u32> {
        let end = gpa.checked_add(len)?;
        if end > DEVICE_BASE {
            return None;
        }
        self.regions(Span { at: gpa, len })
    }

    /// Whether a word of 8 bytes of the guest's is not zero, as a question that can be asked again and again. `None`: it is not
    /// the guest's, or not aligned.
    pub fn word(&self, gpa: u64) -> Option<impl Fn() -> bool + Send + use<>> {
        let (place, room) = self.map.lookup(gpa).filter(|_| gpa < DEVICE_BASE)?;
        if room < 8 || !(place as usize).is_multiple_of(8) {
            return None;
        }
        let map = Arc::clone(&self.map);
        Some(move || {
            let Some((place, 8..)) = map.lookup(gpa) else {
                return true;
            };
            // SAFETY: the map keeps its memory mapped while it lives, and it is as it was when this was made: eight bytes, aligned.
            // Guests change them by atomic operations, or as they like.
            unsafe { AtomicU64::from_ptr(place.cast()) }.load(Ordering::Acquire) != 0
        })
    }

    /// Bytes of device memory in use.
    pub fn device_bytes(&self) -> u64 {
        self.device_bytes
    }

    /// Allocates `len` bytes of device memory. Returns their place.
    pub fn allocate(&mut self, len: u64) -> usize {
        let words = len.div_ceil(8) as usize;
        let bytes = self::words(words);
        let place = match self.device.iter().position(Option::is_none) {
            Some(free) => free,
            None => {
                self.device.push(None);
                self.device.len() - 1
            }
        };
        self.device[place] = Some(bytes);
        self.device_bytes += 8 * words as u64;
        place
    }

    /// Frees device memory.
    pub fn free(&mut self, place: usize) {
        if let Some(bytes) = self.device.get_mut(place).and_then(Option::take) {
            self.device_bytes -= 8 * bytes.len() as u64;
        }
    }

    /// Address of device memory.
    pub fn device_address(place: usize, offset: u64) -> u64 {
        DEVICE_BASE + place as u64 * DEVICE_SLOT + offset
    }

    /// Where an address is for this use, and how many bytes follow it there.
    #[inline]
    fn locate(&self, at: u64, used: Use) -> Option<(*mut u8, u64)> {
        if at < DEVICE_BASE {
            return self.map.lookup(at);
        }
        let place = ((at - DEVICE_BASE) / DEVICE_SLOT) as usize;
        let offset = at % DEVICE_SLOT;
        let Some(Some(bytes)) = self.device.get(place) else {
            return self.nowhere(at, used);
        };
        let len = 8 * bytes.len() as u64;
        if offset >= len {
            return None;
        }
        // SAFETY: `offset` is inside the allocation, whose bytes may be changed through a shared reference.
        Some((
            unsafe { bytes.as_ptr().cast::<u8>().cast_mut().add(offset as usize) },
            len - offset,
        ))
    }

    /// What stands for memory that is nowhere.
    #[cold]
    fn nowhere(&self, at: u64, used: Use) -> Option<(*mut u8, u64)> {
        let place = match used {
            Use::Read => ZEROS.as_ptr().cast::<u8>(),
            Use::Write => self.sink.get_or_init(|| words(NOWHERE)).as_ptr().cast(),
        };
        (at >= NULL_MEMORY).then_some((place.cast_mut(), 8 * NOWHERE as u64))
    }

    /// Calls `each` with the host addresses of a range, piece by piece.
    #[inline]
    fn walk(
        &self,
        mut at: u64,
        mut len: usize,
        used: Use,
        mut each: impl FnMut(*mut u8, usize),
    ) -> Result<(), Unmapped> {
        while len > 0 {
            let (ptr, room) = self.locate(at, used).ok_or(Unmapped { at })?;
            let step = usize::try_from(room).unwrap_or(usize::MAX).min(len);
            each(ptr, step);
            at = at.wrapping_add(step as u64);
            len -= step;
        }
        Ok(())
    }
}

impl Memory for FunctionMemory {
    #[inline]
    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Unmapped> {
        let (mut to, len) = (into.as_mut_ptr(), into.len());
        self.walk(at, len, Use::Read, |from, n| {
            // SAFETY: `walk` gives mapped bytes, `len` in all, and `into` is private memory of that length.
            unsafe {
                std::ptr::copy_nonoverlapping(from, to, n);
                to = to.add(n);
            }
        })
    }

    #[inline]
    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), Unmapped> {
        let mut from = bytes.as_ptr();
        self.walk(at, bytes.len(), Use::Write, |to, n| {
            // SAFETY: `walk` gives mapped bytes, as many as `bytes` has in all; `bytes` is private memory.
            unsafe {
                std::ptr::copy_nonoverlapping(from, to, n);
                from = from.add(n);
            }
        })
    }

    fn atomic(&self, at: u64, change: &dyn Fn(u64) -> u64) -> Result<u64, Unmapped> {
        if at >= NULL_MEMORY {
            return Ok(0);
        }
        let (ptr, room) = self.locate(at, Use::Write).ok_or(Unmapped { at })?;
        if room < 8 || !(ptr as usize).is_multiple_of(8) {
            return Err(Unmapped { at });
        }
        // SAFETY: eight mapped, aligned bytes; guests and other cores change them by atomic operations, too.
        let word = unsafe { AtomicU64::from_ptr(ptr.cast()) };
        let mut old = word.load(Ordering::SeqCst);
        // Bounded, in case the guest's processors write there without end.
        for _ in 0..ATTEMPTS {
            match word.compare_exchange(old, change(old), Ordering::SeqCst, Ordering::SeqCst) {
                Ok(old) => return Ok(old),
                Err(now) => old = now,
            }
        }
        Err(Unmapped { at })
    }

    #[inline]
    fn place(&self, at: u64) -> Option<(*mut u8, u64)> {
        self.locate(at, Use::Read)
    }

    /// Copies once, if the source has host addresses.
    #[inline]
    fn copy_from(
        &self,
        mut at: u64,
        source: &dyn Memory,
        mut from: u64,
        mut len: u64,
    ) -> Result<(), Unmapped> {
        while len > 0 {
            let (src, have) = source.place(from).ok_or(Unmapped { at: from })?;
            let (dst, room) = self.locate(at, Use::Write).ok_or(Unmapped { at })?;
            let step = have.min(room).min(len);
            // SAFETY: `step` bytes are mapped at both ends: every memory that the daemon has is a `FunctionMemory`,
            // and those of a function stay as they are while the core that owns it works. An overlap (two adapters
            // of one guest) is harmless to `copy`.
            unsafe { std::ptr::copy(src, dst, step as usize) };
            at = at.wrapping_add(step);
            from = from.wrapping_add(step);
            len -= step;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_nowhere_reads_as_zeros_whatever_was_written() {
        let mut memory = FunctionMemory::default();
        let place = FunctionMemory::device_address(memory.allocate(8192), 0);
        memory.write(place, &[7; 8192]).expect("inside");
        memory.write(NULL_MEMORY, &[7; 8192]).expect("thrown away");
        let mut back = [1; 8192];
        memory.read(NULL_MEMORY, &mut back).expect("zeros");
        assert!(back.iter().all(|b| *b == 0));
        let there = |m: &FunctionMemory| -> [u8; 8192] {
            let mut bytes = [1; 8192];
            m.read(place, &mut bytes).expect("inside");
            bytes
        };
        memory
            .copy_from(NULL_MEMORY, &memory, place, 8192)
            .expect("thrown away");
        assert_eq!(there(&memory), [7; 8192]);
        memory
            .copy_from(place, &memory, NULL_MEMORY, 8192)
            .expect("zeros");
        assert_eq!(there(&memory), [0; 8192]);
        assert_eq!(memory.atomic(NULL_MEMORY, &|old| old + 1), Ok(0));
        assert_eq!(memory.atomic(NULL_MEMORY, &|old| old + 1), Ok(0));
    }

    #[test]
    fn device_memory_is_bounded_by_its_length() {
        let mut memory = FunctionMemory::default();
        let place = memory.allocate(16);
        let at = FunctionMemory::device_address(place, 0);
        memory.write(at + 4, &[1, 2, 3, 4]).expect("inside");
        let mut back = [0; 8];
        memory.read(at, &mut back).expect("inside");
        assert_eq!(back, [0, 0, 0, 0, 1, 2, 3, 4]);
        assert!(memory.write(at + 12, &[0; 5]).is_err());
        assert_eq!(memory.atomic(at + 8, &|old| old + 7), Ok(0));
        assert_eq!(memory.atomic(at + 8, &|old| old + 7), Ok(7));
        assert!(memory.atomic(at + 16, &|old| old).is_err());
        assert!(memory.has(Span { at, len: 16 }) && !memory.has(Span { at, len: 17 }));
        assert!(!memory.is_shared(at, 8), "a guest cannot name it");
        memory.free(place);
        assert!(memory.read(at, &mut back).is_err());
        assert_eq!(memory.device_bytes(), 0);
    }
}
