//! Limits, turns and pause in virtual time.

use super::*;
use vnic_engine::rdma::Marking;
use vnic_engine::virtio_net::NetHdr;
use vnic_fabric::qos::{Classes, PortQos, ScheduleQueue, Tsa, VlArbitration};

const SECOND: u64 = 1_000_000_000;
const NOTHING: PauseState = PauseState {
    priorities: 0,
    global: false,
};

fn sender(qos: PortQos) -> Sender {
    let change = QosChange {
        qos,
        marking: Marking::default(),
    };
    Sender::new(Arc::new(change), Instant(0))
}

fn limited(limits: &[(usize, u64)]) -> Classes {
    let mut classes = Classes::default();
    for (tc, rate) in limits {
        classes.limit[*tc] = *rate;
    }
    classes
}

/// A sender that always has frames of this priority and length.
struct Source {
    who: Member,
    priority: u8,
    wire: u64,
    sent: u64,
}

fn source(pair: usize, priority: u8, wire: u64) -> Source {
    Source {
        who: Member::queue(pair),
        priority,
        wire,
        sent: 0,
    }
}

/// Each source sends what it may for `ns` ns; rounds take `step` ns, and the same source always comes first.
fn run(s: &mut Sender, sources: &mut [Source], from: u64, ns: u64, step: u64) {
    let mut now = from;
    while now < from + ns {
        for source in &mut *sources {
            for _ in 0..32 {
                if !s.may_send(NOTHING, Instant(now), source.who, source.priority) {
                    break;
                }
                s.charge_bytes(Instant(now), None, source.who, source.priority, source.wire);
                source.sent += source.wire;
            }
        }
        now += step;
    }
}

/// Checks that two numbers differ by at most `parts` in ten thousand.
#[track_caller]
fn near(got: u64, wanted: u64, parts: u64) {
    assert!(
        got.abs_diff(wanted) * 10_000 <= wanted * parts,
        "{got} instead of {wanted}"
    );
}

#[test]
fn rates_are_kept_however_late_the_core_looks() {
    for rate in [1_000_000_000, 5_000_000_000, 10_000_000_000] {
        // A round that takes 2 ms cannot send more than its burst.
        for (step, wire) in [(1_000, 88), (1_000, 1538), (200_000, 9_024), (2_000_000, 65_000)] {
            if 32 * wire * 8 * SECOND / step < rate {
                continue;
            }
            let by_link = PortQos {
                rate,
                ..PortQos::default()
            };
            let by_class = PortQos {
                classes: limited(&[(3, rate)]),
                ..PortQos::default()
            };
            let by_queue = PortQos {
                queue: Some(ScheduleQueue {
                    limit: [rate; 8],
                    guarantee: [0; 8],
                }),
                ..PortQos::default()
            };
            for qos in [by_link, by_class, by_queue] {
                let mut s = sender(qos);
                let mut one = [source(0, 3, wire)];
                let part = if step > 1_000 { 1 } else { 20 };
                run(&mut s, &mut one, SECOND, SECOND / part, step);
                near(one[0].sent, rate / 8 / part, 50);
            }
        }
    }
}

/// A ring of 300 us at 12 Gbit/s, a limit of 10; the core is away 2 ms of 20, or 12 ms, of which 5 count.
#[test]
fn a_core_that_was_away_catches_up_with_a_short_ring() {
    const STEP: u64 = 10_000;
    let sent_in = |told: bool, away: u64| {
        let mut s = sender(PortQos {
            classes: limited(&[(3, 10_000_000_000)]),
            ..PortQos::default()
        });
        let who = Member::queue(0);
        let (mut sent, mut last) = (0_u32, SECOND);
        for step in 1..SECOND / 5 / STEP {
            let (now, back) = (SECOND + step * STEP, step * STEP % (SECOND / 50) == away);
            if step * STEP % (SECOND / 50) < away {
                continue;
            }
            if told && now - last > STEP {
                s.was_away(Away::new(Instant(last), Instant(now)));
            }
            last = now;
            let room = if back { 390_000 } else { 15_000 } / 1538;
            let mut left = room;
            while left > 0 && s.may_send(NOTHING, Instant(now), who, 3) {
                s.charge_bytes(Instant(now), None, who, 3, 1538);
                (sent, left) = (sent + 1538, left - 1);
            }
            if left == 0 {
                // The ring is empty.
                s.leave(who);
            }
        }
        f64::from(sent) / 250_000_000.0
    };
    let (kept, lost) = (sent_in(true, 2_000_000), sent_in(false, 2_000_000));
    assert!((0.985..1.001).contains(&kept), "{kept}");
    assert!(lost < 0.95, "{lost}");
    let bounded = sent_in(true, 12_000_000);
    assert!(bounded < 0.75, "{bounded}");
}

