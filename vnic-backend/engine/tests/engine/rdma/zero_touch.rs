//! Zero touch RoCE: the ACK timer that follows the round trips, slow restart without congestion control, the window.

use std::time::Duration;

use vnic_engine::congestion::zero_touch::{WINDOW_MAX, ZeroTouch};
use vnic_engine::rdma::{Congestion, Mark, Outgoing, QpState, QpType, RateLimit, SendOp, Sink, Status};
use vnic_wire::aeth::{CREDITS_INVALID, Syndrome};
use vnic_wire::opcode::Operation;
use vnic_wire::time::Instant;
use vnic_wire::transport::Extended;

use super::harness::{Connection, Packet, Pair};

/// Time of a packet on the wire, in ns.
const DELAY: u64 = 10_000;
/// ACK timeout of [`Connection::default`], in ns.
const OWN: u64 = 4096 << 10;

fn us(n: u64) -> Duration {
    Duration::from_micros(n)
}

/// Only the adaptive timer.
fn adaptive(floor: u64) -> ZeroTouch {
    ZeroTouch {
        adaptive: true,
        floor: us(floor),
        ..ZeroTouch::OFF
    }
}

fn set(pair: &mut Pair, zero_touch: ZeroTouch) {
    let congestion = Congestion {
        zero_touch,
        ..Congestion::default()
    };
    let now = pair.now;
    pair.sides[0].device.set_congestion(congestion, now);
}

fn with(connection: Connection, zero_touch: ZeroTouch) -> Pair {
    let mut pair = Pair::new(QpType::Rc, connection);
    set(&mut pair, zero_touch);
    pair
}

fn write(pair: &mut Pair, id: u64, len: u32) {
    let rkey = pair.sides[1].keys.rkey;
    let a = &mut pair.sides[0];
    let addr = a.va(0);
    a.post(id, SendOp::Write { addr, rkey }, &[a.sge(0, len)]);
}

/// Runs until nothing moves, on a wire that takes [`DELAY`]. Returns when the first side sent its packets.
fn run(pair: &mut Pair, mut keep: impl FnMut(usize, &Packet) -> bool) -> Vec<u64> {
    let mut sent = Vec::new();
    loop {
        let now = pair.now.0;
        pair.send(|from, packet| {
            if from == 0 {
                sent.push(now);
            }
            keep(from, packet)
        });
        if pair.wire.iter().any(|w| !w.is_empty()) {
            pair.now = Instant(now + DELAY);
            pair.deliver();
        } else if !pair.sides.iter().any(|s| s.device.wants_transmit()) {
            let next = pair.sides.iter().filter_map(|s| s.device.next_timeout()).min();
            let Some(next) = next else { return sent };
            pair.now = next.max(pair.now);
        }
        let now = pair.now;
        for side in &mut pair.sides {
            if side.device.next_timeout().is_some_and(|at| at <= now) {
                side.device.handle_timeout(now);
            }
        }
    }
}

/// Early retransmissions, queue pairs that gave up, expiries of the ACK timer.
fn timers(pair: &Pair) -> [u64; 3] {
    let c = pair.sides[0].device.counters();
    [c.roce_adp_retrans, c.roce_adp_retrans_to, c.local_ack_timeout_err]
}

fn restarts(pair: &Pair) -> [u64; 3] {
    let c = pair.sides[0].device.counters();
    [
        c.roce_slow_restart,
        c.roce_slow_restart_cnps,
        c.roce_slow_restart_trans,
    ]
}

fn window(pair: &mut Pair) -> u32 {
    let now = pair.now;
    let a = &mut pair.sides[0];
    a.device.qp_status(a.qp, now).unwrap().sends.window
}

fn statuses(pair: &mut Pair) -> Vec<(u64, Status)> {
    let all = pair.sides[0].completions();
    all.iter().map(|c| (c.wr_id, c.status)).collect()
}

