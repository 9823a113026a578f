//! Work requests and completions through libibverbs' interface: programs in C, as a compiler makes them with the
//! distribution's header, on two adapters of an in-process NIC.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use vnic_backend::{Post, PostErrno, VerbsFaultAction, VerbsFaultSpec};
use vnic_tests::driver::rig::Rig;
use vnic_tests::lab::built;

/// The library that is preloaded.
fn library() -> Result<PathBuf> {
    built("vnic-verbs-preload", "libvnic_ibverbs.so")
}

/// Compiles a program that lies here.
pub fn compile(name: &str, into: &Path) -> Result<PathBuf> {
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
    start_with(name, Vec::new())
}

/// The same under these rules.
fn start_with(name: &str, rules: Vec<VerbsFaultSpec>) -> Result<(Rig, Child)> {
    let mut rig = Rig::new(1)?;
    let mut sockets = Vec::new();
    for adapter in ["a", "b"] {
        let socket = rig.dir().join(format!("{adapter}-rdma.sock"));
        sockets.push(socket.display().to_string());
        rig.add_with(adapter, |spec| spec.rdma_socket = Some(socket))?;
    }
    for rule in rules {
        rig.nic.add_verbs_fault(rule)?;
    }
    let program = compile(name, rig.dir())?;
    let child = Command::new(program)
        .env("VNIC_SOCKET", sockets.join(":"))
        .env("VNIC_IBVERBS_DEBUG", "1")
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
    let rule = |name: &str, adapter: &str, post, errno, skip| {
        let action = VerbsFaultAction::Post {
            post,
            qp: None,
            operations: Vec::new(),
            errno,
        };
        VerbsFaultSpec {
            skip,
            ..VerbsFaultSpec::new(name, adapter, action)
        }
    };
    let third = VerbsFaultSpec {
        count: Some(1),
        ..rule("third", "a", Post::Send, PostErrno::Enomem, 2)
    };
    let rest = rule("rest", "b", Post::Receive, PostErrno::Eio, 1);
    let (rig, child) = start_with("posts", vec![third, rest])?;
    finish(child, "")?;
    let counts: Vec<_> = rig
        .nic
        .verbs_faults()
        .iter()
        .map(|r| (r.matched, r.injected))
        .collect();
    // Whether a driver still asks behind the one hit is a matter of when it hears of its end: `verbs::posts` has that.
    let [(3..=5, 1), (3, 2)] = counts[..] else {
        bail!("the rules matched and hit {counts:?}");
    };
    Ok(())
}
