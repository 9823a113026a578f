//! Arbitration between virtual lanes (IBTA volume 1, 7.6.9): two tables of lanes and weights, high and low priority. A traffic class is a
//! lane.
//!
//! Of a table, an entry has its turn until its lane has sent its weight or has nothing to send; then comes the next entry, and so on in a
//! circle. A packet that begins within the weight is sent whole. High priority goes first, but after `limit` bytes of it low priority has
//! an opportunity to send one packet.

use alloc::vec::Vec;

use super::{LANES, LEVELS, QosError};

/// Most entries of a table (IBTA volume 1, 7.6.9.2).
pub const ENTRIES_MAX: usize = 64;
/// Bytes of a unit of weight.
pub const WEIGHT_UNIT: u32 = 64;
/// Bytes of a unit of the limit of high priority.
pub const LIMIT_UNIT: u32 = 4096;
/// Limit of high priority that is none.
pub const UNLIMITED: u8 = 255;

/// Arbitration tables of a port.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VlArbitration {
    /// Entries of high priority: lane (0..=14; 0..=7 are the traffic classes), and weight in units of [`WEIGHT_UNIT`]. One of weight 0 has no turn.
    pub high: Vec<(u8, u8)>,
    /// Entries of low priority, likewise.
    pub low: Vec<(u8, u8)>,
    /// Units of [`LIMIT_UNIT`] of high priority before low priority has an opportunity; 0: one packet; [`UNLIMITED`]: never.
    pub high_limit: u8,
}

impl VlArbitration {
    /// Checks the tables of a port whose service levels have these classes: each of these classes must have its turn.
    pub(super) fn check(&self, of_level: &[u8; LEVELS]) -> Result<(), QosError> {
        const FIELD: &str = "vl_arbitration";
        let refuse = |problem| {
            Err(QosError {
                field: FIELD,
                problem,
            })
        };
        for (name, table) in [("high", &self.high), ("low", &self.low)] {
            if table.len() > ENTRIES_MAX {
                return refuse(alloc::format!(
                    "{name} has {} entries: 0 to {ENTRIES_MAX} are allowed",
                    table.len()
                ));
            }
            if let Some((lane, _)) = table.iter().find(|(lane, _)| usize::from(*lane) >= LANES) {
                return refuse(alloc::format!(
                    "{name}: virtual lane {lane} is out of range: 0 to 14"
                ));
            }
        }
        let served = |class: &u8| {
            self.high
                .iter()
                .chain(&self.low)
                .any(|(lane, weight)| lane == class && *weight > 0)
        };
        match of_level.iter().zip(0..).find(|(class, _)| !served(class)) {
            None => Ok(()),
            Some((class, level)) => refuse(alloc::format!(
                "virtual lane {class}, which service level {level} has, has no weight in either table: its frames would never be sent"
            )),
        }
    }
}

/// Whose turn it is: a table, and an entry of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Turn {
    high: bool,
    entry: u8,
}

/// A table, and where it stands.
#[derive(Debug)]
struct Table {
    entries: Vec<(u8, u8)>,
    /// The entry that has its turn.
    at: usize,
    /// Bytes that it may still begin within; 0 or less: its turn is over.
    left: i64,
}

impl Table {
    fn new(entries: &[(u8, u8)]) -> Table {
        let entries: Vec<_> = entries
            .iter()
            .copied()
            .filter(|(_, weight)| *weight > 0)
            .collect();
        let mut table = Table {
            entries,
            at: 0,
            left: 0,
        };
        table.left = table.weight(0);
        table
    }

    fn weight(&self, at: usize) -> i64 {
        self.entries
            .get(at)
            .map_or(0, |(_, weight)| i64::from(*weight) * i64::from(WEIGHT_UNIT))
    }

    /// The entry that sends next, of lanes that are ready.
    fn next(&self, ready: u16) -> Option<usize> {
        let is_ready = |at: &usize| {
            self.entries
                .get(*at)
                .is_some_and(|(lane, _)| ready & 1 << lane != 0)
        };
        let count = self.entries.len();
        // The one that has its turn comes last, too: with a new turn, when no other is ready.
        let first = usize::from(self.left <= 0);
        (first..=count)
            .map(|step| (self.at + step) % count.max(1))
            .find(is_ready)
    }

    /// Counts what an entry has sent.
    fn sent(&mut self, entry: usize, wire: u32) {
        if entry != self.at || self.left <= 0 {
            self.at = entry;
            self.left = self.weight(entry);
        }
        self.left -= i64::from(wire);
    }
}

/// Arbitration of a port's frames that wait.
#[derive(Debug)]
pub(super) struct Arbiter {
    high: Table,
    low: Table,
    /// Bytes of high priority within which a packet may begin; `None`: any.
    limit: Option<u64>,
    /// Bytes of high priority since low priority had an opportunity.
    used: u64,
}

impl Arbiter {
    pub fn new(tables: &VlArbitration) -> Arbiter {
        let limit =
            (tables.high_limit != UNLIMITED).then(|| u64::from(tables.high_limit) * u64::from(LIMIT_UNIT));
        Arbiter {
            high: Table::new(&tables.high),
            low: Table::new(&tables.low),
            limit,
            used: 0,
        }
    }

    /// Whether the tables are these.
    pub fn has(&self, tables: &VlArbitration) -> bool {
        let of = |entries: &[(u8, u8)]| Table::new(entries).entries;
        let limit =
            (tables.high_limit != UNLIMITED).then(|| u64::from(tables.high_limit) * u64::from(LIMIT_UNIT));
        self.high.entries == of(&tables.high) && self.low.entries == of(&tables.low) && self.limit == limit
    }

    /// Who sends next, of lanes that are ready, and its lane. `None`: none of them is in a table.
    pub fn choose(&self, ready: u16) -> Option<(Turn, usize)> {
        let turn = |table: &Table, high: bool| {
            let at = table.next(ready)?;
            let (lane, _) = table.entries.get(at)?;
            Some((
                Turn {
                    high,
                    entry: at as u8,
                },
                usize::from(*lane),
            ))
        };
        let high = turn(&self.high, true);
        let allowed = self.limit.is_none_or(|limit| self.used == 0 || self.used < limit);
        match high {
            Some(_) if allowed => high,
            _ => turn(&self.low, false).or(high),
        }
    }

    /// Counts a frame that was sent in a turn.
    pub fn sent(&mut self, turn: Turn, wire: u32) {
        if !turn.high {
            self.used = 0;
            return self.low.sent(turn.entry.into(), wire);
        }
        // Low priority had its opportunity, and nothing to send.
        if self.limit.is_some_and(|limit| self.used >= limit) {
            self.used = 0;
        }
        self.used = self.used.saturating_add(wire.into());
        self.high.sent(turn.entry.into(), wire);
    }
}

#[cfg(test)]
mod tests;
