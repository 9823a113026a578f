//! The Ethernet function with its own configuration space and control queue: what a driver sets acts on its frames.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::Result;
use vhost::vhost_user::VhostUserFrontend as _;
use vhost::vhost_user::message::VhostUserConfigFlags;
use vnic_backend::{MacAddr, NicEventKind, RdmaPort, VirtualClock, hash_type};
use vnic_tests::driver::packets::{BROADCAST, Flow, Number, eth, numbered, tagged, tso, udp};
use vnic_tests::driver::rig::{Copies, Rig, wait_for};
use vnic_tests::driver::{Guest, NetHdr, OFFLOADS, Options, feature};

/// Everything that a driver may ask of the control queue.
const CONTROL: u64 = feature::CTRL_VQ
    | feature::CTRL_RX
    | feature::CTRL_RX_EXTRA
    | feature::CTRL_VLAN
    | feature::CTRL_MAC_ADDR
    | feature::CTRL_GUEST_OFFLOADS
    | feature::MQ
    | feature::RSS
    | feature::NOTF_COAL
    | feature::VQ_NOTF_COAL
    | feature::DEVICE_STATS
    | feature::MAC
    | feature::MTU
    | feature::STATUS;

pub const OK: [u8; 1] = [0];
pub const ERR: [u8; 1] = [1];
const OTHER: MacAddr = MacAddr([2, 0, 0, 0, 9, 9]);
const GROUP: MacAddr = MacAddr([0x33, 0x33, 0, 0, 0, 7]);

/// A sender `a` and a guest `b` with a control queue.
pub fn pair(rig: &mut Rig, pairs: u16, features: u64) -> Result<(Guest, Guest, [MacAddr; 2])> {
    let a = rig.add("a")?;
    let b = rig.add_with("b", |spec| {
        (spec.control_queue, spec.queue_pairs) = (true, pairs);
    })?;
    let sender = Options::default().with(OFFLOADS & features);
    let sender = Options {
        tx_buffer: 16384,
        ..sender
    };
    let receiver = Options {
        pairs,
        ..Options::default().with(CONTROL | features)
    };
    Ok((rig.attach("a", sender)?, rig.attach("b", receiver)?, [a, b]))
}

/// Sends a frame and says which pair of the other guest got it, within a round trip of a frame that nobody filters.
pub fn through(rig: &Rig, a: &mut Guest, b: &mut Guest, frame: &[u8]) -> Result<Option<u16>> {
    a.send_wait(0, frame, NetHdr::default());
    a.drain();
    rig.settle()?;
    Ok(b.try_recv_any().map(|(pair, _, got)| {
        assert_eq!(got, frame);
        pair
    }))
}

fn numbered_to(to: MacAddr, from: MacAddr) -> Vec<u8> {
    let number = Number {
        sender: 0,
        stream: 0,
        seq: 1,
    };
    numbered(to, from, number, 80)
}

#[test]
fn modes_addresses_and_vlans_filter() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let (mut a, mut b, macs) = pair(&mut rig, 1, 0)?;
    let to = |to| numbered_to(to, macs[0]);
    let frames = [
        to(macs[1]),
        to(OTHER),
        to(GROUP),
        to(BROADCAST),
        tagged(&to(macs[1]), 5),
    ];
    let mut seen = |rig: &Rig, b: &mut Guest| -> Result<Vec<bool>> {
        let got = frames.iter().map(|frame| through(rig, &mut a, b, frame));
        got.map(|got| Ok(got?.is_some())).collect()
    };
    // A driver that has said nothing gets all.
    assert_eq!(seen(&rig, &mut b)?, [true; 5]);
    let rows: [(&str, &[u8], [bool; 5]); 8] = [
        ("promiscuous off", &[0, 0, 0], [true, false, false, true, false]),
        ("all multicast", &[0, 1, 1], [true, false, true, true, false]),
        ("not all multicast", &[0, 1, 0], [true, false, false, true, false]),
        (
            "addresses",
            &[
                1, 0, 1, 0, 0, 0, 2, 0, 0, 0, 9, 9, 1, 0, 0, 0, 0x33, 0x33, 0, 0, 0, 7,
            ],
            [true, true, true, true, false],
        ),
        ("VLAN 5", &[2, 0, 5, 0], [true; 5]),
        ("without it", &[2, 1, 5, 0], [true, true, true, true, false]),
        ("no broadcast", &[0, 5, 1], [true, true, true, false, false]),
        ("promiscuous", &[0, 0, 1], [true; 5]),
    ];
    let mut filtered = 0;
    for (name, command, expected) in rows {
        assert_eq!(b.command(command, 1)?, OK, "{name}");
        assert_eq!(seen(&rig, &mut b)?, expected, "{name}");
        filtered += expected.iter().filter(|seen| !**seen).count() as u64;
        assert_eq!(rig.counter("b", "drops"), filtered, "{name}");
    }
    let driver = rig.nic.ethernet_driver("b")?.expect("a driver");
    assert!(driver.filter.modes().eq(["promiscuous", "no_broadcast"]));
    assert_eq!(driver.commands, [8, 8]);
    rig.finish(Copies::Extra(0))
}

