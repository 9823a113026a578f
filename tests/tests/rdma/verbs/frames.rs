//! Raw packet queue pairs: whole frames into the adapter's switch port, and out of it by flows.

mod spread;

use vnic_backend::DropReason;
use vnic_tests::driver::rig::deadline;
use vnic_tests::driver::{Guest, Options};
use vnic_verbs::flow::{FlowKind, FlowRule, flow_headers};
use vnic_verbs::{Flow, RawPacket};

use super::*;

type Qp = QueuePair<RawPacket>;

const A: [u8; 6] = [2, 0, 0, 0, 0, 1];
const B: [u8; 6] = [2, 0, 0, 0, 0, 2];

impl Side {
    /// A raw packet queue pair that is ready, with receives.
    fn raw(&self) -> Result<Qp> {
        let qp = self
            .pd
            .qp::<RawPacket>(&self.cq, &self.cq)
            .max_inline(200)
            .build()?;
        qp.activate()?;
        for i in 0..32 {
            let at = LEN / 2 + 16384 * i;
            qp.post_recv(&[RecvWr::new(self.region.slice(at..at + 16384)).id(i as u64)])?;
        }
        Ok(qp)
    }

    fn send(&self, qp: &Qp, frame: &[u8]) -> Result<()> {
        self.region.write_at(0, frame);
        qp.post_send(&[SendWr::send(self.region.slice(..frame.len())).signaled()])?;
        self.done()?;
        Ok(())
    }

    /// Takes a frame that came.
    fn frame(&self) -> Result<Vec<u8>> {
        let wc = self.done()?;
        ensure!(wc.kind() == Some(CompletionKind::Recv), "{wc:?}");
        let at = LEN / 2 + 16384 * wc.id() as usize;
        Ok(self.region.read_vec(at, wc.byte_len() as usize))
    }
}

fn udp(source: [u8; 6], destination: [u8; 6], port: u16, len: usize) -> Vec<u8> {
    let [hi, lo] = (28 + len as u16).to_be_bytes();
    let [udp_hi, udp_lo] = (8 + len as u16).to_be_bytes();
    let ip = [
        0x45, 0, hi, lo, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ];
    let [port_hi, port_lo] = port.to_be_bytes();
    let header = [0x11, 0x22, port_hi, port_lo, udp_hi, udp_lo, 0, 0];
    [
        &destination[..],
        &source,
        &[8, 0],
        &ip,
        &header,
        &pattern(port.into(), len),
    ]
    .concat()
}

fn to_port(port: u16, priority: u16) -> FlowRule {
    let mut rule = FlowRule {
        priority,
        headers: flow_headers::IPV4 | flow_headers::UDP,
        ..FlowRule::default()
    };
    (rule.value.destination_port, rule.mask.destination_port) = (port, u16::MAX);
    rule
}

fn of_kind(kind: FlowKind) -> FlowRule {
    FlowRule {
        kind,
        ..FlowRule::default()
    }
}

#[test]
fn frames_arrive_as_they_were_sent() -> Result<()> {
    for cores in [1, 2] {
        let Pair { rig, a, b } = pair_on(cores)?;
        let (qa, qb) = (a.raw()?, b.raw()?);
        let _flow = qb.create_flow(&to_port(7, 0))?;
        for len in [0, 1, 18, 100, 1472] {
            let frame = udp(A, B, 7, len);
            a.send(&qa, &frame)?;
            assert_eq!(b.frame()?, frame, "{cores} cores, {len} bytes");
        }
        let small = udp(A, B, 7, 4);
        qa.post_send(&[SendWr::send(Data::inline(&small)).signaled()])?;
        a.done()?;
        assert_eq!(b.frame()?, small);
        let pieces = [a.region.slice(..20), a.region.slice(20..46)];
        a.region.write_at(0, &small);
        let refused = qa.post_send(&[SendWr::send(&pieces)]);
        assert!(refused.is_err(), "one element was agreed on");
        let counters: HashMap<_, _> = a
            .context
            .counters()?
            .into_iter()
            .map(|c| (c.name, c.value))
            .collect();
        assert_eq!(counters["raw_tx_packets"], 6);
        assert_eq!(counters["raw_rx_packets"], 0);
        drop(rig);
    }
    Ok(())
}

