//! Mirror sessions of the control plane.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// Most mirror sessions of a NIC.
pub const MIRRORS_MAX: usize = 16;

vnic_wire::named! {
    /// Frames of a mirror's source that are copied, as its counters name them.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub enum MirrorDirection {
        /// Frames that the adapter's guest gets, or that come from the port's wire.
        Rx => "rx",
        /// Frames that the adapter's guest sends, or that go to the port's wire.
        Tx => "tx",
        /// Both.
        #[default]
        Both => "both",
    }
}

/// A mirror session: copies of frames of a source for a destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirrorSpec {
    /// Name of the session.
    pub name: String,
    /// Name of the adapter or port whose frames are copied.
    pub source: String,
    /// Frames that are copied.
    pub direction: MirrorDirection,
    /// Name of the adapter or port that gets the copies, and nothing else.
    pub destination: String,
}

/// A mirror session and its counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirrorStatus {
    /// Specification of the session.
    pub spec: MirrorSpec,
    /// Copies that were sent to the destination. What the destination does not take, it counts as a drop of its own.
    pub mirrored: u64,
    /// Copies that were lost before the destination.
    pub dropped: u64,
    /// Time at which the session was made.
    pub created: SystemTime,
    /// Why the session copies nothing, such as a source that is not there; `None`: it runs.
    pub problem: Option<String>,
}

/// Counts of a mirror session, of all data cores.
#[derive(Debug, Default)]
pub struct MirrorTally {
    mirrored: AtomicU64,
    dropped: AtomicU64,
}

impl MirrorTally {
    /// Counts a copy that was sent to its destination, or lost.
    pub(crate) fn count(&self, sent: bool) {
        let counter = if sent { &self.mirrored } else { &self.dropped };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Copies that were sent, and copies that were lost.
    pub(crate) fn read(&self) -> (u64, u64) {
        let [mirrored, dropped] = [&self.mirrored, &self.dropped].map(|c| c.load(Ordering::Relaxed));
        (mirrored, dropped)
    }
}
