//! The NIC's clock as clients see it.

use std::time::{Duration, SystemTime};

/// The NIC's clock at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockStatus {
    /// Its time: since 1970, if it was not set to another scale.
    pub time: Duration,
    /// Time of the system at that moment.
    pub system: SystemTime,
    /// How much faster it is than the machine's monotonic clock, in parts per billion.
    pub frequency: i32,
}

/// A change of the NIC's clock relative to what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClockAdjustment {
    /// By how much its time moves, in ns.
    pub offset: i64,
    /// New frequency, in parts per billion; `None`: it stays.
    pub frequency: Option<i32>,
}
