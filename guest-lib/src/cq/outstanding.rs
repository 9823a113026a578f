//! Requests that have not completed when the device ends: a card's driver completes them itself, with a flush error.

use vnic_device::queue::{CompletionEntry, CompletionKind};
use vnic_device::verbs::CompletionStatus;

use super::WorkCompletion;

/// What was posted to a queue pair and has not completed.
pub(crate) trait Outstanding: Send + Sync {
    /// Ends the oldest request whose completion belongs to the completion queue of this number. The device is gone, and
    /// takes and completes nothing any more.
    fn flush(&self, cq: u32) -> Flushed;
}

/// A step of the end of a queue pair's requests.
pub(crate) enum Flushed {
    /// A request has ended.
    One(WorkCompletion),
    /// There is none.
    Nothing,
    /// Somebody posts at this moment.
    Busy,
}

/// The completion of a request that was flushed.
pub(crate) fn flushed(qp: u32, kind: CompletionKind, wr_id: u64) -> Flushed {
    Flushed::One(WorkCompletion(CompletionEntry {
        wr_id,
        qp,
        kind: kind.number(),
        status: CompletionStatus::FlushError.number(),
        ..CompletionEntry::default()
    }))
}
