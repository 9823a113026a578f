//! SIGBUS: memory that a VMM lent is gone.
//!
//! Another owner of a mapped file may truncate it, or a page of it may be unavailable (no huge page is left, the memory is
//! broken). A thread of the daemon that touches such a page gets SIGBUS, which would end the daemon. Instead the handler maps
//! zeros over the whole mapping, so that the thread can go on, and closes the connection to the VMM that lent it: its
//! socket's thread then stops the adapter. A SIGBUS anywhere else does what it did before.
//!
//! The handler interrupts any thread anywhere: it takes no lock, allocates nothing, and only makes system calls.

#![expect(
    unsafe_code,
    reason = "a signal handler, which puts pages in the place of those that are gone"
)]

mod slot;

use std::ffi::{c_int, c_void};
use std::io;
use std::os::unix::net::UnixStream;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use rustix::net::{Shutdown, shutdown};
use slot::Slot;

/// A VMM that lends memory to the daemon.
#[derive(Debug)]
pub struct Lender {
    connection: UnixStream,
    failed: AtomicBool,
}

impl Lender {
    /// The VMM at the other end of a connection.
    pub fn new(connection: UnixStream) -> Lender {
        Lender {
            connection,
            failed: AtomicBool::new(false),
        }
    }

    /// Ends the connection.
    pub fn hang_up(&self) {
        let _ = shutdown(&self.connection, Shutdown::Both);
    }

    /// Whether memory that the VMM lent was gone.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }
}

/// Largest number of mappings at a time. (The table takes memory as it fills.)
const MAPPINGS: usize = 1 << 17;

static SLOTS: [Slot; MAPPINGS] = [const {
    Slot {
        version: AtomicUsize::new(0),
        start: AtomicUsize::new(0),
        size: AtomicUsize::new(0),
        lender: AtomicPtr::new(null_mut()),
    }
}; MAPPINGS];
/// Index from which on no slot was ever used.
static USED: AtomicUsize = AtomicUsize::new(0);
/// Slots below [`USED`] that are free again.
static FREE: Mutex<Vec<usize>> = Mutex::new(Vec::new());
/// The action of SIGBUS before.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// Entry of a mapping in the handler's table.
#[derive(Debug)]
pub struct Guard {
    slot: usize,
    /// Kept because the handler accesses it through the slot.
    _lender: Arc<Lender>,
}

impl Guard {
    /// Enters a mapping of whole pages that exists as long as this value.
    pub fn new(start: NonNull<u8>, size: usize, lender: Arc<Lender>) -> io::Result<Guard> {
        let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        if BEFORE.get().is_none() {
            install()?;
        }
        let used = USED.load(Ordering::Relaxed);
        let i = free.pop().unwrap_or(used);
        let slot = SLOTS
            .get(i)
            .ok_or_else(|| io::Error::other("too many mappings of guest memory"))?;
        slot.set(start.as_ptr().addr(), size, Arc::as_ptr(&lender).cast_mut());
        if i == used {
            USED.store(used + 1, Ordering::Release);
        }
        Ok(Guard {
            slot: i,
            _lender: lender,
        })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        SLOTS[self.slot].set(0, 0, null_mut());
        FREE.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(self.slot);
    }
}

