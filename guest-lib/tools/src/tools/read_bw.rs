//! `read_bw`: bandwidth of RDMA READ. The client reads from the server's memory, with `-b` each from the other's.

use std::process::ExitCode;

use vnic_verbs::{Access, QpType, SendWr};

use crate::exchange::{Account, Role};
use crate::failure::Failure;
use crate::flow::Flow;
use crate::options::BandwidthOptions;
use crate::perf::seed_of;
use crate::queue::Depths;
use crate::report::Report;
use crate::seat::{self, Progress, Seat};
use crate::session::{Plan, Session, facts, who_verified};
use crate::slots::{Layout, Slots};
use crate::stats::Meter;
use crate::wait::Completions;

const TOOL: &str = "read_bw";
/// Outstanding READs by default: more than the device does at a time would only wait.
const DEPTH: u32 = 16;

/// Runs the tool.
pub fn run(options: &BandwidthOptions) -> ExitCode {
    let check = options.check_bandwidth(&[QpType::Rc], TOOL);
    seat::run(TOOL, &options.perf.peer, check, |seat| {
        let one = |seat: &mut Seat<'_>, size, report: &mut Report| one(seat, options, size, report);
        options.perf.each_size(seat, TOOL, 65536, one)
    })
}

fn one(
    seat: &mut Seat<'_>,
    options: &BandwidthOptions,
    size: u32,
    report: &mut Report,
) -> Result<(), Failure> {
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
        tool: TOOL,
        kind: QpType::Rc,
        qps: options.qps,
        depths: Depths {
            sends: depth,
            receives: 0,
            inline: 0,
        },
        service_level: perf.service_level,
        srq: None,
        run: options.run(size),
        area: Some((&source, offered.count, offered.step)),
    };
    let mut session = Session::connect(seat, &pd, &plan)?;
    let (target, there) = session.target(size)?;
    seat.link.ready()?;

    let into = Slots::new(&sink, layout, size, 0);
    let window = if verify {
        layout.count.min(depth.into())
    } else {
        depth.into()
    };
    // If the same place would be read into the same memory, that is wiped in between.
    let wipe = verify && layout.count.is_multiple_of(there.count);
    let mut sent = vec![0; session.queues.len()];
    let reads = seat.role() == Role::Client || options.bidirectional;
    if reads {
        let seed = session.peer.seed.unwrap_or(seat.seed());
        let mut flow = Flow::start(session.queues.len(), perf.goal(), window, options.cq_mod);
        let mut meter = Meter::start(options.part(window));
        let mut progress = Progress::new(seat.watched);
        let mut taken = Completions::new();
        while !flow.is_finished() {
            flow.post(
                &mut session,
                &into,
                |queue, i| {
                    if wipe {
                        into.wipe(queue, i);
                    }
                },
                |queue, i, data| SendWr::read(data, target.addr + there.offset(queue, i), target.rkey),
            )?;
            session.take(&mut taken)?;
            for completion in taken.iter() {
                let (queue, done) = flow.completed(&mut session, completion);
                for i in done.filter(|_| verify) {
                    let expected = seed_of(seed, queue, i % there.count);
                    if let Some(at) = into.first_difference(queue, i, expected) {
                        return Err(Failure::Data(format!(
                            "READ {i} of queue pair {queue} differs from byte {at} on (seed {expected})"
                        )));
                    }
                }
            }
            meter.done(flow.done());
            progress.at(flow.done(), || format!("{} messages", flow.done()));
        }
        sent = flow.sent();
        report.bandwidth(size.into(), flow.done(), &meter.rate(size.into()));
    }

    let settled = session.settle(&mut seat.link, &sent, |_, _| Ok(Account::default()))?;
    settled.bad_data()?;
    facts(report, seat, &session);
    report.lost(0, 0);
    report.verified(who_verified(seat, reads, !reads || options.bidirectional));
    Ok(())
}
