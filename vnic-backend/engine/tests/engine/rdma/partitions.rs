//! Partitions: who takes whose packets, and what becomes of the others (IBTA 10.9).

use vnic_engine::rdma::cm::{Cm, Event, Limits, Timing};
use vnic_engine::rdma::{
    AddressVector, AttributeMask as A, Incoming, Outgoing, Payload, PkeyViolation, QpAttributes, QpNumber,
    QpState, QpType, Run, SendOp, SendWr, Sink, Status, VerbsError,
};
use vnic_wire::cm::{PortSpace, Req, ServiceId};
use vnic_wire::gid::Gid;
use vnic_wire::mad::GSI_QP;
use vnic_wire::pkey::PkeyTable;
use vnic_wire::roce::Path;
use vnic_wire::time::Instant;

use super::harness::{Connection, Pair, Side, datagram_qp, datagrams, send};

fn set(side: &mut Side, pkeys: &[u16]) {
    side.device.set_pkeys(PkeyTable::new(pkeys).unwrap());
}

fn dropped(side: &Side) -> u64 {
    side.device.counters().drop_pkey_mismatch
}

/// Gives a queue pair the P_Key at another index, in the state in which it is.
fn choose(side: &mut Side, qp: QpNumber, index: u16) -> Result<(), VerbsError> {
    let wanted = QpAttributes {
        state: QpState::Init,
        pkey_index: index,
        ..QpAttributes::default()
    };
    let place = A::PKEY_INDEX | A::PORT | A::ACCESS;
    side.device.modify_qp(qp, &wanted, place | A::STATE, Instant(0))
}

fn statuses(side: &mut Side) -> Vec<Status> {
    side.completions().iter().map(|c| c.status).collect()
}

/// A write to the peer's memory.
fn write(pair: &mut Pair, id: u64, len: u32) {
    let [a, b] = &mut pair.sides;
    let op = SendOp::Write {
        addr: b.va(0),
        rkey: b.keys.rkey,
    };
    let from = a.sge(0, len);
    a.post(id, op, &[from]);
}

#[test]
fn members_speak_with_each_other_as_the_standard_says() {
    const OWN: [u16; 3] = [0x8001, 0x0001, 0x8002];
    for one in OWN {
        for other in OWN {
            let mut pair = Pair::new(QpType::Rc, Connection::default());
            set(&mut pair.sides[0], &[one]);
            set(&mut pair.sides[1], &[other]);
            let speak = (one ^ other) & 0x7fff == 0 && (one | other) & 0x8000 != 0;
            write(&mut pair, 1, 8);
            pair.run();
            let ended = if speak {
                Status::Success
            } else {
                Status::RetryExceeded
            };
            assert_eq!(statuses(&mut pair.sides[0]), [ended], "{one:#x} {other:#x}");
            let [a, b] = &pair.sides;
            assert_eq!((dropped(a), dropped(b) > 0), (0, !speak), "{one:#x} {other:#x}");
            for (from, packet) in &pair.log {
                assert_eq!(packet.headers.bth.pkey, [one, other][*from]);
            }
        }
    }
}

#[test]
fn what_is_of_another_partition_is_dropped_without_a_word_counted_and_reported_once() {
    let mut pair = Pair::new(QpType::Rc, Connection::default());
    set(&mut pair.sides[0], &[0x8001]);
    set(&mut pair.sides[1], &[0x8002]);
    write(&mut pair, 1, 8);
    pair.run();
    let answers = pair.log.iter().filter(|(from, _)| *from == 1).count();
    assert_eq!(answers, 0, "{:?}", pair.log);
    let sent = pair.log.len() as u64;
    let (source, qp) = (pair.sides[0].gid, pair.sides[1].qp);
    let b = &mut pair.sides[1];
    assert_eq!(dropped(b), sent);
    assert!(b.device.has_pkey_violation());
    let all = PkeyViolation {
        pkey: 0x8001,
        own: 0x8002,
        qp,
        source,
        source_qp: None,
        packets: sent,
    };
    assert_eq!(b.device.take_pkey_violation(), Some(all));
    assert_eq!(
        (b.device.take_pkey_violation(), b.device.has_pkey_violation()),
        (None, false)
    );
    assert_eq!(b.state(), QpState::Rts);
}

#[test]
fn all_packets_of_a_connection_have_the_p_key_of_its_queue_pairs() {
    let mut pair = Pair::new(QpType::Rc, Connection::default());
    for side in &mut pair.sides {
        set(side, &[0x8001]);
    }
    let [a, b] = &mut pair.sides;
    let (addr, rkey) = (b.va(0), b.keys.rkey);
    let into = [b.sge(0, 4096)];
    b.post_recv(1, &into);
    for (id, op) in [
        SendOp::Send,
        SendOp::Write { addr, rkey },
        SendOp::Read { addr, rkey },
        // Refused.
        SendOp::Write { addr, rkey: !rkey },
    ]
    .into_iter()
    .enumerate()
    {
        let from = [a.sge(0, 1000)];
        a.post(id as u64, op, &from);
    }
    pair.run();
    assert_eq!(statuses(&mut pair.sides[0])[..3], [Status::Success; 3]);
    assert!(pair.log.iter().any(|(from, _)| *from == 1));
    for (_, packet) in &pair.log {
        assert_eq!(packet.headers.bth.pkey, 0x8001, "{packet:?}");
    }
}

