//! Bonds come, change and go; what they have to do without a frame; frames from the wire of their members.

use std::time::Duration;

use vnic_engine::virtio_net::NetHdr;
use vnic_fabric::lag::{Affinity, LagError, Member, View};
use vnic_fabric::switch::{PortConfig, PortId};
use vnic_fabric::{DropReason, Instant};
use vnic_wire::EtherType;
use vnic_wire::lacp::DESTINATION;

use super::super::core::Core;
use super::super::frame::OutFrame;
use super::super::news::CoreEvent;
use super::super::outputs::Slot;
use super::held::HeldFrame;
use super::{BondPort, BondSetup, BondSide, Next};
use crate::types::Direction;

/// What is to move is looked at this often.
pub const PAUSE: Duration = Duration::from_micros(50);
/// Frames that a bond lets go before others get their turn.
const BURST: usize = 256;
/// Bytes of the longest frame of a slow protocol (IEEE 802.3 annex 57A, 57B: of the organization specific one), without FCS.
const SLOW_LEN_MAX: usize = 1514;
/// Slow protocols send ten frames a second at most (IEEE 802.3 clause 57A.2), each of them: what is far more is no
/// protocol.
const SLOW_A_SECOND: u32 = 100;

/// Bonds that a core knows.
#[derive(Default)]
pub struct Bonds {
    /// With their members, whoever serves them.
    all: Vec<(PortId, Vec<PortId>)>,
    /// Those of this core.
    pub local: Vec<PortId>,
}

/// What an uplink knows of its bond.
pub struct InBond {
    /// The bond.
    pub bond: PortId,
    member: Member,
    /// What comes must be of this VLAN.
    vid: Option<u16>,
}

impl InBond {
    /// Of a port, if it is a member.
    pub fn of(bond: PortId, setup: &BondSetup, port: PortId) -> Option<InBond> {
        let place = setup.members.iter().position(|m| *m == port)?;
        Some(InBond {
            bond,
            member: Member(place as u8),
            vid: setup.tag.map(|tag| tag.vid()),
        })
    }
}

/// How many frames of slow protocols an uplink tells the control plane of.
#[derive(Default)]
pub struct SlowLimit {
    since: Instant,
    frames: u32,
}

impl SlowLimit {
    /// Is another one of so many bytes allowed?
    pub fn allows(&mut self, now: Instant, len: usize) -> bool {
        if now.since(self.since) >= Duration::from_secs(1) {
            (self.since, self.frames) = (now, 0);
        }
        self.frames = self.frames.saturating_add(1);
        self.frames <= SLOW_A_SECOND && len <= SLOW_LEN_MAX
    }
}

/// Is it of a slow protocol, which links speak (IEEE 802.3 annex 57A)?
#[inline]
pub fn is_slow(head: &[u8]) -> bool {
    head.starts_with(&DESTINATION.0) || head.get(12..14) == Some(&EtherType::SLOW_PROTOCOLS.0.to_be_bytes())
}

impl BondPort {
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
        for line in &mut self.held.lines {
            line.until = now;
        }
    }

    fn due(&self) -> Option<Instant> {
        let moving = self.bond.next_time().filter(|_| self.moving);
        let moving = moving.map(|at| at.max(self.next_look));
        moving.into_iter().chain(self.held.next_time()).min()
    }
}

impl Bonds {
    fn members(&self, id: PortId) -> Option<&Vec<PortId>> {
        self.all.iter().find(|(bond, _)| *bond == id).map(|(_, m)| m)
    }

    fn forget(&mut self, id: PortId) {
        self.all.retain(|(bond, _)| *bond != id);
        self.local.retain(|bond| *bond != id);
    }
}

impl Core {
    /// Does for the bonds of this core what is due. Answers how much there was.
    pub fn bonds_round(&mut self, now: Instant) -> usize {
        let mut work = 0;
        for i in 0..self.bonds.local.len() {
            let Some(&id) = self.bonds.local.get(i) else { break };
            let Some(bond) = self.out.bond(id) else { continue };
            bond.look(now);
            while work < BURST
                && let Some(next) = self.out.bond(id).and_then(|bond| bond.next(now))
            {
                work += 1;
                match next {
                    Next::Go(HeldFrame { mut frame, .. }, going) => {
                        frame.with(|f, meta| self.out.give_member(going, f, meta));
                    }
                    Next::Drop(HeldFrame { mut frame, flow, .. }, reason) => {
                        frame.with(|f, _| self.out.drop_bonded(id, Some(&flow), f, reason));
                    }
                }
            }
            self.tell_moved(id);
        }
        if work > 0 {
            self.flush();
        }
        work
    }

