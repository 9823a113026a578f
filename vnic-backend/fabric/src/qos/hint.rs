//! ECN hint: what happens to lossy packets for a guest that falls behind (WinOF-2 Ethernet Network, Explicit Congestion
//! Notification (ECN) Hint in CQE).

use super::{HintAction, HintSettings};

/// Decides packet by packet.
#[derive(Debug, Clone)]
pub struct Hint {}

impl Hint {
    /// With random numbers from this seed.
    pub fn new(_seed: u64) -> Hint {
        Hint {}
    }

    /// What happens to the next lossy packet while the guest's receive path is so full, in thousandths.
    pub fn judge(&mut self, _settings: HintSettings, _fill: u32) -> HintAction {
        todo!()
    }
}
