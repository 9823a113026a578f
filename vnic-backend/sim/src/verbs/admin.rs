//! Changes under way: states, keys, queues, and what must be refused.

use fastrand::Rng;
use vnic_engine::rdma::{Access, AttributeMask, QpNumber, QpState, QpType, Reregister, VerbsError};
use vnic_wire::gid::Gid;
use vnic_wire::psn::Psn;
use vnic_wire::time::Instant;

use super::arena::Arena;
use super::plan::percent;
use super::world::{World, granted, refused};
use crate::oracle::keys::Region;
use crate::oracle::{Judgement, Rule};

/// Time after which no packet of a former life is under way, in nanoseconds.
pub(super) const TIME_WAIT: u64 = 100_000_000;

impl World {
    /// Changes something.
    pub(super) fn administer(&mut self, rng: &mut Rng) -> Judgement {
        let Some(slot) = rng.choice(self.living()) else {
            return Ok(());
        };
        let dev = self.slot(slot).dev;
        match rng.u32(0..14) {
            0..=2 => self.pause(slot, rng),
            3 => self.step_to(slot, QpState::Err),
            4 => self.destroy(slot),
            5 | 6 => self.start_again(slot, rng),
            7 => self.deregister(dev, rng),
            8 => self.reregister(dev, rng),
            9 => self.resize(dev, rng),
            10 => self.limit(rng),
            11 => self.must_be_refused(slot),
            12 => self.regroup(rng),
            _ => self.retune(slot, rng),
        }
    }

    /// The state that a queue pair is really in.
    pub(super) fn state_of(&mut self, dev: usize, number: QpNumber) -> Judgement<QpState> {
        let queried = self.nodes[dev].device().query_qp(number);
        granted("query_qp", queried.map(|a| a.state))
    }

    /// Brings the owner's knowledge up to date.
    pub(super) fn look_at(&mut self, slot: usize) -> Judgement<QpState> {
        let (dev, number) = (self.slot(slot).dev, self.number(slot));
        let state = self.state_of(dev, number)?;
        self.slot_mut(slot).attributes.state = state;
        Ok(state)
    }

    /// Stops the send queue for a while.
    fn pause(&mut self, slot: usize, rng: &mut Rng) -> Judgement {
        // (Dynamic connections do not drain.)
        if self.look_at(slot)? != QpState::Rts || self.slot(slot).kind == QpType::DcInitiator {
            return Ok(());
        }
        self.slot_mut(slot).attributes.drained_event = rng.bool();
        self.step_to(slot, QpState::Sqd)?;
        // Or it stays so until the end.
        if rng.bool() {
            self.paused.push((slot, self.now + rng.u64(1_000..200_000)));
        }
        Ok(())
    }

    /// Lets a send queue go on.
    pub(super) fn resume(&mut self, slot: usize) -> Judgement {
        if !self.slot(slot).alive {
            return Ok(());
        }
        match self.look_at(slot)? {
            QpState::Sqd | QpState::Sqe => self.step_to(slot, QpState::Rts),
            _ => Ok(()),
        }
    }

    pub(super) fn destroy(&mut self, slot: usize) -> Judgement {
        let (dev, number) = (self.slot(slot).dev, self.number(slot));
        self.leave_all(slot)?;
        granted("destroy_qp", self.device(dev).destroy_qp(number))?;
        self.slot_mut(slot).alive = false;
        if let Some(queue) = self.own_queue(slot) {
            self.receives[queue].alive = false;
        }
        self.oracle.destroyed(dev, number);
        self.stirred(dev)
    }

    /// The receive queue of a queue pair that is not shared.
    fn own_queue(&self, slot: usize) -> Option<usize> {
        let queue = self.slot(slot).receives?;
        self.receives[queue].srq.is_none().then_some(queue)
    }

    /// Both ends of a connection go back to RESET and are connected anew, when the old packets are gone.
    fn start_again(&mut self, slot: usize, rng: &mut Rng) -> Judgement {
        if matches!(self.slot(slot).kind, QpType::DcInitiator | QpType::DcTarget) {
            return self.start_dynamic_again(slot, rng);
        }
        let peer = self.slot(slot).peer;
        let ends: Vec<usize> = [Some(slot), peer].into_iter().flatten().collect();
        if ends
            .iter()
            .any(|s| !self.slot(*s).alive || self.slot(*s).connect.is_some())
        {
            return Ok(());
        }
        for end in &ends {
            self.look_at(*end)?;
            self.step_to(*end, QpState::Reset)?;
            let s = self.slot_mut(*end);
            s.open.clear();
            s.connect = Some(0);
            let dev = s.dev;
            let queue = self.own_queue(*end);
            self.ledger.forget(dev);
            // Completions of the former life may still come; they are of no interest.
            self.books
                .retain(|_, b| b.slot != Some(*end) && (queue.is_none() || b.receives != queue));
            if let Some(queue) = queue {
                self.receives[queue].open = 0;
            }
        }
        let psns = [Psn::new(rng.u32(..)), Psn::new(rng.u32(..))];
        let at = self.now + TIME_WAIT;
        for (i, end) in ends.iter().enumerate() {
            let s = self.slot_mut(*end);
            s.connect = Some(at);
            s.attributes.sq_psn = psns[i];
            s.attributes.rq_psn = psns[1 - i];
        }
        if let Some(peer) = peer {
            let a = (self.slot(slot).dev, self.number(slot));
            let b = (self.slot(peer).dev, self.number(peer));
            self.oracle.connected(a, b);
        }
        Ok(())
    }

