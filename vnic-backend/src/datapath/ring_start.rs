//! Parameters with which a ring starts.

use std::fs::File;
use std::sync::Arc;

use vnic_engine::offload::Accepts;

use crate::call::Call;
use crate::ring::Ring;

/// A ring that a guest has enabled.
pub struct RingStart {
    /// vhost-user index: 2·pair for receive, 2·pair+1 for transmit.
    pub index: u16,
    /// The ring.
    pub ring: Ring,
    /// The guest's kick eventfd; `None`: its driver polls.
    pub kick: Option<Arc<File>>,
    /// The guest's call eventfd.
    pub call: Option<Arc<Call>>,
    /// Bytes of the virtio header.
    pub hdr_len: usize,
    /// Whether the driver merges receive buffers (VIRTIO_NET_F_MRG_RXBUF).
    pub mergeable: bool,
    /// Whether the driver may request checksums and segmentation. Otherwise the virtio headers of its frames contain nothing
    /// (virtio 1.3 section 5.1.6.2) and are not read.
    pub asks: bool,
    /// Offloads that the driver accepts.
    pub accepts: Accepts,
    /// The adapter's MTU.
    pub mtu: u16,
}