    fn tell_moved(&mut self, port: PortId) {
        if self.out.bond(port).is_some_and(BondPort::has_moved) {
            self.report(CoreEvent::BondMoved { port });
        }
    }

    /// When a bond of this core has something to do that no frame brings about.
    pub fn bonds_due(&mut self, now: Instant) -> Option<Instant> {
        let Core { bonds, out, .. } = self;
        let due = bonds.local.iter().filter_map(|id| {
            let bond = out.bond(*id)?;
            bond.drain(now);
            bond.due()
        });
        due.min()
    }

    /// A member's link went up or down. Answers how many frames were dropped with it: they are not sent when it is back.
    pub fn bond_link(&mut self, id: PortId, member: Member, up: bool, now: Instant) -> u64 {
        let Some(bond) = self.out.bond(id) else { return 0 };
        let Some(port) = bond.port(member) else { return 0 };
        bond.bond.set_link(now, member, up);
        bond.stir(now);
        let lost = bond.lost.get_mut(usize::from(member.0)).map(std::mem::take);
        if up {
            self.tell_moved(id);
            return 0;
        }
        let mut dropped = lost.unwrap_or(0) + self.drop_queued(port);
        if let Some(Slot::Uplink(p)) = self.out.slots.get_mut(usize::from(port.0)) {
            dropped += p.drop_staged(DropReason::ReceiverDown);
        }
        self.tell_moved(id);
        dropped
    }

