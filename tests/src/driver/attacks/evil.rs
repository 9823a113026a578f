//! A driver that breaks every rule, by the dice.

mod bodies;

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Result;
use vhost::VhostBackend;
use vnic_device::command::connection::ConnectionEvent;
use vnic_device::command::memory::{MrReply, MwReply};
use vnic_device::command::qp::{AddressVector, ModifyQp, QpAttributes};
use vnic_device::command::{CommandHead, NONE, Opcode as O};
use vnic_device::doorbell::Kind;
use vnic_device::queue::{Element, SendHead};
use vnic_device::ring::{Extent, ExtentList};
use vnic_device::status::CommandStatus as S;
use vnic_device::verbs::QpState;
use vnic_device::zerocopy::{FromBytes, IntoBytes};

use super::super::rdma::{Area, Bells, Driver, HEAP_AT, Link, Options, Pieces, link};
use super::super::rig::Dice;

/// Memory that comes and goes.
const MODULE: u64 = 1 << 40;
const MODULE_LEN: u64 = 1 << 20;
/// Bytes of the heap.
const HEAP: u64 = 16 << 20;
/// The begin of the heap, where doorbell rings are that are mostly sound.
const SOUND: u64 = 64 << 10;
/// Handles remembered of a kind.
const POOL: usize = 64;

/// Kinds of objects.
const KINDS: usize = 12;
const PD: usize = 0;
const MR: usize = 1;
const MW: usize = 2;
const DM: usize = 3;
const CQ: usize = 4;
const SRQ: usize = 5;
const AH: usize = 6;
const XRCD: usize = 7;
const QP: usize = 8;
const BELLS: usize = 9;
const KEY: usize = 10;
const CONNECTION: usize = 11;

/// The driver.
pub struct Evil {
    d: Driver,
    socket: PathBuf,
    dice: Dice,
    pools: [Vec<u32>; KINDS],
    bells: Vec<Bells>,
    heap: Area,
    addresses: Vec<AddressVector>,
    /// QPs of others.
    others: Vec<u32>,
    plugged: bool,
    /// How far it has posted, by kind of doorbell and number.
    posted: BTreeMap<(u8, u32), u32>,
    /// What it did, and what was answered.
    pub tally: BTreeMap<String, u64>,
}

impl Evil {
    /// A driver that has said HELLO. It knows queue pairs and keys of others, and addresses.
    pub fn new(
        socket: PathBuf,
        dice: Dice,
        others: &[u32],
        keys: &[u32],
        to: &[AddressVector],
    ) -> Result<Evil> {
        let options = Options {
            memory: HEAP,
            ..Options::default()
        };
        let mut d = Driver::start(&socket, options)?;
        let mut addresses = vec![d.own_address(); 2];
        addresses.extend_from_slice(to);
        let heap = Area::new(
            &d.mem,
            vec![Extent {
                gpa: HEAP_AT,
                len: HEAP,
            }],
        );
        let mut evil = Evil {
            d,
            socket,
            dice,
            pools: Default::default(),
            bells: Vec::new(),
            heap,
            addresses,
            others: others.to_vec(),
            plugged: false,
            posted: BTreeMap::new(),
            tally: Default::default(),
        };
        evil.pools[KEY].extend_from_slice(keys);
        evil.furnish();
        Ok(evil)
    }

    fn count(&mut self, what: impl Into<String>) {
        *self.tally.entry(what.into()).or_default() += 1;
    }

    /// Things that are sound, so that the rest is not only refused.
    fn furnish(&mut self) {
        self.d.pieces = Pieces::default();
        self.bells.clear();
        self.d.release(HEAP_AT);
        let area = self.d.area(256);
        let mut ready = self.d.status(O::QueryClock, &[0u8; 0], &[]) != S::NotReady;
        if ready && self.is_full_of_rings() {
            ready = self.d.status(O::Reset, &[0u8; 0], &[]) != S::Ok;
        }
        if !ready {
            self.d.hello();
            // Of the handles of before a few are kept.
            for pool in &mut self.pools {
                pool.truncate(4);
            }
            self.posted.clear();
        }
        self.bells.push(self.d.bells_in(16, area));
        let bells = self.d.bells(256);
        self.bells.push(bells);
        for opcode in [O::AllocPd, O::AllocPd, O::OpenXrcd] {
            let body = [];
            self.command_of(opcode, body.to_vec(), Vec::new());
        }
        for _ in 0..6 {
            for opcode in [
                O::RegisterMr,
                O::CreateCq,
                O::CreateSrq,
                O::CreateQp,
                O::CreateAh,
                O::AllocMw,
            ] {
                let (body, list) = self.body(opcode);
                self.command_of(opcode, body, list);
            }
        }
    }

