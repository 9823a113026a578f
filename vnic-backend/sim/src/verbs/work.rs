//! Random work requests.

use fastrand::Rng;
use vnic_engine::rdma::{
    Access, Mtu, MwBind, MwType, QpNumber, QpState, QpType, SendData, SendFlags, SendOp, SendWr, SgList, Sge,
    UdDestination,
};

use super::arena::Arena;
use super::node::{Binding, Book, Holder, Piece};
use super::plan::percent;
use super::setup::QKEY;
use super::world::{World, refused, tag};
use crate::oracle::keys::Allowed;
use crate::oracle::{Judgement, Oracle, Rule};

/// Number of datagrams to a group.
const GROUP: QpNumber = QpNumber(0xff_ffff);

/// A request and what its owner notes.
pub(super) type Request = (SendWr, Book);

impl World {
    /// Posts some work to a queue pair.
    pub(super) fn post(&mut self, slot: usize, rng: &mut Rng) -> Judgement {
        let s = self.slot(slot);
        if !s.alive
            || matches!(s.kind, QpType::XrcTarget | QpType::DcTarget)
            || !matches!(
                s.state(),
                QpState::Rts | QpState::Sqd | QpState::Sqe | QpState::Err
            )
        {
            return Ok(());
        }
        if self.prepare_dynamic(slot, rng)? {
            return Ok(());
        }
        let many = if rng.bool() { 1 } else { rng.u32(1..10) };
        for _ in 0..many {
            let requests = self.make(slot, rng);
            // What one of several uses may be used by those before it, too.
            let alone = requests.len() == 1;
            for (wr, book) in requests {
                self.post_one(slot, wr, book, alone, rng)?;
            }
        }
        if self.slot(slot).kind == QpType::DcInitiator && percent(rng, 2) {
            return self.forget_way(self.slot(slot).dev, rng);
        }
        Ok(())
    }

    fn post_one(
        &mut self,
        slot: usize,
        mut wr: SendWr,
        mut book: Book,
        alone: bool,
        rng: &mut Rng,
    ) -> Judgement {
        let (dev, number) = (self.slot(slot).dev, self.slot(slot).number);
        if self.plan.flaws > 0 && rng.u64(0..self.plan.flaws) == 0 {
            let right = wr.clone();
            self.spoil(slot, &mut wr, &mut book, rng);
            if !self.harmless(slot, &right, &wr) {
                wr = right;
            }
        }
        wr.id = self.new_id();
        wr.tag = tag(wr.id);
        let room = (self.slot(slot).open.len() as u32) < self.slot(slot).init.max_send_wr;
        let posted = self.nodes[dev].device().post_send(number, wr.clone());
        match posted {
            Ok(()) => {}
            Err(_) if !room || self.impossible(slot, &wr) => {
                if alone {
                    self.give_back(&book.local);
                    self.give_back(&book.remote);
                }
                return Ok(());
            }
            Err(e) => {
                return refused(
                    &format!("post_send {:?} to QP {:#x} of dev{dev}", wr.op, number.0),
                    e,
                );
            }
        }
        if self.impossible(slot, &wr) {
            return Rule::Verb.broken(format!("post_send took {wr:?}, which cannot be carried out"));
        }
        self.capture.note(self.now, || {
            let at: Vec<_> = book.local.iter().map(|p| self.spans(p)).collect();
            format!("dev{dev} QP {:#x} posts {} {at:x?}", number.0, brief(&wr))
        });
        self.oracle.posted_send(dev, number, &wr);
        book.slot = Some(slot);
        if let Some((dev, window, _)) = book.window {
            self.nodes[dev].windows[window].busy = true;
            self.nodes[dev].windows[window].bound = None;
        }
        self.books.insert(wr.id, book);
        self.slot_mut(slot).open.push_back(wr.id);
        self.stirred(dev)
    }

    /// A mistake must not hit what somebody else uses: its keys forbid everything, or are as they were.
    fn harmless(&self, slot: usize, right: &SendWr, wrong: &SendWr) -> bool {
        let s = self.slot(slot);
        let (local, remote) = self.oracle.preview(s.dev, s.number, wrong);
        let same_keys = right.op == wrong.op && right.remote_srq == wrong.remote_srq;
        let parts = |wr: &SendWr| match &wr.data {
            SendData::Sges(sges) => sges.to_vec(),
            SendData::Inline(_) => Vec::new(),
        };
        let known = parts(right);
        let same_parts = parts(wrong).iter().all(|s| known.contains(s));
        let op_ok = same_keys
            || remote == Allowed::Never
            || right.remote_srq != wrong.remote_srq
            || Oracle::is_local(wrong);
        (same_parts || local == Allowed::Never) && op_ok
    }

