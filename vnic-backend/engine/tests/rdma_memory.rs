//! What a device takes of memory when its driver makes all that it may, and has all posted that it may: never more than it
//! was made for. (A process of its own: it asks the kernel.)

use vnic_engine::rdma::{
    Access, AddressVector, AttributeMask as A, Beside, Device, DeviceConfig, GidEntry, GidKind, Limits, Mtu,
    MwType, QpAttributes, QpInit, QpNumber, QpState, QpType, RecvWr, SendData, SendWr, SgList, Sge, Span,
    SrqInit, UdDestination,
};
use vnic_wire::MacAddr;
use vnic_wire::cm::{Mad, Req};
use vnic_wire::gid::Gid;
use vnic_wire::time::Instant;

const BUDGET: u64 = 128 << 20;

/// A line of the kernel's account of this process, in bytes: `VmRSS` now, `VmHWM` at most.
fn account(line: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let found = status
        .lines()
        .find_map(|l| l.strip_prefix(line)?.strip_prefix(':'));
    let kib = found
        .and_then(|l| l.trim().strip_suffix(" kB"))
        .expect("a row in kB");
    kib.parse::<u64>().expect("a number") << 10
}

fn datagrams(device: &mut Device, qp: QpNumber, to: QpState) {
    let base = QpAttributes {
        qkey: 0x1111,
        ..QpAttributes::default()
    };
    let way = [
        (QpState::Init, A::PKEY_INDEX | A::PORT | A::QKEY),
        (QpState::Rtr, A::empty()),
        (QpState::Rts, A::SQ_PSN),
    ];
    for (state, mask) in way {
        let wanted = QpAttributes { state, ..base };
        device
            .modify_qp(qp, &wanted, mask | A::STATE, Instant(0))
            .expect("a step");
        if state == to {
            break;
        }
    }
}

