//! Parameters of DCQCN+.

use super::super::dcqcn_plus::{Bound, Parameters};
use super::value::{Field, Row, Unit, words};

/// Range of values that are no numbers.
const SWITCH: (f64, f64) = (0.0, 1.0);
/// Range of times: to a second.
const TIMES: (f64, f64) = (0.0, 1e9);
const SLACK: (f64, f64) = (0.1, 1e3);

/// Parameters of DCQCN+.
pub const ROWS: &[Row<Parameters>] = &[
    Row {
        name: "g",
        unit: Unit::Per1024,
        range: (0.0, 1023.0),
        help: "weight of a new sample in alpha",
        field: |p| Field::Small(&mut p.g),
    },
    Row {
        name: "initial_alpha",
        unit: Unit::Per1024,
        range: (0.0, 1024.0),
        help: "alpha at the first notification",
        field: |p| Field::Small(&mut p.initial_alpha),
    },
    Row {
        name: "cut",
        unit: Unit::One,
        range: (0.0, 1.0),
        help: "a cut takes alpha times this",
        field: |p| Field::Real(&mut p.cut),
    },
    Row {
        name: "period_floor",
        unit: Unit::Time,
        range: TIMES,
        help: "least period between two notifications, whatever is told",
        field: |p| Field::Time(&mut p.period_floor),
    },
    Row {
        name: "base_timer",
        unit: Unit::Time,
        range: TIMES,
        help: "both timers while the period is at its floor",
        field: |p| Field::Time(&mut p.base_timer),
    },
    Row {
        name: "timer_slack",
        unit: Unit::One,
        range: SLACK,
        help: "lambda: the timer of increases is the period times this",
        field: |p| Field::Real(&mut p.timer_slack),
    },
    Row {
        name: "alpha_slack",
        unit: Unit::One,
        range: SLACK,
        help: "lambda of alpha's timer",
        field: |p| Field::Real(&mut p.alpha_slack),
    },
    Row {
        name: "packet_time",
        unit: Unit::Switch,
        range: SWITCH,
        help: "timers are no shorter than a packet takes at the flow's rate",
        field: |p| Field::Switch(&mut p.packet_time),
    },
    Row {
        name: "threshold",
        unit: Unit::One,
        range: (1.0, 31.0),
        help: "F, stages of fast recovery",
        field: |p| Field::Small(&mut p.threshold),
    },
    Row {
        name: "hyper_after",
        unit: Unit::One,
        range: (1.0, 1000.0),
        help: "hyper increase begins at this times F",
        field: |p| Field::Small(&mut p.hyper_after),
    },
    Row {
        name: "min_rate_divisor",
        unit: Unit::One,
        range: (1.0, 1e9),
        help: "least rate: the link's over this",
        field: |p| Field::Small(&mut p.min_rate_divisor),
    },
    Row {
        name: "steep_alpha",
        unit: Unit::Per1024,
        range: (0.0, 1024.0),
        help: "alpha above which additive increase is steep",
        field: |p| Field::Small(&mut p.steep_alpha),
    },
    Row {
        name: "steep_rate_divisor",
        unit: Unit::One,
        range: (1.0, 1e9),
        help: "step of steep increase: the rate over this",
        field: |p| Field::Small(&mut p.steep_rate_divisor),
    },
    Row {
        name: "steep_line_divisor",
        unit: Unit::One,
        range: (1.0, 1e9),
        help: "and at most the link's rate over this",
        field: |p| Field::Small(&mut p.steep_line_divisor),
    },
    Row {
        name: "flat_rate_divisor",
        unit: Unit::One,
        range: (1.0, 1e9),
        help: "step of additive increase: the rate over this",
        field: |p| Field::Small(&mut p.flat_rate_divisor),
    },
    Row {
        name: "flat_line_divisor",
        unit: Unit::One,
        range: (1.0, 1e9),
        help: "and at most the link's rate over this",
        field: |p| Field::Small(&mut p.flat_line_divisor),
    },
    Row {
        name: "hyper_line_divisor",
        unit: Unit::One,
        range: (1.0, 1e9),
        help: "first bound of the step of hyper increase: the link's rate over this",
        field: |p| Field::Small(&mut p.hyper_line_divisor),
    },
    Row {
        name: "hyper_bound",
        unit: Unit::Word,
        range: SWITCH,
        help: "how that bound grows",
        field: |p| Field::Word(&mut p.hyper_bound),
    },
];

words!(Bound: "linear" = Bound::Linear, "exponential" = Bound::Exponential);
