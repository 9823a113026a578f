//! Messages of communication management: each bit of each is a field or reserved as the standard's tables say, fields
//! stand where they say, and `parse` undoes `emit`.

use std::net::IpAddr;

use crate::common::Rng;
use vnic_wire::cm::{
    About, ApStatus, Apr, Attribute, Drep, Dreq, Ece, Lap, Mad, Message, Mra, Path, PortSpace, Private,
    Reason, Rej, Rep, Req, Rtu, Service, ServiceId, SidrRep, SidrReq, SidrStatus, ip,
};
use vnic_wire::gid::Gid;
use vnic_wire::psn::Psn;
use vnic_wire::{Error, mad};

/// Reserved bits of each message, as (first byte, last byte, bits).
fn reserved(attribute: Attribute) -> &'static [(usize, usize, u8)] {
    match attribute {
        Attribute::Req => &[
            (4, 4, 0xff),
            (24, 27, 0xff),
            (90, 90, 0x0f),
            (91, 91, 0xc0),
            (94, 95, 0x07),
            (134, 134, 0x0f),
            (135, 135, 0xc0),
            (138, 139, 0x07),
        ],
        Attribute::Mra => &[(8, 8, 0x3f), (9, 9, 0x07)],
        Attribute::Rej => &[(8, 8, 0x3f), (9, 9, 0x01)],
        Attribute::Rep => &[(27, 27, 0x0f)],
        Attribute::Rtu | Attribute::Drep => &[],
        Attribute::Dreq => &[(11, 11, 0xff)],
        Attribute::SidrReq => &[(6, 7, 0xff)],
        Attribute::SidrRep => &[(6, 7, 0xff), (11, 11, 0xff)],
        Attribute::Lap => &[
            (8, 11, 0xff),
            (15, 15, 0x07),
            (16, 19, 0xff),
            (58, 58, 0x0f),
            (61, 61, 0xc0),
            (62, 63, 0x07),
        ],
        Attribute::Apr => &[(10, 11, 0xff)],
    }
}

/// A datagram of this kind whose message is all zeros.
fn empty(attribute: Attribute) -> [u8; mad::LEN] {
    let mut b = [0; mad::LEN];
    b[..4].copy_from_slice(&[1, 7, 2, 3]);
    b[8..16].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
    b[17] = attribute as u8;
    b
}

#[test]
fn each_bit_is_a_field_or_reserved() {
    for attribute in Attribute::ALL {
        for bit in 0..8 * (mad::LEN - mad::HEADER_LEN) {
            let (at, mask) = (bit / 8, 0x80_u8 >> (bit % 8));
            let mut bytes = empty(attribute);
            bytes[mad::HEADER_LEN + at] = mask;
            let read = Mad::parse(&bytes).unwrap();
            assert_eq!(read.message.attribute(), attribute);
            assert_eq!(read.transaction, 0x0102_0304_0506_0708);
            if reserved(attribute)
                .iter()
                .any(|(from, to, bits)| (*from..=*to).contains(&at) && bits & mask != 0)
            {
                bytes[mad::HEADER_LEN + at] = 0;
            }
            assert_eq!(read.emit(), bytes, "{attribute}, byte {at}, bit {mask:#04x}");
        }
    }
}

#[test]
fn what_was_written_is_read() {
    let mut rng = Rng(0x636d);
    for _ in 0..2000 {
        for attribute in Attribute::ALL {
            let mut bytes = empty(attribute);
            bytes[mad::HEADER_LEN..].copy_from_slice(&rng.bytes::<232>());
            let read = Mad::parse(&bytes).unwrap();
            assert_eq!(Mad::parse(&read.emit()), Ok(read));
        }
    }
}

