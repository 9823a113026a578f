//! Objects, made as any driver would make them.

use anyhow::Result;
use vnic_device::command::device::{DeviceReply, GidRecord, ResourceRecord};
use vnic_device::command::memory::{MrReply, RegisterMr};
use vnic_device::command::qp::{AddressVector, CreateAh, CreateQp, ModifyQp, QpAttributes, QpReply};
use vnic_device::command::queues::{CreateCq, CreateDoorbells, CreateSrq};
use vnic_device::command::{NONE, Object, Opcode, Range};
use vnic_device::queue::{Element, receive_stride};
use vnic_device::ring::{self, Extent, ExtentList};
use vnic_device::verbs::{QpState, QpType, access, qp_mask as m};
use vnic_device::zerocopy::{FromBytes, IntoBytes};

use super::Driver;
use super::area::Area;
use super::chain::Reply;
use super::queues::{Bells, Cq, Qp, ReceiveRing, SendRing, Srq};

/// Extents as the list behind a body.
pub fn list_of(extents: &[Extent]) -> Vec<u8> {
    extents.as_bytes().to_vec()
}

/// The announcement of extents that follow.
pub fn extents(area: &Area) -> ExtentList {
    ExtentList {
        count: area.extents.len() as u32,
        chunks: 0,
    }
}

/// A memory region.
#[derive(Clone)]
pub struct Mr {
    /// Its memory.
    pub area: Area,
    /// Its handle.
    pub handle: u32,
    /// Address of its first byte.
    pub iova: u64,
    /// Local key.
    pub lkey: u32,
    /// Remote key.
    pub rkey: u32,
}

impl Mr {
    /// An element of it.
    pub fn element(&self, offset: u64, len: u32) -> Element {
        Element {
            addr: self.iova + offset,
            len,
            lkey: self.lkey,
        }
    }
}

/// What a QP is made with.
#[derive(Debug, Clone)]
pub struct QpSpec {
    /// Type.
    pub qp_type: QpType,
    /// Protection domain.
    pub pd: u32,
    /// Where sends complete.
    pub send_cq: u32,
    /// Where receives complete.
    pub recv_cq: u32,
    /// Shared receive queue.
    pub srq: u32,
    /// XRC domain of a target.
    pub xrcd: u32,
    /// Blocks of the send ring.
    pub blocks: u32,
    /// Elements of a send.
    pub elements: u32,
    /// Inline bytes.
    pub inline: u32,
    /// Entries of the receive ring.
    pub entries: u32,
    /// Elements of a receive.
    pub receive_elements: u32,
    /// Flags.
    pub flags: u32,
    /// Lengths of the pieces of the send ring; empty: one.
    pub pieces: Vec<u64>,
}

impl QpSpec {
    /// A usual one: 64 blocks, 64 receives.
    pub fn new(qp_type: QpType, pd: u32, cq: &Cq) -> QpSpec {
        QpSpec {
            qp_type,
            pd,
            send_cq: cq.handle,
            recv_cq: cq.handle,
            srq: NONE,
            xrcd: NONE,
            blocks: 64,
            elements: 6,
            inline: 128,
            entries: 64,
            receive_elements: 3,
            flags: 0,
            pieces: Vec::new(),
        }
    }

    /// With a shared receive queue.
    pub fn shared(self, srq: &Srq) -> QpSpec {
        QpSpec {
            srq: srq.handle,
            ..self
        }
        .without_receives()
    }

    /// Without a receive ring.
    pub fn without_receives(self) -> QpSpec {
        QpSpec {
            entries: 0,
            receive_elements: 0,
            ..self
        }
    }

    /// Sends complete in one queue, receives in another.
    pub fn receives_to(self, cq: &Cq) -> QpSpec {
        QpSpec {
            recv_cq: cq.handle,
            ..self
        }
    }
}

/// The way from one QP to another.
#[derive(Debug, Clone, Copy)]
pub struct Link {
    /// Where to.
    pub address: AddressVector,
    /// Remote QP.
    pub qp: u32,
    /// PSN of what is sent.
    pub sq_psn: u32,
    /// PSN of what is received.
    pub rq_psn: u32,
    /// Path MTU.
    pub mtu: u8,
    /// ACK timeout.
    pub timeout: u8,
    /// Retries.
    pub retry: u8,
    /// RNR retries.
    pub rnr_retry: u8,
}

