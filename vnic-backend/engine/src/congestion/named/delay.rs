//! Parameters of TIMELY, Swift and HPCC.

use super::super::hpcc::{self, Reaction};
use super::super::swift;
use super::super::timely::{self, HyperCounts, Pacing};
use super::value::{rows, words};

/// Range of delays: to a second.
const TIMES: (f64, f64) = (0.0, 1e9);
/// Range of times that are divisors.
const POSITIVE_TIMES: (f64, f64) = (1.0, 1e9);
/// Range of rates: to a Tbit/s.
const RATES: (f64, f64) = (0.0, 1e12);
const PARTS: (f64, f64) = (0.0, 1.0);
const COUNTS: (f64, f64) = (0.0, 1e6);
const WINDOWS: (f64, f64) = (1e-6, 1e6);

rows! {
    /// Parameters of TIMELY.
    pub const TIMELY of timely::Parameters:
    ewma: Real as One in PARTS, "weight of a new difference of round trips in their moving average";
    beta: Real as One in PARTS, "how much a decrease takes";
    t_low: Time in TIMES, "round trip below which rates grow whatever the gradient";
    t_high: Time in TIMES, "round trip above which rates fall whatever the gradient";
    min_rtt: Time in POSITIVE_TIMES, "round trip that gradients are relative to";
    step: Whole as BitRate in RATES, "additive increase";
    hyper: Small as One in COUNTS, "steps of one hyper increase";
    hyper_after: Small as One in COUNTS, "increases in a row before hyper increase";
    hyper_counts: Word,
        "what counts towards hyper increase: increases of any kind, or falls of the round trip";
    segment: Small as Bytes in (1.0, 1e6), "round trips are measured so often";
    pacing: Word, "packets of a segment leave in a burst, or each at the flow's rate";
    patched: Switch,
        "between t_low and t_high, rates follow the round trip the more the steeper it grows (Patched TIMELY)";
    once_per_rtt: Switch, "rates change once in a round trip, otherwise at each measurement";
    scaled: Switch, "changes are smaller in proportion where less than min_rtt has passed";
    least_left: Real as One in PARTS, "part of the rate that one decrease leaves at least";
    min_rate: Whole as BitRate in RATES, "least rate";
    start: Real as One in PARTS, "part of the line rate that a flow begins with";
}

rows! {
    /// Parameters of Swift.
    pub const SWIFT of swift::Parameters:
    base: Time in POSITIVE_TIMES, "target of the network's delay, without hops and flows";
    hop: Time in TIMES, "what a switch on the way adds to the target";
    hop_scaling: Switch, "targets grow by the number of switches";
    flow_scaling: Switch, "targets grow as windows shrink";
    fs_range: Time in TIMES, "most that flow-based scaling adds to the target";
    fs_min: Real as Packets in WINDOWS, "window at which flow-based scaling adds all of that";
    fs_max: Real as Packets in WINDOWS, "window from which on flow-based scaling adds nothing";
    ai: Real as Packets in (0.0, 1e3), "what a window grows in a round trip";
    beta: Real as One in PARTS, "how much a decrease takes of the part of the delay above target";
    max_mdf: Real as One in PARTS, "most that one decrease takes of the window";
    below_one: Switch, "windows may be below one packet: the flow is paced";
    min_cwnd: Real as Packets in WINDOWS, "least window, where below_one is on";
    max_cwnd: Real as Packets in WINDOWS, "greatest window";
    initial_cwnd: Real as Packets in WINDOWS, "window at the start";
    split: Switch, "the receiver's delay has a window of its own";
    endpoint_target: Time in TIMES, "target of the receiver's delay";
    endpoint_ewma: Real as One in PARTS,
        "weight of a new sample in the moving average of the receiver's delay";
    retransmit_reset: Small as One in (1.0, 1e6), "timeouts in a row after which the window is the least one";
}

rows! {
    /// Parameters of HPCC.
    pub const HPCC of hpcc::Parameters:
    eta: Real as One in (0.01, 1.0), "part of a link that is aimed at";
    max_stage: Small as One in COUNTS, "additive increases in a row before a multiplicative one";
    w_ai: Real as Bytes in (0.0, 1e6), "bytes on the wire of an additive increase";
    base_rtt: Time in POSITIVE_TIMES, "round trip without queues";
    reaction: Word,
        "windows follow each acknowledge from the reference window, each from themselves, or once in a round trip";
    initial_u: Real as One in (0.0, 10.0), "what is under way, in links, before the first sample";
    min_rate: Whole as BitRate in RATES, "least rate; 0: none";
}

words!(HyperCounts: "increases" = HyperCounts::Increases, "falls" = HyperCounts::Falls);
words!(Pacing: "burst" = Pacing::Burst, "packet" = Pacing::Packet);
words!(Reaction: "reference" = Reaction::Reference, "per-ack" = Reaction::PerAck, "per-rtt" = Reaction::PerRtt);