    /// Must the device refuse this at once?
    fn impossible(&self, slot: usize, wr: &SendWr) -> bool {
        let s = self.slot(slot);
        match &wr.data {
            SendData::Sges(sges) => sges.len() as u32 > s.init.max_send_sge,
            SendData::Inline(bytes) => bytes.len() as u32 > s.init.max_inline,
        }
    }

    /// One or more requests that belong together.
    fn make(&mut self, slot: usize, rng: &mut Rng) -> Vec<Request> {
        let kind = self.slot(slot).kind;
        if kind == QpType::DcInitiator {
            return self.make_dynamic(slot, rng);
        }
        self.make_for(slot, kind, rng)
    }

    /// Requests as a service has them.
    pub(super) fn make_for(&mut self, slot: usize, kind: QpType, rng: &mut Rng) -> Vec<Request> {
        let one = |r: Option<Request>| r.into_iter().collect();
        match kind {
            QpType::Ud => one(self.make_datagram(slot, rng)),
            QpType::Uc => match rng.u32(0..10) {
                0..=4 => one(self.make_send(slot, rng)),
                5 => one(self.make_bind(slot, rng)),
                _ => one(self.make_write(slot, rng)),
            },
            _ => match rng.u32(0..100) {
                0..=34 => one(self.make_send(slot, rng)),
                35..=57 => one(self.make_write(slot, rng)),
                58..=72 => one(self.make_read(slot, rng)),
                73..=84 => one(self.make_atomic(slot, rng)),
                85..=90 => one(self.make_bind(slot, rng)),
                _ => self.make_chain(slot, rng),
            },
        }
    }

    /// A request that names this queue of XRC.
    fn request(&self, op: SendOp, data: SendData, srq: u32, book: Book, rng: &mut Rng) -> Request {
        let mut flags = SendFlags::empty();
        flags.set(SendFlags::SIGNALED, percent(rng, 70));
        flags.set(SendFlags::SOLICITED, percent(rng, 20));
        flags.set(SendFlags::FENCE, percent(rng, 8));
        let wr = SendWr {
            id: 0,
            tag: 0,
            op,
            flags,
            data,
            ud: None,
            remote_srq: srq,
            access_key: 0,
        };
        (wr, book)
    }

    /// A length up to `most`, with a liking for the edges of packets.
    fn length(&self, slot: usize, most: u64, rng: &mut Rng) -> u64 {
        let mtu = u64::from(self.slot(slot).attributes.path_mtu.bytes());
        let len = match rng.u32(0..100) {
            0..=5 => 0,
            6..=30 => rng.u64(1..=64),
            31..=50 => rng.u64(1..=mtu),
            51..=70 => (mtu * rng.u64(1..5) + rng.u64(0..3)).saturating_sub(1),
            71..=95 => rng.u64(1..=mtu * 8),
            _ => rng.u64(1..=most.max(1)),
        };
        len.min(most)
    }

    /// Where a message of the sender comes from: bytes inline or in memory, filled at random.
    fn source(&mut self, slot: usize, len: u64, rng: &mut Rng) -> Option<(SendData, Vec<Piece>)> {
        let s = self.slot(slot);
        if len <= u64::from(s.init.max_inline) && percent(rng, 40) {
            let bytes = (0..len).map(|_| rng.u8(..)).collect();
            return Some((SendData::Inline(bytes), Vec::new()));
        }
        let (sges, pieces) = self.local(slot, len, Access::empty(), rng)?;
        for piece in &pieces {
            let mut bytes = vec![0; piece.len as usize];
            rng.fill(&mut bytes);
            self.store(piece, &bytes);
        }
        Some((SendData::Sges(sges), pieces))
    }

