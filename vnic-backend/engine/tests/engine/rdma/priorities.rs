//! Priorities of queue pairs: from traffic class and service level, and what a closed one means.

use vnic_engine::rdma::{
    AddressVector, AttributeMask, Mark, MarkPolicy, Marking, Outgoing, QpAttributes, QpState, QpType, SendOp,
    Sink, Status, UdDestination,
};
use vnic_wire::cm::{PortSpace, ServiceId};
use vnic_wire::qos::Trust;
use vnic_wire::time::Instant;

use super::harness::{Connection, Pair, Side, connect, datagrams, send};

/// Takes packets of open priorities: priority, traffic class and payload bytes of each.
struct Gate {
    open: u8,
    taken: Vec<(u8, u8, usize)>,
}

impl Sink for Gate {
    fn open(&mut self) -> u8 {
        self.open
    }

    fn send(&mut self, packet: &Outgoing<'_>) {
        assert!(
            self.open >> packet.priority & 1 == 1,
            "closed: {}",
            packet.priority
        );
        let class = packet.path.network.traffic_class();
        self.taken.push((packet.priority, class, packet.payload.len()));
    }
}

fn transmit(side: &mut Side, open: u8) -> Vec<(u8, u8, usize)> {
    let mut gate = Gate {
        open,
        taken: Vec::new(),
    };
    side.device.transmit(Instant(0), &side.ram, &mut gate);
    gate.taken
}

fn by_dscp() -> Marking {
    Marking {
        priorities: Trust::Dscp.into(),
        ..Marking::default()
    }
}

/// UC queue pairs with these traffic classes and service levels, each with one SEND of so many bytes as its place, counted
/// from 1.
fn several(side: &mut Side, peer: &Side, classes: &[(u8, u8)]) {
    for (i, (traffic_class, service_level)) in (1..).zip(classes) {
        side.qp = side.device.create_qp(&side.init).unwrap();
        let c = Connection {
            traffic_class: *traffic_class,
            service_level: *service_level,
            ..Connection::default()
        };
        connect(side, peer.qp, peer.gid, peer.mac, c);
        let wr = send(i, SendOp::Send, &[side.sge(0, i as u32)]);
        side.device.post_send(side.qp, wr).unwrap();
    }
}

#[test]
fn closed_priorities_send_nothing_and_go_on_when_they_open() {
    let mut pair = Pair::new(QpType::Uc, Connection::default());
    let [a, b] = &mut pair.sides;
    a.device.set_marking(by_dscp());
    several(a, b, &[(106, 0), (0, 0), (8 << 2, 0), (255, 0), (4, 0)]);
    assert_eq!(a.device.ready_priorities(), 0b1000_1011);
    assert_eq!(a.device.qp_priority(a.qp), Some(0));
    assert!(transmit(a, 0b0111_0100).is_empty());
    assert!(a.device.marks().get(Mark::PriorityClosed) > 0);
    // (What needs no packet has had its turn: the queue pair that was connected first.)
    assert_eq!(transmit(a, 0b1000_0000), [(7, 255, 4)]);
    assert_eq!(transmit(a, 0b0000_1000), [(3, 106, 1), (3, 104, 2)]);
    assert!(transmit(a, 0b0000_1000).is_empty() && a.device.wants_transmit());
    assert_eq!(transmit(a, 0xff), [(0, 4, 5), (1, 32, 3)]);
    assert!(!a.device.wants_transmit());
    assert_eq!(a.completions().len(), 5);
}

#[test]
fn open_priorities_take_turns() {
    let mut pair = Pair::new(QpType::Uc, Connection::default());
    let [a, b] = &mut pair.sides;
    // By service level, which is the default.
    several(a, b, &[(0, 1), (0, 1), (0, 1), (0, 6), (0, 6)]);
    let order: Vec<_> = transmit(a, 0xff).into_iter().map(|(_, _, len)| len).collect();
    assert_eq!(order, [1, 4, 2, 5, 3]);
}

