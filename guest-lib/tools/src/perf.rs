//! Common parts of benchmarks: their sizes, and how long they run.

use std::time::Duration;

use vnic_verbs::{QpType, mtu_bytes};

use crate::failure::Failure;
use crate::flow::Goal;
use crate::options::{BandwidthOptions, PerfOptions, path_mtu};
use crate::pattern::QP_STRIDE;
use crate::report::Report;
use crate::seat::Seat;

/// Messages by default.
const ITERS: u64 = 1000;
/// Largest size of `-a`.
const LARGEST: u32 = 8 << 20;

impl PerfOptions {
    /// Sizes of the run.
    pub fn sizes(&self, seat: &Seat<'_>, default: u32) -> Result<Vec<u32>, Failure> {
        // A datagram is one packet.
        let most = match self.connection {
            QpType::Ud => mtu_bytes(path_mtu(&seat.context, self.peer.mtu)?),
            _ => u32::MAX,
        };
        if self.all {
            let sizes = std::iter::successors(Some(2u32), |size| size.checked_mul(2));
            return Ok(sizes.take_while(|size| *size <= most.min(LARGEST)).collect());
        }
        let size = self.size.unwrap_or(default.min(most));
        if size > most {
            return Err(Failure::Usage(format!(
                "a datagram has at most {most} bytes here, not {size}: a smaller -s, or a larger MTU"
            )));
        }
        Ok(vec![size])
    }

    /// End of the run.
    pub fn goal(&self) -> Goal {
        match self.duration {
            Some(seconds) => Goal::Time(Duration::from_secs(seconds.into())),
            None => Goal::Messages(self.iters.unwrap_or(ITERS)),
        }
    }

    /// Messages on each queue pair, if their number ends the run.
    pub fn iters(&self) -> Option<u64> {
        match self.goal() {
            Goal::Messages(n) => Some(n),
            Goal::Time(_) => None,
        }
    }

    /// Settings that must be equal on both sides.
    pub fn run(&self, size: u32) -> Vec<(&'static str, String)> {
        let mut run = vec![
            ("size", size.to_string()),
            ("verify", u8::from(!self.peer.no_verify).to_string()),
        ];
        match self.goal() {
            Goal::Messages(n) => run.push(("iters", n.to_string())),
            Goal::Time(time) => run.push(("duration", time.as_secs().to_string())),
        }
        run
    }

    /// Runs `one` with each size.
    pub fn each_size(
        &self,
        seat: &mut Seat<'_>,
        tool: &str,
        default: u32,
        mut one: impl FnMut(&mut Seat<'_>, u32, &mut Report) -> Result<(), Failure>,
    ) -> Result<Report, Failure> {
        let limit = seat.context.query_device().max_inline;
        if self.inline_size > limit {
            return Err(Failure::Usage(format!(
                "the device takes at most {limit} inline bytes (-I)"
            )));
        }
        let mut report = Report::new(tool);
        for size in self.sizes(seat, default)? {
            one(seat, size, &mut report)?;
        }
        Ok(report)
    }
}

impl BandwidthOptions {
    /// Checks what goes together.
    pub fn check_bandwidth(&self, allowed: &[QpType], tool: &str) -> Result<(), Failure> {
        self.perf.check(allowed, tool)?;
        if self.bidirectional {
            self.perf.peer.needs_talk("-b")?;
        }
        Ok(())
    }

    /// Settings that must be equal on both sides.
    pub fn run(&self, size: u32) -> Vec<(&'static str, String)> {
        let mut run = self.perf.run(size);
        run.push(("qps", self.qps.to_string()));
        run.push(("both", u8::from(self.bidirectional).to_string()));
        run
    }

    /// Messages over which the peak is measured. Many may complete before the tool looks, and then be counted in one moment: a
    /// part is several windows.
    pub fn part(&self, window: u64) -> u64 {
        let qps = u64::from(self.qps);
        let tenth = self.perf.iters().map_or(1000, |n| n * qps / 10);
        tenth.max(4 * window * qps)
    }
}

/// The seed of message `i` of a queue pair.
#[inline]
pub fn seed_of(base: u64, queue: usize, i: u64) -> u64 {
    base.wrapping_add((queue as u64).wrapping_mul(QP_STRIDE))
        .wrapping_add(i)
}
