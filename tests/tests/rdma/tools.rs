//! The tools of `vnic-guest`, as processes of this machine on two adapters of a NIC: each pair moves data and verifies
//! them; peers that differ, lie, fall silent or die end in a clear error.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use vnic_backend::FaultSpec;
use vnic_backend::fault::Action;
use vnic_tests::driver::rdma::World;
use vnic_tests::driver::rig::wait_for;
use vnic_tests::lab::built;

/// After this a tool hangs. Never a statement about speed.
const PATIENCE: Duration = Duration::from_secs(180);

/// The program.
fn program() -> Result<PathBuf> {
    built("vnic-guest", "vnic-guest")
}

/// A tool that runs.
struct Tool {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    errors: Option<BufReader<std::process::ChildStderr>>,
    words: String,
}

/// What a tool left.
#[derive(Debug)]
struct Outcome {
    code: Option<i32>,
    output: String,
    errors: String,
}

impl Drop for Tool {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Tool {
    fn start(socket: &Path, words: &str) -> Result<Tool> {
        let mut child = Command::new(program()?)
            .args(words.split_whitespace())
            .env("VNIC_SOCKET", socket)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        Ok(Tool {
            input: child.stdin.take(),
            output: BufReader::new(child.stdout.take().context("its output")?),
            errors: child.stderr.take().map(BufReader::new),
            child,
            words: words.to_owned(),
        })
    }

    /// A server on a free port, and the port.
    fn listen(socket: &Path, words: &str) -> Result<(Tool, String)> {
        let mut tool = Tool::start(socket, &format!("{words} --port 0"))?;
        let mut line = String::new();
        tool.errors.as_mut().context("its errors")?.read_line(&mut line)?;
        let port = line.trim().rsplit(' ').next().map(str::to_owned);
        match port.filter(|_| line.contains("TCP port")) {
            Some(port) => Ok((tool, port)),
            None => bail!("{words}: {line}"),
        }
    }

    fn tell(&mut self, line: &str) -> Result<()> {
        let input = self.input.as_mut().context("its input")?;
        writeln!(input, "{line}").context("it takes no input")
    }

    /// The next line that begins so.
    fn line(&mut self, start: &str) -> Result<String> {
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line)? == 0 {
                bail!("{}: no line {start}", self.words);
            }
            if line.starts_with(start) {
                return Ok(line.trim_end().to_owned());
            }
        }
    }

    /// Waits for its end.
    fn finish(mut self) -> Result<Outcome> {
        let errors = self.errors.take().context("its errors")?;
        // Both pipes at once, so that neither fills up; a tool that hangs is killed, and its pipes end.
        let id = rustix::process::Pid::from_child(&self.child);
        let (done, wait) = std::sync::mpsc::channel::<()>();
        let watch = std::thread::spawn(move || {
            if wait.recv_timeout(PATIENCE) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                let _ = rustix::process::kill_process(id, rustix::process::Signal::KILL);
            }
        });
        let reader = std::thread::spawn(move || text(errors));
        let mut output = String::new();
        self.output.read_to_string(&mut output)?;
        let errors = reader.join().unwrap_or_default();
        let code = self.child.wait()?.code();
        drop(done);
        let _ = watch.join();
        Ok(Outcome { code, output, errors })
    }
}

