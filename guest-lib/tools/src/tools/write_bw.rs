//! `write_bw`: bandwidth of RDMA WRITE. The client writes into the server's memory, with `-b` both write; the server sleeps
//! meanwhile, and checks its memory at the end.

use std::process::ExitCode;

use vnic_verbs::{Access, MemoryRegion, ProtectionDomain, QpType, SendWr};

use crate::exchange::{Account, Area, Role};
use crate::failure::{Failure, Result};
use crate::options::BandwidthOptions;
use crate::pattern::Found;
use crate::perf::{Bench, seed_of};
use crate::report::Report;
use crate::seat::Seat;
use crate::session::{Plan, Session, who_verified};
use crate::slots::{Layout, Slots};
use crate::wait::Completions;

const TOOL: &str = "write_bw";
/// Outstanding requests by default.
const DEPTH: u32 = 128;

/// Runs the tool.
pub fn run(options: &BandwidthOptions) -> ExitCode {
    options.each_size(TOOL, &[QpType::Rc, QpType::Uc], one)
}

fn one(seat: &mut Seat<'_>, options: &BandwidthOptions, size: u32, report: &mut Report) -> Result {
    let perf = &options.perf;
    let verify = !perf.peer.no_verify;
    let depth = options.tx_depth.unwrap_or(DEPTH);

    // Memory to write from, and memory for the peer to write into.
    let pd = seat.context.alloc_pd()?;
    let layout = Layout::new(options.qps, size, depth);
    let source = pd.allocate(layout.bytes(options.qps), Access::LOCAL_WRITE)?;
    let sink = pd.allocate(layout.bytes(options.qps), Access::REMOTE_ALL)?;
    let plan = Plan {
        area: Some((&sink, layout.count, layout.step)),
        ..options.plan(TOOL, size, depth, 0)
    };
    let mut session = Session::connect(seat, &pd, &plan)?;
    let (target, there) = session.target(size)?;
    seat.link.ready()?;

    // Message i of a queue pair comes from place i mod L of this side's memory, and goes to place i mod R of the peer's. It is
    // made anew for each message, so no place is reused before its last message is complete.
    let from = Slots::new(&source, layout, size, 0);
    let mut sent = vec![0; session.queues.len()];
    if seat.role() == Role::Client || options.bidirectional {
        let seed = seat.seed();
        let inline = size <= perf.inline_size && size > 0;
        let mut bench = Bench::start(seat, options, layout, depth, inline);
        bench.run(
            &mut session,
            &from,
            |queue, i| {
                if verify {
                    from.fill(queue, i, seed_of(seed, queue, i));
                }
            },
            |queue, i, data| SendWr::write(data, target.addr + there.offset(queue, i), target.rkey),
            |_, _| Ok(()),
        )?;
        sent = bench.flow.sent();
        report.bandwidth(size.into(), bench.flow.done(), &bench.meter.rate(size.into()));
        if verify && !seat.link.is_talkative() && !session.is_lossy() {
            // The peer may be a program that does not check: read the memory back.
            read_back(&pd, &mut session, &target, &there, size, &sent, seed)?;
        }
    }

    let sink = Slots::new(&sink, layout, size, 0);
    let expects = seat.role() == Role::Server || options.bidirectional;
    let lost = session.settle(seat, report, &sent, |session, peer| {
        let counts = peer
            .and_then(|p| p.sent)
            .or_else(|| perf.iters().map(|n| vec![n; session.queues.len()]));
        match counts {
            Some(counts) if verify && expects => look(session, &sink, &counts),
            _ => Ok(Account::default()),
        }
    })?;
    report.lost(lost, sent.iter().sum());
    let reads_back = !seat.link.is_talkative() && !session.is_lossy();
    report.verified(who_verified(
        seat,
        expects || reads_back,
        !expects || options.bidirectional,
    ));
    Ok(())
}

/// Checks what the peer wrote: each place has its last message. Over UC, pieces of it may be of an earlier one.
fn look(session: &Session, sink: &Slots<'_>, counts: &[u64]) -> Result<Account> {
    let seed = session.peer.seed.unwrap_or(0);
    let packet = session.mtu.bytes() as usize;
    let mut account = Account::default();
    for (queue, sent) in counts.iter().enumerate().take(session.queues.len()) {
        for place in 0..sink.layout.count {
            let Some(last) = sink.layout.last_in(place, *sent) else {
                break;
            };
            let all = (place..=last).rev().step_by(sink.layout.count as usize);
            let found = match sink.first_difference(queue, last, seed_of(seed, queue, last)) {
                None => Found::Last,
                Some(at) if !session.is_lossy() => Found::Foreign(at),
                Some(_) => sink.search(queue, last, packet, all.map(|i| seed_of(seed, queue, i))),
            };
            match found {
                Found::Last => {}
                Found::Older => account.lost += 1,
                Found::Foreign(at) => {
                    let seed = seed_of(seed, queue, last);
                    return Err(Failure::Data(format!(
                        "message {last} of queue pair {queue} differs from byte {at} on (seed {seed})"
                    )));
                }
            }
        }
    }
    Ok(account)
}

/// Reads what was written, and compares.
fn read_back(
    pd: &ProtectionDomain,
    session: &mut Session,
    target: &Area,
    there: &Layout,
    size: u32,
    sent: &[u64],
    seed: u64,
) -> Result {
    if size == 0 {
        return Ok(());
    }
    let back: MemoryRegion = pd.allocate(size as usize, Access::LOCAL_WRITE)?;
    let one = Layout::new(1, size, 1);
    let slot = Slots::new(&back, one, size, 0);
    let mut taken = Completions::new();
    for (queue, sent) in sent.iter().enumerate() {
        for place in 0..there.count {
            let Some(last) = there.last_in(place, *sent) else {
                break;
            };
            back.fill(.., 0);
            let from = target.addr + there.offset(queue, last);
            let read = SendWr::read(slot.sge(0, 0), from, target.rkey);
            session.complete(queue, read, &mut taken)?;
            let seed = seed_of(seed, queue, last);
            slot.check(0, 0, seed, || format!("message {last}, read back,"))?;
        }
    }
    Ok(())
}