    /// Rings that are forgotten stay where they were; at last there is no room for two more.
    fn is_full_of_rings(&mut self) -> bool {
        let rings = |(name, used, limit): &(String, u32, u32)| name == "doorbells" && used + 2 > *limit;
        self.d.resources().iter().any(rings)
    }

    // Numbers.

    fn odd(&mut self) -> u32 {
        let bits = self.dice.bits() as u32;
        *self.dice.pick(&[
            0,
            1,
            2,
            3,
            15,
            16,
            64,
            255,
            1 << 16,
            1 << 24,
            NONE,
            NONE - 1,
            bits,
            bits >> 8,
            bits >> 20,
        ])
    }

    fn odd64(&mut self) -> u64 {
        let bits = self.dice.bits();
        *self.dice.pick(&[
            0,
            1,
            63,
            4096,
            u64::MAX,
            u64::MAX - 63,
            1 << 63,
            bits,
            bits >> 32,
            HEAP_AT + bits % HEAP,
        ])
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.dice.below(n) == 0
    }

    fn any(&mut self, kind: usize) -> u32 {
        if self.one_in(20) {
            return self.odd();
        }
        let kind = if self.one_in(30) {
            self.dice.below(KINDS as u64) as usize
        } else {
            kind
        };
        match self.pools[kind].len() {
            0 => self.odd(),
            _ => *self.dice.pick(&self.pools[kind]),
        }
    }

    fn maybe(&mut self, kind: usize, n: u64) -> u32 {
        if self.one_in(n) { self.any(kind) } else { NONE }
    }

    /// A power of two, mostly.
    fn entries(&mut self, most: u64) -> u32 {
        if self.one_in(20) {
            self.odd()
        } else {
            1 << self.dice.below(most)
        }
    }

    /// Memory for `len` bytes, mostly.
    fn extents(&mut self, len: u64) -> (ExtentList, Vec<u8>) {
        let mut list = Vec::new();
        let pieces = if self.one_in(4) { 1 + self.dice.below(5) } else { 1 };
        let len = (len / pieces).next_multiple_of(64).max(64);
        for _ in 0..pieces {
            let gpa = match self.dice.below(40) {
                0 => self.odd64(),
                1..=4 => MODULE + self.dice.below(MODULE_LEN) / 64 * 64,
                5 => HEAP_AT + HEAP - 64,
                _ => HEAP_AT + SOUND + self.dice.below(HEAP - SOUND) / 2 / 64 * 64,
            };
            let len = if self.one_in(40) { self.odd64() } else { len };
            list.push(Extent { gpa, len });
        }
        let count = list.len() as u32;
        let (count, chunks) = match self.dice.below(40) {
            0 => (self.odd(), self.odd()),
            1 => (count, count),
            _ => (count, 0),
        };
        (ExtentList { count, chunks }, list.as_bytes().to_vec())
    }

    fn address(&mut self) -> AddressVector {
        let mut address = *self.dice.pick(&self.addresses);
        if self.one_in(10) {
            let i = self.dice.below(32) as usize;
            let mut bytes = [0; 32];
            bytes.copy_from_slice(address.as_bytes());
            bytes[i] ^= self.dice.bits() as u8;
            address = AddressVector::read_from_bytes(&bytes).unwrap_or(address);
        }
        address
    }

    fn access(&mut self) -> u32 {
        let bits = self.dice.bits() as u32;
        *self
            .dice
            .pick(&[0x1f, 0x1f, 0x1f, 0x8000_001f, 1, 0x3f, 4, 2, 0, bits])
    }

    // Commands.

    fn command_of(&mut self, opcode: O, body: Vec<u8>, list: Vec<u8>) {
        let head = self.d.head(opcode, body.len(), list.len());
        self.send(head, [body, list].concat());
    }

