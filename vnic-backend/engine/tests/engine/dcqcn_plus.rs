//! DCQCN+'s reaction point: every state with every input, printed in full; what each parameter does; what holds whatever
//! happens.
//!
//! `UPDATE_EXPECT=1 cargo test -p vnic-engine --test engine dcqcn_plus::` writes the text anew.

use std::fmt::Write;
use std::time::Duration;

use expect_test::expect_file;
use proptest::prelude::*;
use vnic_engine::congestion::dcqcn_plus::{Bound, DcqcnPlus, Parameters};
use vnic_engine::congestion::{Algorithm, CongestionControl, Loss, Notification, Start, UNLIMITED};
use vnic_wire::time::Instant;

const LINE: u64 = 10_000_000_000;

/// One flow, and its time.
struct Flow {
    it: Box<dyn Algorithm>,
    now: Instant,
}

impl Flow {
    fn new(parameters: &Parameters) -> Flow {
        Flow::at(parameters, None)
    }

    fn at(parameters: &Parameters, rate: Option<u64>) -> Flow {
        let control = DcqcnPlus {
            parameters: parameters.clone(),
        };
        let flow = Start {
            line_rate: LINE,
            mtu: 1024,
            wire: 1250,
            rate,
        };
        Flow {
            it: control.start(Instant(0), &flow),
            now: Instant(0),
        }
    }

    fn wait_us(&mut self, us: u64) -> &mut Flow {
        self.now = self.now + Duration::from_micros(us);
        self.it.advance(self.now, false);
        self
    }

    fn cnp(&mut self, tau: u64) -> &mut Flow {
        let period = Some(Duration::from_micros(tau));
        self.it.on_notification(self.now, &Notification { period });
        self
    }

