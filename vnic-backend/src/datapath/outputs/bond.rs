//! Bonds of a data core: several uplinks that are one port of the switch.
//!
//! ```text
//!  switch ─▶ bond: Flow::parse ─ transmit ─┬─ Send ─▶ the member's queues, faults, captures, device   (with a Ticket)
//!                                          └─ Wait ─▶ WaitingFlows ─ its time ─▶ Send
//!  wire ─▶ member ─ slow protocol? ─ yes ─▶ control plane
//!                        └ no: does the bond take frames from it? ─ team's tag off ─▶ switch, as if it came from the bond
//! ```
//!
//! The core of the members serves the bond. Members keep their flow control, queues, faults, captures and counters; only
//! the switch sees the bond in their place.

pub(super) mod waiting;
pub(super) mod wire;

use std::sync::Arc;
use std::time::Duration;

use vnic_fabric::lag::{Bond, Choice, Flow, Member, Mode};
use vnic_fabric::switch::PortId;
use vnic_fabric::{DropReason, Instant, TagEdit};
use vnic_wire::EtherType;
use vnic_wire::vlan::Tci;

use super::super::frame::RawFrame;
use super::super::ticket::{Ticket, Tickets};
use waiting::{WaitingFlows, WaitingFrame};

pub use wire::{InBond, SlowLimit, is_lldp, is_slow};

/// Bytes of a frame in which its flow is searched: two tunnels within each other, with IPv6.
const LOOK: usize = 256;
/// Least time between two looks at a bond whose flows are to move.
const PAUSE: Duration = Duration::from_micros(50);
/// Frames that a bond releases before other ports get their turn.
pub(super) const BURST: usize = 256;

/// Setup of a bond for the core that serves it.
pub struct BondSetup {
    /// The state machine; its links are down, its affinities are set.
    pub bond: Bond,
    /// The members, in the order of [`BondSetup::bond`].
    pub members: Vec<PortId>,
    /// VLAN identifier and priority on the wire: sent frames get this tag, received frames must have the VLAN and lose it.
    pub tag: Option<Tci>,
    /// Members whose link is up.
    pub up: Vec<Member>,
}

/// The core that serves a bond.
pub enum BondSide {
    /// This core.
    Local(Box<BondSetup>),
    /// Another core.
    Remote(usize),
}

/// Bonds that a core knows.
#[derive(Default)]
pub struct Bonds {
    /// All bonds with their members, of this core and of others.
    pub(super) all: Vec<(PortId, Vec<PortId>)>,
    /// Bonds that this core serves.
    pub local: Vec<PortId>,
}

impl Bonds {
    /// The members of the bond with this number.
    pub fn members(&self, id: PortId) -> Option<&Vec<PortId>> {
        self.all.iter().find(|(bond, _)| *bond == id).map(|(_, m)| m)
    }

    /// Removes the bond with this number.
    pub fn forget(&mut self, id: PortId) {
        self.all.retain(|(bond, _)| *bond != id);
        self.local.retain(|bond| *bond != id);
    }
}

/// A bond on the core that serves it.
pub struct BondPort {
    pub(super) bond: Bond,
    /// The members' ports, in the order of `bond`.
    pub(super) members: Vec<PortId>,
    tag: Option<Tci>,
    tickets: Arc<Tickets>,
    pub(super) waiting: WaitingFlows,
    /// Whether flows are to move: `bond` then has to be asked now and then.
    moving: bool,
    /// When `bond` is asked next.
    next_look: Instant,
    /// Moves that were reported to the control plane.
    moves: u64,
    /// Frames that were dropped with a member and not yet read, by member.
    pub(super) lost: Vec<u64>,
}

/// Port, tag and ticket of a frame that a bond sends.
pub(super) struct Going {
    pub(super) port: PortId,
    pub(super) tag: TagEdit,
    pub(super) ticket: Ticket,
}

/// A frame that has waited in a bond, and its fate.
pub(super) enum Next {
    Go(WaitingFrame, Going),
    Drop(WaitingFrame, DropReason),
}

impl BondPort {
    pub(super) fn new(setup: BondSetup, now: Instant) -> BondPort {
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

    pub(super) fn port(&self, member: Member) -> Option<PortId> {
        self.members.get(usize::from(member.0)).copied()
    }

    /// The edit of a frame's tag on the wire, from the edit that the switch wants. A team with a VLAN puts its tag on all
    /// frames; a frame must not have a tag then, except one that is only a priority, which the team's tag replaces.
    pub(super) fn tag(&self, tag: TagEdit, head: &[u8]) -> Result<TagEdit, DropReason> {
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

    pub(super) fn going(&self, choice: Choice, tag: TagEdit, head: &[u8]) -> Result<Going, DropReason> {
        let Choice::Send { member, slot } = choice else {
            return Err(DropReason::ReceiverDown);
        };
        // The dropped ticket reports the departure, whatever happens to the frame.
        let ticket = Ticket::new(&self.tickets, slot);
        let port = self.port(member).ok_or(DropReason::ReceiverDown)?;
        let tag = self.tag(tag, head)?;
        Ok(Going { port, tag, ticket })
    }

    /// The port at which a frame that is not sent is counted.
    pub(super) fn blamed(&self, flow: Option<&Flow>) -> Option<PortId> {
        let member = flow.and_then(|flow| self.bond.member_of(flow));
        member
            .and_then(|m| self.port(m))
            .or(self.members.first().copied())
    }

    /// The next waiting frame that may go, or has to be dropped, now.
    pub(super) fn next(&mut self, now: Instant) -> Option<Next> {
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

    /// Does what is due at this time.
    #[inline]
    pub(super) fn look(&mut self, now: Instant) {
        self.drain(now);
        if self.moving && now >= self.next_look {
            self.bond.tick(now);
            self.moving = self.bond.is_moving();
            let next = self.bond.next_time();
            self.next_look = next.unwrap_or(now).max(now + PAUSE);
        }
    }

    /// Tells the bond which slots have no frames in flight any more.
    #[inline]
    pub(super) fn drain(&mut self, now: Instant) {
        let bond = &mut self.bond;
        self.tickets.drain(|slot| bond.all_departed(now, slot));
    }

    /// Acts on a change at once: `bond` and all waiting lines are asked again.
    pub(super) fn stir(&mut self, now: Instant) {
        self.moving = true;
        self.next_look = now;
        for line in &mut self.waiting.lines {
            line.until = now;
        }
    }

    pub(super) fn due(&self) -> Option<Instant> {
        let moving = self.bond.next_time().filter(|_| self.moving);
        let moving = moving.map(|at| at.max(self.next_look));
        moving.into_iter().chain(self.waiting.next_time()).min()
    }

    /// Whether addresses are behind another port since the last call, because an active-backup bond moved.
    pub(super) fn has_moved(&mut self) -> bool {
        let moves = self.bond.moves();
        let moved = std::mem::replace(&mut self.moves, moves) != moves;
        moved && matches!(self.bond.settings().mode, Mode::ActiveBackup { .. })
    }
}

/// Reads the flow of a frame.
pub(super) fn flow_of(f: &RawFrame<'_>) -> Option<Flow> {
    if f.head.len() >= f.len.min(LOOK) {
        return Flow::parse(f.head);
    }
    let mut bytes = [0; LOOK];
    let n = f.peek(&mut bytes);
    Flow::parse(&bytes[..n])
}
