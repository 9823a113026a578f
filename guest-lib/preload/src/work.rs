//! The data path: work requests in, completions out.

pub mod batch;
pub mod cursor;
pub mod fields;
mod latch;
mod patience;
pub mod poll;
pub mod post;
pub mod segments;
pub mod wr;

/// Most inline bytes that a device may have (`vnicd`'s limit): the size of the buffer in which pieces are gathered.
const INLINE_MAX: usize = 4096;
