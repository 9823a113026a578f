//! Memory of our own that the device sees: rings, virtqueues, buffers.

use std::sync::{Arc, Mutex, Weak};

use vnic_device::ring::Extent;

use super::mapping::{HUGE, Kind, Mapping};
use super::pagemap;
use super::pin::{Pin, Pins};
use crate::Error;
use crate::extents::part_of;
use crate::sync::lock;
use crate::transport::SharedPages;

/// Allocates pages; small pieces come from common chunks of 2 MiB. Chunks live until the arena and all pieces are
/// dropped.
///
/// The arena takes huge pages if the administrator has set some aside, and pins them if that is possible.
/// Otherwise it takes normal pages and pins them.
#[derive(Debug)]
pub struct Arena {
    pins: Arc<Pins>,
    chunks: Mutex<Vec<Chunk>>,
    /// Memory that is larger than a chunk.
    large: Mutex<Vec<Weak<Fixed>>>,
}

/// Memory whose place is known, and stays.
#[derive(Debug)]
struct Fixed {
    extents: Vec<Extent>,
    /// Dropped before the mapping. `None`: huge pages, which need no pin.
    _pin: Option<Pin>,
    mapping: Mapping,
}

/// Memory of which pieces are given out.
#[derive(Debug)]
struct Chunk {
    memory: Arc<Fixed>,
    /// Free pieces (first byte, bytes), in order, never neighbours.
    free: Vec<(usize, usize)>,
}

/// A piece, which is free again when it is dropped.
struct Piece {
    arena: Arc<Arena>,
    memory: Arc<Fixed>,
    skip: usize,
    len: usize,
}

impl Arena {
    /// An arena without memory.
    pub fn new(pins: Arc<Pins>) -> Arc<Arena> {
        Arc::new(Arena {
            pins,
            chunks: Mutex::default(),
            large: Mutex::default(),
        })
    }

    /// Allocates zeros, in whole pages, at least one.
    pub fn allocate(self: &Arc<Arena>, len: usize) -> Result<SharedPages, Error> {
        let len = len
            .max(1)
            .checked_next_multiple_of(rustix::param::page_size())
            .ok_or_else(|| Error::Setup(format!("there is no memory of {len} bytes")))?;
        if len > HUGE / 2 {
            let memory = Arc::new(Fixed::new(&self.pins, len)?);
            let mut large = lock(&self.large);
            large.retain(|m| m.strong_count() > 0);
            large.push(Arc::downgrade(&memory));
            drop(large);
            return Ok(self.piece(memory, 0, len));
        }
        let mut chunks = lock(&self.chunks);
        let found = chunks
            .iter_mut()
            .find_map(|c| Some((Arc::clone(&c.memory), take(&mut c.free, len)?)));
        let (memory, skip) = match found {
            Some(found) => found,
            None => {
                let memory = Arc::new(Fixed::new(&self.pins, HUGE)?);
                chunks.push(Chunk {
                    memory: Arc::clone(&memory),
                    free: vec![(len, HUGE - len)],
                });
                (memory, 0)
            }
        };
        drop(chunks);
        memory.mapping.clear(skip, len);
        Ok(self.piece(memory, skip, len))
    }

    /// The extents of bytes that this arena gave out, and what keeps them there: they need no other pin. `None`:
    /// the bytes are not of this arena.
    pub fn known(&self, start: usize, len: usize) -> Option<(Vec<Extent>, Arc<dyn Send + Sync>)> {
        let inside = |m: &Fixed| {
            let skip = start.checked_sub(m.mapping.start().as_ptr().addr())?;
            (skip.checked_add(len)? <= m.mapping.len()).then_some(skip)
        };
        let found = |m: Arc<Fixed>| {
            let skip = inside(&m)?;
            let keep: Arc<dyn Send + Sync> = Arc::clone(&m) as _;
            Some((part_of(&m.extents, skip as u64, len as u64), keep))
        };
        let chunks = lock(&self.chunks);
        if let Some(known) = chunks.iter().find_map(|c| found(Arc::clone(&c.memory))) {
            return Some(known);
        }
        drop(chunks);
        let large = lock(&self.large);
        large.iter().filter_map(Weak::upgrade).find_map(found)
    }

    fn piece(self: &Arc<Arena>, memory: Arc<Fixed>, skip: usize, len: usize) -> SharedPages {
        SharedPages {
            start: memory.mapping.at(skip),
            len,
            extents: part_of(&memory.extents, skip as u64, len as u64),
            owner: Box::new(Piece {
                arena: Arc::clone(self),
                memory,
                skip,
                len,
            }),
        }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        if self.arena.pins.are_abandoned() {
            std::mem::forget(Arc::clone(&self.memory));
            return;
        }
        let mut chunks = lock(&self.arena.chunks);
        if let Some(chunk) = chunks.iter_mut().find(|c| Arc::ptr_eq(&c.memory, &self.memory)) {
            give_back(&mut chunk.free, self.skip, self.len);
        }
    }
}

impl Fixed {
    fn new(pins: &Pins, len: usize) -> Result<Fixed, Error> {
        match Mapping::new(Kind::Huge, len) {
            Ok(mapping) => Fixed::fix(pins, mapping, Kind::Huge),
            // There are no huge pages, or not enough.
            Err(_) => {
                let mapping = Mapping::new(Kind::Normal, len).map_err(Error::os(format!(
                    "cannot get {len} bytes of memory for the device"
                )))?;
                Fixed::fix(pins, mapping, Kind::Normal)
            }
        }
    }

