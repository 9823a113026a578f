//! What losses leave of the goodput of one queue pair: two devices and a wire with a rate and a length, in virtual time.

use std::collections::BTreeMap;
use std::time::Duration;

use vnic_engine::congestion::zero_touch::ZeroTouch;
use vnic_engine::rdma::{Congestion, Incoming, Mtu, Outgoing, Payload, QpType, SendOp, Sink, Status};
use vnic_wire::time::Instant;

use super::harness::{Connection, Packet, Pair};

/// Bytes of a message, and READs that the peer takes at a time.
const MESSAGE: u32 = 64 << 10;
const READS: u8 = 16;
/// Nanoseconds for a byte: 16 Gb/s.
const BYTE: f64 = 0.5;
/// Bytes of headers of a frame, with preamble and gap.
const HEADERS: usize = 90;

/// One direction of the wire, and of the ways behind it.
#[derive(Default)]
struct Wire {
    /// When it has sent what it was given, in ns.
    free: u64,
    /// Each way by its port: its number, and when it has sent what it was given.
    ways: BTreeMap<u16, (usize, u64)>,
    /// What is on it, by when that arrives, and by its number.
    packets: BTreeMap<(u64, u64), Packet>,
}

/// Nanoseconds for a byte by each of the ways behind the wire, in the order in which they are taken; none: nothing comes through.
type Ways = &'static [Option<f64>];
/// Behind the wire nothing is slower.
const ONE: Ways = &[Some(0.0)];

/// A port that takes one packet.
struct One(Option<Packet>);

impl Sink for One {
    fn open(&mut self) -> u8 {
        if self.0.is_none() { 0xff } else { 0 }
    }

    fn send(&mut self, packet: &Outgoing<'_>) {
        let mut payload = vec![0; packet.payload.len()];
        packet.payload.read(&mut payload).unwrap();
        self.0 = Some(Packet {
            path: *packet.path,
            headers: packet.headers,
            payload,
            priority: packet.priority,
            telemetry: None,
        });
    }
}

/// What is done all the time.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Work {
    Write,
    Read,
    /// WRITEs and READs in turn.
    Both,
}

/// What was seen.
#[derive(Debug)]
struct Seen {
    /// Bytes a second.
    goodput: f64,
    /// Times that the ACK timer ran out.
    timeouts: u64,
    /// Packets and parts of READs that were asked for again one by one.
    repeats: u64,
    /// Packets that the wire lost.
    lost: u64,
}

/// Runs for 200 ms, with so many messages under way, and so many of a million packets lost in each direction.
fn run(work: Work, under_way: u64, lost: u64, delay: Duration) -> Seen {
    run_by(ONE, work, under_way, lost, delay)
}

/// The same by these ways.
fn run_by(ways: Ways, work: Work, under_way: u64, lost: u64, delay: Duration) -> Seen {
    const END: u64 = 200_000_000;
    let connection = Connection {
        mtu: Mtu::Mtu4096,
        rd_atomic: READS,
        retry_count: 7,
        timeout: 14,
        ..Connection::default()
    };
    let mut pair = Pair::new(QpType::Rc, connection);
    for side in &mut pair.sides {
        let congestion = Congestion {
            zero_touch: ZeroTouch {
                selective: true,
                multipath: ways.len() as u32,
                ..ZeroTouch::default()
            },
            ..Congestion::default()
        };
        side.device.set_congestion(congestion, Instant(0));
    }
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut below = move |n: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % n
    };
    let mut seen = Seen {
        goodput: 0.0,
        timeouts: 0,
        repeats: 0,
        lost: 0,
    };
    let mut wires = [Wire::default(), Wire::default()];
    let (mut now, mut posted, mut completed, mut sent) = (0, 0, 0, 0);
    while now < END {
        for done in pair.sides[0].completions() {
            assert_eq!(done.status, Status::Success);
            completed += 1;
        }
        while posted < completed + under_way {
            let rkey = pair.sides[1].keys.rkey;
            let a = &mut pair.sides[0];
            let addr = a.va(0);
            let op = match work {
                Work::Write => SendOp::Write { addr, rkey },
                Work::Both if posted % 2 == 0 => SendOp::Write { addr, rkey },
                _ => SendOp::Read { addr, rkey },
            };
            a.post(posted, op, &[a.sge(0, MESSAGE)]);
            posted += 1;
        }
        let mut next = u64::MAX;
        for (from, wire) in wires.iter_mut().enumerate() {
            let side = &mut pair.sides[from];
            while wire.free <= now && side.device.wants_transmit() {
                let mut one = One(None);
                side.device.transmit(Instant(now), &side.ram, &mut one);
                let Some(packet) = one.0 else { break };
                let bytes = packet.payload.len() + HEADERS;
                wire.free = now + (bytes as f64 * BYTE) as u64;
                let known = wire.ways.len();
                let (number, free) = wire.ways.entry(packet.path.source_port).or_insert((known, 0));
                let Some(byte) = ways[*number] else { continue };
                *free = wire.free.max(*free) + (bytes as f64 * byte) as u64;
                if below(1_000_000) < lost {
                    seen.lost += 1;
                } else {
                    sent += 1;
                    let arrives = *free + delay.as_nanos() as u64;
                    wire.packets.insert((arrives, sent), packet);
                }
            }
            if side.device.wants_transmit() && wire.free > now {
                next = next.min(wire.free);
            }
            if let Some(at) = side.device.next_timeout() {
                next = next.min(at.0);
            }
            if let Some(((at, _), _)) = wire.packets.first_key_value() {
                next = next.min(*at);
            }
        }
        now = next.max(now);
        pair.now = Instant(now);
        for (from, wire) in wires.iter_mut().enumerate() {
            while let Some(first) = wire.packets.first_entry()
                && first.key().0 <= now
            {
                let packet = first.remove();
                let to = &mut pair.sides[1 - from];
                let incoming = Incoming {
                    path: packet.path,
                    headers: packet.headers,
                    payload: Payload::Bytes(&packet.payload),
                    telemetry: None,
                };
                to.device.receive(Instant(now), &incoming, &to.ram);
            }
        }
        for side in &mut pair.sides {
            if side.device.next_timeout().is_some_and(|at| at.0 <= now) {
                side.device.handle_timeout(Instant(now));
            }
        }
    }
    let counters = pair.sides[0].device.counters();
    seen.timeouts = counters.local_ack_timeout_err;
    seen.repeats = counters.roce_selective_repeats;
    seen.goodput = (completed * u64::from(MESSAGE)) as f64 / (END as f64 * 1e-9);
    seen
}

