//! Uplinks over network devices: two NICs whose ports are the ends of a veth pair.

use anyhow::{Context, Result, ensure};
use vnic_backend::{DropReason, MacAddr, NicEventKind};
use vnic_tests::driver::packets::{
    BROADCAST, FIRST_SEQ, Flow, Number, eth, numbered, parse, pattern, tagged, tso, udp, udp_partial,
};
use vnic_tests::driver::rig::{Copies, Rig, deadline, wait_for};
use vnic_tests::driver::veth::{ENDS, Veth, ip, refusal};
use vnic_tests::driver::{Guest, NetHdr, OFFLOADS, Options};

fn n(seq: u64) -> Number {
    Number {
        sender: 1,
        stream: 0,
        seq,
    }
}

fn big() -> Options {
    Options {
        tx_buffer: 66000,
        queue_size: 64,
        ..Options::default()
    }
}

/// Two NICs on a wire, an adapter and its guest at each.
struct Pair {
    veth: Veth,
    rigs: [Rig; 2],
    macs: [MacAddr; 2],
    guests: Vec<Guest>,
}

impl Pair {
    fn new(kind: &str, cores: usize, mtu: u16, options: [Options; 2]) -> Result<Option<Pair>> {
        let Some(veth) = Veth::new(mtu)? else {
            return Ok(None);
        };
        let mut rigs = [Rig::new(cores)?, Rig::new(cores)?];
        let mut macs = [MacAddr([0; 6]); 2];
        let mut guests = Vec::new();
        for (i, options) in options.into_iter().enumerate() {
            // Addresses of the two must differ.
            let mac = MacAddr([2, 0x33, 0, 0, 0, i as u8 + 1]);
            macs[i] = rigs[i].add_with("a", |s| (s.macs, s.mtu) = (vec![mac], mtu))?;
            let status = rigs[i].nic.add_port(veth.port(kind, ENDS[i])?)?;
            ensure!(status.up && status.problem.is_none());
            guests.push(rigs[i].attach("a", options)?);
        }
        Ok(Some(Pair {
            veth,
            rigs,
            macs,
            guests,
        }))
    }

    /// Sends a frame from one guest, and waits for what the other gets of it.
    fn carry(&mut self, from: usize, frame: &[u8], hdr: NetHdr) -> Result<(NetHdr, Vec<u8>)> {
        self.guests[from].send_wait(0, frame, hdr);
        self.recv(1 - from)
    }

    /// What a guest gets next, announcements aside.
    fn recv(&mut self, at: usize) -> Result<(NetHdr, Vec<u8>)> {
        loop {
            let (hdr, _, frame) = self.guests[at].recv(0, deadline()).context("no frame")?;
            if frame.get(12..14) != Some(&[0x80, 0x35]) {
                return Ok((hdr, frame));
            }
        }
    }

    fn finish(mut self) -> Result<()> {
        for guest in &mut self.guests {
            guest.detach()?;
        }
        for rig in self.rigs {
            rig.finish(Copies::Unknown)?;
        }
        Ok(())
    }
}

/// Frames of all lengths, with and without tags.
fn frames(kind: &str, cores: usize, mtu: u16) -> Result<()> {
    let Some(mut pair) = Pair::new(kind, cores, mtu, [big(), big()])? else {
        return Ok(());
    };
    let [a, b] = pair.macs;
    let longest = usize::from(mtu) + 14;
    for i in 0..60 {
        let len = 60 + (longest - 60) * i / 59;
        for (from, to, source) in [(0, b, a), (1, a, b), (0, BROADCAST, a)] {
            let frame = numbered(to, source, n(i as u64), len);
            assert_eq!(
                pair.carry(from, &frame, NetHdr::default())?,
                (NetHdr::default(), frame.clone())
            );
            let frame = tagged(&frame, 0x6007);
            assert_eq!(
                pair.carry(from, &frame, NetHdr::default())?,
                (NetHdr::default(), frame)
            );
        }
    }
    for rig in &pair.rigs {
        assert!(rig.counter("p0", "rx_frames") >= 120);
        assert!(rig.counter("p0", "tx_frames") >= 120);
        let device = rig.nic.port("p0")?.device.context("no device")?;
        let value = |name: &str| device.statistics.iter().find(|(n, _)| n == name).map(|(_, v)| *v);
        assert!(value("rx_packets") >= Some(120), "{device:?}");
        assert!(value("peer_ifindex").is_some(), "the driver's own: {device:?}");
        assert_eq!(device.speed_mbps, Some(10_000));
    }
    pair.finish()
}

