//! `vnicd` and `vnicctl` as scripts see them: words, exit codes, files.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

const VNICD: &str = env!("CARGO_BIN_EXE_vnicd");
const VNICCTL: &str = env!("CARGO_BIN_EXE_vnicctl");

/// A daemon in a process of its own, killed when the test ends.
struct Daemon {
    child: Child,
    dir: tempfile::TempDir,
    ready: String,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(dir: &Path, arguments: &[&str]) -> (Child, String) {
    let mut child = Command::new(VNICD)
        .args([
            "--socket-dir",
            dir.to_str().expect("a path"),
            "--metrics",
            "127.0.0.1:0",
        ])
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("vnicd");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("its output"))
        .read_line(&mut line)
        .expect("a line");
    (child, line)
}

impl Daemon {
    fn start(arguments: &[&str]) -> Daemon {
        let dir = tempfile::tempdir().expect("a directory");
        let (mut child, ready) = spawn(dir.path(), arguments);
        if !ready.contains("ready") {
            let mut log = String::new();
            let _ = child.stderr.take().expect("its log").read_to_string(&mut log);
            panic!("not ready: {ready}{log}");
        }
        Daemon { child, dir, ready }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn ctl(&self, arguments: &[&str]) -> Output {
        Command::new(VNICCTL)
            .env(
                "VNIC_ENDPOINT",
                format!("unix:{}", self.path("control.sock").display()),
            )
            .args(arguments)
            .output()
            .expect("vnicctl")
    }

    /// Standard output of a command that works.
    fn said(&self, arguments: &[&str]) -> String {
        let output = self.ctl(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// Standard error of a command that the daemon refuses.
    fn refused(&self, arguments: &[&str]) -> String {
        let output = self.ctl(arguments);
        assert_eq!(
            output.status.code(),
            Some(1),
            "{arguments:?}: {}",
            text(&output.stdout)
        );
        text(&output.stderr)
    }

    fn json(&self, arguments: &[&str]) -> serde_json::Value {
        let all = [&["-o", "json"], arguments].concat();
        serde_json::from_str(&self.said(&all)).expect("JSON")
    }

    fn metrics_address(&self) -> String {
        let (_, rest) = self.ready.split_once("http://").expect("the metrics");
        rest.split('/').next().expect("an address").to_owned()
    }

    fn end(&mut self, signal: Signal) -> Option<i32> {
        kill_process(Pid::from_child(&self.child), signal).expect("the signal");
        self.child.wait().expect("the end").code()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn get(address: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("a connection");
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    )
    .expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let status = answer
        .split(' ')
        .nth(1)
        .and_then(|s| s.parse().ok())
        .expect("a status");
    let body = answer
        .split_once("\r\n\r\n")
        .map(|(_, b)| b.to_owned())
        .unwrap_or_default();
    (status, body)
}

#[test]
fn the_daemon_says_ready_serves_and_ends_cleanly() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut daemon = Daemon::start(&["--adapters", "2"]);
        let control = daemon.path("control.sock");
        for part in [
            "2 adapters",
            &format!("unix:{}", control.display()),
            "/metrics",
            "pid",
        ] {
            assert!(daemon.ready.contains(part), "{part} in {}", daemon.ready);
        }
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::metadata(&control)
            .expect("the socket")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o660);
        assert!(daemon.path("vf0-eth.sock").exists() && daemon.path("vf1-eth.sock").exists());
        let info = std::fs::read_to_string(daemon.path("state/daemon.json")).expect("daemon.json");
        let info: serde_json::Value = serde_json::from_str(&info).expect("JSON");
        assert_eq!(info["pid"], daemon.child.id());
        assert_eq!(
            info["metrics"],
            format!("http://{}/metrics", daemon.metrics_address())
        );

        assert_eq!(daemon.end(signal), Some(0));
        for name in [
            "control.sock",
            "vf0-eth.sock",
            "vf1-eth.sock",
            "state/daemon.json",
        ] {
            assert!(!daemon.path(name).exists(), "{name} is still there");
        }
    }
}

#[test]
fn metrics_and_probes_are_served() {
    let daemon = Daemon::start(&["--adapters", "1"]);
    let address = daemon.metrics_address();
    let (status, page) = get(&address, "/metrics");
    assert_eq!(status, 200);
    assert!(page.contains("vnic_adapter_up{adapter=\"vf0\"} 0"), "{page}");
    daemon.said(&["adapter", "remove", "vf0"]);
    let (_, page) = get(&address, "/metrics");
    assert!(
        !page.contains("vf0") && page.contains("vnic_build_info"),
        "{page}"
    );
    assert_eq!(get(&address, "/readyz"), (200, "ok\n".to_owned()));
    assert_eq!(get(&address, "/livez"), (200, "ok\n".to_owned()));
    assert_eq!(get(&address, "/nothing").0, 404);
    if crate::common::installed("promtool", "metrics_and_probes_are_served") {
        let mut promtool = Command::new("promtool")
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .spawn()
            .expect("promtool");
        let mut stdin = promtool.stdin.take().expect("its input");
        stdin.write_all(page.as_bytes()).expect("written");
        drop(stdin);
        assert!(promtool.wait().expect("its answer").success());
    }
}

#[test]
fn adapters_are_listed_shown_added_and_removed() {
    let daemon = Daemon::start(&["--adapters", "1"]);
    let table = daemon.said(&["adapter", "list"]);
    let words: Vec<&str> = table
        .lines()
        .next()
        .expect("headings")
        .split_whitespace()
        .collect();
    assert_eq!(words[..4], ["NAME", "STATE", "RDMA", "MAC"]);
    assert!(table.contains("vf0   detached"), "{table}");

    let added = daemon.json(&[
        "adapter",
        "add",
        "blue",
        "--mac",
        "02:00:00:00:00:07",
        "--mtu",
        "9000",
        "--queue-pairs",
        "2",
        "--access-vlan",
        "12",
        "--no-anti-spoofing",
        "--allowed-address",
        "10.0.0.5",
        "--allowed-address",
        "fd00::/64",
    ]);
    assert_eq!(added["allowed_addresses"][1], "fd00::/64");
    assert_eq!(added["name"], "adapters/blue");
    assert_eq!(
        (&added["mtu"], &added["vlan"]["access"]["vlan"]),
        (&9000.into(), &12.into())
    );
    assert_eq!(added["anti_spoofing"], false);
    assert_eq!(added["lifetime"], "LIFETIME_STORED");
    let list = daemon.json(&["adapter", "list"]);
    assert_eq!(list["adapters"][0]["name"], "adapters/blue");
    assert_eq!(list["adapters"][1]["traffic"]["rx_frames"], 0);
    let shown = daemon.said(&["adapter", "show", "blue"]);
    for part in [
        "02:00:00:00:00:07",
        "access 12",
        "10.0.0.5 fd00::/64",
        "9000",
        "made at run time and stored",
    ] {
        assert!(shown.contains(part), "{part} in\n{shown}");
    }
    daemon.said(&["adapter", "remove", "blue"]);
    let gone = daemon.refused(&["adapter", "show", "blue"]);
    assert!(gone.contains("NOT_FOUND") && gone.contains("blue"), "{gone}");

    let wrong = daemon.refused(&["adapter", "add", "x", "--mtu", "20", "--queue-pairs", "17"]);
    assert!(
        wrong.contains("adapter.mtu: 20 is out of range: 68 to 9216 bytes"),
        "{wrong}"
    );
    assert!(
        wrong.contains("adapter.queue_pairs: 17 is out of range: 1 to 16"),
        "{wrong}"
    );
}

#[test]
fn the_other_commands_answer() {
    let daemon = Daemon::start(&["--adapters", "1"]);
    assert_eq!(daemon.said(&["port", "list"]), "no ports\n");
    assert!(daemon.said(&["switch", "fdb"]).contains("vf0"));
    assert!(daemon.said(&["switch", "show"]).contains("1 static, 0 learned"));
    assert!(daemon.said(&["counter", "list", "vf0"]).contains("rx_frames"));
    assert_eq!(
        daemon.said(&["counter", "show", "vf0", "--nonzero"]),
        "no counters\n"
    );
    assert!(
        daemon
            .said(&["server", "info"])
            .contains(&daemon.child.id().to_string())
    );
    assert_eq!(daemon.said(&["health"]), "serving\n");
    assert_eq!(daemon.json(&["health"])["status"], "SERVING");
    assert!(
        daemon
            .said(&["capture", "start", "--name", "x", "vf0"])
            .contains("running")
    );
    assert!(daemon.said(&["capture", "list"]).contains("x.pcapng"));
    assert!(daemon.said(&["capture", "stop", "x"]).contains("stopped"));

    let file = daemon.path("live.pcapng");
    let name = file.to_str().expect("a path");
    daemon.said(&["capture", "live", "-w", name, "--seconds", "1", "vf0"]);
    if crate::common::installed("tshark", "the_other_commands_answer") {
        let read = Command::new("tshark")
            .args(["-r", name])
            .output()
            .expect("tshark");
        assert!(read.status.success(), "{}", text(&read.stderr));
    }
}

#[test]
fn wrong_usage_and_an_unreachable_daemon_have_their_exit_codes() {
    let run = |program: &str, arguments: &[&str]| {
        Command::new(program)
            .args(arguments)
            .env_remove("VNIC_ENDPOINT")
            .output()
            .expect("it runs")
    };
    for arguments in [
        &["adapter", "dance"] as &[&str],
        &["--endpoint", "https://x:1", "adapter", "list"],
        &["--endpoint", "http://127.0.0.1:1", "adapter", "list"],
        &[
            "--endpoint",
            "https://x:1",
            "--tls-ca",
            "/nonexistent",
            "adapter",
            "list",
        ],
        &["--endpoint", "ftp://x", "health"],
        &["adapter", "add", "x", "--access-vlan", "1", "--trunk", "2"],
    ] {
        let output = run(VNICCTL, arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
    let output = run(VNICCTL, &["--endpoint", "unix:/nonexistent/x.sock", "health"]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(
        said.contains("cannot reach vnicd") && said.contains("No such file"),
        "{said}"
    );

    for arguments in [
        &["--frobnicate"] as &[&str],
        &[],
        &["--adapters", "1", "--data-cores", "60000", "--socket-dir", "/tmp"],
        &["--adapters", "1", "--control", "tcp:0.0.0.0:1"],
        &["--adapters", "1", "--control", "tcp:127.0.0.1:0"],
        &["--adapters", "1", "--config", "x"],
        &["--config", "/nonexistent.toml"],
    ] {
        let output = run(VNICD, arguments);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{arguments:?}: {}",
            text(&output.stderr)
        );
        assert!(!output.stderr.is_empty());
    }
}

#[test]
fn a_second_daemon_is_told_the_pid_of_the_first() {
    let daemon = Daemon::start(&["--adapters", "0"]);
    let output = Command::new(VNICD)
        .args(["--adapters", "0", "--metrics", "off", "--socket-dir"])
        .arg(daemon.dir.path())
        .output()
        .expect("vnicd");
    assert_eq!(output.status.code(), Some(3));
    let said = text(&output.stderr);
    assert!(said.contains(&format!("pid {}", daemon.child.id())), "{said}");
    // The first one is not harmed.
    assert_eq!(daemon.said(&["health"]), "serving\n");
}

#[test]
fn a_killed_daemon_is_succeeded() {
    let mut daemon = Daemon::start(&["--adapters", "1"]);
    let before = daemon.json(&["adapter", "show", "vf0"])["macs"].clone();
    assert_eq!(daemon.end(Signal::KILL), None);
    assert!(daemon.path("control.sock").exists() && daemon.path("vf0-eth.sock").exists());
    let (child, ready) = spawn(daemon.dir.path(), &["--adapters", "1"]);
    (daemon.child, daemon.ready) = (child, ready);
    assert!(daemon.ready.contains("ready"));
    assert_eq!(daemon.json(&["adapter", "show", "vf0"])["macs"], before);
}

#[test]
fn configuration_files_are_checked_and_used() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("vnicd.toml");
    let check = || {
        Command::new(VNICD)
            .arg("--check-config")
            .arg(&file)
            .output()
            .expect("vnicd")
    };
    std::fs::write(&file, "[nic]\nidle_spin_us = \"x\"\n[[adapter]]\nmtu = 1\n").expect("written");
    let output = check();
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 3, "{said}");
    assert!(
        lines[0].starts_with(&format!("{}:2:16: nic.idle_spin_us: ", file.display())),
        "{said}"
    );

    std::fs::write(&file, "[[adapter]]\nname = \"blue\"\nmtu = 9000\n").expect("written");
    // The socket directory may not be known here: the command line can say it.
    let output = Command::new(VNICD)
        .args(["--socket-dir", "/tmp", "--check-config"])
        .arg(&file)
        .output()
        .expect("vnicd");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("valid: 1 adapter, 0 ports"));

