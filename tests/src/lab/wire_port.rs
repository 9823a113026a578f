//! A port of ours on the NIC's switch: raw RoCE frames in and out, through an adapter that this process attaches
//! to as a guest does.
//!
//! The port is a host as its neighbours see one: it answers ARP, IPv6 neighbour solicitations and pings for its
//! addresses, and finds the addresses of others. All other frames but RoCE are thrown away. Frames can be lost on
//! purpose, from a seed.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use etherparse::{LinkSlice, NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
use vnic_wire::roce::is_roce;

use super::{Daemon, Lab, PATIENCE};
use crate::driver::rig::Dice;
use crate::driver::{Guest, NetHdr, Options};

/// Longest frame, bytes.
const FRAME_MAX: u32 = 9216;

/// Which way a frame goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From the switch to us.
    In,
    /// From us to the switch.
    Out,
}

/// What becomes of a RoCE frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It goes its way.
    Pass,
    /// It is lost.
    Lose,
    /// It goes its way twice.
    Double,
}

/// Decides about each RoCE frame.
pub type Filter = Box<dyn FnMut(Way, &[u8]) -> Fate + Send>;

/// Frames of a port, RoCE only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// That came from the switch, lost ones included.
    pub received: u64,
    /// That were to go to the switch, lost ones included.
    pub sent: u64,
    /// That were lost on purpose.
    pub lost: u64,
    /// That were doubled on purpose.
    pub doubled: u64,
}

/// The port. See the module.
pub struct WirePort {
    guest: Guest,
    mac: [u8; 6],
    ip4: Ipv4Addr,
    ip6: Ipv6Addr,
    neighbours: HashMap<IpAddr, [u8; 6]>,
    filter: Option<Filter>,
    counts: Counts,
    // A doubled frame on its way in.
    again: Option<Vec<u8>>,
}

