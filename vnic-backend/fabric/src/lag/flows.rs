//! The flows that a bond has seen lately: a table of fixed size, so that a guest with many flows costs no more memory than one
//! with few. A flow that finds no place goes its way all the same; the view does not show it by itself, and says how many
//! frames of such flows there were.

use alloc::boxed::Box;
use core::net::IpAddr;
use core::time::Duration;

use super::{Flow, Member, Packet};
use crate::Instant;

/// Time after which a silent flow gives way to another, and is not shown.
pub const FLOW_IDLE: Duration = Duration::from_secs(30);
/// Most flows of a table: a power of two.
pub const FLOWS_MAX: usize = 1 << 16;
/// Places in the table that a flow may have.
const WAYS: usize = 4;

/// A flow and where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// The flow.
    pub flow: Flow,
    /// The member that its last frame went by.
    pub member: Member,
    /// Frames since the flow is in the table.
    pub packets: u64,
    /// Bytes of these frames.
    pub bytes: u64,
    /// Time of the last frame.
    pub last: Instant,
}

#[derive(Debug, Clone)]
struct Entry {
    /// Hash of the flow, which is compared first.
    print: u64,
    seen: Seen,
}

/// A table of flows, of fixed size.
#[derive(Debug, Clone)]
pub(super) struct Flows {
    /// Places; a power of two, or none.
    table: Box<[Option<Entry>]>,
    unseen: u64,
}

impl Flows {
    /// A table for at least `size` flows, at most [`FLOWS_MAX`]; 0: it keeps none.
    pub(super) fn new(size: usize) -> Flows {
        let size = match size {
            0 => 0,
            n => n.clamp(WAYS, FLOWS_MAX).next_power_of_two(),
        };
        Flows {
            table: alloc::vec![None; size].into_boxed_slice(),
            unseen: 0,
        }
    }

    /// Notes that a frame of a flow goes by a member.
    #[inline]
    pub(super) fn note(&mut self, now: Instant, flow: &Flow, member: Member, bytes: u32) {
        let Some(mask) = self.table.len().checked_sub(1) else {
            return;
        };
        let print = print(flow);
        let first = print as usize & mask & !(WAYS - 1);
        let Some(ways) = self.table.get_mut(first..first + WAYS) else {
            return;
        };
        let mut place = None;
        for (i, way) in ways.iter_mut().enumerate() {
            match way {
                Some(e) if e.print == print && e.seen.flow == *flow => {
                    let seen = &mut e.seen;
                    seen.member = member;
                    seen.packets += 1;
                    seen.bytes += u64::from(bytes);
                    seen.last = now;
                    return;
                }
                Some(e) if now.since(e.seen.last) < FLOW_IDLE => {}
                _ => place = place.or(Some(i)),
            }
        }
        match place {
            Some(i) => {
                ways[i] = Some(Entry {
                    print,
                    seen: Seen {
                        flow: *flow,
                        member,
                        packets: 1,
                        bytes: u64::from(bytes),
                        last: now,
                    },
                });
            }
            None => self.unseen += 1,
        }
    }

    /// Flows that were seen within [`FLOW_IDLE`].
    pub(super) fn seen(&self, now: Instant) -> impl Iterator<Item = &Seen> {
        let entries = self.table.iter().flatten().map(|e| &e.seen);
        entries.filter(move |s| now.since(s.last) < FLOW_IDLE)
    }

    /// Frames of flows that found no place.
    pub(super) fn unseen(&self) -> u64 {
        self.unseen
    }
}

/// A hash that two flows hardly share, with good low bits.
#[inline]
fn print(flow: &Flow) -> u64 {
    let mut mix = Mix(flow.destination.to_u64() << 16 | u64::from(flow.ethertype.0));
    mix.add(flow.source.to_u64());
    let qp = |qp: Option<u32>| qp.map_or(0, |n| u64::from(n) | 1 << 32);
    mix.add(qp(flow.qp) ^ qp(flow.local_qp).rotate_left(31));
    for packet in [&flow.packet, &flow.inner].into_iter().flatten() {
        mix.packet(packet);
    }
    mix.0 ^ mix.0 >> 32
}

