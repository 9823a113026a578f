//! Work over dynamic connections, mistakes about their targets, and what is done to their ends.

use fastrand::Rng;
use vnic_engine::rdma::{AhHandle, Incoming, QpNumber, QpState, QpType, SendOp, SendWr, UdDestination};
use vnic_wire::opcode::{Operation, Transport};
use vnic_wire::psn::Psn;

use super::admin::TIME_WAIT;
use super::node::GID_COUNT;
use super::plan::percent;
use super::work::Request;
use super::world::{World, granted};
use crate::oracle::{Judgement, Oracle};

/// Time after which no initiator connects again to go on with what it sent to a target before, in nanoseconds.
const FORGOTTEN: u64 = 10_000_000_000;
/// Messages that are shorter may be taken for one another.
const TELLING: usize = 16;

impl World {
    /// Before an initiator is given work: one that failed often begins again, and then takes none yet.
    pub(super) fn prepare_dynamic(&mut self, slot: usize, rng: &mut Rng) -> Judgement<bool> {
        if self.slot(slot).kind != QpType::DcInitiator || self.look_at(slot)? != QpState::Err {
            return Ok(false);
        }
        let again = percent(rng, 50);
        if again {
            self.start_dynamic_again(slot, rng)?;
        }
        Ok(again)
    }

    /// Work for a target.
    pub(super) fn make_dynamic(&mut self, slot: usize, rng: &mut Rng) -> Vec<Request> {
        let Some(target) = self.choose_target(slot, rng) else {
            return Vec::new();
        };
        self.slot_mut(slot).peer = Some(target);
        let mut requests = self.make_for(slot, QpType::DcInitiator, rng);
        let Ok(ah) = self.handle_for(slot, target, rng) else {
            return Vec::new();
        };
        let (qp, access_key) = (self.number(target), self.slot(target).access_key);
        let several = requests.len() > 1;
        for (wr, _) in &mut requests {
            // Which initiator a message is of shows in its bytes only.
            let telling = self.plan.flaws == 0 && !several && bytes(wr) >= TELLING;
            if wr.op == SendOp::Send && !(telling && rng.bool()) {
                wr.op = SendOp::SendImm(rng.u32(..));
            }
            if Oracle::needs_target(wr) {
                wr.ud = Some(UdDestination { ah, qp, qkey: 0 });
                wr.access_key = access_key;
            }
        }
        requests
    }

    /// Often the same as before, seldom one that is not there any more.
    fn choose_target(&self, slot: usize, rng: &mut Rng) -> Option<usize> {
        let s = self.slot(slot);
        let fits = |t: usize| {
            let there = self.slots[t].as_ref();
            there.filter(|t| t.kind == QpType::DcTarget && t.strict == s.strict)
        };
        if let Some(before) = s.peer.filter(|t| fits(*t).is_some_and(|t| t.alive))
            && percent(rng, 60)
        {
            return Some(before);
        }
        let dead = percent(rng, 2);
        let all = (0..self.slots.len()).filter(|t| fits(*t).is_some_and(|t| t.alive || dead));
        rng.choice(all.collect::<Vec<_>>())
    }

    /// An address handle for the address that a target answers from.
    fn handle_for(&mut self, slot: usize, target: usize, rng: &mut Rng) -> Judgement<AhHandle> {
        let (s, t) = (self.slot(slot), self.slot(target));
        let (from, pd, to) = (s.dev, s.pd, t.dev);
        let index = t.attributes.address.map_or(0, |a| a.sgid_index);
        Ok(self.dynamic_handle(from, pd, (to, index), rng)?.ah)
    }

    /// Names another target than its work is for, another way there, or another key.
    pub(super) fn spoil_target(&mut self, slot: usize, wr: &mut SendWr, rng: &mut Rng) {
        let Some(ud) = wr.ud else { return };
        let what = rng.u32(0..8);
        match what {
            0..=2 => wr.access_key = if rng.bool() { rng.u64(..) } else { 7 },
            3 => wr.access_key ^= 1 << rng.u32(0..64),
            4 => {
                let other = rng.choice(self.living());
                let qp = other.map_or(QpNumber(0xff_fff0), |other| self.number(other));
                wr.ud = Some(UdDestination { qp, ..ud });
            }
            _ => {
                // Of another device, or of the right one by another of its addresses.
                let Some(target) = self.slot(slot).peer.map(|t| self.slot(t)) else {
                    return;
                };
                let own = target.attributes.address.map_or(0, |a| a.sgid_index);
                let to = match what {
                    5 => (rng.usize(0..self.nodes.len()), own),
                    _ => (target.dev, rng.u16(0..GID_COUNT)),
                };
                let (from, pd) = (self.slot(slot).dev, self.slot(slot).pd);
                if let Ok(other) = self.dynamic_handle(from, pd, to, rng) {
                    wr.ud = Some(UdDestination { ah: other.ah, ..ud });
                }
            }
        }
    }