#[test]
fn a_table_acts_under_traffic() {
    let mut pair = Pair::new(QpType::Rc, Connection::default());
    set(&mut pair.sides[1], &[0x0001]);
    write(&mut pair, 3, 8);
    pair.send(|_, _| true);
    pair.deliver();
    assert_eq!(dropped(&pair.sides[1]), 1);
    set(&mut pair.sides[0], &[0x8001]);
    pair.run();
    assert_eq!(statuses(&mut pair.sides[0]), [Status::Success]);
}

#[test]
fn an_index_has_to_be_in_the_table() {
    let mut pair = Pair::new(QpType::Rc, Connection::default());
    let side = &mut pair.sides[0];
    let qp = side.device.create_qp(&side.init).unwrap();
    let refused = choose(side, qp, 1).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "P_Key index is 1; it must be between 0 and 0"
    );
    set(side, &[0xffff, 0x8005]);
    choose(side, qp, 1).unwrap();
    assert!(choose(side, qp, 2).is_err());
    assert_eq!(side.device.pkeys().as_slice(), [0xffff, 0x8005]);
}

#[test]
fn of_two_queue_pairs_only_that_of_the_partition_takes_a_datagram() {
    let mut pair = datagrams();
    for side in &mut pair.sides {
        set(side, &[0x8001, 0x8002]);
    }
    let other = datagram_qp(&mut pair.sides[1]);
    let anew = |side: &mut Side, qp, index| {
        // To RESET, and back with another index.
        let values = |state| QpAttributes {
            state,
            pkey_index: index,
            qkey: 0x1111,
            ..QpAttributes::default()
        };
        for (state, mask) in [
            (QpState::Reset, A::empty()),
            (QpState::Init, A::PKEY_INDEX | A::PORT | A::QKEY),
            (QpState::Rtr, A::empty()),
        ] {
            side.device
                .modify_qp(qp, &values(state), mask | A::STATE, Instant(0))
                .unwrap();
        }
    };
    anew(&mut pair.sides[1], other, 1);
    let gid = pair.sides[1].gid;
    let near = pair.destination(gid, 0x1111, false);
    let b = &mut pair.sides[1];
    let into = [b.sge(0, 256)];
    b.post_recv(1, &into);
    let own = std::mem::replace(&mut b.qp, other);
    b.post_recv(2, &into);
    b.qp = own;
    for to in [near.qp, other] {
        let a = &mut pair.sides[0];
        let from = [a.sge(0, 8)];
        let mut wr: SendWr = send(7, SendOp::Send, &from);
        wr.ud = Some(vnic_engine::rdma::UdDestination { qp: to, ..near });
        a.device.post_send(a.qp, wr).unwrap();
    }
    pair.run();
    let came: Vec<u64> = pair.sides[1].completions().iter().map(|c| c.wr_id).collect();
    assert_eq!(came, [1]);
    let source_qp = Some(pair.sides[0].qp);
    let report = pair.sides[1].device.take_pkey_violation().unwrap();
    assert_eq!(
        (report.qp, report.own, report.source_qp, report.packets),
        (other, 0x8002, source_qp, 1)
    );
    // Whoever has chosen an index where nothing is any more speaks with nobody.
    set(&mut pair.sides[1], &[0x8001]);
    let a = &mut pair.sides[0];
    let from = [a.sge(0, 8)];
    let mut wr = send(8, SendOp::Send, &from);
    wr.ud = Some(vnic_engine::rdma::UdDestination { qp: other, ..near });
    a.device.post_send(a.qp, wr).unwrap();
    pair.run();
    let report = pair.sides[1].device.take_pkey_violation().unwrap();
    assert_eq!((report.qp, report.own, report.pkey), (other, 0, 0x8001));
}

/// Members of a group that are in another partition get no copy.
#[test]
fn a_group_may_reach_over_partitions() {
    let mut pair = datagrams();
    for side in &mut pair.sides {
        set(side, &[0x8001]);
    }
    let group = Gid::from_ipv4([239, 0, 0, 1]);
    let b = &mut pair.sides[1];
    b.device.attach_multicast(b.qp, group).unwrap();
    let into = [b.sge(0, 256)];
    b.post_recv(1, &into);
    let to = pair.destination(group, 0x1111, true);
    for pkey in [0x8001, 0x8002] {
        set(&mut pair.sides[0], &[pkey]);
        let a = &mut pair.sides[0];
        let from = [a.sge(0, 8)];
        let mut wr = send(7, SendOp::Send, &from);
        wr.ud = Some(to);
        a.device.post_send(a.qp, wr).unwrap();
        pair.run();
    }
    let b = &mut pair.sides[1];
    assert_eq!((b.completions().len(), dropped(b)), (1, 1));
}

