//! The oracle says no when it should, over dynamic connections.

use std::rc::Rc;

use vnic_engine::rdma::{
    Access, AddressVector, AhHandle, Completion, CompletionOp, CqHandle, Event, MrHandle, PdHandle,
    QpAttributes, QpInit, QpNumber, QpState, QpType, RecvWr, SendData, SendFlags, SendOp, SendWr, Sge, Span,
    SrqHandle, Status, UdDestination,
};
use vnic_sim::memory::SimMemory;
use vnic_sim::oracle::keys::Region;
use vnic_sim::oracle::{Judgement, Oracle, Rule, Terms};
use vnic_sim::verbs::{Plan, Service};
use vnic_wire::MacAddr;
use vnic_wire::gid::Gid;

const MEMORY: usize = 4096;
const CQ: CqHandle = CqHandle(0);
const PD: PdHandle = PdHandle(0);
const SRQ: SrqHandle = SrqHandle(0);
const INITIATORS: [QpNumber; 2] = [QpNumber(2), QpNumber(3)];
const TARGETS: [QpNumber; 2] = [QpNumber(2), QpNumber(3)];
const KEYS: [u64; 2] = [5, 6];
/// Leads to the targets' address, and to another of their device's.
const RIGHT: AhHandle = AhHandle(0);
const WRONG: AhHandle = AhHandle(1);
const RKEY: u32 = 0x100;

/// Two initiators on the first device, and two targets on the second, which have one receive queue.
struct Court {
    oracle: Oracle,
    memories: Rc<Vec<SimMemory>>,
}

fn init(qp_type: QpType) -> QpInit {
    let target = qp_type == QpType::DcTarget;
    QpInit {
        qp_type,
        pd: Some(PD),
        send_cq: (!target).then_some(CQ),
        recv_cq: target.then_some(CQ),
        srq: target.then_some(SRQ),
        xrcd: None,
        max_send_wr: 16,
        max_recv_wr: 0,
        max_send_sge: 2,
        max_recv_sge: 2,
        max_inline: 0,
        signal_all: true,
    }
}

fn gid(dev: usize, index: u16) -> Gid {
    Gid::from_ipv4([10, 0, index as u8, dev as u8])
}

fn way(sgid_index: u16) -> AddressVector {
    AddressVector {
        dgid: gid(1, sgid_index),
        sgid_index,
        ..AddressVector::default()
    }
}

fn court() -> Court {
    let memories = Rc::new(vec![SimMemory::new(MEMORY), SimMemory::new(MEMORY)]);
    let mut oracle = Oracle::new(Terms::default(), &memories);
    for dev in 0..2 {
        oracle.named(dev, MacAddr([2, 0, 0, 0, 0, dev as u8]));
        for index in 0..2 {
            oracle.gid(dev, index, gid(dev, index), None);
        }
        oracle.cq(dev, CQ, 100);
        let region = Region {
            pd: PD,
            iova: 0,
            access: Access::LOCAL_WRITE | Access::REMOTE,
            spans: vec![Span { at: 0, len: 2048 }],
            lkey: RKEY,
            rkey: RKEY,
        };
        oracle.registered(dev, MrHandle(1), region);
    }
    oracle.address(0, RIGHT, way(0));
    oracle.address(0, WRONG, way(1));
    oracle.srq(1, SRQ, None, PD);
    let mut attributes = QpAttributes {
        access: Access::REMOTE,
        address: Some(way(0)),
        timeout: 14,
        retry_count: 7,
        rnr_retry: 3,
        max_dest_rd_atomic: 16,
        ..QpAttributes::default()
    };
    for i in 0..2 {
        oracle.created(1, TARGETS[i], &init(QpType::DcTarget), true);
        oracle.access_key(1, TARGETS[i], KEYS[i]);
        oracle.created(0, INITIATORS[i], &init(QpType::DcInitiator), true);
        attributes.state = QpState::Rtr;
        oracle.modified(1, TARGETS[i], QpState::Init, &attributes);
        attributes.state = QpState::Rts;
        oracle.modified(0, INITIATORS[i], QpState::Rtr, &attributes);
    }
    Court { oracle, memories }
}

const WRITE: SendOp = SendOp::Write {
    addr: 1024,
    rkey: RKEY,
};

impl Court {
    /// A request of an initiator for a target, which names a way and a key.
    fn post(&mut self, from: usize, id: u64, op: SendOp, (ah, qp): (AhHandle, QpNumber), access_key: u64) {
        let sge = Sge {
            addr: 16 * id,
            len: 16,
            lkey: RKEY,
        };
        self.memories[0].store(16 * id, &[id as u8; 16]);
        let at = [Span { at: 16 * id, len: 16 }];
        self.oracle.stored(0, &at, &[id as u8; 16]);
        let wr = SendWr {
            id,
            tag: 0,
            op,
            flags: SendFlags::empty(),
            data: SendData::Sges([sge].into_iter().collect()),
            ud: Some(UdDestination { ah, qp, qkey: 0 }),
            remote_srq: 0,
            access_key,
        };
        self.oracle.posted_send(0, INITIATORS[from], &wr);
    }

    /// One that is right.
    fn send(&mut self, from: usize, to: usize, id: u64) {
        self.post(from, id, SendOp::Send, (RIGHT, TARGETS[to]), KEYS[to]);
    }

