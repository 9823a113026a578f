//! The two ends of flow control on a link: who is told to wait, and who waits (IEEE 802.3 annex 31B, IEEE 802.1Q clause 36).

use vnic_wire::pause::Frame;

use super::PauseSettings;
use crate::Instant;

/// The end that waits.
#[derive(Debug, Clone, Default)]
pub struct PauseRx {}

impl PauseRx {
    /// A pause frame came; quanta are 512 bit times at `rate` (0: as at 100 Gbit/s).
    pub fn frame(&mut self, _now: Instant, _frame: &Frame, _settings: PauseSettings, _rate: u64) {
        todo!()
    }

    /// Priorities that wait now, a bit each.
    pub fn paused(&mut self, _now: Instant) -> u8 {
        todo!()
    }

    /// When one of them may go again.
    pub fn next_time(&self) -> Option<Instant> {
        todo!()
    }
}

/// The end that tells.
#[derive(Debug, Clone, Default)]
pub struct PauseTx {}

impl PauseTx {
    /// These priorities shall wait, all others may go.
    pub fn set(&mut self, _now: Instant, _xoff: u8) {
        todo!()
    }

    /// The next frame for the peer that is due: a change, or a repetition before the last one runs out.
    pub fn poll(&mut self, _now: Instant, _settings: PauseSettings, _rate: u64) -> Option<Frame> {
        todo!()
    }

    /// When [`PauseTx::poll`] has one.
    pub fn next_time(&self) -> Option<Instant> {
        todo!()
    }
}
