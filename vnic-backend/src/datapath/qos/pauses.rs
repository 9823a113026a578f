//! Pause states of all sources, seen by all cores: each receiver's core writes its own part.

use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use vnic_fabric::switch::PortId;

use super::super::MAX_CORES;
use crate::types::SWITCH_PORTS_MAX as PORTS;

/// Cores in one word, with 8 priorities each.
const CORES_IN_WORD: usize = 8;

/// Pause states of all sources.
pub struct Pauses {
    /// Number of pairs of a source and a core that pauses it.
    any: AtomicU32,
    /// Paused priorities by source, a byte for each receiver's core.
    priorities: [[AtomicU64; MAX_CORES / CORES_IN_WORD]; PORTS],
    /// Global pause by source, a bit for each receiver's core.
    global: [AtomicU16; PORTS],
}

impl Default for Pauses {
    fn default() -> Self {
        Pauses {
            any: AtomicU32::new(0),
            priorities: [const { [const { AtomicU64::new(0) }; MAX_CORES / CORES_IN_WORD] }; PORTS],
            global: [const { AtomicU16::new(0) }; PORTS],
        }
    }
}

/// Pause state of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PauseState {
    /// Paused priorities, a bit each (priority flow control).
    pub priorities: u8,
    /// Whether all priorities are paused (global pause).
    pub global: bool,
}

impl Pauses {
    /// Whether any source is paused.
    #[inline]
    pub fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed) != 0
    }

    /// Pause state of a source, from all cores together.
    pub fn of(&self, source: PortId) -> PauseState {
        let i = usize::from(source.0);
        let Some(words) = self.priorities.get(i) else {
            return PauseState::default();
        };
        let mut all = words.iter().fold(0, |all, w| all | w.load(Ordering::Relaxed));
        all |= all >> 32;
        all |= all >> 16;
        all |= all >> 8;
        PauseState {
            priorities: all as u8,
            global: self.global[i].load(Ordering::Relaxed) != 0,
        }
    }

    /// Sets the state that the receivers of core `core` signal to a source. Only that core calls it.
    pub fn set(&self, core: usize, source: PortId, state: PauseState) {
        let i = usize::from(source.0);
        let (Some(words), bit) = (self.priorities.get(i), 1u16 << core) else {
            return;
        };
        let (word, shift) = (&words[core / CORES_IN_WORD], 8 * (core % CORES_IN_WORD) as u32);
        let before = word.load(Ordering::Relaxed);
        let old = (before >> shift) as u8;
        let was = old != 0 || self.global[i].load(Ordering::Relaxed) & bit != 0;
        // Other cores write other bytes of the word.
        word.fetch_xor(u64::from(old ^ state.priorities) << shift, Ordering::Relaxed);
        if state.global {
            self.global[i].fetch_or(bit, Ordering::Relaxed);
        } else {
            self.global[i].fetch_and(!bit, Ordering::Relaxed);
        }
        match (was, state != PauseState::default()) {
            (false, true) => {
                self.any.fetch_add(1, Ordering::Relaxed);
            }
            (true, false) => {
                self.any.fetch_sub(1, Ordering::Relaxed);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cores_tell_adds_up_and_is_taken_back() {
        let pauses = Pauses::default();
        let (a, b) = (PortId(3), PortId(4));
        let only = |priorities| PauseState {
            priorities,
            global: false,
        };
        pauses.set(0, a, only(0b1000));
        pauses.set(9, a, only(0b0001));
        assert_eq!(pauses.of(a), only(0b1001));
        assert_eq!(pauses.of(b), PauseState::default());
        pauses.set(0, a, only(0b0010));
        assert_eq!(pauses.of(a), only(0b0011));
        pauses.set(
            0,
            b,
            PauseState {
                priorities: 0,
                global: true,
            },
        );
        assert!(pauses.of(b).global);
        for (core, port) in [(0, a), (9, a), (0, b)] {
            assert!(pauses.any());
            pauses.set(core, port, PauseState::default());
        }
        assert!(!pauses.any());
        assert_eq!(pauses.of(a), PauseState::default());
    }
}
