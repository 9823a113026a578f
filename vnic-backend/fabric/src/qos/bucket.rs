//! A rate limiter: the generic cell rate algorithm (ITU-T I.371), with debt instead of waiting for credit for a whole frame.

use core::time::Duration;

use crate::Instant;

/// Bits of a nanosecond's fraction: 64 bytes at 100 Gbit/s take 5.12 ns.
const FRACTION: u32 = 32;

/// A bucket sends as long as it has credit. The last frame may take it into debt, which time pays off. So no length has to be
/// known before, and over time the rate is exact (to 2^-32 ns for each byte).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    /// Rate in bit/s; 0: no limit.
    rate: u64,
    /// Time that one byte takes, in 2^-32 ns.
    per_byte: u64,
    /// When all that was sent has been paid for, in whole ns and 2^-32 ns.
    paid_at: u64,
    fraction: u32,
    /// Time of the last frame, in ns.
    last: u64,
    /// Most credit that silence gathers, in ns.
    slack: u64,
    /// Bytes that were sent while there was a limit; wraps.
    sent: u64,
}

impl Bucket {
    /// No limit.
    pub const UNLIMITED: Bucket = Bucket {
        rate: 0,
        per_byte: 0,
        paid_at: 0,
        fraction: 0,
        last: 0,
        slack: 0,
        sent: 0,
    };

    /// A rate in bit/s (0: no limit), and the most credit that silence gathers.
    pub fn new(rate: u64, slack: Duration) -> Bucket {
        Bucket {
            rate,
            per_byte: per_byte(rate),
            slack: u64::try_from(slack.as_nanos()).unwrap_or(u64::MAX),
            ..Bucket::UNLIMITED
        }
    }

    /// Rate in bit/s; 0: no limit.
    pub const fn rate(&self) -> u64 {
        self.rate
    }

    /// Bytes that were sent while there was a limit; wraps.
    pub const fn sent(&self) -> u64 {
        self.sent
    }

    /// Changes the rate. Bytes that were owed at the last frame are owed at the new rate; credit stays the same time.
    pub fn set_rate(&mut self, rate: u64) {
        if rate == self.rate {
            return;
        }
        let debt = self.paid_at.saturating_sub(self.last);
        if rate == 0 {
            (self.paid_at, self.fraction, self.last) = (0, 0, 0);
        } else if debt > 0 {
            let debt = u128::from(debt) * u128::from(self.rate) / u128::from(rate);
            self.paid_at = self.last.saturating_add(u64::try_from(debt).unwrap_or(u64::MAX));
            self.fraction = 0;
        }
        self.rate = rate;
        self.per_byte = per_byte(rate);
    }

    /// Whether a frame may be sent.
    #[inline]
    pub fn is_open(&self, now: Instant) -> bool {
        self.rate == 0 || self.opens_at() <= now
    }

    /// When a frame may be sent again. If it is in the past, credit counts from then on.
    #[inline]
    pub fn opens_at(&self) -> Instant {
        Instant(self.paid_at.saturating_add(u64::from(self.fraction != 0)))
    }

    /// Bytes that may be sent now, one frame behind the other, with credit from `since` on, while the bucket stays open; not
    /// more than that, but perhaps a few less.
    #[inline]
    pub fn room(&self, now: Instant, since: Instant) -> u32 {
        if self.rate == 0 {
            return u32::MAX;
        }
        // A nanosecond for rounding.
        let from = self.opens_at().max(since).0.saturating_add(1);
        let bits = now.0.saturating_sub(from).saturating_mul(self.rate);
        u32::try_from(bits / 8_000_000_000).unwrap_or(u32::MAX)
    }

    /// Charges bytes that were sent.
    #[inline]
    pub fn charge(&mut self, now: Instant, bytes: u32) {
        self.charge_since(now, Instant(now.0.saturating_sub(self.slack)), bytes);
    }

    /// Charges bytes that could have been sent from `since` on if the core had looked: credit from then on counts.
    #[inline]
    pub fn charge_since(&mut self, now: Instant, since: Instant, bytes: u32) {
        if self.rate == 0 {
            return;
        }
        self.last = now.0;
        self.sent = self.sent.wrapping_add(u64::from(bytes));
        if self.paid_at < since.0 {
            (self.paid_at, self.fraction) = (since.0, 0);
        }
        let cost = u128::from(bytes) * u128::from(self.per_byte) + u128::from(self.fraction);
        // The low 32 bits are the fraction, on purpose.
        self.fraction = cost as u32;
        let whole = u64::try_from(cost >> FRACTION).unwrap_or(u64::MAX);
        self.paid_at = self.paid_at.saturating_add(whole);
    }
}

