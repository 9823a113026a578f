//! Queue pair 1: two devices make a connection over packets, and strangers' packets to it change nothing.

use super::harness::{Connection, Packet, Pair};
use vnic_engine::rdma::cm::{Cm, ConnectionId, Event, Heading, Limits, State, Timing};
use vnic_engine::rdma::{AddressVector, Incoming, Payload, Place, QpType};
use vnic_wire::cm::{Attribute, Ece, Mad, Message, PortSpace, Reason, Rep, Req, Rtu, ServiceId};
use vnic_wire::gid::Gid;
use vnic_wire::psn::Psn;
use vnic_wire::roce::{Frame, Path, build};
use vnic_wire::time::Instant;
use vnic_wire::transport::Extended;

const SERVICE: ServiceId = ServiceId::of_port(PortSpace::Tcp, 7471);

fn listening(seed: u32) -> Cm {
    let mut cm = Cm::new(Timing::default(), Limits::default(), seed);
    cm.listen(SERVICE, 4).expect("nobody else does");
    cm
}

fn pair() -> Pair {
    let mut pair = Pair::new(QpType::Rc, Connection::default());
    for (side, seed) in pair.sides.iter_mut().zip([7, 1000]) {
        side.device.manage_connections(listening(seed));
    }
    pair
}

fn connect(pair: &mut Pair) -> ConnectionId {
    let peer = &pair.sides[1];
    let to = AddressVector {
        dgid: peer.gid,
        dmac: peer.mac,
        sgid_index: 0,
        traffic_class: 0x68,
        flow_label: 0,
        hop_limit: 64,
        service_level: 0,
    };
    let request = Req {
        service_id: SERVICE,
        qp: pair.sides[0].qp.0,
        mtu: 3,
        psn: Psn::new(0xabc),
        responder_resources: 4,
        initiator_depth: 3,
        retry_count: 6,
        rnr_retry_count: 5,
        ece: Ece {
            vendor: 0x15b3,
            options: 0b0011,
        },
        primary: vnic_wire::cm::Path {
            flow_label: 77,
            traffic_class: 9,
            hop_limit: 17,
            ack_timeout: 18,
            ..Default::default()
        },
        remote_response_timeout: 22,
        local_response_timeout: 22,
        max_retries: 15,
        ..Req::default()
    };
    let now = pair.now;
    let device = &mut pair.sides[0].device;
    let id = device.connections(|cm| cm.connect(now, to, request));
    id.expect("there is room")
}

/// What a side sends now.
fn sent(pair: &mut Pair, side: usize) -> Vec<Packet> {
    pair.send(|_, _| true);
    pair.wire[side].drain(..).collect()
}

/// A packet goes as a frame.
fn give(pair: &mut Pair, to: usize, packet: &Packet) {
    let mut frame = Vec::new();
    build(&packet.path, &packet.headers, &packet.payload, &mut frame).unwrap();
    let frame = Frame::parse(&frame).unwrap();
    let incoming = Incoming {
        path: Path::from(&frame),
        headers: frame.headers,
        payload: Payload::Bytes(frame.payload),
        telemetry: None,
    };
    let side = &mut pair.sides[to];
    side.device.receive(pair.now, &incoming, &side.ram);
}

fn event(pair: &mut Pair, side: usize) -> Event {
    let told = pair.sides[side].device.connections(Cm::poll_event);
    told.expect("an event")
}

