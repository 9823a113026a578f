//! Programs in C on the preloaded library, beside a NIC in this process: what can be made and destroyed when, and who hears
//! of which event. The programs are beside this file.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use vnic_tests::driver::rdma::World;
use vnic_tests::lab::built;

/// After this a program hangs. Never a statement about speed.
const PATIENCE: Duration = Duration::from_secs(180);

/// The library that is preloaded.
fn library() -> Result<PathBuf> {
    built("vnic-verbs-preload", "libvnic_ibverbs.so")
}

/// A program beside this file, compiled.
fn compile(name: &str, into: &Path) -> Result<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/rdma/preload_objects/{name}.c"));
    let program = into.join(name);
    let out = Command::new("cc")
        .args(["-Wall", "-Wextra", "-Werror", "-O1", "-o"])
        .args([&program, &source])
        .args(["-libverbs", "-lpthread"])
        .output()
        .context("a compiler for C")?;
    ensure!(
        out.status.success(),
        "{} (is libibverbs-dev installed?)",
        String::from_utf8_lossy(&out.stderr)
    );
    Ok(program)
}

/// A program that runs. Its end is waited for, whatever happens.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Program {
    fn start(program: &Path, socket: &Path, case: &str) -> Result<Program> {
        let child = Command::new(program)
            .arg(case)
            .env("LD_PRELOAD", library()?)
            .env("VNIC_SOCKET", socket)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        Ok(Program(child))
    }

    /// It says `ok CASE` and ends without an error.
    fn finish(mut self, case: &str) -> Result<()> {
        let id = rustix::process::Pid::from_child(&self.0);
        let (done, wait) = std::sync::mpsc::channel::<()>();
        let watch = std::thread::spawn(move || {
            if wait.recv_timeout(PATIENCE) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                let _ = rustix::process::kill_process(id, rustix::process::Signal::KILL);
            }
        });
        let mut said = [String::new(), String::new()];
        // A program says little: neither pipe fills up.
        if let Some(mut output) = self.0.stdout.take() {
            output.read_to_string(&mut said[0])?;
        }
        if let Some(mut errors) = self.0.stderr.take() {
            errors.read_to_string(&mut said[1])?;
        }
        let status = self.0.wait()?;
        drop(done);
        let _ = watch.join();
        ensure!(
            status.success() && said[0].lines().any(|line| line == format!("ok {case}")),
            "{case}: {status}: {}{}",
            said[0],
            said[1]
        );
        Ok(())
    }
}

/// Runs cases of a program, each in a process of its own, one after the other on the same adapter.
fn run(program: &str, cases: &[&str]) -> Result<()> {
    let world = World::new(1, &["vf0"])?;
    let place = tempfile::tempdir()?;
    let program = compile(program, place.path())?;
    for case in cases {
        Program::start(&program, &world.socket("vf0"), case)?.finish(case)?;
    }
    Ok(())
}

#[test]
fn devices_say_what_they_are_and_are_shared() -> Result<()> {
    run("devices", &["queries", "closing", "threads", "children"])
}

#[test]
fn processes_share_an_adapter_and_children_open_it_for_themselves() -> Result<()> {
    run("processes", &["ranks", "children_open"])
}

#[test]
fn objects_last_as_long_as_they_are_needed() -> Result<()> {
    run(
        "lifetimes",
        &[
            "domains",
            "regions",
            "completion_queues",
            "queue_pairs",
            "shared_receive_queues",
            "xrc",
            "answers",
        ],
    )
}

#[test]
fn events_come_to_whom_they_concern() -> Result<()> {
    run(
        "events",
        &[
            "channels",
            "only_new_ones",
            "several",
            "destroying_waits",
            "signals_end_waiting",
            "asynchronous",
            "contexts",
        ],
    )
}

#[test]
fn the_end_of_the_daemon_is_heard_of() -> Result<()> {
    let world = World::new(1, &["vf0"])?;
    let place = tempfile::tempdir()?;
    let program = compile("events", place.path())?;
    let mut program = Program::start(&program, &world.socket("vf0"), "the_end")?;
    let output = program.0.stdout.as_mut().context("its output")?;
    let mut line = String::new();
    let mut reader = BufReader::with_capacity(1, output);
    reader.read_line(&mut line)?;
    ensure!(line == "ready\n", "{line:?}");
    drop(world);
    program.finish("the_end")
}
