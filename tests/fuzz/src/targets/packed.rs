//! The packed ring: its bytes are the fuzzer's. A naive model on a plain byte array must agree on what is available, what is refused,
//! and how many bytes a chain has; of what the device uses the driver's entry must tell. A device that takes the ring over where
//! another left it, or died, goes on within the ring, and where the next one goes on, too. Memory lies between pages that nobody may
//! touch.

use std::sync::Arc;

use arbitrary::{Result, Unstructured};
use vnic_backend::fuzzing::{MemMap, PackedRing, Region, RingAddresses, Segs, Writer, gather};
use vnic_tests::driver::{Desc, INDIRECT, NEXT, WRITE, feature};

const PAGE: usize = 4096;
const PAGES: usize = 6;
const GPA: u64 = 0x1000;
const TABLES_AT: usize = 3 * PAGE;
const AVAIL: u16 = 1 << 7;
const USED: u16 = 1 << 15;
const WRAP: u16 = 1 << 15;

/// The guest: its memory, as both sides see it, and where the device stands.
struct Guest {
    region: Region,
    segs: Segs,
    size: u16,
    features: u64,
}

impl Guest {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; PAGES * PAGE];
        assert_eq!(gather(self.segs.as_slice(), 0, &mut bytes), bytes.len());
        bytes
    }

    fn write(&self, at: usize, part: &[u8]) {
        let mut bytes = self.bytes();
        bytes[at..at + part.len()].copy_from_slice(part);
        Writer::new(self.segs.as_slice()).bytes(&bytes);
    }

    fn put(&self, at: usize, d: Desc) {
        // (`next` is the id here.)
        let word = u64::from(d.len) | u64::from(d.next) << 32 | u64::from(d.flags) << 48;
        self.write(at, &[d.addr.to_le_bytes(), word.to_le_bytes()].concat());
    }

    fn desc(&self, at: usize) -> Desc {
        let bytes = self.bytes();
        let half = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().expect("memory"));
        let (addr, word) = (half(at), half(at + 8));
        Desc {
            addr,
            len: word as u32,
            flags: (word >> 48) as u16,
            next: (word >> 32) as u16,
        }
    }

    fn device(&self, base: u16) -> PackedRing {
        let at = |page: usize| self.region.user + (page * PAGE) as u64;
        let addresses = RingAddresses {
            desc: at(0),
            avail: at(1),
            used: at(2),
            used_log: None,
        };
        let map = Arc::new(MemMap::new(std::slice::from_ref(&self.region)));
        let ring = PackedRing::new(map, self.size.into(), addresses, base, self.features, None);
        ring.expect("a legal ring")
    }

    fn step(&self, place: u16, n: u16) -> u16 {
        (0..n).fold(place, |place, _| match (place & !WRAP) + 1 {
            end if end == self.size => !place & WRAP,
            next => next | place & WRAP,
        })
    }

    fn available(&self, place: u16) -> bool {
        let flags = self.desc(16 * usize::from(place & !WRAP)).flags;
        flags & (AVAIL | USED) == if place & WRAP != 0 { AVAIL } else { USED }
    }

    /// Length, id and entries of the buffer at `place`, of at most `room` entries; `None`: it is refused.
    fn chain(&self, place: u16, room: u16, write: bool) -> Option<(u64, u16, u16)> {
        let part = |d: Desc| {
            let inside = |len: u64| {
                let end = d.addr.checked_add(len);
                d.addr >= GPA && end.is_some_and(|end| end <= GPA + (PAGES * PAGE) as u64)
            };
            let legal = d.flags & INDIRECT == 0 && (d.flags & WRITE != 0) == write;
            (legal && (d.len == 0 || inside(d.len.into()))).then_some(u64::from(d.len))
        };
        let first = self.desc(16 * usize::from(place & !WRAP));
        if first.flags & INDIRECT != 0 {
            let legal = self.features & feature::RING_INDIRECT_DESC != 0 && first.flags & NEXT == 0;
            let whole = first.len > 0 && first.len.is_multiple_of(16) && first.len <= 16 * 1024;
            let begin = first.addr.checked_sub(GPA)? as usize;
            let fits = begin
                .checked_add(first.len as usize)
                .is_some_and(|end| end <= PAGES * PAGE);
            (legal && whole && fits).then_some(())?;
            let parts = (0..first.len as usize / 16).map(|i| part(self.desc(begin + 16 * i)));
            return Some((parts.sum::<Option<u64>>()?, first.next, 1));
        }
        let mut total = 0;
        for n in 0..room {
            let d = self.desc(16 * usize::from(self.step(place, n) & !WRAP));
            total += part(d)?;
            if d.flags & NEXT == 0 {
                return Some((total, d.next, n + 1));
            }
        }
        None
    }
}

