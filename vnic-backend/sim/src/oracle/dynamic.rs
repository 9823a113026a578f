//! Dynamic connections: whom a request is for, whether that may serve it, and how often initiators have to connect.

use vnic_engine::rdma::{AhHandle, QpNumber, QpType, SendOp, SendWr, Status};

use super::sends::{Fate, Send};
use super::{Judgement, Oracle, Qp, Rule};

/// Time without work after which an initiator disconnects, in nanoseconds.
const IDLE: u64 = 1_000_000_000;

/// A target, as a request names it: device, number, address handle, key.
type Named = (usize, QpNumber, AhHandle, u64);

impl Oracle {
    /// A target was given its key.
    pub fn access_key(&mut self, dev: usize, number: QpNumber, key: u64) {
        self.tick();
        if let Some(qp) = self.current.get(&(dev, number)) {
            self.qps[*qp].access_key = key;
        }
    }

    /// An address handle was destroyed: requests that name it may fail for that.
    pub fn address_gone(&mut self, dev: usize, ah: AhHandle) {
        self.tick();
        if let Some(address) = self.addresses.get_mut(&(dev, ah)) {
            address.gone = true;
        }
    }

    /// Does a request of dynamic connections need a target?
    pub fn needs_target(wr: &SendWr) -> bool {
        !matches!(wr.op, SendOp::BindMw(_) | SendOp::LocalInvalidate(_))
    }

    /// The target, if there is one, of a request that is posted to an initiator now.
    pub(super) fn target_of(&self, qp: usize, wr: &SendWr) -> Option<usize> {
        let ud = wr.ud?;
        let dev = self.addresses.get(&(self.qps[qp].dev, ud.ah))?.dev?;
        let target = *self.current.get(&(dev, ud.qp))?;
        (self.qps[target].init.qp_type == QpType::DcTarget).then_some(target)
    }

    /// The lives of a target's number.
    fn lives(&self, target: usize) -> impl Iterator<Item = &Qp> {
        let (dev, number) = (self.qps[target].dev, self.qps[target].number);
        self.qps
            .iter()
            .filter(move |q| (q.dev, q.number) == (dev, number))
    }

    /// Is a request for this queue pair, or for another life of its number?
    pub(super) fn is_for(&self, send: &Send, qp: usize) -> bool {
        let to = send.to.map(|to| (self.qps[to].dev, self.qps[to].number));
        to == Some((self.qps[qp].dev, self.qps[qp].number))
    }

    /// May a target refuse a request for its key?
    pub(super) fn key_may_be_wrong(&self, send: &Send) -> bool {
        let Some(to) = send.to else { return false };
        self.is_dynamic(send) && self.lives(to).any(|q| q.access_key != send.access_key)
    }

    /// Does no answer come from where a request was sent to?
    pub(super) fn is_unreachable(&self, send: &Send) -> bool {
        let (Some(to), true) = (send.to, self.is_dynamic(send)) else {
            return false;
        };
        let handle = send.ud.map(|ud| (self.qps[send.qp].dev, ud.ah));
        let way = handle.and_then(|handle| self.addresses.get(&handle));
        let entry = |dev: usize, index: u16| self.names[dev].gids.get(&index).copied();
        let own = self.qps[to].attributes.address;
        let own = own.and_then(|own| entry(self.qps[to].dev, own.sgid_index));
        // (A GID is the same over both versions.)
        let theirs = way.and_then(|way| {
            let (_, vlan) = entry(self.qps[send.qp].dev, way.vector.sgid_index)?;
            Some((way.vector.dgid, vlan))
        });
        own.is_none() || own != theirs
    }

    /// Was a request's address handle destroyed?
    pub(super) fn has_no_way(&self, send: &Send) -> bool {
        let Some(ud) = send.ud.filter(|_| self.is_dynamic(send)) else {
            return false;
        };
        let handle = self.addresses.get(&(self.qps[send.qp].dev, ud.ah));
        handle.is_some_and(|address| address.gone)
    }

    fn is_dynamic(&self, send: &Send) -> bool {
        self.qps[send.qp].init.qp_type == QpType::DcInitiator
    }

    /// A request of an initiator may have been carried out only by a target that is there, by the right way and with the right key.
    pub(super) fn may_be_served(&self, send: &Send, what: &str) -> Judgement {
        let local = matches!(send.op, SendOp::BindMw(_) | SendOp::LocalInvalidate(_));
        if local || !self.is_dynamic(send) {
            return Ok(());
        }
        let Some(to) = send.to else {
            return Rule::Delivery.broken(format!("{what} succeeded without a target"));
        };
        if self.is_unreachable(send) {
            return Rule::Delivery.broken(format!("{what} succeeded by another way than its target's"));
        }
        if !self.lives(to).any(|q| q.access_key == send.access_key) {
            return Rule::Protection.broken(format!("{what} succeeded without the key of its target"));
        }
        Ok(())
    }

    /// Was a target told to end a connection, or has one that works with it come to an end in the middle?
    pub(super) fn is_disturbed(&self, target: usize) -> bool {
        let mut sends = self.sends.iter().enumerate();
        sends.any(|(i, s)| {
            let q = &self.qps[s.qp];
            let ended = q.gone || q.broken || q.lost || !q.strict || !q.reasons.is_empty();
            self.is_for(s, target) && (ended || self.went_wrong(i))
        })
    }

    /// How often initiators had to connect with targets of a device for what has succeeded, and how often they would for all that
    /// was posted, if nothing went wrong.
    pub fn connects(&self, dev: usize) -> (u64, u64) {
        let (mut least, mut most) = (0, 0);
        for (index, qp) in self.qps.iter().enumerate() {
            if qp.init.qp_type != QpType::DcInitiator {
                continue;
            }
            let (mut served, mut posted): (Option<Named>, Option<(Named, u64)>) = (None, None);
            for send in self.sends.iter().filter(|s| s.qp == index) {
                let (Some(to), Some(ud)) = (send.to, send.ud) else {
                    continue;
                };
                let to = &self.qps[to];
                let named = (to.dev, to.number, ud.ah, send.access_key);
                let same_way = |before: &Named| self.same_target(qp.dev, *before, named);
                if send.fate == Fate::Done(Status::Success) && qp.strict {
                    // (Where a network loses the DISCONNECT and the CONNECT to the same target by another way, the connection
                    // that is there goes on.)
                    let there =
                        |before: &Named| (before.0, before.1, before.3) == (named.0, named.1, named.3);
                    least += u64::from(!served.as_ref().is_some_and(there) && to.dev == dev);
                    served = Some(named);
                }
                let idle = posted.is_some_and(|(_, at)| send.time >= at + IDLE);
                let again = posted.is_some_and(|(before, _)| same_way(&before));
                most += u64::from((idle || !again) && to.dev == dev);
                posted = Some((named, send.time));
            }
        }
        (least, most)
    }

    /// Do two requests of a device name one target, so that one connection serves both?
    fn same_target(&self, dev: usize, one: Named, other: Named) -> bool {
        let vector = |named: Named| self.addresses.get(&(dev, named.2)).map(|a| a.vector);
        (one.0, one.1, one.3) == (other.0, other.1, other.3) && vector(one) == vector(other)
    }
}
