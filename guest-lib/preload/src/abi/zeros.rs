//! Structures that begin as zeros, as programs in C begin them.

use std::mem::MaybeUninit;

/// A structure of the header.
///
/// # Safety
/// All of its bytes may be zero: it has numbers, pointers that may be NULL, and such structures.
pub unsafe trait Plain: Copy {}

/// One in which everything is zero or NULL.
pub fn zeros<T: Plain>() -> T {
    // SAFETY: that is what the trait promises.
    unsafe { MaybeUninit::zeroed().assume_init() }
}
