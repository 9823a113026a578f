//! Asynchronous events, completion events, and objects' waits for their acknowledgement.
//!
//! ```text
//!  device ──▶ dispatcher (a thread of each seat) ──▶ mailbox of the context whose object it concerns
//!                                                      └──▶ ibv_get_async_event … ibv_ack_async_event
//! ```
//! *No event reaches a destroyed object.* The thread that destroys an object takes it off the dispatcher's list,
//! takes its events out of the mailbox, and waits until the program has acknowledged those that it took. The list
//! and the mailbox both count and hand out under their lock.

pub mod calls;
mod dispatcher;
mod interrupts;
mod mailbox;
mod unacknowledged;

pub use dispatcher::{Dispatcher, Kept, Kind};
pub use interrupts::{make_blocking, wait_for};
pub use mailbox::{Mailbox, Subject};
pub use unacknowledged::Unacknowledged;
