//! Objects behind pointers that the program holds.
//!
//! Each object is a box that begins with the structure of the header, which the program may read and the library
//! changes: it is in an [`UnsafeCell`], and nobody makes references into it.

#![expect(
    unsafe_code,
    reason = "finds objects behind the pointers that programs in C hold"
)]

use std::cell::UnsafeCell;
use std::sync::Arc;

use crate::errno::Errno;

/// An object that the program holds a pointer to.
///
/// # Safety
/// The type is `repr(C)`, and its first field is an `UnsafeCell<Self::C>`, or of a structure that begins with
/// `Self::C`.
pub unsafe trait Object: Sized + 'static {
    /// The structure of the header.
    type C;

    /// The program's pointer to the object.
    fn c(&self) -> *mut Self::C {
        // The first field, and changed by nobody but through such pointers.
        std::ptr::from_ref(self)
            .cast::<UnsafeCell<Self::C>>()
            .cast_mut()
            .cast()
    }
}

/// An object, and the structure of the header with which its first field, `base`, begins.
macro_rules! object {
    ($object:ident: $c:ty) => {
        const _: () = assert!(std::mem::offset_of!($object, base) == 0);
        // SAFETY: `repr(C)`, and its first field is that, or a structure that begins with that.
        unsafe impl $crate::handle::Object for $object {
            type C = $c;
        }
    };
}

/// Gives an object to the program.
pub fn publish<T: Object>(object: T) -> *mut T::C {
    publish_boxed(Box::new(object))
}

/// The same for an object that has its place.
pub fn publish_boxed<T: Object>(object: Box<T>) -> *mut T::C {
    Box::into_raw(object).cast()
}

/// The object behind a pointer of the program.
///
/// # Safety
/// [`publish`] of this type made the pointer, and it was not taken back.
pub unsafe fn the<'a, T: Object>(pointer: *mut T::C) -> &'a T {
    // SAFETY: by the caller's promise.
    unsafe { &*pointer.cast::<T>() }
}

/// As [`the`], for pointers that may be NULL.
///
/// # Safety
/// As [`the`], if the pointer is not NULL.
pub unsafe fn maybe<'a, T: Object>(pointer: *mut T::C) -> Option<&'a T> {
    // SAFETY: by the caller's promise.
    (!pointer.is_null()).then(|| unsafe { the(pointer) })
}

/// Takes an object back.
///
/// # Safety
/// As [`the`], and no thread uses the object any more.
pub unsafe fn take_back<T: Object>(pointer: *mut T::C) -> Box<T> {
    // SAFETY: by the caller's promise.
    unsafe { Box::from_raw(pointer.cast()) }
}

/// Takes an object back, and drops it.
///
/// # Safety
/// As [`take_back`].
pub unsafe fn end<T: Object>(pointer: *mut T::C) -> Result<(), Errno> {
    // SAFETY: by the caller's promise.
    drop(unsafe { take_back::<T>(pointer) });
    Ok(())
}

/// Number of other objects that need an object, which may be destroyed only when it is 0.
#[derive(Debug, Default)]
pub struct Uses(Arc<Users>);

/// Each user has one more of this.
#[derive(Debug, Default)]
struct Users(Arc<()>);

/// One object's need of another.
#[derive(Debug)]
pub struct Use(#[expect(dead_code, reason = "it counts by being there")] Arc<()>);

impl Uses {
    /// Adds a user.
    pub fn one(&self) -> Use {
        Use(Arc::clone(&self.0.0))
    }

    /// The same number, for the same object under another pointer.
    pub fn same(&self) -> Uses {
        Uses(Arc::clone(&self.0))
    }

    /// EBUSY while the object has users.
    pub fn none(&self) -> Result<(), Errno> {
        if Arc::strong_count(&self.0.0) == 1 {
            Ok(())
        } else {
            Err(Errno::BUSY)
        }
    }
}
