//! The distribution's library, for devices that are not ours.

use std::ffi::{CStr, c_void};
use std::sync::OnceLock;

/// A function of the real library.
pub struct Symbol {
    name: &'static CStr,
    version: &'static CStr,
    found: OnceLock<usize>,
}

impl Symbol {
    /// By name and version.
    pub const fn new(name: &'static CStr, version: &'static CStr) -> Symbol {
        Symbol {
            name,
            version,
            found: OnceLock::new(),
        }
    }

    /// The function, if there is a real library that has it.
    ///
    /// # Safety
    /// `F` is a pointer to a function, of the type that the header gives it.
    pub unsafe fn find<F: Copy>(&self) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<usize>()) };
        let found = *self.found.get_or_init(|| look_up(self.name, self.version).addr());
        // SAFETY: not null, and of this type by the caller's promise.
        (found != 0).then(|| unsafe { std::mem::transmute_copy(&found) })
    }
}

fn look_up(name: &CStr, version: &CStr) -> *mut c_void {
    // SAFETY: both are texts that end with a zero.
    unsafe { libc::dlvsym(libc::RTLD_NEXT, name.as_ptr(), version.as_ptr()) }
}
