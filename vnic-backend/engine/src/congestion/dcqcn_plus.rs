//! DCQCN+ (Gao et al., ICNP 2018): DCQCN whose clocks and steps follow the number of congested flows, which the receiver puts
//! into its notifications.
//!
//! **Reconstructed.** The formulas of the paper were not at hand. The rules here are taken from its prose, and from a public
//! re-implementation where that agrees with it:
//!
//! | what | here | from |
//! |---|---|---|
//! | period told, tau | length of the list times the time for one CNP, at least 50 us | prose; the 50 us: re-implementation |
//! | timer of alpha | tau, or the time of one packet at the rate, whichever is longer, if that is more than 50 us | prose |
//! | timer of increase | tau, or the time of two packets | prose: long enough for several packets, and no shorter than the period |
//! | both timers otherwise | 55 us, as in DCQCN | prose: they are set anew "if tau is larger than 50 us" |
//! | F, AI, HI | stages 0..5, 5..20, from 20 | prose |
//! | AI step, alpha > 0.1 | the less of rate / 5 and line / 50 | re-implementation; the prose names such a pair |
//! | AI step otherwise | the less of rate / 10 and line / 100 | the same |
//! | HI step | the less of the target rate and the least rate x 2^i, i from 0 | prose: a slow flow is 1000 times as fast after ten steps, and a bound that does not depend on its rate grows exponentially |
//! | least rate | line / 10000 | prose, which says "RC / 10000" of "10,000 flows" |
//!
//! The prose leaves two things open, for which published results decide (P1 to P3 of docs/congestion-results.md, 37 rows). The bound of
//! the HI step begins at the least rate, which makes both sentences true of a flow that has it: from line / 100, as a
//! re-implementation has it, twice as many rows differ. Lambda counts packets: if it stretches the period as well, links with 320 to
//! 2000 flows are 6 to 8 % less busy.
//!
//! There is no byte counter. A timer that fires while the priority is paused increases nothing.

mod reaction;

use alloc::boxed::Box;
use core::time::Duration;

use vnic_wire::time::Instant;

use super::{Algorithm, CongestionControl, Needs, Start};
use reaction::Reaction;

/// Growth of the bound of the HI step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Bound {
    /// The bound is the first one times i + 1.
    Linear,
    /// The bound is the first one times 2^i.
    Exponential,
}

/// Parameters. A field named `divisor` divides the rate or the link's rate.
// Wide: the parameters of the algorithm as its paper names them, in one table.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameters {
    /// Weight of a new sample in alpha, in 1/1024.
    pub g: u32,
    /// Alpha at the first notification, in 1/1024.
    pub initial_alpha: u32,
    /// A cut takes alpha times this: 0.5.
    pub cut: f64,
    /// Least period between two notifications, whatever the receiver says.
    pub period_floor: Duration,
    /// Both timers while neither the period nor the time of a packet is longer than `period_floor`.
    pub base_timer: Duration,
    /// Lambda: the timer of increase is otherwise the period, or the time of so many packets, whichever is longer.
    pub timer_slack: f64,
    /// Lambda of alpha's timer.
    pub alpha_slack: f64,
    /// Whether the time of a packet at the flow's rate counts, too; otherwise only the period.
    pub packet_time: bool,
    /// F: stages of fast recovery.
    pub threshold: u32,
    /// HI begins at this times `threshold`.
    pub hyper_after: u32,
    /// Least rate: the link's rate divided by this.
    pub min_rate_divisor: u32,
    /// Alpha above which AI is steep, in 1/1024.
    pub steep_alpha: u32,
    /// Step of steep AI: the rate divided by this.
    pub steep_rate_divisor: u32,
    /// Largest step of steep AI: the link's rate divided by this.
    pub steep_line_divisor: u32,
    /// Step of AI: the rate divided by this.
    pub flat_rate_divisor: u32,
    /// Largest step of AI: the link's rate divided by this.
    pub flat_line_divisor: u32,
    /// First bound of the HI step: the link's rate divided by this.
    pub hyper_line_divisor: u32,
    /// Growth of that bound.
    pub hyper_bound: Bound,
}

impl Default for Parameters {
    fn default() -> Self {
        Parameters {
            g: 4,
            initial_alpha: 1024,
            cut: 0.5,
            period_floor: Duration::from_micros(50),
            base_timer: Duration::from_micros(55),
            timer_slack: 2.0,
            alpha_slack: 1.0,
            packet_time: true,
            threshold: 5,
            hyper_after: 4,
            min_rate_divisor: 10_000,
            steep_alpha: 102,
            steep_rate_divisor: 5,
            steep_line_divisor: 50,
            flat_rate_divisor: 10,
            flat_line_divisor: 100,
            hyper_line_divisor: 10_000,
            hyper_bound: Bound::Exponential,
        }
    }
}

/// The algorithm with its parameters. Its notification point is
/// [`Settings::dcqcn_plus`](super::notification::Settings::dcqcn_plus).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DcqcnPlus {
    /// The parameters.
    pub parameters: Parameters,
}

impl CongestionControl for DcqcnPlus {
    fn name(&self) -> &'static str {
        "dcqcn+"
    }

    fn needs(&self) -> Needs {
        Needs {
            loss: true,
            ..Needs::default()
        }
    }

    fn start(&self, now: Instant, flow: &Start) -> Box<dyn Algorithm> {
        Box::new(Reaction::new(&self.parameters, now, flow))
    }
}