/// An address as a GID has it: IPv4 addresses are mapped into IPv6 (IBTA annex A17).
pub fn mapped(addr: IpAddr) -> Ipv6Addr {
    match addr {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

/// Loses frames both ways with a chance in a million each, from a seed.
pub fn losing(per_million: u32, seed: u64) -> Filter {
    let mut dice = Dice::new(seed);
    Box::new(move |_, _| {
        if dice.below(1_000_000) < u64::from(per_million) {
            Fate::Lose
        } else {
            Fate::Pass
        }
    })
}

impl WirePort {
    /// Attaches to an adapter of the daemon, with the adapter's address.
    pub fn attach(
        lab: &Lab,
        daemon: &Daemon,
        adapter: &str,
        ip4: Ipv4Addr,
        ip6: Ipv6Addr,
    ) -> Result<WirePort> {
        let text = daemon.mac(adapter)?;
        let mut mac = [0; 6];
        let mut bytes = text.split(':').map(|b| u8::from_str_radix(b, 16));
        for byte in &mut mac {
            *byte = bytes.next().context("a short address")??;
        }
        let options = Options {
            queue_size: 1024,
            rx_buffer: FRAME_MAX + NetHdr::LEN as u32,
            tx_buffer: FRAME_MAX + NetHdr::LEN as u32,
            ..Options::default()
        };
        let guest = Guest::attach(lab.path(&format!("{adapter}-eth.sock")), options)?;
        daemon.wait_up(adapter)?;
        Ok(WirePort {
            guest,
            mac,
            ip4,
            ip6,
            neighbours: HashMap::new(),
            filter: None,
            counts: Counts::default(),
            again: None,
        })
    }

    /// Our Ethernet address.
    pub fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// Our IPv4 address.
    pub fn ip4(&self) -> Ipv4Addr {
        self.ip4
    }

    /// Our IPv6 address.
    pub fn ip6(&self) -> Ipv6Addr {
        self.ip6
    }

    /// What went through.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// From now on this decides about RoCE frames; [`losing`] is one. None: all pass.
    pub fn set_filter(&mut self, filter: Option<Filter>) {
        self.filter = filter;
    }

    /// Sends a RoCE frame, whole from Ethernet header to ICRC. Waits for room.
    ///
    /// # Panics
    /// When it is longer than 9216 bytes, or the daemon takes nothing for 20 s.
    pub fn send(&mut self, frame: &[u8]) {
        self.counts.sent += 1;
        match self.fate(Way::Out, frame) {
            Fate::Pass => self.put(frame),
            Fate::Lose => {}
            Fate::Double => {
                self.put(frame);
                self.put(frame);
            }
        }
    }

    /// The next RoCE frame, if one is there. Everything else on the wire is answered here, or thrown away.
    pub fn try_recv(&mut self) -> Option<Vec<u8>> {
        if let Some(frame) = self.again.take() {
            return Some(frame);
        }
        while let Some((_, _, frame)) = self.guest.try_recv(0) {
            if !is_roce(&frame) {
                // Others' frames that are no good are none of our business.
                let _ = self.serve(&frame);
                continue;
            }
            self.counts.received += 1;
            match self.fate(Way::In, &frame) {
                Fate::Pass => return Some(frame),
                Fate::Lose => {}
                Fate::Double => {
                    self.again = Some(frame.clone());
                    return Some(frame);
                }
            }
        }
        None
    }

    /// The next RoCE frame, waiting for it.
    pub fn recv(&mut self) -> Result<Vec<u8>> {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(frame) = self.try_recv() {
                return Ok(frame);
            }
            ensure!(Instant::now() < end, "no RoCE frame came within {PATIENCE:?}");
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Finds a neighbour's Ethernet address. RoCE frames that come meanwhile are thrown away.
    pub fn resolve(&mut self, addr: IpAddr) -> Result<[u8; 6]> {
        let end = Instant::now() + PATIENCE;
        let mut tries = 0;
        loop {
            if let Some(mac) = self.neighbours.get(&addr) {
                return Ok(*mac);
            }
            ensure!(Instant::now() < end, "{addr} does not answer");
            if tries % 100 == 0 {
                self.solicit(addr)?;
            }
            tries += 1;
            std::thread::sleep(Duration::from_millis(10));
            while self.try_recv().is_some() {}
        }
    }

    fn fate(&mut self, way: Way, frame: &[u8]) -> Fate {
        let fate = self.filter.as_mut().map_or(Fate::Pass, |f| f(way, frame));
        match fate {
            Fate::Pass => {}
            Fate::Lose => self.counts.lost += 1,
            Fate::Double => self.counts.doubled += 1,
        }
        fate
    }

    fn put(&mut self, frame: &[u8]) {
        self.guest.send_wait(0, frame, NetHdr::default());
    }

    fn solicit(&mut self, addr: IpAddr) -> Result<()> {
        match addr {
            IpAddr::V4(v4) => self.put(&self.arp(1, [0xff; 6], v4)),
            IpAddr::V6(v6) => {
                // RFC 4861 section 4.3: to the solicited-node multicast address, with our link-layer address.
                let [.., x, y, z] = v6.octets();
                let mut group = [0; 16];
                (group[0], group[1], group[11], group[12]) = (0xff, 2, 1, 0xff);
                group[13..].copy_from_slice(&[x, y, z]);
                let body = [&v6.octets()[..], &[1, 1], &self.mac].concat();
                let frame = self.icmp6([0x33, 0x33, 0xff, x, y, z], group, 135, [0; 4], &body)?;
                self.put(&frame);
            }
        }
        Ok(())
    }

    /// Answers what a host answers.
    fn serve(&mut self, frame: &[u8]) -> Result<()> {
        let packet = SlicedPacket::from_ethernet(frame)?;
        let Some(LinkSlice::Ethernet2(eth)) = &packet.link else {
            return Ok(());
        };
        let from = eth.source();
        match (&packet.net, &packet.transport) {
            (Some(NetSlice::Arp(_)), _) => self.serve_arp(frame, from),
            (Some(NetSlice::Ipv4(ip)), Some(TransportSlice::Icmpv4(icmp))) => {
                let (to, to_us) = (ip.header().source(), ip.header().destination_addr() == self.ip4);
                if to_us && icmp.type_u8() == 8 {
                    let mut answer = Vec::new();
                    PacketBuilder::ethernet2(self.mac, from)
                        .ipv4(self.ip4.octets(), to, 64)
                        .icmpv4_raw(0, 0, icmp.bytes5to8())
                        .write(&mut answer, icmp.payload())?;
                    self.put(&answer);
                }
            }
            (Some(NetSlice::Ipv6(ip)), Some(TransportSlice::Icmpv6(icmp))) => {
                let to = ip.header().source();
                let body = icmp.payload();
                let target = body.first_chunk::<16>().copied().map(Ipv6Addr::from);
                match icmp.type_u8() {
                    128 if ip.header().destination_addr() == self.ip6 => {
                        let answer = self.icmp6(from, to, 129, icmp.bytes5to8(), body)?;
                        self.put(&answer);
                    }
                    135 if target == Some(self.ip6) => {
                        // RFC 4861 section 4.4: solicited, override; target link-layer address.
                        let body = [&self.ip6.octets()[..], &[2, 1], &self.mac].concat();
                        let answer = self.icmp6(from, to, 136, [0x60, 0, 0, 0], &body)?;
                        self.put(&answer);
                    }
                    136 => {
                        if let Some(target) = target {
                            self.neighbours.insert(IpAddr::V6(target), from);
                        }
                    }
                    _ => {}
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// RFC 826, for Ethernet and IPv4.
    fn serve_arp(&mut self, frame: &[u8], from: [u8; 6]) {
        let Some(arp) = frame.get(14..42) else { return };
        let address = |at: usize| Ipv4Addr::new(arp[at], arp[at + 1], arp[at + 2], arp[at + 3]);
        let (sender, target) = (address(14), address(24));
        if sender != Ipv4Addr::UNSPECIFIED {
            self.neighbours.insert(IpAddr::V4(sender), from);
        }
        if arp[6..8] == [0, 1] && target == self.ip4 {
            self.put(&self.arp(2, from, sender));
        }
    }

    fn arp(&self, operation: u8, to: [u8; 6], target: Ipv4Addr) -> Vec<u8> {
        let target_mac = if operation == 1 { [0; 6] } else { to };
        [
            &to[..],
            &self.mac,
            &[8, 6, 0, 1, 8, 0, 6, 4, 0, operation],
            &self.mac,
            &self.ip4.octets(),
            &target_mac,
            &target.octets(),
        ]
        .concat()
    }

    fn icmp6(&self, mac: [u8; 6], to: [u8; 16], kind: u8, word: [u8; 4], body: &[u8]) -> Result<Vec<u8>> {
        let mut frame = Vec::new();
        // RFC 4861 section 7.1: the hop limit must be 255.
        PacketBuilder::ethernet2(self.mac, mac)
            .ipv6(self.ip6.octets(), to, 255)
            .icmpv6_raw(kind, 0, word)
            .write(&mut frame, body)?;
        Ok(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_follow_the_seed() {
        let run = |seed| {
            let mut filter = losing(10_000, seed);
            let lost = (0..100_000).filter(|_| filter(Way::In, &[]) == Fate::Lose);
            lost.collect::<Vec<_>>()
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
        assert!((500..2000).contains(&run(3).len()));
    }
}
