//! Making the objects of a world.

use std::collections::VecDeque;

use fastrand::Rng;
use vnic_engine::rdma::{
    Access, AddressVector, AttributeMask, Congestion, Device, DeviceConfig, GidEntry, GidKind, Limits, Mtu,
    MwType, QpAttributes, QpInit, QpNumber, QpState, QpType, Span, SrqInit, state,
};
use vnic_wire::MacAddr;
use vnic_wire::gid::Gid;
use vnic_wire::psn::Psn;
use vnic_wire::time::Instant;

use super::arena::Arena;
use super::node::{AhSlot, CqSlot, GID_COUNT, Node, Policy, QpSlot, ReceiveSlot, RegionSlot, WindowSlot};
use super::outlets::zero_touch;
use super::plan::{Pair, Service, percent};
use super::world::{World, granted};
use crate::oracle::Judgement;
use crate::oracle::keys::Region;

/// Queue key that many datagram queue pairs share.
pub const QKEY: u32 = 0x1111_1111;

/// Rights of everything.
const ALL: Access = Access::REMOTE.union(Access::LOCAL_WRITE).union(Access::MW_BIND);

/// A number that is often small.
fn skewed(rng: &mut Rng, most: u32) -> u32 {
    if rng.bool() {
        rng.u32(1..=most.min(4))
    } else {
        rng.u32(1..=most)
    }
}

/// Address of a device.
pub fn mac(dev: usize) -> MacAddr {
    MacAddr([2, 0x56, 0x4e, 0, 0, dev as u8 + 1])
}

/// Entry of a device's GID table.
pub fn gid_entry(dev: usize, index: u16) -> GidEntry {
    let (gid, kind, vlan) = match index {
        0 => (Gid::from_mac(mac(dev)), GidKind::RoceV1, None),
        1 => (Gid::from_mac(mac(dev)), GidKind::RoceV2, None),
        2 => (Gid::from_ipv4([10, 0, 0, dev as u8 + 1]), GidKind::RoceV2, None),
        3 => (
            Gid::from_ipv4([10, 0, 5, dev as u8 + 1]),
            GidKind::RoceV2,
            Some(5),
        ),
        _ => (Gid::from_mac(mac(dev)), GidKind::RoceV1, Some(4094)),
    };
    GidEntry {
        gid,
        kind,
        vlan,
        mac: mac(dev),
    }
}

/// The way from a device to another.
pub fn address(rng: &mut Rng, index: u16, to: usize) -> AddressVector {
    AddressVector {
        dgid: gid_entry(to, index).gid,
        dmac: mac(to),
        sgid_index: index,
        traffic_class: rng.u8(..) & 0xfc | if percent(rng, 80) { 2 } else { 0 },
        flow_label: rng.u32(0..=0xf_ffff),
        hop_limit: rng.u8(1..),
        service_level: rng.u8(0..8),
    }
}

impl World {
    /// Makes all that the plan wants at the start.
    pub(super) fn set_up(&mut self) -> Judgement {
        for (dev, (seed, memory)) in self.plan.nodes.clone().into_iter().enumerate() {
            self.make_node(dev, seed, memory)?;
        }
        for (index, pair) in self.plan.pairs.clone().into_iter().enumerate() {
            // Slots are numbered by pair, whether it is there or not.
            if self.cut.pairs.contains(&index) {
                self.slots.extend([None, None]);
            } else {
                self.make_pair(&pair)?;
            }
        }
        for queue in 0..self.receives.len() {
            match self.receives[queue].policy {
                Policy::Early => self.fill(queue, u32::MAX)?,
                Policy::Never => self.fill(queue, 2)?,
                Policy::Late(period) => self.receives[queue].refill = Some(period),
            }
        }
        Ok(())
    }

