//! What a queue was like, weighted by time.

use super::outcome::QueueOutcome;

/// Bytes of a column of the distribution.
const COLUMN: u64 = 64;

/// A queue that is recorded. Times in ps.
#[derive(Debug, Default)]
pub struct QueueRecord {
    /// The direction whose beginning it is.
    pub way: usize,
    from: u64,
    since: u64,
    bytes: u64,
    max: u64,
    /// Bytes times ps.
    area: u128,
    /// ps by length.
    columns: Vec<u64>,
    /// Bytes on the wire.
    pub sent: u64,
}

impl QueueRecord {
    /// Counts from a time on.
    pub fn new(way: usize, from: u64) -> QueueRecord {
        QueueRecord {
            way,
            from,
            since: from,
            ..QueueRecord::default()
        }
    }

    /// So many bytes wait from now on.
    #[inline]
    pub fn change(&mut self, now: u64, bytes: u64) {
        self.pass(now);
        self.bytes = bytes;
        if now >= self.from {
            self.max = self.max.max(bytes);
        }
    }

    #[inline]
    fn pass(&mut self, now: u64) {
        if now <= self.since {
            return;
        }
        let time = now - self.since;
        self.since = now;
        self.area += u128::from(self.bytes) * u128::from(time);
        let column = (self.bytes / COLUMN) as usize;
        if self.columns.len() <= column {
            self.columns.resize(column + 1, 0);
        }
        self.columns[column] += time;
        self.max = self.max.max(self.bytes);
    }

    /// Bytes that wait.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes on the wire leave.
    #[inline]
    pub fn leaves(&mut self, now: u64, wire: u64) {
        if now >= self.from {
            self.sent += wire;
        }
    }

    /// What it was, of a link of that rate.
    pub fn finish(mut self, now: u64, rate: u64) -> QueueOutcome {
        self.pass(now);
        let total: u64 = self.columns.iter().sum();
        let mut permille = Vec::with_capacity(1001);
        let (mut column, mut below) = (0, 0u64);
        for p in 0..=1000u128 {
            while column + 1 < self.columns.len()
                && u128::from(below + self.columns[column]) * 1000 < p * u128::from(total)
            {
                below += self.columns[column];
                column += 1;
            }
            permille.push((column as u64 * COLUMN).min(self.max));
        }
        if let Some(last) = permille.last_mut() {
            *last = self.max;
        }
        QueueOutcome {
            mean: if total == 0 {
                0.0
            } else {
                self.area as f64 / total as f64
            },
            max: self.max,
            permille,
            sent: self.sent,
            time: now.saturating_sub(self.from) / 1000,
            rate,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_count_by_their_time() {
        let mut record = QueueRecord::new(0, 1_000_000);
        record.change(0, 9_999);
        record.change(500_000, 640);
        // 640 for 1 us, 6400 for 2 us, nothing for 1 us.
        record.change(2_000_000, 6_400);
        record.change(4_000_000, 0);
        record.leaves(999_999, 5);
        record.leaves(1_000_000, 250);
        let found = record.finish(5_000_000, 1_000_000_000);
        assert_eq!((found.mean, found.max, found.time), (3_360.0, 6_400, 4_000));
        let at = |p: usize| found.permille[p];
        assert_eq!(
            [at(0), at(250), at(251), at(500), at(501), at(1000)],
            [0, 0, 640, 640, 6_400, 6_400]
        );
        assert!((found.utilization() - 0.5).abs() < 1e-9);
    }
}
