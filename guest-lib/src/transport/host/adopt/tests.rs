#![expect(
    unsafe_code,
    reason = "maps, unmaps and writes memory behind the library's back"
)]
use std::ptr::without_provenance_mut;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::time::Duration;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mmap_anonymous, mprotect, munmap};
use vhost::VhostUserMemoryRegionInfo;

use super::super::memory::Daemon;
use super::write_protect::Catches;
use super::*;
use crate::driver::fork::tests::{FORKS, in_child};

/// Counts what it is told of.
#[derive(Clone, Default)]
struct Counts(Arc<(AtomicUsize, AtomicUsize)>);

impl Daemon for Counts {
    fn add(&self, _: &VhostUserMemoryRegionInfo) -> vhost::Result<()> {
        self.0.0.fetch_add(1, Relaxed);
        Ok(())
    }

    fn remove(&self, _: &VhostUserMemoryRegionInfo) -> vhost::Result<()> {
        self.0.1.fetch_add(1, Relaxed);
        Ok(())
    }
}

fn device() -> (Arc<Arenas>, Counts) {
    watch();
    let counts = Counts::default();
    (Arenas::new(counts.clone(), 8), counts)
}

// While others fork, the program does not see what the device writes next to its bytes.
macro_rules! nobody_forks {
    () => {
        let _forks = FORKS.read().unwrap_or_else(|e| e.into_inner());
    };
}

macro_rules! forks {
    () => {
        let _forks = FORKS.write().unwrap_or_else(|e| e.into_inner());
    };
}

mod fork;

fn page() -> usize {
    rustix::param::page_size()
}

/// Private memory, unmapped at the end.
struct Private {
    start: usize,
    len: usize,
}

impl Private {
    fn new(len: usize) -> Private {
        // SAFETY: new memory.
        let at = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        };
        let start = at.expect("memory").addr();
        Private { start, len }
    }

    fn set_rights(&self, rights: MprotectFlags) {
        // SAFETY: the memory is the test's own.
        unsafe { mprotect(without_provenance_mut(self.start), self.len, rights) }.expect("rights");
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        // SAFETY: the memory is the test's own.
        unsafe { munmap(without_provenance_mut(self.start), self.len) }.expect("unmapped");
    }
}

fn word(at: usize) -> &'static AtomicU64 {
    // SAFETY: the tests only ask for words of memory that is mapped, and use them while it is.
    unsafe { &*std::ptr::with_exposed_provenance::<AtomicU64>(at) }
}

fn byte(at: usize) -> u8 {
    // SAFETY: as above.
    unsafe { std::ptr::with_exposed_provenance::<u8>(at).read_volatile() }
}

fn set_byte(at: usize, value: u8) {
    // SAFETY: as above.
    unsafe { std::ptr::with_exposed_provenance_mut::<u8>(at).write_volatile(value) }
}

/// All bytes of extents, where they are as a whole.
fn seen(pinned: &Pinned) -> Vec<usize> {
    let places = |e: &Extent| e.gpa as usize..(e.gpa + e.len) as usize;
    pinned.extents.iter().flat_map(places).collect()
}

fn errno(result: Result<Pinned, Error>) -> Errno {
    let e = result.err().expect("refused");
    assert!(e.to_string().len() > 20, "{e}");
    Errno::from_raw_os_error(e.errno())
}