    fn make_node(&mut self, dev: usize, seed: u64, memory: usize) -> Judgement {
        let mut rng = Rng::with_seed(seed);
        let config = DeviceConfig {
            mac: mac(dev),
            limits: self.limits(),
            mtu: Mtu::Mtu4096,
            trailers: false,
            pin_source_port: percent(&mut rng, 10),
            seed: 0,
            place: None,
        };
        let mut device = Box::new(granted("new", Device::new(config))?);
        // Of its own, so that the rest of the node stays what it was.
        let mut choice = Rng::with_seed(seed ^ 0x7a74_6f75_6368);
        let congestion = Congestion {
            zero_touch: zero_touch(&mut choice, self.plan.profile),
            ..Congestion::default()
        };
        device.set_congestion(congestion, Instant(self.now));
        self.oracle.named(dev, mac(dev));
        for index in 0..GID_COUNT {
            let entry = gid_entry(dev, index);
            granted("set_gid", device.set_gid(index, Some(entry)))?;
            self.oracle.gid(dev, index, entry.gid, entry.vlan);
        }
        let mut pds = Vec::new();
        for _ in 0..rng.usize(1..3) {
            pds.push(granted("alloc_pd", device.alloc_pd())?);
        }
        let mut node = Node {
            device: Some(device),
            mac: mac(dev),
            pds,
            regions: Vec::new(),
            windows: Vec::new(),
            cqs: Vec::new(),
            ahs: Vec::new(),
            xrcd: None,
            groups: Vec::new(),
            transmit: None,
        };
        for _ in 0..rng.usize(1..4) {
            let small = rng.u64(0..10) < self.plan.small_cqs;
            let entries = if small { rng.u32(1..12) } else { 16_384 };
            let handle = granted("create_cq", node.device().create_cq(entries))?;
            self.oracle.cq(dev, handle, entries);
            node.cqs.push(CqSlot {
                handle,
                entries,
                poll: None,
                max: [1, 4, 64, 10_000][rng.usize(0..4)],
                arms: rng.bool(),
            });
        }
        self.nodes.push(node);
        let mut frames = frames(&mut rng, memory as u64);
        let pds = self.nodes[dev].pds.len();
        for pd in 0..pds {
            let share = memory as u64 / pds as u64;
            self.make_region(dev, pd, &mut rng, &mut frames, share * 6 / 10, ALL)?;
            for _ in 0..2 {
                let access = match rng.u32(0..6) {
                    0 => Access::LOCAL_WRITE,
                    1 => Access::REMOTE_READ,
                    2 => Access::REMOTE_READ | Access::LOCAL_WRITE | Access::ZERO_BASED,
                    3 => Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::INVALIDATE,
                    4 => ALL | Access::ZERO_BASED,
                    _ => Access::empty(),
                };
                self.make_region(dev, pd, &mut rng, &mut frames, share * 15 / 100, access)?;
            }
            for kind in [MwType::Type1, MwType::Type2, MwType::Type2] {
                if percent(&mut rng, 50) {
                    self.make_window(dev, pd, kind)?;
                }
            }
        }
        Ok(())
    }

    fn limits(&self) -> Limits {
        let all = Limits::default();
        let few = self.plan.dynamic.and_then(|d| d.connections);
        Limits {
            max_dc_connections: few.unwrap_or(all.max_dc_connections),
            ..all
        }
    }

    fn make_window(&mut self, dev: usize, pd: usize, kind: MwType) -> Judgement {
        let domain = self.nodes[dev].pds[pd];
        let (mw, key) = granted("alloc_mw", self.device(dev).alloc_mw(domain, kind))?;
        self.oracle.window(dev, mw, domain, kind);
        self.nodes[dev].windows.push(WindowSlot {
            mw,
            key,
            pd,
            kind,
            bound: None,
            busy: false,
        });
        Ok(())
    }

