//! The dynamically connected transport: an initiator on the first device, targets on the second.

use std::collections::BTreeMap;
use std::time::Duration;

use vnic_engine::congestion::zero_touch::ZeroTouch;
use vnic_engine::rdma::{
    AddressVector, AhHandle, AttributeMask as A, Completion, Congestion, Event, QpAttributes, QpInit,
    QpNumber, QpState, QpType, RecvWr, SendOp, SendWr, SgList, Sge, SrqHandle, SrqInit, Status,
    UdDestination, VerbsError,
};
use vnic_wire::opcode::{Operation, Transport};
use vnic_wire::psn::Psn;
use vnic_wire::time::Instant;
use vnic_wire::transport::Extended;

use super::congestion::{Scripted, deliver, is_cnp, mark};
use super::harness::{Connection, Packet, Pair, Side, send, tag};

const KEY: u64 = 0x1122_3344_5566_7788;
const OTHER_KEY: u64 = 77;

/// A pair with an initiator on `a` and two targets on `b`, which have one receive queue.
struct Dc {
    pair: Pair,
    ah: AhHandle,
    targets: [(QpNumber, u64); 2],
    srq: SrqHandle,
}

fn modify(side: &mut Side, qp: QpNumber, state: QpState, mask: A, values: &QpAttributes) {
    let wanted = QpAttributes { state, ..*values };
    side.device
        .modify_qp(qp, &wanted, mask | A::STATE, Instant(0))
        .unwrap_or_else(|e| panic!("{state:?}: {e}"));
}

fn values(c: Connection) -> QpAttributes {
    QpAttributes {
        access: c.access,
        path_mtu: c.mtu,
        sq_psn: Psn::new(c.psn),
        // Whom it answers is not said.
        address: Some(AddressVector::default()),
        max_rd_atomic: c.rd_atomic,
        min_rnr_timer: 1,
        timeout: c.timeout,
        retry_count: c.retry_count,
        rnr_retry: c.rnr_retry,
        ..QpAttributes::default()
    }
}

fn target(side: &mut Side, srq: SrqHandle, key: u64, c: Connection) -> QpNumber {
    let init = QpInit {
        qp_type: QpType::DcTarget,
        send_cq: None,
        srq: Some(srq),
        max_send_wr: 0,
        max_recv_wr: 0,
        ..side.init
    };
    let qp = side.device.create_qp(&init).unwrap();
    side.device.set_access_key(qp, key).unwrap();
    let values = values(c);
    modify(
        side,
        qp,
        QpState::Init,
        A::PKEY_INDEX | A::PORT | A::ACCESS,
        &values,
    );
    modify(
        side,
        qp,
        QpState::Rtr,
        A::ADDRESS | A::PATH_MTU | A::MIN_RNR_TIMER,
        &values,
    );
    qp
}

fn ready(side: &mut Side, c: Connection) {
    let (qp, values) = (side.qp, values(c));
    modify(side, qp, QpState::Init, A::PKEY_INDEX | A::PORT, &values);
    modify(side, qp, QpState::Rtr, A::PATH_MTU | A::ADDRESS, &values);
    let retries = A::TIMEOUT | A::RETRY_COUNT | A::RNR_RETRY | A::MAX_RD_ATOMIC;
    modify(side, qp, QpState::Rts, retries | A::SQ_PSN, &values);
}

fn with(c: Connection) -> Dc {
    let mut pair = Pair::new(QpType::Rc, c);
    let [a, b] = &mut pair.sides;
    a.init = QpInit {
        qp_type: QpType::DcInitiator,
        recv_cq: None,
        ..a.init
    };
    a.qp = a.device.create_qp(&a.init).unwrap();
    ready(a, c);
    let srq = b
        .device
        .create_srq(SrqInit {
            pd: b.pd,
            xrcd: None,
            cq: None,
            max_wr: 1024,
            max_sge: 2,
        })
        .unwrap();
    let targets = [KEY, OTHER_KEY].map(|key| (target(b, srq, key, c), key));
    b.qp = targets[0].0;
    let gid = b.gid;
    let ah = pair.destination(gid, 0, false).ah;
    Dc {
        pair,
        ah,
        targets,
        srq,
    }
}

fn dc() -> Dc {
    with(Connection::default())
}

impl Dc {
    fn request(&self, target: usize, id: u64, op: SendOp, sges: &[Sge]) -> SendWr {
        let (qp, access_key) = self.targets[target];
        SendWr {
            ud: Some(UdDestination {
                ah: self.ah,
                qp,
                qkey: 0,
            }),
            access_key,
            ..send(id, op, sges)
        }
    }

