//! Unreliable connections and datagrams.

use vnic_engine::rdma::{
    AhHandle, AttributeMask as A, COPIES_AT_ONCE, Completion, GidEntry, Object, Origin, QpAttributes,
    QpState, QpType, SendOp, SendWr, Status, VerbsError,
};
use vnic_wire::gid::Gid;
use vnic_wire::time::Instant;

use super::harness::{Connection, Pair, datagram_qp, datagrams, send};

#[test]
fn uc_drops_a_broken_message_and_delivers_the_next_into_the_same_receive() {
    let mut pair = Pair::new(QpType::Uc, Connection::default());
    let [a, b] = &mut pair.sides;
    a.fill(0, &[5; 1000]);
    b.post_recv(1, &[b.sge(0, 1000)]);
    b.post_recv(2, &[b.sge(2000, 1000)]);
    a.post(1, SendOp::Send, &[a.sge(0, 600)]);
    a.post(2, SendOp::Send, &[a.sge(0, 700)]);
    a.post(3, SendOp::SendImm(3), &[]);
    let mut count = 0;
    pair.run_losing(0, |_, _| {
        count += 1;
        count != 2
    });
    let [a, b] = &mut pair.sides;
    assert_eq!(
        a.completions().len(),
        3,
        "sends of UC are done when they are sent"
    );
    let received: Vec<_> = b
        .completions()
        .iter()
        .map(|c| (c.wr_id, c.byte_len, c.imm))
        .collect();
    assert_eq!(received, [(1, 700, None), (2, 0, Some(3))]);
    assert_eq!(b.bytes(0, 700), [5; 700]);
    assert!(
        pair.log.iter().all(|(from, _)| *from == 0),
        "nothing is acknowledged"
    );
}

#[test]
fn a_uc_write_without_leave_is_dropped_silently() {
    let mut pair = Pair::new(QpType::Uc, Connection::default());
    let [a, b] = &mut pair.sides;
    a.fill(0, &[1; 16]);
    let (addr, rkey) = (b.va(0), b.keys.rkey);
    a.post(
        1,
        SendOp::Write {
            addr,
            rkey: rkey ^ 0x300,
        },
        &[a.sge(0, 8)],
    );
    a.post(2, SendOp::Write { addr: addr + 8, rkey }, &[a.sge(0, 8)]);
    pair.run();
    let [a, b] = &mut pair.sides;
    assert!(a.completions().iter().all(|c| c.status == Status::Success));
    assert_eq!(b.bytes(0, 16), [[0; 8], [1; 8]].concat());
    assert_eq!(b.state(), QpState::Rts);
}

#[test]
fn a_local_error_stops_the_send_queue_only_and_it_can_be_mended() {
    let mut pair = Pair::new(QpType::Uc, Connection::default());
    let [a, b] = &mut pair.sides;
    let mut wrong = a.sge(0, 8);
    wrong.lkey ^= 0x500;
    a.post(1, SendOp::Send, &[wrong]);
    a.post(2, SendOp::Send, &[a.sge(0, 8)]);
    b.post_recv(9, &[b.sge(0, 8)]);
    pair.run();
    let [a, _] = &mut pair.sides;
    let done: Vec<_> = a.completions().iter().map(|c| (c.wr_id, c.status)).collect();
    assert_eq!(done, [(1, Status::LocalProtectionError), (2, Status::FlushError)]);
    assert_eq!(a.state(), QpState::Sqe);
    let again = QpAttributes {
        state: QpState::Rts,
        ..QpAttributes::default()
    };
    a.device.modify_qp(a.qp, &again, A::STATE, Instant(0)).unwrap();
    a.post(3, SendOp::Send, &[a.sge(0, 8)]);
    pair.run();
    let [a, b] = &mut pair.sides;
    assert_eq!(a.completions()[0].status, Status::Success);
    assert_eq!(b.completions()[0].wr_id, 9);
}