    /// Elements over `len` bytes of own memory.
    fn local(&mut self, slot: usize, len: u64, need: Access, rng: &mut Rng) -> Option<(SgList, Vec<Piece>)> {
        let s = self.slot(slot);
        let (dev, pd, most) = (s.dev, s.pd, s.init.max_send_sge);
        self.gather(dev, pd, len, most, need, rng)
    }

    /// Elements over `len` bytes of a device's memory.
    pub(super) fn gather(
        &mut self,
        dev: usize,
        pd: usize,
        len: u64,
        most: u32,
        need: Access,
        rng: &mut Rng,
    ) -> Option<(SgList, Vec<Piece>)> {
        let (mut sges, mut pieces) = (SgList::new(), Vec::new());
        let mut left = len;
        let parts = if rng.bool() { 1 } else { rng.u32(1..=most) };
        for i in 0..parts {
            let len = if i + 1 == parts { left } else { rng.u64(0..=left) };
            left -= len;
            if len == 0 && (len < left || parts > 1) && rng.bool() {
                continue;
            }
            let Some((addr, key, piece)) = self.piece(dev, pd, len, 1, need, rng) else {
                self.give_back(&pieces);
                return None;
            };
            sges.push(Sge {
                addr,
                len: len as u32,
                lkey: key,
            });
            pieces.push(piece);
        }
        if left > 0 || sges.iter().map(|s| u64::from(s.len)).sum::<u64>() != len {
            self.give_back(&pieces);
            return None;
        }
        Some((sges, pieces))
    }

    /// A piece of a region with these rights: address, key.
    fn piece(
        &mut self,
        dev: usize,
        pd: usize,
        len: u64,
        align: u64,
        need: Access,
        rng: &mut Rng,
    ) -> Option<(u64, u32, Piece)> {
        let regions = &mut self.nodes[dev].regions;
        let fit: Vec<usize> = (0..regions.len())
            .filter(|r| regions[*r].alive && regions[*r].pd == pd && regions[*r].access.contains(need))
            .collect();
        let start = rng.usize(0..fit.len().max(1));
        for i in 0..fit.len() {
            let index = fit[(start + i) % fit.len()];
            let region = &mut regions[index];
            if let Some(at) = region.arena.take(len, align) {
                let piece = Piece {
                    dev,
                    holder: Holder::Region(index),
                    at,
                    len,
                };
                return Some((at, region.key, piece));
            }
        }
        None
    }

    /// A piece of the peer's memory with these rights.
    fn remote(
        &mut self,
        slot: usize,
        srq: Option<usize>,
        len: u64,
        align: u64,
        need: Access,
        rng: &mut Rng,
    ) -> Option<(u64, u32, Piece)> {
        let peer = self.slot(slot).peer?;
        let (dev, mut pd) = (self.slot(peer).dev, self.slot(peer).pd);
        if let Some(srq) = srq {
            pd = self.receives[srq].pd;
        }
        if percent(rng, 40) {
            for (index, window) in self.nodes[dev].windows.iter_mut().enumerate() {
                let Some(bound) = window.bound.as_mut().filter(|_| !window.busy && window.pd == pd) else {
                    continue;
                };
                let mine = window.kind == MwType::Type1 || bound.slot == peer;
                if !mine || !bound.access.contains(need) {
                    continue;
                }
                if let Some(at) = bound.arena.take(len, align) {
                    let piece = Piece {
                        dev,
                        holder: Holder::Window(index),
                        at,
                        len,
                    };
                    return Some((at, window.key, piece));
                }
            }
        }
        self.piece(dev, pd, len, align, need, rng)
    }

    /// XRC: the receive queue to be named, and its number.
    fn target(&self, slot: usize, rng: &mut Rng) -> (Option<usize>, u32) {
        let queue = rng.choice(&self.slot(slot).targets).copied();
        let srq = queue.and_then(|q| self.receives[q].srq);
        (queue, srq.map_or(0, |s| s.0))
    }

    /// Longest message that the peer's receives have room for.
    fn room(&self, slot: usize, target: Option<usize>) -> u64 {
        let peer = self.slot(slot).peer.and_then(|p| self.slot(p).receives);
        target.or(peer).map_or(0, |q| self.receives[q].size)
    }