    let daemon = Daemon::start(&["--config", file.to_str().expect("a path")]);
    let blue = daemon.json(&["adapter", "show", "blue"]);
    assert_eq!(
        (&blue["mtu"], &blue["lifetime"]),
        (&9000.into(), &"LIFETIME_CONFIGURED".into())
    );
    assert_eq!(
        daemon.json(&["server", "info"])["config_file"],
        file.display().to_string()
    );
}

#[test]
fn logs_are_json_on_request() {
    let mut daemon = Daemon::start(&["--adapters", "1", "--log-format", "json"]);
    let mut log = daemon.child.stderr.take().expect("its log");
    assert_eq!(daemon.end(Signal::TERM), Some(0));
    let mut lines = String::new();
    log.read_to_string(&mut lines).expect("the log");
    let parsed: Vec<serde_json::Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).expect(line))
        .collect();
    assert!(
        parsed.iter().any(|l| l["owner"] == "vf0"
            && l["message"] == "adapter added"
            && l["kind"] == "adapter_added"
            && l["id"] == 0x1100),
        "{lines}"
    );
}

#[test]
fn options_of_every_command_stand_behind_its_own() {
    let help = Command::new(VNICCTL).args(["port", "add", "--help"]).output();
    let help = text(&help.expect("vnicctl").stdout);
    let (own, global) = help.split_once("Global options:").expect("a heading");
    assert!(own.contains("--queues") && !own.contains("--endpoint"), "{help}");
    for option in ["--endpoint", "--output", "--tls-ca", "--tls-cert", "--tls-key"] {
        assert!(global.contains(option), "{option}: {help}");
    }
}

