//! `send_lat`: latency of SEND, as half of the way there and back. The loop is in [`crate::volley`].

use std::process::ExitCode;

use vnic_verbs::QpType;

use crate::failure::Failure;
use crate::options::PerfOptions;
use crate::queue::Depths;
use crate::report::Report;
use crate::seat::{self, Seat};
use crate::session::{Plan, Session, facts, who_verified};
use crate::volley::{Court, Volley};

const TOOL: &str = "send_lat";
/// Receives that are posted. One would do if nothing were lost.
const RECEIVES: u32 = 64;

/// Runs the tool.
pub fn run(options: &PerfOptions) -> ExitCode {
    let check = options.check(&[QpType::Rc, QpType::Uc, QpType::Ud], TOOL);
    seat::run(TOOL, &options.peer, check, |seat| {
        options.each_size(seat, TOOL, 2, |seat, size, report| {
            one(seat, options, size, report)
        })
    })
}

fn one(seat: &mut Seat<'_>, options: &PerfOptions, size: u32, report: &mut Report) -> Result<(), Failure> {
    let pd = seat.context.alloc_pd()?;
    let court = Court::new(&pd, size, RECEIVES, options.connection == QpType::Ud)?;
    let plan = Plan {
        tool: TOOL,
        kind: options.connection,
        qps: 1,
        depths: Depths {
            sends: 4,
            receives: RECEIVES,
            inline: options.inline_size,
        },
        service_level: options.service_level,
        srq: None,
        run: options.run(size),
        area: None,
    };
    let mut session = Session::connect(seat, &pd, &plan)?;
    let volley = Volley::new(seat, &mut session, &court, options.inline_size)?;
    seat.link.ready()?;
    let score = volley.play(seat, options.goal())?;

    let account = score.account.clone();
    let settled = session.settle(&mut seat.link, &[score.sent], |_, _| Ok(account))?;
    settled.bad_data()?;
    facts(report, seat, &session);
    // One way is half of there and back.
    if let Some(summary) = score.times.summary() {
        report.latency(size.into(), &summary.halved());
    }
    report.lost(score.account.lost, score.sent);
    report.verified(who_verified(seat, true, true));
    score.judge(report);
    Ok(())
}
