//! Programs that nobody here wrote, in virtual machines: ibverbs-utils, perftest and pyverbs with our function, between two
//! machines that both have it, and against the kernel's Soft-RoCE in either of them.
//!
//! Each machine has our function and Soft-RoCE on its network interface. RoCE packets go to the function while a program has it
//! open, otherwise to the kernel: so each machine can be either. `VNIC_VERBS_FULL` takes all cases of `tests/verbs/matrix`;
//! `VNIC_VERBS_REPORT` names a file for what happened, in JSON.

mod connect;

use std::net::{Ipv4Addr, Ipv6Addr};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use vnic_tests::lab::{self, Daemon, Guest, Lab, Pair, checkout, output, wait_for};

const CONFIG: &str = r#"
[[adapter]]
name = "vf0"
mtu = 9000

[[adapter]]
name = "vf1"
mtu = 9000
"#;

/// What a pair of programs in emulated machines may need.
const PATIENCE: Duration = Duration::from_secs(400);
/// The port of all these programs.
const PORT: &str = ":18515";

/// Between two machines with our function: each transport, each way to wait, data compared where the programs can.
const OURS: [&str; 26] = [
    "ibv_rc_pingpong -c",
    "ibv_rc_pingpong -c -e -s 100001 -n 100",
    "ibv_rc_pingpong -c -N -t",
    "ibv_rc_pingpong -c -j",
    "ibv_uc_pingpong -c",
    "ibv_ud_pingpong -c -e",
    "ibv_srq_pingpong -c -n 100",
    "ibv_xsrq_pingpong",
    "ib_send_bw -F -n 100 -s 65536",
    "ib_send_bw -F -n 100 -s 4096 -c UD -q 2",
    "ib_send_bw -F -n 100 -s 65536 --use-srq -q 4",
    "ib_send_bw -F -n 100 -s 30000 -c UC -b",
    "ib_send_lat -F -n 100 -s 64 -I 64",
    "ib_send_lat -F -n 100 -s 64 -e",
    "ib_write_bw -F -n 5 -a",
    "ib_write_bw -F -n 100 -s 65536 -q 64",
    "ib_write_bw -F -n 100 -s 65536 -b -q 2",
    "ib_write_bw -F -n 160 -s 4096 -l 16",
    "ib_write_lat -F -n 100 -s 8",
    "ib_write_lat -F -n 100 -s 8 -c UC",
    "ib_read_bw -F -n 100 -s 65536 -q 2",
    "ib_read_lat -F -n 100 -s 4096",
    "ib_atomic_bw -F -n 100",
    "ib_atomic_lat -F -n 100 -A CMP_AND_SWAP",
    "ib_send_bw -F -c UD -g -x 1 -n 100 -s 1024",
    "ib_write_bw -F -c DC -n 100 -s 65536",
];
/// With Soft-RoCE at the other end, in both roles.
const WITH_SOFT: [&str; 13] = [
    "ibv_rc_pingpong -c -n 100",
    "ibv_rc_pingpong -c -e -n 20 -s 100001",
    "ibv_uc_pingpong -c -n 100",
    "ibv_ud_pingpong -c -n 100",
    "ibv_srq_pingpong -c -n 20",
    "ib_send_bw -F -n 50 -s 65536",
    "ib_send_lat -F -n 50 -s 64",
    "ib_send_lat -F -n 50 -s 1024 -c UD",
    "ib_write_bw -F -n 5 -a",
    "ib_write_lat -F -n 50 -s 8",
    "ib_read_bw -F -n 50 -s 65536 -o 8",
    "ib_read_lat -F -n 50 -s 64 -o 8",
    "ib_atomic_lat -F -n 50 -o 8",
];
/// Modules of rdma-core's tests for Python that are run in a machine: memory is another thing there than in a process of the host.
const MODULES: [&str; 3] = ["test_mr", "test_qp", "test_cqex"];

#[test]
fn programs_for_verbs_in_machines() {
    lab::case("vm-verbs", |lab| {
        let daemon = Daemon::with_config(lab, CONFIG)?;
        let mut world = World::boot(lab, &daemon)?;
        world.devices()?;
        world.pass_through()?;
        world.all(&OURS, [Side::Ours, Side::Ours])?;
        world.all(&WITH_SOFT, [Side::Ours, Side::Soft])?;
        world.all(&WITH_SOFT, [Side::Soft, Side::Ours])?;
        connect::programs(&mut world)?;
        world.python()?;
        if std::env::var_os("VNIC_VERBS_FULL").is_some() {
            let list = cases_of_the_matrix()?;
            let list: Vec<&str> = list.iter().map(String::as_str).collect();
            world.all(&list, [Side::Ours, Side::Ours])?;
        }
        world.end()
    });
}