/// A part of the heap that begins and ends within pages is seen by both sides; its neighbours stay what they are.
#[test]
fn parts_of_the_heap_are_the_same_bytes_for_both() {
    nobody_forks!();
    let (arenas, counts) = device();
    let mut heap: Vec<u8> = (0..5 * page()).map(|i| (i % 251) as u8).collect();
    let start = heap.as_mut_ptr().expose_provenance();
    let (at, len) = (start + 77, 3 * page() + 5);
    let pinned = pin(&arenas, at, len, true).expect("adopted");
    let device = seen(&pinned);
    assert_eq!(device.len(), len);
    for i in 0..heap.len() {
        assert_eq!(byte(start + i), (i % 251) as u8, "{i}");
    }
    for i in [0, 1, page(), len - 1] {
        assert_eq!(byte(device[i]), ((i + 77) % 251) as u8);
        set_byte(at + i, 0xaa);
        assert_eq!(byte(device[i]), 0xaa);
        set_byte(device[i], 0x55);
        assert_eq!(byte(at + i), 0x55);
    }
    assert_eq!(counts.0.0.load(Relaxed), 1);
    // The same again is only looked up.
    let again = pin(&arenas, at, len, true).expect("known");
    assert_eq!(again.extents, pinned.extents);
    let part = pin(&arenas, at + 9, 1, true).expect("known");
    assert_eq!(part.extents[0].gpa, pinned.extents[0].gpa + 9);
}

#[test]
fn a_mapping_becomes_one_extent() {
    nobody_forks!();
    let (arenas, _) = device();
    let memory = Private::new(3 * STEP + page());
    word(memory.start + memory.len - 8).store(7, Relaxed);
    let pinned = pin(&arenas, memory.start, memory.len, true).expect("adopted");
    assert_eq!(pinned.extents.len(), 1);
    assert_eq!(
        word(pinned.extents[0].gpa as usize + memory.len - 8).load(Relaxed),
        7
    );
    assert_eq!(
        look(memory.start, memory.start + memory.len, true)
            .expect("mapped")
            .len(),
        1
    );
}

#[test]
fn many_small_ones_share_a_slot() {
    nobody_forks!();
    let (arenas, counts) = device();
    let (other, others) = device();
    let memory = Private::new(300 * page());
    let pins: Vec<Pinned> = (0..100)
        .map(|i| pin(&arenas, memory.start + 3 * i * page() + 100, 200, true).expect("adopted"))
        .collect();
    assert!(counts.0.0.load(Relaxed) <= 2, "{}", counts.0.0.load(Relaxed));
    for (i, pin) in pins.iter().enumerate() {
        let mine = memory.start + 3 * i * page() + 104;
        word(mine).store(i as u64, Relaxed);
        assert_eq!(word(pin.extents[0].gpa as usize + 4).load(Relaxed), i as u64);
    }
    // Another device sees the same pages.
    let theirs = pin(&other, memory.start + 100, 200, true).expect("known");
    assert_eq!(theirs.extents, pins[0].extents);
    assert_eq!(others.0.0.load(Relaxed), 1);
    // A range across adopted and private pages.
    let all = pin(&arenas, memory.start, memory.len, true).expect("adopted");
    assert_eq!(seen(&all).len(), memory.len);
    assert_eq!(word(seen(&all)[3 * page() + 104]).load(Relaxed), 1);
}

#[test]
fn what_is_mapped_anew_is_adopted_anew() {
    nobody_forks!();
    let (arenas, _) = device();
    let memory = Private::new(4 * page());
    word(memory.start).store(1, Relaxed);
    let before = pin(&arenas, memory.start, memory.len, true).expect("adopted");
    // SAFETY: the memory is the test's own.
    unsafe {
        mmap_anonymous(
            without_provenance_mut(memory.start),
            memory.len,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE | MapFlags::FIXED,
        )
    }
    .expect("memory");
    assert_eq!(word(memory.start).load(Relaxed), 0);
    word(memory.start).store(2, Relaxed);
    let after = pin(&arenas, memory.start, memory.len, true).expect("adopted");
    assert_ne!(before.extents, after.extents);
    let at = |p: &Pinned| word(p.extents[0].gpa as usize).load(Relaxed);
    assert_eq!((at(&before), at(&after)), (1, 2));
}

