//! What a forked child gets of adopted memory.
//!
//! Memory that is shared by a file is shared with children, too. But adopted pages are the program's own: its heap,
//! its data, its stacks. A child that wrote there would write into its parent, and the C library writes there
//! before anybody else can. So pages are private again when the child is made, and the kernel copies them as ever:
//!
//! * Pages in which nothing is registered any more stay private. They are adopted again when they are registered.
//! * Pages in which some bytes are registered are private for the time of the fork. What the program writes into
//!   them meanwhile is carried over afterwards. The program sees only then what the device writes there. Its other
//!   threads are stopped ([`stop`]) for either change; where they cannot or must not be, what they write there at that
//!   very moment may be lost.
//! * Pages that are registered as a whole stay shared: in the child they become private before its code goes on,
//!   and are copied when it writes there. Until then the child sees what its parent and the device write. The
//!   memory of this library (rings, buffers of [`SharedBuffer`](crate::SharedBuffer)) is treated alike.
//!
//! The devices of the parent are gone for the child, which may open others.
//!
//! Children that are made without `fork` of the C library (vfork, posix_spawn, clone) are not seen: until they
//! execute another program they must not write anyway.

#![expect(
    unsafe_code,
    reason = "is called by fork, and parts a child's memory from its parent's"
)]

use std::ops::ControlFlow;
use std::ptr::{with_exposed_provenance, without_provenance_mut};
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU8};
use std::sync::{Arc, MutexGuard, Once, Weak};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous};

use super::super::generation::forked;
use super::super::maps::{self, Mapping, Rights};
use super::super::memory::{Arena, lock_arenas};
use super::swap::STACK;
use super::{POOL, Pool, REGISTERED, Registered, joined, stop};
use crate::sync::lock;

/// State of a fork that is under way.
static FORKING: AtomicPtr<Forking> = AtomicPtr::new(std::ptr::null_mut());

struct Forking {
    /// Locked: nothing is adopted meanwhile.
    pool: MutexGuard<'static, Pool>,
    registered: MutexGuard<'static, Registered>,
    known: MutexGuard<'static, Vec<Weak<Arena>>>,
    /// The arenas that are there.
    arenas: Vec<Arc<Arena>>,
    /// Pages that are private for the time of the fork.
    edges: Vec<Edge>,
}

/// A page in which some bytes are registered.
struct Edge {
    /// Address in the program.
    at: usize,
    /// Address in the arena's mapping as a whole.
    shared: usize,
    rights: Rights,
    arena: Arc<Arena>,
    offset: u64,
    /// Content when the page became private.
    before: Vec<u8>,
    private: bool,
}

/// Hooks `fork` from now on.
pub(in super::super) fn watch() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        // Now: a thread that forks may hold the lock of the environment (std::process::Command does).
        stop::is_allowed();
        // It fails for want of memory only; then forks go unseen.
        // SAFETY: the three functions are there for as long as this library is.
        let _ = unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
    });
}

// SAFETY: called by `fork`; nothing is asked of its caller.
unsafe extern "C" fn prepare() {
    let pool = lock(&POOL);
    let registered = lock(&REGISTERED);
    let known = lock_arenas();
    let mut forking = Box::new(Forking {
        pool,
        registered,
        arenas: known.iter().filter_map(Weak::upgrade).collect(),
        known,
        edges: Vec::new(),
    });
    forking.part();
    FORKING.store(Box::into_raw(forking), Release);
}

// SAFETY: called by `fork`; nothing is asked of its caller.
unsafe extern "C" fn parent() {
    if let Some(mut forking) = take() {
        forking.join();
    }
}

// SAFETY: called by `fork`; nothing is asked of its caller.
unsafe extern "C" fn child() {
    let Some(forking) = take() else {
        return;
    };
    let mut forking = *forking;
    each(&forking.arenas, |arena, m| {
        let _ = make_private(arena, m);
    });
    forked();
    stop::spare_nobody();
    // What the parent has adopted is its business: the child gives nothing back.
    std::mem::forget(std::mem::replace(&mut *forking.pool, Pool::new()));
    std::mem::forget(std::mem::take(&mut forking.registered.ranges));
    std::mem::forget(std::mem::take(&mut *forking.known));
    std::mem::forget(std::mem::take(&mut forking.arenas));
    std::mem::forget(std::mem::take(&mut forking.edges));
}

fn take() -> Option<Box<Forking>> {
    let state = FORKING.swap(std::ptr::null_mut(), AcqRel);
    // SAFETY: made by `prepare` from a box, and taken by one only.
    (!state.is_null()).then(|| unsafe { Box::from_raw(state) })
}

