//! What queue pairs cost in memory when there are very many of them.

use anyhow::{Context as _, Result, ensure};
use vnic_engine::rdma::{
    Access, AddressVector, AttributeMask as A, CqHandle, Device, DeviceConfig, GidEntry, GidKind, Incoming,
    Limits, Memory, Mtu, Outgoing, Payload, PdHandle, QpAttributes, QpInit, QpNumber, QpState, QpType,
    SendData, SendFlags, SendOp, SendWr, Sge, Sink, Span, Status, Unmapped,
};
use vnic_wire::MacAddr;
use vnic_wire::gid::Gid;
use vnic_wire::psn::Psn;
use vnic_wire::roce::Path;
use vnic_wire::time::Instant;
use vnic_wire::transport::Headers;

use super::report::{Outcome, Summary};
use super::{Lab, Run};

const ADAPTERS: usize = 64;
const QPS: usize = 131_072;
/// QPs that have a message in the network at a time, as applications use them.
const AT_ONCE: usize = 64;

/// `scale`.
pub fn run(_: &Lab) -> Result<Run> {
    let empty = resident()?;
    let mut adapters: Vec<Adapter> = (0..ADAPTERS).map(Adapter::new).collect::<Result<_>>()?;
    let idle_adapters = resident()?;
    for pair in 0..ADAPTERS / 2 {
        let (left, right) = adapters.split_at_mut(2 * pair + 1);
        let (a, b) = (&mut left[2 * pair], &mut right[0]);
        for _ in 0..QPS / ADAPTERS {
            connect(a, b)?;
        }
    }
    let connected = resident()?;
    for pair in 0..ADAPTERS / 2 {
        let (left, right) = adapters.split_at_mut(2 * pair + 1);
        use_all(&mut left[2 * pair], &mut right[0])?;
    }
    let used = resident()?;
    let note =
        format!("{QPS} connected RC QPs of {ADAPTERS} adapters in the engine; growth of resident memory");
    let figure = |name: &str, unit, bytes: u64, count: usize, note: String| -> Result<Outcome> {
        Ok(Outcome {
            name: name.into(),
            unit,
            value: Summary::of(&[bytes as f64 / count as f64]).context("no value")?,
            peer: None,
            ratio: None,
            bare_exchange: None,
            rounds: 1,
            details: Vec::new(),
            notes: vec![note],
        })
    };
    Ok(Run::Measured(vec![
        figure(
            "scale-adapter",
            "bytes",
            idle_adapters - empty,
            ADAPTERS,
            "an adapter's RDMA function without objects".into(),
        )?,
        figure("scale-qp", "bytes", connected - idle_adapters, QPS, note.clone())?,
        figure(
            "scale-qp-used",
            "bytes",
            used - idle_adapters,
            QPS,
            format!("{note}, after a WRITE and an atomic on each, {AT_ONCE} at a time"),
        )?,
    ]))
}

/// Bytes of memory that this process really has.
fn resident() -> Result<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = statm
        .split(' ')
        .nth(1)
        .context("no resident set in statm")?
        .parse()?;
    Ok(pages * rustix::param::page_size() as u64)
}

struct Adapter {
    device: Device,
    gid: Gid,
    mac: MacAddr,
    init: QpInit,
    cq: CqHandle,
    pd: PdHandle,
    qps: Vec<QpNumber>,
}

impl Adapter {
    fn new(index: usize) -> Result<Adapter> {
        let mac = MacAddr([2, 0, 0, 0, 0, index as u8]);
        let mut device = Device::new(DeviceConfig {
            mac,
            limits: Limits::default(),
            mtu: Mtu::Mtu1024,
            trailers: false,
            pin_source_port: false,
            seed: 0,
            place: None,
        })?;
        let gid = Gid::from_ipv4([10, 0, 0, index as u8]);
        let entry = GidEntry {
            gid,
            kind: GidKind::RoceV2,
            vlan: None,
            mac,
        };
        device.set_gid(0, Some(entry))?;
        let pd = device.alloc_pd()?;
        let cq = device.create_cq(256)?;
        let init = QpInit {
            qp_type: QpType::Rc,
            pd: Some(pd),
            send_cq: Some(cq),
            recv_cq: Some(cq),
            srq: None,
            xrcd: None,
            max_send_wr: 128,
            max_recv_wr: 128,
            max_send_sge: 4,
            max_recv_sge: 4,
            max_inline: 64,
            signal_all: true,
        };
        Ok(Adapter {
            device,
            gid,
            mac,
            init,
            cq,
            pd,
            qps: Vec::new(),
        })
    }
}

