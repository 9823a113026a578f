//! Uplinks with a kernel at the other end: its ping and its TCP, segmentation and all.

use std::net::UdpSocket;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::socket::{setsockopt, sockopt};
use vnic_backend::{DropReason, MacAddr, NicEventKind, PortKind, PortSpec, QosSpec, VirtualClock};
use vnic_tests::driver::host::{Host, Server, clients, ping};
use vnic_tests::driver::packets::{Flow, Number, number_of, numbered, pattern, udp};
use vnic_tests::driver::rig::{Copies, PATIENCE, Rig, deadline, wait_for};
use vnic_tests::driver::veth::{ENDS, Veth, ip, refusal};
use vnic_tests::driver::{NetHdr, Options, Wire};

/// Bytes that go each way over a connection.
const BYTES: usize = 3 << 20;
/// The device of the TAP port, and addresses of the two kernels.
const TAP: &str = "tap0";
const NEAR: &str = "10.0.0.1";
const FAR: &str = "10.0.0.2";

fn number(seq: u64) -> Number {
    Number {
        sender: 1,
        stream: 0,
        seq,
    }
}

fn tap(veth: &Veth, queues: u8) -> Result<PortSpec> {
    let mut port = veth.port("tap", TAP)?;
    port.kind = PortKind::Tap {
        ifname: TAP.into(),
        queues,
    };
    Ok(port)
}

/// This thread's kernel behind a TAP port, and a host's behind a packet port over a veth pair; a switch between them.
struct Kernels {
    rig: Rig,
    far: Host,
}

impl Kernels {
    fn new(cores: usize, mtu: u16, queues: u8) -> Result<Option<Kernels>> {
        let Some(veth) = Veth::new(mtu)? else {
            return Ok(None);
        };
        let far = Host::new()?;
        far.take(ENDS[1])?;
        // Our end belongs to the port: this kernel shall not answer there.
        ip(&["link", "set", ENDS[0], "arp", "off"])?;
        far.ip(&["link", "set", ENDS[1], "up"])?;
        far.ip(&["addr", "add", &format!("{FAR}/24"), "dev", ENDS[1]])?;
        let rig = Rig::new(cores)?;
        let mut outside = veth.port("packet", ENDS[0])?;
        outside.name = "p1".into();
        outside.data_core = rig.cores.last().copied();
        rig.nic.add_port(tap(&veth, queues)?)?;
        rig.nic.add_port(outside)?;
        ip(&["addr", "add", &format!("{NEAR}/24"), "dev", TAP])?;
        let up = || rig.nic.ports().iter().all(|p| p.up);
        ensure!(wait_for(up), "the links do not come up: {:?}", rig.nic.ports());
        Ok(Some(Kernels { rig, far }))
    }

    /// So many connections, both ways at once.
    fn tcp(&self, connections: usize) -> Result<()> {
        let (server, port) = self.far.run(move || Server::start(FAR, connections, BYTES))?;
        clients(FAR, port, connections, BYTES)?;
        server.finish()
    }

    fn ping(&self, size: u32) -> Result<()> {
        ping(FAR, 10, size)?;
        self.far.run(move || ping(NEAR, 10, size))
    }

    /// Most of what came were large frames: fewer than segments would be, acknowledgements counted.
    fn uncut(&self, port: &str, mss: usize, connections: usize) {
        let frames = self.rig.counter(port, "rx_frames") as usize;
        let bytes = self.rig.counter(port, "rx_bytes") as usize;
        assert!(bytes > BYTES * connections);
        assert!(frames < bytes / mss, "{port}: {frames} frames of {bytes} bytes");
    }
}

/// Kernel, TAP port, switch, packet port, veth, kernel: frames pass uncut and with partial checksums both ways.
fn kernels(cores: usize, mtu: u16, queues: u8) -> Result<()> {
    const CONNECTIONS: usize = 4;
    let Some(k) = Kernels::new(cores, mtu, queues)? else {
        return Ok(());
    };
    let mtu = u32::from(mtu);
    for size in [56, mtu - 28] {
        k.ping(size)?;
    }
    k.tcp(CONNECTIONS)?;
    for port in ["p0", "p1"] {
        k.uncut(port, mtu as usize - 52, CONNECTIONS);
        let drops =
            k.rig.drops(port, DropReason::MalformedOffload) + k.rig.drops(port, DropReason::MtuExceeded);
        assert_eq!(drops, 0, "{port}");
    }
    // Without segmentation at the sender: frames of the MTU, checksums still partial.
    ip(&["link", "set", TAP, "gso_max_segs", "1"])?;
    k.tcp(1)?;
    k.rig.finish(Copies::Unknown)
}

