//! What acknowledges tell: bytes, round-trip times, telemetry.

use vnic_engine::congestion::{Limits, Needs, UNLIMITED};
use vnic_engine::rdma::{QpType, SendOp, Status};
use vnic_wire::int::{Hop, Telemetry};
use vnic_wire::time::Instant;

use super::super::harness::{Connection, Pair};
use super::*;

fn control(needs: Needs) -> Scripted {
    Scripted::new(Needs {
        from_start: true,
        ..needs
    })
}

fn writes(control: &Scripted, messages: &[u32]) -> Pair {
    // Enough retries for any loss.
    let connection = Connection {
        retry_count: 7,
        ..Connection::default()
    };
    let mut pair = Pair::new(QpType::Rc, connection);
    pair.sides[0]
        .device
        .set_congestion(control.congestion(), Instant(0));
    let rkey = pair.sides[1].keys.rkey;
    let a = &mut pair.sides[0];
    let addr = a.va(0);
    for (id, len) in messages.iter().enumerate() {
        a.post(id as u64, SendOp::Write { addr, rkey }, &[a.sge(0, *len)]);
    }
    pair
}

/// (round-trip time, acknowledged, sent, bytes) of each acknowledge.
fn acks(heard: &[Heard]) -> Vec<(Option<u64>, u64, u64, u32)> {
    let all = heard.iter().filter_map(|h| match h {
        Heard::Ack {
            rtt,
            acked,
            sent,
            bytes,
            ..
        } => Some((*rtt, *acked, *sent, *bytes)),
        _ => None,
    });
    all.collect()
}

#[test]
fn bytes_and_round_trip_times() {
    let control = control(Needs::default());
    let mut pair = writes(&control, &[1000, 300, 8]);
    shuttle(&mut pair, 700, 4);
    // One acknowledge for all: the responder sends it when it has its turn.
    assert_eq!(acks(&control.take()), [(Some(1400), 1308, 1308, 1308)]);
    assert_eq!(pair.sides[0].completions().len(), 3);
}

#[test]
fn acknowledges_come_as_often_as_wanted() {
    for (ack_every, asked) in [(0, 1), (1, 40), (256, 40), (257, 20), (1024, 10), (5000, 2)] {
        let needs = Needs {
            ack_every,
            ..Needs::default()
        };
        let control = control(needs);
        let mut pair = writes(&control, &[40 * 256]);
        let sent = transmit(&mut pair.sides[0], Instant(0));
        assert_eq!(sent.len(), 40);
        let asks = sent.iter().filter(|p| p.headers.bth.ack_request).count();
        // (The last packet asks in any case.)
        assert!(asks.abs_diff(asked) <= 1, "{ack_every}: {asks}");
        // Each is answered when the responder has a turn after each packet.
        for packet in &sent {
            deliver(&mut pair.sides[1], Instant(500), packet);
            for ack in transmit(&mut pair.sides[1], Instant(500)) {
                deliver(&mut pair.sides[0], Instant(1000), &ack);
            }
        }
        let acks = acks(&control.take());
        assert_eq!(acks.len(), asks);
        assert_eq!(
            acks.last(),
            Some(&(Some(1000), 10240, 10240, acks.last().unwrap().3))
        );
        assert_eq!(acks.iter().map(|a| u64::from(a.3)).sum::<u64>(), 10240);
    }
}

