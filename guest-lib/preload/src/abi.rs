//! The binary interface of libibverbs 44 (`infiniband/verbs.h`) and librdmacm 44 (`rdma/rdma_cma.h`), as a C program sees it:
//! layouts and numbers.
//!
//! Names are those of the header. A test compares these layouts with the header itself. Later versions add
//! fields at the front of [`verbs_context`] and at the end of the other structures; a size or a mask says how
//! much of those counts.

#![expect(
    unsafe_code,
    reason = "functions of an interface in C are unsafe to call, whatever they do"
)]
#![allow(non_camel_case_types, reason = "the names are those of the header")]
#![allow(missing_docs, reason = "the header documents its fields")]

/// A function of the interface, or none. A caller passes what the header asks for.
macro_rules! op {
    // SAFETY: a type.
    ($($function:tt)*) => { Option<unsafe extern "C" $($function)*> };
}

/// Structures and unions of the interface. All begin as zeros, and a test knows their layouts.
macro_rules! interface {
    ($($kind:tt $name:ident { $($field:ident: $type:ty,)* })*) => {
        $(
            #[repr(C)]
            #[derive(Clone, Copy)]
            pub $kind $name {
                $(pub $field: $type,)*
            }

            // SAFETY: numbers, pointers, functions that may be missing; locks of pthreads begin as zeros.
            unsafe impl Plain for $name {}
        )*

        /// Layouts of the structures.
        #[cfg(test)]
        pub(super) const LAYOUTS: &[Layout] = &[$(Layout {
            name: stringify!($name),
            size: size_of::<$name>(),
            fields: &[$((stringify!($field), std::mem::offset_of!($name, $field), size_of::<$type>()),)*],
        },)*];
    };
}

mod attributes;
mod cma;
mod context;
mod device;
mod flow;
mod mlx5dv;
pub mod numbers;
mod objects;
#[cfg(test)]
mod tests;
mod work;
mod zeros;

use std::ffi::{c_char, c_int, c_uint, c_void};

pub use attributes::*;
pub use cma::*;
pub use context::*;
pub use device::*;
pub use flow::*;
pub use mlx5dv::*;
pub use numbers::*;
pub use objects::*;
pub use work::*;
pub use zeros::*;

pub type size_t = usize;

/// A structure: its name, its size, and its fields with their offsets and sizes.
#[cfg(test)]
struct Layout {
    name: &'static str,
    size: usize,
    fields: &'static [(&'static str, usize, usize)],
}
