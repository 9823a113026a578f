//! Random arguments: often plausible, sometimes absurd.

use fastrand::Rng;
use vnic_engine::rdma::{
    Access, AddressVector, AhHandle, Arm, CqHandle, GidEntry, GidKind, Limits, MrHandle, Mtu, MwBind,
    MwHandle, MwType, PdHandle, QpAttributes, QpInit, QpNumber, QpState, QpType, RecvWr, SendData, SendFlags,
    SendOp, SendWr, SgList, Sge, Span, SrqHandle, Status, UdDestination, XrcdHandle,
};
use vnic_wire::MacAddr;
use vnic_wire::gid::Gid;
use vnic_wire::psn::Psn;

macro_rules! handles {
    ($($name:ident: $handle:ident,)*) => {$(
        pub fn $name(n: u32) -> $handle {
            $handle(n)
        }
    )*};
}

handles! {
    pd: PdHandle,
    cq: CqHandle,
    srq: SrqHandle,
    xrcd: XrcdHandle,
    qp: QpNumber,
}

/// A size up to `most`; rarely none, or any.
pub fn size(rng: &mut Rng, most: u32) -> u32 {
    match rng.u32(0..100) {
        0 => 0,
        1 => u32::MAX,
        2 => rng.u32(..),
        3 => most.saturating_add(1),
        _ => rng.u32(1..=most.max(1)),
    }
}

pub fn maybe(rng: &mut Rng, most: u32) -> Option<u32> {
    rng.bool().then(|| size(rng, most))
}

pub fn arm(rng: &mut Rng) -> Arm {
    if rng.bool() { Arm::Next } else { Arm::Solicited }
}

/// The key of a target of dynamic connections: few, so that they meet.
pub fn access_key(rng: &mut Rng) -> u64 {
    rng.u64(0..3)
}

pub fn window(rng: &mut Rng) -> MwType {
    if rng.bool() { MwType::Type1 } else { MwType::Type2 }
}

pub fn mac(dev: usize) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, dev as u8])
}

pub fn gid(dev: usize, index: u16) -> GidEntry {
    GidEntry {
        gid: Gid::from_ipv4([10, 0, index as u8, dev as u8 + 1]),
        kind: GidKind::RoceV2,
        vlan: None,
        mac: mac(dev),
    }
}

/// A GID of a device, of a group or of nobody.
pub fn any_gid(rng: &mut Rng) -> Gid {
    match rng.u32(0..8) {
        0 => Gid([rng.u8(..); 16]),
        1 => Gid::UNSPECIFIED,
        2..=4 => Gid::from_ipv4([239, 0, 0, rng.u8(0..4)]),
        _ => gid(rng.usize(0..2), rng.u16(0..2)).gid,
    }
}

pub fn address(rng: &mut Rng) -> AddressVector {
    let wild = rng.u32(0..6) == 0;
    AddressVector {
        dgid: any_gid(rng),
        dmac: mac(rng.usize(0..2)),
        sgid_index: if wild { rng.u16(..) } else { rng.u16(0..2) },
        traffic_class: rng.u8(..),
        flow_label: if wild { rng.u32(..) } else { rng.u32(0..1 << 20) },
        hop_limit: rng.u8(..),
        service_level: if wild { rng.u8(..) } else { rng.u8(0..8) },
    }
}

pub fn access(rng: &mut Rng) -> Access {
    Access::from_bits_truncate(rng.u32(..) | if rng.bool() { Access::LOCAL_WRITE.bits() } else { 0 })
}

pub fn region(rng: &mut Rng, memory: u64) -> (u64, Access, Vec<Span>) {
    let spans = (0..rng.usize(0..4))
        .map(|_| {
            let len = rng.u64(0..memory / 2);
            Span {
                at: if rng.u32(0..20) == 0 {
                    rng.u64(..)
                } else {
                    rng.u64(0..=memory - len)
                },
                len: if rng.u32(0..40) == 0 { rng.u64(..) } else { len },
            }
        })
        .collect();
    let iova = match rng.u32(0..4) {
        0 => 0,
        1 => u64::MAX - rng.u64(0..memory),
        _ => rng.u64(..) >> 8,
    };
    (iova, access(rng), spans)
}

pub fn qp_init(rng: &mut Rng, limits: &Limits, pd: u32, send: u32, recv: u32, srq: u32, xrcd: u32) -> QpInit {
    let qp_type = QpType::ALL[rng.usize(0..QpType::ALL.len())];
    let target = qp_type == QpType::XrcTarget;
    let dct = qp_type == QpType::DcTarget;
    let bare = target || matches!(qp_type, QpType::XrcInitiator | QpType::DcInitiator);
    let mut odd = || rng.u32(0..60) == 0;
    let given = [
        odd() ^ !target,
        odd() ^ !(target || dct),
        odd() ^ !bare,
        odd() ^ target,
    ];
    let shares = match (dct, bare) {
        (true, _) => rng.u32(0..30) > 0,
        (_, true) => rng.u32(0..30) == 0,
        _ => rng.u32(0..4) == 0,
    };
    QpInit {
        qp_type,
        pd: given[0].then_some(PdHandle(pd)),
        send_cq: given[1].then_some(CqHandle(send)),
        recv_cq: given[2].then_some(CqHandle(recv)),
        srq: shares.then_some(SrqHandle(srq)),
        xrcd: given[3].then_some(XrcdHandle(xrcd)),
        max_send_wr: size(rng, limits.max_qp_wr.min(50)),
        max_recv_wr: size(rng, limits.max_qp_wr.min(50)),
        max_send_sge: size(rng, limits.max_sge.min(8)),
        max_recv_sge: size(rng, limits.max_sge.min(8)),
        max_inline: size(rng, limits.max_inline.min(200)),
        signal_all: rng.bool(),
    }
}