#[test]
fn a_lost_packet_costs_a_few_round_trips() {
    // First round trip: 20 us, so the timer is 20 + 4 * 10 us; the floor may be above that, the ceiling below.
    let ceiling = ZeroTouch {
        ceiling: Some(us(30)),
        ..adaptive(1)
    };
    for (settings, expected, early) in [
        (adaptive(1), 60_000, 1),
        (adaptive(500), 500_000, 1),
        (ceiling, 30_000, 1),
        (adaptive(1_000_000), OWN, 0),
        (ZeroTouch::OFF, OWN, 0),
    ] {
        let mut pair = with(Connection::default(), settings);
        write(&mut pair, 1, 100);
        run(&mut pair, |_, _| true);
        write(&mut pair, 2, 100);
        let mut lost = false;
        let sent = run(&mut pair, |from, _| {
            from == 1 || std::mem::replace(&mut lost, true)
        });
        assert_eq!(sent[1] - sent[0], expected, "{settings:?}");
        assert_eq!(timers(&pair), [early, 0, 1], "{settings:?}");
        assert_eq!(statuses(&mut pair), [(1, Status::Success), (2, Status::Success)]);
    }
}

#[test]
fn nothing_measured_leaves_the_queue_pairs_own_timeout() {
    let mut pair = with(Connection::default(), adaptive(1));
    write(&mut pair, 1, 100);
    let mut lost = false;
    let sent = run(&mut pair, |from, _| {
        from == 1 || std::mem::replace(&mut lost, true)
    });
    assert_eq!((sent[1] - sent[0], timers(&pair)), (OWN, [0, 0, 1]));
}

#[test]
fn a_dead_peer_is_given_as_much_time_as_the_program_asked_for() {
    for retry_count in [0, 1, 3, 7] {
        let connection = Connection {
            retry_count,
            ..Connection::default()
        };
        for settings in [ZeroTouch::OFF, adaptive(100)] {
            let mut pair = with(connection, settings);
            write(&mut pair, 1, 100);
            run(&mut pair, |_, _| true);
            assert_eq!(statuses(&mut pair), [(1, Status::Success)]);
            write(&mut pair, 2, 100);
            let sent = run(&mut pair, |_, _| false);
            assert_eq!(statuses(&mut pair), [(2, Status::RetryExceeded)]);
            let asked = OWN * (u64::from(retry_count) + 1);
            assert_eq!(pair.now.0 - sent[0], asked, "{retry_count} {settings:?}");
            let [early, gave_up, _] = timers(&pair);
            if settings.adaptive {
                // 100 us, 200, 400, 800, 1600, and the timeout itself; from then on the timeout.
                let waits: Vec<u64> = sent.windows(2).map(|w| w[1] - w[0]).take(5).collect();
                assert_eq!(waits, [100_000, 200_000, 400_000, 800_000, 1_600_000]);
                assert_eq!((early, gave_up), (5, 1));
                assert_eq!(sent.len(), 1 + 5 + usize::from(retry_count));
            } else {
                assert_eq!((early, gave_up), (0, 0));
                assert_eq!(sent.len(), 1 + usize::from(retry_count));
            }
        }
    }
}

#[test]
fn naks_between_early_retransmissions_shorten_nothing() {
    // The first packet never arrives, the second always does: gaps are reported as often as the peer likes.
    let mut pair = with(Connection::default(), adaptive(100));
    write(&mut pair, 1, 100);
    run(&mut pair, |_, _| true);
    statuses(&mut pair);
    write(&mut pair, 2, 300);
    let mut first = None;
    let sent = run(&mut pair, |from, packet| {
        let missing = *first.get_or_insert(packet.headers.bth.psn);
        from == 1 || packet.headers.bth.psn != missing
    });
    assert_eq!(statuses(&mut pair), [(2, Status::RetryExceeded)]);
    // One of the four tries was the answer to the NAK, which began the timeout anew.
    assert!(pair.now.0 - sent[0] >= 3 * OWN, "{}", pair.now.0 - sent[0]);
}