    fn post(&mut self, target: usize, id: u64, op: SendOp, sges: &[Sge]) {
        let wr = self.request(target, id, op, sges);
        let a = &mut self.pair.sides[0];
        a.device.post_send(a.qp, wr).expect("posted");
    }

    fn send(&mut self, target: usize, id: u64, len: u32) {
        let sge = self.pair.sides[0].sge(0, len);
        self.post(target, id, SendOp::Send, &[sge]);
    }

    fn receives(&mut self, ids: impl IntoIterator<Item = u64>) {
        let b = &mut self.pair.sides[1];
        for id in ids {
            let wr = RecvWr {
                id,
                tag: tag(id),
                sges: SgList::from_slice(&[b.sge(0x1_0000, 4096)]),
            };
            b.device.post_srq_recv(self.srq, wr).expect("posted");
        }
    }

    fn completions(&mut self) -> [Vec<Completion>; 2] {
        let [a, b] = &mut self.pair.sides;
        [a.completions(), b.completions()]
    }

    /// Runs until nothing moves without time.
    fn settle(&mut self) {
        self.settle_losing(&mut |_, _| true);
    }

    /// The same, but of the packets that `keep` says no to.
    fn settle_losing(&mut self, keep: &mut dyn FnMut(usize, &Packet) -> bool) {
        loop {
            self.pair.send(&mut *keep);
            if self.pair.wire.iter().all(|wire| wire.is_empty()) {
                return;
            }
            self.pair.deliver();
        }
    }

    /// What the initiator sent since the last call, in short.
    fn log(&mut self) -> Vec<(Operation, QpNumber)> {
        let log = std::mem::take(&mut self.pair.log);
        let sent = log.into_iter().filter(|(from, _)| *from == 0);
        sent.map(|(_, packet)| (of(&packet), QpNumber(packet.headers.bth.destination_qp)))
            .collect()
    }
}

fn of(packet: &Packet) -> Operation {
    assert_eq!(packet.headers.bth.opcode.transport(), Transport::Dc);
    packet.headers.bth.opcode.operation().expect("an operation")
}

fn all_right(completions: &[Completion]) {
    assert!(
        completions.iter().all(|c| c.status == Status::Success),
        "{completions:?}"
    );
}

fn ids(completions: &[Completion]) -> Vec<u64> {
    completions.iter().map(|c| c.wr_id).collect()
}

const SEND: Operation = Operation::SendOnly;
use Operation::{Connect, Disconnect};

#[test]
fn the_first_request_connects_and_waits_for_nobody() {
    let mut dc = dc();
    dc.receives(0..8);
    dc.pair.sides[0].fill(0, b"how are you");
    dc.send(0, 1, 11);
    // Nothing is delivered: the request is behind the CONNECT at once.
    dc.pair.send(|_, _| true);
    let to = dc.targets[0].0;
    assert_eq!(dc.log(), [(Connect, to), (SEND, to)]);
    dc.pair.run_losing(10, |_, _| true);
    let [sent, received] = dc.completions();
    all_right(&sent);
    assert_eq!((ids(&sent), ids(&received)), (vec![1], vec![0]));
    assert_eq!((received[0].qp, received[0].byte_len), (to, 11));
    assert_eq!(dc.pair.sides[1].bytes(0x1_0000, 11), b"how are you");
    let counters = dc.pair.sides[1].device.counters();
    assert_eq!(counters.rx_dct_connect, 1);
    assert_eq!(counters.resp_remote_access_errors, 0);
}

#[test]
fn every_operation_of_rc_is_there() {
    let mut dc = dc();
    dc.receives(0..8);
    let [a, b] = &mut dc.pair.sides;
    a.fill(0, &[7; 1000]);
    b.fill(5000, &[9; 1000]);
    b.fill(8000, &40u64.to_ne_bytes());
    let (rkey, at) = (b.keys.rkey, |n| b.va(n));
    let (write, read, word) = (at(2000), at(5000), at(8000));
    let sges = [a.sge(0, 1000), a.sge(3000, 1000), a.sge(4000, 8), a.sge(4100, 8)];
    dc.post(0, 1, SendOp::Write { addr: write, rkey }, &[sges[0]]);
    dc.post(0, 2, SendOp::Read { addr: read, rkey }, &[sges[1]]);
    let add = SendOp::FetchAdd {
        addr: word,
        rkey,
        add: 2,
    };
    dc.post(0, 3, add, &[sges[2]]);
    let swap = SendOp::CompareSwap {
        addr: word,
        rkey,
        compare: 42,
        swap: 5,
    };
    dc.post(0, 4, swap, &[sges[3]]);
    dc.post(0, 5, SendOp::SendImm(6), &[sges[0]]);
    let imm = SendOp::WriteImm {
        addr: write,
        rkey,
        imm: 8,
    };
    dc.post(0, 6, imm, &[]);
    dc.pair.run();
    let [sent, received] = dc.completions();
    all_right(&sent);
    assert_eq!(ids(&sent), [1, 2, 3, 4, 5, 6]);
    let imms: Vec<_> = received.iter().map(|c| (c.imm, c.byte_len)).collect();
    assert_eq!(imms, [(Some(6), 1000), (Some(8), 0)]);
    let [a, b] = &dc.pair.sides;
    assert_eq!(b.bytes(2000, 1000), [7; 1000]);
    assert_eq!(a.bytes(3000, 1000), [9; 1000]);
    assert_eq!(a.bytes(4000, 8), 40u64.to_ne_bytes());
    assert_eq!(a.bytes(4100, 8), 42u64.to_ne_bytes());
    assert_eq!(b.bytes(8000, 8), 5u64.to_ne_bytes());
}

