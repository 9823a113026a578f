//! Quality of service and flow control, as far as the documents have keys for it.

use super::table::{MARKS, TO_DSCP, TO_PRIORITY};

/// Least watermark of the receive path (register PFCC).
const STALL_MIN_MS: u32 = 80;

/// Which field of a received packet names its priority (`RxTrustedState`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum RxTrust {
    /// None: all packets have the default priority (0; ours, after the port setting of switches).
    Port,
    /// The priority code point of a tag (1).
    #[default]
    Pcp,
    /// The DSCP (2).
    Dscp,
    /// The DSCP of an IP packet, else the priority code point (3; ours, after register QPTS).
    Both,
}

/// `CongestionAction`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HintAction {
    /// Nothing (0).
    Off,
    /// Drop (1).
    Drop,
    /// Mark (2).
    #[default]
    Mark,
}

/// `CongestionMode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HintMode {
    /// 0.
    Aggressive,
    /// 1.
    #[default]
    Dynamic,
}

/// What the keys of quality of service say. The default is what acts while nothing is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QosKeys {
    /// `*FlowControl`: global pause is sent (1, 3, 4).
    pub pause_tx: bool,
    /// `*FlowControl`: global pause is obeyed (2, 3, 4).
    pub pause_rx: bool,
    /// `DefaultUntaggedPriority`.
    pub default_priority: u8,
    /// `RxTrustedState`.
    pub trust: RxTrust,
    /// `DscpToPriorityMappingTable_0..63`.
    pub dscp_to_priority: [u8; 64],
    /// `DscpBasedEtsEnabled`: that table counts; otherwise the static one, eight values each.
    pub dscp_table: bool,
    /// `PriorityToDscpMappingTable_0..7`, and where it is set `RroceDscpMarkPriorityFlowControl[0..7]`.
    pub priority_to_dscp: [u8; 8],
    /// `DscpBasedpfcEnabled`: the DSCP of RDMA packets follows their priority.
    pub dscp_by_priority: bool,
    /// `DscpForGlobalFlowControl`: DSCP of RDMA packets that have no priority.
    pub default_dscp: u8,
    /// `RxUntaggedMapToLossless`.
    pub untagged_to_lossless: bool,
    /// `*QoSOffload`: schedule queues act.
    pub offload: bool,
    /// `*QosOffloadSupportedTCs`, a bit each.
    pub offload_classes: u8,
    /// `SendQueuePerPrio`.
    pub send_queue_per_priority: bool,
    /// `TCHeadOfQueueLifeTimeLimit`, log2 of 4.096 us; 20: for ever.
    pub lifetime: u8,
    /// `TCStallCount`.
    pub stall_count: u8,
    /// `TCHeadOfQueueLifeTimeLimitEnable`, a bit each class.
    pub lifetime_classes: u8,
    /// `DeviceRxStallTimeout` in ms: the critical watermark; 0: never.
    pub stall_critical_ms: u32,
    /// `DeviceRxStallWatermark` in ms: the minor watermark; 0: never.
    pub stall_minor_ms: u32,
    /// `CongestionMonitoringEnable`.
    pub hint: bool,
    /// `CongestionAction`.
    pub hint_action: HintAction,
    /// `CongestionMode`.
    pub hint_mode: HintMode,
}

/// Priority by DSCP where nothing else is set, eight values each (WinOF-2 Ethernet Network, Receive Trust State).
const STATIC_MAP: [u8; 64] = {
    let mut map = [0; 64];
    let mut i = 0;
    while i < 64 {
        map[i] = (i / 8) as u8;
        i += 1;
    }
    map
};

impl Default for QosKeys {
    fn default() -> Self {
        QosKeys {
            pause_tx: true,
            pause_rx: true,
            default_priority: 0,
            trust: RxTrust::default(),
            dscp_to_priority: {
                // Two rows of the documented table differ from the static one.
                let mut map = STATIC_MAP;
                map[3] = 3;
                map[4] = 4;
                map
            },
            dscp_table: false,
            priority_to_dscp: [0, 1, 2, 3, 4, 5, 6, 7],
            dscp_by_priority: false,
            default_dscp: 26,
            untagged_to_lossless: false,
            offload: true,
            offload_classes: 0xff,
            send_queue_per_priority: false,
            lifetime: 19,
            stall_count: 7,
            lifetime_classes: 0,
            stall_critical_ms: 8000,
            stall_minor_ms: 6800,
            hint: false,
            hint_action: HintAction::default(),
            hint_mode: HintMode::default(),
        }
    }
}

