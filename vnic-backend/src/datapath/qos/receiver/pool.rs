//! Memory for frames that wait: used again, so that in the long run nothing is allocated for a frame.

use super::super::super::frame::OutFrame;
use crate::mem;

/// Bytes of the smallest piece.
const SMALLEST: usize = 128;
/// Sizes: 128 bytes, twice that, and so on, up to what the longest request needs.
const SIZES: usize = 11;
/// Bytes that lie idle at most.
const IDLE_MAX: usize = 16 << 20;

/// Pieces of memory that lie idle, by size.
#[derive(Default)]
pub struct Pool {
    idle: [Vec<Vec<u8>>; SIZES],
    bytes: usize,
}

impl Pool {
    /// A copy of a frame; nothing without memory for it.
    pub fn copy(&mut self, f: &OutFrame<'_>) -> Option<Vec<u8>> {
        let size = size_of(f.len());
        let mut bytes = match self.idle.get_mut(size).and_then(Vec::pop) {
            Some(bytes) => {
                self.bytes -= bytes.capacity();
                bytes
            }
            None => {
                let mut bytes = Vec::new();
                bytes.try_reserve_exact((SMALLEST << size).max(f.len())).ok()?;
                bytes
            }
        };
        bytes.extend_from_slice(f.head);
        bytes.resize(f.len(), 0);
        mem::gather(f.segs, f.skip, &mut bytes[f.head.len()..]);
        Some(bytes)
    }

    /// It is not needed any more.
    pub fn give_back(&mut self, mut bytes: Vec<u8>) {
        let size = size_of(bytes.capacity());
        if let Some(idle) = self.idle.get_mut(size)
            && bytes.capacity() == SMALLEST << size
            && self.bytes + bytes.capacity() <= IDLE_MAX
        {
            bytes.clear();
            self.bytes += bytes.capacity();
            idle.push(bytes);
        }
    }
}

/// The place of the smallest size that holds so many bytes.
fn size_of(len: usize) -> usize {
    len.div_ceil(SMALLEST).next_power_of_two().trailing_zeros() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(bytes: &[u8]) -> OutFrame<'_> {
        OutFrame {
            head: bytes,
            segs: &[],
            skip: 0,
            tail: 0,
            hdr: Default::default(),
        }
    }

    #[test]
    fn memory_is_used_again() {
        let mut pool = Pool::default();
        for len in [0, 1, 128, 129, 1514, 9234, 65557] {
            let bytes = vec![7; len];
            let first = pool.copy(&frame(&bytes)).expect("memory");
            assert_eq!(first, bytes);
            let place = first.as_ptr();
            pool.give_back(first);
            let second = pool.copy(&frame(&bytes)).expect("memory");
            assert_eq!((second.as_ptr(), second.len()), (place, len));
            assert_eq!(pool.bytes, 0);
            pool.give_back(second);
            assert_eq!(pool.idle.iter().map(Vec::len).sum::<usize>(), 1);
            pool = Pool::default();
        }
    }

    #[test]
    fn what_lies_idle_is_bounded() {
        let mut pool = Pool::default();
        let bytes = vec![0; 60_000];
        let many: Vec<_> = (0..400).filter_map(|_| pool.copy(&frame(&bytes))).collect();
        assert_eq!(many.len(), 400);
        for b in many {
            pool.give_back(b);
        }
        assert!(pool.bytes <= IDLE_MAX && pool.bytes > IDLE_MAX / 2);
    }
}
