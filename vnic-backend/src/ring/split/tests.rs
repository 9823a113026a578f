//! Chains as a guest writes them. `tests/tests/hostile/ring.rs` and `tests/fuzz` have those that are invalid.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use super::*;
use crate::mem::{Lender, Region};

const SIZE: u16 = 256;
const TABLE: u64 = 0x8000;
const BYTES: u64 = 0x20000;

/// A ring in its own memory, whose descriptors `put` writes.
struct Memory {
    file: File,
    ring: SplitRing,
}

impl Memory {
    fn new() -> Memory {
        let file = File::from(memfd_create("guest", MemfdFlags::CLOEXEC).expect("a memfd"));
        ftruncate(&file, 2 * BYTES).expect("its length");
        let (ours, _) = UnixStream::pair().expect("a connection");
        let copy = file.try_clone().expect("a descriptor");
        let lender = Arc::new(Lender::new(ours));
        let region = Region::map(0, 2 * BYTES, 0, (copy, 0), &lender, false).expect("a region");
        let ring = Memory::ring(Arc::new(MemMap::new(&[region])));
        Memory { file, ring }
    }

    fn ring(map: Arc<MemMap>) -> SplitRing {
        let addresses = RingAddresses {
            desc: 0,
            avail: 0x4000,
            used: 0x5000,
            used_log: None,
        };
        SplitRing::new(map, SIZE.into(), addresses, 0, true, true, None).expect("a ring")
    }

    fn put(&self, at: u64, addr: u64, len: u32, flags: u16, next: u16) {
        let rest = u64::from(len) | u64::from(flags) << 32 | u64::from(next) << 48;
        let bytes = [addr.to_le_bytes(), rest.to_le_bytes()].concat();
        self.file.write_all_at(&bytes, at).expect("memory");
    }

    /// Writes a chain of descriptors of these lengths at `table`, all with the same bytes.
    fn chain(&self, table: u64, lens: &[u32]) {
        for (i, len) in (0u16..).zip(lens) {
            let last = usize::from(i) + 1 == lens.len();
            let flags = if last { 0 } else { DESC_NEXT };
            self.put(table + 16 * u64::from(i), BYTES, *len, flags, i + 1);
        }
    }
}

#[test]
fn empty_descriptors_are_counted() {
    let memory = Memory::new();
    let chains: [(&[u32], u64, usize); 4] = [
        (&[72], 72, 1),
        (&[0], 0, 0),
        (&[72, 0, 0], 72, 1),
        (&[0, 12, 0, 60, 0], 72, 2),
    ];
    for (lens, total, pieces) in chains {
        let n = lens.len() as u16;
        memory.chain(0, lens);
        memory.chain(TABLE, lens);
        memory.put(16 * 200, TABLE, 16 * u32::from(n), DESC_INDIRECT, 0);
        for head in [0, 200] {
            let mut segs = Segs::default();
            let got = memory.ring.counted_chain(head, false, &mut segs);
            assert_eq!((got, segs.len()), (Ok((total, n)), pieces), "{lens:?}");
            for most in 0..8 {
                let got = memory.ring.bounded_chain(head, false, most, &mut Segs::default());
                assert_eq!(
                    got,
                    Ok((n <= most).then_some((total, n))),
                    "{lens:?}, {most} at most"
                );
            }
        }
    }
}

#[test]
fn the_longest_chain_is_counted_and_a_longer_one_is_none() {
    let memory = Memory::new();
    memory.chain(TABLE, &[0; MAX_CHAIN + 1]);
    for (n, want) in [
        (MAX_CHAIN, Ok((0, MAX_CHAIN as u16))),
        (MAX_CHAIN + 1, Err(Fault::Indirect)),
    ] {
        let last = if n == MAX_CHAIN { 0 } else { DESC_NEXT };
        memory.put(TABLE + 16 * (MAX_CHAIN as u64 - 1), BYTES, 0, last, n as u16);
        memory.put(0, TABLE, 16 * n as u32, DESC_INDIRECT, 0);
        assert_eq!(memory.ring.counted_chain(0, false, &mut Segs::default()), want);
    }
    // A loop of the ring's own descriptors.
    memory.put(0, BYTES, 0, DESC_NEXT, 1);
    memory.put(16, BYTES, 0, DESC_NEXT, 0);
    let got = memory.ring.counted_chain(0, false, &mut Segs::default());
    assert_eq!(got, Err(Fault::ChainTooLong));
    assert_eq!(
        memory.ring.bounded_chain(0, false, 100, &mut Segs::default()),
        Ok(None)
    );
}

/// Entries that are published between the making of a ring at another address and its first use are neither lost nor
/// published twice.
#[test]
fn a_ring_at_another_place_goes_on_where_it_was() {
    let mut memory = Memory::new();
    let show = |ring: &mut SplitRing, head| {
        ring.advance(1);
        ring.stage(head, 8);
        ring.publish(ring.staged());
    };
    show(&mut memory.ring, 7);
    let mut elsewhere = Memory::ring(memory.ring.mem.clone());
    show(&mut memory.ring, 8);
    elsewhere.go_on_from(&memory.ring);
    show(&mut elsewhere, 9);
    let mut used = [0; 4 + 3 * 8];
    memory.file.read_exact_at(&mut used, 0x5000).expect("memory");
    let word = |at: usize| used[at];
    assert_eq!([2, 4, 12, 20].map(word), [3, 7, 8, 9]);
    assert_eq!(elsewhere.base(), 3);
}
