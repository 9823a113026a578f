//! Work requests and completions through libibverbs' interface: programs in C, as a compiler makes them with the
//! distribution's header, on two adapters of an in-process NIC.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use vnic_tests::driver::rig::Rig;
use vnic_tests::lab::built;

/// The library that is preloaded.
fn library() -> Result<PathBuf> {
    built("vnic-verbs-preload", "libvnic_ibverbs.so")
}

/// Compiles a program that lies here.
fn compile(name: &str, into: &Path) -> Result<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/rdma/preload_work")
        .join(name)
        .with_extension("c");
    let program = into.join(name);
    let out = Command::new("cc")
        .args([
            "-O1",
            "-Wall",
            "-Wextra",
            "-Wno-missing-field-initializers",
            "-Werror",
            "-o",
        ])
        .args([&program, &source])
        .args(["-libverbs", "-lpthread"])
        .output()
        .context("a C compiler")?;
    ensure!(
        out.status.success(),
        "libibverbs-dev is needed:\n{}",
        String::from_utf8_lossy(&out.stderr)
    );
    Ok(program)
}

/// A program on adapters `a` and `b`, that runs.
fn start(name: &str) -> Result<(Rig, Child)> {
    start_with(name, "")
}

/// The same, whose posts fail by these rules.
fn start_with(name: &str, post_faults: &str) -> Result<(Rig, Child)> {
    let mut rig = Rig::new(1)?;
    let mut sockets = Vec::new();
    for adapter in ["a", "b"] {
        let socket = rig.dir().join(format!("{adapter}-rdma.sock"));
        sockets.push(socket.display().to_string());
        rig.add_with(adapter, |spec| spec.rdma_socket = Some(socket))?;
    }
    let program = compile(name, rig.dir())?;
    let child = Command::new(program)
        .env("VNIC_SOCKET", sockets.join(":"))
        .env("VNIC_IBVERBS_DEBUG", "1")
        .env("VNIC_POST_FAULTS", post_faults)
        .env("LD_PRELOAD", library()?)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    Ok((rig, child))
}

/// The program has done all that it does.
fn finish(child: Child, said: &str) -> Result<()> {
    let out = child.wait_with_output()?;
    let said = format!("{said}{}", String::from_utf8_lossy(&out.stdout));
    ensure!(
        out.status.success() && said.lines().last() == Some("all of it"),
        "{}\n{said}{}",
        out.status,
        String::from_utf8_lossy(&out.stderr)
    );
    Ok(())
}

#[test]
fn work_requests_and_completions_are_those_of_the_header() -> Result<()> {
    let (_rig, child) = start("work")?;
    finish(child, "")
}

#[test]
fn who_waits_hears_of_the_end() -> Result<()> {
    let (rig, mut child) = start("gone")?;
    let mut said = [0; "ready\n".len()];
    let read = child.stdout.as_mut().context("its output")?.read_exact(&mut said);
    if read.is_ok() {
        drop(rig);
    }
    finish(child, &String::from_utf8_lossy(&said))
}

/// The k-th work request that is posted fails with an errno, and nothing else: what is behind it can be posted again.
#[test]
fn posts_fail_on_demand() -> Result<()> {
    let rules = "send:ENOMEM:skip=2:count=1,recv:EIO:skip=1";
    let (_rig, child) = start_with("posts", rules)?;
    finish(child, "")
}

/// Rules that nobody understands open no device, and say why.
#[test]
fn wrong_rules_for_posts_are_refused() -> Result<()> {
    let (_rig, child) = start_with("posts", "send:EMEM")?;
    let out = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&out.stderr);
    ensure!(!out.status.success(), "{said}");
    ensure!(
        said.contains("VNIC_POST_FAULTS: \"EMEM\" is none of EINVAL, ENOMEM"),
        "{said}"
    );
    Ok(())
}
