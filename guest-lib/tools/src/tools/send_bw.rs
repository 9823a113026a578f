//! `send_bw`: bandwidth of SEND. The client sends, with `-b` both do; the receiver checks each message, and posts its
//! receive anew. Over UC and UD messages carry their number, and lost ones are counted.

use std::process::ExitCode;
use std::time::Duration;

use vnic_verbs::{Access, QpType, RecvWr, SendWr, WorkCompletion};

use crate::exchange::{Account, Role};
use crate::failure::{Failure, Result};
use crate::options::BandwidthOptions;
use crate::perf::{Bench, seed_of};
use crate::queue::GRH;
use crate::report::Report;
use crate::seat::Seat;
use crate::session::{Session, who_verified};
use crate::slots::{Layout, Slots};

const TOOL: &str = "send_bw";
/// Outstanding requests by default.
const DEPTH: u32 = 128;

/// Runs the tool.
pub fn run(options: &BandwidthOptions) -> ExitCode {
    options.each_size(TOOL, &[QpType::Rc, QpType::Uc, QpType::Ud], one)
}

fn one(seat: &mut Seat<'_>, options: &BandwidthOptions, size: u32, report: &mut Report) -> Result {
    let perf = &options.perf;
    let verify = !perf.peer.no_verify;
    let depth = options.tx_depth.unwrap_or(DEPTH);
    let sends = seat.role() == Role::Client || options.bidirectional;
    let receives = seat.role() == Role::Server || options.bidirectional;

    // Memory to send from, and places to receive into.
    let pd = seat.context.alloc_pd()?;
    let layout = Layout::new(options.qps, size, depth);
    let source = pd.allocate(layout.bytes(options.qps), Access::LOCAL_WRITE)?;
    let head = if perf.connection == QpType::Ud { GRH } else { 0 };
    let places = Layout::new(options.qps, size + head, options.rx_depth);
    let sink = pd.allocate(places.bytes(options.qps), Access::LOCAL_WRITE)?;
    let plan = options.plan(TOOL, size, depth, places.count as u32);
    let mut session = Session::connect(seat, &pd, &plan)?;
    let mut receiver = Receiver {
        slots: Slots::new(&sink, places, size, head),
        size,
        head,
        seed: verify.then_some(session.peer.seed.unwrap_or(seat.seed())),
        next: vec![0; session.queues.len()],
        came: 0,
    };
    if receives {
        for queue in 0..session.queues.len() {
            (0..places.count).try_for_each(|place| receiver.post(&session, queue, place))?;
        }
    }
    seat.link.ready()?;

    let from = Slots::new(&source, layout, size, 0);
    let seed = seat.seed();
    let inline = size <= perf.inline_size && size > 0;
    let qps = session.queues.len();
    let mut bench = Bench::start(seat, options, layout, depth, inline);
    let numbered = session.is_lossy();
    // Messages that shall come: known from the start, or when the peer says so.
    let mut expected = perf.iters().filter(|_| receives).map(|n| n * qps as u64);
    let (mut said, mut told) = (false, !receives);
    loop {
        let sent = !sends || bench.flow.is_finished();
        if sent && !said {
            // The peer hears of it at once: it may wait for messages that are lost.
            let counts = if sends { bench.flow.sent() } else { vec![0; qps] };
            seat.link.say_done(&counts)?;
            said = true;
        }
        let came = !receives || expected.is_some_and(|n| receiver.came >= n);
        if sent && came {
            break;
        }
        if !sent {
            bench.flow.post(
                &mut session,
                &from,
                |queue, i| {
                    if verify {
                        from.fill(queue, i, seed_of(seed, queue, i));
                    }
                },
                |_, i, data| {
                    let request = SendWr::send(data);
                    if numbered { request.imm(i as u32) } else { request }
                },
            )?;
        }
        session.take(&mut bench.taken)?;
        for completion in bench.taken.iter() {
            let queue = session.queue_of(completion);
            if completion.is_receive() {
                receiver.look(&session, queue, completion)?;
            } else {
                bench.flow.completed(&mut session, completion);
            }
        }
        let done = bench.flow.done();
        bench.count(if sends { done } else { receiver.came }, done + receiver.came);
        if bench.taken.is_empty() && receives && sent {
            // Nothing comes: is the peer done? All that it sent before it said so has arrived by now, or is lost.
            if told {
                break;
            }
            let done = seat
                .link
                .done_within(Duration::ZERO)
                .map_err(|failure| session.cause(failure))?;
            if let Some(done) = done {
                expected = done.sent.map(|counts| counts.iter().sum()).or(expected);
                told = true;
            }
        }
    }

    let sent = if sends { bench.flow.sent() } else { vec![0; qps] };
    let lost = expected.map_or(0, |n| n.saturating_sub(receiver.came));
    if lost > 0 && !session.is_lossy() {
        return Err(Failure::Data(format!("{lost} messages did not come")));
    }
    let account = Account {
        lost,
        ..Account::default()
    };
    let lost = session.settle_said(seat, report, |_, _| Ok(account))?;
    let done = if sends { bench.flow.done() } else { receiver.came };
    report.bandwidth(size.into(), done, &bench.meter.rate(size.into()));
    report.word("received", receiver.came);
    let of = sent.iter().sum::<u64>().max(expected.unwrap_or(0));
    report.lost(lost, of);
    report.verified(who_verified(seat, receives, sends));
    if receives && receiver.came == 0 {
        report.fail("no message came through");
    }
    Ok(())
}

/// The receiving side.
struct Receiver<'a> {
    slots: Slots<'a>,
    size: u32,
    head: u32,
    /// Seed of the peer's messages; `None` if they are not checked.
    seed: Option<u64>,
    /// The message that comes next on each queue pair.
    next: Vec<u64>,
    came: u64,
}

impl Receiver<'_> {
    fn post(&self, session: &Session, queue: usize, place: u64) -> Result {
        session.queues[queue].receive(&[RecvWr::new(self.slots.sge(queue, place)).id(place)])?;
        Ok(())
    }

    /// Checks a message, and posts its receive anew.
    fn look(&mut self, session: &Session, queue: usize, completion: &WorkCompletion) -> Result {
        let place = completion.id();
        let expected = self.next[queue];
        // Numbers have 32 bits on the wire; messages before this one may be lost.
        let ahead = completion
            .imm()
            .map_or(0, |low| low.wrapping_sub(expected as u32) as i32);
        let i = expected.wrapping_add_signed(ahead.into());
        let len = completion.byte_len().saturating_sub(self.head);
        if len != self.size {
            return Err(Failure::Data(format!(
                "message {i} has {len} bytes, not {}",
                self.size
            )));
        }
        if let Some(seed) = self.seed {
            let what = || format!("message {i} of queue pair {queue}");
            self.slots.check(queue, place, seed_of(seed, queue, i), what)?;
        }
        self.next[queue] = expected.max(i + 1);
        self.came += 1;
        self.post(session, queue, place)
    }
}
