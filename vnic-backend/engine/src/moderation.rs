//! Interrupt moderation of a ring. Sans-I/O: the caller says what it showed to the guest and whether the guest asked for an
//! interrupt; the answer is whether to send one now, and when to ask again.
//!
//! ```text
//!  on demand   an interrupt whenever the guest asks for one: virtio's own suppression decides (NDIS poll; interrupt)
//!  polling     none; but when a guest that asked has taken nothing for SAFETY_NET, it gets one after all
//!  adaptive    latency profile: as on demand
//!              bulk profile:    SPACING between two, or sooner when the guest falls behind
//!              latency ─ BULK_ABOVE frames within a WINDOW ─▶ bulk ─ fewer than LATENCY_BELOW in one ─▶ latency
//! coalesced   after so many frames, or so long after the first one: as the guest's driver has set
//! ```
//!
//! With every method, what is shown is visible at once: a guest that polls waits for nothing. An interrupt that was put off
//! is owed: [`Moderation::due`] says until when.

use core::num::NonZeroU32;
use core::time::Duration;

use vnic_wire::time::Instant;

use crate::settings::{RecvCompletion, SendCompletion};

/// How long a polling guest that asked for an interrupt may take nothing before it gets one.
pub const SAFETY_NET: Duration = Duration::from_millis(1);
/// Most time between two interrupts in the bulk profile.
pub const SPACING: Duration = Duration::from_micros(64);
/// Time over which frames are counted.
pub const WINDOW: Duration = Duration::from_millis(1);
/// Frames in a [`WINDOW`] from which on the bulk profile acts.
pub const BULK_ABOVE: u64 = 200;
/// Frames in a [`WINDOW`] below which the latency profile acts.
pub const LATENCY_BELOW: u64 = 100;

/// How interrupts are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Method {
    /// Whenever the guest asks for one.
    #[default]
    OnDemand,
    /// The guest polls; interrupts are a safety net.
    Polling,
    /// The more frames, the fewer interrupts a frame.
    Adaptive,
    /// After so many frames (`None`: any number), or so long after the first.
    Coalesced {
        /// Frames.
        frames: Option<NonZeroU32>,
        /// Microseconds, at least one.
        micros: u32,
    },
}

impl Method {
    /// The method for a driver that has set numbers of frames and of microseconds (virtio 1.3 section 5.1.6.5.8). `None`: it wants no
    /// coalescing. Without a time the safety net is it: a frame that is the last for long has its interrupt.
    pub fn coalesced(frames: u32, micros: u32) -> Option<Method> {
        match (frames, micros) {
            (0 | 1, 0) => None,
            (1, _) => None,
            (_, 0) => Some(SAFETY_NET.as_micros() as u32),
            (_, micros) => Some(micros),
        }
        .map(|micros| Method::Coalesced {
            frames: NonZeroU32::new(frames),
            micros,
        })
    }
}

impl From<RecvCompletion> for Method {
    fn from(setting: RecvCompletion) -> Method {
        match setting {
            RecvCompletion::Polling => Method::Polling,
            RecvCompletion::Adaptive => Method::Adaptive,
            RecvCompletion::NdisPoll => Method::OnDemand,
        }
    }
}

impl From<SendCompletion> for Method {
    fn from(setting: SendCompletion) -> Method {
        match setting {
            SendCompletion::Polling => Method::Polling,
            SendCompletion::Interrupt | SendCompletion::NdisPoll => Method::OnDemand,
        }
    }
}

/// Profiles of the adaptive method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Profile {
    /// Each interrupt is sent at once.
    #[default]
    Latency,
    /// Few interrupts are sent.
    Bulk,
}

/// What to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Interrupt the guest: no interrupt is owed any more.
    Interrupt,
    /// Do not interrupt now; the interrupt is owed.
    Later,
    /// No interrupt is owed.
    Nothing,
}