/// As with cards, whose work requests hold the address: `mckey` destroys its handles behind its datagrams.
#[test]
fn datagrams_go_out_whose_handles_were_destroyed_behind_them() {
    let mut pair = datagrams();
    fn datagram(pair: &mut Pair, id: u64) -> (SendWr, AhHandle) {
        let to = pair.destination(pair.sides[1].gid, 0x1111, false);
        let mut wr = send(id, SendOp::Send, &[pair.sides[0].sge(0, 8)]);
        wr.ud = Some(to);
        (wr, to.ah)
    }
    let mut posted = Vec::new();
    for id in 0..10 {
        let (wr, ah) = datagram(&mut pair, id);
        let [a, b] = &mut pair.sides;
        b.post_recv(id, &[b.sge(0, 48)]);
        a.device.post_send(a.qp, wr).unwrap();
        posted.push(ah);
    }
    let a = &mut pair.sides[0];
    for ah in &posted {
        a.device.destroy_ah(*ah).unwrap();
        assert_eq!(a.device.query_ah(*ah), Err(VerbsError::NoSuch(Object::Ah)));
    }
    assert_eq!(a.device.resources().ah.used, 0);
    pair.run();
    let [a, b] = &mut pair.sides;
    let all = |c: Vec<Completion>| c.len() == 10 && c.iter().all(|c| c.status == Status::Success);
    assert!(all(a.completions()) && all(b.completions()));

    // A handle that 256 others have followed is gone, and so is one from before another GID table.
    let gone = Err(VerbsError::NoSuch(Object::Ah));
    let (wr, ah) = datagram(&mut pair, 10);
    let a = &mut pair.sides[0];
    let address = a.device.query_ah(ah).unwrap();
    a.device.destroy_ah(ah).unwrap();
    for _ in 0..256 {
        let other = a.device.create_ah(a.pd, address).unwrap();
        a.device.destroy_ah(other).unwrap();
    }
    assert_eq!(a.device.post_send(a.qp, wr), gone);
    let (wr, ah) = datagram(&mut pair, 11);
    let a = &mut pair.sides[0];
    a.device.destroy_ah(ah).unwrap();
    let entry = a.device.gids().get(0).unwrap();
    let gid = Gid([0xfe; 16]);
    a.device.set_gid(5, Some(GidEntry { gid, ..*entry })).unwrap();
    assert_eq!(a.device.post_send(a.qp, wr), gone);
}

#[test]
fn a_datagram_brings_its_sender_and_its_ip_header() {
    let mut pair = datagrams();
    let gid = pair.sides[1].gid;
    let to = pair.destination(gid, 0x1111, false);
    let [a, b] = &mut pair.sides;
    a.fill(0, &[8; 100]);
    b.post_recv(1, &[b.sge(0, 140)]);
    let mut wr = send(1, SendOp::SendImm(77), &[a.sge(0, 100)]);
    wr.ud = Some(to);
    a.device.post_send(a.qp, wr).unwrap();
    pair.run();
    let [a, b] = &mut pair.sides;
    assert_eq!(a.completions()[0].status, Status::Success);
    let got = b.completions()[0];
    assert_eq!(
        (got.status, got.byte_len, got.imm),
        (Status::Success, 140, Some(77))
    );
    let Origin::Datagram(source) = got.origin else {
        panic!("{got:?}");
    };
    assert_eq!((source.qp, source.mac), (a.qp, a.mac));
    let grh = b.bytes(0, 40);
    assert_eq!(grh[20], 0x45, "an IPv4 header in the last 20 bytes");
    assert_eq!(
        (grh[21], grh[28], &grh[32..36], &grh[36..40]),
        (0x68, 9, &[10, 0, 0, 1][..], &[10, 0, 0, 2][..])
    );
    // IP, UDP, BTH, DETH, ImmDt, payload, ICRC.
    assert_eq!(
        u16::from_be_bytes([grh[22], grh[23]]),
        20 + 8 + 12 + 8 + 4 + 100 + 4
    );
    assert_eq!(b.bytes(40, 100), [8; 100]);
}

#[test]
fn a_wrong_queue_key_and_a_full_receiver_drop_silently() {
    let mut pair = datagrams();
    let gid = pair.sides[1].gid;
    let wrong = pair.destination(gid, 0x2222, false);
    let right = pair.destination(gid, 0x8000_0000, false);
    let [a, _] = &mut pair.sides;
    for to in [wrong, right] {
        let mut wr = send(1, SendOp::Send, &[a.sge(0, 10)]);
        wr.ud = Some(to);
        a.device.post_send(a.qp, wr).unwrap();
    }
    pair.run();
    let [a, b] = &mut pair.sides;
    assert_eq!(a.completions().len(), 2);
    assert!(b.completions().is_empty());
    let counters = b.device.counters();
    assert_eq!(
        (counters.drop_qkey_violation, counters.out_of_buffer),
        (1, 1),
        "the own key is the right one"
    );
}

#[test]
fn a_datagram_that_is_too_long_is_refused_where_it_is_too_long() {
    let mut pair = datagrams();
    let gid = pair.sides[1].gid;
    let to = pair.destination(gid, 0x1111, false);
    let [a, b] = &mut pair.sides;
    b.post_recv(1, &[b.sge(0, 140)]);
    let mut wr = send(1, SendOp::Send, &[a.sge(0, 101)]);
    wr.ud = Some(to);
    a.device.post_send(a.qp, wr).unwrap();
    pair.run();
    let [a, b] = &mut pair.sides;
    assert_eq!(b.completions()[0].status, Status::LocalLengthError);
    let mut wr = send(2, SendOp::Send, &[a.sge(0, 4097)]);
    wr.ud = Some(to);
    a.completions();
    a.device.post_send(a.qp, wr).unwrap();
    pair.run();
    let a = &mut pair.sides[0];
    assert_eq!(a.completions()[0].status, Status::LocalLengthError);
    assert_eq!(a.state(), QpState::Sqe);
}

