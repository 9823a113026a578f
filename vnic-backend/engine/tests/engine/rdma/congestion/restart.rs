//! Losses and slow restart.

use vnic_engine::congestion::{Limits, Loss, Needs, Notification, UNLIMITED};
use vnic_engine::rdma::{Congestion, QpState, QpType, SendOp, Status};
use vnic_wire::time::Instant;

use super::super::harness::{Connection, Pair};
use super::*;

/// Handled notifications, slow restarts, their notifications, and transitions.
fn counts(pair: &Pair) -> [u64; 4] {
    let c = pair.sides[0].device.counters();
    [
        c.rp_cnp_handled,
        c.roce_slow_restart,
        c.roce_slow_restart_cnps,
        c.roce_slow_restart_trans,
    ]
}

fn writes(control: &Scripted, slow: bool, messages: u64) -> Pair {
    let mut pair = Pair::new(QpType::Rc, Connection::default());
    let congestion = Congestion {
        zero_touch: ZeroTouch {
            slow_restart: slow,
            ..ZeroTouch::OFF
        },
        ..control.congestion()
    };
    pair.sides[0].device.set_congestion(congestion, Instant(0));
    let rkey = pair.sides[1].keys.rkey;
    let a = &mut pair.sides[0];
    let addr = a.va(0);
    for id in 0..messages {
        a.post(id, SendOp::Write { addr, rkey }, &[a.sge(0, 1000)]);
    }
    pair
}

/// Runs, and loses the packets with these numbers.
fn lose(pair: &mut Pair, lost: &[usize]) {
    let mut sent = 0;
    pair.run_losing(1000, |from, _| {
        sent += usize::from(from == 0);
        from == 1 || !lost.contains(&(sent - 1))
    });
}

#[test]
fn a_loss_slows_down_like_a_notification() {
    // The second packet is lost, and behind it others come: a sequence NAK. The last one is: a timeout.
    for (lost, loss) in [(1, Loss::OutOfSequence), (7, Loss::Timeout)] {
        let control = Scripted::rate(1_000_000_000);
        let mut pair = writes(&control, true, 2);
        lose(&mut pair, &[lost]);
        assert_eq!(counts(&pair), [1, 1, 1, 1], "{loss:?}");
        let heard = control.take();
        let told: Vec<_> = heard
            .iter()
            .filter(|h| matches!(h, Heard::Loss(_) | Heard::Cnp(_)))
            .collect();
        let cnp = Heard::Cnp(Notification::default());
        assert_eq!(told, [&Heard::Loss(loss), &cnp]);
        assert_eq!(pair.sides[0].completions().len(), 2);
        assert_eq!(control.alive(), 1);
    }
}

#[test]
fn a_receiver_that_is_not_ready_slows_down_too() {
    let control = Scripted::rate(1_000_000_000);
    let mut pair = writes(&control, true, 0);
    let a = &mut pair.sides[0];
    a.post(1, SendOp::Send, &[a.sge(0, 8)]);
    // Three retries, and a fourth NAK that ends it.
    pair.run();
    assert_eq!(pair.sides[0].state(), QpState::Err);
    // It was one restart: nothing was acknowledged in between.
    assert_eq!(counts(&pair), [4, 4, 4, 1]);
    assert_eq!(control.alive(), 0);
}

/// What a card shows of a SEND without a receive and without retries: `rnr_nak_retry_err` and `rp_cnp_handled` of the sender go up by
/// one, and `out_of_buffer` of the receiver.
#[test]
fn the_only_nak_of_a_receiver_that_is_not_ready_counts() {
    let control = Scripted::rate(1_000_000_000);
    let connection = Connection {
        rnr_retry: 0,
        ..Connection::default()
    };
    let mut pair = Pair::new(QpType::Rc, connection);
    let congestion = Congestion {
        zero_touch: ZeroTouch {
            slow_restart: true,
            ..ZeroTouch::OFF
        },
        ..control.congestion()
    };
    pair.sides[0].device.set_congestion(congestion, Instant(0));
    let a = &mut pair.sides[0];
    a.post(1, SendOp::Send, &[a.sge(0, 8)]);
    pair.run();
    let [a, b] = &mut pair.sides;
    assert_eq!(a.completions()[0].status, Status::RnrRetryExceeded);
    let c = a.device.counters();
    assert_eq!((c.rnr_nak_retry_err, c.rp_cnp_handled), (1, 1));
    assert_eq!(b.device.counters().out_of_buffer, 1);
}