    fn make_region(
        &mut self,
        dev: usize,
        pd: usize,
        rng: &mut Rng,
        frames: &mut Vec<Span>,
        len: u64,
        access: Access,
    ) -> Judgement {
        let mut spans = Vec::new();
        let mut total = 0;
        while total < len {
            let Some(frame) = frames.pop() else { break };
            total += frame.len;
            spans.push(frame);
        }
        // Addresses anywhere, also at the very end of all.
        let iova = match rng.u32(0..8) {
            0 => (u64::MAX - total) & !7,
            1 => 0,
            _ => (rng.u64(..) >> rng.u32(2..40)) & !7,
        };
        let domain = self.nodes[dev].pds[pd];
        let made = granted(
            "register",
            self.device(dev).register(domain, iova, access, spans.clone()),
        )?;
        let region = Region {
            pd: domain,
            iova,
            access,
            spans: spans.clone(),
            lkey: made.lkey,
            rkey: made.rkey,
        };
        let base = region.base();
        self.capture.note(0, || {
            format!(
                "dev{dev} region {:#x} base {base:#x} {:x?}",
                made.lkey,
                spans.iter().map(|s| (s.at, s.len)).collect::<Vec<_>>()
            )
        });
        self.oracle.registered(dev, made.mr, region);
        self.nodes[dev].regions.push(RegionSlot {
            mr: made.mr,
            key: made.lkey,
            pd,
            base,
            len: total,
            access,
            spans,
            arena: Arena::new(base, total),
            alive: true,
            deregistered: false,
        });
        Ok(())
    }

    fn make_pair(&mut self, pair: &Pair) -> Judgement {
        let mut rng = Rng::with_seed(pair.seed);
        let (one, other) = match pair.service {
            Service::Rc => (QpType::Rc, QpType::Rc),
            Service::Uc => (QpType::Uc, QpType::Uc),
            Service::Ud => (QpType::Ud, QpType::Ud),
            Service::Xrc => (QpType::XrcInitiator, QpType::XrcTarget),
            Service::Dc => (QpType::DcInitiator, QpType::DcTarget),
        };
        let a = self.make_qp(pair.a, one, pair.victim, &mut rng)?;
        let b = self.make_qp(pair.b, other, pair.victim, &mut rng)?;
        if pair.service == Service::Ud {
            for slot in [a, b] {
                self.prepare_ud(slot, &mut rng)?;
            }
            return Ok(());
        }
        if pair.service == Service::Dc {
            return self.make_dynamic_ends(a, b, &mut rng);
        }
        if pair.service == Service::Xrc {
            let targets = (0..rng.usize(1..3))
                .map(|_| self.make_xrc_queue(pair.b, &mut rng))
                .collect::<Result<Vec<_>, _>>()?;
            self.slot_mut(a).targets = targets;
        }
        self.slot_mut(a).peer = Some(b);
        self.slot_mut(b).peer = Some(a);
        self.choose_attributes(a, b, &mut rng);
        for end in [a, b] {
            let s = self.slot(end);
            let (dev, number) = (s.dev, s.number);
            let other = self.slot(s.peer.unwrap_or(end));
            let to = (other.dev, other.number);
            self.oracle.connected((dev, number), to);
        }
        self.connect(a)?;
        if percent(&mut rng, 10) {
            // Sometimes it comes late, sometimes not at all.
            self.slot_mut(b).connected_at_once = false;
            self.slot_mut(b).connect = percent(&mut rng, 80).then(|| rng.u64(1_000..500_000));
            self.step_to(b, QpState::Init)?;
            // Or it can receive already, and sends later.
            match percent(&mut rng, 40) {
                true => self.step_to(b, QpState::Rtr),
                false => Ok(()),
            }
        } else {
            self.connect(b)
        }
    }

    /// An initiator and a target of dynamic connections, which may be ready later.
    fn make_dynamic_ends(&mut self, initiator: usize, target: usize, rng: &mut Rng) -> Judgement {
        for slot in [initiator, target] {
            self.dynamic_attributes(slot, rng);
        }
        self.set_access_key(target, rng)?;
        self.connect(initiator)?;
        if percent(rng, 10) {
            self.slot_mut(target).connected_at_once = false;
            self.slot_mut(target).connect = percent(rng, 80).then(|| rng.u64(1_000..500_000));
            return self.step_to(target, QpState::Init);
        }
        self.connect(target)
    }