#[test]
fn what_was_sent_twice_has_no_round_trip_time() {
    let control = control(Needs {
        ack_every: 1,
        ..Needs::default()
    });
    let mut pair = writes(&control, &[4 * 256]);
    let sent = transmit(&mut pair.sides[0], Instant(0));
    // The second one is lost; the first is acknowledged, the third says so.
    for i in [0, 2, 3] {
        deliver(&mut pair.sides[1], Instant(500), &sent[i]);
        for answer in transmit(&mut pair.sides[1], Instant(500)) {
            deliver(&mut pair.sides[0], Instant(1000), &answer);
        }
    }
    assert_eq!(acks(&control.take()), [(Some(1000), 256, 1024, 256)]);
    pair.sides[0].post(
        9,
        SendOp::Write {
            addr: 0x4000_0000,
            rkey: pair.sides[1].keys.rkey,
        },
        &[],
    );
    let again = transmit(&mut pair.sides[0], Instant(1000));
    assert_eq!(again.len(), 4);
    for packet in &again {
        deliver(&mut pair.sides[1], Instant(1500), packet);
        for answer in transmit(&mut pair.sides[1], Instant(1500)) {
            deliver(&mut pair.sides[0], Instant(2000), &answer);
        }
    }
    // Bytes count, times do not.
    let wanted = [512, 768, 1024].map(|acked| (None, acked, 1024, 256));
    assert_eq!(acks(&control.take()), wanted);
    // What is new has one again.
    let rkey = pair.sides[1].keys.rkey;
    let a = &mut pair.sides[0];
    let addr = a.va(0);
    a.post(10, SendOp::Write { addr, rkey }, &[a.sge(0, 10)]);
    pair.now = Instant(5000);
    shuttle(&mut pair, 300, 3);
    assert_eq!(acks(&control.take()), [(Some(600), 1034, 1034, 10)]);
}

#[test]
fn telemetry_goes_there_and_back() {
    let control = control(Needs {
        telemetry: true,
        ack_every: 1,
        ..Needs::default()
    });
    let mut pair = writes(&control, &[512]);
    let mut sent = transmit(&mut pair.sides[0], Instant(0));
    assert_eq!(sent.len(), 2);
    let mut wrote = [Telemetry::EMPTY; 2];
    for (i, packet) in sent.iter_mut().enumerate() {
        let telemetry = packet.telemetry.as_mut().unwrap();
        assert_eq!(*telemetry, Telemetry::EMPTY);
        let hop = Hop {
            timestamp: 5,
            sent: i as u32,
            queue: 3,
            speed: 2,
        };
        telemetry.push(7, hop);
        telemetry.endpoint = 99;
        wrote[i] = *telemetry;
        deliver(&mut pair.sides[1], Instant(0), packet);
    }
    // Both are acknowledged together, with what the newest one has gathered; not a second time.
    let answers = transmit(&mut pair.sides[1], Instant(0));
    assert_eq!((answers.len(), answers[0].telemetry), (1, Some(wrote[1])));
    deliver(&mut pair.sides[0], Instant(1), &answers[0]);
    let heard = control.take();
    let told = heard.iter().find_map(|h| match h {
        Heard::Ack { telemetry, .. } => *telemetry,
        _ => None,
    });
    assert_eq!(told, Some(wrote[1]));
    // A request without any has an answer without.
    sent[1].telemetry = None;
    deliver(&mut pair.sides[1], Instant(0), &sent[1]);
    let answers = transmit(&mut pair.sides[1], Instant(0));
    assert_eq!((answers.len(), answers[0].telemetry), (1, None));
}

#[test]
fn nothing_is_gathered_for_who_does_not_want_it() {
    let control = control(Needs::default());
    let mut pair = writes(&control, &[512]);
    let sent = transmit(&mut pair.sides[0], Instant(0));
    assert!(sent.iter().all(|p| p.telemetry.is_none()));
}

#[test]
fn acknowledges_tell_hops_and_marks() {
    let rows = [
        (64, false, false, 0),
        (61, true, false, 3),
        (120, false, true, 8),
        (250, true, true, 5),
    ];
    for (limit, fecn, becn, hops) in rows {
        let control = control(Needs::default());
        let mut pair = writes(&control, &[100]);
        let sent = transmit(&mut pair.sides[0], Instant(0));
        deliver(&mut pair.sides[1], Instant(0), &sent[0]);
        let mut ack = transmit(&mut pair.sides[1], Instant(0)).remove(0);
        ack.path.network.set_hop_limit(limit);
        (ack.headers.bth.fecn, ack.headers.bth.becn) = (fecn, becn);
        deliver(&mut pair.sides[0], Instant(10), &ack);
        let heard = control.take();
        let wanted = Heard::Ack {
            rtt: Some(10),
            acked: 100,
            sent: 100,
            bytes: 100,
            hops,
            marked: fecn || becn,
            telemetry: None,
        };
        assert!(heard.contains(&wanted), "{heard:?}");
        let notified = heard.iter().any(|h| matches!(h, Heard::Cnp(_)));
        assert_eq!(notified, becn);
    }
    // BECN also makes a limiter.
    let control = Scripted::rate(1_000_000);
    let mut pair = writes(&control, &[100]);
    let sent = transmit(&mut pair.sides[0], Instant(0));
    deliver(&mut pair.sides[1], Instant(0), &sent[0]);
    let mut ack = transmit(&mut pair.sides[1], Instant(0)).remove(0);
    ack.headers.bth.becn = true;
    deliver(&mut pair.sides[0], Instant(10), &ack);
    assert_eq!(control.alive(), 1);
    // A stale one does not.
    assert_eq!(pair.sides[0].device.counters().rp_cnp_handled, 0);
    deliver(&mut pair.sides[0], Instant(20), &ack);
    let heard = control.take();
    assert_eq!(heard.iter().filter(|h| matches!(h, Heard::Cnp(_))).count(), 1);
}

