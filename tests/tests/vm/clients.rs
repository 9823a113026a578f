//! Clients of the API in other languages, from `clients`, at a real daemon: what the README shows, done by Python, with guests in this
//! process; and `docs/clients.md`, whose commands are run as they stand there.
//!
//! Python and Go are those that `tests/packages.sh` has put into the lab. Nothing is fetched here.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use vnic_backend::MacAddr;
use vnic_tests::driver::{Guest, NetHdr, Options};
use vnic_tests::lab::guide::{Part, parts};
use vnic_tests::lab::process::Process;
use vnic_tests::lab::{self, Daemon, Lab, PATIENCE, checkout, output};

/// Words of the environment in which programs of `clients` run, and a copy of the part of the checkout that they are built in:
/// building leaves files.
struct Clients {
    top: PathBuf,
    environment: Vec<(&'static str, String)>,
}

impl Clients {
    /// With the Python package installed; none, with a word about it, if this machine has no grpcio.
    fn open(lab: &Lab) -> Result<Option<Clients>> {
        let python = lab.image("grpcio/bin/python3-grpcio");
        if !python.is_file() {
            lab::skip(lab.name(), "Python's grpcio is not installed");
            return Ok(None);
        }
        let top = lab.path("top");
        std::fs::create_dir_all(top.join("proto/control"))?;
        for part in ["Cargo.toml", "clients", "proto/control/proto"] {
            let mut copy = Command::new("cp");
            copy.arg("-r").arg(checkout().join(part));
            output(copy.arg(top.join(part)))?;
        }
        let words = "-m pip install -q --disable-pip-version-check --no-index --no-deps --no-build-isolation --target site ./clients/python";
        output(Command::new(&python).args(words.split(' ')).current_dir(&top))?;
        let ours = lab.program("vnicd");
        let folders = [
            ours.parent().context("a directory")?,
            python.parent().context("a directory")?,
            &lab.image("go/bin"),
        ];
        let path = std::env::join_paths(folders.map(Path::to_owned).into_iter().chain(
            std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()),
        ))?;
        let environment = vec![
            ("PATH", path.into_string().ok().context("a PATH in UTF-8")?),
            ("PYTHONPATH", top.join("site").display().to_string()),
            ("PROTOC", "python3 -m grpc_tools.protoc".to_owned()),
            (
                "VNIC_ENDPOINT",
                format!("unix:{}/control.sock", lab.dir().display()),
            ),
        ];
        Ok(Some(Clients { top, environment }))
    }

    /// Starts bash with a script, in the copy.
    fn start(&self, lab: &Lab, script: &str) -> Result<Process> {
        let mut words = vec!["env".to_owned(), format!("--chdir={}", self.top.display())];
        words.extend(
            self.environment
                .iter()
                .map(|(name, value)| format!("{name}={value}")),
        );
        words.extend(["bash", "-euo", "pipefail", "-c", script].map(str::to_owned));
        let errors = lab.log("errors.log");
        Process::start("bash", &words, &lab.log("printed.log"), &errors)
    }

    /// Go finds its modules in the lab, if that has them.
    fn use_go(&self, lab: &Lab) -> Result<bool> {
        let Ok(replace) = std::fs::read_to_string(lab.image("go/replace")) else {
            return Ok(false);
        };
        let text = format!("go 1.19\nuse ./clients/go\n{replace}");
        std::fs::write(self.top.join("go.work"), text)?;
        Ok(true)
    }
}

