//! Service, arrival, change and removal of a core's bonds.

use vnic_engine::virtio_net::NetHdr;
use vnic_fabric::lag::{Affinity, Choice, Flow, LagError, Member, View};
use vnic_fabric::switch::{Egress, PortId};
use vnic_fabric::{DropReason, Instant};
use vnic_wire::EtherType;

use super::super::super::frame::{Metadata, OwnedFrame, RawFrame};
use super::super::super::news::CoreEvent;
use super::super::Outputs;
use super::super::bond::waiting::WaitingFrame;
use super::super::bond::wire::untag;
use super::super::bond::{BURST, BondPort, BondSide, Going, InBond, Next, flow_of};
use super::super::slot::Slot;

fn bond_at(slots: &mut [Slot], port: PortId) -> Option<&mut BondPort> {
    match slots.get_mut(usize::from(port.0)) {
        Some(Slot::Bond(bond)) => Some(bond),
        _ => None,
    }
}

impl Outputs {
    fn bond(&mut self, port: PortId) -> Option<&mut BondPort> {
        bond_at(&mut self.slots, port)
    }

    /// Does what is due for the bonds of this core. Returns the number of frames that left or were dropped.
    pub fn bonds_round(&mut self, now: Instant) -> usize {
        let mut work = 0;
        for i in 0..self.bonds.local.len() {
            let Some(&id) = self.bonds.local.get(i) else { break };
            let Some(bond) = self.bond(id) else { continue };
            bond.look(now);
            while work < BURST
                && let Some(next) = self.bond(id).and_then(|bond| bond.next(now))
            {
                work += 1;
                match next {
                    Next::Go(WaitingFrame { mut frame, .. }, going) => {
                        frame.with(|f, meta| self.give_member(going, f, meta));
                    }
                    Next::Drop(WaitingFrame { mut frame, flow, .. }, reason) => {
                        frame.with(|f, _| self.drop_bonded(id, Some(&flow), f, reason));
                    }
                }
            }
            self.report_moved(id);
        }
        work
    }

    fn report_moved(&mut self, port: PortId) {
        if self.bond(port).is_some_and(BondPort::has_moved) {
            self.report(CoreEvent::BondMoved { port });
        }
    }

    /// When a bond of this core has to act without a frame.
    pub fn bonds_due(&mut self, now: Instant) -> Option<Instant> {
        let Outputs { bonds, slots, .. } = self;
        let due = bonds.local.iter().filter_map(|id| {
            let bond = bond_at(slots, *id)?;
            bond.drain(now);
            bond.due()
        });
        due.min()
    }

    /// A member's link went up or down. Returns the number of frames dropped with it; they are not sent when the link is
    /// back.
    pub fn bond_link(&mut self, id: PortId, member: Member, up: bool, now: Instant) -> u64 {
        let Some(bond) = self.bond(id) else { return 0 };
        let Some(port) = bond.port(member) else { return 0 };
        bond.bond.set_link(now, member, up);
        bond.stir(now);
        let lost = bond.lost.get_mut(usize::from(member.0)).map(std::mem::take);
        if up {
            self.report_moved(id);
            return 0;
        }
        let mut dropped = lost.unwrap_or(0) + self.drop_queued(port, now);
        if let Some(Slot::Uplink(p)) = self.slots.get_mut(usize::from(port.0)) {
            dropped += p.drop_staged(DropReason::ReceiverDown);
        }
        self.report_moved(id);
        dropped
    }

    /// The device of a member is gone: its link is down, and the number of lost frames is kept until the control plane asks.
    #[cold]
    pub fn member_gone(&mut self, of: &InBond, now: Instant) {
        let dropped = self.bond_link(of.bond, of.member, false, now);
        if let Some(bond) = self.bond(of.bond)
            && let Some(lost) = bond.lost.get_mut(usize::from(of.member.0))
        {
            *lost = dropped;
        }
    }

    /// Sets whether LACP lets a member collect and distribute frames (IEEE 802.1AX).
    pub fn bond_lacp(
        &mut self,
        id: PortId,
        member: Member,
        collecting: bool,
        distributing: bool,
        now: Instant,
    ) {
        if let Some(bond) = self.bond(id) {
            bond.bond.set_lacp(now, member, collecting, distributing);
            bond.stir(now);
            self.report_moved(id);
        }
    }

    /// Sets or removes an affinity.
    pub fn bond_affinity(
        &mut self,
        id: PortId,
        what: Affinity,
        member: Option<Member>,
        now: Instant,
    ) -> Result<(), LagError> {
        let Some(bond) = self.bond(id) else {
            return Ok(());
        };
        bond.drain(now);
        match member {
            Some(member) => bond.bond.set_affinity(now, what, member)?,
            None => {
                bond.bond.remove_affinity(now, what);
            }
        }
        bond.stir(now);
        Ok(())
    }

    /// State of a bond.
    pub fn bond_view(&mut self, id: PortId, now: Instant) -> Option<View> {
        let bond = self.bond(id)?;
        bond.look(now);
        Some(bond.bond.view(now))
    }

