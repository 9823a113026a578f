//! Parameters of TIMELY, Swift and HPCC.

use super::super::hpcc::{self, Reaction};
use super::super::swift;
use super::super::timely::{self, HyperCounts, Pacing};
use super::value::{Field, Row, Unit, words};

/// Range of delays: to a second.
const TIMES: (f64, f64) = (0.0, 1e9);
/// Range of times that are divisors.
const POSITIVE_TIMES: (f64, f64) = (1.0, 1e9);
/// Range of rates: to a Tbit/s.
const RATES: (f64, f64) = (0.0, 1e12);
const PARTS: (f64, f64) = (0.0, 1.0);
const COUNTS: (f64, f64) = (0.0, 1e6);
const WINDOWS: (f64, f64) = (1e-6, 1e6);

/// Parameters of TIMELY.
pub const TIMELY: &[Row<timely::Parameters>] = &[
    Row {
        name: "ewma",
        unit: Unit::One,
        range: PARTS,
        help: "weight of a new difference of round trips in their moving average",
        field: |p| Field::Real(&mut p.ewma),
    },
    Row {
        name: "beta",
        unit: Unit::One,
        range: PARTS,
        help: "how much a decrease takes",
        field: |p| Field::Real(&mut p.beta),
    },
    Row {
        name: "t_low",
        unit: Unit::Time,
        range: TIMES,
        help: "round trip below which rates grow whatever the gradient",
        field: |p| Field::Time(&mut p.t_low),
    },
    Row {
        name: "t_high",
        unit: Unit::Time,
        range: TIMES,
        help: "round trip above which rates fall whatever the gradient",
        field: |p| Field::Time(&mut p.t_high),
    },
    Row {
        name: "min_rtt",
        unit: Unit::Time,
        range: POSITIVE_TIMES,
        help: "round trip that gradients are relative to",
        field: |p| Field::Time(&mut p.min_rtt),
    },
    Row {
        name: "step",
        unit: Unit::BitRate,
        range: RATES,
        help: "additive increase",
        field: |p| Field::Whole(&mut p.step),
    },
    Row {
        name: "hyper",
        unit: Unit::One,
        range: COUNTS,
        help: "steps of one hyper increase",
        field: |p| Field::Small(&mut p.hyper),
    },
    Row {
        name: "hyper_after",
        unit: Unit::One,
        range: COUNTS,
        help: "increases in a row before hyper increase",
        field: |p| Field::Small(&mut p.hyper_after),
    },
    Row {
        name: "hyper_counts",
        unit: Unit::Word,
        range: PARTS,
        help: "what counts towards hyper increase: increases of any kind, or falls of the round trip",
        field: |p| Field::Word(&mut p.hyper_counts),
    },
    Row {
        name: "segment",
        unit: Unit::Bytes,
        range: (1.0, 1e6),
        help: "round trips are measured so often",
        field: |p| Field::Small(&mut p.segment),
    },
    Row {
        name: "pacing",
        unit: Unit::Word,
        range: PARTS,
        help: "packets of a segment leave in a burst, or each at the flow's rate",
        field: |p| Field::Word(&mut p.pacing),
    },
    Row {
        name: "patched",
        unit: Unit::Switch,
        range: PARTS,
        help: "between t_low and t_high, rates follow the round trip the more the steeper it grows (Patched TIMELY)",
        field: |p| Field::Switch(&mut p.patched),
    },
    Row {
        name: "once_per_rtt",
        unit: Unit::Switch,
        range: PARTS,
        help: "rates change once in a round trip, otherwise at each measurement",
        field: |p| Field::Switch(&mut p.once_per_rtt),
    },
    Row {
        name: "scaled",
        unit: Unit::Switch,
        range: PARTS,
        help: "changes are smaller in proportion where less than min_rtt has passed",
        field: |p| Field::Switch(&mut p.scaled),
    },
    Row {
        name: "least_left",
        unit: Unit::One,
        range: PARTS,
        help: "part of the rate that one decrease leaves at least",
        field: |p| Field::Real(&mut p.least_left),
    },
    Row {
        name: "min_rate",
        unit: Unit::BitRate,
        range: RATES,
        help: "least rate",
        field: |p| Field::Whole(&mut p.min_rate),
    },
    Row {
        name: "start",
        unit: Unit::One,
        range: PARTS,
        help: "part of the line rate that a flow begins with",
        field: |p| Field::Real(&mut p.start),
    },
];

