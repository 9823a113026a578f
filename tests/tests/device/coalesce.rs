//! Receive segment coalescing: what a guest sees of TCP segments that come together.

use anyhow::{Result, ensure};
use vnic_backend::AttachState;
use vnic_backend::settings::{AdapterSettings, OffloadKeys};
use vnic_tests::driver::packets::{Flow, eth, partial, pattern, segment, udp};
use vnic_tests::driver::pair::{Pair, big, flows};
use vnic_tests::driver::rig::{Copies, Rig, deadline};
use vnic_tests::driver::{Guest, Layout, NetHdr, OFFLOADS, Options, Wire, feature};

/// Payload of a full segment; an MTU of 1500 has room for it in IPv4 and IPv6, with timestamps and a tag.
const SEGMENT: usize = 1428;

/// The segments of `bytes`, the last with PSH.
fn segments(flow: &Flow, bytes: &[u8]) -> Vec<Vec<u8>> {
    let last = bytes.len().div_ceil(SEGMENT) - 1;
    let each = bytes.chunks(SEGMENT).enumerate();
    each.map(|(i, part)| segment(flow, i * SEGMENT, part, i == last))
        .collect()
}

/// Sends frames so that the device finds all of them at once.
fn burst(guest: &mut Guest, frames: &[(NetHdr, Vec<u8>)]) {
    guest.drain();
    for (hdr, frame) in frames {
        assert!(guest.stage(0, frame, *hdr));
    }
    guest.tx(0).ring.publish();
}

fn plain(frames: Vec<Vec<u8>>) -> Vec<(NetHdr, Vec<u8>)> {
    frames.into_iter().map(|f| (NetHdr::default(), f)).collect()
}

fn recv(guest: &mut Guest) -> (NetHdr, Vec<u8>) {
    let (hdr, _, frame) = guest.recv(0, deadline()).expect("a frame");
    (hdr, frame)
}

/// Offset of the TCP header, and bytes of all headers.
fn heads(flow: &Flow) -> (usize, usize) {
    let ip = if flow.v6 { 40 } else { 20 };
    let transport = 14 + 4 * usize::from(flow.vlan.is_some()) + ip;
    (transport, transport + 32)
}

/// The request of a frame that was made from segments of [`SEGMENT`] bytes.
fn request(flow: &Flow) -> NetHdr {
    let (transport, head) = heads(flow);
    NetHdr {
        flags: NetHdr::NEEDS_CSUM,
        gso_type: if flow.v6 {
            NetHdr::GSO_TCPV6
        } else {
            NetHdr::GSO_TCPV4
        },
        hdr_len: head as u16,
        gso_size: SEGMENT as u16,
        csum_start: transport as u16,
        csum_offset: 16,
    }
}

fn flow(from: vnic_backend::MacAddr, to: vnic_backend::MacAddr, v6: bool, port: u16) -> Flow {
    Flow {
        to,
        from,
        v6,
        vlan: None,
        port,
    }
}

/// Segments of a neighbour become one frame: with computed and with partial checksums, into buffers of one piece and of many,
/// merged ones and long ones.
#[test]
fn segments_of_a_neighbour_are_one_frame() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let (a, b) = (rig.add("a")?, rig.add("b")?);
    let mut ga = rig.attach("a", Options::default().with(OFFLOADS))?;
    let bytes = pattern(20 * SEGMENT + 99);
    let long = Options {
        rx_buffer: 66_000,
        queue_size: 64,
        ..Options::default()
    };
    let scattered = Options {
        rx_layout: Layout::Split(5),
        ..Options::default()
    };
    let mut units = 0;
    for options in [Options::default(), long.without(feature::MRG_RXBUF), scattered] {
        let mut gb = rig.attach("b", options.with(OFFLOADS))?;
        for flow in flows(b, a) {
            let whole = segments(&flow, &bytes);
            let left = whole.iter().map(|f| partial(&flow, f.clone()));
            let left: Vec<_> = left.map(|(f, hdr)| (hdr, f)).collect();
            for frames in [plain(whole.clone()), left] {
                burst(&mut ga, &frames);
                let (hdr, frame) = recv(&mut gb);
                assert_eq!(hdr, request(&flow), "{flow:?}");
                assert!(frame[heads(&flow).1..] == bytes, "{flow:?}");
                units += 1;
            }
        }
        rig.settle()?;
        assert!(gb.try_recv(0).is_none());
        gb.detach()?;
        rig.state("b", AttachState::Detached)?;
    }
    assert_eq!(rig.counter("b", "rx_rsc_events"), units);
    assert_eq!(rig.counter("b", "rx_rsc_packets"), 21 * units);
    assert_eq!(rig.counter("b", "rx_rsc_aborts"), 0);
    assert_eq!(rig.counter("b", "rx_frames"), units);
    assert_eq!(rig.counter("b", "rx_bytes"), rig.counter("b", "rx_rsc_bytes"));
    assert_eq!(rig.counter("b", "rx_tso_passed"), 0);
    rig.finish(Copies::Extra(0))
}

