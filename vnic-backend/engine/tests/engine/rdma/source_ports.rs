//! UDP source ports of RoCEv2: by them routers and bonds spread queue pairs.

use std::collections::BTreeSet;

use vnic_engine::rdma::{
    AddressVector, AttributeMask, QpAttributes, QpNumber, QpState, QpType, SendOp, VerbsError, flow_label,
    flow_label_port,
};
use vnic_wire::time::Instant;

use super::harness::{Connection, Pair, Side, datagrams};

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

/// Queue pairs 329 and 328, their flow label and their port, as a driver of cards has logged them (seed RDMA notes, 10).
#[test]
fn a_flow_label_decides() {
    assert_eq!([flow_label(329, 328), flow_label(328, 329)], [107_912; 2]);
    assert_eq!(flow_label_port(107_912), 58_766);
    let mut pair = Pair::new(QpType::Rc, Connection::default());
    for (side, number) in pair.sides.iter_mut().zip([329, 328]) {
        while side.qp.0 != number {
            side.qp = side.device.create_qp(&side.init).unwrap();
        }
    }
    pair.connect(Connection::default());
    assert_eq!(
        exchange(&mut pair),
        [49_481, 49_480],
        "without one, the own number does"
    );
    for side in &mut pair.sides {
        set_label(side, 107_912).unwrap();
    }
    assert_eq!(exchange(&mut pair), [58_766; 2]);
    // A port that was chosen is that port; a pinned one is none's choice.
    set_port(&mut pair.sides[0], 50_000).unwrap();
    assert_eq!(exchange(&mut pair), [50_000, 58_766]);
    pair.sides[1].device.pin_source_port(true);
    set_label(&mut pair.sides[1], 107_912).unwrap();
    assert_eq!(exchange(&mut pair), [50_000, 0xc000]);
}

/// Products of numbers with more than 20 and more than 40 bits are folded; ports are those that RoCEv2 may have.
#[test]
fn flow_labels_of_long_numbers_are_folded() {
    for (numbers, label) in [
        ((1, 1), 1),
        ((0x1000, 0x1000), 0x10),
        ((0xff_ffff, 0xff_ffff), 0xf_ff1e),
        ((0, 7), 0),
    ] {
        assert_eq!(flow_label(numbers.0, numbers.1), label, "{numbers:x?}");
    }
    assert_eq!(flow_label_port(0), 0xc000);
    assert_eq!(flow_label_port(0xf_ffff), 0xffc0);
}

#[test]
fn datagrams_with_a_flow_label_have_its_port() {
    let mut pair = datagrams();
    let gid = pair.sides[1].gid;
    let mut to = pair.destination(gid, 0x1111, false);
    let a = &mut pair.sides[0];
    let address = AddressVector {
        flow_label: 107_912,
        ..a.device.query_ah(to.ah).unwrap()
    };
    to.ah = a.device.create_ah(a.pd, address).unwrap();
    for other in [2, 3] {
        to.qp = QpNumber(other);
        let a = &mut pair.sides[0];
        let mut wr = super::harness::send(1, SendOp::Send, &[a.sge(0, 100)]);
        wr.ud = Some(to);
        a.device.post_send(a.qp, wr).unwrap();
        pair.send(|_, _| false);
        assert_eq!(pair.log.last().unwrap().1.path.source_port, 58_766);
    }
}

/// RoCEv2's ports are 49152 to 65535 (annex A17).
#[test]
fn a_port_of_others_is_refused() {
    let mut pair = Pair::new(QpType::Rc, Connection::default());
    let before = exchange(&mut pair);
    for illegal in [0, 1, 4791, 0xbfff] {
        let refused = set_port(&mut pair.sides[0], illegal);
        let Err(VerbsError::OutOfRange { value, min, max, .. }) = refused else {
            panic!("{illegal}: {refused:?}");
        };
        assert_eq!((value, min, max), (illegal.into(), 0xc000, 0xffff));
    }
    assert_eq!(exchange(&mut pair), before);
    for legal in [0xc000, 0xffff] {
        set_port(&mut pair.sides[0], legal).unwrap();
        assert_eq!(exchange(&mut pair)[0], legal);
    }
}

/// Ports of the packets of each side, which sends or acknowledges.
fn exchange(pair: &mut Pair) -> [u16; 2] {
    let [a, b] = &mut pair.sides;
    b.post_recv(1, &[b.sge(0, 1000)]);
    a.post(1, SendOp::Send, &[a.sge(0, 1000)]);
    pair.log.clear();
    pair.run();
    [0, 1].map(|side| {
        let of = pair.log.iter().filter(|(from, _)| *from == side);
        let ports: BTreeSet<_> = of.map(|(_, packet)| packet.path.source_port).collect();
        assert_eq!(ports.len(), 1, "{ports:?}");
        *ports.first().unwrap()
    })
}

/// Changes a side's queue pair while it has nothing to send.
fn change(
    side: &mut Side,
    what: AttributeMask,
    values: impl FnOnce(&mut QpAttributes),
) -> Result<(), VerbsError> {
    let to = |side: &mut Side, state, mask| {
        let wanted = QpAttributes {
            state,
            ..QpAttributes::default()
        };
        side.device.modify_qp(side.qp, &wanted, mask, Instant(0))
    };
    to(side, QpState::Sqd, AttributeMask::STATE)?;
    let mut wanted = side.device.query_qp(side.qp)?;
    values(&mut wanted);
    let changed = side.device.modify_qp(side.qp, &wanted, what, Instant(0));
    to(side, QpState::Rts, AttributeMask::STATE)?;
    changed
}

fn set_port(side: &mut Side, port: u16) -> Result<(), VerbsError> {
    change(side, AttributeMask::UDP_SOURCE_PORT, |values| {
        values.udp_source_port = Some(port);
    })
}

fn set_label(side: &mut Side, label: u32) -> Result<(), VerbsError> {
    change(side, AttributeMask::ADDRESS, |values| {
        if let Some(address) = &mut values.address {
            address.flow_label = label;
        }
    })
}
