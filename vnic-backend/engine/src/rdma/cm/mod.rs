//! Communication management (IBTA vol 1 chapter 12): how two queue pairs learn of each other, by messages between the general
//! services of two devices.
//!
//! [`Cm`] is one device's. Calls of the driver, datagrams, time and randomness are arguments; datagrams and events are taken
//! out of it. A connection is a record in a [`State`]; [`state::step`] is the table of what each input does in each.
//!
//! ```text
//!   active                          passive
//!   connect      ── REQ ──▶         Event::Request
//!   Response     ◀── REP ──         accept            (a late answer: the repeated message is answered by an MRA)
//!   establish    ── RTU ──▶         Event::Established
//!   disconnect   ── DREQ ─▶         Event::Disconnected
//!   Disconnected ◀── DREP ─         disconnect
//!          both: Timewait, then Event::TimewaitExit
//! ```

mod admission;
mod connection;
mod counters;
mod event;
mod manager;
pub mod state;
mod terms;
mod timing;

pub(super) use connection::CONNECTION;
pub use counters::Counters;
pub use event::{ConnectionId, Datagram, Event, Heading};
pub use manager::{Cm, CmError, Limits};
pub use state::State;
pub use terms::{Status, Terms};
pub use timing::Timing;
