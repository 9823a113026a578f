//! Raw packet queue pairs: a work request is a frame, out and in.

use vnic_engine::rdma::{
    AttributeMask as A, Incoming, IncomingFrame, Origin, Outgoing, OutgoingFrame, Payload, QpAttributes,
    QpState, QpType, RateLimit, SendFlags, SendOp, Sink, Status,
};
use vnic_wire::time::Instant;

use super::harness::{Connection, Pair, Side, send};

/// Takes frames, of which each is of the priority that is its last byte.
struct Port {
    open: u8,
    taken: Vec<(Vec<u8>, bool)>,
    segments: Vec<Option<u16>>,
}

impl Sink for Port {
    fn open(&mut self) -> u8 {
        self.open
    }

    fn send(&mut self, packet: &Outgoing<'_>) {
        panic!("a packet: {packet:?}");
    }

    fn send_frame(&mut self, frame: &OutgoingFrame<'_>) -> Result<(), u8> {
        let mut bytes = vec![0; frame.bytes.len()];
        frame.bytes.read(&mut bytes).unwrap();
        let priority = bytes.last().copied().unwrap_or(0) & 7;
        if self.open >> priority & 1 == 0 {
            return Err(priority);
        }
        self.taken.push((bytes, frame.checksum));
        self.segments.push(frame.segment);
        Ok(())
    }
}

fn transmit(side: &mut Side, now: Instant, open: u8) -> Vec<(Vec<u8>, bool)> {
    let mut port = Port {
        open,
        taken: Vec::new(),
        segments: Vec::new(),
    };
    side.device.transmit(now, &side.ram, &mut port);
    assert!(port.segments.iter().all(Option::is_none));
    port.taken
}

fn side() -> Side {
    let Pair {
        sides: [mut side, _], ..
    } = Pair::new(QpType::Uc, Connection::default());
    side.init.qp_type = QpType::RawPacket;
    side.qp = side.device.create_qp(&side.init).unwrap();
    for (state, mask) in [
        (QpState::Init, A::PORT),
        (QpState::Rtr, A::empty()),
        (QpState::Rts, A::empty()),
    ] {
        let attributes = QpAttributes {
            state,
            ..QpAttributes::default()
        };
        side.device
            .modify_qp(side.qp, &attributes, A::STATE | mask, Instant(0))
            .unwrap();
    }
    side
}

/// A frame of `len` bytes and this priority.
fn post(side: &mut Side, id: u64, len: usize, priority: u8) -> Vec<u8> {
    let mut frame: Vec<u8> = (0..len).map(|i| (i as u64 + id) as u8).collect();
    frame[len - 1] = priority;
    let at = 4096 * id as usize;
    side.fill(at, &frame);
    let list = [side.sge(at as u64, 10), side.sge(at as u64 + 10, len as u32 - 10)];
    side.post(id, SendOp::Send, &list);
    frame
}

#[test]
fn frames_leave_as_they_are_in_order() {
    let mut side = side();
    let frames: Vec<_> = (0..40).map(|i| post(&mut side, i, 60 + i as usize, 0)).collect();
    let mut taken = Vec::new();
    while side.device.wants_transmit() {
        taken.extend(transmit(&mut side, Instant(0), 0xff));
    }
    assert_eq!(taken, frames.into_iter().map(|f| (f, false)).collect::<Vec<_>>());
    assert_eq!(side.completions().len(), 40);
    let counters = side.device.counters();
    assert_eq!(
        (counters.raw_tx_packets, counters.raw_tx_bytes),
        (40, (0..40).map(|i| 60 + i).sum())
    );
    let flagged = vnic_engine::rdma::SendWr {
        flags: SendFlags::CHECKSUM,
        ..send(41, SendOp::Send, &[side.sge(0, 60)])
    };
    side.device.post_send(side.qp, flagged).unwrap();
    assert!(transmit(&mut side, Instant(0), 0xff)[0].1);
}

/// Who takes the frame is told into what to cut it; more bytes than a frame has are no length.
#[test]
fn a_frame_may_be_cut() {
    let mut side = side();
    for (id, size) in [(1, 0), (2, 1400), (3, 65_535), (4, 65_536), (5, 1400)] {
        let wr = vnic_engine::rdma::SendWr {
            flags: SendFlags::SEGMENT,
            remote_srq: size,
            ..send(id, SendOp::Send, &[side.sge(0, 60)])
        };
        side.device.post_send(side.qp, wr).unwrap();
    }
    let mut port = Port {
        open: 0xff,
        taken: Vec::new(),
        segments: Vec::new(),
    };
    while side.device.wants_transmit() {
        side.device.transmit(Instant(0), &side.ram, &mut port);
    }
    assert_eq!(port.segments, [Some(0), Some(1400), Some(65_535)]);
    let failed = side
        .completions()
        .into_iter()
        .find(|c| c.status != Status::Success);
    assert_eq!(
        failed.map(|c| (c.wr_id, c.status)),
        Some((4, Status::LocalLengthError))
    );
}

