//! Datagrams of communication management. What can be read can be written, and is the same then; so are the addresses in front of
//! its private data. Datagrams of subnet administration are read, written and answered, and a transfer of several is acknowledged at random. Then bytes are a script: a device with a driver at random hears messages of any peer, about connections that
//! there are and are not. Nothing is left when the driver has destroyed what it knows.
use std::time::Duration;

use arbitrary::{Result, Unstructured};
use vnic_backend::subnet::{Agent, GroupSpec, Groups, Port};
use vnic_engine::rdma::AddressVector;
use vnic_engine::rdma::cm::{Cm, ConnectionId, Event, Limits, Timing};
use vnic_engine::rdma::rmpp::Sender;
use vnic_wire::cm::{Mad, Message, PortSpace, Rej, Rep, Req, Rtu, ServiceId, SidrRep, SidrReq, ip};
use vnic_wire::gid::Gid;
use vnic_wire::sa::{self, Rmpp, RmppType, SaMad};
use vnic_wire::time::Instant;
use vnic_wire::{MacAddr, mad};

const SERVICE: ServiceId = ServiceId::of_port(PortSpace::Tcp, 7471);
const LIMITS: Limits = Limits {
    connections: 12,
    under_way: 6,
    requests_per_second: 8,
};

fn read(bytes: &[u8]) {
    let Ok(read) = Mad::parse(bytes) else { return };
    assert_eq!(Mad::parse(&read.emit()), Ok(read), "written and read again");
    let private = match &read.message {
        Message::Req(req) => &req.private.0[..],
        Message::SidrReq(req) => &req.private.0[..],
        _ => return,
    };
    if let Ok(addresses) = ip::Header::parse(private) {
        assert_eq!(ip::Header::parse(&addresses.emit()), Ok(addresses));
    }
}

fn address(n: u8) -> AddressVector {
    AddressVector {
        dgid: Gid::from_ipv4([10, 0, 0, n]),
        dmac: MacAddr([2, 0, 0, 0, 0, n]),
        sgid_index: 0,
        traffic_class: 0,
        flow_label: 0,
        hop_limit: 64,
        service_level: 0,
    }
}

/// A datagram of any kind: numbers that there are more often than others, all else at random.
fn datagram(u: &mut Unstructured<'_>, known: &[ConnectionId]) -> Result<[u8; mad::LEN]> {
    let mut bytes = [0; mad::LEN];
    bytes[..4].copy_from_slice(&[1, 7, 2, 3]);
    bytes[15] = u.int_in_range(0..=3)?;
    bytes[17] = u.int_in_range(0x10..=0x1b)?;
    let message = &mut bytes[mad::HEADER_LEN..];
    u.fill_buffer(&mut message[8..60])?;
    // REQ: a service, the peer's queue pair, and values that are taken.
    if u.ratio(3, 4)? {
        message[8..16].copy_from_slice(&SERVICE.0.to_be_bytes());
        message[32..35].copy_from_slice(&[0, 0, u.int_in_range(0..=3)?]);
        (message[43], message[50]) = (0, 0x30);
    }
    message[3] = u.int_in_range(0..=3)?;
    let own = if known.is_empty() { 0 } else { u.choose(known)?.0 };
    message[4..8].copy_from_slice(&own.to_be_bytes());
    Ok(bytes)
}

fn script(u: &mut Unstructured<'_>) -> Result<()> {
    let mut cm = Cm::new(Timing::default(), LIMITS, u.arbitrary()?);
    let mut now = Instant(0);
    let mut known: Vec<ConnectionId> = Vec::new();
    let _ = cm.listen(SERVICE, 4);
    while !u.is_empty() {
        let id = known.get(usize::from(u.arbitrary::<u8>()?) % known.len().max(1));
        let id = id.copied().unwrap_or(ConnectionId(u.arbitrary()?));
        match u.int_in_range(0..=14)? {
            0 => known.extend(cm.connect(now, address(2), Req::default()).ok()),
            1 => known.extend(cm.resolve(now, address(2), SidrReq::default()).ok()),
            2 => drop(cm.accept(now, id, Rep::default())),
            3 => drop(cm.establish(now, id, Rtu::default())),
            4 => drop(cm.reject(now, id, Rej::default())),
            5 => drop(cm.disconnect(now, id)),
            6 => drop(cm.communicated(now, id)),
            7 => drop(cm.answer(now, id, SidrRep::default())),
            8 => {
                let _ = cm.destroy(now, id);
                known.retain(|k| *k != id);
            }
            9 => now = now + Duration::from_millis(u.int_in_range(0..=70_000)?),
            10 => drop(cm.unlisten(SERVICE).and_then(|()| cm.listen(SERVICE, 4))),
            _ => cm.receive(now, address(u.int_in_range(1..=3)?), &datagram(u, &known)?),
        }
        cm.handle_timeout(now);
        while let Some(sent) = cm.transmit() {
            assert_eq!(Mad::parse(&sent.mad.emit()), Ok(sent.mad));
        }
        while let Some(event) = cm.poll_event() {
            if matches!(event, Event::Request { .. } | Event::SidrRequest { .. }) {
                known.push(event.id());
            }
            assert!(known.contains(&event.id()), "{event:?} is about no connection");
        }
        assert!(cm.connections() <= LIMITS.connections && cm.under_way() <= LIMITS.under_way);
    }
    for id in known {
        assert_eq!(cm.destroy(now, id), Ok(()));
    }
    while let Some(at) = cm.next_timeout() {
        cm.handle_timeout(at);
        while cm.transmit().is_some() {}
    }
    assert!(cm.is_clear(), "{cm:?}");
    Ok(())
}

