//! Packet pacing: rates of send queues, in virtual time.

use std::collections::BTreeMap;

use vnic_engine::rdma::{
    Mark, Object, Outgoing, QpNumber, QpState, QpType, RATE_MAX_KBPS, RateLimit, SendOp, Sink, VerbsError,
};
use vnic_wire::time::Instant;

use super::harness::{Connection, Pair, Side, connect, send};

/// Bytes on the wire by QP, as many packets as it has room for.
struct Meter<'a> {
    bytes: &'a mut BTreeMap<u32, u64>,
    left: u32,
}

impl Sink for Meter<'_> {
    fn open(&mut self) -> u8 {
        if self.left > 0 { 0xff } else { 0 }
    }

    fn send(&mut self, packet: &Outgoing<'_>) {
        self.left -= 1;
        let len = packet.path.frame_len(&packet.headers, packet.payload.len());
        *self.bytes.entry(packet.from.0).or_default() += len as u64 + 24;
    }
}

fn rate(kbps: u32) -> RateLimit {
    RateLimit {
        rate: kbps,
        ..RateLimit::default()
    }
}

/// A call of the device, at that time: whoever polls.
fn poll(side: &mut Side, now: Instant, room: u32, bytes: &mut BTreeMap<u32, u64>) {
    side.device.handle_timeout(now);
    let mut meter = Meter { bytes, left: room };
    side.device.transmit(now, &side.ram, &mut meter);
}

/// Polls whenever the device wants it, until then; gives bytes on the wire.
fn run(side: &mut Side, from: u64, to: u64) -> u64 {
    let mut bytes = BTreeMap::new();
    let mut now = from;
    while now < to {
        poll(side, Instant(now), 1 << 20, &mut bytes);
        now = side.device.next_timeout().map_or(to, |at| at.0.max(now));
    }
    bytes.values().sum()
}

/// A UC queue pair, which nobody answers, with 64 messages of half a megabyte.
fn busy() -> Pair {
    let mut pair = Pair::new(QpType::Uc, Connection::default());
    let a = &mut pair.sides[0];
    for id in 0..64 {
        a.post(id, SendOp::Send, &[a.sge(0, 1 << 19)]);
    }
    pair
}

fn assert_near(got: u64, wanted: u64, what: &str) {
    assert!(
        got.abs_diff(wanted) * 100 <= wanted,
        "{what}: {got}, not {wanted}"
    );
}

#[test]
fn a_rate_is_kept_to_one_percent() {
    // 100 ms at 100 Mbit/s and 1 Gbit/s, 1 ms at 10 Gbit/s, with the device's burst and with a small one.
    for (kbps, ns) in [
        (100_000, 100_000_000),
        (1_000_000, 100_000_000),
        (10_000_000, 25_000_000),
    ] {
        for max_burst in [0, 2000] {
            let mut pair = busy();
            let a = &mut pair.sides[0];
            let limit = RateLimit {
                max_burst,
                ..rate(kbps)
            };
            a.device.set_qp_rate(a.qp, limit, Instant(0)).unwrap();
            assert_eq!(a.device.qp_rate(a.qp), Ok(limit));
            let got = run(a, 0, ns);
            assert_near(got, u64::from(kbps) * ns / 8_000_000, "bytes");
            assert!(a.device.marks().get(Mark::Paced) > 0);
        }
    }
}

#[test]
fn who_polls_late_loses_nothing_of_the_rate() {
    let mut pair = busy();
    let a = &mut pair.sides[0];
    a.device.set_qp_rate(a.qp, rate(1_000_000), Instant(0)).unwrap();
    let mut bytes = BTreeMap::new();
    for step in 0..2000 {
        // Every 50 us and something.
        poll(a, Instant(step * 50_000 + step % 7 * 1000), 1 << 20, &mut bytes);
    }
    assert_near(bytes[&a.qp.0], 12_500_000, "bytes in 100 ms");
}

#[test]
fn a_rate_changes_under_way() {
    let mut pair = busy();
    let a = &mut pair.sides[0];
    let ms = 1_000_000;
    // So slow that the next packet would take three seconds.
    a.device.set_qp_rate(a.qp, rate(1), Instant(0)).unwrap();
    let first = run(a, 0, 10 * ms);
    assert!(first < 1000, "{first}");
    a.device
        .set_qp_rate(a.qp, rate(1_000_000), Instant(10 * ms))
        .unwrap();
    assert_near(run(a, 10 * ms, 60 * ms), 6_250_000, "at 1 Gbit/s");
    a.device
        .set_qp_rate(a.qp, rate(100_000), Instant(60 * ms))
        .unwrap();
    assert_near(run(a, 60 * ms, 160 * ms), 1_250_000, "at 100 Mbit/s");
    // The operator's word is the lower one, and stays over RESET.
    a.device.set_qp_ceiling(a.qp, 10_000, Instant(160 * ms)).unwrap();
    assert_near(run(a, 160 * ms, 660 * ms), 625_000, "at 10 Mbit/s");
    let all: Vec<_> = a.device.paced_qps().collect();
    assert_eq!(all, [(a.qp, rate(100_000), 10_000)]);
    a.device.set_qp_ceiling(a.qp, 0, Instant(660 * ms)).unwrap();
    a.device
        .set_qp_rate(a.qp, RateLimit::default(), Instant(660 * ms))
        .unwrap();
    assert!(run(a, 660 * ms, 661 * ms) > 20_000_000, "not limited");
    assert_eq!((a.device.paced_qps().count(), a.device.next_timeout()), (0, None));
}

