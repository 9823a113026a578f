//! Packed rings beside a driver that knows nothing of the device's code, whose daemon may be killed before any of its stores.
//! `tests/tests/hostile` and `tests/fuzz` have rings that no driver writes.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use super::*;
use crate::mem::{Lender, Region};

const DRIVER: u64 = 0x8_0000;
const DEVICE: u64 = 0x8_1000;
const TABLE: u64 = 0x9_0000;
const BUFFER: u64 = 0xa_0000;
const BYTES: u64 = 0xb_0000;

thread_local! {
    /// Stores that the daemon still makes before it is killed; `None`: it lives.
    static LEFT: Cell<Option<u32>> = const { Cell::new(None) };
}

/// Counts a store. True: the daemon was killed before it.
pub(super) fn is_killed() -> bool {
    let left = LEFT.get();
    match left {
        Some(0) => return true,
        Some(n) => LEFT.set(Some(n - 1)),
        None => {}
    }
    false
}

/// Numbers that look random (xorshift).
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }
}

/// A buffer as the driver offers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Offered {
    id: u16,
    entries: u16,
}

/// A guest: its memory, and the driver's half of the ring.
struct Guest {
    file: File,
    map: Arc<MemMap>,
    size: u16,
    features: u64,
    /// Next entry, and its wrap counter.
    next: (u16, bool),
    used: (u16, bool),
    there: VecDeque<Offered>,
    id: u16,
}

impl Guest {
    fn new(size: u16, features: u64) -> Guest {
        let file = File::from(memfd_create("guest", MemfdFlags::CLOEXEC).expect("a memfd"));
        ftruncate(&file, BYTES).expect("its length");
        let (ours, _) = UnixStream::pair().expect("a connection");
        let copy = file.try_clone().expect("a descriptor");
        let lender = Arc::new(Lender::new(ours));
        let region = Region::map(0, BYTES, 0, (copy, 0), &lender, false).expect("a region");
        Guest {
            file,
            map: Arc::new(MemMap::new(&[region])),
            size,
            features,
            next: (0, true),
            used: (0, true),
            there: VecDeque::new(),
            id: 0,
        }
    }

    /// A device for the ring, as a VMM starts it that knows of no progress.
    fn device(&self) -> PackedRing {
        self.device_at(WRAP)
    }

    fn device_at(&self, base: u16) -> PackedRing {
        let addresses = RingAddresses {
            desc: 0,
            avail: DRIVER,
            used: DEVICE,
            used_log: None,
        };
        PackedRing::new(
            self.map.clone(),
            self.size.into(),
            addresses,
            base,
            self.features,
            None,
        )
        .expect("a ring")
    }

    fn put(&self, at: u64, addr: u64, len: u32, id: u16, flags: u16) {
        let rest = u64::from(len) | u64::from(id) << 32 | u64::from(flags) << 48;
        let bytes = [addr.to_le_bytes(), rest.to_le_bytes()].concat();
        self.file.write_all_at(&bytes, at).expect("memory");
    }