    fn dynamic_attributes(&mut self, slot: usize, rng: &mut Rng) {
        let dev = self.slot(slot).dev;
        let default = Limits::default();
        let mtu = self.plan.dynamic.map_or(Mtu::Mtu1024, |d| d.mtu);
        let way = address(rng, rng.clone().u16(0..GID_COUNT), dev);
        self.slot_mut(slot).attributes = QpAttributes {
            path_mtu: mtu,
            sq_psn: psn(rng),
            access: if self.plan.flaws == 0 || percent(rng, 85) {
                Access::REMOTE
            } else {
                Access::REMOTE_WRITE
            },
            address: Some(way),
            port: 1,
            max_rd_atomic: rng.u8(1..=default.max_rd_atomic),
            // As many as the device has.
            max_dest_rd_atomic: default.max_rd_atomic,
            min_rnr_timer: rng.u8(1..14),
            timeout: if self.plan.terms.tight_timers {
                rng.u8(1..13)
            } else {
                rng.u8(14..19)
            },
            retry_count: if percent(rng, 70) { 7 } else { rng.u8(0..8) },
            rnr_retry: if percent(rng, 50) { 7 } else { rng.u8(0..8) },
            ..QpAttributes::default()
        };
    }

    /// Gives a target a key; some targets have the same.
    pub(super) fn set_access_key(&mut self, slot: usize, rng: &mut Rng) -> Judgement {
        let key = if percent(rng, 20) { 7 } else { rng.u64(..) };
        let (dev, number) = (self.slot(slot).dev, self.number(slot));
        granted("set_access_key", self.device(dev).set_access_key(number, key))?;
        self.slot_mut(slot).access_key = key;
        self.oracle.access_key(dev, number, key);
        Ok(())
    }

    fn make_qp(&mut self, dev: usize, kind: QpType, victim: bool, rng: &mut Rng) -> Judgement<usize> {
        let pd = rng.usize(0..self.nodes[dev].pds.len());
        let cqs = self.nodes[dev].cqs.len();
        let (send_cq, recv_cq) = (rng.usize(0..cqs), rng.usize(0..cqs));
        let target = kind == QpType::XrcTarget;
        let (xrc, dct) = (target || kind == QpType::XrcInitiator, kind == QpType::DcTarget);
        let bare = xrc || kind == QpType::DcInitiator;
        let node = &mut self.nodes[dev];
        if target && node.xrcd.is_none() {
            let made = node.device().open_xrcd();
            node.xrcd = Some(granted("open_xrcd", made)?);
        }
        let mut init = QpInit {
            qp_type: kind,
            pd: (!target).then_some(node.pds[pd]),
            send_cq: (!target && !dct).then_some(node.cqs[send_cq].handle),
            recv_cq: (!bare).then_some(node.cqs[recv_cq].handle),
            srq: None,
            xrcd: node.xrcd.filter(|_| target),
            max_send_wr: skewed(rng, 64),
            max_recv_wr: skewed(rng, 64),
            max_send_sge: skewed(rng, 8),
            max_recv_sge: skewed(rng, 8),
            max_inline: [0, 16, 256, 1000][rng.usize(0..4)],
            signal_all: percent(rng, 30),
        };
        if dct {
            (init.max_send_wr, init.max_recv_wr) = (0, 0);
        }
        let front = if kind == QpType::Ud { 40 } else { 0 };
        let mut queue = None;
        if dct || !bare && percent(rng, 25) {
            let found = self.receives.iter().position(|r| {
                r.dev == dev && r.srq.is_some() && r.front == front && r.slot.is_none() && !r.is_xrc
            });
            let shared = match found {
                Some(shared) if rng.bool() => shared,
                _ => self.make_srq(dev, pd, front, None, rng)?,
            };
            init.srq = self.receives[shared].srq;
            queue = Some(shared);
        }
        let number = granted("create_qp", self.device(dev).create_qp(&init))?;
        let slot = self.slots.len();
        if !bare && queue.is_none() {
            let (policy, size) = (policy(rng), self.receive_size(rng));
            let room = (init.max_recv_wr, init.max_recv_sge);
            self.receives.push(ReceiveSlot {
                slot: Some(slot),
                ..ReceiveSlot::new(dev, pd, policy, room, front, size)
            });
            queue = Some(self.receives.len() - 1);
        }
        self.oracle.created(dev, number, &init, !victim);
        self.slots.push(Some(QpSlot {
            dev,
            number,
            kind,
            init,
            attributes: QpAttributes::default(),
            pd,
            peer: None,
            receives: queue,
            targets: Vec::new(),
            access_key: 0,
            open: VecDeque::new(),
            strict: !victim,
            alive: true,
            connect: None,
            connected_at_once: true,
        }));
        Ok(slot)
    }

