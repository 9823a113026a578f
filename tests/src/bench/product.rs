//! The product under test: a NIC in this process, or the real daemon.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use vnic_backend::fault::Action;
use vnic_backend::{
    AdapterSpec, AttachState, BondSpec, CongestionSpec, FaultSpec, GidKind, GidSetting, MacAddr, Nic,
    NicConfig, NicError, PortKind, PortSpec, SocketRole, SwitchConfig, VirtualClock, VlanMode,
};
use vnic_engine::settings::parameter;

use super::machine::CpuTime;
use super::testpmd::guest_mac;
use crate::lab::output;

/// How the NIC is made.
#[derive(Debug, Clone)]
pub struct Setup<'a> {
    /// Sockets and files go here.
    pub dir: &'a Path,
    /// CPU of the one data core.
    pub cpu: usize,
    /// Adapters `vf0`, …
    pub adapters: usize,
    /// Queue pairs of each.
    pub queue_pairs: u16,
    /// Whether adapters have a control queue of their own.
    pub control_queue: bool,
    /// Accept only the guest's own address.
    pub anti_spoofing: bool,
    /// MTU of the adapters.
    pub mtu: u16,
    /// The daemon's program; `None`: in this process.
    pub vnicd: Option<&'a Path>,
    /// The guest behind `vf0` has the address [`guest_mac`] of this number, the others follow.
    pub first_guest: usize,
    /// Ports `p0`, …, with the MTU of the adapters, over devices of the network namespace of who starts it. Several are a
    /// team.
    pub uplinks: &'a [Uplink],
}

/// An uplink port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uplink {
    /// Kind of port, as the configuration names it.
    pub kind: &'static str,
    /// Its device; empty: a mesh has none.
    pub ifname: String,
    /// Keys of configuration of a mesh.
    pub mesh: String,
}

/// The daemon's default of `idle_spin_us`.
pub const IDLE_SPIN: Duration = Duration::from_micros(50);

/// A running NIC.
pub struct Product {
    dir: PathBuf,
    body: Body,
}

enum Body {
    InProcess(Nic),
    Daemon {
        child: Child,
        metrics: String,
        vnicctl: PathBuf,
    },
}

/// A counter's value: its name, its adapter, what else tells it apart (a reason or a queue), the value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    /// Name as in the table of counters.
    pub name: String,
    /// The adapter.
    pub adapter: String,
    /// Drop reason or queue number.
    pub detail: String,
    /// The value.
    pub value: u64,
}

/// All counters at one time.
#[derive(Debug, Clone, Default)]
pub struct Counters(pub Vec<Value>);

impl Counters {
    /// A counter, summed over adapters and queues.
    pub fn total(&self, name: &str) -> u64 {
        self.0.iter().filter(|v| v.name == name).map(|v| v.value).sum()
    }

    /// A counter of one adapter, summed over its queues.
    pub fn of(&self, adapter: &str, name: &str) -> u64 {
        self.0
            .iter()
            .filter(|v| v.name == name && v.adapter == adapter)
            .map(|v| v.value)
            .sum()
    }

    /// Drops for one reason, summed over adapters.
    pub fn drops(&self, reason: &str) -> u64 {
        self.0
            .iter()
            .filter(|v| v.name == "drops" && v.detail == reason)
            .map(|v| v.value)
            .sum()
    }
}

impl Product {
    /// Starts it; returns when the sockets listen.
    pub fn start(setup: &Setup<'_>) -> Result<Product> {
        Product::start_spinning(setup, IDLE_SPIN)
    }

    /// Starts it with another time for which its data core polls in vain before it sleeps.
    pub fn start_spinning(setup: &Setup<'_>, idle_spin: Duration) -> Result<Product> {
        let dir = setup.dir.to_path_buf();
        let body = match setup.vnicd {
            None => Body::InProcess(in_process(setup, idle_spin, Nic::start)?),
            Some(program) => daemon(program, setup.dir, &configuration(setup, idle_spin))?,
        };
        Ok(Product { dir, body })
    }