#[test]
fn packet_frames() -> Result<()> {
    frames("packet", 1, 1500)
}

#[test]
fn packet_frames_between_cores() -> Result<()> {
    frames("packet", 2, 1500)
}

#[test]
fn packet_jumbo_frames() -> Result<()> {
    frames("packet", 1, 9000)
}

fn flows(to: MacAddr, from: MacAddr) -> Vec<Flow> {
    let all = [(false, None), (false, Some(7)), (true, None), (true, Some(7))];
    let flow = |(v6, vlan)| Flow {
        to,
        from,
        v6,
        vlan,
        port: 1000,
    };
    all.into_iter().map(flow).collect()
}

/// What a guest leaves unfinished reaches the other unfinished: nobody computes or cuts anything.
#[test]
fn packet_offloads_pass() -> Result<()> {
    let options = [big().with(OFFLOADS), big().with(OFFLOADS)];
    let Some(mut pair) = Pair::new("packet", 1, 1500, options)? else {
        return Ok(());
    };
    let [a, b] = pair.macs;
    for flow in flows(b, a) {
        let (frame, hdr) = udp_partial(&flow, &pattern(777));
        assert_eq!(pair.carry(0, &frame, hdr)?, (hdr, frame), "{flow:?}");
        for len in [1401, 9_000, 60_000] {
            let (frame, hdr) = tso(&flow, &pattern(len), 1400);
            let got = pair.carry(0, &frame, hdr)?;
            assert_eq!(got.0, hdr, "{flow:?}");
            assert!(got.1 == frame, "{flow:?} {len}");
        }
    }
    assert_eq!(pair.rigs[1].counter("a", "rx_tso_passed"), 12);
    assert_eq!(pair.rigs[0].counter("a", "tx_tso_cut"), 0);
    pair.finish()
}

/// A burst that is more than the device takes at once: what it could not take goes later, without another frame that
/// reminds anybody of it.
#[test]
fn packet_bursts_do_not_stay_behind() -> Result<()> {
    let options = [big().with(OFFLOADS), big().with(OFFLOADS)];
    let Some(mut pair) = Pair::new("packet", 1, 1500, options)? else {
        return Ok(());
    };
    let [a, b] = pair.macs;
    let (frame, hdr) = tso(&flows(b, a)[0], &pattern(60_000), 1400);
    let done = |rig: &Rig| rig.counter("p0", "tx_frames") + rig.drops("p0", DropReason::PortTransmit);
    let before = done(&pair.rigs[0]);
    for _ in 0..300 {
        pair.guests[0].send_wait(0, &frame, hdr);
    }
    pair.guests[0].drain();
    assert!(wait_for(|| done(&pair.rigs[0]) == before + 300));
    pair.finish()
}

/// What is left unfinished, for a guest that takes finished frames only.
#[test]
fn packet_offloads_are_finished_for_a_guest_without() -> Result<()> {
    let options = [big().with(OFFLOADS), big().without(OFFLOADS)];
    let Some(mut pair) = Pair::new("packet", 1, 1500, options)? else {
        return Ok(());
    };
    let [a, b] = pair.macs;
    for flow in flows(b, a) {
        let (frame, hdr) = udp_partial(&flow, &pattern(777));
        let want = udp(&flow, &pattern(777));
        assert_eq!(pair.carry(0, &frame, hdr)?, (NetHdr::default(), want));
        let payload = pattern(60_000);
        let (frame, hdr) = tso(&flow, &payload, 1400);
        pair.guests[0].send_wait(0, &frame, hdr);
        let mut at = 0;
        while at < payload.len() {
            let (hdr, frame) = pair.recv(1)?;
            let p = parse(&frame);
            assert_eq!((hdr, p.vlan), (NetHdr::default(), flow.vlan));
            assert_eq!(p.seq, FIRST_SEQ.wrapping_add(at as u32));
            assert!(p.payload == payload[at..at + p.payload.len()]);
            at += p.payload.len();
        }
    }
    pair.finish()
}

