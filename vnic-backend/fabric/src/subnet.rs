//! Subnet administration: quality of service by path, as an InfiniBand subnet has it. A policy file in the language of OpenSM's QoS
//! manager says which service level, MTU, rate, packet lifetime and partition a path has; a query for a path (IBTA volume 1,
//! 15.2.5.16: PathRecord) is answered by its rules.
//!
//! ```text
//!  text ─▶ parse ─▶ Policy ──▶ resolve(Query) ─▶ PathRecord
//!                     └──────▶ notes: what of it has no effect
//!  datagram ─▶ Agent ─▶ resolve, and Groups of multicast ─▶ datagram
//! ```

mod agent;
mod bounds;
mod cursor;
mod group;
mod notes;
mod parse;
mod path;
mod policy;
mod ranges;
mod rate;
mod ulps;

pub use agent::Agent;
pub use cursor::PolicyError;
pub use group::{GROUPS_MAX, Group, GroupError, GroupSpec, Groups, Member};
pub use notes::{Note, notes};
pub use parse::{TEXT_MAX, parse};
pub use path::{NoPath, PathRecord, Port, Query, resolve};
pub use policy::{Level, Policy, PortGroup, Rule, Setup, Sl2VlScope, VlArbScope};
pub use ranges::Ranges;
pub use rate::{mtu_bytes, mtu_code, rate_code, rate_mbps};
