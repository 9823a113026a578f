//! What the device and its port are; GIDs, addresses, rights.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Deref;
use std::str::FromStr;

use vnic_device::command::device::{CounterRecord, DeviceReply, GidRecord, PortReply, ResourceRecord};
use vnic_device::command::qp;
use vnic_device::verbs::AtomicScope;

pub use vnic_device::command::device::Capabilities;
pub use vnic_device::verbs::{Access, GidKind, Mtu, PortState};

use crate::Error;

/// What the device is and how much it has: the fields of [`DeviceReply`], and what they mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceAttributes(pub(crate) DeviceReply);

impl Deref for DeviceAttributes {
    type Target = DeviceReply;

    fn deref(&self) -> &DeviceReply {
        &self.0
    }
}

impl DeviceAttributes {
    /// What the device can do. Capabilities that this library does not know are left out.
    pub fn capabilities(&self) -> Capabilities {
        Capabilities::from_bits_truncate(self.0.capabilities)
    }

    /// Version of the device's firmware.
    pub fn firmware(&self) -> String {
        text(&self.0.firmware)
    }

    /// Rates that queue pairs may have, in kbit/s (`ibv_packet_pacing_caps`). `None`: the device cannot limit
    /// rates.
    pub fn qp_rates(&self) -> Option<std::ops::RangeInclusive<u32>> {
        let can = self.capabilities().contains(Capabilities::RATE_LIMIT);
        can.then_some(self.0.min_qp_rate..=self.0.max_qp_rate)
    }

    /// With whom the device's atomics are atomic.
    pub fn atomic_scope(&self) -> AtomicScope {
        AtomicScope::from_number(self.0.atomic_scope).unwrap_or(AtomicScope::None)
    }
}

/// The P_Key of full members of the default partition (IBTA volume 1, 10.9.1.2).
const DEFAULT_PKEY: u16 = 0xffff;

/// What the port is: the fields of [`PortReply`], and what they mean. A device has one port, number 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortAttributes(pub(crate) PortReply);

impl Deref for PortAttributes {
    type Target = PortReply;

    fn deref(&self) -> &PortReply {
        &self.0
    }
}

impl PortAttributes {
    /// State of the port's link.
    pub fn state(&self) -> PortState {
        PortState::from_number(self.0.state).unwrap_or(PortState::Down)
    }

    /// Largest path MTU of the port.
    pub fn max_mtu(&self) -> Mtu {
        Mtu::from_number(self.0.max_mtu).unwrap_or(Mtu::Mtu256)
    }

    /// Largest path MTU that the link allows now.
    pub fn active_mtu(&self) -> Mtu {
        Mtu::from_number(self.0.active_mtu).unwrap_or(Mtu::Mtu256)
    }

    /// Width and speed of the link, as IBTA counts them (`ibv_port_attr.active_width`, `.active_speed`).
    pub fn lanes(&self) -> (u8, u8) {
        lanes(self.speed)
    }

    /// P_Keys of the port, by index: bit 15 says that the port is a full member of the partition. Devices before version 1.9 of the
    /// contract have one, and do not say which: that of the default partition.
    pub fn pkeys(&self) -> &[u16] {
        match self.0.pkeys {
            [0, ..] => &[DEFAULT_PKEY],
            _ => {
                let len = usize::from(self.0.pkey_table_len);
                &self.0.pkeys[..len.min(self.0.pkeys.len())]
            }
        }
    }

    /// Ethernet address of the port.
    pub fn mac(&self) -> MacAddress {
        MacAddress(self.0.mac)
    }
}

/// Width and speed of links, as IBTA counts them, by their Mb/s. If several fit, the usual one of Ethernet at that
/// speed.
const LANES: &[(u32, u8, u8)] = &[
    (2_500, 1, 1),
    (5_000, 1, 2),
    (10_000, 1, 4),
    (20_000, 2, 2),
    (25_000, 1, 32),
    (40_000, 2, 4),
    (50_000, 1, 64),
    (100_000, 2, 32),
    (200_000, 2, 64),
    (400_000, 2, 128),
    (800_000, 4, 128),
    (1_200_000, 8, 128),
];

/// The least width and speed that together are at least `mbps` Mb/s, or else the largest.
fn lanes(mbps: u32) -> (u8, u8) {
    let fits = LANES.iter().find(|(most, ..)| mbps <= *most);
    fits.or(LANES.last())
        .map_or((1, 1), |(_, width, speed)| (*width, *speed))
}

/// A GID: 16 bytes, written as an IPv6 address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The GID as an IP address: IPv4 if the GID is an IPv4-mapped address.
    pub fn ip(&self) -> IpAddr {
        let v6 = Ipv6Addr::from(self.0);
        v6.to_ipv4_mapped().map_or(IpAddr::V6(v6), IpAddr::V4)
    }
}