    /// A receive, and the bytes of this message in it.
    fn recv(&mut self, id: u64, message: u64) {
        let sge = Sge {
            addr: 512 + 16 * (id - 100),
            len: 16,
            lkey: RKEY,
        };
        let wr = RecvWr {
            id,
            tag: 0,
            sges: [sge].into_iter().collect(),
        };
        self.oracle.posted_srq_recv(1, SRQ, &wr);
        self.memories[1].store(sge.addr, &[message as u8; 16]);
    }

    fn sent(&mut self, from: usize, id: u64, op: CompletionOp, status: Status) -> Judgement {
        let c = Completion::new(id, 0, INITIATORS[from], op, status);
        self.oracle.completed(0, CQ, &c)
    }

    fn received(&mut self, at: usize, id: u64, status: Status) -> Judgement {
        let c = Completion {
            byte_len: 16,
            ..Completion::new(id, 0, TARGETS[at], CompletionOp::Recv, status)
        };
        self.oracle.completed(1, CQ, &c)
    }
}

#[track_caller]
fn broken(judgement: Judgement, rule: Rule) {
    assert_eq!(judgement.expect_err("a rule was broken").rule, rule);
}

use CompletionOp::{Send, Write};
use Status::Success;

#[test]
fn a_message_is_of_one_initiator_and_comes_once() {
    let mut c = court();
    c.send(0, 0, 1);
    c.send(1, 0, 2);
    // In either order: they do not know of each other.
    c.recv(100, 2);
    c.recv(101, 1);
    c.received(0, 100, Success).expect("of the second");
    c.received(0, 101, Success).expect("of the first");
    c.recv(102, 1);
    broken(c.received(0, 102, Success), Rule::Delivery);

    // But for the target that it names, and in the order of its initiator.
    let mut c = court();
    c.send(0, 0, 1);
    c.recv(100, 1);
    broken(c.received(1, 100, Success), Rule::Delivery);
    let mut c = court();
    c.send(0, 0, 1);
    c.send(0, 0, 2);
    c.recv(100, 2);
    broken(c.received(0, 100, Success), Rule::Delivery);
}

#[test]
fn only_the_right_target_by_the_right_way_with_its_key_serves() {
    for (to, key, rule) in [
        ((RIGHT, TARGETS[0]), KEYS[1], Rule::Protection),
        ((WRONG, TARGETS[0]), KEYS[0], Rule::Delivery),
        ((RIGHT, QpNumber(9)), KEYS[0], Rule::Delivery),
    ] {
        let mut c = court();
        c.post(0, 1, WRITE, to, key);
        broken(c.sent(0, 1, Write, Success), rule);
    }
    // A target that was reset may have another key since.
    let mut c = court();
    c.post(0, 1, WRITE, (RIGHT, TARGETS[0]), KEYS[0]);
    c.oracle
        .modified(1, TARGETS[0], QpState::Rtr, &QpAttributes::default());
    c.oracle.access_key(1, TARGETS[0], KEYS[1]);
    c.sent(0, 1, Write, Status::RemoteAccessError)
        .expect("it has another key");
}

#[test]
fn refusals_need_a_cause() {
    for status in [
        Status::RemoteAccessError,
        Status::RnrRetryExceeded,
        Status::LocalQpOperationError,
    ] {
        let mut c = court();
        c.post(0, 1, WRITE, (RIGHT, TARGETS[0]), KEYS[0]);
        broken(c.sent(0, 1, Write, status), Rule::Cause);
    }
    let mut c = court();
    c.post(0, 1, WRITE, (RIGHT, TARGETS[0]), KEYS[0]);
    c.oracle.address_gone(0, RIGHT);
    c.sent(0, 1, Write, Status::LocalQpOperationError)
        .expect("its way is gone");
    let mut c = court();
    c.post(0, 1, WRITE, (WRONG, TARGETS[0]), KEYS[0]);
    c.sent(0, 1, Write, Status::RetryExceeded)
        .expect("nobody answers");
    c.oracle.quiet().expect("that is why");
}

#[test]
fn a_target_flushes_what_somebody_left() {
    let mut c = court();
    c.recv(100, 0);
    c.received(0, 100, Status::FlushError).expect("why shows later");
    broken(c.oracle.quiet(), Rule::Cause);
    let mut c = court();
    c.send(0, 0, 1);
    c.oracle.destroyed(0, INITIATORS[0]);
    c.recv(100, 0);
    c.received(0, 100, Status::FlushError).expect("why shows later");
    c.oracle.quiet().expect("the initiator has gone");
    broken(c.oracle.event(1, Event::LastWqeReached(TARGETS[0])), Rule::Event);
}

#[test]
fn connects_are_counted() {
    let mut c = court();
    for (id, to) in [(1, 0), (2, 0), (3, 1), (4, 0)] {
        c.send(0, to, id);
    }
    assert_eq!(c.oracle.connects(1), (0, 3));
    for id in 1..4 {
        c.sent(0, id, Send, Success).expect("it was sent");
    }
    assert_eq!(c.oracle.connects(1), (2, 3));
    // Whoever was idle connects again.
    c.oracle.clock(2_000_000_000);
    c.send(0, 0, 5);
    assert_eq!(c.oracle.connects(1), (2, 4));
    assert_eq!(c.oracle.connects(0), (0, 0));
}

#[test]
fn a_third_of_the_worlds_have_dynamic_connections() {
    let plans = (0..300).map(|seed| Plan::new(seed, None));
    let with = plans.filter(|p| p.pairs.iter().any(|pair| pair.service == Service::Dc));
    assert!((80..130).contains(&with.count()));
}
