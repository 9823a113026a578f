//! Memory of the program's own that becomes known to the daemon where it is.
//!
//! A process cannot lend its private pages to another one. So the pages that a registered range touches are
//! *adopted* once: their content moves into an arena (a file that the daemon has mapped), and the arena is mapped
//! at the same address. From then on the program and the device see the same bytes; addresses, rights and
//! neighbours in the same page stay what they were. Memory that is shared by a file already keeps its file, which
//! the daemon gets as well ([`Outside`]).
//!
//! Only the kernel's list of mappings is true, never what was written down here: a program maps and unmaps as it
//! likes. Adopted pages stay adopted after deregistration, so that registering again costs a look at the mappings
//! and no copy. Pages that are mapped nowhere any more are found from time to time ([`Pool::collect`]), and used
//! again if nothing is registered there.
//!
//! # Limits
//!
//! * *Mappings.* Each adopted range may cost two more mappings (the limit is `vm.max_map_count`, 65530 by
//!   default). Neighbours that are adopted together cost none.
//! * *Other threads* may run and write meanwhile, or are stopped for a moment where the kernel does not let us catch
//!   what they write, if the program's environment does not forbid that; nothing is lost (see [`swap`]). Writes that do
//!   not go through this process's mappings are lost: a read with `O_DIRECT` that is under way, a buffer that
//!   another device has pinned before. Register memory for several devices here first.
//! * *Locked memory, huge pages* (`mlock`, `MADV_HUGEPAGE`) and other advice is forgotten for adopted pages.
//!   Private mappings of huge pages become normal pages. `MADV_DONTNEED` leaves the content of adopted pages,
//!   where it would be zeros.
//! * *Forked children* get what they would get without us, except pages that are registered as a whole ([`fork`]).
//! * *Shared mappings without a file that can be opened* are refused.

mod fork;
pub(crate) mod stop;
mod swap;
mod threads;
mod untouched;
pub(crate) mod write_protect;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex};

use rustix::io::Errno;
use vnic_device::ring::Extent;

use super::files::Outside;
use super::maps::{self, Mapping};
use super::memory::{Arena, Arenas, HUGE, Part, next_size};
use crate::Error;
use crate::extents::push;
use crate::sync::lock;
use crate::transport::Pinned;
pub(super) use fork::watch;
use swap::{How, Swap};

/// Bytes that are replaced at once: a thread that writes there waits no longer than this takes.
const STEP: usize = 16 << 20;
/// So many more steps are divided among threads, and most of these.
const WORTH_HELP: usize = 3;
const HELPERS: usize = 4;
/// Times that a range is looked at again after private pages in it were adopted.
const ROUNDS: usize = 4;
/// After so many more bytes, or parts, the pool looks for unused ones.
const COLLECT_BYTES: usize = 64 << 20;
const COLLECT_PARTS: usize = 1024;

/// All adopted pages of this process. All devices use them: a page can be in one file only.
static POOL: Mutex<Pool> = Mutex::new(Pool::new());

/// Registered ranges of memory of the program's own.
static REGISTERED: Mutex<Registered> = Mutex::new(Registered {
    ranges: BTreeMap::new(),
    next: 0,
});

struct Registered {
    /// First byte and the one behind the last, by a number of ours.
    ranges: BTreeMap<u64, (usize, usize)>,
    next: u64,
}

/// A registered range, until it is dropped.
struct Registration(u64);

impl Registration {
    fn new(start: usize, end: usize) -> Registration {
        let mut registered = lock(&REGISTERED);
        let number = registered.next;
        registered.next += 1;
        registered.ranges.insert(number, (start, end));
        Registration(number)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        lock(&REGISTERED).ranges.remove(&self.0);
    }
}

struct Pool {
    arenas: Vec<Adopted>,
    /// Bytes adopted since the last collection.
    bytes: usize,
    parts: usize,
    /// Bytes left by the last collection.
    kept_bytes: usize,
    kept_parts: usize,
}

/// An arena whose parts are, or were, mapped in place of memory of the program's.
struct Adopted {
    arena: Arc<Arena>,
    /// Parts by their first byte. A part that is also held elsewhere is registered.
    parts: BTreeMap<usize, Arc<Part>>,
}

/// A piece of a range.
struct Piece {
    mapping: Mapping,
    /// The mapping of the piece, as a whole.
    all: Mapping,
    kind: Kind,
}

enum Kind {
    /// A part of an arena.
    Ours(Arc<Arena>),
    /// Private memory.
    Private,
    /// A part of a file, by its name.
    Shared(Vec<u8>),
}

