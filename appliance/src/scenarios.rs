//! Scenarios: failures of RDMA functions at given times, from a file ([`crate::config::scenario_from_text`]).
//!
//! ```text
//!  file ─▶ Scenario: what is done when ─▶ Player ─▶ NIC, and a log by the file's times
//! ```
//!
//! A player knows no clock: who plays says how late it is.

mod player;
mod timeline;

pub use player::{Killer, Player};
pub use timeline::{Act, Moment, PortChange, Scenario};