#[test]
fn a_device_has_no_more_memory_than_it_was_made_for() {
    let limits = Limits::within(BUDGET, &Beside::default()).expect("room");
    let mac = MacAddr([2, 0, 0, 0, 0, 1]);
    let before = account("VmRSS");
    let mut device = Device::new(DeviceConfig {
        mac,
        limits,
        mtu: Mtu::Mtu4096,
        trailers: false,
        pin_source_port: false,
        seed: 1,
        place: None,
    })
    .expect("a device");
    let entry = GidEntry {
        gid: Gid::from_ipv4([10, 0, 0, 1]),
        kind: GidKind::RoceV2,
        vlan: None,
        mac,
    };
    device.set_gid(0, Some(entry)).expect("a GID");
    let pd = device.alloc_pd().expect("a PD");
    while device.alloc_pd().is_ok() {}
    let cq = device.create_cq(limits.max_cqe).expect("a CQ");
    while device.create_cq(1).is_ok() {}
    let (max_wr, max_sge) = (limits.max_srq_wr, limits.max_srq_sge);
    let srq = SrqInit {
        pd,
        xrcd: None,
        cq: None,
        max_wr,
        max_sge,
    };
    while device.create_srq(srq).is_ok() {}
    while device.alloc_mw(pd, MwType::Type1).is_ok() {}
    // All extents, as evenly as they go.
    let each = u64::from(limits.max_mr_extents / limits.max_mr);
    let spans = |n: u64| {
        (0..n)
            .map(|i| Span {
                at: i << 13,
                len: 4096,
            })
            .collect::<Vec<_>>()
    };
    for access in std::iter::repeat_n(Access::LOCAL_WRITE, limits.max_mr as usize) {
        device.register(pd, 0, access, spans(each)).expect("a region");
    }
    let address = AddressVector {
        dgid: Gid::from_ipv4([10, 0, 0, 2]),
        dmac: MacAddr([2, 0, 0, 0, 0, 2]),
        sgid_index: 0,
        traffic_class: 0,
        flow_label: 0,
        hop_limit: 64,
        service_level: 0,
    };
    let ah = device.create_ah(pd, address).expect("an AH");
    while device.create_ah(pd, address).is_ok() {}
    let init = QpInit {
        qp_type: QpType::Ud,
        pd: Some(pd),
        send_cq: Some(cq),
        recv_cq: Some(cq),
        srq: None,
        xrcd: None,
        max_send_wr: limits.max_qp_wr,
        max_recv_wr: limits.max_qp_wr,
        max_send_sge: limits.max_sge,
        max_recv_sge: limits.max_sge,
        max_inline: limits.max_inline,
        signal_all: true,
    };
    let mut qps = Vec::new();
    while let Ok(qp) = device.create_qp(&init) {
        qps.push(qp);
    }
    // Half of the connections are asked for, half ask: of those the driver has not heard yet.
    let ask = |n| Req {
        local_id: n,
        qp: n,
        mtu: 3,
        max_retries: 15,
        ..Req::default()
    };
    let (now, half) = (Instant::default(), limits.max_cm_id / 2);
    for n in 0..half {
        let made = device.connections(|cm| cm.connect(now, address, ask(n)));
        made.expect("a connection");
    }
    let listened = device.connections(|cm| cm.listen(ask(0).service_id, u32::MAX));
    listened.expect("nobody else does");
    for n in 1.. {
        if device.resources().cm_id.used == limits.max_cm_id {
            break;
        }
        let mad = Mad {
            transaction: n.into(),
            message: ask(n).into(),
        };
        device.connections(|cm| cm.receive(now, address, &mad.emit()));
    }
    let full = device.resources();
    for (name, usage) in full
        .iter()
        .filter(|(name, _)| !["gid", "mcast_group", "xrcd"].contains(name))
    {
        let all = usage.used == usage.limit || name == "mr_extents" && usage.used >= usage.limit / 2;
        assert!(all, "{name}: {usage:?}");
    }
    // All as sends of the longest kind; flushed, they are completions; then all as receives.
    let mut number = 0;
    'full: for &qp in &qps {
        datagrams(&mut device, qp, QpState::Rts);
        for _ in 0..limits.max_qp_wr {
            if device.room_for_requests() == 0 {
                break 'full;
            }
            number += 1;
            let wr = SendWr {
                id: number,
                data: SendData::Inline(vec![7; limits.max_inline as usize].into()),
                ud: Some(UdDestination {
                    ah,
                    qp: QpNumber(5),
                    qkey: 0x1111,
                }),
                ..SendWr::default()
            };
            device.post_send(qp, wr).expect("room");
        }
    }
    assert_eq!(number, u64::from(limits.max_requests));
    let error = QpAttributes {
        state: QpState::Err,
        ..QpAttributes::default()
    };
    for &qp in &qps {
        device
            .modify_qp(qp, &error, A::STATE, Instant(0))
            .expect("to ERR");
    }
    assert_eq!(device.peek_len(cq), limits.max_requests);
    let mut completions = Vec::new();
    device
        .poll_cq(cq, &mut completions, limits.max_requests as usize)
        .expect("a CQ");
    drop(completions);
    let sge = Sge {
        addr: 0,
        len: 1,
        lkey: 1,
    };
    let reset = QpAttributes {
        state: QpState::Reset,
        ..QpAttributes::default()
    };
    'full: for &qp in &qps {
        device
            .modify_qp(qp, &reset, A::STATE, Instant(0))
            .expect("to RESET");
        datagrams(&mut device, qp, QpState::Init);
        for id in 0..u64::from(limits.max_qp_wr) {
            if device.room_for_requests() == 0 {
                break 'full;
            }
            let sges: SgList = (0..limits.max_sge).map(|_| sge).collect();
            device.post_recv(qp, RecvWr { id, tag: 0, sges }).expect("room");
        }
    }
    assert_eq!(device.room_for_requests(), 0);
    let taken = account("VmHWM").saturating_sub(before);
    assert!(taken <= BUDGET, "{taken} bytes of {BUDGET}");
    // Nor is it so much less that the limits are lower than they need be.
    assert!(taken >= BUDGET / 4, "{taken} bytes of {BUDGET}");
}
