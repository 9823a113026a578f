//! Link layer discovery (IEEE 802.1AB-2016 clause 8): what a station tells the other end of its link about itself.
//!
//! ```text
//!   0  destination 01-80-C2-00-00-0E      12  EtherType 0x88CC      14  TLVs, the last one type 0
//!
//!  TLV:   type 7 bits, length 9 bits, value                        first three, in this order:
//!   1 chassis   subtype, identifier          4 port description        chassis, port, time to live
//!   2 port      subtype, identifier          5 system name
//!   3 time to live, seconds, 16 bits         6 system description
//!   8 management address                     7 capabilities, and those that are on, 16 bits each
//! 127 an organization's: OUI 24 bits, subtype, value
//! ```
//!
//! A TLV that ends beyond the frame makes all of it invalid (clause 9.2.8.7); a frame without the end TLV ends with its bytes.

use alloc::vec::Vec;
use core::fmt;

use crate::ethernet::HEADER_LEN;
use crate::{Error, EtherType, MacAddr};

/// Destination: the nearest bridge's address, which no bridge forwards (IEEE 802.1AB-2016 table 7-1).
pub const DESTINATION: MacAddr = MacAddr([0x01, 0x80, 0xc2, 0x00, 0x00, 0x0e]);
/// Most bytes of a TLV's value.
pub const VALUE_MAX: usize = 511;
/// Shortest frame without its FCS.
const FRAME_MIN: usize = 60;

/// Types of TLVs (table 8-1).
pub mod kind {
    /// The last TLV.
    pub const END: u8 = 0;
    /// Chassis ID.
    pub const CHASSIS: u8 = 1;
    /// Port ID.
    pub const PORT: u8 = 2;
    /// Time To Live.
    pub const TTL: u8 = 3;
    /// Port Description.
    pub const PORT_DESCRIPTION: u8 = 4;
    /// System Name.
    pub const SYSTEM_NAME: u8 = 5;
    /// System Description.
    pub const SYSTEM_DESCRIPTION: u8 = 6;
    /// System Capabilities.
    pub const CAPABILITIES: u8 = 7;
    /// Management Address.
    pub const MANAGEMENT: u8 = 8;
    /// Organizationally specific.
    pub const ORGANIZATION: u8 = 127;
}

/// Capabilities of a system (table 8-4), a bit each.
pub mod capability {
    /// It is a MAC bridge.
    pub const BRIDGE: u16 = 1 << 2;
    /// It is a router.
    pub const ROUTER: u16 = 1 << 4;
    /// It is a station only.
    pub const STATION: u16 = 1 << 7;
}

/// A TLV.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tlv<'a> {
    /// One of [`kind`].
    pub kind: u8,
    /// Its value.
    pub value: &'a [u8],
}

/// TLVs up to the end TLV, or to the end of the bytes.
#[derive(Debug, Clone, Copy)]
pub struct Tlvs<'a>(&'a [u8]);

impl<'a> Tlvs<'a> {
    /// The TLVs of these bytes.
    pub fn of(bytes: &'a [u8]) -> Tlvs<'a> {
        Tlvs(bytes)
    }
}

impl<'a> Iterator for Tlvs<'a> {
    type Item = Result<Tlv<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = core::mem::take(&mut self.0);
        if rest.is_empty() {
            return None;
        }
        let Some((head, rest)) = rest.split_first_chunk::<2>() else {
            return Some(Err(Error::Truncated));
        };
        let word = u16::from_be_bytes(*head);
        let (kind, len) = ((word >> 9) as u8, usize::from(word & 0x1ff));
        if kind == kind::END {
            return None;
        }
        let Some((value, rest)) = rest.split_at_checked(len) else {
            return Some(Err(Error::Truncated));
        };
        self.0 = rest;
        Some(Ok(Tlv { kind, value }))
    }
}

/// Appends a TLV. A value beyond [`VALUE_MAX`] bytes is cut off.
pub fn put(out: &mut Vec<u8>, kind: u8, parts: &[&[u8]]) {
    let len = parts.iter().map(|part| part.len()).sum::<usize>().min(VALUE_MAX);
    out.extend((u16::from(kind & 127) << 9 | len as u16).to_be_bytes());
    let end = out.len() + len;
    for part in parts {
        out.extend_from_slice(part);
    }
    out.truncate(end);
}

/// An identifier of a chassis or of a port: its subtype, and its bytes (clauses 8.5.2 and 8.5.3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id<'a> {
    /// What the bytes are; chassis and ports number it differently.
    pub subtype: u8,
    /// 1 to 255 bytes.
    pub bytes: &'a [u8],
}

impl Id<'_> {
    /// A chassis by its address.
    pub const CHASSIS_MAC: u8 = 4;
    /// A port by the name of its interface.
    pub const PORT_NAME: u8 = 5;

    fn of(value: &[u8]) -> Option<Id<'_>> {
        let (subtype, bytes) = value.split_first()?;
        (1..=255).contains(&bytes.len()).then_some(Id {
            subtype: *subtype,
            bytes,
        })
    }
}