/// A hash that multiplies and folds a word at a time. Nobody is kept from finding flows that collide: they get [`WAYS`]
/// places, and the rest is counted.
struct Mix(u64);

impl Mix {
    #[inline]
    fn add(&mut self, word: u64) {
        // The odd number next to 2^64 divided by the golden ratio (Knuth, TAOCP 3, section 6.4).
        let wide = u128::from(self.0 ^ word ^ 0x243f_6a88_85a3_08d3) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (wide >> 64) as u64 ^ wide as u64;
    }

    #[inline]
    fn packet(&mut self, packet: &Packet) {
        for address in [&packet.source, &packet.destination] {
            match address {
                IpAddr::V4(a) => self.add(u64::from(a.to_bits())),
                IpAddr::V6(a) => {
                    self.add((a.to_bits() >> 64) as u64);
                    self.add(a.to_bits() as u64);
                }
            }
        }
        let ports = packet.ports.map_or(0, |p| {
            u64::from(p.source) << 16 | u64::from(p.destination) | 1 << 32
        });
        self.add(ports << 8 | u64::from(packet.protocol));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lag::hash::tests::udp;

    #[test]
    fn flows_are_counted_and_forgotten() {
        let mut flows = Flows::new(8);
        let (a, b) = (udp(1, 2), udp(3, 4));
        flows.note(Instant(5), &a, Member(0), 100);
        flows.note(Instant(6), &b, Member(1), 10);
        flows.note(Instant(7), &a, Member(1), 50);
        let mut seen: std::vec::Vec<_> = flows.seen(Instant(8)).copied().collect();
        seen.sort_by_key(|s| s.packets);
        assert_eq!((seen[0].flow, seen[0].bytes), (b, 10));
        let wanted = Seen {
            flow: a,
            member: Member(1),
            packets: 2,
            bytes: 150,
            last: Instant(7),
        };
        assert_eq!((seen.len(), seen[1]), (2, wanted));
        assert_eq!(flows.seen(Instant(6) + FLOW_IDLE).count(), 1);
        assert_eq!(flows.seen(Instant(7) + FLOW_IDLE).count(), 0);
    }

    #[test]
    fn a_full_table_counts_what_it_cannot_show_and_lets_the_silent_go() {
        let mut flows = Flows::new(1);
        for port in 0..10 {
            flows.note(Instant(port), &udp(port as u16, 1), Member(0), 1);
        }
        assert_eq!((flows.seen(Instant(10)).count(), flows.unseen()), (4, 6));
        let later = Instant(2) + FLOW_IDLE;
        flows.note(later, &udp(9, 1), Member(0), 1);
        let ports = |f: &Seen| f.flow.packet.and_then(|p| p.ports).map(|p| p.source);
        let mut left: std::vec::Vec<_> = flows.seen(later).filter_map(ports).collect();
        left.sort_unstable();
        assert_eq!((left, flows.unseen()), (std::vec![3, 9], 6));
    }

    #[test]
    fn no_table_keeps_nothing() {
        let mut flows = Flows::new(0);
        flows.note(Instant(0), &udp(1, 2), Member(0), 1);
        assert_eq!((flows.seen(Instant(0)).count(), flows.unseen()), (0, 0));
        assert_eq!(Flows::new(usize::MAX).table.len(), FLOWS_MAX);
    }

    #[test]
    fn prints_fill_the_table() {
        let mut flows = Flows::new(4096);
        for qp in 0..2048u32 {
            let flow = Flow {
                qp: Some(qp),
                ..udp(49152, 4791)
            };
            flows.note(Instant(0), &flow, Member(0), 1);
        }
        // Half full, in sets of four: few find no place.
        assert!(flows.unseen() < 150, "{}", flows.unseen());
    }
}
