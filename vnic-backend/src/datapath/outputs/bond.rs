//! Bonds of a data core: several uplinks that are one port of the switch.
//!
//! ```text
//!  switch ─▶ bond: Flow::parse ─ transmit ─┬─ Send ─▶ the member's queues, faults, captures, device   (with a Ticket)
//!                                          └─ Wait ─▶ WaitingFlows ─ its time ─▶ Send
//!  wire ─▶ member ─ slow protocol? ─ yes ─▶ control plane
//!                        └ no: does the bond take frames from it? ─ team's tag off ─▶ switch, as if it came from the bond
//! ```
//!
//! A bond is served by the core of its members. Members stay what they are for flow control, queues, faults, captures and
//! counters; only the switch sees the bond in their place.

mod waiting;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use vnic_engine::virtio_net::NetHdr;
use vnic_fabric::lag::{Affinity, Bond, Choice, Flow, LagError, Member, Mode, View};
use vnic_fabric::switch::{Egress, PortId};
use vnic_fabric::{DropReason, Instant, TagEdit};
use vnic_wire::EtherType;
use vnic_wire::vlan::Tci;

use super::super::frame::{Metadata, OwnedFrame, RawFrame};
use super::super::news::CoreEvent;
use super::super::ticket::{Ticket, Tickets};
use super::{Outputs, Slot};
use waiting::{WaitingFlows, WaitingFrame};
use wire::untag;

pub use wire::{InBond, SlowLimit, is_slow};

/// Bytes of a frame in which its flow is looked for: two tunnels within each other, with IPv6.
const LOOK: usize = 256;
/// What is to move is looked at this often.
const PAUSE: Duration = Duration::from_micros(50);
/// Frames that a bond lets go before others get their turn.
const BURST: usize = 256;

/// Members of a bond at the core that serves them.
pub struct BondSetup {
    /// The machine, its links down; affinities are set.
    pub bond: Bond,
    /// The members, in its order.
    pub members: Vec<PortId>,
    /// VLAN identifier and priority on the wire: all that is sent gets this tag, what comes must have the VLAN and loses it.
    pub tag: Option<Tci>,
    /// Members whose link is up.
    pub up: Vec<Member>,
}

/// Who serves a bond.
pub enum BondSide {
    /// This core.
    Local(Box<BondSetup>),
    /// Another core.
    Remote(usize),
}

/// Bonds that a core knows.
#[derive(Default)]
pub struct Bonds {
    /// With their members, whoever serves them.
    all: Vec<(PortId, Vec<PortId>)>,
    /// Those of this core.
    pub local: Vec<PortId>,
}

impl Bonds {
    /// The members of a bond, if there is one of this number.
    pub fn members(&self, id: PortId) -> Option<&Vec<PortId>> {
        self.all.iter().find(|(bond, _)| *bond == id).map(|(_, m)| m)
    }

    /// A bond is removed, by its number.
    pub fn forget(&mut self, id: PortId) {
        self.all.retain(|(bond, _)| *bond != id);
        self.local.retain(|bond| *bond != id);
    }
}

/// A bond on the core that serves it.
pub struct BondPort {
    bond: Bond,
    /// The ports, in its order.
    members: Vec<PortId>,
    tag: Option<Tci>,
    tickets: Arc<Tickets>,
    waiting: WaitingFlows,
    /// Something is to move: it has to be asked now and then.
    moving: bool,
    /// When.
    next_look: Instant,
    /// Moves that the control plane knows of.
    moves: u64,
    /// Frames that were dropped with a member, of which nobody has asked.
    lost: Vec<u64>,
}

/// Where a frame of a bond goes.
struct Going {
    port: PortId,
    tag: TagEdit,
    ticket: Ticket,
}

/// A frame that a bond has let go, or drops.
enum Next {
    Go(WaitingFrame, Going),
    Drop(WaitingFrame, DropReason),
}

impl BondPort {
    fn new(setup: BondSetup, now: Instant) -> BondPort {
        let BondSetup {
            mut bond,
            members,
            tag,
            up,
        } = setup;
        for member in up {
            bond.set_link(now, member, true);
        }
        BondPort {
            bond,
            lost: vec![0; members.len()],
            members,
            tag,
            tickets: Tickets::new(),
            waiting: WaitingFlows::default(),
            moving: true,
            next_look: now,
            moves: 0,
        }
    }

    fn port(&self, member: Member) -> Option<PortId> {
        self.members.get(usize::from(member.0)).copied()
    }

    /// What the tag of a frame becomes that the switch wants to leave so. Of a team with a VLAN all leaves with its tag, and
    /// nothing may have one already; a tag that is only a priority gives way.
    fn tag(&self, tag: TagEdit, head: &[u8]) -> Result<TagEdit, DropReason> {
        let Some(Tci(own)) = self.tag else { return Ok(tag) };
        let is = |at: usize| head.get(at..at + 2) == Some(&EtherType::VLAN.0.to_be_bytes()[..]);
        let priority_only = || matches!(head.get(14..16), Some([a, 0]) if a & 0xf == 0);
        match tag {
            TagEdit::Keep if !is(12) => Ok(TagEdit::Push(own)),
            TagEdit::Keep if priority_only() && !is(16) => Ok(TagEdit::Replace(own)),
            TagEdit::Pop if !is(16) => Ok(TagEdit::Replace(own)),
            TagEdit::Push(tci) if Tci(tci).vid() == 0 && !is(12) => Ok(TagEdit::Push(own)),
            TagEdit::Replace(tci) if Tci(tci).vid() == 0 && !is(16) => Ok(TagEdit::Replace(own)),
            _ => Err(DropReason::VlanNotAllowed),
        }
    }

