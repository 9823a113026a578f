//! Table of the addresses behind each peer.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Greatest number of addresses of a peer, so that one peer cannot displace the addresses of others.
pub const ADDRESSES_MAX: usize = 4096;
/// Least time between two refreshes of a row, to save work.
const REFRESH: Duration = Duration::from_secs(1);
/// EtherTypes of VLAN tags (IEEE 802.1Q clause 9.5).
const TAGS: [u16; 2] = [0x8100, 0x88a8];
/// EtherType of MAC control, such as pause frames (IEEE 802.3 clause 31): it never passes a bridge.
const MAC_CONTROL: u16 = 0x8808;

/// Key of a row: VLAN and address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key(u16, [u8; 6]);

/// The addresses of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    /// Destination; `None`: all peers.
    pub to: Option<Key>,
    /// Source; `None`: a group address, which is no valid source.
    pub from: Option<Key>,
}

/// Reads the addresses of a frame; `None`: a mesh does not carry the frame.
pub fn addresses(frame: &[u8]) -> Option<Addresses> {
    let (to, rest) = frame.split_first_chunk::<6>()?;
    let (from, rest) = rest.split_first_chunk::<6>()?;
    let (ethertype, rest) = rest.split_first_chunk::<2>()?;
    let ethertype = u16::from_be_bytes(*ethertype);
    if ethertype == MAC_CONTROL {
        return None;
    }
    let vlan = match rest {
        [a, b, ..] if TAGS.contains(&ethertype) => u16::from_be_bytes([*a, *b]) & 0xfff,
        _ => 0,
    };
    let key = |address: &[u8; 6]| (address[0] & 1 == 0).then_some(Key(vlan, *address));
    Some(Addresses {
        to: key(to),
        from: key(from),
    })
}

struct Row {
    peer: u32,
    seen: Instant,
}

/// Table of addresses.
pub struct Table {
    ageing: Duration,
    rows: HashMap<Key, Row>,
    /// Number of rows of each peer.
    held: HashMap<u32, usize>,
    purge_at: Option<Instant>,
}

impl Table {
    /// Makes an empty table.
    pub fn new(ageing: Duration) -> Table {
        Table {
            ageing,
            rows: HashMap::new(),
            held: HashMap::new(),
            purge_at: None,
        }
    }

    /// Notes that a peer sent from an address.
    pub fn learn(&mut self, key: Key, peer: u32, now: Instant) {
        if let Some(row) = self.rows.get_mut(&key) {
            if row.peer == peer {
                if now.saturating_duration_since(row.seen) >= REFRESH {
                    row.seen = now;
                }
                return;
            }
            let before = row.peer;
            release(&mut self.held, before);
            self.rows.remove(&key);
        }
        self.purge(now);
        let held = self.held.entry(peer).or_default();
        if *held < ADDRESSES_MAX {
            *held += 1;
            self.rows.insert(key, Row { peer, seen: now });
        }
    }

    /// Peer behind an address.
    pub fn find(&self, key: Key, now: Instant) -> Option<u32> {
        let row = self.rows.get(&key)?;
        (now.saturating_duration_since(row.seen) < self.ageing).then_some(row.peer)
    }

    /// Removes the rows of a peer that is gone.
    pub fn forget(&mut self, peer: u32) {
        self.rows.retain(|_, row| row.peer != peer);
        self.held.remove(&peer);
    }

    /// Removes old rows from time to time.
    fn purge(&mut self, now: Instant) {
        if self.purge_at.is_some_and(|at| now < at) {
            return;
        }
        self.purge_at = Some(now + self.ageing / 4);
        let (held, ageing) = (&mut self.held, self.ageing);
        self.rows.retain(|_, row| {
            let young = now.saturating_duration_since(row.seen) < ageing;
            if !young {
                release(held, row.peer);
            }
            young
        });
    }
}

fn release(held: &mut HashMap<u32, usize>, peer: u32) {
    if let Some(n) = held.get_mut(&peer) {
        *n = n.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGEING: Duration = Duration::from_secs(300);

    fn key(n: u32) -> Key {
        let [a, b, c, d] = n.to_be_bytes();
        Key(0, [2, 0, a, b, c, d])
    }

    #[test]
    fn addresses_are_those_of_the_vlan_and_groups_are_nobody() {
        let mut frame = [0u8; 60];
        frame[..6].fill(0xff);
        frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 7]);
        frame[12..16].copy_from_slice(&[0x81, 0, 0x60, 10]);
        let read = addresses(&frame).expect("addresses");
        assert_eq!((read.to, read.from), (None, Some(Key(10, [2, 0, 0, 0, 0, 7]))));
        frame[12..14].copy_from_slice(&[8, 0]);
        frame[6] = 3;
        let read = addresses(&frame).expect("addresses");
        assert_eq!((read.to, read.from), (None, None));
        assert_eq!(addresses(&frame[..13]), None);
        frame[12..14].copy_from_slice(&[0x88, 0x08]);
        assert_eq!(addresses(&frame), None, "a pause frame");
    }

    #[test]
    fn addresses_move_age_and_go_with_their_peer() {
        let (mut table, now) = (Table::new(AGEING), Instant::now());
        table.learn(key(1), 1, now);
        table.learn(key(2), 2, now);
        assert_eq!(table.find(key(1), now), Some(1));
        table.learn(key(1), 2, now);
        assert_eq!(table.find(key(1), now), Some(2));
        table.learn(key(3), 1, now + AGEING / 2);
        let later = now + AGEING;
        assert_eq!(
            (table.find(key(1), later), table.find(key(3), later)),
            (None, Some(1))
        );
        table.learn(key(4), 1, later);
        assert_eq!(table.rows.len(), 2, "old ones are gone");
        table.forget(1);
        assert!(table.rows.is_empty());
        assert!(!table.held.contains_key(&1));
    }

    #[test]
    fn one_peer_cannot_push_out_the_others() {
        let (mut table, now) = (Table::new(AGEING), Instant::now());
        table.learn(key(u32::MAX), 2, now);
        for n in 0..2 * ADDRESSES_MAX as u32 {
            table.learn(key(n), 1, now);
        }
        assert_eq!(table.rows.len(), ADDRESSES_MAX + 1);
        assert_eq!(table.find(key(u32::MAX), now), Some(2));
        // A peer can take over the addresses of others, but not more than its share.
        table.learn(key(u32::MAX), 1, now);
        assert_eq!(table.rows.len(), ADDRESSES_MAX);
    }
}