#[test]
fn kernel_to_kernel() -> Result<()> {
    kernels(1, 1500, 1)
}

#[test]
fn kernel_to_kernel_jumbo() -> Result<()> {
    kernels(1, 9000, 1)
}

#[test]
fn kernel_to_kernel_with_queues_between_cores() -> Result<()> {
    kernels(2, 1500, 4)
}

/// All queues of a TAP device carry frames both ways, each flow on one of them and in order.
#[test]
fn tap_queues_carry_flows_in_order() -> Result<()> {
    let Some(veth) = Veth::new(1500)? else {
        return Ok(());
    };
    let mut rig = Rig::new(1)?;
    let mac = rig.add("a")?;
    rig.nic.add_port(tap(&veth, 8)?)?;
    ensure!(wait_for(|| rig.nic.port("p0").is_ok_and(|p| p.up)));
    let wire = Wire::open(TAP)?;
    let mut guest = rig.attach("a", Options::default())?;
    let host = MacAddr([2, 0xaa, 0, 0, 0, 1]);
    let mut next = [[0u16; 16]; 2];
    let mut note = |way: usize, frame: &[u8]| {
        // Ports and the payload's first bytes, which are the round.
        let number = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
        let ports = [number(34), number(36)];
        let port = ports.iter().find(|p| (1000..1016).contains(*p)).expect("a port");
        let seen = &mut next[way][usize::from(port - 1000)];
        assert_eq!(number(42), *seen, "flow {port}");
        *seen += 1;
    };
    // Bursts for which the guest and the wire's end have room. The first is of one frame each way: a flow's queue towards us is that
    // of its first frame from us, as soon as the kernel has seen it, and what the other queue still has may come later.
    for burst in [0..1u16, 1..6, 6..11, 11..16, 16..20] {
        let frames = 16 * burst.len();
        for round in burst {
            let payload = [&round.to_be_bytes()[..], &pattern(100)].concat();
            for port in 1000..1016 {
                let flow = |to, from| Flow {
                    to,
                    from,
                    v6: false,
                    vlan: None,
                    port,
                };
                wire.send(&udp(&flow(mac, host), &payload))?;
                guest.send_wait(0, &udp(&flow(host, mac), &payload), NetHdr::default());
            }
        }
        for _ in 0..frames {
            let frame = std::iter::repeat_with(|| guest.recv(0, deadline()).expect("a frame").2)
                .find(|f| f[12..14] == [8, 0])
                .expect("endless");
            note(0, &frame);
            note(1, &wire.recv(|f| f[12..14] == [8, 0] && f[6..12] == mac.0)?);
        }
    }
    let device = rig.nic.port("p0")?.device.context("no device")?;
    let value = |name: &str| device.statistics.iter().find(|(n, _)| n == name).map(|(_, v)| *v);
    assert!(value("tx_packets") >= Some(320), "{device:?}");
    guest.detach()?;
    rig.finish(Copies::Unknown)
}

/// TAP devices that are there: made for one queue or for several, or none at all.
#[test]
fn tap_devices_that_are_there() -> Result<()> {
    let Some(veth) = Veth::new(1500)? else {
        return Ok(());
    };
    let mut rig = Rig::new(1)?;
    let mac = rig.add("a")?;
    let mut guest = rig.attach("a", Options::default())?;
    for several in [false, true] {
        let kind = if several { "multi_queue" } else { "one_queue" };
        ip(&["tuntap", "add", "dev", TAP, "mode", "tap", kind])?;
        ip(&["link", "set", TAP, "up"])?;
        for queues in [1, 3] {
            if queues > 1 && !several {
                // What other tests fork has the descriptors of this process until it executes its program: the device may be busy
                // that long.
                let (port, mut text) = (tap(&veth, queues)?, String::new());
                ensure!(
                    wait_for(|| {
                        text = refusal(rig.nic.add_port(port.clone())).unwrap_or_default();
                        text.contains("was made for one queue: take 1")
                    }),
                    "{text}"
                );
                assert!(rig.nic.ports().is_empty());
                continue;
            }
            rig.nic.add_port(tap(&veth, queues)?)?;
            ensure!(wait_for(|| rig.nic.port("p0").is_ok_and(|p| p.up)));
            let wire = Wire::open(TAP)?;
            let host = MacAddr([2, 0xaa, 0, 0, 0, 1]);
            let frame = numbered(mac, host, number(0), 200);
            wire.send(&frame)?;
            let got = std::iter::repeat_with(|| guest.recv(0, deadline()).expect("a frame").2)
                .find(|f| *f == frame);
            assert!(got.is_some());
            let frame = numbered(host, mac, number(1), 200);
            guest.send_wait(0, &frame, NetHdr::default());
            wire.recv(|f| f == frame)?;
            rig.nic.remove_port("p0")?;
        }
        ip(&["link", "delete", TAP])?;
    }
    let mut port = tap(&veth, 9)?;
    let text = refusal(rig.nic.add_port(port.clone()))?;
    assert!(text.contains("9 is out of range: 1 to 8"), "{text}");
    port.kind = PortKind::Tap {
        ifname: ENDS[0].into(),
        queues: 1,
    };
    let text = refusal(rig.nic.add_port(port))?;
    assert!(text.contains("left is there and is no TAP device"), "{text}");
    assert!(rig.nic.ports().is_empty());
    guest.detach()?;
    rig.finish(Copies::Unknown)
}