fn desc(u: &mut Unstructured<'_>, write: bool, place: u16) -> Result<Desc> {
    let addr = match u.int_in_range(0..=9)? {
        0..6 => GPA + u.int_in_range(0..=(PAGES * PAGE) as u64)?,
        6..8 => GPA + TABLES_AT as u64 + 16 * u.int_in_range(0..=31)?,
        8 => 0x766e_6963 << 32 | u64::from(u.arbitrary::<u32>()?),
        _ => u.arbitrary()?,
    };
    let len = match u.int_in_range(0..=9)? {
        0..6 => u.int_in_range(0..=99)?,
        6..9 => 16 * u.int_in_range(0..=9)?,
        _ => u.arbitrary()?,
    };
    let mut flags = match u.int_in_range(0..=9)? {
        0..6 => 0,
        6..8 => NEXT,
        8 => INDIRECT,
        _ => u.arbitrary::<u16>()? & !(AVAIL | USED),
    };
    if u.ratio(11, 12)? {
        flags = flags & !WRITE | if write { WRITE } else { 0 };
    }
    flags |= match u.int_in_range(0..=15)? {
        0 => u.arbitrary::<u16>()? & (AVAIL | USED),
        _ if place & WRAP != 0 => AVAIL,
        _ => USED,
    };
    Ok(Desc {
        addr,
        len,
        flags,
        next: u.arbitrary()?,
    })
}

fn agree(u: &mut Unstructured<'_>) -> Result<()> {
    let region = Region::guarded(GPA, PAGES).expect("a mapping");
    let mut segs = Segs::default();
    segs.of(&Arc::new(MemMap::new(std::slice::from_ref(&region))));
    assert!(segs.translate(GPA, (PAGES * PAGE) as u32));
    let kinds = [
        feature::RING_INDIRECT_DESC,
        feature::RING_EVENT_IDX,
        feature::IN_ORDER,
    ];
    let mut features = 0;
    for kind in kinds {
        features |= if u.arbitrary()? { kind } else { 0 };
    }
    let guest = Guest {
        region,
        segs,
        size: u.int_in_range(1..=17)?,
        features,
    };
    let write = u.arbitrary()?;
    for i in 0..32 {
        let d = desc(u, write, 0)?;
        guest.put(TABLES_AT + 16 * i, d);
    }
    let base = u.int_in_range(0..=guest.size - 1)? | if u.arbitrary()? { WRAP } else { 0 };
    let mut device = guest.device(base);
    for _ in 0..u.int_in_range(1..=9)? {
        let at = device.base();
        for i in 0..u.int_in_range(0..=guest.size)? {
            let place = guest.step(at, i);
            guest.put(16 * usize::from(place & !WRAP), desc(u, write, place)?);
        }
        guest.write(PAGE, &u.arbitrary::<[u8; 4]>()?);
        let mut room = guest.size;
        // What a look has found stays found, whatever the guest writes there since.
        let seen = device.distance(at, device.seen());
        let ready = device.ready_now().expect("no index to be wrong");
        let wanted = (seen..room)
            .take_while(|i| guest.available(guest.step(at, *i)))
            .count();
        assert_eq!(usize::from(ready - seen), wanted);
        let mut first = None;
        for _ in 0..u.int_in_range(0..=4)? {
            if device.ready() == Ok(0) {
                break;
            }
            let place = device.base();
            let mut segs = Segs::default();
            let got = device.bounded_chain(0, write, 1024, &mut segs);
            let want = guest.chain(place, room, write);
            let Some((len, id, entries)) = want else {
                assert!(!matches!(got, Ok(Some(_))), "{got:?}");
                break;
            };
            let (head, total, _) = got.expect("a legal chain").expect("a short chain");
            assert_eq!((total, head.id(), head.entries()), (len, id, entries));
            let one = device.single(0, write);
            assert!(one.is_none_or(|(head, seg)| head.id() == id && seg.len() as u64 == len));
            room -= entries;
            device.advance(entries);
            let used = if u.arbitrary()? { 0 } else { u.arbitrary()? };
            device.stage(head, used);
            first = first.or(Some((place, used)));
        }
        let _ = u.arbitrary::<bool>()?.then(|| device.request_kicks());
        device.publish(device.staged());
        device.wants_interrupt(at);
        assert_eq!(
            (device.published(), device.base()),
            (device.staged(), device.staged())
        );
        if let Some((place, used)) = first {
            let d = guest.desc(16 * usize::from(place & !WRAP));
            let state = if place & WRAP != 0 { AVAIL | USED } else { 0 };
            assert_eq!(d.flags & (AVAIL | USED), state);
            assert_eq!((d.len, d.flags & WRITE != 0), (used, used > 0));
        }
        if u.ratio(1, 3)? {
            // Whatever another device finds, it stays within the ring, and a third one finds the same.
            let place = guest.device(device.base()).base();
            assert!(place & !WRAP < guest.size);
            device = guest.device(place);
            assert!(device.base() & !WRAP < guest.size);
        }
    }
    Ok(())
}

/// See the module.
pub fn run(bytes: &[u8]) {
    // (The end of the bytes is the end of the run.)
    let _ = agree(&mut Unstructured::new(bytes));
}
