//! Multicast (IBTA 10.5): datagrams for groups of QPs. The first members of a group get their copies with the packet; of a
//! larger group the others get theirs when the caller asks for it, so that no packet costs more than [`COPIES_AT_ONCE`] copies.

use alloc::vec::Vec;

use vnic_wire::gid::Gid;
use vnic_wire::roce::Path;
use vnic_wire::time::Instant;
use vnic_wire::transport::{Extended, Headers};

use super::super::marks::Mark;
use super::super::memory::Memory;
use super::super::packet::{Incoming, Payload};
use super::super::types::{Object, QpNumber, QpType, VerbsError};
use super::Device;

/// Members that get their copies with the packet.
pub const COPIES_AT_ONCE: usize = 16;
/// Datagrams that wait at most; a further one is lost to those members that do not get it at once.
const WAITING_MAX: usize = 64;
/// What a copy takes, as [`Device::take_work`] counts it.
const COPY: u32 = 4;

/// A datagram of which members of its group wait for their copies.
#[derive(Debug)]
pub(super) struct Waiting {
    path: Path,
    headers: Headers,
    payload: Vec<u8>,
    /// Who waits, the last one first.
    members: Vec<QpNumber>,
}

impl Device {
    /// Attaches a UD QP to a multicast group.
    pub fn attach_multicast(&mut self, qp: QpNumber, gid: Gid) -> Result<(), VerbsError> {
        let found = self.qps.get(qp.0).ok_or(VerbsError::NoSuch(Object::Qp))?;
        if found.init.qp_type != QpType::Ud {
            return Err(VerbsError::Invalid("multicast is for datagrams"));
        }
        self.groups.attach(qp, gid)
    }

    /// Detaches it.
    pub fn detach_multicast(&mut self, qp: QpNumber, gid: Gid) -> Result<(), VerbsError> {
        self.groups.detach(qp, gid)
    }

    /// The QPs that receive what is sent to a multicast group, in the order of their copies.
    pub fn members(&self, group: Gid) -> &[QpNumber] {
        self.groups.lookup(group)
    }

    /// Is a QP attached to a multicast group?
    pub fn is_in_group(&self, qp: QpNumber) -> bool {
        self.groups.users(qp) > 0
    }

    pub(super) fn receive_multicast(&mut self, now: Instant, packet: &Incoming<'_>, memory: &dyn Memory) {
        let members = self.groups.lookup(packet.path.network.destination());
        let datagram = matches!(packet.headers.extended, Extended::Deth(_) | Extended::DethImm(..));
        let shared = &mut self.shared;
        if members.is_empty() || !datagram {
            shared.counters.drop_no_qp += 1;
            return;
        }
        shared.marks.hit(Mark::Multicast);
        let (first, others) = members.split_at(members.len().min(COPIES_AT_ONCE));
        for member in first {
            if let Some(qp) = self.qps.get_mut(member.0) {
                shared.work = shared.work.saturating_add(COPY);
                qp.receive(shared, now, packet, memory);
            }
        }
        if others.is_empty() {
            return;
        }
        let mut payload = alloc::vec![0; packet.payload.len()];
        if self.copies.len() == WAITING_MAX || packet.payload.read(&mut payload).is_err() {
            shared.counters.out_of_buffer += others.len() as u64;
            return;
        }
        self.copies.push_back(Waiting {
            path: packet.path,
            headers: packet.headers,
            payload,
            members: others.iter().rev().copied().collect(),
        });
    }

    /// The member of a group that gets the next copy of a datagram that waits. None waits: none.
    #[inline]
    pub fn next_member(&self) -> Option<QpNumber> {
        self.copies.front()?.members.last().copied()
    }

    /// Gives [`next_member`](Device::next_member) its copy, unless it has left the group meanwhile.
    pub fn receive_copy(&mut self, now: Instant, memory: &dyn Memory) {
        let Some(waiting) = self.copies.front_mut() else {
            return;
        };
        let member = waiting.members.pop();
        let packet = Incoming {
            path: waiting.path,
            headers: waiting.headers,
            payload: Payload::Bytes(&waiting.payload),
            telemetry: None,
        };
        let members = self.groups.lookup(waiting.path.network.destination());
        if let Some(number) = member.filter(|number| members.contains(number))
            && let Some(qp) = self.qps.get_mut(number.0)
        {
            self.shared.now = now;
            self.shared.work = self.shared.work.saturating_add(COPY);
            qp.receive(&mut self.shared, now, &packet, memory);
        }
        if waiting.members.is_empty() {
            self.copies.pop_front();
        }
        self.fail_overrun();
    }
}
