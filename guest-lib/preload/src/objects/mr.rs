//! Memory regions.

#![expect(
    unsafe_code,
    reason = "registers memory of programs in C; is taken back from the program"
)]

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard};

use vnic_verbs::{Access, MemoryRegion, Reregister};

use super::{Pd, only};
use crate::abi::*;
use crate::errno::Errno;
use crate::handle::{Object, Use, end, publish, the};
use crate::named::{Keys, Listed};
use crate::sync::lock;

/// A memory region.
#[repr(C)]
pub struct Mr {
    base: UnsafeCell<ibv_mr>,
    inner: Mutex<Option<MemoryRegion>>,
    /// The region's domain, which may change, and its device memory.
    needs: Mutex<Needs>,
    /// `None` for regions that were imported.
    listed: Mutex<Option<Listed<Keys>>>,
}

object!(Mr: ibv_mr);

struct Needs {
    _pd: Use,
    _dm: Option<Use>,
}

/// Rights that a program may ask for and need not get.
const OPTIONAL: u32 = 0x3ff0_0000;

/// Rights of a region. Hints about its layout in memory are not needed.
pub fn access(flags: u32) -> Result<Access, Errno> {
    let flags = flags & !(OPTIONAL | IBV_ACCESS_HUGETLB);
    if flags & IBV_ACCESS_ON_DEMAND != 0 {
        return Err(Errno::UNSUPPORTED.because("IBV_ACCESS_ON_DEMAND is for ibv_reg_mr alone"));
    }
    let access = Access::from_bits(flags).ok_or(Errno::INVALID)?;
    let writes = Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    // No flag of the interface has the number of INVALIDATE.
    if access.contains(Access::INVALIDATE)
        || access.intersects(writes) && !access.contains(Access::LOCAL_WRITE)
    {
        return Err(Errno::INVALID);
    }
    Ok(access)
}

impl Mr {
    /// Registers memory of the program's own; peers see its first byte at `iova`.
    ///
    /// # Safety
    /// The program keeps the memory mapped until the region is deregistered.
    pub unsafe fn register(
        pd: &Pd,
        addr: *mut c_void,
        length: usize,
        iova: u64,
        flags: u32,
    ) -> Result<*mut ibv_mr, Errno> {
        if flags & IBV_ACCESS_ON_DEMAND != 0 {
            let access = access(flags & !IBV_ACCESS_ON_DEMAND)?;
            if iova != addr as u64 && addr.is_null() {
                return Err(Errno::INVALID);
            }
            // SAFETY: a program in C makes no promises about references.
            let inner = unsafe { pd.inner.register_on_demand(addr.addr(), length, iova, access) }?;
            return Ok(publish(Mr::new(pd, addr, length, inner, None)));
        }
        let access = access(flags)?;
        let start = range(addr, length)?;
        // SAFETY: a program in C makes no promises about references, and the caller makes the rest.
        let inner = unsafe { pd.inner.register_raw(start, length, iova, access) }?;
        Ok(publish(Mr::new(pd, addr, length, inner, None)))
    }

    /// Registers a part of a dma-buf, by its descriptor and the offset of its first byte. The program has no address of it.
    pub fn of_dmabuf(
        pd: &Pd,
        (fd, offset): (c_int, u64),
        length: usize,
        iova: u64,
        flags: u32,
    ) -> Result<*mut ibv_mr, Errno> {
        let access = access(flags)?;
        if fd < 0 {
            return Err(Errno(libc::EBADF));
        }
        // SAFETY: the program keeps the descriptor open during the call; a number that is none is refused by the kernel.
        let file = unsafe { BorrowedFd::borrow_raw(fd) };
        let inner = pd.inner.register_dmabuf(file, offset, length, iova, access)?;
        Ok(publish(Mr::new(pd, std::ptr::null_mut(), length, inner, None)))
    }

    /// A region of all addresses, without memory.
    pub fn null(pd: &Pd) -> Result<*mut ibv_mr, Errno> {
        let inner = pd.inner.register_null()?;
        Ok(publish(Mr::new(
            pd,
            std::ptr::null_mut(),
            usize::MAX,
            inner,
            None,
        )))
    }

    /// The region with a number, under another pointer, which has no address in this program. What it is of stays the
    /// business of its first pointer.
    pub fn import(pd: &Pd, number: u32) -> Result<*mut ibv_mr, Errno> {
        let keys = pd.regions.find(number)?;
        Ok(publish(Mr::under(pd, std::ptr::null_mut(), number, *keys, None)))
    }

    pub(super) fn new(pd: &Pd, addr: *mut c_void, length: usize, inner: MemoryRegion, dm: Option<Use>) -> Mr {
        let (number, keys) = (inner.number(), keys(&inner, length));
        let mr = Mr::under(pd, addr, number, keys, dm);
        *mr.lock() = Some(inner);
        *lock(&mr.listed) = Some(pd.regions.list(number, keys));
        mr
    }

    fn under(pd: &Pd, addr: *mut c_void, number: u32, keys: Keys, dm: Option<Use>) -> Mr {
        Mr {
            base: UnsafeCell::new(ibv_mr {
                context: pd.context(),
                pd: pd.c(),
                addr,
                length: keys.length,
                handle: number,
                lkey: keys.lkey,
                rkey: keys.rkey,
            }),
            inner: Mutex::new(None),
            listed: Mutex::new(None),
            needs: Mutex::new(Needs {
                _pd: pd.uses.one(),
                _dm: dm,
            }),
        }
    }