/// Installs the handler; the caller does this only once.
fn install() -> io::Result<()> {
    // SAFETY: zeros are a `sigaction`.
    let (mut ours, mut before): (libc::sigaction, libc::sigaction) = unsafe { std::mem::zeroed() };
    ours.sa_sigaction = on_sigbus as *const () as usize;
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: a query, into the daemon's own memory.
    if unsafe { libc::sigaction(libc::SIGBUS, std::ptr::null(), &mut before) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let _ = BEFORE.set(before);
    // SAFETY: the handler does only what a handler may; see the module.
    if unsafe { libc::sigaction(libc::SIGBUS, &ours, null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

extern "C" fn on_sigbus(_: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel passes a handler with SA_SIGINFO a valid pointer, which for SIGBUS has an address.
    let (code, at) = unsafe { ((*info).si_code, (*info).si_addr().addr()) };
    let of_memory = code > 0;
    if of_memory && replace(at) {
        return;
    }
    if let Some(before) = BEFORE.get() {
        // SAFETY: the action of before is restored. The thread then touches the same memory again.
        unsafe { libc::sigaction(libc::SIGBUS, before, null_mut()) };
    }
    if !of_memory {
        // A process sent the signal: it is sent again.
        // SAFETY: to this very thread; it is delivered when the handler returns.
        unsafe { libc::raise(libc::SIGBUS) };
    }
}

/// Maps zeros over the mapping with this address, and closes the connection. False: there is no such mapping.
fn replace(at: usize) -> bool {
    let used = USED.load(Ordering::Acquire);
    let Some((start, size, lender)) = SLOTS.iter().take(used).find_map(|slot| slot.find(at)) else {
        return false;
    };
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
    // SAFETY: exactly the pages of one mapping of guest memory, which the interrupted thread holds, and into which
    // there are no references: its bytes may change at any time.
    let zeros = unsafe { mmap_anonymous(std::ptr::with_exposed_provenance_mut(start), size, rights, flags) };
    if zeros.is_err() {
        return false;
    }
    // SAFETY: the mapping's guard holds it, and the interrupted thread holds that.
    let lender = unsafe { &*lender };
    lender.failed.store(true, Ordering::Release);
    lender.hang_up();
    true
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};

    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use rustix::mm::mmap;
    use rustix::process::{Resource, Rlimit, setrlimit};

    use super::super::Mapping;
    use super::*;

    const CHILD: &str = "VNIC_SIGBUS_CHILD";

    fn lent(len: u64) -> (Mapping, File, Arc<Lender>, UnixStream) {
        let file = File::from(memfd_create("guest", MemfdFlags::CLOEXEC).expect("a memfd"));
        ftruncate(&file, len).expect("its length");
        let (ours, theirs) = UnixStream::pair().expect("a connection");
        let lender = Arc::new(Lender::new(ours));
        let copy = file.try_clone().expect("a descriptor");
        let mapping = Mapping::new(copy, 0, len, &lender, false).expect("a mapping");
        (mapping, file, lender, theirs)
    }

    fn read(at: *mut u8) -> u8 {
        // SAFETY: callers give addresses inside mappings.
        unsafe { at.read_volatile() }
    }

    /// `dd` of proc(5): not in a core dump.
    #[test]
    fn what_vmms_share_is_in_no_core_dump() {
        let (mapping, _file, _lender, _end) = lent(3 * 4096);
        let smaps = std::fs::read_to_string("/proc/self/smaps").expect("our memory");
        let ours = format!("{:x}-", mapping.first().addr());
        let mut rows = smaps.lines().skip_while(|row| !row.starts_with(&ours));
        let flags = rows.find(|row| row.starts_with("VmFlags:")).expect("its flags");
        assert!(flags.split_whitespace().any(|flag| flag == "dd"), "{flags}");
    }

    #[test]
    fn zeros_take_the_place_of_what_is_gone() {
        let (mapping, file, lender, mut theirs) = lent(3 * 4096);
        let (other, _file, bystander, _end) = lent(4096);
        for m in [&mapping, &other] {
            // SAFETY: inside the mapping.
            unsafe { m.first().write_volatile(7) };
        }
        ftruncate(&file, 4096).expect("shorter");
        assert_eq!(read(mapping.first()), 7);
        assert!(!lender.has_failed());
        assert_eq!(read(mapping.first().wrapping_add(4096)), 0);
        assert!(lender.has_failed());
        assert_eq!(read(mapping.first()), 0, "all of it");
        assert_eq!(theirs.read(&mut [0]).expect("an end"), 0);
        assert!(read(other.first()) == 7 && !bystander.has_failed());
        drop(mapping);
        // The slot is free again.
        let (mapping, file, lender, _end) = lent(4096);
        ftruncate(&file, 0).expect("shorter");
        assert_eq!(read(mapping.first()), 0);
        assert!(lender.has_failed());
    }

    #[test]
    fn elsewhere_it_ends_the_process() {
        if std::env::var_os(CHILD).is_some() {
            let none = Rlimit {
                current: Some(0),
                maximum: Some(0),
            };
            setrlimit(Resource::Core, none).expect("no core dump");
            let (_mapping, ..) = lent(4096);
            let file = memfd_create("other", MemfdFlags::CLOEXEC).expect("a memfd");
            // SAFETY: a new mapping at an address that the kernel chooses.
            let at = unsafe { mmap(null_mut(), 4096, ProtFlags::READ, MapFlags::SHARED, &file, 0) };
            read(at.expect("a mapping").cast());
            return;
        }
        let name = "mem::sigbus::tests::elsewhere_it_ends_the_process";
        let status = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", name])
            .env(CHILD, "1")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .expect("it runs");
        assert_eq!(status.signal(), Some(libc::SIGBUS));
    }
}
