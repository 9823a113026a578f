//! UDP source ports of RoCEv2: by them routers and bonds spread queue pairs.

use std::collections::BTreeSet;

use vnic_engine::rdma::{QpNumber, QpType, SendOp};

use super::harness::{Connection, Pair, datagrams};

/// Two hosts that make queue pairs in a row, with numbers that go in parallel: each has a port of its own, and all its packets
/// have that one.
#[test]
fn queue_pairs_in_a_row_spread() {
    let mut pair = Pair::new(QpType::Rc, Connection::default());
    let mut ports = [BTreeSet::new(), BTreeSet::new()];
    for i in 0..64 {
        if i > 0 {
            for side in &mut pair.sides {
                side.qp = side.device.create_qp(&side.init).unwrap();
            }
            pair.connect(Connection::default());
        }
        let [a, b] = &mut pair.sides;
        assert_eq!(a.qp, b.qp, "they go in parallel");
        b.post_recv(i, &[b.sge(0, 1000)]);
        a.post(i, SendOp::Send, &[a.sge(0, 1000)]);
        pair.log.clear();
        pair.run();
        for (from, ports) in ports.iter_mut().enumerate() {
            let mut of = pair.log.iter().filter(|(f, _)| *f == from);
            let first = of.next().unwrap().1.path.source_port;
            assert!(first >= 0xc000);
            assert!(of.all(|(_, p)| p.path.source_port == first));
            ports.insert(first);
        }
    }
    for ports in &ports {
        assert_eq!(ports.len(), 64);
        // The bit by which Linux's layer3+4 tells two ports of a bond apart: of the port's low byte, its second.
        assert_eq!(ports.iter().filter(|p| *p >> 1 & 1 == 0).count(), 32);
    }
}

/// One queue pair that sends datagrams to many.
#[test]
fn datagrams_to_many_spread() {
    let mut pair = datagrams();
    let gid = pair.sides[1].gid;
    let mut ports = BTreeSet::new();
    for i in 0..64 {
        let mut to = pair.destination(gid, 0x1111, false);
        to.qp = QpNumber(2 + i);
        let a = &mut pair.sides[0];
        let op = SendOp::Send;
        let mut wr = super::harness::send(u64::from(i), op, &[a.sge(0, 100)]);
        wr.ud = Some(to);
        a.device.post_send(a.qp, wr).unwrap();
        pair.send(|_, _| false);
        ports.insert(pair.log.last().unwrap().1.path.source_port);
    }
    assert!(ports.len() > 50, "{ports:x?}");
    assert!(ports.iter().all(|p| *p >= 0xc000));
}