/// What cannot be is refused with the reason, and leaves nothing behind.
#[test]
fn a_device_that_is_not_there_or_does_not_fit() -> Result<()> {
    let Some(veth) = Veth::new(1500)? else {
        return Ok(());
    };
    let rig = Rig::new(1)?;
    let text = refusal(rig.nic.add_port(veth.port("packet", "nowhere")?))?;
    assert!(text.contains("there is no network device nowhere"), "{text}");
    let mut port = veth.port("packet", ENDS[0])?;
    port.mtu = 1501;
    let text = refusal(rig.nic.add_port(port.clone()))?;
    assert!(text.contains("1501 is more than the MTU of left, 1500"), "{text}");
    let text = refusal(rig.nic.add_port(veth.port("packet", "lo")?))?;
    assert!(text.contains("lo is no Ethernet device"), "{text}");
    assert!(rig.nic.ports().is_empty());
    port.mtu = 1400;
    rig.nic.add_port(port)?;
    rig.nic.remove_port("p0")?;
    rig.finish(Copies::Unknown)
}

/// The link follows the device's carrier.
#[test]
fn a_link_that_goes_down_and_comes_back() -> Result<()> {
    let Some(mut pair) = Pair::new("packet", 1, 1500, [big(), big()])? else {
        return Ok(());
    };
    let [a, b] = pair.macs;
    for round in 0..3 {
        ip(&["link", "set", ENDS[1], "down"])?;
        for rig in &mut pair.rigs {
            wait_link(rig, false, round + 1)?;
        }
        ip(&["link", "set", ENDS[1], "up"])?;
        for rig in &mut pair.rigs {
            wait_link(rig, true, round + 1)?;
        }
        let frame = numbered(b, a, n(round as u64), 100);
        assert_eq!(pair.carry(0, &frame, NetHdr::default())?.1, frame);
    }
    pair.finish()
}

fn wait_link(rig: &mut Rig, want: bool, times: usize) -> Result<()> {
    let seen = wait_for(|| {
        rig.count_events(
            "p0",
            |e| matches!(e, NicEventKind::PortLink { up } if *up == want),
        ) == times
    });
    ensure!(
        seen,
        "no event for the {times}th link {}",
        if want { "up" } else { "down" }
    );
    ensure!(rig.nic.port("p0")?.up == want);
    Ok(())
}

/// The device of a port is deleted and made again: the port is down and says why, and works again without anybody's help.
#[test]
fn a_device_that_is_deleted_and_comes_back() -> Result<()> {
    let Some(mut pair) = Pair::new("packet", 1, 1500, [big(), big()])? else {
        return Ok(());
    };
    let [a, b] = pair.macs;
    for round in 0..3 {
        let frame = numbered(b, a, n(round as u64), 100);
        assert_eq!(pair.carry(0, &frame, NetHdr::default())?.1, frame);
        ip(&["link", "delete", ENDS[0]])?;
        for (rig, end) in pair.rigs.iter_mut().zip(ENDS) {
            wait_link(rig, false, round + 1)?;
            let status = rig.nic.port("p0")?;
            let problem = status.problem.unwrap_or_default();
            assert!(problem.contains(end), "{problem:?}");
            assert_eq!(status.device, None);
        }
        // Frames for the wire are dropped and counted.
        let before = pair.rigs[0].drops("a", DropReason::NoDestination);
        pair.guests[0].send_wait(0, &eth(b, a, [0x88, 0xb5], &[0; 46]), NetHdr::default());
        pair.guests[0].drain();
        pair.rigs[0].settle()?;
        assert_eq!(pair.rigs[0].drops("a", DropReason::NoDestination), before + 1);
        pair.veth.make()?;
        for rig in &mut pair.rigs {
            wait_link(rig, true, round + 1)?;
            assert_eq!(rig.nic.port("p0")?.problem, None);
        }
    }
    pair.finish()
}
