//! The two ends of flow control on a link: the one that sends pause, and the one that waits (IEEE 802.3 annex 31B, IEEE
//! 802.1Q clause 36).
//!
//! The settings decide which of the two kinds acts, at both ends the same way: if they name a priority, priority flow
//! control for the named ones and no global pause; otherwise global pause, as far as it is on.

use core::time::Duration;

use vnic_wire::pause::{Frame, QUANTUM_BITS};

use super::{PRIORITIES, PauseSettings};
use crate::Instant;

/// Speed that counts for a link without a rate.
const NO_RATE: u64 = 100_000_000_000;
/// How long a peer may take to hear that it shall wait.
pub const HEARD: Duration = Duration::from_micros(20);
/// How long a peer may take to go on.
const GONE_ON: Duration = Duration::from_micros(100);
/// Quanta of an XOFF: the most that a frame can name.
const XOFF: u16 = 0xffff;

/// Time of `n` quanta at a rate.
fn quanta(n: u16, rate: u64) -> Duration {
    let rate = if rate == 0 { NO_RATE } else { rate };
    let ns = u128::from(n) * u128::from(QUANTUM_BITS) * 1_000_000_000 / u128::from(rate);
    Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
}

/// The end that waits.
#[derive(Debug, Clone, Default)]
pub struct PauseRx {
    /// Priorities that wait, a bit each, and until when.
    waiting: u8,
    until: [Instant; PRIORITIES],
}

impl PauseRx {
    /// Takes a pause frame; quanta are 512 bit times at `rate` (0: as at 100 Gbit/s). What the settings do not allow is not
    /// obeyed.
    pub fn frame(&mut self, now: Instant, frame: &Frame, settings: PauseSettings, rate: u64) {
        match frame {
            Frame::Global(n) if settings.pfc == 0 && settings.global_rx => {
                for p in 0..PRIORITIES {
                    self.wait(p, now, *n, rate);
                }
            }
            Frame::Priorities { enabled, quanta } if settings.pfc != 0 => {
                for (p, n) in quanta.iter().enumerate() {
                    if enabled & settings.pfc & 1 << p != 0 {
                        self.wait(p, now, *n, rate);
                    }
                }
            }
            Frame::Global(_) | Frame::Priorities { .. } => {}
        }
    }

    fn wait(&mut self, priority: usize, now: Instant, n: u16, rate: u64) {
        if n == 0 {
            self.waiting &= !(1 << priority);
        } else {
            self.waiting |= 1 << priority;
            self.until[priority] = now + quanta(n, rate);
        }
    }

    /// Takes other settings: priorities that they do not allow wait no longer.
    pub fn configure(&mut self, settings: PauseSettings) {
        self.waiting &= match settings {
            s if s.pfc != 0 => s.pfc,
            s if s.global_rx => 0xff,
            _ => 0,
        };
    }

    /// Priorities that wait now, a bit each.
    #[inline]
    pub fn paused(&mut self, now: Instant) -> u8 {
        if self.waiting != 0 {
            for p in 0..PRIORITIES {
                if self.until[p] <= now {
                    self.waiting &= !(1 << p);
                }
            }
        }
        self.waiting
    }

    /// When a priority may go again.
    pub fn next_time(&self) -> Option<Instant> {
        (0..PRIORITIES)
            .filter(|p| self.waiting & 1 << p != 0)
            .map(|p| self.until[p])
            .min()
    }
}

/// The end that sends pause. Frames may be lost: one that stops the peer is sent again when the peer goes on all the same, and before it
/// runs out; one that lets it go on is sent again, at growing intervals, until the peer is heard or what stopped it has run out.
#[derive(Debug, Clone, Default)]
pub struct PauseTx {
    /// Priorities that shall wait, a bit each.
    xoff: u8,
    /// What the peer was told last: priorities that wait, and whether all do.
    priorities: u8,
    global: bool,
    /// What it was told last and not heard since: priorities that may go on, and whether all may.
    released: u8,
    all_released: bool,
    /// When it was told something last, until when it waits by that at the latest, and how long it has to be heard.
    told_at: Instant,
    waits_until: Instant,
    patience: Duration,
    /// Whether the peer may have to be told something now.
    changed: bool,
    /// When the last frame is repeated.
    repeat_at: Option<Instant>,
}

impl PauseTx {
    /// Sets the priorities that shall wait; all others may go.
    pub fn set(&mut self, xoff: u8) {
        self.changed |= xoff != self.xoff;
        self.xoff = xoff;
    }

    /// The settings have changed: [`PauseTx::poll`] must check whether the last frame still holds.
    pub fn configure(&mut self) {
        self.changed = true;
    }

    /// A frame of these priorities, a bit each, came from the peer. If they were to wait, the peer has not heard that yet.
    #[inline]
    pub fn heard(&mut self, now: Instant, priorities: u8) {
        let waits = if self.global { 0xff } else { self.priorities };
        if waits & priorities != 0 && now.since(self.told_at) >= HEARD {
            self.repeat_at = Some(now);
        }
        self.released &= !priorities;
        self.all_released = false;
    }

    /// The next frame for the peer that is due: a change, or a repetition: before the last one runs out (at half its time), when the
    /// peer seems not to have heard it. Call it until there is none.
    pub fn poll(&mut self, now: Instant, settings: PauseSettings, rate: u64) -> Option<Frame> {
        let repeat = self.repeat_at.is_some_and(|at| at <= now);
        if !self.changed && !repeat {
            return None;
        }
        let priorities = self.xoff & settings.pfc;
        let global = settings.pfc == 0 && settings.global_tx && self.xoff != 0;
        let told = self.priorities;
        // What the peer may still wait for, although it was told to go on.
        let unheard = repeat && now < self.waits_until;
        let (released, all_released) = match unheard {
            true => (self.released & !priorities, self.all_released && !global),
            false => (0, false),
        };
        (self.released, self.all_released) = match repeat {
            true => (released, all_released),
            false => (self.released & !priorities, self.all_released),
        };
        let changes = global != self.global || priorities != told;
        let frame = if global != self.global || (global && repeat) || all_released {
            self.all_released |= self.global && !global;
            self.global = global;
            Some(Frame::Global(if global { XOFF } else { 0 }))
        } else if priorities != told || (priorities | released != 0 && repeat) {
            self.released |= told & !priorities;
            self.priorities = priorities;
            Some(Frame::Priorities {
                enabled: priorities | told | released,
                quanta: core::array::from_fn(|p| if priorities & 1 << p != 0 { XOFF } else { 0 }),
            })
        } else {
            self.changed = false;
            None
        };
        let waits = self.global || self.priorities != 0;
        if frame.is_some() {
            self.told_at = now;
            self.patience = match changes {
                true => GONE_ON,
                false => (2 * self.patience).min(quanta(XOFF, rate)),
            };
            if waits {
                self.waits_until = now + quanta(XOFF, rate);
            }
        }
        if frame.is_some() || repeat {
            let runs_out = waits.then(|| now + quanta(XOFF, rate) / 2);
            let goes_on = self.all_released || self.released != 0;
            let goes_on = goes_on.then(|| now + self.patience);
            self.repeat_at = runs_out.into_iter().chain(goes_on).min();
        }
        frame
    }

    /// When [`PauseTx::poll`] has a frame; in the past: now.
    pub fn next_time(&self) -> Option<Instant> {
        if self.changed {
            Some(Instant(0))
        } else {
            self.repeat_at
        }
    }
}