/// Flows between each other, other frames between them: each flow stays in order, and what must not join does not.
#[test]
fn flows_stay_in_order() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let (a, b) = (rig.add("a")?, rig.add("b")?);
    let mut ga = rig.attach("a", Options::default())?;
    let mut gb = rig.attach("b", Options::default().with(OFFLOADS))?;
    let [one, two] = [1000, 1001].map(|port| flow(a, b, port == 1001, port));
    let bytes = pattern(4 * SEGMENT);
    let (first, second) = (segments(&one, &bytes), segments(&two, &bytes));
    let mut frames = Vec::new();
    let udp = udp(&one, &pattern(300));
    let short = eth(b, a, [0x88, 0xb5], &[7; 46]);
    for i in 0..3 {
        frames.extend([first[i].clone(), second[i].clone(), udp.clone(), short.clone()]);
    }
    // FIN is alone, and behind what came before it; then a gap, and a wrong checksum.
    let mut fin = first[3].clone();
    let at = heads(&one).0;
    fin[at + 13] |= 1;
    let (sum, wrapped) = u16::from_be_bytes([fin[at + 16], fin[at + 17]]).overflowing_sub(1);
    fin[at + 16..at + 18].copy_from_slice(&(sum - u16::from(wrapped)).to_be_bytes());
    frames.push(fin.clone());
    let mut bad = second[3].clone();
    let end = bad.len() - 1;
    bad[end] ^= 1;
    frames.push(bad.clone());
    burst(&mut ga, &plain(frames));
    let mut got: Vec<_> = (0..10).map(|_| recv(&mut gb)).collect();
    // UDP and others overtake what waits.
    for _ in 0..3 {
        assert_eq!(got.remove(0), (NetHdr::default(), udp.clone()));
        assert_eq!(got.remove(0), (NetHdr::default(), short.clone()));
    }
    for (flow, end) in [(&one, &fin), (&two, &bad)] {
        let (hdr, frame) = got.remove(0);
        assert_eq!(hdr, request(flow));
        assert!(frame[heads(flow).1..] == bytes[..3 * SEGMENT]);
        assert_eq!(got.remove(0), (NetHdr::default(), end.clone()));
    }
    rig.settle()?;
    assert_eq!(rig.counter("b", "rx_rsc_packets"), 6);
    assert_eq!(rig.counter("b", "rx_rsc_aborts"), 2);
    rig.finish(Copies::Extra(0))
}

/// A guest whose driver does not take long frames gets each segment, and so does one whose key is 0: nothing is offered to it.
#[test]
fn keys_and_drivers_turn_it_off() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let (a, b) = (rig.add("a")?, rig.add("b")?);
    let mut ga = rig.attach("a", Options::default())?;
    let bytes = pattern(5 * SEGMENT);
    let tso = feature::GUEST_TSO4 | feature::GUEST_TSO6 | feature::GUEST_ECN;
    let keys = |rsc4, rsc6| OffloadKeys {
        rsc4,
        rsc6,
        ..OffloadKeys::default()
    };
    let rows = [
        (keys(true, true), tso, [false, false]),
        (keys(false, true), feature::GUEST_TSO4, [false, true]),
        (keys(true, false), feature::GUEST_TSO6, [true, false]),
        (keys(true, true), 0, [true, true]),
    ];
    for (offloads, lacking, joined) in rows {
        let settings = AdapterSettings {
            offloads,
            ..AdapterSettings::default()
        };
        rig.nic.configure_adapter("b", &settings)?;
        rig.nic.restart_adapter("b")?;
        let mut gb = rig.attach("b", Options::default().with(OFFLOADS).without(lacking))?;
        let offered = vhost::VhostBackend::get_features(gb.frontend()?)?;
        assert_eq!(offered & feature::GUEST_TSO4 != 0, offloads.rsc4);
        assert_eq!(offered & feature::GUEST_TSO6 != 0, offloads.rsc6);
        for (v6, joined) in [false, true].into_iter().zip(joined) {
            let flow = flow(a, b, v6, 9);
            let frames = segments(&flow, &bytes);
            burst(&mut ga, &plain(frames.clone()));
            if joined {
                let (hdr, frame) = recv(&mut gb);
                assert_eq!(hdr, request(&flow));
                assert!(frame[heads(&flow).1..] == bytes);
            } else {
                for frame in frames {
                    assert!(recv(&mut gb) == (NetHdr::default(), frame));
                }
            }
        }
        gb.detach()?;
        rig.state("b", AttachState::Detached)?;
    }
    rig.finish(Copies::Extra(0))
}

