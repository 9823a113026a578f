//! Two engines with a live queue pair each, and a wire on which the fuzzer changes what they say.
#[path = "../../../../vnic-backend/engine/tests/engine/rdma/harness.rs"]
#[allow(dead_code, unused_imports, clippy::all, clippy::unwrap_used)]
mod harness;

use harness::{Connection, Pair};
use vnic_engine::rdma::{QpType, SendOp};
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

/// See the module.
pub fn run(bytes: &[u8]) {
    let [kind, script @ ..] = bytes else { return };
    let qp_type = [QpType::Rc, QpType::Uc][usize::from(kind & 1)];
    let mut pair = Pair::new(qp_type, Connection::default());
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
                let _ = pair.sides[side]
                    .device
                    .post_send(qp, harness::send(1, what, &[sge]));
                rest = more;
            }
            3 => {
                let sge = pair.sides[side].sge(65_536, u32::from(*len) * 16);
                let wr = vnic_engine::rdma::RecvWr {
                    id: 2,
                    tag: harness::tag(2),
                    sges: [sge].into_iter().collect(),
                };
                let qp = pair.sides[side].qp;
                let _ = pair.sides[side].device.post_recv(qp, wr);
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