/// Shows all mappings of arenas that are shared.
fn each(arenas: &[Arc<Arena>], mut show: impl FnMut(&Arc<Arena>, &Mapping)) {
    // If the list cannot be read, nothing can be done about it here.
    let _ = maps::each(|m, _| {
        if m.shared
            && let Some(arena) = arenas.iter().find(|a| a.id() == m.file)
        {
            show(arena, m);
        }
        ControlFlow::Continue(())
    });
}

/// Makes a mapping of an arena private, with the bytes that are there.
fn make_private(arena: &Arena, m: &Mapping) -> Result<(), Errno> {
    let at = without_provenance_mut(m.start);
    let flags = MapFlags::PRIVATE | MapFlags::FIXED;
    // SAFETY: what is put there shows the same bytes of the same file, at once. It may be the stack that this runs
    // on.
    let put = unsafe { mmap(at, m.len(), m.rights.flags(), flags, arena.file(), m.offset) };
    if put.is_err() && arena.is_all_in(m) {
        // Pages of huge pages may be too few for it. Better none than the parent's.
        // SAFETY: nobody in a child can go on with what is there.
        let _ = unsafe { mmap_anonymous(at, m.len(), ProtFlags::empty(), flags) };
    }
    put.map(drop)
}

/// The byte at an address.
fn byte(at: usize) -> &'static AtomicU8 {
    // SAFETY: callers only ask for mapped bytes, and use them at once.
    unsafe { &*with_exposed_provenance::<AtomicU8>(at) }
}

impl Forking {
    /// Makes private what must not be shared with a child.
    fn part(&mut self) {
        let ranges = joined(self.registered.ranges.values().copied().collect());
        let mut adopted = Vec::new();
        each(&self.arenas, |arena, m| {
            if !arena.is_all_in(m) {
                adopted.push((Arc::clone(arena), *m));
            }
        });
        let mut left = Vec::new();
        for (arena, m) in adopted {
            for (part, some) in without_whole(&m, &ranges) {
                if !some {
                    left.push(part);
                } else if m.rights.write {
                    self.edges.push(Edge::new(&arena, &part));
                }
                // Memory that cannot be written is the same for both.
            }
        }
        // A thread that sleeps at a word of such a page must sleep anew: being stopped does it (see `swap`).
        let (arenas, edges) = (&self.arenas, &mut self.edges);
        quietly(edges.is_empty() && left.is_empty(), || {
            // Other threads may have mapped something else there meanwhile.
            each(arenas, |arena, m| {
                let first = left.partition_point(|part| part.end <= m.start);
                for part in left[first..].iter().take_while(|part| part.start < m.end) {
                    if let Some(now) = m.within(part.start, part.end)
                        && now.file == part.file
                        && now.offset.wrapping_sub(now.start as u64)
                            == part.offset.wrapping_sub(part.start as u64)
                    {
                        let _ = make_private(arena, &now);
                    }
                }
            });
            edges.iter_mut().for_each(Edge::part);
        });
    }

    /// Makes shared again what was private for the time of the fork.
    fn join(&mut self) {
        let edges = &self.edges;
        quietly(edges.is_empty(), || edges.iter().for_each(Edge::join));
    }
}

/// The parts of a mapping that are not registered as whole pages, and whether some of their bytes are registered:
/// such parts are given page by page.
fn without_whole(m: &Mapping, ranges: &[(usize, usize)]) -> Vec<(Mapping, bool)> {
    let page = rustix::param::page_size();
    let mut parts = Vec::new();
    let mut at = m.start;
    while at < m.end {
        let i = ranges.partition_point(|(_, to)| *to <= at);
        let (from, to) = match ranges.get(i) {
            Some(range) if range.0 < m.end => *range,
            _ => {
                parts.extend(m.within(at, m.end).map(|p| (p, false)));
                break;
            }
        };
        let first = from - from % page;
        let whole = to - to % page;
        if first > at {
            parts.extend(m.within(at, first).map(|p| (p, false)));
            at = first;
        } else if from <= at && whole > at {
            at = whole;
        } else {
            parts.extend(m.within(at, at + page).map(|p| (p, true)));
            at += page;
        }
    }
    parts
}

/// Runs `work` in a thread of its own, while all others are stopped if that can be had.
fn quietly(nothing: bool, mut work: impl FnMut() + Send) {
    if nothing {
        return;
    }
    std::thread::scope(|s| {
        let stopped = || {
            if stop::during(&mut work).is_err() {
                work();
            }
        };
        // There is no memory for a thread; forks fail then, too.
        let _ = std::thread::Builder::new()
            .name("vnic-fork".into())
            .stack_size(STACK)
            .spawn_scoped(s, stopped);
    });
}