#[test]
fn a_guest_may_have_its_own_addresses_only() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let mac = rig.add_with("b", |spec| {
        (spec.control_queue, spec.anti_spoofing) = (true, true)
    })?;
    let mut b = rig.attach("b", Options::default().with(CONTROL))?;
    assert_eq!(b.command(&[&[1, 1][..], &OTHER.0].concat(), 1)?, ERR);
    assert_eq!(b.command(&[&[1, 1][..], &mac.0].concat(), 1)?, OK);
    rig.finish(Copies::Extra(0))
}

#[test]
fn the_configuration_space_is_the_devices() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let mac = rig.add_with("b", |spec| {
        (spec.control_queue, spec.queue_pairs, spec.mtu) = (true, 4, 9000);
    })?;
    let mut b = rig.attach(
        "b",
        Options {
            pairs: 4,
            ..Options::default().with(CONTROL)
        },
    )?;
    let flags = VhostUserConfigFlags::empty();
    let (_, space) = b.frontend()?.get_config(0, 24, flags, &[0; 24])?;
    assert_eq!(space[..6], mac.0);
    assert_eq!(space[6..12], [1, 0, 4, 0, 0x28, 0x23], "link, pairs, MTU");
    assert_eq!(space[16..20], [1, 40, 128, 0], "duplex, key, table");
    assert_eq!(space[20..24], hash_type::ALL.to_le_bytes());
    assert_eq!(b.frontend()?.get_queue_num()?, 9, "virtqueues, not pairs");
    // A part of it.
    let (_, part) = b.frontend()?.get_config(8, 2, flags, &[0; 2])?;
    assert_eq!(part, [4, 0]);
    rig.finish(Copies::Extra(0))
}

/// A port that an operator takes down, or makes slower: the space says so, and the VMM hears of each change.
#[test]
fn the_configuration_space_has_news() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let socket = rig.socket("b-rdma");
    rig.add_with("b", |spec| {
        (spec.control_queue, spec.rdma_socket) = (true, Some(socket));
    })?;
    let mut b = rig.attach("b", Options::default().with(CONTROL))?;
    let (mut news, theirs) = UnixStream::pair()?;
    b.frontend()?.set_backend_request_fd(&theirs)?;
    drop(theirs);
    let space = |b: &mut Guest| -> Result<Vec<u8>> {
        let flags = VhostUserConfigFlags::empty();
        let (_, space) = b.frontend()?.get_config(6, 10, flags, &[0; 10])?;
        Ok([&space[..2], &space[6..]].concat())
    };
    let up = space(&mut b)?;
    assert_eq!(up[..2], [1, 0]);
    let down = RdmaPort {
        down: true,
        speed: Some(1000),
        ..RdmaPort::default()
    };
    // What does not change is no news.
    for port in [down, down, RdmaPort::default()] {
        rig.nic.set_rdma_port("b", port)?;
    }
    rig.nic.set_rdma_port("b", down)?;
    assert_eq!(space(&mut b)?, [0, 0, 0xe8, 3, 0, 0]);
    let mut heard = [0; 36];
    news.read_exact(&mut heard)?;
    assert_eq!(heard, [2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0].repeat(3)[..]);
    rig.nic.set_rdma_port("b", RdmaPort::default())?;
    assert_eq!(space(&mut b)?, up);
    // A VMM that reads nothing does not hold up the NIC.
    for i in 0..5000 {
        let speed = Some(1000 + i);
        rig.nic.set_rdma_port("b", RdmaPort { speed, ..down })?;
    }
    rig.finish(Copies::Extra(0))
}

