//! The data path: work requests in, completions out.

pub mod batch;
mod fields;
mod latch;
mod patience;
pub mod poll;
pub mod post;