/// Addresses in hexadecimal, IPv4 addresses in decimal, other text as it is if all of it can be shown.
impl fmt::Display for Id<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Subtype 3 of a port and 4 of a chassis: an address; 4 and 5: a network address behind its family.
        match (self.subtype, self.bytes) {
            (3 | 4, &[a, b, c, d, e, g]) => fmt::Display::fmt(&MacAddr([a, b, c, d, e, g]), f),
            (4 | 5, &[1, a, b, c, d]) => write!(f, "{a}.{b}.{c}.{d}"),
            (_, bytes) => f.write_str(&text(bytes)),
        }
    }
}

impl fmt::Debug for Id<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {self}", self.subtype)
    }
}

/// Bytes as text: what is no printable character is a backslash and its number.
pub fn text(bytes: &[u8]) -> alloc::string::String {
    let mut out = alloc::string::String::new();
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c.is_control() {
                true => out.extend(c.escape_default()),
                false => out.push(c),
            }
        }
        for byte in chunk.invalid() {
            out.extend(core::ascii::escape_default(*byte).map(char::from));
        }
    }
    out
}

/// What a station says about itself. Strings are in UTF-8, as far as the station keeps to the standard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lldpdu<'a> {
    /// Source of the frame.
    pub source: MacAddr,
    /// The chassis.
    pub chassis: Id<'a>,
    /// The port.
    pub port: Id<'a>,
    /// For how long it holds, seconds; 0: the station leaves.
    pub ttl: u16,
    /// Description of the port.
    pub port_description: Option<&'a [u8]>,
    /// Name of the system.
    pub system_name: Option<&'a [u8]>,
    /// Description of the system.
    pub system_description: Option<&'a [u8]>,
    /// [`capability`] of the system, and those that are on.
    pub capabilities: Option<(u16, u16)>,
    /// First management address: its family (IANA address family numbers), and its bytes.
    pub management: Option<(u8, &'a [u8])>,
    /// All TLVs behind the time to live.
    pub more: &'a [u8],
}

