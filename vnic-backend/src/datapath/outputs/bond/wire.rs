//! Frames from the wire of a bond's member.

use std::time::Duration;

use vnic_engine::virtio_net::NetHdr;
use vnic_fabric::Instant;
use vnic_fabric::lag::Member;
use vnic_fabric::switch::PortId;
use vnic_wire::EtherType;
use vnic_wire::lacp::DESTINATION;

use super::BondSetup;

/// Bytes of the longest frame of a slow protocol (the organization specific one; IEEE 802.3 annexes 57A, 57B), without FCS.
const SLOW_LEN_MAX: usize = 1514;
/// Frames of slow protocols in a second that are reported. A slow protocol sends at most ten (IEEE 802.3 clause 57A.2).
const SLOW_A_SECOND: u32 = 100;

/// An uplink's place in its bond.
pub struct InBond {
    /// The bond.
    pub bond: PortId,
    pub(in super::super) member: Member,
    /// VLAN that received frames must have.
    pub(in super::super) vid: Option<u16>,
}

impl InBond {
    /// The place of a port, if it is a member.
    pub fn of(bond: PortId, setup: &BondSetup, port: PortId) -> Option<InBond> {
        let place = setup.members.iter().position(|m| *m == port)?;
        Some(InBond {
            bond,
            member: Member(place as u8),
            vid: setup.tag.map(|tag| tag.vid()),
        })
    }
}

/// Limit of the frames of slow protocols that an uplink passes to the control plane.
#[derive(Default)]
pub struct SlowLimit {
    since: Instant,
    frames: u32,
}

impl SlowLimit {
    /// Whether another frame of this length is allowed.
    pub fn allows(&mut self, now: Instant, len: usize) -> bool {
        if now.since(self.since) >= Duration::from_secs(1) {
            (self.since, self.frames) = (now, 0);
        }
        self.frames = self.frames.saturating_add(1);
        self.frames <= SLOW_A_SECOND && len <= SLOW_LEN_MAX
    }
}

/// Whether the frame is of a slow protocol (IEEE 802.3 annex 57A).
#[inline]
pub fn is_slow(head: &[u8]) -> bool {
    head.starts_with(&DESTINATION.0) || head.get(12..14) == Some(&EtherType::SLOW_PROTOCOLS.0.to_be_bytes())
}

/// Whether the frame is of link layer discovery (IEEE 802.1AB-2016 clause 7).
#[inline]
pub fn is_lldp(head: &[u8]) -> bool {
    head.get(12..14) == Some(&EtherType::LLDP.0.to_be_bytes())
}

/// Takes a tag of this VLAN off a frame. False: the frame has no such tag.
pub(in super::super) fn untag(vid: u16, bytes: &mut &mut [u8], hdr: &mut NetHdr) -> bool {
    let [tpid @ .., a, b] = match bytes.get(12..16) {
        Some(&[t, u, a, b]) => [t, u, a, b],
        _ => return false,
    };
    if tpid != EtherType::VLAN.0.to_be_bytes() || u16::from_be_bytes([a, b]) & 0xfff != vid {
        return false;
    }
    bytes.copy_within(..12, 4);
    let whole = std::mem::take(bytes);
    *bytes = &mut whole[4..];
    hdr.hdr_len = hdr.hdr_len.saturating_sub(4);
    hdr.csum_start = hdr.csum_start.saturating_sub(4);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_goes_with_its_request() {
        let mut frame = [1u8; 64];
        frame[12..16].copy_from_slice(&[0x81, 0, 0x60, 7]);
        let mut hdr = NetHdr {
            hdr_len: 58,
            csum_start: 38,
            ..NetHdr::default()
        };
        let mut bytes = &mut frame[..];
        assert!(!untag(8, &mut bytes, &mut hdr));
        assert_eq!((bytes.len(), hdr.csum_start), (64, 38));
        assert!(untag(7, &mut bytes, &mut hdr));
        assert_eq!((bytes.len(), hdr.hdr_len, hdr.csum_start), (60, 54, 34));
        assert!(bytes.iter().all(|b| *b == 1));
        assert!(!untag(7, &mut bytes, &mut hdr));
        assert!(!untag(7, &mut &mut [0u8; 14][..], &mut hdr));
    }

    #[test]
    fn slow_protocols_are_slow() {
        let mut limit = SlowLimit::default();
        let at = |ms: u64| Instant(5_000_000_000 + ms * 1_000_000);
        let taken = |limit: &mut SlowLimit, ms| (0..1000).filter(|_| limit.allows(at(ms), 124)).count();
        assert_eq!(taken(&mut limit, 0), 100);
        assert_eq!(taken(&mut limit, 999), 0);
        assert_eq!(taken(&mut limit, 1000), 100);
        assert!(!limit.allows(at(2000), 1515));
        assert!(is_slow(&[1, 0x80, 0xc2, 0, 0, 2, 9]) && !is_slow(&[1, 0x80, 0xc2, 0, 0, 3]));
        let mut head = [0; 14];
        head[12..].copy_from_slice(&[0x88, 9]);
        assert!(is_slow(&head));
    }
}
