//! Frames that wait for receive buffers: in the reserve for bursts, and, when the reserve is full, in dropless mode.
//!
//! ```text
//!  no buffer ─▶ reserve has room ─▶ a copy waits there
//!                    │ full, or switched off
//!                    ├─▶ dropless mode on: a copy waits beyond it, its senders are pushed back, the queue's timer runs
//!                    └─▶ off: dropped
//! ```
//!
//! A waiting frame is a copy: its sender's buffer is completed, and the sender's fate does not matter to it. While frames
//! wait beyond the reserve the adapter is *pressed*, which all cores see: they do not drain rings with a frame for it
//! (flooded frames included, before any receiver gets them), and do not read uplinks. So at most the frames that were in
//! flight when the adapter became pressed wait beyond the reserve. Links between cores are drained, so that one receiver does
//! not delay the others on its core, unless [`LINKS_STOP`] waits on the core. Frames that cannot be pushed back (those that
//! fault rules held back, those of RDMA functions and of the NIC itself) wait, too, while there is room, and are dropped
//! otherwise.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use vnic_engine::dropless::Dropless;
use vnic_fabric::switch::PortId;

use super::super::clock::Clock;
use super::super::qos::Pauses;
use crate::types::SWITCH_PORTS_MAX;

/// Bytes of frames beyond reserves at which a core takes no more frames from other cores.
const LINKS_STOP: u64 = 32 << 20;
/// Largest number of bytes of frames beyond reserves on a core.
pub(super) const BEYOND_MAX: u64 = 64 << 20;
/// Bytes beyond reserves up to which packets of RDMA functions, which cannot be pushed back, may be added.
const UNASKED_MAX: u64 = 1 << 20;

/// The pressed ports, seen by all cores.
pub struct Pressure {
    /// Number of pressed ports.
    count: AtomicU32,
    /// State by port: 0, [`PRESSED`] or [`BUT_ROCE`].
    ports: [AtomicU8; SWITCH_PORTS_MAX],
}

/// State of a port for which frames wait.
pub(super) const PRESSED: u8 = 1;
/// State of a port for which frames wait, but whose RDMA function takes RoCE.
pub(super) const BUT_ROCE: u8 = 2;

impl Default for Pressure {
    fn default() -> Self {
        Pressure {
            count: AtomicU32::new(0),
            ports: [const { AtomicU8::new(0) }; SWITCH_PORTS_MAX],
        }
    }
}

/// Waiting frames of a core.
pub struct Waiting {
    /// Whether a port is pressed or a sender is paused, on this core or another: senders then check each frame's receiver.
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
    /// Makes the state of a core without waiting frames.
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

    /// Pause states of all senders.
    pub fn pauses(&self) -> &Arc<Pauses> {
        &self.pauses
    }

    /// Whether no frame waits on this core.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ports.is_empty()
    }

    /// Reads the state of the ports of all cores.
    #[inline]
    pub fn look(&mut self) {
        self.pressed = self.pressure.count.load(Ordering::Relaxed) != 0 || self.pauses.any();
    }

    /// Whether so many bytes wait that the core takes no more frames from other cores.
    #[inline]
    pub fn stops_links(&self) -> bool {
        self.beyond > LINKS_STOP
    }

    /// Whether so many bytes wait that packets of RDMA functions, which cannot be pushed back, are not added.
    #[inline]
    pub fn is_crowded(&self) -> bool {
        self.beyond > UNASKED_MAX
    }

    /// Whether a frame for this port has to wait.
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
        // Only the port's core writes.
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

/// Waiting frames of an adapter.
#[derive(Default)]
pub struct Waits {
    /// Dropless mode.
    pub dropless: Dropless,
    /// Frames in the reserve, all queues together.
    pub(super) reserved: usize,
    /// Whether the adapter is in [`Waiting::ports`].
    pub(super) listed: bool,
}
