//! Which device an address belongs to.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};

use vnic_verbs::{GidEntry, GidKind};

use super::address::{is_any, plain};

/// The GID of a local address: of RoCEv2, and of the first device that has one; of an address that names no interface the first of
/// all. `gids`: those of each device.
pub fn local(gids: &[Vec<GidEntry>], address: IpAddr) -> Option<(usize, GidEntry)> {
    let address = plain(address);
    usable(gids).find(|(_, entry)| is_any(address) || entry.gid.ip() == address)
}

/// The device and the GID from which a peer is reached, if the program names none:
///
/// 1. a peer that is a device of ours is reached from itself, as the kernel reaches its own addresses;
/// 2. else by the address from which the kernel would send (`route`), if a device of ours has it: in a virtual machine, whose
///    network interfaces have the addresses of the GIDs;
/// 3. else from the GID that has the most leading bits in common with the peer; of several the first.
pub fn towards(gids: &[Vec<GidEntry>], peer: IpAddr, route: Option<IpAddr>) -> Option<(usize, GidEntry)> {
    let peer = plain(peer);
    let by_route = || local(gids, route?);
    let nearest = || {
        let same = usable(gids).filter(|(_, entry)| entry.gid.ip().is_ipv4() == peer.is_ipv4());
        // (Of several the first.)
        same.min_by_key(|(_, entry)| (bits(entry.gid.ip()) ^ bits(peer)).leading_zeros().abs_diff(128))
    };
    local(gids, peer).or_else(by_route).or_else(nearest)
}

/// The address from which the kernel would send to a peer.
pub fn route(peer: SocketAddr) -> Option<IpAddr> {
    let any = super::address::any_like(peer);
    let socket = UdpSocket::bind(any).ok()?;
    // A connected socket of datagrams has asked for the route, and has sent nothing. Any port will do.
    let peer = SocketAddr::new(peer.ip(), peer.port().max(1));
    socket.connect(peer).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

fn usable(gids: &[Vec<GidEntry>]) -> impl Iterator<Item = (usize, GidEntry)> {
    gids.iter()
        .enumerate()
        .flat_map(|(device, entries)| entries.iter().map(move |entry| (device, *entry)))
        .filter(|(_, entry)| entry.kind == GidKind::RoceV2)
}

fn bits(ip: IpAddr) -> u128 {
    let v6 = match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    u128::from(Ipv6Addr::from(v6.octets()))
}

#[cfg(test)]
mod tests {
    use vnic_verbs::MacAddress;

    use super::*;

    fn device(gids: &[&str]) -> Vec<GidEntry> {
        let entry = |(index, gid): (usize, &&str)| GidEntry {
            index: index as u16,
            gid: gid.trim_start_matches("v1 ").parse().expect("a GID"),
            kind: if gid.starts_with("v1") {
                GidKind::RoceV1
            } else {
                GidKind::RoceV2
            },
            vlan: 0,
            mac: MacAddress::default(),
        };
        gids.iter().enumerate().map(entry).collect()
    }

    fn two() -> Vec<Vec<GidEntry>> {
        vec![
            device(&["v1 fe80::1", "fe80::1", "v1 10.0.1.1", "10.0.1.1"]),
            device(&["fe80::2", "10.0.2.1", "10.0.1.2"]),
        ]
    }

    fn found(what: Option<(usize, GidEntry)>) -> Option<(usize, u16)> {
        what.map(|(device, entry)| (device, entry.index))
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_local_address_is_a_gid_of_roce_v2() {
        assert_eq!(found(local(&two(), ip("10.0.1.1"))), Some((0, 3)));
        assert_eq!(
            found(local(&two(), ip("::ffff:10.0.2.1"))),
            Some((1, 1)),
            "a mapped one"
        );
        assert_eq!(found(local(&two(), ip("fe80::2"))), Some((1, 0)));
        assert_eq!(found(local(&two(), ip("10.0.3.1"))), None);
        assert_eq!(
            found(local(&two(), ip("127.0.0.1"))),
            Some((0, 1)),
            "the first device"
        );
    }

    #[test]
    fn a_peer_is_reached_from_where_it_is_nearest() {
        let towards = |peer: &str, route: Option<&str>| found(towards(&two(), ip(peer), route.map(ip)));
        assert_eq!(towards("10.0.1.2", None), Some((1, 2)), "itself");
        assert_eq!(towards("10.0.1.9", None), Some((0, 3)), "the first of its subnet");
        assert_eq!(towards("10.0.2.9", None), Some((1, 1)));
        assert_eq!(
            towards("10.0.1.9", Some("10.0.2.1")),
            Some((1, 1)),
            "the kernel's route"
        );
        assert_eq!(
            towards("10.0.2.9", Some("192.168.0.1")),
            Some((1, 1)),
            "another's route"
        );
        assert_eq!(towards("fe80::9", None), Some((0, 1)));
        assert_eq!(found(super::towards(&[], ip("10.0.1.9"), None)), None);
    }
}
