//! Fuzzing of the device's split ring: its bytes and the guest's memory are the fuzzer's. A naive model on plain byte
//! arrays must agree in everything: what is refused, which bytes a chain has, what memory looks like afterwards.
//! Memory lies between pages that nobody may touch: one byte beside it ends the test.
//!
//! `VNIC_FUZZ_CASES` sets how many cases are tried.

use std::sync::Arc;

use proptest::prelude::*;
use vnic_backend::fuzzing::{MemMap, Region, RingAddresses, Seg, SplitRing, Writer, gather};
use vnic_tests::driver::{Desc, INDIRECT, NEXT, WRITE};

const PAGE: usize = 4096;
/// Guest physical addresses and lengths. The second follows the first; the third is at the end of the world.
const REGIONS: [(u64, usize); 3] = [(0x1000, 6 * PAGE), (0x7000, PAGE), (u64::MAX - 0x1fff, PAGE)];
const DESC_AT: usize = 0;
const AVAIL_AT: usize = PAGE;
const USED_AT: usize = 2 * PAGE;
const TABLES_AT: usize = 3 * PAGE;
const TABLES_GPA: u64 = REGIONS[0].0 + TABLES_AT as u64;
const MAX_CHAIN: usize = 1024;

/// A region of guest memory between two pages without access, seen from both sides.
struct Guarded {
    region: Region,
    segs: Vec<Seg>,
}

impl Guarded {
    fn new(gpa: u64, len: usize) -> Guarded {
        let region = Region::guarded(gpa, len / PAGE).expect("a mapping");
        let mut segs = vec![];
        let map = MemMap::new(std::slice::from_ref(&region));
        assert!(map.translate(gpa, len as u32, &mut segs));
        Guarded { region, segs }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.region.len as usize];
        assert_eq!(gather(&self.segs, 0, &mut bytes), bytes.len());
        bytes
    }

    fn fill(&self, bytes: &[u8]) {
        assert_eq!(bytes.len() as u64, self.region.len);
        Writer::new(&self.segs).bytes(bytes);
    }
}

/// What the device refuses; the model does not say how.
#[derive(Debug, PartialEq, Eq)]
struct Refused;

/// The device's half of the ring, as the standard describes it, on byte arrays.
struct Model {
    memory: Vec<Vec<u8>>,
    size: u16,
    next: u16,
    seen: u16,
    used: u16,
    event_idx: bool,
    indirect: bool,
}

