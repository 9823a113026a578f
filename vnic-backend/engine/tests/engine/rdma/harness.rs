//! Two devices, their memories, and a wire between them that a test may cut.

use std::cell::RefCell;
use std::collections::VecDeque;

use vnic_engine::rdma::{
    Access, AddressVector, AttributeMask as A, Completion, CqHandle, Device, DeviceConfig, Event, GidEntry,
    GidKind, Incoming, Limits, Memory, Mtu, Outgoing, Payload, PdHandle, QpAttributes, QpInit, QpNumber,
    QpState, QpType, RecvWr, Registration, SendData, SendFlags, SendOp, SendWr, SgList, Sge, Sink, Span,
    UdDestination, Unmapped, state,
};
use vnic_wire::MacAddr;
use vnic_wire::gid::Gid;
use vnic_wire::int::Telemetry;
use vnic_wire::psn::Psn;
use vnic_wire::roce::Path;
use vnic_wire::time::Instant;
use vnic_wire::transport::Headers;

/// Memory that begins at address [`BASE`].
pub struct Ram(pub RefCell<Vec<u8>>);

/// Address of the first byte.
pub const BASE: u64 = 0x10_0000;

impl Ram {
    fn range(&self, at: u64, len: usize) -> Result<std::ops::Range<usize>, Unmapped> {
        let from = at.checked_sub(BASE).ok_or(Unmapped { at })? as usize;
        if from + len > self.0.borrow().len() {
            return Err(Unmapped { at });
        }
        Ok(from..from + len)
    }
}

impl Memory for Ram {
    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Unmapped> {
        let range = self.range(at, into.len())?;
        into.copy_from_slice(&self.0.borrow()[range]);
        Ok(())
    }

    fn write(&self, at: u64, from: &[u8]) -> Result<(), Unmapped> {
        let range = self.range(at, from.len())?;
        self.0.borrow_mut()[range].copy_from_slice(from);
        Ok(())
    }

    fn atomic(&self, at: u64, change: &dyn Fn(u64) -> u64) -> Result<u64, Unmapped> {
        let range = self.range(at, 8)?;
        let mut ram = self.0.borrow_mut();
        let old = u64::from_ne_bytes(ram[range.clone()].try_into().unwrap());
        ram[range].copy_from_slice(&change(old).to_ne_bytes());
        Ok(old)
    }
}

/// A packet on the wire.
#[derive(Debug, Clone)]
pub struct Packet {
    pub path: Path,
    pub headers: Headers,
    pub payload: Vec<u8>,
    pub priority: u8,
    pub telemetry: Option<Telemetry>,
}

struct Wire<'a>(&'a mut VecDeque<Packet>);

impl Sink for Wire<'_> {
    fn open(&mut self) -> u8 {
        0xff
    }

    fn send(&mut self, packet: &Outgoing<'_>) {
        let mut payload = vec![0; packet.payload.len()];
        packet.payload.read(&mut payload).unwrap();
        self.0.push_back(Packet {
            path: *packet.path,
            headers: packet.headers,
            payload,
            priority: packet.priority,
            telemetry: packet.telemetry.copied(),
        });
    }
}

/// One side.
pub struct Side {
    pub device: Device,
    pub ram: Ram,
    pub pd: PdHandle,
    pub cq: CqHandle,
    pub keys: Registration,
    pub qp: QpNumber,
    pub init: QpInit,
    pub gid: Gid,
    pub mac: MacAddr,
}

impl Side {
    fn new(index: u8, qp_type: QpType) -> Side {
        let mac = MacAddr([2, 0, 0, 0, 0, index]);
        let mut device = Device::new(DeviceConfig {
            mac,
            limits: Limits::default(),
            mtu: Mtu::Mtu4096,
            trailers: true,
            pin_source_port: false,
            seed: 0,
            place: None,
        })
        .unwrap();
        let gid = Gid::from_ipv4([10, 0, 0, index]);
        let entry = GidEntry {
            gid,
            kind: GidKind::RoceV2,
            vlan: None,
            mac,
        };
        device.set_gid(0, Some(entry)).unwrap();
        let pd = device.alloc_pd().unwrap();
        let cq = device.create_cq(256).unwrap();
        let ram = Ram(RefCell::new(vec![0; 1 << 20]));
        let access = Access::LOCAL_WRITE | Access::REMOTE | Access::MW_BIND;
        let all = vec![Span {
            at: BASE,
            len: 1 << 20,
        }];
        let keys = device.register(pd, 0x4000_0000, access, all).unwrap();
        let init = QpInit {
            qp_type,
            pd: Some(pd),
            send_cq: Some(cq),
            recv_cq: Some(cq),
            srq: None,
            xrcd: None,
            max_send_wr: 64,
            max_recv_wr: 64,
            max_send_sge: 4,
            max_recv_sge: 4,
            max_inline: 64,
            signal_all: true,
        };
        let qp = device.create_qp(&init).unwrap();
        Side {
            device,
            ram,
            pd,
            cq,
            keys,
            qp,
            init,
            gid,
            mac,
        }
    }

