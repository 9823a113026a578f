//! Follows the devices of ports. A link that goes down reaches the data cores at once: what the kernel says of it is acted on
//! before anything else is looked at; one question tells whether it is still so.
//!
//! The kernel may tell of a lost carrier up to a second late (`linkwatch_urgent_event` in `net/core/link_watch.c`: not of
//! devices that are stacked, but of a physical one whose link has changed a short time ago). Asked, it knows at once. So
//! ports that are members of bonds, which shall fail over within 10 ms, are asked besides, as Linux's bonding does (`miimon`):
//! while frames go by them, for of a link that nobody uses nobody misses anything.

use std::time::{Duration, Instant};

use vnic_engine::counters::PortCounter as P;

use crate::nic::Inner;
use crate::nic::state::State;
use crate::types::PortId;
use crate::uplink::Watch;

/// Devices are looked at this often at least: news can be lost, and a driver may tell nothing.
const SELDOM: Duration = Duration::from_secs(1);
/// Members of bonds are asked for their link this often while frames go by any of them.
const OFTEN: Duration = Duration::from_millis(4);
/// And this often when none has for [`QUIET`]: a thread that wakes up every 4 ms takes 1 % of a CPU.
const RESTING: Duration = Duration::from_millis(250);
const QUIET: Duration = Duration::from_millis(100);

/// When members of bonds are asked again.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Frames that had gone by them at the last look.
    frames: u64,
    /// When that number had changed.
    moved: Option<Instant>,
}

impl Pace {
    /// They are asked now, and so many frames have gone by them: how long they are left alone then.
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
    /// Does what is to be done now; answers how long it can wait for news. None: the NIC has ended.
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
            // Whatever else has become of it is found out at the next look.
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

    /// Acts on what the kernel has told; false: it has told nothing.
    pub(super) fn hear(&self, watch: &mut Watch) -> bool {
        let noticed = Instant::now();
        let Some(news) = watch.news() else {
            return false;
        };
        for (index, told) in news {
            if !self.lock().ports.values().any(|p| p.index == Some(index)) {
                continue;
            }
            // What was told may be of long ago: a device was down before it was up.
            let up = watch.links.is_up(index).unwrap_or(told);
            self.device_is(|p| p.1 == index, up, noticed);
        }
        true
    }

    /// The device of a port, which is given by its number and the device's index, is up or down, or gone.
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
    /// Ports that are members of bonds and have a network device: its index, and whether it is up as far as is known. And how
    /// many frames have gone by them, both ways.
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
        // Of a team that lost a member there are fewer: something has changed.
        assert_eq!(next(600, 0), OFTEN);
        assert_eq!(next(1000, 0), RESTING);
    }
}