/// A guest that was moved announces itself when the configuration space says so, and acknowledges that.
#[test]
fn a_guest_is_asked_to_announce_itself() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let mac = rig.add_with("b", |spec| spec.control_queue = true)?;
    let mut b = rig.attach("b", Options::default().with(CONTROL | feature::GUEST_ANNOUNCE))?;
    let (mut news, theirs) = UnixStream::pair()?;
    b.frontend()?.set_backend_request_fd(&theirs)?;
    drop(theirs);
    let status = |b: &mut Guest| -> Result<Vec<u8>> {
        let flags = VhostUserConfigFlags::empty();
        Ok(b.frontend()?.get_config(6, 2, flags, &[0; 2])?.1)
    };
    assert_eq!(status(&mut b)?, [1, 0]);
    b.send_rarp(mac)?;
    let mut heard = [0; 12];
    news.read_exact(&mut heard)?;
    assert_eq!(heard, [2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(status(&mut b)?, [3, 0]);
    assert_eq!(b.command(&[3, 0, 1], 1)?, ERR, "one byte too many");
    assert_eq!(status(&mut b)?, [3, 0]);
    assert_eq!(b.command(&[3, 0], 1)?, OK);
    assert_eq!(status(&mut b)?, [1, 0]);
    rig.finish(Copies::Extra(0))
}

/// The Toeplitz hash, bit by bit.
pub fn toeplitz(key: &[u8], input: &[u8]) -> u32 {
    let bit = |bytes: &[u8], i: usize| bytes.get(i / 8).map_or(0, |b| b >> (7 - i % 8) & 1);
    let window = |at| (0..32).fold(0, |sum, i| sum << 1 | u32::from(bit(key, at + i)));
    let set = (0..8 * input.len()).filter(|i| bit(input, *i) == 1);
    set.fold(0, |sum, i| sum ^ window(i))
}

pub fn flow(macs: [MacAddr; 2], port: u16) -> Flow {
    Flow {
        to: macs[1],
        from: macs[0],
        v6: false,
        vlan: None,
        port,
    }
}

#[test]
fn rss_spreads_by_the_hash_and_reports_it() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let (mut a, mut b, macs) = pair(&mut rig, 4, feature::HASH_REPORT)?;
    let key = std::array::from_fn(|i| (i as u8).wrapping_mul(73).wrapping_add(11));
    let table = [3, 1, 0, 2, 2, 0, 1, 3];
    assert_eq!(b.rss(&table, &key)?, OK);
    let mut used = BTreeSet::new();
    for port in 1000..1040 {
        let frame = udp(&flow(macs, port), b"to a queue");
        let pair = through(&rig, &mut a, &mut b, &frame)?.expect("a frame");
        let input = [&frame[26..34], &frame[34..38]].concat();
        let hash = toeplitz(&key, &input);
        assert_eq!(b.hash, (hash, 3), "value and type of port {port}");
        assert_eq!(pair, table[hash as usize % 8], "port {port}");
        used.insert(pair);
    }
    assert_eq!(used.len(), 4);
    // A frame without a hash goes to the first queue, and says so.
    let plain = numbered_to(macs[1], macs[0]);
    assert_eq!(
        (through(&rig, &mut a, &mut b, &plain)?, b.hash),
        (Some(0), (0, 0))
    );
    // A table that has one queue sends all there; one that names a queue that is not there changes nothing.
    assert_eq!(b.rss(&[2], &key)?, OK);
    assert_eq!(b.rss(&[4], &key)?, ERR);
    for port in 1000..1010 {
        assert_eq!(
            through(&rig, &mut a, &mut b, &udp(&flow(macs, port), b"one"))?,
            Some(2)
        );
    }
    rig.finish(Copies::Extra(0))
}

