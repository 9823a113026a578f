//! RDMA functions in virtual machines: verbs between two machines under QEMU 11, between a machine and a process of
//! the host, and between a machine and the kernel's Soft-RoCE in another, with Ethernet traffic beside them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use vnic_tests::lab::rxe::{Connect, Kind, Mr, Post, Qp, Wc, status};
use vnic_tests::lab::tool::{self, Endpoint, Outcome};
use vnic_tests::lab::{
    self, Daemon, Guest, GuestSpec, Lab, PATIENCE, Pair, Ping, RxePeer, Tool, ping, wait_for,
};

use super::ethtool;

/// `vf0` and `vf1` have machines with both functions (that of `vf0` by its own control queue, that of `vf1` by QEMU's), `vf2` the machine with Soft-RoCE, `vf3` a process of the host.
const CONFIG: &str = r#"
[[adapter]]
name = "vf0"
mtu = 9000
queue_pairs = 2
control_queue = true

[[adapter]]
name = "vf1"
mtu = 9000

[[adapter]]
name = "vf2"
mtu = 9000

[[adapter]]
name = "vf3"
mtu = 9000
"#;

const ONE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const TWO: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const SOFT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 3);
/// What all tools get: a report to read.
const COMMON: &str = "--json";
/// The counter of packets that an RDMA function has sent.
const SENT: &str = "tx_vport_rdma_unicast_packets";
/// A run that somebody ends.
const ENDLESS: &str = "write_bw -n 1000000000 -s 65536";

#[test]
fn verbs_between_machines_processes_and_soft_roce() {
    lab::case("vm-rdma", |lab| {
        let daemon = Daemon::with_config(lab, CONFIG)?;
        let mut vms = boot(lab, &daemon)?;
        doctor(lab, &mut vms.one)?;
        addresses(lab, &daemon, &mut vms.one)?;
        ethtool::settings(lab, &daemon, &mut vms.one, "vf0", "10.0.0.2")?;
        beside_ethernet(lab, &daemon, &mut vms)?;
        without_hugepages(lab, &mut vms)?;
        with_a_process(lab, &daemon, &mut vms.one)?;
        with_soft_roce(lab, &daemon, &mut vms.one)?;
        killed_programs(lab, &daemon, &mut vms)?;
        reboot(lab, &daemon, &mut vms)?;
        killed_machine(lab, &daemon, vms)?;
        for adapter in ["vf0", "vf1", "vf2"] {
            let faults = daemon.counter(adapter, "ring_faults")?;
            ensure!(faults == 0, "{adapter} had {faults} ring faults");
        }
        Ok(())
    });
}

// ---- machines, tools and objects ----------------------------------------------------------------------------

/// What machine `n` of the two is made from.
fn shape(lab: &Lab, n: u8, spec: &mut GuestSpec) {
    spec.mtu = 9000;
    (spec.control_queue, spec.queue_pairs) = if n == 1 { (true, 2) } else { (false, 1) };
    spec.rdma = Some(lab.path(&format!("vf{}-rdma.sock", n - 1)));
    spec.reboots = true;
}

fn boot(lab: &Lab, daemon: &Daemon) -> Result<Pair> {
    Pair::boot(lab, daemon, Guest::qemu, |n, spec| shape(lab, n, spec))
}

/// Starts a command that goes on while the guest takes others; [`ended`] waits for it, [`signal`] reaches it.
fn begin(guest: &mut Guest, name: &str, command: &str) -> Result<()> {
    guest.ok(&format!(
        "rm -f /tmp/{name}.*; (sh -c 'echo $$ >/tmp/{name}.pid; exec {command}' >/tmp/{name}.out 2>&1; echo $? \
         >/tmp/{name}.exit) &"
    ))?;
    Ok(())
}

fn signal(guest: &mut Guest, name: &str, signal: &str) -> Result<()> {
    guest.ok(&format!("kill -{signal} $(cat /tmp/{name}.pid)"))?;
    Ok(())
}

