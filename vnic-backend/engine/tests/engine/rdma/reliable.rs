//! Reliable connections.

use vnic_engine::rdma::{Access, CompletionOp, Event, Mtu, QpState, QpType, SendOp, Status};
use vnic_wire::opcode::Operation;

use super::harness::{Connection, Packet, Pair};

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
}

fn operation(packet: &Packet) -> Option<Operation> {
    packet.headers.bth.opcode.operation()
}

#[test]
fn send_arrives_over_several_packets_and_the_psn_wrap() {
    let mut pair = Pair::new(QpType::Rc, Connection::default());
    let [a, b] = &mut pair.sides;
    a.fill(0, &pattern(1000));
    b.post_recv(7, &[b.sge(5000, 600), b.sge(8000, 600)]);
    a.post(1, SendOp::SendImm(0xabcd), &[a.sge(0, 300), a.sge(300, 700)]);
    pair.run();
    let [a, b] = &mut pair.sides;
    let sent = a.completions();
    assert_eq!(
        (sent.len(), sent[0].wr_id, sent[0].status),
        (1, 1, Status::Success)
    );
    let received = b.completions();
    assert_eq!(
        (
            received.len(),
            received[0].wr_id,
            received[0].byte_len,
            received[0].imm
        ),
        (1, 7, 1000, Some(0xabcd))
    );
    let all = [b.bytes(5000, 600), b.bytes(8000, 400)].concat();
    assert_eq!(all, pattern(1000));
}

#[test]
fn write_read_and_atomics() {
    let mut pair = Pair::new(QpType::Rc, Connection::default());
    let [a, b] = &mut pair.sides;
    a.fill(0, &pattern(2000));
    b.fill(50_000, &41u64.to_ne_bytes());
    let (addr, rkey) = (b.va(10_000), b.keys.rkey);
    a.post(1, SendOp::Write { addr, rkey }, &[a.sge(0, 2000)]);
    a.post(2, SendOp::Read { addr, rkey }, &[a.sge(20_000, 2000)]);
    let counter = b.va(50_000);
    a.post(
        3,
        SendOp::FetchAdd {
            addr: counter,
            rkey,
            add: 1,
        },
        &[a.sge(30_000, 8)],
    );
    a.post(
        4,
        SendOp::CompareSwap {
            addr: counter,
            rkey,
            compare: 42,
            swap: 7,
        },
        &[a.sge(30_008, 8)],
    );
    a.post(5, SendOp::Read { addr, rkey }, &[]);
    pair.run();
    let [a, b] = &mut pair.sides;
    let done: Vec<_> = a
        .completions()
        .iter()
        .map(|c| (c.wr_id, c.status, c.op, c.byte_len))
        .collect();
    assert_eq!(
        done,
        [
            (1, Status::Success, CompletionOp::Write, 0),
            (2, Status::Success, CompletionOp::Read, 2000),
            (3, Status::Success, CompletionOp::FetchAdd, 8),
            (4, Status::Success, CompletionOp::CompareSwap, 8),
            (5, Status::Success, CompletionOp::Read, 0),
        ]
    );
    assert_eq!(b.bytes(10_000, 2000), pattern(2000));
    assert_eq!(a.bytes(20_000, 2000), pattern(2000));
    assert_eq!(
        a.bytes(30_000, 16),
        [41u64.to_ne_bytes(), 42u64.to_ne_bytes()].concat()
    );
    assert_eq!(b.bytes(50_000, 8), 7u64.to_ne_bytes());
    assert!(b.completions().is_empty());
}

