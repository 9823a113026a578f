//! Quality of service, as the control plane sees it.

use vnic_engine::settings::QosKeys;
use vnic_fabric::qos::QosError;
pub use vnic_fabric::qos::{
    Buffer, Capable, Classes, Classification, Guard, Lifetimes, MarkAt, Match, NotCapable, PauseSettings,
    Policy, PortQos, RATE_RANGE as QOS_RATE_RANGE, Red, ScheduleQueue, Trust, Tsa,
};

use super::NicError;

impl From<QosError> for NicError {
    fn from(QosError { field, problem }: QosError) -> NicError {
        NicError::Invalid { field, problem }
    }
}

/// What an operator configures at an adapter or a port by `qos` verbs. What the documents have keys for is in an adapter's
/// settings ([`QosKeys`]); an uplink has no registry, its values of these keys are here.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QosSpec {
    /// Speed of the link in bit/s; 0: not limited.
    pub rate: u64,
    /// Traffic classes.
    pub classes: Classes,
    /// Priorities with priority flow control, a bit each.
    pub pfc: u8,
    /// Room for frames that wait.
    pub buffer: Buffer,
    /// Rules of the operator's for what the guest sends; adapters only.
    pub policies: Vec<Policy>,
    /// Traffic class (ToS byte) that all RDMA packets of the adapter get, whatever their queue pairs say, as with the file
    /// `tc/1/traffic_class` of MLNX_OFED's mlx5 in sysfs.
    pub forced_traffic_class: Option<u8>,
    /// Marking and early drops, by traffic class.
    pub ecn: [Red; 8],
    /// Limits and guarantees of a virtual machine; adapters only.
    pub queue: Option<ScheduleQueue>,
    /// An uplink's values of what an adapter has keys for. Not read for an adapter.
    pub keys: QosKeys,
}

/// Quality of service of an adapter or a port as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QosStatus {
    /// What was configured.
    pub spec: QosSpec,
    /// Keys that act.
    pub keys: QosKeys,
    /// What acts, both together.
    pub acting: PortQos,
    /// What waits.
    pub queues: QueueStatus,
}

/// What waits at a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueStatus {
    /// Bytes that wait to be sent to the guest or the wire, by traffic class.
    pub bytes: [u64; 8],
    /// Frames that wait.
    pub frames: u64,
    /// Priorities of which senders are told to wait, a bit each.
    pub pausing: u8,
    /// Priorities that may not send because the other end says so, a bit each.
    pub paused: u8,
    /// Pause is not sent because the receive path stood still for too long.
    pub storm: bool,
    /// Traffic classes that are stalled, a bit each.
    pub stalled: u8,
    /// Bytes in the guest's send queues, by priority (`SendQueuePerPrio`).
    pub send_queues: [u64; 8],
}