/// Whether other threads may map something else in place of memory while it is made known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mappings {
    /// They do not: the program has promised that.
    Stay,
    /// They may: all threads are stopped while pages are replaced that are still what they were.
    Change,
}

/// Makes a range known to the daemon. `write`: the device may write there.
pub(super) fn pin(arenas: &Arenas, start: usize, len: usize, write: bool) -> Result<Pinned, Error> {
    pin_where(arenas, start, len, write, Mappings::Stay)
}

/// As [`pin`], where mappings may change meanwhile.
pub(super) fn pin_where(
    arenas: &Arenas,
    start: usize,
    len: usize,
    write: bool,
    mappings: Mappings,
) -> Result<Pinned, Error> {
    let page = rustix::param::page_size();
    let end = start
        .checked_add(len)
        .ok_or_else(|| bad_address(start, "it goes beyond the end of memory"))?;
    let first = start - start % page;
    let last = end
        .checked_next_multiple_of(page)
        .ok_or_else(|| bad_address(start, "it goes beyond the end of memory"))?;
    let mut pool = lock(&POOL);
    for _ in 0..ROUNDS {
        let pieces = look(first, last, write)?;
        let private = pieces.iter().filter(|p| matches!(p.kind, Kind::Private));
        let mut found = false;
        for piece in private {
            found = true;
            match pool.adopt(&piece.mapping, &piece.all, mappings) {
                Err(e) if mappings == Mappings::Change && e.errno() == libc::EAGAIN => break,
                adopted => adopted?,
            }
        }
        if !found {
            return pool.known(arenas, &pieces, start, end);
        }
    }
    Err(Error::os(format!(
        "memory at {start:#x} is mapped anew while it is registered"
    ))(Errno::AGAIN))
}

fn bad_address(at: usize, why: &str) -> Error {
    Error::os(format!("memory at {at:#x} cannot be registered: {why}"))(Errno::FAULT)
}

/// Whether a look at the mappings is at its end.
fn until(end: bool) -> ControlFlow<()> {
    if end {
        ControlFlow::Break(())
    } else {
        ControlFlow::Continue(())
    }
}

/// The pieces of a range of whole pages, in order.
fn look(start: usize, end: usize, write: bool) -> Result<Vec<Piece>, Error> {
    let mut pieces: Vec<Piece> = Vec::new();
    let mut at = start;
    let mut wrong = None;
    maps::each(|all, name| {
        let Some(mapping) = all.within(start, end) else {
            return until(all.start >= end);
        };
        if mapping.start != at {
            return ControlFlow::Break(());
        }
        at = mapping.end;
        let of_kernel = [&b"[vvar"[..], b"[vdso", b"[vsyscall"];
        wrong = if !mapping.rights.read {
            Some((mapping.start, "it may not be read there"))
        } else if write && !mapping.rights.write {
            Some((
                mapping.start,
                "it may not be written there, and the rights allow writing",
            ))
        } else if of_kernel.iter().any(|n| name.starts_with(n)) {
            Some((mapping.start, "it is the kernel's"))
        } else {
            None
        };
        let kind = match (mapping.shared, Arena::of_file(mapping.file)) {
            (true, Some(arena)) => Kind::Ours(arena),
            (true, None) => Kind::Shared(name.to_vec()),
            (false, _) => Kind::Private,
        };
        let all = *all;
        pieces.push(Piece { mapping, all, kind });
        until(at >= end || wrong.is_some())
    })
    .map_err(Error::os("reading /proc/self/maps"))?;
    if let Some((at, why)) = wrong {
        return Err(bad_address(at, why));
    }
    if at < end {
        return Err(bad_address(at, "nothing is mapped there"));
    }
    Ok(pieces)
}

impl Pool {
    const fn new() -> Pool {
        Pool {
            arenas: Vec::new(),
            bytes: 0,
            parts: 0,
            kept_bytes: 0,
            kept_parts: 0,
        }
    }