struct Neighbour<'a>(&'a mut Side, usize);

impl Sink for Neighbour<'_> {
    fn open(&mut self) -> u8 {
        0xff
    }

    fn send(&mut self, packet: &Outgoing<'_>) {
        let side = &mut *self.0;
        side.device
            .receive(Instant(0), &Incoming::from(packet), &side.ram);
    }

    fn run_room(&mut self, _path: &Path, _to: QpNumber) -> usize {
        16
    }

    fn send_run(&mut self, run: &Run<'_>) -> usize {
        let taken = self.0.device.receive_run(Instant(0), run, &self.0.ram);
        self.1 += taken;
        taken
    }
}

/// A run between neighbours is checked as well.
#[test]
fn runs_stay_in_their_partition() {
    for (own, runs) in [(0x8001, true), (0x0001, true), (0x8002, false)] {
        let mut pair = Pair::new(QpType::Rc, Connection::default());
        set(&mut pair.sides[0], &[0x8001]);
        set(&mut pair.sides[1], &[own]);
        write(&mut pair, 1, 2000);
        let [a, b] = &mut pair.sides;
        let mut sink = Neighbour(b, 0);
        a.device.transmit(Instant(0), &a.ram, &mut sink);
        assert_eq!(sink.1 > 0, runs, "{own:#x}");
        assert_eq!(dropped(b) > 0, !runs, "{own:#x}");
    }
}

/// Queue pair 1 takes packets of all partitions of the port, and messages about a connection have its P_Key.
#[test]
fn management_speaks_in_the_partition_of_the_connection() {
    const SERVICE: ServiceId = ServiceId::of_port(PortSpace::Tcp, 7471);
    for (of_b, pkey, comes) in [
        (&[0x8001, 0x0002][..], 0x8002, true),
        (&[0x8001, 0x8002], 0x0002, true),
        (&[0x8001], 0x8002, false),
    ] {
        let mut pair = Pair::new(QpType::Rc, Connection::default());
        for side in &mut pair.sides {
            let mut cm = Cm::new(Timing::default(), Limits::default(), 7);
            cm.listen(SERVICE, 4).unwrap();
            side.device.manage_connections(cm);
        }
        set(&mut pair.sides[0], &[0xffff, pkey]);
        set(&mut pair.sides[1], of_b);
        let [a, b] = &mut pair.sides;
        let to = AddressVector {
            dgid: b.gid,
            dmac: b.mac,
            sgid_index: 0,
            traffic_class: 0,
            flow_label: 0,
            hop_limit: 64,
            service_level: 0,
        };
        let ask = Req {
            service_id: SERVICE,
            qp: a.qp.0,
            mtu: 3,
            pkey,
            max_retries: 1,
            remote_response_timeout: 10,
            local_response_timeout: 10,
            ..Req::default()
        };
        a.device
            .connections(|cm| cm.connect(Instant(0), to, ask))
            .unwrap();
        pair.send(|_, _| true);
        assert_eq!(pair.wire[0][0].headers.bth.pkey, pkey);
        pair.deliver();
        let b = &mut pair.sides[1];
        let told = b.device.connections(Cm::poll_event);
        assert_eq!(matches!(told, Some(Event::Request { .. })), comes, "{told:?}");
        assert_eq!(dropped(b), u64::from(!comes));
        if !comes {
            let report = b.device.take_pkey_violation().unwrap();
            assert_eq!((report.qp, report.own), (QpNumber(GSI_QP), 0));
            continue;
        }
        let Some(Event::Request { id, .. }) = told else {
            continue;
        };
        let no = vnic_wire::cm::Rej::default();
        b.device.connections(|cm| cm.reject(Instant(0), id, no)).unwrap();
        pair.send(|_, _| true);
        let own = of_b.iter().copied().find(|own| own & 0x7fff == 2).unwrap();
        assert_eq!(pair.wire[1][0].headers.bth.pkey, own);
        pair.deliver();
        let told = pair.sides[0].device.connections(Cm::poll_event);
        assert!(matches!(told, Some(Event::Rejected { .. })), "{told:?}");
    }
}

/// A stranger's packet with a P_Key of no partition is for nobody.
#[test]
fn no_partition_is_for_nobody() {
    let mut pair = Pair::new(QpType::Rc, Connection::default());
    write(&mut pair, 1, 8);
    pair.send(|_, _| true);
    let packet = pair.wire[0].pop_front().unwrap();
    for pkey in [0, 0x8000, 1, 0x7ffe] {
        let mut headers = packet.headers;
        headers.bth.pkey = pkey;
        let incoming = Incoming {
            path: packet.path,
            headers,
            payload: Payload::Bytes(&packet.payload),
            telemetry: None,
        };
        let b = &mut pair.sides[1];
        b.device.receive(Instant(0), &incoming, &b.ram);
    }
    assert_eq!(dropped(&pair.sides[1]), 4);
}
