//! Memory for frames that wait, used again, so that in the long run no frame needs an allocation.

use super::{Metadata, OutFrame, OwnedFrame};

/// Bytes of the smallest piece.
const SMALLEST: usize = 128;
/// Number of sizes: 128 bytes, twice that, and so on, up to the longest request.
const SIZES: usize = 11;
/// Largest number of idle bytes.
const IDLE_MAX: usize = 16 << 20;

/// Idle pieces of memory, by size.
#[derive(Default)]
pub struct Pool {
    idle: [Vec<Vec<u8>>; SIZES],
    bytes: usize,
}

impl Pool {
    /// A copy of a frame; `None` without memory for it.
    pub fn copy(&mut self, f: &OutFrame<'_>, meta: Metadata) -> Option<OwnedFrame> {
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
        f.append_to(&mut bytes);
        Some(OwnedFrame {
            bytes,
            hdr: f.hdr,
            meta: meta.of_copy(),
        })
    }

    /// Takes a frame's memory back.
    pub fn give_back(&mut self, frame: OwnedFrame) {
        let mut bytes = frame.bytes;
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

/// Index of the smallest size that holds this many bytes.
fn size_of(len: usize) -> usize {
    len.div_ceil(SMALLEST).next_power_of_two().trailing_zeros() as usize
}

#[cfg(test)]
mod tests {
    use vnic_fabric::switch::PortId;

    use super::*;

    fn copy(pool: &mut Pool, bytes: &[u8]) -> Option<OwnedFrame> {
        pool.copy(&OutFrame::of(bytes), Metadata::of(PortId(1)))
    }

    #[test]
    fn memory_is_used_again() {
        let mut pool = Pool::default();
        for len in [0, 1, 128, 129, 1514, 9234, 65557] {
            let bytes = vec![7; len];
            let first = copy(&mut pool, &bytes).expect("memory");
            assert_eq!(first.bytes, bytes);
            let place = first.bytes.as_ptr();
            pool.give_back(first);
            let second = copy(&mut pool, &bytes).expect("memory");
            assert_eq!((second.bytes.as_ptr(), second.bytes.len()), (place, len));
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
        let many: Vec<_> = (0..400).filter_map(|_| copy(&mut pool, &bytes)).collect();
        assert_eq!(many.len(), 400);
        for b in many {
            pool.give_back(b);
        }
        assert!(pool.bytes <= IDLE_MAX && pool.bytes > IDLE_MAX / 2);
    }
}