    /// Where the daemon sees pieces of which all are shared, from `start` to `end`.
    fn known(&self, arenas: &Arenas, pieces: &[Piece], start: usize, end: usize) -> Result<Pinned, Error> {
        let mut extents: Vec<Extent> = Vec::new();
        let mut arena_parts: Vec<Arc<Part>> = Vec::new();
        let mut whole: Vec<Arc<Arena>> = Vec::new();
        let mut files: Vec<Arc<Outside>> = Vec::new();
        for piece in pieces {
            let m = &piece.mapping;
            let gpa = match &piece.kind {
                Kind::Ours(arena) => {
                    arenas.know(arena)?;
                    let at = usize::try_from(m.offset).unwrap_or(usize::MAX);
                    arena_parts.extend(self.parts_in(arena, at, m.len()));
                    whole.push(Arc::clone(arena));
                    arena.start() as u64 + m.offset
                }
                Kind::Shared(name) => {
                    let file = arenas.know_file(m.file, m.offset, m.len(), || {
                        let file = Outside::open(&piece.all, name)?;
                        if file.covers(m.file, m.offset, m.len()) {
                            return Ok(file);
                        }
                        Err(bad_address(m.start, "the file that is mapped ends before"))
                    })?;
                    let gpa = file.start() as u64 + (m.offset - file.offset());
                    files.push(file);
                    gpa
                }
                // `pin` adopts private pieces first.
                Kind::Private => return Err(bad_address(m.start, "it is not shared")),
            };
            let (from, to) = (m.start.max(start), m.end.min(end));
            let (gpa, len) = (gpa + (from - m.start) as u64, (to - from) as u64);
            push(&mut extents, Extent { gpa, len });
        }
        Ok(Pinned {
            extents,
            owner: Box::new((Registration::new(start, end), arena_parts, whole, files)),
        })
    }

    /// The adopted parts that a range of an arena is in. Empty for an arena whose parts others answer for.
    fn parts_in(&self, arena: &Arc<Arena>, at: usize, len: usize) -> Vec<Arc<Part>> {
        let Some(adopted) = self.arenas.iter().find(|a| Arc::ptr_eq(&a.arena, arena)) else {
            return Vec::new();
        };
        let before = adopted.parts.range(..=at).next_back().map(|(at, _)| *at);
        adopted
            .parts
            .range(before.unwrap_or(at)..at + len)
            .filter(|(from, part)| *from + part.len() > at)
            .map(|(_, part)| Arc::clone(part))
            .collect()
    }

    /// Puts pages of an arena in the place of private ones.
    fn adopt(&mut self, mapping: &Mapping, all: &Mapping, mappings: Mappings) -> Result<(), Error> {
        self.collect_if_due();
        let mapping = &whole_pages(mapping, all)?;
        let (arena, at) = self.take(mapping.len())?;
        let steps = (mapping.start..mapping.end).step_by(STEP).map(|from| Swap {
            start: from,
            len: STEP.min(mapping.end - from),
            rights: mapping.rights,
            anonymous: mapping.file == Default::default(),
            expected: (mappings == Mappings::Change).then_some(mapping),
            file: arena.file(),
            offset: (at + (from - mapping.start)) as u64,
        });
        replace(&steps.collect::<Vec<_>>())
    }

    /// Takes a part of an arena. If it is never mapped, the next collection finds it.
    fn take(&mut self, len: usize) -> Result<(Arc<Arena>, usize), Error> {
        (self.bytes, self.parts) = (self.bytes + len, self.parts + 1);
        for adopted in &mut self.arenas {
            if let Some(part) = adopted.arena.take_part(len) {
                let at = part.at();
                adopted.parts.insert(at, Arc::new(part));
                return Ok((Arc::clone(&adopted.arena), at));
            }
        }
        let too_much = || Error::Invalid(format!("there is no memory of {len} bytes"));
        let size = next_size(self.arenas.len(), len).ok_or_else(too_much)?;
        let arena = Arena::of_normal_pages(size)?;
        let part = Arc::new(arena.take_part(len).ok_or_else(too_much)?);
        let at = part.at();
        self.arenas.push(Adopted {
            arena: Arc::clone(&arena),
            parts: BTreeMap::from([(at, part)]),
        });
        Ok((arena, at))
    }

    fn collect_if_due(&mut self) {
        let bytes = self.bytes >= COLLECT_BYTES.max(self.kept_bytes);
        if bytes || self.parts >= COLLECT_PARTS.max(self.kept_parts) {
            self.collect();
        }
    }

    /// Gives back parts that are neither mapped in place of memory of the program's nor registered.
    ///
    /// A mapping that is moved (mremap) while the kernel's list is read may be in it nowhere. So the list is read
    /// twice, and a part counts as unused only if it was missing both times.
    fn collect(&mut self) {
        let (Ok(first), Ok(second)) = (self.mapped(), self.mapped()) else {
            return;
        };
        (self.kept_bytes, self.kept_parts) = (0, 0);
        for (adopted, (a, b)) in self.arenas.iter_mut().zip(first.into_iter().zip(second)) {
            let used = joined([a, b].concat());
            for (at, part) in std::mem::take(&mut adopted.parts) {
                match Arc::try_unwrap(part) {
                    Err(registered) => {
                        adopted.parts.insert(at, registered);
                    }
                    Ok(part) => {
                        let kept = split(part, &used).into_iter();
                        adopted.parts.extend(kept.map(|p| (p.at(), Arc::new(p))));
                    }
                }
            }
            self.kept_parts += adopted.parts.len();
            self.kept_bytes += adopted.parts.values().map(|p| p.len()).sum::<usize>();
        }
        (self.bytes, self.parts) = (0, 0);
    }

