//! `docs/qos.md`: its commands, as they stand there, on a real daemon with guests in this process, and what they bring about.
//!
//! Only the directory and the address of the metrics are others than in the page. No clock is judged: frames are counted.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use vnic_backend::MacAddr;
use vnic_tests::driver::packets::{Flow, udp};
use vnic_tests::driver::{Guest, NetHdr, Options};
use vnic_tests::lab::guide::{expressions, parts, search_path};
use vnic_tests::lab::process::Process;
use vnic_tests::lab::{self, Lab, PATIENCE, output, wait_for};

/// Frames that each client sends on the lossless priority: several rings full.
const FRAMES: u64 = 2000;
/// Those of other priorities.
const LOSSY: u64 = 20;
/// Offset of the ToS byte.
const TOS: usize = 15;
const CLIENTS: [&str; 3] = ["vf1", "vf2", "vf3"];

/// The daemon of the page.
struct Page<'a> {
    lab: &'a Lab,
    daemon: Process,
    metrics: String,
}

impl<'a> Page<'a> {
    /// Starts it with the page's first command.
    fn open(lab: &'a Lab, command: &str) -> Result<Page<'a>> {
        let dir = lab.dir().display().to_string();
        let line = format!(
            "exec {} --metrics 127.0.0.1:0",
            command.trim().replace("/run/vnic", &dir)
        );
        let path = search_path(lab)?;
        let words = ["env", &path, "bash", "-c", &line].map(str::to_owned);
        let log = lab.log("vnicd.log");
        let mut daemon = Process::start("vnicd", &words, &log, &log)?;
        let end = Instant::now() + PATIENCE;
        let ready = loop {
            let line = daemon.line(end).context("waiting for `ready`")?;
            if line.contains("ready") {
                break line;
            }
        };
        let address = ready
            .split_whitespace()
            .find_map(|w| w.strip_prefix("http://")?.split_once('/'));
        let metrics = address.with_context(|| format!("no metrics in {ready:?}"))?.0;
        Ok(Page {
            lab,
            daemon,
            metrics: metrics.to_owned(),
        })
    }

    /// Runs commands of the page; answers what they print.
    fn run(&self, commands: &str) -> Result<String> {
        let commands = commands
            .replace("/run/vnic", &self.lab.dir().display().to_string())
            .replace("127.0.0.1:9400", &self.metrics);
        let path = search_path(self.lab)?;
        let mut bash = Command::new("env");
        bash.args([path.as_str(), "bash", "-euo", "pipefail", "-c", &commands])
            .env(
                "VNIC_ENDPOINT",
                format!("unix:{}/control.sock", self.lab.dir().display()),
            );
        output(&mut bash).with_context(|| commands)
    }

    fn json(&self, command: &str) -> Result<Value> {
        Ok(serde_json::from_str(
            &self.run(&format!("vnicctl -o json {command}"))?,
        )?)
    }

    fn metrics(&self) -> Result<String> {
        self.run("curl -s http://127.0.0.1:9400/metrics")
    }

    /// A value of the page of metrics; 0 when it has no such line.
    fn metric(&self, name: &str) -> Result<u64> {
        let page = self.metrics()?;
        let value = page.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(' '));
        value.unwrap_or("0").parse().with_context(|| name.to_owned())
    }

    fn priority(&self, adapter: &str, counter: &str, priority: u8) -> Result<u64> {
        self.metric(&format!(
            "vnic_adapter_priority_{counter}_total{{adapter=\"{adapter}\",priority=\"{priority}\"}}"
        ))
    }

    fn mac(&self, adapter: &str) -> Result<MacAddr> {
        let shown = self.json(&format!("adapter show {adapter}"))?;
        let mac = shown["spec"]["macs"][0].as_str().or(shown["macs"][0].as_str());
        let mac = mac.with_context(|| format!("no address in {shown}"))?;
        mac.parse().map_err(|e| anyhow::anyhow!("{mac}: {e}"))
    }
}

/// A UDP packet with this DSCP.
fn packet(to: MacAddr, from: MacAddr, dscp: u8) -> Vec<u8> {
    let flow = Flow {
        to,
        from,
        v6: false,
        vlan: None,
        port: 7000,
    };
    let mut frame = udp(&flow, &[0x5a; 1000]);
    frame[TOS] = dscp << 2;
    frame
}

struct Guests {
    server: Guest,
    clients: Vec<Guest>,
    server_mac: MacAddr,
    macs: Vec<MacAddr>,
}

impl Guests {
    fn attach(page: &Page<'_>) -> Result<Guests> {
        let attach =
            |name: &str| Guest::attach(page.lab.path(&format!("{name}-eth.sock")), Options::default());
        let guests = Guests {
            server: attach("vf0")?,
            clients: CLIENTS.iter().map(|c| attach(c)).collect::<Result<_>>()?,
            server_mac: page.mac("vf0")?,
            macs: CLIENTS.iter().map(|c| page.mac(c)).collect::<Result<_>>()?,
        };
        wait_for("four guests", PATIENCE, || {
            let up = page.metric("vnic_adapters{state=\"up\"}")?;
            ensure!(up == 4, "{up} are up");
            Ok(())
        })?;
        Ok(guests)
    }

