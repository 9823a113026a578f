//! `docs/verbs.md`: its five lines, as they stand there, on this machine.
//!
//! Only the directory of the sockets and the ports are others than in the page, for other runs may have those.

use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal, kill_process_group};
use vnic_tests::lab::{self, Lab, checkout};

/// It ends what hangs.
const PATIENCE: Duration = Duration::from_secs(300);

/// The first block of commands.
fn five_lines() -> Result<String> {
    let page = std::fs::read_to_string(checkout().join("docs/verbs.md")).context("docs/verbs.md")?;
    let (_, rest) = page.split_once("```sh\n").context("no commands")?;
    let (lines, _) = rest.split_once("```").context("an open fence")?;
    ensure!(lines.lines().count() == 5, "not five lines:\n{lines}");
    Ok(lines.to_owned())
}

fn run(lab: &Lab, lines: &str) -> Result<String> {
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let metrics = "--metrics 127.0.0.1:0";
    let dir = format!("--socket-dir {}", lab.dir().display());
    let state = format!("--state-dir {}", lab.path("state").display());
    let mut script = lines
        .replace("vnicd ", &format!("vnicd {dir} {state} {metrics} "))
        .replace("vnic-verbs run ", &format!("vnic-verbs run {dir} "))
        .replace("-- ib_write_bw", &format!("-- ib_write_bw -p {port}"));
    // Installing wants root, and is another test's matter where the program is there.
    if Command::new("ib_write_bw").arg("--version").output().is_ok() {
        script = script.replace("apt-get update && apt-get install", ": apt-get install");
    }
    let programs = lab.program("vnicd");
    let programs = programs.parent().context("a directory")?.display().to_string();
    let (output, errors) = (lab.log("lines-out.log"), lab.log("lines.log"));
    let mut bash = Command::new("bash")
        .args(["-euo", "pipefail", "-c", &script])
        .env("PATH", format!("{programs}:{}", std::env::var("PATH")?))
        .stdin(Stdio::null())
        .stdout(std::fs::File::create(&output)?)
        .stderr(std::fs::File::create(&errors)?)
        // What the lines leave in the background is in its group.
        .process_group(0)
        .spawn()
        .context("bash")?;
    let end = Instant::now() + PATIENCE;
    let status = loop {
        if let Some(status) = bash.try_wait()? {
            break Some(status);
        }
        if Instant::now() >= end {
            break None;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let group = Pid::from_raw(i32::try_from(bash.id())?).context("a process group")?;
    // The daemon may be the last of it, or nobody is left.
    let _ = kill_process_group(group, Signal::KILL);
    if status.is_none() {
        bash.wait()?;
    }
    let text = std::fs::read_to_string(&output)?;
    let status = status.with_context(|| format!("the lines hang; they have printed:\n{text}"))?;
    ensure!(status.success(), "the lines ended with {status}:\n{text}");
    Ok(text)
}

#[test]
fn the_five_lines_of_the_page() {
    lab::case("verbs-guide", |lab| {
        let lines = five_lines()?;
        let text = run(lab, &lines)?;
        let row = text.lines().rev().find_map(|line| {
            let words: Vec<f64> = line.split_whitespace().map_while(|w| w.parse().ok()).collect();
            (words.len() == 5).then_some(words)
        });
        let row = row.with_context(|| format!("no table of perftest:\n{text}"))?;
        ensure!(row[0] == 65536.0 && row[1] == 5000.0, "another row: {row:?}");
        lab.step(&format!("the table's row: {row:?}"));
        Ok(())
    });
}
