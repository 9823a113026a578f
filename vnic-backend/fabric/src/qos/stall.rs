//! Receive path activity monitoring: a receiver that stands still tells its senders to wait only for so long
//! (WinOF-2 Ethernet Network, Receive Path Activity Monitoring; `rdma-notes-zh` section 9; register PFCC).

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

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct StallGuard {}

impl StallGuard {
    /// How it stands: `pausing`: senders are told to wait, or would be; `moved`: something left since the last call.
    pub fn observe(
        &mut self,
        _now: Instant,
        _guard: Guard,
        _pausing: bool,
        _moved: bool,
    ) -> Option<StallNews> {
        todo!()
    }

    /// Has it stopped pause?
    pub fn is_tripped(&self) -> bool {
        todo!()
    }

    /// When [`StallGuard::observe`] has something to say if nothing moves.
    pub fn next_time(&self, _guard: Guard) -> Option<Instant> {
        todo!()
    }
}
