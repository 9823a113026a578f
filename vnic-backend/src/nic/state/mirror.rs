//! Mirror sessions in the control plane.

use std::sync::Arc;
use std::time::SystemTime;

use crate::types::*;

/// A mirror session.
pub struct MirrorEntry {
    /// Specification of the session.
    pub spec: MirrorSpec,
    /// Counts of the data cores.
    pub tally: Arc<MirrorTally>,
    /// Time at which the session was made.
    pub created: SystemTime,
}