/// What a machine shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    /// Our function, by our library.
    Ours,
    /// rdma_rxe, by Debian's library alone.
    Soft,
}

impl Side {
    fn name(self) -> &'static str {
        match self {
            Side::Ours => "ours",
            Side::Soft => "rxe",
        }
    }

    fn device(self) -> &'static str {
        match self {
            Side::Ours => "vnic0",
            Side::Soft => "rxe0",
        }
    }

    /// How a program is started.
    fn command(self, command: &str) -> String {
        match self {
            // Of the dynamically connected transport perftest asks adapters whose number it knows.
            Side::Ours if command.contains(" -c DC") => {
                format!("env VNIC_VENDOR_PART_ID=4119 vnic-verbs run -- {command}")
            }
            Side::Ours => format!("vnic-verbs run -- {command}"),
            Side::Soft => command.to_owned(),
        }
    }
}

struct World<'a> {
    lab: &'a Lab,
    daemon: &'a Daemon<'a>,
    vms: Pair,
    report: Vec<Value>,
}

/// Names of cases of the matrix that two programs without further ado can do, and that are not to be refused.
fn cases_of_the_matrix() -> Result<Vec<String>> {
    let text = output(Command::new(checkout().join("tests/verbs/matrix")).args(["--list", "--full"]))?;
    let plain = |line: &&str| {
        line.starts_with("ib")
            && !line.contains(['|', '('])
            && !line.starts_with("ibv_dev")
            && !line.contains("--out_json")
    };
    Ok(text.lines().filter(plain).map(str::to_owned).collect())
}

impl<'a> World<'a> {
    fn boot(lab: &'a Lab, daemon: &'a Daemon<'a>) -> Result<World<'a>> {
        let vms = Pair::boot(lab, daemon, Guest::qemu, |n, spec| {
            spec.mtu = 9000;
            spec.rdma = Some(lab.path(&format!("vf{}-rdma.sock", n - 1)));
            spec.verbs = true;
            spec.rxe = true;
            // Soft-RoCE has no flow control: let bursts wait here rather than be lost.
            spec.device.push("rx_queue_size=1024".to_owned());
        })?;
        let mut world = World {
            lab,
            daemon,
            vms,
            report: Vec::new(),
        };
        // Addresses are learned from what the machines say about them.
        world.vms.one.ok("ping -c 2 -i 0.2 10.0.0.2")?;
        world.vms.two.ok("ping -c 2 -i 0.2 10.0.0.1")?;
        Ok(world)
    }

    fn guest(&mut self, n: usize) -> &mut Guest {
        if n == 0 {
            &mut self.vms.one
        } else {
            &mut self.vms.two
        }
    }

    fn address(n: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, 0, 0, n as u8 + 1)
    }

    /// The index of the machine's IPv4 address in the GID table of a side, RoCE v2.
    fn gid(&mut self, n: usize, side: Side) -> Result<u64> {
        let address = Self::address(n).to_ipv6_mapped();
        match side {
            Side::Ours => {
                let daemon = self.daemon;
                wait_for("a GID of the address", lab::PATIENCE, || {
                    let answer = daemon.ctl(&["gid", "list", &format!("vf{n}")])?;
                    let all = answer["gids"].as_array().context("gids")?;
                    let ours = all.iter().find(|gid| {
                        gid["version"] == "VERSION_ROCE_V2"
                            && gid["gid"].as_str().and_then(|g| g.parse::<Ipv6Addr>().ok()) == Some(address)
                    });
                    let ours = ours.with_context(|| format!("no {address} in {answer}"))?;
                    Ok(ours["index"].as_u64().unwrap_or(0))
                })
            }
            Side::Soft => {
                let text = self
                    .guest(n)
                    .ok("for i in 0 1 2 3 4; do cat /sys/class/infiniband/rxe0/ports/1/gids/$i; done")?;
                let at = text
                    .lines()
                    .position(|line| line.trim().parse::<Ipv6Addr>().ok() == Some(address));
                Ok(at.with_context(|| format!("no {address} in {text}"))? as u64)
            }
        }
    }

