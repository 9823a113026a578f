//! Questions to the guest: do you still have this address?

use vnic_wire::gid::Gid;
use vnic_wire::{EtherType, MacAddr, arp, nd};

use super::answer::{header, send};

/// The NIC's own address towards the guest with this one: locally administered, unicast, and different.
pub(super) fn nic_mac(MacAddr([a, rest @ ..]): MacAddr) -> MacAddr {
    let [b, c, d, e, f] = rest;
    MacAddr([(a & !1 | 2) ^ 0x40, b, c, d, e, f])
}

/// Emits the question for an address.
///
/// For IPv4 it is an ARP probe (RFC 5227 section 2.1.1): its sender 0.0.0.0 leaves no trace in the guest's table. For
/// IPv6 it is a neighbour solicitation from the NIC's link-local address; one from `::` would be a test for duplicates,
/// and make the guest answer to everybody.
pub(super) fn frame(nic: MacAddr, guest: MacAddr, gid: Gid, vlan: Option<u16>, emit: &mut dyn FnMut(&[u8])) {
    match gid.to_ipv4() {
        Some(target_ip) => {
            let probe = arp::Header {
                operation: arp::REQUEST,
                sender_mac: nic,
                sender_ip: [0; 4],
                target_mac: MacAddr::default(),
                target_ip,
            };
            send(guest, nic, vlan, EtherType::ARP, &[&probe.emit()], emit);
        }
        None => {
            let source = Gid::from_mac(nic).0;
            let message = nd::solicitation(&source, &gid.0, gid.0, nic);
            let header = header(source, gid.0, message.len());
            let parts: [&[u8]; 2] = [&header.emit(), &message];
            send(guest, nic, vlan, EtherType::IPV6, &parts, emit);
        }
    }
}