#[test]
fn completions_and_man_pages_are_made() {
    let script = Command::new(VNICCTL)
        .args(["completions", "bash"])
        .output()
        .expect("vnicctl");
    assert!(script.status.success() && text(&script.stdout).contains("vnicctl"));
    let dir = tempfile::tempdir().expect("a directory");
    let made = Command::new(VNICCTL)
        .arg("man")
        .arg(dir.path())
        .status()
        .expect("vnicctl");
    assert!(made.success());
    for page in ["vnicd.8", "vnicctl.1", "vnicctl-adapter-add.1"] {
        let page = std::fs::read_to_string(dir.path().join(page)).expect(page);
        assert!(page.contains(".TH"));
    }
}

#[test]
fn systemd_hears_ready_alive_and_stopping() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("notify");
    let socket = std::os::unix::net::UnixDatagram::bind(&path).expect("a socket");
    let mut child = Command::new(VNICD)
        .args(["--adapters", "0", "--metrics", "off", "--socket-dir"])
        .arg(dir.path())
        .env("NOTIFY_SOCKET", &path)
        .env("WATCHDOG_USEC", "300000")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("vnicd");
    let next = || {
        let mut buffer = [0; 4096];
        let n = socket.recv(&mut buffer).expect("a message");
        text(&buffer[..n])
    };
    assert!(next().contains("READY=1"));
    assert!(next().contains("WATCHDOG=1"));
    assert!(next().contains("WATCHDOG=1"));
    kill_process(Pid::from_child(&child), Signal::TERM).expect("the signal");
    while !next().contains("STOPPING=1") {}
    assert!(child.wait().expect("the end").success());
}
