//! tshark reads messages of communication management between queue pairs 1: nothing is malformed, and each field has the
//! value that was put in. tshark 4.0 takes REQ (with RDMA CM's addresses), REP, RTU, REJ, DREQ and DREP apart; of the others
//! it shows the header of the datagram.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::common::{self, Rng};
use crate::tshark::{decode, write};
use vnic_wire::cm::{Attribute, Mad, Message, PortSpace, Private, ServiceId, ip};
use vnic_wire::gid::Gid;
use vnic_wire::icrc::Kind;
use vnic_wire::opcode::{Opcode, Operation, Transport};
use vnic_wire::transport::Extended;
use vnic_wire::{deth, mad, roce};

/// Fields that are asked for. A field that [`expected`] does not name for a datagram must be absent. Flow label and packet rate
/// of a path are not among them: tshark 4.0 takes both from the first bytes of their word.
const FIELDS: [&str; 76] = [
    "_ws.malformed",
    "infiniband.mad.baseversion",
    "infiniband.mad.mgmtclass",
    "infiniband.mad.classversion",
    "infiniband.mad.method",
    "infiniband.mad.transactionid",
    "infiniband.mad.attributeid",
    "infiniband.cm.req",
    "infiniband.cm.req.serviceid.protocol",
    "infiniband.cm.req.serviceid.dport",
    "infiniband.cm.req.localcaguid",
    "infiniband.cm.req.localqkey",
    "infiniband.cm.req.localqpn",
    "infiniband.cm.req.responderres",
    "infiniband.cm.req.localeecn",
    "infiniband.cm.req.initdepth",
    "infiniband.cm.req.remoteeecn",
    "infiniband.cm.req.remoteresptout",
    "infiniband.cm.req.transpsvctype",
    "infiniband.cm.req.e2eflowctrl",
    "infiniband.cm.req.startpsn",
    "infiniband.cm.req.localresptout",
    "infiniband.cm.req.retrcount",
    "infiniband.cm.req.pkey",
    "infiniband.cm.req.pppmtu",
    "infiniband.cm.req.rdcexist",
    "infiniband.cm.req.rnrretrcount",
    "infiniband.cm.req.maxcmretr",
    "infiniband.cm.req.srq",
    "infiniband.cm.req.ext_transport",
    "infiniband.cm.req.prim_locallid",
    "infiniband.cm.req.prim_remotelid",
    "infiniband.cm.req.prim_localgid",
    "infiniband.cm.req.prim_remotegid",
    "infiniband.cm.req.prim_localgid_ipv4",
    "infiniband.cm.req.prim_remotegid_ipv4",
    "infiniband.cm.req.prim_tfcclass",
    "infiniband.cm.req.prim_hoplim",
    "infiniband.cm.req.prim_sl",
    "infiniband.cm.req.prim_subnetlocal",
    "infiniband.cm.req.prim_localacktout",
    "infiniband.cm.req.ip_cm.ipv",
    "infiniband.cm.req.ip_cm.sport",
    "infiniband.cm.req.ip_cm.sip4",
    "infiniband.cm.req.ip_cm.dip4",
    "infiniband.cm.req.ip_cm.sip6",
    "infiniband.cm.req.ip_cm.dip6",
    "infiniband.cm.req.ip_cm.private",
    "infiniband.cm.rep",
    "infiniband.cm.rep.remotecommid",
    "infiniband.cm.rep.localqkey",
    "infiniband.cm.rep.localqpn",
    "infiniband.cm.rep.localeecn",
    "infiniband.cm.rep.startpsn",
    "infiniband.cm.rep.respres",
    "infiniband.cm.rep.initdepth",
    "infiniband.cm.rep.tgtackdelay",
    "infiniband.cm.rep.failoveracc",
    "infiniband.cm.rep.e2eflowctrl",
    "infiniband.cm.rep.rnrretrcount",
    "infiniband.cm.rep.srq",
    "infiniband.cm.rep.localcaguid",
    "infiniband.cm.rtu.localcommid",
    "infiniband.cm.rtu.remotecommid",
    "infiniband.cm.rej.localcommid",
    "infiniband.cm.rej.remotecommid",
    "infiniband.cm.rej.msgrej",
    "infiniband.cm.rej.rejinfolen",
    "infiniband.cm.rej.reason",
    "infiniband.cm.dreq.localcommid",
    "infiniband.cm.dreq.remotecommid",
    "infiniband.cm.req.remoteqpneecn",
    "infiniband.cm.drsp.localcommid",
    "infiniband.cm.drsp.remotecommid",
    "infiniband.cm.drsp.private",
    "infiniband.cm.rep.private",
];

/// What a field shows: a number, or the text of an address or of bytes.
#[derive(Debug, PartialEq)]
enum Value {
    Number(u64),
    Text(String),
}

