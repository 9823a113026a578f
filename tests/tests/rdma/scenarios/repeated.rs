//! Each scenario that is shipped, played again and again on programs with traffic: each run does the same.

use std::time::Duration;

use anyhow::{Result, bail, ensure};

use super::stage::{Plan, Run, once};
use super::{scenario, shipped};

/// How often each scenario is played, unless `VNIC_SCENARIO_RUNS` says so. (A hundred times, all of them take seven minutes of CPU
/// time in a debug build.)
const RUNS: usize = 12;

/// Scenarios with a test in this file.
const HERE: [&str; 16] = [
    "device-fatal",
    "device-removed",
    "device-renumbered",
    "flap-during-kv-transfer",
    "gid-moved",
    "grey-nic",
    "hung-requests",
    "mooncake-3523",
    "mooncake-3596",
    "mtu-changed",
    "pause-storm",
    "peer-killed",
    "port-down-late-event",
    "port-flap",
    "qps-never-rebuilt",
    "rnr-storm",
];

fn runs() -> usize {
    let wanted = std::env::var("VNIC_SCENARIO_RUNS").ok();
    wanted.and_then(|runs| runs.parse().ok()).unwrap_or(RUNS)
}

/// Plays a scenario [`RUNS`] times. Returns the first run; the others are the same, line by line.
fn repeated(name: &str, plan: Plan) -> Result<Run> {
    let scenario = scenario(name)?;
    ensure!(scenario.name == name && !scenario.description.is_empty());
    let first = once(&scenario, plan)?;
    println!(
        "{}\n{:#?}",
        first.log[..first.story].join("\n"),
        first.recorded.summary
    );
    ensure!(first.has("end") && first.recorded.status.dropped == 0 && first.recorded.status.lost == 0);
    for run in 2..=runs() {
        let again = once(&scenario, plan)?;
        if again.log == first.log {
            continue;
        }
        let differ = |at: &usize| first.log.get(*at) != again.log.get(*at);
        let at = (0..first.log.len().max(again.log.len()))
            .find(differ)
            .unwrap_or_default();
        let line = |log: &[String]| log.get(at).map_or("(the log ends)".to_owned(), Clone::clone);
        bail!(
            "run {run} of {name} differs in line {}:\n  first: {}\n  now:   {}\nreplay: VNIC_SCENARIO_RUNS={run} cargo test --locked \
             -p vnic-tests --test rdma scenarios::repeated::{} -- --exact --nocapture",
            at + 1,
            line(&first.log),
            line(&again.log),
            name.replace('-', "_"),
        );
    }
    Ok(first)
}

/// A scenario of which a program sees nothing but time.
fn unnoticed(name: &str) -> Result<()> {
    let run = repeated(name, Plan::default())?;
    let good = run.built == 2 && run.told.keys().eq(["Success"]);
    ensure!(good, "{} {:?}", run.built, run.told);
    Ok(())
}

/// A scenario after which both connections are built anew, once.
fn built_anew(name: &str) -> Result<()> {
    let run = repeated(name, Plan::default())?;
    ensure!(run.built == 4, "{}", run.built);
    Ok(())
}

#[test]
fn all_that_are_shipped_are_here() -> Result<()> {
    for path in shipped()? {
        let name = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        ensure!(HERE.contains(&&*name), "{name} has no test");
    }
    Ok(())
}

#[test]
fn port_flap() -> Result<()> {
    unnoticed("port-flap")
}

#[test]
fn port_down_late_event() -> Result<()> {
    let run = repeated("port-down-late-event", Plan::default())?;
    ensure!(run.told.contains_key("RetryExceeded"), "{:?}", run.told);
    ensure!(run.verdicts("reported as failed; its data was written") > 0);
    Ok(())
}

#[test]
fn device_fatal() -> Result<()> {
    built_anew("device-fatal")
}

#[test]
fn device_removed() -> Result<()> {
    built_anew("device-removed")
}

#[test]
fn device_renumbered() -> Result<()> {
    let run = repeated("device-renumbered", Plan::default())?;
    ensure!(
        run.built == 4 && run.has("vf0: has opened its device, number 7"),
        "{}",
        run.log.join("\n")
    );
    ensure!(
        run.has("vf0: the device is back as number 7")
            && run.has("put back vf0: the device has its own number")
    );
    Ok(())
}

#[test]
fn flap_during_kv_transfer() -> Result<()> {
    let plan = Plan {
        bulk: true,
        batch: 8,
        timeout: 12,
        ..Plan::default()
    };
    let run = repeated("flap-during-kv-transfer", plan)?;
    ensure!(run.told.contains_key("RetryExceeded"), "{:?}", run.told);
    ensure!(run.verdicts("reported as failed; its data was written") > 0);
    ensure!(run.verdicts("reported as failed; its data was not written") > 0);
    Ok(())
}

#[test]
fn gid_moved() -> Result<()> {
    let plan = Plan {
        gid: Some(30),
        ..Plan::default()
    };
    let run = repeated("gid-moved", plan)?;
    ensure!(run.posted > 100);
    Ok(())
}

#[test]
fn mtu_changed() -> Result<()> {
    unnoticed("mtu-changed")
}

#[test]
fn grey_nic() -> Result<()> {
    unnoticed("grey-nic")
}

/// A storm of the peer stops the writer; what waits goes on when it ends.
#[test]
fn pause_storm() -> Result<()> {
    let plan = Plan {
        timeout: 20,
        ..Plan::default()
    };
    let run = repeated("pause-storm", plan)?;
    ensure!(run.told.keys().eq(["Success"]), "{:?}", run.told);
    Ok(())
}

#[test]
fn peer_killed() -> Result<()> {
    let plan = Plan {
        patience: Duration::from_secs(5),
        ..Plan::default()
    };
    let run = repeated("peer-killed", plan)?;
    ensure!(run.told.contains_key("RetryExceeded"), "{:?}", run.told);
    Ok(())
}

/// What hangs was carried out; what is not waited for is posted again on a queue pair that is built anew.
#[test]
fn hung_requests() -> Result<()> {
    let plan = Plan {
        patience: Duration::from_millis(500),
        ..Plan::default()
    };
    let run = repeated("hung-requests", plan)?;
    ensure!(run.built > 2 && run.told.keys().eq(["Success"]), "{:?}", run.told);
    ensure!(run.verdicts("hung; its data was written") > 0);
    Ok(())
}

#[test]
fn qps_never_rebuilt() -> Result<()> {
    let run = repeated("qps-never-rebuilt", Plan::default())?;
    ensure!(run.told.contains_key("LocalQpOperationError"), "{:?}", run.told);
    ensure!(
        run.built == 4
            && run
                .log
                .iter()
                .any(|line| line.contains("a queue pair is refused"))
    );
    Ok(())
}

#[test]
fn rnr_storm() -> Result<()> {
    unnoticed("rnr-storm")
}

#[test]
fn mooncake_3523() -> Result<()> {
    let plan = Plan {
        patience: Duration::from_secs(1),
        ..Plan::default()
    };
    let run = repeated("mooncake-3523", plan)?;
    ensure!(run.built > 2 && run.has("requests hang"));
    Ok(())
}

#[test]
fn mooncake_3596() -> Result<()> {
    let run = repeated("mooncake-3596", Plan::default())?;
    ensure!(run.told.contains_key("RetryExceeded"), "{:?}", run.told);
    Ok(())
}