impl From<Ipv6Addr> for Gid {
    fn from(address: Ipv6Addr) -> Gid {
        Gid(address.octets())
    }
}

impl From<Ipv4Addr> for Gid {
    fn from(address: Ipv4Addr) -> Gid {
        Gid(address.to_ipv6_mapped().octets())
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, pair) in self.0.chunks_exact(2).enumerate() {
            let colon = if i > 0 { ":" } else { "" };
            write!(f, "{colon}{:02x}{:02x}", pair[0], pair[1])?;
        }
        Ok(())
    }
}

impl FromStr for Gid {
    type Err = Error;

    fn from_str(s: &str) -> Result<Gid, Error> {
        match s.parse::<IpAddr>() {
            Ok(IpAddr::V4(v4)) => Ok(v4.into()),
            Ok(IpAddr::V6(v6)) => Ok(v6.into()),
            Err(_) => Err(Error::Invalid(format!(
                "{s:?} is no GID: it is written as an IP address"
            ))),
        }
    }
}

/// An Ethernet address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MacAddress(pub [u8; 6]);

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl FromStr for MacAddress {
    type Err = Error;

    fn from_str(s: &str) -> Result<MacAddress, Error> {
        let wrong = || Error::Invalid(format!("{s:?} is no Ethernet address"));
        let mut mac = [0; 6];
        let mut parts = s.split(':');
        for byte in &mut mac {
            let part = parts
                .next()
                .filter(|p| (1..=2).contains(&p.len()))
                .ok_or_else(wrong)?;
            *byte = u8::from_str_radix(part, 16).map_err(|_| wrong())?;
        }
        match parts.next() {
            None => Ok(MacAddress(mac)),
            Some(_) => Err(wrong()),
        }
    }
}

/// An entry of the GID table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GidEntry {
    /// Index of the entry.
    pub index: u16,
    /// The GID.
    pub gid: Gid,
    /// How packets of this GID travel.
    pub kind: GidKind,
    /// VLAN 1 … 4094, or 0.
    pub vlan: u16,
    /// Ethernet address of the GID's interface. Zeros in [`Context::set_gid`](crate::Context::set_gid) stand for
    /// the adapter's.
    pub mac: MacAddress,
}

impl GidEntry {
    /// Index and name of this machine's network interface with the entry's address. In a process of the host there is none: then it
    /// is the loopback interface, by which a machine reaches itself, for programs that take a GID without interface for broken.
    pub fn interface(&self) -> (u32, String) {
        let wanted = self.mac.to_string();
        let read = |name: &str, file: &str| {
            let text = std::fs::read_to_string(format!("/sys/class/net/{name}/{file}"));
            text.unwrap_or_default().trim().to_owned()
        };
        let names = std::fs::read_dir("/sys/class/net").into_iter().flatten();
        let own = names
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .find(|name| read(name, "address") == wanted)
            .unwrap_or_else(|| LOOPBACK.0.into());
        let index = read(&own, "ifindex").parse().unwrap_or(LOOPBACK.1);
        (index, own)
    }

    /// Index and name of the port's network interface on this machine: that of its first GID. `None`: the machine has none with its
    /// address.
    pub fn port_interface(gids: &[GidEntry]) -> Option<(u32, String)> {
        let first = gids.iter().find(|entry| entry.kind != GidKind::None)?;
        Some(first.interface()).filter(|(index, _)| *index != LOOPBACK.1)
    }
}

/// Name and index of the loopback interface, the same in every network namespace (kernel, `drivers/net/loopback.c`).
const LOOPBACK: (&str, u32) = ("lo", 1);

impl From<GidRecord> for GidEntry {
    fn from(record: GidRecord) -> GidEntry {
        GidEntry {
            index: record.index,
            gid: Gid(record.gid),
            kind: GidKind::from_number(record.kind).unwrap_or(GidKind::None),
            vlan: record.vlan,
            mac: MacAddress(record.mac),
        }
    }
}

impl From<GidEntry> for GidRecord {
    fn from(entry: GidEntry) -> GidRecord {
        GidRecord {
            gid: entry.gid.0,
            index: entry.index,
            vlan: entry.vlan,
            kind: entry.kind.number(),
            mac: entry.mac.0,
            ..GidRecord::default()
        }
    }
}

/// A counter of the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counter {
    /// Name of the counter, as in the device's metrics.
    pub name: String,
    /// Value since the device was made.
    pub value: u64,
}

impl From<CounterRecord> for Counter {
    fn from(record: CounterRecord) -> Counter {
        Counter {
            name: text(&record.name),
            value: record.value,
        }
    }
}

/// How many objects of a kind there are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    /// The kind: `pd`, `cq`, `qp`, `mr`, …
    pub name: String,
    /// Objects that are in use.
    pub used: u32,
    /// Most objects there may be.
    pub limit: u32,
}