#[test]
fn checksums_are_filled_in_and_looked_at() -> Result<()> {
    let Pair { rig: _rig, a, b } = pair()?;
    let (qa, qb) = (a.raw()?, b.raw()?);
    let _flow = qb.create_flow(&of_kind(FlowKind::AllDefault))?;
    let frame = udp(A, B, 7, 100);
    a.region.write_at(0, &frame);
    qa.post_send(&[SendWr::send(a.region.slice(..frame.len())).checksum().signaled()])?;
    a.done()?;
    let wc = b.done()?;
    assert!(wc.checksum_ok());
    let came = b.region.read_vec(LEN / 2, frame.len());
    assert_eq!((&came[..24], &came[26..40]), (&frame[..24], &frame[26..40]));
    assert_eq!(came[42..], frame[42..]);
    assert!(came[24..26] != [0, 0] && came[40..42] != [0, 0]);
    a.send(&qa, &frame)?;
    assert!(!b.done()?.checksum_ok());
    Ok(())
}

/// Frames of the adapter's own address only, by the rules for frames of the guest.
#[test]
fn frames_with_a_foreign_source_are_dropped_and_counted() -> Result<()> {
    let mut rig = Rig::new(1)?;
    for name in ["a", "b"] {
        let socket = rdma_socket(&rig, name);
        rig.add_with(name, |spec| {
            spec.rdma_socket = Some(socket);
            spec.anti_spoofing = true;
            spec.allowed_addresses = vec!["10.0.0.0/24".parse().expect("a prefix")];
        })?;
    }
    let (a, b) = (Side::new(&rig, "a")?, Side::new(&rig, "b")?);
    let (qa, qb) = (a.raw()?, b.raw()?);
    let _flow = qb.create_flow(&of_kind(FlowKind::Sniffer))?;
    a.send(&qa, &udp(B, B, 7, 10))?;
    a.send(&qa, &udp([3, 0, 0, 0, 0, 1], B, 7, 10))?;
    let mut foreign = udp(A, B, 7, 10);
    foreign[28] = 1;
    a.send(&qa, &foreign)?;
    a.send(&qa, &udp(A, B, 7, 1473))?;
    a.send(&qa, &udp(A, A, 7, 10))?;
    let own = udp(A, B, 7, 10);
    a.send(&qa, &own)?;
    assert_eq!(b.frame()?, own, "of six the last one only");
    quiet(&b.cq)?;
    let drops = |reason| rig.drops("a", reason);
    assert_eq!(drops(DropReason::SpoofedSource), 1);
    assert_eq!(drops(DropReason::InvalidSource), 1);
    assert_eq!(drops(DropReason::SpoofedAddress), 1);
    assert_eq!(drops(DropReason::MtuExceeded), 1);
    assert_eq!(drops(DropReason::OwnAddress), 1);
    Ok(())
}

/// An adapter whose guest has an Ethernet driver, and a process that has its RDMA function.
fn beside_a_guest() -> Result<(Pair, Guest)> {
    let pair = pair()?;
    let Pair { mut rig, a, b } = pair;
    let mut guest = rig.attach("b", Options::default())?;
    rig.up("b")?;
    guest.post(0, 32);
    Ok((Pair { rig, a, b }, guest))
}

fn got(guest: &mut Guest) -> Result<Vec<u8>> {
    let (_, _, frame) = guest.recv(0, deadline()).context("no frame")?;
    Ok(frame)
}

