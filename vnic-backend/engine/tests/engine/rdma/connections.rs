//! Queue pair 1: two devices make a connection over packets, and strangers' packets to it change nothing.

use super::harness::{Connection, Packet, Pair};
use vnic_engine::rdma::cm::{Cm, ConnectionId, Event, Limits, State, Timing};
use vnic_engine::rdma::{AddressVector, Incoming, Payload, QpType};
use vnic_wire::cm::{Attribute, Mad, PortSpace, Rep, Req, Rtu, ServiceId};
use vnic_wire::roce::{Frame, Path, build};
use vnic_wire::transport::Extended;

const SERVICE: ServiceId = ServiceId::of_port(PortSpace::Tcp, 7471);

fn pair() -> Pair {
    let mut pair = Pair::new(QpType::Rc, Connection::default());
    for (side, seed) in pair.sides.iter_mut().zip([7, 1000]) {
        let cm = Cm::new(Timing::default(), Limits::default(), seed);
        side.device.manage_connections(cm);
    }
    let listened = pair.sides[1].device.connections(|cm| cm.listen(SERVICE, 4));
    assert_eq!(listened, Some(Ok(())));
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
        remote_response_timeout: 22,
        local_response_timeout: 22,
        max_retries: 15,
        ..Req::default()
    };
    let now = pair.now;
    let device = &mut pair.sides[0].device;
    let id = device.connections(|cm| cm.connect(now, to, request));
    id.expect("connections are managed").expect("there is room")
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
    told.flatten().expect("an event")
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
    assert_eq!(accepted, Some(Ok(())));
    let [rep] = &sent(&mut pair, 1)[..] else {
        panic!("one packet")
    };
    give(&mut pair, 0, rep);
    assert!(matches!(event(&mut pair, 0), Event::Response { id, .. } if id == a));
    let ready = pair.sides[0]
        .device
        .connections(|cm| cm.establish(now, a, Rtu::default()));
    assert_eq!(ready, Some(Ok(())));
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
    assert_eq!(state.flatten(), Some(State::ReqSent));
}

/// Without a driver that manages connections, and with a packet that is no datagram between queue pairs 1, nothing is heard.
#[test]
fn what_is_not_for_it_is_dropped_and_counted() {
    let mut pair = pair();
    connect(&mut pair);
    let req = sent(&mut pair, 0).remove(0);
    let heard = |pair: &mut Pair| {
        let counters = pair.sides[1].device.connections(|cm| *cm.counters());
        counters.expect("it is managed").cm_rx_msgs[Attribute::Req.index()]
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

    let mut other = Pair::new(QpType::Rc, Connection::default());
    give(&mut other, 1, &req);
    assert_eq!(other.sides[1].device.counters().drop_no_qp, 1);
    assert_eq!(other.sides[1].device.connections(|_| ()), None);
    assert_eq!(sent(&mut other, 1).len(), 0);
}
