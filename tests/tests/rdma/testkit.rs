//! `vnic-testkit` as people use it: a NIC of a test's own, with rules, scenarios and reports.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use vnic_testkit::{Setup, Vnic, v1};
use vnic_tests::driver::rig::wait_for;
use vnic_tests::lab::{built, checkout};
use vnic_verbs::{
    Access, CompletionStatus, ConnectOptions, Device, DeviceAddress, Rc, SendWr, WorkCompletion,
};

fn nic() -> Result<Vnic> {
    let programs = built("vnic-appliance", "vnicd")?;
    let setup = Setup {
        programs: programs.parent().map(Path::to_owned),
        scenarios: Some(checkout().join("deploy/scenarios/verbs")),
        ..Setup::default()
    };
    Ok(setup.start()?)
}

/// Three WRITEs from an adapter to another, and what became of each.
fn writes(nic: &Vnic) -> Result<Vec<CompletionStatus>> {
    let open = |adapter: &str| {
        let socket = nic.sockets().join(format!("{adapter}-rdma.sock"));
        Device::open(&DeviceAddress::Socket(socket))
    };
    let (a, b) = (open("vf0")?, open("vf1")?);
    let (pa, pb) = (a.alloc_pd()?, b.alloc_pd()?);
    let (ca, cb) = (a.create_cq(16)?, b.create_cq(16)?);
    let (ra, rb) = (
        pa.allocate(4096, Access::REMOTE_ALL)?,
        pb.allocate(4096, Access::REMOTE_ALL)?,
    );
    let (qa, qb) = (pa.qp::<Rc>(&ca, &ca).build()?, pb.qp::<Rc>(&cb, &cb).build()?);
    qa.connect(&qb.endpoint(1)?, &ConnectOptions::default())?;
    qb.connect(&qa.endpoint(1)?, &ConnectOptions::default())?;
    let mut told = Vec::new();
    for id in 0..3 {
        qa.post_send(&[SendWr::write(ra.slice(..), rb.addr(), rb.rkey())
            .signaled()
            .id(id)])?;
        let mut one = [WorkCompletion::default()];
        ensure!(
            wait_for(|| ca.poll(&mut one).is_ok_and(|n| n == 1)),
            "no completion"
        );
        told.push(one[0].status());
    }
    Ok(told)
}

#[test]
fn rules_and_reports_are_values() -> Result<()> {
    let nic = nic()?;
    let lie = v1::VerbsFault {
        adapter: "adapters/vf0".to_owned(),
        count: Some(1),
        action: Some(v1::verbs_fault::Action::Completion(v1::CompletionFault {
            fault: Some(v1::completion_fault::Fault::Lie("retry-exceeded".to_owned())),
            ..Default::default()
        })),
        ..Default::default()
    };
    let recorder = nic.record()?;
    let rule = nic.verbs_fault("liar", lie.clone())?;
    let good = CompletionStatus::Success;
    ensure!(writes(&nic)? == [CompletionStatus::RetryExceeded, good, good]);
    let (_, injected) = rule.remove()?;
    ensure!(injected == 1);
    let report = recorder.stop()?;
    ensure!(report.complete && report.outcomes.len() == 3);
    ensure!(report.lies().len() == 1 && report.failed().len() == 1);
    ensure!(report.verdict("reported as failed; its data was written") == 1);
    let text = report.to_string();
    ensure!(
        text.contains("vf0 queue pair #1 Write 0: reported as failed"),
        "{text}"
    );

    // What is dropped is over: its name is free, and nothing is recorded.
    for _ in 0..2 {
        drop((nic.record()?, nic.verbs_fault("liar", lie.clone())?));
    }
    let fault = v1::Fault {
        action: Some(v1::fault::Action::Drop(v1::DropFault {})),
        ..Default::default()
    };
    for _ in 0..2 {
        drop(nic.fault("lossy", fault.clone())?);
    }
    let wrong = nic
        .fault("lossy", v1::Fault::default())
        .err()
        .context("refused")?;
    ensure!(wrong.to_string().contains("action"), "{wrong}");
    ensure!(writes(&nic)? == [good; 3]);
    Ok(())
}

/// A process at the other end is killed indeed.
#[test]
fn a_scenario_kills_a_process() -> Result<()> {
    let nic = nic()?;
    let mut peer = Command::new(built("vnic-guest", "vnic-guest")?)
        .args(["rc_pingpong", "--port", "0"])
        .env("VNIC_SOCKET", nic.sockets().join("vf1-rdma.sock"))
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    // A process that is not there yet is nobody's: the scenario says so.
    let mut log = Err(vnic_testkit::Error::Failed("never played".to_owned()));
    wait_for(|| {
        log = nic
            .play("peer-killed", &[("peer", "vf1")])
            .and_then(|scenario| scenario.wait());
        log.is_ok()
    });
    ensure!(log? == ["      200 ms vf1: its processes are killed", "end"]);
    ensure!(peer.wait()?.signal() == Some(9));
    Ok(())
}

#[test]
fn a_scenario_that_is_dropped_is_put_back() -> Result<()> {
    let nic = nic()?;
    let playing = nic.play("grey-nic", &[("grey", "vf1")])?;
    std::thread::sleep(Duration::from_millis(250));
    drop(playing);
    let log = nic.play("grey-nic", &[])?.stop()?;
    ensure!(log.last().is_some_and(|line| line == "end"), "{log:?}");
    ensure!(nic.play("no-such", &[]).is_err());
    let mut command = nic.command(&["vf0", "vf1"], "sh");
    command.args(["-c", "echo $VNIC_SOCKET"]);
    command.env(
        "VNIC_IBVERBS_LIBRARY",
        built("vnic-verbs-preload", "libvnic_ibverbs.so")?,
    );
    let programs = built("vnic-guest", "vnic-verbs")?;
    ensure!(programs.parent() == Path::new(command.get_program()).parent());
    let said = command.output()?;
    let expected = ["vf0", "vf1"].map(|adapter| {
        nic.sockets()
            .join(format!("{adapter}-rdma.sock"))
            .display()
            .to_string()
    });
    ensure!(
        String::from_utf8_lossy(&said.stdout).trim() == expected.join(":"),
        "{said:?}"
    );
    Ok(())
}