pub fn attributes(rng: &mut Rng, dev: usize, peers: &[u32]) -> QpAttributes {
    let wild = rng.u32(0..10) == 0;
    let peer = match peers {
        [] => rng.u32(0..1 << 24),
        _ if wild => rng.u32(..),
        _ => peers[rng.usize(0..peers.len())],
    };
    let mut small = |most: u8| if wild { rng.u8(..) } else { rng.u8(0..=most) };
    let [a, b, c, d, e, f] = [small(4), small(4), small(31), small(20), small(7), small(7)];
    QpAttributes {
        state: QpState::ALL[rng.usize(0..7)],
        current_state: QpState::ALL[rng.usize(0..7)],
        path_mtu: Mtu::ALL[rng.usize(0..5)],
        qkey: rng.u32(0..4),
        rq_psn: Psn::new(rng.u32(0..3)),
        sq_psn: Psn::new(rng.u32(0..3)),
        destination_qp: QpNumber(peer),
        access: access(rng),
        address: (rng.u32(0..20) > 0).then(|| AddressVector {
            dgid: gid(1 - dev, 0).gid,
            sgid_index: 0,
            ..address(rng)
        }),
        pkey_index: u16::from(wild) * rng.u16(..),
        drained_event: rng.bool(),
        max_rd_atomic: a,
        max_dest_rd_atomic: b,
        min_rnr_timer: c,
        port: if wild { rng.u8(..) } else { 1 },
        timeout: d,
        retry_count: e,
        rnr_retry: f,
        udp_source_port: maybe(rng, 65_535).map(|p| p as u16),
    }
}

fn sges(rng: &mut Rng, key: u32) -> SgList {
    (0..rng.usize(0..5))
        .map(|_| Sge {
            addr: if rng.bool() { rng.u64(0..4096) } else { rng.u64(..) },
            len: match rng.u32(0..20) {
                0 => u32::MAX,
                1 => rng.u32(..),
                _ => rng.u32(0..6000),
            },
            lkey: key << 8 | rng.u32(0..2),
        })
        .collect()
}

pub fn recv(rng: &mut Rng, key: u32) -> RecvWr {
    let id = rng.u64(..);
    RecvWr {
        id,
        tag: id as u32,
        sges: sges(rng, key),
    }
}

/// `keys`: handles of an own and of the peer's region; `objects`: of an address handle, a window and a region.
pub fn send(rng: &mut Rng, kind: Option<QpType>, keys: [u32; 2], objects: [u32; 3]) -> SendWr {
    let rkey = keys[1] << 8 | rng.u32(0..2);
    let addr = if rng.bool() { rng.u64(0..4096) } else { rng.u64(..) };
    let n = rng.u64(..);
    // Mostly what the service has.
    let most = match kind {
        Some(QpType::Ud) if rng.u32(0..8) > 0 => 2,
        _ => 10,
    };
    let op = match rng.u32(0..most) {
        0 => SendOp::Send,
        1 => SendOp::SendImm(n as u32),
        2 => SendOp::SendInvalidate(rkey),
        3 => SendOp::Write { addr, rkey },
        4 => SendOp::WriteImm {
            addr,
            rkey,
            imm: n as u32,
        },
        5 => SendOp::Read { addr, rkey },
        6 => SendOp::CompareSwap {
            addr,
            rkey,
            compare: n,
            swap: addr,
        },
        7 => SendOp::FetchAdd { addr, rkey, add: n },
        8 => SendOp::BindMw(MwBind {
            mw: MwHandle(objects[1]),
            rkey: objects[1] << 8 | rng.u32(0..256),
            mr: MrHandle(objects[2]),
            addr,
            len: if rng.bool() { rng.u64(0..4096) } else { n },
            access: access(rng),
        }),
        _ => SendOp::LocalInvalidate(keys[0] << 8 | rng.u32(0..2)),
    };
    let data = if rng.u32(0..4) == 0 {
        SendData::Inline((0..rng.usize(0..100)).map(|_| rng.u8(..)).collect())
    } else {
        SendData::Sges(sges(rng, keys[0]))
    };
    let id = rng.u64(..);
    SendWr {
        id,
        tag: id as u32,
        op,
        flags: SendFlags::from_bits_truncate(rng.u8(..)),
        data,
        ud: (rng.bool() || matches!(kind, Some(QpType::Ud | QpType::DcInitiator))).then(|| UdDestination {
            ah: AhHandle(objects[0]),
            qp: QpNumber(rng.u32(0..40)),
            qkey: rng.u32(0..4) | if rng.bool() { 1 << 31 } else { 0 },
        }),
        remote_srq: rng.u32(0..20),
        access_key: access_key(rng),
    }
}

/// How a request ends, mostly in an error.
pub fn status(rng: &mut Rng) -> Status {
    let all = [
        Status::Success,
        Status::LocalLengthError,
        Status::LocalQpOperationError,
        Status::LocalProtectionError,
        Status::MwBindError,
        Status::RemoteAccessError,
    ];
    all[rng.usize(0..all.len())]
}
