//! Parameters of DCQCN.

use super::super::dcqcn::{AlphaClock, Hyper, Order, Parameters};
use super::value::{Field, Row, Unit, words};

/// Range of values that are no numbers.
const SWITCH: (f64, f64) = (0.0, 1.0);
/// Range of times: to a second.
const TIMES: (f64, f64) = (0.0, 1e9);
/// Range of rates: to a Tbit/s.
const RATES: (f64, f64) = (0.0, 1e12);

/// Parameters of DCQCN; in brackets the names of WinOF-2 and firmware.
pub const ROWS: &[Row<Parameters>] = &[
    Row {
        name: "clamp_target",
        unit: Unit::Switch,
        range: SWITCH,
        help: "each notification makes the current rate the target (DcqcnClampTgtRate)",
        field: |p| Field::Switch(&mut p.clamp_target),
    },
    Row {
        name: "clamp_target_after_time",
        unit: Unit::Switch,
        range: SWITCH,
        help: "also after an increase by the timer (DcqcnClampTgtRateAfterTimeInc)",
        field: |p| Field::Switch(&mut p.clamp_target_after_time),
    },
    Row {
        name: "time_reset",
        unit: Unit::Time,
        range: (0.0, 1.31071e8),
        help: "T, the timer of increases; 0: none (DcqcnRpgTimeReset)",
        field: |p| Field::Time(&mut p.time_reset),
    },
    Row {
        name: "byte_reset",
        unit: Unit::Bytes,
        range: (0.0, 1e9),
        help: "B, the byte counter of increases; 0: none (DcqcnRpgByteReset, which counts 64 bytes)",
        field: |p| Field::Whole(&mut p.byte_reset),
    },
    Row {
        name: "threshold",
        unit: Unit::One,
        range: (1.0, 31.0),
        help: "F, increases before additive, and then hyper increase (DcqcnRpgThreshold)",
        field: |p| Field::Small(&mut p.threshold),
    },
    Row {
        name: "ai_rate",
        unit: Unit::BitRate,
        range: RATES,
        help: "R_AI, the step of additive increase (DcqcnRpgAiRate)",
        field: |p| Field::Whole(&mut p.ai_rate),
    },
    Row {
        name: "hai_rate",
        unit: Unit::BitRate,
        range: RATES,
        help: "R_HAI, the step of hyper increase (DcqcnRpgHaiRate)",
        field: |p| Field::Whole(&mut p.hai_rate),
    },
    Row {
        name: "max_rate",
        unit: Unit::BitRate,
        range: RATES,
        help: "rate at which the limiter is released; 0: the link's (RPG_MAX_RATE)",
        field: |p| Field::Whole(&mut p.max_rate),
    },
    Row {
        name: "alpha_to_rate_shift",
        unit: Unit::One,
        range: (0.0, 11.0),
        help: "a cut takes alpha in 1/1024 over 2 to the power of this (DcqcnAlphaToRateShift)",
        field: |p| Field::Small(&mut p.alpha_to_rate_shift),
    },
    Row {
        name: "min_decrease",
        unit: Unit::Percent,
        range: (0.0, 100.0),
        help: "what a cut leaves of the rate at least (DcqcnRpgMinDecFac)",
        field: |p| Field::Small(&mut p.min_decrease),
    },
    Row {
        name: "min_rate",
        unit: Unit::BitRate,
        range: RATES,
        help: "least rate (DcqcnRpgMinRate)",
        field: |p| Field::Whole(&mut p.min_rate),
    },
    Row {
        name: "rate_on_first_cnp",
        unit: Unit::BitRate,
        range: RATES,
        help: "rate at the first notification; 0: as it was (DcqcnRateToSetOnFirstCnp)",
        field: |p| Field::Whole(&mut p.rate_on_first_cnp),
    },
    Row {
        name: "g",
        unit: Unit::Per1024,
        range: (0.0, 1023.0),
        help: "weight of a new sample in alpha (DcqcnDceTcpG, where that is the gain)",
        field: |p| Field::Small(&mut p.g),
    },
    Row {
        name: "alpha_period",
        unit: Unit::Time,
        range: TIMES,
        help: "time between updates of alpha; 0: none (DcqcnDceTcpRtt)",
        field: |p| Field::Time(&mut p.alpha_period),
    },
    Row {
        name: "cut_period",
        unit: Unit::Time,
        range: TIMES,
        help: "time in which the rate is cut at most once; 0: each notification cuts (DcqcnRateReduceMonitorPeriod)",
        field: |p| Field::Time(&mut p.cut_period),
    },
    Row {
        name: "initial_alpha",
        unit: Unit::Per1024,
        range: (0.0, 1024.0),
        help: "alpha at the first notification (DcqcnInitialAlphaValue)",
        field: |p| Field::Small(&mut p.initial_alpha),
    },
    Row {
        name: "alpha_clock",
        unit: Unit::Word,
        range: SWITCH,
        help: "alpha rises with each notification, or each period that had one",
        field: |p| Field::Word(&mut p.alpha_clock),
    },
    Row {
        name: "order",
        unit: Unit::Word,
        range: SWITCH,
        help: "which is first at a notification",
        field: |p| Field::Word(&mut p.order),
    },
    Row {
        name: "hyper",
        unit: Unit::Word,
        range: SWITCH,
        help: "the step of hyper increase grows with each, or not",
        field: |p| Field::Word(&mut p.hyper),
    },
    Row {
        name: "fixed_point",
        unit: Unit::Switch,
        range: SWITCH,
        help: "alpha is a whole number of 1/1024, as in firmware",
        field: |p| Field::Switch(&mut p.fixed_point),
    },
    Row {
        name: "qcn_relics",
        unit: Unit::Switch,
        range: SWITCH,
        help: "QCN's rules of ns3-rdma: a target far above the rate falls to an eighth, hyper increase halves B and T",
        field: |p| Field::Switch(&mut p.qcn_relics),
    },
];

words!(AlphaClock: "notification" = AlphaClock::Notification, "period" = AlphaClock::Period);
words!(Order: "cut-first" = Order::CutFirst, "alpha-first" = Order::AlphaFirst);
words!(Hyper: "growing" = Hyper::Growing, "constant" = Hyper::Constant);