    fn make_send(&mut self, slot: usize, rng: &mut Rng) -> Option<Request> {
        let (target, number) = self.target(slot, rng);
        let len = self.length(slot, self.room(slot, target), rng);
        let (data, local) = self.source(slot, len, rng)?;
        let mut book = Book::of(local, vec![]);
        let op = match rng.u32(0..12) {
            0..=6 => SendOp::Send,
            7..=9 => SendOp::SendImm(rng.u32(..)),
            _ if self.slot(slot).kind == QpType::Uc => SendOp::Send,
            _ => self.make_invalidate(slot, &mut book, rng),
        };
        Some(self.request(op, data, number, book, rng))
    }

    /// A SEND that ends a window or a region of the peer's, if there is one to be ended.
    fn make_invalidate(&mut self, slot: usize, book: &mut Book, rng: &mut Rng) -> SendOp {
        let Some(peer) = self.slot(slot).peer else {
            return SendOp::Send;
        };
        let dev = self.slot(peer).dev;
        let windows = self.nodes[dev].windows.iter_mut().enumerate();
        for (index, w) in windows {
            let bound = w.bound.as_ref().is_some_and(|b| b.slot == peer);
            if bound && !w.busy && w.kind == MwType::Type2 {
                book.window = Some((dev, index, false));
                return SendOp::SendInvalidate(w.key);
            }
        }
        let pd = self.slot(peer).pd;
        let regions = self.nodes[dev].regions.iter_mut().enumerate();
        for (index, r) in regions {
            if r.alive && r.pd == pd && r.access.contains(Access::INVALIDATE) && percent(rng, 10) {
                r.alive = false;
                book.region = Some((dev, index));
                return SendOp::SendInvalidate(r.key);
            }
        }
        SendOp::Send
    }

    fn make_write(&mut self, slot: usize, rng: &mut Rng) -> Option<Request> {
        let (target, number) = self.target(slot, rng);
        let len = self.length(slot, self.plan.longest, rng);
        let (addr, rkey, piece) = self.remote(slot, target, len, 1, Access::REMOTE_WRITE, rng)?;
        let Some((data, local)) = self.source(slot, len, rng) else {
            self.give_back(&[piece]);
            return None;
        };
        let op = if percent(rng, 30) {
            SendOp::WriteImm {
                addr,
                rkey,
                imm: rng.u32(..),
            }
        } else {
            SendOp::Write { addr, rkey }
        };
        Some(self.request(op, data, number, Book::of(local, vec![piece]), rng))
    }

    fn make_read(&mut self, slot: usize, rng: &mut Rng) -> Option<Request> {
        let (target, number) = self.target(slot, rng);
        let len = self.length(slot, self.plan.longest, rng);
        let (addr, rkey, piece) = self.remote(slot, target, len, 1, Access::REMOTE_READ, rng)?;
        let Some((sges, local)) = self.local(slot, len, Access::LOCAL_WRITE, rng) else {
            self.give_back(&[piece]);
            return None;
        };
        let mut bytes = vec![0; len as usize];
        rng.fill(&mut bytes);
        self.store(&piece, &bytes);
        let (op, data) = (SendOp::Read { addr, rkey }, SendData::Sges(sges));
        Some(self.request(op, data, number, Book::of(local, vec![piece]), rng))
    }

    fn make_atomic(&mut self, slot: usize, rng: &mut Rng) -> Option<Request> {
        let (target, number) = self.target(slot, rng);
        let need = Access::REMOTE_ATOMIC;
        // Most go to cells that others use, too.
        let peer = self.slot(slot).peer?;
        let pd = target.map_or(self.slot(peer).pd, |t| self.receives[t].pd);
        let dev = self.slot(peer).dev;
        let cells = self.cells.iter().copied();
        let known: Vec<_> = cells.filter(|c| (c.0, c.1) == (dev, pd)).collect();
        let (addr, rkey, region) = if !known.is_empty() && percent(rng, 80) {
            let (_, _, addr, rkey, region) = known[rng.usize(0..known.len())];
            (addr, rkey, region)
        } else {
            let (addr, rkey, piece) = self.piece(dev, pd, 8, 8, need, rng)?;
            let Holder::Region(region) = piece.holder else {
                return None;
            };
            self.store(&piece, &rng.u64(..).to_ne_bytes());
            let spans = self.spans(&piece);
            if spans.len() != 1 {
                return None;
            }
            self.oracle.shared(dev, &spans);
            self.cells.push((dev, pd, addr, rkey, region));
            (addr, rkey, region)
        };
        let (at, key, piece) = {
            let s = self.slot(slot);
            let (dev, pd) = (s.dev, s.pd);
            self.piece(dev, pd, 8, 1, Access::LOCAL_WRITE, rng)?
        };
        let op = if rng.bool() {
            SendOp::FetchAdd {
                addr,
                rkey,
                add: rng.u64(1..),
            }
        } else {
            let there = Piece {
                dev,
                holder: Holder::Region(region),
                at: addr,
                len: 8,
            };
            let value = self.peek(&there).try_into().map_or(0, u64::from_ne_bytes);
            SendOp::CompareSwap {
                addr,
                rkey,
                compare: if percent(rng, 80) { value } else { rng.u64(..) },
                swap: rng.u64(..),
            }
        };
        let sge = Sge {
            addr: at,
            len: 8,
            lkey: key,
        };
        let data = SendData::Sges([sge].into_iter().collect());
        Some(self.request(op, data, number, Book::of(vec![piece], vec![]), rng))
    }