    /// Bytes that a receive has room for.
    fn receive_size(&self, rng: &mut Rng) -> u64 {
        let most = self.plan.longest.min(16 << 10);
        match rng.u32(0..4) {
            0 => rng.u64(0..200),
            1 => 256 << rng.u32(0..5),
            2 => rng.u64(1..=most),
            _ => 4096,
        }
        .min(most)
    }

    fn make_xrc_queue(&mut self, dev: usize, rng: &mut Rng) -> Judgement<usize> {
        let pd = rng.usize(0..self.nodes[dev].pds.len());
        let cq = rng.usize(0..self.nodes[dev].cqs.len());
        self.make_srq(dev, pd, 0, Some(cq), rng)
    }

    fn make_srq(
        &mut self,
        dev: usize,
        pd: usize,
        front: u64,
        cq: Option<usize>,
        rng: &mut Rng,
    ) -> Judgement<usize> {
        let node = &mut self.nodes[dev];
        let init = SrqInit {
            pd: node.pds[pd],
            xrcd: node.xrcd.filter(|_| cq.is_some()),
            cq: cq.map(|c| node.cqs[c].handle),
            max_wr: skewed(rng, 64),
            max_sge: skewed(rng, 8),
        };
        let srq = granted("create_srq", node.device().create_srq(init))?;
        self.oracle.srq(dev, srq, init.cq, init.pd);
        let (policy, size) = (policy(rng), self.receive_size(rng));
        self.receives.push(ReceiveSlot {
            srq: Some(srq),
            is_xrc: cq.is_some(),
            ..ReceiveSlot::new(dev, pd, policy, (init.max_wr, init.max_sge), front, size)
        });
        Ok(self.receives.len() - 1)
    }

    fn prepare_ud(&mut self, slot: usize, rng: &mut Rng) -> Judgement {
        let s = self.slot_mut(slot);
        s.attributes.qkey = if percent(rng, 80) { QKEY } else { rng.u32(..) >> 1 };
        s.attributes.port = 1;
        s.attributes.sq_psn = Psn::new(rng.u32(..));
        s.attributes.path_mtu = Mtu::Mtu4096;
        self.connect(slot)?;
        if percent(rng, 40) {
            let gid = group(rng);
            self.join(slot, gid)?;
        }
        Ok(())
    }

