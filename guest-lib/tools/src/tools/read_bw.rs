//! `read_bw`: bandwidth of RDMA READ. The client reads from the server's memory, with `-b` each from the other's.

use std::process::ExitCode;

use vnic_verbs::{Access, QpType, SendWr};

use crate::exchange::{Account, Role};
use crate::failure::Result;
use crate::options::BandwidthOptions;
use crate::perf::{Bench, seed_of};
use crate::report::Report;
use crate::seat::Seat;
use crate::session::{Plan, Session, who_verified};
use crate::slots::{Layout, Slots};

const TOOL: &str = "read_bw";
/// Outstanding READs by default: more than the device does at a time would only wait.
const DEPTH: u32 = 16;

/// Runs the tool.
pub fn run(options: &BandwidthOptions) -> ExitCode {
    options.each_size(TOOL, &[QpType::Rc], one)
}

fn one(seat: &mut Seat<'_>, options: &BandwidthOptions, size: u32, report: &mut Report) -> Result {
    let perf = &options.perf;
    let verify = !perf.peer.no_verify;
    let depth = options.tx_depth.unwrap_or(DEPTH);

    // Memory for the peer to read: in place j the pattern of seed + j. And memory to read into, with one place fewer, so that
    // a place never gets the same bytes twice in a row: a READ that does not arrive is noticed.
    let pd = seat.context.alloc_pd()?;
    let offered = Layout::new(options.qps, size, depth + 1);
    let source = pd.allocate(offered.bytes(options.qps), Access::REMOTE_READ)?;
    let layout = Layout::new(options.qps, size, depth);
    let sink = pd.allocate(layout.bytes(options.qps), Access::LOCAL_WRITE)?;
    if verify {
        let places = Slots::new(&source, offered, size, 0);
        for queue in 0..options.qps as usize {
            (0..offered.count).for_each(|j| places.fill(queue, j, seed_of(seat.seed(), queue, j)));
        }
    }
    let plan = Plan {
        area: Some((&source, offered.count, offered.step)),
        ..options.plan(TOOL, size, depth, 0)
    };
    let mut session = Session::connect(seat, &pd, &plan)?;
    let (target, there) = session.target(size)?;
    seat.link.ready()?;

    let into = Slots::new(&sink, layout, size, 0);
    // If the same place would be read into the same memory, that is wiped in between.
    let wipe = verify && layout.count.is_multiple_of(there.count);
    let mut sent = vec![0; session.queues.len()];
    let reads = seat.role() == Role::Client || options.bidirectional;
    if reads {
        let seed = session.peer.seed.unwrap_or(seat.seed());
        let mut bench = Bench::start(seat, options, layout, depth, false);
        bench.run(
            &mut session,
            &into,
            |queue, i| {
                if wipe {
                    into.wipe(queue, i);
                }
            },
            |queue, i, data| SendWr::read(data, target.addr + there.offset(queue, i), target.rkey),
            |queue, mut done| {
                if !verify {
                    return Ok(());
                }
                done.try_for_each(|i| {
                    let expected = seed_of(seed, queue, i % there.count);
                    into.check(queue, i, expected, || format!("READ {i} of queue pair {queue}"))
                })
            },
        )?;
        sent = bench.flow.sent();
        report.bandwidth(size.into(), bench.flow.done(), &bench.meter.rate(size.into()));
    }

    session.settle(seat, report, &sent, |_, _| Ok(Account::default()))?;
    report.lost(0, 0);
    report.verified(who_verified(seat, reads, !reads || options.bidirectional));
    Ok(())
}
