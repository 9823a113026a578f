//! The functions of libibverbs, as thin as they can be: whose is it, what does it ask for, how does it say no.

mod device;
mod events;
mod memory;
pub mod query;
mod queues;
mod texts;
