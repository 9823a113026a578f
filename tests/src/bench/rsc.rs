//! TCP from a wire into a guest, with receive segment coalescing and without.
//!
//! ```text
//!  host: iperf3 -c ── veth ── port (AF_PACKET), NIC, vf0 ── driver of this process ── TAP ── guest's kernel: iperf3 -s
//!  (one segment a frame)                                    (virtio headers as they are)
//! ```
//!
//! Behind the driver is the TCP of a Linux kernel, in a network namespace of its own: what a guest pays for a frame is in the
//! figure. The sender's device does not segment, so that frames come as a wire would bring them.

use std::io::{BufRead as _, BufReader, IoSlice, IoSliceMut};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use rustix::io::Errno;
use tun_rs::{DeviceBuilder, Layer, SyncDevice};
use vnic_backend::settings::{AdapterSettings, OffloadKeys};

use super::product::{Product, Setup, Uplink};
use super::report::{Outcome, Summary};
use super::testpmd::guest_mac;
use super::{Lab, Run};
use crate::driver::{Guest, NetHdr, OFFLOADS, Options, feature};
use crate::lab::{Iperf, Namespace, output};

/// Devices: the host's, the NIC's, the guest's.
const HOST: &str = "left";
const WIRE: &str = "right";
const GUEST: &str = "guest0";
/// TCP streams: one waits for the programs' turns of the CPUs.
const STREAMS: &str = "4";
const PATIENCE: Duration = Duration::from_secs(20);
/// Frames taken from a ring or a device before the other gets its turn.
const BURST: usize = 64;
/// A pause of a driver that has nothing to do. (The guest's program needs the CPU.)
const NAP: Duration = Duration::from_micros(20);

/// `eth-rsc`.
pub fn run(lab: &Lab) -> Result<Run> {
    if lab.vnicd.is_some() {
        return Ok(Run::Skipped(
            "its NIC is in the bench's process: not with --vnicd".into(),
        ));
    }
    let hosts = match (Namespace::new()?, Namespace::new()?, Namespace::new()?) {
        (Ok(host), Ok(wire), Ok(guest)) => [host, wire, guest],
        (Err(why), _, _) | (_, Err(why), _) | (_, _, Err(why)) => return Ok(Run::Skipped(why)),
    };
    let [host, wire, guest] = &hosts;
    host.veth(HOST, wire, WIRE, 1500)?;
    // Its kernel segments at the end of its stack: a stack that runs once a segment would be all that is measured.
    output(host.command("ethtool").args(["-K", HOST, "tso", "off"]))?;
    host.ip(&format!("addr add 10.79.0.1/24 dev {HOST}"))?;
    let tap = guest.run(|| {
        let tap = DeviceBuilder::new()
            .name(GUEST)
            .layer(Layer::L2)
            .offload(true)
            .mtu(1500)
            .build_sync()?;
        tap.set_nonblocking(true)?;
        Ok(tap)
    })?;
    guest.ip(&format!("link set {GUEST} address {} up", guest_mac(0)))?;
    guest.ip(&format!("addr add 10.79.0.2/24 dev {GUEST}"))?;
    let dir = lab.part()?;
    let uplinks = [Uplink {
        kind: "packet",
        ifname: WIRE.into(),
        mesh: String::new(),
    }];
    let setup = Setup {
        uplinks: &uplinks,
        ..lab.setup(dir.path(), 1)
    };
    let product = wire.run(|| Product::start(&setup))?;
    let (mut exchanges, mut rates, mut ratios) = (Vec::new(), [Vec::new(), Vec::new()], Vec::new());
    let mut packets = [0; 2];
    for round in 0..lab.rounds {
        exchanges.push(lab.exchange()?);
        let mut of_round = [0.0; 2];
        let order = if round % 2 == 0 {
            [true, false]
        } else {
            [false, true]
        };
        for coalesces in order {
            let before = counts(&product)?;
            let rate = measure(lab, &product, &hosts, &tap, coalesces)?;
            let after = counts(&product)?;
            let joined = after[0] - before[0];
            ensure!(coalesces == (joined > 0), "{joined} packets were coalesced");
            if coalesces {
                packets = [0, 1].map(|i| packets[i] + after[i] - before[i]);
            }
            of_round[usize::from(!coalesces)] = rate;
            rates[usize::from(!coalesces)].push(rate);
        }
        ratios.push(of_round[0] / of_round[1]);
        let [with, without] = of_round;
        eprintln!(
            "eth-rsc round {}/{}: {with:.2} Gb/s with, {without:.2} without",
            round + 1,
            lab.rounds
        );
    }
    let of = |values: &[f64]| Summary::of(values).context("no rounds");
    Ok(Run::Measured(vec![Outcome {
        name: "eth-rsc".into(),
        unit: "Gb/s",
        value: of(&rates[0])?,
        peer: Some(("*RscIPv4 0", of(&rates[1])?)),
        ratio: Some(of(&ratios)?),
        bare_exchange: Some(of(&exchanges)?.median),
        rounds: lab.rounds,
        details: vec![("packets_of_a_frame", packets[0] as f64 / packets[1].max(1) as f64)],
        notes: vec![
            "payload of four TCP streams, MTU 1500, into the TCP of a Linux kernel behind the driver".into(),
        ],
    }]))
}