#[test]
fn two_devices_connect() {
    let mut pair = pair();
    let a = connect(&mut pair);
    assert!(pair.sides[0].device.wants_transmit());
    assert_eq!(pair.sides[0].device.ready_priorities(), 1);
    let [req] = &sent(&mut pair, 0)[..] else {
        panic!("one packet")
    };
    assert_eq!((req.headers.bth.destination_qp, req.payload.len()), (1, 256));
    let Extended::Deth(deth) = req.headers.extended else {
        panic!("a datagram")
    };
    assert_eq!((deth.qkey, deth.source_qp), (0x8001_0000, 1));
    assert!(!pair.sides[0].device.wants_transmit());

    give(&mut pair, 1, req);
    let Event::Request { id: b, peer, .. } = event(&mut pair, 1) else {
        panic!("no request")
    };
    let asker = &pair.sides[0];
    assert_eq!((peer.dgid, peer.dmac, peer.sgid_index), (asker.gid, asker.mac, 0));
    assert_eq!(peer.traffic_class, 0x68);
    let now = pair.now;
    let reply = Rep {
        qp: pair.sides[1].qp.0,
        ..Rep::default()
    };
    let accepted = pair.sides[1].device.connections(|cm| cm.accept(now, b, reply));
    assert_eq!(accepted, Ok(()));
    let [rep] = &sent(&mut pair, 1)[..] else {
        panic!("one packet")
    };
    give(&mut pair, 0, rep);
    assert!(matches!(event(&mut pair, 0), Event::Response { id, .. } if id == a));
    let ready = pair.sides[0]
        .device
        .connections(|cm| cm.establish(now, a, Rtu::default()));
    assert_eq!(ready, Ok(()));
    let [rtu] = &sent(&mut pair, 0)[..] else {
        panic!("one packet")
    };
    give(&mut pair, 1, rtu);
    assert_eq!(event(&mut pair, 1), Event::Established { id: b });
    // What management sends is counted as packets are.
    let counters = pair.sides[0].device.counters();
    assert_eq!(counters.tx_vport_rdma_unicast_packets, 2);
}

#[test]
fn a_request_is_sent_again_by_the_devices_timer() {
    let mut pair = pair();
    let a = connect(&mut pair);
    assert_eq!(sent(&mut pair, 0).len(), 1);
    let at = pair.sides[0].device.next_timeout().expect("it waits");
    assert_eq!(at.0, pair.now.0 + 18_432_000_000);
    pair.now = at;
    pair.sides[0].device.handle_timeout(at);
    let [again] = &sent(&mut pair, 0)[..] else {
        panic!("one packet")
    };
    let mad = Mad::parse(&again.payload).unwrap();
    assert_eq!(mad.message.attribute(), Attribute::Req);
    let state = pair.sides[0].device.connections(|cm| cm.state(a));
    assert_eq!(state, Some(State::ReqSent));
}

/// With a packet that is no datagram between queue pairs 1, nothing is heard.
#[test]
fn what_is_not_for_it_is_dropped_and_counted() {
    let mut pair = pair();
    connect(&mut pair);
    let req = sent(&mut pair, 0).remove(0);
    let heard = |pair: &mut Pair| {
        let counters = pair.sides[1].device.connections(|cm| *cm.counters());
        counters.cm_rx_msgs[Attribute::Req.index()]
    };
    let change = |change: &dyn Fn(&mut Packet)| {
        let mut other = req.clone();
        change(&mut other);
        other
    };
    let deth = |qkey, source_qp| Extended::Deth(vnic_wire::deth::Header { qkey, source_qp });
    for packet in [
        change(&|p| p.headers.extended = deth(0x8001_0001, 1)),
        change(&|p| p.headers.extended = deth(0x8001_0000, 2)),
        change(&|p| p.payload.truncate(252)),
        change(&|p| p.path.network = vnic_wire::roce::Network::v2(pair.sides[0].gid, pair.sides[0].gid)),
    ] {
        give(&mut pair, 1, &packet);
        assert_eq!(heard(&mut pair), 0, "{packet:?}");
    }
    let counters = pair.sides[1].device.counters();
    let dropped = [
        counters.drop_qkey_violation,
        counters.drop_malformed,
        counters.drop_bad_gid,
    ];
    assert_eq!(dropped, [1, 2, 1]);
    give(&mut pair, 1, &req);
    assert_eq!(heard(&mut pair), 1);

    // A device whose driver never heard of connections answers that nobody listens.
    let mut other = Pair::new(QpType::Rc, Connection::default());
    assert!(other.sides[1].device.communication().is_none());
    give(&mut other, 1, &req);
    let [rej] = &sent(&mut other, 1)[..] else {
        panic!("one packet")
    };
    let Message::Rej(rej) = Mad::parse(&rej.payload).unwrap().message else {
        panic!("no REJ")
    };
    assert_eq!(rej.reason, Reason::INVALID_SERVICE_ID);
    assert_eq!(other.sides[1].device.resources().cm_id.used, 0);
}