#[test]
fn acknowledges_wait_with_the_priority_of_their_queue_pair() {
    let connection = Connection {
        traffic_class: 106,
        ..Connection::default()
    };
    let mut pair = Pair::new(QpType::Rc, connection);
    for side in &mut pair.sides {
        // After they were connected.
        side.device.set_marking(by_dscp());
    }
    let [a, b] = &mut pair.sides;
    let (addr, rkey) = (b.va(0), b.keys.rkey);
    a.post(1, SendOp::Write { addr, rkey }, &[a.sge(0, 100)]);
    pair.send(|_, _| true);
    let classes: Vec<_> = pair
        .log
        .iter()
        .map(|(_, p)| p.path.network.traffic_class())
        .collect();
    assert_eq!(classes, [106]);
    pair.deliver();
    let b = &mut pair.sides[1];
    assert_eq!(b.device.ready_priorities(), 1 << 3);
    assert!(transmit(b, !(1 << 3)).is_empty());
    assert_eq!(b.device.ready_priorities(), 1 << 3);
    // The answer is marked as its own path is.
    pair.send(|_, _| true);
    assert_eq!(pair.log[1].1.path.network.traffic_class(), 106);
    pair.deliver();
    let done = pair.sides[0].completions();
    assert!(done.len() == 1 && done[0].status == Status::Success);
}

#[test]
fn other_rules_reach_everybody_and_are_not_shown() {
    let mut pair = Pair::new(QpType::Uc, Connection::default());
    let [a, b] = &mut pair.sides;
    several(a, b, &[(8, 2), (0, 0)]);
    assert_eq!(a.device.ready_priorities(), 0b101);
    a.device.set_marking(Marking {
        forced_traffic_class: Some(106),
        ..by_dscp()
    });
    assert_eq!(a.device.ready_priorities(), 0b1000);
    assert!(transmit(a, 0b101).is_empty());
    assert_eq!(transmit(a, 0xff), [(3, 106, 1), (3, 106, 2)]);
    // What the user has set stays as it is.
    let shown = a.device.query_qp(a.qp).unwrap().address.unwrap();
    assert_eq!((shown.traffic_class, shown.service_level), (0, 0));
}

#[test]
fn policies_by_port_reach_the_queue_pairs_of_connections_for_it() {
    let policy = |port, priority| MarkPolicy {
        port,
        priority: Some(priority),
        dscp: None,
    };
    let mut pair = Pair::new(QpType::Uc, Connection::default());
    let [a, b] = &mut pair.sides;
    several(a, b, &[(0, 0), (0, 0)]);
    let set = |a: &mut Side, policies: Vec<MarkPolicy>| {
        a.device.set_marking(Marking {
            policies,
            ..by_dscp()
        });
        a.device.ready_priorities()
    };
    assert_eq!(
        set(a, vec![policy(Some(445), 5)]),
        1 << 3,
        "nobody's connection is for it"
    );
    // That of the last queue pair is, from now on, and others' are not.
    let smb = ServiceId::of_port(PortSpace::Tcp, 445);
    a.device.set_service(a.qp, smb).unwrap();
    assert_eq!(a.device.ready_priorities(), 1 << 5 | 1 << 3);
    assert_eq!(
        set(a, vec![policy(Some(445), 6), policy(None, 1)]),
        1 << 6 | 1 << 1
    );
    assert_eq!(transmit(a, 1 << 6), [(6, 6 << 2, 2)]);
    assert_eq!(transmit(a, 1 << 1), [(1, 1 << 2, 1)]);
    // A queue pair that is reset may be connected for something else.
    let reset = QpAttributes {
        state: QpState::Reset,
        ..QpAttributes::default()
    };
    a.device
        .modify_qp(a.qp, &reset, AttributeMask::STATE, Instant(0))
        .unwrap();
    let c = Connection::default();
    connect(a, b.qp, b.gid, b.mac, c);
    let wr = send(3, SendOp::Send, &[a.sge(0, 3)]);
    a.device.post_send(a.qp, wr).unwrap();
    assert_eq!(a.device.ready_priorities(), 1 << 1);
}

