//! Raw packets that the device cuts into segments.

use vnic_tests::driver::packets::parse;
use vnic_tests::driver::rig::deadline;
use vnic_tests::driver::{Guest, NetHdr, OFFLOADS, Options};
use vnic_verbs::flow::{FlowKind, FlowRule};
use vnic_verbs::{Capabilities, RawPacket};

use super::*;

const A: [u8; 6] = [2, 0, 0, 0, 0, 1];
const B: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// A frame of TCP without lengths and checksums; ACK and PSH.
fn tcp(source: [u8; 6], destination: [u8; 6], payload: &[u8]) -> Vec<u8> {
    let ip = [
        0x45, 0, 0, 0, 0, 9, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ];
    let header = [
        0x11, 0x22, 0, 80, 0, 0, 0x10, 0, 0, 0, 0, 7, 0x50, 0x18, 0x20, 0, 0, 0, 0, 0,
    ];
    [&destination[..], &source, &[8, 0], &ip, &header, payload].concat()
}

/// A VXLAN packet, without lengths and with this checksum, that carries a frame.
fn vxlan(checksum: u16, inner: &[u8]) -> Vec<u8> {
    let ip = [
        0x45, 0, 0, 0, 0, 5, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2,
    ];
    let [hi, lo] = checksum.to_be_bytes();
    let udp = [0xdd, 0xdd, 0x12, 0xb5, 0, 0, hi, lo, 8, 0, 0, 0, 0, 0, 5, 0];
    [&B[..], &A, &[8, 0], &ip, &udp, inner].concat()
}

/// Posts frames at `a`, while a guest is at `b`.
struct Sender {
    rig: Rig,
    side: Side,
    qp: QueuePair<RawPacket>,
    guest: Guest,
}

impl Sender {
    fn new(features: u64) -> Result<Sender> {
        let mut rig = Rig::new(1)?;
        add_with(&mut rig, "a", |spec| spec.anti_spoofing = true)?;
        add(&mut rig, "b")?;
        let a = Side::new(&rig, "a")?;
        let guest = Options {
            rx_buffer: 16384,
            ..Options::default().with(features)
        };
        let mut guest = rig.attach("b", guest)?;
        rig.up("b")?;
        guest.post(0, 64);
        let qp = a.pd.qp::<RawPacket>(&a.cq, &a.cq).build()?;
        qp.activate()?;
        ensure!(
            a.context
                .query_device()
                .capabilities()
                .contains(Capabilities::SEGMENTS)
        );
        Ok(Sender {
            rig,
            side: a,
            qp,
            guest,
        })
    }

    fn send(&self, frame: &[u8], size: u16) -> Result<WorkCompletion> {
        self.side.region.write_at(0, frame);
        let wr = SendWr::send(self.side.region.slice(..frame.len()))
            .segments(size)
            .signaled();
        self.qp.post_send(&[wr])?;
        take(&self.side.cq)
    }

    fn got(&mut self) -> Result<(NetHdr, Vec<u8>)> {
        let (hdr, _, frame) = self.guest.recv(0, deadline()).context("no frame")?;
        Ok((hdr, frame))
    }
}

#[test]
fn a_guest_gets_segments_or_the_whole() -> Result<()> {
    let payload = pattern(1, 4000);
    for takes in [false, true] {
        let mut sender = Sender::new(if takes { OFFLOADS } else { 0 })?;
        sender.send(&tcp(A, B, &payload), 1400)?.ok()?;
        if takes {
            let (hdr, frame) = sender.got()?;
            assert_eq!((hdr.gso_type, hdr.gso_size), (NetHdr::GSO_TCPV4, 1400));
            assert_eq!(frame[16..18], 4040u16.to_be_bytes(), "IP's length is made");
            assert_eq!(frame[54..], payload);
            continue;
        }
        let mut all = Vec::new();
        for i in 0..3 {
            let (hdr, frame) = sender.got()?;
            let segment = parse(&frame);
            assert_eq!(hdr, NetHdr::default());
            assert_eq!((segment.seq, segment.fin_psh.1), (0x1000 + 1400 * i, i == 2));
            all.extend(segment.payload);
        }
        assert_eq!(all, payload);
    }
    Ok(())
}