impl QosKeys {
    /// What acts with these numbers. `number` gives what counts for a key, or None where nothing acts.
    pub(super) fn from_numbers(number: impl Fn(&'static str) -> Option<u32>) -> QosKeys {
        let unset = QosKeys::default();
        let byte = |name, unset: u8| number(name).map_or(unset, |n| u8::try_from(n).unwrap_or(unset));
        let switch = |name, unset: bool| number(name).map_or(unset, |n| n != 0);
        let flow_control = number("*FlowControl");
        QosKeys {
            pause_tx: flow_control.map_or(unset.pause_tx, |v| matches!(v, 1 | 3 | 4)),
            pause_rx: flow_control.map_or(unset.pause_rx, |v| matches!(v, 2..=4)),
            default_priority: byte("DefaultUntaggedPriority", unset.default_priority),
            trust: match number("RxTrustedState") {
                Some(0) => RxTrust::Port,
                Some(1) => RxTrust::Pcp,
                Some(2) => RxTrust::Dscp,
                Some(3) => RxTrust::Both,
                _ => unset.trust,
            },
            dscp_to_priority: core::array::from_fn(|dscp| {
                byte(TO_PRIORITY[dscp].name, unset.dscp_to_priority[dscp])
            }),
            dscp_table: switch("DscpBasedEtsEnabled", unset.dscp_table),
            priority_to_dscp: core::array::from_fn(|priority| {
                let newer = byte(TO_DSCP[priority].name, unset.priority_to_dscp[priority]);
                byte(MARKS[priority].name, newer)
            }),
            dscp_by_priority: switch("DscpBasedpfcEnabled", unset.dscp_by_priority),
            default_dscp: byte("DscpForGlobalFlowControl", unset.default_dscp),
            untagged_to_lossless: switch("RxUntaggedMapToLossless", unset.untagged_to_lossless),
            offload: switch("*QoSOffload", unset.offload),
            offload_classes: byte("*QosOffloadSupportedTCs", unset.offload_classes),
            send_queue_per_priority: switch("SendQueuePerPrio", unset.send_queue_per_priority),
            lifetime: byte("TCHeadOfQueueLifeTimeLimit", unset.lifetime),
            stall_count: byte("TCStallCount", unset.stall_count),
            lifetime_classes: byte("TCHeadOfQueueLifeTimeLimitEnable", unset.lifetime_classes),
            stall_critical_ms: number("DeviceRxStallTimeout").unwrap_or(unset.stall_critical_ms),
            stall_minor_ms: number("DeviceRxStallWatermark").unwrap_or(unset.stall_minor_ms),
            hint: switch("CongestionMonitoringEnable", unset.hint),
            hint_action: match number("CongestionAction") {
                Some(0) => HintAction::Off,
                Some(1) => HintAction::Drop,
                Some(2) => HintAction::Mark,
                _ => unset.hint_action,
            },
            hint_mode: match number("CongestionMode") {
                Some(0) => HintMode::Aggressive,
                Some(1) => HintMode::Dynamic,
                _ => unset.hint_mode,
            },
        }
    }

    /// The watermarks of the receive path that count, in ms, 0: never: how long it may stand still before that is told, and
    /// before pause ends. Not every number of the keys makes sense together with the other.
    pub fn acting_watermarks(&self) -> (u32, u32) {
        let critical = match self.stall_critical_ms {
            0 => 0,
            ms => ms.max(STALL_MIN_MS),
        };
        let minor = match self.stall_minor_ms {
            0 => 0,
            ms if critical != 0 && ms > critical => (critical * 85 / 100).max(STALL_MIN_MS),
            ms => ms.max(STALL_MIN_MS),
        };
        (minor, critical)
    }

    /// Lets another map by DSCP count: the table's, or nothing of the table where the static one is the same.
    pub fn set_dscp_map(&mut self, map: [u8; 64]) {
        self.dscp_table = map != STATIC_MAP;
        self.dscp_to_priority = match self.dscp_table {
            true => map,
            false => QosKeys::default().dscp_to_priority,
        };
    }

    /// The map by DSCP that counts.
    pub fn acting_dscp_map(&self) -> [u8; 64] {
        if self.dscp_table {
            self.dscp_to_priority
        } else {
            STATIC_MAP
        }
    }
}
