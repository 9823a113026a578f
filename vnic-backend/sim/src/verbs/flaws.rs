//! Mistakes on purpose: keys, bounds, rights and lengths that are wrong.

use fastrand::Rng;
use vnic_engine::rdma::{Access, MwType, QpType, SendData, SendOp, SendWr, SgList};

use super::node::Book;
use super::world::World;

impl World {
    /// Makes a request wrong in one way.
    pub(super) fn spoil(&mut self, slot: usize, wr: &mut SendWr, book: &mut Book, rng: &mut Rng) {
        let s = self.slot(slot);
        let dev = s.dev;
        let peer = s.peer.map(|p| self.slot(p).dev);
        let kind = s.kind;
        if kind == QpType::DcInitiator && rng.u32(0..3) == 0 {
            return self.spoil_target(slot, wr, rng);
        }
        match rng.u32(0..10) {
            0 | 1 => {
                if let SendData::Sges(sges) = &mut wr.data {
                    self.spoil_receive(dev, sges, rng);
                }
            }
            2 => {
                // One byte too many, or far too many.
                if let SendData::Sges(sges) = &mut wr.data
                    && let Some(sge) = sges.first_mut()
                {
                    let end = self.nodes[dev].regions.iter().find(|r| r.key == sge.lkey);
                    let last = end.map_or(0, |r| r.base.wrapping_add(r.len));
                    sge.addr = last
                        .wrapping_sub(u64::from(sge.len))
                        .wrapping_add(1 + rng.u64(0..3));
                }
            }
            3..=6 => {
                let Some(there) = peer else { return };
                let (what, random) = (rng.u32(0..8), rng.u32(..));
                let len = match &wr.data {
                    SendData::Sges(sges) => sges.iter().map(|s| u64::from(s.len)).sum(),
                    SendData::Inline(bytes) => bytes.len() as u64,
                };
                let ends: Vec<(u32, u64)> = self.nodes[there]
                    .regions
                    .iter()
                    .map(|r| (r.key, r.base.wrapping_add(r.len)))
                    .collect();
                let other = self.somewhere(there, len, rng);
                let wrong = |addr: &mut u64, rkey: &mut u32| match (what, other) {
                    // Somebody's key with an address that it knows: another domain's, without the right, of a window
                    // for another queue pair, or void.
                    (0..=3, Some((key, at))) => (*addr, *rkey) = (at, key),
                    (4, _) => *addr = u64::MAX - len / 2,
                    (5, _) => {
                        if let Some((_, end)) = ends.iter().find(|(key, _)| *key == *rkey) {
                            *addr = end.wrapping_sub(len).wrapping_add(1);
                        }
                    }
                    (6, _) => *rkey = random,
                    _ => *rkey = rkey.wrapping_add(1 << 20),
                };
                match &mut wr.op {
                    SendOp::Write { addr, rkey }
                    | SendOp::WriteImm { addr, rkey, .. }
                    | SendOp::Read { addr, rkey } => wrong(addr, rkey),
                    SendOp::CompareSwap { addr, rkey, .. } | SendOp::FetchAdd { addr, rkey, .. } => {
                        if what == 7 {
                            *addr += 4;
                        } else {
                            wrong(addr, rkey);
                        }
                    }
                    SendOp::Send if kind.reliable() => {
                        wr.op = SendOp::SendInvalidate(other.map_or(random, |(key, _)| key))
                    }
                    _ => {}
                }
                // The bytes there are still taken; they come back with the rest.
            }
            7 => {
                // Longer than the peer's receives: the same bytes again and again.
                if let SendData::Sges(sges) = &mut wr.data
                    && let Some(first) = sges.first().copied()
                    && matches!(wr.op, SendOp::Send | SendOp::SendImm(_))
                {
                    let most = self.slot(slot).init.max_send_sge as usize;
                    while sges.len() < most {
                        sges.push(first);
                    }
                }
            }
            8 => {
                // More elements than the queue pair has.
                if let SendData::Sges(sges) = &mut wr.data
                    && kind != QpType::XrcTarget
                    && let Some(first) = sges.first().copied()
                {
                    while sges.len() <= self.slot(slot).init.max_send_sge as usize {
                        sges.push(first);
                    }
                }
            }
            _ => {
                let type1 = self.nodes[dev].windows.iter().filter(|w| w.kind == MwType::Type1);
                let type1: Vec<_> = type1.map(|w| w.mw).collect();
                if let SendOp::BindMw(bind) = &mut wr.op {
                    match rng.u32(0..4) {
                        0 => bind.len = u64::MAX,
                        1 => bind.addr = bind.addr.wrapping_sub(1 << 40),
                        2 => bind.access |= Access::LOCAL_WRITE,
                        // The device chooses the key of a type 1 window, whatever the request says.
                        _ if type1.contains(&bind.mw) => bind.len = 1 << 50,
                        _ => bind.rkey ^= 1 << 30,
                    }
                } else if wr.remote_srq != 0 && rng.bool() {
                    wr.remote_srq ^= 1 << rng.u32(0..24);
                    // Nobody knows whose bytes these are now.
                    book.remote.clear();
                }
            }
        }
    }

    /// A key of a region or window, dead or alive, and an address from which it has so many bytes.
    fn somewhere(&self, dev: usize, len: u64, rng: &mut Rng) -> Option<(u32, u64)> {
        let node = &self.nodes[dev];
        let regions = node.regions.iter().map(|r| (r.key, r.base, r.len));
        let windows = node.windows.iter();
        let windows = windows.filter_map(|w| w.bound.as_ref().map(|b| (w.key, b.base, b.len)));
        let long_enough = |(.., there): &(u32, u64, u64)| *there >= len;
        let windows: Vec<_> = windows.filter(long_enough).collect();
        let all = if windows.is_empty() || rng.bool() {
            regions.filter(long_enough).collect()
        } else {
            windows
        };
        let (key, base, there) = *all.get(rng.usize(0..all.len().max(1)))?;
        Some((key, base + rng.u64(0..=there - len) / 8 * 8))
    }

    /// Makes an element wrong.
    pub(super) fn spoil_receive(&mut self, dev: usize, sges: &mut SgList, rng: &mut Rng) {
        if sges.is_empty() {
            return;
        }
        let at = rng.usize(0..sges.len());
        let other = self.somewhere(dev, sges[at].len.into(), rng);
        let sge = &mut sges[at];
        match (rng.u32(0..4), other) {
            (0..=1, Some((key, addr))) => (sge.lkey, sge.addr) = (key, addr),
            (2, _) => sge.lkey = rng.u32(..),
            _ => sge.lkey ^= 1 << rng.u32(0..32),
        }
    }
}