#[test]
fn targets_are_served_in_turn() {
    let mut dc = dc();
    dc.receives(0..8);
    for (id, target) in [0, 0, 1, 0, 1].into_iter().enumerate() {
        dc.send(target, id as u64, 600);
    }
    dc.pair.run_losing(20, |_, _| true);
    let [sent, received] = dc.completions();
    all_right(&sent);
    assert_eq!(ids(&sent), [0, 1, 2, 3, 4]);
    let [one, two] = dc.targets.map(|(qp, _)| qp);
    let at: Vec<QpNumber> = received.iter().map(|c| c.qp).collect();
    assert_eq!(at, [one, one, two, one, two]);
    let moves = |o: &Operation| matches!(o, Connect | Disconnect);
    let moved: Vec<_> = dc.log().into_iter().filter(|(o, _)| moves(o)).collect();
    let expected = [
        (Connect, one),
        (Disconnect, one),
        (Connect, two),
        (Disconnect, two),
        (Connect, one),
        (Disconnect, one),
        (Connect, two),
        // Idle.
        (Disconnect, two),
    ];
    assert_eq!(moved, expected);
    assert_eq!(dc.pair.sides[1].device.counters().rx_dct_connect, 4);
}

#[test]
fn a_target_is_left_when_all_is_answered() {
    let mut dc = dc();
    dc.receives(0..8);
    dc.send(0, 1, 600);
    dc.send(1, 2, 6);
    let mut acknowledged = false;
    dc.pair.run_losing(20, |from, packet| {
        if from == 1 {
            acknowledged = true;
        }
        assert!(acknowledged || of(packet) != Disconnect);
        true
    });
    all_right(&dc.completions()[0]);
}

#[test]
fn whoever_does_not_know_the_key_is_refused() {
    let mut dc = dc();
    dc.receives(0..8);
    let mut wr = dc.request(0, 1, SendOp::Send, &[]);
    wr.access_key = KEY + 1;
    let a = &mut dc.pair.sides[0];
    a.device.post_send(a.qp, wr).unwrap();
    dc.send(0, 2, 6);
    dc.pair.run();
    let [sent, received] = dc.completions();
    let statuses: Vec<_> = sent.iter().map(|c| (c.wr_id, c.status)).collect();
    assert_eq!(
        statuses,
        [(1, Status::RemoteAccessError), (2, Status::FlushError)]
    );
    assert!(received.is_empty());
    let [a, b] = &mut dc.pair.sides;
    assert_eq!((a.state(), b.state()), (QpState::Err, QpState::Rtr));
    assert_eq!(b.events(), []);
    let counters = b.device.counters();
    assert_eq!(
        (counters.rx_dct_connect, counters.resp_remote_access_errors),
        (1, 1)
    );
    // After a reset it may try again, and with the key it is served.
    let reset = QpAttributes::default();
    a.device.modify_qp(a.qp, &reset, A::STATE, Instant(0)).unwrap();
    ready(a, Connection::default());
    dc.send(0, 3, 6);
    dc.pair.run();
    let [sent, received] = dc.completions();
    all_right(&sent);
    assert_eq!((ids(&sent), ids(&received)), (vec![3], vec![0]));
}

#[test]
fn a_refusal_is_heard_before_the_request_is_out() {
    let mut dc = dc();
    let mut wr = dc.request(0, 1, SendOp::Send, &[]);
    wr.access_key = 0;
    let a = &mut dc.pair.sides[0];
    a.device.post_send(a.qp, wr).unwrap();
    // Only the CONNECT gets through, and its answer comes before the first packet of the message.
    dc.pair
        .run_losing(10, |from, packet| from == 1 || of(packet) == Connect);
    assert_eq!(dc.completions()[0][0].status, Status::RemoteAccessError);
}

