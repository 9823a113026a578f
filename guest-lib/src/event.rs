//! Asynchronous events.

pub use vnic_device::event::{FaultQueue, FaultReason};

/// What the device tells without being asked, except completions. Objects are named by their numbers, as
/// [`QueuePair::number`](crate::QueuePair::number) and others say them; one may have been destroyed meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AsyncEvent {
    /// A completion queue overran, or was misused: it takes no more, and its queue pairs fail.
    CqError {
        /// The queue.
        cq: u32,
        /// If it was misused: how.
        fault: Option<Fault>,
    },
    /// A queue pair failed for a reason of the device, of its completion queue, or because a queue was misused.
    QpFatal {
        /// The queue pair.
        qp: u32,
        /// If it was misused: how.
        fault: Option<Fault>,
    },
    /// The peer sent what the queue pair cannot accept.
    QpRequestError {
        /// The queue pair.
        qp: u32,
    },
    /// The peer violated the queue pair's protection.
    QpAccessError {
        /// The queue pair.
        qp: u32,
    },
    /// The first packet on a queue pair that is ready to receive only.
    CommunicationEstablished {
        /// The queue pair.
        qp: u32,
    },
    /// The send queue has drained.
    SendQueueDrained {
        /// The queue pair.
        qp: u32,
    },
    /// The device failed, was reset, or is gone: no object of this context lives any longer.
    DeviceFatal,
    /// The port came up.
    PortActive,
    /// The port went down.
    PortError,
    /// A shared receive queue failed.
    SrqError {
        /// The queue.
        srq: u32,
        /// If it was misused: how.
        fault: Option<Fault>,
    },
    /// Fewer receives than the limit are left.
    SrqLimitReached {
        /// The queue.
        srq: u32,
    },
    /// A queue pair in error takes no more from its shared receive queue.
    LastWqeReached {
        /// The queue pair.
        qp: u32,
    },
    /// An entry of the GID table changed.
    GidChange {
        /// Its index.
        index: u32,
    },
    /// The memory of a region is not shared with the device any more: every use of its keys is an error.
    MrLost {
        /// The region.
        mr: u32,
    },
    /// Events found no room to wait.
    EventsLost {
        /// How many.
        count: u64,
    },
}

/// How a queue was misused: a bug of this library, or of who wrote into its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// Which queue.
    pub queue: FaultQueue,
    /// What was wrong.
    pub reason: FaultReason,
    /// At which index.
    pub index: u32,
}