/// A TAP device is deleted and made again by somebody else.
#[test]
fn a_tap_device_that_comes_back() -> Result<()> {
    let Some(veth) = Veth::new(1500)? else {
        return Ok(());
    };
    let mut rig = Rig::new(1)?;
    let mac = rig.add("a")?;
    let mut guest = rig.attach("a", Options::default())?;
    let make = || {
        ip(&["tuntap", "add", "dev", TAP, "mode", "tap", "multi_queue"])?;
        ip(&["link", "set", TAP, "up"])
    };
    make()?;
    rig.nic.add_port(tap(&veth, 2)?)?;
    for round in 1..4 {
        ensure!(wait_for(|| rig.nic.port("p0").is_ok_and(|p| p.up)));
        assert_eq!(rig.nic.port("p0")?.problem, None);
        rig.settle()?;
        let wire = Wire::open(TAP)?;
        let host = MacAddr([2, 0xaa, 0, 0, 0, 1]);
        let frame = numbered(host, mac, number(round), 200);
        guest.send_wait(0, &frame, NetHdr::default());
        wire.recv(|f| f == frame)?;
        ip(&["link", "delete", TAP])?;
        let down = |e: &NicEventKind| matches!(e, NicEventKind::PortLink { up: false });
        ensure!(wait_for(|| rig.count_events("p0", down) as u64 >= round));
        ensure!(wait_for(|| rig.nic.port("p0").is_ok_and(|p| p.problem.is_some())));
        make()?;
    }
    ensure!(wait_for(|| rig.nic.port("p0").is_ok_and(|p| p.up)));
    guest.detach()?;
    rig.finish(Copies::Unknown)
}

/// Sends bursts of datagrams, each burst by one call that the kernel cuts where it must (`UDP_SEGMENT`), each when the one
/// before was answered.
fn send_bursts(to: (&str, u16)) -> Result<()> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.set_read_timeout(Some(PATIENCE))?;
    setsockopt(&socket, sockopt::UdpGsoSegment, &(DATAGRAM as i32))?;
    for burst in 0..BURSTS {
        let mut bytes = pattern(DATAGRAM * BURST);
        bytes[0] = burst as u8;
        socket.send_to(&bytes, to).context("a burst")?;
        socket.recv(&mut [0; 16]).context("no answer")?;
    }
    Ok(())
}

/// Receives them, and answers.
fn receive_bursts(socket: &UdpSocket) -> Result<()> {
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut datagram = [0; 2 * DATAGRAM];
    for burst in 0..BURSTS {
        let mut want = pattern(DATAGRAM * BURST);
        want[0] = burst as u8;
        for (i, want) in want.chunks(DATAGRAM).enumerate() {
            let (n, from) = socket
                .recv_from(&mut datagram)
                .with_context(|| format!("burst {burst}, datagram {i}"))?;
            ensure!(datagram[..n] == *want, "burst {burst}, datagram {i}");
            if i + 1 == BURST {
                socket.send_to(b"got it", from)?;
            }
        }
    }
    Ok(())
}

const DATAGRAM: usize = 1400;
const BURST: usize = 30;
const BURSTS: usize = 40;