    /// Binds a window of the own device, or takes its key back.
    fn make_bind(&mut self, slot: usize, rng: &mut Rng) -> Option<Request> {
        let s = self.slot(slot);
        let (dev, pd) = (s.dev, s.pd);
        let fit: Vec<usize> = (0..self.nodes[dev].windows.len())
            .filter(|w| {
                let w = &self.nodes[dev].windows[*w];
                w.pd == pd
                    && !w.busy
                    && w.bound
                        .as_ref()
                        .is_none_or(|b| b.slot == slot || w.kind == MwType::Type1)
            })
            .collect();
        let index = rng.choice(fit)?;
        let window = &self.nodes[dev].windows[index];
        let (mw, key, kind) = (window.mw, window.key, window.kind);
        let mut book = Book {
            window: Some((dev, index, true)),
            ..Book::default()
        };
        if window.bound.is_some() && kind == MwType::Type2 {
            book.window = Some((dev, index, false));
            return Some(self.request(SendOp::LocalInvalidate(key), SendData::default(), 0, book, rng));
        }
        let need = Access::MW_BIND | Access::LOCAL_WRITE;
        let len = rng.u64(1..600) * 8;
        let (at, _, piece) = self.piece(dev, pd, len, 8, need, rng)?;
        let Holder::Region(region) = piece.holder else {
            return None;
        };
        let zero_based = self.nodes[dev].regions[region]
            .access
            .contains(Access::ZERO_BASED);
        if zero_based {
            self.give_back(&[piece]);
            return None;
        }
        let mr = self.nodes[dev].regions[region].mr;
        let low = match kind {
            MwType::Type1 => key.wrapping_add(1) & 0xff,
            MwType::Type2 => rng.u32(0..256),
        };
        let rkey = key & !0xff | low;
        let mut access = match rng.u32(0..5) {
            0 => Access::REMOTE_READ,
            1 => Access::REMOTE_WRITE,
            _ => Access::REMOTE_WRITE | Access::REMOTE_READ,
        };
        access.set(Access::REMOTE_ATOMIC, rng.bool());
        access.set(Access::ZERO_BASED, kind == MwType::Type2 && rng.bool());
        let bind = MwBind {
            mw,
            rkey,
            mr,
            addr: at,
            len,
            access,
        };
        let base = if access.contains(Access::ZERO_BASED) {
            0
        } else {
            at
        };
        // What it shows is the window's until the end: it is not given back.
        self.pending_bindings.insert(
            (dev, index),
            Binding {
                key: rkey,
                slot,
                access: access & Access::REMOTE,
                arena: Arena::new(base, len),
                region,
                at,
                base,
                len,
            },
        );
        Some(self.request(SendOp::BindMw(bind), SendData::default(), 0, book, rng))
    }