    fn get(&self, at: u64) -> u64 {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, at).expect("memory");
        u64::from_le_bytes(bytes)
    }

    /// Entries that the driver may fill.
    fn room(&self) -> u16 {
        self.size - self.there.iter().map(|b| b.entries).sum::<u16>()
    }

    /// Offers a buffer of so many descriptors, in the ring or in a table.
    fn offer(&mut self, descriptors: u16, table: bool) {
        let id = self.id;
        self.id = self.id.wrapping_add(1);
        let (begin, state) = (self.next, |wrap| if wrap { DESC_AVAIL } else { DESC_USED });
        let entries = if table { 1 } else { descriptors };
        let mut first = (0, 0, 0, 0);
        for i in 0..entries {
            let (slot, wrap) = self.next;
            let last = i + 1 == entries;
            let (addr, len, more) = match table {
                true => (TABLE, 16 * u32::from(descriptors), DESC_INDIRECT),
                false => (BUFFER, 7, if last { 0 } else { DESC_NEXT }),
            };
            let d = (addr, len, if last { id } else { 0xdead }, more | state(wrap));
            match i {
                0 => first = d,
                _ => self.put(16 * u64::from(slot), d.0, d.1, d.2, d.3),
            }
            self.next = if slot + 1 == self.size {
                (0, !wrap)
            } else {
                (slot + 1, wrap)
            };
        }
        for i in 0..descriptors {
            // What is reserved says nothing.
            self.put(TABLE + 16 * u64::from(i), BUFFER, 7, 0xdead, DESC_NEXT);
        }
        self.put(16 * u64::from(begin.0), first.0, first.1, first.2, first.3);
        self.there.push_back(Offered { id, entries });
    }

    /// Takes what one used descriptor tells: buffers, and the length of the last.
    fn take(&mut self) -> Option<(Vec<Offered>, u32)> {
        let (slot, wrap) = self.used;
        let word = self.get(16 * u64::from(slot) + 8);
        let (id, flags) = ((word >> 32) as u16, (word >> 48) as u16);
        if flags & DESC_AVAIL != 0 && flags & DESC_USED != 0 && wrap
            || flags & (DESC_AVAIL | DESC_USED) == 0 && !wrap
        {
            let at = self
                .there
                .iter()
                .position(|b| b.id == id)
                .expect("an id that is there");
            let taken: Vec<Offered> = self.there.drain(..=at).collect();
            let entries: u16 = taken.iter().map(|b| b.entries).sum();
            let to = slot + entries;
            self.used = if to >= self.size {
                (to - self.size, !wrap)
            } else {
                (to, wrap)
            };
            let len = if flags & DESC_WRITE != 0 { word as u32 } else { 0 };
            return Some((taken, len));
        }
        None
    }

    /// The place that the device must have.
    fn place(&self) -> u16 {
        self.used.0 | if self.used.1 { WRAP } else { 0 }
    }
}

/// What runs are made of.
fn kinds() -> impl Iterator<Item = (u16, u64)> {
    let features = [0, f::IN_ORDER, f::IN_ORDER | f::RING_EVENT_IDX, f::RING_EVENT_IDX];
    let sizes = [1, 2, 3, 4, 7, 8, 16, 33, 64];
    sizes
        .into_iter()
        .flat_map(move |size| features.map(|own| (size, own | f::RING_INDIRECT_DESC)))
}

/// Whatever is offered, taken and published in whatever steps: the driver gets its buffers in order, each once.
#[test]
fn a_driver_gets_its_buffers_in_order() {
    for (kind, (size, features)) in kinds().enumerate() {
        let mut dice = Dice(0x9e37_79b9 + kind as u64);
        let mut guest = Guest::new(size, features);
        let mut device = guest.device();
        let (mut lens, mut waiting) = (VecDeque::new(), VecDeque::new());
        let mut taken = 0;
        for _ in 0..4000 {
            match dice.below(5) {
                0 => {
                    let n = 1 + dice.below(3) as u16;
                    if dice.below(3) == 0 && guest.room() > 0 {
                        guest.offer(n, true);
                    } else if n <= guest.room() {
                        guest.offer(n, false);
                    }
                }
                1 | 2 => {
                    if device.ready() == Ok(0) {
                        continue;
                    }
                    let mut segs = Segs::default();
                    let whole = device.bounded_chain(0, false, MAX_CHAIN as u16, &mut segs);
                    let (head, len, n) = whole.expect("a legal chain").expect("a short chain");
                    assert_eq!((len, segs.len()), (7 * u64::from(n), usize::from(n)));
                    device.advance(head.entries());
                    let len = if dice.below(2) == 0 {
                        0
                    } else {
                        dice.below(99) as u32
                    };
                    device.stage(head, len);
                    lens.push_back(len);
                    waiting.push_back(device.staged());
                }
                3 => {
                    let n = dice.below(4) as usize;
                    if n > 0 && n <= waiting.len() {
                        let upto = waiting.drain(..n).next_back().expect("not empty");
                        device.publish(upto);
                        assert_eq!(device.published(), upto);
                        assert_eq!(guest.device().base(), upto, "a device that begins here");
                    }
                }
                _ => {
                    while let Some((buffers, len)) = guest.take() {
                        taken += buffers.len();
                        assert!(buffers.len() == 1 || features & f::IN_ORDER != 0);
                        let told: Vec<u32> = lens.drain(..buffers.len()).collect();
                        assert_eq!(told.last(), Some(&len));
                        assert!(told.len() == 1 || told.iter().all(|len| *len == 0));
                    }
                    assert_eq!(guest.place(), device.published());
                }
            }
        }
        assert!(taken > 50, "{taken} of size {size}");
    }
}