/// Coalesced packets, and the frames that were made from them.
fn counts(product: &Product) -> Result<[u64; 2]> {
    let counters = product.counters()?;
    Ok(["rx_rsc_packets", "rx_rsc_events"].map(|name| counters.total(name)))
}

/// Payload of all streams in Gb/s.
fn measure(
    lab: &Lab,
    product: &Product,
    [host, _, guest]: &[Namespace; 3],
    tap: &SyncDevice,
    coalesces: bool,
) -> Result<f64> {
    let nic = product.nic().context("a NIC in this process")?;
    let settings = AdapterSettings {
        offloads: OffloadKeys {
            rsc4: coalesces,
            ..OffloadKeys::default()
        },
        ..AdapterSettings::default()
    };
    nic.configure_adapter("vf0", &settings)?;
    nic.restart_adapter("vf0")?;
    let options = Options {
        tx_buffer: 66_000,
        queue_size: 1024,
        ..Options::default().with(OFFLOADS)
    };
    let options = match coalesces {
        true => options,
        false => options.without(feature::GUEST_TSO4),
    };
    let mut driver = Guest::attach(product.socket(0), options)?;
    product.wait_up(1, PATIENCE)?;
    let ended = AtomicBool::new(false);
    std::thread::scope(|s| {
        let pump = s.spawn(|| pump(&mut driver, tap, &ended));
        let rate = stream(host, guest, lab.window);
        ended.store(true, Ordering::Relaxed);
        pump.join()
            .map_err(|_| anyhow!("the driver's thread panicked"))??;
        rate
    })
    .and_then(|rate| driver.detach().map(|_| rate))
}

/// A driver's work: frames of the device to the guest's kernel, with their virtio headers, and back.
fn pump(driver: &mut Guest, tap: &SyncDevice, ended: &AtomicBool) -> Result<()> {
    let (mut frame, mut out) = (Vec::new(), vec![0; 66_000]);
    while !ended.load(Ordering::Relaxed) {
        let mut work = 0;
        while work < BURST
            && let Some((hdr, _)) = driver.try_recv_into(0, &mut frame)
        {
            work += 1;
            let header = hdr.emit(1);
            let parts = [IoSlice::new(&header[..NetHdr::LEN_LEGACY]), IoSlice::new(&frame)];
            // What the kernel has no room for is lost, as on a wire.
            let _ = rustix::io::writev(tap, &parts);
        }
        for _ in 0..BURST {
            let mut header = [0; NetHdr::LEN_LEGACY];
            let mut parts = [IoSliceMut::new(&mut header), IoSliceMut::new(&mut out)];
            let n = match rustix::io::readv(tap, &mut parts) {
                Ok(n) => n,
                Err(Errno::AGAIN) => break,
                Err(e) => return Err(e).context("reading the guest's frames"),
            };
            work += 1;
            let Some(len) = n.checked_sub(NetHdr::LEN_LEGACY) else {
                continue;
            };
            driver.send(0, &out[..len], NetHdr::parse(&header));
        }
        driver.reclaim(0);
        if work == 0 {
            std::thread::sleep(NAP);
        }
    }
    Ok(())
}

/// Streams of iperf3 from the host to the guest's kernel: their payload in Gb/s.
fn stream(host: &Namespace, guest: &Namespace, time: Duration) -> Result<f64> {
    let mut server = guest
        .command("iperf3")
        .args(["-s", "-1", "--forceflush", "-B", "10.79.0.2"])
        .stdout(Stdio::piped())
        .spawn()
        .context("starting iperf3")?;
    let mut answer = || {
        let mut lines = BufReader::new(server.stdout.take().context("its output")?).lines();
        while !lines
            .next()
            .context("iperf3 says nothing")??
            .contains("listening")
        {}
        // Whole seconds are all that it takes.
        let seconds = time.as_secs_f64().ceil().to_string();
        let mut client = host.command("iperf3");
        let text = output(client.args(["-c", "10.79.0.2", "-P", STREAMS, "-t", &seconds, "-J"]))?;
        Ok(Iperf::parse(&text)?.rate / 1e9)
    };
    let rate = answer();
    let _ = server.kill();
    server.wait()?;
    rate
}