impl Model {
    fn u16_at(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.memory[0][at], self.memory[0][at + 1]])
    }

    fn set_u16(&mut self, at: usize, v: u16) {
        self.memory[0][at..at + 2].copy_from_slice(&v.to_le_bytes());
    }

    fn place(gpa: u64) -> Option<(usize, usize)> {
        REGIONS
            .iter()
            .position(|(start, len)| gpa >= *start && gpa - start < *len as u64)
            .map(|r| (r, (gpa - REGIONS[r].0) as usize))
    }

    fn desc(bytes: &[u8]) -> Desc {
        let word = |at: usize| {
            bytes[at..at + 8]
                .try_into()
                .map(u64::from_le_bytes)
                .expect("8 bytes")
        };
        let (addr, rest) = (word(0), word(8));
        Desc {
            addr,
            len: rest as u32,
            flags: (rest >> 32) as u16,
            next: (rest >> 48) as u16,
        }
    }

    fn ready(&mut self, fresh: bool) -> Result<u16, Refused> {
        if fresh || self.seen == self.next {
            let idx = self.u16_at(AVAIL_AT + 2);
            if idx.wrapping_sub(self.next) > self.size {
                return Err(Refused);
            }
            self.seen = idx;
        }
        Ok(self.seen.wrapping_sub(self.next))
    }

    fn head(&self, k: u16) -> Result<u16, Refused> {
        let slot = usize::from(self.next.wrapping_add(k) % self.size);
        Some(self.u16_at(AVAIL_AT + 4 + 2 * slot))
            .filter(|h| *h < self.size)
            .ok_or(Refused)
    }

    /// Places of the chain's bytes, in order.
    fn chain(&self, head: u16, write: bool) -> Result<Vec<(usize, usize)>, Refused> {
        let main = &self.memory[0][DESC_AT..DESC_AT + 16 * usize::from(self.size)];
        let mut d = Self::desc(&main[16 * usize::from(head)..]);
        let mut table = main.to_vec();
        if d.flags & INDIRECT != 0 {
            let whole = d.len > 0 && d.len.is_multiple_of(16) && d.len as usize / 16 <= MAX_CHAIN;
            if !self.indirect || d.flags & NEXT != 0 || !whole {
                return Err(Refused);
            }
            let (r, at) = Self::place(d.addr).ok_or(Refused)?;
            table = self.memory[r]
                .get(at..at + d.len as usize)
                .ok_or(Refused)?
                .to_vec();
            d = Self::desc(&table);
        }
        let mut places = vec![];
        for _ in 0..(table.len() / 16).min(MAX_CHAIN) {
            if d.flags & INDIRECT != 0 || (d.flags & WRITE != 0) != write {
                return Err(Refused);
            }
            for i in 0..u64::from(d.len) {
                places.push(Self::place(d.addr.wrapping_add(i)).ok_or(Refused)?);
            }
            if d.flags & NEXT == 0 {
                return Ok(places);
            }
            let at = 16 * usize::from(d.next);
            d = Self::desc(table.get(at..at + 16).ok_or(Refused)?);
        }
        Err(Refused)
    }

    fn stage(&mut self, head: u16, len: u32) {
        let at = USED_AT + 4 + 8 * usize::from(self.used % self.size);
        self.memory[0][at..at + 4].copy_from_slice(&u32::from(head).to_le_bytes());
        self.memory[0][at + 4..at + 8].copy_from_slice(&len.to_le_bytes());
        self.used = self.used.wrapping_add(1);
    }

    fn publish(&mut self) -> bool {
        let old = self.u16_at(USED_AT + 2);
        let new = self.used;
        if old == new {
            return false;
        }
        self.set_u16(USED_AT + 2, new);
        if self.event_idx {
            let event = self.u16_at(AVAIL_AT + 4 + 2 * usize::from(self.size));
            // Virtio 1.3 section 2.7.7.2: was the entry that the driver waits for among the new ones?
            (0..new.wrapping_sub(old)).any(|i| old.wrapping_add(i) == event)
        } else {
            self.u16_at(AVAIL_AT) & 1 == 0
        }
    }
}

/// One case: what is in memory, and what the guest changes between two looks of the device.
#[derive(Debug, Clone)]
struct Case {
    log_size: u8,
    base: u16,
    write: bool,
    event_idx: bool,
    indirect: bool,
    descs: Vec<Desc>,
    tables: Vec<Desc>,
    rounds: Vec<Round>,
    filler: u8,
}

#[derive(Debug, Clone)]
struct Round {
    /// Entries of the available ring from the current one on.
    heads: Vec<u16>,
    /// How many are made available, or where else the index goes.
    step: u16,
    flags: u16,
    used_event: u16,
    fresh: bool,
    take: u8,
}

fn address() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => (0u64..0x8000).prop_map(|a| a + 0x800),
        3 => (0u64..64).prop_map(|i| TABLES_GPA + 16 * i),
        2 => (0u64..0x1100).prop_map(|a| u64::MAX - 0x2000 + a),
        1 => (0u64..64).prop_map(|a| u64::MAX - a),
        1 => (0u64..200).prop_map(|a| 0x7000 - 100 + a),
        1 => any::<u64>(),
    ]
}

fn length() -> impl Strategy<Value = u32> {
    prop_oneof![
        4 => 0u32..300,
        3 => (0u32..12).prop_map(|n| 16 * n),
        1 => 0u32..0x8000,
        1 => any::<u32>(),
        1 => (0u32..40).prop_map(|n| u32::MAX - n),
    ]
}

