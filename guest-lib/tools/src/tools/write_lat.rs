//! `write_lat`: latency of RDMA WRITE, as half of the way there and back. Each side waits until the other's WRITE
//! appears in its memory; no completion shows that.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use vnic_verbs::{Access, Data, MemoryRegion, QpType, SendWr};

use crate::exchange::{Account, Role};
use crate::failure::{Failure, Result};
use crate::flow::Goal;
use crate::options::PerfOptions;
use crate::perf::seed_of;
use crate::report::Report;
use crate::seat::{Progress, Seat};
use crate::session::{Plan, Session, who_verified};
use crate::slots::{Layout, Slots};
use crate::stats::Times;
use crate::wait::Completions;

const TOOL: &str = "write_lat";
/// Looks at memory before the thread yields the CPU.
const SPINS: u32 = 200;
/// Time after which a message may be lost.
const QUIET: Duration = Duration::from_millis(500);

/// Runs the tool.
pub fn run(options: &PerfOptions) -> ExitCode {
    let check = options.check(&[QpType::Rc, QpType::Uc], TOOL);
    let check = check.and_then(|()| match options.size {
        Some(0) => Err(Failure::Usage(
            "nobody sees a WRITE of no bytes arrive: -s 1 or more".into(),
        )),
        _ => Ok(()),
    });
    options.each_size(TOOL, check, 2, |seat, size, report| {
        one(seat, options, size, report)
    })
}

fn one(seat: &mut Seat<'_>, options: &PerfOptions, size: u32, report: &mut Report) -> Result {
    // Two places, in turn: while one is looked at, the next message may already come into the other.
    let pd = seat.context.alloc_pd()?;
    let layout = Layout::new(1, size, 2);
    let source = pd.allocate(layout.bytes(1), Access::LOCAL_WRITE)?;
    let sink = pd.allocate(layout.bytes(1), Access::REMOTE_ALL)?;
    let plan = Plan {
        area: Some((&sink, layout.count, layout.step)),
        ..options.plan(TOOL, size, 4, 0)
    };
    let mut session = Session::connect(seat, &pd, &plan)?;
    let (target, there) = session.target(size)?;
    let theirs = session.peer.seed.unwrap_or(seat.seed());
    let mut watch = Watch {
        sink: &sink,
        slots: Slots::new(&sink, layout, size, 0),
        seed: theirs,
        verify: !options.peer.no_verify,
    };
    (0..2).for_each(|i| watch.expect(i));
    seat.link.ready()?;

    let from = Slots::new(&source, layout, size, 0);
    let seed = seat.seed();
    let inline = size <= options.inline_size;
    let is_client = seat.role() == Role::Client;
    let mut times = Times::new();
    let mut progress = Progress::new(seat.watched);
    let mut taken = Completions::new();
    let start = Instant::now();
    let (mut i, mut lost) = (0, 0);
    'run: loop {
        let over = match options.goal() {
            Goal::Messages(n) => i >= n,
            // Only the client looks at the clock; the server goes on until the client is done.
            Goal::Time(time) => is_client && start.elapsed() >= time,
        };
        if over {
            break;
        }
        from.fill(0, i, seed_of(seed, 0, i));
        let mut begun = Instant::now();
        for mine in [is_client, !is_client] {
            if mine {
                begun = Instant::now();
                let to = target.addr + there.offset(0, i);
                let bytes = if inline {
                    source.read_vec(layout.offset(0, i) as usize, size as usize)
                } else {
                    vec![]
                };
                let data = if inline {
                    Data::inline(&bytes)
                } else {
                    from.sge(0, i).into()
                };
                session.queues[0].send(SendWr::write(data, to, target.rkey).id(i).signaled())?;
                session.outstanding += 1;
            } else {
                while !watch.wait(i) {
                    // RC: an error completion, or the question whether the peer is there, tells of a peer that is gone.
                    session.take(&mut taken)?;
                    session.outstanding -= taken.iter().count() as u64;
                    let done = seat
                        .link
                        .done_within(Duration::ZERO)
                        .map_err(|failure| session.cause(failure))?;
                    if done.is_some() && !watch.wait(i) {
                        lost += u64::from(matches!(options.goal(), Goal::Messages(_)));
                        break 'run;
                    }
                    if session.is_lossy() && is_client && taken.is_empty() {
                        lost += 1;
                        break 'run;
                    }
                }
                if is_client {
                    times.add(begun.elapsed());
                }
            }
        }
        watch.look(i)?;
        watch.expect(i + 2);
        // The send is complete, or soon will be: its place is needed again in the next but one round.
        session.drain(&mut taken, 1)?;
        i += 1;
        progress.at(i, || format!("{i} messages"));
    }
    session.drain(&mut taken, 0)?;

    let account = Account {
        lost,
        ..Account::default()
    };
    let all_lost = session.settle(seat, report, &[i], |_, _| Ok(account))?;
    report.latency(size.into(), times.one_way());
    report.lost(all_lost, i + lost);
    report.verified(who_verified(seat, true, true));
    if all_lost > 0 {
        report.fail(format!(
            "message {i} was lost, and an unreliable connection does not repeat it: the run ended there"
        ));
    }
    Ok(())
}

/// Memory into which the peer writes.
struct Watch<'a> {
    sink: &'a MemoryRegion,
    slots: Slots<'a>,
    seed: u64,
    verify: bool,
}

impl Watch<'_> {
    /// The last byte of message `i`, which is written last.
    fn last(&self, i: u64) -> u8 {
        let mut bytes = [0; 8];
        let at = (self.slots.size() as usize - 1) & !7;
        let tail = &mut bytes[..self.slots.size() as usize - at];
        crate::pattern::fill(seed_of(self.seed, 0, i), at, tail);
        tail.last().copied().unwrap_or(0)
    }

    /// Prepares for message `i`: the last byte in its place is another one.
    fn expect(&mut self, i: u64) {
        let at = self.slots.last_byte(0, i);
        self.sink.write_at(at, &[!self.last(i)]);
    }

    /// Waits a while for message `i`.
    fn wait(&self, i: u64) -> bool {
        let (at, last) = (self.slots.last_byte(0, i), self.last(i));
        let mut end = None;
        for spins in 0u32.. {
            if self.sink.load_u8(at) == last {
                return true;
            }
            if spins > SPINS {
                std::thread::yield_now();
                if Instant::now() >= *end.get_or_insert_with(|| Instant::now() + QUIET) {
                    break;
                }
            }
        }
        false
    }

    /// Checks message `i`.
    fn look(&self, i: u64) -> Result {
        if !self.verify {
            return Ok(());
        }
        let seed = seed_of(self.seed, 0, i);
        self.slots.check(0, i, seed, || format!("message {i}"))
    }
}