/// Time of a byte at a rate, in 2^-32 ns, rounded to the nearest.
fn per_byte(rate: u64) -> u64 {
    if rate == 0 {
        return 0;
    }
    let bits = 8_000_000_000_u128 << FRACTION;
    u64::try_from((bits + u128::from(rate / 2)) / u128::from(rate)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends whenever it may; when so many frames have been sent.
    fn time_of(rate: u64, frames: u64, bytes: u32) -> u64 {
        let mut b = Bucket::new(rate, Duration::ZERO);
        let mut now = Instant(1);
        for _ in 0..frames {
            assert!(b.is_open(now));
            b.charge_since(now, Instant(1), bytes);
            now = now.max(b.opens_at());
        }
        now.0 - 1
    }

    #[test]
    fn a_million_frames_take_exactly_their_time() {
        for (rate, bytes, ns) in [
            (100_000_000_000, 64, 5_120_000),
            (100_000_000_000, 1538, 123_040_000),
            (10_000_000_000, 88, 70_400_000),
            (5_000_000_000, 1538, 2_460_800_000),
            (1_000_000_000, 65_559, 524_472_000_000),
            (1_000_000, 1500, 12_000_000_000_000),
            (3_333_333_333, 999, 2_397_600_000),
        ] {
            let took = time_of(rate, 1_000_000, bytes);
            assert!(
                took.abs_diff(ns) <= 1 + ns / 100_000_000,
                "{rate} {bytes}: {took} for {ns}"
            );
        }
    }

    #[test]
    fn silence_gathers_no_more_than_the_slack() {
        let mut b = Bucket::new(8_000_000_000, Duration::from_micros(1));
        let now = Instant(1_000_000);
        let mut sent = 0;
        while b.is_open(now) {
            b.charge(now, 100);
            sent += 100;
        }
        assert_eq!(
            sent, 1100,
            "a byte a nanosecond: the slack, and the frame that makes the debt"
        );
        assert_eq!(b.opens_at(), Instant(1_000_100));
    }

    #[test]
    fn what_there_is_room_for_leaves_it_open() {
        for rate in [1_000_000, 3_333_333_333, 10_000_000_000, 200_000_000_000, 1 << 47] {
            for slack in [0, 1, 999, 100_000, 5_000_000] {
                let mut b = Bucket::new(rate, Duration::ZERO);
                let now = Instant(10_000_000);
                let since = Instant(now.0 - slack);
                b.charge_since(Instant(9_000_000), Instant(9_000_000), 777);
                let (open, room) = (b.is_open(now), b.room(now, since));
                b.charge_since(now, since, room);
                assert_eq!(b.is_open(now), open, "{rate} {slack}: {room}");
                let most = u128::from(slack.min(1_000_000)) * u128::from(rate) / 8_000_000_000;
                assert!(u128::from(room) <= most, "{rate} {slack}: {room}");
                if rate == 200_000_000_000 && open {
                    assert!(
                        u64::from(room) + 100 > slack.min(1_000_000 - 32) * 25,
                        "{slack}: {room}"
                    );
                }
            }
        }
        assert_eq!(Bucket::UNLIMITED.room(Instant(0), Instant(0)), u32::MAX);
    }

    #[test]
    fn another_rate_keeps_what_is_owed() {
        let mut b = Bucket::new(8_000_000_000, Duration::ZERO);
        let now = Instant(1000);
        b.charge(now, 500);
        assert_eq!(b.opens_at(), Instant(1500));
        b.set_rate(4_000_000_000);
        assert_eq!(b.opens_at(), Instant(2000), "500 bytes at half the rate");
        b.set_rate(0);
        assert!(b.is_open(Instant(0)));
        b.charge(now, 1 << 30);
        b.set_rate(8);
        assert!(b.is_open(now), "nothing is owed for what had no limit");
        for _ in 0..9 {
            b.charge(now, u32::MAX);
        }
        assert!(!b.is_open(Instant(u64::MAX - 1)), "far away, but no overflow");
    }
}
