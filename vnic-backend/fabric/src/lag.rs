//! Link aggregation: several ports as one, under the embedded switch (MLNX_OFED Documentation, VF LAG).
//!
//! ```text
//!  frame ─ Flow::parse ─▶ Flow ─ Policy::hash ─▶ bucket ─▶ member ─▶ port
//!                          │                       ▲
//!                          └── affinity ───────────┤       Bond: which bucket is on which member, and when it may move
//!                                                  │
//!            link up, down ── Lacp (IEEE 802.1AX) ─┘ collecting, distributing
//! ```
//!
//! [`Bond`] decides which port a frame takes and shows where flows are ([`View`]). [`Lacp`] finds out together with the
//! other end of each link which ports belong together. [`Teams`] is what `mlx5muxtool` knows: names, kinds, members, and
//! the [`BondSettings`] that follow from them. None of them has a clock, a socket or a frame's bytes beyond its headers.

pub mod bond;
pub mod flow;
pub mod flows;
pub mod hash;
pub mod lacp;
pub mod team;
pub mod view;

use alloc::string::String;

pub use bond::{Affinity, Bond, BondSettings, Choice, Mode, SLOTS_MAX, SlotId};
pub use flow::{Flow, Packet, Ports};
pub use hash::Policy;
pub use lacp::Lacp;
pub use team::{Team, Teams};

pub use view::{Evenness, View};

/// Most members of a bond or team (WinOF-2 Ethernet Network, NIC Teaming: 1 to 32).
pub const MEMBERS_MAX: usize = 32;

/// A member of a bond, by its place in the list: 0..=31.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member(pub u8);

/// Why a setting is refused. Nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct LagError {
    /// The setting, by the name that the control plane gives it.
    pub field: &'static str,
    /// What is wrong, and the allowed range.
    pub problem: String,
}

impl LagError {
    fn new(field: &'static str, problem: impl Into<String>) -> LagError {
        LagError {
            field,
            problem: problem.into(),
        }
    }
}

/// Refuses a setting.
fn refuse<T>(field: &'static str, problem: impl Into<String>) -> Result<T, LagError> {
    Err(LagError::new(field, problem))
}

#[cfg(test)]
mod tests;