/// A frame of a closed priority waits, with what is posted behind it, and costs nothing until its priority is open.
#[test]
fn a_frame_waits_for_its_own_priority() {
    let mut side = side();
    let first = post(&mut side, 1, 60, 3);
    let second = post(&mut side, 2, 60, 5);
    for _ in 0..3 {
        assert!(transmit(&mut side, Instant(0), !(1 << 3)).is_empty());
        assert_eq!(side.device.ready_priorities(), 1 << 3);
    }
    assert_eq!(transmit(&mut side, Instant(0), !(1 << 5)), [(first, false)]);
    assert_eq!(side.device.ready_priorities(), 1 << 5);
    assert_eq!(transmit(&mut side, Instant(0), 0xff), [(second, false)]);
    assert_eq!(side.completions().len(), 2);
    assert!(!side.device.wants_transmit());
}

#[test]
fn a_rate_holds_for_frames() {
    let mut side = side();
    let limit = RateLimit {
        rate: 1000,
        max_burst: 100,
        ..RateLimit::default()
    };
    side.device.set_qp_rate(side.qp, limit, Instant(0)).unwrap();
    for id in 0..20 {
        post(&mut side, id, 101, 0);
    }
    let (mut now, mut sent) = (Instant(0), 0);
    while sent < 20 {
        sent += transmit(&mut side, now, 0xff).len();
        if let Some(at) = side.device.next_timeout() {
            now = at.max(now);
            side.device.handle_timeout(now);
        }
    }
    // 125 bytes on the wire are a millisecond; the first ones go at once.
    assert!((17_000_000..=20_000_000).contains(&now.0), "{now:?}");
}

#[test]
fn frames_that_are_none_fail() {
    let mut side = side();
    for (id, len) in [(1, 13), (2, 65_558)] {
        let list = [side.sge(0, len)];
        side.post(id, SendOp::Send, &list);
        assert!(transmit(&mut side, Instant(0), 0xff).is_empty());
        let done = side.completions();
        assert_eq!(
            (done.len(), done[0].status),
            (1, Status::LocalLengthError),
            "{len}"
        );
        assert_eq!(side.state(), QpState::Sqe);
        let attributes = QpAttributes {
            state: QpState::Rts,
            ..QpAttributes::default()
        };
        side.device
            .modify_qp(side.qp, &attributes, A::STATE, Instant(0))
            .unwrap();
    }
    let beyond = [side.sge(1 << 20, 60)];
    side.post(3, SendOp::Send, &beyond);
    assert!(transmit(&mut side, Instant(0), 0xff).is_empty());
    assert_eq!(side.completions()[0].status, Status::LocalProtectionError);
}

/// A frame without checksums and time.
fn came(bytes: &[u8]) -> IncomingFrame<'_> {
    IncomingFrame {
        bytes,
        checksum_ok: false,
        arrived: Instant(0),
    }
}

#[test]
fn receives_take_frames_and_no_packets() {
    let mut side = side();
    let frame: Vec<u8> = (0..100).collect();
    let (qp, other) = (side.qp, side.device.create_qp(&side.init).unwrap());
    side.device.receive_frame(Instant(0), qp, came(&frame), &side.ram);
    assert_eq!(side.device.counters().out_of_buffer, 1);
    side.device
        .receive_frame(Instant(0), other, came(&frame), &side.ram);
    assert_eq!(side.device.counters().drop_wrong_state, 1, "it is in RESET");
    let list = [side.sge(0, 7), side.sge(100, 200)];
    side.post_recv(1, &list);
    let stamped = IncomingFrame {
        checksum_ok: true,
        arrived: Instant(5),
        ..came(&frame)
    };
    let origin = Origin::Frame {
        checksum_ok: true,
        arrived: Instant(5),
    };
    side.device.receive_frame(Instant(9), qp, stamped, &side.ram);
    let done = side.completions();
    assert_eq!((done.len(), done[0].byte_len, done[0].origin), (1, 100, origin));
    assert_eq!([side.bytes(0, 7), side.bytes(100, 93)].concat(), frame);
    // A datagram to its number, from a peer that guesses it.
    let mut peers = Pair::new(QpType::Uc, Connection::default());
    peers.sides[0].post(1, SendOp::Send, &[]);
    peers.send(|_, _| true);
    let mut packet = peers.wire[0].pop_front().unwrap();
    packet.headers.bth.destination_qp = qp.0;
    let list = [side.sge(0, 200)];
    side.post_recv(2, &list);
    let incoming = Incoming {
        path: packet.path,
        headers: packet.headers,
        payload: Payload::Bytes(&packet.payload),
        telemetry: None,
    };
    side.device.receive(Instant(0), &incoming, &side.ram);
    assert_eq!(side.device.counters().drop_wrong_transport, 1);
    assert!(side.completions().is_empty());
    // One that does not fit ends it, as a datagram does.
    side.device
        .receive_frame(Instant(0), qp, came(&[0; 201]), &side.ram);
    assert_eq!(side.completions()[0].status, Status::LocalLengthError);
    assert_eq!(side.state(), QpState::Err);
}