#[test]
fn rights_are_looked_at_as_with_rc() {
    let mut dc = dc();
    let (addr, rkey) = (dc.pair.sides[1].va(0), dc.pair.sides[1].keys.rkey + 1);
    let sge = dc.pair.sides[0].sge(0, 10);
    dc.post(0, 1, SendOp::Write { addr, rkey }, &[sge]);
    dc.pair.run_losing(30, |_, _| true);
    assert_eq!(dc.completions()[0][0].status, Status::RemoteAccessError);
    let [a, b] = &mut dc.pair.sides;
    assert_eq!((a.state(), b.state()), (QpState::Err, QpState::Rtr));
    assert_eq!(b.events(), [Event::QpAccessError(b.qp)]);
    // The target serves others still.
    let reset = QpAttributes::default();
    a.device.modify_qp(a.qp, &reset, A::STATE, Instant(0)).unwrap();
    ready(a, Connection::default());
    dc.receives(0..1);
    dc.send(0, 2, 6);
    dc.pair.run();
    all_right(&dc.completions()[0]);
}

#[test]
fn a_lost_connect_is_sent_again() {
    let mut dc = dc();
    dc.receives(0..8);
    dc.send(0, 1, 600);
    let mut lost = false;
    dc.pair.run_losing(30, |from, packet| {
        let connect = from == 0 && of(packet) == Connect;
        !connect || std::mem::replace(&mut lost, true)
    });
    let [sent, received] = dc.completions();
    all_right(&sent);
    assert_eq!((ids(&sent), ids(&received)), (vec![1], vec![0]));
    assert_eq!(dc.log().iter().filter(|(o, _)| *o == Connect).count(), 2);
    let [a, b] = &dc.pair.sides;
    assert_eq!(a.device.counters().local_ack_timeout_err, 1);
    assert!(b.device.counters().drop_wrong_state > 0);
}

#[test]
fn nothing_is_executed_twice() {
    let mut dc = dc();
    dc.receives(0..64);
    let word = dc.pair.sides[1].va(8000);
    let rkey = dc.pair.sides[1].keys.rkey;
    let sge = dc.pair.sides[0].sge(4000, 8);
    for id in 0..6 {
        dc.send((id % 2) as usize, id, 300);
    }
    let add = SendOp::FetchAdd {
        addr: word,
        rkey,
        add: 1,
    };
    dc.post(1, 6, add, &[sge]);
    dc.settle();
    let [sent, received] = dc.completions();
    all_right(&sent);
    assert_eq!(received.len(), 6);
    // All of it again, as a network may do that keeps copies: in order, and in reverse.
    let log = std::mem::take(&mut dc.pair.log);
    let copies: Vec<&Packet> = log
        .iter()
        .filter(|(from, _)| *from == 0)
        .map(|(_, p)| p)
        .collect();
    let now = dc.pair.now;
    for packet in copies.iter().chain(copies.iter().rev()) {
        deliver(&mut dc.pair.sides[1], now, packet);
    }
    dc.settle();
    let [sent, received] = dc.completions();
    assert!(sent.is_empty() && received.is_empty());
    assert_eq!(dc.pair.sides[1].bytes(8000, 8), 1u64.to_ne_bytes());
    // What comes next is served.
    dc.send(0, 9, 300);
    dc.settle();
    let [sent, received] = dc.completions();
    all_right(&sent);
    assert_eq!((ids(&sent), received.len()), (vec![9], 1));
}

#[test]
fn losses_cost_time_and_nothing_else() {
    for seed in 0..40u64 {
        let mut dc = with(Connection {
            retry_count: 7,
            rnr_retry: 7,
            ..Connection::default()
        });
        dc.receives(0..128);
        let rkey = dc.pair.sides[1].keys.rkey;
        let word = dc.pair.sides[1].va(8000);
        let mut rng = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut random = move |n: u64| {
            rng ^= rng << 13;
            rng ^= rng >> 7;
            rng ^= rng << 17;
            rng % n
        };
        let (mut sends, mut adds) = (Vec::new(), 0u64);
        for id in 0..40 {
            let target = random(2) as usize;
            if random(4) == 0 {
                let sge = dc.pair.sides[0].sge(4000, 8);
                dc.post(
                    target,
                    id,
                    SendOp::FetchAdd {
                        addr: word,
                        rkey,
                        add: 1,
                    },
                    &[sge],
                );
                adds += 1;
            } else {
                let len = 1 + random(1000) as u32;
                dc.send(target, id, len);
                sends.push((dc.targets[target].0, len));
            }
        }
        dc.pair.run_losing(2000, |_, _| random(8) != 0);
        let [sent, received] = dc.completions();
        all_right(&sent);
        assert_eq!(ids(&sent), (0..40).collect::<Vec<_>>(), "seed {seed}");
        let got: Vec<_> = received.iter().map(|c| (c.qp, c.byte_len)).collect();
        assert_eq!(got, sends, "seed {seed}");
        assert_eq!(dc.pair.sides[1].bytes(8000, 8), adds.to_ne_bytes(), "seed {seed}");
    }
}