/// Pages come back when nobody maps them and nothing is registered there, and not before.
#[test]
fn pages_without_owner_are_used_again() {
    nobody_forks!();
    let mut pool = Pool::new();
    let taken = |pool: &Pool| -> usize { pool.arenas[0].parts.values().map(|p| p.len()).sum() };
    let memory = Private::new(8 * page());
    let all = look(memory.start, memory.start + memory.len, true).expect("mapped")[0].all;
    let whole = all
        .within(memory.start, memory.start + memory.len)
        .expect("within");
    pool.adopt(&whole, &all, Mappings::Stay).expect("adopted");
    pool.collect();
    assert_eq!(taken(&pool), 8 * page());
    // The middle goes. Something else is put there: what another test maps in a hole would be unmapped at the end.
    // SAFETY: the memory is the test's own.
    unsafe {
        let (middle, flags) = (
            without_provenance_mut(memory.start + 2 * page()),
            MapFlags::PRIVATE | MapFlags::FIXED,
        );
        mmap_anonymous(middle, 3 * page(), ProtFlags::empty(), flags)
    }
    .expect("mapped");
    let arena = Arc::clone(&pool.arenas[0].arena);
    let at = *pool.arenas[0].parts.keys().next().expect("a part");
    let registered = pool.parts_in(&arena, at, 1);
    assert_eq!(registered.len(), 1);
    pool.collect();
    assert_eq!(taken(&pool), 8 * page());
    drop(registered);
    pool.collect();
    assert_eq!(taken(&pool), 5 * page());
    assert_eq!(pool.arenas[0].parts.len(), 2);
    // And is taken first.
    let again = arena.take_part(3 * page()).expect("room");
    assert_eq!(again.at(), at + 2 * page());
    drop(memory);
    pool.collect();
    assert_eq!(taken(&pool), 0);
}

#[test]
fn pages_that_were_moved_stay() {
    nobody_forks!();
    let (arenas, _) = device();
    let memory = Private::new(4 * page());
    word(memory.start).store(5, Relaxed);
    let before = pin(&arenas, memory.start, memory.len, true).expect("adopted");
    let elsewhere = Private::new(4 * page());
    // SAFETY: both are the test's own.
    unsafe {
        rustix::mm::mremap_fixed(
            without_provenance_mut(memory.start),
            memory.len,
            memory.len,
            rustix::mm::MremapFlags::MAYMOVE,
            without_provenance_mut(elsewhere.start),
        )
    }
    .expect("moved");
    // Its addresses are anybody's now: to unmap them would take what another test has mapped there.
    std::mem::forget(memory);
    let extents = before.extents.clone();
    drop(before);
    lock(&POOL).collect();
    assert_eq!(word(elsewhere.start).load(Relaxed), 5);
    let after = pin(&arenas, elsewhere.start, elsewhere.len, true).expect("known");
    assert_eq!(after.extents, extents);
}

#[test]
fn rights_are_kept_and_asked_for() {
    nobody_forks!();
    let (arenas, _) = device();
    let memory = Private::new(2 * page());
    word(memory.start).store(9, Relaxed);
    memory.set_rights(MprotectFlags::READ);
    assert_eq!(errno(pin(&arenas, memory.start, 8, true)), Errno::FAULT);
    let read_only = pin(&arenas, memory.start, memory.len, false).expect("adopted");
    assert_eq!(word(read_only.extents[0].gpa as usize).load(Relaxed), 9);
    assert_eq!(errno(pin(&arenas, memory.start, 8, true)), Errno::FAULT);
    memory.set_rights(MprotectFlags::READ | MprotectFlags::WRITE);
    let written = pin(&arenas, memory.start, 8, true).expect("known");
    assert_eq!(written.extents[0].gpa, read_only.extents[0].gpa);
    memory.set_rights(MprotectFlags::empty());
    assert_eq!(errno(pin(&arenas, memory.start, 8, false)), Errno::FAULT);
    // A constant of the program, in a file of which everybody has the same pages.
    static CONSTANT: [u8; 64] = [3; 64];
    let constant = pin(&arenas, CONSTANT.as_ptr().addr(), 64, false).expect("adopted");
    assert_eq!(byte(seen(&constant)[63]), 3);
    assert_eq!(CONSTANT, [3; 64]);
    assert_eq!(errno(pin(&arenas, 1 << 16, 1, false)), Errno::FAULT);
    assert_eq!(errno(pin(&arenas, usize::MAX - 5, 10, false)), Errno::FAULT);
}

