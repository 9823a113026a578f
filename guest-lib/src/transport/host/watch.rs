//! Memory that the device uses on demand, and that the program may unmap or move at any time: who hears of it first.
//!
//! userfaultfd(2) tells of both before the program's system call returns, and the program waits until it was told. So
//! one thread, which neither allocates nor locks anything (or it might wait for whom it keeps waiting), counts the
//! change in a word that the device looks at before each use of such memory (`SPEC.md`, section 11.6, `hold`), and
//! lets the program go on. Another one takes the pages from the devices, and counts back.
//!
//! Nothing is protected here: userfaultfd tells of mappings that it knows in some mode, and the one for write
//! protection costs nothing while nothing is protected. Children that are forked inherit none of it.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, read, write};
use rustix::pipe::{PipeFlags, pipe_with};

use vnic_device::zerocopy::IntoBytes as _;

use super::adopt::{self, Mappings, stop, write_protect};
use super::generation::generation;
use super::memory::{Arena, Arenas, HUGE};
use crate::Error;
use crate::driver::{NoFork, block_signals};
use crate::shared::Memory;
use crate::sync::lock;
use crate::transport::{Listener, Pinned};

/// How often memory is looked at that changes again and again while it is lent.
const ROUNDS: u32 = 16;

/// The watch of this process, and the process that made it.
static WATCH: Mutex<Option<(u32, Arc<Watch>)>> = Mutex::new(None);

/// What is unmapped or moved of memory that devices use on demand.
pub(super) struct Watch {
    faults: OwnedFd,
    arena: Arc<Arena>,
    /// Changes that the devices were not told yet.
    word: Memory,
    /// Changes that found the pipe full.
    missed: AtomicU64,
    listeners: Mutex<Vec<Weak<dyn Listener>>>,
}

/// A range that is not what it was.
type Range = [usize; 2];

impl Watch {
    /// The watch of this process.
    pub fn get() -> Result<Arc<Watch>, Error> {
        let mut watch = lock(&WATCH);
        match &*watch {
            Some((of, watch)) if *of == generation() => Ok(Arc::clone(watch)),
            other => {
                if let Some((_, parents)) = other {
                    // What the parent has open stays as it is.
                    std::mem::forget(Arc::clone(parents));
                }
                let new = Watch::start()?;
                *watch = Some((generation(), Arc::clone(&new)));
                Ok(new)
            }
        }
    }

