//! A rate that is kept: the generic cell rate algorithm (ITU-T I.371), with debt instead of waiting for whole frames.

use crate::Instant;

/// Sends as long as it has credit; what is sent last may take it into debt, which is paid off by time. So no length has to
/// be known before, and over time the rate is exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    /// bit/s; 0: no limit.
    rate: u64,
    /// When all that was sent has been paid for, in 2^-8 ns.
    paid_at: u64,
    /// Credit that silence gathers at most, in 2^-8 ns.
    slack: u64,
}

impl Bucket {
    /// No limit.
    pub const UNLIMITED: Bucket = Bucket {
        rate: 0,
        paid_at: 0,
        slack: 0,
    };

    /// A rate in bit/s (0: no limit), with so much time's worth of credit after silence.
    pub fn new(rate: u64, slack: core::time::Duration) -> Bucket {
        let slack = u64::try_from(slack.as_nanos()).unwrap_or(u64::MAX / 256);
        Bucket {
            rate,
            paid_at: 0,
            slack: slack.saturating_mul(256),
        }
    }

    /// bit/s; 0: no limit.
    pub const fn rate(&self) -> u64 {
        self.rate
    }

    /// Another rate; what is owed stays owed.
    pub fn set_rate(&mut self, rate: u64) {
        self.rate = rate;
    }

    /// May something be sent?
    #[inline]
    pub fn is_open(&self, now: Instant) -> bool {
        self.rate == 0 || self.paid_at <= now.0.saturating_mul(256)
    }

    /// When something may be sent again.
    pub fn opens_at(&self) -> Instant {
        Instant(self.paid_at.div_ceil(256))
    }

    /// So many bytes were sent.
    #[inline]
    pub fn charge(&mut self, now: Instant, bytes: u32) {
        if self.rate == 0 {
            return;
        }
        let floor = now.0.saturating_mul(256).saturating_sub(self.slack);
        let cost = u128::from(bytes) * (8_000_000_000 * 256) / u128::from(self.rate);
        self.paid_at = self
            .paid_at
            .max(floor)
            .saturating_add(u64::try_from(cost).unwrap_or(u64::MAX));
    }
}
