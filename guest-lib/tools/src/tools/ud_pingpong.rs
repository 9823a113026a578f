//! `ud_pingpong` and `uc_pingpong`: messages there and back over services that may lose them, as libibverbs' examples of
//! these names. The loop is in [`crate::volley`].

use std::process::ExitCode;
use std::time::Instant;

use vnic_verbs::QpType;

use crate::failure::{Failure, Result};
use crate::flow::Goal;
use crate::options::{PingpongOptions, path_mtu};
use crate::queue::Depths;
use crate::report::Report;
use crate::seat::{self, Seat};
use crate::session::{Plan, Session, who_verified};
use crate::volley::{Court, Volley};

/// Runs `ud_pingpong`.
pub fn run(options: &PingpongOptions) -> ExitCode {
    seat::run("ud_pingpong", &options.peer, Ok(()), |seat| {
        pingpong(seat, options, "ud_pingpong", QpType::Ud)
    })
}

/// Runs `uc_pingpong`.
pub fn run_uc(options: &PingpongOptions) -> ExitCode {
    seat::run("uc_pingpong", &options.peer, Ok(()), |seat| {
        pingpong(seat, options, "uc_pingpong", QpType::Uc)
    })
}

fn pingpong(
    seat: &mut Seat<'_>,
    options: &PingpongOptions,
    tool: &'static str,
    kind: QpType,
) -> Result<Report> {
    let most = path_mtu(&seat.context, options.peer.mtu)?.bytes();
    // A datagram is one packet: without -s, as long as fits.
    let size = match (kind, options.size) {
        (_, None) if kind == QpType::Ud => most.min(4096),
        (QpType::Ud, Some(size)) if size > most => {
            return Err(Failure::Usage(format!(
                "a datagram has at most {most} bytes here, not {size}: a smaller -s, or a larger MTU"
            )));
        }
        (_, size) => size.unwrap_or(4096),
    };
    let pd = seat.context.alloc_pd()?;
    let court = Court::new(&pd, size, options.rx_depth, kind == QpType::Ud)?;
    let plan = Plan {
        tool,
        kind,
        qps: 1,
        depths: Depths {
            sends: 4,
            receives: court.receives.count as u32,
            inline: 0,
        },
        service_level: options.service_level,
        srq: None,
        run: vec![("size", size.to_string()), ("iters", options.iters.to_string())],
        area: None,
    };
    let mut session = Session::connect(seat, &pd, &plan)?;
    let volley = Volley::new(seat, &mut session, &court, 0)?;
    seat.link.ready()?;
    let begun = Instant::now();
    let score = volley.play(seat, Goal::Messages(options.iters))?;
    let took = begun.elapsed();

    let account = score.account.clone();
    let mut report = Report::new(tool);
    session.settle(seat, &mut report, &[score.sent], |_, _| Ok(account))?;
    report.pingpong(size, score.sent, took);
    report.latency(size.into(), score.times.summary());
    report.lost(score.account.lost, score.sent);
    report.verified(who_verified(seat, true, true));
    score.judge(&mut report);
    Ok(report)
}