type Fields = Vec<(&'static str, Value)>;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn expected(sample: &Mad) -> Fields {
    let mut fields = Fields::new();
    let mut put = |name: &'static str, n: u64| fields.push((name, Value::Number(n)));
    put("infiniband.mad.baseversion", 1);
    put("infiniband.mad.mgmtclass", 7);
    put("infiniband.mad.classversion", 2);
    put("infiniband.mad.method", 3);
    put("infiniband.mad.transactionid", sample.transaction);
    put("infiniband.mad.attributeid", sample.message.attribute() as u64);
    match &sample.message {
        Message::Req(m) => {
            put("infiniband.cm.req", m.local_id.into());
            put(
                "infiniband.cm.req.serviceid.protocol",
                (m.service_id.0 >> 16) & 0xff,
            );
            put("infiniband.cm.req.serviceid.dport", m.service_id.0 & 0xffff);
            put("infiniband.cm.req.localcaguid", m.ca_guid);
            put("infiniband.cm.req.localqkey", m.qkey.into());
            put("infiniband.cm.req.localqpn", m.qp.into());
            put("infiniband.cm.req.responderres", m.responder_resources.into());
            put("infiniband.cm.req.localeecn", m.eec.into());
            put("infiniband.cm.req.initdepth", m.initiator_depth.into());
            put("infiniband.cm.req.remoteeecn", m.remote_eec.into());
            put(
                "infiniband.cm.req.remoteresptout",
                m.remote_response_timeout.into(),
            );
            put("infiniband.cm.req.transpsvctype", m.service as u64);
            put("infiniband.cm.req.e2eflowctrl", m.flow_control.into());
            put("infiniband.cm.req.startpsn", m.psn.value().into());
            put("infiniband.cm.req.localresptout", m.local_response_timeout.into());
            put("infiniband.cm.req.retrcount", m.retry_count.into());
            put("infiniband.cm.req.pkey", m.pkey.into());
            put("infiniband.cm.req.pppmtu", m.mtu.into());
            put("infiniband.cm.req.rdcexist", m.rdc_exists.into());
            put("infiniband.cm.req.rnrretrcount", m.rnr_retry_count.into());
            put("infiniband.cm.req.maxcmretr", m.max_retries.into());
            put("infiniband.cm.req.srq", m.srq.into());
            put("infiniband.cm.req.ext_transport", m.extended.into());
            put("infiniband.cm.req.prim_locallid", m.primary.local_lid.into());
            put("infiniband.cm.req.prim_remotelid", m.primary.remote_lid.into());
            put("infiniband.cm.req.prim_tfcclass", m.primary.traffic_class.into());
            put("infiniband.cm.req.prim_hoplim", m.primary.hop_limit.into());
            put("infiniband.cm.req.prim_sl", m.primary.service_level.into());
            put(
                "infiniband.cm.req.prim_subnetlocal",
                m.primary.subnet_local.into(),
            );
            put(
                "infiniband.cm.req.prim_localacktout",
                m.primary.ack_timeout.into(),
            );
            let addresses = ip::Header::parse(&m.private.0).unwrap();
            put("infiniband.cm.req.ip_cm.sport", addresses.source_port.into());
            let v4 = addresses.source.is_ipv4();
            put("infiniband.cm.req.ip_cm.ipv", if v4 { 4 } else { 6 });
            let gids = [m.primary.local_gid, m.primary.remote_gid];
            let mut text = |name, t: String| fields.push((name, Value::Text(t)));
            let (s, d) = (addresses.source.to_string(), addresses.destination.to_string());
            if v4 {
                text("infiniband.cm.req.ip_cm.sip4", s);
                text("infiniband.cm.req.ip_cm.dip4", d);
                let [s, d] = gids.map(|g| Ipv4Addr::from(g.to_ipv4().unwrap()).to_string());
                text("infiniband.cm.req.prim_localgid_ipv4", s);
                text("infiniband.cm.req.prim_remotegid_ipv4", d);
            } else {
                text("infiniband.cm.req.ip_cm.sip6", s);
                text("infiniband.cm.req.ip_cm.dip6", d);
                let [s, d] = gids.map(|g| Ipv6Addr::from(g.0).to_string());
                text("infiniband.cm.req.prim_localgid", s);
                text("infiniband.cm.req.prim_remotegid", d);
            }
            text(
                "infiniband.cm.req.ip_cm.private",
                hex(&m.private.0[ip::HEADER_LEN..]),
            );
        }
        Message::Rep(m) => {
            put("infiniband.cm.rep", m.local_id.into());
            put("infiniband.cm.rep.remotecommid", m.remote_id.into());
            put("infiniband.cm.rep.localqkey", m.qkey.into());
            put("infiniband.cm.rep.localqpn", m.qp.into());
            put("infiniband.cm.rep.localeecn", m.eec.into());
            put("infiniband.cm.rep.startpsn", m.psn.value().into());
            put("infiniband.cm.rep.respres", m.responder_resources.into());
            put("infiniband.cm.rep.initdepth", m.initiator_depth.into());
            put("infiniband.cm.rep.tgtackdelay", m.target_ack_delay.into());
            put("infiniband.cm.rep.failoveracc", m.failover.into());
            put("infiniband.cm.rep.e2eflowctrl", m.flow_control.into());
            put("infiniband.cm.rep.rnrretrcount", m.rnr_retry_count.into());
            put("infiniband.cm.rep.srq", m.srq.into());
            put("infiniband.cm.rep.localcaguid", m.ca_guid);
            fields.push(("infiniband.cm.rep.private", Value::Text(hex(&m.private.0))));
        }
        Message::Rtu(m) => {
            put("infiniband.cm.rtu.localcommid", m.local_id.into());
            put("infiniband.cm.rtu.remotecommid", m.remote_id.into());
        }
        Message::Rej(m) => {
            put("infiniband.cm.rej.localcommid", m.local_id.into());
            put("infiniband.cm.rej.remotecommid", m.remote_id.into());
            put("infiniband.cm.rej.msgrej", m.about as u64);
            put("infiniband.cm.rej.rejinfolen", m.info_len.into());
            put("infiniband.cm.rej.reason", m.reason.0.into());
        }
        Message::Dreq(m) => {
            put("infiniband.cm.dreq.localcommid", m.local_id.into());
            put("infiniband.cm.dreq.remotecommid", m.remote_id.into());
            put("infiniband.cm.req.remoteqpneecn", m.remote_qp.into());
        }
        Message::Drep(m) => {
            put("infiniband.cm.drsp.localcommid", m.local_id.into());
            put("infiniband.cm.drsp.remotecommid", m.remote_id.into());
            fields.push(("infiniband.cm.drsp.private", Value::Text(hex(&m.private.0))));
        }
        Message::Mra(_) | Message::SidrReq(_) | Message::SidrRep(_) | Message::Lap(_) | Message::Apr(_) => {}
    }
    fields
}