/// Datagrams that leave a program as one frame stay one on the whole way.
#[test]
fn udp_segments_pass_uncut() -> Result<()> {
    let Some(k) = Kernels::new(1, 1500, 1)? else {
        return Ok(());
    };
    let near = UdpSocket::bind((NEAR, 0))?;
    let port = near.local_addr()?.port();
    let server = std::thread::spawn(move || receive_bursts(&near));
    k.far.run(move || send_bursts((NEAR, port)))?;
    server.join().map_err(|_| anyhow::anyhow!("panicked"))??;
    let port = k.far.run(|| {
        let far = UdpSocket::bind((FAR, 0))?;
        let port = far.local_addr()?.port();
        std::thread::spawn(move || receive_bursts(&far));
        Ok(port)
    })?;
    send_bursts((FAR, port))?;
    // The bursts, their answers, and what is said of addresses.
    for port in ["p0", "p1"] {
        let frames = k.rig.counter(port, "rx_frames") as usize;
        assert!(frames < BURSTS * BURST / 4, "{port}: {frames} frames");
        assert_eq!(k.rig.drops(port, DropReason::MalformedOffload), 0);
    }
    k.rig.finish(Copies::Unknown)
}

/// A kernel's bridge with the veth's other end, and an address at the bridge.
#[test]
fn a_linux_bridge() -> Result<()> {
    let Some(k) = Kernels::new(1, 1500, 1)? else {
        return Ok(());
    };
    k.far.ip(&["addr", "flush", "dev", ENDS[1]])?;
    let made = k
        .far
        .ip(&["link", "add", "br0", "type", "bridge", "forward_delay", "0"]);
    if let Err(error) = made {
        println!("skipped: a bridge: {error}");
        return k.rig.finish(Copies::Unknown);
    }
    k.far.ip(&["link", "set", ENDS[1], "master", "br0"])?;
    k.far.ip(&["addr", "add", &format!("{FAR}/24"), "dev", "br0"])?;
    k.far.ip(&["link", "set", "br0", "up"])?;
    let there = || ping(FAR, 1, 56).is_ok();
    ensure!(wait_for(there), "nobody answers behind the bridge");
    k.ping(1472)?;
    k.tcp(2)?;
    k.uncut("p0", 1448, 2);
    k.rig.finish(Copies::Unknown)
}

/// A port's speed is the line rate towards the wire, and can be changed under traffic.
#[test]
fn the_speed_of_a_port_holds_frames_back() -> Result<()> {
    let Some(veth) = Veth::new(1500)? else {
        return Ok(());
    };
    let clock = VirtualClock::new(Duration::from_micros(1));
    let mut rig = Rig::with_clock(clock.clone())?;
    let mac = rig.add("a")?;
    let mut port = tap(&veth, 1)?;
    for wrong in [0, 400_001] {
        port.speed_mbps = Some(wrong);
        let text = refusal(rig.nic.add_port(port.clone()))?;
        assert!(text.contains("is out of range: 1 to 400000 Mbit/s"), "{text}");
        assert!(rig.nic.ports().is_empty());
    }
    port.speed_mbps = Some(10);
    assert_eq!(rig.nic.add_port(port)?.spec.speed_mbps, Some(10));
    ensure!(wait_for(|| rig.nic.port("p0").is_ok_and(|p| p.up)));
    let wire = Wire::open(TAP)?;
    let mut guest = rig.attach("a", Options::default())?;
    let host = MacAddr([2, 0xaa, 0, 0, 0, 1]);
    // Time stands still between the steps. So many of 40 frames leave while ten would at `mbps`.
    let mut leave = |rig: &Rig, mbps: u64| -> Result<usize> {
        let before = wire_frames(&wire);
        assert_eq!(before, 0);
        for seq in 0..40 {
            guest.send_wait(0, &numbered(host, mac, number(seq), 1000), NetHdr::default());
        }
        guest.drain();
        rig.settle()?;
        // The credit of a port that was silent.
        let first = wire_frames(&wire);
        // A frame, and what is around it on a wire (IEEE 802.3): preamble, FCS, gap.
        clock.pass(Duration::from_nanos(10 * (1000 + 24) * 8 * 1000 / mbps));
        let counted = wire_frames(&wire);
        clock.pass(Duration::from_secs(1));
        assert_eq!(first + counted + wire_frames(&wire), 40);
        Ok(counted)
    };
    let as_said = |frames: usize| assert!((8..=12).contains(&frames), "{frames} frames");
    as_said(leave(&rig, 10)?);
    // The lower of the two acts.
    let rate = |rate| QosSpec {
        rate,
        ..QosSpec::default()
    };
    rig.nic.set_qos("p0", rate(5_000_000))?;
    assert_eq!(rig.nic.qos("p0")?.acting.rate, 5_000_000);
    as_said(leave(&rig, 5)?);
    assert_eq!(rig.nic.set_port_speed("p0", Some(2))?.spec.speed_mbps, Some(2));
    assert_eq!(rig.nic.qos("p0")?.acting.rate, 2_000_000);
    assert_eq!(rig.nic.qos("p0")?.spec.rate, 5_000_000);
    as_said(leave(&rig, 2)?);
    refusal(rig.nic.set_port_speed("p0", Some(400_001)))?;
    assert_eq!(rig.nic.port("p0")?.spec.speed_mbps, Some(2));
    rig.nic.set_port_speed("p0", None)?;
    assert_eq!(rig.nic.qos("p0")?.acting.rate, 5_000_000);
    rig.nic.set_qos("p0", rate(0))?;
    assert_eq!(rig.nic.qos("p0")?.acting.rate, 0);
    guest.detach()?;
    rig.finish(Copies::Unknown)
}

