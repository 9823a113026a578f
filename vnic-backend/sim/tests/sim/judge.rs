//! The oracle says no when it should.

use std::rc::Rc;

use vnic_engine::rdma::{
    Access, Completion, CompletionOp, CqHandle, Event, MrHandle, Origin, PdHandle, QpAttributes, QpInit,
    QpNumber, QpState, QpType, RecvWr, SendData, SendFlags, SendOp, SendWr, Sge, Span, Status,
};
use vnic_engine::rdma::{Arm, Memory};
use vnic_sim::memory::SimMemory;
use vnic_sim::oracle::keys::Region;
use vnic_sim::oracle::{Judgement, Oracle, Rule, Terms};

const MEMORY: usize = 4096;
const CQ: CqHandle = CqHandle(0);
const PD: PdHandle = PdHandle(0);
const QP: QpNumber = QpNumber(2);
const KEY: u32 = 0x100;

/// Two devices with a region each (addresses are offsets), and a reliable connection between them.
struct Court {
    oracle: Oracle,
    memories: Rc<Vec<SimMemory>>,
}

fn court() -> Court {
    let memories = Rc::new(vec![SimMemory::new(MEMORY), SimMemory::new(MEMORY)]);
    let mut oracle = Oracle::new(Terms::default(), &memories);
    let init = QpInit {
        qp_type: QpType::Rc,
        pd: Some(PD),
        send_cq: Some(CQ),
        recv_cq: Some(CQ),
        srq: None,
        xrcd: None,
        max_send_wr: 16,
        max_recv_wr: 16,
        max_send_sge: 2,
        max_recv_sge: 2,
        max_inline: 0,
        signal_all: false,
    };
    for dev in 0..2 {
        oracle.cq(dev, CQ, 100);
        let region = Region {
            pd: PD,
            iova: 0,
            access: Access::LOCAL_WRITE | Access::REMOTE,
            spans: vec![Span { at: 0, len: 2048 }],
            lkey: KEY,
            rkey: KEY,
        };
        oracle.registered(dev, MrHandle(1), region);
        oracle.created(dev, QP, &init, true);
    }
    oracle.connected((0, QP), (1, QP));
    let mut attributes = QpAttributes {
        access: Access::REMOTE,
        timeout: 14,
        retry_count: 7,
        rnr_retry: 3,
        ..QpAttributes::default()
    };
    for dev in 0..2 {
        for (from, to) in [(QpState::Init, QpState::Rtr), (QpState::Rtr, QpState::Rts)] {
            attributes.state = to;
            oracle.modified(dev, QP, from, &attributes);
        }
    }
    Court { oracle, memories }
}

/// The tag of a request.
fn tag(id: u64) -> u32 {
    id as u32 ^ 0xffff
}

impl Court {
    fn send(&mut self, id: u64, op: SendOp, flags: SendFlags, addr: u64) {
        let sge = Sge {
            addr,
            len: 16,
            lkey: KEY,
        };
        let wr = SendWr {
            id,
            tag: tag(id),
            op,
            flags,
            data: SendData::Sges([sge].into_iter().collect()),
            ud: None,
            remote_srq: 0,
            access_key: 0,
        };
        self.oracle.posted_send(0, QP, &wr);
    }

    fn recv(&mut self, id: u64, addr: u64) {
        let sge = Sge {
            addr,
            len: 16,
            lkey: KEY,
        };
        let wr = RecvWr {
            id,
            tag: tag(id),
            sges: [sge].into_iter().collect(),
        };
        self.oracle.posted_recv(1, QP, &wr);
    }

    /// The owner fills a source buffer.
    fn fill(&mut self, addr: u64, byte: u8) {
        self.memories[0].store(addr, &[byte; 16]);
        self.oracle.stored(0, &[Span { at: addr, len: 16 }], &[byte; 16]);
    }

    fn comes(&mut self, dev: usize, id: u64, op: CompletionOp, status: Status) -> Judgement {
        self.comes_tagged(dev, id, tag(id), op, status)
    }

    fn comes_tagged(&mut self, dev: usize, id: u64, tag: u32, op: CompletionOp, status: Status) -> Judgement {
        let c = Completion {
            wr_id: id,
            tag,
            status,
            op,
            qp: QP,
            byte_len: if op == CompletionOp::Recv { 16 } else { 0 },
            imm: None,
            invalidated: None,
            origin: Origin::Peer,
            solicited: false,
        };
        self.oracle.completed(dev, CQ, &c)
    }
}

#[track_caller]
fn broken(judgement: Judgement, rule: Rule) {
    assert_eq!(judgement.expect_err("a rule was broken").rule, rule);
}

const SIGNALED: SendFlags = SendFlags::SIGNALED;

#[test]
fn a_clean_exchange_is_right() {
    let mut c = court();
    c.recv(9, 512);
    c.fill(0, 7);
    c.send(1, SendOp::Send, SIGNALED, 0);
    c.memories[1].write(512, &[7; 16]).expect("memory");
    c.oracle.watch(1).expect("it was allowed");
    c.comes(1, 9, CompletionOp::Recv, Status::Success)
        .expect("it came");
    c.comes(0, 1, CompletionOp::Send, Status::Success)
        .expect("it was sent");
    c.oracle.quiet().expect("nothing is stuck");
}

