//! Bodies of commands that might be right.

use crate::driver::rdma::spec;
use vnic_device::command::connection::{Listen, Message};
use vnic_device::command::flow::{CreateFlow, CreateHashQp, FlowFields};
use vnic_device::command::memory::{
    AllocDm, AllocMw, CopyDm, RegisterDmMr, RegisterMr, RegisterOnDemandMr, ReregisterMr, SetPages,
};
use vnic_device::command::qp::{CreateAh, CreateQp, ModifyQp, Multicast, QpAttributes};
use vnic_device::command::queues::{CreateCq, CreateDoorbells, CreateSrq, ModifySrq, ResizeCq};
use vnic_device::command::{NONE, Object, Opcode as O, Range};
use vnic_device::verbs::QpType;
use vnic_device::zerocopy::{FromBytes, IntoBytes};

use super::{AH, BELLS, CONNECTION, CQ, DM, Evil, MR, MW, PD, QP, SRQ, XRCD};

impl Evil {
    /// A body and list that might be right.
    pub(super) fn body(&mut self, opcode: O) -> (Vec<u8>, Vec<u8>) {
        let handle = |handle: u32| Object { handle, reserved: 0 }.as_bytes().to_vec();
        let none = Vec::new;
        match opcode {
            O::QueryGids | O::QueryCounters | O::QueryResources => {
                let range = Range {
                    first: self.odd(),
                    reserved: 0,
                };
                (range.as_bytes().to_vec(), none())
            }
            O::DeallocPd => (handle(self.any(PD)), none()),
            O::DeregisterMr => (handle(self.any(MR)), none()),
            O::DeallocMw => (handle(self.any(MW)), none()),
            O::FreeDm => (handle(self.any(DM)), none()),
            O::DestroyCq => (handle(self.any(CQ)), none()),
            O::QuerySrq | O::DestroySrq => (handle(self.any(SRQ)), none()),
            O::QueryAh | O::DestroyAh => (handle(self.any(AH)), none()),
            O::CloseXrcd => (handle(self.any(XRCD)), none()),
            O::QueryQp | O::DestroyQp | O::DestroyHashQp => (handle(self.any(QP)), none()),
            O::DestroyDoorbells => (handle(self.any(BELLS)), none()),
            O::RegisterMr | O::ReregisterMr => {
                let len = self.dice.below(1 << 18);
                let (extents, list) = self.extents(len);
                let iova = if self.one_in(10) { self.odd64() } else { 0x1000 };
                let register = RegisterMr {
                    pd: self.any(PD),
                    access: self.access(),
                    iova,
                    extents,
                };
                if opcode == O::RegisterMr {
                    return (register.as_bytes().to_vec(), list);
                }
                let change = self.dice.below(9) as u32;
                let body = ReregisterMr {
                    mr: self.any(MR),
                    change,
                    register,
                };
                (
                    body.as_bytes().to_vec(),
                    if change & 1 == 1 { list } else { none() },
                )
            }
            O::AllocMw => {
                let body = AllocMw {
                    pd: self.any(PD),
                    mw_type: 1 + self.dice.below(2) as u32,
                };
                (body.as_bytes().to_vec(), none())
            }
            O::AllocDm => {
                let body = AllocDm {
                    len: self.dice.below(1 << 15),
                    log_alignment: 3,
                    reserved: 0,
                };
                (body.as_bytes().to_vec(), none())
            }
            O::CopyToDm | O::CopyFromDm => {
                let len = 4 * self.dice.below(500) as u32;
                let body = CopyDm {
                    dm: self.any(DM),
                    len,
                    offset: 4 * self.dice.below(5000),
                };
                let list = if opcode == O::CopyToDm {
                    vec![7; len as usize]
                } else {
                    none()
                };
                (body.as_bytes().to_vec(), list)
            }
            O::RegisterDmMr => {
                let body = RegisterDmMr {
                    pd: self.any(PD),
                    access: self.access() | 0x20,
                    dm: self.any(DM),
                    reserved: 0,
                    offset: 4 * self.dice.below(100),
                    len: 4 * self.dice.below(1000),
                };
                (body.as_bytes().to_vec(), none())
            }
            O::RegisterOnDemandMr => {
                // The word is anything that is there: the device's own rings, too.
                let body = RegisterOnDemandMr {
                    pd: self.any(PD),
                    access: self.access(),
                    iova: self.odd64(),
                    len: self.odd64(),
                    hold: self.odd64() / 8 * 8,
                };
                (body.as_bytes().to_vec(), none())
            }
            O::SetPages => {
                let len = 64 * self.dice.below(200);
                let (extents, list) = self.extents(len);
                let body = SetPages {
                    mr: self.any(MR),
                    flags: self.dice.below(8) as u32,
                    start: self.odd64(),
                    len: len.max(64),
                    extents,
                };
                (body.as_bytes().to_vec(), list)
            }
            O::CreateCq | O::ResizeCq => {
                let entries = self.entries(10);
                let (ring, list) = self.extents(64 * u64::from(entries.min(1 << 12)) + 64);
                let event_queue = if self.one_in(30) { self.odd() } else { 0 };
                let body = if opcode == O::CreateCq {
                    CreateCq {
                        entries,
                        event_queue,
                        ring,
                    }
                    .as_bytes()
                    .to_vec()
                } else {
                    ResizeCq {
                        cq: self.any(CQ),
                        entries,
                        ring,
                    }
                    .as_bytes()
                    .to_vec()
                };
                (body, list)
            }
            O::CreateSrq => {
                let entries = self.entries(8);
                let (ring, list) = self.extents(64 * u64::from(entries.min(1 << 12)) + 64);
                let xrc = self.one_in(3);
                let body = CreateSrq {
                    pd: self.any(PD),
                    entries,
                    elements: self.dice.below(4) as u32,
                    xrcd: if xrc { self.any(XRCD) } else { NONE },
                    cq: if xrc { self.any(CQ) } else { NONE },
                    reserved: 0,
                    ring,
                };
                (body.as_bytes().to_vec(), list)
            }
            O::ModifySrq => {
                let body = ModifySrq {
                    srq: self.any(SRQ),
                    mask: self.dice.below(4) as u32,
                    limit: self.dice.below(40) as u32,
                    max_wr: self.dice.below(300) as u32,
                };
                (body.as_bytes().to_vec(), none())
            }
            O::CreateAh => {
                let body = CreateAh {
                    pd: self.any(PD),
                    reserved: 0,
                    address: self.address(),
                };
                (body.as_bytes().to_vec(), none())
            }
            O::CreateQp => self.create_qp(),
            O::ModifyQp => {
                let raw: Vec<u8> = (0..72).map(|_| self.dice.bits() as u8).collect();
                let attributes = QpAttributes::read_from_bytes(&raw).unwrap_or_default();
                let attributes = QpAttributes {
                    state: self.dice.below(7) as u8,
                    reserved: 0,
                    has_address: 0,
                    address: self.address(),
                    ..attributes
                };
                let mask = self.dice.bits() as u32 & 0x8013_bfff & self.dice.bits() as u32;
                let body = ModifyQp {
                    qp: self.any(QP),
                    mask: mask | 1,
                    attributes,
                };
                (body.as_bytes().to_vec(), none())
            }
            O::CreateFlow => {
                let mut fields = [FlowFields::default(); 4];
                if self.one_in(2) {
                    for byte in fields.iter_mut().flat_map(|f| f.as_mut_bytes()) {
                        *byte = self.dice.below(2) as u8;
                    }
                }
                let body = CreateFlow {
                    qp: self.any(QP),
                    kind: self.dice.below(5) as u32,
                    priority: self.dice.below(20) as u32,
                    headers: self.dice.below(513) as u32,
                    value: fields[0],
                    mask: fields[1],
                    inner_value: fields[2],
                    inner_mask: fields[3],
                };
                (body.as_bytes().to_vec(), none())
            }
            O::CreateHashQp => {
                let mut body = CreateHashQp {
                    hash_types: self.dice.below(129) as u32,
                    entries: 1 << self.dice.below(9),
                    ..CreateHashQp::default()
                };
                let qp = self.any(QP);
                for entry in body.table.iter_mut().take(body.entries as usize) {
                    *entry = qp;
                }
                if self.one_in(10) {
                    (body.entries, body.table[5]) = (self.odd(), self.any(QP));
                }
                (body.as_bytes().to_vec(), none())
            }
            O::AttachMulticast | O::DetachMulticast => {
                let mut gid = [0; 16];
                gid[0] = 0xff;
                gid[15] = self.dice.below(4) as u8;
                let body = Multicast {
                    qp: self.any(QP),
                    reserved: 0,
                    gid,
                };
                (body.as_bytes().to_vec(), none())
            }
            O::CreateDoorbells => {
                let entries = if self.one_in(10) {
                    self.odd()
                } else {
                    16 << self.dice.below(4)
                };
                let (ring, list) = self.extents(8 * u64::from(entries.min(4096)) + 128);
                let body = CreateDoorbells {
                    entries,
                    wake_queue: 0,
                    ring,
                };
                (body.as_bytes().to_vec(), list)
            }
            O::Listen | O::Unlisten => {
                let backlog = if opcode == O::Listen { self.odd() } else { 0 };
                let body = Listen {
                    service: self.dice.below(4),
                    backlog,
                    reserved: 0,
                };
                (body.as_bytes().to_vec(), none())
            }
            O::DestroyConnection | O::QueryConnection => (handle(self.any(CONNECTION)), none()),
            O::Connect | O::Accept | O::Reject | O::Disconnect => {
                let body = Message {
                    connection: if opcode == O::Connect {
                        0
                    } else {
                        self.any(CONNECTION)
                    },
                    qp: self.any(QP),
                    service: self.dice.below(4),
                    psn: self.odd() & 0xff_ffff,
                    responder_resources: self.dice.bits() as u8,
                    initiator_depth: self.dice.bits() as u8,
                    path_mtu: self.dice.below(6) as u8,
                    transport: self.dice.below(4) as u8,
                    private_len: self.dice.below(233) as u8,
                    ack_timeout: self.dice.below(32) as u8,
                    // Short, so that it gives up while the test runs.
                    response_timeout: self.dice.below(16) as u8,
                    max_retries: self.dice.below(16) as u8,
                    pkey: 0xffff,
                    reason: self.dice.below(300) as u16,
                    ece_vendor: self.odd() & 0xff_ffff,
                    ece_options: self.odd(),
                    address: self.address(),
                    ..Message::default()
                };
                (body.as_bytes().to_vec(), none())
            }
            _ => {
                let (len, _) = spec::shape(opcode);
                ((0..len).map(|_| self.dice.below(3) as u8).collect(), none())
            }
        }
    }

