//! Pause states that an adapter receives, and the time for which it obeys them: both are counted.

use std::sync::Arc;

use vnic_engine::counters::{LinkCounter as L, PriorityCounter as P};
use vnic_fabric::Instant;
use vnic_fabric::qos::PauseSettings;
use vnic_fabric::switch::PortId;

use super::super::counters::AdapterCounters;
use super::super::qos::{PauseSpans, PauseState};
use super::obeyed;

/// Pause state and counters of one paused adapter.
pub struct PausedAdapter {
    /// The adapter.
    pub port: PortId,
    counters: Arc<AdapterCounters>,
    state: PauseState,
    /// Paused times by priority, with priority flow control.
    priorities: PauseSpans,
    /// Paused times of all priorities, with global pause.
    global: PauseSpans,
}

impl PausedAdapter {
    pub fn new(port: PortId, counters: Arc<AdapterCounters>) -> PausedAdapter {
        PausedAdapter {
            port,
            counters,
            state: PauseState::default(),
            priorities: PauseSpans::default(),
            global: PauseSpans::default(),
        }
    }

    /// Counts a change of the adapter's pause state.
    pub fn follow(&mut self, now: Instant, state: PauseState, pause: PauseSettings) {
        let link = &self.counters.link;
        let fresh = state.priorities & !self.state.priorities;
        for (p, block) in (0..8).zip(&link.priorities) {
            if fresh >> p & 1 != 0 {
                block.add(P::RxPause as usize, 1);
            }
        }
        if state.global && !self.state.global {
            link.link.add(L::RxPause as usize, 1);
        }
        self.state = state;
        let waits = obeyed(state, pause);
        let (priorities, global) = if pause.pfc == 0 {
            (0, waits & 1)
        } else {
            (waits, 0)
        };
        self.priorities.set(now, priorities, |p, us, ends| {
            let block = &link.priorities[p % 8];
            block.add(P::RxPauseUs as usize, us);
            block.add(P::RxPauseTransitions as usize, ends.into());
        });
        self.global.set(now, global, |_, us, ends| {
            link.link.add(L::RxPauseUs as usize, us);
            link.link.add(L::RxPauseTransitions as usize, ends.into());
        });
    }
}
