//! Connections of RDMA functions.

pub use vnic_engine::rdma::cm::{State as ConnectionState, Status as ConnectionTerms};
pub use vnic_wire::cm::Service as ConnectionService;
pub use vnic_wire::cm::ServiceId;

use vnic_engine::rdma::Place;

/// A connection of an RDMA function's communication management.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionStatus {
    /// Place of the process that has the connection, among those that share the function.
    pub place: Place,
    /// What is known of the connection.
    pub of: ConnectionTerms,
}

/// Some connections of an RDMA function.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConnectionPage {
    /// The connections, by process and number.
    pub rows: Vec<ConnectionStatus>,
    /// The place behind which there may be more: place of a process in the upper half, number of a connection in the lower.
    pub next: Option<u64>,
}

/// What becomes of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionOutcome {
    /// Both ends are connected.
    Established,
    /// The peer has rejected them, or has forgotten them.
    Rejected,
    /// The peer does not answer.
    TimedOut,
    /// They have ended.
    Disconnected,
}

impl ConnectionOutcome {
    /// All of them, by their numbers.
    pub const ALL: [ConnectionOutcome; 4] = [
        ConnectionOutcome::Established,
        ConnectionOutcome::Rejected,
        ConnectionOutcome::TimedOut,
        ConnectionOutcome::Disconnected,
    ];
}

/// What has become of an adapter's connections since the last report of the kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionReport {
    /// What has become of them.
    pub outcome: ConnectionOutcome,
    /// How many there were.
    pub count: u64,
    /// GID of the last one's peer, in network order.
    pub peer: [u8; 16],
    /// What the last one is for.
    pub service: ServiceId,
    /// Why the last one was rejected, in the standard's words.
    pub reason: String,
}