#[test]
fn several_losses_before_progress_are_one_transition() {
    let control = Scripted::rate(1_000_000_000);
    let mut pair = writes(&control, true, 1);
    // All four packets, twice.
    lose(&mut pair, &[0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(counts(&pair), [2, 2, 2, 1]);
    let rkey = pair.sides[1].keys.rkey;
    let a = &mut pair.sides[0];
    let addr = a.va(0);
    a.post(9, SendOp::Write { addr, rkey }, &[a.sge(0, 1000)]);
    lose(&mut pair, &[3]);
    assert_eq!(counts(&pair), [3, 3, 3, 2]);
}

#[test]
fn without_slow_restart_only_algorithms_that_want_hear_of_losses() {
    for (wants, slow) in [(false, false), (true, false)] {
        let mut control = Scripted::rate(1_000_000_000);
        control.needs.loss = wants;
        let mut pair = writes(&control, slow, 2);
        lose(&mut pair, &[1]);
        assert_eq!(counts(&pair), [0; 4]);
        let heard = control.take();
        assert_eq!(heard.contains(&Heard::Loss(Loss::OutOfSequence)), wants);
        assert_eq!(control.alive(), usize::from(wants));
    }
    // Nor where the priority does not react.
    let control = Scripted::rate(1);
    let mut pair = writes(&control, true, 2);
    let off = Congestion {
        reaction: 0xfe,
        ..control.congestion()
    };
    pair.sides[0].device.set_congestion(off, Instant(0));
    lose(&mut pair, &[1]);
    assert_eq!((counts(&pair), control.take().len()), ([0; 4], 0));
}

#[test]
fn a_gap_that_the_peer_has_notified_of_counts_once() {
    let control = Scripted::rate(1_000_000_000);
    let mut pair = writes(&control, true, 2);
    // The notification comes before the NAK.
    notify(&mut pair, Instant(0));
    lose(&mut pair, &[1]);
    assert_eq!(counts(&pair), [1, 0, 0, 0]);
}

#[test]
fn an_idle_time_slows_down_where_that_is_on() {
    for idle in [false, true] {
        let control = Scripted::rate(UNLIMITED);
        let mut pair = writes(&control, true, 1);
        let congestion = Congestion {
            zero_touch: ZeroTouch {
                slow_restart: true,
                slow_restart_idle: idle,
                ..ZeroTouch::OFF
            },
            ..control.congestion()
        };
        pair.sides[0].device.set_congestion(congestion, Instant(0));
        pair.run();
        assert_eq!(counts(&pair), [0; 4]);
        let rkey = pair.sides[1].keys.rkey;
        for (at, wanted) in [(500_000, 0), (1_400_000, 0), (2_500_000, 1), (2_600_000, 1)] {
            let a = &mut pair.sides[0];
            let addr = a.va(0);
            a.post(at, SendOp::Write { addr, rkey }, &[a.sge(0, 1000)]);
            pair.now = Instant(at);
            pair.run();
            let wanted = if idle { wanted } else { 0 };
            assert_eq!(counts(&pair)[1], wanted, "{at}");
        }
        assert_eq!(control.alive(), usize::from(idle));
    }
}

#[test]
fn a_limiter_that_is_kept_begins_anew_after_its_release() {
    // With idle restart a flow stays though its algorithm is done; the next notification makes a new one.
    let control = Scripted::rate(UNLIMITED);
    let mut pair = writes(&control, false, 1);
    let congestion = Congestion {
        zero_touch: ZeroTouch {
            slow_restart_idle: true,
            ..ZeroTouch::OFF
        },
        ..control.congestion()
    };
    pair.sides[0].device.set_congestion(congestion, Instant(0));
    control.script.lock().unwrap().released = true;
    pair.run();
    assert_eq!(control.alive(), 1);
    control.take();
    let now = pair.now;
    notify(&mut pair, now);
    let heard = control.take();
    assert!(matches!(heard[..], [Heard::Start(_), Heard::Cnp(_)]), "{heard:?}");
    assert_eq!(control.alive(), 1);
}

#[test]
fn a_responder_that_misses_a_packet_notifies_if_it_does() {
    // Nobody marks anything: the gap itself makes the notification, where slow restart is on.
    for (slow, enabled, wanted) in [(true, 0xff, 1), (false, 0xff, 0), (true, 0xfe, 0)] {
        let control = Scripted::rate(1_000_000_000);
        let mut pair = writes(&control, false, 2);
        let point = Congestion {
            notification: enabled,
            zero_touch: ZeroTouch {
                slow_restart: slow,
                ..ZeroTouch::OFF
            },
            ..Congestion::default()
        };
        pair.sides[1].device.set_congestion(point, Instant(0));
        lose(&mut pair, &[1]);
        assert_eq!(pair.sides[1].device.counters().np_cnp_sent, wanted);
        assert_eq!(counts(&pair), [wanted, 0, 0, 0]);
        assert_eq!(pair.sides[0].completions().len(), 2);
    }
}

#[test]
fn limits_of_a_flow_that_lost_everything_hold_nobody() {
    let control = Scripted::new(Needs {
        from_start: true,
        loss: true,
        ..Needs::default()
    });
    control.set(Limits {
        rate: 1_000_000_000,
        window: 300,
    });
    let mut pair = writes(&control, true, 3);
    let mut sent = 0;
    pair.run_losing(1000, |from, _| {
        sent += usize::from(from == 0);
        // Every third packet, and every second acknowledge.
        if from == 0 { sent % 3 != 0 } else { sent % 2 != 0 }
    });
    assert_eq!(pair.sides[0].completions().len(), 3);
    assert_eq!(pair.sides[0].state(), QpState::Rts);
}