    /// Starts a daemon with a configuration of the caller's. Its sockets are in the directory.
    pub fn configured(program: &Path, dir: &Path, configuration: &str) -> Result<Product> {
        let body = daemon(program, dir, configuration)?;
        let dir = dir.to_path_buf();
        Ok(Product { dir, body })
    }

    /// Starts it in this process, with a clock that passes by the rounds of its data core.
    pub fn start_virtual(setup: &Setup<'_>, clock: Arc<VirtualClock>) -> Result<Product> {
        let nic = in_process(setup, IDLE_SPIN, |config| Nic::start_virtual(config, clock))?;
        Ok(Product {
            dir: setup.dir.to_path_buf(),
            body: Body::InProcess(nic),
        })
    }

    /// The socket of `vf<index>`.
    pub fn socket(&self, index: usize) -> PathBuf {
        socket(&self.dir, index)
    }

    /// The RDMA socket of `vf<index>`.
    pub fn rdma_socket(&self, index: usize) -> PathBuf {
        rdma_socket(&self.dir, index)
    }

    /// Gives `vf0` the GID of an IPv4 address, at a place of its table that is free.
    pub fn set_gid(&self, index: u16, address: Ipv4Addr) -> Result<()> {
        match &self.body {
            Body::InProcess(nic) => {
                let gid = GidSetting {
                    gid: address.to_ipv6_mapped().octets(),
                    kind: GidKind::RoceV2,
                    vlan: None,
                };
                nic.set_gid("vf0", Some(index), Some(gid))?;
            }
            Body::Daemon { vnicctl, .. } => {
                let (index, address) = (index.to_string(), address.to_string());
                self.control(
                    vnicctl,
                    &["gid", "set", "vf0", "--index", &index, "--gid", &address],
                )?;
            }
        }
        Ok(())
    }

    /// What `vf0` loses is sent again one by one, by so many ways; `None`: by going back.
    pub fn repeat_selectively(&self, ways: Option<u32>) -> Result<()> {
        let values = [
            ("selective_repeat_forced_en", u32::from(ways.is_some())),
            ("roce_multipath_ways", ways.unwrap_or(1)),
        ];
        match &self.body {
            Body::InProcess(nic) => {
                let mut spec = CongestionSpec::default();
                for (name, value) in values {
                    let known = parameter(name).with_context(|| format!("there is no {name}"))?;
                    spec.own.put(known, Some(value));
                }
                nic.set_congestion("vf0", spec)?;
            }
            Body::Daemon { vnicctl, .. } => {
                let values = values.map(|(name, value)| format!("{name}={value}"));
                self.control(vnicctl, &["cc", "set", "vf0", &values[0], &values[1]])?;
            }
        }
        Ok(())
    }

    /// Of a million frames that come for `vf0` by `p0` so many are lost, from now on.
    pub fn lose(&self, millionths: u32) -> Result<()> {
        const RULE: &str = "lossy";
        match &self.body {
            Body::InProcess(nic) => {
                if nic.fault(RULE).is_ok() {
                    nic.remove_fault(RULE)?;
                }
                nic.add_fault(FaultSpec {
                    from: Some("p0".into()),
                    to: Some("vf0".into()),
                    probability: millionths,
                    ..FaultSpec::new(RULE, Action::Drop)
                })?;
            }
            Body::Daemon { vnicctl, .. } => {
                self.control(vnicctl, &["fault", "remove", "--all"])?;
                let probability = format!("{}%", f64::from(millionths) * 1e-4);
                let rule = ["fault", "add", RULE, "--from", "p0", "--to", "vf0", "--drop"];
                self.control(vnicctl, &[&rule[..], &["--probability", &probability]].concat())?;
            }
        }
        Ok(())
    }