    fn start() -> Result<Arc<Watch>, Error> {
        if !stop::is_allowed() {
            return Err(Error::os(format!(
                "pages cannot be given on demand: threads must be stopped for a moment, which {}=0 forbids",
                stop::VARIABLE
            ))(Errno::OPNOTSUPP));
        }
        let no_way = |e: Errno| {
            Error::os(format!(
                "pages cannot be given on demand: this kernel does not tell when they are unmapped (userfaultfd with events, \
                 of shared memory, Linux 5.19), or a filter of system calls hides it (seccomp); allow userfaultfd, or {}",
                write_protect::CURE
            ))(match e {
                Errno::NOMEM | Errno::MFILE => e,
                _ => Errno::OPNOTSUPP,
            })
        };
        let faults = write_protect::events().map_err(no_way)?;
        let arena = Arena::of_normal_pages(HUGE)?;
        let pages = arena.take(rustix::param::page_size());
        let word = pages.ok_or_else(|| Error::Setup("a new arena has no room".into()))?;
        let (from, to) =
            pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).map_err(Error::os("making a pipe"))?;
        let watch = Arc::new(Watch {
            faults,
            arena,
            word: Memory::of_pages(word),
            missed: AtomicU64::new(0),
            listeners: Mutex::default(),
        });
        for (name, work) in [("vnic-watch", 0), ("vnic-unmap", 1)] {
            let watch = Arc::clone(&watch);
            let end = if work == 0 {
                to.try_clone()
            } else {
                from.try_clone()
            };
            let end = end.map_err(Error::os("copying a descriptor"))?;
            let thread = std::thread::Builder::new().name(name.into());
            let (begins, begun) = std::sync::mpsc::channel();
            let run = move || {
                block_signals();
                if work == 0 {
                    stop::spare_this_thread();
                }
                drop(begins);
                match work {
                    0 => watch.look(&end),
                    _ => watch.tell(&end),
                }
            };
            thread.spawn(run).map_err(Error::os("starting a thread"))?;
            // Nothing is watched before the threads are ready: this ends when they have dropped their end.
            let _: Result<(), _> = begun.recv();
        }
        Ok(watch)
    }

    fn changes(&self) -> &AtomicU64 {
        self.word.u64(0)
    }

    /// Where a device sees the word that says whether pages are held back.
    pub fn hold(&self, arenas: &Arenas) -> Result<u64, Error> {
        arenas.know(&self.arena)?;
        Ok(self.word.addr())
    }

    /// Has somebody hear of changes while there are references to it.
    pub fn hear(&self, listener: Weak<dyn Listener>) {
        let mut listeners = lock(&self.listeners);
        listeners.retain(|l| l.strong_count() > 0);
        listeners.push(listener);
    }

    /// Makes memory known to the daemon, as [`adopt::pin`] does, which the program may unmap or move: listeners hear of
    /// that.
    pub fn lend(&self, arenas: &Arenas, start: usize, len: usize, write: bool) -> Result<Pinned, Error> {
        let page = rustix::param::page_size();
        let (first, last) = (start - start % page, (start + len).next_multiple_of(page));
        let mut before = adopt::pin_where(arenas, start, len, write, Mappings::Change)?;
        for _ in 0..ROUNDS {
            write_protect::watch(&self.faults, first, last - first).map_err(|e| {
                Error::os(format!(
                    "nobody can tell when {len} bytes at {start:#x} are unmapped: they are no memory of the program's alone or \
                     of tmpfs, or another userfaultfd has them"
                ))(e)
            })?;
            // What changed before it was watched shows now, what changes from now on is told.
            let now = adopt::pin_where(arenas, start, len, write, Mappings::Change)?;
            if now.extents == before.extents {
                return Ok(now);
            }
            before = now;
        }
        Err(Error::os(format!("memory at {start:#x} changes again and again"))(Errno::AGAIN))
    }

    /// Counts changes and passes them on. Neither allocates nor locks.
    fn look(&self, to: &OwnedFd) {
        loop {
            let mut fds = [PollFd::new(&self.faults, PollFlags::IN)];
            let polled = poll(&mut fds, None);
            match fds[0].revents() {
                _ if polled == Err(Errno::INTR) => continue,
                events if events.contains(PollFlags::IN) => {}
                // The program has closed all that it found open: nothing is watched any more.
                _ => return,
            }
            self.changes().fetch_add(1, Ordering::SeqCst);
            let Some(change) = write_protect::next_change(&self.faults) else {
                self.changes().fetch_sub(1, Ordering::SeqCst);
                continue;
            };
            let range: Range = [change.start, change.end];
            if write(to, range.as_bytes()).is_err() {
                self.missed.fetch_add(1, Ordering::SeqCst);
            }
        }
    }

    /// Tells listeners, and counts back.
    fn tell(&self, from: &OwnedFd) {
        loop {
            let mut range: Range = [0; 2];
            let mut fds = [PollFd::new(from, PollFlags::IN)];
            let polled = poll(&mut fds, None);
            if polled != Err(Errno::INTR) && !fds[0].revents().contains(PollFlags::IN) {
                return;
            }
            // A forked child would wait for ever for what this thread has locked.
            let _no_fork = NoFork::hold();
            let mut done = u64::from(read(from, range.as_mut_bytes()).is_ok());
            let missed = self.missed.swap(0, Ordering::SeqCst);
            if missed > 0 {
                (range, done) = ([0, usize::MAX], done + missed);
            }
            if done == 0 {
                continue;
            }
            let listeners: Vec<_> = lock(&self.listeners).iter().filter_map(Weak::upgrade).collect();
            for listener in listeners {
                listener.gone(range[0], range[1]);
            }
            self.changes().fetch_sub(done, Ordering::SeqCst);
        }
    }
}
