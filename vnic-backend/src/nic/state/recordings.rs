//! Recordings of work requests in the control plane.

use vnic_fabric::Instant;

use crate::types::*;

/// The recording that runs, and the one that ended last.
#[derive(Debug, Default)]
pub struct Recordings {
    /// The recording that runs.
    pub running: Option<Running>,
    /// What the last one has noted.
    pub last: Option<Recorded>,
}

/// A recording that runs.
#[derive(Debug, Clone)]
pub struct Running {
    /// The recording.
    pub status: RecordingStatus,
    /// When it began, by the data cores' clock.
    pub began: Instant,
}