#[test]
fn a_target_without_receives_lets_wait() {
    let mut dc = dc();
    dc.send(0, 1, 6);
    let mut patience = 0;
    dc.pair.send(|_, _| true);
    dc.pair.deliver();
    dc.pair.send(|_, packet| {
        patience += usize::from(matches!(packet.headers.extended, Extended::Aeth(_)));
        true
    });
    assert_eq!(patience, 1);
    dc.receives(0..1);
    dc.pair.run_losing(20, |_, _| true);
    let [sent, received] = dc.completions();
    all_right(&sent);
    assert_eq!(received.len(), 1);
}

#[test]
fn marks_slow_the_initiator_down() {
    let mut dc = dc();
    dc.receives(0..8);
    let point = Congestion {
        notification: 0xff,
        ..Congestion::default()
    };
    let [a, b] = &mut dc.pair.sides;
    a.device
        .set_congestion(Scripted::rate(1).congestion(), Instant(0));
    b.device.set_congestion(point, Instant(0));
    dc.send(0, 1, 6);
    let mut sent = Vec::new();
    dc.pair.send(|_, packet| {
        sent.push(packet.clone());
        false
    });
    let initiator = dc.pair.sides[0].qp.0;
    // Of a stranger's, who is not connected, nobody is told.
    let [connect, request] = &sent[..] else {
        panic!("{sent:?}")
    };
    deliver(&mut dc.pair.sides[1], Instant(0), connect);
    deliver(
        &mut dc.pair.sides[1],
        Instant(0),
        &mark(connect_as(request, initiator + 1)),
    );
    deliver(&mut dc.pair.sides[1], Instant(0), &mark(request.clone()));
    let mut told = Vec::new();
    dc.pair.send(|_, packet| {
        told.extend(is_cnp(packet).then_some(packet.headers.bth.destination_qp));
        true
    });
    assert_eq!(told, [initiator]);
    dc.pair.deliver();
    assert_eq!(dc.pair.sides[0].device.counters().rp_cnp_handled, 1);
}

#[test]
fn an_idle_initiator_leaves_and_comes_back() {
    let mut dc = dc();
    dc.receives(0..8);
    dc.send(0, 1, 6);
    dc.pair.run();
    let to = dc.targets[0].0;
    assert_eq!(dc.log(), [(Connect, to), (SEND, to), (Disconnect, to)]);
    assert!(dc.pair.now >= Instant(0) + Duration::from_secs(1));
    dc.send(0, 2, 6);
    dc.pair.run();
    assert_eq!(dc.log(), [(Connect, to), (SEND, to), (Disconnect, to)]);
    let [sent, received] = dc.completions();
    all_right(&sent);
    assert_eq!((ids(&sent), received.len()), (vec![1, 2], 2));
    // Nothing is left: no timer, on either side.
    for side in &dc.pair.sides {
        assert_eq!(side.device.next_timeout(), None);
    }
}

/// A CONNECT as another initiator of the same host sends it.
fn connect_as(packet: &Packet, initiator: u32) -> Packet {
    let mut packet = packet.clone();
    if let Some(dceth) = &mut packet.headers.dceth {
        dceth.initiator = initiator;
    }
    packet
}

#[test]
fn connections_are_limited_and_places_come_back() {
    const MOST: u32 = 1024;
    let mut dc = with(Connection {
        rnr_retry: 7,
        ..Connection::default()
    });
    dc.receives(0..8);
    dc.send(0, 1, 6);
    let mut connect = None;
    dc.pair.send(|_, packet| {
        connect.get_or_insert_with(|| packet.clone());
        false
    });
    let connect = connect.expect("a CONNECT");
    let now = dc.pair.now;
    for initiator in 0..2 * MOST {
        deliver(
            &mut dc.pair.sides[1],
            now,
            &connect_as(&connect, 0x1000 + initiator),
        );
    }
    // Some of those without room hear of it, and are counted; the rest has to ask again.
    let mut refused = 0;
    dc.pair.send(|from, packet| {
        refused += usize::from(from == 1 && packet.headers.operation() == Some(Operation::Acknowledge));
        false
    });
    assert_eq!(refused, 16);
    assert_eq!(dc.pair.sides[1].device.counters().resp_rnr_nak, 16);
    // The honest one waits until others have not been heard of for long.
    dc.pair.run_losing(4000, |_, _| true);
    let [sent, received] = dc.completions();
    all_right(&sent);
    assert_eq!((ids(&sent), received.len()), (vec![1], 1));
    assert!(dc.pair.now > now + Duration::from_secs(7));
}

