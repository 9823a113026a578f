//! The split ring: its bytes and the guest's memory are the fuzzer's. A naive model on plain byte arrays must agree in
//! everything: what is refused, which bytes a chain has, what memory looks like afterwards. Memory lies between pages that
//! nobody may touch: one byte beside it ends the run.

use std::sync::Arc;

use arbitrary::{Result, Unstructured};
use vnic_backend::fuzzing::{MemMap, Region, RingAddresses, Segs, SplitRing, Writer, gather};
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
    segs: Segs,
}

impl Guarded {
    fn new(gpa: u64, len: usize) -> Guarded {
        let region = Region::guarded(gpa, len / PAGE).expect("a mapping");
        let mut segs = Segs::default();
        segs.of(&Arc::new(MemMap::new(std::slice::from_ref(&region))));
        assert!(segs.translate(gpa, len as u32));
        Guarded { region, segs }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.region.len as usize];
        assert_eq!(gather(self.segs.as_slice(), 0, &mut bytes), bytes.len());
        bytes
    }

    fn fill(&self, bytes: &[u8]) {
        assert_eq!(bytes.len() as u64, self.region.len);
        Writer::new(self.segs.as_slice()).bytes(bytes);
    }
}

/// What the device refuses; the model does not say how.
#[derive(Debug, PartialEq, Eq)]
struct Refused;

