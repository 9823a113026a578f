//! Event messages of the Precision Time Protocol (IEEE 1588-2019 clause 13.3), as far as a transparent clock changes them: the
//! time for which it holds a message is added to the message's correctionField (clause 10.2, one step, end to end).
//!
//! ```text
//!  0  majorSdoId, messageType     8  correctionField: ns x 65536, signed, 64 bits
//!  1  minorVersion, version       …
//! ```

use crate::EtherType;

/// EtherType of messages without IP (annex E).
pub const ETHER_TYPE: EtherType = EtherType(0x88f7);
/// UDP destination port of event messages (annexes C and D).
pub const EVENT_PORT: u16 = 319;
/// Bytes from the front of a frame in which [`Event::find`] finds all it looks for: Ethernet with two tags, IPv4 with all
/// options, UDP, and the message up to the end of its correctionField.
pub const LOOKED_AT: usize = 22 + 60 + 8 + 16;

/// The only version that has a correctionField.
const VERSION: u8 = 2;
/// Event messages are Sync, Delay_Req, Pdelay_Req and Pdelay_Resp.
const EVENT_TYPES_END: u8 = 4;
const CORRECTION: usize = 8;

/// An event message in a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// Offset of its correctionField.
    correction: usize,
    /// Offset of its UDP header's checksum.
    checksum: Option<usize>,
}

