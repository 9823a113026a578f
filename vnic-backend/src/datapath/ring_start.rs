//! What a ring is started with.

use std::fs::File;
use std::sync::Arc;

use vnic_engine::offload::Accepts;

use crate::call::Call;
use crate::ring::SplitRing;

/// A ring that a guest has enabled.
pub struct RingStart {
    /// vhost-user index: 2·pair for receive, 2·pair+1 for transmit.
    pub index: u16,
    /// The ring.
    pub ring: SplitRing,
    /// The guest's kick; none if its driver polls.
    pub kick: Option<Arc<File>>,
    /// The guest's interrupt.
    pub call: Option<Arc<Call>>,
    /// Bytes of the virtio header.
    pub hdr_len: usize,
    /// The driver merges receive buffers.
    pub mergeable: bool,
    /// The driver may ask for checksums and segmentation. Otherwise headers of its frames say nothing (virtio 1.3 section
    /// 5.1.6.2), and they are not read.
    pub asks: bool,
    /// What the driver accepts unfinished.
    pub accepts: Accepts,
    /// The adapter's MTU.
    pub mtu: u16,
}
