//! DCQCN and DCQCN+: D1 to D10, P1 to P4.

use super::Case;

/// Them.
pub(super) fn cases() -> Vec<Case> {
    Vec::new()
}