/// A driver with RSC_EXT is told how many segments there were.
#[test]
fn a_driver_with_rsc_ext_is_told_the_number() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let a = rig.add("a")?;
    let b = rig.add_with("b", |spec| spec.control_queue = true)?;
    let mut ga = rig.attach("a", Options::default().with(OFFLOADS))?;
    let mut gb = rig.attach("b", Options::default().with(OFFLOADS | feature::RSC_EXT))?;
    let flow = flow(a, b, false, 9);
    burst(&mut ga, &plain(segments(&flow, &pattern(7 * SEGMENT))));
    let (hdr, _) = recv(&mut gb);
    let wanted = NetHdr {
        flags: NetHdr::DATA_VALID | NetHdr::RSC_INFO,
        csum_start: 7,
        csum_offset: 0,
        ..request(&flow)
    };
    assert_eq!(hdr, wanted);
    rig.finish(Copies::Extra(0))
}

/// Bursts until some were coalesced; the bytes come as they were sent, however they came together.
fn stream(sender: &mut Guest, receiver: &mut Guest, flow: &Flow, coalesced: impl Fn() -> u64) -> Result<()> {
    let bytes = pattern(20 * SEGMENT);
    let until = deadline();
    let mut rounds = 0;
    while coalesced() == 0 || rounds < 20 {
        ensure!(std::time::Instant::now() < until, "nothing was coalesced");
        let whole = segments(flow, &bytes).into_iter().map(|f| partial(flow, f));
        let frames: Vec<_> = whole.map(|(f, hdr)| (hdr, f)).collect();
        burst(sender, &frames);
        let mut got = Vec::new();
        while got.len() < bytes.len() {
            let (_, frame) = recv(receiver);
            if frame.get(12..14) != Some(&[0x80, 0x35]) {
                got.extend_from_slice(&frame[heads(flow).1..]);
            }
        }
        ensure!(got == bytes, "other bytes");
        rounds += 1;
    }
    Ok(())
}

/// Between cores the receiver's core coalesces.
#[test]
fn segments_from_another_core() -> Result<()> {
    let mut rig = Rig::new(2)?;
    let (a, b) = (rig.add("a")?, rig.add("b")?);
    let mut ga = rig.attach("a", Options::default().with(OFFLOADS))?;
    let mut gb = rig.attach("b", Options::default().with(OFFLOADS))?;
    for v6 in [false, true] {
        let before = rig.counter("b", "rx_rsc_events");
        let coalesced = || rig.counter("b", "rx_rsc_events") - before;
        stream(&mut ga, &mut gb, &flow(a, b, v6, 9), coalesced)?;
    }
    ga.drain();
    rig.finish(Copies::Extra(0))
}

#[test]
fn segments_from_a_tap_port() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let b = rig.add("b")?;
    let ifname = format!("vnrsc{}", std::process::id());
    let Some(wire) = Wire::of_port(&rig, &ifname, None)? else {
        return Ok(());
    };
    let mut gb = rig.attach("b", Options::default().with(OFFLOADS))?;
    let flow = flow(vnic_backend::MacAddr([2, 9, 9, 9, 9, 9]), b, true, 9);
    let bytes = pattern(20 * SEGMENT);
    let until = deadline();
    while rig.counter("b", "rx_rsc_events") == 0 {
        ensure!(std::time::Instant::now() < until, "nothing was coalesced");
        for frame in segments(&flow, &bytes) {
            wire.send(&frame)?;
        }
        let mut got = Vec::new();
        while got.len() < bytes.len() {
            let (_, frame) = recv(&mut gb);
            if is_of(&frame, &flow) {
                got.extend_from_slice(&frame[heads(&flow).1..]);
            }
        }
        ensure!(got == bytes, "other bytes");
    }
    Ok(())
}

/// Whether a frame is of the flow: the host's kernel sends frames of its own.
fn is_of(frame: &[u8], flow: &Flow) -> bool {
    let at = heads(flow).0;
    frame.get(at..at + 4) == Some(&[0, flow.port as u8, 0, 80])
}

fn segments_from_a_port(kind: &str, cores: usize) -> Result<()> {
    let Some(mut pair) = Pair::new(kind, cores, 1500, [big().with(OFFLOADS), big().with(OFFLOADS)])? else {
        return Ok(());
    };
    let [a, b] = pair.macs;
    for flow in flows(b, a) {
        let before = pair.rigs[1].counter("a", "rx_rsc_events");
        let [ga, gb] = &mut pair.guests[..] else {
            unreachable!()
        };
        let coalesced = || pair.rigs[1].counter("a", "rx_rsc_events") - before;
        stream(ga, gb, &flow, coalesced)?;
    }
    pair.finish()
}

#[test]
fn segments_from_a_packet_port() -> Result<()> {
    segments_from_a_port("packet", 1)
}

#[test]
fn segments_from_a_packet_port_of_another_core() -> Result<()> {
    segments_from_a_port("packet", 2)
}

#[test]
fn segments_from_an_xdp_port() -> Result<()> {
    segments_from_a_port("xdp", 1)
}