    /// Runs `vnicctl` on the daemon.
    fn control(&self, vnicctl: &Path, words: &[&str]) -> Result<()> {
        let endpoint = format!("unix:{}", self.dir.join("control.sock").display());
        output(Command::new(vnicctl).args(["--endpoint", &endpoint]).args(words))?;
        Ok(())
    }

    /// Reads all counters.
    pub fn counters(&self) -> Result<Counters> {
        match &self.body {
            Body::InProcess(nic) => Ok(Counters(
                nic.counters()
                    .into_iter()
                    // Priorities count the same frames once more.
                    .filter(|s| s.priority.is_none())
                    .map(|s| Value {
                        name: s.def.name.into(),
                        adapter: s.owner,
                        detail: s
                            .reason
                            .map_or_else(|| s.queue.unwrap_or(0).to_string(), Into::into),
                        value: s.value,
                    })
                    .collect(),
            )),
            Body::Daemon { metrics, .. } => Ok(parse_metrics(&scrape(metrics)?)),
        }
    }

    /// Waits until the guests of the first `n` adapters run their drivers.
    pub fn wait_up(&self, n: usize, at_most: Duration) -> Result<()> {
        let deadline = Instant::now() + at_most;
        while self.up()? < n {
            if Instant::now() > deadline {
                bail!("only {} of {n} adapters came up within {at_most:?}", self.up()?);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Adapters whose guest runs its driver.
    pub fn up(&self) -> Result<usize> {
        match &self.body {
            Body::InProcess(nic) => Ok(nic
                .adapters()
                .iter()
                .filter(|a| a.state == AttachState::Up)
                .count()),
            Body::Daemon { metrics, .. } => {
                let page = scrape(metrics)?;
                let ups = page.lines().filter(|l| l.starts_with("vnic_adapter_up{"));
                Ok(ups.filter(|l| l.ends_with(" 1")).count())
            }
        }
    }

    /// Waits until the links of a daemon's ports are up.
    pub fn wait_ports(&self, at_most: Duration) -> Result<()> {
        let deadline = Instant::now() + at_most;
        while let Body::Daemon { metrics, .. } = &self.body
            && scrape(metrics)?
                .lines()
                .any(|l| l.starts_with("vnic_port_up{") && l.ends_with(" 0"))
        {
            if Instant::now() > deadline {
                bail!("a port is not up within {at_most:?}");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// CPU time of the data core.
    pub fn cpu_time(&self) -> CpuTime {
        CpuTime::of(self.pid(), "vnic-core")
    }

    /// The process it runs in.
    pub fn pid(&self) -> u32 {
        match &self.body {
            Body::InProcess(_) => std::process::id(),
            Body::Daemon { child, .. } => child.id(),
        }
    }

    /// Where the daemon's metrics are.
    pub fn metrics(&self) -> Option<&str> {
        match &self.body {
            Body::InProcess(_) => None,
            Body::Daemon { metrics, .. } => Some(metrics),
        }
    }

    /// The NIC, when it is in this process.
    pub fn nic(&self) -> Option<&Nic> {
        match &self.body {
            Body::InProcess(nic) => Some(nic),
            Body::Daemon { .. } => None,
        }
    }

    /// How the daemon ended, if it has.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        match &mut self.body {
            Body::InProcess(_) => Ok(None),
            Body::Daemon { child, .. } => Ok(child.try_wait()?),
        }
    }

    /// Kills the daemon as a crash would.
    pub fn kill(&mut self) -> Result<()> {
        match &mut self.body {
            Body::InProcess(_) => bail!("only a daemon of its own can be killed"),
            Body::Daemon { child, .. } => {
                child.kill()?;
                child.wait()?;
                Ok(())
            }
        }
    }
}

impl Drop for Product {
    fn drop(&mut self) {
        match &mut self.body {
            Body::InProcess(nic) => nic.shutdown(),
            Body::Daemon { child, .. } => {
                if let Some(pid) = rustix::process::Pid::from_raw(child.id().cast_signed()) {
                    let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
                }
                let deadline = Instant::now() + Duration::from_secs(5);
                while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
                    std::thread::sleep(Duration::from_millis(5));
                }
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

fn socket(dir: &Path, index: usize) -> PathBuf {
    dir.join(format!("vf{index}-eth.sock"))
}

fn rdma_socket(dir: &Path, index: usize) -> PathBuf {
    dir.join(format!("vf{index}-rdma.sock"))
}

fn in_process(
    setup: &Setup<'_>,
    idle_spin: Duration,
    start: impl FnOnce(NicConfig) -> Result<Nic, NicError>,
) -> Result<Nic> {
    let nic = start(NicConfig {
        data_cores: vec![setup.cpu],
        idle_spin,
        // (valgrind has no seccomp.)
        confine: false,
        switch: SwitchConfig::default(),
    })?;
    for i in 0..setup.adapters {
        let mac = guest_mac(setup.first_guest + i)
            .parse::<MacAddr>()
            .map_err(|e| anyhow!("{e}"))?;
        nic.add_adapter(AdapterSpec {
            name: format!("vf{i}"),
            macs: vec![mac],
            mtu: setup.mtu,
            queue_pairs: setup.queue_pairs,
            vlan: VlanMode::default(),
            anti_spoofing: setup.anti_spoofing,
            control_queue: setup.control_queue,
            rdma_flows: true,
            pkeys: Default::default(),
            data_core: None,
            eth_socket: socket(setup.dir, i),
            rdma_socket: Some(rdma_socket(setup.dir, i)),
            socket_role: SocketRole::Listen,
            allowed_addresses: Vec::new(),
            socket_access: Default::default(),
            rdma_memory_mib: vnic_backend::RDMA_MEMORY_DEFAULT,
            wake: None,
            wake_patterns: Vec::new(),
            moving: None,
            vmm: Default::default(),
        })?;
    }
    for (i, uplink) in setup.uplinks.iter().enumerate() {
        nic.add_port(PortSpec {
            mtu: setup.mtu,
            ..PortSpec::new(
                format!("p{i}"),
                PortKind::new(uplink.kind, uplink.ifname.clone()).context("no such kind of port")?,
            )
        })?;
    }
    if setup.uplinks.len() > 1 {
        nic.set_bond(BondSpec::new(
            "team0",
            (0..setup.uplinks.len()).map(|i| format!("p{i}")).collect(),
        ))?;
    }
    Ok(nic)
}

fn daemon(program: &Path, dir: &Path, configuration: &str) -> Result<Body> {
    let file = dir.join("vnicd.toml");
    fs::write(&file, configuration)?;
    let mut child = Command::new(program)
        .arg("--config")
        .arg(&file)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(fs::File::create(dir.join("vnicd.log"))?)
        .spawn()
        .with_context(|| format!("starting {}", program.display()))?;
    let mut ready = String::new();
    if let Some(out) = child.stdout.take() {
        BufReader::new(out).read_line(&mut ready)?;
    }
    let metrics = ready
        .split_whitespace()
        .find_map(|w| w.strip_prefix("http://")?.split_once('/'));
    let Some((metrics, _)) = metrics else {
        let _ = child.kill();
        let _ = child.wait();
        let log = fs::read_to_string(dir.join("vnicd.log")).unwrap_or_default();
        bail!("{} did not become ready: {ready}{log}", program.display());
    };
    Ok(Body::Daemon {
        child,
        metrics: metrics.to_owned(),
        vnicctl: program.with_file_name("vnicctl"),
    })
}

fn configuration(setup: &Setup<'_>, idle_spin: Duration) -> String {
    let dir = setup.dir.display();
    let mut text = format!(
        "[nic]\ndata_cores = [{}]\nidle_spin_us = {}\nsocket_dir = \"{dir}\"\nstate_dir = \"{dir}/state\"\n\n\
         [metrics]\nlisten = \"127.0.0.1:0\"\n",
        setup.cpu,
        idle_spin.as_micros()
    );
    for i in 0..setup.adapters {
        text += &format!(
            "\n[[adapter]]\nname = \"vf{i}\"\nmac = \"{}\"\nmtu = {}\nqueue_pairs = {}\n\
             anti_spoofing = {}\n",
            guest_mac(setup.first_guest + i),
            setup.mtu,
            setup.queue_pairs,
            setup.anti_spoofing
        );
    }
    for (i, Uplink { kind, ifname, mesh }) in setup.uplinks.iter().enumerate() {
        let keys = match ifname.is_empty() {
            true => mesh.clone(),
            false => format!("type = \"{kind}\"\nifname = \"{ifname}\"\n"),
        };
        text += &format!("\n[[port]]\nname = \"p{i}\"\nmtu = {}\n{keys}", setup.mtu);
    }
    if setup.uplinks.len() > 1 {
        let members: Vec<String> = (0..setup.uplinks.len()).map(|i| format!("p{i}")).collect();
        text += &format!("\n[[team]]\nname = \"Team0\"\ntype = \"aggregate\"\nmembers = {members:?}\n");
    }
    text
}

/// The page of metrics of the daemon that listens there.
pub fn scrape(metrics: &str) -> Result<String> {
    let page = get(metrics, "/metrics")?;
    if !page.starts_with("HTTP/1.1 200") {
        bail!(
            "the daemon's metrics: {}",
            page.lines().next().unwrap_or("nothing")
        );
    }
    Ok(page)
}

/// What the daemon that listens there answers for a path, with the head.
pub fn get(metrics: &str, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(metrics).context("connecting to the daemon's metrics")?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {metrics}\r\nConnection: close\r\n\r\n"
    )?;
    let mut page = String::new();
    stream
        .read_to_string(&mut page)
        .context("reading the daemon's metrics")?;
    Ok(page)
}

/// The adapters' counters of a page in Prometheus' text format.
fn parse_metrics(page: &str) -> Counters {
    let value = |line: &str| {
        let line = line.strip_prefix("vnic_")?;
        let line = line
            .strip_prefix("adapter_")
            .or_else(|| line.strip_prefix("rdma_"))?;
        let (name, rest) = line.split_once("_total{")?;
        let (labels, value) = rest.rsplit_once("} ")?;
        let label = |key: &str| {
            let at = labels.find(&format!("{key}=\""))? + key.len() + 2;
            labels[at..].split('"').next()
        };
        Some(Value {
            name: name.into(),
            adapter: label("adapter")?.into(),
            detail: label("reason").or_else(|| label("queue")).unwrap_or("").into(),
            value: value.trim().parse::<f64>().ok()? as u64,
        })
    };
    Counters(page.lines().filter_map(value).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_metrics_becomes_counters() {
        let page = "# HELP vnic_adapter_tx_frames_total x\n\
                    vnic_adapter_tx_frames_total{adapter=\"vf0\",queue=\"0\"} 12\n\
                    vnic_adapter_tx_frames_total{adapter=\"vf0\",queue=\"1\"} 3\n\
                    vnic_adapter_tx_frames_total{adapter=\"vf1\",queue=\"0\"} 5\n\
                    vnic_adapter_drops_total{adapter=\"vf1\",reason=\"no_destination\"} 7\n\
                    vnic_rdma_out_of_sequence_total{adapter=\"vf1\"} 4\n\
                    vnic_port_tx_frames_total{port=\"p0\"} 9\n";
        let c = parse_metrics(page);
        assert_eq!(c.total("tx_frames"), 20);
        assert_eq!(c.of("vf0", "tx_frames"), 15);
        assert_eq!(c.drops("no_destination"), 7);
        assert_eq!(c.of("vf1", "out_of_sequence"), 4);
        assert_eq!(c.total("rx_frames"), 0);
    }
}