/// What both drivers need for their queue pairs follows from the messages.
#[test]
fn attributes_follow_from_what_was_said() {
    let mut pair = pair();
    let a = connect(&mut pair);
    let status = |pair: &Pair, side: usize, id| {
        let cm = pair.sides[side].device.communication().expect("it was called");
        cm.status(id).expect("it is there")
    };
    let first = status(&pair, 0, a);
    assert!(first.terms.own_known && !first.terms.peer_known && !first.passive);
    let req = sent(&mut pair, 0).remove(0);
    give(&mut pair, 1, &req);
    let b = event(&mut pair, 1).id();
    let heard = status(&pair, 1, b);
    assert!(heard.passive && heard.terms.peer_known && !heard.terms.own_known);
    assert_eq!(heard.remote_qp, pair.sides[0].qp.0);
    // The way back is what the REQ says of it, and the address from which it came.
    let address = heard.terms.address;
    assert_eq!(
        (address.dgid, address.dmac),
        (pair.sides[0].gid, pair.sides[0].mac)
    );
    assert_eq!(
        (address.traffic_class, address.hop_limit, address.flow_label),
        (9, 17, 77)
    );
    let terms = heard.terms;
    assert_eq!((terms.max_rd_atomic, terms.max_dest_rd_atomic), (4, 3));
    assert_eq!(
        (terms.retry_count, terms.rnr_retry, terms.ack_timeout),
        (6, 5, 18)
    );
    assert_eq!(terms.sq_psn.value(), 0xabc, "the peer chooses it");

    let now = pair.now;
    let reply = Rep {
        qp: pair.sides[1].qp.0,
        psn: Psn::new(0xdef),
        responder_resources: 9,
        initiator_depth: 2,
        rnr_retry_count: 1,
        target_ack_delay: 18,
        ece: Ece {
            vendor: 0x15b3,
            options: 0b0110,
        },
        ..Rep::default()
    };
    let accepted = pair.sides[1].device.connections(|cm| cm.accept(now, b, reply));
    assert_eq!(accepted, Ok(()));
    let rep = sent(&mut pair, 1).remove(0);
    give(&mut pair, 0, &rep);
    for (side, id) in [(0, a), (1, b)] {
        let ece = status(&pair, side, id).terms.ece();
        assert_eq!((ece.vendor, ece.options), (0x15b3, 0b0010), "what both said");
    }
    let known = status(&pair, 0, a);
    assert_eq!(known.remote_qp, pair.sides[1].qp.0);
    let terms = known.terms;
    // Not more than was offered.
    assert_eq!((terms.max_rd_atomic, terms.max_dest_rd_atomic), (3, 2));
    assert_eq!(
        (
            terms.sq_psn.value(),
            terms.rq_psn.value(),
            terms.rnr_retry,
            terms.ack_timeout
        ),
        (0xdef, 0xabc, 1, 19)
    );

    // The RTU is lost: data on the queue pair says the same.
    let qp = pair.sides[1].qp.0;
    let device = &mut pair.sides[1].device;
    device.connections(|cm| cm.communicated_at(now, qp ^ 1));
    assert_eq!(device.connections(|cm| cm.state(b)), Some(State::RepSent));
    device.connections(|cm| cm.communicated_at(now, qp));
    assert_eq!(device.connections(|cm| cm.state(b)), Some(State::Established));
    assert_eq!(event(&mut pair, 1), Event::Established { id: b });
}