#[test]
fn a_flow_comes_by_the_pair_that_sends_it() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let (mut a, mut b, macs) = pair(&mut rig, 4, 0)?;
    // One pair until the driver wants more.
    for port in 0..8 {
        assert_eq!(
            through(&rig, &mut a, &mut b, &udp(&flow(macs, 1000 + port), b"first"))?,
            Some(0)
        );
    }
    assert_eq!(b.command(&[4, 0, 4, 0], 1)?, OK);
    let mut spread = BTreeSet::new();
    for port in 0..64 {
        spread.extend(through(
            &rig,
            &mut a,
            &mut b,
            &udp(&flow(macs, 1000 + port), b"all"),
        )?);
    }
    assert_eq!(spread, BTreeSet::from([0, 1, 2, 3]));
    for (port, by) in (0..16).map(|i| (1000 + i, i % 4)) {
        let there = udp(&flow(macs, port), b"there");
        // The answer of the guest, with addresses and ports exchanged.
        let mut back = eth(macs[0], macs[1], [0x08, 0x00], &there[14..]);
        back[26..30].copy_from_slice(&there[30..34]);
        back[30..34].copy_from_slice(&there[26..30]);
        back[34..36].copy_from_slice(&there[36..38]);
        back[36..38].copy_from_slice(&there[34..36]);
        b.send_wait(by, &back, NetHdr::default());
        b.drain();
        rig.settle()?;
        assert!(a.try_recv(0).is_some());
        assert_eq!(through(&rig, &mut a, &mut b, &there)?, Some(by), "port {port}");
    }
    rig.finish(Copies::Extra(0))
}

#[test]
fn offloads_are_turned_off_and_on() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let (mut a, mut b, macs) = pair(&mut rig, 1, OFFLOADS)?;
    let (frame, hdr) = tso(&flow(macs, 7), &[3; 4000], 1000);
    let mut got = |rig: &Rig, b: &mut Guest| -> Result<Vec<u8>> {
        a.send_wait(0, &frame, hdr);
        a.drain();
        rig.settle()?;
        Ok(std::iter::from_fn(|| b.try_recv(0))
            .map(|(hdr, _, _)| hdr.gso_type)
            .collect())
    };
    assert_eq!(got(&rig, &mut b)?, [NetHdr::GSO_TCPV4]);
    let offloads = |bits: u64| [&[5, 0][..], &bits.to_le_bytes()].concat();
    assert_eq!(b.command(&offloads(feature::GUEST_CSUM), 1)?, OK);
    assert_eq!(got(&rig, &mut b)?, [NetHdr::GSO_NONE; 4]);
    assert_eq!(
        b.command(&offloads(feature::GUEST_CSUM | feature::GUEST_TSO4), 1)?,
        OK
    );
    assert_eq!(got(&rig, &mut b)?, [NetHdr::GSO_TCPV4]);
    assert_eq!(b.command(&offloads(feature::MRG_RXBUF), 1)?, ERR);
    rig.finish(Copies::Extra(3))
}

/// What a driver has set outlives a change of its memory and a pause of its rings, and ends with a reset.
#[test]
fn what_is_set_stays_until_a_reset() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let (mut a, mut b, macs) = pair(&mut rig, 2, 0)?;
    let foreign = numbered_to(OTHER, macs[0]);
    let wanted = |rig: &Rig, a: &mut Guest, b: &mut Guest| through(rig, a, b, &foreign);
    assert_eq!(b.command(&[0, 0, 0], 1)?, OK);
    assert_eq!(wanted(&rig, &mut a, &mut b)?, None);
    b.set_mem_table()?;
    assert_eq!(wanted(&rig, &mut a, &mut b)?, None, "after a change of memory");
    assert_eq!(b.command(&[0, 1, 1], 1)?, OK);
    let bases: Vec<_> = (0..5).map(|i| b.stop_ring(i)).collect::<Result<_>>()?;
    assert_eq!(bases[4], 2, "commands");
    b.start_rings()?;
    rig.up("b")?;
    assert_eq!(wanted(&rig, &mut a, &mut b)?, None, "after a pause");
    b.reset()?;
    rig.up("b")?;
    assert!(wanted(&rig, &mut a, &mut b)?.is_some(), "after a reset");
    assert_eq!(rig.nic.ethernet_driver("b")?.map(|d| d.commands), Some([0, 0]));
    // A daemon that did not hear what a driver has set gives it all it may want.
    assert_eq!(b.command(&[0, 0, 0], 1)?, OK);
    b.detach()?;
    assert!(wait_for(|| rig
        .nic
        .ethernet_driver("b")
        .is_ok_and(|d| d.is_none())));
    b.connect(rig.socket("b"))?;
    rig.up("b")?;
    assert!(
        wanted(&rig, &mut a, &mut b)?.is_some(),
        "after another connection"
    );
    assert_eq!(rig.nic.ethernet_driver("b")?.map(|d| d.pairs), Some(2));
    rig.finish(Copies::Unknown)
}