impl Edge {
    fn new(arena: &Arc<Arena>, m: &Mapping) -> Edge {
        Edge {
            at: m.start,
            shared: arena.start() + m.offset as usize,
            rights: m.rights,
            arena: Arc::clone(arena),
            offset: m.offset,
            before: vec![0; m.len()],
            private: false,
        }
    }

    fn mapping(&self) -> Mapping {
        Mapping {
            start: self.at,
            end: self.at + self.before.len(),
            rights: self.rights,
            shared: true,
            offset: self.offset,
            file: self.arena.id(),
        }
    }

    /// Makes the page private, and keeps its content. Only the device writes there meanwhile.
    fn part(&mut self) {
        self.private = make_private(&self.arena, &self.mapping()).is_ok();
        if !self.private {
            return;
        }
        // Replaces a byte by itself: now the page is a copy.
        let first = byte(self.at);
        let value = first.load(Relaxed);
        let _ = first.compare_exchange(value, value, Relaxed, Relaxed);
        for (i, before) in self.before.iter_mut().enumerate() {
            *before = byte(self.at + i).load(Relaxed);
        }
    }

    /// Makes the page shared again. What the program has changed is carried over; all else is as the device has it.
    fn join(&self) {
        if !self.private {
            return;
        }
        for (i, before) in self.before.iter().enumerate() {
            let now = byte(self.at + i).load(Relaxed);
            if now != *before {
                byte(self.shared + i).store(now, Relaxed);
            }
        }
        let at = without_provenance_mut(self.at);
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        let len = self.before.len();
        // SAFETY: what was there has just been carried over into what is put there, and nobody writes meanwhile.
        let _ = unsafe {
            mmap(
                at,
                len,
                self.rights.flags(),
                flags,
                self.arena.file(),
                self.offset,
            )
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_registered_as_a_whole_is_left_out() {
        let page = rustix::param::page_size();
        let m = Mapping {
            start: 10 * page,
            end: 20 * page,
            rights: Rights {
                read: true,
                write: true,
                execute: false,
            },
            shared: true,
            offset: 0,
            file: Default::default(),
        };
        let parts = |ranges: &[(usize, usize)]| {
            let parts = without_whole(&m, ranges);
            let in_pages = |(m, some): &(Mapping, bool)| (m.start / page, m.end / page, *some);
            parts.iter().map(in_pages).collect::<Vec<_>>()
        };
        assert_eq!(parts(&[]), [(10, 20, false)]);
        assert_eq!(
            parts(&[(0, 10 * page), (20 * page, 30 * page)]),
            [(10, 20, false)]
        );
        assert_eq!(parts(&[(0, 30 * page)]), []);
        assert_eq!(
            parts(&[(12 * page + 1, 15 * page + 1)]),
            [(10, 12, false), (12, 13, true), (15, 16, true), (16, 20, false)]
        );
        assert_eq!(
            parts(&[
                (page, 10 * page + 5),
                (10 * page + 9, 11 * page + 1),
                (13 * page, 14 * page)
            ]),
            [(10, 11, true), (11, 12, true), (12, 13, false), (14, 20, false)]
        );
    }

    /// What the program and the device write while a page is private, is in it when it is shared again.
    #[test]
    fn pages_come_together_again() {
        let page = rustix::param::page_size();
        let arena = Arena::of_normal_pages(2 << 20).expect("memory");
        let rights = Rights {
            read: true,
            write: true,
            execute: false,
        };
        let flags = MapFlags::SHARED;
        // SAFETY: a new mapping.
        let at = unsafe {
            mmap(
                std::ptr::null_mut(),
                page,
                rights.flags(),
                flags,
                arena.file(),
                page as u64,
            )
        };
        let at = at.expect("mapped").expose_provenance();
        let m = Mapping {
            start: at,
            end: at + page,
            rights,
            shared: true,
            offset: page as u64,
            file: arena.id(),
        };
        let both = |i: usize| {
            (
                byte(at + i).load(Relaxed),
                byte(arena.start() + page + i).load(Relaxed),
            )
        };
        for i in 0..page {
            byte(at + i).store(1, Relaxed);
        }
        let mut edge = Edge::new(&arena, &m);
        edge.part();
        assert_eq!((both(0), both(page - 1)), ((1, 1), (1, 1)));
        byte(at + 10).store(2, Relaxed);
        byte(arena.start() + page + 20).store(3, Relaxed);
        assert_eq!((both(10), both(20)), ((2, 1), (1, 3)));
        edge.join();
        assert_eq!((both(10), both(20), both(30)), ((2, 2), (3, 3), (1, 1)));
        byte(at).store(4, Relaxed);
        assert_eq!(both(0), (4, 4));
        // SAFETY: mapped above.
        unsafe { rustix::mm::munmap(without_provenance_mut(at), page) }.expect("unmapped");
    }
}
