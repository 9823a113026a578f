//! Dropless mode of an adapter: a frame that finds no receive buffer waits for one, and its sender with it; a frame that
//! waits too long ends the mode. Sans-I/O: causes and times come in, what to report comes out.
//!
//! ```text
//!                 operator: on (77)
//!        ┌────────────────────────────────┐
//!        │                                ▼      waits: the queue's timer starts
//!       off                              on ◀──▶ (a timer for each receive queue)
//!        ▲                                │      served: it stops
//!        └────────────────────────────────┘
//!       operator: off (78) · a timer expires (75)
//! ```
//!
//! WinOF-2 User Manual, "Ethernet Network", section "Dropless Mode". The table below holds every decision; points that the
//! documents leave open are decided so:
//!
//! * A timer that expires counts as leaving the mode, and is reported as 75 only: 78 is reported when the *user* switches
//!   it off.
//! * Each act of the operator is reported, even one that changes nothing; entries and exits count changes only.
//! * A new time-out holds for frames that wait already, from when they began to wait.

use core::time::Duration;

use vnic_wire::time::Instant;

/// The unit of time-outs (`DelayDropTimeout`).
pub const UNIT: Duration = Duration::from_micros(100);
/// The longest time-out, in units.
pub const TIMEOUT_MAX: u8 = 100;
/// Receive queues that an adapter has at most.
pub const QUEUES_MAX: usize = 16;

/// Cause of a change of the mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The operator switches it on.
    On,
    /// The operator switches it off.
    Off,
    /// A frame found no buffer in a queue and would wait.
    Waits,
    /// The frame that waited has got its buffers, or is gone with its queue.
    Served,
    /// A frame has waited too long.
    Expired,
}

impl Cause {
    /// All causes.
    pub const ALL: [Cause; 5] = [Cause::On, Cause::Off, Cause::Waits, Cause::Served, Cause::Expired];
}

/// Change of the timers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timers {
    /// The timers do not change.
    Keep,
    /// The timer of the queue starts, unless it runs.
    Start,
    /// The timer of the queue stops.
    Stop,
    /// All timers stop: frames that wait are dropped.
    StopAll,
}

/// A report, with its number in Windows' event log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModeChange {
    /// The operator switched the mode on (77).
    Entered,
    /// The operator switched the mode off (78).
    Exited,
    /// A frame of this queue waited too long (75).
    Timeout {
        /// The receive queue.
        queue: u8,
    },
}

/// A row of [`TABLE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Whether the mode is on.
    pub on: bool,
    /// The cause.
    pub cause: Cause,
    /// Whether the mode is on afterwards.
    pub next: bool,
    /// Change of the timers.
    pub timers: Timers,
    /// Whether it is reported.
    pub told: bool,
}

const fn row(on: bool, cause: Cause, next: bool, timers: Timers, told: bool) -> Row {
    Row {
        on,
        cause,
        next,
        timers,
        told,
    }
}

/// What every cause does, with the mode on and off.
pub const TABLE: [Row; 10] = [
    row(false, Cause::On, true, Timers::Keep, true),
    row(false, Cause::Off, false, Timers::Keep, true),
    row(false, Cause::Waits, false, Timers::Keep, false),
    row(false, Cause::Served, false, Timers::Keep, false),
    row(false, Cause::Expired, false, Timers::Keep, false),
    row(true, Cause::On, true, Timers::Keep, true),
    row(true, Cause::Off, false, Timers::StopAll, true),
    row(true, Cause::Waits, true, Timers::Start, false),
    row(true, Cause::Served, true, Timers::Stop, false),
    row(true, Cause::Expired, false, Timers::StopAll, true),
];

/// Dropless mode of one adapter.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Dropless {
    on: bool,
    timeout: u8,
    /// Since when a frame waits, by receive queue.
    since: [Option<Instant>; QUEUES_MAX],
    entries: u64,
    exits: u64,
    timeouts: u64,
}

impl Dropless {
    /// The operator switches the mode on (how long a frame may wait, 1..=[`TIMEOUT_MAX`] [`UNIT`]s; more counts as that) or
    /// off (0).
    pub fn set(&mut self, timeout: u8) -> Option<ModeChange> {
        if timeout == 0 {
            return self.step(Cause::Off, 0, Instant(0));
        }
        self.timeout = timeout.min(TIMEOUT_MAX);
        self.step(Cause::On, 0, Instant(0))
    }

    /// A frame found no buffer in a receive queue. Returns whether it waits; otherwise it is dropped.
    pub fn waits(&mut self, queue: u8, now: Instant) -> bool {
        self.step(Cause::Waits, queue, now);
        self.on
    }

    /// The frame that waited for this queue has got its buffers, or is gone.
    pub fn served(&mut self, queue: u8) {
        self.step(Cause::Served, queue, Instant(0));
    }

    /// Lets time pass. First give buffers that have come to frames that wait: a frame whose buffers are there is not late.
    pub fn expire(&mut self, now: Instant) -> Option<ModeChange> {
        let (at, queue) = self.next_expiry()?;
        if at > now {
            return None;
        }
        self.step(Cause::Expired, queue, now)
    }

    /// When to call [`Dropless::expire`] next.
    pub fn next_time(&self) -> Option<Instant> {
        self.next_expiry().map(|(at, _)| at)
    }

    fn next_expiry(&self) -> Option<(Instant, u8)> {
        let limit = UNIT * u32::from(self.timeout);
        let running = (0u8..).zip(&self.since);
        running
            .filter_map(|(q, since)| Some(((*since)? + limit, q)))
            .min()
    }

    /// Whether the mode is on.
    pub fn is_on(&self) -> bool {
        self.on
    }

    /// How long a frame may wait, in [`UNIT`]s; the last value that was set, 0 before.
    pub fn timeout(&self) -> u8 {
        self.timeout
    }

    /// Since when a frame waits for this queue.
    pub fn waiting(&self, queue: u8) -> Option<Instant> {
        self.since.get(usize::from(queue)).copied().flatten()
    }

    /// Times that the mode was entered.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Times that the mode was left, by the operator or because a frame waited too long.
    pub fn exits(&self) -> u64 {
        self.exits
    }

    /// Times that a frame waited too long.
    pub fn timeouts(&self) -> u64 {
        self.timeouts
    }

    fn step(&mut self, cause: Cause, queue: u8, now: Instant) -> Option<ModeChange> {
        let row = TABLE.iter().find(|r| (r.on, r.cause) == (self.on, cause))?;
        match (row.timers, self.since.get_mut(usize::from(queue))) {
            (Timers::Start, Some(since)) => *since = since.or(Some(now)),
            (Timers::Stop, Some(since)) => *since = None,
            (Timers::StopAll, _) => self.since = Default::default(),
            (Timers::Keep | Timers::Start | Timers::Stop, _) => {}
        }
        self.entries += u64::from(!row.on && row.next);
        self.exits += u64::from(row.on && !row.next);
        self.timeouts += u64::from(row.on && cause == Cause::Expired);
        self.on = row.next;
        row.told.then_some(match cause {
            Cause::Expired => ModeChange::Timeout { queue },
            Cause::Off => ModeChange::Exited,
            _ => ModeChange::Entered,
        })
    }
}
