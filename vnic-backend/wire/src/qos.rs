//! Settings that an adapter's keys, the switch and the RDMA function share: priorities by fields of headers, marks, and how
//! long frames may wait. The numbers of words are those of the keys (WinOF-2 Ethernet Network) and of register QPTS. A new key
//! of a group is a field here: a group reaches whoever acts on it as a whole.

use core::ops::RangeInclusive;

/// Which field of a received frame names its priority (`RxTrustedState`; register QPTS).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Trust {
    /// None: all frames have the port's default priority.
    Port = 0,
    /// The priority code point of a tag; without one, the port's default priority.
    #[default]
    Pcp = 1,
    /// The DSCP of an IP packet; otherwise the port's default priority.
    Dscp = 2,
    /// The DSCP of an IP packet, otherwise the priority code point, otherwise the port's default priority.
    Both = 3,
}

/// What names the priority of a frame, beside the map by DSCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PriorityRules {
    /// `RxTrustedState`: the field that names the priority.
    pub trust: Trust,
    /// `DefaultUntaggedPriority`: priority of frames without such a field (register QPDP).
    pub default_priority: u8,
    /// `RxUntaggedMapToLossless`: frames without a tag count as lossless, and go to the first priority that has flow control.
    pub untagged_to_lossless: bool,
}

impl From<Trust> for PriorityRules {
    fn from(trust: Trust) -> Self {
        PriorityRules {
            trust,
            ..PriorityRules::default()
        }
    }
}

/// How RDMA packets get their DSCP, beside the map by priority (WinOF-2 Ethernet Network, DSCP: Registry Settings).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MarkRules {
    /// `DscpBasedpfcEnabled`: the DSCP follows the priority.
    pub dscp_by_priority: bool,
    /// `DscpForGlobalFlowControl`: DSCP of packets with neither traffic class nor service level, where the DSCP names the priority.
    pub default_dscp: u8,
}

impl Default for MarkRules {
    fn default() -> Self {
        MarkRules {
            dscp_by_priority: false,
            default_dscp: 26,
        }
    }
}

/// How an adapter's frames wait to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendRules {
    /// `SendQueuePerPrio`: each priority of the guest's has a send queue of its own.
    pub queue_per_priority: bool,
    /// `*QoSOffload`: the schedule queue acts.
    pub offload: bool,
    /// `*QosOffloadSupportedTCs`: traffic classes of which it acts, a bit each.
    pub offload_classes: u8,
}

impl Default for SendRules {
    fn default() -> Self {
        SendRules {
            queue_per_priority: false,
            offload: true,
            offload_classes: 0xff,
        }
    }
}

/// What happens to lossy packets for a guest that does not keep up (`CongestionAction`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HintAction {
    /// Nothing.
    Off = 0,
    /// Packets are dropped.
    Drop = 1,
    /// Packets are marked (ECN congestion experienced), or dropped if they cannot be marked.
    #[default]
    Mark = 2,
}

/// How eagerly packets are marked or dropped for a guest that does not keep up (`CongestionMode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HintMode {
    /// All packets from a low fill on.
    Aggressive = 0,
    /// The more packets, the fuller the receive buffer is.
    #[default]
    Dynamic = 1,
}

/// Early marks and drops for a guest that does not keep up (`CongestionMonitoringEnable`, `CongestionAction`,
/// `CongestionMode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HintSettings {
    /// `CongestionMonitoringEnable`: whether marks and drops are on.
    pub enable: bool,
    /// `CongestionAction`: what happens to packets.
    pub action: HintAction,
    /// `CongestionMode`: how eagerly it happens.
    pub mode: HintMode,
}

/// Receive path activity monitoring: how long pause may be sent (register PFCC; WinOF-2 Ethernet Network, Receive Path
/// Activity Monitoring).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guard {
    /// `DeviceRxStallWatermark`: milliseconds of stall after which it is counted and reported; 0: never. At most `critical_ms`.
    pub minor_ms: u32,
    /// `DeviceRxStallTimeout`: milliseconds of stall after which pause stops on all priorities; 0: never.
    pub critical_ms: u32,
}

impl Guard {
    /// Milliseconds of a watermark, beside 0: the range of register PFCC (Linux, mlx5 `MLX5E_PFC_PREVEN_TOUT_MIN_MSEC` and
    /// `MLX5E_PFC_PREVEN_TOUT_MAX_MSEC`).
    pub const WATERMARK: RangeInclusive<u32> = 80..=8000;
}

impl Default for Guard {
    fn default() -> Self {
        Guard {
            minor_ms: 6800,
            critical_ms: 8000,
        }
    }
}

/// Head-of-queue lifetime (register QHLL; WinOF-2 Ethernet Network, Head of Queue Lifetime Limit).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetimes {
    /// `TCHeadOfQueueLifeTimeLimit`: log2 of 4.096 us that a frame may wait at the head of its class, 0..=20; 20: for ever.
    pub limit: u8,
    /// `TCStallCount`: drops in a row after which a class counts as stalled, 0..=7; 0: never.
    pub stall_count: u8,
    /// `TCHeadOfQueueLifeTimeLimitEnable`: classes that have a limit, a bit each.
    pub enable: u8,
}

impl Default for Lifetimes {
    fn default() -> Self {
        Lifetimes {
            limit: 19,
            stall_count: 7,
            enable: 0,
        }
    }
}