#[test]
fn interrupts_come_as_the_driver_has_set() -> Result<()> {
    let clock = VirtualClock::new(Duration::from_micros(1));
    let mut rig = Rig::with_clock(clock)?;
    let a = rig.add("a")?;
    let to = rig.add_with("b", |spec| spec.control_queue = true)?;
    let mut a = (rig.attach("a", Options::default())?, a);
    let mut b = rig.attach(
        "b",
        Options {
            calls: true,
            ..Options::default().with(CONTROL)
        },
    )?;
    // Eight frames, or a second.
    let command = [&[6, 1][..], &8u32.to_le_bytes(), &1_000_000u32.to_le_bytes()].concat();
    assert_eq!(b.command(&command, 1)?, OK);
    let frame = numbered_to(to, a.1);
    let mut send = |rig: &Rig| {
        a.0.send_wait(0, &frame, NetHdr::default());
        a.0.drain();
        rig.settle()
    };
    b.rx(0).ring.calls();
    let mut calls = Vec::new();
    for _ in 0..16 {
        send(&rig)?;
        // (Nothing is taken, so that the guest goes on asking for an interrupt.)
        calls.push(b.rx(0).ring.calls());
    }
    assert_eq!(calls.iter().sum::<u64>(), 2, "{calls:?}");
    assert_eq!((calls[7], calls[15]), (1, 1), "{calls:?}");
    assert!(rig.counter("b", "rx_notifications_coalesced") >= 14);
    rig.finish(Copies::Extra(0))
}

#[test]
fn statistics_are_the_devices() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let (mut a, mut b, macs) = pair(&mut rig, 2, 0)?;
    for _ in 0..3 {
        through(&rig, &mut a, &mut b, &numbered_to(macs[1], macs[0]))?;
    }
    rig.settle()?;
    let of = |queue: u16, types: u64| [&queue.to_le_bytes()[..], &[0; 6], &types.to_le_bytes()].concat();
    let ask = [&[8, 1][..], &of(0, 1), &of(4, 1 << 32)].concat();
    let reply = b.command(&ask, 200)?;
    let word = |at: usize| u64::from_le_bytes(reply[at..at + 8].try_into().expect("eight bytes"));
    assert_eq!(reply.len(), 1 + 56 + 24);
    assert_eq!(
        (word(17), word(25)),
        (3, 240),
        "packets and bytes of the first receive queue"
    );
    assert_eq!((word(65), word(73)), (1, 0), "commands, this one is not done yet");
    rig.finish(Copies::Extra(0))
}

/// A driver that writes nonsense hurts nobody, itself no more than by refused commands and a control queue that stops.
#[test]
fn nonsense_on_the_control_queue() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let (mut a, mut b, macs) = pair(&mut rig, 2, 0)?;
    for command in [
        &[][..],
        &[9],
        &[0, 9, 1],
        &[4, 0, 0, 0],
        &[1, 0, 255, 255, 255, 255],
        &[7; 9000],
    ] {
        assert_eq!(b.command(command, 1)?, ERR);
    }
    // Without room for an answer nothing is done.
    let before = rig.nic.ethernet_driver("b")?;
    assert!(b.command(&[0, 0, 0], 0)?.is_empty());
    assert_eq!(rig.nic.ethernet_driver("b")?, before);
    // A chain that is none.
    let ring = b.control().expect("a control queue");
    ring.set_avail(ring.avail_idx, 999);
    ring.avail_idx = ring.avail_idx.wrapping_add(1);
    ring.publish();
    ring.kick();
    rig.wait_event("b", |kind| {
        matches!(kind, NicEventKind::RingFault { ring: 4, .. })
    })?;
    let frame = numbered_to(macs[1], macs[0]);
    assert!(through(&rig, &mut a, &mut b, &frame)?.is_some(), "frames go on");
    b.reset()?;
    rig.up("b")?;
    assert_eq!(b.command(&[0, 0, 0], 1)?, OK);
    rig.finish(Copies::Unknown)
}

/// A VMM with its own control queue is not offered ours.
#[test]
fn a_netdev_sees_nothing_of_it() -> Result<()> {
    let mut rig = Rig::new(1)?;
    rig.add("a")?;
    assert!(Guest::attach(rig.socket("a"), Options::default().with(feature::CTRL_VQ)).is_err());
    let mut a = rig.attach("a", Options::default())?;
    let offered = a.frontend()?.get_protocol_features()?;
    assert!(!offered.contains(vhost::vhost_user::message::VhostUserProtocolFeatures::CONFIG));
    assert_eq!(rig.nic.ethernet_driver("a")?, None);
    rig.finish(Copies::Extra(0))
}