/// Every right that a QP may give its peer.
pub const PEER: u32 = access::REMOTE_WRITE | access::REMOTE_READ | access::REMOTE_ATOMIC;
/// Every usual right of a region.
pub const FULL: u32 = access::LOCAL_WRITE | PEER | access::MW_BIND | access::INVALIDATE;
/// Queue key of all datagram QPs.
pub const QKEY: u32 = 0x1111_1111;

impl Driver {
    fn object(&mut self, opcode: Opcode, body: &[u8], list: &[u8]) -> u32 {
        let made: Object = match self.ask(opcode, body, list) {
            Ok(made) => made,
            Err(reply) => panic!("{opcode:?}: {reply}"),
        };
        made.handle
    }

    /// A protection domain.
    pub fn pd(&mut self) -> u32 {
        self.object(Opcode::AllocPd, &[], &[])
    }

    /// An XRC domain.
    pub fn xrcd(&mut self) -> u32 {
        self.object(Opcode::OpenXrcd, &[], &[])
    }

    /// Ends an object; answers the refusal.
    pub fn end(&mut self, opcode: Opcode, handle: u32) -> Result<(), Reply> {
        let body = Object { handle, reserved: 0 };
        self.ask::<_, [u8; 0]>(opcode, &body, &[]).map(|_| ())
    }

    /// What the device can.
    pub fn device(&mut self) -> DeviceReply {
        self.ask(Opcode::QueryDevice, &[0u8; 0], &[])
            .expect("QUERY_DEVICE")
    }

    fn records<T: FromBytes>(&mut self, opcode: Opcode) -> Vec<T> {
        let reply = self.command_in(opcode, Range::default().as_bytes(), &[], 32768);
        assert!(reply.bytes.len().is_multiple_of(size_of::<T>()), "{reply}");
        let records = reply.bytes.chunks_exact(size_of::<T>());
        records
            .map(|r| T::read_from_bytes(r).expect("as long as a record"))
            .collect()
    }

    /// The GID table.
    pub fn gids(&mut self) -> Vec<GidRecord> {
        self.records(Opcode::QueryGids)
    }

    /// Objects in use, by name.
    pub fn resources(&mut self) -> Vec<(String, u32, u32)> {
        let records: Vec<ResourceRecord> = self.records(Opcode::QueryResources);
        let name = |r: &ResourceRecord| String::from_utf8_lossy(&r.name).trim_end_matches('\0').to_owned();
        records.iter().map(|r| (name(r), r.used, r.limit)).collect()
    }

    /// A region of new memory with all usual rights; its addresses begin at `iova`.
    pub fn mr(&mut self, pd: u32, len: u64, iova: u64) -> Mr {
        let area = self.area(len);
        self.mr_of(pd, area, iova, FULL)
    }

    /// A region of memory.
    ///
    /// # Panics
    /// When the device refuses.
    pub fn mr_of(&mut self, pd: u32, area: Area, iova: u64, access: u32) -> Mr {
        let body = RegisterMr {
            pd,
            access,
            iova,
            extents: extents(&area),
        };
        let made = self.ask(Opcode::RegisterMr, &body, &list_of(&area.extents));
        let made: MrReply = made.unwrap_or_else(|e| panic!("REGISTER_MR: {e}"));
        assert_eq!(made.reserved, 0);
        Mr {
            area,
            handle: made.mr,
            iova,
            lkey: made.lkey,
            rkey: made.rkey,
        }
    }

    /// A completion queue.
    pub fn cq(&mut self, entries: u32) -> Cq {
        let area = self.area(ring::completion_ring_len(entries));
        self.cq_in(entries, area)
    }

    /// A completion queue in that memory.
    pub fn cq_in(&mut self, entries: u32, area: Area) -> Cq {
        let body = CreateCq {
            entries,
            event_queue: 0,
            ring: extents(&area),
        };
        let handle = self.object(Opcode::CreateCq, body.as_bytes(), &list_of(&area.extents));
        Cq {
            area,
            handle,
            entries,
            consumer: 0,
        }
    }

    /// A doorbell ring.
    pub fn bells(&mut self, entries: u32) -> Bells {
        let area = self.area(ring::doorbell_ring_len(entries));
        self.bells_in(entries, area)
    }