impl<'a> Lldpdu<'a> {
    /// Reads a frame.
    ///
    /// # Errors
    /// [`Error::Kind`]: it is no LLDP frame, or its first TLVs are others than the standard says, or one of them is there again.
    /// [`Error::Truncated`]: a TLV ends beyond it. [`Error::Length`]: a TLV has another length than its type allows.
    pub fn parse(frame: &'a [u8]) -> Result<Lldpdu<'a>, Error> {
        let (head, pdu) = frame.split_first_chunk::<HEADER_LEN>().ok_or(Error::Truncated)?;
        let &[_, _, _, _, _, _, a, b, c, d, e, f, t, u] = head;
        if u16::from_be_bytes([t, u]) != EtherType::LLDP.0 {
            return Err(Error::Kind);
        }
        let mut tlvs = Tlvs(pdu);
        let mut first = |kind| match tlvs.next() {
            Some(Ok(tlv)) if tlv.kind == kind => Ok(tlv.value),
            Some(Err(e)) => Err(e),
            _ => Err(Error::Kind),
        };
        let chassis = Id::of(first(kind::CHASSIS)?).ok_or(Error::Length)?;
        let port = Id::of(first(kind::PORT)?).ok_or(Error::Length)?;
        let ttl = first(kind::TTL)?.first_chunk().ok_or(Error::Length)?;
        let mut new = Lldpdu {
            source: MacAddr([a, b, c, d, e, f]),
            chassis,
            port,
            ttl: u16::from_be_bytes(*ttl),
            port_description: None,
            system_name: None,
            system_description: None,
            capabilities: None,
            management: None,
            more: tlvs.0,
        };
        for tlv in tlvs {
            let Tlv { kind, value } = tlv?;
            match kind {
                kind::CHASSIS | kind::PORT | kind::TTL => return Err(Error::Kind),
                kind::PORT_DESCRIPTION => new.port_description = Some(value),
                kind::SYSTEM_NAME => new.system_name = Some(value),
                kind::SYSTEM_DESCRIPTION => new.system_description = Some(value),
                kind::CAPABILITIES => {
                    let &[a, b, c, d] = value.first_chunk().ok_or(Error::Length)?;
                    new.capabilities = Some((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])));
                }
                kind::MANAGEMENT if new.management.is_none() => {
                    let (len, rest) = value.split_first().ok_or(Error::Length)?;
                    let address = rest.get(..usize::from(*len)).and_then(<[u8]>::split_first);
                    let (family, bytes) = address.ok_or(Error::Length)?;
                    new.management = Some((*family, bytes));
                }
                _ => {}
            }
        }
        Ok(new)
    }

    /// The message without what it may have, and need not.
    pub fn mandatory(self) -> Lldpdu<'a> {
        Lldpdu {
            port_description: None,
            system_name: None,
            system_description: None,
            capabilities: None,
            management: None,
            more: &[],
            ..self
        }
    }

    /// The frame, padded to the shortest length; `more` are the TLVs between the time to live and the end.
    pub fn frame(source: MacAddr, chassis: Id<'_>, port: Id<'_>, ttl: u16, more: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(FRAME_MIN.max(64 + more.len()));
        out.extend(DESTINATION.0);
        out.extend(source.0);
        out.extend(EtherType::LLDP.0.to_be_bytes());
        put(&mut out, kind::CHASSIS, &[&[chassis.subtype], chassis.bytes]);
        put(&mut out, kind::PORT, &[&[port.subtype], port.bytes]);
        put(&mut out, kind::TTL, &[&ttl.to_be_bytes()]);
        out.extend_from_slice(more);
        put(&mut out, kind::END, &[]);
        out.resize(out.len().max(FRAME_MIN), 0);
        out
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString as _;
    use proptest::prelude::*;

    use super::*;

    /// A frame as Wireshark's sample `lldp.detailed.pcap` has its like, made by hand.
    fn known() -> Vec<u8> {
        let mut more = Vec::new();
        put(&mut more, kind::PORT_DESCRIPTION, &[b"Uplink 1"]);
        put(&mut more, kind::SYSTEM_NAME, &[b"tor-1"]);
        put(&mut more, kind::CAPABILITIES, &[&[0, 0x14, 0, 4]]);
        put(
            &mut more,
            kind::MANAGEMENT,
            &[&[5, 1, 192, 0, 2, 7, 2, 0, 0, 0, 1, 0]],
        );
        put(&mut more, kind::ORGANIZATION, &[&[0, 0x80, 0xc2, 1], &[0, 1]]);
        let id = |subtype, bytes| Id { subtype, bytes };
        Lldpdu::frame(
            MacAddr([2, 0, 0, 0, 0, 9]),
            id(Id::CHASSIS_MAC, &[2, 0, 0, 0, 0, 8]),
            id(Id::PORT_NAME, b"et-0/0/1"),
            121,
            &more,
        )
    }

    #[test]
    fn known_bytes() {
        let frame = known();
        assert_eq!(
            frame[..38],
            [
                1, 0x80, 0xc2, 0, 0, 0x0e, 2, 0, 0, 0, 0, 9, 0x88, 0xcc, 2, 7, 4, 2, 0, 0, 0, 0, 8, 4, 9, 5,
                b'e', b't', b'-', b'0', b'/', b'0', b'/', b'1', 6, 2, 0, 121
            ]
        );
        let pdu = Lldpdu::parse(&frame).expect("an LLDPDU");
        assert_eq!(
            (pdu.chassis.to_string(), pdu.port.to_string()),
            ("02:00:00:00:00:08".into(), "et-0/0/1".into())
        );
        assert_eq!((pdu.ttl, pdu.system_name), (121, Some(&b"tor-1"[..])));
        assert_eq!(pdu.capabilities, Some((0x14, capability::BRIDGE)));
        assert_eq!(pdu.management, Some((1, &[192, 0, 2, 7][..])));
        assert_eq!(Tlvs::of(pdu.more).count(), 5);
    }

    #[test]
    fn what_the_standard_forbids_is_refused() {
        let frame = known();
        for len in 0..85 {
            let cut = Lldpdu::parse(&frame[..len]);
            let whole = [38, 48, 55, 61, 75, 83].contains(&len);
            assert_eq!(cut.is_ok(), whole, "{len}: {cut:?}");
        }
        let changed = |at: usize, to: u8| {
            let mut frame = frame.clone();
            frame[at] = to;
            Lldpdu::parse(&frame).map(|_| ())
        };
        assert_eq!(changed(13, 0xcd), Err(Error::Kind));
        assert_eq!(changed(14, 4), Err(Error::Kind), "a port before the chassis");
        assert_eq!(changed(38, 2), Err(Error::Kind), "a second chassis");
        assert_eq!(changed(15, 1), Err(Error::Length), "an empty identifier");
    }

    #[test]
    fn bytes_become_text() {
        assert_eq!(text("Grün\n".as_bytes()), "Grün\\n");
        assert_eq!(text(&[b'a', 0xff]), "a\\xff");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let mut frame = known();
            let _ = Lldpdu::parse(&bytes);
            frame.truncate(14);
            frame.extend(bytes);
            if let Ok(pdu) = Lldpdu::parse(&frame) {
                let again = Lldpdu::frame(pdu.source, pdu.chassis, pdu.port, pdu.ttl, &[]);
                let again = Lldpdu::parse(&again).expect("what was read can be written");
                prop_assert_eq!((again.chassis, again.port, again.ttl), (pdu.chassis, pdu.port, pdu.ttl));
            }
        }
    }
}