/// The end of a command that was begun.
fn ended(guest: &mut Guest, name: &str) -> Result<Outcome> {
    let exit = wait_for(&format!("the end of {name}"), PATIENCE, || {
        let text = guest.ok(&format!("cat /tmp/{name}.exit"))?;
        text.trim()
            .parse()
            .with_context(|| format!("no exit code: {text:?}"))
    });
    let output = guest.ok(&format!("cat /tmp/{name}.out"))?;
    let exit = exit.with_context(|| format!("{}: it printed:\n{output}", guest.name()))?;
    Ok(Outcome { exit, output })
}

/// A tool begins as a server on machine two, and listens for TCP over the Ethernet functions.
fn serve(two: &mut Guest, command: &str) -> Result<()> {
    begin(two, "server", &format!("vnic-guest {command} {COMMON}"))?;
    wait_for("a listening server", PATIENCE, || {
        let (exit, _) = two.run("test -s /tmp/server.exit || netstat -ltn | grep -q :18515")?;
        ensure!(exit == 0, "nobody listens");
        Ok(())
    })
}

/// A tool on both machines; the client's report.
fn by_tcp(vms: &mut Pair, command: &str) -> Result<Value> {
    serve(&mut vms.two, command)?;
    begin(
        &mut vms.one,
        "client",
        &format!("vnic-guest {command} {COMMON} {TWO}"),
    )?;
    let client = ended(&mut vms.one, "client")?;
    let server = ended(&mut vms.two, "server").with_context(|| format!("{command}: {client:?}"))?;
    let server = server
        .report()
        .with_context(|| format!("{command}: the server, the client {client:?}"))?;
    let client = client
        .report()
        .with_context(|| format!("{command}: the client"))?;
    ensure!(
        server["ok"] == true && client["ok"] == true && client["verified"] == true,
        "{command}: the server reports {server}, the client {client}"
    );
    Ok(client)
}

/// Waits until an adapter's RDMA function is in a state, without objects if it is not up.
fn wait_function(daemon: &Daemon, adapter: &str, state: &str) -> Result<()> {
    wait_for(&format!("RDMA function of {adapter}: {state}"), PATIENCE, || {
        let rdma = daemon.adapter(adapter)?["rdma"].clone();
        ensure!(rdma["state"] == state, "it is {rdma}");
        if state != "STATE_UP" {
            // (The table has the adapter's own two GIDs at least.)
            let used = |r: &&Value| r["type"] != "gid" && r["used"].as_u64().unwrap_or(0) > 0;
            let left: Vec<&Value> = rdma["resources"]
                .as_array()
                .into_iter()
                .flatten()
                .filter(used)
                .collect();
            ensure!(left.is_empty(), "objects are left: {left:?}");
        }
        Ok(())
    })
}

/// The index of an address in an adapter's GID table, as RoCE v2.
fn gid_index(daemon: &Daemon, adapter: &str, address: IpAddr) -> Result<Option<u64>> {
    let answer = daemon.ctl(&["gid", "list", adapter])?;
    for gid in answer["gids"].as_array().into_iter().flatten() {
        let text = gid["gid"].as_str().with_context(|| format!("no gid in {gid}"))?;
        if gid["version"] == "VERSION_ROCE_V2" && text.parse::<Ipv6Addr>()? == mapped(address) {
            return Ok(Some(gid["index"].as_u64().unwrap_or(0)));
        }
    }
    Ok(None)
}

fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

// ---- one machine ----------------------------------------------------------------------------------------------

/// The doctor names what is missing, and is content when nothing is.
fn doctor(lab: &Lab, guest: &mut Guest) -> Result<()> {
    guest.ok("rmmod uio_pci_generic && mv /lib/modules/*/kernel/drivers/uio /root/uio-modules && depmod")?;
    let (exit, output) = guest.run("vnic-guest doctor")?;
    ensure!(
        exit != 0 && output.contains("uio_pci_generic"),
        "without uio_pci_generic the doctor ended with {exit} and said:\n{output}"
    );
    guest.ok(
        "mv /root/uio-modules /lib/modules/$(uname -r)/kernel/drivers/uio && depmod && modprobe uio_pci_generic",
    )?;
    let output = guest.ok("vnic-guest doctor")?;
    lab.step(&format!(
        "the doctor misses uio_pci_generic, and then nothing:\n{output}"
    ));
    Ok(())
}