/// What a key switches off is not offered to the guest that attaches next.
#[test]
fn keys_of_offloads_withhold_features() -> Result<()> {
    use vnic_backend::settings::{AdapterSettings, OffloadKeys};
    type Change = fn(&mut OffloadKeys);
    let mut rig = Rig::new(1)?;
    rig.add_with("b", |spec| spec.control_queue = true)?;
    let segments = feature::HOST_TSO4 | feature::HOST_TSO6 | feature::HOST_ECN | feature::HOST_USO;
    let joined = OFFLOADS & !segments & !feature::CSUM;
    let rows: [(&str, Change, u64); 10] = [
        (
            "*EncapsulatedPacketTaskOffload",
            |o| o.tunnels.any = false,
            feature::HASH_TUNNEL,
        ),
        ("*LsoV2IPv4", |o| o.lso4 = false, feature::HOST_TSO4),
        ("*LsoV2IPv6", |o| o.lso6 = false, feature::HOST_TSO6),
        ("*UsoIPv6", |o| o.uso6 = false, feature::HOST_USO),
        ("*RSS", |o| o.rss = false, feature::RSS),
        ("*RscIPv4", |o| o.rsc4 = false, feature::GUEST_TSO4),
        ("*RscIPv6", |o| o.rsc6 = false, feature::GUEST_TSO6),
        (
            "*TCPChecksumOffloadIPv4",
            |o| o.tcp4 = 1,
            joined | feature::RSC_EXT,
        ),
        (
            "*UDPChecksumOffloadIPv6",
            |o| o.udp6 = 2,
            feature::CSUM | segments | feature::RSC_EXT,
        ),
        ("both directions", |o| o.udp4 = 0, OFFLOADS | feature::RSC_EXT),
    ];
    let offered = |rig: &mut Rig, offloads: OffloadKeys| -> Result<u64> {
        let settings = AdapterSettings {
            offloads,
            ..AdapterSettings::default()
        };
        rig.nic.configure_adapter("b", &settings)?;
        rig.nic.restart_adapter("b")?;
        let mut guest = rig.attach("b", Options::default())?;
        let offered = vhost::VhostBackend::get_features(guest.frontend()?)?;
        guest.detach()?;
        rig.state("b", vnic_backend::AttachState::Detached)?;
        Ok(offered)
    };
    let all = offered(&mut rig, OffloadKeys::default())?;
    assert_eq!(all & (OFFLOADS | feature::RSS), OFFLOADS | feature::RSS);
    for (key, change, withheld) in rows {
        let mut offloads = OffloadKeys::default();
        change(&mut offloads);
        assert_eq!(all & !offered(&mut rig, offloads)?, withheld, "{key}");
    }
    rig.finish(Copies::Extra(0))
}

/// `*NumRSSQueues`: a driver is told of fewer queue pairs than the adapter has, and its control queue is behind those.
#[test]
fn a_key_bounds_the_queue_pairs() -> Result<()> {
    use vnic_backend::settings::AdapterSettings;
    let mut rig = Rig::new(1)?;
    let mac = rig.add_with("b", |spec| {
        (spec.control_queue, spec.queue_pairs) = (true, 4);
    })?;
    let a = rig.add("a")?;
    let mut settings = AdapterSettings::default();
    settings.offloads.rss_queues = 2;
    rig.nic.configure_adapter("b", &settings)?;
    rig.nic.restart_adapter("b")?;
    let options = Options {
        pairs: 2,
        ..Options::default().with(CONTROL)
    };
    let mut b = rig.attach("b", options)?;
    assert_eq!(b.frontend()?.get_queue_num()?, 5);
    let (_, space) = b
        .frontend()?
        .get_config(8, 2, VhostUserConfigFlags::WRITABLE, &[0; 2])?;
    assert_eq!(space, [2, 0]);
    assert_eq!(b.command(&[4, 0, 3, 0], 1)?, ERR);
    assert_eq!(b.command(&[4, 0, 2, 0], 1)?, OK);
    let mut sender = rig.attach("a", Options::default())?;
    assert!(through(&rig, &mut sender, &mut b, &numbered_to(mac, a))?.is_some());
    rig.finish(Copies::Extra(0))
}
