//! `srq_pingpong`: messages there and back on several reliable connections, which receive from one shared queue, as
//! `ibv_srq_pingpong` of libibverbs.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use vnic_verbs::{Access, QpType, RecvWr, SendWr, SharedReceiveQueue};

use crate::exchange::{Account, Role};
use crate::failure::{Failure, Result};
use crate::options::SrqOptions;
use crate::perf::seed_of;
use crate::queue::Depths;
use crate::report::Report;
use crate::seat::{self, Progress, Seat};
use crate::session::{Plan, Session, who_verified};
use crate::slots::{Layout, Slots};
use crate::wait::Completions;

const TOOL: &str = "srq_pingpong";

/// Runs the tool.
pub fn run(options: &SrqOptions) -> ExitCode {
    seat::run(TOOL, &options.pingpong.peer, Ok(()), |seat| {
        pingpong(seat, options)
    })
}

/// Progress of a queue pair.
#[derive(Clone, Copy, Default)]
struct Turn {
    sent: u64,
    came: u64,
    sending: bool,
}

fn pingpong(seat: &mut Seat<'_>, options: &SrqOptions) -> Result<Report> {
    let pingpong = &options.pingpong;
    let size = pingpong.size.unwrap_or(4096);
    let (iters, verify) = (pingpong.iters, !pingpong.peer.no_verify);

    // One message to send for each queue pair, and places to receive into that belong to none of them.
    let pd = seat.context.alloc_pd()?;
    let sends = Layout::new(options.qps, size, 1);
    let source = pd.allocate(sends.bytes(options.qps), Access::LOCAL_WRITE)?;
    let source = Slots::new(&source, sends, size, 0);
    let places = Layout::new(1, size, pingpong.rx_depth.max(options.qps));
    let sink = pd.allocate(places.bytes(1), Access::LOCAL_WRITE)?;
    let sink = Slots::new(&sink, places, size, 0);
    let srq = pd.srq().max_wr(places.count as u32).build()?;
    for place in 0..places.count {
        receive(&srq, &sink, place)?;
    }
    let plan = Plan {
        tool: TOOL,
        kind: QpType::Rc,
        qps: options.qps,
        depths: Depths {
            sends: 1,
            receives: (places.count as u32).div_ceil(options.qps),
            inline: 0,
        },
        service_level: pingpong.service_level,
        srq: Some(&srq),
        run: vec![
            ("size", size.to_string()),
            ("iters", iters.to_string()),
            ("qps", options.qps.to_string()),
        ],
        area: None,
    };
    let mut session = Session::connect(seat, &pd, &plan)?;
    seat.link.ready()?;

    let is_client = seat.role() == Role::Client;
    let seeds = [seat.seed(), session.peer.seed.unwrap_or(seat.seed())];
    let mut turns = vec![Turn::default(); session.queues.len()];
    let mut progress = Progress::new(seat.watched);
    let mut taken = Completions::new();
    let mut came = 0;
    let begun = Instant::now();
    loop {
        let mut finished = true;
        for (queue, turn) in turns.iter_mut().enumerate() {
            let mine = if is_client {
                turn.sent == turn.came
            } else {
                turn.sent < turn.came
            };
            if mine && !turn.sending && turn.sent < iters {
                if verify {
                    source.fill(queue, turn.sent, seed_of(seeds[0], queue, turn.sent));
                }
                let request = SendWr::send(source.sge(queue, turn.sent))
                    .id(turn.sent)
                    .signaled();
                session.queues[queue].send(request)?;
                session.outstanding += 1;
                (turn.sent, turn.sending) = (turn.sent + 1, true);
            }
            finished &= turn.sent == iters && turn.came == iters && !turn.sending;
        }
        if finished {
            break;
        }
        session.take(&mut taken)?;
        if taken.is_empty() {
            // A peer that gave up says so.
            seat.link
                .done_within(Duration::ZERO)
                .map_err(|failure| session.cause(failure))?;
        }
        for completion in taken.iter() {
            let queue = session.queue_of(completion);
            if !completion.is_receive() {
                turns[queue].sending = false;
                session.outstanding -= 1;
                continue;
            }
            // The place is the shared queue's; which connection the message came on, the completion says.
            let (place, i) = (completion.id(), turns[queue].came);
            let wrong = if verify {
                sink.first_difference(0, place, seed_of(seeds[1], queue, i))
            } else {
                None
            };
            if completion.byte_len() != size || wrong.is_some() {
                return Err(Failure::Data(format!(
                    "message {i} of queue pair {queue}: {} bytes, wrong from {wrong:?} on",
                    completion.byte_len()
                )));
            }
            receive(&srq, &sink, place)?;
            turns[queue].came += 1;
            came += 1;
            progress.at(came, || format!("{came} messages"));
        }
    }
    let took = begun.elapsed();

    let sent: Vec<u64> = turns.iter().map(|turn| turn.sent).collect();
    let mut report = Report::new(TOOL);
    session.settle(seat, &mut report, &sent, |_, _| Ok(Account::default()))?;
    report.pingpong(size, came, took);
    report.lost(0, came);
    report.verified(who_verified(seat, true, true));
    Ok(report)
}

/// Posts the receive of a place to the shared queue.
fn receive(srq: &SharedReceiveQueue, sink: &Slots<'_>, place: u64) -> Result {
    srq.post(&[RecvWr::new(sink.sge(0, place)).id(place)])?;
    Ok(())
}
