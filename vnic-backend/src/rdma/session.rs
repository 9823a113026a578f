//! What a driver has made of an RDMA function.

use std::collections::VecDeque;

use vnic_device::command::qp::CreateQp;
use vnic_engine::rdma::{Object, limits};

use super::completions::CompletionRing;
use super::doorbells::DoorbellRing;
use super::events::Events;
use super::remap::Remap;
use super::slots::Slots;
use super::work_queue::{ReceiveQueue, SendQueue};

/// A queue pair's rings.
#[derive(Debug)]
pub struct QueuePair {
    /// The ring of its send queue.
    pub send: Option<SendQueue>,
    /// The ring of its own receive queue.
    pub receive: Option<ReceiveQueue>,
    /// The command that made it.
    pub created: CreateQp,
    /// It is in the list of those with unread requests.
    pub starving: bool,
    /// A fault of it was told.
    pub fault_told: bool,
}

/// A shared receive queue's ring.
#[derive(Debug)]
pub struct SharedReceive {
    /// The ring.
    pub queue: ReceiveQueue,
    /// The index that the driver was told.
    pub told: u32,
    /// It is in the list of those with unread receives.
    pub starving: bool,
    /// A fault of it was told.
    pub fault_told: bool,
}

/// What a driver has made of a function: a reset forgets it.
pub struct Session {
    /// Queue pairs.
    pub qps: Slots<QueuePair>,
    /// Shared receive queues.
    pub srqs: Slots<SharedReceive>,
    /// Completion queues.
    pub cqs: Slots<CompletionRing>,
    /// Doorbell rings.
    pub bells: Vec<Option<DoorbellRing>>,
    /// Events that the driver has not been told yet.
    pub events: Events,
    /// HELLO was said: the function takes packets.
    pub hello: bool,
    /// Minor version of the contract that HELLO has settled.
    pub minor: u16,
    /// Extents that rings have.
    pub ring_extents: u32,
    /// QPs with requests that the engine has not been given yet.
    pub starving: VecDeque<u32>,
    /// Shared receive queues with receives that the engine has not been given yet.
    pub starving_srqs: VecDeque<u32>,
    /// How many of `starving` have not been looked at since something happened.
    pub unlooked: usize,
    /// The doorbell ring that is looked at first.
    pub first_bell: usize,
    /// Doorbells of each ring that a command waits for, at most; empty if none waits.
    pub before_command: Vec<u32>,
    /// CQs whose driver must make room.
    pub full: VecDeque<u32>,
    /// What is looked at anew, because the guest shares other memory.
    pub remap: Option<Remap>,
}

impl Session {
    /// Makes what a function has before a driver makes anything.
    pub fn new() -> Session {
        let bits = |object| limits::handle_bits(object).0;
        Session {
            qps: Slots::new(bits(Object::Qp)),
            srqs: Slots::new(bits(Object::Srq)),
            cqs: Slots::new(bits(Object::Cq)),
            bells: Vec::new(),
            events: Events::default(),
            hello: false,
            minor: 0,
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
