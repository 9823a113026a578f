use alloc::vec::Vec;
use core::time::Duration;

use proptest::prelude::*;
use vnic_wire::time::Instant;

use super::*;

fn us(n: u64) -> Instant {
    Instant(n * 1000)
}

fn key(qp: u32, own: u8, peer: u8) -> Key {
    Key {
        qp,
        peer: Gid([peer; 16]),
        mac: MacAddr([peer; 6]),
        own: Gid([own; 16]),
    }
}

/// All notifications up to `end`, with their times, from marks in order.
fn run(settings: Settings, marks: &[(u64, Key)], end: u64) -> Vec<(u64, u32, Option<u64>)> {
    let mut point = NotificationPoint::new(settings);
    let mut out = Vec::new();
    let mut marks = marks.iter().peekable();
    loop {
        let mark = marks.peek().map(|m| us(m.0));
        let due = point.next_time();
        let now = match (mark, due) {
            (Some(m), Some(d)) => m.min(d),
            (Some(t), None) | (None, Some(t)) => t,
            (None, None) => break,
        };
        if now > us(end) {
            break;
        }
        let mut push = |c: Cnp<u32>| {
            let period = c.period.map(|p| p.as_micros() as u64);
            out.push((now.0 / 1000, c.to, period));
        };
        if due.is_some_and(|d| d <= now) {
            while let Some(c) = point.due(now) {
                push(c);
            }
        }
        if mark == Some(now) {
            let (_, key) = marks.next().expect("peeked");
            point.marked(now, *key, key.qp).into_iter().for_each(&mut push);
            while let Some(c) = point.due(now) {
                push(c);
            }
        }
    }
    out
}

fn times(settings: Settings, marks: &[u64]) -> Vec<u64> {
    let marks: Vec<_> = marks.iter().map(|&t| (t, key(1, 1, 2))).collect();
    run(settings, &marks, 10_000).iter().map(|c| c.0).collect()
}

#[test]
fn one_notification_a_window_and_the_trailing_edge_counts() {
    let settings = Settings::default();
    assert_eq!(times(settings, &[7]), [7]);
    assert_eq!(times(settings, &[7, 8, 20]), [7, 57]);
    // The owed one opens a window of its own.
    assert_eq!(times(settings, &[7, 8, 58]), [7, 57, 107]);
    assert_eq!(times(settings, &[7, 57]), [7, 57]);
    assert_eq!(times(settings, &[7, 200]), [7, 200]);
}

#[test]
fn without_trailing_a_mark_in_the_window_is_forgotten() {
    let settings = Settings {
        trailing: false,
        ..Settings::default()
    };
    assert_eq!(times(settings, &[7, 8, 20, 58, 59]), [7, 58]);
}

#[test]
fn spacing_is_the_window() {
    let settings = Settings {
        spacing: Duration::from_micros(4),
        ..Settings::default()
    };
    assert_eq!(times(settings, &[7, 8, 20]), [7, 11, 20]);
    let settings = Settings {
        spacing: Duration::ZERO,
        ..Settings::default()
    };
    assert_eq!(times(settings, &[7, 7, 8]), [7, 7, 8]);
}

#[test]
fn a_scope_is_what_shares_a_window() {
    let marks = [
        (1, key(1, 1, 1)),
        (2, key(2, 1, 1)),
        (3, key(3, 2, 1)),
        (4, key(4, 2, 2)),
    ];
    let settings = |scope| Settings {
        scope,
        trailing: false,
        ..Settings::default()
    };
    let qps = |scope| -> Vec<u32> {
        let out = run(settings(scope), &marks, 1000);
        out.iter().map(|c| c.1).collect()
    };
    assert_eq!(qps(Scope::Qp), [1, 2, 3, 4]);
    assert_eq!(qps(Scope::IpPair), [1, 3, 4]);
    assert_eq!(qps(Scope::DestinationIp), [1, 4]);
    assert_eq!(qps(Scope::Port), [1]);
    // What is owed goes to the flow that was marked last.
    let trailing = Settings {
        scope: Scope::Port,
        ..Settings::default()
    };
    assert_eq!(run(trailing, &marks, 1000), [(1, 1, None), (51, 4, None)]);
}

#[test]
fn new_settings_of_the_packet_keep_windows_and_new_pacing_opens_them() {
    let mut point = NotificationPoint::new(Settings::default());
    assert!(point.marked(us(1), key(1, 1, 1), ()).is_some());
    let marking = Settings {
        dscp: 3,
        ..Settings::default()
    };
    point.set(marking);
    assert_eq!(point.settings().dscp, 3);
    assert!(point.marked(us(2), key(1, 1, 1), ()).is_none());
    point.set(Settings {
        scope: Scope::Port,
        ..marking
    });
    assert_eq!(point.next_time(), None);
    assert!(point.marked(us(3), key(1, 1, 1), ()).is_some());
}

#[test]
fn queue_pairs_of_one_number_are_told_apart_by_address() {
    let marks = [(1, key(1, 1, 1)), (2, key(1, 1, 2))];
    let out = run(Settings::default(), &marks, 1000);
    assert_eq!(out.len(), 2);
}

#[test]
fn ever_new_flows_take_bounded_memory() {
    for settings in [Settings::default(), Settings::dcqcn_plus()] {
        let mut point = NotificationPoint::new(settings);
        for n in 0..3 * CAPACITY as u32 {
            point.marked(us(1), key(n, 1, 1), n);
            point.marked(us(1), key(n, 1, 1), n);
            assert!(point.remembered() <= CAPACITY);
        }
        // All of them are notified or forgotten at some time.
        let mut owed = 0;
        while let Some(at) = point.next_time() {
            while point.due(at).is_some() {
                owed += 1;
            }
            assert!(point.next_time().is_none_or(|next| next > at));
        }
        assert!(owed <= CAPACITY);
        point.marked(us(1_000_000), key(0, 1, 1), 0);
        assert_eq!(point.remembered(), 1);
    }
}