    /// The time of a late connection has come.
    pub(super) fn connect_now(&mut self, slot: usize) -> Judgement {
        match self.look_at(slot)? {
            QpState::Reset => self.connect(slot)?,
            QpState::Init => {
                self.step_to(slot, QpState::Rtr)?;
                self.finish_connecting(slot)?;
            }
            QpState::Rtr => self.finish_connecting(slot)?,
            _ => return Ok(()),
        }
        if let Some(queue) = self.slot(slot).receives {
            self.fill(queue, u32::MAX)?;
        }
        Ok(())
    }

    fn deregister(&mut self, dev: usize, rng: &mut Rng) -> Judgement {
        let Some(index) = self.living_region(dev, rng) else {
            return Ok(());
        };
        let mr = self.nodes[dev].regions[index].mr;
        match self.nodes[dev].device().deregister(mr) {
            Ok(()) => {
                self.nodes[dev].regions[index].alive = false;
                self.nodes[dev].regions[index].deregistered = true;
                self.oracle.deregistered(dev, mr);
                self.stirred(dev)
            }
            Err(VerbsError::InUse { .. }) if self.may_be_bound(dev, index) => Ok(()),
            Err(e) => refused("deregister", e),
        }
    }

    fn living_region(&self, dev: usize, rng: &mut Rng) -> Option<usize> {
        let regions = &self.nodes[dev].regions;
        // The large one stays: without it little could be posted any more.
        let small = (0..regions.len()).filter(|r| regions[*r].alive && r % 3 != 0);
        rng.choice(small.collect::<Vec<_>>())
    }

    /// Could a window show this region? Only its owner's requests would have made it.
    fn may_be_bound(&self, dev: usize, region: usize) -> bool {
        let access = self.nodes[dev].regions[region].access;
        access.contains(Access::MW_BIND) && !self.nodes[dev].windows.is_empty()
    }

    fn reregister(&mut self, dev: usize, rng: &mut Rng) -> Judgement {
        let Some(index) = self.living_region(dev, rng) else {
            return Ok(());
        };
        let r = &self.nodes[dev].regions[index];
        let (mr, spans) = (r.mr, r.spans.clone());
        let mut change = Reregister::default();
        if rng.bool() {
            change.translation = Some(((rng.u64(..) >> 8) & !7, spans.clone().into()));
        }
        let zero = r.access & Access::ZERO_BASED;
        if rng.bool() || change.translation.is_none() {
            // Changing how addresses count needs a new translation.
            change.access = Some(Access::LOCAL_WRITE | Access::REMOTE_READ | zero);
        }
        let before = self.oracle.keys.region(dev, mr).map_or(0, |r| r.iova);
        let iova = change.translation.as_ref().map_or(before, |(iova, _)| *iova);
        let access = change.access.unwrap_or(r.access);
        let pd = self.nodes[dev].pds[r.pd];
        match self.nodes[dev].device().reregister(mr, change) {
            Ok(made) => {
                let region = Region {
                    pd,
                    iova,
                    access,
                    spans,
                    lkey: made.lkey,
                    rkey: made.rkey,
                };
                let r = &mut self.nodes[dev].regions[index];
                // What was taken from it would come back under old addresses: then nothing is taken any more.
                r.alive = r.arena.is_whole(r.base, r.len);
                r.key = made.lkey;
                r.base = region.base();
                r.access = access;
                r.arena = Arena::new(r.base, r.len);
                self.oracle.registered(dev, made.mr, region);
                self.stirred(dev)
            }
            Err(VerbsError::InUse { .. }) if self.may_be_bound(dev, index) => Ok(()),
            Err(e) => refused("reregister", e),
        }
    }