#[test]
fn a_limit_concerns_its_class_only() {
    let mut s = sender(PortQos {
        classes: limited(&[(3, 1_000_000_000)]),
        rate: 10_000_000_000,
        ..PortQos::default()
    });
    let mut both = [source(0, 3, 1538), source(1, 5, 1538)];
    run(&mut s, &mut both, SECOND, SECOND / 20, 1_000);
    near(both[0].sent, 125_000_000 / 20, 50);
    near(both[1].sent, 1_125_000_000 / 20, 50);
    // By class, not by priority: priorities 0 and 1 change places.
    let now = Instant(3 * SECOND);
    let mut s = sender(PortQos {
        classes: limited(&[(0, 1_000_000)]),
        ..PortQos::default()
    });
    s.charge_bytes(now, None, Member::RDMA, 1, 100_000);
    assert_eq!(s.open(NOTHING, now), 0b1111_1101);
    assert_eq!(s.due(NOTHING, now, 0b11), Some(now));
    let due = s.due(NOTHING, now, 0b10).expect("a time");
    assert_eq!(s.open(NOTHING, due), 0xff);
    assert_eq!(s.open(NOTHING, Instant(due.0 - 1)), 0b1111_1101);
}

#[test]
fn whoever_shares_a_limit_gets_the_same_of_it() {
    let mut s = sender(PortQos {
        rate: 1_000_000_000,
        ..PortQos::default()
    });
    // Long and short frames, and the RDMA function comes last. Classes have equal turns, and members of one class.
    let rdma = |priority| Source {
        who: Member::RDMA,
        ..source(3, priority, 4_160)
    };
    let mut all = [source(0, 0, 9_024), source(1, 0, 88), source(2, 0, 1538), rdma(0)];
    run(&mut s, &mut all, SECOND, SECOND / 10, 1_000);
    for one in &all {
        near(one.sent, 125_000_000 / 40, 100);
    }
    let mut all = [source(0, 0, 9_024), source(1, 0, 88), source(2, 6, 1538), rdma(4)];
    run(&mut s, &mut all, SECOND + SECOND / 10, SECOND / 10, 1_000);
    for (one, part) in all.iter().zip([6, 6, 3, 3]) {
        near(one.sent, 12_500_000 / part, 200);
    }
    // Two sources that share a class.
    let mut s = sender(PortQos {
        classes: limited(&[(3, 1_000_000_000)]),
        ..PortQos::default()
    });
    let mut all = [source(0, 3, 9_024), source(1, 3, 1538)];
    run(&mut s, &mut all, SECOND, SECOND / 10, 1_000);
    for one in &all {
        near(one.sent, 125_000_000 / 20, 100);
    }
}

