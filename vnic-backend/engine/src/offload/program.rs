//! Segmentation requests of programs, which give headers and say how long segments are (`ibv_post_send(3)`, `IBV_WR_TSO`).

use vnic_wire::ipv4::{PROTOCOL_TCP, PROTOCOL_UDP};
use vnic_wire::{EtherType, ethernet, ipv6, tcp, tunnel, udp};

use super::{HEAD_MAX, IP_MAX, Malformed, Parts, Request, check, ip};
use crate::virtio_net::NetHdr;
use crate::virtio_net::steering::Tunnels;

/// Makes a frame with TCP or UDP the request to cut it into segments of `size` bytes of payload: lengths and checksums in its
/// headers become those that a driver leaves there, whatever the program wrote. In one of `tunnels` over UDP the packet inside is cut; the
/// tunnel's UDP header has a checksum if the program wrote another one than 0.
pub fn request(frame: &mut [u8], size: u16, tunnels: &Tunnels) -> Result<NetHdr, Malformed> {
    let len = frame.len();
    let head = frame.get(..len.min(HEAD_MAX)).unwrap_or_default();
    let hdr = header(head, size, tunnels)?;
    let Request::Tso(tso) = check(&hdr, head, len)? else {
        return Err(Malformed::WrongProtocol);
    };
    let (network, v6) = tso
        .outer
        .map_or((tso.network, tso.v6), |outer| (outer.network, outer.v6));
    let counted = network + if v6 { ipv6::HEADER_LEN } else { 0 };
    if len - counted > IP_MAX {
        return Err(Malformed::SegmentTooLong);
    }
    let mut headers = [0; HEAD_MAX];
    // One part: the whole.
    Parts::new(&tso, head, len, u16::MAX).next(&mut headers);
    if let Some(head) = frame.get_mut(..tso.head_len) {
        head.copy_from_slice(&headers[..tso.head_len]);
    }
    Ok(hdr)
}

/// The virtio header of the request; [`check`] has the last word.
fn header(head: &[u8], size: u16, tunnels: &Tunnels) -> Result<NetHdr, Malformed> {
    let link = ethernet::payload(head)?;
    let packet = |ethertype, at| ip(head, ethertype, at)?.ok_or(Malformed::WrongProtocol);
    let (mut ethertype, mut found) = (link.ethertype, packet(link.ethertype, link.offset)?);
    let mut flags = NetHdr::NEEDS_CSUM;
    let datagram = head.get(found.upper..).unwrap_or_default();
    if let (PROTOCOL_UDP, false) = (found.protocol, found.fragment)
        && let Some(inner) = tunnel::inner(found.protocol, datagram, tunnels.vxlan_port)
        && tunnels.has(inner.kind)
    {
        (ethertype, found) = (
            inner.ethertype,
            packet(inner.ethertype, found.upper + inner.offset)?,
        );
        flags |= NetHdr::TUNNEL;
        if datagram.get(udp::CHECKSUM_OFFSET..udp::HEADER_LEN) != Some(&[0; 2]) {
            flags |= NetHdr::UDP_TUNNEL_CSUM;
        }
    }
    let segment = head.get(found.upper..).unwrap_or_default();
    let v6 = ethertype == EtherType::IPV6;
    let (gso_type, csum_offset) = match found.protocol {
        PROTOCOL_TCP => {
            let kind = if v6 { NetHdr::GSO_TCPV6 } else { NetHdr::GSO_TCPV4 };
            // The window was reduced: the receiver has to know about ECN.
            let bits = segment.get(13).copied().map_or(0, u16::from);
            (
                kind | if bits & tcp::CWR != 0 { NetHdr::GSO_ECN } else { 0 },
                tcp::CHECKSUM_OFFSET,
            )
        }
        PROTOCOL_UDP => (NetHdr::GSO_UDP_L4, udp::CHECKSUM_OFFSET),
        _ => return Err(Malformed::WrongProtocol),
    };
    Ok(NetHdr {
        flags,
        gso_type,
        gso_size: size,
        csum_start: found.upper as u16,
        csum_offset: csum_offset as u16,
        ..NetHdr::default()
    })
}