#[test]
fn data_of_the_program_is_adopted() {
    nobody_forks!();
    // In the file's mapping, and behind it.
    static DATA: [AtomicU64; 1000] = [const { AtomicU64::new(11) }; 1000];
    static ZERO: [AtomicU64; 10_000] = [const { AtomicU64::new(0) }; 10_000];
    let (arenas, _) = device();
    let data = pin(&arenas, DATA[3].as_ptr().expose_provenance(), 8, true).expect("adopted");
    let zero = pin(&arenas, ZERO[5000].as_ptr().expose_provenance(), 8, true).expect("adopted");
    assert_eq!(word(data.extents[0].gpa as usize).load(Relaxed), 11);
    word(data.extents[0].gpa as usize).store(12, Relaxed);
    word(zero.extents[0].gpa as usize).store(13, Relaxed);
    assert_eq!((DATA[3].load(Relaxed), ZERO[5000].load(Relaxed)), (12, 13));
    assert_eq!((DATA[4].load(Relaxed), ZERO[5001].load(Relaxed)), (11, 0));
}

fn own_stack(how: How) {
    let (arenas, _) = device();
    let mut local = [17u64; 2000];
    let at = local.as_mut_ptr().expose_provenance();
    HOW.set(Some(how));
    let pinned = pin(&arenas, at, size_of_val(&local), true);
    HOW.set(None);
    if pinned.as_ref().is_err_and(|e| e.errno() == libc::EBUSY) {
        // The number of a thread happens to be on the stack: only stopping will do.
        assert_ne!(how, How::Stop);
        return;
    }
    let pinned = pinned.expect("adopted");
    assert!(local.iter().all(|v| *v == 17));
    word(seen(&pinned)[8]).store(18, Relaxed);
    assert_eq!(word(at + 8).load(Relaxed), 18);
    local[5] = 19;
    std::hint::black_box(&mut local);
    assert_eq!(word(seen(&pinned)[40]).load(Relaxed), 19);
}

/// Whether a way can be gone here. All can in CI, but for those that need a privilege.
fn can(how: How) -> bool {
    let memory = Private::new(page());
    let file = memfd_create("vnic-test", MemfdFlags::CLOEXEC).expect("a file");
    ftruncate(&file, page() as u64).expect("a size");
    let swap = Swap {
        start: memory.start,
        len: page(),
        rights: maps::Rights {
            read: true,
            write: true,
            execute: false,
        },
        anonymous: true,
        expected: None,
        file: std::os::fd::AsFd::as_fd(&file),
        offset: 0,
    };
    // One at a time, as `pin` does it.
    let _one = lock(&POOL);
    match swap.carry_out(Some(how)) {
        Ok(_) => true,
        Err(e) => {
            eprintln!("not here: {how:?}: {e}");
            assert_ne!(how, How::Stop, "{e}");
            false
        }
    }
}

const WAYS: [How; 3] = [
    How::Protect(Catches::All),
    How::Protect(Catches::Program),
    How::Stop,
];

#[test]
fn the_stack_of_the_caller_is_adopted() {
    nobody_forks!();
    for how in WAYS {
        if can(how) {
            std::thread::spawn(move || own_stack(how))
                .join()
                .expect("it ends");
        }
    }
}

/// Neither half is ever the number of a thread, also with some more added: see [`Swap::holds_threads`].
const NO_THREAD: u64 = 0x8000_0000_8000_0000;

