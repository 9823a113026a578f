//! Events: what the device reports on its own. One record fills one device-writable buffer of an event virtqueue.

numbers! {
    /// What an event is about: numbers of `ibv_event_type`, and our own from 256.
    enum EventKind: u32 {
        /// A CQ overran: it is in error.
        CqError = 0,
        /// A QP failed for a reason of the device.
        QpFatal = 1,
        /// The peer sent what the QP cannot accept.
        QpRequestError = 2,
        /// The peer violated the QP's protection.
        QpAccessError = 3,
        /// First packet on a QP that was ready to receive only.
        CommunicationEstablished = 4,
        /// The send queue has drained.
        SendQueueDrained = 5,
        /// The device has failed: only a reset helps.
        DeviceFatal = 8,
        /// The port came up.
        PortActive = 9,
        /// The port went down.
        PortError = 10,
        /// The port has another LID. A device for RoCE has none: it tells this on purpose only.
        LidChange = 11,
        /// The P_Key table changed. Since 1.9.
        PkeyChange = 12,
        /// An SRQ failed.
        SrqError = 14,
        /// Fewer receives than the limit are left in an SRQ.
        SrqLimitReached = 15,
        /// A QP in error takes no more from its SRQ.
        LastWqeReached = 16,
        /// An entry of the GID table changed; `object` is its index.
        GidChange = 18,
        /// An armed CQ has a completion; `detail` is the number of completions written so far, modulo 2^32.
        Completion = 256,
        /// A memory region lost its memory: the guest does not share it any more.
        MrLost = 257,
        /// A queue was given something that the contract does not allow: see [`fault_detail`].
        QueueFault = 258,
        /// `detail` events were lost: they found no buffer and no room to wait.
        EventsLost = 259,
        /// Other posts are watched: `object` is what [`DeviceReply::watched_posts`] would be now. Since 1.3.
        ///
        /// [`DeviceReply::watched_posts`]: crate::command::device::DeviceReply::watched_posts
        PostsWatched = 260,
        /// Accesses to a region on demand wait for pages: see [`pages_detail`]. Since 1.3.
        PageFault = 261,
        /// Something has happened to connections, for the first time since all was taken. Since 1.4.
        ConnectionEvents = 262,
    }

    /// The queue of the object that had a [`EventKind::QueueFault`].
    enum FaultQueue: u8 {
        /// The send queue of a QP.
        Send = 0,
        /// The receive queue of a QP.
        Receive = 1,
        /// An SRQ.
        SharedReceive = 2,
        /// A CQ.
        Completion = 3,
        /// A doorbell ring.
        Doorbells = 4,
    }

    /// What was wrong.
    enum FaultReason: u8 {
        /// A producer index runs ahead of the ring by more than it has entries.
        Index = 1,
        /// An operation that does not exist, or that the type of QP does not have.
        Operation = 2,
        /// A flag, kind or reserved bit that is not zero.
        Reserved = 3,
        /// More elements or inline bytes than agreed, or a work request that reaches beyond what was posted.
        Length = 4,
        /// The memory of the ring is not shared any more.
        Memory = 5,
    }
}

/// Events that can wait for a buffer, at least, before some are lost. Events of armed CQs are never lost.
pub const PENDING_MIN: u32 = 1024;

/// [`EventRecord::detail`] of a [`EventKind::QueueFault`]: bits 0..=7 the queue, 8..=15 the reason, 32..=63 the index of
/// the entry.
pub const fn fault_detail(queue: FaultQueue, reason: FaultReason, index: u32) -> u64 {
    (index as u64) << 32 | (reason as u64) << 8 | queue as u64
}

/// Takes the detail of a [`EventKind::QueueFault`] apart. `None`: it is of another version.
pub const fn fault(detail: u64) -> Option<(FaultQueue, FaultReason, u32)> {
    match (
        FaultQueue::from_number(detail as u8),
        FaultReason::from_number((detail >> 8) as u8),
    ) {
        (Some(queue), Some(reason)) => Some((queue, reason, (detail >> 32) as u32)),
        _ => None,
    }
}

/// Most pages of an [`EventKind::PageFault`].
pub const FAULT_PAGES_MAX: u64 = (1 << 18) - 1;

/// [`EventRecord::detail`] of a [`EventKind::PageFault`]: bits 0..=17 the number of pages of 4096 bytes, 18 whether they are to be
/// written, 19..=63 the first of them, counted from the region's first byte. More pages than [`FAULT_PAGES_MAX`] are cut.
pub const fn pages_detail(first: u64, pages: u64, write: bool) -> u64 {
    let pages = if pages > FAULT_PAGES_MAX {
        FAULT_PAGES_MAX
    } else {
        pages
    };
    first << 19 | (write as u64) << 18 | pages
}

/// Takes the detail of a [`EventKind::PageFault`] apart: first page, pages, whether they are to be written.
pub const fn pages(detail: u64) -> (u64, u64, bool) {
    (detail >> 19, detail & FAULT_PAGES_MAX, detail >> 18 & 1 == 1)
}

layouts! {
    /// An event.
    struct EventRecord: 32 {
        /// [`EventKind`].
        0 kind: u32,
        /// Number of the object.
        4 object: u32,
        /// Details, by the kind of event.
        8 detail: u64,
        /// Zero.
        16 reserved: [u64; 2],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_packed_and_unpacked() {
        for (first, count, write) in [
            (0, 1, false),
            ((1 << 45) - 1, FAULT_PAGES_MAX, true),
            (77, 3, true),
        ] {
            assert_eq!(pages(pages_detail(first, count, write)), (first, count, write));
        }
        assert_eq!(
            pages(pages_detail(5, u64::MAX, false)),
            (5, FAULT_PAGES_MAX, false)
        );
    }

    #[test]
    fn faults_are_packed_and_unpacked() {
        for queue in FaultQueue::ALL {
            for reason in FaultReason::ALL {
                for index in [0, 1, u32::MAX] {
                    let detail = fault_detail(queue, reason, index);
                    assert_eq!(fault(detail), Some((queue, reason, index)));
                }
            }
        }
        assert_eq!(fault(0), None);
    }
}
