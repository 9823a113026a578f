//! The shared object as programs in C see it.

mod common;
mod coverage;
mod programs;