/// GIDs follow the addresses of the guest.
fn addresses(lab: &Lab, daemon: &Daemon, guest: &mut Guest) -> Result<()> {
    let six: Ipv6Addr = "fd00::1".parse()?;
    for address in [IpAddr::V4(ONE), IpAddr::V6(six)] {
        wait_for(&format!("a GID {address}"), PATIENCE, || {
            // Addresses are learned from what the guest says about them to others.
            guest.run(&format!(
                "ping -c 1 -W 1 {}",
                if address.is_ipv4() { "10.0.0.2" } else { "fd00::2" }
            ))?;
            gid_index(daemon, "vf0", address)?.context("it is not there")
        })?;
    }
    let more: IpAddr = "10.0.9.1".parse()?;
    ensure!(
        gid_index(daemon, "vf0", more)?.is_none(),
        "{more} is there already"
    );
    guest.ok(&format!("ip addr add {more}/24 dev eth0"))?;
    wait_for(&format!("a GID {more}"), PATIENCE, || {
        guest.run("ping -c 1 -W 1 10.0.9.2")?;
        gid_index(daemon, "vf0", more)?.context("it is not there")
    })?;
    let shown = guest.ok("vnic-guest show_gids")?;
    for address in ["10.0.0.1", "10.0.9.1", "fd00"] {
        ensure!(
            shown.contains(address),
            "show_gids in the guest lacks {address}:\n{shown}"
        );
    }
    guest.ok(&format!("ip addr del {more}/24 dev eth0"))?;
    lab.step(&format!("GIDs follow the guest's addresses:\n{shown}"));
    Ok(())
}

// ---- two machines ---------------------------------------------------------------------------------------------

/// RC, UC and UD with verified data, while Ethernet carries pings and TCP.
fn beside_ethernet(lab: &Lab, daemon: &Daemon, vms: &mut Pair) -> Result<()> {
    let before = daemon.counter("vf1", "tx_bytes")?;
    begin(&mut vms.one, "ping", &format!("ping -i 0.1 -w 3000 {TWO}"))?;
    begin(
        &mut vms.two,
        "iperf",
        &format!("iperf3 -c {ONE} -t 3000 -b 5M -i 0"),
    )?;
    for command in [
        "rc_pingpong -n 100 -s 4097",
        "ud_pingpong -n 100 -s 1024",
        "srq_pingpong -n 100 -s 3000",
        "write_bw -n 100 -s 65536",
        "write_bw -c UC -n 100 -s 20000",
        "write_lat -n 100 -s 64",
        "read_bw -n 100 -s 65536",
        "send_bw -n 100 -s 65536",
        "send_bw -c UC -n 100 -s 8192",
        "send_bw -c UD -n 100 -s 2048",
        "atomic_lat -n 100",
    ] {
        let report = by_tcp(vms, command)?;
        lab.step(&format!("{command}: {report}"));
    }
    signal(&mut vms.one, "ping", "INT")?;
    let pings = Ping::parse(&ended(&mut vms.one, "ping")?.output)?;
    // (The last ones may have been on their way.)
    ensure!(
        pings.duplicates == 0
            && !pings.sequence.is_empty()
            && (1..).zip(&pings.sequence).all(|(n, s)| n == *s),
        "beside RDMA, pings were lost, doubled or late: {pings:?}"
    );
    signal(&mut vms.two, "iperf", "INT")?;
    ended(&mut vms.two, "iperf")?;
    let carried = daemon.counter("vf1", "tx_bytes")? - before;
    ensure!(carried > 100_000, "iperf3 moved {carried} bytes");
    lab.step(&format!(
        "meanwhile on Ethernet: {} pings, none lost; {carried} bytes of TCP",
        pings.received
    ));
    Ok(())
}

/// Where there are no hugepages, ordinary pages are pinned.
fn without_hugepages(lab: &Lab, vms: &mut Pair) -> Result<()> {
    let pages = "/proc/sys/vm/nr_hugepages";
    let before = vms.two.ok(&format!("cat {pages} && echo 0 >{pages}"))?;
    let left = vms.two.ok(&format!("cat {pages}"))?;
    ensure!(
        left.trim() == "0",
        "{} of {} hugepages are still in use",
        left.trim(),
        before.trim()
    );
    by_tcp(vms, "rc_pingpong -n 20 -s 100000")?;
    by_tcp(vms, "write_bw -n 20 -s 100000")?;
    vms.two.ok(&format!("echo {} >{pages}", before.trim()))?;
    lab.step("a machine without hugepages");
    Ok(())
}

