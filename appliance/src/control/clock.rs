//! The NIC's clock. What is set is not stored: a clock that goes on after a pause is wrong by the pause.

use std::time::{Duration, SystemTime};

use vnic_backend::{ClockAdjustment, ClockStatus};

use super::Control;
use super::refused::Refused;
use crate::events::ControlEvent;

/// The NIC's clock.
pub struct NicClock<'a>(pub &'a Control);

fn refused(error: vnic_backend::NicError) -> Refused {
    Refused::nic(str::to_owned)(error)
}

impl NicClock<'_> {
    /// The clock now.
    pub fn get(&self) -> ClockStatus {
        self.0.nic.clock()
    }

    /// Sets its time, for a client; `None`: to the system's.
    pub fn set(&self, by: &str, time: Option<Duration>) -> Result<ClockStatus, Refused> {
        let time = time.unwrap_or_else(|| SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default());
        let status = self.0.nic.set_clock(time).map_err(refused)?;
        Ok(self.tell(by, status))
    }

    /// Moves its time and sets its frequency, for a client.
    pub fn adjust(&self, by: &str, change: ClockAdjustment) -> Result<ClockStatus, Refused> {
        let status = self.0.nic.adjust_clock(change).map_err(refused)?;
        Ok(self.tell(by, status))
    }

    fn tell(&self, by: &str, status: ClockStatus) -> ClockStatus {
        self.0.hub.record(ControlEvent::ClockChanged {
            offset: offset(&status),
            frequency: status.frequency,
            by: by.to_owned(),
        });
        status
    }
}

/// By how much the clock is ahead of the system's, in ns.
pub fn offset(status: &ClockStatus) -> i64 {
    let system = status
        .system
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let ns = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
    ns(status.time).saturating_sub(ns(system))
}
