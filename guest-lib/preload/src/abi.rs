//! The binary interface of libibverbs 44 (`infiniband/verbs.h`), as a C program sees it: layouts and numbers.
//!
//! Names are those of the header, so that who knows it finds the way. A test lays these beside the header
//! itself. Later versions add fields at the front of [`verbs_context`] and at the end of the other structures,
//! where a size or a mask says how much of them is meant.
#![allow(non_camel_case_types, reason = "the names are those of the header")]
#![allow(missing_docs, reason = "the header documents its fields")]

/// A function of the interface, or none. Whoever calls one passes what the header asks for.
macro_rules! op {
    ($($function:tt)*) => { Option<unsafe extern "C" $($function)*> };
}

mod attributes;
mod context;
mod device;
pub mod numbers;
mod objects;
mod work;
mod zeros;

use std::ffi::{c_char, c_int, c_uint, c_void};

pub use attributes::*;
pub use context::*;
pub use device::*;
pub use numbers::*;
pub use objects::*;
pub use work::*;
pub use zeros::*;

pub type size_t = usize;
