//! Two engines with a live queue pair each, or an initiator and two targets of dynamic connections, and a wire on which the fuzzer
//! changes what they say.
#[path = "../../../../vnic-backend/engine/tests/engine/rdma/harness.rs"]
#[allow(dead_code, unused_imports, clippy::all, clippy::unwrap_used)]
mod harness;

use harness::{Connection, Pair, Side};
use vnic_engine::rdma::{
    AddressVector, AhHandle, AttributeMask as Mask, QpAttributes, QpInit, QpNumber, QpState, QpType, RecvWr,
    SendOp, SrqHandle, SrqInit, UdDestination,
};
use vnic_wire::psn::Psn;
use vnic_wire::roce::{self, Frame, Path};

/// A frame's bytes are changed and read again, as a NIC would that does not mind the checksums.
fn change(packet: &mut harness::Packet, changes: &[u8]) {
    let mut frame = Vec::new();
    if roce::build(&packet.path, &packet.headers, &packet.payload, &mut frame).is_err() {
        return;
    }
    for change in changes.chunks_exact(2) {
        // Headers of InfiniBand: behind Ethernet, IPv6 or IPv4, UDP.
        let at = 34 + usize::from(change[0]);
        if let Some(byte) = frame.get_mut(at) {
            *byte ^= change[1];
        }
    }
    if let Ok(read) = Frame::parse(&frame) {
        packet.path = Path::from(&read);
        packet.headers = read.headers;
        packet.payload = read.payload.to_vec();
    }
}

/// What work of dynamic connections names.
struct Dynamic {
    ah: AhHandle,
    targets: [QpNumber; 2],
    srq: SrqHandle,
}

/// The way of a queue pair of dynamic connections to the state in which it works.
fn ready(side: &mut Side, qp: QpNumber, steps: &[(QpState, Mask)]) {
    let values = QpAttributes {
        access: Connection::default().access,
        path_mtu: Connection::default().mtu,
        sq_psn: Psn::new(0xff_fffe),
        address: Some(AddressVector::default()),
        max_rd_atomic: 4,
        timeout: 10,
        retry_count: 3,
        rnr_retry: 3,
        ..QpAttributes::default()
    };
    for (state, mask) in steps {
        let values = QpAttributes {
            state: *state,
            ..values
        };
        let made = side
            .device
            .modify_qp(qp, &values, *mask | Mask::STATE, Default::default());
        made.expect("a transition of the table");
    }
}

/// The first side becomes an initiator, the second two targets with one receive queue.
fn dynamic(pair: &mut Pair) -> Dynamic {
    let gid = pair.sides[1].gid;
    let ah = pair.destination(gid, 0, false).ah;
    let [a, b] = &mut pair.sides;
    let initiator = QpInit {
        qp_type: QpType::DcInitiator,
        recv_cq: None,
        ..a.init
    };
    a.qp = a.device.create_qp(&initiator).expect("an initiator");
    let retries = Mask::TIMEOUT | Mask::RETRY_COUNT | Mask::RNR_RETRY | Mask::MAX_RD_ATOMIC;
    let steps = [
        (QpState::Init, Mask::PKEY_INDEX | Mask::PORT),
        (QpState::Rtr, Mask::PATH_MTU),
        (QpState::Rts, retries | Mask::SQ_PSN),
    ];
    ready(a, a.qp, &steps);
    let queue = SrqInit {
        pd: b.pd,
        xrcd: None,
        cq: None,
        max_wr: 64,
        max_sge: 4,
    };
    let srq = b.device.create_srq(queue).expect("a receive queue");
    let target = QpInit {
        qp_type: QpType::DcTarget,
        send_cq: None,
        srq: Some(srq),
        max_send_wr: 0,
        max_recv_wr: 0,
        ..b.init
    };
    let targets = [0, 1].map(|_| {
        let qp = b.device.create_qp(&target).expect("a target");
        let steps = [
            (QpState::Init, Mask::PKEY_INDEX | Mask::PORT | Mask::ACCESS),
            (QpState::Rtr, Mask::ADDRESS | Mask::PATH_MTU | Mask::MIN_RNR_TIMER),
        ];
        ready(b, qp, &steps);
        qp
    });
    Dynamic { ah, targets, srq }
}

/// See the module.
pub fn run(bytes: &[u8]) {
    let [kind, script @ ..] = bytes else { return };
    let qp_type = [QpType::Rc, QpType::Uc, QpType::Rc][usize::from(kind % 3)];
    let mut pair = Pair::new(qp_type, Connection::default());
    let dynamic = (kind % 3 == 2).then(|| dynamic(&mut pair));
    let mut posted = [0_u32; 2];
    let mut rest = script;
    while let [op, len, more @ ..] = rest {
        let side = usize::from(op & 1);
        match op >> 1 & 7 {
            0..=2 if posted[side] < 64 => {
                let (addr, rkey) = (pair.sides[1 - side].va(4096), pair.sides[1 - side].keys.rkey);
                let what = match op >> 1 & 7 {
                    0 => SendOp::Send,
                    1 => SendOp::Write { addr, rkey },
                    _ if qp_type == QpType::Rc => SendOp::Read { addr, rkey },
                    _ => SendOp::Send,
                };
                let sge = pair.sides[side].sge(0, u32::from(*len) * 16);
                posted[side] += 1;
                let qp = pair.sides[side].qp;
                let mut wr = harness::send(1, what, &[sge]);
                if let (Some(dynamic), 0) = (&dynamic, side) {
                    let qp = dynamic.targets[usize::from(len & 1)];
                    wr.ud = Some(UdDestination {
                        ah: dynamic.ah,
                        qp,
                        qkey: 0,
                    });
                    // (The key of each is 0.)
                    wr.access_key = u64::from(*len == 0xff);
                }
                let _ = pair.sides[side].device.post_send(qp, wr);
                rest = more;
            }
            3 => {
                let sge = pair.sides[side].sge(65_536, u32::from(*len) * 16);
                let wr = RecvWr {
                    id: 2,
                    tag: harness::tag(2),
                    sges: [sge].into_iter().collect(),
                };
                let qp = pair.sides[side].qp;
                let _ = match &dynamic {
                    Some(dynamic) if side == 1 => pair.sides[1].device.post_srq_recv(dynamic.srq, wr),
                    _ => pair.sides[side].device.post_recv(qp, wr),
                };
                rest = more;
            }
            4 => {
                pair.now.0 += u64::from(*len) << 16;
                let now = pair.now;
                pair.sides[side].device.handle_timeout(now);
                rest = more;
            }
            _ => {
                pair.send(|_, _| true);
                let (changes, behind) = more.split_at(usize::from(len % 16).min(more.len()));
                rest = behind;
                if let Some(packet) = pair.wire[side].front_mut() {
                    change(packet, changes);
                }
                pair.deliver();
                pair.log.clear();
            }
        }
        for side in &mut pair.sides {
            let held = side.device.held(side.qp);
            assert!(held.0 <= 64 && held.1 <= 64, "{held:?}");
            let _ = side.completions();
            let _ = side.events();
        }
    }
}