/// Parameters of Swift.
pub const SWIFT: &[Row<swift::Parameters>] = &[
    Row {
        name: "base",
        unit: Unit::Time,
        range: POSITIVE_TIMES,
        help: "target of the network's delay, without hops and flows",
        field: |p| Field::Time(&mut p.base),
    },
    Row {
        name: "hop",
        unit: Unit::Time,
        range: TIMES,
        help: "what a switch on the way adds to the target",
        field: |p| Field::Time(&mut p.hop),
    },
    Row {
        name: "hop_scaling",
        unit: Unit::Switch,
        range: PARTS,
        help: "targets grow by the number of switches",
        field: |p| Field::Switch(&mut p.hop_scaling),
    },
    Row {
        name: "flow_scaling",
        unit: Unit::Switch,
        range: PARTS,
        help: "targets grow as windows shrink",
        field: |p| Field::Switch(&mut p.flow_scaling),
    },
    Row {
        name: "fs_range",
        unit: Unit::Time,
        range: TIMES,
        help: "most that flow-based scaling adds to the target",
        field: |p| Field::Time(&mut p.fs_range),
    },
    Row {
        name: "fs_min",
        unit: Unit::Packets,
        range: WINDOWS,
        help: "window at which flow-based scaling adds all of that",
        field: |p| Field::Real(&mut p.fs_min),
    },
    Row {
        name: "fs_max",
        unit: Unit::Packets,
        range: WINDOWS,
        help: "window from which on flow-based scaling adds nothing",
        field: |p| Field::Real(&mut p.fs_max),
    },
    Row {
        name: "ai",
        unit: Unit::Packets,
        range: (0.0, 1e3),
        help: "what a window grows in a round trip",
        field: |p| Field::Real(&mut p.ai),
    },
    Row {
        name: "beta",
        unit: Unit::One,
        range: PARTS,
        help: "how much a decrease takes of the part of the delay above target",
        field: |p| Field::Real(&mut p.beta),
    },
    Row {
        name: "max_mdf",
        unit: Unit::One,
        range: PARTS,
        help: "most that one decrease takes of the window",
        field: |p| Field::Real(&mut p.max_mdf),
    },
    Row {
        name: "below_one",
        unit: Unit::Switch,
        range: PARTS,
        help: "windows may be below one packet: the flow is paced",
        field: |p| Field::Switch(&mut p.below_one),
    },
    Row {
        name: "min_cwnd",
        unit: Unit::Packets,
        range: WINDOWS,
        help: "least window, where below_one is on",
        field: |p| Field::Real(&mut p.min_cwnd),
    },
    Row {
        name: "max_cwnd",
        unit: Unit::Packets,
        range: WINDOWS,
        help: "greatest window",
        field: |p| Field::Real(&mut p.max_cwnd),
    },
    Row {
        name: "initial_cwnd",
        unit: Unit::Packets,
        range: WINDOWS,
        help: "window at the start",
        field: |p| Field::Real(&mut p.initial_cwnd),
    },
    Row {
        name: "split",
        unit: Unit::Switch,
        range: PARTS,
        help: "the receiver's delay has a window of its own",
        field: |p| Field::Switch(&mut p.split),
    },
    Row {
        name: "endpoint_target",
        unit: Unit::Time,
        range: TIMES,
        help: "target of the receiver's delay",
        field: |p| Field::Time(&mut p.endpoint_target),
    },
    Row {
        name: "endpoint_ewma",
        unit: Unit::One,
        range: PARTS,
        help: "weight of a new sample in the moving average of the receiver's delay",
        field: |p| Field::Real(&mut p.endpoint_ewma),
    },
    Row {
        name: "retransmit_reset",
        unit: Unit::One,
        range: (1.0, 1e6),
        help: "timeouts in a row after which the window is the least one",
        field: |p| Field::Small(&mut p.retransmit_reset),
    },
];

/// Parameters of HPCC.
pub const HPCC: &[Row<hpcc::Parameters>] = &[
    Row {
        name: "eta",
        unit: Unit::One,
        range: (0.01, 1.0),
        help: "part of a link that is aimed at",
        field: |p| Field::Real(&mut p.eta),
    },
    Row {
        name: "max_stage",
        unit: Unit::One,
        range: COUNTS,
        help: "additive increases in a row before a multiplicative one",
        field: |p| Field::Small(&mut p.max_stage),
    },
    Row {
        name: "w_ai",
        unit: Unit::Bytes,
        range: (0.0, 1e6),
        help: "bytes on the wire of an additive increase",
        field: |p| Field::Real(&mut p.w_ai),
    },
    Row {
        name: "base_rtt",
        unit: Unit::Time,
        range: POSITIVE_TIMES,
        help: "round trip without queues",
        field: |p| Field::Time(&mut p.base_rtt),
    },
    Row {
        name: "reaction",
        unit: Unit::Word,
        range: PARTS,
        help: "windows follow each acknowledge from the reference window, each from themselves, or once in a round trip",
        field: |p| Field::Word(&mut p.reaction),
    },
    Row {
        name: "initial_u",
        unit: Unit::One,
        range: (0.0, 10.0),
        help: "what is under way, in links, before the first sample",
        field: |p| Field::Real(&mut p.initial_u),
    },
    Row {
        name: "min_rate",
        unit: Unit::BitRate,
        range: RATES,
        help: "least rate; 0: none",
        field: |p| Field::Whole(&mut p.min_rate),
    },
];

words!(HyperCounts: "increases" = HyperCounts::Increases, "falls" = HyperCounts::Falls);
words!(Pacing: "burst" = Pacing::Burst, "packet" = Pacing::Packet);
words!(Reaction: "reference" = Reaction::Reference, "per-ack" = Reaction::PerAck, "per-rtt" = Reaction::PerRtt);