    /// For each arena the ranges of it that are mapped other than as a whole.
    fn mapped(&self) -> Result<Vec<Vec<(usize, usize)>>, Errno> {
        let mut ranges = vec![Vec::new(); self.arenas.len()];
        maps::each(|m, _| {
            let of = self.arenas.iter().position(|a| a.arena.id() == m.file);
            if let Some(i) = of
                && !self.arenas[i].arena.is_all_in(m)
                && let Ok(at) = usize::try_from(m.offset)
            {
                ranges[i].push((at, at + m.len()));
            }
            ControlFlow::Continue(())
        })?;
        Ok(ranges)
    }
}

/// Replaces pages, by several threads if there are many: threads that are protected from one another do not stop each other.
fn replace(steps: &[Swap<'_>]) -> Result<(), Error> {
    let Some((first, rest)) = steps.split_first() else {
        return Ok(());
    };
    let way = first.carry_out(forced())?;
    let many = rest.len() >= WORTH_HELP && forced().is_none() && matches!(way, How::Protect(_));
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let helpers = if many { cpus.min(HELPERS) } else { 0 };
    let next = AtomicUsize::new(0);
    let todo: Vec<(&Swap<'_>, AtomicBool)> = rest.iter().map(|step| (step, AtomicBool::new(false))).collect();
    std::thread::scope(|s| {
        for _ in 0..helpers {
            let help = || {
                let taken = || next.fetch_add(1, Relaxed);
                while let Some((step, done)) = todo.get(taken()) {
                    done.store(step.try_ways(&[way]).is_ok(), Relaxed);
                }
            };
            let thread = std::thread::Builder::new().name("vnic-adopt".into());
            // What no thread can be started for is done below.
            let _ = thread.stack_size(swap::STACK).spawn_scoped(s, help);
        }
    });
    for (step, done) in todo {
        if !done.into_inner() {
            step.carry_out(forced())?;
        }
    }
    Ok(())
}

#[cfg(test)]
thread_local! {
    /// The way that a test wants.
    static HOW: std::cell::Cell<Option<How>> = const { std::cell::Cell::new(None) };
}

#[cfg(test)]
fn forced() -> Option<How> {
    HOW.get()
}

#[cfg(not(test))]
fn forced() -> Option<How> {
    None
}

/// Ranges in order, without overlaps.
fn joined(mut ranges: Vec<(usize, usize)>) -> Vec<(usize, usize)> {
    ranges.sort_unstable();
    let mut all: Vec<(usize, usize)> = Vec::new();
    for (from, to) in ranges {
        match all.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => all.push((from, to)),
        }
    }
    all
}

/// The used pieces of a part; the rest is given back.
fn split(part: Part, used: &[(usize, usize)]) -> Vec<Part> {
    let mut kept = Vec::new();
    let mut rest = part;
    let first = used.partition_point(|(_, to)| *to <= rest.at());
    for &(from, to) in &used[first..] {
        if from >= rest.at() + rest.len() {
            break;
        }
        if from > rest.at() {
            let skip = from - rest.at();
            // The first half is given back.
            (_, rest) = rest.split(skip);
        }
        if to >= rest.at() + rest.len() {
            kept.push(rest);
            return kept;
        }
        let len = to - rest.at();
        let (mine, behind) = rest.split(len);
        kept.push(mine);
        rest = behind;
    }
    kept
}

/// The range that is replaced: whole pages of a mapping of huge pages.
fn whole_pages(mapping: &Mapping, all: &Mapping) -> Result<Mapping, Error> {
    let mut huge = false;
    if mapping.file.inode != 0 {
        maps::each(|m, name| {
            huge |= m.start == all.start && name.windows(13).any(|w| w == b"anon_hugepage");
            until(m.start > all.start)
        })
        .map_err(Error::os("reading /proc/self/maps"))?;
    }
    if !huge {
        return Ok(*mapping);
    }
    let start = mapping.start - mapping.start % HUGE;
    let end = mapping.end.next_multiple_of(HUGE);
    all.within(start, end)
        .ok_or_else(|| bad_address(mapping.start, "it changed"))
}
