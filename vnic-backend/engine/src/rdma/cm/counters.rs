//! Counters of messages, by attribute, and of connections. The first four groups have the names of Linux (`/sys/class/infiniband/*/ports/*/cm_*`).

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
    /// Connections established that peers have asked for.
    pub accepted: u64,
    /// Connections established that the driver has asked for.
    pub initiated: u64,
    /// Attempts of either side that ended without a connection.
    pub failed: u64,
    /// Connections that were established and have ended.
    pub ended: u64,
    /// Of these, those that the peer had forgotten or rejected.
    pub broken: u64,
    /// Datagrams that are no message.
    pub malformed: u64,
    /// Requests dropped because their source sent too many in a second.
    pub over_rate: u64,
    /// Messages about a connection that there is not.
    pub unknown: u64,
}