    /// An element: `len` bytes at `offset` of its memory.
    pub fn sge(&self, offset: u64, len: u32) -> Sge {
        Sge {
            addr: self.va(offset),
            len,
            lkey: self.keys.lkey,
        }
    }

    /// Address of an offset for verbs.
    pub fn va(&self, offset: u64) -> u64 {
        0x4000_0000 + offset
    }

    pub fn fill(&self, offset: usize, bytes: &[u8]) {
        self.ram.0.borrow_mut()[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    pub fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        self.ram.0.borrow()[offset..offset + len].to_vec()
    }

    pub fn post(&mut self, id: u64, op: SendOp, sges: &[Sge]) {
        self.device
            .post_send(self.qp, send(id, op, sges))
            .expect("posted");
    }

    pub fn post_recv(&mut self, id: u64, sges: &[Sge]) {
        let wr = RecvWr {
            id,
            tag: tag(id),
            sges: SgList::from_slice(sges),
        };
        self.device.post_recv(self.qp, wr).expect("posted");
    }

    pub fn completions(&mut self) -> Vec<Completion> {
        let mut all = Vec::new();
        self.device.poll_cq(self.cq, &mut all, usize::MAX).unwrap();
        for c in &all {
            assert_eq!(c.tag, tag(c.wr_id), "of {c:?}");
        }
        all
    }

    pub fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.device.poll_event()).collect()
    }

    pub fn state(&self) -> QpState {
        self.device.qp_state(self.qp).unwrap()
    }
}

/// The tag that goes with an id here.
pub fn tag(id: u64) -> u32 {
    !(id as u32)
}

/// A send work request.
pub fn send(id: u64, op: SendOp, sges: &[Sge]) -> SendWr {
    SendWr {
        id,
        tag: tag(id),
        op,
        flags: SendFlags::empty(),
        data: SendData::Sges(SgList::from_slice(sges)),
        ud: None,
        remote_srq: 0,
        access_key: 0,
    }
}

/// What a connection is made with.
#[derive(Debug, Clone, Copy)]
pub struct Connection {
    pub mtu: Mtu,
    pub psn: u32,
    pub retry_count: u8,
    pub rnr_retry: u8,
    pub rd_atomic: u8,
    pub timeout: u8,
    pub access: Access,
    pub traffic_class: u8,
    pub service_level: u8,
}

impl Default for Connection {
    fn default() -> Connection {
        Connection {
            mtu: Mtu::Mtu256,
            psn: 0x00ff_fffe,
            retry_count: 3,
            rnr_retry: 3,
            rd_atomic: 4,
            timeout: 10,
            access: Access::LOCAL_WRITE | Access::REMOTE,
            traffic_class: 0,
            service_level: 0,
        }
    }
}

/// Two connected sides.
pub struct Pair {
    pub sides: [Side; 2],
    pub now: Instant,
    /// On the way from a side to the other.
    pub wire: [VecDeque<Packet>; 2],
    /// All that was sent, with who sent it.
    pub log: Vec<(usize, Packet)>,
}

impl Pair {
    pub fn new(qp_type: QpType, connection: Connection) -> Pair {
        let mut pair = Pair {
            sides: [Side::new(1, qp_type), Side::new(2, qp_type)],
            now: Instant(0),
            wire: Default::default(),
            log: Vec::new(),
        };
        pair.connect(connection);
        pair
    }

    /// Connects the QPs of the two sides, which are in state RESET.
    pub fn connect(&mut self, connection: Connection) {
        let sides = &mut self.sides;
        for (me, peer) in [(0, 1), (1, 0)] {
            let (number, dgid, dmac) = (sides[peer].qp, sides[peer].gid, sides[peer].mac);
            connect(&mut sides[me], number, dgid, dmac, connection);
        }
    }

    /// Lets both send; `keep` says of each packet (from, packet) whether it stays on the wire.
    pub fn send(&mut self, mut keep: impl FnMut(usize, &Packet) -> bool) {
        for from in 0..2 {
            let side = &mut self.sides[from];
            let mut sent = VecDeque::new();
            side.device.transmit(self.now, &side.ram, &mut Wire(&mut sent));
            for packet in sent {
                self.log.push((from, packet.clone()));
                if keep(from, &packet) {
                    self.wire[from].push_back(packet);
                }
            }
        }
    }

