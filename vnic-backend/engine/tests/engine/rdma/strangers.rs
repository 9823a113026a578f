//! Nobody but the peer is heard: not with its GID, its queue pair's number, the right PSN and the right key.

use vnic_engine::rdma::{GidEntry, GidKind, QpState, QpType, SendOp};
use vnic_wire::MacAddr;
use vnic_wire::aeth::{self, Syndrome};
use vnic_wire::bth;
use vnic_wire::opcode::{Opcode, Operation, Transport};
use vnic_wire::time::Instant;
use vnic_wire::transport::{Extended, Headers};
use vnic_wire::vlan::{self, Tci};

use super::congestion::{Scripted, cnp, deliver, from_peer};
use super::harness::{Connection, Packet, Pair, Side, connect, datagrams};

const STRANGER: MacAddr = MacAddr([2, 0, 0, 0, 0, 99]);

fn tagged(mut packet: Packet, vid: u16) -> Packet {
    packet.path.vlan = Some(vlan::Header {
        tci: Tci::new(3, false, vid),
        ethertype: vnic_wire::EtherType::IPV4,
    });
    packet
}

/// The same packet as somebody else sends it: from another address, in another VLAN.
fn forged(packet: &Packet) -> [Packet; 2] {
    let mut foreign = packet.clone();
    foreign.path.eth.source = STRANGER;
    [foreign, tagged(packet.clone(), 7)]
}

fn write(pair: &mut Pair) -> Packet {
    let (addr, rkey) = (pair.sides[1].va(0), pair.sides[1].keys.rkey);
    let a = &mut pair.sides[0];
    a.fill(0, &[0xee; 64]);
    a.post(1, SendOp::Write { addr, rkey }, &[a.sge(0, 64)]);
    let mut sent = Vec::new();
    pair.send(|from, packet| {
        assert_eq!(from, 0);
        sent.push(packet.clone());
        false
    });
    assert_eq!(sent.len(), 1);
    sent.remove(0)
}

#[test]
fn requests_of_strangers_are_dropped() {
    for qp_type in [QpType::Rc, QpType::Uc] {
        let mut pair = Pair::new(qp_type, Connection::default());
        let packet = write(&mut pair);
        let b = &mut pair.sides[1];
        for (i, stranger) in forged(&packet).iter().enumerate() {
            deliver(b, Instant(0), stranger);
            assert_eq!(b.bytes(0, 64), [0; 64], "{qp_type:?}: {stranger:?}");
            assert_eq!(b.device.counters().drop_bad_gid, i as u64 + 1);
            assert!(!b.device.wants_transmit());
        }
        // A tag that names a priority and no VLAN changes nothing.
        deliver(b, Instant(0), &tagged(packet, 0));
        assert_eq!(b.bytes(0, 64), [0xee; 64], "{qp_type:?}");
    }
}

#[test]
fn answers_of_strangers_are_dropped() {
    for syndrome in [
        Syndrome::Ack { credits: 31 },
        Syndrome::Nak(aeth::NakCode::RemoteAccess),
    ] {
        let mut pair = Pair::new(QpType::Rc, Connection::default());
        let asked = write(&mut pair);
        let headers = Headers {
            bth: bth::Header::new(
                Opcode::new(Transport::Rc, Operation::Acknowledge),
                pair.sides[0].qp.0,
                asked.headers.bth.psn,
            ),
            xrceth: None,
            dceth: None,
            extended: Extended::Aeth(aeth::Header { syndrome, msn: 1 }),
        };
        let answer = from_peer(&pair, 0, headers);
        let a = &mut pair.sides[0];
        for stranger in forged(&answer) {
            deliver(a, Instant(0), &stranger);
            assert_eq!((a.completions().len(), a.state()), (0, QpState::Rts));
        }
        deliver(a, Instant(0), &answer);
        assert_eq!(a.completions().len(), 1);
    }
}

#[test]
fn notifications_of_strangers_slow_nobody_down() {
    let control = Scripted::rate(1);
    for datagram in [false, true] {
        let mut pair = match datagram {
            false => Pair::new(QpType::Rc, Connection::default()),
            true => datagrams(),
        };
        let gid = pair.sides[1].gid;
        let to = datagram.then(|| pair.destination(gid, 0x1111, false));
        let again = datagram.then(|| pair.destination(gid, 0x1111, false));
        let notice = cnp(&pair, 0, pair.sides[0].qp.0, 0);
        let a = &mut pair.sides[0];
        a.device.set_congestion(control.congestion(), Instant(0));
        let handled = |a: &Side| {
            let counters = a.device.counters();
            (counters.rp_cnp_handled, counters.rp_cnp_ignored)
        };
        for stranger in forged(&notice) {
            deliver(a, Instant(0), &stranger);
        }
        assert_eq!(handled(a), (0, 2), "datagrams: {datagram}");
        deliver(a, Instant(0), &notice);
        assert_eq!(handled(a), (1, 2), "datagrams: {datagram}");
        // Datagrams go there as long as an address handle leads there.
        if let (Some(to), Some(again)) = (to, again) {
            a.device.destroy_ah(to.ah).unwrap();
            deliver(a, Instant(0), &notice);
            assert_eq!(handled(a), (2, 2));
            a.device.destroy_ah(again.ah).unwrap();
            deliver(a, Instant(0), &notice);
            assert_eq!(handled(a), (2, 3));
        }
    }
}

/// A pair whose second side knows its peer by another Ethernet address than packets come from.
pub fn estranged(qp_type: QpType) -> Pair {
    let mut pair = Pair::new(qp_type, Connection::default());
    let (to, dgid, dmac) = (pair.sides[1].qp, pair.sides[1].gid, pair.sides[1].mac);
    let a = &mut pair.sides[0];
    let entry = GidEntry {
        gid: a.gid,
        kind: GidKind::RoceV2,
        vlan: None,
        mac: STRANGER,
    };
    a.device.set_gid(0, Some(entry)).unwrap();
    a.qp = a.device.create_qp(&a.init).unwrap();
    connect(a, to, dgid, dmac, Connection::default());
    pair
}
