//! Asynchronous events and completion events, and that objects wait for their acknowledgement.
//!
//! ```text
//!  device ──▶ dispatcher (a thread of each seat) ──▶ mailbox of the context whose object it concerns
//!                                                      └──▶ ibv_get_async_event … ibv_ack_async_event
//! ```
//! *No event reaches an object that was destroyed.* Whoever destroys one takes it off the dispatcher's list, takes
//! its events out of the mailbox, and waits until those that the program has taken are acknowledged. Both
//! the list and the mailbox count and hand out under their lock.

pub mod calls;
mod dispatcher;
mod interrupts;
mod mailbox;
mod unacknowledged;

pub use dispatcher::{Dispatcher, Kind, Subject};
pub use interrupts::{is_nonblocking, make_blocking, wait_readable};
pub use mailbox::Mailbox;
pub use unacknowledged::Unacknowledged;
