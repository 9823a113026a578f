//! A port of a host or a switch: what waits to leave by it, and both ends of flow control on its link.

use std::collections::BTreeMap;

use vnic_fabric::Instant;
use vnic_fabric::qos::{Buffers, Egress, Lifetime, PauseRx, PauseTx, PortQos, StallGuard};

/// A frame on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    pub flow: usize,
    pub number: u32,
    /// Nodes that it has left.
    pub hop: usize,
}

/// See the module.
pub struct Port {
    pub node: usize,
    /// The port at the other end of the link; none: a guest.
    pub peer: Option<usize>,
    pub qos: PortQos,
    pub egress: Egress<Frame>,
    pub buffers: Buffers,
    pub guard: StallGuard,
    pub lifetime: Lifetime,
    pub obeys: PauseRx,
    pub tells: PauseTx,
    /// Priorities that this port's peer or guest is told to stop, by the port out of which they go.
    pub told: BTreeMap<usize, u8>,
    /// Until when it sends a frame.
    pub busy_until: Instant,
    /// Priorities of which something has left since the guard was asked.
    pub moved: u8,
    /// Storm prevention has acted once.
    pub tripped: bool,
    pub wakes_at: Option<Instant>,
    /// Ports of its node.
    pub sources: u64,
}

impl Port {
    pub fn new(node: usize, peer: Option<usize>, qos: PortQos, sources: usize) -> Port {
        Port {
            node,
            peer,
            egress: Egress::new(&qos, Instant(0)),
            buffers: Buffers::new(&qos),
            qos,
            guard: StallGuard::default(),
            lifetime: Lifetime::default(),
            obeys: PauseRx::default(),
            tells: PauseTx::default(),
            told: BTreeMap::new(),
            busy_until: Instant(0),
            moved: 0,
            tripped: false,
            wakes_at: None,
            sources: sources as u64,
        }
    }

    /// Priorities that its peer or guest shall stop.
    pub fn stops(&self) -> u8 {
        self.told.values().fold(0, |all, x| all | x)
    }

    /// Bytes that may be in its buffers at most.
    pub fn most(&self) -> u64 {
        let b = &self.qos.buffer;
        let rooms = self.sources * u64::from(self.qos.lossless().count_ones());
        u64::from(b.size) + rooms * u64::from(b.headroom)
    }

    /// When it has something to do that no frame brings about, after `now`.
    pub fn next_time(&mut self, now: Instant, closed: u8) -> Option<Instant> {
        let sends = self.egress.next_time(now, closed).map(|t| t.max(self.busy_until));
        let tells = self.tells.next_time().map(|t| t.max(self.busy_until));
        let classes = (0..8).filter(|c| self.qos.lifetimes.enable & 1 << c != 0);
        let lives = classes.filter_map(|c| {
            let since = self.egress.oldest(c)?.1.since;
            self.lifetime.due(self.qos.lifetimes, c, since)
        });
        let times = [
            sends,
            tells,
            self.obeys.next_time(),
            self.guard.next_time(self.qos.guard),
            lives.min(),
        ];
        times.into_iter().flatten().filter(|t| *t > now).min()
    }
}
