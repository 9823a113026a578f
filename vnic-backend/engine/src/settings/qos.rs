//! Quality of service and flow control, as far as the documents have keys for it.

use super::{HintAction, HintMode, Trust};

/// Least watermark of the receive path (register PFCC).
const STALL_MIN_MS: u32 = 80;

/// Global pause (`*FlowControl`; IEEE 802.3 annex 31B).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FlowControl {
    /// None.
    Off = 0,
    /// Pause frames are sent.
    Transmit = 1,
    /// Pause frames are obeyed.
    Receive = 2,
    /// Both.
    #[default]
    Both = 3,
    /// Both: a link here has nobody to negotiate with.
    Negotiated = 4,
}

impl FlowControl {
    /// Sent, and obeyed?
    pub const fn of(sent: bool, obeyed: bool) -> FlowControl {
        match (sent, obeyed) {
            (false, false) => FlowControl::Off,
            (true, false) => FlowControl::Transmit,
            (false, true) => FlowControl::Receive,
            (true, true) => FlowControl::Both,
        }
    }

    /// Are pause frames sent?
    pub const fn is_sent(self) -> bool {
        matches!(
            self,
            FlowControl::Transmit | FlowControl::Both | FlowControl::Negotiated
        )
    }

    /// Are pause frames obeyed?
    pub const fn is_obeyed(self) -> bool {
        matches!(
            self,
            FlowControl::Receive | FlowControl::Both | FlowControl::Negotiated
        )
    }
}

/// What the keys of quality of service say. The default is what acts while nothing is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QosKeys {
    /// `*FlowControl`.
    pub flow_control: FlowControl,
    /// `DefaultUntaggedPriority`.
    pub default_priority: u8,
    /// `RxTrustedState`.
    pub trust: Trust,
    /// `DscpToPriorityMappingTable_0..63`.
    pub dscp_to_priority: [u8; 64],
    /// `DscpBasedEtsEnabled`: that table counts; otherwise the static one, eight values each.
    pub dscp_table: bool,
    /// `PriorityToDscpMappingTable_0..7`.
    pub priority_to_dscp: [u8; 8],
    /// `RroceDscpMarkPriorityFlowControl[0..7]`, the older name of the same: it counts where it is set.
    pub priority_marks: [Option<u8>; 8],
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
            flow_control: FlowControl::default(),
            default_priority: 0,
            trust: Trust::default(),
            dscp_to_priority: {
                // Two rows of the documented table differ from the static one.
                let mut map = STATIC_MAP;
                map[3] = 3;
                map[4] = 4;
                map
            },
            dscp_table: false,
            priority_to_dscp: [0, 1, 2, 3, 4, 5, 6, 7],
            priority_marks: [None; 8],
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

    /// The DSCP by priority that counts.
    pub fn acting_priority_to_dscp(&self) -> [u8; 8] {
        core::array::from_fn(|priority| {
            self.priority_marks[priority].unwrap_or(self.priority_to_dscp[priority])
        })
    }
}