#[test]
fn other_datagrams_are_refused() {
    for len in 0..mad::LEN {
        assert_eq!(Mad::parse(&empty(Attribute::Req)[..len]), Err(Error::Truncated));
    }
    // Base version, class, version of the class, method (a response, Get), attribute.
    for (at, byte) in [
        (0, 2),
        (1, 3),
        (2, 1),
        (3, 0x83),
        (3, 1),
        (16, 1),
        (17, 0x0f),
        (17, 0x1b),
    ] {
        let mut bytes = empty(Attribute::Req);
        bytes[at] = byte;
        assert_eq!(Mad::parse(&bytes), Err(Error::Kind), "byte {at} is {byte:#04x}");
    }
    assert_eq!(Req::parse(&[0; 231]), Err(Error::Truncated));
    let header = mad::Header {
        base_version: 1,
        class: 2,
        class_version: 3,
        method: 4,
        status: 0x0506,
        class_specific: 0x0708,
        transaction: 9,
        attribute: 10,
        modifier: 11,
    };
    assert_eq!(mad::Header::parse(&header.emit()), Ok(header));
}

/// A message with these bytes at these places, and zeros elsewhere.
fn bytes(parts: &[(usize, &[u8])]) -> [u8; 232] {
    let mut b = [0; 232];
    for (at, part) in parts {
        b[*at..at + part.len()].copy_from_slice(part);
    }
    b
}

const PATH: Path = Path {
    local_lid: 0x0102,
    remote_lid: 0x0304,
    local_gid: Gid([5; 16]),
    remote_gid: Gid([6; 16]),
    flow_label: 0xa_bcde,
    rate: 0x21,
    traffic_class: 7,
    hop_limit: 8,
    service_level: 9,
    subnet_local: true,
    ack_timeout: 19,
};

/// Offsets of IBTA vol 1 table "REQ message contents".
#[test]
fn a_request_byte_by_byte() {
    let req = Req {
        local_id: 0x0102_0304,
        ece: Ece {
            vendor: 0x81_8283,
            options: 0,
        },
        service_id: ServiceId::of_port(PortSpace::Tcp, 7471),
        ca_guid: 0x1112_1314_1516_1718,
        qkey: 0x2122_2324,
        qp: 0x31_3233,
        responder_resources: 4,
        initiator_depth: 5,
        eec: 0x41_4243,
        remote_eec: 0x51_5253,
        remote_response_timeout: 22,
        service: Service::Extended,
        flow_control: true,
        psn: Psn::new(0x61_6263),
        local_response_timeout: 20,
        retry_count: 7,
        pkey: 0xffff,
        mtu: 3,
        rdc_exists: true,
        rnr_retry_count: 6,
        max_retries: 15,
        srq: true,
        extended: 1,
        primary: PATH,
        alternate: Path::default(),
        private: Private::new(&[0x71, 0x72]).unwrap(),
    };
    let wanted = bytes(&[
        (0, &[1, 2, 3, 4]),
        (5, &[0x81, 0x82, 0x83]),
        (8, &[0, 0, 0, 0, 1, 6, 0x1d, 0x2f]),
        (16, &[0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18]),
        (28, &[0x21, 0x22, 0x23, 0x24, 0x31, 0x32, 0x33, 4]),
        (36, &[0x41, 0x42, 0x43, 5, 0x51, 0x52, 0x53, 22 << 3 | 3 << 1 | 1]),
        (44, &[0x61, 0x62, 0x63, 20 << 3 | 7, 0xff, 0xff, 0x3e, 0xf9]),
        (52, &[1, 2, 3, 4]),
        (56, &[5; 16]),
        (72, &[6; 16]),
        (88, &[0xab, 0xcd, 0xe0, 0x21, 7, 8, 0x98, 19 << 3]),
        (140, &[0x71, 0x72]),
    ]);
    assert_eq!(req.emit(), wanted);
    assert_eq!(Req::parse(&wanted), Ok(req));
    let turned = Req {
        primary: Path::default(),
        alternate: PATH,
        ..req
    };
    assert_eq!(turned.emit()[52..96], [0; 44]);
    assert_eq!(turned.emit()[96..140], wanted[52..96]);
}