#[test]
fn a_flow_takes_frames_and_its_end_gives_them_back() -> Result<()> {
    let (Pair { rig: _rig, a, b }, mut guest) = beside_a_guest()?;
    let (qa, qb) = (a.raw()?, b.raw()?);
    let frame = |port| udp(A, B, port, 30);
    a.send(&qa, &frame(1))?;
    assert_eq!(got(&mut guest)?, frame(1), "nobody else wants it");
    let flow = qb.create_flow(&to_port(7, 0))?;
    for port in [7, 8] {
        a.send(&qa, &frame(port))?;
    }
    assert_eq!((b.frame()?, got(&mut guest)?), (frame(7), frame(8)));
    let sniffer = qb.create_flow(&of_kind(FlowKind::Sniffer))?;
    a.send(&qa, &frame(9))?;
    assert_eq!((b.frame()?, got(&mut guest)?), (frame(9), frame(9)));
    drop(sniffer);
    drop(flow);
    a.send(&qa, &frame(7))?;
    assert_eq!(got(&mut guest)?, frame(7));
    quiet(&b.cq)?;
    // The guest's own frames come to the other side's queue pair, as well.
    let _all = qa.create_flow(&of_kind(FlowKind::AllDefault))?;
    let answer = udp(B, A, 5, 50);
    guest.send_wait(0, &answer, Default::default());
    assert_eq!(a.frame()?, answer);
    Ok(())
}

#[test]
fn of_two_flows_the_first_by_priority_has_a_frame() -> Result<()> {
    let Pair { rig: _rig, a, b } = pair()?;
    let (qa, low, high) = (a.raw()?, b.raw()?, b.raw()?);
    let _late: Flow = low.create_flow(&to_port(7, 2))?;
    let early = high.create_flow(&to_port(7, 1))?;
    let frame = udp(A, B, 7, 30);
    let mut takers = Vec::new();
    for _ in 0..2 {
        a.send(&qa, &frame)?;
        takers.push(b.done()?.qp());
    }
    drop(early);
    a.send(&qa, &frame)?;
    takers.push(b.done()?.qp());
    assert_eq!(takers, [high.number(), high.number(), low.number()]);
    Ok(())
}

#[test]
fn a_process_that_ends_leaves_no_flow() -> Result<()> {
    let (Pair { rig, a, b }, mut guest) = beside_a_guest()?;
    let qa = a.raw()?;
    let other = Side::new(&rig, "b")?;
    let (qb, qo) = (b.raw()?, other.raw()?);
    let first = qb.create_flow(&to_port(7, 0))?;
    let second = qo.create_flow(&to_port(7, 0))?;
    let frame = udp(A, B, 7, 30);
    a.send(&qa, &frame)?;
    assert_eq!(b.frame()?, frame, "the older flow");
    // Nothing is ended in order.
    b.context.reset()?;
    drop((first, qb));
    let end = Instant::now() + PATIENCE;
    loop {
        a.send(&qa, &frame)?;
        let mut one = [WorkCompletion::default()];
        if other.cq.poll(&mut one)? == 1 {
            break;
        }
        ensure!(Instant::now() < end, "the other process has nothing");
    }
    drop((second, qo, other));
    let end = Instant::now() + PATIENCE;
    while guest.try_recv(0).is_none() {
        a.send(&qa, &frame)?;
        ensure!(Instant::now() < end, "the guest has nothing");
    }
    Ok(())
}

/// `rdma_flows = false`: who has the RDMA socket sends frames, and takes none of the guest's.
#[test]
fn an_operator_forbids_flows() -> Result<()> {
    let mut rig = Rig::new(1)?;
    add(&mut rig, "a")?;
    add_with(&mut rig, "b", |spec| spec.rdma_flows = false)?;
    let (a, b) = (Side::new(&rig, "a")?, Side::new(&rig, "b")?);
    let (qa, qb) = (a.raw()?, b.raw()?);
    for rule in [
        of_kind(FlowKind::AllDefault),
        of_kind(FlowKind::Sniffer),
        to_port(7, 0),
    ] {
        let refused = qb.create_flow(&rule).err().and_then(|e| e.status());
        assert_eq!(refused, Some(CommandStatus::NotPermitted), "{rule:?}");
    }
    let _flow = qa.create_flow(&to_port(7, 0))?;
    let frame = udp(B, A, 7, 30);
    b.send(&qb, &frame)?;
    assert_eq!(a.frame()?, frame);
    Ok(())
}

