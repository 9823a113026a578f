//! Parameters of DCQCN.

use super::super::dcqcn::{AlphaClock, Hyper, Order, Parameters};
use super::value::{rows, words};

/// Range of times: to a second.
const TIMES: (f64, f64) = (0.0, 1e9);
/// Range of rates: to a Tbit/s.
const RATES: (f64, f64) = (0.0, 1e12);

rows! {
    /// Parameters of DCQCN; in brackets the names of WinOF-2 and firmware.
    pub const ROWS of Parameters:
    clamp_target: Switch, "each notification makes the current rate the target (DcqcnClampTgtRate)";
    clamp_target_after_time: Switch, "also after an increase by the timer (DcqcnClampTgtRateAfterTimeInc)";
    time_reset: Time in (0.0, 1.31071e8), "T, the timer of increases; 0: none (DcqcnRpgTimeReset)";
    byte_reset: Whole as Bytes in (0.0, 1e9),
        "B, the byte counter of increases; 0: none (DcqcnRpgByteReset, which counts 64 bytes)";
    threshold: Small as One in (1.0, 31.0),
        "F, increases before additive, and then hyper increase (DcqcnRpgThreshold)";
    ai_rate: Whole as BitRate in RATES, "R_AI, the step of additive increase (DcqcnRpgAiRate)";
    hai_rate: Whole as BitRate in RATES, "R_HAI, the step of hyper increase (DcqcnRpgHaiRate)";
    max_rate: Whole as BitRate in RATES,
        "rate at which the limiter is released; 0: the link's (RPG_MAX_RATE)";
    alpha_to_rate_shift: Small as One in (0.0, 11.0),
        "a cut takes alpha in 1/1024 over 2 to the power of this (DcqcnAlphaToRateShift)";
    min_decrease: Small as Percent in (0.0, 100.0),
        "what a cut leaves of the rate at least (DcqcnRpgMinDecFac)";
    min_rate: Whole as BitRate in RATES, "least rate (DcqcnRpgMinRate)";
    rate_on_first_cnp: Whole as BitRate in RATES,
        "rate at the first notification; 0: as it was (DcqcnRateToSetOnFirstCnp)";
    g: Small as Per1024 in (0.0, 1023.0),
        "weight of a new sample in alpha (DcqcnDceTcpG, where that is the gain)";
    alpha_period: Time in TIMES, "time between updates of alpha; 0: none (DcqcnDceTcpRtt)";
    cut_period: Time in TIMES,
        "time in which the rate is cut at most once; 0: each notification cuts (DcqcnRateReduceMonitorPeriod)";
    initial_alpha: Small as Per1024 in (0.0, 1024.0),
        "alpha at the first notification (DcqcnInitialAlphaValue)";
    alpha_clock: Word, "alpha rises with each notification, or each period that had one";
    order: Word, "which is first at a notification";
    hyper: Word, "the step of hyper increase grows with each, or not";
    fixed_point: Switch, "alpha is a whole number of 1/1024, as in firmware";
    qcn_relics: Switch,
        "QCN's rules of ns3-rdma: a target far above the rate falls to an eighth, hyper increase halves B and T";
}

words!(AlphaClock: "notification" = AlphaClock::Notification, "period" = AlphaClock::Period);
words!(Order: "cut-first" = Order::CutFirst, "alpha-first" = Order::AlphaFirst);
words!(Hyper: "growing" = Hyper::Growing, "constant" = Hyper::Constant);