/// The state of one ring.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Moderation {
    method: Method,
    profile: Profile,
    transitions: u64,
    due: Option<Instant>,
    /// When the last interrupt was sent.
    last: Option<Instant>,
    window: Instant,
    /// Frames ever at the beginning of the window; of the coalesced method: at the last interrupt.
    frames: u64,
    /// Frames ever when some were shown last.
    shown: u64,
}

impl Moderation {
    /// No interrupt is owed.
    pub fn new(method: Method) -> Moderation {
        Moderation {
            method,
            ..Moderation::default()
        }
    }

    /// Frames were shown to the guest. `wanted`: it asks for an interrupt; `frames`: frames shown ever; `behind`: so much
    /// of the ring is shown and not known to be taken that the guest should look.
    pub fn shown(&mut self, now: Instant, wanted: bool, frames: u64, behind: bool) -> Decision {
        self.shown = frames;
        if !wanted {
            return match self.due {
                Some(_) if behind && self.method == Method::Adaptive => self.sent(now),
                Some(_) => Decision::Later,
                None => Decision::Nothing,
            };
        }
        let due = match self.method {
            Method::OnDemand => return self.sent(now),
            Method::Polling => now + SAFETY_NET,
            Method::Adaptive => {
                self.sample(now, frames);
                match self.last {
                    Some(last) if self.profile == Profile::Bulk && !behind && now < last + SPACING => {
                        last + SPACING
                    }
                    _ => return self.sent(now),
                }
            }
            Method::Coalesced { frames: some, micros } => {
                let reached =
                    some.is_some_and(|some| frames.saturating_sub(self.frames) >= some.get().into());
                if reached || behind {
                    return self.sent(now);
                }
                now + Duration::from_micros(micros.into())
            }
        };
        self.due.get_or_insert(due);
        Decision::Later
    }

    /// Until when an interrupt is owed.
    #[inline]
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// The time of [`Moderation::due`] has come. `wanted`: the guest still asks for an interrupt; `progress`: it has taken
    /// something since the last call.
    pub fn expire(&mut self, now: Instant, wanted: bool, progress: bool) -> Decision {
        if self.due.is_none() || !wanted {
            self.due = None;
            return Decision::Nothing;
        }
        if self.method == Method::Polling && progress {
            self.due = Some(now + SAFETY_NET);
            return Decision::Later;
        }
        self.sent(now)
    }

    /// The ring stops, or another method begins. True: an interrupt is owed, and must be sent.
    pub fn settle(&mut self) -> bool {
        self.due.take().is_some()
    }

    /// The method.
    pub fn method(&self) -> Method {
        self.method
    }

    /// Current profile of the adaptive method.
    pub fn profile(&self) -> Profile {
        self.profile
    }

    /// Changes of the profile since the last call.
    pub fn take_transitions(&mut self) -> u64 {
        core::mem::take(&mut self.transitions)
    }

    fn sent(&mut self, now: Instant) -> Decision {
        (self.last, self.due) = (Some(now), None);
        if let Method::Coalesced { .. } = self.method {
            self.frames = self.shown;
        }
        Decision::Interrupt
    }

    /// Chooses the profile by the rate of frames.
    fn sample(&mut self, now: Instant, frames: u64) {
        let elapsed = now.since(self.window);
        let new = frames.saturating_sub(self.frames);
        if elapsed < WINDOW {
            if new >= BULK_ABOVE {
                self.choose(Profile::Bulk);
            }
            return;
        }
        // A window ends when the guest asks for the first time after it: its frames are scaled to its length.
        let rate = u128::from(new) * WINDOW.as_nanos() / elapsed.as_nanos();
        if rate < u128::from(LATENCY_BELOW) {
            self.choose(Profile::Latency);
        } else if rate >= u128::from(BULK_ABOVE) {
            self.choose(Profile::Bulk);
        }
        (self.window, self.frames) = (now, frames);
    }

    fn choose(&mut self, profile: Profile) {
        self.transitions += u64::from(self.profile != profile);
        self.profile = profile;
    }
}
