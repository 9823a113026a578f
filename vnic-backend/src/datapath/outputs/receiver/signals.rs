//! Pause states that the receivers of a core signal to the senders: each sender gets the union of all receivers' states.

use std::sync::Arc;

use vnic_fabric::switch::PortId;

use super::super::super::qos::{PauseState, Pauses};
use crate::types::SWITCH_PORTS_MAX as PORTS;

/// Bit of a receiver that pauses others on purpose; no port has it.
const STORM: u16 = 1 << 15;

/// Pause states of a core, by sender and receiver.
pub struct PauseSignals {
    pauses: Arc<Pauses>,
    core: usize,
    /// State of each receiver, by source.
    sources: Vec<Vec<(PortId, PauseState)>>,
}

impl PauseSignals {
    /// No receiver of core `core` pauses a sender.
    pub fn new(pauses: Arc<Pauses>, core: usize) -> PauseSignals {
        let sources = Vec::new();
        PauseSignals {
            pauses,
            core,
            sources,
        }
    }

    /// Sets the state that a receiver signals to a source. Returns the one before.
    pub fn set(&mut self, receiver: PortId, source: PortId, state: PauseState) -> PauseState {
        let i = usize::from(source.0);
        if self.sources.len() <= i {
            self.sources.resize_with(i + 1, Vec::new);
        }
        let says = &mut self.sources[i];
        let place = says.iter().position(|(r, _)| *r == receiver);
        let before = place.map_or(PauseState::default(), |i| says[i].1);
        match (place, state == PauseState::default()) {
            (Some(i), true) => drop(says.swap_remove(i)),
            (Some(i), false) => says[i].1 = state,
            (None, true) => {}
            (None, false) => says.push((receiver, state)),
        }
        if before != state {
            self.pass_on(i);
        }
        before
    }

    /// Lets an adapter pause all other ports, whatever its queues hold; the default state ends that.
    pub fn storm(&mut self, adapter: PortId, state: PauseState) {
        for source in (0..PORTS as u16).filter(|source| *source != adapter.0) {
            self.set(PortId(adapter.0 | STORM), PortId(source), state);
        }
    }

    /// Clears all states of a receiver.
    pub fn forget(&mut self, receiver: PortId) {
        for i in 0..self.sources.len() {
            let says = &mut self.sources[i];
            let before = says.len();
            says.retain(|(r, _)| *r != receiver);
            if says.len() != before {
                self.pass_on(i);
            }
        }
    }

    fn pass_on(&self, source: usize) {
        let all = self.sources[source]
            .iter()
            .fold(PauseState::default(), |all, (_, t)| PauseState {
                priorities: all.priorities | t.priorities,
                global: all.global | t.global,
            });
        self.pauses.set(self.core, PortId(source as u16), all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_hears_what_any_receiver_says() {
        let pauses = Arc::new(Pauses::default());
        let mut signals = PauseSignals::new(pauses.clone(), 1);
        let (a, b, source) = (PortId(1), PortId(2), PortId(7));
        let pfc = |priorities| PauseState {
            priorities,
            global: false,
        };
        assert_eq!(signals.set(a, source, pfc(0b1000)), PauseState::default());
        signals.set(b, source, pfc(0b0001));
        assert_eq!(pauses.of(source), pfc(0b1001));
        assert_eq!(signals.set(a, source, pfc(0)), pfc(0b1000));
        assert_eq!(pauses.of(source), pfc(0b0001));
        signals.set(a, PortId(8), pfc(0b100));
        signals.forget(b);
        assert_eq!(pauses.of(source), PauseState::default());
        assert_eq!(pauses.of(PortId(8)), pfc(0b100));
        signals.forget(a);
        assert!(!pauses.any());
    }
}
