//! Tags of transmitted packets.

use super::super::Scopes;
use super::{KeyDef, field};

const TEAMING: &str = "WinOF-2 Ethernet Network, VLAN Support";

pub(super) const KEYS: &[KeyDef] = &[
    KeyDef::number("VlanID", 0, 4094)
        .acts(field!(vlan_id))
        .default(0)
        .scopes(Scopes::ADAPTER.union(Scopes::TEAM))
        .help("VLAN with which all transmitted packets are tagged; 0: none.")
        .note(
            "Documented for the virtual adapter of a team; the QoS section sets it for a physical one too. When it acts is \
             not documented: at restart.",
        )
        .source(TEAMING),
    KeyDef::number("VlanPrio", 0, 7)
        .acts(field!(vlan_prio))
        .default(0)
        .scopes(Scopes::ADAPTER.union(Scopes::TEAM))
        .help("Priority in the tags of transmitted packets.")
        .note(
            "While VlanID is 0, packets without a tag get a priority tag (VLAN 0) if this is not 0, unless TxUntagPriorityTag \
             is 1. When it acts is not documented: at restart, as VlanID.",
        )
        .source(TEAMING),
    KeyDef::switch("TxUntagPriorityTag")
        .acts(field!(tx_untag_priority_tag))
        .default(0)
        .help("0: transmitted packets to which a policy assigns a priority, and no VLAN, leave with a priority tag (VLAN 0). 1: without a tag.")
        .note(
            "They count on their original priority all the same. RDMA packets of another priority than 0 get one, too, unless \
             the adapter trusts the DSCP. Receivers that are access ports get no tags. For PFC by DSCP, set it to 1.",
        )
        .source("WinOF-2 Ethernet Network, DSCP: Registry Settings"),
];