/// Loses every packet once, one at a time: whatever is lost, the outcome is the same.
#[test]
fn any_one_packet_may_be_lost() {
    let work = |lost: usize| -> usize {
        let mut pair = Pair::new(QpType::Rc, Connection::default());
        let [a, b] = &mut pair.sides;
        a.fill(0, &pattern(3000));
        b.fill(50_000, &[0; 8]);
        let (addr, rkey) = (b.va(10_000), b.keys.rkey);
        let counter = b.va(50_000);
        for i in 0..3 {
            b.post_recv(100 + i, &[b.sge(60_000 + i * 3000, 3000)]);
        }
        a.post(1, SendOp::Send, &[a.sge(0, 900)]);
        a.post(2, SendOp::Write { addr, rkey }, &[a.sge(0, 700)]);
        a.post(3, SendOp::Read { addr, rkey }, &[a.sge(20_000, 1500)]);
        a.post(
            4,
            SendOp::FetchAdd {
                addr: counter,
                rkey,
                add: 1,
            },
            &[a.sge(30_000, 8)],
        );
        a.post(5, SendOp::WriteImm { addr, rkey, imm: 5 }, &[a.sge(0, 1500)]);
        a.post(6, SendOp::Read { addr, rkey }, &[a.sge(24_000, 1500)]);
        a.post(
            7,
            SendOp::FetchAdd {
                addr: counter,
                rkey,
                add: 1,
            },
            &[a.sge(30_008, 8)],
        );
        a.post(8, SendOp::Send, &[a.sge(0, 3000)]);
        let mut count = 0;
        pair.run_losing(100, |_, _| {
            count += 1;
            count != lost + 1
        });
        let [a, b] = &mut pair.sides;
        let done = a.completions();
        let ids: Vec<_> = done.iter().map(|c| (c.wr_id, c.status)).collect();
        assert_eq!(
            ids,
            (1..=8).map(|i| (i, Status::Success)).collect::<Vec<_>>(),
            "lost {lost}"
        );
        let received: Vec<_> = b.completions().iter().map(|c| (c.wr_id, c.byte_len)).collect();
        assert_eq!(received, [(100, 900), (101, 1500), (102, 3000)], "lost {lost}");
        assert_eq!(b.bytes(50_000, 8), 2u64.to_ne_bytes(), "lost {lost}");
        assert_eq!(
            a.bytes(30_000, 16),
            [0u64.to_ne_bytes(), 1u64.to_ne_bytes()].concat()
        );
        assert_eq!(a.bytes(24_000, 1500), pattern(1500), "lost {lost}");
        assert_eq!(b.bytes(66_000, 3000), pattern(3000), "lost {lost}");
        count
    };
    let packets = work(usize::MAX - 1);
    for lost in 0..packets {
        work(lost);
    }
}

#[test]
fn a_receiver_that_is_not_ready_is_waited_for_and_given_up() {
    let mut pair = Pair::new(
        QpType::Rc,
        Connection {
            rnr_retry: 2,
            ..Connection::default()
        },
    );
    let [a, _] = &mut pair.sides;
    a.post(1, SendOp::Send, &[a.sge(0, 10)]);
    a.post(2, SendOp::Send, &[a.sge(0, 10)]);
    pair.run();
    let [a, b] = &mut pair.sides;
    let done: Vec<_> = a.completions().iter().map(|c| (c.wr_id, c.status)).collect();
    assert_eq!(done, [(1, Status::RnrRetryExceeded), (2, Status::FlushError)]);
    assert_eq!((a.state(), b.state()), (QpState::Err, QpState::Rts));
    assert_eq!(a.device.counters().rnr_nak_retry_err, 3);
    assert_eq!(b.device.counters().out_of_buffer, 3);
}

#[test]
fn a_dead_peer_is_given_up_after_all_retries() {
    let mut pair = Pair::new(QpType::Rc, Connection::default());
    let [a, _] = &mut pair.sides;
    a.post(1, SendOp::Send, &[a.sge(0, 10)]);
    pair.run_losing(100, |_, _| false);
    let [a, _] = &mut pair.sides;
    assert_eq!(a.completions()[0].status, Status::RetryExceeded);
    assert_eq!(pair.log.len(), 4, "once, and three retries");
    assert_eq!(pair.now.0, 4 * (4096 << 10));
}

#[test]
fn a_wrong_key_ends_both_sides() {
    for write in [true, false] {
        let mut pair = Pair::new(QpType::Rc, Connection::default());
        let [a, b] = &mut pair.sides;
        let (addr, rkey) = (b.va(0), b.keys.rkey ^ 0x100);
        let op = if write {
            SendOp::Write { addr, rkey }
        } else {
            SendOp::Read { addr, rkey }
        };
        b.post_recv(9, &[b.sge(0, 10)]);
        a.post(1, op, &[a.sge(0, 10)]);
        pair.run();
        let [a, b] = &mut pair.sides;
        assert_eq!(a.completions()[0].status, Status::RemoteAccessError);
        assert_eq!(b.completions()[0].status, Status::FlushError);
        assert!(b.events().contains(&Event::QpAccessError(b.qp)));
        assert_eq!((a.state(), b.state()), (QpState::Err, QpState::Err));
    }
}