    fn send(&mut self, head: CommandHead, behind: Vec<u8>) {
        let room = if self.one_in(30) {
            self.dice.below(32) as usize
        } else {
            512
        };
        let reply = self.d.command_with(head, &behind, room);
        assert_ne!(reply.status, S::Internal, "{head:?} {behind:?}: {reply}");
        let name = O::from_number(head.opcode).map_or("unknown".into(), |o| format!("{o:?}"));
        self.count(format!("{name} {:?}", reply.status));
        let (S::Ok, Some(opcode)) = (reply.status, O::from_number(head.opcode)) else {
            return;
        };
        let kind = match opcode {
            O::AllocPd => PD,
            O::RegisterMr | O::RegisterDmMr | O::RegisterNullMr | O::RegisterOnDemandMr | O::ReregisterMr => {
                if let Ok(mr) = MrReply::read_from_bytes(&reply.bytes) {
                    self.keep(KEY, mr.lkey);
                }
                MR
            }
            O::AllocMw => {
                if let Ok(mw) = MwReply::read_from_bytes(&reply.bytes) {
                    self.keep(KEY, mw.rkey);
                }
                MW
            }
            O::AllocDm => DM,
            O::CreateCq => CQ,
            O::CreateSrq => SRQ,
            O::CreateAh => AH,
            O::OpenXrcd => XRCD,
            // Flows and what ends a queue pair name either kind.
            O::CreateQp | O::CreateHashQp => QP,
            O::CreateDoorbells => BELLS,
            O::Connect => CONNECTION,
            O::TakeConnectionEvents => {
                for record in reply.bytes.chunks_exact(size_of::<ConnectionEvent>()) {
                    if let Ok(event) = ConnectionEvent::read_from_bytes(record) {
                        self.keep(CONNECTION, event.message.connection);
                    }
                }
                return;
            }
            _ => return,
        };
        if let Some(handle) = reply.bytes.first_chunk() {
            self.keep(kind, u32::from_le_bytes(*handle));
        }
    }

    fn keep(&mut self, kind: usize, handle: u32) {
        let pool = &mut self.pools[kind];
        if pool.len() < POOL {
            pool.push(handle);
        } else {
            let i = self.dice.below(POOL as u64) as usize;
            self.pools[kind][i] = handle;
        }
    }

    fn a_command(&mut self) {
        self.d.pieces = Pieces {
            readable: (0..self.dice.below(4))
                .map(|_| 50 + self.dice.below(200) as u32)
                .collect(),
            writable: (0..self.dice.below(3))
                .map(|_| 100 + self.dice.below(300) as u32)
                .collect(),
            indirect: false,
        };
        let opcode = match self.dice.below(16) {
            0..=5 => O::CreateQp,
            6 => O::RegisterMr,
            7 => O::CreateCq,
            _ => *self.dice.pick(O::ALL.as_ref()),
        };
        if matches!(opcode, O::Reset) && !self.one_in(20) {
            return;
        }
        let (mut body, list) = self.body(opcode);
        if self.one_in(8) && !body.is_empty() {
            for _ in 0..=self.dice.below(3) {
                let i = self.dice.below(body.len() as u64) as usize;
                body[i] = self.dice.bits() as u8;
            }
        }
        let mut head = self.d.head(opcode, body.len(), list.len());
        if self.one_in(20) {
            match self.dice.below(4) {
                0 => head.opcode = self.dice.bits() as u16,
                1 => head.body_len = self.odd() as u16,
                2 => head.len = self.odd(),
                _ => head.len = head.len.wrapping_sub(8),
            }
        }
        self.send(head, [body, list].concat());
        if head.opcode == O::Reset.number() || head.opcode == O::Hello.number() {
            self.furnish();
        }
    }

