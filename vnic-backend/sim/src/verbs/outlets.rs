//! Rates of queue pairs, rules of marking, zero touch RoCE, and priorities that close: nothing of it may change what happens,
//! only when.

use std::time::Duration;

use fastrand::Rng;
use vnic_engine::congestion::zero_touch::ZeroTouch;
use vnic_engine::rdma::{Congestion, Device, Marking, RateLimit};
use vnic_wire::qos::{MarkRules, PriorityRules, Trust};
use vnic_wire::time::Instant;

use super::plan::Profile;
use super::world::World;

/// Settings of zero touch RoCE: each facility on or off. In a network that does nothing wrong no timer may be shorter than the
/// time that a packet waits for its rate.
pub(super) fn zero_touch(rng: &mut Rng, profile: Profile) -> ZeroTouch {
    let us = Duration::from_micros;
    let calm = profile == Profile::Clean;
    ZeroTouch {
        adaptive: rng.bool() && !calm,
        floor: us([4, 20, 100, 1_000, 4_000][rng.usize(0..5)]),
        ceiling: (rng.u32(0..4) == 0).then(|| us(rng.u64(100..200_000))),
        limited: rng.bool(),
        window: [1, 2, 16, 100, 1024, 5000][rng.usize(0..6)],
        slow_restart: rng.bool(),
        slow_restart_idle: rng.bool(),
        selective: rng.bool(),
        multipath: [1, 1, 2, 4, 16][rng.usize(0..5)],
    }
}

impl World {
    /// Changes something now and then, and says which priorities are open.
    pub(super) fn change_outlets(&mut self, dev: usize, device: &mut Device) -> u8 {
        if !self.plan.outlets {
            return 0xff;
        }
        let rng = &mut self.outlets;
        if rng.u32(0..60) == 0 {
            let congestion = Congestion {
                zero_touch: zero_touch(rng, self.plan.profile),
                ..Congestion::default()
            };
            device.set_congestion(congestion, Instant(self.now));
        }
        if rng.u32(0..40) == 0 {
            let mut dscp_to_priority = [0; 64];
            dscp_to_priority.fill_with(|| rng.u8(0..8));
            device.set_marking(Marking {
                priorities: PriorityRules {
                    trust: [Trust::Port, Trust::Pcp, Trust::Dscp, Trust::Both][rng.usize(0..4)],
                    default_priority: rng.u8(0..8),
                    ..PriorityRules::default()
                },
                dscp_to_priority,
                marks: MarkRules {
                    dscp_by_priority: rng.bool(),
                    ..MarkRules::default()
                },
                forced_traffic_class: rng.bool().then(|| rng.u8(0..64) << 2),
                ..Marking::default()
            });
        }
        let chosen = rng.u32(0..20) == 0;
        let (pick, rate, burst) = (rng.usize(..), rng.u32(100_000..50_000_000), rng.u32(0..20_000));
        let (unlimited, ceiling, open) = (rng.bool(), rng.u32(0..4) == 0, rng.u8(..) | rng.u8(..));
        let mine: Vec<usize> = self
            .living()
            .into_iter()
            .filter(|s| self.slot(*s).dev == dev)
            .collect();
        if chosen && !mine.is_empty() {
            let qp = self.number(mine[pick % mine.len()]);
            let now = Instant(self.now);
            let rate = if unlimited { 0 } else { rate };
            let limit = RateLimit {
                rate,
                max_burst: if unlimited { 0 } else { burst },
                typical_packet: 0,
            };
            // (Refused for an XRC target, which sends no requests.)
            let _ = if ceiling {
                device.set_qp_ceiling(qp, rate, now)
            } else {
                device.set_qp_rate(qp, limit, now)
            };
        }
        // Three of four are open; none for ever.
        open
    }
}
