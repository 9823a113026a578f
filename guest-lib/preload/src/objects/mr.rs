//! Memory regions.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use vnic_verbs::{Access, MemoryRegion};

use super::Pd;
use crate::abi::*;
use crate::errno::Errno;
use crate::handle::{Object, Use, publish};

/// A memory region.
#[repr(C)]
pub struct Mr {
    base: UnsafeCell<ibv_mr>,
    /// Changed by `ibv_rereg_mr`.
    pub inner: Mutex<MemoryRegion>,
    needs: Mutex<Vec<Use>>,
}

// SAFETY: `repr(C)`, and its first field is that.
unsafe impl Object for Mr {
    type C = ibv_mr;
}

/// Rights that a program may ask for and need not get.
const OPTIONAL: u32 = 0x3ff0_0000;

/// What a region is to allow. Hints about how it is in memory are not needed.
pub fn access(flags: u32) -> Result<Access, Errno> {
    let flags = flags & !(OPTIONAL | IBV_ACCESS_HUGETLB);
    if flags & IBV_ACCESS_ON_DEMAND != 0 {
        return Err(Errno::UNSUPPORTED);
    }
    let access = Access::from_bits(flags).ok_or(Errno::INVALID)?;
    let writes = Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    // No flag of the interface has this one's number.
    if access.contains(Access::INVALIDATE)
        || access.intersects(writes) && !access.contains(Access::LOCAL_WRITE)
    {
        return Err(Errno::INVALID);
    }
    Ok(access)
}

impl Mr {
    /// Registers memory of the program's; peers see its first byte at `iova`.
    ///
    /// # Safety
    /// The program keeps it mapped until the region is deregistered.
    pub unsafe fn register(
        pd: &Pd,
        addr: *mut c_void,
        length: usize,
        iova: u64,
        flags: u32,
    ) -> Result<*mut ibv_mr, Errno> {
        let access = access(flags)?;
        let start = range(addr, length)?;
        // SAFETY: a program in C makes no promises about references, and the caller makes the rest.
        let inner = unsafe { pd.inner.register_raw(start, length, iova, access) }?;
        Ok(publish(Mr::new(pd, addr, length, inner, vec![pd.uses.one()])))
    }

    pub(super) fn new(pd: &Pd, addr: *mut c_void, length: usize, inner: MemoryRegion, needs: Vec<Use>) -> Mr {
        Mr {
            base: UnsafeCell::new(ibv_mr {
                context: pd.context(),
                pd: pd.c(),
                addr,
                length,
                handle: inner.number(),
                lkey: inner.lkey(),
                rkey: inner.rkey(),
            }),
            inner: Mutex::new(inner),
            needs: Mutex::new(needs),
        }
    }

    /// The region.
    pub fn lock(&self) -> MutexGuard<'_, MemoryRegion> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

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
