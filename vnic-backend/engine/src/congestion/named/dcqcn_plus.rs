//! Parameters of DCQCN+.

use super::super::dcqcn_plus::{Bound, Parameters};
use super::value::{rows, words};

/// Range of times: to a second.
const TIMES: (f64, f64) = (0.0, 1e9);
const SLACK: (f64, f64) = (0.1, 1e3);

rows! {
    /// Parameters of DCQCN+.
    pub const ROWS of Parameters:
    g: Small as Per1024 in (0.0, 1023.0), "weight of a new sample in alpha";
    initial_alpha: Small as Per1024 in (0.0, 1024.0), "alpha at the first notification";
    cut: Real as One in (0.0, 1.0), "a cut takes alpha times this";
    period_floor: Time in TIMES, "least period between two notifications, whatever is told";
    base_timer: Time in TIMES, "both timers while the period is at its floor";
    timer_slack: Real as One in SLACK, "lambda: packets that the timer of increases lasts at least";
    alpha_slack: Real as One in SLACK, "packets that alpha's timer lasts at least";
    packet_time: Switch, "timers are no shorter than a packet takes at the flow's rate";
    threshold: Small as One in (1.0, 31.0), "F, stages of fast recovery";
    hyper_after: Small as One in (1.0, 1000.0), "hyper increase begins at this times F";
    min_rate_divisor: Small as One in (1.0, 1e9), "least rate: the link's over this";
    steep_alpha: Small as Per1024 in (0.0, 1024.0), "alpha above which additive increase is steep";
    steep_rate_divisor: Small as One in (1.0, 1e9), "step of steep increase: the rate over this";
    steep_line_divisor: Small as One in (1.0, 1e9), "and at most the link's rate over this";
    flat_rate_divisor: Small as One in (1.0, 1e9), "step of additive increase: the rate over this";
    flat_line_divisor: Small as One in (1.0, 1e9), "and at most the link's rate over this";
    hyper_line_divisor: Small as One in (1.0, 1e9),
        "first bound of the step of hyper increase: the link's rate over this";
    hyper_bound: Word, "how that bound grows";
}

words!(Bound: "linear" = Bound::Linear, "exponential" = Bound::Exponential);