fn connect(a: &mut Adapter, b: &mut Adapter) -> Result<()> {
    let (x, y) = (a.device.create_qp(&a.init)?, b.device.create_qp(&b.init)?);
    let (at_a, at_b) = ((a.gid, a.mac), (b.gid, b.mac));
    for (side, own, peer, (gid, mac)) in [(a, x, y, at_b), (b, y, x, at_a)] {
        let base = QpAttributes {
            access: Access::LOCAL_WRITE | Access::REMOTE,
            destination_qp: peer,
            rq_psn: Psn::new(own.0),
            sq_psn: Psn::new(peer.0),
            address: Some(AddressVector {
                dgid: gid,
                dmac: mac,
                sgid_index: 0,
                traffic_class: 0,
                flow_label: 0,
                hop_limit: 64,
                service_level: 0,
            }),
            max_rd_atomic: 16,
            max_dest_rd_atomic: 16,
            min_rnr_timer: 12,
            timeout: 14,
            retry_count: 7,
            rnr_retry: 7,
            ..QpAttributes::default()
        };
        let rtr = A::ADDRESS
            | A::PATH_MTU
            | A::DESTINATION_QP
            | A::RQ_PSN
            | A::MAX_DEST_RD_ATOMIC
            | A::MIN_RNR_TIMER;
        let steps = [
            (QpState::Init, A::PKEY_INDEX | A::PORT | A::ACCESS),
            (QpState::Rtr, rtr),
            (
                QpState::Rts,
                A::SQ_PSN | A::TIMEOUT | A::RETRY_COUNT | A::RNR_RETRY | A::MAX_RD_ATOMIC,
            ),
        ];
        for (state, mask) in steps {
            let wanted = QpAttributes { state, ..base };
            side.device.modify_qp(own, &wanted, mask | A::STATE, Instant(0))?;
        }
        side.qps.push(own);
    }
    Ok(())
}

/// One page for all.
struct Page(std::cell::RefCell<Vec<u8>>);

impl Memory for Page {
    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Unmapped> {
        let page = self.0.borrow();
        into.copy_from_slice(
            page.get(at as usize..at as usize + into.len())
                .ok_or(Unmapped { at })?,
        );
        Ok(())
    }

    fn write(&self, at: u64, from: &[u8]) -> Result<(), Unmapped> {
        let mut page = self.0.borrow_mut();
        let to = page
            .get_mut(at as usize..at as usize + from.len())
            .ok_or(Unmapped { at })?;
        to.copy_from_slice(from);
        Ok(())
    }

    fn atomic(&self, at: u64, change: &dyn Fn(u64) -> u64) -> Result<u64, Unmapped> {
        let mut old = [0; 8];
        self.read(at, &mut old)?;
        let old = u64::from_ne_bytes(old);
        self.write(at, &change(old).to_ne_bytes())?;
        Ok(old)
    }
}

#[derive(Default)]
struct Wire(Vec<(Path, Headers, Vec<u8>)>);

impl Sink for Wire {
    fn open(&mut self) -> u8 {
        0xff
    }

    fn send(&mut self, packet: &Outgoing<'_>) {
        let mut payload = vec![0; packet.payload.len()];
        if packet.payload.read(&mut payload).is_ok() {
            self.0.push((*packet.path, packet.headers, payload));
        }
    }
}

/// One WRITE and one atomic on each QP of `a`.
fn use_all(a: &mut Adapter, b: &mut Adapter) -> Result<()> {
    let page = Page(std::cell::RefCell::new(vec![0; 4096]));
    let span = |at| vec![Span { at, len: 2048 }];
    let access = Access::LOCAL_WRITE | Access::REMOTE;
    let local = a.device.register(a.pd, 0, access, span(0))?;
    let remote = b.device.register(b.pd, 0, access, span(2048))?;
    let sge = Sge {
        addr: 0,
        len: 8,
        lkey: local.lkey,
    };
    let rkey = remote.rkey;
    let ops = [
        SendOp::Write { addr: 0, rkey },
        SendOp::FetchAdd {
            addr: 0,
            rkey,
            add: 1,
        },
    ];
    let mut done = Vec::new();
    for group in a.qps.clone().chunks(AT_ONCE) {
        for &qp in group {
            for op in ops {
                let wr = SendWr {
                    id: 0,
                    tag: 0,
                    op,
                    flags: SendFlags::empty(),
                    data: SendData::Sges(vec![sge].into()),
                    ud: None,
                    remote_srq: 0,
                    access_key: 0,
                };
                a.device.post_send(qp, wr)?;
            }
        }
        while a.device.wants_transmit() || b.device.wants_transmit() {
            hand_over(a, b, &page);
            hand_over(b, a, &page);
        }
        done.clear();
        let count = a.device.poll_cq(a.cq, &mut done, usize::MAX)?;
        let good = done.iter().all(|c| c.status == Status::Success);
        ensure!(count == 2 * group.len() && good, "not all requests completed");
    }
    Ok(())
}

/// Brings what one adapter sends to the other.
fn hand_over(from: &mut Adapter, to: &mut Adapter, page: &Page) {
    let mut wire = Wire::default();
    from.device.transmit(Instant(0), page, &mut wire);
    for (path, headers, payload) in wire.0 {
        let payload = Payload::Bytes(&payload);
        let packet = Incoming {
            path,
            headers,
            payload,
            telemetry: None,
        };
        to.device.receive(Instant(0), &packet, page);
    }
}
