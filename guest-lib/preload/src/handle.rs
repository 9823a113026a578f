//! Objects behind pointers that the program holds.
//!
//! Each is a box that begins with the structure of the header, which the program may read and the library
//! changes: it is in an [`UnsafeCell`], and nobody makes references into it.

use std::cell::UnsafeCell;
use std::sync::Arc;

use crate::errno::Errno;

/// What the program holds a pointer to.
///
/// # Safety
/// It is `repr(C)`, and its first field is an `UnsafeCell<Self::C>`, or of a structure that begins with `Self::C`.
pub unsafe trait Object: Sized + 'static {
    /// The structure of the header.
    type C;

    /// The pointer that the program has.
    fn c(&self) -> *mut Self::C {
        // The first field, and changed by nobody but through such pointers.
        std::ptr::from_ref(self)
            .cast::<UnsafeCell<Self::C>>()
            .cast_mut()
            .cast()
    }
}

/// Gives an object to the program.
pub fn publish<T: Object>(object: T) -> *mut T::C {
    Box::into_raw(Box::new(object)).cast()
}

/// The object behind a pointer of the program.
///
/// # Safety
/// [`publish`] of this type made it, and it was not taken back.
pub unsafe fn the<'a, T: Object>(pointer: *mut T::C) -> &'a T {
    // SAFETY: by the caller's promise.
    unsafe { &*pointer.cast::<T>() }
}

/// As [`the`], for pointers that may be NULL.
///
/// # Safety
/// As [`the`], if it is not NULL.
pub unsafe fn maybe<'a, T: Object>(pointer: *mut T::C) -> Option<&'a T> {
    // SAFETY: by the caller's promise.
    (!pointer.is_null()).then(|| unsafe { the(pointer) })
}

/// Takes an object back.
///
/// # Safety
/// As [`the`], and nobody uses it any more.
pub unsafe fn take_back<T: Object>(pointer: *mut T::C) -> Box<T> {
    // SAFETY: by the caller's promise.
    unsafe { Box::from_raw(pointer.cast()) }
}

/// How many others need an object. It may be destroyed only when nobody does.
#[derive(Debug, Default)]
pub struct Uses(Arc<()>);

/// That one other needs it.
#[derive(Debug)]
pub struct Use(#[expect(dead_code, reason = "it counts by being there")] Arc<()>);

impl Uses {
    /// One more.
    pub fn one(&self) -> Use {
        Use(Arc::clone(&self.0))
    }

    /// EBUSY while somebody needs it.
    pub fn none(&self) -> Result<(), Errno> {
        if Arc::strong_count(&self.0) == 1 {
            Ok(())
        } else {
            Err(Errno::BUSY)
        }
    }
}