    /// Delivers what is on the wire.
    pub fn deliver(&mut self) {
        for from in 0..2 {
            while let Some(packet) = self.wire[from].pop_front() {
                let to = &mut self.sides[1 - from];
                let incoming = Incoming {
                    path: packet.path,
                    headers: packet.headers,
                    payload: Payload::Bytes(&packet.payload),
                    telemetry: packet.telemetry.as_ref(),
                };
                to.device.receive(self.now, &incoming, &to.ram);
            }
        }
    }

    /// Runs until nothing moves; time passes when only timers are left, and ends after `patience` of them.
    pub fn run_losing(&mut self, patience: u32, mut keep: impl FnMut(usize, &Packet) -> bool) {
        let mut waited = 0;
        loop {
            self.send(&mut keep);
            if !self.goes_on(&mut waited) {
                return;
            }
            assert!(waited <= patience, "still waiting at {:?}", self.now);
        }
    }

    /// Delivers what is on the wire; if nothing moves, lets time pass to the next timer, which is counted. No: there is none.
    pub fn goes_on(&mut self, waited: &mut u32) -> bool {
        if self.wire.iter().any(|w| !w.is_empty()) {
            self.deliver();
            return true;
        }
        if self.sides.iter().any(|s| s.device.wants_transmit()) {
            return true;
        }
        let next = self.sides.iter().filter_map(|s| s.device.next_timeout());
        let Some(next) = next.min() else { return false };
        *waited += 1;
        self.now = next;
        for side in &mut self.sides {
            side.device.handle_timeout(next);
        }
        true
    }

    /// Runs on a perfect wire.
    pub fn run(&mut self) {
        self.run_losing(1000, |_, _| true);
    }

    /// An address handle of the first side's.
    pub fn destination(&mut self, gid: Gid, qkey: u32, multicast: bool) -> UdDestination {
        let [a, b] = &mut self.sides;
        let address = AddressVector {
            dgid: gid,
            dmac: b.mac,
            sgid_index: 0,
            traffic_class: 0x68,
            flow_label: 0,
            hop_limit: 9,
            service_level: 0,
        };
        UdDestination {
            ah: a.device.create_ah(a.pd, address).unwrap(),
            qp: if multicast { QpNumber(0xff_ffff) } else { b.qp },
            qkey,
        }
    }
}

/// Takes a QP to RTS.
pub fn connect(side: &mut Side, peer: QpNumber, dgid: Gid, dmac: MacAddr, c: Connection) {
    let base = QpAttributes {
        access: c.access,
        path_mtu: c.mtu,
        destination_qp: peer,
        rq_psn: Psn::new(c.psn),
        sq_psn: Psn::new(c.psn),
        address: Some(AddressVector {
            dgid,
            dmac,
            sgid_index: 0,
            traffic_class: c.traffic_class,
            flow_label: 0,
            hop_limit: 64,
            service_level: c.service_level,
        }),
        max_rd_atomic: c.rd_atomic,
        max_dest_rd_atomic: c.rd_atomic,
        min_rnr_timer: 1,
        timeout: c.timeout,
        retry_count: c.retry_count,
        rnr_retry: c.rnr_retry,
        ..QpAttributes::default()
    };
    let way = [QpState::Reset, QpState::Init, QpState::Rtr, QpState::Rts];
    for step in way.windows(2) {
        let row = state::find(side.init.qp_type, step[0], step[1]).unwrap();
        let wanted = QpAttributes {
            state: step[1],
            ..base
        };
        side.device
            .modify_qp(side.qp, &wanted, row.required | A::STATE, Instant(0))
            .unwrap_or_else(|e| panic!("{:?}: {e}", step[1]));
    }
}

/// Two sides with datagram QPs.
pub fn datagrams() -> Pair {
    let mut pair = Pair::new(QpType::Rc, Connection::default());
    for side in &mut pair.sides {
        side.init.qp_type = QpType::Ud;
        side.qp = datagram_qp(side);
    }
    pair
}

/// One more datagram QP of a side that has them.
pub fn datagram_qp(side: &mut Side) -> QpNumber {
    datagram_qp_with(side, 0x1111)
}

/// One more, with this queue key.
pub fn datagram_qp_with(side: &mut Side, qkey: u32) -> QpNumber {
    let qp = side.device.create_qp(&side.init).unwrap();
    let base = QpAttributes {
        qkey,
        ..QpAttributes::default()
    };
    for (state, mask) in [
        (QpState::Init, A::PKEY_INDEX | A::PORT | A::QKEY),
        (QpState::Rtr, A::empty()),
        (QpState::Rts, A::SQ_PSN),
    ] {
        let wanted = QpAttributes { state, ..base };
        side.device
            .modify_qp(qp, &wanted, mask | A::STATE, Instant(0))
            .unwrap();
    }
    qp
}