/// `*VxlanUDPPortNumber`: flows by the identifier of VXLAN look behind that port.
#[test]
fn the_port_of_vxlan_is_a_key() -> Result<()> {
    let mut rig = Rig::new(1)?;
    add(&mut rig, "a")?;
    add(&mut rig, "b")?;
    let mut settings = vnic_backend::settings::AdapterSettings::default();
    settings.offloads.tunnels.vxlan_port = 8472;
    rig.nic.configure_adapter("b", &settings)?;
    rig.nic.restart_adapter("b")?;
    let (a, b) = (Side::new(&rig, "a")?, Side::new(&rig, "b")?);
    let (qa, qb) = (a.raw()?, b.raw()?);
    let mut tunnel = FlowRule {
        headers: flow_headers::IPV4 | flow_headers::UDP | flow_headers::VXLAN,
        ..FlowRule::default()
    };
    (tunnel.value.tunnel, tunnel.mask.tunnel) = (5, 0xff_ffff);
    let _flow = qb.create_flow(&tunnel)?;
    let vxlan = |port| {
        let mut frame = udp(A, B, port, 60);
        frame[42..50].copy_from_slice(&[8, 0, 0, 0, 0, 0, 5, 0]);
        frame
    };
    a.send(&qa, &vxlan(4789))?;
    a.send(&qa, &vxlan(8472))?;
    assert_eq!(b.frame()?, vxlan(8472));
    Ok(())
}

#[test]
fn what_contradicts_itself_costs_an_error() -> Result<()> {
    let Pair { rig: _rig, a, b } = pair()?;
    let (qa, qb) = (a.raw()?, b.raw()?);
    let status = |rule: &FlowRule| qb.create_flow(rule).err().and_then(|e| e.status());
    let mut both = to_port(7, 0);
    both.headers |= flow_headers::TCP;
    let mut nowhere = FlowRule::default();
    nowhere.mask.destination_port = 1;
    let mut sniffer = to_port(7, 0);
    sniffer.kind = FlowKind::Sniffer;
    for rule in [&both, &nowhere, &sniffer] {
        assert_eq!(status(rule), Some(CommandStatus::Invalid), "{rule:?}");
    }
    let unknown = FlowRule {
        headers: 1 << 9,
        ..FlowRule::default()
    };
    assert_eq!(status(&unknown), Some(CommandStatus::NotSupported));
    // Frames that are none.
    for len in [0, 13] {
        qa.post_send(&[SendWr::send(a.region.slice(..len)).signaled()])?;
        assert_eq!(take(&a.cq)?.status(), CompletionStatus::LocalLengthError);
        qa.resume()?;
    }
    qa.post_send(&[SendWr::send(a.region.slice(..65_558)).signaled()])?;
    assert_eq!(take(&a.cq)?.status(), CompletionStatus::LocalLengthError);
    qa.resume()?;
    let _flow = qb.create_flow(&of_kind(FlowKind::AllDefault))?;
    let frame = udp(A, B, 7, 30);
    a.send(&qa, &frame)?;
    assert_eq!(b.frame()?, frame);
    // A queue pair that frames come for stays.
    let limits: Vec<_> = (0..16).map(|n| qb.create_flow(&to_port(7, n))).collect();
    assert!(limits.iter().all(Result::is_ok));
    assert_eq!(status(&to_port(7, 99)), Some(CommandStatus::LimitReached));
    Ok(())
}