#[test]
fn the_list_tells_its_length_in_time() {
    let marks: Vec<_> = (0..100).map(|n| (0, key(n, 1, 1))).collect();
    let out = run(Settings::dcqcn_plus(), &marks, 10_000);
    assert_eq!(out.len(), 100);
    // One each us, in the order of the list; the first is looked at once more before the second has come.
    assert_eq!((out[0].0, out[0].1), (0, 0));
    for (n, c) in out.iter().enumerate().skip(1) {
        assert_eq!((c.0, c.1), (n as u64 + 1, n as u32));
    }
    assert_eq!(out[0].2, Some(50), "one flow: the floor");
    assert_eq!(out[99].2, Some(100), "a hundred flows, 1 us each");
}

#[test]
fn what_one_notification_takes_sets_the_period() {
    let settings = Settings {
        told: Some(Duration::from_micros(5)),
        ..Settings::dcqcn_plus()
    };
    let marks: Vec<_> = (0..100).map(|n| (0, key(n, 1, 1))).collect();
    let out = run(settings, &marks, 10_000);
    assert_eq!(out[99], (100 * 5, 99, Some(500)));
}

#[test]
fn the_list_keeps_its_spacing_and_forgets() {
    // Marked all the time: at visits, 45 us apart.
    let marks: Vec<_> = (0..200).map(|t| (t, key(1, 1, 1))).collect();
    let out = run(Settings::dcqcn_plus(), &marks, 199);
    let at: Vec<_> = out.iter().map(|c| c.0).collect();
    assert_eq!(at, [0, 45, 90, 135, 180]);
    let wide = Settings {
        spacing: Duration::from_micros(100),
        ..Settings::dcqcn_plus()
    };
    let at: Vec<_> = run(wide, &marks, 199).iter().map(|c| c.0).collect();
    assert_eq!(at, [0, 100]);

    // 300 us later the hundred are gone, and the next tells the floor again.
    let mut marks: Vec<_> = (0..100).map(|n| (0, key(n, 1, 1))).collect();
    marks.push((450, key(7, 1, 1)));
    let out = run(Settings::dcqcn_plus(), &marks, 10_000);
    assert_eq!(out[100], (450, 7, Some(50)));
}

/// The list as its authors write it: one record is looked at each microsecond.
fn slow_list(marks: &[(u64, u32)], end: u64) -> Vec<(u64, u32, u64)> {
    struct R {
        qp: u32,
        bit: bool,
        cnp: Option<u64>,
        heard: u64,
    }
    let mut list: alloc::collections::VecDeque<R> = Default::default();
    let mut out = Vec::new();
    let mut marks = marks.iter().peekable();
    for t in 0..=end {
        let mut look = |list: &mut alloc::collections::VecDeque<R>| {
            let length = list.len() as u64;
            let Some(r) = list.front_mut() else {
                return false;
            };
            if r.bit && r.cnp.is_none_or(|at| t >= at + 45) {
                (r.bit, r.cnp, r.heard) = (false, Some(t), t);
                out.push((t, r.qp, length.max(50)));
            } else if !r.bit && t >= r.heard + 200 {
                list.pop_front();
                return true;
            }
            list.rotate_left(1);
            true
        };
        let mut looked = look(&mut list);
        while let Some(&(_, qp)) = marks.next_if(|m| m.0 == t) {
            match list.iter_mut().find(|r| r.qp == qp) {
                Some(r) => (r.bit, r.heard) = (true, t),
                None => list.push_back(R {
                    qp,
                    bit: true,
                    cnp: None,
                    heard: t,
                }),
            }
            if !looked {
                looked = look(&mut list);
            }
        }
    }
    out
}

proptest! {
    #[test]
    fn the_list_is_what_one_look_each_microsecond_does(
        marks in prop::collection::vec((0u64..2000, 0u32..60), 0..300),
    ) {
        let mut marks = marks;
        marks.sort_unstable();
        let keyed: Vec<_> = marks.iter().map(|&(t, qp)| (t, key(qp, 1, 1))).collect();
        let fast: Vec<_> = run(Settings::dcqcn_plus(), &keyed, 3000)
            .iter()
            .map(|c| (c.0, c.1, c.2.unwrap_or(0)))
            .collect();
        prop_assert_eq!(fast, slow_list(&marks, 3000));
    }

    #[test]
    fn no_flow_is_notified_twice_in_its_spacing(
        marks in prop::collection::vec((0u64..1000, 0u32..5), 0..200),
        spacing in 1u64..100,
        trailing: bool,
    ) {
        let mut marks = marks;
        marks.sort_unstable();
        let keyed: Vec<_> = marks.iter().map(|&(t, qp)| (t, key(qp, 1, 1))).collect();
        let settings = Settings {
            spacing: Duration::from_micros(spacing),
            trailing,
            ..Settings::default()
        };
        let out = run(settings, &keyed, 5000);
        for qp in 0..5 {
            let at: Vec<_> = out.iter().filter(|c| c.1 == qp).map(|c| c.0).collect();
            prop_assert!(at.windows(2).all(|w| w[1] - w[0] >= spacing));
            // Each mark is followed by a notification within the spacing, where marks are remembered.
            for m in marks.iter().filter(|m| m.1 == qp && trailing) {
                prop_assert!(at.iter().any(|&t| t >= m.0 && t <= m.0 + spacing));
            }
        }
    }
}
