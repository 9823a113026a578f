//! Follows the devices of ports. A link that goes down reaches the data cores at once: the kernel's messages are handled
//! before anything else; one query tells whether they are still true.
//!
//! The kernel may report a lost carrier up to a second late (`linkwatch_urgent_event` in `net/core/link_watch.c`: not for
//! stacked devices, but for a physical one whose link changed a short time ago). A query is exact. So members of bonds, which
//! have to fail over within 10 ms, are also queried, as Linux's bonding does (`miimon`), while they carry frames: a dead link
//! without frames loses nothing.

use std::time::{Duration, Instant};

use vnic_engine::counters::PortCounter as P;

use crate::nic::Inner;
use crate::nic::state::State;
use crate::types::PortId;
use crate::uplink::Watch;

/// Longest time between two looks at the devices: messages can be lost, and a driver may send none.
const SELDOM: Duration = Duration::from_secs(1);
/// Interval at which members of bonds are queried while any of them carries frames.
const OFTEN: Duration = Duration::from_millis(4);
/// Interval without frames for [`QUIET`]: a thread that wakes every 4 ms takes 1 % of a CPU.
const RESTING: Duration = Duration::from_millis(250);
const QUIET: Duration = Duration::from_millis(100);

/// Pace of queries to members of bonds.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Number of the members' frames at the last look.
    frames: u64,
    /// When `frames` had last changed.
    moved: Option<Instant>,
}

impl Pace {
    /// Time until the next query, if the members have carried `frames` frames by now.
    fn next(&mut self, now: Instant, frames: u64) -> Duration {
        if frames != std::mem::replace(&mut self.frames, frames) {
            self.moved = Some(now);
        }
        match self.moved {
            Some(at) if now.saturating_duration_since(at) < QUIET => OFTEN,
            _ => RESTING,
        }
    }
}

impl Inner {
    /// Does what is due. Returns how long the thread can wait for messages. `None`: the NIC has ended.
    pub(super) fn follow(&self, watch: &mut Watch, pace: &mut Pace) -> Option<Duration> {
        let told = self.hear(watch);
        let (members, frames) = {
            let state = self.lock();
            if state.ended {
                return None;
            }
            state.members()
        };
        for (id, index, up) in &members {
            let noticed = Instant::now();
            // The next look finds any other change.
            if let Ok(Some(now)) = watch.links.is_up(*index)
                && now != *up
            {
                self.device_is(|p| p.0 == *id && p.1 == *index, Some(now), noticed);
            }
        }
        let now = Instant::now();
        if told || watch.looked.is_none_or(|at| now >= at + SELDOM) {
            watch.looked = Some(now);
            if !self.look_at_ports(watch) {
                return None;
            }
        }
        Some(match members.is_empty() {
            true => SELDOM,
            false => pace.next(now, frames),
        })
    }

    /// Handles the kernel's messages. False: there are none.
    pub(super) fn hear(&self, watch: &mut Watch) -> bool {
        let noticed = Instant::now();
        let Some(news) = watch.news() else {
            return false;
        };
        for (index, told) in news {
            if !self.lock().ports.values().any(|p| p.index == Some(index)) {
                continue;
            }
            // A message may be old: a device was down before it was up.
            let up = watch.links.is_up(index).unwrap_or(told);
            self.device_is(|p| p.1 == index, up, noticed);
        }
        true
    }

    /// Sets whether the device of a port, which `which` selects by port and device index, is up, down or gone.
    fn device_is(&self, which: impl Fn((PortId, u32)) -> bool, up: Option<bool>, noticed: Instant) {
        let mut state = self.lock();
        let port = state
            .ports
            .values()
            .find(|p| p.index.is_some_and(|index| index != 0 && which((p.id, index))));
        let Some((id, index, ifname)) = port.map(|p| (p.id, p.index, p.spec.kind.ifname().to_owned())) else {
            return;
        };
        let (device, problem) = match up {
            Some(up) => (index.map(|index| (index, up)), None),
            None => (
                None,
                Some(format!("there is no network device {ifname} any more")),
            ),
        };
        self.port_is_since(&mut state, id, device, problem, noticed);
    }
}

impl State {
    /// Ports that are members of bonds and have a network device: the device's index, and whether it was last up. And the
    /// number of frames that all members have received and sent.
    fn members(&self) -> (Vec<(PortId, u32, bool)>, u64) {
        let mut frames = 0u64;
        let ports = self.ports.values().filter(|p| self.bond_of(p.id).is_some());
        let members = ports.filter_map(|p| {
            for way in [P::RxFrames, P::TxFrames] {
                frames = frames.wrapping_add(p.counters.io.get(way as usize));
            }
            Some((p.id, p.index.filter(|i| *i != 0)?, p.up))
        });
        (members.collect(), frames)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_asked_often_while_frames_go_by_them() {
        let start = Instant::now();
        let mut pace = Pace::default();
        let mut next = |ms: u64, frames| pace.next(start + Duration::from_millis(ms), frames);
        assert_eq!(next(0, 0), RESTING);
        assert_eq!(next(250, 1), OFTEN);
        assert_eq!(next(254, 1), OFTEN);
        assert_eq!(next(349, 1), OFTEN);
        assert_eq!(next(350, 1), RESTING);
        // A team that lost a member has fewer frames: the number has changed.
        assert_eq!(next(600, 0), OFTEN);
        assert_eq!(next(1000, 0), RESTING);
    }
}
