//! Frames whose sender left the checksum to a device.
//!
//! A veth pair carries packets of the kernel as they are: that their TCP or UDP checksum is not finished stands beside
//! the packet, and a socket of AF_XDP gets the bytes alone. But what stands in the field then is known: the sum of the
//! pseudo header (`CHECKSUM_PARTIAL` in the kernel's `skbuff.h`). A finished checksum has that value once in 65,536
//! frames; to finish it again gives the same value. So whoever finishes all of them is always right.

use vnic_engine::virtio_net::NetHdr;
use vnic_wire::checksum;

const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
const VLAN: [u8; 2] = [0x81, 0x00];
const SERVICE_VLAN: [u8; 2] = [0x88, 0xa8];
const TCP: u8 = 6;
const UDP: u8 = 17;

/// The request to finish the checksum of a frame, if it is not.
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
    // Zero in UDP is none; it is no sum of a pseudo header.
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