#[test]
fn responses_that_are_missing_shorten_nothing() {
    // A READ whose response never arrives, and a WRITE behind it that is acknowledged each time.
    for settings in [ZeroTouch::OFF, adaptive(100)] {
        let mut pair = with(Connection::default(), settings);
        write(&mut pair, 1, 100);
        run(&mut pair, |_, _| true);
        let rkey = pair.sides[1].keys.rkey;
        let a = &mut pair.sides[0];
        let addr = a.va(0);
        a.post(2, SendOp::Read { addr, rkey }, &[a.sge(0, 100)]);
        write(&mut pair, 3, 100);
        let sent = run(&mut pair, |from, packet| {
            let operation = packet.headers.bth.opcode.operation();
            from == 0 || !operation.is_some_and(Operation::is_read_response)
        });
        let all = statuses(&mut pair);
        assert_eq!(all[1], (2, Status::RetryExceeded));
        // Each timeout allows one report that the response is missing (9.7.5.1.1), which uses a retry as well.
        assert!(
            pair.now.0 - sent[0] >= 2 * OWN,
            "{settings:?}: {}",
            pair.now.0 - sent[0]
        );
    }
}

#[test]
fn a_timer_that_doubled_stays_so_until_a_packet_is_acknowledged_that_was_sent_once() {
    let mut pair = with(Connection::default(), adaptive(100));
    write(&mut pair, 1, 100);
    run(&mut pair, |_, _| true);
    let mut wait_after = |lost: usize| {
        write(&mut pair, 2, 100);
        let mut count = 0;
        let sent = run(&mut pair, |from, _| {
            count += usize::from(from == 0);
            from == 1 || count > lost
        });
        sent.windows(2).map(|w| w[1] - w[0]).collect::<Vec<_>>()
    };
    assert_eq!(wait_after(2), [100_000, 200_000]);
    // What was acknowledged there had been sent three times: nothing was measured.
    assert_eq!(wait_after(1), [400_000]);
    assert_eq!(wait_after(0), []);
    assert_eq!(wait_after(1), [100_000]);
    let marks = pair.sides[0].device.marks();
    assert!(marks.get(Mark::KarnSkipped) > 0 && marks.get(Mark::AdaptiveBackoff) > 2);
}

#[test]
fn what_is_sent_again_after_a_nak_is_measured_and_after_a_timeout_is_not() {
    // All is lost, then all but the first packet or the last one: a NAK, or the timeout again.
    for (lost, expected) in [(3, 100_000), (5, 400_000)] {
        let mut pair = with(Connection::default(), adaptive(100));
        write(&mut pair, 1, 100);
        run(&mut pair, |_, _| true);
        write(&mut pair, 2, 600);
        let mut count = 0;
        run(&mut pair, |from, _| {
            let number = count;
            count += usize::from(from == 0);
            from == 1 || number > 2 && number != lost
        });
        write(&mut pair, 3, 100);
        let mut first = true;
        let sent = run(&mut pair, |from, _| from == 1 || !std::mem::take(&mut first));
        assert_eq!(sent[1] - sent[0], expected, "{lost}");
    }
}

#[test]
fn without_a_timeout_there_is_no_timer() {
    let connection = Connection {
        timeout: 0,
        ..Connection::default()
    };
    let mut pair = with(connection, adaptive(1));
    write(&mut pair, 1, 100);
    run(&mut pair, |_, _| true);
    write(&mut pair, 2, 100);
    // (It ends because no timer is left.)
    run(&mut pair, |_, _| false);
    assert_eq!((timers(&pair), pair.sides[0].state()), ([0; 3], QpState::Rts));
    assert_eq!(statuses(&mut pair), [(1, Status::Success)]);
}

#[test]
fn a_stream_is_measured_again_and_again() {
    // The round trip grows from 20 us to a millisecond while something is always under way: the timer follows.
    let mut pair = with(Connection::default(), adaptive(1));
    let mut id = 0;
    let mut delay = DELAY;
    for round in 0..2000 {
        id += 1;
        write(&mut pair, id, 100);
        pair.send(|_, _| true);
        pair.now = Instant(pair.now.0 + delay);
        pair.deliver();
        write(&mut pair, id + 10_000, 100);
        pair.send(|_, _| true);
        pair.now = Instant(pair.now.0 + delay);
        pair.deliver();
        let now = pair.now;
        pair.sides.iter_mut().for_each(|s| s.device.handle_timeout(now));
        pair.sides[0].completions();
        if round == 1000 {
            assert_eq!(timers(&pair)[2], 0);
        }
        if round > 1000 {
            delay = (delay + 1000).min(500_000);
        }
    }
    let early = timers(&pair)[2];
    assert!(early < 5, "{early} retransmissions of what was never lost");
}

