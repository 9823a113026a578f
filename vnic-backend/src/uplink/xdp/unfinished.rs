//! Frames whose sender left the checksum to a device.
//!
//! A veth pair carries packets of the kernel unchanged: that a TCP or UDP checksum is unfinished is in the `sk_buff`, and an
//! AF_XDP socket gets only the bytes. But the field then has a known value: the sum of the pseudo header (`CHECKSUM_PARTIAL`
//! in the kernel's `skbuff.h`). A finished checksum has that value once in 65,536 frames; to finish it again gives the same
//! value. So to finish all of them is always right.

use vnic_engine::virtio_net::NetHdr;
use vnic_wire::checksum;

const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
const VLAN: [u8; 2] = [0x81, 0x00];
const SERVICE_VLAN: [u8; 2] = [0x88, 0xa8];
const TCP: u8 = 6;
const UDP: u8 = 17;

/// The request to finish the checksum of a frame, if it is unfinished.
#[inline]
pub fn unfinished(frame: &[u8]) -> Option<NetHdr> {
    let mut at = 14;
    let mut kind: [u8; 2] = array(frame, 12)?;
    while kind == VLAN || kind == SERVICE_VLAN {
        kind = array(frame, at + 2)?;
        at += 4;
        if at > 22 {
            return None;
        }
    }
    let (transport, protocol, pseudo) = match kind {
        IPV4 => {
            let fixed: [u8; 20] = array(frame, at)?;
            let header = usize::from(fixed[0] & 0xf) * 4;
            let total = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
            // No fragments: their checksums are finished.
            let fragment = u16::from_be_bytes([fixed[6], fixed[7]]) & 0x3fff != 0;
            if fixed[0] >> 4 != 4 || header < 20 || total < header || fragment {
                return None;
            }
            let len = (total - header) as u32;
            let (source, destination) = (array(&fixed, 12)?, array(&fixed, 16)?);
            let pseudo = checksum::pseudo_v4(source, destination, fixed[9], len);
            (at + header, fixed[9], pseudo)
        }
        IPV6 => {
            let fixed: [u8; 40] = array(frame, at)?;
            let len = u32::from(u16::from_be_bytes([fixed[4], fixed[5]]));
            let (source, destination) = (array(&fixed, 8)?, array(&fixed, 24)?);
            let pseudo = checksum::pseudo_v6(&source, &destination, fixed[6], len);
            (at + 40, fixed[6], pseudo)
        }
        _ => return None,
    };
    let field = match protocol {
        TCP => 16,
        UDP => 6,
        _ => return None,
    };
    let there: [u8; 2] = array(frame, transport + field)?;
    // Zero in UDP means no checksum; it is no sum of a pseudo header.
    if u16::from_be_bytes(there) != checksum::fold(pseudo) {
        return None;
    }
    Some(NetHdr {
        flags: NetHdr::NEEDS_CSUM,
        csum_start: transport as u16,
        csum_offset: field as u16,
        ..NetHdr::default()
    })
}

#[inline]
fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame of Ethernet, tags, IP, and TCP or UDP with this checksum.
    fn frame(v6: bool, tags: usize, protocol: u8, payload: usize, sum: impl Fn(u32) -> u16) -> Vec<u8> {
        let transport = if protocol == TCP { 20 } else { 8 };
        let len = transport + payload;
        let (from, to) = ([7u8; 16], [9u8; 16]);
        let mut all = vec![2; 12];
        for _ in 0..tags {
            all.extend([0x81, 0, 0, 7]);
        }
        let pseudo = if v6 {
            all.extend([
                0x86,
                0xdd,
                0x60,
                0,
                0,
                0,
                (len >> 8) as u8,
                len as u8,
                protocol,
                64,
            ]);
            all.extend(from);
            all.extend(to);
            checksum::pseudo_v6(&from, &to, protocol, len as u32)
        } else {
            let total = 20 + len;
            all.extend([
                0x08,
                0,
                0x45,
                0,
                (total >> 8) as u8,
                total as u8,
                0,
                0,
                0x40,
                0,
                64,
                protocol,
                0,
                0,
            ]);
            all.extend(&from[..4]);
            all.extend(&to[..4]);
            checksum::pseudo_v4([7; 4], [9; 4], protocol, len as u32)
        };
        let at = all.len();
        all.extend((0..len).map(|i| i as u8));
        let field = at + if protocol == TCP { 16 } else { 6 };
        all[field..field + 2].copy_from_slice(&sum(pseudo).to_be_bytes());
        all
    }

    #[test]
    fn what_a_kernel_leaves_is_seen_and_nothing_else() {
        for (v6, tags, protocol) in [(false, 0, TCP), (false, 1, UDP), (true, 2, TCP), (true, 0, UDP)] {
            let start = 14 + 4 * tags + if v6 { 40 } else { 20 };
            let bytes = frame(v6, tags, protocol, 100, checksum::fold);
            let hdr = unfinished(&bytes).expect("unfinished");
            assert_eq!((hdr.flags, hdr.gso_type), (NetHdr::NEEDS_CSUM, 0));
            assert_eq!(usize::from(hdr.csum_start), start);
            assert_eq!(hdr.csum_offset, if protocol == TCP { 16 } else { 6 });
            for other in [0, 1, 0xffff] {
                let bytes = frame(v6, tags, protocol, 100, |p| checksum::fold(p) ^ 0x1000 ^ other);
                assert!(unfinished(&bytes).is_none());
            }
            // A frame that is cut anywhere causes no access outside.
            for n in 0..bytes.len() {
                let _ = unfinished(&bytes[..n]);
            }
        }
        assert!(
            unfinished(&frame(false, 3, TCP, 100, checksum::fold)).is_none(),
            "three tags"
        );
        assert!(
            unfinished(&frame(false, 0, 47, 100, checksum::fold)).is_none(),
            "GRE"
        );
        let mut fragment = frame(false, 0, UDP, 100, checksum::fold);
        fragment[20] = 0x20;
        assert!(unfinished(&fragment).is_none(), "a fragment");
    }
}
