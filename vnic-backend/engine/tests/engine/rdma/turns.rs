//! How much one call of `transmit` does, and what it costs when the sink is full.

use vnic_engine::rdma::{Access, Mark, Outgoing, QpInit, QpState, QpType, SendOp, Sink, Span, Status};
use vnic_wire::time::Instant;

use super::harness::{BASE, Connection, Pair, Side, connect, send};

/// Takes so many packets, and counts how often it is asked.
#[derive(Default)]
struct Budget {
    left: u32,
    taken: Vec<u32>,
    asked: u32,
}

impl Budget {
    fn of(left: u32) -> Budget {
        Budget {
            left,
            ..Budget::default()
        }
    }
}

impl Sink for Budget {
    fn open(&mut self) -> u8 {
        self.asked += 1;
        if self.left > 0 { 0xff } else { 0 }
    }

    fn send(&mut self, packet: &Outgoing<'_>) {
        self.left -= 1;
        self.taken.push(packet.from.0);
    }
}

fn transmit(side: &mut Side, budget: u32) -> Budget {
    let mut sink = Budget::of(budget);
    side.device.transmit(Instant(0), &side.ram, &mut sink);
    sink
}

#[test]
fn a_call_ends_with_the_sink_however_much_is_posted() {
    // Nothing holds a UC queue back: 60 requests of 512 KiB at 256 bytes a packet.
    let mut pair = Pair::new(QpType::Uc, Connection::default());
    let a = &mut pair.sides[0];
    for id in 0..60 {
        a.post(id, SendOp::Send, &[a.sge(0, 1 << 19)]);
    }
    for _ in 0..3 {
        let sink = transmit(a, 100);
        assert_eq!(sink.taken.len(), 100);
        // Once for each packet, once for each turn, and when it is full.
        assert!(sink.asked <= 100 + 100 / 16 + 3, "{}", sink.asked);
        assert!(a.device.wants_transmit());
    }
    assert!(a.completions().is_empty());
}

#[test]
fn a_full_sink_costs_nothing_however_many_have_something_to_send() {
    let mut pair = Pair::new(QpType::Uc, Connection::default());
    let [a, b] = &mut pair.sides;
    a.init.signal_all = false;
    for _ in 0..2000 {
        let qp = a.device.create_qp(&a.init).unwrap();
        a.qp = qp;
        connect(a, b.qp, b.gid, b.mac, Connection::default());
        for id in 0..2 {
            let wr = send(id, SendOp::Send, &[a.sge(0, 8)]);
            a.device.post_send(qp, wr).unwrap();
        }
    }
    let mut first = Vec::new();
    for _ in 0..50 {
        let full = transmit(a, 0);
        assert_eq!((full.taken.len(), full.asked), (0, 1));
        let sink = transmit(a, 7);
        assert_eq!(sink.taken.len(), 7);
        assert!(sink.asked <= 7 * 3, "{}", sink.asked);
        first.extend(sink.taken);
    }
    // Each had its turn: nobody was served twice more than others.
    first.dedup();
    let distinct: std::collections::HashSet<_> = first.iter().collect();
    assert!(distinct.len() >= 350 / 2, "{}", distinct.len());
    assert!(a.device.marks().get(Mark::SinkFull) >= 50);
}

#[test]
fn work_that_sends_nothing_ends_too_and_holds_nobody_up() {
    let mut pair = Pair::new(QpType::Rc, Connection::default());
    let [a, b] = &mut pair.sides;
    let page = vec![Span { at: BASE, len: 4096 }];
    let rights = Access::LOCAL_WRITE | Access::INVALIDATE;
    let key = a.device.register(a.pd, 0, rights, page).unwrap().lkey;
    let cq = a.device.create_cq(32_768).unwrap();
    let busy = QpInit {
        max_send_wr: 32_768,
        send_cq: Some(cq),
        ..a.init
    };
    let other = a.qp;
    a.qp = a.device.create_qp(&busy).unwrap();
    connect(a, b.qp, b.gid, b.mac, Connection::default());
    for id in 0..32_768 {
        a.post(id, SendOp::LocalInvalidate(key), &[]);
    }
    let wr = send(1, SendOp::Send, &[a.sge(0, 8)]);
    a.device.post_send(other, wr).unwrap();
    let sink = transmit(a, 1000);
    assert_eq!(sink.taken, [other.0]);
    let done = a.device.peek_len(cq);
    assert!(0 < done && done < 32_768, "{done} in one call");
    let mut calls = 1;
    while a.device.wants_transmit() {
        transmit(a, 1000);
        calls += 1;
    }
    // 16 turns of 16.
    assert!((128..=130).contains(&calls), "{calls} calls");
    let mut all = Vec::new();
    a.device.poll_cq(cq, &mut all, usize::MAX).unwrap();
    assert!(
        all.iter()
            .zip(0..)
            .all(|(c, id)| c.wr_id == id && c.status == Status::Success)
    );
    assert_eq!((all.len(), a.state()), (32_768, QpState::Rts));
}
