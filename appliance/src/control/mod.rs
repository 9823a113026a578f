//! The control plane below gRPC and metrics: operations on the NIC as plain types and functions that may block. The daemon
//! builds a [`Control`], gRPC translates messages into calls of it, metrics read it.
//!
//! ```text
//!   grpc, metrics, daemon ─▶ Adapters, Ports, Teams, Qos, Congestion, Keys, Nv, Oids, … ─▶ Control ─▶ NIC, store, events
//! ```
//!
//! A change is checked as a whole, then stored and applied, in an order that is documented with each kind of setting;
//! changes and refusals are events. Paths of fields are those of the resources: `adapter.mtu`, `qos.pfc`.

mod access_lists;
mod adapters;
mod captures;
mod clock;
mod congestion;
mod connections;
mod counters;
mod declared;
mod faults;
mod fields;
mod log_level;
mod mirrors;
mod moves;
mod nv;
mod oid;
mod ports;
mod qos;
mod queue_pairs;
mod rdma;
mod recordings;
mod refused;
mod registry;
mod reload;
mod scenarios;
mod state;
mod subnet;
mod subnet_groups;
mod teams;
mod verbs_faults;

pub use access_lists::AccessLists;
pub use adapters::{Adapters, Edit};
pub use captures::{Asked, Captures};
pub use clock::{NicClock, offset as clock_offset};
pub use congestion::{Congestion, CongestionNow, Wish};
pub use connections::{ConnectionNow, Connections};
pub use counters::{CounterUpdate, Counters, Followed, Shown};
pub use declared::{Applied, Declared, Outcome, Plan, Step, What, Whose};
pub use faults::Faults;
pub use log_level::LogLevel;
pub use mirrors::Mirrors;
pub use moves::{From, Moves};
pub use nv::NvConfig;
pub use oid::{Oids, Queried};
pub use ports::Ports;
pub use qos::{Qos, QosNow};
pub use queue_pairs::{Place, Process, QueuePairChange, QueuePairNow, QueuePairs, SeenQueuePairs};
pub use rdma::Rdma;
pub use recordings::Recordings;
pub use refused::Refused;
pub use registry::Keys;
pub use reload::Reload;
pub use scenarios::{PlayNow, Scenarios};
pub use state::{Control, Endpoints, Kept};
pub(crate) use subnet::file as policy_file;
pub use subnet::{Found, Loaded, Sought, Subnet};
pub use subnet_groups::SubnetGroups;
pub use teams::{TeamNow, Teams};
pub use verbs_faults::VerbsFaults;
