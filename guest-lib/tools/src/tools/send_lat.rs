//! `send_lat`: latency of SEND, as half of the way there and back. The loop is in [`crate::volley`].

use std::process::ExitCode;

use vnic_verbs::QpType;

use crate::failure::Result;
use crate::options::PerfOptions;
use crate::report::Report;
use crate::seat::Seat;
use crate::session::{Session, who_verified};
use crate::volley::{Court, Volley};

const TOOL: &str = "send_lat";
/// Receives that are posted. One would do if nothing were lost.
const RECEIVES: u32 = 64;

/// Runs the tool.
pub fn run(options: &PerfOptions) -> ExitCode {
    let check = options.check(&[QpType::Rc, QpType::Uc, QpType::Ud], TOOL);
    options.each_size(TOOL, check, 2, |seat, size, report| {
        one(seat, options, size, report)
    })
}

fn one(seat: &mut Seat<'_>, options: &PerfOptions, size: u32, report: &mut Report) -> Result {
    let pd = seat.context.alloc_pd()?;
    let court = Court::new(&pd, size, RECEIVES, options.connection == QpType::Ud)?;
    let plan = options.plan(TOOL, size, 4, RECEIVES);
    let mut session = Session::connect(seat, &pd, &plan)?;
    let volley = Volley::new(seat, &mut session, &court, options.inline_size)?;
    seat.link.ready()?;
    let score = volley.play(seat, options.goal())?;

    let account = score.account.clone();
    session.settle(seat, report, &[score.sent], |_, _| Ok(account))?;
    // One way is half of there and back.
    report.latency(size.into(), score.times.one_way());
    report.lost(score.account.lost, score.sent);
    report.verified(who_verified(seat, true, true));
    score.judge(report);
    Ok(())
}