/// A daemon that is killed before any of its stores to the ring: the next one finds its place, whatever the VMM says. The driver gets
/// all buffers of the batch, or, later, all of them with nothing written; then it goes on.
#[test]
fn a_kill_at_any_store_costs_no_buffer() {
    let mut cut = 0;
    for (kind, (size, features)) in kinds().enumerate() {
        let mut dice = Dice(0xfeed_5eed + kind as u64);
        let mut guest = Guest::new(size, features);
        let mut device = guest.device();
        for round in 0..600u64 {
            // Now and then the ring is full.
            let wanted = if dice.below(3) == 0 {
                size
            } else {
                dice.below(u64::from(size) + 1) as u16
            };
            while guest.there.len() < usize::from(wanted) && guest.room() > 0 {
                let n = 1 + dice.below(3) as u16;
                match dice.below(4) == 0 || n > guest.room() {
                    true => guest.offer(n, true),
                    false => guest.offer(n, false),
                }
            }
            let silent = dice.below(2) == 0;
            let (mut batch, most) = (Vec::new(), 1 + dice.below(40));
            while device.ready().expect("an honest guest") > 0 && (batch.len() as u64) < most {
                let whole = device.bounded_chain(0, false, 1024, &mut Segs::default());
                let (head, ..) = whole.expect("a legal chain").expect("a short chain");
                device.advance(head.entries());
                let len = if silent { 0 } else { 1 + dice.below(99) as u32 };
                device.stage(head, len);
                batch.push((head, len));
            }
            let at = dice.below(2 * u64::from(size) + 4) as u32;
            LEFT.set(Some(at));
            device.publish(device.staged());
            let whole = LEFT.replace(None) != Some(0);
            let before = guest.place();
            // (Twice, for the next daemon may be killed as well.)
            LEFT.set(Some(dice.below(8) as u32));
            drop(guest.device());
            LEFT.set(None);
            let place = if whole { device.staged() } else { WRAP };
            device = guest.device_at(if dice.below(2) == 0 { place } else { WRAP });
            let (mut got, mut lens) = (0, Vec::new());
            while let Some((buffers, len)) = guest.take() {
                got += buffers.len();
                lens.extend(buffers.iter().map(|_| len));
            }
            assert_eq!(
                guest.place(),
                device.base(),
                "size {size}, round {round}, {at} stores, from {before:#x}"
            );
            assert!(got == batch.len() || got == 0, "{got} of {}", batch.len());
            let written: Vec<u32> = batch.iter().map(|(_, len)| *len).collect();
            if got > 0 && lens != written {
                assert!(!whole && lens.iter().all(|len| *len == 0), "{lens:?}");
                cut += 1;
            }
        }
    }
    assert!(cut > 500, "{cut} batches were cut short");
}