    fn going(&self, choice: Choice, tag: TagEdit, head: &[u8]) -> Result<Going, DropReason> {
        let Choice::Send { member, slot } = choice else {
            return Err(DropReason::ReceiverDown);
        };
        // Whatever becomes of it, it has departed when this is gone.
        let ticket = Ticket::new(&self.tickets, slot);
        let port = self.port(member).ok_or(DropReason::ReceiverDown)?;
        let tag = self.tag(tag, head)?;
        Ok(Going { port, tag, ticket })
    }

    /// Whose counters a frame is on that goes nowhere.
    fn blamed(&self, flow: Option<&Flow>) -> Option<PortId> {
        let member = flow.and_then(|flow| self.bond.member_of(flow));
        member
            .and_then(|m| self.port(m))
            .or(self.members.first().copied())
    }

    /// The next frame of those that wait that may go now.
    fn next(&mut self, now: Instant) -> Option<Next> {
        let mut i = 0;
        while let Some(line) = self.waiting.lines.get_mut(i) {
            let Some(front) = line.frames.front_mut().filter(|_| line.until <= now) else {
                i += 1;
                continue;
            };
            let (flow, len) = (front.flow, front.frame.bytes.len() as u32);
            let choice = self.bond.retry(now, line.slot, &flow, len);
            if let Choice::Wait { until, .. } = choice {
                line.until = until.max(now + PAUSE);
                i += 1;
                continue;
            }
            let frame = self.waiting.pop(i)?;
            return match self.going(choice, frame.tag, frame.frame.head()) {
                Ok(going) => Some(Next::Go(frame, going)),
                Err(reason) => Some(Next::Drop(frame, reason)),
            };
        }
        None
    }

    /// What is due.
    #[inline]
    fn look(&mut self, now: Instant) {
        self.drain(now);
        if self.moving && now >= self.next_look {
            self.bond.tick(now);
            self.moving = self.bond.is_moving();
            let next = self.bond.next_time();
            self.next_look = next.unwrap_or(now).max(now + PAUSE);
        }
    }

    /// Slots of which nothing is under way any more hear of it.
    #[inline]
    fn drain(&mut self, now: Instant) {
        let bond = &mut self.bond;
        self.tickets.drain(|slot| bond.all_departed(now, slot));
    }

    /// Something was told: it acts now.
    fn stir(&mut self, now: Instant) {
        self.moving = true;
        self.next_look = now;
        for line in &mut self.waiting.lines {
            line.until = now;
        }
    }

    fn due(&self) -> Option<Instant> {
        let moving = self.bond.next_time().filter(|_| self.moving);
        let moving = moving.map(|at| at.max(self.next_look));
        moving.into_iter().chain(self.waiting.next_time()).min()
    }

    /// Has it moved since this was asked last, so that addresses are behind another port?
    fn has_moved(&mut self) -> bool {
        let moves = self.bond.moves();
        let moved = std::mem::replace(&mut self.moves, moves) != moves;
        moved && matches!(self.bond.settings().mode, Mode::ActiveBackup { .. })
    }
}

/// Reads the flow of a frame.
fn flow_of(f: &RawFrame<'_>) -> Option<Flow> {
    if f.head.len() >= f.len.min(LOOK) {
        return Flow::parse(f.head);
    }
    let mut bytes = [0; LOOK];
    let n = f.peek(&mut bytes);
    Flow::parse(&bytes[..n])
}

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

    /// Does for the bonds of this core what is due. Answers how much there was.
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

    /// When a bond of this core has something to do that no frame brings about.
    pub fn bonds_due(&mut self, now: Instant) -> Option<Instant> {
        let Outputs { bonds, slots, .. } = self;
        let due = bonds.local.iter().filter_map(|id| {
            let bond = bond_at(slots, *id)?;
            bond.drain(now);
            bond.due()
        });
        due.min()
    }

    /// A member's link went up or down. Answers how many frames were dropped with it: they are not sent when it is back.
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

    /// The device of a member is gone: its link is down, and the control plane asks later how many frames that cost.
    #[cold]
    pub fn member_gone(&mut self, of: &InBond, now: Instant) {
        let dropped = self.bond_link(of.bond, of.member, false, now);
        if let Some(bond) = self.bond(of.bond)
            && let Some(lost) = bond.lost.get_mut(usize::from(of.member.0))
        {
            *lost = dropped;
        }
    }

    /// Link aggregation control says who takes and who sends frames.
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

    /// Sets an affinity, or takes it away.
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

    /// How a bond is now.
    pub fn bond_view(&mut self, id: PortId, now: Instant) -> Option<View> {
        let bond = self.bond(id)?;
        bond.look(now);
        Some(bond.bond.view(now))
    }

    /// Why a frame that came by a member is not for the switch; otherwise it loses the team's tag.
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

    /// A bond exists, or is another one from now on. Answers its members.
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
            // What waited goes the new way, in its order.
            for line in (0..before.waiting.lines.len()).rev() {
                for WaitingFrame { mut frame, tag, .. } in before.waiting.take(line) {
                    frame.with(|f, meta| self.give_bond(Egress { port: id, tag }, f, meta));
                }
            }
        }
        members
    }

    /// A port is no member of a bond any more. What waits there goes on waiting.
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

    /// Hands a frame to the member of a bond that its flow is on.
    pub(super) fn give_bond(&mut self, e: Egress, f: &RawFrame<'_>, meta: &Metadata) {
        let (now, local_qp) = (self.round.now, meta.local_qp);
        let Some(bond) = self.bond(e.port) else { return };
        let flow = flow_of(f).map(|flow| Flow { local_qp, ..flow });
        let refused = match &flow {
            None => Some(DropReason::Runt),
            // Links of the bond speak these, nobody else.
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

    /// Drops a frame for a bond; the member that it would have gone by is charged with it.
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