/// Those that tshark does not take apart: offsets of the standard's tables.
#[test]
fn the_others_byte_by_byte() {
    let ids: (usize, &[u8]) = (0, &[0, 0, 0, 1, 0, 0, 0, 2]);
    let (local_id, remote_id) = (1, 2);
    let mra = Mra {
        local_id,
        remote_id,
        about: About::Rep,
        service_timeout: 24,
        private: Private::new(&[9; 222]).unwrap(),
    };
    assert_eq!(mra.emit(), bytes(&[ids, (8, &[0x40, 24 << 3]), (10, &[9; 222])]));
    let rej = Rej {
        local_id,
        remote_id,
        about: About::Other,
        info_len: 72,
        reason: Reason::CONSUMER,
        info: [3; 72],
        private: Private::new(&[9; 148]).unwrap(),
    };
    let wanted = [ids, (8, &[0x80, 144, 0, 28]), (12, &[3; 72]), (84, &[9; 148])];
    assert_eq!(rej.emit(), bytes(&wanted));
    let rep = Rep {
        local_id,
        remote_id,
        ece: Ece {
            vendor: 0x81_8283,
            options: 0,
        },
        qkey: 3,
        qp: 4,
        eec: 5,
        psn: Psn::new(6),
        responder_resources: 7,
        initiator_depth: 8,
        target_ack_delay: 16,
        failover: 2,
        flow_control: true,
        rnr_retry_count: 7,
        srq: true,
        ca_guid: 9,
        private: Private::new(&[9; 196]).unwrap(),
    };
    let wanted = [
        ids,
        (11, &[3, 0, 0, 4, 0x81, 0, 0, 5, 0x82, 0, 0, 6, 0x83, 7, 8][..]),
        (26, &[16 << 3 | 2 << 1 | 1, 0xf0]),
        (35, &[9]),
        (36, &[9; 196]),
    ];
    assert_eq!(rep.emit(), bytes(&wanted));
    let private = Private::new(&[9; 224]).unwrap();
    let rtu = Rtu {
        local_id,
        remote_id,
        private,
    };
    assert_eq!(rtu.emit(), bytes(&[ids, (8, &[9; 224])]));
    let drep = Drep {
        local_id,
        remote_id,
        private,
    };
    assert_eq!(drep.emit(), rtu.emit());
    let dreq = Dreq {
        local_id,
        remote_id,
        remote_qp: 3,
        private: Private::new(&[9; 220]).unwrap(),
    };
    assert_eq!(dreq.emit(), bytes(&[ids, (10, &[3]), (12, &[9; 220])]));
    let lap = Lap {
        local_id,
        remote_id,
        remote_qp: 3,
        remote_response_timeout: 20,
        local_lid: 0x0102,
        remote_lid: 0x0304,
        local_gid: Gid([5; 16]),
        remote_gid: Gid([6; 16]),
        flow_label: 0xa_bcde,
        traffic_class: 7,
        hop_limit: 8,
        rate: 0x21,
        service_level: 9,
        subnet_local: true,
        ack_timeout: 19,
        private: Private::new(&[9; 168]).unwrap(),
    };
    let wanted = [
        ids,
        (14, &[3, 20 << 3][..]),
        (20, &[1, 2, 3, 4]),
        (24, &[5; 16]),
        (40, &[6; 16]),
        (56, &[0xab, 0xcd, 0xe0, 7, 8, 0x21, 0x98, 19 << 3]),
        (64, &[9; 168]),
    ];
    assert_eq!(lap.emit(), bytes(&wanted));
    let apr = Apr {
        local_id,
        remote_id,
        info_len: 3,
        status: ApStatus::UNSUPPORTED,
        info: [4; 72],
        private: Private::new(&[9; 148]).unwrap(),
    };
    assert_eq!(
        apr.emit(),
        bytes(&[ids, (8, &[3, 2]), (12, &[4; 72]), (84, &[9; 148])])
    );
    let ask = SidrReq {
        request_id: 1,
        pkey: 0x8001,
        service_id: ServiceId::of_port(PortSpace::Udp, 53),
        private: Private::new(&[9; 216]).unwrap(),
    };
    let wanted: [(usize, &[u8]); 3] = [
        (3, &[1, 0x80, 1]),
        (8, &[0, 0, 0, 0, 1, 0x11, 0, 53]),
        (16, &[9; 216]),
    ];
    assert_eq!(ask.emit(), bytes(&wanted));
    let told = SidrRep {
        request_id: 1,
        status: SidrStatus::REDIRECT,
        info_len: 2,
        qp: 3,
        service_id: ServiceId(4),
        qkey: 5,
        info: [6; 72],
        private: Private::new(&[9; 136]).unwrap(),
    };
    let wanted: [(usize, &[u8]); 6] = [
        (3, &[1, 4, 2]),
        (10, &[3]),
        (19, &[4]),
        (23, &[5]),
        (24, &[6; 72]),
        (96, &[9; 136]),
    ];
    assert_eq!(told.emit(), bytes(&wanted));
}