#[test]
fn ten_thousand_limited_ones_hold_up_nobody() {
    let mut pair = Pair::new(QpType::Uc, Connection::default());
    let [a, b] = &mut pair.sides;
    let free = a.qp;
    for id in 0..64 {
        a.post(id, SendOp::Send, &[a.sge(0, 1 << 19)]);
    }
    a.init.signal_all = false;
    let mut slow = Vec::new();
    for _ in 0..10_000 {
        let qp = a.device.create_qp(&a.init).unwrap();
        a.qp = qp;
        connect(a, b.qp, b.gid, b.mac, Connection::default());
        a.device.set_qp_rate(qp, rate(1000), Instant(0)).unwrap();
        let wr = send(1, SendOp::Send, &[a.sge(0, 1 << 17)]);
        a.device.post_send(qp, wr).unwrap();
        slow.push(qp);
    }
    // 100 ms in steps of 100 us, 200 packets each: the limited ones have 4 of a step together, each 12,500 bytes in all.
    let mut bytes = BTreeMap::new();
    for step in 1..=1000 {
        poll(a, Instant(step * 100_000), 2000, &mut bytes);
    }
    for qp in &slow {
        let got = bytes[&qp.0];
        assert!(got.abs_diff(12_500) < 400, "{qp:?}: {got}");
    }
    // All the room that the limited ones leave. (A packet: 256 bytes of payload, 14 + 20 + 8 + 12 + 4 of headers, 24.)
    assert!(bytes[&free.0] >= 64 << 19, "{}", bytes[&free.0]);
    // A round for everybody who is limited is no round for who is not.
    let marks = a.device.marks().get(Mark::Paced);
    assert!(marks < 1_000_000, "{marks} waits");
    assert_eq!(a.device.ready_priorities(), 0);
}

#[test]
fn all_of_it_arrives_and_acknowledges_do_not_wait() {
    let mut pair = Pair::new(QpType::Rc, Connection::default());
    let [a, b] = &mut pair.sides;
    a.device.set_qp_rate(a.qp, rate(8_000), Instant(0)).unwrap();
    // The peer has almost no rate; it only answers.
    b.device.set_qp_rate(b.qp, rate(1), Instant(0)).unwrap();
    a.fill(0, &[7; 60_000]);
    let (addr, rkey) = (b.va(0), b.keys.rkey);
    a.post(1, SendOp::Write { addr, rkey }, &[a.sge(0, 60_000)]);
    a.post(2, SendOp::Read { addr, rkey }, &[a.sge(100_000, 60_000)]);
    pair.run();
    let [a, b] = &mut pair.sides;
    assert_eq!(a.completions().len(), 2);
    assert!(b.bytes(0, 60_000) == [7; 60_000] && a.bytes(100_000, 60_000) == [7; 60_000]);
    // 60,000 bytes in packets of 256: 342 on the wire each with its headers, and a few bytes more; 1 byte a microsecond.
    let least = 235 * (256 + 14 + 20 + 8 + 12 + 4 + 24) * 1000 - 1_000_000;
    assert!(pair.now.0 > least, "{:?}", pair.now);
    assert_eq!(b.device.marks().get(Mark::Paced), 0);
}

#[test]
fn rates_have_bounds_and_end_with_their_queue_pair() {
    let mut pair = busy();
    let a = &mut pair.sides[0];
    let none = QpNumber(77);
    assert_eq!(
        a.device.set_qp_rate(none, rate(1), Instant(0)),
        Err(VerbsError::NoSuch(Object::Qp))
    );
    assert_eq!(
        a.device.set_qp_ceiling(none, 1, Instant(0)),
        Err(VerbsError::NoSuch(Object::Qp))
    );
    assert!(
        a.device
            .set_qp_ceiling(a.qp, RATE_MAX_KBPS + 1, Instant(0))
            .is_err()
    );
    let wrong = RateLimit {
        max_burst: 1,
        ..rate(0)
    };
    assert!(a.device.set_qp_rate(a.qp, wrong, Instant(0)).is_err());
    // Waiting for its time in RESET, in ERR, and destroyed: no timer is left.
    for end in [QpState::Reset, QpState::Err] {
        let mut pair = busy();
        let a = &mut pair.sides[0];
        a.device.set_qp_rate(a.qp, rate(1), Instant(0)).unwrap();
        run(a, 0, 1000);
        assert!(a.device.next_timeout().is_some());
        let mask = vnic_engine::rdma::AttributeMask::STATE;
        let wanted = vnic_engine::rdma::QpAttributes {
            state: end,
            ..Default::default()
        };
        a.device.modify_qp(a.qp, &wanted, mask, Instant(1)).unwrap();
        if end == QpState::Reset {
            assert_eq!(a.device.qp_rate(a.qp), Ok(RateLimit::default()));
            assert_eq!(a.device.next_timeout(), None);
        }
        a.device.destroy_qp(a.qp).unwrap();
        assert_eq!(
            (a.device.next_timeout(), a.device.wants_transmit()),
            (None, false)
        );
    }
}