#[test]
fn every_member_of_a_group_gets_its_copy() {
    let mut pair = datagrams();
    let group = Gid::from_ipv4([239, 1, 2, 3]);
    let to = pair.destination(group, 0x1111, true);
    let [a, b] = &mut pair.sides;
    b.device.attach_multicast(b.qp, group).unwrap();
    b.post_recv(1, &[b.sge(0, 140)]);
    let mut wr = send(1, SendOp::Send, &[a.sge(0, 100)]);
    wr.ud = Some(to);
    a.device.post_send(a.qp, wr).unwrap();
    pair.run();
    assert_eq!(pair.sides[1].completions().len(), 1);
}

#[test]
fn a_packet_to_a_large_group_makes_few_copies_at_once_and_the_others_wait() {
    const MEMBERS: usize = 40;
    let mut pair = datagrams();
    let group = Gid::from_ipv4([239, 1, 2, 3]);
    let to = pair.destination(group, 0x1111, true);
    let b = &mut pair.sides[1];
    let members: Vec<_> = (0..MEMBERS).map(|_| datagram_qp(b)).collect();
    for (i, qp) in members.iter().enumerate() {
        b.device.attach_multicast(*qp, group).unwrap();
        b.qp = *qp;
        for message in 0..2 {
            b.post_recv(2 * i as u64 + message, &[b.sge(200 * i as u64, 140)]);
        }
    }
    b.device.take_work();
    for message in 0..2u8 {
        let a = &mut pair.sides[0];
        a.fill(0, &[message; 100]);
        let mut wr = send(1, SendOp::Send, &[a.sge(0, 100)]);
        wr.ud = Some(to);
        a.device.post_send(a.qp, wr).unwrap();
        pair.run();
        let b = &mut pair.sides[1];
        assert_eq!(b.completions().len(), COPIES_AT_ONCE);
        assert_eq!(b.device.take_work() as usize, 4 * COPIES_AT_ONCE);
    }
    // Both wait; the sender's memory is another by now, and two members have left.
    pair.sides[0].fill(0, &[9; 100]);
    let (now, b) = (pair.now, &mut pair.sides[1]);
    b.device.detach_multicast(members[20], group).unwrap();
    b.device.detach_multicast(members[30], group).unwrap();
    b.device.destroy_qp(members[30]).unwrap();
    assert_eq!(b.completions().len(), 2, "what it had posted is flushed");
    for message in 0..2u8 {
        for (i, qp) in members.iter().enumerate().skip(COPIES_AT_ONCE) {
            assert_eq!(b.device.next_member(), Some(*qp));
            b.device.receive_copy(now, &b.ram);
            let expected: &[u64] = match i {
                20 | 30 => &[],
                _ => &[2 * i as u64 + u64::from(message)],
            };
            let got: Vec<u64> = b.completions().iter().map(|c| c.wr_id).collect();
            assert_eq!(got, expected, "member {i}");
            if !got.is_empty() {
                assert_eq!(b.bytes(200 * i + 40, 100), [message; 100]);
            }
        }
    }
    assert_eq!(b.device.next_member(), None);
    assert_eq!(b.device.counters().out_of_buffer, 0);
}

#[test]
fn what_a_large_group_has_no_room_for_is_lost_and_counted() {
    let mut pair = datagrams();
    let group = Gid::from_ipv4([239, 1, 2, 3]);
    let to = pair.destination(group, 0x1111, true);
    let b = &mut pair.sides[1];
    for _ in 0..COPIES_AT_ONCE + 3 {
        let qp = datagram_qp(b);
        b.device.attach_multicast(qp, group).unwrap();
    }
    for _ in 0..70 {
        let a = &mut pair.sides[0];
        let mut wr = send(1, SendOp::Send, &[a.sge(0, 100)]);
        wr.ud = Some(to);
        a.device.post_send(a.qp, wr).unwrap();
        pair.run();
    }
    let (now, b) = (pair.now, &mut pair.sides[1]);
    let at_once = 70 * COPIES_AT_ONCE as u64;
    assert_eq!(b.device.counters().out_of_buffer, at_once + (70 - 64) * 3);
    let mut copies = 0;
    while b.device.next_member().is_some() {
        b.device.receive_copy(now, &b.ram);
        copies += 1;
    }
    assert_eq!(copies, 64 * 3);
}
