//! Quality of service and flow control, as far as the documents have keys for it.

use vnic_wire::qos::{Guard, HintSettings, Lifetimes, MarkRules, PriorityRules, SendRules};

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
    /// What names the priority of a frame.
    pub priorities: PriorityRules,
    /// `DscpToPriorityMappingTable_0..63`.
    pub dscp_to_priority: [u8; 64],
    /// `DscpBasedEtsEnabled`: that table counts; otherwise the static one, eight values each.
    pub dscp_table: bool,
    /// `PriorityToDscpMappingTable_0..7`.
    pub priority_to_dscp: [u8; 8],
    /// `RroceDscpMarkPriorityFlowControl[0..7]`, the older name of the same: it counts where it is set.
    pub priority_marks: [Option<u8>; 8],
    /// How RDMA packets get their DSCP.
    pub marks: MarkRules,
    /// How frames wait to be sent.
    pub sending: SendRules,
    /// Head-of-queue lifetime.
    pub lifetimes: Lifetimes,
    /// The watermarks of the receive path, as they are stored: what counts is [`QosKeys::acting_watermarks`].
    pub guard: Guard,
    /// Early marks and drops.
    pub hint: HintSettings,
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
            priorities: PriorityRules::default(),
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
            marks: MarkRules::default(),
            sending: SendRules::default(),
            lifetimes: Lifetimes::default(),
            guard: Guard::default(),
            hint: HintSettings::default(),
        }
    }
}

impl QosKeys {
    /// The watermarks of the receive path that count. Not every number of the keys makes sense together with the other.
    pub fn acting_watermarks(&self) -> Guard {
        let least = *Guard::WATERMARK.start();
        let Guard {
            minor_ms,
            critical_ms,
        } = self.guard;
        let critical_ms = if critical_ms == 0 {
            0
        } else {
            critical_ms.max(least)
        };
        let minor_ms = match minor_ms {
            0 => 0,
            ms if critical_ms != 0 && ms > critical_ms => (critical_ms * 85 / 100).max(least),
            ms => ms.max(least),
        };
        Guard {
            minor_ms,
            critical_ms,
        }
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