// ---- a machine and a process of the host ----------------------------------------------------------------------

/// Each as client and as server.
fn with_a_process(lab: &Lab, daemon: &Daemon, one: &mut Guest) -> Result<()> {
    let socket = lab.path("vf3-rdma.sock");
    for command in [
        "rc_pingpong -n 50 -s 4097",
        "ud_pingpong -n 50 -s 1024",
        "write_bw -n 50 -s 65536",
        "write_bw -c UC -n 50 -s 20000",
        "read_bw -n 50 -s 65536",
        "send_bw -n 50 -s 65536",
        "atomic_lat -n 50",
    ] {
        for guest_asks in [true, false] {
            let [server, client] =
                ["", "--client"].map(|role| format!("{command} {COMMON} --exchange stdio {role}"));
            let (guest, host) = if guest_asks {
                (&client, &server)
            } else {
                (&server, &client)
            };
            let in_guest = Tool::in_guest(one, guest)?;
            let on_host = Tool::on_host(lab, &socket, host)?;
            let [server, client] = if guest_asks {
                tool::run(on_host, in_guest)?
            } else {
                tool::run(in_guest, on_host)?
            };
            ensure!(
                server["ok"] == true
                    && client["ok"] == true
                    && (server["verified"] == true || client["verified"] == true),
                "{command}: the server reports {server}, the client {client}"
            );
        }
        lab.step(&format!(
            "machine and process, and the other way round: {command}"
        ));
    }
    wait_function(daemon, "vf3", "STATE_DETACHED")?;
    wait_function(daemon, "vf0", "STATE_ATTACHED")
}

// ---- a machine and Soft-RoCE ----------------------------------------------------------------------------------

/// The PSN that the Soft-RoCE side begins with, so that it wraps, and the one of READs under HPCC: adapters tell a guest's queue pairs apart
/// by their PSNs.
const SOFT_PSN: u32 = 0xff_fff8;
const HPCC_PSN: u32 = 0x55_0000;
/// The seed of what it sends.
const SOFT_SEED: u64 = 0x5eed_0000;
/// Its places for what comes in, and where what goes out lies.
const STEP: u64 = 8192;
const OUT: u64 = 1 << 20;
const PLACES: u64 = 4;
/// The key of datagrams.
const QKEY: u32 = 0x1111_1111;
/// What stands in front of a datagram.
const GRH: u64 = 40;

/// The kernel's Soft-RoCE in a machine on `vf2`, driven by the case.
struct SoftRoce {
    peer: RxePeer,
    mr: Mr,
    sgid: u32,
    psn: u32,
    /// Where the other machine's IPv4 address is in its GID table.
    index: u64,
}

/// Machine one's tools and the kernel, each as client and as server.
fn with_soft_roce(lab: &Lab, daemon: &Daemon, one: &mut Guest) -> Result<()> {
    let mut soft = SoftRoce::boot(lab, daemon, one)?;
    for begins in [true, false] {
        soft.pingpong(one, begins, 20, 5000, || Ok(()))?;
        soft.datagrams(one, begins, 20, 1500)?;
        soft.writes(one, begins, 10, 5000)?;
        soft.reads(one, begins, 10, 5000, |_| Ok(()))?;
        let who = if begins { "guest-lib" } else { "Soft-RoCE" };
        lab.step(&format!("RC and UD SENDs, RC WRITEs and READs: {who} begins"));
    }
    soft.telemetry(daemon, one)?;
    lab.step("HPCC at both ends hears of the links between them");
    Ok(())
}

