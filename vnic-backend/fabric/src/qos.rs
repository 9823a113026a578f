//! Quality of service at a port: which priority a frame has, which traffic class serves it, when it may leave, and how
//! senders are told to wait. Sans-I/O: the live NIC and the simulator use the same code.
//!
//! ```text
//!  frame ─ classify ─▶ priority ─ Classes ─▶ traffic class
//!                                                  │
//!  source ─ Bucket (what its schedule queue allows) ┤            Buffers: XOFF and XON by source and priority
//!                                                  ▼                          │
//!                            Egress: strict, then ETS, by source ─▶ wire      ▼
//!                                    ▲ closed priorities              PauseTx ─▶ 802.3x, 802.1Qbb
//!                                 PauseRx ◀─ 802.3x, 802.1Qbb           StallGuard ends it
//! ```
//!
//! A *port* is an adapter or an uplink. The configuration ([`PortQos`]) of an adapter counts at both ends of its link: for
//! what the guest sends, and for what the switch sends to the guest. The configuration of an uplink counts for what is sent
//! to the wire; the other direction is the peer's.

pub mod arbiter;
pub mod away;
pub mod bucket;
pub mod buffers;
mod check;
pub mod classify;
pub mod config;
pub mod egress;
pub mod hint;
pub mod lifetime;
pub mod limits;
pub mod order;
pub mod pause;
pub mod red;
pub mod shared;
pub mod stall;
pub mod strict;

pub use arbiter::VlArbitration;
pub use away::Away;
pub use bucket::Bucket;
pub use buffers::{Buffers, Change};
pub use check::RATE_RANGE;
pub use classify::{Classification, Decision, Match, Policy};
pub use config::{Buffer, BufferParts, Classes, PauseSettings, PortQos, QosError, ScheduleQueue, Tpid, Tsa};
pub use egress::{Egress, Entry, Pick};
pub use hint::Hint;
pub use lifetime::Lifetime;
pub use limits::Limits;
pub use order::Order;
pub use pause::{PauseRx, PauseTx};
pub use red::{Average, Capable, Curve, MarkAt, Marker, NotCapable, Red, Verdict};
pub use shared::{SharedBuffer, SharedSettings, Threshold};
pub use stall::{StallGuard, StallNews};
pub use strict::Strict;
pub use vnic_wire::qos::{
    Colour, Guard, HintAction, HintMode, HintSettings, Lifetimes, MarkRules, PriorityRules, SendRules,
    TagMaps, Trust,
};

/// Priorities, and traffic classes (IEEE 802.1Q clause 8.6.6).
pub const PRIORITIES: usize = 8;
/// Number of service levels (IBTA volume 1, 7.6.5): priorities, and as many above them.
pub const LEVELS: usize = 2 * PRIORITIES;
/// Number of virtual lanes of data (IBTA volume 1, 7.6.1): traffic classes, which lanes 0..=7 are, and as many as the standard has above them.
pub const LANES: usize = 15;
/// Bytes that a frame takes on the wire besides its own: preamble and start delimiter 8, FCS 4, gap 12 (IEEE 802.3 clause
/// 4).
pub const WIRE_OVERHEAD: u32 = 24;