/// The driver is told once that something has happened, and again when it has taken all.
#[test]
fn news_is_told_once_until_it_is_taken() {
    let mut pair = pair();
    let told = |pair: &mut Pair| {
        let device = &mut pair.sides[1].device;
        let events = core::iter::from_fn(|| device.poll_event());
        events
            .filter(|event| *event == vnic_engine::rdma::Event::Connections)
            .count()
    };
    for _ in 0..2 {
        for _ in 0..2 {
            connect(&mut pair);
            let req = sent(&mut pair, 0).remove(0);
            give(&mut pair, 1, &req);
        }
        assert_eq!(told(&mut pair), 1);
        event(&mut pair, 1);
        assert_eq!(told(&mut pair), 0);
        event(&mut pair, 1);
        // Out of the way of the next.
        pair.sides[1].device.manage_connections(listening(1000));
    }
}

/// Devices that share a function know by a datagram's heading whose it is.
#[test]
fn numbers_and_services_say_whose_a_datagram_is() {
    let place = |number| Place::new(number).expect("a place");
    let (now, to) = (Instant::default(), AddressVector::default());
    let mut cms = [0, 1, 63].map(|n| Cm::new(Timing::default(), Limits::default(), 0xffff_fff0).at(place(n)));
    let request = Req {
        mtu: 3,
        ..Req::default()
    };
    for (i, n) in [0u32, 1, 63].into_iter().enumerate() {
        for _ in 0..40 {
            let id = cms[i].connect(now, to, request).expect("there is room").0;
            assert_eq!(id >> 26, n, "{id:#x}");
            let takes = cms
                .each_ref()
                .map(|cm| cm.takes(Gid::UNSPECIFIED, &Heading::Connection(id)));
            assert_eq!(takes, [i == 0, i == 1, i == 2]);
        }
    }
    cms[2].listen(SERVICE, 1).expect("nobody else does");
    let asks = Heading::Service(SERVICE, 5);
    assert_eq!(
        cms.each_ref().map(|cm| cm.takes(Gid::UNSPECIFIED, &asks)),
        [false, false, true]
    );
}

/// Deadlines of many connections come one after the other, a few at a time: whoever has them does not hold up others.
#[test]
fn many_that_are_due_take_turns() {
    let mut pair = pair();
    for _ in 0..50 {
        connect(&mut pair);
    }
    assert_eq!(sent(&mut pair, 0).len(), 50);
    let device = &mut pair.sides[0].device;
    let at = device.next_timeout().expect("they wait");
    let again = |device: &vnic_engine::rdma::Device| {
        let cm = device.communication().expect("it was called");
        cm.counters().cm_tx_retries[Attribute::Req.index()]
    };
    device.handle_timeouts(at, 1);
    assert_eq!(again(device), 8);
    assert!(device.next_timeout().is_some_and(|next| next <= at));
    device.handle_timeouts(at, 100);
    assert_eq!(again(device), 50);
    assert!(device.next_timeout().is_some_and(|next| next > at));
}

/// What was to be told of a connection goes with it; the rest keeps its order.
#[test]
fn events_of_a_destroyed_connection_are_not_told() {
    let mut cm = listening(1000);
    let now = Instant::default();
    let from = AddressVector::default();
    for n in 1..=4 {
        let mad = Mad {
            transaction: n,
            message: Req {
                service_id: SERVICE,
                local_id: n as u32,
                qp: n as u32,
                mtu: 3,
                ..Req::default()
            }
            .into(),
        };
        cm.receive(now, from, &mad.emit());
    }
    let second = ConnectionId(1003);
    assert!(cm.state(second).is_some());
    cm.destroy(now, second).expect("it is there");
    let told: Vec<_> = core::iter::from_fn(|| cm.poll_event())
        .map(|event| event.id().0)
        .collect();
    assert_eq!(told, [1002, 1004, 1005]);
    assert!(!cm.has_events());
}