/// Numbered frames on the wire that nobody has looked at.
fn wire_frames(wire: &Wire) -> usize {
    std::iter::from_fn(|| wire.try_recv())
        .filter(|f| number_of(f).is_some())
        .count()
}

/// A kernel's ring that is full: what had no room is counted at the port, and nothing else is missing.
#[test]
fn a_full_ring_is_counted() -> Result<()> {
    const FRAMES: u64 = 6000;
    let Some(veth) = Veth::new(1500)? else {
        return Ok(());
    };
    // Time stands still: no frame waits too long.
    let clock = VirtualClock::new(Duration::from_micros(1));
    let mut rig = Rig::with_clock(clock)?;
    let mac = rig.add("a")?;
    rig.nic.add_port(veth.port("packet", ENDS[0])?)?;
    let mut guest = rig.attach("a", Options::default())?;
    rig.nic.set_dropless("a", 100)?;
    let wire = Wire::open(ENDS[1])?;
    let host = MacAddr([2, 0xaa, 0, 0, 0, 1]);
    // The port is not read while a frame waits for the guest's buffers.
    for seq in 0..FRAMES {
        wire.send(&numbered(mac, host, number(seq), 100))?;
        // The kernel has a queue of its own in between, which is not what this is about.
        if seq % 100 == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    assert!(wait_for(|| rig.nic.dropless("a").is_ok_and(|d| d.waiting > 0)));
    let (mut next, mut got) = (0, 0);
    let mut take = |until: &dyn Fn(u64) -> bool| {
        wait_for(|| {
            while let Some((_, _, frame)) = guest.try_recv(0) {
                if let Some(n) = number_of(&frame) {
                    assert!(n.seq >= next, "{n:?} after {next}");
                    (next, got) = (n.seq + 1, got + 1);
                }
            }
            until(got)
        })
    };
    // What the ring holds, beside what the guest had room for.
    assert!(take(&|got| got > 4096));
    // The kernel tells with the next frame that comes.
    wire.send(&numbered(mac, host, number(FRAMES), 100))?;
    let lost = || rig.drops("p0", DropReason::PortReceive);
    assert!(take(&|got| got + lost() == FRAMES + 1));
    assert!(lost() > 0);
    guest.detach()?;
    rig.finish(Copies::Unknown)
}

/// Without the right to open packet sockets, or to make TAP devices, the message names it.
#[test]
fn rights_that_are_missing_are_named() -> Result<()> {
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    let Some(veth) = Veth::new(1500)? else {
        return Ok(());
    };
    let rig = Rig::new(1)?;
    let (packet, tap) = (veth.port("packet", ENDS[0])?, tap(&veth, 1)?);
    // Rights are a thread's own.
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| -> Result<()> {
            let mut sets = capabilities(None)?;
            for set in [&mut sets.effective, &mut sets.permitted] {
                set.remove(CapabilitySet::NET_RAW | CapabilitySet::NET_ADMIN);
            }
            set_capabilities(None, sets)?;
            let text = refusal(rig.nic.add_port(packet))?;
            assert!(
                text.contains("packet socket of left needs the capability CAP_NET_RAW"),
                "{text}"
            );
            let text = refusal(rig.nic.add_port(tap))?;
            assert!(text.contains("tap0 needs the capability CAP_NET_ADMIN"), "{text}");
            assert!(rig.nic.ports().is_empty());
            Ok(())
        });
        thread.join().map_err(|_| anyhow::anyhow!("panicked"))?
    })?;
    rig.finish(Copies::Unknown)
}
