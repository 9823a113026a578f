//! `vnic-testkit`, and the plugin of pytest, as people use them: a NIC of a test's own, with rules, scenarios and reports.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use vnic_testkit::{Setup, Vnic, v1};
use vnic_tests::driver::rig::wait_for;
use vnic_tests::lab::{self, built, checkout, output};
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

/// A rule stops the transfer at its k-th packet, and the step that waits for it lets it go on.
#[test]
fn a_step_waits_for_the_kth_packet() -> Result<()> {
    let nic = nic()?;
    let file = nic.sockets().join("kth.toml");
    let steps = "name = \"kth\"\nlength = \"30 s\"\n\
                 [[step]]\nat = \"0 ms\"\naction = \"fault\"\n\
                 [step.fault]\nname = \"kth\"\nto = \"vf1\"\nroce = true\nskip = 6\naction = \"drop\"\n\
                 [[step]]\nafter = \"kth\"\nat = \"1 ms\"\naction = \"fault_removed\"\nrule = \"kth\"\n";
    std::fs::write(&file, steps)?;
    let recorder = nic.record()?;
    let playing = nic.play(&file.display().to_string(), &[])?;
    ensure!(wait_for(|| playing.log().is_ok_and(|log| log.len() == 1)));
    ensure!(writes(&nic)? == [CompletionStatus::Success; 3]);
    let log = playing.stop()?;
    let expected = [
        "        0 ms fault kth is made: drop",
        "  kth + 1 ms fault kth is removed",
        "end",
    ];
    ensure!(log == expected, "{log:#?}");
    ensure!(recorder.stop()?.verdict("completed; its data was written") == 3);
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

/// Python with grpcio; `tests/packages.sh` makes it.
const PYTHON: &str = "python3-grpcio";

/// The Python package, installed into a directory. Returns its search path; `None`: this machine cannot.
fn package(into: &Path) -> Result<Option<String>> {
    let said = |words: &[&str]| Command::new(PYTHON).args(words).stderr(Stdio::null()).output();
    let libraries = "import sysconfig; print(sysconfig.get_path('purelib'))";
    let Ok(own) = said(&["-c", libraries]) else {
        lab::skip("testkit-pytest", "Python's grpcio is not installed");
        return Ok(None);
    };
    let own = String::from_utf8(own.stdout)?;
    // (What the distribution has is behind all that was chosen.)
    let debian = "/usr/lib/python3/dist-packages";
    if !Path::new(debian).join("pytest").is_dir() {
        lab::skip("testkit-pytest", "pytest is not installed");
        return Ok(None);
    }
    std::fs::create_dir_all(into.join("proto/control"))?;
    for part in ["Cargo.toml", "clients", "proto/control/proto"] {
        let mut copy = Command::new("cp");
        copy.arg("-r").arg(checkout().join(part));
        output(copy.arg(into.join(part)))?;
    }
    let words = "-m pip install -q --disable-pip-version-check --no-index --no-deps --no-build-isolation --target site ./clients/python";
    output(Command::new(PYTHON).args(words.split(' ')).current_dir(into))?;
    Ok(Some(format!(
        "{}:{}:{debian}",
        into.join("site").display(),
        own.trim()
    )))
}

/// The example of the page is run as it stands; a test that fails says what really happened.
#[test]
fn pytest_has_a_nic_and_plays_scenarios() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let Some(path) = package(dir.path())? else {
        return Ok(());
    };
    let writes = dir.path().join("writes");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rdma/preload_work/writes.c");
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-o"]).args([&writes, &source]).arg("-libverbs");
    output(&mut cc)?;
    let programs = dir.path().join("programs");
    std::fs::create_dir(&programs)?;
    for (package, program) in [("vnic-appliance", "vnicd"), ("vnic-guest", "vnic-verbs")] {
        std::os::unix::fs::symlink(built(package, program)?, programs.join(program))?;
    }
    let pytest = |file: &Path| -> Result<std::process::Output> {
        let mut command = Command::new(PYTHON);
        command
            .args(["-m", "pytest", "-p", "no:cacheprovider", "-q"])
            .arg(file);
        command
            .env("PYTHONPATH", &path)
            .env("WRITES", &writes)
            .env("VNIC_PROGRAMS", &programs);
        command.env("VNIC_SCENARIOS", checkout().join("deploy/scenarios/verbs"));
        command.env(
            "VNIC_IBVERBS_LIBRARY",
            built("vnic-verbs-preload", "libvnic_ibverbs.so")?,
        );
        Ok(command.current_dir(dir.path()).output()?)
    };
    let example = dir.path().join("clients/python/examples/test_writes.py");
    let done = pytest(&example)?;
    let said = String::from_utf8_lossy(&done.stdout);
    ensure!(done.status.success() && said.contains("2 passed"), "{said}");
    let fails = dir.path().join("test_fails.py");
    let text = std::fs::read_to_string(&example)?.replace("returncode == 1", "returncode == 0");
    std::fs::write(&fails, text)?;
    let said = String::from_utf8(pytest(&fails)?.stdout)?;
    for part in [
        "1 failed, 1 passed",
        "vnic: what really happened",
        "vf0 queue pair #1 Write 0: reported as failed; its data was written",
    ] {
        ensure!(said.contains(part), "{part:?} is not in\n{said}");
    }
    let page = std::fs::read_to_string(checkout().join("docs/testing.md"))?;
    let example = std::fs::read_to_string(example)?;
    let shown = example.split_once("import os").context("an import")?.1;
    ensure!(
        page.contains(shown.trim()),
        "docs/testing.md shows another example"
    );
    let crates = std::fs::read_to_string(checkout().join("clients/testkit/src/lib.rs"))?;
    let shown = crates.lines().skip_while(|line| *line != "//! ```no_run").skip(1);
    let shown: Vec<&str> = shown
        .take_while(|line| *line != "//! ```")
        .map(|line| line.trim_start_matches("//! "))
        .collect();
    let shown = shown
        .iter()
        .filter(|line| !line.starts_with('#'))
        .copied()
        .collect::<Vec<_>>()
        .join("\n");
    ensure!(
        page.contains(&shown),
        "docs/testing.md shows another example than the crate:\n{shown}"
    );
    Ok(())
}
