//! The RDMA function of an adapter: verbs objects, queue pair machines, RoCE packets (IBTA volume 1; RoCE: annexes
//! A16 and A17).
//!
//! [`Device`] is the function of one VM. Packets in ([`Incoming`]), packets out ([`Sink`]), time and the guest's
//! memory ([`Memory`]) are arguments.
//!
//! The way of a request: `post_send` puts it into a pool; the `requester` numbers it and cuts it into packets; the
//! peer's `responder` checks keys, places the payload and answers; the `completer` takes the answer and reports.

mod address_handle;
mod attributes;
mod budget;
pub mod cm;
mod completion_queue;
mod congestion;
pub mod counters;
mod device;
mod flow;
pub mod gid;
mod gsi;
mod handle;
pub mod limits;
mod marking;
pub mod marks;
mod memory;
mod multicast;
mod notes;
mod notifier;
mod observation;
mod on_demand;
mod pacing;
mod packet;
mod partition;
mod pool;
mod qp;
mod questions;
mod ready;
pub mod region;
pub mod rmpp;
mod run;
mod shared;
mod shared_receive_queue;
mod status;
pub mod steering;
mod timer;
mod transfers;
mod types;
mod wheel;
mod window;

pub use budget::Beside;
pub use congestion::{Congestion, FlowStatus};
pub use counters::Counters;
pub use device::{COPIES_AT_ONCE, Device, DeviceConfig, Freed, Given, work_of_pieces};
pub use gid::{GidEntry, GidKind, GidTable};
pub use limits::{Limits, Place, Resources, Usage};
pub use marking::{MarkPolicy, Marked, Marking};
pub use marks::{Mark, Marks};
pub use memory::{Memory, NULL_MEMORY, Unmapped};
pub use notes::{End, Landed, Note};
pub use observation::{Cause, OBSERVED_MAX, Passed, QpObservation, Repeats, Trips};
pub use on_demand::{Hold, PageFault};
pub use pacing::{RATE_MAX_KBPS, RATE_MIN_KBPS};
pub use packet::{Incoming, IncomingFrame, Outgoing, OutgoingFrame, Payload, Sink, SpanList};
pub use partition::PkeyViolation;
pub use qp::{flow_label, flow_label_port, multipath_port, state, udp_source_port};
pub use questions::{QUESTIONS_MAX, QUESTIONS_PER_SECOND, Question};
pub use region::{MemoryWalk, Registration, Reregister, Translation};
pub use run::Run;
pub use shared_receive_queue::SrqInit;
pub use status::{PathStatus, QpErrors, QpPage, QpStatus, SendStatus, TimerStatus, WORST, WayStatus};
pub use transfers::{SEGMENTS_MAX, TRANSFERS_MAX, TRANSFERS_PER_QP};
pub use types::*;
