//! What the QPs of a device share.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use vnic_wire::MacAddr;
use vnic_wire::bth::DEFAULT_PKEY;

use super::address_handle::AddressHandle;
use super::completion_queue::CompletionQueue;
use super::counters::Counters;
use super::gid::GidTable;
use super::handle::Table;
use super::limits::Limits;
use super::marks::{Mark, Marks};
use super::pool::Pool;
use super::qp::PooledSend;
use super::region::Regions;
use super::shared_receive_queue::SharedReceiveQueue;
use super::timer::Timers;
use super::types::{Completion, CqHandle, Event, Mtu, QpNumber, RecvWr, SrqHandle};

/// Everything of a device but its QPs.
#[derive(Debug)]
pub(super) struct Shared {
    pub mac: MacAddr,
    pub limits: Limits,
    pub mtu: Mtu,
    pub pin_source_port: bool,
    pub gids: GidTable,
    pub regions: Regions,
    pub cqs: Table<CompletionQueue>,
    pub srqs: Table<SharedReceiveQueue>,
    pub ahs: Table<AddressHandle>,
    pub counters: Counters,
    pub marks: Marks,
    pub timers: Timers,
    /// QPs that may have something to send, in the order of their turns.
    pub ready: VecDeque<QpNumber>,
    pub sends: Pool<PooledSend>,
    pub receives: Pool<RecvWr>,
    pub events: VecDeque<Event>,
    /// Completion queues that have overrun, and whose QPs do not know it yet.
    pub overrun: Vec<CqHandle>,
}

impl Shared {
    /// A work request is complete.
    pub fn complete(&mut self, cq: CqHandle, completion: Completion) {
        let Some(queue) = self.cqs.get_mut(cq.0) else {
            return;
        };
        let pushed = queue.push(completion);
        if pushed.event {
            self.event(Event::Completion(cq));
        }
        if pushed.overrun {
            self.marks.hit(Mark::CqOverrun);
            self.counters.cq_overrun += 1;
            self.event(Event::CqError(cq));
            self.overrun.push(cq);
        }
    }

    /// Something to tell the user.
    pub fn event(&mut self, event: Event) {
        self.events.push_back(event);
    }

    /// A receive of a shared queue.
    pub fn take_shared_receive(&mut self, srq: SrqHandle) -> Option<RecvWr> {
        let taken = self.srqs.get_mut(srq.0)?.pop()?;
        if taken.limit_reached {
            self.marks.hit(Mark::SrqLimit);
            self.event(Event::SrqLimitReached(srq));
        }
        Some(taken.wr)
    }

    /// Does a packet's P_Key match (IBTA 10.9.3)? The low 15 bits must, and one side must be a full member. The
    /// P_Key table has one entry: RoCE knows the default partition only (annex A16).
    pub fn partition_matches(&self, pkey: u16) -> bool {
        (pkey ^ DEFAULT_PKEY) & 0x7fff == 0
    }
}
