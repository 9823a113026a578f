//! Keys of quality of service and flow control.

use vnic_wire::qos::{Guard, HintSettings, Lifetimes, MarkRules, PriorityRules, SendRules};

/// Global pause (`*FlowControl`; IEEE 802.3 annex 31B).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FlowControl {
    /// Pause frames are neither sent nor obeyed.
    Off = 0,
    /// Pause frames are sent.
    Transmit = 1,
    /// Pause frames are obeyed.
    Receive = 2,
    /// Pause frames are sent and obeyed.
    #[default]
    Both = 3,
    /// As `Both`, and a frame that finds no receive buffer of the guest waits for one, while its senders are paused. (A link here
    /// has no partner for autonegotiation.)
    Negotiated = 4,
}

impl FlowControl {
    /// Flow control with these two directions.
    pub const fn of(sent: bool, obeyed: bool) -> FlowControl {
        match (sent, obeyed) {
            (false, false) => FlowControl::Off,
            (true, false) => FlowControl::Transmit,
            (false, true) => FlowControl::Receive,
            (true, true) => FlowControl::Both,
        }
    }

    /// Whether pause frames are sent.
    pub const fn is_sent(self) -> bool {
        matches!(
            self,
            FlowControl::Transmit | FlowControl::Both | FlowControl::Negotiated
        )
    }

    /// Whether pause frames are obeyed.
    pub const fn is_obeyed(self) -> bool {
        matches!(
            self,
            FlowControl::Receive | FlowControl::Both | FlowControl::Negotiated
        )
    }
}

/// Values of the keys of quality of service. The default is what acts while nothing is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QosKeys {
    /// `*FlowControl`.
    pub flow_control: FlowControl,
    /// Rules of the priority of a frame.
    pub priorities: PriorityRules,
    /// `DscpToPriorityMappingTable_0..63`.
    pub dscp_to_priority: [u8; 64],
    /// `DscpBasedEtsEnabled`: whether `dscp_to_priority` counts; otherwise the static map does, eight values for each priority.
    pub dscp_table: bool,
    /// `PriorityToDscpMappingTable_0..7`.
    pub priority_to_dscp: [u8; 8],
    /// `RroceDscpMarkPriorityFlowControl[0..7]`: older name of `PriorityToDscpMappingTable_0..7`; a value here overrides it.
    pub priority_marks: [Option<u8>; 8],
    /// Rules of the DSCP of RDMA packets.
    pub marks: MarkRules,
    /// Rules of the send queues.
    pub sending: SendRules,
    /// Head-of-queue lifetime.
    pub lifetimes: Lifetimes,
    /// Watermarks of the receive path, as they are stored; [`QosKeys::acting_watermarks`] returns those that act.
    pub guard: Guard,
    /// Early marks and drops.
    pub hint: HintSettings,
}

/// Default priority by DSCP, eight values for each priority (WinOF-2 Ethernet Network, Receive Trust State).
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
                // Two rows of the documented table differ from the static map.
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
    /// Watermarks of the receive path that act. Some stored numbers are adjusted, because they make no sense together.
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

    /// Sets the map from DSCP to priority: the table's, or the static one if it is the same.
    pub fn set_dscp_map(&mut self, map: [u8; 64]) {
        self.dscp_table = map != STATIC_MAP;
        self.dscp_to_priority = match self.dscp_table {
            true => map,
            false => QosKeys::default().dscp_to_priority,
        };
    }

    /// Map from DSCP to priority that acts.
    pub fn acting_dscp_map(&self) -> [u8; 64] {
        if self.dscp_table {
            self.dscp_to_priority
        } else {
            STATIC_MAP
        }
    }

    /// DSCP of each priority that acts.
    pub fn acting_priority_to_dscp(&self) -> [u8; 8] {
        core::array::from_fn(|priority| {
            self.priority_marks[priority].unwrap_or(self.priority_to_dscp[priority])
        })
    }

    /// Priorities, a bit each, whose DSCP was named for RDMA.
    pub fn named_dscp(&self) -> u8 {
        let named = self.priority_marks.iter().enumerate();
        named.fold(0, |all, (priority, mark)| {
            all | u8::from(mark.is_some()) << priority
        })
    }
}