#[test]
fn a_datagram_has_the_priority_of_its_address_handle() {
    let mut pair = datagrams();
    let [a, b] = &mut pair.sides;
    a.device.set_marking(by_dscp());
    let mut to = |traffic_class| UdDestination {
        ah: a
            .device
            .create_ah(
                a.pd,
                AddressVector {
                    dgid: b.gid,
                    dmac: b.mac,
                    sgid_index: 0,
                    traffic_class,
                    flow_label: 0,
                    hop_limit: 9,
                    service_level: 0,
                },
            )
            .unwrap(),
        qp: b.qp,
        qkey: 0x1111,
    };
    let handles = [to(32), to(64), to(32), to(0)];
    for (i, ud) in handles.iter().enumerate() {
        let mut wr = send(i as u64, SendOp::Send, &[a.sge(0, i as u32 + 1)]);
        wr.ud = Some(*ud);
        a.device.post_send(a.qp, wr).unwrap();
    }
    // They stay in order: what is behind a closed one waits.
    assert_ne!(a.device.ready_priorities() & 1 << 1, 0);
    assert!(transmit(a, !(1 << 1)).is_empty());
    // (The other queue pair of this side, which has nothing to send, has its turn first.)
    transmit(a, 1);
    assert_eq!(transmit(a, 1 << 1), [(1, 32, 1)]);
    assert_eq!(a.device.ready_priorities(), 1 << 2);
    // Other rules reach the handles, and who waits for one.
    a.device.set_marking(Marking {
        dscp_to_priority: [5; 64],
        ..by_dscp()
    });
    assert_eq!(a.device.ready_priorities(), 1 << 5);
    assert_eq!(transmit(a, 1 << 5), [(5, 64, 2), (5, 32, 3), (5, 104, 4)]);
    assert_eq!(a.completions().len(), 4);
}

#[test]
fn a_closed_priority_uses_up_no_retries() {
    let connection = Connection {
        service_level: 3,
        retry_count: 1,
        ..Connection::default()
    };
    let mut pair = Pair::new(QpType::Rc, connection);
    let [a, b] = &mut pair.sides;
    let (addr, rkey) = (b.va(0), b.keys.rkey);
    // A hundred packets; ten of them leave, then the priority closes for a hundred timeouts.
    a.post(1, SendOp::Write { addr, rkey }, &[a.sge(0, 25_600)]);
    struct Few(u32);
    impl Sink for Few {
        fn open(&mut self) -> u8 {
            if self.0 > 0 { 0xff } else { 0xf7 }
        }
        fn send(&mut self, _: &Outgoing<'_>) {
            self.0 -= 1;
        }
    }
    a.device.transmit(Instant(0), &a.ram, &mut Few(10));
    for _ in 0..100 {
        let at = a.device.next_timeout().unwrap();
        a.device.handle_timeout(at);
        a.device.transmit(at, &a.ram, &mut Few(0));
        pair.now = at;
    }
    assert_eq!(a.device.marks().get(Mark::AckTimeout), 0);
    // The ten were lost: they are sent again when it opens.
    pair.run();
    let done = pair.sides[0].completions();
    assert!(done.len() == 1 && done[0].status == Status::Success);
}

#[test]
fn packets_that_came_are_counted_by_priority() {
    let connection = Connection {
        traffic_class: 106,
        ..Connection::default()
    };
    let mut pair = Pair::new(QpType::Rc, connection);
    pair.sides[1].device.set_marking(by_dscp());
    let [a, b] = &mut pair.sides;
    let (addr, rkey) = (b.va(0), b.keys.rkey);
    a.post(1, SendOp::Write { addr, rkey }, &[a.sge(0, 1000)]);
    pair.run();
    let received = pair.sides[1].device.take_received();
    let counters = pair.sides[1].device.counters();
    let all = [
        counters.rx_vport_rdma_unicast_packets,
        counters.rx_vport_rdma_unicast_bytes,
    ];
    assert_eq!((received[3], all[0]), (all, 4));
    assert_eq!(pair.sides[1].device.take_received(), [[0; 2]; 8]);
    // By the code point, which these do not have.
    assert_eq!(pair.sides[0].device.take_received(), [[0; 2]; 8]);
}

#[test]
fn who_is_gone_leaves_nothing_behind_a_closed_priority() {
    let mut pair = Pair::new(QpType::Uc, Connection::default());
    let [a, b] = &mut pair.sides;
    for _ in 0..100 {
        several(a, b, &[(0, 3)]);
        assert!(transmit(a, 1).is_empty());
        a.device.destroy_qp(a.qp).unwrap();
        assert_eq!(a.device.ready_priorities() & 1 << 3, 0);
    }
}