impl Event {
    /// Looks for an event message in a frame with at most two tags. Fragments, and IPv6 with extension headers, are not looked
    /// into.
    pub fn find(frame: &[u8]) -> Option<Event> {
        let two = |at: usize| Some(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?));
        let mut at = 12;
        for _ in 0..2 {
            if [EtherType::VLAN.0, EtherType::SERVICE_VLAN.0].contains(&two(at)?) {
                at += 4;
            }
        }
        let ether_type = two(at)?;
        at += 2;
        let mut checksum = None;
        if ether_type != ETHER_TYPE.0 {
            let udp = match (ether_type, *frame.get(at)?) {
                // UDP; neither more fragments nor an offset.
                (0x0800, first @ 0x45..=0x4f) if *frame.get(at + 9)? == 17 && two(at + 6)? & 0x3fff == 0 => {
                    at + 4 * usize::from(first & 15)
                }
                (0x86dd, 0x60..=0x6f) if *frame.get(at + 6)? == 17 => at + 40,
                _ => return None,
            };
            if two(udp + 2)? != EVENT_PORT {
                return None;
            }
            // Over IPv4 there may be no checksum (RFC 768).
            checksum = (two(udp + 6)? != 0).then_some(udp + 6);
            at = udp + 8;
        }
        let is_event = frame.get(at)? & 15 < EVENT_TYPES_END && frame.get(at + 1)? & 15 == VERSION;
        let correction = at + CORRECTION;
        (is_event && frame.len() >= correction + 8).then_some(Event { correction, checksum })
    }

    /// Adds `ns` to the message's correctionField and, with `finished`, follows it in the UDP checksum (RFC 1624): a checksum
    /// that is still to be computed does not have the payload yet. A correction that is too large for the field becomes its
    /// greatest value, which means just that (IEEE 1588-2019 clause 13.3.2).
    pub fn add(&self, frame: &mut [u8], ns: u64, finished: bool) {
        let Some(field) = frame
            .get_mut(self.correction..)
            .and_then(|f| f.first_chunk_mut::<8>())
        else {
            return;
        };
        let before = *field;
        let added = i64::try_from(ns).unwrap_or(i64::MAX).saturating_mul(1 << 16);
        *field = i64::from_be_bytes(before).saturating_add(added).to_be_bytes();
        let after = *field;
        let place = self.checksum.filter(|_| finished);
        let Some(sum) = place.and_then(|at| frame.get_mut(at..)?.first_chunk_mut::<2>()) else {
            return;
        };
        let old = u32::from(!u16::from_be_bytes(*sum));
        let word = |bytes: [u8; 2]| u32::from(u16::from_be_bytes(bytes));
        let (was, is) = (before.as_chunks::<2>().0, after.as_chunks::<2>().0);
        let total = was
            .iter()
            .zip(is)
            .fold(old, |sum, (was, is)| sum + word(*is) + (0xffff - word(*was)));
        let new = match !crate::checksum::fold(total) {
            0 => 0xffff,
            new => new,
        };
        *sum = new.to_be_bytes();
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;
    use crate::checksum;

    /// A frame with a message of this type (and an odd byte behind it); returns also where the message begins.
    fn frame(tags: usize, network: Option<u8>, kind: u8, correction: i64) -> (Vec<u8>, usize) {
        let mut f = std::vec![7u8; 12];
        for _ in 0..tags {
            f.extend([0x81, 0, 0x60, 5]);
        }
        match network {
            None => f.extend([0x88, 0xf7]),
            Some(4) => f.extend([
                8, 0, 0x46, 0, 0, 77, 0, 1, 0x40, 0, 1, 17, 0, 0, 10, 0, 0, 1, 224, 0, 1, 129, 1, 1, 1, 1,
            ]),
            Some(_) => {
                f.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 53, 17, 1]);
                f.extend([9; 32]);
            }
        }
        let udp = f.len();
        if network.is_some() {
            f.extend([1, 63, 1, 63, 0, 53, 0, 0]);
        }
        let at = f.len();
        f.extend([kind, 2, 0, 44, 0, 0, 2, 0]);
        f.extend(correction.to_be_bytes());
        f.extend([3; 29]);
        if network.is_some() {
            let sum = !checksum::fold(checksum::sum(&f[udp..]));
            f[udp + 6..udp + 8].copy_from_slice(&sum.to_be_bytes());
        }
        (f, at)
    }

    fn correction(f: &[u8], at: usize) -> i64 {
        i64::from_be_bytes(f[at + 8..at + 16].try_into().expect("eight bytes"))
    }

    #[test]
    fn the_time_is_added_and_the_checksum_follows() {
        for tags in 0..=2 {
            for network in [None, Some(4), Some(6)] {
                for (before, ns) in [
                    (0, 1),
                    (-5 << 16, 1 << 20),
                    (0x7fff, 999_999_999),
                    (i64::MIN, 3),
                    (-1, 0),
                ] {
                    let (mut f, at) = frame(tags, network, 0x10, before);
                    let event = Event::find(&f).expect("a Sync");
                    assert!(at + 16 <= LOOKED_AT);
                    assert_eq!(Event::find(&f[..at + 16]), Some(event));
                    assert_eq!(Event::find(&f[..at + 15]), None);
                    event.add(&mut f, ns, true);
                    assert_eq!(correction(&f, at), before + (ns << 16) as i64);
                    if network.is_some() {
                        assert_eq!(
                            checksum::fold(checksum::sum(&f[at - 8..])),
                            0xffff,
                            "{tags} {network:?} {before}"
                        );
                    }
                    // Unfinished: the payload is not in the checksum.
                    let kept = f.clone();
                    event.add(&mut f, 1, false);
                    assert_eq!(f[..at], kept[..at]);
                }
            }
        }
    }

    #[test]
    fn corrections_too_large_say_so() {
        let (mut f, at) = frame(0, None, 1, i64::MAX - 1);
        let event = Event::find(&f).expect("a Delay_Req");
        event.add(&mut f, u64::MAX, true);
        assert_eq!(correction(&f, at), i64::MAX);
    }

    #[test]
    fn other_frames_are_left_alone() {
        let found = |change: &dyn Fn(&mut Vec<u8>, usize), network| {
            let (mut f, at) = frame(0, network, 3, 0);
            change(&mut f, at);
            Event::find(&f).is_some()
        };
        assert!(found(&|_, _| {}, Some(4)));
        for network in [None, Some(4), Some(6)] {
            assert!(!found(&|f, at| f[at] = 8, network), "Follow_Up is no event");
            assert!(!found(&|f, at| f[at + 1] = 1, network), "version 1");
        }
        assert!(!found(&|f, at| f[at - 5] = 64, Some(4)), "port 320");
        assert!(!found(&|f, at| f[at - 5] = 64, Some(6)), "port 320");
        assert!(
            !found(&|f, _| f[20] = 0x20, Some(4)),
            "the first of several fragments"
        );
        assert!(!found(&|f, _| f[21] = 1, Some(4)), "a later fragment");
        assert!(!found(&|f, _| f[23] = 6, Some(4)), "TCP");
        assert!(!found(&|f, _| f[20] = 0, Some(6)), "an extension header");
    }

    #[test]
    fn a_packet_without_a_checksum_gets_none() {
        let (mut f, at) = frame(0, Some(4), 0, 0);
        f[at - 2..at].copy_from_slice(&[0, 0]);
        Event::find(&f).expect("a Sync").add(&mut f, 5, true);
        assert_eq!((&f[at - 2..at], correction(&f, at)), (&[0, 0][..], 5 << 16));
    }
}
