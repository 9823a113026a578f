//! Counters of messages, by attribute. The first four groups have the names of Linux (`/sys/class/infiniband/*/ports/*/cm_*`).

use vnic_wire::cm::Attribute;

/// Numbers by attribute, in the order of [`Attribute::ALL`].
pub type ByAttribute = [u64; Attribute::ALL.len()];

/// Counters of a device's communication management: monotonic, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Messages sent, repeated ones too.
    pub cm_tx_msgs: ByAttribute,
    /// Messages sent again because no answer came.
    pub cm_tx_retries: ByAttribute,
    /// Messages received.
    pub cm_rx_msgs: ByAttribute,
    /// Those that say what was known.
    pub cm_rx_duplicates: ByAttribute,
    /// Datagrams that are no message.
    pub malformed: u64,
    /// Requests dropped because their source sent too many in a second.
    pub over_rate: u64,
    /// Messages about a connection that there is not.
    pub unknown: u64,
}