/// Threads count in the pages that are replaced under them. Nothing that they count is lost.
#[test]
fn writes_meanwhile_are_not_lost() {
    nobody_forks!();
    for how in WAYS {
        if !can(how) {
            continue;
        }
        for round in 0..20 {
            let (arenas, _) = device();
            let memory = Private::new(16 * page());
            let start = memory.start;
            for at in (start..start + memory.len).step_by(8) {
                word(at).store(NO_THREAD, Relaxed);
            }
            let (stop, began) = (AtomicBool::new(false), AtomicUsize::new(0));
            std::thread::scope(|s| {
                let writers: Vec<_> = (0..3)
                    .map(|me| {
                        let (stop, began) = (&stop, &began);
                        s.spawn(move || {
                            let mut count = NO_THREAD;
                            while !stop.load(Acquire) {
                                for page_of in 0..16 {
                                    let mine = word(start + page_of * page() + 8 * me);
                                    assert_eq!(mine.load(Relaxed), count, "lost");
                                    mine.store(count + 1, Relaxed);
                                    // And a place that all write.
                                    word(start + page_of * page() + 1024).fetch_add(1, Relaxed);
                                }
                                count += 1;
                                began.fetch_or(1 << me, Release);
                            }
                            count
                        })
                    })
                    .collect();
                while began.load(Acquire) != 7 {
                    std::thread::sleep(Duration::from_micros(100));
                }
                HOW.set(Some(how));
                let step = [1, 2, 4, 16][round % 4];
                let adopted: Result<Vec<Pinned>, Error> = (0..16)
                    .step_by(step)
                    .map(|at| pin(&arenas, start + at * page(), step * page(), true))
                    .collect();
                HOW.set(None);
                stop.store(true, Release);
                adopted.expect("adopted");
                let counts: Vec<u64> = writers.into_iter().map(|w| w.join().expect("counted")).collect();
                let sum = NO_THREAD + counts.iter().map(|c| c - NO_THREAD).sum::<u64>();
                for page_of in 0..16 {
                    for (me, count) in counts.iter().enumerate() {
                        assert_eq!(
                            word(start + page_of * page() + 8 * me).load(Relaxed),
                            *count,
                            "{how:?}"
                        );
                    }
                    assert_eq!(
                        word(start + page_of * page() + 1024).load(Relaxed),
                        sum,
                        "{how:?}"
                    );
                }
            });
        }
    }
}

/// A thread that blocks all signals is stopped none the less, and one that waits in the kernel goes on.
#[test]
fn threads_that_block_signals_are_stopped() {
    nobody_forks!();
    let (mut read, mut write) = std::io::pipe().expect("a pipe");
    let waiting = std::thread::spawn(move || {
        // SAFETY: a set of all signals, for this thread alone.
        unsafe {
            let mut all = std::mem::zeroed();
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_BLOCK, &all, std::ptr::null_mut());
        }
        let mut one = [0];
        std::io::Read::read(&mut read, &mut one).map(|n| (n, one[0]))
    });
    for _ in 0..5 {
        assert!(can(How::Stop));
    }
    std::io::Write::write_all(&mut write, &[9]).expect("written");
    assert_eq!(waiting.join().expect("it ends").expect("read"), (1, 9));
}

/// A thread whose end somebody waits for already registers the page in which the C library keeps its number.
#[test]
fn who_waits_for_a_thread_is_woken() {
    nobody_forks!();
    let (arenas, _) = device();
    let (go, wait) = std::sync::mpsc::channel::<u64>();
    let registers = std::thread::spawn(move || {
        let waiter = wait.recv().expect("a thread");
        // Until it sleeps: its last system call is that of waiting.
        while !std::fs::read_to_string(format!("/proc/self/task/{waiter}/syscall"))
            .is_ok_and(|s| s.starts_with(&format!("{} ", libc::SYS_futex)))
        {
            std::thread::sleep(Duration::from_micros(100));
        }
        // SAFETY: it always succeeds.
        let at = unsafe { libc::pthread_self() } as usize;
        pin(&arenas, at, 1, true).expect("adopted")
    });
    let (done, end) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        // SAFETY: it always succeeds.
        let me = unsafe { libc::syscall(libc::SYS_gettid) };
        go.send(me as u64).expect("it listens");
        let _ = registers.join().map(drop);
        let _ = done.send(());
    });
    end.recv_timeout(Duration::from_secs(60))
        .expect("the end of the thread was seen");
}