    /// The device of a member is gone: its link is down, and the control plane asks later how many frames that cost.
    #[cold]
    pub fn member_gone(&mut self, of: &InBond, now: Instant) {
        let dropped = self.bond_link(of.bond, of.member, false, now);
        if let Some(bond) = self.out.bond(of.bond)
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
        if let Some(bond) = self.out.bond(id) {
            bond.bond.set_lacp(now, member, collecting, distributing);
            bond.stir(now);
            self.tell_moved(id);
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
        let Some(bond) = self.out.bond(id) else {
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
        let bond = self.out.bond(id)?;
        bond.look(now);
        Some(bond.bond.view(now))
    }

    /// Sends a frame of the NIC's own by an uplink, past all queues.
    pub fn send_control(&mut self, port: PortId, frame: &[u8]) {
        let Some(Slot::Uplink(p)) = self.out.slots.get_mut(usize::from(port.0)) else {
            return;
        };
        p.send_control(frame);
        if self.out.captures_run() {
            self.out
                .capture(port, Direction::Egress, &OutFrame::of(frame), None);
        }
    }

    /// Why a frame that came by a member is not for the switch; otherwise it loses the team's tag.
    pub fn refused_by_bond(
        &mut self,
        of: &InBond,
        bytes: &mut &mut [u8],
        hdr: &mut NetHdr,
    ) -> Option<DropReason> {
        let takes = |bond: &mut BondPort| bond.bond.receives(of.member);
        if !self.out.bond(of.bond).is_some_and(takes) {
            return Some(DropReason::BondInactive);
        }
        match of.vid {
            Some(vid) if !untag(vid, bytes, hdr) => Some(DropReason::VlanNotAllowed),
            _ => None,
        }
    }

    /// A bond is removed, by its number.
    pub fn forget_bond(&mut self, id: PortId) {
        self.bonds.forget(id);
    }
}

/// Takes a tag of this VLAN off a frame. False: it has none.
fn untag(vid: u16, bytes: &mut &mut [u8], hdr: &mut NetHdr) -> bool {
    let [tpid @ .., a, b] = match bytes.get(12..16) {
        Some(&[t, u, a, b]) => [t, u, a, b],
        _ => return false,
    };
    if tpid != EtherType::VLAN.0.to_be_bytes() || u16::from_be_bytes([a, b]) & 0xfff != vid {
        return false;
    }
    bytes.copy_within(..12, 4);
    let whole = std::mem::take(bytes);
    *bytes = &mut whole[4..];
    hdr.hdr_len = hdr.hdr_len.saturating_sub(4);
    hdr.csum_start = hdr.csum_start.saturating_sub(4);
    true
}

impl Core {
    /// A bond exists, or is another one from now on.
    pub fn set_bond(&mut self, id: PortId, config: PortConfig, members: Vec<PortId>, side: BondSide) {
        let core = self;
        if core.bonds.members(id).is_some() {
            core.switch.set_port(id, config);
        } else {
            core.switch.add_port(id, config);
        }
        core.bonds.forget(id);
        let (slot, members) = match side {
            BondSide::Remote(other) => (Slot::Remote(other), members),
            BondSide::Local(setup) => {
                let members = setup.members.clone();
                core.bonds.local.push(id);
                (Slot::Bond(Box::new(BondPort::new(*setup, core.now))), members)
            }
        };
        for member in &members {
            core.switch.remove_port(*member);
        }
        core.bonds.all.push((id, members));
        let before = std::mem::replace(core.slot(id), slot);
        core.tell_moved(id);
        if let Slot::Bond(mut before) = before {
            // What waited goes the new way, in its order.
            for i in (0..before.held.lines.len()).rev() {
                while before
                    .held
                    .lines
                    .get(i)
                    .is_some_and(|line| !line.frames.is_empty())
                    && let Some(HeldFrame { mut frame, tag, .. }) = before.held.pop(i)
                {
                    let egress = vnic_fabric::switch::Egress { port: id, tag };
                    frame.with(|f, meta| core.out.give_bond(egress, f, meta));
                }
            }
        }
        core.flush();
    }

    /// A bond lost members, which are ports of the switch again. With its last one it is gone.
    pub fn unbond(&mut self, id: PortId, members: Vec<(PortId, PortConfig)>) {
        let (now, core) = (self.now, self);
        for (port, config) in members {
            let known = core.bonds.all.iter_mut().find(|(bond, _)| *bond == id);
            if let Some((_, known)) = known {
                known.retain(|m| *m != port);
            }
            let place = core
                .out
                .bond(id)
                .and_then(|b| b.members.iter().position(|m| *m == port));
            // What waits there goes on waiting.
            if let (Some(i), Some(bond)) = (place, core.out.bond(id)) {
                bond.bond.set_link(now, Member(i as u8), false);
                bond.stir(now);
            }
            core.switch.add_port(port, config);
        }
        if core.bonds.members(id).is_some_and(Vec::is_empty) {
            // Nobody is left to go to.
            while core.bonds_round(now) > 0 {}
            core.forget_bond(id);
            core.switch.remove_port(id);
            *core.slot(id) = Slot::Empty;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_goes_with_its_request() {
        let mut frame = [1u8; 64];
        frame[12..16].copy_from_slice(&[0x81, 0, 0x60, 7]);
        let mut hdr = NetHdr {
            hdr_len: 58,
            csum_start: 38,
            ..NetHdr::default()
        };
        let mut bytes = &mut frame[..];
        assert!(!untag(8, &mut bytes, &mut hdr));
        assert_eq!((bytes.len(), hdr.csum_start), (64, 38));
        assert!(untag(7, &mut bytes, &mut hdr));
        assert_eq!((bytes.len(), hdr.hdr_len, hdr.csum_start), (60, 54, 34));
        assert!(bytes.iter().all(|b| *b == 1));
        assert!(!untag(7, &mut bytes, &mut hdr));
        assert!(!untag(7, &mut &mut [0u8; 14][..], &mut hdr));
    }

    #[test]
    fn slow_protocols_are_slow() {
        let mut limit = SlowLimit::default();
        let at = |ms: u64| Instant(5_000_000_000 + ms * 1_000_000);
        let taken = |limit: &mut SlowLimit, ms| (0..1000).filter(|_| limit.allows(at(ms), 124)).count();
        assert_eq!(taken(&mut limit, 0), 100);
        assert_eq!(taken(&mut limit, 999), 0);
        assert_eq!(taken(&mut limit, 1000), 100);
        assert!(!limit.allows(at(2000), 1515));
        assert!(is_slow(&[1, 0x80, 0xc2, 0, 0, 2, 9]) && !is_slow(&[1, 0x80, 0xc2, 0, 0, 3]));
        let mut head = [0; 14];
        head[12..].copy_from_slice(&[0x88, 9]);
        assert!(is_slow(&head));
    }
}