impl SoftRoce {
    fn boot(lab: &Lab, daemon: &Daemon, one: &mut Guest) -> Result<SoftRoce> {
        let mac = daemon.mac("vf2")?;
        let mut spec = GuestSpec::new("vm3", &lab.path("vf2-eth.sock"), &mac, &format!("{SOFT}/24"));
        spec.mtu = 9000;
        spec.rxe = true;
        // Soft-RoCE has no flow control: let bursts wait here rather than be lost.
        spec.device.push("rx_queue_size=1024".to_owned());
        let mut guest = Guest::qemu(lab, &spec)?;
        guest.wait_ready()?;
        guest.has_network()?;
        daemon.wait_up("vf2")?;
        ping(&mut guest, &format!("-c 3 -i 0.1 {ONE}"))?;
        ping(one, &format!("-c 3 -i 0.1 {SOFT}"))?;
        let mut peer = RxePeer::start(guest)?;
        let mr = peer.mr(2 * OUT, "lwra")?;
        let sgid = peer.gid_index(SOFT.into())?;
        let index = gid_index(daemon, "vf0", ONE.into())?.context("the machine's address has no GID")?;
        lab.step("the machine with Soft-RoCE has booted");
        Ok(SoftRoce {
            peer,
            mr,
            sgid,
            psn: SOFT_PSN,
            index,
        })
    }