#[test]
fn files_that_are_shared_are_shared_with_the_daemon() {
    nobody_forks!();
    let (arenas, counts) = device();
    let file = memfd_create("vnic-test", MemfdFlags::CLOEXEC).expect("a file");
    ftruncate(&file, 4 * page() as u64).expect("a size");
    let map = || {
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: new mappings.
        let at = unsafe {
            mmap(
                std::ptr::null_mut(),
                8 * page(),
                rights,
                MapFlags::SHARED,
                &file,
                0,
            )
        };
        at.expect("mapped").expose_provenance()
    };
    let (mine, theirs) = (map(), map());
    word(theirs + page()).store(1, Relaxed);
    let pinned = pin(&arenas, mine + page() + 3, 2 * page(), true).expect("shared");
    assert_eq!(seen(&pinned).len(), 2 * page());
    let device = pinned.extents[0].gpa as usize - 3;
    assert_eq!(word(device).load(Relaxed), 1);
    word(device).store(2, Relaxed);
    assert_eq!(word(theirs).load(Relaxed), 0);
    assert_eq!(word(theirs + page()).load(Relaxed), 2);
    let again = pin(&arenas, theirs, page(), true).expect("shared");
    let told = || (counts.0.0.load(Relaxed), counts.0.1.load(Relaxed));
    assert_eq!(told(), (1, 0));
    // Behind the file's end is nothing.
    assert_eq!(errno(pin(&arenas, mine, 8 * page(), true)), Errno::FAULT);
    drop((pinned, again));
    // Another file: what nobody has registered any more is taken back.
    let other = memfd_create("vnic-test", MemfdFlags::CLOEXEC).expect("a file");
    ftruncate(&other, page() as u64).expect("a size");
    // SAFETY: a new mapping.
    let at = unsafe {
        mmap(
            std::ptr::null_mut(),
            page(),
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED,
            &other,
            0,
        )
    };
    let other = pin(&arenas, at.expect("mapped").addr(), 10, true).expect("shared");
    assert_eq!(told(), (2, 1));
    drop(other);
    // SAFETY: mapped above.
    unsafe {
        munmap(without_provenance_mut(mine), 8 * page()).expect("unmapped");
        munmap(without_provenance_mut(theirs), 8 * page()).expect("unmapped");
    }
}

/// Memory that is shared with children and has no file: either it can be opened, or the error says what to do.
#[test]
fn shared_memory_without_a_file() {
    nobody_forks!();
    let (arenas, _) = device();
    // SAFETY: a new mapping.
    let at = unsafe {
        mmap_anonymous(
            std::ptr::null_mut(),
            page(),
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED,
        )
    };
    let at = at.expect("mapped").expose_provenance();
    match pin(&arenas, at, 8, true) {
        Ok(pinned) => {
            word(at).store(4, Relaxed);
            assert_eq!(word(pinned.extents[0].gpa as usize).load(Relaxed), 4);
        }
        Err(e) => {
            assert_eq!(e.errno(), libc::EOPNOTSUPP);
            assert!(e.to_string().contains("CAP_SYS_ADMIN"), "{e}");
        }
    }
}

/// Memory that this library gave out is known as it is.
#[test]
fn our_own_memory_is_not_copied() {
    nobody_forks!();
    let (arenas, counts) = device();
    let pages = arenas.allocate(2 * page()).expect("memory");
    let at = pages.start.as_ptr().addr();
    let pinned = pin(&arenas, at + 1, 100, true).expect("known");
    assert_eq!(pinned.extents[0].gpa, at as u64 + 1);
    assert_eq!(counts.0.0.load(Relaxed), 1);
}

