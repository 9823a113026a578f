//! Two NICs whose ports are the ends of a veth pair, and what ports of all kinds over network devices do.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use vnic_backend::{DropReason, MacAddr, NicEventKind};

use super::packets::{
    BROADCAST, FIRST_SEQ, Flow, Number, eth, numbered, parse, pattern, tagged, tso, udp, udp_partial,
};
use super::rig::{Copies, Rig, deadline, wait_for};
use super::veth::{ENDS, Veth, ip, refusal};
use super::{Guest, NetHdr, OFFLOADS, Options};

/// Number of a frame of the first sender.
pub fn n(seq: u64) -> Number {
    Number {
        sender: 1,
        stream: 0,
        seq,
    }
}

/// A guest with room for the longest frames.
pub fn big() -> Options {
    Options {
        tx_buffer: 66000,
        queue_size: 64,
        ..Options::default()
    }
}

/// Two NICs on a wire, an adapter and its guest at each.
pub struct Pair {
    /// The wire.
    pub veth: Veth,
    /// The NICs.
    pub rigs: [Rig; 2],
    /// Addresses of the adapters.
    pub macs: [MacAddr; 2],
    /// Their guests.
    pub guests: Vec<Guest>,
}

impl Pair {
    /// Both, their ports of this kind; none where this machine does not allow it.
    pub fn new(kind: &str, cores: usize, mtu: u16, options: [Options; 2]) -> Result<Option<Pair>> {
        Pair::over(mtu, kind, cores, mtu, options)
    }

    /// The same, the devices' MTU another than the ports'.
    pub fn over(
        device: u16,
        kind: &str,
        cores: usize,
        mtu: u16,
        options: [Options; 2],
    ) -> Result<Option<Pair>> {
        let Some(veth) = Veth::new(device)? else {
            return Ok(None);
        };
        let mut rigs = [Rig::new(cores)?, Rig::new(cores)?];
        let mut macs = [MacAddr([0; 6]); 2];
        let mut guests = Vec::new();
        for (i, options) in options.into_iter().enumerate() {
            // Addresses of the two must differ.
            let mac = MacAddr([2, 0x33, 0, 0, 0, i as u8 + 1]);
            macs[i] = rigs[i].add_with("a", |s| (s.macs, s.mtu) = (vec![mac], mtu))?;
            let mut port = veth.port(kind, ENDS[i])?;
            port.mtu = mtu;
            let status = rigs[i].nic.add_port(port)?;
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
    pub fn carry(&mut self, from: usize, frame: &[u8], hdr: NetHdr) -> Result<(NetHdr, Vec<u8>)> {
        self.guests[from].send_wait(0, frame, hdr);
        self.recv(1 - from)
    }

    /// What a guest gets next, announcements aside.
    pub fn recv(&mut self, at: usize) -> Result<(NetHdr, Vec<u8>)> {
        loop {
            let (hdr, _, frame) = self.guests[at].recv(0, deadline()).context("no frame")?;
            if frame.get(12..14) != Some(&[0x80, 0x35]) {
                return Ok((hdr, frame));
            }
        }
    }

    /// Waits until frames of the first guest reach the other one again: Linux drops what a device is given between the return of its
    /// link and the start of its queue.
    pub fn wait_carried(&mut self) -> Result<()> {
        // Nobody who waits for a frame takes these for it, as announcements.
        let probe = eth(self.macs[1], self.macs[0], [0x80, 0x35], &[0x5a; 46]);
        let until = deadline();
        while Instant::now() < until {
            self.guests[0].send_wait(0, &probe, NetHdr::default());
            let soon = Instant::now() + Duration::from_millis(100);
            while let Some((_, _, frame)) = self.guests[1].recv(0, soon) {
                if frame == probe {
                    return Ok(());
                }
            }
        }
        bail!("no frame arrives after the link came back")
    }

    /// Ends both.
    pub fn finish(mut self) -> Result<()> {
        for guest in &mut self.guests {
            guest.detach()?;
        }
        for rig in self.rigs {
            rig.finish(Copies::Unknown)?;
        }
        Ok(())
    }
}

/// Flows of all forms.
pub fn flows(to: MacAddr, from: MacAddr) -> Vec<Flow> {
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

/// Waits until the link of the port has become that for so many times.
pub fn wait_link(rig: &mut Rig, want: bool, times: usize) -> Result<()> {
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

/// Frames of all lengths, with and without tags.
pub fn frames(kind: &str, cores: usize, mtu: u16) -> Result<()> {
    match Pair::new(kind, cores, mtu, [big(), big()])? {
        Some(pair) => frames_over(pair, mtu),
        None => Ok(()),
    }
}

/// The same, over a pair that is there.
pub fn frames_over(mut pair: Pair, mtu: u16) -> Result<()> {
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

/// What cannot be is refused with the reason, and leaves nothing behind.
pub fn a_device_that_is_not_there_or_does_not_fit(kind: &str) -> Result<()> {
    let Some(veth) = Veth::new(1500)? else {
        return Ok(());
    };
    let rig = Rig::new(1)?;
    let text = refusal(rig.nic.add_port(veth.port(kind, "nowhere")?))?;
    assert!(text.contains("there is no network device nowhere"), "{text}");
    let mut port = veth.port(kind, ENDS[0])?;
    port.mtu = 1501;
    let text = refusal(rig.nic.add_port(port.clone()))?;
    assert!(text.contains("1501 is more than the MTU of left, 1500"), "{text}");
    let text = refusal(rig.nic.add_port(veth.port(kind, "lo")?))?;
    assert!(text.contains("lo is no Ethernet device"), "{text}");
    assert!(rig.nic.ports().is_empty());
    port.mtu = 1400;
    rig.nic.add_port(port)?;
    rig.nic.remove_port("p0")?;
    rig.finish(Copies::Unknown)
}

/// The link follows the device's carrier.
pub fn a_link_that_goes_down_and_comes_back(kind: &str) -> Result<()> {
    let Some(mut pair) = Pair::new(kind, 1, 1500, [big(), big()])? else {
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
        pair.wait_carried()?;
        let frame = numbered(b, a, n(round as u64), 100);
        assert_eq!(pair.carry(0, &frame, NetHdr::default())?.1, frame);
    }
    pair.finish()
}

/// The device of a port is deleted and made again: the port is down and says why, and works again without anybody's help.
pub fn a_device_that_is_deleted_and_comes_back(kind: &str) -> Result<()> {
    let Some(mut pair) = Pair::new(kind, 1, 1500, [big(), big()])? else {
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
        pair.wait_carried()?;
    }
    pair.finish()
}

/// What is left unfinished, for a guest that takes finished frames only.
pub fn offloads_are_finished(kind: &str) -> Result<()> {
    let options = [big().with(OFFLOADS), big().without(OFFLOADS)];
    let Some(mut pair) = Pair::new(kind, 1, 1500, options)? else {
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