/// What is written for two buffers, the second one of two descriptors, that end at the ring's end.
#[test]
fn used_descriptors_as_they_stand() {
    let show = |features: u64, lens: [u32; 2]| {
        let mut guest = Guest::new(3, features);
        let mut device = guest.device();
        guest.offer(1, false);
        guest.offer(2, false);
        for len in lens {
            assert!(device.ready().expect("an honest guest") > 0);
            let whole = device.bounded_chain(0, false, 9, &mut Segs::default());
            let (head, ..) = whole.expect("a legal chain").expect("a short chain");
            device.advance(head.entries());
            device.stage(head, len);
        }
        assert_eq!((device.base(), device.staged()), (0, 0), "the second lap");
        device.publish(device.staged());
        let mark = MARK_OF_FIRST_LAP;
        [0u64, 1, 2].map(|i| {
            let (addr, word) = (guest.get(16 * i), guest.get(16 * i + 8));
            let marked = if addr >> 32 == mark >> 32 {
                Some(addr as u32)
            } else {
                None
            };
            (marked, word as u32, (word >> 32) as u16, (word >> 48) as u16)
        })
    };
    const MARK_OF_FIRST_LAP: u64 = 0x766e_6963 << 32 | 1 << 15;
    let used = DESC_AVAIL | DESC_USED;
    // (mark, length, id, flags)
    assert_eq!(
        show(0, [5, 0]),
        [
            (None, 5, 0, used | DESC_WRITE),
            (Some(2 << 16 | 1 << 15), 0, 1, used),
            (Some(1 << 16 | 1 << 15), 7, 1, used),
        ]
    );
    assert_eq!(
        show(f::IN_ORDER, [0, 0]),
        [
            (None, 0, 1, used),
            (None, 7, 0xdead, DESC_AVAIL | DESC_NEXT),
            (Some(1 << 16 | 1 << 15), 7, 1, used),
        ]
    );
}

/// User-Mode-Linux starts packed rings at 0, which is the second lap for others.
#[test]
fn a_frontend_without_wrap_counters_begins_in_the_first_lap() {
    let mut guest = Guest::new(4, 0);
    assert_eq!(guest.device_at(0).base(), WRAP);
    guest.offer(1, false);
    let mut device = guest.device_at(0);
    assert_eq!((device.base(), device.ready()), (WRAP, Ok(1)));
    // A ring that really is in its second lap has been used by another device.
    for i in 0..4 {
        guest.put(16 * i, BUFFER, 0, 0, DESC_AVAIL | DESC_USED);
    }
    assert_eq!(guest.device_at(0).base(), 0);
}

/// Chains that no driver writes.
#[test]
fn faults_of_chains() {
    let guest = Guest::new(4, f::RING_INDIRECT_DESC);
    let walk = |descs: &[(u64, u32, u16)], write: bool| {
        for (i, (addr, len, flags)) in (0..).zip(descs) {
            guest.put(16 * i, *addr, *len, 9, flags | DESC_AVAIL);
        }
        let mut device = guest.device_at(WRAP);
        assert!(device.ready().expect("no index to be wrong") > 0);
        device.bounded_chain(0, write, 1024, &mut Segs::default())
    };
    let next = (BUFFER, 1, DESC_NEXT);
    assert_eq!(
        walk(&[next, (BUFFER, 1, 0)], false),
        Ok(Some((Head::new(9, 2), 2, 2)))
    );
    assert_eq!(walk(&[next; 4], false), Err(Fault::ChainTooLong));
    assert_eq!(walk(&[(BUFFER, 1, DESC_WRITE)], false), Err(Fault::Direction));
    assert_eq!(walk(&[(BUFFER, 1, 0)], true), Err(Fault::Direction));
    let outside = Fault::BufferAddress { addr: BYTES, len: 1 };
    assert_eq!(walk(&[(BYTES, 1, 0)], false), Err(outside));
    let both = DESC_INDIRECT | DESC_NEXT;
    assert_eq!(walk(&[(TABLE, 16, both)], false), Err(Fault::Indirect));
    assert_eq!(walk(&[(TABLE, 0, DESC_INDIRECT)], false), Err(Fault::Indirect));
    assert_eq!(
        walk(&[next, (TABLE, 16, DESC_INDIRECT)], false),
        Err(Fault::Indirect)
    );
    guest.put(TABLE, TABLE, 16, 0, DESC_INDIRECT);
    assert_eq!(walk(&[(TABLE, 16, DESC_INDIRECT)], false), Err(Fault::Indirect));
}