#[test]
fn ranges_are_joined_and_parts_are_split() {
    nobody_forks!();
    assert_eq!(joined(vec![(5, 7), (0, 2), (2, 3), (6, 9)]), [(0, 3), (5, 9)]);
    let arena = Arena::of_normal_pages(HUGE).expect("memory");
    let kept = |used: &[(usize, usize)]| {
        let part = arena.take_part(100).expect("room");
        assert_eq!(part.at(), 0);
        split(part, used)
            .iter()
            .map(|p| (p.at(), p.len()))
            .collect::<Vec<_>>()
    };
    assert_eq!(kept(&[]), []);
    assert_eq!(kept(&[(0, 100)]), [(0, 100)]);
    assert_eq!(kept(&[(0, 1), (50, 60), (90, 200)]), [(0, 1), (50, 10), (90, 10)]);
    assert_eq!(kept(&[(200, 300)]), []);
}

/// A thread that cannot be stopped is waited for, but not for ever, and what comes of it later does no harm.
#[test]
fn a_thread_that_cannot_be_stopped_is_given_up() {
    forks!();
    let code = in_child(|| {
        let (blocked, is_blocked) = std::sync::mpsc::channel();
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let (all, mut before) = (!0u64, 0u64);
            let set = |how: i32, mask: *const u64, before: *mut u64| {
                // The C library's function leaves our signal out.
                // SAFETY: masks of 8 bytes.
                unsafe { libc::syscall(libc::SYS_rt_sigprocmask, how, mask, before, 8usize) }
            };
            set(libc::SIG_SETMASK, &all, &mut before);
            let _ = blocked.send(());
            let _ = wait.recv();
            set(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        });
        if is_blocked.recv().is_err() {
            return 1;
        }
        let (arenas, _) = device();
        let memory = Private::new(page());
        word(memory.start).store(5, Relaxed);
        HOW.set(Some(How::Stop));
        if !pin(&arenas, memory.start, 8, true).is_err_and(|e| e.errno() == libc::ETIMEDOUT) {
            return 2;
        }
        if look(memory.start, memory.start + page(), true).is_ok_and(|p| p[0].mapping.shared) {
            return 3;
        }
        let _ = go.send(());
        if thread.join().is_err() {
            return 4;
        }
        let pinned = pin(&arenas, memory.start, 8, true);
        i32::from(!pinned.is_ok_and(|p| word(p.extents[0].gpa as usize).load(Relaxed) == 5))
    });
    assert_eq!(code, 0);
}

/// Where other threads may map something else in place of pages, only what was seen there is replaced.
#[test]
fn what_is_mapped_anew_is_left_alone() {
    let memory = Private::new(4 * page());
    let file = memfd_create("vnic-test", MemfdFlags::CLOEXEC).expect("a file");
    ftruncate(&file, 4 * page() as u64).expect("a size");
    let seen = look(memory.start, memory.start + memory.len, true)
        .expect("mapped")
        .remove(0)
        .mapping;
    let swap = |expected: &Mapping| {
        let swap = Swap {
            start: memory.start,
            len: memory.len,
            rights: seen.rights,
            anonymous: true,
            expected: Some(expected),
            file: std::os::fd::AsFd::as_fd(&file),
            offset: 0,
        };
        let _one = lock(&POOL);
        swap.carry_out(None)
    };
    for other in [
        Mapping { shared: true, ..seen },
        Mapping {
            end: seen.end - page(),
            ..seen
        },
        Mapping {
            rights: maps::Rights {
                write: false,
                ..seen.rights
            },
            ..seen
        },
    ] {
        assert_eq!(swap(&other).expect_err("another one").errno(), libc::EAGAIN);
    }
    assert_eq!(swap(&seen).expect("the same"), How::Stop);
    // Now it is the file's.
    assert_eq!(swap(&seen).expect_err("another one").errno(), libc::EAGAIN);
}