impl From<ResourceRecord> for Resource {
    fn from(record: ResourceRecord) -> Resource {
        Resource {
            name: text(&record.name),
            used: record.used,
            limit: record.limit,
        }
    }
}

/// The way to a peer (`ibv_ah_attr`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AddressVector {
    /// GID of the destination.
    pub dgid: Gid,
    /// Ethernet address of the destination or of the next hop. `None`: the device finds it out, or refuses.
    pub dmac: Option<MacAddress>,
    /// Index in the own GID table. The kind of that entry decides between RoCE v1 and v2.
    pub sgid_index: u16,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Traffic class: DSCP and ECN.
    pub traffic_class: u8,
    /// Hop limit or TTL.
    pub hop_limit: u8,
    /// Service level, 0 … 15.
    pub service_level: u8,
}

impl Default for AddressVector {
    fn default() -> AddressVector {
        AddressVector {
            dgid: Gid::default(),
            dmac: None,
            sgid_index: 0,
            flow_label: 0,
            traffic_class: 0,
            hop_limit: 64,
            service_level: 0,
        }
    }
}

impl From<AddressVector> for qp::AddressVector {
    fn from(address: AddressVector) -> qp::AddressVector {
        qp::AddressVector {
            dgid: address.dgid.0,
            dmac: address.dmac.unwrap_or_default().0,
            sgid_index: address.sgid_index,
            flow_label: address.flow_label,
            traffic_class: address.traffic_class,
            hop_limit: address.hop_limit,
            service_level: address.service_level,
            reserved: 0,
        }
    }
}

impl From<qp::AddressVector> for AddressVector {
    fn from(address: qp::AddressVector) -> AddressVector {
        AddressVector {
            dgid: Gid(address.dgid),
            dmac: Some(MacAddress(address.dmac)).filter(|mac| *mac != MacAddress::default()),
            sgid_index: address.sgid_index,
            flow_label: address.flow_label,
            traffic_class: address.traffic_class,
            hop_limit: address.hop_limit,
            service_level: address.service_level,
        }
    }
}

/// A text that is filled up with zeros.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_as_fast_as_they_say() {
        // Mb/s of one lane, by the number of the speed.
        let lane = |speed: u8| match speed {
            1 => 2_500,
            2 => 5_000,
            4 => 10_000,
            32 => 25_000,
            64 => 50_000,
            128 => 100_000,
            other => panic!("no speed {other}"),
        };
        let lanes_of = |width: u8| match width {
            1 => 1,
            2 => 4,
            4 => 8,
            8 => 12,
            other => panic!("no width {other}"),
        };
        for (mbps, width, speed) in LANES {
            assert_eq!(lane(*speed) * lanes_of(*width), *mbps);
        }
        assert!(LANES.is_sorted());
        assert_eq!(lanes(0), (1, 1));
        assert_eq!(lanes(100_000), (2, 32), "100 Gb/s: four lanes of EDR");
        assert_eq!(lanes(150_000), (2, 64), "rounded up");
        assert_eq!(lanes(u32::MAX), (8, 128), "the most there is");
    }

    #[test]
    fn gids_have_an_interface() {
        let nobody = GidEntry::from(GidRecord::default());
        assert_eq!(
            nobody.interface(),
            (1, "lo".into()),
            "no interface, or that of zeros"
        );
        let used = GidEntry {
            kind: GidKind::RoceV2,
            ..nobody
        };
        assert_eq!(GidEntry::port_interface(&[nobody, used]), None);
        assert_eq!(GidEntry::port_interface(&[]), None);
    }

    #[test]
    fn gids_are_written_and_read() {
        let gid: Gid = "::ffff:10.0.0.7".parse().expect("a GID");
        assert_eq!(gid.to_string(), "0000:0000:0000:0000:0000:ffff:0a00:0007");
        assert_eq!(gid, "10.0.0.7".parse().expect("a GID"));
        assert_eq!(gid.to_string().parse::<Gid>().ok(), Some(gid));
        assert_eq!(gid.ip().to_string(), "10.0.0.7");
        assert!("10.0.0".parse::<Gid>().is_err());
    }

    #[test]
    fn ethernet_addresses_are_written_and_read() {
        let mac: MacAddress = "02:00:00:00:ab:1".parse().expect("an address");
        assert_eq!(mac.to_string(), "02:00:00:00:ab:01");
        for wrong in [
            "",
            "02:00:00:00:ab",
            "02:00:00:00:ab:01:02",
            "02:00:00:00:ab:+1f",
            "g:0:0:0:0:0",
        ] {
            assert!(wrong.parse::<MacAddress>().is_err(), "{wrong}");
        }
    }
}
