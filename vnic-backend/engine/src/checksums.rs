//! Checksums of a whole frame: of IPv4 (RFC 791), and of TCP and UDP over IPv4 and IPv6 (RFC 9293, RFC 768, RFC 8200).

use vnic_wire::EtherType;
use vnic_wire::checksum::{fold, pseudo_v4, pseudo_v6, sum};

const TCP: u8 = 6;
const UDP: u8 = 17;

/// Where a frame's checksums are.
struct Layout {
    /// Header of IPv4, if it is that.
    v4: Option<(usize, usize)>,
    /// TCP or UDP, if the frame has all of it.
    transport: Option<Transport>,
}

struct Transport {
    start: usize,
    end: usize,
    protocol: u8,
    /// Sum of the pseudo header.
    pseudo: u32,
}

impl Transport {
    /// Where its checksum is.
    fn field(&self) -> usize {
        self.start + if self.protocol == TCP { 16 } else { 6 }
    }
}

fn layout(frame: &[u8]) -> Option<Layout> {
    let word = |at: usize| Some(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?));
    let (mut ethertype, mut at) = (EtherType(word(12)?), 14);
    if ethertype.is_vlan() {
        (ethertype, at) = (EtherType(word(16)?), 18);
    }
    match ethertype {
        EtherType::IPV4 => {
            let ip: &[u8; 20] = frame.get(at..)?.first_chunk()?;
            let (len, total) = (usize::from(ip[0] & 15) * 4, usize::from(word(at + 2)?));
            if ip[0] >> 4 != 4 || len < ip.len() || total < len || at + total > frame.len() {
                return None;
            }
            // No fragment has all that TCP or UDP sums up.
            let fragment = word(at + 6)? & 0x3fff != 0;
            let mut addresses = [[0; 4]; 2];
            addresses[0].copy_from_slice(&ip[12..16]);
            addresses[1].copy_from_slice(&ip[16..20]);
            let (start, end) = (at + len, at + total);
            let pseudo = pseudo_v4(addresses[0], addresses[1], ip[9], (end - start) as u32);
            Some(Layout {
                v4: Some((at, start)),
                transport: transport(start, end, ip[9], pseudo).filter(|_| !fragment),
            })
        }
        EtherType::IPV6 => {
            let ip: &[u8; 40] = frame.get(at..)?.first_chunk()?;
            let (start, len) = (at + ip.len(), usize::from(word(at + 4)?));
            if ip[0] >> 4 != 6 || start + len > frame.len() {
                return None;
            }
            let mut addresses = [[0; 16]; 2];
            addresses[0].copy_from_slice(&ip[8..24]);
            addresses[1].copy_from_slice(&ip[24..40]);
            let pseudo = pseudo_v6(&addresses[0], &addresses[1], ip[6], len as u32);
            Some(Layout {
                v4: None,
                transport: transport(start, start + len, ip[6], pseudo),
            })
        }
        _ => None,
    }
}

fn transport(start: usize, end: usize, protocol: u8, pseudo: u32) -> Option<Transport> {
    let least = match protocol {
        TCP => 20,
        UDP => 8,
        _ => return None,
    };
    (end - start >= least).then_some(Transport {
        start,
        end,
        protocol,
        pseudo,
    })
}

/// Fills in the checksums that a frame has, whatever is in their place. Of another frame nothing changes.
pub fn fill(frame: &mut [u8]) {
    let Some(layout) = layout(frame) else { return };
    if let Some((from, to)) = layout.v4 {
        frame[from + 10..from + 12].fill(0);
        let value = !fold(sum(&frame[from..to]));
        frame[from + 10..from + 12].copy_from_slice(&value.to_be_bytes());
    }
    if let Some(transport) = layout.transport {
        let field = transport.field();
        frame[field..field + 2].fill(0);
        let mut value = !fold(transport.pseudo + sum(&frame[transport.start..transport.end]));
        if transport.protocol == UDP && value == 0 {
            // Zero says that there is none (RFC 768).
            value = u16::MAX;
        }
        frame[field..field + 2].copy_from_slice(&value.to_be_bytes());
    }
}

/// Whether a frame has checksums of IP and TCP or UDP, and all are right. (UDP over IPv4 may have none, which says nothing.)
pub fn are_right(frame: &[u8]) -> bool {
    let Some(Layout {
        v4,
        transport: Some(transport),
    }) = layout(frame)
    else {
        return false;
    };
    let field = transport.field();
    let none = transport.protocol == UDP && frame[field..field + 2] == [0, 0];
    v4.is_none_or(|(from, to)| fold(sum(&frame[from..to])) == u16::MAX)
        && !none
        && fold(transport.pseudo + sum(&frame[transport.start..transport.end])) == u16::MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    const MACS: [u8; 12] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];

    fn v4(protocol: u8, behind: &[u8]) -> Vec<u8> {
        let [hi, lo] = (20 + behind.len() as u16).to_be_bytes();
        let ip = [
            0x45, 0, hi, lo, 0, 1, 0x40, 0, 64, protocol, 0xaa, 0xaa, 10, 0, 0, 1, 10, 0, 0, 2,
        ];
        [&MACS[..], &[8, 0], &ip, behind].concat()
    }

    fn v6(protocol: u8, behind: &[u8]) -> Vec<u8> {
        let [hi, lo] = (behind.len() as u16).to_be_bytes();
        let mut ip = [0; 40];
        ip[..8].copy_from_slice(&[0x60, 0, 0, 0, hi, lo, protocol, 64]);
        (ip[8], ip[24], ip[39]) = (0xfe, 0xfe, 9);
        [&MACS[..], &[0x81, 0, 0, 5, 0x86, 0xdd], &ip, behind].concat()
    }

    /// The header of IPv4 in RFC 1071's successors' usual example: 4500 0073 0000 4000 4011 b861 c0a8 0001 c0a8 00c7.
    #[test]
    fn the_checksum_of_a_known_header() {
        let mut frame = v4(17, &[0; 95]);
        frame[14..34].copy_from_slice(&[
            0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0, 0, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8, 0, 0xc7,
        ]);
        fill(&mut frame);
        assert_eq!(frame[24..26], [0xb8, 0x61]);
        assert!(are_right(&frame));
    }

    #[test]
    fn what_is_filled_in_is_right_and_a_changed_byte_is_not() {
        let tcp: Vec<u8> = (0..21).collect();
        for build in [v4, v6] {
            for (protocol, behind) in [(TCP, &tcp[..]), (UDP, &tcp[..9]), (UDP, &[0; 8])] {
                let mut frame = build(protocol, behind);
                assert!(!are_right(&frame));
                fill(&mut frame);
                // Bytes behind the end of IP are padding.
                frame.extend([7; 3]);
                assert!(are_right(&frame), "{frame:x?}");
                for at in frame.len() - 3 - behind.len()..frame.len() - 3 {
                    let mut other = frame.clone();
                    other[at] ^= 0x10;
                    assert!(!are_right(&other), "{at}");
                }
            }
        }
    }

    #[test]
    fn frames_that_are_cut_or_no_ip_stay_as_they_are() {
        let mut whole = v4(TCP, &[1; 20]);
        for len in 0..whole.len() {
            let before = whole[..len].to_vec();
            fill(&mut whole[..len]);
            assert_eq!(before, whole[..len]);
        }
        let mut fragment = v4(UDP, &[1; 20]);
        fragment[20] = 0x20;
        fill(&mut fragment);
        assert_eq!(fragment[34..], [1; 20]);
        assert!(!are_right(&fragment));
    }
}