    /// A doorbell ring in that memory.
    ///
    /// # Panics
    /// When the device refuses.
    pub fn bells_in(&mut self, entries: u32, area: Area) -> Bells {
        let body = CreateDoorbells {
            entries,
            wake_queue: 0,
            ring: extents(&area),
        };
        let handle = self.object(Opcode::CreateDoorbells, body.as_bytes(), &list_of(&area.extents));
        Bells {
            area,
            handle,
            entries,
            written: 0,
            kicks: 0,
            kick: self.wake.try_clone().expect("another descriptor"),
        }
    }

    /// A shared receive queue; for XRC with a domain and a completion queue.
    ///
    /// # Panics
    /// When the device refuses.
    pub fn srq(&mut self, pd: u32, entries: u32, elements: u32, xrc: Option<(u32, u32)>) -> Srq {
        let stride = receive_stride(elements).expect("a number of elements");
        let area = self.area(ring::shared_receive_ring_len(entries, stride));
        let (xrcd, cq) = xrc.unwrap_or((NONE, NONE));
        let body = CreateSrq {
            pd,
            entries,
            elements,
            xrcd,
            cq,
            reserved: 0,
            ring: extents(&area),
        };
        let handle = self.object(Opcode::CreateSrq, body.as_bytes(), &list_of(&area.extents));
        Srq {
            handle,
            ring: ReceiveRing {
                area,
                entries,
                stride,
                producer: 0,
                consumer: 0,
            },
        }
    }

    /// A queue pair in RESET.
    ///
    /// # Panics
    /// When the device refuses.
    pub fn qp(&mut self, spec: &QpSpec) -> Qp {
        match self.try_qp(spec) {
            Ok(qp) => qp,
            Err(reply) => panic!("CREATE_QP {spec:?}: {reply}"),
        }
    }

    /// A queue pair in RESET, or why not.
    pub fn try_qp(&mut self, spec: &QpSpec) -> Result<Qp, Reply> {
        let send_area = match (spec.blocks, &spec.pieces[..]) {
            (0, _) => None,
            (blocks, []) => Some(self.area(ring::send_ring_len(blocks))),
            (_, pieces) => Some(self.area_in(pieces)),
        };
        let stride = receive_stride(spec.receive_elements).unwrap_or(4096);
        let receive_area =
            (spec.entries > 0).then(|| self.area(ring::receive_ring_len(spec.entries, stride)));
        let announced = |area: &Option<Area>| area.as_ref().map(extents).unwrap_or_default();
        let target = spec.qp_type == QpType::XrcTarget;
        let xrc = target || spec.qp_type == QpType::XrcInitiator;
        let (dci, dct) = (QpType::DcInitiator, QpType::DcTarget);
        let unless = |not: bool, handle| if not { NONE } else { handle };
        let body = CreateQp {
            qp_type: spec.qp_type.number(),
            flags: spec.flags,
            pd: unless(target, spec.pd),
            send_cq: unless(target || spec.qp_type == dct, spec.send_cq),
            recv_cq: unless(xrc || spec.qp_type == dci, spec.recv_cq),
            srq: spec.srq,
            xrcd: spec.xrcd,
            send_blocks: spec.blocks,
            send_elements: spec.elements,
            max_inline: spec.inline,
            receive_entries: spec.entries,
            receive_elements: spec.receive_elements,
            send_ring: announced(&send_area),
            receive_ring: announced(&receive_area),
            access_key: 0,
        };
        let mut list = Vec::new();
        for area in send_area.iter().chain(&receive_area) {
            list.extend(list_of(&area.extents));
        }
        let made: Object = self.ask(Opcode::CreateQp, &body, &list)?;
        Ok(Qp {
            number: made.handle,
            qp_type: spec.qp_type,
            send: send_area.map(|area| SendRing {
                area,
                blocks: spec.blocks,
                producer: 0,
                consumer: 0,
            }),
            receive: receive_area.map(|area| ReceiveRing {
                area,
                entries: spec.entries,
                stride,
                producer: 0,
                consumer: 0,
            }),
        })
    }

    /// MODIFY_QP.
    pub fn modify(&mut self, qp: u32, mask: u32, attributes: QpAttributes) -> Result<(), Reply> {
        let body = ModifyQp { qp, mask, attributes };
        self.ask::<_, [u8; 0]>(Opcode::ModifyQp, &body, &[]).map(|_| ())
    }

    /// Into a state that needs nothing else.
    ///
    /// # Panics
    /// When the device refuses.
    pub fn to(&mut self, qp: &Qp, state: QpState) {
        let attributes = QpAttributes {
            state: state.number(),
            ..QpAttributes::default()
        };
        if let Err(reply) = self.modify(qp.number, m::STATE, attributes) {
            panic!("to {state:?}: {reply}");
        }
    }