type Answer<T> = std::result::Result<T, Refused>;

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

    fn ready(&mut self, fresh: bool) -> Answer<u16> {
        if fresh || self.seen == self.next {
            let idx = self.u16_at(AVAIL_AT + 2);
            if idx.wrapping_sub(self.next) > self.size {
                return Err(Refused);
            }
            self.seen = idx;
        }
        Ok(self.seen.wrapping_sub(self.next))
    }

    fn head(&self, k: u16) -> Answer<u16> {
        let slot = usize::from(self.next.wrapping_add(k) % self.size);
        Some(self.u16_at(AVAIL_AT + 4 + 2 * slot))
            .filter(|h| *h < self.size)
            .ok_or(Refused)
    }

    /// Places of the chain's bytes, in order, and how many descriptors it has, empty ones too.
    fn chain(&self, head: u16, write: bool) -> Answer<(Vec<(usize, usize)>, u16)> {
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
        for n in 1..=(table.len() / 16).min(MAX_CHAIN) {
            if d.flags & INDIRECT != 0 || (d.flags & WRITE != 0) != write {
                return Err(Refused);
            }
            for i in 0..u64::from(d.len) {
                places.push(Self::place(d.addr.wrapping_add(i)).ok_or(Refused)?);
            }
            if d.flags & NEXT == 0 {
                return Ok((places, n as u16));
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

fn address(u: &mut Unstructured<'_>) -> Result<u64> {
    Ok(match u.int_in_range(0..=11)? {
        0..4 => 0x800 + u.int_in_range(0..=0x7fff)?,
        4..7 => TABLES_GPA + 16 * u.int_in_range(0..=63)?,
        7..9 => u64::MAX - 0x2000 + u.int_in_range(0..=0x10ff)?,
        9 => u64::MAX - u.int_in_range(0..=63)?,
        10 => 0x7000 - 100 + u.int_in_range(0..=199)?,
        _ => u.arbitrary()?,
    })
}

fn length(u: &mut Unstructured<'_>) -> Result<u32> {
    Ok(match u.int_in_range(0..=9)? {
        0..4 => u.int_in_range(0..=299)?,
        4..7 => 16 * u.int_in_range(0..=11)?,
        7 => u.int_in_range(0..=0x7fff)?,
        8 => u.arbitrary()?,
        _ => u32::MAX - u.int_in_range(0..=39)?,
    })
}

fn desc(u: &mut Unstructured<'_>) -> Result<Desc> {
    let (addr, len) = if u.ratio(1, 6)? {
        // Up to the end of a region, or one byte more.
        let (gpa, size) = REGIONS[u.choose_index(3)?];
        let (n, more) = (u.int_in_range(0..=199)?, u.int_in_range(0..=1)?);
        (gpa.wrapping_add(size as u64 - u64::from(n)), n + more)
    } else {
        (address(u)?, length(u)?)
    };
    let flags = match u.int_in_range(0..=8)? {
        0..6 => u.int_in_range(0..=3)?,
        6..8 => u.int_in_range(0..=7)?,
        _ => u.arbitrary()?,
    };
    let next = if u.ratio(1, 9)? {
        u.arbitrary()?
    } else {
        u.int_in_range(0..=19)?
    };
    Ok(Desc {
        addr,
        len,
        flags,
        next,
    })
}

fn round(u: &mut Unstructured<'_>) -> Result<Round> {
    let head = |u: &mut Unstructured<'_>| match u.int_in_range(0..=24)? {
        0..20 => u.int_in_range(0..=7),
        20..24 => u.int_in_range(0..=19),
        _ => u.arbitrary(),
    };
    Ok(Round {
        heads: (0..8).map(|_| head(u)).collect::<Result<_>>()?,
        step: if u.ratio(1, 13)? {
            u.arbitrary()?
        } else {
            u.int_in_range(0..=8)?
        },
        flags: u.arbitrary()?,
        used_event: u.arbitrary()?,
        fresh: u.arbitrary()?,
        take: u.int_in_range(0..=8)?,
    })
}

fn case(u: &mut Unstructured<'_>) -> Result<Case> {
    let base = [0, 65535, 65530, u.arbitrary()?];
    let (log_size, base) = (u.int_in_range(0..=4)?, *u.choose(&base)?);
    let (mut write, event_idx, indirect) = (u.arbitrary()?, u.arbitrary()?, u.ratio(4, 5)?);
    let mut descs = (0..16).map(|_| desc(u)).collect::<Result<Vec<_>>>()?;
    let mut tables = (0..32).map(|_| desc(u)).collect::<Result<Vec<_>>>()?;
    // Mostly one direction, or hardly a chain is legal.
    for (i, d) in descs.iter_mut().chain(&mut tables).enumerate() {
        if i % 7 != 0 {
            d.flags = d.flags & !WRITE | if write { WRITE } else { 0 };
        }
    }
    let filler = u.arbitrary()?;
    write ^= filler == 0;
    let rounds = (0..u.int_in_range(1..=5)?)
        .map(|_| round(u))
        .collect::<Result<_>>()?;
    Ok(Case {
        log_size,
        base,
        write,
        event_idx,
        indirect,
        descs,
        tables,
        rounds,
        filler,
    })
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

fn total(segs: &Segs) -> u64 {
    segs.as_slice().iter().map(|s| s.len() as u64).sum()
}

fn agree(c: &Case) {
    let mut s = Stage::new(c);
    assert!(s.same_memory());
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
        assert_eq!(got.as_ref().ok(), want.as_ref().ok());
        let Ok(n) = want else { return };
        for _ in 0..n.min(r.take.into()) {
            let want = s.model.head(0);
            let got = s.ring.head(0);
            assert_eq!(got.as_ref().ok(), want.as_ref().ok());
            let Ok(head) = want else { return };
            let want = s.model.chain(head, c.write);
            let one = s.ring.single(head, c.write);
            assert!(
                one.is_none() || want.is_ok(),
                "the short way takes what is refused"
            );
            let mut segs = Segs::default();
            let got = s.ring.counted_chain(head, c.write, &mut segs);
            assert_eq!(
                got.as_ref().ok().copied(),
                want.as_ref().ok().map(|(places, n)| (places.len() as u64, *n))
            );
            let Ok((places, _)) = want else { return };
            assert_eq!(total(&segs), places.len() as u64);
            if let Some(one) = one {
                let mut own = segs.as_slice().iter().filter(|s| s.len() > 0);
                assert!(own.all(|s| *s == one) && one.len() as u64 == total(&segs));
            }
            if c.write {
                let bytes: Vec<u8> = (0..places.len())
                    .map(|i| (i * 31 + usize::from(head)) as u8)
                    .collect();
                let mut w = Writer::new(segs.as_slice());
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
                assert_eq!(gather(segs.as_slice(), skip, &mut bytes), places.len() - skip);
                bytes.pop();
                let want: Vec<u8> = places[skip..]
                    .iter()
                    .map(|(r, at)| s.model.memory[*r][*at])
                    .collect();
                assert!(bytes == want);
            }
            assert!(s.same_memory());
            s.ring.advance(1);
            s.model.next = s.model.next.wrapping_add(1);
            s.ring.stage(head, places.len() as u32);
            s.model.stage(head, places.len() as u32);
            assert!(s.same_memory());
        }
        let staged = s.ring.staged();
        assert_eq!(staged, s.model.used);
        let old = s.model.u16_at(USED_AT + 2);
        // A buffer may have lain over the index: then the device, which remembers, need not agree with memory.
        if old == s.ring.published() {
            let want = s.model.publish();
            assert_eq!(s.ring.publish(staged), want);
            assert!(s.same_memory());
        } else {
            return;
        }
    }
    assert_eq!(s.ring.base(), s.model.next);
}

/// Ring sizes and addresses: what is accepted lies in memory, aligned.
fn parts(u: &mut Unstructured<'_>) -> Result<()> {
    let region = Region::guarded(0, 4).expect("a mapping");
    let base = region.user;
    let map = Arc::new(MemMap::new(&[region]));
    let offset = |u: &mut Unstructured<'_>| -> Result<u64> {
        Ok(match u.int_in_range(0..=7)? {
            0..4 => u.int_in_range(0..=4 * PAGE as u64 - 1)?,
            4..6 => 4 * PAGE as u64 - u.int_in_range(0..=599)?,
            6 => u.int_in_range(0..=63u64)?.wrapping_neg(),
            _ => u.arbitrary()?,
        })
    };
    let size: u32 = match u.int_in_range(0..=9)? {
        0..8 => 1 << u.int_in_range(0..=15)?,
        8 => u.arbitrary()?,
        _ => u.int_in_range(0..=69_999)?,
    };
    let (desc, avail, used) = (offset(u)? & !15, offset(u)? & !1, offset(u)? & !3);
    let at = |o: u64| base.wrapping_add(o);
    let addresses = RingAddresses {
        desc: at(desc),
        avail: at(avail),
        used: at(used),
        used_log: None,
    };
    let ring = SplitRing::new(map, size, addresses, u.arbitrary()?, true, true, None);
    let n = u64::from(size);
    let fits = |o: u64, len: u64| o.checked_add(len).is_some_and(|end| end <= 4 * PAGE as u64);
    let legal = size.is_power_of_two() && size <= 32768;
    let legal = legal && fits(desc, 16 * n) && fits(avail, 6 + 2 * n) && fits(used, 6 + 8 * n);
    assert_eq!(ring.is_ok(), legal);
    if let Ok(mut ring) = ring {
        // Touch all ends.
        ring.suppress_kicks();
        let _ = ring.request_kicks();
        if let Ok(n) = ring.ready_now() {
            for k in 0..n {
                if let Ok(head) = ring.head(k) {
                    let _ = ring.chain(head, false, &mut Segs::default());
                    ring.stage(head, 0);
                }
            }
            let staged = ring.staged();
            ring.publish(staged);
        }
    }
    Ok(())
}

/// See the module.
pub fn run(bytes: &[u8]) {
    let mut u = Unstructured::new(bytes);
    if u.ratio(1, 8).unwrap_or(false) {
        parts(&mut u).expect("no end of bytes is an error");
    } else if let Ok(case) = case(&mut u) {
        agree(&case);
    }
}
