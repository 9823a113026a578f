//! Common parts of benchmarks: their sizes, and how long they run.

use std::ops::Range;
use std::process::ExitCode;
use std::time::Duration;

use vnic_verbs::{Data, QpType, SendWr};

use crate::failure::{Failure, Result};
use crate::flow::{Flow, Goal};
use crate::options::{BandwidthOptions, PerfOptions, path_mtu};
use crate::pattern::QP_STRIDE;
use crate::queue::Depths;
use crate::report::Report;
use crate::seat::{self, Progress, Seat};
use crate::session::{Plan, Session};
use crate::slots::{Layout, Slots};
use crate::stats::Meter;
use crate::wait::Completions;

/// Messages by default.
const ITERS: u64 = 1000;
/// Largest size of `-a`.
const LARGEST: u32 = 8 << 20;

impl PerfOptions {
    /// Sizes of the run.
    pub fn sizes(&self, seat: &Seat<'_>, default: u32) -> Result<Vec<u32>> {
        // A datagram is one packet.
        let most = match self.connection {
            QpType::Ud => path_mtu(&seat.context, self.peer.mtu)?.bytes(),
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

    /// Settings of a session with one queue pair.
    pub fn plan(&self, tool: &'static str, size: u32, sends: u32, receives: u32) -> Plan<'static> {
        Plan {
            tool,
            kind: self.connection,
            qps: 1,
            depths: Depths {
                sends,
                receives,
                inline: self.inline_size,
            },
            service_level: self.service_level,
            srq: None,
            run: self.run(size),
            area: None,
        }
    }

    /// Runs a tool: `one` with each size. `check` checks the options.
    pub fn each_size(
        &self,
        tool: &str,
        check: Result,
        default: u32,
        one: impl Fn(&mut Seat<'_>, u32, &mut Report) -> Result + Sync,
    ) -> ExitCode {
        seat::run(tool, &self.peer, check, |seat| {
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
        })
    }
}

impl BandwidthOptions {
    /// Runs a tool that goes over the `allowed` types: `one` with each size.
    pub fn each_size(
        &self,
        tool: &str,
        allowed: &[QpType],
        one: fn(&mut Seat<'_>, &BandwidthOptions, u32, &mut Report) -> Result,
    ) -> ExitCode {
        let mut check = self.perf.check(allowed, tool);
        if self.bidirectional {
            check = check.and_then(|()| self.perf.peer.needs_talk("-b"));
        }
        let one = |seat: &mut Seat<'_>, size, report: &mut Report| one(seat, self, size, report);
        self.perf.each_size(tool, check, 65536, one)
    }

    /// Settings of a session.
    pub fn plan(&self, tool: &'static str, size: u32, sends: u32, receives: u32) -> Plan<'static> {
        Plan {
            qps: self.qps,
            run: self.run(size),
            ..self.perf.plan(tool, size, sends, receives)
        }
    }

    /// Settings that must be equal on both sides.
    fn run(&self, size: u32) -> Vec<(&'static str, String)> {
        let mut run = self.perf.run(size);
        run.push(("qps", self.qps.to_string()));
        run.push(("both", u8::from(self.bidirectional).to_string()));
        run
    }
}

/// The run of a bandwidth benchmark: requests that are outstanding, and how many complete.
pub struct Bench {
    /// The requests.
    pub flow: Flow,
    /// Rate of what completes.
    pub meter: Meter,
    /// Completions that were taken last.
    pub taken: Completions,
    progress: Progress,
}

impl Bench {
    /// Begins now. Data that are checked stay in their places until their requests are complete.
    pub fn start(
        seat: &Seat<'_>,
        options: &BandwidthOptions,
        layout: Layout,
        depth: u32,
        inline: bool,
    ) -> Bench {
        let perf = &options.perf;
        let most = if perf.peer.no_verify {
            u64::MAX
        } else {
            layout.count
        };
        let window = most.min(depth.into());
        let qps = u64::from(options.qps);
        // Many may complete before the tool looks, and then be counted in one moment: a part is several windows.
        let tenth = perf.iters().map_or(1000, |n| n * qps / 10);
        Bench {
            flow: Flow::start(options.qps as usize, perf.goal(), window, options.cq_mod).inline(inline),
            meter: Meter::start(tenth.max(4 * window * qps)),
            taken: Completions::new(),
            progress: Progress::new(seat.watched),
        }
    }

    /// So many messages are done by now, of which `measured` are measured.
    pub fn count(&mut self, measured: u64, all: u64) {
        self.meter.done(measured);
        self.progress.at(all, || format!("{all} messages"));
    }

    /// Keeps requests outstanding until the goal is reached, as [`Flow::post`]. `done` looks at what has completed of a
    /// queue pair.
    pub fn run(
        &mut self,
        session: &mut Session,
        slots: &Slots<'_>,
        prepare: impl Fn(usize, u64),
        request: impl for<'a> Fn(usize, u64, Data<'a>) -> SendWr<'a>,
        done: impl Fn(usize, Range<u64>) -> Result,
    ) -> Result {
        while !self.flow.is_finished() {
            self.flow.post(session, slots, &prepare, &request)?;
            session.take(&mut self.taken)?;
            for completion in self.taken.iter() {
                let (queue, messages) = self.flow.completed(session, completion);
                done(queue, messages)?;
            }
            self.count(self.flow.done(), self.flow.done());
        }
        Ok(())
    }
}

/// The seed of message `i` of a queue pair.
#[inline]
pub fn seed_of(base: u64, queue: usize, i: u64) -> u64 {
    base.wrapping_add((queue as u64).wrapping_mul(QP_STRIDE))
        .wrapping_add(i)
}