/// Datagrams of subnet administration: what can be read can be written, and an answer is one.
fn administration(bytes: &[u8]) {
    let mut whole = [0; mad::LEN];
    for (to, from) in whole.iter_mut().zip(bytes) {
        *to = *from;
    }
    // The class as it has to be: the fuzzer need not guess it.
    whole[..3].copy_from_slice(&[1, sa::CLASS, sa::CLASS_VERSION]);
    let Ok(question) = SaMad::parse(&whole) else {
        return;
    };
    assert_eq!(
        SaMad::parse(&question.emit()),
        Ok(question),
        "written and read again"
    );
    let port = |guid, pkeys| Port {
        guid,
        node: "vf",
        number: 1,
        mtu: 4,
        rate: 3,
        pkeys,
    };
    let ports = [port(1, &[0xffff, 0x8001]), port(2, &[0xffff]), port(3, &[0x0001])];
    let mut groups = Groups::default();
    let spec = GroupSpec {
        mgid: Gid([0xff; 16]),
        pkey: 0xffff,
        qkey: 1,
        mtu: 3,
        rate: 3,
        packet_life: 18,
        sl: 0,
    };
    assert_eq!(groups.create("all", spec), Ok(()));
    let mut agent = Agent {
        policy: None,
        ports: &ports,
        find: &|gid| Some(u64::from(gid.0[15])),
        groups: &mut groups,
    };
    for asker in 0..ports.len() {
        let answer = agent.answer(asker, &question).unwrap_or_default();
        for answer in &answer {
            assert_eq!(SaMad::parse(&answer.emit()), Ok(*answer));
            assert!(answer.method & sa::method::RESPONSE != 0 && answer.transaction == question.transaction);
            // Whoever reads the table finds what is there, whatever the headers say.
            assert!(answer.payload().len() <= sa::DATA_LEN && question.payload().len() <= sa::DATA_LEN);
            assert!(question.table::<52>().count() <= sa::DATA_LEN / 52);
        }
    }
}

/// Acknowledgements at random of a transfer: no segment beyond the window, nor twice without a timeout, and an end.
fn transfer(u: &mut Unstructured<'_>) -> Result<()> {
    let segments = u.int_in_range(1..=40)?;
    let (mut sender, mut now) = (Sender::new(segments), Instant(0));
    let (mut window, mut most) = (1, segments);
    while !u.is_empty() {
        match u.int_in_range(0..=3)? {
            0 => {
                let (segment, last) = (u.int_in_range(0..=41)?, u.int_in_range(0..=41)?);
                let mut packet = Rmpp::ack(segment, last);
                packet.response_time = u.int_in_range(0..=31)?;
                if u.ratio(1, 8)? {
                    packet = Rmpp::control(RmppType(u.arbitrary()?), u.arbitrary()?);
                }
                sender.hear(now, &packet);
                window = window.max(last);
            }
            1 => now = now + Duration::from_millis(u.int_in_range(0..=3000)?),
            2 => {
                sender.handle_timeout(now);
                most += segments;
            }
            _ => {
                if let Some(number) = sender.next_segment() {
                    assert!((1..=segments.min(window)).contains(&number));
                    most = most.checked_sub(1).expect("no segment is sent too often");
                }
                sender.sent(now);
            }
        }
    }
    while let Some(at) = sender.next_timeout() {
        assert!(!sender.state().over());
        while sender.next_segment().is_some() {
            sender.sent(at);
        }
        sender.handle_timeout(at);
    }
    Ok(())
}

/// See the module.
pub fn run(bytes: &[u8]) {
    read(bytes);
    administration(bytes);
    let _ = transfer(&mut Unstructured::new(bytes));
    let mut rest = Unstructured::new(bytes);
    let _ = script(&mut rest);
}