    fn create_qp(&mut self) -> (Vec<u8>, Vec<u8>) {
        let (rc, uc, ud) = (QpType::Rc, QpType::Uc, QpType::Ud);
        let (initiator, target) = (QpType::XrcInitiator, QpType::XrcTarget);
        let (dci, dct) = (QpType::DcInitiator, QpType::DcTarget);
        let qp_type = *self.dice.pick(&[
            rc,
            rc,
            rc,
            uc,
            ud,
            ud,
            QpType::RawPacket,
            initiator,
            target,
            dci,
            dct,
        ]);
        let sends = qp_type != target && qp_type != dct;
        let both = matches!(qp_type, QpType::Rc | QpType::Uc | QpType::Ud | QpType::RawPacket);
        let shared = self.one_in(3) && both || qp_type == dct;
        let receives = !shared && both;
        let send_blocks = if sends { 1 << (4 + self.dice.below(5)) } else { 0 };
        let receive_entries = if receives { self.entries(8) } else { 0 };
        let (send_ring, mut list) = if sends {
            self.extents(64 * send_blocks)
        } else {
            Default::default()
        };
        let (receive_ring, more) = if receives {
            self.extents(64 * u64::from(receive_entries.min(4096)))
        } else {
            Default::default()
        };
        list.extend(more);
        let body = CreateQp {
            qp_type: qp_type.number(),
            flags: self.dice.below(2) as u32,
            pd: if qp_type != target { self.any(PD) } else { NONE },
            send_cq: if sends { self.any(CQ) } else { NONE },
            recv_cq: if receives || shared { self.any(CQ) } else { NONE },
            srq: if shared { self.any(SRQ) } else { NONE },
            xrcd: if qp_type != target {
                self.maybe(XRCD, 40)
            } else {
                self.any(XRCD)
            },
            send_blocks: send_blocks as u32,
            send_elements: if sends { self.dice.below(8) as u32 } else { 0 },
            max_inline: if sends { self.dice.below(200) as u32 } else { 0 },
            receive_entries,
            receive_elements: if receives { self.dice.below(4) as u32 } else { 0 },
            send_ring,
            receive_ring,
            access_key: if qp_type == dct { self.dice.below(2) } else { 0 },
        };
        (body.as_bytes().to_vec(), list)
    }
}