    /// Both devices are there, ours first; our launcher changes nothing about the other.
    fn devices(&mut self) -> Result<()> {
        let guest = &mut self.vms.one;
        let ours = guest.ok("vnic-verbs run -- ibv_devices")?;
        ensure!(
            ours.contains("vnic0") && ours.contains("rxe0") && ours.find("vnic0") < ours.find("rxe0"),
            "ibv_devices:\n{ours}"
        );
        let without = guest.ok("ibv_devices")?;
        ensure!(
            without.contains("rxe0") && !without.contains("vnic0"),
            "ibv_devices without our library:\n{without}"
        );
        let info = guest.ok("vnic-verbs run -- ibv_devinfo -v -d vnic0")?;
        for word in ["PORT_ACTIVE", "max_qp:", "RoCE v2", "::ffff:10.0.0.1", "4096 (5)"] {
            ensure!(info.contains(word), "ibv_devinfo has no {word}:\n{info}");
        }
        // What works in processes of the host only is not said to work here.
        ensure!(
            !info.contains("SUPPORT_ODP") && !info.contains("ODP_SUPPORT"),
            "pages on demand in a virtual machine:\n{info}"
        );
        let (_, refused) = guest.run("vnic-verbs run -- ibv_rc_pingpong -o -d vnic0")?;
        ensure!(
            refused.contains("ODP capable"),
            "ibv_rc_pingpong -o in a virtual machine: {refused}"
        );
        let soft = guest.ok("vnic-verbs run -- ibv_devinfo -v -d rxe0")?;
        let plain = guest.ok("ibv_devinfo -v -d rxe0")?;
        ensure!(soft == plain, "another rxe0 with our library:\n{soft}\n{plain}");
        self.lab.step(&format!("devices:\n{ours}"));
        Ok(())
    }

    /// A real device works as before under our library: everything goes to the real one.
    fn pass_through(&mut self) -> Result<()> {
        for words in ["ibv_rc_pingpong -c -e -n 50", "ib_write_bw -F -n 20 -s 65536"] {
            let server = self.words(1, Side::Soft, words)?;
            let client = self.words(0, Side::Soft, words)?;
            let server = Side::Ours.command(&server);
            let client = Side::Ours.command(&format!("{client} 10.0.0.2"));
            self.exchange(&server, &client)
                .with_context(|| format!("Soft-RoCE under our library: {words}"))?;
        }
        self.lab.step("Soft-RoCE works under our library");
        Ok(())
    }

    /// A program's words with device and GID.
    fn words(&mut self, n: usize, side: Side, words: &str) -> Result<String> {
        let device = side.device();
        let mut words = format!("{words} -d {device}");
        if words.starts_with("ibv_") && !words.contains(" -g ") {
            words.push_str(&format!(" -g {}", self.gid(n, side)?));
        }
        Ok(words)
    }

    /// All these, the server on machine two, the client on machine one. Every failure is told, then the case fails.
    fn all(&mut self, list: &[&str], [server, client]: [Side; 2]) -> Result<()> {
        let mut failed = Vec::new();
        for &words in list {
            let result = self.one(words, server, client);
            let name = format!("{words} (server {}, client {})", server.name(), client.name());
            let outcome = match &result {
                Ok(()) => "pass".to_owned(),
                Err(error) => format!("{error:#}"),
            };
            self.lab.step(&format!("{name}: {outcome}"));
            self.report.push(json!({ "case": name, "result": outcome }));
            if result.is_err() {
                failed.push(name);
            }
            for adapter in ["vf0", "vf1"] {
                let faults = self.daemon.counter(adapter, "ring_faults")?;
                ensure!(faults == 0, "{adapter} had {faults} ring faults at {words}");
            }
        }
        self.write_report()?;
        ensure!(failed.is_empty(), "failed: {failed:#?}");
        Ok(())
    }

    fn one(&mut self, words: &str, server: Side, client: Side) -> Result<()> {
        let first = self.words(1, server, words)?;
        let second = self.words(0, client, words)?;
        let second = format!("{second} {}", Self::address(1));
        let [_, output] = self.exchange(&server.command(&first), &client.command(&second))?;
        if words.starts_with("ib_") {
            let rows = output.lines().filter(|l| is_row(l)).count();
            let wanted = if !words.contains(" -a") {
                1
            } else if words.contains("UD") {
                12
            } else {
                23
            };
            ensure!(rows >= wanted, "{rows} rows of a table:\n{output}");
        }
        Ok(())
    }

    /// A server on machine two and its client on machine one: both end with 0. What they printed.
    fn exchange(&mut self, server: &str, client: &str) -> Result<[String; 2]> {
        begin(&mut self.vms.two, "server", server)?;
        self.listens(&format!("netstat -ltn | grep -q {PORT}"))?;
        begin(&mut self.vms.one, "client", client)?;
        let ends = [
            ended(&mut self.vms.two, "server"),
            ended(&mut self.vms.one, "client"),
        ];
        let [(a, server_text), (b, client_text)] = match ends {
            [Ok(server), Ok(client)] => [server, client],
            [server, client] => bail!("{server:?}, {client:?}"),
        };
        ensure!(
            a == 0
                && b == 0
                && !server_text.contains("invalid data")
                && !client_text.contains("invalid data"),
            "the server ended with {a}:\n{server_text}\nthe client ended with {b}:\n{client_text}"
        );
        Ok([server_text, client_text])
    }