    fn resize(&mut self, dev: usize, rng: &mut Rng) -> Judgement {
        let cq = rng.usize(0..self.nodes[dev].cqs.len());
        let small = self.plan.small_cqs > 0 && rng.bool();
        let entries = if small {
            rng.u32(1..20)
        } else {
            rng.u32(8_000..40_000)
        };
        let handle = self.nodes[dev].cqs[cq].handle;
        let overrun = self.oracle.overrun(dev, handle);
        match self.nodes[dev].device().resize_cq(handle, entries) {
            Ok(()) => {
                self.nodes[dev].cqs[cq].entries = entries;
                self.oracle.cq(dev, handle, entries);
                Ok(())
            }
            // More may wait than fit.
            Err(_) if small || overrun => Ok(()),
            Err(e) => refused("resize_cq", e),
        }
    }

    fn limit(&mut self, rng: &mut Rng) -> Judgement {
        let shared = self
            .receives
            .iter()
            .filter_map(|r| Some((r.dev, r.depth, r.srq?)));
        let Some((dev, depth, srq)) = rng.choice(shared.collect::<Vec<_>>()) else {
            return Ok(());
        };
        let limit = rng.u32(0..=depth);
        // An event may come at once.
        self.oracle.srq_limit(dev, srq, limit);
        self.nodes[dev]
            .device()
            .modify_srq(srq, Some(limit), None)
            .or_else(|e| match self.oracle.any_overrun(dev) {
                true => Ok(()),
                false => refused("modify_srq", e),
            })?;
        self.stirred(dev)
    }

    /// Verbs that cannot be carried out now.
    fn must_be_refused(&mut self, slot: usize) -> Judgement {
        let s = self.slot(slot);
        let (dev, init) = (s.dev, s.init);
        let node = &mut self.nodes[dev];
        let device = node.device();
        let mut wrong = Vec::new();
        let mut expect = |what: &str, refused: bool| {
            if !refused {
                wrong.push(what.to_owned());
            }
        };
        let in_use = |r: Result<(), VerbsError>| matches!(r, Err(VerbsError::InUse { users: 1.., .. }));
        if let Some(pd) = init.pd {
            expect("dealloc_pd of a domain in use", in_use(device.dealloc_pd(pd)));
        }
        if let Some(cq) = init.send_cq {
            expect("destroy_cq of a queue in use", in_use(device.destroy_cq(cq)));
        }
        if let Some(srq) = init.srq {
            expect("destroy_srq of a queue in use", in_use(device.destroy_srq(srq)));
        }
        if let Some(xrcd) = init.xrcd {
            expect("close_xrcd of a domain in use", in_use(device.close_xrcd(xrcd)));
        }
        expect(
            "destroy_qp of an unknown queue pair",
            device.destroy_qp(QpNumber(1)).is_err(),
        );
        if wrong.is_empty() {
            return Ok(());
        }
        Rule::Verb.broken(format!("dev{dev}: {} was not refused", wrong.join(", ")))
    }

    fn regroup(&mut self, rng: &mut Rng) -> Judgement {
        let groups: Vec<(usize, Gid)> = self.nodes.iter().flat_map(|n| n.groups.clone()).collect();
        match rng.choice(groups) {
            Some((slot, gid)) => self.leave(slot, gid),
            None => Ok(()),
        }
    }

    /// A queue pair leaves the groups that it is in.
    pub(super) fn leave_all(&mut self, slot: usize) -> Judgement {
        let groups = self.nodes[self.slot(slot).dev].groups.clone();
        let mut own = groups.into_iter().filter(|(member, _)| *member == slot);
        own.try_for_each(|(_, gid)| self.leave(slot, gid))
    }

    fn leave(&mut self, slot: usize, gid: Gid) -> Judgement {
        let (dev, number) = (self.slot(slot).dev, self.number(slot));
        granted("detach_multicast", self.device(dev).detach_multicast(number, gid))?;
        self.nodes[dev].groups.retain(|g| *g != (slot, gid));
        Ok(())
    }

    /// Changes attributes of a queue pair at work.
    fn retune(&mut self, slot: usize, rng: &mut Rng) -> Judgement {
        if self.look_at(slot)? != QpState::Rts || self.slot(slot).kind != QpType::Rc {
            return Ok(());
        }
        let (dev, number) = (self.slot(slot).dev, self.number(slot));
        let mut attributes = self.slot(slot).attributes;
        attributes.min_rnr_timer = rng.u8(1..14);
        if percent(rng, 20) {
            attributes.access = Access::REMOTE;
        }
        let mask = AttributeMask::MIN_RNR_TIMER | AttributeMask::ACCESS;
        let now = Instant(self.now);
        granted(
            "modify_qp",
            self.device(dev).modify_qp(number, &attributes, mask, now),
        )?;
        self.slot_mut(slot).attributes = attributes;
        self.oracle.modified(dev, number, QpState::Rts, &attributes);
        self.stirred(dev)
    }
}
