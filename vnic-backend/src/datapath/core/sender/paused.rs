//! What an adapter is told about pause, and for how long it obeys: counted where it is obeyed.

use std::sync::Arc;

use vnic_engine::counters::{LinkCounter as L, PriorityCounter as P};
use vnic_fabric::Instant;
use vnic_fabric::qos::PauseSettings;
use vnic_fabric::switch::PortId;

use super::super::super::counters::AdapterCounters;
use super::super::super::outputs::Slot;
use super::super::super::qos::{PauseSpans, PauseState};
use super::super::Core;
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
    fn new(port: PortId, counters: Arc<AdapterCounters>) -> PausedAdapter {
        PausedAdapter {
            port,
            counters,
            state: PauseState::default(),
            priorities: PauseSpans::default(),
            global: PauseSpans::default(),
        }
    }

    /// It is told this now.
    fn follow(&mut self, now: Instant, state: PauseState, pause: PauseSettings) {
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

impl Core {
    /// Counts how long adapters are paused; called while anybody is told anything, and once more afterwards.
    #[cold]
    pub fn pause_round(&mut self, now: Instant) {
        if self.pauses.any() {
            for (i, slot) in self.out.slots.iter().enumerate() {
                let port = PortId(i as u16);
                if let Slot::Adapter(a) = slot
                    && self.pauses.of(port) != PauseState::default()
                    && !self.senders.paused.iter().any(|b| b.port == port)
                {
                    self.senders
                        .paused
                        .push(PausedAdapter::new(port, a.counters.clone()));
                }
            }
        }
        let (pauses, qos) = (&self.pauses, &self.out.qos);
        self.senders.paused.retain_mut(|adapter| {
            let state = pauses.of(adapter.port);
            // *FlowControl says both directions where nobody has said anything.
            let pause = qos.get(adapter.port).map_or(
                PauseSettings {
                    global_rx: true,
                    ..PauseSettings::default()
                },
                |c| c.qos.pause,
            );
            adapter.follow(now, state, pause);
            state != PauseState::default()
        });
    }
}
