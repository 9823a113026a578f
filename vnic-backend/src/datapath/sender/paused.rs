//! What an adapter is told about pause, and for how long it obeys: counted where it is obeyed.

use std::sync::Arc;

use vnic_engine::counters::{LinkCounter as L, PriorityCounter as P};
use vnic_fabric::Instant;
use vnic_fabric::qos::PauseSettings;
use vnic_fabric::switch::PortId;

use super::super::counters::AdapterCounters;
use super::super::qos::{PauseSpans, PauseState};
use super::obeyed;

/// Of one adapter that is told something.
pub struct PausedAdapter {
    /// The adapter.
    pub port: PortId,
    counters: Arc<AdapterCounters>,
    state: PauseState,
    /// By priority, where they have flow control of their own,
    priorities: PauseSpans,
    /// and all together where they have not.
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

    /// It is told this now.
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