#[test]
fn service_ids_are_ports_of_a_space() {
    let known = [
        (PortSpace::Ipoib, 0x0000_0000_0002_0000),
        (PortSpace::Tcp, 0x0000_0000_0106_0000),
        (PortSpace::Udp, 0x0000_0000_0111_0000),
        (PortSpace::Ib, 0x0000_0000_013f_0000),
    ];
    for (space, base) in known {
        for port in [0, 1, 7471, u16::MAX] {
            let id = ServiceId::of_port(space, port);
            assert_eq!(id, ServiceId(base + u64::from(port)));
            assert_eq!(id.port(), Some((space, port)));
        }
    }
    for other in [0, 1, 0x0107_0000, 0x1_0000_0106_0000, u64::MAX] {
        assert_eq!(ServiceId(other).port(), None);
    }
    assert_eq!(ServiceId(0x0106_1d2f).to_string(), "TCP:7471");
    assert_eq!(ServiceId(1).to_string(), "0x0000000000000001");
}

#[test]
fn addresses_in_front_of_private_data() {
    let v4 = ip::Header {
        source_port: 0x1234,
        source: IpAddr::from([10, 0, 0, 1]),
        destination: IpAddr::from([10, 0, 0, 2]),
    };
    let mut wanted = [0; 36];
    wanted[1..4].copy_from_slice(&[0x40, 0x12, 0x34]);
    wanted[16..20].copy_from_slice(&[10, 0, 0, 1]);
    wanted[32..].copy_from_slice(&[10, 0, 0, 2]);
    assert_eq!(v4.emit(), wanted);
    assert_eq!(ip::Header::parse(&wanted), Ok(v4));
    let v6 = ip::Header {
        source: IpAddr::from([0xfd; 16]),
        destination: IpAddr::from([0xfe; 16]),
        ..v4
    };
    wanted[1] = 0x60;
    wanted[4..20].copy_from_slice(&[0xfd; 16]);
    wanted[20..].copy_from_slice(&[0xfe; 16]);
    assert_eq!(v6.emit(), wanted);
    assert_eq!(ip::Header::parse(&wanted), Ok(v6));
    for (at, byte) in [(0, 0x10), (1, 0), (1, 0x50), (1, 0xf0)] {
        let mut other = wanted;
        other[at] = byte;
        assert_eq!(ip::Header::parse(&other), Err(Error::Kind));
    }
    assert_eq!(ip::Header::parse(&wanted[..35]), Err(Error::Truncated));
    // A minor version, and reserved bits.
    (wanted[0], wanted[1]) = (0x07, 0x6f);
    assert_eq!(ip::Header::parse(&wanted), Ok(v6));
}

#[test]
fn private_data_and_reasons() {
    assert_eq!(Private::<92>::new(&[1; 93]), None);
    assert_eq!(
        format!("{:?}", Private::<92>::new(&[1, 0, 2, 0]).unwrap()),
        "92:010002"
    );
    assert_eq!(Reason::CONSUMER.to_string(), "rejected by the program (28)");
    assert_eq!(Reason(999).to_string(), "reason 999");
    let known = (0..100).filter(|n| Reason(*n).text().is_some());
    assert!(known.eq((1..=33).chain([35])));
    let wanted = [Attribute::Req, Attribute::Mra, Attribute::Rej, Attribute::Rep];
    assert_eq!(Attribute::ALL[..4], wanted);
    assert!(Attribute::ALL.iter().map(|a| a.index()).eq(0..11));
    let mra = Message::from(Mra::default());
    assert_eq!(mra.attribute(), Attribute::Mra);
}
