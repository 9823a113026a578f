//! `docs/ports.md`: its commands, as they stand there, on a real daemon with two ports in a network namespace, and what they
//! print.
//!
//! Only the directory is another one than in the page. A guest in this process sends what a host with Soft-RoCE would: one
//! frame for each of 64 queue pairs. No clock is judged.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use etherparse::PacketBuilder;
use serde_json::Value;
use vnic_backend::MacAddr;
use vnic_tests::driver::{Guest, NetHdr, Options};
use vnic_tests::lab::guide::{expressions, parts, search_path};
use vnic_tests::lab::process::Process;
use vnic_tests::lab::{self, Lab, Namespace, PATIENCE, output, wait_for};

/// Queue pairs of the guest.
const QUEUE_PAIRS: u16 = 64;
/// The first UDP source port of RoCEv2.
const FIRST_PORT: u16 = 49152;

/// The daemon of the page, in a namespace with `eth0` and `eth1`, whose other ends are in another one.
struct Page<'a> {
    lab: &'a Lab,
    here: Namespace,
    daemon: Process,
    metrics: String,
}

impl<'a> Page<'a> {
    /// Starts it with the page's first command.
    fn open(lab: &'a Lab, here: Namespace, command: &str) -> Result<Page<'a>> {
        let dir = lab.dir().display().to_string();
        let line = format!(
            "exec {} --metrics 127.0.0.1:0",
            command.trim().replace("/run/vnic", &dir)
        );
        let path = search_path(lab)?;
        let mut words = here.prefix();
        words.extend(["env", &path, "bash", "-c", &line].map(str::to_owned));
        let log = lab.log("vnicd.log");
        let mut daemon = Process::start("vnicd", &words, &log, &log)?;
        let end = Instant::now() + PATIENCE;
        let ready = loop {
            let line = daemon.line(end).context("waiting for `ready`")?;
            if line.contains("ready") {
                break line;
            }
        };
        let metrics = ready.split_whitespace().find(|w| w.starts_with("http://"));
        Ok(Page {
            metrics: metrics.context("no metrics")?.trim_end_matches(',').to_owned(),
            lab,
            here,
            daemon,
        })
    }

    /// Runs commands of the page; answers what they print.
    fn run(&self, commands: &str) -> Result<String> {
        let path = search_path(self.lab)?;
        let mut bash = self.here.command("env");
        bash.args([path.as_str(), "bash", "-euo", "pipefail", "-c", commands])
            .env(
                "VNIC_ENDPOINT",
                format!("unix:{}/control.sock", self.lab.dir().display()),
            );
        output(&mut bash).with_context(|| commands.to_owned())
    }

    fn json(&self, command: &str) -> Result<Value> {
        Ok(serde_json::from_str(
            &self.run(&format!("vnicctl -o json {command}"))?,
        )?)
    }
}

/// A RoCEv2 packet for this queue pair.
fn packet(from: MacAddr, source_port: u16, qp: u32) -> Result<Vec<u8>> {
    let to = [0x02, 0, 0x5e, 0, 0, 0x99];
    // BTH: RC SEND only, default partition, destination queue pair, PSN; then payload and ICRC.
    let mut bytes = vec![4, 0, 0xff, 0xff];
    bytes.extend(qp.to_be_bytes());
    bytes.resize(512, 0);
    let mut frame = Vec::new();
    PacketBuilder::ethernet2(from.0, to)
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        .udp(source_port, 4791)
        .write(&mut frame, &bytes)?;
    Ok(frame)
}

/// One frame of each queue pair, and what the view says of them.
fn traffic(page: &Page<'_>, guest: &mut Guest, mac: MacAddr, what: &str) -> Result<()> {
    // Settings begin the view anew; this makes it empty.
    page.run("vnicctl team set Team0 --view-flows 1024; vnicctl team set Team0 --view-flows 4096")?;
    let own_ports = match what {
        "spread" => true,
        "pinned" => false,
        other => anyhow::bail!("the guest does not know how to do {other:?}"),
    };
    for qp in 0..QUEUE_PAIRS {
        let port = FIRST_PORT + if own_ports { qp } else { 0 };
        let frame = packet(mac, port, u32::from(qp) + 0x11)?;
        guest.send_wait(0, &frame, NetHdr::default());
    }
    let view = wait_for("the flows", PATIENCE, || {
        let view = page.json("team view Team0")?;
        let flows = view["flows"].as_array().map_or(0, Vec::len);
        ensure!(flows == usize::from(QUEUE_PAIRS), "{flows} flows");
        Ok(view)
    })?;
    let usable = view["members"]
        .as_array()
        .context("members")?
        .iter()
        .filter(|m| m["usable"] == true)
        .count();
    let largest = view["by_queue_pairs"]["largest"].as_f64().context("a share")?;
    if own_ports && usable > 1 {
        ensure!(largest <= 0.6, "one port has {largest}: {view}");
    } else {
        ensure!(largest == 1.0, "one port has {largest}: {view}");
    }
    Ok(())
}

#[test]
fn the_commands_of_the_page_do_what_it_says() {
    lab::case("ports-guide", |lab| {
        let (here, there) = match (Namespace::new()?, Namespace::new()?) {
            (Ok(here), Ok(there)) => (here, there),
            (Err(why), _) | (_, Err(why)) => {
                lab::skip("ports-guide", &why);
                return Ok(());
            }
        };
        here.veth("eth0", &there, "far0", 1500)?;
        here.veth("eth1", &there, "far1", 1500)?;
        let parts = parts("ports.md")?;
        let mut steps = parts
            .iter()
            .filter(|p| ["sh", "text", "guest"].contains(&p.kind.as_str()))
            .peekable();
        let first = steps.next().context("no commands")?;
        let mut page = Page::open(lab, here, &first.text)?;
        let mut guest = Guest::attach(lab.path("vf0-eth.sock"), Options::default())?;
        let shown = page.json("adapter show vf0")?;
        let mac = shown["macs"][0].as_str().context("an address")?;
        let mac: MacAddr = mac.parse().map_err(|e| anyhow::anyhow!("{mac}: {e}"))?;
        lab.step("the daemon runs, with two ports, and a guest");
        let (mut commands, mut compared) = (0, 0);
        let mut others = String::new();
        while let Some(step) = steps.next() {
            if step.kind == "guest" {
                traffic(&page, &mut guest, mac, &step.text)?;
                continue;
            }
            let said = page.run(&step.text)?;
            commands += 1;
            let Some(shown) = steps.next_if(|p| p.kind == "text") else {
                continue;
            };
            compared += 1;
            if shown.text != said {
                others += &format!("$ {}{said}", step.text);
            }
        }
        ensure!(others.is_empty(), "the page shows something else than\n{others}");
        ensure!(
            commands >= 22 && compared >= 11,
            "{commands} commands, {compared} compared"
        );
        lab.step(&format!("{commands} commands of the page, {compared} compared"));
        let metrics = page.run(&format!("curl -s {}", page.metrics))?;
        expressions(lab, &metrics, &parts)?;
        lab.step("expressions for Prometheus");
        drop(guest);
        page.daemon.signal(rustix::process::Signal::TERM)?;
        ensure!(page.daemon.wait(PATIENCE)?.success(), "vnicd did not end well");
        Ok(())
    });
}
