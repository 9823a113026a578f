//! Bonds of a data core: several uplinks that are one port of the switch.
//!
//! ```text
//!  switch ─▶ bond: Flow::parse ─ transmit ─┬─ Send ─▶ the member's queues, faults, captures, device   (with a Ticket)
//!                                          └─ Wait ─▶ HeldFlows ─ its time ─▶ Send
//!  wire ─▶ member ─ slow protocol? ─ yes ─▶ control plane
//!                        └ no: does the bond take frames from it? ─ team's tag off ─▶ switch, as if it came from the bond
//! ```
//!
//! A bond is served by the core of its members. Members stay what they are for flow control, queues, faults, captures and
//! counters; only the switch sees the bond in their place.

mod held;
mod serve;

use std::sync::Arc;

use vnic_fabric::lag::{Bond, Choice, Flow, Member, Mode};
use vnic_fabric::switch::{Egress, PortId};
use vnic_fabric::{DropReason, Instant, TagEdit};
use vnic_wire::EtherType;
use vnic_wire::vlan::Tci;

use super::frame::{Metadata, OwnedFrame, RawFrame};
use super::outputs::{Outputs, Slot};
use super::ticket::{Ticket, Tickets};
use held::{HeldFlows, HeldFrame};

pub use serve::{Bonds, InBond, SlowLimit, is_slow};

/// Bytes of a frame in which its flow is looked for: two tunnels within each other, with IPv6.
const LOOK: usize = 256;

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

/// A bond on the core that serves it.
pub struct BondPort {
    bond: Bond,
    /// The ports, in its order.
    members: Vec<PortId>,
    tag: Option<Tci>,
    tickets: Arc<Tickets>,
    held: HeldFlows,
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
    Go(HeldFrame, Going),
    Drop(HeldFrame, DropReason),
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
            held: HeldFlows::default(),
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
        while let Some(line) = self.held.lines.get_mut(i) {
            let Some(front) = line.frames.front_mut().filter(|_| line.until <= now) else {
                i += 1;
                continue;
            };
            let (flow, len) = (front.flow, front.frame.bytes.len() as u32);
            let choice = self.bond.retry(now, line.slot, &flow, len);
            if let Choice::Wait { until, .. } = choice {
                line.until = until.max(now + serve::PAUSE);
                i += 1;
                continue;
            }
            let frame = self.held.pop(i)?;
            return match self.going(choice, frame.tag, frame.frame.head()) {
                Ok(going) => Some(Next::Go(frame, going)),
                Err(reason) => Some(Next::Drop(frame, reason)),
            };
        }
        None
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

impl Outputs {
    pub(super) fn bond(&mut self, port: PortId) -> Option<&mut BondPort> {
        match self.slots.get_mut(usize::from(port.0)) {
            Some(Slot::Bond(bond)) => Some(bond),
            _ => None,
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
            let frame = Some(f).filter(|f| bond.held.has_room(f.len));
            match frame.and_then(|f| OwnedFrame::copy(&f.whole(), meta.counted())) {
                Some(frame) => {
                    let tag = e.tag;
                    bond.held.push(slot, until, HeldFrame { frame, flow, tag });
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