#[test]
fn who_has_left_makes_room() {
    let mut dc = dc();
    dc.receives(0..8);
    dc.send(0, 1, 6);
    let mut connect = None;
    dc.pair.send(|_, packet| {
        connect.get_or_insert_with(|| packet.clone());
        true
    });
    let connect = connect.expect("a CONNECT");
    let mut leave = connect.clone();
    let opcode = vnic_wire::opcode::Opcode::new(Transport::Dc, Disconnect);
    leave.headers.bth.opcode = opcode;
    let now = dc.pair.now;
    for initiator in 0..5000 {
        for packet in [&connect, &leave] {
            deliver(
                &mut dc.pair.sides[1],
                now,
                &connect_as(packet, 0x1000 + initiator),
            );
        }
    }
    assert_eq!(dc.pair.sides[1].device.counters().resp_rnr_nak, 0);
    dc.pair.run_losing(20, |_, _| true);
    all_right(&dc.completions()[0]);
}

#[test]
fn hostile_packets_end_nothing_but_their_own() {
    for knows_the_key in [false, true] {
        let mut dc = dc();
        dc.receives(0..1000);
        dc.send(0, 1, 600);
        let mut samples = Vec::new();
        dc.pair.run_losing(20, |from, packet| {
            samples.extend((from == 0).then(|| packet.clone()));
            true
        });
        let own = dc.pair.sides[0].qp.0;
        let mut rng = 0x1234_5678_9abc_def1u64;
        let mut random = move |n: u64| {
            rng ^= rng << 13;
            rng ^= rng >> 7;
            rng ^= rng << 17;
            rng % n
        };
        for _ in 0..20_000 {
            let mut packet = samples[random(samples.len() as u64) as usize].clone();
            let operation = Operation::ALL[random(Operation::ALL.len() as u64) as usize];
            let headers = &mut packet.headers;
            headers.bth.opcode = vnic_wire::opcode::Opcode::new(Transport::Dc, operation);
            headers.bth.psn = Psn::new(random(1 << 24) as u32);
            headers.extended = match random(4) {
                0 => Extended::None,
                1 => Extended::Reth(vnic_wire::reth::Header {
                    va: random(1 << 40),
                    rkey: random(1 << 32) as u32,
                    len: random(1 << 32) as u32,
                }),
                _ => Extended::Connection(vnic_wire::dcceth::Header {
                    access_key: if knows_the_key { KEY } else { random(u64::MAX) },
                    connection: random(1 << 32) as u32,
                }),
            };
            headers.dceth = (random(9) > 0).then(|| vnic_wire::dceth::Header {
                connection: random(256) as u8,
                initiator: (own + 1 + random(2000) as u32) & 0xff_ffff,
            });
            packet.payload.truncate(random(300) as usize);
            let to = usize::from(random(8) > 0);
            let now = dc.pair.now;
            if to == 0 {
                packet.headers.bth.destination_qp = own;
            }
            deliver(&mut dc.pair.sides[to], now, &packet);
            if random(100) == 0 {
                dc.pair.send(|_, _| false);
                dc.completions();
            }
        }
        let b = &mut dc.pair.sides[1];
        assert_eq!(b.device.qp_state(b.qp), Some(QpState::Rtr));
        dc.pair.run_losing(3000, |_, _| true);
        dc.completions();
        dc.send(1, 2, 600);
        dc.pair.run_losing(3000, |_, _| true);
        all_right(&dc.completions()[0]);
        let b = &mut dc.pair.sides[1];
        let targets = dc.targets.map(|(qp, _)| qp);
        for qp in targets {
            b.device.destroy_qp(qp).unwrap();
        }
        b.completions();
        b.device.destroy_srq(dc.srq).unwrap();
        assert_eq!((b.device.held_in_all(), b.device.next_timeout()), (0, None));
    }
}