/// The adapter's rate by the classes' order, at the sending end, too: the RDMA function beside transmit queues.
#[test]
fn classes_share_the_rate_in_their_order() {
    let ets = |share: &[(usize, u8)]| {
        let mut classes = Classes::default();
        for (tc, percent) in share {
            (classes.tsa[*tc], classes.share[*tc]) = (Tsa::Ets, *percent);
        }
        classes
    };
    let rdma = |priority, wire| Source {
        who: Member::RDMA,
        ..source(0, priority, wire)
    };
    for (rdma_share, ethernet) in [(50, 50), (20, 80), (90, 10), (1, 99)] {
        for wire in [88, 1538, 9_024] {
            let mut s = sender(PortQos {
                rate: 1_000_000_000,
                classes: ets(&[(3, rdma_share), (5, ethernet)]),
                ..PortQos::default()
            });
            // Two queues share the other class.
            let mut all = [source(0, 5, wire), source(1, 5, 1538), rdma(3, 4_160)];
            run(&mut s, &mut all, SECOND, SECOND / 5, 1_000);
            let of = |percent: u8| 25_000_000 * u64::from(percent) / 100;
            near(all[2].sent, of(rdma_share), 200);
            near(all[0].sent + all[1].sent, of(ethernet), 200);
            near(all[0].sent, of(ethernet) / 2, 200);
            // Alone it has all.
            let before = all[2].sent;
            s.leave(Member::queue(0));
            s.leave(Member::queue(1));
            run(&mut s, &mut all[2..], SECOND + SECOND / 5, SECOND / 10, 1_000);
            near(all[2].sent - before, 12_500_000, 200);
        }
    }
    // Strict classes come first; what they leave is shared.
    let mut classes = ets(&[(3, 25), (5, 75)]);
    classes.tsa[6] = Tsa::Strict;
    classes.limit[6] = 400_000_000;
    let mut s = sender(PortQos {
        rate: 1_000_000_000,
        classes,
        ..PortQos::default()
    });
    let mut all = [source(0, 5, 1538), rdma(3, 4_160), source(2, 6, 1538)];
    run(&mut s, &mut all, SECOND, SECOND / 5, 1_000);
    near(all[2].sent, 10_000_000, 200);
    near(all[1].sent, 15_000_000 / 4, 200);
    near(all[0].sent, 15_000_000 * 3 / 4, 200);
}

/// Arbitration tables are the classes' order at the sending end, too.
#[test]
fn lanes_share_the_rate_by_their_tables() {
    let mut classes = limited(&[(6, 400_000_000)]);
    classes.arbitration = Some(VlArbitration {
        high: vec![(6, 255)],
        // In units of 64 bytes: one packet of the RDMA function, and nine frames, of which the last one begins within the weight.
        low: vec![(3, 65), (5, 195), (0, 1), (1, 1), (2, 1), (4, 1), (7, 1)],
        high_limit: 255,
    });
    let mut s = sender(PortQos {
        rate: 1_000_000_000,
        classes,
        ..PortQos::default()
    });
    let rdma = Source {
        who: Member::RDMA,
        ..source(0, 3, 4_160)
    };
    let mut all = [source(0, 5, 1538), rdma, source(2, 6, 1538)];
    run(&mut s, &mut all, SECOND, SECOND / 5, 1_000);
    near(all[2].sent, 10_000_000, 200);
    let both = 4_160 + 9 * 1_538;
    near(all[1].sent, 15_000_000 * 4_160 / both, 100);
    near(all[0].sent, 15_000_000 * 9 * 1_538 / both, 100);
}

/// Two queues wait for a limit of their class, while a third one sends: they do not wait for each other when the class opens.
#[test]
fn nobody_waits_for_each_other() {
    let mut s = sender(PortQos {
        classes: limited(&[(3, 100_000_000)]),
        rate: 1_000_000_000,
        ..PortQos::default()
    });
    let mut all = [source(0, 3, 1538), source(1, 3, 9_024), source(2, 5, 1538)];
    run(&mut s, &mut all, SECOND, SECOND / 5, 1_000);
    near(all[0].sent + all[1].sent, 2_500_000, 200);
    near(all[0].sent, 1_250_000, 200);
    near(all[2].sent, 22_500_000, 200);
}

/// Classes of one member, which asks for them all.
#[test]
fn classes_of_one_member_share_the_rate() {
    let mut classes = Classes::default();
    for (tc, percent) in [(3, 30), (5, 70)] {
        (classes.tsa[tc], classes.share[tc]) = (Tsa::Ets, percent);
    }
    let mut s = sender(PortQos {
        rate: 1_000_000_000,
        classes,
        ..PortQos::default()
    });
    let mut sent = [0; 8];
    for now in (SECOND..SECOND + SECOND / 5).step_by(1_000) {
        let now = Instant(now);
        let both = 1 << 3 | 1 << 5;
        for _ in 0..32 {
            let open = s.open(NOTHING, now) & !s.others(now, Member::RDMA) & both;
            let Some(p) = (0..8).find(|p| open >> p & 1 != 0) else {
                break;
            };
            s.charge_bytes(now, None, Member::RDMA, p, 4_160);
            sent[usize::from(p)] += 4_160;
        }
        s.wait(now, Member::RDMA, both);
    }
    near(sent[3], 7_500_000, 200);
    near(sent[5], 17_500_000, 200);
}

