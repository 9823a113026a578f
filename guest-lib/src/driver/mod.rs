//! The driver half: virtqueues, commands, events, doorbells (`SPEC.md`, sections 4 to 7 and 10).
//!
//! *Threads.* One thread of ours waits for interrupts. It hands events on, and wakes whoever waits for a
//! command. It never waits for a command itself, and never drops an object whose end is a command.
//!
//! *Epochs.* An object that was made before a reset of the device is dead after it. Each object remembers the
//! epoch in which it was made; [`shared::Shared::epoch`] is the epoch that lives, or none.
//!
//! *Forks.* For a child every device is dead, and what the child does to its copies of objects does nothing
//! ([`fork`]).
//!
//! *Memory.* The device writes into memory until it has said that it does not any more. So memory of an object
//! is freed only after the device has answered the command that ends the object. If no answer can be had, the
//! memory goes to the graveyard, which is cleared when the transport has stopped the device.

mod commands;
mod control;
mod core;
pub(crate) mod doorbells;
mod events;
pub(crate) mod fork;
mod lists;
mod on_demand;
mod paging;
mod posts;
mod shared;
mod signals;
#[cfg(test)]
mod tests;
mod virtqueue;
pub(crate) mod waiting;

pub(crate) use self::core::Core;
pub use fork::NoFork;
pub(crate) use shared::Sink;
pub use signals::block_signals;
pub(crate) use waiting::{Closing, News};