#[test]
fn a_target_that_goes_leaves_nothing() {
    for reset in [false, true] {
        let mut dc = dc();
        dc.receives(0..8);
        // The beginning of a message, which takes a receive.
        dc.send(0, 1, 600);
        let mut first = true;
        dc.pair
            .send(|_, packet| of(packet) == Connect || std::mem::take(&mut first));
        dc.pair.deliver();
        let [_, b] = &mut dc.pair.sides;
        assert_eq!(b.device.srq_held(dc.srq), 7);
        let (qp, values) = (dc.targets[0].0, QpAttributes::default());
        if reset {
            b.device.modify_qp(qp, &values, A::STATE, Instant(0)).unwrap();
            assert_eq!(b.device.access_key(qp), Some(KEY));
        }
        b.device.destroy_qp(qp).unwrap();
        b.device.destroy_qp(dc.targets[1].0).unwrap();
        let ended: Vec<_> = b.completions().iter().map(|c| (c.wr_id, c.status)).collect();
        assert_eq!(ended, [(0, Status::FlushError)]);
        b.device.destroy_srq(dc.srq).unwrap();
        assert_eq!((b.device.held_in_all(), b.device.next_timeout()), (0, None));
        // The initiator gives up.
        dc.pair.run();
        assert_eq!(dc.completions()[0][0].status, Status::RetryExceeded);
    }
}

#[test]
fn an_initiator_that_is_killed_is_forgotten() {
    let mut dc = dc();
    dc.receives(0..8);
    dc.send(0, 1, 600);
    let mut first = true;
    dc.pair
        .send(|_, packet| of(packet) == Connect || std::mem::take(&mut first));
    dc.pair.deliver();
    let a = &mut dc.pair.sides[0];
    a.device.destroy_qp(a.qp).unwrap();
    a.completions();
    dc.pair.run();
    // Its receive comes back, and the target forgets it.
    let [_, received] = dc.completions();
    let ended: Vec<_> = received.iter().map(|c| (c.wr_id, c.status)).collect();
    assert_eq!(ended, [(0, Status::FlushError)]);
    assert_eq!(dc.pair.sides[1].device.next_timeout(), None);
}

#[test]
fn ends_are_made_of_what_they_need() {
    let mut dc = dc();
    let [a, b] = &mut dc.pair.sides;
    let initiator = a.init;
    let target = QpInit {
        qp_type: QpType::DcTarget,
        send_cq: None,
        srq: Some(dc.srq),
        max_send_wr: 0,
        max_recv_wr: 0,
        ..b.init
    };
    assert!(b.device.create_qp(&target).is_ok());
    for bad in [
        QpInit { srq: None, ..target },
        QpInit {
            recv_cq: None,
            ..target
        },
        QpInit { pd: None, ..target },
        QpInit {
            send_cq: target.recv_cq,
            ..target
        },
    ] {
        assert!(b.device.create_qp(&bad).is_err(), "{bad:?}");
    }
    for bad in [
        QpInit {
            recv_cq: initiator.send_cq,
            ..initiator
        },
        QpInit {
            send_cq: None,
            ..initiator
        },
    ] {
        assert!(a.device.create_qp(&bad).is_err(), "{bad:?}");
    }
    // A request has a target, a key is a target's, and a target posts nothing.
    assert!(matches!(
        a.device.post_send(a.qp, send(1, SendOp::Send, &[])),
        Err(VerbsError::Invalid(_))
    ));
    assert!(a.device.set_access_key(a.qp, 1).is_err());
    assert_eq!(
        b.device.set_access_key(b.qp, 1),
        Err(VerbsError::State(QpState::Rtr))
    );
    let wr = dc.request(0, 1, SendOp::Send, &[]);
    let b = &mut dc.pair.sides[1];
    assert!(b.device.post_send(b.qp, wr).is_err());
    assert!(b.device.post_recv(b.qp, RecvWr::default()).is_err());
}

/// Both devices know selective repeat, and packets take so many ways.
fn selective(ways: u32) -> Dc {
    let mut dc = dc();
    let congestion = Congestion {
        zero_touch: ZeroTouch {
            selective: true,
            multipath: ways,
            ..ZeroTouch::OFF
        },
        ..Congestion::default()
    };
    for side in &mut dc.pair.sides {
        side.device.set_congestion(congestion.clone(), Instant(0));
    }
    let bytes: Vec<u8> = (0..100_000u32).map(|i| (i * 7 + i / 256) as u8).collect();
    dc.pair.sides[0].fill(0, &bytes);
    dc.pair.sides[1].fill(400_000, &bytes);
    dc
}