    /// Starts a tool in the machine, which begins, or waits for us.
    fn tool<'a>(&self, one: &'a mut Guest, begins: bool, command: &str) -> Result<(Tool<'a>, Endpoint)> {
        let role = if begins { "--client" } else { "" };
        let index = self.index;
        // (An ACK timeout of a second: the other machine is slow.)
        let arguments = format!("{command} {COMMON} -u 18 --exchange stdio -x {index} {role}");
        let mut tool = Tool::in_guest(one, &arguments)?;
        let endpoint = tool.endpoint()?;
        Ok((tool, endpoint))
    }

    /// What the tool is told of our queue pair and memory.
    fn endpoint(&self, qp: Qp, theirs: &Endpoint) -> Result<Endpoint> {
        let mtu = theirs.number("mtu")?.min(self.peer.mtu().into());
        Ok(Endpoint::of(&[
            ("qpn", &qp.qpn),
            ("psn", &self.psn),
            ("gid", &SOFT.to_ipv6_mapped()),
            ("mtu", &mtu),
            ("qkey", &QKEY),
            ("seed", &SOFT_SEED),
            ("addr", &self.mr.addr),
            ("rkey", &self.mr.rkey),
            ("len", &(PLACES * STEP)),
            ("slots", &PLACES),
            ("step", &STEP),
        ]))
    }

    /// A queue pair that is connected to the tool's.
    fn connected(&mut self, theirs: &Endpoint) -> Result<Qp> {
        let qp = self.peer.qp(Kind::Rc, "sq=64 rq=64")?;
        let connect = Connect {
            remote: IpAddr::V4(ONE),
            dest_qpn: u32::try_from(theirs.number("qpn")?)?,
            mtu: u32::try_from(theirs.number("mtu")?)?.min(self.peer.mtu()),
            rq_psn: u32::try_from(theirs.number("psn")?)?,
            sq_psn: self.psn,
            sgid: self.sgid,
            more: "timeout=16".to_owned(),
        };
        self.peer.connect(qp, &connect)?;
        Ok(qp)
    }

    /// The next completion, which must be good.
    fn completion(&mut self, qp: Qp, cq: &str) -> Result<Wc> {
        let list = self.peer.completions(qp, cq, 1)?;
        let wc = list.first().context("no completion")?;
        ensure!(wc.status == status::SUCCESS, "the kernel's completion: {wc:?}");
        Ok(*wc)
    }

    /// Sends message `i` of ours, as `post` has it.
    fn send(&mut self, qp: Qp, i: u64, size: u64, post: Post) -> Result<()> {
        self.peer.fill(&self.mr, SOFT_SEED + i, OUT, size)?;
        self.peer.post(qp, &post)?;
        self.completion(qp, "send").map(|_| ())
    }

    /// Takes message `i` of the tool's, whose seeds begin with `seed`. It came to the place `i`.
    fn receive(&mut self, qp: Qp, i: u64, size: u64, head: u64, seed: u64) -> Result<()> {
        let wc = self.completion(qp, "recv")?;
        ensure!(
            wc.wr_id == i && u64::from(wc.byte_len) == head + size && (head == 0 || u64::from(wc.imm) == i),
            "the kernel's completion of message {i}: {wc:?}"
        );
        self.peer.check(&self.mr, seed + i, i * STEP + head, size)
    }

    /// HPCC at both ends: a link of 1 Gb/s before each writes into packets, and acknowledges bring that back. A message is longer than
    /// the first window, so that acknowledges come close to each other.
    fn telemetry(&mut self, daemon: &Daemon, one: &mut Guest) -> Result<()> {
        for adapter in ["vf0", "vf2"] {
            daemon.ctl(&["qos", "set", adapter, "--rate", "1G"])?;
            daemon.ctl(&["cc", "enable", adapter])?;
            daemon.ctl(&["cc", "set", adapter, "--algorithm", "hpcc", "soft_roce=1"])?;
        }
        self.pingpong(one, false, 40, STEP, || {
            for (adapter, of_guest) in [("vf0", false), ("vf2", true)] {
                let flows = daemon.ctl(&["cc", "flows", adapter])?;
                // The window of a guest's flow, and what of its link is used in place of all, come with what was heard.
                let heard = |flow: &Value| match flow["peer"] == "" {
                    true => !of_guest && flow["alpha"] != 1024,
                    false => of_guest && flow["window_bytes"].is_u64(),
                };
                let all = flows["flows"].as_array().context("flows")?;
                ensure!(all.iter().any(heard), "{adapter}: {flows}");
            }
            Ok(())
        })?;
        // What the kernel READs, by what the responses have gathered.
        self.psn = HPCC_PSN;
        self.reads(one, false, 10, STEP, |qpn| {
            let flows = daemon.ctl(&["cc", "flows", "vf2"])?;
            let all = flows["flows"].as_array().context("flows")?;
            let heard = |flow: &Value| flow["queue_pair"] == qpn && flow["window_bytes"].is_u64();
            ensure!(all.iter().any(heard), "no window of READs from {qpn}: {flows}");
            Ok(())
        })?;
        for adapter in ["vf0", "vf2"] {
            daemon.ctl(&["cc", "restore", adapter])?;
            daemon.ctl(&["qos", "set", adapter, "--rate", "0"])?;
        }
        Ok(())
    }

    /// RC messages back and forth; `look`: before the last words.
    fn pingpong(
        &mut self,
        one: &mut Guest,
        begins: bool,
        n: u64,
        size: u64,
        look: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let (mut tool, theirs) = self.tool(one, begins, &format!("rc_pingpong -n {n} -s {size}"))?;
        let seed = theirs.number("seed")?;
        let qp = self.connected(&theirs)?;
        let mr = self.mr;
        self.peer.post_recv(qp, &mr, 0, size, n, STEP)?;
        tool.connect(&self.endpoint(qp, &theirs)?)?;
        for i in 0..n {
            if begins {
                self.receive(qp, i, size, 0, seed)?;
            }
            self.send(qp, i, size, Post::new("send", &mr, OUT, size))?;
            if !begins {
                self.receive(qp, i, size, 0, seed)?;
            }
        }
        look()?;
        content(tool, begins, n, true)?;
        self.peer.destroy_qp(qp)
    }

    /// Datagrams back and forth, each with its number.
    fn datagrams(&mut self, one: &mut Guest, begins: bool, n: u64, size: u64) -> Result<()> {
        let (mut tool, theirs) = self.tool(one, begins, &format!("ud_pingpong -n {n} -s {size}"))?;
        let (seed, qpn, qkey) = (
            theirs.number("seed")?,
            theirs.number("qpn")?,
            theirs.number("qkey")?,
        );
        let qp = self.peer.qp(Kind::Ud, "sq=64 rq=64")?;
        self.peer.ready(qp, QKEY, self.psn)?;
        let ah = self.peer.ah(IpAddr::V4(ONE), self.sgid)?;
        let mr = self.mr;
        self.peer.post_recv(qp, &mr, 0, GRH + size, n, STEP)?;
        tool.connect(&self.endpoint(qp, &theirs)?)?;
        for i in 0..n {
            if begins {
                self.receive(qp, i, size, GRH, seed)?;
            }
            let post = Post::new("send_imm", &mr, OUT, size)
                .imm(u32::try_from(i)?)
                .with(&format!("ah={ah} rqpn={qpn} rqkey={qkey}"));
            self.send(qp, i, size, post)?;
            if !begins {
                self.receive(qp, i, size, GRH, seed)?;
            }
        }
        content(tool, begins, n, true)?;
        self.peer.ask(&format!("destroy ah={ah}"))?;
        self.peer.destroy_qp(qp)
    }

    /// RC WRITEs from one side into the other's places, round and round.
    fn writes(&mut self, one: &mut Guest, begins: bool, n: u64, size: u64) -> Result<()> {
        let (mut tool, theirs) = self.tool(one, begins, &format!("write_bw -n {n} -s {size}"))?;
        let qp = self.connected(&theirs)?;
        let mr = self.mr;
        self.peer.zero(&mr, 0, PLACES * STEP)?;
        tool.connect(&self.endpoint(qp, &theirs)?)?;
        if begins {
            let seed = theirs.number("seed")?;
            // It has had its completions when it says so: the data are there.
            let outcome = tool.finish()?;
            ensure!(outcome.report()?["ok"] == true, "write_bw: {}", outcome.output);
            for i in n - PLACES..n {
                self.peer.check(&mr, seed + i, i % PLACES * STEP, size)?;
            }
        } else {
            let rkey = u32::try_from(theirs.number("rkey")?)?;
            let [addr, slots, step] = ["addr", "slots", "step"].map(|key| theirs.number(key));
            let (addr, slots, step) = (addr?, slots?, step?);
            for i in 0..n {
                let post = Post::new("write", &mr, OUT, size).to(addr + i % slots * step, rkey);
                self.send(qp, i, size, post)?;
            }
            content(tool, begins, n, true)?;
        }
        self.peer.destroy_qp(qp)
    }

    /// RC READs of one side from the other's places, round and round; the place `j` has the pattern of `seed + j`. `look`, with the
    /// number of the tool's queue pair: before the last words of READs that the kernel began.
    fn reads(
        &mut self,
        one: &mut Guest,
        begins: bool,
        n: u64,
        size: u64,
        look: impl FnOnce(u64) -> Result<()>,
    ) -> Result<()> {
        let (mut tool, theirs) = self.tool(one, begins, &format!("read_bw -n {n} -s {size}"))?;
        let qp = self.connected(&theirs)?;
        let mr = self.mr;
        self.peer.fill_many(&mr, SOFT_SEED, 0, size, PLACES, STEP)?;
        tool.connect(&self.endpoint(qp, &theirs)?)?;
        if begins {
            content(tool, begins, n, true)?;
        } else {
            let rkey = u32::try_from(theirs.number("rkey")?)?;
            let [addr, slots, step, seed] = ["addr", "slots", "step", "seed"].map(|key| theirs.number(key));
            let (addr, slots, step, seed) = (addr?, slots?, step?, seed?);
            for i in 0..n {
                self.peer.zero(&mr, OUT, size)?;
                let post = Post::new("read", &mr, OUT, size).to(addr + i % slots * step, rkey);
                self.peer.post(qp, &post)?;
                self.completion(qp, "send")?;
                self.peer.check(&mr, seed + i % slots, OUT, size)?;
            }
            look(theirs.number("qpn")?)?;
            // (What a server has to check is nothing.)
            content(tool, begins, n, false)?;
        }
        self.peer.destroy_qp(qp)
    }
}