    /// Random attributes for both ends of a connection.
    fn choose_attributes(&mut self, a: usize, b: usize, rng: &mut Rng) {
        let gid = rng.u16(0..GID_COUNT);
        let mtu = Mtu::ALL[rng.usize(0..5)];
        let psns = [psn(rng), psn(rng)];
        let held = [rng.u8(1..=16), rng.u8(1..=16)];
        let lossless = matches!(self.plan.profile.name(), "clean" | "dup" | "hostile");
        for (i, (own, other)) in [(a, b), (b, a)].into_iter().enumerate() {
            let (to, to_number) = (self.slot(other).dev, self.slot(other).number);
            let way = address(rng, gid, to);
            let timeout = if self.plan.terms.tight_timers {
                rng.u8(1..13)
            } else {
                rng.u8(14..18)
            };
            let attributes = QpAttributes {
                state: QpState::Reset,
                path_mtu: mtu,
                rq_psn: psns[1 - i],
                sq_psn: psns[i],
                destination_qp: to_number,
                access: if self.plan.flaws == 0 || percent(rng, 85) {
                    Access::REMOTE
                } else {
                    Access::REMOTE_WRITE
                },
                address: Some(way),
                port: 1,
                // More than the peer holds is a mistake of the owner's.
                max_rd_atomic: if percent(rng, 98) {
                    rng.u8(1..=held[1 - i])
                } else {
                    rng.u8(1..=16)
                },
                max_dest_rd_atomic: held[i],
                min_rnr_timer: if percent(rng, 95) {
                    rng.u8(1..14)
                } else {
                    rng.u8(0..32)
                },
                timeout: if lossless && percent(rng, 5) { 0 } else { timeout },
                retry_count: if percent(rng, 70) { 7 } else { rng.u8(0..8) },
                rnr_retry: if percent(rng, 50) { 7 } else { rng.u8(0..8) },
                udp_source_port: percent(rng, 10).then(|| rng.u16(0xc000..)),
                ..QpAttributes::default()
            };
            self.slot_mut(own).attributes = attributes;
        }
    }

    /// Takes a queue pair to the state in which it works.
    pub(super) fn connect(&mut self, slot: usize) -> Judgement {
        for to in [QpState::Init, QpState::Rtr] {
            self.step_to(slot, to)?;
        }
        self.finish_connecting(slot)
    }

    /// Takes one that can receive to the state in which it sends, if it ever does.
    pub(super) fn finish_connecting(&mut self, slot: usize) -> Judgement {
        match self.slot(slot).kind {
            QpType::DcTarget => Ok(()),
            _ => self.step_to(slot, QpState::Rts),
        }
    }

    /// Takes a queue pair to a state, with all that this needs.
    pub(super) fn step_to(&mut self, slot: usize, to: QpState) -> Judgement {
        let s = self.slot(slot);
        if s.state() == to && to != QpState::Err {
            return Ok(());
        }
        let (dev, number, from, mut attributes) = (s.dev, s.number, s.state(), s.attributes);
        let needed = state::find(s.kind, s.state(), to).map(|t| t.required);
        let mut mask = needed.unwrap_or_default() | AttributeMask::STATE;
        if attributes.udp_source_port.is_some() && to == QpState::Rtr {
            mask |= AttributeMask::UDP_SOURCE_PORT;
        }
        if to == QpState::Sqd {
            mask |= AttributeMask::DRAINED_EVENT;
        }
        attributes.state = to;
        let now = Instant(self.now);
        granted(
            &format!("modify QP {:#x} of dev{dev} to {to:?}", number.0),
            self.device(dev).modify_qp(number, &attributes, mask, now),
        )?;
        self.slot_mut(slot).attributes = attributes;
        self.oracle.modified(dev, number, from, &attributes);
        self.stirred(dev)
    }

    pub(super) fn join(&mut self, slot: usize, gid: Gid) -> Judgement {
        let (dev, number) = (self.slot(slot).dev, self.slot(slot).number);
        granted("attach_multicast", self.device(dev).attach_multicast(number, gid))?;
        self.nodes[dev].groups.push((slot, gid));
        self.oracle.joined(dev, number, gid);
        Ok(())
    }