impl Dc {
    /// A WRITE from the beginning of the first memory.
    fn write(&mut self, target: usize, id: u64, to: u64, len: u32) {
        let [a, b] = &self.pair.sides;
        let (sge, addr, rkey) = (a.sge(0, len), b.va(to), b.keys.rkey);
        self.post(target, id, SendOp::Write { addr, rkey }, &[sge]);
    }

    /// Packets that a side sent more than once, by PSN.
    fn repeated(&self, side: usize) -> BTreeMap<u32, usize> {
        let mut sent = BTreeMap::new();
        let log = self.pair.log.iter().filter(|(from, _)| *from == side);
        for (_, packet) in
            log.filter(|(_, p)| !matches!(of(p), Connect | Disconnect | Operation::Acknowledge))
        {
            *sent.entry(packet.headers.bth.psn.value()).or_insert(0) += 1;
        }
        sent.retain(|_, times| *times > 1);
        sent
    }
}

#[test]
fn what_is_lost_is_sent_again_and_nothing_else() {
    let mut dc = selective(1);
    let first = Psn::new(Connection::default().psn);
    // 40 packets for each target, and as many back.
    dc.write(0, 1, 200_000, 40 * 256);
    dc.write(1, 2, 300_000, 40 * 256);
    let mut lost = vec![(0, 7), (0, 47), (1, 87)];
    let mut keep = |from: usize, packet: &Packet| {
        let data = !matches!(of(packet), Connect | Disconnect | Operation::Acknowledge);
        let number = packet.headers.bth.psn.distance(first);
        let at = lost.iter().position(|l| *l == (from, number)).filter(|_| data);
        at.map(|at| lost.remove(at)).is_none()
    };
    dc.settle_losing(&mut keep);
    let [a, b] = &dc.pair.sides;
    let (addr, rkey, sge) = (b.va(400_000), b.keys.rkey, a.sge(500_000, 40 * 256));
    dc.post(1, 3, SendOp::Read { addr, rkey }, &[sge]);
    dc.settle_losing(&mut keep);
    let sent = dc.completions().into_iter().next().expect("of the first");
    all_right(&sent);
    assert_eq!(ids(&sent), [1, 2, 3]);
    let [a, b] = &dc.pair.sides;
    for to in [200_000, 300_000] {
        assert_eq!(b.bytes(to, 40 * 256), a.bytes(0, 40 * 256));
    }
    assert_eq!(a.bytes(500_000, 40 * 256), a.bytes(0, 40 * 256));
    // The first two, the last of the second message as a probe, and the part of the READ.
    let twice = |n: u32| (first.add(n).value(), 2);
    assert_eq!(dc.repeated(0), BTreeMap::from([7, 47, 79].map(twice)));
    assert_eq!(dc.repeated(1), BTreeMap::from([87].map(twice)));
}

#[test]
fn packets_take_several_ways_to_each_target_that_knows_that() {
    let mut dc = selective(4);
    for (target, id) in [(0, 1), (0, 2), (1, 3), (1, 4)] {
        // The first answer of each says that it takes them.
        let len = if id % 2 == 1 { 1 } else { 200 * 256 };
        dc.write(target, id, 200_000 * (1 + target as u64), len);
        dc.settle();
        all_right(&dc.completions()[0]);
        let log = std::mem::take(&mut dc.pair.log);
        let sent = log.iter().filter(|(from, p)| *from == 0 && of(p) != Disconnect);
        let ports: BTreeMap<u16, ()> = sent.map(|(_, p)| (p.path.source_port, ())).collect();
        assert_eq!(ports.len(), if id % 2 == 1 { 1 } else { 4 }, "request {id}");
    }
    let [a, b] = &dc.pair.sides;
    for to in [200_000, 400_000] {
        assert_eq!(b.bytes(to, 200 * 256), a.bytes(0, 200 * 256));
    }
}

#[test]
fn a_connect_begins_where_something_is_missing() {
    let mut dc = dc();
    dc.receives(0..8);
    dc.send(0, 1, 6);
    dc.send(0, 2, 6);
    // All is lost at first, and the first CONNECT that comes is the second.
    let mut sent = 0;
    dc.pair.run_losing(30, |from, packet| {
        sent += usize::from(from == 0 && of(packet) == SEND);
        from == 1 || sent > 2 || of(packet) == Connect && sent > 1
    });
    let connects = dc.pair.log.iter().filter(|(_, p)| of(p) == Connect);
    let psns: Vec<u32> = connects.map(|(_, p)| p.headers.bth.psn.value()).collect();
    assert_eq!(psns, [Connection::default().psn; 2]);
    let [sent, received] = dc.completions();
    all_right(&sent);
    assert_eq!(received.len(), 2);
}
