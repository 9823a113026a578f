//! Objects that a driver has made in an RDMA function.

use std::collections::VecDeque;

use vnic_device::command::qp::CreateQp;
use vnic_engine::rdma::{Object, Place, limits};

use super::completions::CompletionRing;
use super::doorbells::DoorbellRing;
use super::events::Events;
use super::remap::Remap;
use super::slots::Slots;
use super::work_queue::{ReceiveQueue, SendQueue};

/// Rings of a queue pair.
#[derive(Debug)]
pub struct QueuePair {
    /// Send queue.
    pub send: Option<SendQueue>,
    /// Receive queue, if the queue pair has its own.
    pub receive: Option<ReceiveQueue>,
    /// The command that made the queue pair.
    pub created: CreateQp,
    /// Whether the queue pair is in [`Session::starving`].
    pub starving: bool,
    /// Whether a fault of it was reported.
    pub fault_told: bool,
}

/// Ring of a shared receive queue.
#[derive(Debug)]
pub struct SharedReceive {
    /// Receive queue.
    pub queue: ReceiveQueue,
    /// Whether the shared receive queue is in [`Session::starving_srqs`].
    pub starving: bool,
    /// Whether a fault of it was reported.
    pub fault_told: bool,
}

/// Objects that a driver has made; a reset drops them.
// Wide: what belongs to a driver and ends with it.
pub struct Session {
    /// Queue pairs.
    pub qps: Slots<QueuePair>,
    /// Shared receive queues.
    pub srqs: Slots<SharedReceive>,
    /// Completion queues.
    pub cqs: Slots<CompletionRing>,
    /// Doorbell rings.
    pub bells: Vec<Option<DoorbellRing>>,
    /// Events that the driver has not got yet.
    pub events: Events,
    /// Whether HELLO was done: the function takes packets.
    pub hello: bool,
    /// Whether the device has failed: it takes nothing but a reset.
    pub failed: bool,
    /// Minor version that HELLO has negotiated.
    pub minor: u16,
    /// Posts that the driver was told to ask about.
    pub watched: u32,
    /// Number of extents of all rings.
    pub ring_extents: u32,
    /// QPs with requests that the engine has not got yet.
    pub starving: VecDeque<u32>,
    /// Shared receive queues with receives that the engine has not got yet.
    pub starving_srqs: VecDeque<u32>,
    /// Number of QPs in `starving` that were not looked at since the last change.
    pub unlooked: usize,
    /// The doorbell ring that is served first.
    pub first_bell: usize,
    /// Largest number of doorbells of each ring for which a command waits; empty if no command waits.
    pub before_command: Vec<u32>,
    /// CQs in which the driver has to make room.
    pub full: VecDeque<u32>,
    /// Check of all references to memory, if the guest's memory has changed.
    pub remap: Option<Remap>,
}

impl Session {
    /// A function without objects of a driver; `place`: of its device.
    pub fn new(place: Option<Place>) -> Session {
        let bits = |object| limits::index_bits(object, place);
        Session {
            qps: Slots::new(bits(Object::Qp)),
            srqs: Slots::new(bits(Object::Srq)),
            cqs: Slots::new(bits(Object::Cq)),
            bells: Vec::new(),
            events: Events::default(),
            hello: false,
            failed: false,
            minor: 0,
            watched: 0,
            ring_extents: 0,
            starving: VecDeque::new(),
            starving_srqs: VecDeque::new(),
            unlooked: 0,
            first_bell: 0,
            before_command: Vec::new(),
            full: VecDeque::new(),
            remap: None,
        }
    }
}
