//! The data path: work requests in, completions out.

pub mod batch;
pub mod poll;
pub mod post;