#[test]
fn reads_and_their_responses_acknowledge_what_was_before() {
    let control = control(Needs::default());
    let mut pair = writes(&control, &[1000]);
    let rkey = pair.sides[1].keys.rkey;
    let a = &mut pair.sides[0];
    let addr = a.va(0);
    a.post(7, SendOp::Read { addr, rkey }, &[a.sge(0, 2000)]);
    a.post(8, SendOp::Write { addr, rkey }, &[a.sge(0, 700)]);
    shuttle(&mut pair, 100, 6);
    let told = acks(&control.take());
    // The response says that the WRITE before it has arrived, but not which copy.
    assert_eq!(told[0], (None, 1000, 1700, 1000));
    assert_eq!(told.last().map(|t| (t.1, t.2)), Some((1700, 1700)));
    assert_eq!(pair.sides[0].completions().len(), 3);
}

/// The bytes that are in the network, for all orders of losses: what was acknowledged is never more than what was sent,
/// and in the end all is.
#[test]
fn bytes_are_exact_whatever_is_lost() {
    for seed in 0..200u64 {
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut draw = move || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random
        };
        let needs = Needs {
            ack_every: [0, 1, 700][seed as usize % 3],
            loss: true,
            ..Needs::default()
        };
        let control = control(needs);
        control.set(Limits {
            rate: [UNLIMITED, 10_000_000_000][seed as usize % 2],
            window: [UNLIMITED, 1000, 5000][seed as usize / 2 % 3],
        });
        let sizes: Vec<u32> = (0..12).map(|_| (draw() % 3000) as u32).collect();
        let mut pair = writes(&control, &sizes);
        let mut lost = 0;
        pair.run_losing(5000, |_, _| {
            let loses = draw() % 8 == 0 && lost < 2;
            lost = if loses { lost + 1 } else { 0 };
            !loses
        });
        let done = pair.sides[0].completions();
        assert!(
            done.len() == 12 && done.iter().all(|c| c.status == Status::Success),
            "seed {seed}: {done:?}"
        );
        let total: u64 = sizes.iter().map(|s| u64::from(*s)).sum();
        let told = acks(&control.take());
        assert!(told.iter().all(|(_, acked, sent, _)| acked <= sent));
        let acked: u64 = told.iter().map(|t| u64::from(t.3)).sum();
        assert_eq!(acked, total, "seed {seed}");
    }
}

fn reads(pair: &mut Pair, lens: &[u32]) {
    let rkey = pair.sides[1].keys.rkey;
    let a = &mut pair.sides[0];
    for (id, len) in lens.iter().enumerate() {
        let addr = a.va(0);
        a.post(id as u64, SendOp::Read { addr, rkey }, &[a.sge(0, *len)]);
    }
}

/// All responses that the second side has are taken; then one after the other comes, `apart` from each other.
fn respond(pair: &mut Pair, requests: &[Packet], at: u64, apart: u64) -> u64 {
    for packet in requests {
        deliver(&mut pair.sides[1], Instant(at), packet);
    }
    let mut now = at;
    for response in transmit(&mut pair.sides[1], Instant(at)) {
        now += apart;
        deliver(&mut pair.sides[0], Instant(now), &response);
    }
    now
}