    /// Waits until the server that was begun listens, as a command on its machine says, or has ended.
    fn listens(&mut self, command: &str) -> Result<()> {
        let two = &mut self.vms.two;
        wait_for("a listening server", PATIENCE, || {
            let (exit, _) = two.run(&format!("test -s /tmp/server.exit || {command}"))?;
            ensure!(exit == 0, "nobody listens");
            Ok(())
        })
    }

    /// rdma-core's own tests: what does not pass is in `pyverbs.expected`.
    fn python(&mut self) -> Result<()> {
        let expected = std::fs::read_to_string(checkout().join("tests/verbs/pyverbs.expected"))?;
        let gid = self.gid(0, Side::Ours)?;
        let guest = &mut self.vms.one;
        guest.ok("mkdir -p /tmp/py && cp -r /usr/share/doc/rdma-core/tests /tmp/py/ && cd /tmp/py/tests && rm -f test_mlx5* \
             test_efa* && gunzip *.gz")?;
        for module in MODULES {
            let run = format!(
                "cd /tmp/py && exec python3 tests/run_tests.py --dev vnic0 --gid {gid} -v tests.{module}"
            );
            begin(
                guest,
                "python",
                &format!("vnic-verbs run -- sh -c '{run}'").replace('\'', "\""),
            )?;
            let (_, text) = ended(guest, "python")?;
            let mut passed = 0;
            for line in text.lines() {
                // `test_x (tests.test_mr.MRTest.test_x)`, perhaps a line of its documentation, ` ... ok`.
                if line.ends_with("... ok") {
                    passed += 1;
                }
                let Some(rest) = line.strip_prefix("ERROR: ").or(line.strip_prefix("FAIL: ")) else {
                    continue;
                };
                let id = rest.split(['(', ')']).nth(1).unwrap_or(rest);
                ensure!(
                    expected
                        .lines()
                        .any(|l| l.starts_with(id) && l.contains("| fail")),
                    "{id} fails, and pyverbs.expected does not say so:\n{text}"
                );
            }
            ensure!(
                text.contains("\nRan ") && passed > 0,
                "{module} came to no end:\n{text}"
            );
            self.lab.step(&format!("{module}: {passed} tests pass"));
            self.report
                .push(json!({ "case": format!("pyverbs {module}"), "result": "pass", "passed": passed }));
        }
        self.write_report()
    }

    fn write_report(&self) -> Result<()> {
        if let Some(file) = std::env::var_os("VNIC_VERBS_REPORT") {
            std::fs::write(
                &file,
                serde_json::to_string_pretty(&json!({ "cases": self.report }))?,
            )?;
        }
        Ok(())
    }

    fn end(self) -> Result<()> {
        self.write_report()?;
        for adapter in ["vf0", "vf1"] {
            let faults = self.daemon.counter(adapter, "ring_faults")?;
            ensure!(faults == 0, "{adapter} had {faults} ring faults");
        }
        Ok(())
    }
}

/// A row of a table of perftest: numbers only.
fn is_row(line: &str) -> bool {
    let mut words = line.split_whitespace().peekable();
    words.peek().is_some() && line.split_whitespace().count() >= 4 && words.all(|w| w.parse::<f64>().is_ok())
}

/// Starts a command that goes on while the guest takes others; [`ended`] waits for it.
fn begin(guest: &mut Guest, name: &str, command: &str) -> Result<()> {
    guest.ok(&format!(
        "rm -f /tmp/{name}.*; (sh -c 'echo $$ >/tmp/{name}.pid; exec {command}' >/tmp/{name}.out 2>&1; echo $? \
         >/tmp/{name}.exit) &"
    ))?;
    Ok(())
}

/// Exit code and output of a command that was begun. What hangs is killed.
fn ended(guest: &mut Guest, name: &str) -> Result<(i32, String)> {
    let end = Instant::now() + PATIENCE;
    loop {
        let (_, text) = guest.run(&format!("cat /tmp/{name}.exit"))?;
        if let Ok(exit) = text.trim().parse() {
            return Ok((exit, guest.ok(&format!("cat /tmp/{name}.out"))?));
        }
        if Instant::now() >= end {
            guest.run(&format!("kill -KILL $(cat /tmp/{name}.pid)"))?;
            let output = guest.ok(&format!("cat /tmp/{name}.out"))?;
            bail!("{name} hangs in {}; it printed:\n{output}", guest.name());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}
