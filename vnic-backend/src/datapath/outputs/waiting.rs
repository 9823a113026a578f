//! Frames that find no receive buffer and wait for one: in the reserve for bursts, and, when that is full, in dropless
//! mode.
//!
//! ```text
//!  no buffer ─▶ reserve has room ─▶ a copy waits there
//!                    │ full, or switched off
//!                    ├─▶ dropless mode on: a copy waits beyond it, its senders are pushed back, the queue's timer runs
//!                    └─▶ off: dropped
//! ```
//!
//! A frame that waits is a copy of our own: its sender's buffer is completed, and whatever happens to the sender afterwards
//! does not concern it. While frames wait beyond the reserve the adapter is *pressed*, which all cores see: rings with a
//! frame for it are not drained (flooded frames included, before anybody gets them), uplinks are not read. So beyond the
//! reserve there is at most what was under way when the adapter became pressed. Links between cores are drained: what one
//! receiver waits for must not hold up the others on its core; only when [`LINKS_STOP`] waits on a core are they left alone.
//! Frames that nobody can push back (those that fault rules held back, those of RDMA functions and of the NIC itself) wait,
//! too, as long as there is room, and are dropped otherwise.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use vnic_engine::dropless::Dropless;
use vnic_fabric::switch::PortId;

use super::super::clock::Clock;
use super::super::qos::Pauses;
use crate::types::SWITCH_PORTS_MAX;

/// Bytes of frames beyond reserves with which a core takes nothing more from other cores.
const LINKS_STOP: u64 = 32 << 20;
/// Bytes of frames beyond reserves that a core keeps at most.
pub(super) const BEYOND_MAX: u64 = 64 << 20;
/// Bytes beyond reserves up to which packets of RDMA functions, which nobody pushes back, may add to them.
const UNASKED_MAX: u64 = 1 << 20;

/// Which ports are pressed, seen by all cores.
pub struct Pressure {
    /// How many.
    count: AtomicU32,
    /// By port: 0, [`PRESSED`] or [`BUT_ROCE`].
    ports: [AtomicU8; SWITCH_PORTS_MAX],
}

/// Frames for the port wait.
pub(super) const PRESSED: u8 = 1;
/// All but RoCE: that is for its RDMA function.
pub(super) const BUT_ROCE: u8 = 2;

impl Default for Pressure {
    fn default() -> Self {
        Pressure {
            count: AtomicU32::new(0),
            ports: [const { AtomicU8::new(0) }; SWITCH_PORTS_MAX],
        }
    }
}

/// Who waits on a core.
pub struct Waiting {
    /// A port is pressed, or somebody is told to wait, on this core or another: senders look whom it concerns before they
    /// send.
    pub pressed: bool,
    /// Adapters of this core with frames that wait.
    pub(super) ports: Vec<PortId>,
    /// Bytes of frames beyond reserves.
    pub(super) beyond: u64,
    pressure: Arc<Pressure>,
    pauses: Arc<Pauses>,
    pub(super) clock: Clock,
}

impl Waiting {
    /// Nobody.
    pub fn new(pressure: Arc<Pressure>, pauses: Arc<Pauses>, clock: Clock) -> Waiting {
        Waiting {
            pressed: false,
            ports: Vec::new(),
            beyond: 0,
            pressure,
            pauses,
            clock,
        }
    }

    /// Who is told to wait.
    pub fn pauses(&self) -> &Arc<Pauses> {
        &self.pauses
    }

    /// Does nobody wait on this core?
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ports.is_empty()
    }

    /// Learns what has become of the ports of other cores.
    #[inline]
    pub fn look(&mut self) {
        self.pressed = self.pressure.count.load(Ordering::Relaxed) != 0 || self.pauses.any();
    }

    /// So much waits that nothing more is taken from other cores.
    #[inline]
    pub fn stops_links(&self) -> bool {
        self.beyond > LINKS_STOP
    }

    /// Do so many wait that packets of RDMA functions, which nobody pushes back, add no more to them?
    #[inline]
    pub fn is_crowded(&self) -> bool {
        self.beyond > UNASKED_MAX
    }

    /// Must a frame for this port wait?
    pub fn holds_up(&self, port: PortId, roce: bool) -> bool {
        let state = self.pressure.ports.get(usize::from(port.0));
        match state.map_or(0, |s| s.load(Ordering::Relaxed)) {
            0 => false,
            BUT_ROCE => !roce,
            _ => true,
        }
    }

    pub(super) fn mark(&mut self, port: PortId, state: u8) {
        let Some(place) = self.pressure.ports.get(usize::from(port.0)) else {
            return;
        };
        // One writer: the port's core.
        let before = place.swap(state, Ordering::Relaxed);
        match (before, state) {
            (0, 0) => {}
            (0, _) => {
                self.pressure.count.fetch_add(1, Ordering::Relaxed);
            }
            (_, 0) => {
                self.pressure.count.fetch_sub(1, Ordering::Relaxed);
            }
            _ => {}
        }
        self.look();
    }
}

/// What an adapter knows of its frames that wait.
#[derive(Default)]
pub struct Waits {
    /// Dropless mode.
    pub dropless: Dropless,
    /// Frames in the reserve, all queues together.
    pub(super) reserved: usize,
    /// It is among the core's waiting ports.
    pub(super) listed: bool,
}
