//! DCQCN's reaction point: every state with every input, printed in full; what each parameter does; what holds whatever
//! happens.
//!
//! `UPDATE_EXPECT=1 cargo test -p vnic-engine --test engine dcqcn::` writes the text anew.

use std::fmt::Write;
use std::time::Duration;

use expect_test::expect_file;
use proptest::prelude::*;
use vnic_engine::congestion::dcqcn::{AlphaClock, Dcqcn, Hyper, Order, Parameters};
use vnic_engine::congestion::{Algorithm, CongestionControl, Loss, Notification, Start, UNLIMITED};
use vnic_wire::time::Instant;

const LINE: u64 = 40_000_000_000;

/// One flow, and its time.
struct Flow {
    p: Parameters,
    it: Box<dyn Algorithm>,
    now: Instant,
}

impl Flow {
    fn new(p: &Parameters) -> Flow {
        Flow::with(p, LINE, None)
    }

    fn with(p: &Parameters, line_rate: u64, rate: Option<u64>) -> Flow {
        let control = Dcqcn {
            parameters: p.clone(),
        };
        let flow = Start {
            line_rate,
            mtu: 1024,
            wire: 1106,
            rate,
        };
        Flow {
            p: p.clone(),
            it: control.start(Instant(0), &flow),
            now: Instant(0),
        }
    }

    fn wait(&mut self, time: Duration) -> &mut Flow {
        self.now = self.now + time;
        self.it.advance(self.now, false);
        self
    }

    fn wait_us(&mut self, us: u64) -> &mut Flow {
        self.wait(Duration::from_micros(us))
    }

    fn cnp(&mut self) -> &mut Flow {
        self.it.on_notification(self.now, &Notification::default());
        self
    }

    /// Notifications far enough apart that each one cuts.
    fn cnps(&mut self, n: u32) -> &mut Flow {
        for _ in 0..n {
            self.wait(self.p.cut_period).cnp();
        }
        self
    }

    /// So many times the timer fires.
    fn ticks(&mut self, n: u32) -> &mut Flow {
        self.wait(self.p.time_reset * n)
    }

    /// So many times the byte counter is full.
    fn bytes(&mut self, n: u64) -> &mut Flow {
        for _ in 0..n {
            self.it.on_sent(self.now, self.p.byte_reset as u32);
        }
        self
    }

    fn rate(&self) -> u64 {
        self.it.limits().rate
    }

    fn target(&self) -> u64 {
        self.it.state().target.unwrap_or(UNLIMITED)
    }

    fn alpha(&self) -> u32 {
        self.it.state().alpha.expect("limited")
    }

    fn show(&self) -> String {
        let state = self.it.state();
        let cuts = state.cuts;
        match (state.target, state.alpha, state.stages) {
            (Some(target), Some(alpha), Some((time, bytes))) => format!(
                "current {:>11} target {target:>11} alpha {alpha:>4}/1024 stages {time}/{bytes} cuts {cuts}",
                self.rate()
            ),
            _ => format!("released, cuts {cuts}"),
        }
    }
}

