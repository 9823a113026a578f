//! `atomic_lat`: latency of an atomic. The client counts in the server's memory; each answer must be the number before, and
//! at the end the server's memory must have counted all.

use std::process::ExitCode;
use std::time::Instant;

use vnic_verbs::{Access, AtomicScope, QpType, SendWr};

use crate::exchange::{Account, Role};
use crate::failure::{Failure, Result};
use crate::options::{Atomic, AtomicOptions};
use crate::report::Report;
use crate::seat::{self, Progress, Seat};
use crate::session::{Plan, Session, who_verified};
use crate::stats::Times;
use crate::wait::Completions;

const TOOL: &str = "atomic_lat";
/// Bytes of an atomic.
const SIZE: u32 = 8;

/// Runs the tool.
pub fn run(options: &AtomicOptions) -> ExitCode {
    let perf = &options.perf;
    let check = perf.check(&[QpType::Rc], TOOL);
    let check = check.and_then(
        |()| match perf.all || perf.size.is_some_and(|size| size != SIZE) {
            true => Err(Failure::Usage("an atomic has 8 bytes: neither -s nor -a".into())),
            false => Ok(()),
        },
    );
    seat::run(TOOL, &perf.peer, check, |seat| {
        if seat.context.query_device().atomic_scope() == AtomicScope::None {
            return Err(Failure::Usage("the device has no atomics".into()));
        }
        let mut report = Report::new(TOOL);
        count(seat, options, &mut report)?;
        Ok(report)
    })
}

fn count(seat: &mut Seat<'_>, options: &AtomicOptions, report: &mut Report) -> Result {
    let perf = &options.perf;
    let verify = !perf.peer.no_verify;
    // Memory for the counter, and for the old values.
    let pd = seat.context.alloc_pd()?;
    let counter = pd.allocate(SIZE as usize, Access::REMOTE_ALL)?;
    let answer = pd.allocate(SIZE as usize, Access::LOCAL_WRITE)?;
    let mut plan = Plan {
        area: Some((&counter, 1, SIZE.into())),
        ..perf.plan(TOOL, SIZE, 1, 0)
    };
    plan.run.push(("atomic", options.atomic_type.name().into()));
    let mut session = Session::connect(seat, &pd, &plan)?;
    let (target, _) = session.target(SIZE)?;
    seat.link.ready()?;

    let counts = seat.role() == Role::Client;
    let mut taken = Completions::new();
    // Makes a request, and returns the old value.
    let mut ask = |session: &mut Session, request: SendWr<'_>| -> Result<u64> {
        answer.store(0, u64::MAX);
        session.complete(0, request, &mut taken)?;
        Ok(answer.load(0))
    };
    let into = answer.slice(..);
    let (addr, rkey) = (target.addr, target.rkey);
    let mut times = Times::new();
    let mut progress = Progress::new(seat.watched);
    let mut i = 0;
    if counts {
        // Adding 0 shows where the counting begins.
        let first = ask(&mut session, SendWr::fetch_add(into, addr, rkey, 0))?;
        let start = Instant::now();
        while perf.goal().wants(i, start) {
            let now = first.wrapping_add(i);
            let request = match options.atomic_type {
                Atomic::FetchAndAdd => SendWr::fetch_add(into, addr, rkey, 1),
                Atomic::CmpAndSwap => SendWr::compare_swap(into, addr, rkey, now, now.wrapping_add(1)),
            };
            let begun = Instant::now();
            let was = ask(&mut session, request.id(i))?;
            times.add(begun.elapsed());
            if verify && was != now {
                return Err(Failure::Data(format!("atomic {i} found {was:#x}, not {now:#x}")));
            }
            i += 1;
            progress.at(i, || format!("{i} atomics"));
        }
        let last = ask(&mut session, SendWr::fetch_add(into, addr, rkey, 0))?;
        if verify && last != first.wrapping_add(i) {
            return Err(Failure::Data(format!(
                "the counter is {last:#x} after {i} atomics from {first:#x} on"
            )));
        }
    }

    session.settle(seat, report, &[i], |_, peer| {
        let expected = peer.and_then(|p| p.sent?.first().copied()).or(perf.iters());
        match expected {
            Some(n) if !counts && verify && counter.load(0) != n => Err(Failure::Data(format!(
                "the counter is {:#x} after {n} atomics from 0 on",
                counter.load(0)
            ))),
            _ => Ok(Account::default()),
        }
    })?;
    report.fact("atomic", options.atomic_type.name());
    report.latency(SIZE.into(), times.summary());
    report.lost(0, 0);
    report.verified(who_verified(seat, true, true));
    Ok(())
}