/// What a script prints, and how it ends. `meanwhile` is called now and then until it does.
fn printed(mut process: Process, mut meanwhile: impl FnMut()) -> Result<Vec<String>> {
    let end = Instant::now() + PATIENCE;
    let mut lines = Vec::new();
    while process.running() {
        ensure!(Instant::now() < end, "it does not end; so far: {lines:#?}");
        meanwhile();
        while let Ok(Some(line)) = process.try_line() {
            lines.push(line);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    // (The end of its output is an error here.)
    while let Ok(line) = process.line(Instant::now() + PATIENCE) {
        lines.push(line);
    }
    let status = process.wait(PATIENCE)?;
    ensure!(status.success(), "{status}, after {lines:#?}");
    Ok(lines)
}

#[test]
fn python_does_what_the_readme_does() {
    lab::case("clients-python", |lab| {
        let Some(clients) = Clients::open(lab)? else {
            return Ok(());
        };
        lab.step("the package is built, without a network");
        let mut daemon = Daemon::with_adapters(lab, 2, &[])?;
        let mut guests = Vec::new();
        for adapter in ["vf0", "vf1"] {
            guests.push(Guest::attach(
                lab.path(&format!("{adapter}-eth.sock")),
                Options::default(),
            )?);
        }
        let shown = daemon.ctl(&["adapter", "show", "vf0"])?;
        let mac = shown["macs"][0].as_str().context("an address")?;
        let mac: MacAddr = mac.parse().map_err(|e| anyhow::anyhow!("{mac}: {e}"))?;
        // To everybody.
        let mut frame = vec![0xff; 6];
        frame.extend(mac.0);
        frame.resize(60, 0);
        let script =
            "python3 clients/python/tests/test_vnic.py; exec python3 clients/python/examples/tour.py";
        let lines = printed(clients.start(lab, script)?, || {
            guests[0].reclaim(0);
            guests[0].send(0, &frame, NetHdr::default());
            while guests[1].try_recv(0).is_some() {}
        })?;
        let expected = [
            "vnicd … 2 adapters, answers: True",
            "adapters/vf0 … STATE_UP",
            "adapters/vf1 … STATE_UP",
            "DelayDropTimeout: 0 -> 50",
            "again: ABORTED ETAG_MISMATCH",
            "trust: TRUST_DSCP, lossless: [3]",
            "dcqcn on: [3]",
            "captured: 1 frame of pcapng",
            "counted: […'tx_frames'…]",
            "faults/lossy: 1% of what goes from adapters/vf0",
            "wrong: ['fault.action', 'fault.probability', 'fault_id']",
            "events:",
            "… DelayDropTimeout = 50…",
        ];
        follows(&lines, expected)?;
        lab.step("the tour is done");
        let left = daemon.ctl(&["registry", "list", "vf0", "--stored"])?;
        ensure!(left["entries"].as_array().is_none_or(Vec::is_empty), "{left}");
        drop(guests);
        ensure!(daemon.stop()?.success(), "vnicd did not end well");
        Ok(())
    });
}

#[test]
fn the_commands_of_the_page_do_what_it_says() {
    lab::case("clients-page", |lab| {
        let Some(clients) = Clients::open(lab)? else {
            return Ok(());
        };
        let go = clients.use_go(lab)?;
        if !go {
            lab::skip("clients-go", "Go with gRPC is not in the lab");
        }
        const MARK: &str = "--- the end of a block ---";
        let parts = parts("clients.md")?;
        let is_go = |part: &Part| part.text.contains("clients/go");
        // What is shown behind commands of Go's is theirs.
        let mut blocks: Vec<(&Part, Option<&Part>)> = Vec::new();
        for part in &parts {
            match part.kind.as_str() {
                "sh" => blocks.push((part, None)),
                "text" => blocks.last_mut().context("a command before a text")?.1 = Some(part),
                _ => {}
            }
        }
        blocks.retain(|(commands, _)| go || !is_go(commands));
        // What runs in the end is a daemon of the page's, or none.
        let mut script = "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n".to_owned();
        for (commands, _) in &blocks {
            script += &format!("{}echo '{MARK}'\n", commands.text);
        }
        let lines = printed(clients.start(lab, &script)?, || {})?;
        let mut said = lines.split(|line| line == MARK);
        let mut compared = 0;
        for (commands, shown) in &blocks {
            let said = said.next().context("a block that was not run")?;
            if let Some(shown) = shown {
                follows(said, shown.text.lines()).with_context(|| commands.text.clone())?;
                compared += 1;
            }
        }
        lab.step(&format!(
            "{} blocks of the page, {compared} compared",
            blocks.len()
        ));
        ensure!(blocks.len() >= 8 && compared >= 7, "blocks are missing");
        Ok(())
    });
}

/// Are these lines among those that were printed, in this order? `…` stands for anything.
fn follows<'a>(printed: &[String], shown: impl IntoIterator<Item = &'a str>) -> Result<()> {
    let mut rest = printed.iter();
    for line in shown {
        ensure!(
            rest.any(|said| fits(said.trim(), line.trim())),
            "not printed in its place: {line}\nprinted: {printed:#?}"
        );
    }
    Ok(())
}

/// Is it this text?
fn fits(said: &str, shown: &str) -> bool {
    let mut pieces: Vec<&str> = shown.split('…').map(str::trim).collect();
    let last = pieces.pop().unwrap_or_default();
    let mut rest = said;
    for (i, piece) in pieces.iter().enumerate() {
        match rest.split_once(piece) {
            Some((before, behind)) if i > 0 || before.is_empty() => rest = behind,
            _ => return false,
        }
    }
    if pieces.is_empty() {
        rest == last
    } else {
        rest.ends_with(last)
    }
}