    /// Takes the team's tag off a frame that came through a member. Returns the reason if the switch must not get the frame.
    pub fn refused_by_bond(
        &mut self,
        of: &InBond,
        bytes: &mut &mut [u8],
        hdr: &mut NetHdr,
    ) -> Option<DropReason> {
        let takes = |bond: &mut BondPort| bond.bond.receives(of.member);
        if !self.bond(of.bond).is_some_and(takes) {
            return Some(DropReason::BondInactive);
        }
        match of.vid {
            Some(vid) if !untag(vid, bytes, hdr) => Some(DropReason::VlanNotAllowed),
            _ => None,
        }
    }

    /// Adds or replaces a bond. Returns its members.
    pub fn set_bond(
        &mut self,
        id: PortId,
        members: Vec<PortId>,
        side: BondSide,
        now: Instant,
    ) -> Vec<PortId> {
        self.bonds.forget(id);
        let (slot, members) = match side {
            BondSide::Remote(other) => (Slot::Remote(other), members),
            BondSide::Local(setup) => {
                let members = setup.members.clone();
                self.bonds.local.push(id);
                (Slot::Bond(Box::new(BondPort::new(*setup, now))), members)
            }
        };
        self.bonds.all.push((id, members.clone()));
        let before = std::mem::replace(self.slot(id), slot);
        self.report_moved(id);
        if let Slot::Bond(mut before) = before {
            // Frames that waited in the bond before go through the new one, in their order.
            for line in (0..before.waiting.lines.len()).rev() {
                for WaitingFrame { mut frame, tag, .. } in before.waiting.take(line) {
                    frame.with(|f, meta| self.give_bond(Egress { port: id, tag }, f, meta));
                }
            }
        }
        members
    }

    /// Removes a port from a bond. Frames that wait at the port stay there.
    pub fn leave_bond(&mut self, id: PortId, port: PortId, now: Instant) {
        if let Some((_, known)) = self.bonds.all.iter_mut().find(|(bond, _)| *bond == id) {
            known.retain(|m| *m != port);
        }
        if let Some(bond) = self.bond(id)
            && let Some(i) = bond.members.iter().position(|m| *m == port)
        {
            bond.bond.set_link(now, Member(i as u8), false);
            bond.stir(now);
        }
    }

    /// Hands a frame to the member of a bond that carries its flow.
    pub(in super::super) fn give_bond(&mut self, e: Egress, f: &RawFrame<'_>, meta: &Metadata) {
        let (now, local_qp) = (self.round.now, meta.local_qp);
        let Some(bond) = self.bond(e.port) else { return };
        let flow = flow_of(f).map(|flow| Flow { local_qp, ..flow });
        let refused = match &flow {
            None => Some(DropReason::Runt),
            // Only the links of the bond themselves speak slow protocols.
            Some(flow) if flow.ethertype == EtherType::SLOW_PROTOCOLS => Some(DropReason::MacControl),
            Some(_) => bond.tag(e.tag, f.head).err(),
        };
        let (None, Some(flow)) = (refused, flow) else {
            return self.drop_bonded(e.port, flow.as_ref(), f, refused.unwrap_or(DropReason::Runt));
        };
        let choice = bond.bond.transmit(now, &flow, f.len as u32);
        if let Choice::Wait { until, slot } = choice {
            let frame = Some(f).filter(|f| bond.waiting.has_room(f.len));
            match frame.and_then(|f| OwnedFrame::copy(&f.whole(), meta.counted())) {
                Some(frame) => {
                    let tag = e.tag;
                    bond.waiting.push(slot, until, WaitingFrame { frame, flow, tag });
                }
                None => {
                    bond.bond.give_up(now, slot);
                    self.drop_bonded(e.port, Some(&flow), f, DropReason::EgressFull);
                }
            }
            return;
        }
        match bond.going(choice, e.tag, f.head) {
            Ok(going) => self.give_member(going, f, meta),
            Err(reason) => self.drop_bonded(e.port, Some(&flow), f, reason),
        }
    }

    fn give_member(&mut self, going: Going, f: &RawFrame<'_>, meta: &Metadata) {
        let Going { port, tag, ticket } = going;
        let meta = Metadata {
            ticket: Some(ticket),
            ..meta.clone()
        };
        self.give_port(Egress { port, tag }, f, &meta);
    }

    /// Drops a frame for a bond and counts it at the member that would have sent it.
    #[cold]
    fn drop_bonded(&mut self, bond: PortId, flow: Option<&Flow>, f: &RawFrame<'_>, reason: DropReason) {
        let Some(port) = self.bond(bond).and_then(|b| b.blamed(flow)) else {
            return;
        };
        if let Some(Slot::Uplink(p)) = self.slots.get(usize::from(port.0)) {
            p.count_drop(reason);
        }
        self.round.offer(port, &f.whole(), Some(reason), None);
    }
}
