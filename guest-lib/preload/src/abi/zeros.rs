//! Structures that begin as zeros, as programs in C begin them.

#![expect(unsafe_code, reason = "structures of C begin as zeros")]

use std::mem::MaybeUninit;

/// A structure of the header.
///
/// # Safety
/// All bytes of the structure may be zero: it has numbers, pointers that may be NULL, and such
/// structures.
pub unsafe trait Plain: Copy {}

/// A structure in which everything is zero or NULL.
pub fn zeros<T: Plain>() -> T {
    // SAFETY: that is what the trait promises.
    unsafe { MaybeUninit::zeroed().assume_init() }
}