    /// So many times the timer fires, whenever that is.
    fn ticks(&mut self, n: u32) -> &mut Flow {
        for _ in 0..n {
            if let Some(at) = self.it.next_change() {
                self.now = at;
                self.it.advance(at, false);
            }
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

    /// us until the timer fires.
    fn timer(&self) -> u64 {
        (self.it.next_change().expect("limited").0 - self.now.0) / 1000
    }

    fn show(&self) -> String {
        let state = self.it.state();
        let cuts = state.cuts;
        match (state.target, state.alpha, state.stages) {
            (Some(target), Some(alpha), Some((stage, _))) => format!(
                "current {:>10} target {target:>10} alpha {alpha:>4}/1024 stage {stage} timer in {} us, cuts {cuts}",
                self.rate(),
                self.timer(),
            ),
            _ => format!("released, cuts {cuts}"),
        }
    }
}

type Input = (&'static str, fn(&mut Flow));

const INPUTS: [Input; 8] = [
    ("CNP that tells 50 us", |f| {
        f.cnp(50);
    }),
    ("CNP that tells 700 us", |f| {
        f.cnp(700);
    }),
    ("CNP that tells nothing", |f| {
        f.it.on_notification(f.now, &Notification::default());
    }),
    ("sequence error", |f| f.it.on_loss(f.now, Loss::OutOfSequence)),
    ("50 us", |f| {
        f.wait_us(50);
    }),
    ("timer", |f| {
        f.ticks(1);
    }),
    ("timer, paused", |f| {
        if let Some(at) = f.it.next_change() {
            f.now = at;
            f.it.advance(at, true);
        }
    }),
    ("one second", |f| {
        f.wait_us(1_000_000);
    }),
];

const STATES: [Input; 8] = [
    ("released", |_| {}),
    ("cut once", |f| {
        f.cnp(50);
    }),
    ("cut ten times", |f| {
        (0..10).for_each(|_| {
            f.cnp(50);
        });
    }),
    ("cut ten times, 1000 flows", |f| {
        (0..10).for_each(|_| {
            f.cnp(1000);
        });
    }),
    ("recovery", |f| {
        f.cnp(50).cnp(50).cnp(50).ticks(2);
    }),
    ("additive", |f| {
        f.cnp(50).cnp(50).cnp(50).cnp(50).ticks(6);
    }),
    ("hyper", |f| {
        (0..10).for_each(|_| {
            f.cnp(50);
        });
        f.ticks(21);
    }),
    ("at the least rate", |f| {
        (0..30).for_each(|_| {
            f.cnp(50);
        });
    }),
];

#[test]
fn every_state_with_every_input() {
    let mut text = String::new();
    let p = Parameters::default();
    for (state, make) in STATES {
        let mut flow = Flow::new(&p);
        make(&mut flow);
        writeln!(text, "{state}\n  is                      {}", flow.show()).unwrap();
        for (input, give) in INPUTS {
            let mut flow = Flow::new(&p);
            make(&mut flow);
            give(&mut flow);
            writeln!(text, "  {input:23} {}", flow.show()).unwrap();
        }
        writeln!(text).unwrap();
    }
    expect_file!["../snapshots/dcqcn_plus.txt"].assert_eq(&text);
}

fn with(change: impl FnOnce(&mut Parameters)) -> Parameters {
    let mut p = Parameters::default();
    change(&mut p);
    p
}

/// A flow after some notifications of this period.
fn cut(p: &Parameters, times: u32, tau: u64) -> Flow {
    let mut flow = Flow::new(p);
    for _ in 0..times {
        flow.cnp(tau);
    }
    flow
}

#[test]
fn the_told_period_sets_both_timers() {
    let p = Parameters::default();
    assert_eq!(cut(&p, 1, 0).timer(), 55);
    assert_eq!(cut(&p, 1, 50).timer(), 55);
    assert_eq!(cut(&p, 1, 51).timer(), 51);
    assert_eq!(cut(&p, 1, 700).timer(), 700);
    assert_eq!(cut(&p, 1, 700).wait_us(699).alpha(), 1024);
    assert_eq!(cut(&p, 1, 700).wait_us(700).alpha(), 1020);
}

#[test]
fn up_to_the_floor_timers_are_the_base() {
    let p = with(|p| p.period_floor = Duration::from_micros(10));
    assert_eq!(cut(&p, 1, 10).timer(), 55);
    assert_eq!(cut(&p, 1, 15).timer(), 15);
    let p = with(|p| p.base_timer = Duration::from_micros(70));
    assert_eq!(cut(&p, 1, 50).timer(), 70);
    assert_eq!(cut(&p, 1, 50).wait_us(69).alpha(), 1024);
    assert_eq!(cut(&p, 1, 50).wait_us(70).alpha(), 1020);
}

#[test]
fn timers_last_the_period_or_so_many_packets() {
    let p = with(|p| (p.timer_slack, p.alpha_slack) = (3.0, 1.5));
    assert_eq!(cut(&p, 1, 100).timer(), 100);
    assert_eq!(cut(&p, 1, 100).wait_us(99).alpha(), 1024);
    assert_eq!(cut(&p, 1, 100).wait_us(100).alpha(), 1020);
    // 1250 bytes at 1 Mbit/s are 10 ms.
    assert_eq!(cut(&p, 20, 100).timer(), 30_000);
    assert_eq!(cut(&p, 20, 20_000).timer(), 30_000);
    assert_eq!(cut(&p, 20, 40_000).timer(), 40_000);
}

#[test]
fn a_slow_flow_waits_for_a_packet_of_its_own() {
    // 1250 bytes at 1 Mbit/s are 10 ms.
    let p = Parameters::default();
    assert_eq!(cut(&p, 20, 50).timer(), 20_000);
    let p = with(|p| p.packet_time = false);
    assert_eq!(cut(&p, 20, 50).timer(), 55);
}

#[test]
fn g_initial_alpha_and_cut_decide_how_much_goes() {
    let first = |p: &Parameters| cut(p, 1, 50).rate();
    assert_eq!(first(&Parameters::default()), LINE / 2);
    assert_eq!(first(&with(|p| p.initial_alpha = 512)), LINE / 4 * 3);
    assert_eq!(first(&with(|p| p.cut = 0.25)), LINE / 4 * 3);
    assert_eq!(first(&with(|p| p.cut = 1.0)), LINE / 10_000);
    assert_eq!(cut(&with(|p| p.g = 512), 1, 50).wait_us(55).alpha(), 512);
    assert_eq!(cut(&with(|p| p.g = 0), 1, 50).wait_us(55).alpha(), 1024);
}

#[test]
fn min_rate_divisor_is_the_floor() {
    assert_eq!(cut(&Parameters::default(), 30, 50).rate(), LINE / 10_000);
    assert_eq!(
        cut(&with(|p| p.min_rate_divisor = 100), 30, 50).rate(),
        LINE / 100
    );
    // The line's: nothing is limited.
    assert_eq!(cut(&with(|p| p.min_rate_divisor = 1), 30, 50).rate(), UNLIMITED);
}

/// Rate, target, and by how much the target rises, at each of so many expiries.
fn rises(p: &Parameters, cuts: u32, n: u32) -> Vec<(u64, u64, u64)> {
    let mut flow = cut(p, cuts, 50);
    (0..n)
        .map(|_| {
            let (rate, target) = (flow.rate(), flow.target());
            (rate, target, flow.ticks(1).target().saturating_sub(target))
        })
        .collect()
}

#[test]
fn threshold_and_hyper_after_divide_the_stages() {
    let first = |p: &Parameters| {
        let steps = rises(p, 14, 30);
        let additive = steps.iter().position(|s| s.2 != 0);
        let hyper = steps.iter().position(|s| s.2 != 0 && s.2 == s.1);
        (additive, hyper)
    };
    // Nothing but the target bounds the hyper step.
    let with = |change: &dyn Fn(&mut Parameters)| {
        with(|p| {
            p.hyper_line_divisor = 1;
            change(p);
        })
    };
    assert_eq!(first(&with(&|_| ())), (Some(5), Some(20)));
    assert_eq!(first(&with(&|p| p.threshold = 3)), (Some(3), Some(12)));
    assert_eq!(first(&with(&|p| p.hyper_after = 2)), (Some(5), Some(10)));
}

#[test]
fn additive_steps_are_parts_of_the_rate_and_of_the_line() {
    let first = |p: &Parameters, cuts| {
        let (rate, _, step) = rises(p, cuts, 6)[5];
        (rate / step.max(1), LINE / step.max(1))
    };
    // Slow flows: parts of the rate.
    let flat = with(|p| p.g = 512);
    assert_eq!(first(&Parameters::default(), 10).0, 5);
    assert_eq!(first(&flat, 10).0, 10);
    assert_eq!(first(&with(|p| p.steep_rate_divisor = 7), 10).0, 7);
    assert_eq!(first(&with(|p| (p.g, p.flat_rate_divisor) = (512, 20)), 10).0, 20);
    // Fast ones: parts of the line.
    assert_eq!(first(&Parameters::default(), 3).1, 50);
    assert_eq!(first(&flat, 3).1, 100);
    assert_eq!(first(&with(|p| p.steep_line_divisor = 70), 3).1, 70);
    assert_eq!(
        first(&with(|p| (p.g, p.flat_line_divisor) = (512, 200)), 3).1,
        200
    );
    // Alpha says which, here after ten periods without a notification.
    assert_eq!(first(&with(|p| p.steep_alpha = 1024), 10).0, 10);
}

#[test]
fn hyper_steps_have_a_bound_that_doubles() {
    let bounds = |p: &Parameters| -> Vec<u64> {
        let mut flow = cut(p, 6, 50);
        flow.ticks(20);
        (0..3)
            .map(|_| {
                let target = flow.target();
                flow.ticks(1).target() - target
            })
            .collect()
    };
    let least = LINE / 10_000;
    assert_eq!(bounds(&Parameters::default()), [1, 2, 4].map(|n| n * least));
    let linear = with(|p| p.hyper_bound = Bound::Linear);
    assert_eq!(bounds(&linear), [1, 2, 3].map(|n| n * least));
    let large = with(|p| p.hyper_line_divisor = 100);
    assert_eq!(bounds(&large), [1, 2, 4].map(|n| n * LINE / 100));
}

/// A slow flow is a thousand times as fast after ten periods of hyper increase (section IV of the paper).
#[test]
fn ten_hyper_steps_make_the_slowest_flow_a_thousand_times_as_fast() {
    // Without additive steps before.
    let p = with(|p| p.hyper_after = 1);
    let mut flow = cut(&p, 30, 50);
    flow.ticks(5);
    assert_eq!((flow.rate(), flow.target()), (LINE / 10_000, LINE / 10_000));
    flow.ticks(10);
    assert_eq!(flow.target(), 1024 * (LINE / 10_000));
}

#[test]
fn a_paused_priority_increases_nothing() {
    let mut flow = cut(&Parameters::default(), 5, 50);
    let (rate, target) = (flow.rate(), flow.target());
    flow.now = flow.now + Duration::from_secs(3600);
    flow.it.advance(flow.now, true);
    assert_eq!((flow.rate(), flow.target()), (rate, target));
    assert_eq!(flow.it.state().stages, Some((0, 0)));
    assert_eq!(flow.alpha(), 0);
    flow.ticks(1);
    assert_eq!(flow.rate(), rate.midpoint(target));
}

#[test]
fn small_flows_recover_within_a_second() {
    // 20 ms for the first packets, then faster and faster.
    let mut flow = cut(&Parameters::default(), 30, 50);
    assert_eq!(flow.rate(), 1_000_000);
    flow.wait_us(1_000_000);
    assert!(flow.it.is_released(), "{}", flow.show());
}

#[test]
fn a_flow_goes_on_where_it_was_when_parameters_change() {
    let p = Parameters::default();
    let flow = Flow::at(&p, Some(LINE / 4));
    assert_eq!((flow.rate(), flow.target()), (LINE / 4, LINE / 4));
    assert!(Flow::at(&p, Some(LINE)).it.is_released());
}

proptest! {
    /// Who looks each microsecond and who looks only when something happens see the same.
    #[test]
    fn late_looks_see_what_early_ones_do(
        steps in prop::collection::vec((0u64..3000, prop::option::of(0u64..1000)), 0..40),
        g in 0u32..1025,
        linear: bool,
    ) {
        let p = with(|p| {
            p.g = g;
            if linear {
                p.hyper_bound = Bound::Linear;
            }
        });
        let mut late = Flow::new(&p);
        let mut early = Flow::new(&p);
        for (wait, tau) in steps {
            late.now = late.now + Duration::from_micros(wait);
            for _ in 0..wait {
                early.wait_us(1);
            }
            if let Some(tau) = tau {
                late.cnp(tau);
                early.cnp(tau);
            }
            late.wait_us(0);
            prop_assert_eq!(late.show(), early.show());
            let rate = late.rate();
            prop_assert!(rate == UNLIMITED || (LINE / 10_000..=LINE).contains(&rate));
            prop_assert!(late.target() >= rate || late.it.is_released());
            prop_assert!(late.it.next_change().is_none_or(|at| at > late.now));
        }
    }
}