    /// Changes an end of dynamic connections, or destroys something of them.
    pub(super) fn change_dynamic(&mut self, rng: &mut Rng) -> Judgement {
        let (mut initiators, mut targets) = (self.living(), self.living());
        initiators.retain(|s| self.slot(*s).kind == QpType::DcInitiator);
        targets.retain(|s| self.slot(*s).kind == QpType::DcTarget);
        let mut failed = Vec::new();
        for slot in &initiators {
            if self.look_at(*slot)? == QpState::Err {
                failed.push(*slot);
            }
        }
        let again = if failed.is_empty() { &initiators } else { &failed };
        let (initiator, target) = (rng.choice(again.clone()), rng.choice(targets));
        match (rng.u32(0..16), initiator, target) {
            (0, _, Some(target)) => self.destroy(target),
            (1, Some(initiator), _) => self.destroy(initiator),
            (2, _, Some(target)) => self.step_to(target, QpState::Err),
            (3, Some(initiator), _) => self.step_to(initiator, QpState::Err),
            (4..=6, _, Some(target)) => self.start_dynamic_again(target, rng),
            (7..=12, Some(initiator), _) => self.start_dynamic_again(initiator, rng),
            _ => self.forget_way(rng.usize(0..self.nodes.len()), rng),
        }
    }

    /// Destroys an address handle that requests may name.
    pub(super) fn forget_way(&mut self, dev: usize, rng: &mut Rng) -> Judgement {
        let ways = self.nodes[dev].ahs.iter().filter(|a| a.index.is_some());
        let Some(way) = rng.choice(ways.copied().collect::<Vec<_>>()) else {
            return Ok(());
        };
        granted("destroy_ah", self.device(dev).destroy_ah(way.ah))?;
        self.nodes[dev].ahs.retain(|a| a.ah != way.ah);
        self.oracle.address_gone(dev, way.ah);
        if rng.bool() {
            // Requests find a destroyed handle until the table of GIDs changes.
            granted("set_gid", self.device(dev).set_gid(GID_COUNT, None))?;
        }
        Ok(())
    }

    /// An end goes back to RESET and is ready again when nobody trusts in what it knew.
    pub(super) fn start_dynamic_again(&mut self, slot: usize, rng: &mut Rng) -> Judgement {
        if !self.slot(slot).alive || self.slot(slot).connect.is_some() {
            return Ok(());
        }
        self.look_at(slot)?;
        let target = self.slot(slot).kind == QpType::DcTarget;
        self.step_to(slot, QpState::Reset)?;
        let at = self.now + if target { FORGOTTEN } else { TIME_WAIT };
        let s = self.slot_mut(slot);
        s.open.clear();
        s.connect = Some(at);
        s.attributes.sq_psn = Psn::new(rng.u32(..));
        let dev = s.dev;
        if target {
            if rng.bool() {
                self.set_access_key(slot, rng)?;
            }
            return Ok(());
        }
        self.ledger.forget(dev);
        self.books.retain(|_, b| b.slot != Some(slot));
        Ok(())
    }

    /// Is this a CONNECT for a target that takes some?
    pub(super) fn connects(&mut self, dev: usize, packet: &Incoming<'_>) -> bool {
        let bth = &packet.headers.bth;
        let connect = bth.opcode.transport() == Transport::Dc
            && bth.opcode.operation() == Some(Operation::Connect)
            && packet.headers.dceth.is_some();
        let device = self.nodes[dev].device();
        let qp = QpNumber(bth.destination_qp);
        let target = device
            .query_qp_init(qp)
            .is_ok_and(|i| i.qp_type == QpType::DcTarget);
        connect && target && device.qp_state(qp) == Some(QpState::Rtr)
    }
}

/// Bytes of a request's message.
fn bytes(wr: &SendWr) -> usize {
    match &wr.data {
        vnic_engine::rdma::SendData::Sges(sges) => sges.iter().map(|s| s.len as usize).sum(),
        vnic_engine::rdma::SendData::Inline(bytes) => bytes.len(),
    }
}