#[test]
fn rights_of_the_queue_pair_count_too() {
    let mut pair = Pair::new(
        QpType::Rc,
        Connection {
            access: Access::REMOTE_READ,
            ..Connection::default()
        },
    );
    let [a, b] = &mut pair.sides;
    let (addr, rkey) = (b.va(0), b.keys.rkey);
    a.post(1, SendOp::Read { addr, rkey }, &[a.sge(0, 10)]);
    a.post(2, SendOp::Write { addr, rkey }, &[a.sge(0, 10)]);
    pair.run();
    let statuses: Vec<_> = pair.sides[0].completions().iter().map(|c| c.status).collect();
    assert_eq!(statuses, [Status::Success, Status::RemoteAccessError]);
}

#[test]
fn a_message_longer_than_its_receive_fails_on_both_sides() {
    let mut pair = Pair::new(
        QpType::Rc,
        Connection {
            mtu: Mtu::Mtu1024,
            ..Connection::default()
        },
    );
    let [a, b] = &mut pair.sides;
    b.post_recv(9, &[b.sge(0, 10)]);
    a.post(1, SendOp::Send, &[a.sge(0, 11)]);
    pair.run();
    let [a, b] = &mut pair.sides;
    assert_eq!(a.completions()[0].status, Status::RemoteInvalidRequestError);
    assert_eq!(b.completions()[0].status, Status::LocalLengthError);
}

#[test]
fn acknowledges_of_a_burst_become_one() {
    let mut pair = Pair::new(QpType::Rc, Connection::default());
    let [a, b] = &mut pair.sides;
    let (addr, rkey) = (b.va(0), b.keys.rkey);
    for id in 0..10 {
        a.post(id, SendOp::Write { addr, rkey }, &[a.sge(0, 8)]);
    }
    pair.run();
    let acks = pair
        .log
        .iter()
        .filter(|(_, p)| operation(p) == Some(Operation::Acknowledge))
        .count();
    assert_eq!((acks, pair.sides[0].completions().len()), (1, 10));
}

#[test]
fn after_a_timeout_little_is_sent_until_something_is_acknowledged() {
    let mut pair = Pair::new(QpType::Rc, Connection::default());
    let [a, b] = &mut pair.sides;
    let (addr, rkey) = (b.va(0), b.keys.rkey);
    a.post(1, SendOp::Write { addr, rkey }, &[a.sge(0, 256 * 100)]);
    let mut rounds = vec![0];
    let mut now = 0;
    while pair.sides[0].completions().is_empty() {
        let lost = rounds.len() == 1;
        pair.send(|from, _| {
            *rounds.last_mut().unwrap() += usize::from(from == 0);
            !lost
        });
        pair.deliver();
        let idle = pair.wire.iter().all(|w| w.is_empty());
        if idle && !pair.sides.iter().any(|s| s.device.wants_transmit()) {
            now = pair.sides[0].device.next_timeout().map_or(now, |t| t.0);
            pair.now = vnic_wire::time::Instant(now);
            pair.sides[0].device.handle_timeout(pair.now);
        }
        rounds.push(0);
    }
    let sent: Vec<usize> = rounds.into_iter().filter(|n| *n > 0).collect();
    // All is lost at first; then the window doubles with each acknowledge.
    assert_eq!(sent[..3], [100, 16, 32], "{sent:?}");
}

#[test]
fn the_packet_that_was_missing_is_acknowledged_unasked() {
    let mut pair = Pair::new(QpType::Rc, Connection::default());
    let [a, b] = &mut pair.sides;
    let (addr, rkey) = (b.va(0), b.keys.rkey);
    a.post(1, SendOp::Write { addr, rkey }, &[a.sge(0, 256 * 10)]);
    let mut count = 0;
    pair.run_losing(10, |_, _| {
        count += 1;
        count != 3
    });
    let acks = pair
        .log
        .iter()
        .filter(|(from, p)| *from == 1 && operation(p) == Some(Operation::Acknowledge));
    let psns: Vec<u32> = acks.map(|(_, p)| p.headers.bth.psn.value()).collect();
    // The NAK for the third packet, and one acknowledge of all: those of the third and the last became one.
    assert_eq!(psns, [0, 7]);
}
