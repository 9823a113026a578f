//! Receive path activity monitoring: a receiver that stands still tells its senders to wait only for so long
//! (WinOF-2 Ethernet Network, Receive Path Activity Monitoring; `rdma-notes-zh` section 9; register PFCC).
//!
//! ```text
//!           stands still            minor_ms                critical_ms
//!  Moving ───────────────▶ Stalled ──────────▶ told: Minor ─────────────▶ Tripped: Critical, no pause
//!    ▲                        │ moves              │ moves                    │ moves: Recovered
//!    └────────────────────────┴────────────────────┴──────────────────────────┘
//! ```

use core::time::Duration;

use super::Guard;
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

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum State {
    /// Nothing waits that senders are stopped for, or it moves.
    #[default]
    Moving,
    /// Senders are told to wait, and nothing has moved since then.
    Stalled { since: Instant, told: bool },
    /// Pause is stopped.
    Tripped,
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct StallGuard {
    state: State,
}

impl StallGuard {
    /// How it stands: `pausing`: senders are told to wait, or would be; `moved`: something left since the last call.
    /// Call it again at once when it answers, a late call may have more than one thing to say.
    pub fn observe(&mut self, now: Instant, guard: Guard, pausing: bool, moved: bool) -> Option<StallNews> {
        match self.state {
            State::Tripped => {
                if !pausing || guard.critical_ms == 0 {
                    self.state = State::Moving;
                } else if moved {
                    self.state = stalled(now);
                } else {
                    return None;
                }
                Some(StallNews::Recovered)
            }
            _ if !pausing => {
                self.state = State::Moving;
                None
            }
            State::Moving => {
                self.state = stalled(now);
                None
            }
            State::Stalled { .. } if moved => {
                self.state = stalled(now);
                None
            }
            State::Stalled { since, told } => {
                if !told && is_over(now, since, guard.minor_ms) {
                    self.state = State::Stalled { since, told: true };
                    Some(StallNews::Minor)
                } else if is_over(now, since, guard.critical_ms) {
                    self.state = State::Tripped;
                    Some(StallNews::Critical)
                } else {
                    None
                }
            }
        }
    }

    /// Has it stopped pause?
    pub fn is_tripped(&self) -> bool {
        self.state == State::Tripped
    }

    /// When [`StallGuard::observe`] has something to say if nothing moves.
    pub fn next_time(&self, guard: Guard) -> Option<Instant> {
        let State::Stalled { since, told } = self.state else {
            return None;
        };
        let minor = if told { 0 } else { guard.minor_ms };
        [minor, guard.critical_ms]
            .into_iter()
            .filter(|ms| *ms != 0)
            .map(|ms| since + Duration::from_millis(u64::from(ms)))
            .min()
    }
}

fn stalled(now: Instant) -> State {
    State::Stalled {
        since: now,
        told: false,
    }
}

/// Has a watermark been reached (0: there is none)?
fn is_over(now: Instant, since: Instant, ms: u32) -> bool {
    ms != 0 && now.since(since) >= Duration::from_millis(u64::from(ms))
}
