//! How packets of an adapter are marked, and which priority its queue pairs have: traffic class, DSCP, priority code point
//! (`rdma-notes-zh` sections 13 and 24; WinOF-2 Ethernet Network, DSCP Based QoS: RDMA).

/// What names the priority of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MarkBy {
    /// Nothing: the default priority.
    Port,
    /// Service level, which is the priority code point where the packet has a tag.
    #[default]
    Pcp,
    /// DSCP: the upper six bits of the traffic class.
    Dscp,
}

/// Rules by which packets get their DSCP and queue pairs their priority.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marking {
    /// What names the priority.
    pub by: MarkBy,
    /// Priority of what says nothing.
    pub default_priority: u8,
    /// Priority by DSCP.
    pub dscp_to_priority: [u8; 64],
    /// DSCP by priority, written where `dscp_by_priority`.
    pub priority_to_dscp: [u8; 8],
    /// `DscpBasedpfcEnabled`.
    pub dscp_by_priority: bool,
    /// DSCP of what has neither traffic class nor service level (`DscpForGlobalFlowControl`), where `by` is DSCP.
    pub default_dscp: u8,
    /// Traffic class of everything, whatever queue pairs and address handles say.
    pub forced_traffic_class: Option<u8>,
    /// Priority that an operator's policy gives to all of it.
    pub policy_priority: Option<u8>,
    /// DSCP that an operator's policy gives to all of it.
    pub policy_dscp: Option<u8>,
}

impl Default for Marking {
    fn default() -> Self {
        Marking {
            by: MarkBy::default(),
            default_priority: 0,
            dscp_to_priority: core::array::from_fn(|i| (i / 8) as u8),
            priority_to_dscp: [0, 1, 2, 3, 4, 5, 6, 7],
            dscp_by_priority: false,
            default_dscp: 26,
            forced_traffic_class: None,
            policy_priority: None,
            policy_dscp: None,
        }
    }
}