#[test]
fn nobody_waits_for_one_who_does_not_come() {
    let mut s = sender(PortQos {
        rate: 1_000_000_000,
        ..PortQos::default()
    });
    let mut both = [source(0, 0, 1538), source(1, 0, 1538)];
    run(&mut s, &mut both, SECOND, SECOND / 100, 1_000);
    // A source stops, once without a report and once with [`Sender::leave`].
    for leaves in [false, true] {
        let before = both[0].sent;
        let from = SECOND + SECOND / 100 + u64::from(leaves) * SECOND / 10;
        if leaves {
            s.leave(Member::queue(1));
        }
        run(&mut s, &mut both[..1], from, SECOND / 10, 1_000);
        near(both[0].sent - before, 12_500_000, 100);
    }
}

#[test]
fn another_rate_acts_at_once_and_what_is_owed_is_paid() {
    let qos = |rate| PortQos {
        rate,
        ..PortQos::default()
    };
    let mut s = sender(qos(1_000_000));
    let now = Instant(SECOND);
    s.charge_bytes(now, None, Member::queue(0), 0, 125_000);
    let due = s.due(NOTHING, now, 1).expect("a time");
    assert!(due.since(now) > Duration::from_millis(990));
    let change = |rate| {
        Arc::new(QosChange {
            qos: qos(rate),
            marking: Marking::default(),
        })
    };
    s.configure(&change(1_000_000_000), now);
    let due = s.due(NOTHING, now, 1).expect("a time");
    assert!(due.since(now) < Duration::from_millis(2));
    assert!(due > now);
    s.configure(&change(0), now);
    assert_eq!(s.open(NOTHING, now), 0xff);
}

#[test]
fn pause_is_obeyed_as_configured() {
    let state = |priorities, global| PauseState { priorities, global };
    let pause = |pfc, global_rx| PauseSettings {
        pfc,
        global_rx,
        ..PauseSettings::default()
    };
    for (settings, says, paused) in [
        (pause(0, false), state(0xff, true), 0),
        (pause(0, true), state(0xff, true), 0xff),
        (pause(0, true), state(0xff, false), 0),
        // With priority flow control there is no global pause.
        (pause(0b1000, true), state(0, true), 0),
        (pause(0b1000, true), state(0b1111, true), 0b1000),
        (pause(0b1000, false), state(0b0111, false), 0),
    ] {
        let mut s = sender(PortQos {
            pause: settings,
            ..PortQos::default()
        });
        let now = Instant(SECOND);
        assert_eq!(s.paused(says), paused, "{settings:?} {says:?}");
        assert_eq!(s.open(says, now), !paused);
        for p in 0..8 {
            let may = s.may_send(says, now, Member::queue(0), p);
            assert_eq!(may, paused >> p & 1 == 0, "{settings:?} {says:?} {p}");
        }
        let look = (paused != 0).then(|| now + PAUSE_LOOK);
        assert_eq!(s.due(says, now, paused), look);
    }
}

#[test]
fn bytes_on_the_wire() {
    let f = |head: &[u8], len: usize, hdr: NetHdr| {
        on_wire(&RawFrame {
            head,
            len,
            hdr,
            segs: &[],
            skip: 0,
        })
    };
    assert_eq!(f(&[0; 64], 1514, NetHdr::default()), 1538);
    // Short frames are padded.
    assert_eq!(f(&[0; 42], 42, NetHdr::default()), 84);
    // Headers of 54 bytes, 3000 bytes of payload in pieces of 1000 and of 1448.
    let mut head = [0; 64];
    head[12..14].copy_from_slice(&[8, 0]);
    head[14] = 0x45;
    head[23] = 6;
    head[46] = 0x50;
    for (size, frames) in [(1000, 3), (1448, 3), (1500, 2), (3000, 1), (9000, 1)] {
        let hdr = NetHdr {
            flags: NetHdr::NEEDS_CSUM,
            gso_type: NetHdr::GSO_TCPV4,
            hdr_len: 54,
            gso_size: size,
            csum_start: 34,
            csum_offset: 16,
        };
        assert_eq!(f(&head, 3054, hdr), 3000 + frames * (54 + 24), "{size}");
    }
}
