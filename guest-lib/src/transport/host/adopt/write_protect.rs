//! Memory that nobody can write for a moment, and memory that is unmapped or moved: userfaultfd(2), write-protect mode and events
//! (ioctl_userfaultfd(2)).

#![expect(
    unsafe_code,
    reason = "tells the kernel of memory by its address, to protect it"
)]

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, read};
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};
use rustix::mm::{Advice, UserfaultfdFlags, madvise, userfaultfd};
use vnic_device::zerocopy::IntoBytes as _;

/// Whose writes are caught.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Catches {
    /// Writes of the program, and of the kernel on its behalf.
    All,
    /// Writes of the program alone. For the kernel the memory cannot be written at all (EFAULT).
    Program,
}

/// Version of the interface.
const API: u64 = 0xaa;
/// Feature: writes to protected pages are reported.
const FEATURE_WRITE_PROTECT: u64 = 1;
/// Feature: pages that were never touched can be protected.
const FEATURE_UNPOPULATED: u64 = 1 << 13;
const REGISTER_WRITE_PROTECT: u64 = 2;
const PROTECT: u64 = 1;
const USER_MODE_ONLY: u32 = 1;
/// Features: moved and unmapped memory is reported; shared memory may be in write-protect mode.
const FEATURE_REMAP: u64 = 1 << 2;
const FEATURE_UNMAP: u64 = 1 << 6;
const FEATURE_SHARED: u64 = 1 << 12;
/// Kinds of events.
const EVENT_REMAP: u8 = 0x14;
const EVENT_UNMAP: u8 = 0x16;

#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct Register {
    start: u64,
    len: u64,
    mode: u64,
    ioctls: u64,
}

#[repr(C)]
struct Protection {
    start: u64,
    len: u64,
    mode: u64,
}

const IOC_API: Opcode = opcode::read_write::<Api>(0xaa, 0x3f);
const IOC_REGISTER: Opcode = opcode::read_write::<Register>(0xaa, 0x00);
const IOC_PROTECT: Opcode = opcode::read_write::<Protection>(0xaa, 0x06);
const IOC_NEW: Opcode = opcode::none(0xaa, 0x00);

/// Memory that is not what it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Change {
    /// First byte, and the one behind the last.
    pub start: usize,
    pub end: usize,
}

/// A descriptor for events of memory that is unmapped or moved, which can be polled.
pub(in super::super) fn events() -> Result<OwnedFd, Errno> {
    let events = descriptor(Catches::Program, UserfaultfdFlags::NONBLOCK)?;
    begin(
        &events,
        FEATURE_WRITE_PROTECT | FEATURE_SHARED | FEATURE_REMAP | FEATURE_UNMAP,
    )?;
    Ok(events)
}

/// Has `events` hear of a range of whole pages, of which nothing is protected.
pub(in super::super) fn watch(events: &OwnedFd, start: usize, len: usize) -> Result<(), Errno> {
    register(events, start as u64, len as u64)
}

/// The oldest event: whoever caused it goes on from here. Neither allocates nor locks.
pub(in super::super) fn next_change(events: &OwnedFd) -> Option<Change> {
    // `struct uffd_msg`: 8 bytes of which the first is the kind; of memory that was unmapped the first byte and the one behind the
    // last; of moved memory where it was, where it is, and its length.
    let mut event = [0u64; 4];
    let got = read(events, event.as_mut_bytes()).ok()?;
    let [kind, start, to, len] = event;
    let end = match kind.to_ne_bytes()[0] {
        EVENT_UNMAP => to,
        EVENT_REMAP => start.saturating_add(len),
        _ => return None,
    };
    (got == size_of_val(&event)).then_some(Change {
        start: start as usize,
        end: end as usize,
    })
}

/// Runs `work` while threads that write to the range wait, and returns its result. The range must be one of private
/// anonymous memory.
///
/// `work` must neither allocate nor write to memory of others, or it might wait for itself.
pub(super) fn during<R>(
    catches: Catches,
    start: usize,
    len: usize,
    work: impl FnOnce() -> R,
) -> Result<R, Errno> {
    let (faults, unpopulated) = faults(catches)?;
    if !unpopulated {
        populate(start, len);
    }
    let (start, len) = (start as u64, len as u64);
    register(&faults, start, len)?;
    loop {
        let mut protect = Protection {
            start,
            len,
            mode: PROTECT,
        };
        // SAFETY: as above; the protection ends when `faults` is closed.
        match unsafe { ioctl(&faults, Updater::<IOC_PROTECT, _>::new(&mut protect)) } {
            Ok(()) => break,
            Err(Errno::AGAIN) => {}
            Err(e) => return Err(e),
        }
    }
    // Closing the descriptor wakes all threads that wait.
    let result = work();
    drop(faults);
    Ok(result)
}