/// Both packets of each frame are right: parsed, with their lengths and checksums, by etherparse.
#[test]
fn what_is_in_a_tunnel_is_cut_for_every_guest() -> Result<()> {
    let payload = pattern(2, 3000);
    for checksum in [0, 1] {
        let mut sender = Sender::new(OFFLOADS)?;
        sender.send(&vxlan(checksum, &tcp(A, A, &payload)), 1400)?.ok()?;
        let mut all = Vec::new();
        for i in 0..3 {
            let (hdr, frame) = sender.got()?;
            assert_eq!(hdr, NetHdr::default());
            assert_eq!(
                frame[18..20],
                (5 + i as u16).to_be_bytes(),
                "identification outside"
            );
            assert_eq!(frame[40..42] == [0; 2], checksum == 0);
            if checksum != 0 {
                assert_eq!(parse(&frame).payload[..8], [8, 0, 0, 0, 0, 0, 5, 0]);
            }
            let segment = parse(&frame[50..]);
            assert_eq!(segment.seq, 0x1000 + 1400 * i);
            all.extend(segment.payload);
        }
        assert_eq!(all, payload);
    }
    Ok(())
}

#[test]
fn what_cannot_be_cut_is_dropped() -> Result<()> {
    let mut sender = Sender::new(0)?;
    let mut arp = tcp(A, B, &[1; 100]);
    arp[13] = 6;
    let forged = tcp(B, B, &[1; 3000]);
    for (frame, size) in [(&arp, 50), (&tcp(A, B, &[1; 100]), 7), (&forged, 1000)] {
        sender.send(frame, size)?.ok()?;
    }
    // Segments are no longer than the MTU.
    sender.send(&tcp(A, B, &[1; 3000]), 1461)?.ok()?;
    sender.send(&tcp(A, B, &[1; 3000]), 1460)?.ok()?;
    for len in [1460, 1460, 80] {
        assert_eq!(parse(&sender.got()?.1).payload.len(), len);
    }
    let dropped = |reason: vnic_backend::DropReason| sender.rig.drops("a", reason);
    assert_eq!(dropped(vnic_backend::DropReason::MalformedOffload), 2);
    assert_eq!(dropped(vnic_backend::DropReason::SpoofedSource), 1);
    assert_eq!(dropped(vnic_backend::DropReason::MtuExceeded), 1);
    Ok(())
}

/// A flow takes segments, as frames are on a wire.
#[test]
fn flows_take_segments() -> Result<()> {
    let Pair { rig: _rig, a, b } = pair()?;
    let qps = [&a, &b].map(|side| side.pd.qp::<RawPacket>(&side.cq, &side.cq).build());
    let [qa, qb] = qps;
    let (qa, qb) = (qa?, qb?);
    qa.activate()?;
    qb.activate()?;
    let _flow = qb.create_flow(&FlowRule {
        kind: FlowKind::AllDefault,
        ..FlowRule::default()
    })?;
    for i in 0..3 {
        let at = LEN / 2 + 4096 * i;
        qb.post_recv(&[RecvWr::new(b.region.slice(at..at + 4096)).id(i as u64)])?;
    }
    let frame = tcp(A, B, &pattern(3, 2500));
    a.region.write_at(0, &frame);
    qa.post_send(&[SendWr::send(a.region.slice(..frame.len()))
        .segments(1000)
        .signaled()])?;
    a.done()?;
    let mut all = Vec::new();
    for i in 0..3 {
        let wc = b.done()?;
        let bytes = b.region.read_vec(LEN / 2 + 4096 * i, wc.byte_len() as usize);
        assert!(wc.checksum_ok());
        all.extend(parse(&bytes).payload);
    }
    assert_eq!(all, frame[54..]);
    Ok(())
}
