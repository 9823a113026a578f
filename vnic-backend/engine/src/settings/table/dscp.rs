//! Priorities by DSCP.

use super::{KeyDef, family, field};

const SETTINGS: &str = "WinOF-2 Ethernet Network, DSCP: Registry Settings";
const TABLE: &str = "WinOF-2 Ethernet Network, DSCP Based QoS";
const MARK: &str = "WinOF-2 Ethernet Network, Setting the DSCP in the IP Header";

const fn to_dscp(name: &'static str, default: u32) -> KeyDef {
    KeyDef::number(name, 0, 63)
        .default(default)
        .unit("DSCP")
        .help("DSCP of RDMA packets of this priority.")
        .note(
            "RroceDscpMarkPriorityFlowControl of the same priority, the older name, wins where it is stored.",
        )
        .source(SETTINGS)
}

const fn to_priority(name: &'static str, default: u32) -> KeyDef {
    KeyDef::number(name, 0, 7)
        .default(default)
        .unit("PCP")
        .help("Priority of packets with this DSCP, where RxTrustedState is 2 and DscpBasedEtsEnabled is 1.")
        .note(
            "While DscpBasedEtsEnabled is 0, the static table of the section Receive Trust State counts. The defaults are those of this section, with priority 3 for DSCP 3 and 4 for DSCP 4. The section Receive Trust \
             State maps 0 to 7 to priority 0 throughout.",
        )
        .source(TABLE)
}

const fn mark(name: &'static str, (): ()) -> KeyDef {
    KeyDef::number(name, 0, 63)
        .unit("DSCP")
        .help("DSCP of RDMA packets of this priority; older name of PriorityToDscpMappingTable.")
        .note(
            "No default is documented: while it is not stored, PriorityToDscpMappingTable of the same priority counts. Where \
             it is stored, it wins, and packets of RDMA to which a policy gives this priority have it also where \
             RxTrustedState is 1 and DscpBasedpfcEnabled is 0.",
        )
        .source(MARK)
}

pub(super) const SWITCHES: &[KeyDef] = &[
    KeyDef::switch("RxUntaggedMapToLossless")
        .acts(field!("untagged_to_lossless": qos.priorities.untagged_to_lossless))
        .alias(&["RxUntaggedMapToLossles"])
        .default(0)
        .dynamic()
        .illegal_is_default()
        .help("1: packets without a tag go to the lossless receive queue.")
        .note(
            "The table's footer wants a restart for every key, the row says dynamic since 2.10: it is dynamic. The row says \
             that it counts only where priorities come from tags, and that PFC by DSCP needs it: it is allowed with both.",
        )
        .source(SETTINGS),
    KeyDef::switch("DscpBasedEtsEnabled")
        .acts(field!("dscp_to_priority": qos.dscp_table))
        .default(0)
        .help("1: DscpToPriorityMappingTable counts; 0: the static table, eight DSCP values for each priority.")
        .note("Whether DSCPs count at all is RxTrustedState's to say, for both ways.")
        .source(SETTINGS),
    KeyDef::switch("DscpBasedpfcEnabled")
        .acts(field!(qos.marks.dscp_by_priority))
        .unset(0)
        .help("The DSCP of an RDMA packet follows its priority.")
        .note("No default is documented: 0 while nothing is stored.")
        .source(SETTINGS),
    KeyDef::number("DscpForGlobalFlowControl", 0, 63)
        .acts(field!(qos.marks.default_dscp))
        .default(26)
        .unit("DSCP")
        .help("DSCP of RDMA packets that have no priority.")
        .source(SETTINGS),
    KeyDef::one_of("RxTrustedState", &[(0, "port"), (1, "PCP"), (2, "DSCP"), (3, "both")])
        .acts(field!("trust": qos.priorities.trust))
        .default(1)
        .help("What gives packets their priority.")
        .note(
            "1 and 2 are documented. 0 (none: the default priority for all) and 3 (the DSCP of IP packets, the PCP of others) \
             are ours, after the trust states of the cards (register QPTS).",
        )
        .source("WinOF-2 Ethernet Network, Receive Trust State"),
];

pub(super) const TO_DSCP: &[KeyDef] = &family!(
    "PriorityToDscpMappingTable_", "", to_dscp, qos.priority_to_dscp,
    0 => 0, 1 => 1, 2 => 2, 3 => 3, 4 => 4, 5 => 5, 6 => 6, 7 => 7,
);

pub(super) const TO_PRIORITY: &[KeyDef] = &family!(
    "DscpToPriorityMappingTable_", "", to_priority, "dscp_to_priority": qos.dscp_to_priority,
    0 => 0, 1 => 0, 2 => 0, 3 => 3, 4 => 4, 5 => 0, 6 => 0, 7 => 0,
    8 => 1, 9 => 1, 10 => 1, 11 => 1, 12 => 1, 13 => 1, 14 => 1, 15 => 1,
    16 => 2, 17 => 2, 18 => 2, 19 => 2, 20 => 2, 21 => 2, 22 => 2, 23 => 2,
    24 => 3, 25 => 3, 26 => 3, 27 => 3, 28 => 3, 29 => 3, 30 => 3, 31 => 3,
    32 => 4, 33 => 4, 34 => 4, 35 => 4, 36 => 4, 37 => 4, 38 => 4, 39 => 4,
    40 => 5, 41 => 5, 42 => 5, 43 => 5, 44 => 5, 45 => 5, 46 => 5, 47 => 5,
    48 => 6, 49 => 6, 50 => 6, 51 => 6, 52 => 6, 53 => 6, 54 => 6, 55 => 6,
    56 => 7, 57 => 7, 58 => 7, 59 => 7, 60 => 7, 61 => 7, 62 => 7, 63 => 7,
);

pub(super) const MARKS: &[KeyDef] = &family!(
    "RroceDscpMarkPriorityFlowControl[", "]", mark, qos.priority_marks,
    0 => (), 1 => (), 2 => (), 3 => (), 4 => (), 5 => (), 6 => (), 7 => (),
);