/// Ends a tool that the case talked with: it must have verified what it got.
fn content(mut tool: Tool<'_>, begins: bool, n: u64, verified: bool) -> Result<()> {
    if !begins {
        tool.tell(&format!("done sent={n}"))?;
    }
    let outcome = tool.finish()?;
    let report = outcome.report()?;
    ensure!(
        report["ok"] == true && (!verified || report["verified"] == true),
        "{report}"
    );
    Ok(())
}

// ---- ends without warning -------------------------------------------------------------------------------------

/// An endless run from machine one to machine two.
fn endless(daemon: &Daemon, vms: &mut Pair) -> Result<()> {
    serve(&mut vms.two, ENDLESS)?;
    begin(
        &mut vms.one,
        "client",
        &format!("vnic-guest {ENDLESS} {COMMON} {TWO}"),
    )?;
    flows(daemon, "vf0")
}

/// Waits until an adapter's RDMA function moves data.
fn flows(daemon: &Daemon, adapter: &str) -> Result<()> {
    let before = daemon.counter(adapter, SENT)?;
    wait_for("RDMA traffic", PATIENCE, || {
        let now = daemon.counter(adapter, SENT)?;
        ensure!(now > before + 1000, "{before} packets before, {now} now");
        Ok(())
    })
}

/// The peer has vanished: all retries were in vain.
fn gave_up(outcome: &Outcome) -> Result<()> {
    ensure!(
        outcome.exit != 0 && outcome.output.contains("RETRY_EXC_ERR"),
        "the peer of a machine that vanished ended with {}:\n{}",
        outcome.exit,
        outcome.output
    );
    Ok(())
}

