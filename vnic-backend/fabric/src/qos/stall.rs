//! Receive path activity monitoring: a receiver that stands still tells its senders to wait only for so long
//! (WinOF-2 Ethernet Network, Receive Path Activity Monitoring; register PFCC, Linux, mlx5 `en_ethtool.c`).
//!
//! ```text
//!           one stands still        minor_ms                critical_ms
//!  Moving ───────────────▶ Stalled ──────────▶ told: Minor ─────────────▶ Tripped: Critical, no pause at all
//!    ▲                        │ all move           │ all move                 │ those move: Recovered
//!    └────────────────────────┴────────────────────┴──────────────────────────┘
//! ```
//!
//! Each priority of which senders are told to wait has its own clock: what goes on in others does not hide that one stands
//! still. Pause stops on all priorities even if only one stands still, and comes back when something of each that stood
//! still has left; what is nobody's turn any more need not.

use core::time::Duration;

use super::{Guard, PRIORITIES};
use crate::Instant;

/// What has happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StallNews {
    /// It stands still for longer than the minor watermark: counted, told.
    Minor,
    /// For longer than the critical one: no pause is sent any more, on any priority.
    Critical,
    /// It moves again: pause as configured.
    Recovered,
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct StallGuard {
    /// Priorities that stand still, a bit each, and since when.
    still: u8,
    since: [Instant; PRIORITIES],
    /// The minor watermark was told.
    told: bool,
    /// Pause is stopped.
    tripped: bool,
    /// Priorities for which it is, and whether one of them has moved since then.
    blocked: u8,
    moved: bool,
}

impl StallGuard {
    /// How it stands, by priority, a bit each: `pausing`: senders are told to wait, or would be; `moved`: something left
    /// since the last call (what passed by without waiting counts, too). Call it again at once when it answers, with
    /// nothing moved: a late call may have more than one thing to say.
    pub fn observe(&mut self, now: Instant, guard: Guard, pausing: u8, moved: u8) -> Option<StallNews> {
        if self.tripped {
            return self.recover(now, guard, pausing, moved);
        }
        let moves = pausing & (moved | !self.still);
        for p in (0..PRIORITIES).filter(|p| moves & 1 << p != 0) {
            self.since[p] = now;
        }
        self.still = pausing;
        let minor = self.over(now, guard.minor_ms);
        if minor == 0 {
            self.told = false;
        } else if !self.told {
            self.told = true;
            return Some(StallNews::Minor);
        }
        self.blocked = self.over(now, guard.critical_ms);
        if self.blocked == 0 {
            return None;
        }
        (self.tripped, self.moved) = (true, false);
        Some(StallNews::Critical)
    }

    /// While pause is stopped.
    fn recover(&mut self, now: Instant, guard: Guard, pausing: u8, moved: u8) -> Option<StallNews> {
        self.moved |= moved & self.blocked != 0;
        self.blocked &= !moved;
        let ends = self.moved && self.blocked & pausing == 0;
        if !ends && guard.critical_ms != 0 {
            return None;
        }
        *self = StallGuard {
            still: pausing,
            since: [now; PRIORITIES],
            ..StallGuard::default()
        };
        Some(StallNews::Recovered)
    }

    /// Has it stopped pause?
    pub fn is_tripped(&self) -> bool {
        self.tripped
    }

    /// When [`StallGuard::observe`] has something to say if nothing moves.
    pub fn next_time(&self, guard: Guard) -> Option<Instant> {
        if self.tripped {
            return None;
        }
        let minor = if self.told { 0 } else { guard.minor_ms };
        let first = [minor, guard.critical_ms]
            .into_iter()
            .filter(|ms| *ms != 0)
            .min()?;
        let still = (0..PRIORITIES).filter(|p| self.still & 1 << p != 0);
        let since = still.map(|p| self.since[p]).min()?;
        Some(since + Duration::from_millis(u64::from(first)))
    }

    /// Priorities that stand still for so long (0: none).
    fn over(&self, now: Instant, ms: u32) -> u8 {
        let limit = Duration::from_millis(u64::from(ms));
        (0..PRIORITIES)
            .filter(|p| ms != 0 && self.still & 1 << p != 0 && now.since(self.since[*p]) >= limit)
            .fold(0, |all, p| all | 1 << p)
    }
}
