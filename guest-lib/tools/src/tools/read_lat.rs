//! `read_lat`: latency of RDMA READ. The client reads; the server's processor has no part in it.

use std::process::ExitCode;
use std::time::Instant;

use vnic_verbs::{Access, QpType, SendWr};

use crate::exchange::{Account, Role};
use crate::failure::Result;
use crate::options::PerfOptions;
use crate::perf::seed_of;
use crate::report::Report;
use crate::seat::{Progress, Seat};
use crate::session::{Plan, Session, who_verified};
use crate::slots::{Layout, Slots};
use crate::stats::Times;
use crate::wait::Completions;

const TOOL: &str = "read_lat";

/// Runs the tool.
pub fn run(options: &PerfOptions) -> ExitCode {
    let check = options.check(&[QpType::Rc], TOOL);
    options.each_size(TOOL, check, 2, |seat, size, report| {
        one(seat, options, size, report)
    })
}

fn one(seat: &mut Seat<'_>, options: &PerfOptions, size: u32, report: &mut Report) -> Result {
    // Two places to read from, in turn, and one to read into: each READ changes its content.
    let pd = seat.context.alloc_pd()?;
    let offered = Layout::new(1, size, 2);
    let source = pd.allocate(offered.bytes(1), Access::REMOTE_READ)?;
    let places = Slots::new(&source, offered, size, 0);
    (0..offered.count).for_each(|j| places.fill(0, j, seed_of(seat.seed(), 0, j)));
    let layout = Layout::new(1, size, 1);
    let sink = pd.allocate(layout.bytes(1), Access::LOCAL_WRITE)?;
    let into = Slots::new(&sink, layout, size, 0);
    let plan = Plan {
        area: Some((&source, offered.count, offered.step)),
        ..options.plan(TOOL, size, 1, 0)
    };
    let mut session = Session::connect(seat, &pd, &plan)?;
    let (target, there) = session.target(size)?;
    let seed = session.peer.seed.unwrap_or(seat.seed());
    seat.link.ready()?;

    let reads = seat.role() == Role::Client;
    let mut times = Times::new();
    let mut progress = Progress::new(seat.watched);
    let mut taken = Completions::new();
    let start = Instant::now();
    let mut i = 0;
    while reads && options.goal().wants(i, start) {
        if there.count == 1 {
            into.wipe(0, i);
        }
        let begun = Instant::now();
        let read = SendWr::read(into.sge(0, i), target.addr + there.offset(0, i), target.rkey);
        session.complete(0, read.id(i), &mut taken)?;
        times.add(begun.elapsed());
        if !options.peer.no_verify {
            into.check(0, i, seed_of(seed, 0, i % there.count), || format!("READ {i}"))?;
        }
        i += 1;
        progress.at(i, || format!("{i} messages"));
    }

    session.settle(seat, report, &[i], |_, _| Ok(Account::default()))?;
    report.latency(size.into(), times.summary());
    report.lost(0, 0);
    report.verified(who_verified(seat, reads, !reads));
    Ok(())
}