fn text(mut from: impl Read) -> String {
    let mut bytes = Vec::new();
    let _ = from.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

impl Outcome {
    /// Its line of JSON.
    fn json(&self) -> Result<Value> {
        let line = self.output.lines().rev().find(|line| line.starts_with('{'));
        let line = line.with_context(|| format!("no JSON: {self:?}"))?;
        Ok(serde_json::from_str(line)?)
    }

    /// Its report: all is well.
    fn report(&self) -> Result<Value> {
        ensure!(self.code == Some(0), "{self:?}");
        let json = self.json()?;
        ensure!(json["ok"] == true, "{json}");
        Ok(json)
    }
}

/// A server on adapter `b` and a client on adapter `a`; what they left.
fn pair(world: &World, words: &str) -> Result<[Outcome; 2]> {
    let (server, port) = Tool::listen(&world.socket("b"), &format!("{words} --json"))?;
    let client = Tool::start(
        &world.socket("a"),
        &format!("{words} --json --port {port} 127.0.0.1"),
    )?;
    let client = client.finish()?;
    Ok([server.finish()?, client])
}

/// An NIC with adapters `a` and `b`.
fn world() -> Result<World> {
    let mut world = World::new(1, &[])?;
    world.add("a", 4500)?;
    world.add("b", 4500)?;
    Ok(world)
}

/// When tools have ended, nothing of theirs is left.
fn nothing_left(world: &World) {
    let empty = wait_for(|| world.objects("a").is_empty() && world.objects("b").is_empty());
    assert!(empty, "{:?} {:?}", world.objects("a"), world.objects("b"));
}

#[test]
fn every_tool_moves_data_and_verifies_them() -> Result<()> {
    let world = world()?;
    for words in [
        "rc_pingpong -n 50 -s 4097",
        "rc_pingpong -n 20 -s 0 -e",
        "uc_pingpong -n 50 -s 9000",
        "ud_pingpong -n 50",
        "srq_pingpong -n 10 -s 3000 -q 5",
        "write_bw -n 50 -q 3",
        "write_bw -n 50 -c UC -s 20000 -m 1024",
        "write_bw -n 50 -b -e -Q 1",
        "write_bw -n 300 -s 33 -I 64 -t 7",
        "write_bw -n 50 -s 2000 --tclass 106 -S 3 --rate-limit 100",
        "send_bw -n 20 -c UD --tclass 106 --rate_limit 50 --burst_size 4096",
        "write_lat -n 50",
        "write_lat -n 50 -c UC -s 10000",
        "write_lat -n 50 -s 1 -I 8",
        "read_bw -n 50 -q 2",
        "read_bw -n 50 -b -s 5000 -t 3",
        "read_lat -n 50 -s 4096",
        "send_bw -n 50 -s 65536 -r 8",
        "send_bw -n 50 -c UC -s 8192 -b",
        "send_bw -n 50 -c UD -q 2 -e",
        "send_lat -n 50 -I 16",
        "send_lat -n 50 -c UD -s 1000",
        "atomic_lat -n 50",
        "atomic_lat -n 50 -A CMP_AND_SWAP -e",
    ] {
        let [server, client] = pair(&world, words)?;
        let [server, client] = [server.report().context(words)?, client.report().context(words)?];
        for (report, role) in [(&server, "server"), (&client, "client")] {
            ensure!(
                report["verified"] == true && report["role"] == role,
                "{words}: {report}"
            );
            ensure!(report["lost"] == 0, "{words}: {report}");
        }
        ensure!(client["peer_seed"] == server["seed"], "{client}\n{server}");
        nothing_left(&world);
    }
    world.finish()
}

#[test]
fn one_process_is_both_sides_and_goes_through_all_sizes() -> Result<()> {
    let world = world()?;
    let other = world.socket("b");
    let words = format!("send_lat -c UD -a -n 10 --json --loopback {}", other.display());
    let report = Tool::start(&world.socket("a"), &words)?.finish()?.report()?;
    let sizes = report["results"].as_array().context("results")?;
    let sizes: Vec<u64> = sizes.iter().filter_map(|row| row["bytes"].as_u64()).collect();
    ensure!(
        sizes == [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096],
        "{sizes:?}"
    );
    // The same device on both sides, for a time and not a number of messages, as text.
    let same = world.socket("a");
    let words = format!("write_bw -D 1 -s 1000 --loopback {}", same.display());
    let outcome = Tool::start(&same, &words)?.finish()?;
    ensure!(outcome.code == Some(0), "{outcome:?}");
    ensure!(
        outcome.output.contains("#bytes") && outcome.output.contains("data verified"),
        "{outcome:?}"
    );
    nothing_left(&world);
    world.finish()
}

/// Joins two tools by their standard input and output; `tamper` changes the client's line on its way.
fn by_hand(world: &World, words: &str, tamper: impl Fn(String) -> String) -> Result<[Outcome; 2]> {
    let words = format!("{words} --json --exchange stdio");
    let mut server = Tool::start(&world.socket("b"), &words)?;
    let mut client = Tool::start(&world.socket("a"), &format!("{words} --client"))?;
    let (theirs, ours) = (server.line("endpoint ")?, client.line("endpoint ")?);
    server.tell(&tamper(ours))?;
    server.line("ready")?;
    client.tell(&theirs)?;
    client.line("ready")?;
    if client.line("done").is_ok() {
        // It may have ended already.
        let _ = server.tell("done");
    }
    let client = client.finish()?;
    // The end of its input ends a server that waits.
    server.input = None;
    Ok([server.finish()?, client])
}

#[test]
fn a_script_may_stand_between() -> Result<()> {
    let world = world()?;
    for words in [
        "rc_pingpong -n 20",
        "ud_pingpong -n 20",
        "srq_pingpong -n 5",
        "write_bw -n 20",
        "write_bw -n 20 -c UC",
        "write_lat -n 20",
        "read_bw -n 20",
        "read_lat -n 20",
        "send_bw -n 20",
        "send_bw -n 20 -c UD",
        "send_lat -n 20",
        "atomic_lat -n 20",
    ] {
        let outcomes = by_hand(&world, words, |line| line)?;
        for outcome in &outcomes {
            outcome.report().context(words)?;
        }
    }
    world.finish()
}

/// Verification is real: who expects other data than the peer sends finds it out.
#[test]
fn wrong_data_are_noticed() -> Result<()> {
    let world = world()?;
    for words in [
        "rc_pingpong -n 1",
        "write_bw -n 20",
        "send_bw -n 20",
        "send_lat -n 1",
        "srq_pingpong -n 1",
    ] {
        let [server, _] = by_hand(&world, words, |line| line.replace("seed=1", "seed=2"))?;
        ensure!(server.code == Some(1), "{words}: {server:?}");
        let json = server.json()?;
        let error = json["error"].as_str().unwrap_or_default();
        ensure!(error.contains("wrong data"), "{words}: {json}");
    }
    world.finish()
}

#[test]
fn peers_that_differ_or_lie_are_told_so() -> Result<()> {
    let world = world()?;
    let (server, port) = Tool::listen(&world.socket("b"), "write_bw -s 64")?;
    let client = Tool::start(
        &world.socket("a"),
        &format!("write_bw -s 128 --port {port} 127.0.0.1"),
    )?
    .finish()?;
    let server = server.finish()?;
    for (outcome, theirs) in [(&client, "size=64"), (&server, "size=128")] {
        ensure!(
            outcome.code == Some(1) && outcome.errors.contains(theirs),
            "{outcome:?}"
        );
        ensure!(outcome.errors.contains("same options"), "{outcome:?}");
    }
    for (lie, error) in [
        ("GET / HTTP/1.0", "is no endpoint"),
        ("endpoint version=9 qpn=1 gid=::1", "version 9"),
        ("endpoint qpn=99999999 gid=::1", "more than"),
        ("\u{1}\u{2}", "is no endpoint"),
    ] {
        let (server, port) = Tool::listen(&world.socket("b"), "rc_pingpong")?;
        let mut stream = TcpStream::connect(("127.0.0.1", port.parse()?))?;
        writeln!(stream, "{lie}")?;
        let outcome = server.finish()?;
        ensure!(
            outcome.code == Some(1) && outcome.errors.contains(error),
            "{lie}: {outcome:?}"
        );
        // The peer hears why.
        ensure!(text(stream).contains("\nerror "), "{lie}");
    }
    for (words, error) in [
        ("read_bw -c UC", "goes over RC"),
        ("write_bw -D 1 --exchange stdio", "needs an exchange over TCP"),
        (
            "rc_pingpong -x 999 localhost --exchange stdio",
            "there is no host",
        ),
        ("atomic_lat -s 16", "8 bytes"),
    ] {
        let outcome = Tool::start(&world.socket("a"), words)?.finish()?;
        ensure!(outcome.code == Some(2), "{words}: {outcome:?}");
        ensure!(outcome.errors.contains(error), "{words}: {outcome:?}");
    }
    world.finish()
}

/// A client that is killed: its server ends by itself, with what its queue pair says.
#[test]
fn a_dead_peer_is_a_completion_status() -> Result<()> {
    let world = world()?;
    for words in [
        "rc_pingpong -n 1000000000",
        "write_bw -D 3600",
        "send_bw -D 3600",
        "srq_pingpong -n 1000000000",
    ] {
        let (server, port) = Tool::listen(&world.socket("b"), &format!("{words} --json"))?;
        let mut client = Tool::start(&world.socket("a"), &format!("{words} --port {port} 127.0.0.1"))?;
        let connected = wait_for(|| world.objects("a").iter().any(|(name, n)| *name == "mr" && *n > 0));
        ensure!(connected, "{words}: no client");
        std::thread::sleep(Duration::from_millis(300));
        client.child.kill()?;
        client.child.wait()?;
        let outcome = server.finish()?;
        ensure!(outcome.code == Some(1), "{words}: {outcome:?}");
        let json = outcome.json()?;
        ensure!(json["status"] == "IBV_WC_RETRY_EXC_ERR", "{words}: {json}");
        nothing_left(&world);
    }
    world.finish()
}

/// An adapter that is taken away: the tool names the device.
#[test]
fn a_gone_device_is_named() -> Result<()> {
    let world = world()?;
    let (server, port) = Tool::listen(&world.socket("b"), "send_bw -D 3600")?;
    let client = Tool::start(
        &world.socket("a"),
        &format!("send_bw -D 3600 --port {port} 127.0.0.1"),
    )?;
    ensure!(wait_for(|| !world.objects("a").is_empty()), "no client");
    std::thread::sleep(Duration::from_millis(300));
    world.rig.nic.remove_adapter("a")?;
    let outcome = client.finish()?;
    let name = world.socket("a").display().to_string();
    ensure!(outcome.code == Some(1), "{outcome:?}");
    ensure!(
        outcome.errors.contains(&name) && outcome.errors.contains("gone"),
        "{outcome:?}"
    );
    let outcome = server.finish()?;
    ensure!(outcome.code == Some(1), "{outcome:?}");
    Ok(())
}

/// What unreliable services lose is counted, and nobody waits for it.
#[test]
fn lost_messages_are_accounted_for() -> Result<()> {
    let world = world()?;
    for (words, count) in [
        ("ud_pingpong -n 30", 1),
        ("send_bw -c UD -n 50 -s 100", 3),
        ("send_bw -c UC -n 50 -s 100", 2),
    ] {
        let mut fault = FaultSpec::new("lossy", Action::Drop);
        fault.to = Some("b".into());
        fault.skip = 5;
        fault.count = Some(count);
        world.rig.nic.add_fault(fault)?;
        let [server, client] = pair(&world, words)?;
        let [server, client] = [server.report().context(words)?, client.report().context(words)?];
        ensure!(client["lost"] == count, "{words}: {client}");
        ensure!(
            server["verified"] == true && client["verified"] == true,
            "{words}: {server}"
        );
        world.rig.nic.remove_fault("lossy")?;
    }
    world.finish()
}

#[test]
fn devices_are_described() -> Result<()> {
    let world = world()?;
    let socket = world.socket("a");
    let json = |words: &str| Tool::start(&socket, words)?.finish()?.report();
    let info = json("devinfo -v --json")?;
    ensure!(
        info["port"]["state"] == "PORT_ACTIVE" && info["port"]["active_mtu"] == 4096,
        "{info}"
    );
    ensure!(
        info["objects"]["qp"]["used"] == 0 && info["max_qp"].as_u64() > Some(1000),
        "{info}"
    );
    let gids = json("show_gids --json")?;
    let rows = gids["gids"].as_array().context("gids")?;
    let kinds: Vec<_> = rows.iter().filter_map(|row| row["type"].as_str()).collect();
    ensure!(kinds.contains(&"v1") && kinds.contains(&"v2"), "{gids}");
    let devices = json("devices --json")?;
    ensure!(devices["devices"][0] == socket.display().to_string(), "{devices}");
    let findings = json("doctor --json")?;
    ensure!(
        findings["findings"].as_array().is_some_and(|f| !f.is_empty()),
        "{findings}"
    );
    let nowhere = world.socket("nowhere");
    let outcome = Tool::start(&nowhere, "devinfo --json")?.finish()?;
    let error = outcome.json()?["error"].to_string();
    ensure!(
        outcome.code == Some(1) && error.contains("nowhere"),
        "{outcome:?}"
    );
    ensure!(
        Tool::start(&nowhere, "doctor")?.finish()?.code == Some(1),
        "the doctor sees no problem"
    );
    world.finish()
}
