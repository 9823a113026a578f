//! Asynchronous events.

pub use vnic_device::event::{FaultQueue, FaultReason};

/// What the device reports on its own, except completions. An event names an object by its number, as
/// [`QueuePair::number`](crate::QueuePair::number) gives it; the object may have been destroyed meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AsyncEvent {
    /// A completion queue overran, or was misused: it takes no more completions, and its queue pairs fail.
    CqError {
        /// The queue.
        cq: u32,
        /// How the queue was misused, if it was.
        fault: Option<Fault>,
    },
    /// A queue pair failed, because of the device, of its completion queue, or of a misused queue.
    QpFatal {
        /// The queue pair.
        qp: u32,
        /// How the queue was misused, if it was.
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
    /// The first packet came on a queue pair that is ready to receive only.
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
    /// The port has another LID, says the device.
    LidChange,
    /// The P_Keys of the port changed.
    PkeyChange,
    /// A shared receive queue failed.
    SrqError {
        /// The queue.
        srq: u32,
        /// How the queue was misused, if it was.
        fault: Option<Fault>,
    },
    /// Fewer receives than the limit are left in a shared receive queue.
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
        /// Index of the entry.
        index: u32,
    },
    /// The memory of a region is not shared with the device any more: every use of its keys is an error.
    MrLost {
        /// The region.
        mr: u32,
    },
    /// Events were lost for want of room.
    EventsLost {
        /// Number of lost events.
        count: u64,
    },
}

/// How a queue was misused: by a bug of this library, or by whoever else wrote into its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// The queue that was misused.
    pub queue: FaultQueue,
    /// What was wrong.
    pub reason: FaultReason,
    /// Index of the entry that was wrong.
    pub index: u32,
}
