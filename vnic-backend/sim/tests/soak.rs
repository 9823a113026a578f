//! The engine's memory is flat: after traffic with losses has gone on for long, it takes no more than before. (A
//! program of its own: its allocator counts.)

use peak_alloc::PeakAlloc;
use vnic_engine::rdma::{
    Access, AddressVector, AttributeMask, CqHandle, Device, DeviceConfig, GidEntry, GidKind, Incoming,
    Limits, Mtu, Outgoing, QpAttributes, QpInit, QpNumber, QpState, QpType, RecvWr, SendData, SendFlags,
    SendOp, SendWr, Sge, Sink, Span, state,
};
use vnic_sim::memory::SimMemory;
use vnic_wire::MacAddr;
use vnic_wire::gid::Gid;
use vnic_wire::psn::Psn;
use vnic_wire::roce::{Frame, build};
use vnic_wire::time::Instant;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

const MEMORY: usize = 1 << 16;

struct End {
    device: Device,
    memory: SimMemory,
    cq: CqHandle,
    qp: QpNumber,
    key: u32,
}

/// Loses every so many packets.
#[derive(Default)]
struct Wire {
    frames: Vec<Vec<u8>>,
    count: u32,
}

impl Sink for Wire {
    fn open(&mut self) -> u8 {
        0xff
    }

    fn send(&mut self, packet: &Outgoing<'_>) {
        let mut payload = vec![0; packet.payload.len()];
        packet.payload.read(&mut payload).expect("it is there");
        let mut frame = Vec::new();
        build(packet.path, &packet.headers, &payload, &mut frame).expect("it can be built");
        self.count += 1;
        if !self.count.is_multiple_of(23) {
            self.frames.push(frame);
        }
    }
}

fn mac(n: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, n])
}

fn gid(n: u8) -> Gid {
    Gid::from_ipv4([10, 0, 0, n])
}

fn end(n: u8) -> End {
    let mut device = Device::new(DeviceConfig {
        mac: mac(n),
        limits: Limits::default(),
        mtu: Mtu::Mtu4096,
        trailers: false,
        pin_source_port: false,
        seed: 0,
        place: None,
    })
    .expect("default limits");
    let entry = GidEntry {
        gid: gid(n),
        kind: GidKind::RoceV2,
        vlan: None,
        mac: mac(n),
    };
    device.set_gid(0, Some(entry)).expect("a GID");
    let pd = device.alloc_pd().expect("a domain");
    let spans = vec![Span {
        at: 0,
        len: MEMORY as u64,
    }];
    let made = device.register(pd, 0, Access::LOCAL_WRITE | Access::REMOTE, spans);
    let key = made.expect("a region").lkey;
    let cq = device.create_cq(1000).expect("a completion queue");
    let init = QpInit {
        qp_type: QpType::Rc,
        pd: Some(pd),
        send_cq: Some(cq),
        recv_cq: Some(cq),
        srq: None,
        xrcd: None,
        max_send_wr: 64,
        max_recv_wr: 64,
        max_send_sge: 2,
        max_recv_sge: 2,
        max_inline: 64,
        signal_all: true,
    };
    let qp = device.create_qp(&init).expect("a queue pair");
    End {
        device,
        memory: SimMemory::new(MEMORY),
        cq,
        qp,
        key,
    }
}

fn connect(one: &mut End, n: u8, peer: QpNumber) {
    let address = AddressVector {
        dgid: gid(n),
        dmac: mac(n),
        sgid_index: 0,
        traffic_class: 0,
        flow_label: 0,
        hop_limit: 1,
        service_level: 0,
    };
    let mut attributes = QpAttributes {
        path_mtu: Mtu::Mtu1024,
        rq_psn: Psn::new(9),
        sq_psn: Psn::new(9),
        destination_qp: peer,
        access: Access::REMOTE,
        address: Some(address),
        port: 1,
        max_rd_atomic: 4,
        max_dest_rd_atomic: 4,
        min_rnr_timer: 1,
        timeout: 8,
        retry_count: 7,
        rnr_retry: 7,
        ..QpAttributes::default()
    };
    let steps = [
        (QpState::Reset, QpState::Init),
        (QpState::Init, QpState::Rtr),
        (QpState::Rtr, QpState::Rts),
    ];
    for (from, to) in steps {
        attributes.state = to;
        let row = state::find(QpType::Rc, from, to).expect("a transition");
        let mask = row.required | AttributeMask::STATE;
        one.device
            .modify_qp(one.qp, &attributes, mask, Instant(0))
            .expect("it is connected");
    }
}

/// Posts a round of work at both ends and lets time pass until all of it is complete.
fn round(ends: &mut [End; 2], wires: &mut [Wire; 2], now: &mut u64, id: u64) {
    for i in 0..2 {
        let rkey = ends[1 - i].key;
        let e = &mut ends[i];
        let sge = |addr, len| Sge {
            addr,
            len,
            lkey: e.key,
        };
        let recv = RecvWr {
            id,
            tag: 0,
            sges: [sge(0, 8192)].into_iter().collect(),
        };
        e.device.post_recv(e.qp, recv).expect("room");
        let ops = [
            (SendOp::Send, 3000),
            (SendOp::Write { addr: 16_384, rkey }, 5000),
            (SendOp::Read { addr: 16_384, rkey }, 5000),
            (
                SendOp::FetchAdd {
                    addr: 32_768,
                    rkey,
                    add: 1,
                },
                8,
            ),
        ];
        for (op, len) in ops {
            let wr = SendWr {
                id,
                tag: 0,
                op,
                flags: SendFlags::SIGNALED,
                data: SendData::Sges([sge(40_960, len)].into_iter().collect()),
                ud: None,
                remote_srq: 0,
                access_key: 0,
            };
            e.device.post_send(e.qp, wr).expect("room");
        }
    }
    let mut due = 10;
    let mut out = Vec::new();
    while due > 0 {
        *now += 1_000;
        for i in 0..2 {
            let e = &mut ends[i];
            e.device.handle_timeout(Instant(*now));
            e.device.transmit(Instant(*now), &e.memory, &mut wires[i]);
            let peer = &mut ends[1 - i];
            for frame in wires[i].frames.drain(..) {
                let frame = Frame::parse(&frame).expect("it was built");
                peer.device
                    .receive(Instant(*now), &Incoming::from(&frame), &peer.memory);
            }
            let e = &mut ends[i];
            due -= e.device.poll_cq(e.cq, &mut out, 100).expect("it is there");
            while e.device.poll_event().is_some() {}
            let mut trace = Vec::new();
            e.memory.take(&mut trace);
        }
    }
    assert!(out.iter().all(|c| c.status == vnic_engine::rdma::Status::Success));
}

#[test]
fn memory_does_not_grow_with_traffic() {
    let mut ends = [end(1), end(2)];
    let (a, b) = (ends[0].qp, ends[1].qp);
    connect(&mut ends[0], 2, b);
    connect(&mut ends[1], 1, a);
    let mut wires = [Wire::default(), Wire::default()];
    let mut now = 0;
    let mut used = Vec::new();
    for i in 0..4000 {
        round(&mut ends, &mut wires, &mut now, i);
        if i % 1000 == 999 {
            used.push(ALLOCATOR.current_usage());
        }
    }
    let retries = ends[0].device.counters();
    assert!(retries.local_ack_timeout_err + retries.packet_seq_err + retries.implied_nak_seq_err > 100);
    // Queues keep the room that they once needed; beyond that, nothing.
    assert!(
        used[3] <= used[1] + 1024,
        "bytes in use after each thousand rounds: {used:?}"
    );
}
