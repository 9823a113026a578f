//! TIMELY, HPCC and Swift: T1 and T2, H1 to H5, S1 to S4.

use super::Case;

/// Them.
pub(super) fn cases() -> Vec<Case> {
    Vec::new()
}
