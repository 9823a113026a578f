//! Addresses that move between ports again and again: the ports lead to the same network, or two stations have the same
//! address.

use vnic_wire::MacAddr;

use super::PortId;
use super::fdb::Key;
use super::learn::{elapsed, stamps};

/// Moves of an address after which a loop is suspected. A station that moves once or twice (a migration, a
/// team that changes its port) is none.
const MOVES_MIN: u32 = 5;
/// Longest time between two moves that belong together, in coarse units.
const TOGETHER: u32 = stamps(1);
/// Time over which moves are summed up after a report, in coarse units.
const SUM: u32 = stamps(60);
/// Number of addresses that are followed at a time. In a loop all addresses move.
const ROWS: usize = 8;

/// A suspected loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loop {
    /// The ports of the last move, the one that had the address first.
    pub ports: [PortId; 2],
    /// VLAN of the address.
    pub vlan: u16,
    /// The address that moved last.
    pub mac: MacAddr,
    /// Number of moves since the last report, of all addresses.
    pub moves: u64,
}

/// Moves of an address.
#[derive(Clone, Copy)]
struct Row {
    key: Key,
    /// Coarse time of the last move.
    last: u32,
    moves: u32,
}

/// The moves of late.
pub(crate) struct Moves {
    /// One row for all addresses with the same lowest bits.
    rows: [Option<Row>; ROWS],
    /// What is to be reported.
    suspect: Option<Loop>,
    /// Coarse time of the last report.
    told: Option<u32>,
}

impl Moves {
    pub(crate) fn new() -> Moves {
        Moves {
            rows: [None; ROWS],
            suspect: None,
            told: None,
        }
    }

    /// Notes that an address of one port was seen at another.
    pub(crate) fn moved(&mut self, key: Key, from: PortId, to: PortId, now: u32) {
        let row = &mut self.rows[key.mac() as usize % ROWS];
        let moves = match row {
            Some(row) if row.key == key && elapsed(now, row.last) <= TOGETHER => {
                row.last = now;
                row.moves = row.moves.saturating_add(1);
                row.moves
            }
            _ => {
                *row = Some(Row {
                    key,
                    last: now,
                    moves: 1,
                });
                1
            }
        };
        let more = match moves {
            ..MOVES_MIN => return,
            MOVES_MIN => MOVES_MIN,
            _ => 1,
        };
        let before = self.suspect.map_or(0, |suspect| suspect.moves);
        self.suspect = Some(Loop {
            ports: [from, to],
            vlan: key.vlan(),
            mac: MacAddr::from_u64(key.mac()),
            moves: before.saturating_add(more.into()),
        });
    }

    /// The report that is due: the first at once, the next as sums.
    pub(crate) fn report(&mut self, now: u32) -> Option<Loop> {
        if self.told.is_some_and(|told| elapsed(now, told) < SUM) {
            return None;
        }
        let suspect = self.suspect.take()?;
        self.told = Some(now);
        Some(suspect)
    }
}