#[test]
fn settings_may_change_while_the_timer_runs() {
    for (to, expected) in [(ZeroTouch::OFF, OWN), (adaptive(2000), 2_000_000)] {
        let mut pair = with(Connection::default(), adaptive(100));
        write(&mut pair, 1, 100);
        run(&mut pair, |_, _| true);
        write(&mut pair, 2, 100);
        pair.send(|_, _| false);
        let at = pair.now.0;
        set(&mut pair, to);
        let sent = run(&mut pair, |_, _| true);
        assert_eq!(sent[0] - at, expected, "{to:?}");
        assert_eq!(statuses(&mut pair).len(), 2);
    }
}

/// Loses the second packet of a message of 200.
fn lose_one(pair: &mut Pair) {
    write(pair, 1, 256 * 200);
    let mut count = 0;
    run(pair, |from, _| {
        count += usize::from(from == 0);
        from == 1 || count != 2
    });
}

#[test]
fn slow_restart_needs_no_congestion_control() {
    let slow = ZeroTouch {
        slow_restart: true,
        ..ZeroTouch::OFF
    };
    for (settings, wanted) in [(slow, [1, 0, 1]), (ZeroTouch::OFF, [0; 3])] {
        let mut pair = with(Connection::default(), settings);
        lose_one(&mut pair);
        assert_eq!(restarts(&pair), wanted, "{settings:?}");
        assert_eq!(statuses(&mut pair), [(1, Status::Success)]);
        assert_eq!(pair.sides[0].device.counters().rp_flows_started, 0);
        // From 16 packets, by what is acknowledged: all that was sent again.
        let wanted = if settings.slow_restart {
            16 + 199
        } else {
            WINDOW_MAX
        };
        assert_eq!(window(&mut pair), wanted);
    }
}

#[test]
fn a_restart_begins_with_a_few_packets_and_doubles_each_round_trip() {
    let slow = ZeroTouch {
        slow_restart: true,
        ..ZeroTouch::OFF
    };
    let mut pair = with(Connection::default(), slow);
    write(&mut pair, 1, 256 * 200);
    let mut count = 0;
    let sent = run(&mut pair, |from, _| {
        count += usize::from(from == 0);
        from == 1 || count != 2
    });
    let mut bursts: Vec<(u64, usize)> = Vec::new();
    for at in sent {
        match bursts.last_mut() {
            Some((last, many)) if *last == at => *many += 1,
            _ => bursts.push((at, 1)),
        }
    }
    let many: Vec<usize> = bursts.iter().map(|(_, many)| *many).collect();
    assert_eq!(many[..4], [200, 16, 32, 64], "{many:?}");
}

#[test]
fn an_idle_time_restarts_without_congestion_control() {
    for (idle, after, wanted) in [(true, 1_100, 1), (true, 900, 0), (false, 1_100, 0)] {
        let settings = ZeroTouch {
            slow_restart_idle: idle,
            ..ZeroTouch::OFF
        };
        let mut pair = with(Connection::default(), settings);
        // The first message of all follows no idle time.
        pair.now = Instant(1 << 40);
        write(&mut pair, 1, 256);
        run(&mut pair, |_, _| true);
        assert_eq!(restarts(&pair), [0; 3]);
        let end = pair.sides[0].completions().len() as u64;
        assert_eq!(end, 1);
        // (Timers may have run after the acknowledge.)
        write(&mut pair, 2, 256);
        pair.send(|_, _| true);
        pair.deliver();
        pair.send(|_, _| true);
        pair.deliver();
        let before = restarts(&pair)[0];
        pair.now = Instant(pair.now.0 + after * 1000);
        write(&mut pair, 3, 256);
        pair.send(|_, _| true);
        assert_eq!(restarts(&pair)[0] - before, wanted, "{idle} {after}");
    }
}