    fn fix(pins: &Pins, mapping: Mapping, kind: Kind) -> Result<Fixed, Error> {
        let (start, len) = (mapping.start().as_ptr().addr(), mapping.len());
        let pin = match (pins.pin(start, len), kind) {
            (Ok(pin), _) => Some(pin),
            (Err(_), Kind::Huge) => {
                mapping.clear(0, len);
                None
            }
            (Err(e), Kind::Normal) => {
                return Err(Error::Setup(format!(
                    "{e}. Or set huge pages aside, which need no pin, in the guest: sysctl -w vm.nr_hugepages=64"
                )));
            }
        };
        Ok(Fixed {
            extents: pagemap::extents(start, len)?,
            _pin: pin,
            mapping,
        })
    }
}

/// Takes a piece from the first free piece that is large enough.
fn take(free: &mut Vec<(usize, usize)>, len: usize) -> Option<usize> {
    let i = free.iter().position(|f| f.1 >= len)?;
    let (at, size) = free[i];
    if size == len {
        free.remove(i);
    } else {
        free[i] = (at + len, size - len);
    }
    Some(at)
}

/// Gives a piece back, joined with its neighbours.
fn give_back(free: &mut Vec<(usize, usize)>, at: usize, len: usize) {
    let i = free.partition_point(|f| f.0 < at);
    free.insert(i, (at, len));
    if let Some(&(next, size)) = free.get(i + 1)
        && at + len == next
    {
        free[i].1 += size;
        free.remove(i + 1);
    }
    if i > 0 && free[i - 1].0 + free[i - 1].1 == at {
        free[i - 1].1 += free[i].1;
        free.remove(i);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_come_back() {
        let mut free = vec![(0, 100)];
        let some: Vec<_> = (0..4).map(|_| take(&mut free, 20).expect("room")).collect();
        assert_eq!(some, [0, 20, 40, 60]);
        assert_eq!(take(&mut free, 21), None);
        give_back(&mut free, 20, 20);
        give_back(&mut free, 60, 20);
        assert_eq!(free, [(20, 20), (60, 40)]);
        assert_eq!(take(&mut free, 30), Some(60));
        give_back(&mut free, 60, 30);
        give_back(&mut free, 40, 20);
        assert_eq!(free, [(20, 80)]);
        give_back(&mut free, 0, 20);
        assert_eq!(free, [(0, 100)]);
        assert_eq!(take(&mut free, 100), Some(0));
        assert!(free.is_empty());
    }

    /// Arena of this machine, if the kernel lets us know where memory is.
    fn arena() -> Option<Arc<Arena>> {
        let able = pagemap::check().and_then(|()| super::super::pin::check());
        if let Err(e) = able {
            eprintln!("SKIP arena: {e}");
            return None;
        }
        Some(Arena::new(Arc::new(Pins::new())))
    }

    #[test]
    fn memory_is_where_it_is_said_to_be() {
        let Some(arena) = arena() else { return };
        let page = rustix::param::page_size();
        let some: Vec<SharedPages> = [1, page, 5 * page, HUGE / 2, HUGE / 2, HUGE, 3 * HUGE + 1]
            .map(|len| arena.allocate(len).expect("memory"))
            .into();
        let mut seen: Vec<(u64, u64)> = Vec::new();
        for s in &some {
            assert_eq!(s.len % page, 0);
            assert_eq!(s.extents.iter().map(|e| e.len).sum::<u64>(), s.len as u64);
            let start = s.start.as_ptr().addr();
            let now = pagemap::extents(start, s.len).expect("still there");
            assert_eq!(now, s.extents);
            let known = |start, len| arena.known(start, len).map(|k| k.0);
            assert_eq!(known(start, s.len).as_ref(), Some(&s.extents));
            assert_eq!(known(start + 100, 900), Some(part_of(&s.extents, 100, 900)));
            assert_eq!(known(start, 16 * HUGE), None);
            seen.extend(s.extents.iter().map(|e| (e.gpa, e.len)));
        }
        seen.sort_unstable();
        assert!(
            seen.windows(2).all(|w| w[0].0 + w[0].1 <= w[1].0),
            "{seen:x?} overlap"
        );
        assert_eq!(arena.chunks.lock().expect("lock").len(), 2);
        let large = some[6].start.as_ptr().addr();
        drop(some);
        assert!(arena.known(large, 1).is_none());
        let chunks = arena.chunks.lock().expect("lock");
        assert!(chunks.iter().all(|c| c.free == [(0, HUGE)]));
    }

    #[test]
    fn pieces_are_zero_again_and_outlive_the_arena() {
        let Some(arena) = arena() else { return };
        let first = arena.allocate(4096).expect("memory");
        fill(&first, 0xaa);
        let at = first.start;
        drop(first);
        let second = arena.allocate(4096).expect("memory");
        assert_eq!(second.start, at);
        assert!(bytes(&second).iter().all(|&b| b == 0));
        drop(arena);
        fill(&second, 1);
        assert_eq!(bytes(&second)[4095], 1);
    }

    #[test]
    fn abandoned_memory_is_never_used_again() {
        let Some(arena) = arena() else { return };
        let small = arena.allocate(4096).expect("memory");
        let large = arena.allocate(2 * HUGE).expect("memory");
        let places = [&small, &large].map(|s| (s.start.as_ptr().addr(), s.len, s.extents.clone()));
        arena.pins.abandon();
        drop((small, large));
        drop(arena);
        for (start, len, extents) in places {
            assert_eq!(pagemap::extents(start, len).expect("still there"), extents);
        }
    }

    fn fill(pages: &SharedPages, value: u8) {
        super::super::mapping::testing::fill(pages.start, pages.len, value);
    }

    fn bytes(pages: &SharedPages) -> Vec<u8> {
        super::super::mapping::testing::read(pages.start, pages.len)
    }
}
