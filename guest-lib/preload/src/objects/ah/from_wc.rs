//! Addresses of senders of datagrams, from the 40 bytes in front of a datagram.

use vnic_verbs::{GidEntry, GidKind};

use crate::abi::*;
use crate::context::Context;
use crate::errno::Errno;
use crate::work::poll;

/// Addresses and protocol of a network header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Header {
    source: [u8; 16],
    destination: [u8; 16],
    kind: GidKind,
    traffic_class: u8,
    flow_label: u32,
}

/// Protocol number of UDP.
const UDP: u8 = 17;
const IB_GRH: u8 = 0x1b;
/// Hop limit of the way back, whose length is unknown.
const HOPS: u8 = 255;

/// The way back to the sender of a datagram.
pub fn init(
    context: &Context,
    port: u8,
    wc: &ibv_wc,
    header: Option<&[u8; 40]>,
) -> Result<ibv_ah_attr, Errno> {
    if port != 1 {
        return Err(Errno::INVALID);
    }
    let mut address = ibv_ah_attr {
        dlid: wc.slid,
        sl: poll::level_of(wc.sl),
        src_path_bits: wc.dlid_path_bits,
        port_num: port,
        ..zeros()
    };
    if wc.wc_flags & IBV_WC_GRH != 0 {
        let header = header.and_then(read).ok_or(Errno::INVALID)?;
        let own = own(&context.seat.device.gids()?, &header).ok_or(Errno::NO_ENTRY)?;
        address.is_global = 1;
        address.grh = ibv_global_route {
            dgid: ibv_gid { raw: header.source },
            flow_label: header.flow_label,
            sgid_index: own,
            hop_limit: HOPS,
            traffic_class: header.traffic_class,
        };
    }
    Ok(address)
}

/// The index of the GID that the datagram was sent to.
fn own(gids: &[GidEntry], header: &Header) -> Option<u8> {
    let found = gids
        .iter()
        .find(|entry| entry.gid.0 == header.destination && entry.kind == header.kind)?;
    u8::try_from(found.index).ok()
}

/// Reads the 40 bytes: a header of IPv6, or that of RoCE v1, which looks alike, or in the last 20 bytes one of IPv4.
/// The first 20 mean nothing then, and may look like anything; so IPv4 is tried first, with its checksum.
fn read(bytes: &[u8; 40]) -> Option<Header> {
    let v4 = &bytes[20..];
    if v4[0] == 0x45 && v4[9] == UDP && checksum_fits(v4) {
        return Some(Header {
            source: mapped(&v4[12..16]),
            destination: mapped(&v4[16..20]),
            kind: GidKind::RoceV2,
            traffic_class: v4[1],
            flow_label: 0,
        });
    }
    let first = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    let kind = match (first >> 28, bytes[6]) {
        (6, UDP) => GidKind::RoceV2,
        (6, IB_GRH) => GidKind::RoceV1,
        _ => return None,
    };
    Some(Header {
        source: bytes[8..24].try_into().ok()?,
        destination: bytes[24..].try_into().ok()?,
        kind,
        traffic_class: (first >> 20 & 0xff) as u8,
        flow_label: first & 0xf_ffff,
    })
}

/// An IPv4 address as a GID.
fn mapped(v4: &[u8]) -> [u8; 16] {
    let mut gid = [0; 16];
    gid[10..12].fill(0xff);
    gid[12..].copy_from_slice(v4);
    gid
}

/// Whether the sum of all words of an IPv4 header, with its checksum, is all ones.
fn checksum_fits(header: &[u8]) -> bool {
    let sum: u32 = header
        .chunks_exact(2)
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    (sum & 0xffff) + (sum >> 16) == 0xffff
}

#[cfg(test)]
mod tests {
    use vnic_verbs::{Gid, MacAddress};

    use super::*;

    fn v4(traffic_class: u8) -> [u8; 40] {
        let mut bytes = [0x6b; 40];
        bytes[20..].copy_from_slice(&[
            0x45,
            traffic_class,
            0,
            84,
            0,
            0,
            0x40,
            0,
            64,
            UDP,
            0,
            0,
            10,
            0,
            0,
            1,
            10,
            0,
            0,
            2,
        ]);
        let sum: u32 = bytes[20..]
            .chunks_exact(2)
            .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])))
            .sum();
        let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
        bytes[30..32].copy_from_slice(&checksum.to_be_bytes());
        bytes
    }

    fn v6(next: u8) -> [u8; 40] {
        let mut bytes = [0; 40];
        bytes[..4].copy_from_slice(&0x6021_2345u32.to_be_bytes());
        bytes[6] = next;
        bytes[8..24].copy_from_slice(&[1; 16]);
        bytes[24..].copy_from_slice(&[2; 16]);
        bytes
    }

    #[test]
    fn headers_of_ipv4_are_in_the_last_bytes() {
        let header = read(&v4(0x28)).expect("a header");
        assert_eq!(
            Gid(header.source).to_string(),
            "0000:0000:0000:0000:0000:ffff:0a00:0001"
        );
        assert_eq!(Gid(header.destination).ip().to_string(), "10.0.0.2");
        assert_eq!((header.kind, header.traffic_class), (GidKind::RoceV2, 0x28));
        // Without the right checksum it is chance that it looks like one.
        let mut broken = v4(0);
        broken[30] ^= 1;
        assert_eq!(read(&broken), None);
    }

    #[test]
    fn headers_of_ipv6_say_which_version_it_is() {
        for (next, kind) in [(UDP, GidKind::RoceV2), (IB_GRH, GidKind::RoceV1)] {
            let expected = Header {
                source: [1; 16],
                destination: [2; 16],
                kind,
                traffic_class: 2,
                flow_label: 0x1_2345,
            };
            assert_eq!(read(&v6(next)), Some(expected));
        }
        assert_eq!(read(&v6(6)), None);
        assert_eq!(read(&[0; 40]), None);
    }

    #[test]
    fn the_own_address_is_found_by_gid_and_version() {
        let entry = |index, kind| GidEntry {
            index,
            gid: Gid([2; 16]),
            kind,
            vlan: 0,
            mac: MacAddress::default(),
        };
        let gids = [entry(4, GidKind::RoceV1), entry(5, GidKind::RoceV2)];
        let find = |next| own(&gids, &read(&v6(next)).expect("a header"));
        assert_eq!([find(UDP), find(IB_GRH)], [Some(5), Some(4)]);
        assert_eq!(own(&gids[..1], &read(&v6(UDP)).expect("a header")), None);
    }
}