type Input = (&'static str, fn(&mut Flow));

const INPUTS: [Input; 9] = [
    ("CNP", |f| {
        f.cnp();
    }),
    ("two CNPs, 1 us between", |f| {
        f.cnp().wait_us(1).cnp();
    }),
    ("two CNPs, 50 us between", |f| {
        f.cnp().wait_us(50).cnp();
    }),
    ("sequence error", |f| f.it.on_loss(f.now, Loss::OutOfSequence)),
    ("one alpha period", |f| {
        f.wait(f.p.alpha_period);
    }),
    ("timer", |f| {
        f.ticks(1);
    }),
    ("timer, paused", |f| {
        let now = f.now + f.p.time_reset;
        f.now = now;
        f.it.advance(now, true);
    }),
    ("bytes", |f| {
        f.bytes(1);
    }),
    ("one second", |f| {
        f.wait(Duration::from_secs(1));
    }),
];

const STATES: [Input; 9] = [
    ("released", |_| {}),
    ("cut once", |f| {
        f.cnp();
    }),
    ("cut ten times", |f| {
        f.cnps(10);
    }),
    ("recovery by time", |f| {
        f.cnps(10).ticks(1);
    }),
    ("recovery by bytes", |f| {
        f.cnps(10).bytes(1);
    }),
    ("additive by time", |f| {
        let n = f.p.threshold + 1;
        f.cnps(10).ticks(n);
    }),
    ("additive by bytes", |f| {
        let n = f.p.threshold + 1;
        f.cnps(10).bytes(n.into());
    }),
    ("hyper", |f| {
        let n = f.p.threshold + 1;
        f.cnps(10).bytes(n.into()).ticks(n);
    }),
    ("at the least rate", |f| {
        f.cnps(200);
    }),
];

#[test]
fn every_state_with_every_input() {
    let mut text = String::new();
    for name in Parameters::PRESETS {
        let p = Parameters::preset(name).expect("a preset");
        writeln!(text, "# {name}\n").unwrap();
        for (state, make) in STATES {
            let mut flow = Flow::new(&p);
            make(&mut flow);
            writeln!(text, "{state}\n  is                       {}", flow.show()).unwrap();
            for (input, give) in INPUTS {
                let mut flow = Flow::new(&p);
                make(&mut flow);
                give(&mut flow);
                writeln!(text, "  {input:24} {}", flow.show()).unwrap();
            }
            writeln!(text).unwrap();
        }
    }
    expect_file!["../snapshots/dcqcn.txt"].assert_eq(&text);
}

#[test]
fn presets_are_known_by_name() {
    assert!(
        Parameters::PRESETS
            .iter()
            .all(|n| Parameters::preset(n).is_some())
    );
    assert_eq!(Parameters::preset("paper"), Some(Parameters::PAPER));
    assert_eq!(Parameters::preset("other"), None);
}

fn paper() -> Parameters {
    Parameters::PAPER
}

#[test]
fn the_first_notification_halves_by_alpha_one() {
    let mut flow = Flow::new(&paper());
    assert_eq!((flow.rate(), flow.it.is_released()), (UNLIMITED, true));
    flow.cnp();
    assert_eq!((flow.rate(), flow.target()), (LINE / 2, LINE));
    assert_eq!(flow.alpha(), 1024);
    assert!(!flow.it.is_released());
}

/// The target after a cut of a flow that recovered by time, by bytes, or not at all.
fn targets(p: &Parameters) -> [bool; 3] {
    let clamped = |flow: &mut Flow| {
        let before = flow.rate();
        flow.cnp();
        flow.target() == before
    };
    [
        clamped(Flow::new(p).cnps(3).ticks(1)),
        clamped(Flow::new(p).cnps(3).bytes(1)),
        clamped(Flow::new(p).cnps(3)),
    ]
}

#[test]
fn clamping_decides_whether_a_cut_moves_the_target() {
    let with = |clamp_target, clamp_target_after_time| Parameters {
        clamp_target,
        clamp_target_after_time,
        ..paper()
    };
    assert_eq!(targets(&with(true, false)), [true, true, true]);
    assert_eq!(targets(&with(false, true)), [true, true, false]);
    assert_eq!(targets(&with(false, false)), [false, true, false]);
}

#[test]
fn time_reset_is_the_timer() {
    let at = |us| {
        let p = Parameters {
            time_reset: Duration::from_micros(us),
            ..paper()
        };
        let mut flow = Flow::new(&p);
        flow.cnp();
        let wake = flow.it.next_change();
        flow.wait_us(299);
        (wake, flow.it.state().stages.expect("limited").0)
    };
    assert_eq!(at(55), (Some(Instant(55_000)), 5));
    assert_eq!(at(100), (Some(Instant(100_000)), 2));
    assert_eq!(at(0), (None, 0));
}

#[test]
fn byte_reset_is_the_byte_counter() {
    let stages = |byte_reset| {
        let p = Parameters {
            byte_reset,
            ..paper()
        };
        let mut flow = Flow::new(&p);
        flow.cnp();
        for _ in 0..100 {
            flow.it.on_sent(flow.now, 1000);
        }
        flow.it.state().stages.expect("limited").1
    };
    assert_eq!(stages(25_600), 3);
    assert_eq!(stages(50_000), 2);
    assert_eq!(stages(10_000), 10);
    assert_eq!(stages(0), 0);
}

#[test]
fn threshold_ends_recovery() {
    // The target moves at the F-th stage, not before.
    for f in [1, 3, 5, 31] {
        let p = Parameters {
            threshold: f,
            ..paper()
        };
        let mut flow = Flow::new(&p);
        flow.cnps(5);
        let target = flow.target();
        assert_eq!(flow.ticks(f - 1).target(), target, "F = {f}");
        assert_eq!(flow.ticks(1).target(), target + p.ai_rate, "F = {f}");
    }
}

#[test]
fn ai_rate_and_hai_rate_are_the_steps() {
    for (ai, hai) in [(40_000_000, 200_000_000), (5_000_000, 50_000_000)] {
        let p = Parameters {
            ai_rate: ai,
            hai_rate: hai,
            hyper: Hyper::Constant,
            ..paper()
        };
        let mut flow = Flow::new(&p);
        let target = flow.cnps(5).ticks(4).target();
        assert_eq!(flow.ticks(2).target(), target + 2 * ai);
        // Six by bytes: both exceed F, and the last is hyper.
        assert_eq!(flow.bytes(6).target(), target + 7 * ai + hai);
    }
}

#[test]
fn hyper_steps_grow_or_do_not() {
    let steps = |hyper| {
        let p = Parameters { hyper, ..paper() };
        let mut flow = Flow::new(&p);
        flow.cnps(5).ticks(10).bytes(6);
        let mut target = flow.target();
        [0; 3].map(|_| {
            let before = target;
            target = flow.bytes(1).target();
            (target - before) / p.hai_rate
        })
    };
    assert_eq!(steps(Hyper::Growing), [2, 3, 4]);
    assert_eq!(steps(Hyper::Constant), [1, 1, 1]);
}

#[test]
fn at_max_rate_the_limiter_is_released() {
    let stages_to_release = |max_rate| {
        let p = Parameters { max_rate, ..paper() };
        let mut flow = Flow::new(&p);
        flow.cnp();
        let cut = flow.rate();
        let n = (1..1000).find(|_| flow.ticks(1).it.is_released());
        assert_eq!(flow.rate(), UNLIMITED);
        (cut, n.expect("it recovers"))
    };
    assert_eq!(stages_to_release(0), (LINE / 2, 15));
    assert_eq!(stages_to_release(10_000_000_000), (5_000_000_000, 13));
    assert_eq!(stages_to_release(2 * LINE), (LINE / 2, 15));
}

#[test]
fn alpha_to_rate_shift_scales_the_cut() {
    let cut = |alpha_to_rate_shift| {
        let p = Parameters {
            alpha_to_rate_shift,
            min_decrease: 0,
            min_rate: 0,
            ..paper()
        };
        Flow::new(&p).cnp().rate()
    };
    assert_eq!(cut(11), LINE / 2);
    assert_eq!(cut(12), LINE / 4 * 3);
    assert_eq!(cut(10), 0);
    assert_eq!(cut(0), 0);
}

#[test]
fn min_decrease_bounds_a_cut_and_100_disables_it() {
    let cut = |min_decrease| {
        let p = Parameters {
            min_decrease,
            ..paper()
        };
        Flow::new(&p).cnp().rate()
    };
    assert_eq!(cut(0), LINE / 2);
    assert_eq!(cut(50), LINE / 2);
    assert_eq!(cut(75), LINE / 4 * 3);
    assert_eq!(cut(100), UNLIMITED);
}

#[test]
fn min_rate_is_the_floor_and_disables_at_line_rate() {
    let floor = |min_rate| {
        let p = Parameters { min_rate, ..paper() };
        Flow::new(&p).cnps(100).rate()
    };
    assert_eq!(floor(1_000_000), 1_000_000);
    assert_eq!(floor(2_000_000_000), 2_000_000_000);
    assert_eq!(floor(LINE), UNLIMITED);
    assert_eq!(floor(2 * LINE), UNLIMITED);
}

#[test]
fn rate_on_first_cnp_is_set_once() {
    let p = Parameters {
        rate_on_first_cnp: 3_000_000_000,
        ..paper()
    };
    let mut flow = Flow::new(&p);
    assert_eq!(flow.cnp().rate(), 3_000_000_000);
    assert_eq!(flow.cnp().rate(), 1_500_000_000);
    // After its release the next one is the first again.
    flow.wait(Duration::from_secs(10));
    assert!(flow.it.is_released());
    assert_eq!(flow.cnp().rate(), 3_000_000_000);
    // Not above what there is.
    let p = Parameters {
        rate_on_first_cnp: 2 * LINE,
        ..paper()
    };
    assert_eq!(Flow::new(&p).cnp().rate(), UNLIMITED);
}

#[test]
fn g_is_the_weight_of_a_sample() {
    let decayed = |g| {
        let p = Parameters { g, ..paper() };
        Flow::new(&p).cnp().wait_us(55).alpha()
    };
    assert_eq!(decayed(4), 1020);
    assert_eq!(decayed(512), 512);
    assert_eq!(decayed(0), 1024);
    assert_eq!(decayed(1024), 0);
    let raised = |g| {
        let p = Parameters {
            g,
            initial_alpha: 0,
            ..paper()
        };
        Flow::new(&p).with_rate().cnp().alpha()
    };
    assert_eq!(raised(4), 4);
    assert_eq!(raised(512), 512);
}

impl Flow {
    /// Limited already, so that an alpha of 0 has something to act on.
    fn with_rate(&self) -> Flow {
        Flow::with(&self.p, LINE, Some(LINE / 2))
    }
}

#[test]
fn alpha_period_is_the_time_between_updates() {
    let after = |us, alpha_clock| {
        let p = Parameters {
            alpha_period: Duration::from_micros(us),
            alpha_clock,
            g: 512,
            ..paper()
        };
        Flow::new(&p).cnp().wait_us(10).alpha()
    };
    assert_eq!(after(10, AlphaClock::Notification), 512);
    assert_eq!(after(5, AlphaClock::Notification), 256);
    assert_eq!(after(11, AlphaClock::Notification), 1024);
    assert_eq!(after(0, AlphaClock::Notification), 1024);
    // The first period has the notification in it.
    assert_eq!(after(5, AlphaClock::Period), 512);
    assert_eq!(after(2, AlphaClock::Period), 64);
    assert_eq!(after(0, AlphaClock::Period), 1024);
}

#[test]
fn the_clock_of_alpha_is_the_notification_or_the_period() {
    let after = |alpha_clock| {
        let p = Parameters {
            alpha_clock,
            g: 512,
            initial_alpha: 0,
            ..paper()
        };
        let mut flow = Flow::new(&p).with_rate();
        flow.wait_us(40).cnp().wait_us(5).cnp();
        let raised = flow.alpha();
        (raised, flow.wait_us(15).alpha())
    };
    // Two raise it twice, and it falls 55 us after the last.
    assert_eq!(after(AlphaClock::Notification), (768, 768));
    // Two in one period raise it once, at its end.
    assert_eq!(after(AlphaClock::Period), (0, 512));
}

#[test]
fn cut_period_is_the_time_between_cuts() {
    let cuts = |us| {
        let p = Parameters {
            cut_period: Duration::from_micros(us),
            ..paper()
        };
        let mut flow = Flow::new(&p);
        for _ in 0..10 {
            flow.cnp().wait_us(2);
        }
        flow.it.state().cuts
    };
    assert_eq!(cuts(0), 10);
    assert_eq!(cuts(2), 10);
    assert_eq!(cuts(4), 5);
    assert_eq!(cuts(32), 1);
}

#[test]
fn initial_alpha_is_that_of_the_first_notification() {
    let cut = |initial_alpha| {
        let p = Parameters {
            initial_alpha,
            ..paper()
        };
        Flow::new(&p).cnp().rate()
    };
    assert_eq!(cut(1024), LINE / 2);
    assert_eq!(cut(512), LINE / 4 * 3);
    assert_eq!(cut(0), UNLIMITED);
}

#[test]
fn order_decides_which_alpha_cuts() {
    let cut = |order| {
        let p = Parameters {
            order,
            initial_alpha: 0,
            g: 512,
            ..paper()
        };
        Flow::new(&p).with_rate().cnp().rate()
    };
    assert_eq!(cut(Order::CutFirst), LINE / 2);
    assert_eq!(cut(Order::AlphaFirst), LINE / 2 / 4 * 3);
}

#[test]
fn firmware_rounds_alpha_down() {
    let alpha = |fixed_point| {
        let p = Parameters {
            fixed_point,
            g: 5,
            alpha_period: Duration::from_micros(1),
            time_reset: Duration::ZERO,
            ..paper()
        };
        let mut flow = Flow::new(&p);
        // It is the cuts that tell: one after alpha had time to fall.
        let rate = flow.cnp().wait_us(1000).rate();
        flow.cnp();
        (flow.rate() as f64 / rate as f64, flow.alpha())
    };
    // 1024 x (1 - 5/1024)^1000 is 7.66; whole numbers lose one each step at least and are at 0 by then.
    let (exact, _) = alpha(false);
    assert!((exact - (1.0 - 7.66 / 2048.0)).abs() < 1e-4, "{exact}");
    assert_eq!(alpha(true), (1.0, 5));
}

#[test]
fn qcn_relics_shrink_a_far_target_and_hurry_when_hyper() {
    let with = |qcn_relics| Parameters {
        qcn_relics,
        clamp_target: false,
        clamp_target_after_time: false,
        min_rate: 1_000_000,
        ..paper()
    };
    // Six cuts leave 1/64 of the target.
    let target = |relics| Flow::new(&with(relics)).cnps(6).ticks(1).target();
    assert_eq!(target(false), LINE);
    assert_eq!(target(true), LINE / 8);

    let hyper = |relics| {
        let mut flow = Flow::new(&Parameters {
            clamp_target: true,
            ..with(relics)
        });
        flow.cnps(9).ticks(6).bytes(6);
        let (time, bytes) = flow.it.state().stages.expect("limited");
        flow.bytes(1).ticks(2);
        let (time_after, bytes_after) = flow.it.state().stages.expect("limited");
        (time_after - time, bytes_after - bytes)
    };
    assert_eq!(hyper(false), (2, 1));
    // The timer that ran already ends as it was set; the next has half.
    assert_eq!(hyper(true), (3, 2));
}

#[test]
fn a_loss_is_a_notification() {
    let mut lost = Flow::new(&paper());
    lost.it.on_loss(lost.now, Loss::NotReady);
    assert_eq!(lost.show(), Flow::new(&paper()).cnp().show());
}

#[test]
fn a_flow_goes_on_where_it_was_when_parameters_change() {
    let flow = Flow::with(&paper(), LINE, Some(3_000_000_000));
    assert_eq!((flow.rate(), flow.target()), (3_000_000_000, 3_000_000_000));
    let flow = Flow::with(&paper(), LINE, Some(LINE));
    assert!(flow.it.is_released());
    let flow = Flow::with(&paper(), LINE, Some(UNLIMITED));
    assert!(flow.it.is_released());
}

/// What may happen: a wait in us, then something.
#[derive(Debug, Clone, Copy)]
enum Step {
    Cnp,
    Sent(u32),
    Look,
}

fn steps() -> impl Strategy<Value = Vec<(u64, Step)>> {
    let step = prop_oneof![
        3 => Just(Step::Cnp),
        2 => (1u32..100_000).prop_map(Step::Sent),
        1 => Just(Step::Look),
    ];
    // Short waits, and now and then long ones.
    let wait = prop_oneof![8 => 0u64..200, 1 => 0u64..20_000];
    prop::collection::vec((wait, step), 0..60)
}

fn parameters() -> impl Strategy<Value = Parameters> {
    let preset = prop::sample::select(Parameters::PRESETS.to_vec());
    let times = (0u64..200, 0u64..100, 0u64..60);
    let steps = (0u64..100, 0u64..300, 1u32..31, 0u32..1025, 0u32..1025);
    let sizes = (0u64..200_000, 0u64..50_000, 0u32..101, 0u32..13);
    let switches = any::<[bool; 7]>();
    (preset, times, steps, sizes, switches).prop_map(
        |(preset, (time, alpha, cut), (ai, hai, threshold, g, initial_alpha), sizes, switches)| {
            let (byte_reset, min_rate, min_decrease, alpha_to_rate_shift) = sizes;
            let [keep, clamp, after_time, notification, growing, relics, fixed] = switches;
            let preset = Parameters::preset(preset).expect("a preset");
            if keep {
                return preset;
            }
            Parameters {
                clamp_target: clamp,
                clamp_target_after_time: after_time,
                time_reset: Duration::from_micros(time),
                byte_reset,
                threshold,
                ai_rate: ai * 1_000_000,
                hai_rate: hai * 1_000_000,
                alpha_to_rate_shift,
                min_decrease,
                min_rate: min_rate * 1_000_000,
                g,
                alpha_period: Duration::from_micros(alpha),
                cut_period: Duration::from_micros(cut),
                initial_alpha,
                alpha_clock: if notification {
                    AlphaClock::Notification
                } else {
                    AlphaClock::Period
                },
                hyper: if growing { Hyper::Growing } else { Hyper::Constant },
                fixed_point: fixed,
                qcn_relics: relics,
                ..preset
            }
        },
    )
}

proptest! {
    /// Who looks each microsecond and who looks only when something happens see the same.
    #[test]
    fn late_looks_see_what_early_ones_do(p in parameters(), steps in steps()) {
        let mut late = Flow::new(&p);
        let mut early = Flow::new(&p);
        for (wait, step) in steps {
            late.now = late.now + Duration::from_micros(wait);
            for _ in 0..wait {
                early.wait_us(1);
            }
            for flow in [&mut late, &mut early] {
                match step {
                    Step::Cnp => { flow.cnp(); }
                    Step::Sent(bytes) => flow.it.on_sent(flow.now, bytes),
                    Step::Look => { flow.wait_us(0); }
                }
            }
            late.it.advance(late.now, false);
            early.it.advance(early.now, false);
            prop_assert_eq!(late.show(), early.show());
            prop_assert_eq!(late.it.next_change(), early.it.next_change());
        }
    }

    /// A rate is between the least and the line's, and below the target; alpha is between 0 and 1.
    #[test]
    fn rates_are_in_their_bounds(p in parameters(), steps in steps()) {
        let mut flow = Flow::new(&p);
        for (wait, step) in steps {
            flow.wait_us(wait);
            match step {
                Step::Cnp => { flow.cnp(); }
                Step::Sent(bytes) => flow.it.on_sent(flow.now, bytes),
                Step::Look => {}
            }
            let rate = flow.rate();
            if flow.it.is_released() {
                prop_assert_eq!(rate, UNLIMITED);
                prop_assert_eq!(flow.it.next_change(), None);
            } else {
                prop_assert!((p.min_rate..=LINE).contains(&rate), "{}", flow.show());
                prop_assert!(rate <= flow.target() && flow.target() <= LINE, "{}", flow.show());
                prop_assert!(flow.alpha() <= 1024);
                prop_assert!(flow.it.next_change().is_none_or(|at| at > flow.now));
            }
        }
    }
}

/// Whoever looks after an hour is answered at once: this test would not end otherwise.
#[test]
fn a_late_look_is_bounded_work() {
    for name in Parameters::PRESETS {
        let p = Parameters {
            time_reset: Duration::from_micros(1),
            alpha_period: Duration::from_micros(1),
            ai_rate: 1,
            hai_rate: 1,
            ..Parameters::preset(name).expect("a preset")
        };
        for bytes in [0, 5, 50] {
            let mut flow = Flow::new(&p);
            flow.cnps(30).bytes(bytes);
            for _ in 0..1000 {
                flow.wait(Duration::from_secs(3600));
            }
        }
    }
}
