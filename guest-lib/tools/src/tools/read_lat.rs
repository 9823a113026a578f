//! `read_lat`: latency of RDMA READ. The client reads; the server's processor has no part in it.

use std::process::ExitCode;
use std::time::Instant;

use vnic_verbs::{Access, QpType, SendWr};

use crate::exchange::{Account, Role};
use crate::failure::Failure;
use crate::flow::Goal;
use crate::options::PerfOptions;
use crate::perf::seed_of;
use crate::queue::Depths;
use crate::report::Report;
use crate::seat::{self, Progress, Seat};
use crate::session::{Plan, Session, facts, who_verified};
use crate::slots::{Layout, Slots};
use crate::stats::Times;
use crate::wait::Completions;

const TOOL: &str = "read_lat";

/// Runs the tool.
pub fn run(options: &PerfOptions) -> ExitCode {
    let check = options.check(&[QpType::Rc], TOOL);
    seat::run(TOOL, &options.peer, check, |seat| {
        options.each_size(seat, TOOL, 2, |seat, size, report| {
            one(seat, options, size, report)
        })
    })
}

fn one(seat: &mut Seat<'_>, options: &PerfOptions, size: u32, report: &mut Report) -> Result<(), Failure> {
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
        tool: TOOL,
        kind: QpType::Rc,
        qps: 1,
        depths: Depths {
            sends: 1,
            receives: 0,
            inline: 0,
        },
        service_level: options.service_level,
        srq: None,
        run: options.run(size),
        area: Some((&source, offered.count, offered.step)),
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
    let goes_on = |i| match options.goal() {
        Goal::Messages(n) => i < n,
        Goal::Time(time) => start.elapsed() < time,
    };
    let mut i = 0;
    while reads && goes_on(i) {
        if there.count == 1 {
            into.wipe(0, i);
        }
        let begun = Instant::now();
        let read = SendWr::read(into.sge(0, i), target.addr + there.offset(0, i), target.rkey);
        session.queues[0].send(read.id(i).signaled())?;
        session.outstanding = 1;
        while session.outstanding > 0 {
            session.take(&mut taken)?;
            session.outstanding -= taken.iter().count() as u64;
        }
        times.add(begun.elapsed());
        if !options.peer.no_verify
            && let Some(at) = into.first_difference(0, i, seed_of(seed, 0, i % there.count))
        {
            return Err(Failure::Data(format!("READ {i} differs from byte {at} on")));
        }
        i += 1;
        progress.at(i, || format!("{i} messages"));
    }

    let settled = session.settle(&mut seat.link, &[i], |_, _| Ok(Account::default()))?;
    settled.bad_data()?;
    facts(report, seat, &session);
    if let Some(summary) = times.summary() {
        report.latency(size.into(), &summary);
    }
    report.lost(0, 0);
    report.verified(who_verified(seat, reads, !reads));
    Ok(())
}