fn desc() -> impl Strategy<Value = Desc> {
    let flags = prop_oneof![6 => 0u16..4, 2 => 0u16..8, 1 => any::<u16>()];
    let next = prop_oneof![8 => 0u16..20, 1 => any::<u16>()];
    let anywhere = (address(), length());
    // Up to the end of a region, or one byte more.
    let to_an_end = (0usize..3, 0u32..200, 0u32..2).prop_map(|(r, n, more)| {
        let end = REGIONS[r].0 + REGIONS[r].1 as u64;
        (end - u64::from(n), n + more)
    });
    let place = prop_oneof![5 => anywhere, 1 => to_an_end];
    (place, flags, next).prop_map(|((addr, len), flags, next)| Desc {
        addr,
        len,
        flags,
        next,
    })
}

fn round() -> impl Strategy<Value = Round> {
    let head = prop_oneof![20 => 0u16..8, 4 => 0u16..20, 1 => any::<u16>()];
    let step = prop_oneof![12 => 0u16..9, 1 => any::<u16>()];
    (
        prop::collection::vec(head, 8),
        step,
        any::<u16>(),
        any::<u16>(),
        any::<bool>(),
        0u8..9,
    )
        .prop_map(|(heads, step, flags, used_event, fresh, take)| Round {
            heads,
            step,
            flags,
            used_event,
            fresh,
            take,
        })
}

fn case() -> impl Strategy<Value = Case> {
    let base = prop_oneof![Just(0u16), Just(65535), Just(65530), any::<u16>()];
    let what = (
        0u8..5,
        base,
        any::<bool>(),
        any::<bool>(),
        prop::bool::weighted(0.8),
    );
    let memory = (
        prop::collection::vec(desc(), 16),
        prop::collection::vec(desc(), 32),
    );
    (what, memory, prop::collection::vec(round(), 1..6), any::<u8>()).prop_map(
        |(what, memory, rounds, filler)| {
            let (log_size, base, mut write, event_idx, indirect) = what;
            let (mut descs, mut tables) = memory;
            // Mostly one direction, or hardly a chain is legal.
            for (i, d) in descs.iter_mut().chain(&mut tables).enumerate() {
                if i % 7 != 0 {
                    d.flags = d.flags & !WRITE | if write { WRITE } else { 0 };
                }
            }
            write ^= filler == 0;
            Case {
                log_size,
                base,
                write,
                event_idx,
                indirect,
                descs,
                tables,
                rounds,
                filler,
            }
        },
    )
}