    /// Brings a QP to where it sends.
    fn a_way(&mut self) {
        let qp = self.any(QP);
        let to = match self.dice.below(4) {
            0 => *self.dice.pick(&self.others),
            _ => self.any(QP) & 0xff_ffff,
        };
        let way = Link {
            retry: self.dice.below(3) as u8,
            timeout: 8 + self.dice.below(3) as u8,
            rnr_retry: self.dice.below(3) as u8,
            mtu: 1 + self.dice.below(3) as u8,
            ..link(self.address(), to)
        };
        let base = QpAttributes {
            port: 1,
            access: 0xe,
            qkey: 0x1111_1111,
            path_mtu: way.mtu,
            max_dest_rd_atomic: 1 + self.dice.below(16) as u8,
            max_rd_atomic: 1 + self.dice.below(16) as u8,
            min_rnr_timer: 1,
            rq_psn: way.rq_psn,
            sq_psn: way.sq_psn,
            destination_qp: to,
            address: way.address,
            timeout: way.timeout,
            retry_count: way.retry,
            rnr_retry: way.rnr_retry,
            ..QpAttributes::default()
        };
        let rows: [(QpState, &[u32]); 4] = [
            (QpState::Reset, &[0]),
            (QpState::Init, &[0x38, 0x70]),
            (QpState::Rtr, &[0x12_9180, 0x10_1180, 0]),
            (QpState::Rts, &[0x1_2e00, 0x1_0000, 0x1_0200]),
        ];
        for (state, masks) in rows {
            for mask in masks {
                let attributes = QpAttributes {
                    state: state.number(),
                    ..base
                };
                let body = ModifyQp {
                    qp,
                    mask: 1 | mask,
                    attributes,
                };
                let status = self.d.status(O::ModifyQp, &body, &[]);
                self.count(format!("to {state:?} {status:?}"));
                if status == S::Ok {
                    break;
                }
            }
        }
    }

    // Rings.

    /// What could be a work request.
    fn request(&mut self) -> Vec<u8> {
        let count = match self.dice.below(10) {
            0 => self.odd() as u16,
            _ => self.dice.below(7) as u16,
        };
        let udp = self.one_in(4);
        let head = SendHead {
            wr_id: self.dice.bits(),
            operation: if self.one_in(30) {
                self.dice.bits() as u8
            } else {
                self.dice.below(10) as u8
            },
            flags: if self.one_in(30) {
                self.dice.bits() as u8
            } else {
                self.dice.below(16) as u8
            },
            count,
            imm: self.any(KEY),
            remote: if udp {
                SendHead::datagram(self.any(AH), self.any(QP) & 0xff_ffff)
            } else {
                0x1000 + self.dice.below(1 << 16)
            },
            rkey: if udp { 0x1111_1111 } else { self.any(KEY) },
            remote_srq: self.any(SRQ),
        };
        let mut out = head.as_bytes().to_vec();
        for _ in 0..6 {
            out.extend_from_slice(self.element().as_bytes());
        }
        out
    }

    fn element(&mut self) -> Element {
        Element {
            addr: if self.one_in(20) {
                self.odd64()
            } else {
                0x1000 + self.dice.below(1 << 15)
            },
            len: if self.one_in(20) {
                self.odd()
            } else {
                self.dice.below(1 << 14) as u32
            },
            lkey: self.any(KEY),
        }
    }

    /// Fills a good deal of the heap with what could be work requests, receives, or anything.
    pub fn scribble(&mut self) {
        let mut at = SOUND + self.dice.below(HEAP - SOUND) / 2;
        at = at / 64 * 64;
        let blocks = 64 + self.dice.below(512);
        let how = self.dice.below(4);
        let mut bytes = Vec::with_capacity(64 * blocks as usize);
        for _ in 0..blocks {
            match how {
                0 => (0..8).for_each(|_| bytes.extend_from_slice(&self.dice.bits().to_le_bytes())),
                1 => bytes.extend([0; 64]),
                2 => {
                    let elements = self.dice.below(4) as u32;
                    bytes.extend_from_slice(&self.dice.bits().to_le_bytes());
                    bytes.extend_from_slice(&u64::from(elements).to_le_bytes());
                    (0..3).for_each(|_| bytes.extend_from_slice(self.element().as_bytes()));
                }
                _ => {
                    let mut request = self.request();
                    request.truncate(64);
                    bytes.extend(request);
                }
            }
        }
        bytes.truncate((HEAP - at) as usize);
        self.heap.write(at, &bytes);
        self.count("scribble");
    }

