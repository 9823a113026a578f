//! Explicit congestion notification in the network header of a frame (RFC 3168 section 5; annex A17 for RoCEv2).

use crate::{EtherType, checksum, ethernet, grh, ipv4, ipv6};

/// The ECN field (RFC 3168 section 5, figure 1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Ecn {
    /// The sender does not react to marks.
    NotEct = 0b00,
    /// The sender reacts to marks, codepoint 1.
    Ect1 = 0b01,
    /// The sender reacts to marks, codepoint 0.
    Ect0 = 0b10,
    /// Congestion experienced.
    Ce = 0b11,
}

impl Ecn {
    /// The field in the low two bits of a traffic class.
    #[inline]
    pub const fn of(traffic_class: u8) -> Ecn {
        match traffic_class & 3 {
            0b00 => Ecn::NotEct,
            0b01 => Ecn::Ect1,
            0b10 => Ecn::Ect0,
            _ => Ecn::Ce,
        }
    }
}

/// The network header of a frame with up to two VLAN tags: its offset, and whether it is IPv4 (or else IPv6 or
/// GRH). None if there is no such header or not all of it.
#[inline]
fn network(frame: &[u8]) -> Option<(usize, bool)> {
    let ethernet::Payload { offset, ethertype } = ethernet::payload(frame).ok()?;
    let (v4, version, len) = match ethertype {
        EtherType::IPV4 => (true, 4, ipv4::HEADER_LEN),
        EtherType::IPV6 => (false, 6, ipv6::HEADER_LEN),
        EtherType::ROCE => (false, 6, grh::HEADER_LEN),
        _ => return None,
    };
    let header = frame.get(offset..)?.get(..len)?;
    (header[0] >> 4 == version).then_some((offset, v4))
}

/// The ECN field of a frame that carries IPv4, IPv6 or a GRH; none for others.
#[inline]
pub fn ecn(frame: &[u8]) -> Option<Ecn> {
    let (at, v4) = network(frame)?;
    let byte = frame[at + 1];
    Some(Ecn::of(if v4 { byte } else { byte >> 4 }))
}

/// Marks a frame: congestion experienced. True if it carries the mark now; false, and nothing done, if it has
/// no ECN field or its sender does not react to marks. The IPv4 header checksum is changed along (RFC 1624);
/// the ICRC leaves the field out.
#[inline]
pub fn set_ce(frame: &mut [u8]) -> bool {
    change(frame, |now| (now != Ecn::NotEct).then_some(Ecn::Ce))
}

/// Sets the ECN field of a frame to ECT, for a sender that does not say that it reacts to marks. True if the
/// field was changed; otherwise as [`set_ce`].
#[inline]
pub fn set_ect(frame: &mut [u8]) -> bool {
    change(frame, |now| (now == Ecn::NotEct).then_some(Ecn::Ect0))
}

/// Sets the ECN field to what `to` returns; false, and nothing done, if that is `None`.
#[inline]
fn change(frame: &mut [u8], to: impl FnOnce(Ecn) -> Option<Ecn>) -> bool {
    let Some((at, v4)) = network(frame) else {
        return false;
    };
    let Some(header) = frame
        .get_mut(at..)
        .and_then(|f| f.first_chunk_mut::<{ ipv4::HEADER_LEN }>())
    else {
        return false;
    };
    let shift = if v4 { 0 } else { 4 };
    let Some(ecn) = to(Ecn::of(header[1] >> shift)) else {
        return false;
    };
    let before = u16::from_be_bytes([header[0], header[1]]);
    header[1] = header[1] & !(3 << shift) | (ecn as u8) << shift;
    if v4 {
        let after = u16::from_be_bytes([header[0], header[1]]);
        let sum = u16::from_be_bytes([header[10], header[11]]);
        // RFC 1624 equation 3.
        let sum = !checksum::fold(u32::from(!sum) + u32::from(!before) + u32::from(after));
        header[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    true
}