    /// An address handle for a device, or for a group.
    pub(super) fn address_handle(
        &mut self,
        from: usize,
        pd: usize,
        to: Option<usize>,
        rng: &mut Rng,
    ) -> Judgement<AhSlot> {
        let ahs = self.nodes[from].ahs.iter().copied();
        let known: Vec<AhSlot> = ahs
            .filter(|a| a.pd == pd && a.dev == to && a.index.is_none())
            .collect();
        if (known.len() > 3 || !known.is_empty() && percent(rng, 70))
            && let Some(slot) = rng.choice(known)
        {
            return Ok(slot);
        }
        let vector = match to {
            Some(to) => address(rng, rng.clone().u16(0..GID_COUNT), to),
            None => {
                let gid = group(rng);
                let index = if gid.to_ipv4().is_some() { 2 } else { rng.u16(0..2) };
                AddressVector {
                    dgid: gid,
                    dmac: gid.multicast_mac().unwrap_or(MacAddr([0; 6])),
                    ..address(rng, index, from)
                }
            }
        };
        let domain = self.nodes[from].pds[pd];
        let ah = granted("create_ah", self.device(from).create_ah(domain, vector))?;
        self.oracle.address(from, ah, vector);
        let slot = AhSlot {
            ah,
            pd,
            dev: to,
            index: None,
        };
        self.nodes[from].ahs.push(slot);
        Ok(slot)
    }

    /// An address handle for the targets of a device that answer from an entry of its GID table.
    pub(super) fn dynamic_handle(
        &mut self,
        from: usize,
        pd: usize,
        (to, index): (usize, u16),
        rng: &mut Rng,
    ) -> Judgement<AhSlot> {
        let known = self.nodes[from].ahs.iter().copied();
        let known: Vec<AhSlot> = known
            .filter(|a| a.pd == pd && a.dev == Some(to) && a.index == Some(index))
            .collect();
        if (known.len() > 2 || percent(rng, 70))
            && let Some(slot) = rng.choice(known)
        {
            return Ok(slot);
        }
        let vector = address(rng, index, to);
        let domain = self.nodes[from].pds[pd];
        let ah = granted("create_ah", self.device(from).create_ah(domain, vector))?;
        self.oracle.address(from, ah, vector);
        let slot = AhSlot {
            ah,
            pd,
            dev: Some(to),
            index: Some(index),
        };
        self.nodes[from].ahs.push(slot);
        Ok(slot)
    }

    /// The number of a queue pair for a packet.
    pub(super) fn number(&self, slot: usize) -> QpNumber {
        self.slot(slot).number
    }
}

/// A first PSN, often one of the last.
fn psn(rng: &mut Rng) -> Psn {
    Psn::new(if rng.bool() {
        0xff_ffff - rng.u32(0..60)
    } else {
        rng.u32(..)
    })
}

/// One of two groups.
fn group(rng: &mut Rng) -> Gid {
    if rng.bool() {
        Gid::from_ipv4([239, 1, 2, 3])
    } else {
        let mut gid = [0; 16];
        (gid[0], gid[1], gid[15]) = (0xff, 0x0e, 0x42);
        Gid(gid)
    }
}

fn policy(rng: &mut Rng) -> Policy {
    match rng.u32(0..20) {
        0..=13 => Policy::Early,
        14..=18 => Policy::Late(rng.u64(5_000..300_000)),
        _ => Policy::Never,
    }
}

/// Cuts memory into pieces of odd order; every piece begins at a multiple of 8.
fn frames(rng: &mut Rng, memory: u64) -> Vec<Span> {
    let mut frames = Vec::new();
    let mut at = 0;
    while at < memory {
        let len = (match rng.u32(0..4) {
            0 => rng.u64(1..64) * 8,
            1 => 4096,
            _ => rng.u64(64..4096) * 8,
        })
        .min(memory - at);
        // Now and then a piece that belongs to nobody.
        if !percent(rng, 5) {
            frames.push(Span { at, len });
        }
        at += len;
    }
    rng.shuffle(&mut frames);
    frames
}
