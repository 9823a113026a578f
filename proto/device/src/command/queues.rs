//! Commands about completion queues, shared receive queues and doorbell rings.

use crate::ring::ExtentList;

layouts! {
    /// Body of [`Opcode::CreateCq`](super::Opcode::CreateCq).
    struct CreateCq: 16 {
        /// Entries: a power of two.
        0 entries: u32,
        /// Event queue that gets the events of this queue, from 0.
        4 event_queue: u32,
        /// Entries, and then a [`CompletionTail`](crate::queue::CompletionTail).
        8 ring: ExtentList,
    }

    /// Body of [`Opcode::ResizeCq`](super::Opcode::ResizeCq).
    struct ResizeCq: 16 {
        /// The queue.
        0 cq: u32,
        /// Entries of the new ring.
        4 entries: u32,
        /// The new ring.
        8 ring: ExtentList,
    }

    /// Reply to [`Opcode::ResizeCq`](super::Opcode::ResizeCq).
    struct ResizeCqReply: 8 {
        /// Completions that were ever written to the old ring, modulo 2^32. The following ones are in the new ring, from
        /// its entry 0.
        0 produced: u32,
        /// Zero.
        4 reserved: u32,
    }

    /// Body of [`Opcode::CreateSrq`](super::Opcode::CreateSrq).
    struct CreateSrq: 32 {
        /// Protection domain.
        0 pd: u32,
        /// Entries: a power of two.
        4 entries: u32,
        /// Most elements of a receive; an entry has [`receive_stride`](crate::queue::receive_stride) bytes.
        8 elements: u32,
        /// For XRC: the domain. Otherwise [`NONE`](super::NONE).
        12 xrcd: u32,
        /// For XRC: the completion queue. Otherwise [`NONE`](super::NONE).
        16 cq: u32,
        /// Zero.
        20 reserved: u32,
        /// Entries, and then a [`SharedReceiveTail`](crate::queue::SharedReceiveTail) on a cache line of its own.
        24 ring: ExtentList,
    }

    /// Body of [`Opcode::ModifySrq`](super::Opcode::ModifySrq).
    struct ModifySrq: 16 {
        /// The queue.
        0 srq: u32,
        /// [`srq_mask`](crate::verbs::srq_mask).
        4 mask: u32,
        /// The device raises an event once when fewer receives are left; 0: none.
        8 limit: u32,
        /// Receives that may wait: at most the ring's entries.
        12 max_wr: u32,
    }

    /// Reply to [`Opcode::QuerySrq`](super::Opcode::QuerySrq).
    struct SrqReply: 16 {
        /// Receives that wait.
        0 waiting: u32,
        /// Receives that may wait.
        4 max_wr: u32,
        /// The limit that is armed, or 0.
        8 limit: u32,
        /// Zero.
        12 reserved: u32,
    }

    /// Body of [`Opcode::CreateDoorbells`](super::Opcode::CreateDoorbells).
    struct CreateDoorbells: 16 {
        /// Entries: a power of two, within [`ENTRIES`](crate::doorbell::ENTRIES).
        0 entries: u32,
        /// Wake-up queue that is kicked for the ring, from 0.
        4 wake_queue: u32,
        /// Entries, and then a [`DoorbellTail`](crate::doorbell::DoorbellTail).
        8 ring: ExtentList,
    }
}
