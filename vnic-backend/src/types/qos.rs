//! Quality of service of the control plane.

use std::collections::BTreeMap;

use vnic_engine::settings::QosKeys;
pub use vnic_fabric::qos::Limits as QosLimits;
use vnic_fabric::qos::QosError;
pub use vnic_fabric::qos::{
    Buffer, BufferParts, Capable, Classes, Classification, Colour, Curve, Guard, Lifetimes, MarkAt, Match,
    NotCapable, PauseSettings, Policy, PortQos, RATE_RANGE as QOS_RATE_RANGE, Red, ScheduleQueue, TagMaps,
    Tpid, Trust, Tsa, VlArbitration,
};

use super::{DcbxSources, DcbxVersion, NicError};

impl From<QosError> for NicError {
    fn from(QosError { field, problem }: QosError) -> NicError {
        NicError::Invalid { field, problem }
    }
}

/// Colour by DSCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DscpColours(pub [Colour; 64]);

impl Default for DscpColours {
    fn default() -> Self {
        DscpColours([Colour::Green; 64])
    }
}

/// Operator's configuration of an adapter or a port by `qos` verbs. Parameters that have keys in the documents are in an
/// adapter's settings ([`QosKeys`]); an uplink has no registry, and has its values of these keys here.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QosSpec {
    /// Speed of the link in bit/s; 0: not limited.
    pub rate: u64,
    /// Traffic classes. [`Classes::by_source`] follows from `classes_by_port`, and is not looked at.
    pub classes: Classes,
    /// Traffic class by service level of what came by the adapter or port of this name, which may come later; ports only.
    pub classes_by_port: BTreeMap<String, [u8; 16]>,
    /// Priorities with priority flow control, a bit each.
    pub pfc: u8,
    /// Buffer of waiting frames.
    pub buffer: Buffer,
    /// The operator's rules for frames from the guest; adapters only.
    pub policies: Vec<Policy>,
    /// Traffic class (ToS byte) of all RDMA packets of the adapter, whatever their queue pairs say, as with the file
    /// `tc/1/traffic_class` of MLNX_OFED's mlx5 in sysfs.
    pub forced_traffic_class: Option<u8>,
    /// Marking and early drops, by traffic class.
    pub ecn: [Red; 8],
    /// Priorities and colours by tags, and what is written into tags and pause frames.
    pub tags: TagMaps,
    /// Colour by DSCP.
    pub dscp_to_colour: DscpColours,
    /// Tags on the wire; ports only.
    pub tpid: Tpid,
    /// Whether priorities, traffic classes, flow control by priority, policies, marks and lifetimes are set aside
    /// (`Disable-NetAdapterQos`).
    pub disabled: bool,
    /// Limits and guarantees of a virtual machine; adapters only.
    pub queue: Option<ScheduleQueue>,
    /// An uplink's values of keys that an adapter has in its registry. Not used for an adapter.
    pub keys: QosKeys,
}

impl QosSpec {
    /// What of it acts within limits of the device: classes beyond are the last one, and the lowest priorities keep flow control.
    #[must_use]
    pub fn within(&self, limits: QosLimits) -> QosSpec {
        QosSpec {
            classes: limits.fold(&self.classes),
            pfc: limits.paused(self.pfc),
            ..self.clone()
        }
    }
}

/// Quality of service of an adapter or a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QosStatus {
    /// The configuration.
    pub spec: QosSpec,
    /// Keys that act.
    pub keys: QosKeys,
    /// Settings that act, from configuration and keys.
    pub acting: PortQos,
    /// State of the queues.
    pub queues: QueueStatus,
    /// Data center bridging exchange that acts, and whose values do. Of an adapter with the key `DcbxMode`: on the first port that has
    /// it, and none of its own.
    pub dcbx: Option<(DcbxVersion, DcbxSources)>,
    /// Of an adapter: the priority of RDMA that the peer of a port names by data center bridging exchange. It acts where neither the
    /// operator nor a queue pair names one.
    pub rdma_priority: Option<u8>,
    /// Most classes, and most priorities with flow control, that act.
    pub limits: QosLimits,
}

/// Queues of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueStatus {
    /// Bytes that wait to be sent to the guest or the wire, by traffic class and virtual lane.
    pub bytes: [u64; vnic_fabric::qos::LANES],
    /// Frames that wait.
    pub frames: u64,
    /// Priorities on which senders are paused, a bit each.
    pub pausing: u8,
    /// Priorities that are paused by the other end, a bit each.
    pub paused: u8,
    /// Whether pause is not sent because the receive path stood still for too long.
    pub storm: bool,
    /// Traffic classes that are stalled, a bit each.
    pub stalled: u8,
    /// Bytes in the guest's send queues, by priority (`SendQueuePerPrio`).
    pub send_queues: [u64; 8],
}