    /// Each client sends with each priority but 3.
    fn lossy(&mut self) {
        for (client, from) in self.clients.iter_mut().zip(&self.macs) {
            for dscp in [0, 8, 16, 32, 40, 48, 56] {
                for _ in 0..LOSSY {
                    client.send_wait(0, &packet(self.server_mac, *from, dscp), NetHdr::default());
                    while self.server.try_recv(0).is_some() {}
                }
            }
        }
    }

    /// All clients send on priority 3 to a server that takes nothing until its senders were told to wait.
    fn incast(&mut self, page: &Page<'_>) -> Result<()> {
        let mut left = [FRAMES; CLIENTS.len()];
        let frames: Vec<Vec<u8>> = self
            .macs
            .iter()
            .map(|from| packet(self.server_mac, *from, 26))
            .collect();
        let mut offer = |clients: &mut Vec<Guest>| {
            for ((client, left), frame) in clients.iter_mut().zip(&mut left).zip(&frames) {
                while *left > 0 && client.send(0, frame, NetHdr::default()) {
                    *left -= 1;
                }
            }
            left.iter().sum::<u64>()
        };
        wait_for("the server's pause", PATIENCE, || {
            offer(&mut self.clients);
            let told = page.priority("vf0", "tx_pause", 3)?;
            ensure!(told > 0, "nobody was told to wait");
            Ok(())
        })?;
        let mut got = 0;
        wait_for("all frames", PATIENCE, || {
            loop {
                let waiting = offer(&mut self.clients);
                let before = got;
                // Of the lossy ones before, some may still come.
                while let Some((_, _, frame)) = self.server.try_recv(0) {
                    got += u64::from(frame[TOS] >> 2 == 26);
                }
                if got == before && waiting == 0 {
                    break;
                }
            }
            ensure!(got >= FRAMES * CLIENTS.len() as u64, "{got} have come");
            Ok(())
        })?;
        ensure!(got == FRAMES * CLIENTS.len() as u64, "{got} have come");
        Ok(())
    }
}

/// Names and labels of lines of metrics.
fn series(text: &str) -> BTreeSet<&str> {
    text.lines().filter_map(|l| Some(l.rsplit_once(' ')?.0)).collect()
}

#[test]
fn the_commands_of_the_page_do_what_it_says() {
    lab::case("qos-guide", |lab| {
        let parts = parts("qos.md")?;
        let mut steps = parts
            .iter()
            .filter(|p| ["sh", "text"].contains(&p.kind.as_str()))
            .peekable();
        let first = steps.next().context("no commands")?;
        let mut page = Page::open(lab, &first.text)?;
        let mut guests = Guests::attach(&page)?;
        lab.step("the daemon runs, and four guests");
        let mut commands = 0;
        while let Some(step) = steps.next() {
            if step.text.contains("curl") {
                guests.lossy();
                guests.incast(&page)?;
                lab.step("traffic of all priorities");
            }
            let said = page.run(&step.text)?;
            commands += 1;
            let Some(shown) = steps.next_if(|p| p.kind == "text") else {
                continue;
            };
            if step.text.contains("curl") {
                ensure!(
                    series(&shown.text) == series(&said),
                    "the page shows other lines than\n{said}"
                );
            } else {
                ensure!(shown.text == said, "the page shows something else than\n{said}");
            }
        }
        ensure!(commands >= 6, "only {commands} commands");
        lab.step(&format!("{commands} commands of the page"));

        // What they brought about.
        for (priority, each) in [(0, LOSSY), (1, LOSSY), (3, FRAMES), (4, LOSSY), (7, LOSSY)] {
            for client in CLIENTS {
                let sent = page.priority(client, "tx_frames", priority)?;
                ensure!(sent == each, "{client} sent {sent} with priority {priority}");
            }
        }
        let received = page.priority("vf0", "rx_frames", 3)?;
        ensure!(received == 3 * FRAMES, "vf0 received {received} with priority 3");
        let held: u64 = CLIENTS
            .iter()
            .map(|c| page.priority(c, "rx_pause", 3))
            .sum::<Result<_>>()?;
        ensure!(held > 0, "nobody was held up");
        let others = page.priority("vf0", "tx_pause", 0)?;
        ensure!(others == 0, "a lossy priority was told to wait");
        // A lossy frame may find no buffer while the server stands still; a lossless one never overflows.
        for adapter in ["vf0", "vf1", "vf2", "vf3"] {
            let line =
                format!("vnic_adapter_drops_total{{adapter=\"{adapter}\",reason=\"lossless_overflow\"}}");
            ensure!(page.metric(&line)? == 0, "{line}");
        }
        lab.step("nothing of priority 3 is lost");
        let limited = page.json("qos show vf1")?.to_string();
        ensure!(limited.contains("5000000000"), "no limit in {limited}");
        expressions(lab, &page.metrics()?, &parts)?;
        lab.step("expressions for Prometheus");
        drop(guests);
        page.daemon.signal(rustix::process::Signal::TERM)?;
        ensure!(page.daemon.wait(PATIENCE)?.success(), "vnicd did not end well");
        Ok(())
    });
}