    /// RESET → INIT, with all rights for the peer.
    ///
    /// # Panics
    /// When the device refuses.
    pub fn init(&mut self, qp: &Qp) {
        let attributes = QpAttributes {
            state: QpState::Init.number(),
            port: 1,
            access: PEER,
            qkey: QKEY,
            ..QpAttributes::default()
        };
        let own = match qp.qp_type {
            QpType::RawPacket => 0,
            QpType::Ud => m::PKEY_INDEX | m::QKEY,
            _ => m::PKEY_INDEX | m::ACCESS,
        };
        let mask = m::STATE | m::PORT | own;
        if let Err(reply) = self.modify(qp.number, mask, attributes) {
            panic!("to INIT: {reply}");
        }
    }

    /// INIT → RTR.
    ///
    /// # Panics
    /// When the device refuses.
    pub fn rtr(&mut self, qp: &Qp, link: &Link) {
        let attributes = QpAttributes {
            state: QpState::Rtr.number(),
            path_mtu: link.mtu,
            max_dest_rd_atomic: 16,
            min_rnr_timer: 1,
            rq_psn: link.rq_psn,
            destination_qp: link.qp,
            address: link.address,
            ..QpAttributes::default()
        };
        let connected = m::ADDRESS | m::PATH_MTU | m::DESTINATION_QP | m::RQ_PSN;
        let mask = match qp.qp_type {
            QpType::Ud | QpType::RawPacket => 0,
            QpType::Uc | QpType::XrcInitiator => connected,
            QpType::Rc | QpType::XrcTarget => connected | m::MAX_DEST_RD_ATOMIC | m::MIN_RNR_TIMER,
            QpType::DcInitiator => m::PATH_MTU,
            QpType::DcTarget => m::ADDRESS | m::PATH_MTU | m::MIN_RNR_TIMER,
        };
        if let Err(reply) = self.modify(qp.number, m::STATE | mask, attributes) {
            panic!("to RTR: {reply}");
        }
    }

    /// RTR → RTS.
    ///
    /// # Panics
    /// When the device refuses.
    pub fn rts(&mut self, qp: &Qp, link: &Link) {
        let attributes = QpAttributes {
            state: QpState::Rts.number(),
            max_rd_atomic: 16,
            timeout: link.timeout,
            retry_count: link.retry,
            rnr_retry: link.rnr_retry,
            sq_psn: link.sq_psn,
            ..QpAttributes::default()
        };
        let mask = match qp.qp_type {
            QpType::Ud | QpType::Uc | QpType::RawPacket => 0,
            QpType::Rc | QpType::XrcInitiator | QpType::DcInitiator => {
                m::TIMEOUT | m::RETRY_COUNT | m::RNR_RETRY | m::MAX_RD_ATOMIC
            }
            QpType::XrcTarget | QpType::DcTarget => m::TIMEOUT,
        };
        let psn = if qp.qp_type == QpType::RawPacket {
            0
        } else {
            m::SQ_PSN
        };
        if let Err(reply) = self.modify(qp.number, m::STATE | psn | mask, attributes) {
            panic!("to RTS: {reply}");
        }
    }

    /// RESET → RTS, or RTR where that is all there is.
    pub fn up(&mut self, qp: &Qp, link: &Link) {
        self.init(qp);
        self.rtr(qp, link);
        if qp.qp_type != QpType::DcTarget {
            self.rts(qp, link);
        }
    }

    /// What a QP has.
    ///
    /// # Panics
    /// When there is no such QP.
    pub fn query_qp(&mut self, qp: u32) -> QpReply {
        let body = Object {
            handle: qp,
            reserved: 0,
        };
        self.ask(Opcode::QueryQp, &body, &[]).expect("QUERY_QP")
    }

    /// The state that a QP is in.
    ///
    /// # Panics
    /// When there is no such QP, or no such state.
    pub fn state(&mut self, qp: &Qp) -> QpState {
        QpState::from_number(self.query_qp(qp.number).attributes.state).expect("a state")
    }

    /// An address handle.
    pub fn ah(&mut self, pd: u32, address: AddressVector) -> u32 {
        let body = CreateAh {
            pd,
            reserved: 0,
            address,
        };
        self.object(Opcode::CreateAh, body.as_bytes(), &[])
    }
}