/// Programs are killed in the middle of traffic.
fn killed_programs(lab: &Lab, daemon: &Daemon, vms: &mut Pair) -> Result<()> {
    for _ in 0..3 {
        endless(daemon, vms)?;
        signal(&mut vms.two, "server", "KILL")?;
        gave_up(&ended(&mut vms.one, "client")?)?;
        wait_function(daemon, "vf1", "STATE_ATTACHED")?;
        wait_function(daemon, "vf0", "STATE_ATTACHED")?;
    }
    by_tcp(vms, "rc_pingpong -n 20 -s 4097")?;
    lab.step("a program in a machine killed, three times: its peer gives up, nothing is left");

    let socket = lab.path("vf3-rdma.sock");
    for _ in 0..3 {
        let command = format!("{ENDLESS} {COMMON} --exchange stdio");
        let mut server = Tool::on_host(lab, &socket, &command)?;
        let mut client = Tool::in_guest(&mut vms.one, &format!("{command} --client"))?;
        tool::join(&mut server, &mut client)?;
        flows(daemon, "vf0")?;
        server.kill()?;
        gave_up(&client.finish()?)?;
        wait_function(daemon, "vf3", "STATE_DETACHED")?;
        wait_function(daemon, "vf0", "STATE_ATTACHED")?;
    }
    lab.step("a process of the host killed, three times");
    Ok(())
}

/// A machine reboots in the middle of traffic.
fn reboot(lab: &Lab, daemon: &Daemon, vms: &mut Pair) -> Result<()> {
    let before = vms.two.boot_id()?;
    endless(daemon, vms)?;
    vms.two.send("reboot -f")?;
    vms.two.wait_ready()?;
    ensure!(vms.two.boot_id()? != before, "it has not rebooted");
    gave_up(&ended(&mut vms.one, "client")?)?;
    wait_function(daemon, "vf1", "STATE_ATTACHED")?;
    daemon.wait_up("vf1")?;
    vms.two.ok("vnic-guest doctor")?;
    by_tcp(vms, "rc_pingpong -n 20 -s 4097")?;
    lab.step("a machine rebooted: its peer gives up, nothing is left, and both talk again");
    Ok(())
}

/// A machine is killed in the middle of traffic.
fn killed_machine(lab: &Lab, daemon: &Daemon, mut vms: Pair) -> Result<()> {
    endless(daemon, &mut vms)?;
    let Pair { mut one, two } = vms;
    drop(two);
    gave_up(&ended(&mut one, "client")?)?;
    wait_function(daemon, "vf1", "STATE_DETACHED")?;
    lab.step("a machine killed: its peer gives up, nothing is left");

    let mut spec = GuestSpec::new(
        "vm2b",
        &lab.path("vf1-eth.sock"),
        &daemon.mac("vf1")?,
        &format!("{TWO}/24"),
    );
    shape(lab, 2, &mut spec);
    let mut two = Guest::qemu(lab, &spec)?;
    two.wait_ready()?;
    daemon.wait_up("vf1")?;
    let mut vms = Pair { one, two };
    ping(&mut vms.one, &format!("-c 3 -i 0.1 {TWO}"))?;
    by_tcp(&mut vms, "rc_pingpong -n 20 -s 4097")?;
    lab.step("another machine in its place");
    Ok(())
}