    /// Requests whose order matters.
    fn make_chain(&mut self, slot: usize, rng: &mut Rng) -> Vec<Request> {
        let (target, number) = self.target(slot, rng);
        let len = self.length(slot, self.plan.longest.min(16 << 10), rng);
        let both = Access::REMOTE_WRITE | Access::REMOTE_READ;
        let Some((addr, rkey, there)) = self.remote(slot, target, len, 1, both, rng) else {
            return Vec::new();
        };
        let Some((sges, here)) = self.local(slot, len, Access::LOCAL_WRITE, rng) else {
            self.give_back(&[there]);
            return Vec::new();
        };
        let mut bytes = vec![0; len as usize];
        rng.fill(&mut bytes);
        self.store(&there, &bytes);
        let (op, data) = (SendOp::Read { addr, rkey }, SendData::Sges(sges.clone()));
        let read = self.request(op, data, number, Book::default(), rng);
        let mut requests = Vec::new();
        let write = |world: &mut World, rng: &mut Rng| {
            let (data, local) = world.source(slot, len, rng)?;
            let book = Book::of(local, vec![]);
            Some(world.request(SendOp::Write { addr, rkey }, data, number, book, rng))
        };
        match rng.u32(0..4) {
            // What is written is read.
            0 => {
                requests.extend(write(self, rng));
                requests.push(read);
            }
            // What was written last is read.
            3 => {
                requests.extend(write(self, rng));
                requests.extend(write(self, rng));
                requests.push(read);
            }
            // What is read is not what a fenced WRITE puts there.
            1 => {
                requests.push(read);
                requests.extend(write(self, rng).map(|(mut write, book)| {
                    write.flags |= SendFlags::FENCE;
                    (write, book)
                }));
            }
            // What was read is sent on.
            _ => {
                requests.push(read);
                let room = self.room(slot, target);
                let op = if len <= room {
                    SendOp::Send
                } else {
                    let Some((addr, rkey, piece)) = self.remote(slot, target, len, 1, both, rng) else {
                        self.give_back(&[there]);
                        self.give_back(&here);
                        return Vec::new();
                    };
                    requests[0].1.remote.push(piece);
                    SendOp::Write { addr, rkey }
                };
                // What the first noted is in use until the last is complete.
                let book = std::mem::take(&mut requests[0].1);
                let mut send = self.request(op, SendData::Sges(sges), number, book, rng);
                send.0.flags |= SendFlags::FENCE;
                requests.push(send);
            }
        }
        if let Some((_, last)) = requests.last_mut() {
            last.local.extend(here);
            last.remote.push(there);
        }
        requests
    }

    fn make_datagram(&mut self, slot: usize, rng: &mut Rng) -> Option<Request> {
        let (dev, pd) = (self.slot(slot).dev, self.slot(slot).pd);
        let mut others = self.living();
        others.retain(|s| self.slot(*s).kind == QpType::Ud);
        let group = percent(rng, 15);
        let to = self.slot(rng.choice(others)?);
        let (to_dev, number, qkey) = (to.dev, to.number, to.attributes.qkey);
        let room = to.receives.map_or(0, |q| self.receives[q].size);
        let most = if group {
            128
        } else {
            room.min(u64::from(Mtu::Mtu4096.bytes()))
        };
        let len = self.length(slot, most, rng);
        let (data, local) = self.source(slot, len, rng)?;
        let Ok(handle) = self.address_handle(dev, pd, (!group).then_some(to_dev), rng) else {
            self.give_back(&local);
            return None;
        };
        let op = if percent(rng, 30) {
            SendOp::SendImm(rng.u32(..))
        } else {
            SendOp::Send
        };
        let (mut wr, book) = self.request(op, data, 0, Book::of(local, vec![]), rng);
        let own = self.slot(slot).attributes.qkey == qkey && rng.bool();
        wr.ud = Some(UdDestination {
            ah: handle.ah,
            qp: if group { GROUP } else { number },
            qkey: match (own, group) {
                (true, _) => 0x8000_0000 | rng.u32(..),
                (_, true) => QKEY,
                _ if percent(rng, 5) => rng.u32(..) >> 1,
                _ => qkey,
            },
        });
        Some((wr, book))
    }
}

/// A request in a line.
fn brief(wr: &SendWr) -> String {
    let data = match &wr.data {
        SendData::Inline(bytes) => format!("{} bytes inline", bytes.len()),
        SendData::Sges(sges) => {
            let parts: Vec<String> = sges
                .iter()
                .map(|s| format!("{}@{:#x}/{:#x}", s.len, s.addr, s.lkey))
                .collect();
            format!("[{}]", parts.join(" "))
        }
    };
    format!("{:#x} {:?} {data} {:?}", wr.id, wr.op, wr.flags)
}