    /// The region; `None` while it ends, and if it was imported.
    pub fn lock(&self) -> MutexGuard<'_, Option<MemoryRegion>> {
        lock(&self.inner)
    }

    /// Deregisters the region. EBUSY while windows are bound to it.
    ///
    /// # Safety
    /// The region is ours, and the program does not use it any more.
    pub unsafe fn deregister(pointer: *mut ibv_mr) -> Result<(), Errno> {
        // SAFETY: by the caller's promise.
        let mr = unsafe { the::<Mr>(pointer) };
        let mut inner = mr.lock();
        if let Some(Err(region)) = inner.take().map(MemoryRegion::deregister) {
            *inner = Some(region);
            return Err(Errno::BUSY);
        }
        drop(inner);
        // SAFETY: by the caller's promise, and nothing of ours has it.
        unsafe { end::<Mr>(pointer) }
    }

    /// Changes the region.
    ///
    /// # Safety
    /// As [`register`](Mr::register), if the region is to have other memory.
    pub unsafe fn change(&self, change: &Change<'_>) -> Result<(), Refusal> {
        let has = |flag: u32| change.flags & flag != 0;
        let wrong = |errno| Refusal { code: INPUT, errno };
        only(change.flags, IBV_REREG_MR_FLAGS_SUPPORTED, Errno::INVALID).map_err(wrong)?;
        if change.flags == 0 || has(IBV_REREG_MR_CHANGE_PD) && change.pd.is_none() {
            return Err(wrong(Errno::INVALID));
        }
        let pd = change.pd;
        let rights = if has(IBV_REREG_MR_CHANGE_ACCESS) {
            Some(access(change.access).map_err(wrong)?)
        } else {
            None
        };
        let mut inner = self.lock();
        let region = inner.as_mut().ok_or(wrong(Errno::INVALID))?;
        let result = if has(IBV_REREG_MR_CHANGE_TRANSLATION) {
            let start = range(change.addr, change.length).map_err(wrong)?;
            let memory = (start, change.length, change.addr as u64);
            // SAFETY: a program in C makes no promises about references, and the caller makes the rest.
            unsafe { region.reregister_raw(memory, pd.map(|pd| &pd.inner), rights) }
        } else {
            region.reregister(Reregister {
                translation: None,
                pd: pd.map(|pd| &pd.inner),
                access: rights,
            })
        };
        result.map_err(|e| Refusal {
            code: COMMAND,
            errno: e.into(),
        })?;
        let base = self.c();
        if let Some(listed) = &mut *lock(&self.listed) {
            // SAFETY: a field that only this changes, under the lock.
            let before = unsafe { (*base).length };
            let changed = has(IBV_REREG_MR_CHANGE_TRANSLATION);
            let length = if changed { change.length } else { before };
            listed.becomes(keys(region, length));
        }
        // SAFETY: fields that the program reads, and only this changes, under the lock.
        unsafe {
            (*base).lkey = region.lkey();
            (*base).rkey = region.rkey();
            if has(IBV_REREG_MR_CHANGE_TRANSLATION) {
                (*base).addr = change.addr;
                (*base).length = change.length;
            }
            if let Some(pd) = pd {
                (*base).pd = pd.c();
            }
        }
        let mut needs = lock(&self.needs);
        if let Some(pd) = pd {
            needs._pd = pd.uses.one();
        }
        if has(IBV_REREG_MR_CHANGE_TRANSLATION) {
            needs._dm = None;
        }
        Ok(())
    }
}

/// What a region is known by to whoever imports it.
fn keys(region: &MemoryRegion, length: usize) -> Keys {
    Keys {
        length,
        lkey: region.lkey(),
        rkey: region.rkey(),
    }
}

/// Changes of a region (`IBV_REREG_MR_CHANGE_*`).
pub struct Change<'a> {
    pub flags: u32,
    pub pd: Option<&'a Pd>,
    pub addr: *mut c_void,
    pub length: usize,
    pub access: u32,
}

/// Why a region was not changed: a number of the call's own, and the error.
pub struct Refusal {
    pub code: c_int,
    pub errno: Errno,
}

/// `IBV_REREG_MR_ERR_INPUT`.
const INPUT: c_int = -1;
/// `IBV_REREG_MR_ERR_CMD`.
const COMMAND: c_int = -4;

/// A range of memory that may be registered.
fn range(addr: *mut c_void, length: usize) -> Result<NonNull<u8>, Errno> {
    let start = NonNull::new(addr.cast()).ok_or(Errno::INVALID)?;
    match addr.addr().checked_add(length) {
        Some(_) if length > 0 => Ok(start),
        _ => Err(Errno::INVALID),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_ignored() {
        let wanted = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING | IBV_ACCESS_HUGETLB | 1 << 29;
        assert_eq!(access(wanted), Ok(Access::LOCAL_WRITE));
        assert_eq!(access(0), Ok(Access::empty()));
    }

    #[test]
    fn rights_are_checked_as_the_kernel_does() {
        for alone in [IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_ATOMIC] {
            assert_eq!(access(alone), Err(Errno::INVALID));
            assert!(access(alone | IBV_ACCESS_LOCAL_WRITE).is_ok());
        }
        assert_eq!(access(IBV_ACCESS_REMOTE_READ), Ok(Access::REMOTE_READ));
        assert_eq!(access(IBV_ACCESS_ON_DEMAND), Err(Errno::UNSUPPORTED));
        for unknown in [1 << 10, 1 << 19, 1 << 30, 1 << 31] {
            assert_eq!(access(unknown), Err(Errno::INVALID));
        }
    }
}