#[test]
fn the_window_is_as_large_as_the_operator_says() {
    for window in [1, 2, 8, 1000] {
        let settings = ZeroTouch {
            limited: true,
            window,
            ..ZeroTouch::OFF
        };
        let connection = Connection::default();
        let mut pair = Pair::new(QpType::Rc, connection);
        // It acts on queue pairs that are connected already.
        write(&mut pair, 1, 100);
        set(&mut pair, settings);
        run(&mut pair, |_, _| true);
        statuses(&mut pair);
        write(&mut pair, 2, 256 * 2000);
        pair.send(|_, _| true);
        assert_eq!(pair.wire[0].len() as u32, window);
        run(&mut pair, |_, _| true);
        assert_eq!(statuses(&mut pair), [(2, Status::Success)]);
        assert!(pair.sides[0].device.marks().get(Mark::WindowClosed) > 0);
    }
    // Without a limit all goes at once.
    let mut pair = with(Connection::default(), ZeroTouch::OFF);
    write(&mut pair, 2, 256 * 2000);
    pair.send(|_, _| true);
    assert_eq!(pair.wire[0].len(), 2000);
}

#[test]
fn a_window_behind_a_read_asks_for_its_acknowledge() {
    // Without an ACK timer nothing else would move it.
    let connection = Connection {
        timeout: 0,
        ..Connection::default()
    };
    let limited = ZeroTouch {
        limited: true,
        window: 2,
        ..ZeroTouch::OFF
    };
    let mut pair = with(connection, limited);
    let rkey = pair.sides[1].keys.rkey;
    let a = &mut pair.sides[0];
    let op = SendOp::Read { addr: a.va(0), rkey };
    a.post(1, op, &[a.sge(10_000, 5 * 256)]);
    pair.send(|_, _| true);
    pair.deliver();
    pair.send(|_, _| true);
    // (With credits each packet would ask.)
    for packet in &mut pair.wire[1] {
        if let Extended::Aeth(aeth) = &mut packet.headers.extended {
            aeth.syndrome = Syndrome::Ack {
                credits: CREDITS_INVALID,
            };
        }
    }
    // Three of the five responses come, and two packets of a WRITE leave.
    let rest = pair.wire[1].split_off(3);
    pair.deliver();
    write(&mut pair, 2, 6 * 256);
    let now = pair.now;
    for _ in 0..2 {
        let a = &mut pair.sides[0];
        let mut one = One(None);
        a.device.transmit(now, &a.ram, &mut one);
        pair.wire[0].extend(one.0);
    }
    pair.wire[1].extend(rest);
    pair.deliver();
    run(&mut pair, |_, _| true);
    assert_eq!(statuses(&mut pair), [(1, Status::Success), (2, Status::Success)]);
}

/// Takes one packet.
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

#[test]
fn a_window_that_becomes_smaller_under_way_lets_go_on() {
    let connection = Connection {
        retry_count: 0,
        ..Connection::default()
    };
    let mut pair = with(connection, ZeroTouch::OFF);
    // A part of a message is out that asks for no acknowledge.
    let limit = |rate| RateLimit {
        rate,
        max_burst: 0,
        typical_packet: 0,
    };
    let qp = pair.sides[0].qp;
    let slow = pair.sides[0].device.set_qp_rate(qp, limit(100_000), pair.now);
    slow.expect("a rate");
    write(&mut pair, 1, 40 * 256);
    for _ in 0..6 {
        pair.send(|_, packet| {
            assert!(!packet.headers.bth.ack_request);
            true
        });
        pair.now = pair.now + us(30);
        let now = pair.now;
        pair.sides[0].device.handle_timeout(now);
    }
    assert_eq!(pair.wire[0].len(), 6);
    let small = ZeroTouch {
        limited: true,
        window: 2,
        ..ZeroTouch::OFF
    };
    set(&mut pair, small);
    let fast = pair.sides[0].device.set_qp_rate(qp, limit(0), pair.now);
    fast.expect("no rate");
    run(&mut pair, |_, _| true);
    let done: Vec<_> = pair.sides[0].completions().iter().map(|c| c.status).collect();
    assert_eq!(done, [Status::Success]);
    assert_eq!(pair.sides[0].device.counters().local_ack_timeout_err, 0);
    // The small one counts from then on.
    assert!(pair.sides[0].device.marks().get(Mark::WindowClosed) > 0);
}
