//! ECN hint: what happens to lossy packets for a guest that falls behind (WinOF-2 Ethernet Network, Explicit Congestion
//! Notification (ECN) Hint in CQE).

use super::{HintAction, HintMode, HintSettings};
use crate::fault::SplitMix64;

/// Fill from which on packets are marked or dropped, in thousandths. The documents give no figures; this is more than a
/// burst.
const LOW: u32 = 250;
/// Fill from which on all packets are marked or dropped.
const HIGH: u32 = 900;

/// Decides packet by packet.
#[derive(Debug, Clone)]
pub struct Hint {
    random: SplitMix64,
}

impl Hint {
    /// A judge with random numbers from this seed.
    pub fn new(seed: u64) -> Hint {
        Hint {
            random: SplitMix64::of(seed, 0),
        }
    }

    /// What happens to the next lossy packet, with the guest's receive path so full, in thousandths.
    pub fn judge(&mut self, settings: HintSettings, fill: u32) -> HintAction {
        if !settings.enable || settings.action == HintAction::Off || fill < LOW {
            return HintAction::Off;
        }
        let hit = match settings.mode {
            HintMode::Aggressive => true,
            // A line from 0 at LOW to 1 at HIGH (random early detection, Floyd and Jacobson 1993).
            HintMode::Dynamic => self.random.below(u64::from(HIGH - LOW)) < u64::from(fill - LOW),
        };
        if hit { settings.action } else { HintAction::Off }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hits(settings: HintSettings, fill: u32) -> usize {
        let mut hint = Hint::new(1);
        (0..1000)
            .filter(|_| hint.judge(settings, fill) != HintAction::Off)
            .count()
    }

    #[test]
    fn the_fuller_the_more() {
        let off = HintSettings::default();
        let dynamic = HintSettings { enable: true, ..off };
        let aggressive = HintSettings {
            mode: HintMode::Aggressive,
            ..dynamic
        };
        let nothing = HintSettings {
            action: HintAction::Off,
            ..aggressive
        };
        assert_eq!([0, 500, 1000].map(|f| hits(off, f)), [0, 0, 0]);
        assert_eq!([0, 500, 1000].map(|f| hits(nothing, f)), [0, 0, 0]);
        assert_eq!([249, 250, 1000].map(|f| hits(aggressive, f)), [0, 1000, 1000]);
        let [a, b, c, d] = [250, 400, 700, 900].map(|f| hits(dynamic, f));
        assert_eq!((a, d), (0, 1000));
        assert!((180..280).contains(&b) && (640..750).contains(&c), "{b} {c}");
    }

    #[test]
    fn what_happens_is_what_is_set() {
        let drop = HintSettings {
            enable: true,
            action: HintAction::Drop,
            mode: HintMode::Aggressive,
        };
        assert_eq!(Hint::new(0).judge(drop, 1000), HintAction::Drop);
    }
}