    fn ring(&mut self) {
        let i = self.dice.below(self.bells.len() as u64) as usize;
        let kind = *self.dice.pick(&[
            Kind::Send,
            Kind::Send,
            Kind::Receive,
            Kind::SharedReceive,
            Kind::ArmNext,
            Kind::ArmSolicited,
        ]);
        let number = match kind {
            Kind::Send | Kind::Receive => self.any(QP),
            Kind::SharedReceive => self.any(SRQ),
            _ => self.any(CQ),
        };
        let before = self.posted.entry((kind.number(), number)).or_default();
        *before = before.wrapping_add(self.dice.below(8) as u32);
        let before = *before;
        let index = if self.one_in(100) { self.odd() } else { before };
        if self.one_in(400) {
            // A broken doorbell, and then a new ring.
            let bits = self.dice.bits();
            self.bells[i].write(bits);
            self.bells[i].kick_if_wanted();
            self.count("wild doorbell");
            let handle = self.bells[i].handle;
            let _ = self.d.end(O::DestroyDoorbells, handle);
            self.furnish();
            return;
        }
        // (A ring that the dice have destroyed or scribbled over is never taken from: no waiting for room.)
        let bells = &mut self.bells[i];
        let bits = vnic_device::doorbell::Doorbell { kind, number, index }.to_bits(false);
        bells.write(bits);
        bells.kick_if_wanted();
        self.count("doorbell");
    }

    /// Tails and entries that belong to the device, and a doorbell ring's own.
    fn meddle(&mut self) {
        let at = self.dice.below(SOUND / 8) * 8;
        let bits = self.dice.bits();
        if self.one_in(4) {
            self.heap.write(at, &bits.to_le_bytes());
        }
        if self.one_in(50) {
            self.furnish();
        }
        self.count("meddle");
    }

    /// Its memory, for somebody who changes it all the time.
    pub fn heap(&self) -> Area {
        self.heap.part(SOUND, HEAP - SOUND)
    }

    // Transport.

    fn memory(&mut self) -> Result<()> {
        match (self.dice.below(3), self.plugged) {
            (0, _) => self.d.set_mem_table()?,
            (_, false) => {
                self.d.plug(MODULE, MODULE_LEN)?;
                self.plugged = true;
            }
            (_, true) => {
                self.d.unplug(MODULE)?;
                self.plugged = false;
            }
        }
        self.count("memory");
        Ok(())
    }

    fn transport(&mut self) -> Result<()> {
        match self.dice.below(6) {
            0 => {
                // A head that there is not; then chains without end.
                let head = self.dice.bits() as u16;
                let indices = self.d.control.avail_idx.wrapping_add(1);
                self.d.control.set_avail(self.d.control.avail_idx, head);
                self.d.control.set_avail_idx(indices);
                self.d.control.kick();
                self.again()
            }
            1 => {
                let wild = self
                    .d
                    .control
                    .avail_idx
                    .wrapping_add(self.dice.bits() as u16 | 0x400);
                self.d.control.set_avail_idx(wild);
                self.d.control.kick();
                self.again()
            }
            2 => {
                let wild = self
                    .d
                    .event_ring
                    .avail_idx
                    .wrapping_add(self.dice.bits() as u16 | 0x400);
                self.d.event_ring.set_avail_idx(wild);
                self.d.event_ring.kick();
                self.again()
            }
            3 => {
                self.d.hang_up();
                self.d.connect(&self.socket)?;
                self.furnish();
                Ok(())
            }
            4 => {
                let i = self.dice.below(3) as usize;
                let f = self.d.frontend()?;
                // Refused or not: it lives.
                let _ = f.set_vring_num(i, 3);
                let _ = f.set_vring_base(i, 0xfffe);
                self.again()
            }
            _ => {
                self.d.stop_rings()?;
                self.again()
            }
        }
    }

    /// Everything from the beginning, on a new connection.
    fn again(&mut self) -> Result<()> {
        self.count("transport");
        self.d.hang_up();
        self.d.connect(&self.socket)?;
        self.furnish();
        Ok(())
    }

    /// One thing.
    pub fn step(&mut self) -> Result<()> {
        match self.dice.below(2000) {
            0..700 => self.a_command(),
            700..900 => self.a_way(),
            900..1000 => self.scribble(),
            1000..1900 => self.ring(),
            1900..1950 => {
                self.d.poll_events();
                self.d.events.clear();
            }
            1950..1980 => self.meddle(),
            1980..1999 => self.memory()?,
            _ => self.transport()?,
        }
        Ok(())
    }

    /// Ends it; answers what it did.
    pub fn finish(mut self) -> Result<BTreeMap<String, u64>> {
        self.d.mem.check_canaries()?;
        self.d.hang_up();
        Ok(self.tally)
    }
}