#[test]
fn responses_are_the_acknowledge_of_a_read() {
    let needs = Needs {
        ack_every: 1,
        ..Needs::default()
    };
    let control = control(needs);
    let mut pair = writes(&control, &[]);
    reads(&mut pair, &[600, 100]);
    let asked = transmit(&mut pair.sides[0], Instant(1000));
    assert_eq!(asked.len(), 2);
    let heard = control.take();
    assert!(
        heard.contains(&Heard::Sent(600)) && heard.contains(&Heard::Sent(100)),
        "{heard:?}"
    );
    // Each response is heard with the delay of the first one of its READ, whatever time the others take.
    respond(&mut pair, &asked, 1500, 100);
    assert_eq!(
        acks(&control.take()),
        [
            (Some(600), 256, 700, 256),
            (Some(600), 512, 700, 256),
            (Some(600), 600, 700, 88),
            (Some(900), 700, 700, 100),
        ]
    );
    assert_eq!(pair.sides[0].completions().len(), 2);
    // What was asked for again has no time.
    reads(&mut pair, &[100]);
    assert_eq!(transmit(&mut pair.sides[0], Instant(3000)).len(), 1);
    let later = time_out(&mut pair.sides[0], &control);
    let again = transmit(&mut pair.sides[0], later);
    respond(&mut pair, &again, later.0, 50);
    assert_eq!(acks(&control.take()), [(None, 800, 800, 100)]);
}

#[test]
fn a_window_holds_reads() {
    let needs = Needs {
        ack_every: 1,
        ..Needs::default()
    };
    let control = control(needs);
    control.set(Limits {
        rate: UNLIMITED,
        window: 1000,
    });
    let mut pair = writes(&control, &[]);
    reads(&mut pair, &[600, 300, 200, 5000, 10]);
    let mut now = 0;
    // Whatever is longer than the window goes alone.
    for wanted in [&[600, 300][..], &[200], &[5000], &[10]] {
        let asked = transmit(&mut pair.sides[0], Instant(now));
        let lens: Vec<u32> = asked.iter().map(read_len).collect();
        assert_eq!(lens, wanted);
        assert!(transmit(&mut pair.sides[0], Instant(now)).is_empty());
        now = respond(&mut pair, &asked, now + 10, 1);
    }
    assert_eq!(pair.sides[0].completions().len(), 5);
}

fn read_len(packet: &Packet) -> u32 {
    match packet.headers.extended {
        Extended::Reth(reth) => reth.len,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_rate_holds_reads() {
    // 8 Gbit/s: a byte a ns.
    let needs = Needs {
        ack_every: 1,
        ..Needs::default()
    };
    let control = control(needs);
    control.set(Limits {
        rate: 8_000_000_000,
        window: UNLIMITED,
    });
    let mut pair = writes(&control, &[]);
    reads(&mut pair, &[10_000, 300]);
    assert_eq!(transmit(&mut pair.sides[0], Instant(0)).len(), 1);
    // The request, and 40 responses, each with what a packet has besides its payload.
    let request = 14 + 20 + 8 + 12 + 16 + 4 + 24;
    let responses = 10_000 + 40 * (14 + 20 + 8 + 12 + 4 + 24);
    let due = request + responses;
    assert!(transmit(&mut pair.sides[0], Instant(due - 1)).is_empty());
    assert_eq!(transmit(&mut pair.sides[0], Instant(due)).len(), 1);
}

/// Notifications reach the responder, so that an algorithm that hears them counts no READs.
#[test]
fn reads_are_the_responders_where_notifications_are_heard() {
    let control = control(Needs::default());
    control.set(Limits {
        rate: 8_000_000_000,
        window: 1,
    });
    let mut pair = writes(&control, &[]);
    reads(&mut pair, &[10_000, 300]);
    transmit(&mut pair.sides[0], Instant(0));
    let asked = transmit(&mut pair.sides[0], Instant(98));
    assert_eq!(asked.len(), 1, "the time of one request");
    let heard = control.take();
    assert!(
        heard.contains(&Heard::Sent(0)) && !heard.contains(&Heard::Sent(300)),
        "{heard:?}"
    );
}