/// A datagram of random content; a REQ has a port of TCP and RDMA CM's addresses, of the version of the packet.
fn sample(rng: &mut Rng, attribute: Attribute, kind: Kind) -> Mad {
    let mut bytes = [0; mad::LEN];
    bytes[..4].copy_from_slice(&[1, 7, 2, 3]);
    bytes[8..16].copy_from_slice(&rng.bytes::<8>());
    bytes[17] = attribute as u8;
    bytes[mad::HEADER_LEN..].copy_from_slice(&rng.bytes::<232>());
    let mut mad = Mad::parse(&bytes).unwrap();
    if let Message::Req(req) = &mut mad.message {
        req.service_id = ServiceId::of_port(PortSpace::Tcp, rng.u32() as u16);
        let mut gids = [rng.bytes::<16>(), rng.bytes()].map(Gid);
        if kind == Kind::V4 {
            gids = [rng.bytes::<4>(), rng.bytes()].map(Gid::from_ipv4);
        } else {
            // No address that people write with an IPv4 tail.
            gids.iter_mut().for_each(|g| g.0[0] = 0xfd);
        }
        [req.primary.local_gid, req.primary.remote_gid] = gids;
        let header = ip::Header {
            source_port: rng.u32() as u16,
            source: gids[0].to_ip(),
            destination: gids[1].to_ip(),
        };
        let mut private = Private(rng.bytes());
        private.0[..ip::HEADER_LEN].copy_from_slice(&header.emit());
        req.private = private;
    }
    mad
}

#[test]
fn tshark_reads_what_was_written() {
    let mut rng = Rng(0x7473_6863);
    let mut samples = Vec::new();
    let mut frames = Vec::new();
    for _ in 0..50 {
        for kind in [Kind::V1, Kind::V4, Kind::V6] {
            for attribute in Attribute::ALL {
                let mad = sample(&mut rng, attribute, kind);
                let path = common::path(&mut rng, kind, false);
                let opcode = Opcode::new(Transport::Ud, Operation::SendOnly);
                let mut headers = common::headers(&mut rng, opcode);
                headers.bth.destination_qp = mad::GSI_QP;
                headers.extended = Extended::Deth(deth::Header {
                    qkey: mad::GSI_QKEY,
                    source_qp: mad::GSI_QP,
                });
                let mut frame = Vec::new();
                roce::build(&path, &headers, &mad.emit(), &mut frame).unwrap();
                samples.push(mad);
                frames.push(frame);
            }
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let capture = dir.path().join("cm.pcap");
    write(&capture, frames.iter().map(Vec::as_slice));
    let decoded = decode(&capture, FIELDS);
    assert_eq!(decoded.lines().count(), samples.len());
    for (line, sample) in decoded.lines().zip(&samples) {
        let expected = expected(sample);
        for (field, column) in FIELDS.into_iter().zip(line.split('\t')) {
            let what = || format!("{field} of {sample:?}");
            match expected.iter().find(|(name, _)| *name == field) {
                Some((_, Value::Text(text))) => assert_eq!(column, text, "{}", what()),
                Some((_, Value::Number(n))) => {
                    let shown = match column.strip_prefix("0x") {
                        Some(digits) => u64::from_str_radix(digits, 16).ok(),
                        None => column.parse().ok(),
                    };
                    assert_eq!(shown, Some(*n), "{} is {column:?}", what());
                }
                None => assert_eq!(column, "", "{}", what()),
            }
        }
    }
}