#[test]
fn one_per_cent_of_loss_leaves_most_of_the_goodput() {
    use Work::{Both, Read, Write};
    let us = Duration::from_micros;
    // (READs have 1 MiB under way, which are 524 µs: with 150 µs a way there is hardly time for what is asked for again.)
    let rows = [
        (Write, 32, us(50), 0.97),
        (Read, 32, us(5), 0.98),
        (Read, 32, us(50), 0.97),
        (Both, 32, us(50), 0.95),
        (Read, 32, us(150), 0.90),
    ];
    for (work, under_way, delay, least) in rows {
        let (all, some) = (
            run(work, under_way, 0, delay),
            run(work, under_way, 10_000, delay),
        );
        let ratio = some.goodput / all.goodput;
        assert_eq!((all.timeouts, all.repeats), (0, 0), "{work:?}, {delay:?}");
        assert!(
            ratio >= least && some.timeouts == 0,
            "{work:?}, {delay:?}: {ratio}, {some:?}"
        );
        // (A lost first packet of a WRITE costs its message.)
        assert!(work != Read || some.repeats <= some.lost, "{some:?}");
    }
}

#[test]
fn a_lost_end_costs_little_of_the_goodput() {
    use Work::{Read, Write};
    let delay = Duration::from_micros(50);
    for (work, under_way, least) in [(Read, 1, 0.7), (Write, 1, 0.7), (Read, 2, 0.7), (Write, 2, 0.7)] {
        let (all, some) = (
            run(work, under_way, 0, delay),
            run(work, under_way, 10_000, delay),
        );
        let ratio = some.goodput / all.goodput;
        assert_eq!((all.timeouts, all.repeats), (0, 0), "{work:?}");
        assert!(ratio >= least, "{work:?} {under_way}: {ratio}, {some:?}");
    }
}

#[test]
fn responses_take_of_each_way_what_it_carries() {
    const WAY: Option<f64> = Some(4.0 * BYTE);
    const HALF: Option<f64> = Some(8.0 * BYTE);
    let delay = Duration::from_micros(20);
    let rows: [(&str, Ways, f64); 4] = [
        ("one of four", &[WAY], 0.2),
        ("four", &[WAY, WAY, WAY, WAY], 0.9),
        ("one of them has half", &[WAY, WAY, HALF, WAY], 0.75),
        ("one of them is dead", &[WAY, WAY, None, WAY], 0.6),
    ];
    let all = run(Work::Read, 32, 0, delay);
    for (what, ways, least) in rows {
        let some = run_by(ways, Work::Read, 32, 0, delay);
        let ratio = some.goodput / all.goodput;
        assert!(ratio >= least && some.timeouts == 0, "{what}: {ratio}, {some:?}");
        assert!(
            ways.len() == 1 || ways.contains(&None) || some.repeats < 100,
            "{what}: {some:?}"
        );
    }
    const NARROW: Option<f64> = Some(16.0 * BYTE);
    for ways in [&[WAY; 4][..], &[NARROW; 16][..]] {
        let some = run_by(ways, Work::Read, 32, 10_000, delay);
        assert!(some.goodput >= 0.85 * all.goodput, "1 % lost: {some:?}");
    }
}