#[test]
fn completions_come_once_and_in_order() {
    let mut c = court();
    c.send(1, SendOp::Send, SIGNALED, 0);
    c.send(2, SendOp::Send, SIGNALED, 16);
    broken(
        c.comes(0, 2, CompletionOp::Send, Status::Success),
        Rule::Completion,
    );

    let mut c = court();
    c.send(1, SendOp::Send, SIGNALED, 0);
    c.comes(0, 1, CompletionOp::Send, Status::Success).expect("once");
    broken(
        c.comes(0, 1, CompletionOp::Send, Status::Success),
        Rule::Completion,
    );
    broken(
        c.comes(0, 77, CompletionOp::Send, Status::Success),
        Rule::Completion,
    );
}

#[test]
fn a_completion_has_the_tag_of_its_request() {
    let mut c = court();
    c.send(1, SendOp::Send, SIGNALED, 0);
    broken(
        c.comes_tagged(0, 1, tag(2), CompletionOp::Send, Status::Success),
        Rule::Completion,
    );
    let mut c = court();
    c.recv(9, 512);
    broken(
        c.comes_tagged(1, 9, tag(1), CompletionOp::Recv, Status::FlushError),
        Rule::Completion,
    );
}

#[test]
fn unsignaled_requests_say_nothing_and_errors_end_a_queue() {
    let mut c = court();
    c.send(1, SendOp::Send, SendFlags::empty(), 0);
    broken(
        c.comes(0, 1, CompletionOp::Send, Status::Success),
        Rule::Completion,
    );

    let mut c = court();
    c.send(1, SendOp::Send, SIGNALED, 0);
    c.send(2, SendOp::Send, SIGNALED, 16);
    c.comes(0, 1, CompletionOp::Send, Status::FlushError)
        .expect("flushed");
    broken(
        c.comes(0, 2, CompletionOp::Send, Status::Success),
        Rule::Completion,
    );
}

#[test]
fn errors_need_a_cause() {
    for status in [
        Status::RemoteAccessError,
        Status::RnrRetryExceeded,
        Status::LocalProtectionError,
        Status::RemoteInvalidRequestError,
        Status::RemoteAborted,
    ] {
        let mut c = court();
        c.recv(9, 512);
        c.send(1, SendOp::Send, SIGNALED, 0);
        broken(c.comes(0, 1, CompletionOp::Send, status), Rule::Cause);
    }
    let mut c = court();
    c.send(1, SendOp::Send, SIGNALED, 0);
    c.comes(0, 1, CompletionOp::Send, Status::RetryExceeded)
        .expect("what for shows later");
    broken(c.oracle.quiet(), Rule::Cause);
}

#[test]
fn a_wrong_key_must_not_succeed() {
    let mut c = court();
    let op = SendOp::Write {
        addr: 2040,
        rkey: KEY,
    };
    c.send(1, op, SIGNALED, 0);
    broken(
        c.comes(0, 1, CompletionOp::Write, Status::Success),
        Rule::Protection,
    );
}

#[test]
fn messages_come_once_whole_and_from_somebody() {
    let mut c = court();
    c.recv(9, 512);
    broken(c.comes(1, 9, CompletionOp::Recv, Status::Success), Rule::Delivery);

    let mut c = court();
    c.recv(9, 512);
    c.fill(0, 7);
    c.send(1, SendOp::Send, SIGNALED, 0);
    c.memories[1].store(512, &[8; 16]);
    broken(c.comes(1, 9, CompletionOp::Recv, Status::Success), Rule::Delivery);

    let mut c = court();
    c.recv(9, 512);
    c.send(1, SendOp::Send, SIGNALED, 0);
    c.comes(0, 1, CompletionOp::Send, Status::Success)
        .expect("it was sent");
    broken(c.oracle.quiet(), Rule::Delivery);
}

#[test]
fn bytes_are_where_they_should_be() {
    let mut c = court();
    c.fill(0, 7);
    let op = SendOp::Write {
        addr: 1024,
        rkey: KEY,
    };
    c.send(1, op, SIGNALED, 0);
    broken(
        c.comes(0, 1, CompletionOp::Write, Status::Success),
        Rule::Integrity,
    );

    let mut c = court();
    c.memories[1].store(100, &[1]);
    broken(c.oracle.finish().map(|_| ()), Rule::Integrity);
}

#[test]
fn nothing_is_touched_without_leave() {
    let mut c = court();
    c.memories[1].write(512, &[1]).expect("memory");
    broken(c.oracle.watch(1), Rule::Protection);

    let mut c = court();
    c.recv(9, 512);
    c.memories[1].write(527, &[1, 1]).expect("memory");
    broken(c.oracle.watch(1), Rule::Protection);

    let mut c = court();
    c.recv(9, 512);
    c.oracle.deregistered(1, MrHandle(1));
    c.memories[1].write(512, &[1]).expect("memory");
    broken(c.oracle.watch(1), Rule::Protection);
}

#[test]
fn what_is_stuck_is_seen() {
    let mut c = court();
    c.send(1, SendOp::Send, SIGNALED, 0);
    broken(c.oracle.quiet(), Rule::Progress);
}

#[test]
fn events_are_neither_missing_nor_made_up() {
    let mut c = court();
    c.oracle.armed(0, CQ, Arm::Next).expect("armed");
    c.send(1, SendOp::Send, SIGNALED, 0);
    broken(c.comes(0, 1, CompletionOp::Send, Status::Success), Rule::Event);

    let mut c = court();
    broken(c.oracle.event(0, Event::Completion(CQ)), Rule::Event);
    broken(c.oracle.event(0, Event::CqError(CQ)), Rule::Event);
    broken(c.oracle.event(0, Event::SendQueueDrained(QP)), Rule::Event);
    broken(c.oracle.event(0, Event::QpAccessError(QP)), Rule::Cause);
}