fn cases(default: u32) -> ProptestConfig {
    let cases = std::env::var("VNIC_FUZZ_CASES")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(default);
    ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// Both sides, and the guest that writes into both.
struct Stage {
    model: Model,
    ring: SplitRing,
    memory: Vec<Guarded>,
}

impl Stage {
    fn new(c: &Case) -> Stage {
        let size = 1u16 << c.log_size;
        let mut first = vec![c.filler; REGIONS[0].1];
        first[..3 * PAGE].fill(0);
        let put = |bytes: &mut Vec<u8>, at: usize, descs: &[Desc]| {
            for (i, d) in descs.iter().enumerate() {
                bytes[at + 16 * i..at + 16 * i + 16].copy_from_slice(&d.bytes());
            }
        };
        put(&mut first, DESC_AT, &c.descs);
        put(&mut first, TABLES_AT, &c.tables);
        first[USED_AT + 2..USED_AT + 4].copy_from_slice(&c.base.to_le_bytes());
        first[AVAIL_AT + 2..AVAIL_AT + 4].copy_from_slice(&c.base.to_le_bytes());
        let others = REGIONS[1..]
            .iter()
            .map(|(_, len)| (0..*len).map(|i| (i * 7) as u8).collect());
        let bytes: Vec<Vec<u8>> = std::iter::once(first).chain(others).collect();
        let memory: Vec<Guarded> = REGIONS
            .iter()
            .map(|(gpa, len)| Guarded::new(*gpa, *len))
            .collect();
        for (g, b) in memory.iter().zip(&bytes) {
            g.fill(b);
        }
        let regions: Vec<Region> = memory.iter().map(|g| g.region.clone()).collect();
        let at = |offset: usize| memory[0].region.user + offset as u64;
        let addresses = RingAddresses {
            desc: at(DESC_AT),
            avail: at(AVAIL_AT),
            used: at(USED_AT),
            used_log: None,
        };
        let map = Arc::new(MemMap::new(&regions));
        let ring = SplitRing::new(map, size.into(), addresses, c.base, c.event_idx, c.indirect, None);
        let (event_idx, indirect) = (c.event_idx, c.indirect);
        let model = Model {
            memory: bytes,
            size,
            next: c.base,
            seen: c.base,
            used: c.base,
            event_idx,
            indirect,
        };
        Stage {
            model,
            ring: ring.expect("a legal ring"),
            memory,
        }
    }

    fn guest_writes(&mut self, at: usize, v: u16) {
        self.model.set_u16(at, v);
        self.memory[0].fill(&self.model.memory[0]);
    }

    fn same_memory(&self) -> bool {
        self.memory
            .iter()
            .zip(&self.model.memory)
            .all(|(g, m)| g.bytes() == *m)
    }
}

fn total(segs: &[Seg]) -> u64 {
    segs.iter().map(|s| u64::from(s.len)).sum()
}

fn run(c: &Case) -> Result<(), TestCaseError> {
    let mut s = Stage::new(c);
    prop_assert!(s.same_memory());
    for r in &c.rounds {
        let size = s.model.size;
        for (i, h) in (0..).zip(&r.heads) {
            let slot = s.model.seen.wrapping_add(i) % size;
            s.guest_writes(AVAIL_AT + 4 + 2 * usize::from(slot), *h);
        }
        let idx = s.model.u16_at(AVAIL_AT + 2).wrapping_add(r.step);
        s.guest_writes(AVAIL_AT + 2, idx);
        s.guest_writes(AVAIL_AT, r.flags);
        s.guest_writes(AVAIL_AT + 4 + 2 * usize::from(size), r.used_event);
        let want = s.model.ready(r.fresh);
        let got = if r.fresh {
            s.ring.ready_now()
        } else {
            s.ring.ready()
        };
        prop_assert_eq!(got.as_ref().ok(), want.as_ref().ok());
        let Ok(n) = want else { return Ok(()) };
        for _ in 0..n.min(r.take.into()) {
            let want = s.model.head(0);
            let got = s.ring.head(0);
            prop_assert_eq!(got.as_ref().ok(), want.as_ref().ok());
            let Ok(head) = want else { return Ok(()) };
            let want = s.model.chain(head, c.write);
            let one = s.ring.single(head, c.write);
            prop_assert!(
                one.is_none() || want.is_ok(),
                "the short way takes what is refused"
            );
            let mut segs = vec![];
            let got = s.ring.chain(head, c.write, &mut segs);
            prop_assert_eq!(
                got.as_ref().ok().copied(),
                want.as_ref().ok().map(|p| p.len() as u64)
            );
            let Ok(places) = want else { return Ok(()) };
            prop_assert_eq!(total(&segs), places.len() as u64);
            if let Some(one) = one {
                let same = |s: &Seg| s.len == 0 || (s.ptr, s.len) == (one.ptr, one.len);
                prop_assert!(segs.iter().all(same) && u64::from(one.len) == total(&segs));
            }
            if c.write {
                let bytes: Vec<u8> = (0..places.len())
                    .map(|i| (i * 31 + usize::from(head)) as u8)
                    .collect();
                let mut w = Writer::new(&segs);
                for part in bytes.chunks(37) {
                    w.bytes(part);
                }
                // One byte more than there is room for goes nowhere.
                w.bytes(&[0xee]);
                for ((r, at), b) in places.iter().zip(&bytes) {
                    s.model.memory[*r][*at] = *b;
                }
            } else {
                let skip = places.len() / 3;
                let mut bytes = vec![0; places.len() - skip + 1];
                prop_assert_eq!(gather(&segs, skip, &mut bytes), places.len() - skip);
                bytes.pop();
                let want: Vec<u8> = places[skip..]
                    .iter()
                    .map(|(r, at)| s.model.memory[*r][*at])
                    .collect();
                prop_assert!(bytes == want);
            }
            prop_assert!(s.same_memory());
            s.ring.advance(1);
            s.model.next = s.model.next.wrapping_add(1);
            s.ring.stage(head, places.len() as u32);
            s.model.stage(head, places.len() as u32);
            prop_assert!(s.same_memory());
        }
        let staged = s.ring.staged();
        prop_assert_eq!(staged, s.model.used);
        let old = s.model.u16_at(USED_AT + 2);
        // A buffer may have lain over the index: then the device, which remembers, need not agree with memory.
        if old == s.ring.published() {
            let want = s.model.publish();
            prop_assert_eq!(s.ring.publish(staged), want);
            prop_assert!(s.same_memory());
        } else {
            return Ok(());
        }
    }
    prop_assert_eq!(s.ring.base(), s.model.next);
    Ok(())
}

#[test]
fn ring_agrees_with_a_naive_model() {
    let mut runner = proptest::test_runner::TestRunner::new(cases(2000));
    if let Err(e) = runner.run(&case(), |c| run(&c)) {
        panic!("{e}");
    }
}

/// Ring sizes and addresses: what is accepted lies in memory, aligned.
#[test]
fn ring_parts_must_lie_in_memory() {
    let region = Region::guarded(0, 4).expect("a mapping");
    let base = region.user;
    let map = Arc::new(MemMap::new(&[region]));
    let offset = || {
        prop_oneof![
            4 => 0u64..4 * PAGE as u64,
            2 => (0u64..600).prop_map(|d| 4 * PAGE as u64 - d),
            1 => (0u64..64).prop_map(u64::wrapping_neg),
            1 => any::<u64>(),
        ]
    };
    let size = prop_oneof![8 => (0u32..16).prop_map(|l| 1 << l), 1 => any::<u32>(), 1 => 0u32..70000];
    let mut runner = proptest::test_runner::TestRunner::new(cases(2000));
    let all = (size, offset(), offset(), offset(), any::<u16>());
    let result = runner.run(&all, |(size, desc, avail, used, next)| {
        let at = |o: u64| base.wrapping_add(o);
        let (desc, avail, used) = (desc & !15, avail & !1, used & !3);
        let addresses = RingAddresses {
            desc: at(desc),
            avail: at(avail),
            used: at(used),
            used_log: None,
        };
        let ring = SplitRing::new(map.clone(), size, addresses, next, true, true, None);
        let n = u64::from(size);
        let fits = |o: u64, len: u64| o.checked_add(len).is_some_and(|end| end <= 4 * PAGE as u64);
        let legal = size.is_power_of_two() && size <= 32768;
        let legal = legal && fits(desc, 16 * n) && fits(avail, 6 + 2 * n) && fits(used, 6 + 8 * n);
        prop_assert_eq!(ring.is_ok(), legal);
        if let Ok(mut ring) = ring {
            // Touch all ends.
            ring.suppress_kicks();
            let _ = ring.request_kicks();
            if let Ok(n) = ring.ready_now() {
                for k in 0..n {
                    if let Ok(head) = ring.head(k) {
                        let _ = ring.chain(head, false, &mut vec![]);
                        ring.stage(head, 0);
                    }
                }
                let staged = ring.staged();
                ring.publish(staged);
            }
        }
        Ok(())
    });
    if let Err(e) = result {
        panic!("{e}");
    }
}