/// Has a descriptor hear of a range, in write-protect mode.
fn register(faults: &OwnedFd, start: u64, len: u64) -> Result<(), Errno> {
    let mut register = Register {
        start,
        len,
        mode: REGISTER_WRITE_PROTECT,
        ioctls: 0,
    };
    // SAFETY: the structure and the number are the interface's; it changes no memory.
    unsafe { ioctl(faults, Updater::<IOC_REGISTER, _>::new(&mut register)) }
}

/// Agrees on features.
fn begin(faults: &OwnedFd, features: u64) -> Result<(), Errno> {
    let mut api = Api {
        api: API,
        features,
        ioctls: 0,
    };
    // SAFETY: the structure and the number are the interface's; it changes no memory.
    unsafe { ioctl(faults, Updater::<IOC_API, _>::new(&mut api)) }
}

/// What lets a process catch writes, the kernel's on its behalf, too.
pub(crate) const CURE: &str =
    "sysctl -w vm.unprivileged_userfaultfd=1, or CAP_SYS_PTRACE, or the right to open /dev/userfaultfd";

/// Whether this process can catch writes, the kernel's on its behalf, too.
pub(crate) fn check() -> Result<(), Errno> {
    faults(Catches::All).map(drop)
}

/// Whether pages that were never touched can be protected.
#[cfg(test)]
pub(super) fn marks_untouched() -> bool {
    faults(Catches::Program).is_ok_and(|(_, unpopulated)| unpopulated)
}

/// A descriptor for faults, and whether untouched pages can be protected.
fn faults(catches: Catches) -> Result<(OwnedFd, bool), Errno> {
    for (features, unpopulated) in [
        (FEATURE_WRITE_PROTECT | FEATURE_UNPOPULATED, true),
        (FEATURE_WRITE_PROTECT, false),
    ] {
        let faults = descriptor(catches, UserfaultfdFlags::empty())?;
        match begin(&faults, features) {
            Ok(()) => return Ok((faults, unpopulated)),
            Err(Errno::INVAL) => {}
            Err(e) => return Err(e),
        }
    }
    Err(Errno::OPNOTSUPP)
}

fn descriptor(catches: Catches, more: UserfaultfdFlags) -> Result<OwnedFd, Errno> {
    let mut flags = UserfaultfdFlags::CLOEXEC | more;
    if catches == Catches::Program {
        flags |= UserfaultfdFlags::from_bits_retain(USER_MODE_ONLY);
    }
    // SAFETY: nothing can be done with it but protecting memory, which `during` does.
    let refused = match unsafe { userfaultfd(flags) } {
        Ok(faults) => return Ok(faults),
        Err(e) => e,
    };
    let device =
        open(c"/dev/userfaultfd", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(|_| refused)?;
    new_of(&device, flags).map_err(|_| refused)
}

/// A descriptor by way of the device, for those who may open it.
fn new_of(device: &OwnedFd, flags: UserfaultfdFlags) -> Result<OwnedFd, Errno> {
    use std::os::fd::{AsRawFd, FromRawFd};
    // SAFETY: the number is the interface's, and it takes the flags by value.
    let made = unsafe { libc::ioctl(device.as_raw_fd(), IOC_NEW.into(), flags.bits()) };
    if made < 0 {
        return Err(Errno::NOSYS);
    }
    // SAFETY: it has just been made, for us.
    Ok(unsafe { OwnedFd::from_raw_fd(made) })
}

/// Brings all pages in: older kernels cannot protect pages that are not there.
fn populate(start: usize, len: usize) {
    let at = std::ptr::without_provenance_mut::<u8>(start);
    // SAFETY: as if they were read.
    if unsafe { madvise(at.cast(), len, Advice::LinuxPopulateRead) }.is_ok() {
        return;
    }
    for offset in (0..len).step_by(rustix::param::page_size()) {
        let at = std::ptr::with_exposed_provenance::<u8>(start + offset);
        // SAFETY: the range is readable; what is read does not matter.
        unsafe { at.read_volatile() };
    }
}
