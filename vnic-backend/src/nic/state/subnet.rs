//! The subnet of the RDMA functions.

use std::sync::Arc;

use crate::types::subnet::{Groups, Policy};

/// What operators have said of the subnet, and who has joined its groups.
#[derive(Debug, Default)]
pub struct Subnet {
    /// The policy of paths.
    pub policy: Option<Arc<Policy>>,
    /// Multicast groups.
    pub groups: Groups,
}
