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
//! Each priority whose senders are told to wait has its own clock: frames of other priorities do not hide that one stands
//! still. Pause stops on all priorities even if only one stands still. It comes back when a frame of each that stood still
//! has left; priorities that do not pause any more do not count.

use core::time::Duration;

use super::{Guard, PRIORITIES};
use crate::Instant;

/// An event of the guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StallNews {
    /// A priority stands still for longer than the minor watermark: counted and reported.
    Minor,
    /// A priority stands still for longer than the critical watermark: no pause is sent any more, on any priority.
    Critical,
    /// Frames leave again: pause as configured.
    Recovered,
}

/// Receive path activity monitoring of one receiver.
#[derive(Debug, Clone, Default)]
pub struct StallGuard {
    /// Priorities that stand still, a bit each, and since when.
    still: u8,
    since: [Instant; PRIORITIES],
    /// Whether the minor watermark was reported.
    told: bool,
    /// Pause is stopped.
    tripped: bool,
    /// Priorities that stopped pause, and whether one of them has moved since then.
    blocked: u8,
    moved: bool,
}

impl StallGuard {
    /// Takes the state of the priorities, a bit each. `pausing`: senders are told to wait, or would be. `moved`: a frame
    /// left since the last call (one that passed without waiting counts, too). Call it again at once, with nothing moved,
    /// when it returns an event: a late call may have more than one.
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

    /// As [`observe`](StallGuard::observe), while pause is stopped.
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

    /// Whether the guard has stopped pause.
    pub fn is_tripped(&self) -> bool {
        self.tripped
    }

    /// When [`StallGuard::observe`] has an event if nothing moves.
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

    /// Priorities that stand still for `ms` (0: none).
    fn over(&self, now: Instant, ms: u32) -> u8 {
        let limit = Duration::from_millis(u64::from(ms));
        (0..PRIORITIES)
            .filter(|p| ms != 0 && self.still & 1 << p != 0 && now.since(self.since[*p]) >= limit)
            .fold(0, |all, p| all | 1 << p)
    }
}
